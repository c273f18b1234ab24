"""rdflib's ``SPARQLUpdateStore``, unmodified, through each master: a remote repository as a Graph and as a Dataset."""

from __future__ import annotations

from typing import Any

import pytest
from rdflib import Dataset, Graph, Literal, URIRef
from rdflib.plugins.stores.sparqlstore import SPARQLUpdateStore

from tests.system.clients.conftest import Door

# rdflib uses parts of itself that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")
A, B, P, G = (URIRef(f"urn:{name}") for name in "abpg")
TEXT = Literal("süß", lang="de")


def store(door: Door, method: str = "GET", **options: bool) -> SPARQLUpdateStore:
    address = f"{door.address}/sparql"
    return SPARQLUpdateStore(address, address, method=method, returnFormat="json", **options)


@pytest.mark.parametrize("method", ["GET", "POST", "POST_FORM"])
def test_a_graph_is_filled_read_queried_and_emptied(made: Door, method: str) -> None:
    graph = Graph(store(made, method), identifier=G)
    graph.add((A, P, TEXT))
    graph.add((A, P, Literal(7)))
    graph += Graph().parse(data="<urn:b> <urn:p> <urn:a> .", format="turtle")
    assert len(graph) == 3
    assert set(graph.objects(A, P)) == {TEXT, Literal(7)}
    assert (B, P, A) in graph
    rows: Any = graph.query("SELECT ?o { ?s ?p ?o FILTER(isIRI(?o)) }")
    assert [row.o for row in rows] == [A]
    assert graph.query("ASK { <urn:b> <urn:p> ?o }").askAnswer is True
    graph.update("DELETE { ?s ?p 7 } INSERT { ?s ?p 8 } WHERE { ?s ?p 7 }")
    graph.set((B, P, B))
    assert set(graph) == {(A, P, TEXT), (A, P, Literal(8)), (B, P, B)}
    made.everywhere("/size", lambda text: text == "3")
    graph.remove((A, None, None))
    assert set(graph) == {(B, P, B)}
    graph.remove((None, None, None))
    assert len(graph) == 0


def test_a_dataset_has_a_default_graph_and_named_ones(made: Door) -> None:
    dataset = Dataset(store=store(made))
    dataset.add((A, P, A))
    # CREATE GRAPH, which SPARQL lets fail for a graph that exists: it is asked for once.
    graph = dataset.graph(G)
    graph.add((A, P, B))
    assert set(graph) == {(A, P, B)}
    assert (A, P, B) not in dataset.default_graph
    assert G in {each.identifier for each in dataset.graphs()}
    dataset.remove_graph(graph)
    assert len(graph) == 0
    assert (A, P, A) in dataset


def test_edits_wait_for_the_commit_and_go_with_the_rollback(made: Door) -> None:
    waiting = store(made, autocommit=False, dirty_reads=True)
    graph = Graph(waiting, identifier=G)
    graph.add((A, P, A))
    graph.add((A, P, B))
    assert len(graph) == 0
    waiting.commit()
    assert len(graph) == 2
    graph.remove((A, P, A))
    waiting.rollback()
    waiting.commit()
    assert len(graph) == 2
