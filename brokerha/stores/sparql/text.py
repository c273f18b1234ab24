"""Admission of SPARQL: the check of a request before it is accepted into the log.

The execution can still reject an admitted update (CREATE of a graph that exists). But an admitted update is well formed and
understood in each part, and touches only the repository's own data. The execution parses it again, so that nothing depends on the
version that admitted it.

    check_update("INSERT DATA { <urn:a> <urn:p> 1 }")        passes
    check_update("INSERT DATA { <urn:a> <urn:p> ?x }")       InvalidRequest: MALFORMED QUERY: line 1, column 38: ...
    check_query("SELECT * { SERVICE <http://x/> {} }")       InvalidRequest: ... SERVICE is refused ...
"""

from __future__ import annotations

from pyoxigraph import DefaultGraph, Store

from brokerha.stores.rdf.change import check_not_reserved
from brokerha.stores.sparql.request import read_query, read_update, syntax_error
from brokerha.stores.sparql.template import read_iri, read_plain_data, read_templates


def check_update(text: str) -> None:
    """Check an update request at admission. Raises InvalidRequest (``MALFORMED QUERY: ...``), LOAD, SERVICE, reserved IRIs."""
    if read_plain_data(text) is None:
        request = read_update(text)
        for part in request.parts:
            templates = read_templates(request, part)
            constant = [each.quad for each in (*templates.delete, *templates.insert) if not any(each.variables())]
            check_not_reserved({str(quad): quad for quad in constant})
            for graph in (*part.graphs, part.with_graph):
                if isinstance(graph, int):
                    read_iri(request, part, graph)


def check_query(text: str) -> None:
    """Check a query at admission. Raises InvalidRequest (``MALFORMED QUERY: ...``), SERVICE, reserved IRIs."""
    read_query(text)
    try:
        # The engine refuses these two arguments together, after it has parsed the text and before it evaluates.
        Store().query(text, use_default_graph_as_union=True, default_graph=[DefaultGraph()])
    except SyntaxError as error:
        raise syntax_error(error, text, text) from None
    except ValueError:
        return
