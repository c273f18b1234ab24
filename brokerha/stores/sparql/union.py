"""Updates of a repository whose default graph is the union of all graphs, as in RDF4J.

    WHERE without USING and WITH      sees all graphs as one; GRAPH works as usual
    DELETE without GRAPH              removes from every graph (DELETE DATA, DELETE WHERE, DELETE … WHERE)
    INSERT without GRAPH              adds to the default graph itself
    CLEAR, COPY, MOVE, ADD DEFAULT    mean the default graph itself

The engine has such a union for queries only. So the clause is evaluated as a query, which reports its solutions to the same
functions as an update (modify.py). That query sees the engine alone. With pending changes on top, the clause is evaluated in an
update that aborts. The union is made inside it, by moving the smaller part:

    many in named graphs       COPY DEFAULT TO <x>      USING <x> USING <g1> … USING NAMED <g1> …
    many in the default graph  INSERT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad, QuerySolutions, Store, Triple

from brokerha.model.errors import Rejected
from brokerha.stores.rdf.change import AS_BLANK_FUNCTIONS
from brokerha.stores.rdf.errors import CANNOT_READ, is_of_files, store_error
from brokerha.stores.rdf.terms import Function, Graph
from brokerha.stores.rdf.view import QuadView, state_text, undone
from brokerha.stores.sparql.modify import Modify
from brokerha.stores.sparql.tokens import RESERVED

_DEFAULT: Final = f"<{RESERVED}default>"
_MERGE: Final = "INSERT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } };\n"


class Union(NamedTuple):
    """A union inside a transaction that aborts."""

    prepare: str
    """Operations before the clause."""
    using: str
    """The dataset of the clause."""


def union_of(engine: Store, graphs: Iterable[Graph], more: Iterable[Graph] = ()) -> Union:
    """Return the cheaper union; ``graphs`` are the named ones of the engine, ``more`` those made before the clause."""
    held = [graph for graph in graphs if not isinstance(graph, DefaultGraph)]
    names = dict.fromkeys([*held, *(graph for graph in more if not isinstance(graph, DefaultGraph))])
    if any(isinstance(name, BlankNode) for name in names) or not _is_default_smaller(engine, held):
        return Union(_MERGE, "")
    using = "".join(f"USING {name} USING NAMED {name}\n" for name in names)
    return Union(f"COPY SILENT DEFAULT TO {_DEFAULT};\n", f"USING {_DEFAULT}\n{using}")


def _is_default_smaller(engine: Store, graphs: list[NamedNode | BlankNode]) -> bool:
    """Tell whether the default graph has fewer quads than the named ones; reads only as many as the smaller number of both."""
    default = engine.quads_for_pattern(None, None, None, DefaultGraph())
    named = chain.from_iterable(engine.quads_for_pattern(None, None, None, graph) for graph in graphs)
    return all(next(named, None) is not None for _ in default)


def not_evaluated(error: Exception) -> Rejected:
    """Return the error for an update that the engine cannot evaluate."""
    return Rejected(f"the update cannot be evaluated: {error}")


def evaluate_on_union(engine: Store, graphs: Iterable[Graph], view: QuadView, modify: Modify) -> None:
    """Let the engine report the solutions of one clause; ``graphs`` are its named ones. Raises Rejected, StoreError."""
    removed, added = view.over_engine()
    functions: dict[NamedNode, Function] = {**AS_BLANK_FUNCTIONS, **modify.functions()}
    if removed or added:
        union = union_of(engine, graphs, (quad.graph_name for quad in added))
        clause = modify.text(with_templates=False, using=union.using)
        state = state_text(engine, removed, added, names_graphs=True)
        undone(engine, f"{modify.prologue}{state}{union.prepare}{clause}", functions, not_evaluated)
    else:
        _query(engine, list(graphs), modify, functions)
    modify.check()


def _query(engine: Store, graphs: list[Graph], modify: Modify, functions: dict[NamedNode, Function]) -> None:
    named = [graph for graph in graphs if not isinstance(graph, DefaultGraph)]
    try:
        found = engine.query(modify.query(), default_graph=[DefaultGraph(), *named], named_graphs=named, custom_functions=functions)
        if isinstance(found, QuerySolutions):
            for _ in found:
                pass
    except (SyntaxError, OSError, RuntimeError, ValueError) as error:
        if is_of_files(error):
            raise store_error(error, CANNOT_READ) from error
        raise not_evaluated(error) from None


def everywhere(view: QuadView, quads: Iterable[Quad]) -> dict[str, Quad]:
    """Return the quads to remove: quads without a graph stand for those in all graphs."""
    found: dict[str, Quad] = {}
    anywhere: list[Triple] = []
    for quad in quads:
        if isinstance(quad.graph_name, DefaultGraph):
            anywhere.append(quad.triple)
        else:
            found[str(quad)] = quad
    if anywhere:
        found.update((str(each), each) for each in view.in_all_graphs(anywhere))
    return found
