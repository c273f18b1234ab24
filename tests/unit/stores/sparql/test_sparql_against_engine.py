"""Our effects against the engine's own updates, on random small requests over a small world.

Where SPARQL leaves a choice ours is not the engine's: empty graphs do not exist, and a graph that does not exist cannot be
added, copied or moved. The oracle does without both: it drops what is empty, and such operations must be rejected.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import DefaultGraph, NamedNode, Quad, Store

from brokerha.model.errors import Rejected
from brokerha.stores.rdf.change import PendingQuads
from tests.unit.stores.rdf_site import TIMESTAMP_US, Site, on_quads

_NODES = st.sampled_from(["<urn:a>", "<urn:b>", "<urn:g>"])
_VERBS = st.sampled_from(["<urn:p>", "<urn:q>"])
_VALUES = st.one_of(_NODES, st.sampled_from(["1", "02", "'x'", "'x'@EN"]))
_GRAPHS = st.sampled_from(["<urn:g>", "<urn:h>"])
_SUBJECTS_OR_VARIABLES = st.one_of(_NODES, st.sampled_from(["?s", "?o"]))
_VERBS_OR_VARIABLES = st.one_of(_VERBS, st.just("?p"))
_VALUES_OR_VARIABLES = st.one_of(_VALUES, st.sampled_from(["?o", "?s", "?n"]))
_CLAUSES = st.sampled_from(
    [
        "?s ?p ?o",
        "?s <urn:p> ?o . ?s <urn:q> ?n",
        "?s ?p ?o OPTIONAL { ?o <urn:q> ?n }",
        "GRAPH ?g { ?s ?p ?o }",
        "GRAPH <urn:g> { ?s ?p ?o } BIND(<urn:h> AS ?g)",
        "{ ?s <urn:p> ?o } UNION { GRAPH ?g { ?o <urn:q> ?s } }",
        "?s ?p ?o FILTER(isNumeric(?o)) BIND(?o + 1 AS ?n)",
        "{ SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s }",
        "VALUES (?s ?o) { (<urn:a> 1) (UNDEF 2) (<urn:b> UNDEF) } ?s ?p ?o",
        "?s ?p ?o FILTER NOT EXISTS { GRAPH <urn:h> { ?s ?p ?o } }",
        "",
    ]
)
_ALIKE = st.sampled_from(
    ["?s ?p ?o", "?s <urn:p> ?o .", "?s ?p 2", "GRAPH <urn:g> { ?s ?p <urn:a> }", "GRAPH ?g { ?s <urn:p> ?o }"]
)
"""Patterns that need no engine."""


@st.composite
def _block(draw: st.DrawFn, *, with_variables: bool) -> str:
    pieces = []
    for _ in range(draw(st.integers(1, 3))):
        if with_variables:
            triple = f"{draw(_SUBJECTS_OR_VARIABLES)} {draw(_VERBS_OR_VARIABLES)} {draw(_VALUES_OR_VARIABLES)}"
            graph = draw(st.one_of(st.just(""), _GRAPHS, st.just("?g")))
        else:
            triple, graph = f"{draw(_NODES)} {draw(_VERBS)} {draw(_VALUES)}", draw(st.one_of(st.just(""), _GRAPHS))
        pieces.append(f"GRAPH {graph} {{ {triple} }}" if graph else f"{triple} .")
    return " ".join(pieces)


@st.composite
def _operation(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["data", "data", "modify", "modify", "modify", "delete where", "clear", "transfer"]))
    if kind == "data":
        return f"{draw(st.sampled_from(['INSERT', 'DELETE']))} DATA {{ {draw(_block(with_variables=False))} }}"
    if kind == "delete where":
        block = draw(st.one_of(_block(with_variables=True), _ALIKE))
        head = draw(st.sampled_from(["DELETE", f"DELETE {{ {block} }}", f"WITH <urn:g> DELETE {{ {block} }}"]))
        return f"{head} WHERE {{ {block} }}"
    if kind == "clear":
        target = draw(st.sampled_from(["DEFAULT", "NAMED", "ALL", "GRAPH <urn:g>", "GRAPH <urn:h>"]))
        return f"{draw(st.sampled_from(['CLEAR', 'DROP']))} SILENT {target}"
    if kind == "transfer":
        ends = st.one_of(st.just("DEFAULT"), _GRAPHS)
        return f"{draw(st.sampled_from(['ADD', 'COPY', 'MOVE']))} {draw(ends)} TO {draw(ends)}"
    head = draw(st.one_of(st.just(""), _GRAPHS.map(lambda graph: f"WITH {graph}")))
    delete, insert = draw(_block(with_variables=True)), draw(_block(with_variables=True))
    templates = draw(
        st.sampled_from([f"DELETE {{ {delete} }}", f"INSERT {{ {insert} }}", f"DELETE {{ {delete} }} INSERT {{ {insert} }}"])
    )
    using = draw(
        st.sampled_from(["", "", "USING <urn:g>", "USING NAMED <urn:g>", "USING <urn:g> USING <urn:h> USING NAMED <urn:h>"])
    )
    return f"{head} {templates} {using} WHERE {{ {draw(_CLAUSES)} }}"


_REQUESTS = st.lists(st.lists(_operation(), min_size=1, max_size=4), min_size=1, max_size=4)


class Oracle:
    """A plain store of the engine, which runs the texts as they are."""

    def __init__(self) -> None:
        self.quads: set[Quad] = set()

    def run(self, operations: list[str]) -> bool:
        """Run a request; False, and nothing done, when an operation names a source that is not there."""
        store = Store()
        store.extend(self.quads)
        for operation in operations:
            verb, source, *_ = operation.split()
            if verb in {"ADD", "COPY", "MOVE"} and source not in {operation.split()[3], "DEFAULT"}:
                graph = NamedNode(source[1:-1])
                if next(store.quads_for_pattern(None, None, None, graph), None) is None:
                    return False
            store.update(operation)
            for graph_name in list(store.named_graphs()):
                if next(store.quads_for_pattern(None, None, None, graph_name), None) is None:
                    store.remove_graph(graph_name)
        self.quads = set(store)
        return True

    def lines(self) -> list[str]:
        return sorted(map(str, self.quads))


@settings(max_examples=150)
@given(_REQUESTS)
def test_effects_are_what_the_engine_itself_would_do(requests: list[list[str]]) -> None:
    executing, applying, oracle = Site(), Site(), Oracle()
    for operations in requests:
        before = executing.lines()
        if oracle.run(operations):
            change = executing.run(" ; ".join(operations))
            applying.apply(change)
            assert set(change.removed) <= set(before)
            assert set(change.added).isdisjoint(before)
        else:
            with pytest.raises(Rejected, match="does not exist"):
                executing.change(" ; ".join(operations))
        assert executing.lines() == oracle.lines()
        assert applying.lines() == oracle.lines()


@settings(max_examples=100)
@given(_REQUESTS)
def test_pending_and_committed_changes_are_seen_alike(requests: list[list[str]]) -> None:
    # Given the same transactions on two sites, one that commits each, one that keeps all of them pending
    committing, waiting = Site(), Site()
    pending = PendingQuads()
    for operations in requests:
        numbered = [(number, on_quads("update", text)) for number, text in enumerate(operations)]
        try:
            change = waiting.repository.change_of(numbered, "tx", TIMESTAMP_US, pending)
        except Rejected:
            continue
        # Then each has the same effect
        assert committing.run(*operations) == change
        pending.include(change)
    everything = pending.change()
    assert everything.removed == ()
    assert list(everything.added) == committing.lines()


def test_the_oracle_knows_the_default_graph_as_a_source() -> None:
    oracle = Oracle()
    assert oracle.run(["MOVE DEFAULT TO <urn:g>"])
    assert not oracle.run(["MOVE <urn:g> TO DEFAULT"])
    assert oracle.run(["INSERT DATA { <urn:a> <urn:p> 1 }", "COPY DEFAULT TO <urn:g>"])
    assert {quad.graph_name for quad in oracle.quads} == {DefaultGraph(), NamedNode("urn:g")}
