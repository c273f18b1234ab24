"""Updates of a repository whose default graph is the union of all graphs, as in RDF4J.

    WHERE without USING and WITH      sees all graphs as one, GRAPH as ever
    DELETE without GRAPH              removes from every graph (DELETE DATA, DELETE WHERE, DELETE … WHERE)
    INSERT without GRAPH              adds to the default graph proper
    CLEAR, COPY, MOVE, ADD DEFAULT    mean the default graph proper

The engine has such a union for queries only. So the clause is evaluated as a query, which reports its solutions to the same functions
as in an update (sparql_modify.py). That query shows the engine alone: where changes wait on top of it, the clause is evaluated in
an update that aborts, with the quads of all named graphs put into the default graph before, which costs as much as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pyoxigraph import DefaultGraph, NamedNode, Quad, QuerySolutions, Store

from brokerha.model.errors import Rejected
from brokerha.stores.rdf_change import AS_BLANK_FUNCTIONS, change_text
from brokerha.stores.rdf_errors import is_of_files, store_error
from brokerha.stores.rdf_terms import Function, Graph
from brokerha.stores.rdf_view import QuadView, emptied_graphs
from brokerha.stores.sparql_modify import Modify

MERGE: Final = "INSERT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } };\n"
"""Makes the default graph the union, within a transaction that aborts."""

RunUpdate = Callable[[str, dict[NamedNode, Function]], None]


def evaluate_on_union(
    engine: Store, graphs: Iterable[Graph], view: QuadView, modify: Modify, hide: str, end: str, run: RunUpdate
) -> None:
    """Have the engine report the solutions of one clause; ``graphs`` are the named ones of the engine. Raises Rejected, StoreError."""
    removed, added = view.over_engine()
    functions: dict[NamedNode, Function] = {**AS_BLANK_FUNCTIONS, **modify.functions()}
    if removed or added:
        empty = "".join(f"DROP SILENT GRAPH {name};\n" for name in emptied_graphs(engine, removed, added))
        pieces = [modify.prologue, change_text(removed, added), hide, empty, MERGE, modify.text(with_templates=False), end]
        run("".join(pieces), functions)
    else:
        _query(engine, list(graphs), modify, functions)
    modify.check()


def _query(engine: Store, graphs: list[Graph], modify: Modify, functions: dict[NamedNode, Function]) -> None:
    named = [graph for graph in graphs if not isinstance(graph, DefaultGraph)]
    try:
        found = engine.query(
            modify.query(), default_graph=[DefaultGraph(), *named], named_graphs=named, custom_functions=functions
        )
        if isinstance(found, QuerySolutions):
            for _ in found:
                pass
    except (SyntaxError, OSError, RuntimeError, ValueError) as error:
        if is_of_files(error):
            raise store_error(error, "the repository cannot be read") from error
        raise Rejected(f"the update cannot be evaluated: {error}") from None


def everywhere(view: QuadView, quads: Iterable[Quad]) -> dict[str, Quad]:
    """What is to be removed: quads without a graph stand for those in all graphs."""
    found: dict[str, Quad] = {}
    for quad in quads:
        if isinstance(quad.graph_name, DefaultGraph):
            found.update((str(each), each) for each in view.in_all_graphs(quad))
        else:
            found[str(quad)] = quad
    return found
