"""rdflib's client of RDF4J (``rdflib.contrib.rdf4j``), unmodified, through each master: a day's work of an application.

Given a cluster of three masters, when somebody creates repositories, loads, queries, changes and deletes through any of them, in
transactions and without, then the client sees what it would see at RDF4J, and the other masters come to the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from rdflib import Dataset, Graph, Literal, URIRef
from rdflib.contrib.rdf4j import RDF4JClient
from rdflib.contrib.rdf4j.client import Repository
from rdflib.contrib.rdf4j.exceptions import (
    RepositoryAlreadyExistsError,
    RepositoryNotFoundError,
    TransactionClosedError,
    TransactionCommitError,
)
from rdflib.graph import DATASET_DEFAULT_GRAPH_ID

from tests.system.clients.conftest import Door

CONFIG = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#>.
@prefix config: <tag:rdf4j.org,2023:config/>.
[] a config:Repository ; config:rep.id "{id}" ; rdfs:label "Books of {id}" ;
   config:rep.impl [ config:rep.type "openrdf:SailRepository" ; config:sail.impl [ config:sail.type "openrdf:MemoryStore" ] ].
"""
# rdflib uses parts of itself that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")
A, B, P, G, H = (URIRef(f"urn:{name}") for name in "abpgh")
TEXT = Literal("süß \U0001f36f", lang="de")
ALL = "SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


@pytest.fixture
def client(door: Door) -> Iterator[RDF4JClient]:
    with RDF4JClient(door.url) as found:
        yield found


@pytest.fixture
def repository(client: RDF4JClient, door: Door) -> Repository:
    return client.repositories.create(door.repository, CONFIG.format(id=door.repository))


def quads(*lines: str) -> str:
    return "".join(f"{line} .\n" for line in lines)


def test_repositories_are_created_listed_found_and_deleted(client: RDF4JClient, door: Door) -> None:
    assert client.protocol >= 12
    client.repositories.create(door.repository, CONFIG.format(id=door.repository))
    with pytest.raises(RepositoryAlreadyExistsError):
        client.repositories.create(door.repository, CONFIG.format(id=door.repository))

    [row] = [each for each in client.repositories.list() if each.identifier == door.repository]
    assert (row.uri, row.title) == (door.address, f"Books of {door.repository}")
    assert client.repositories.get(door.repository).health()

    client.repositories.delete(door.repository)
    with pytest.raises(RepositoryNotFoundError):
        client.repositories.get(door.repository)
    with pytest.raises(RepositoryNotFoundError):
        client.repositories.delete(door.repository)


def test_statements_are_uploaded_counted_read_overwritten_and_deleted(repository: Repository, door: Door) -> None:
    repository.upload(quads("<urn:a> <urn:p> <urn:b>", "<urn:a> <urn:p> <urn:b> <urn:g>", "<urn:b> <urn:p> <urn:a> <urn:h>"))
    data = Graph()
    data.add((A, P, TEXT))
    repository.upload(data.serialize(format="turtle"), content_type="text/turtle")
    repository.upload("<rel> <urn:p> 1 .", base_uri="http://base/", content_type="text/turtle")

    assert repository.size() == 5
    assert repository.size(G) == repository.size("urn:h") == 1
    assert repository.size([G, H]) == 2
    assert repository.size(DATASET_DEFAULT_GRAPH_ID) == 3
    assert sorted(repository.graph_names()) == [G, H]
    door.everywhere("/size", lambda text: text == "5")

    whole = repository.get()
    assert isinstance(whole, Dataset)
    assert len(list(whole.quads())) == 5
    assert (A, P, TEXT) in repository.get(graph_name=DATASET_DEFAULT_GRAPH_ID, content_type="text/turtle")
    assert set(repository.get(subj=A, obj=B, content_type="application/n-triples")) == {(A, P, B)}
    assert set(repository.get(pred=P, graph_name=[H], infer=False, content_type="application/rdf+xml")) == {(B, P, A)}

    repository.overwrite(quads("<urn:b> <urn:p> <urn:b> <urn:g>"), graph_name=G)
    assert repository.size() == 5
    assert repository.size(G) == 1
    repository.delete(subj=B, graph_name=G)
    repository.delete(subj=A, pred=P, obj=TEXT)
    assert repository.size() == 3
    repository.overwrite(quads("<urn:a> <urn:p> <urn:a>"))
    assert (repository.size(), repository.graph_names()) == (1, [])
    repository.delete()
    assert repository.size() == 0
    door.everywhere("/size", lambda text: text == "0")


def test_queries_and_updates_of_all_kinds(repository: Repository) -> None:
    repository.update(f"INSERT DATA {{ <urn:a> <urn:p> {TEXT.n3()} , 7 . GRAPH <urn:g> {{ <urn:a> <urn:p> <urn:b> }} }}")

    rows = repository.query("SELECT ?o { <urn:a> <urn:p> ?o } ORDER BY STR(?o)")
    # As in RDF4J, the default graph of such a store is the union of all graphs.
    assert [row.o for row in rows] == [Literal(7), TEXT, B]
    assert repository.query("ASK { GRAPH ?g { ?s ?p <urn:b> } }").askAnswer is True
    assert repository.query("ASK { ?s ?p <urn:b> }").askAnswer is True
    assert len(repository.query("CONSTRUCT { ?o <urn:of> ?s } WHERE { ?s ?p ?o FILTER ISIRI(?o) }").graph) == 1
    assert set(repository.query("DESCRIBE <urn:a>").graph) == {(A, P, TEXT), (A, P, Literal(7)), (A, P, B)}
    assert len(repository.query(ALL, infer="false", timeout="5")) == 4
    assert len(repository.query(ALL, limit="2", offset="3")) == 1
    assert len(repository.query("SELECT ?s { ?s ?p ?o }", distinct="true")) == 1
    assert [row.o for row in repository.query("SELECT ?o { ?s ?p ?o }", **{"default-graph-uri": "urn:g"})] == [B]
    assert [row.s for row in repository.query("SELECT ?s { ?s ?p ?o }", **{"$o": Literal(7).n3()})] == [A]

    repository.update("DELETE { ?s ?p ?o } INSERT { ?o ?p ?s } WHERE { GRAPH <urn:g> { ?s ?p ?o } }")
    assert repository.query("ASK { <urn:b> <urn:p> <urn:a> }").askAnswer is True


def test_namespaces_are_shared_by_all_masters(repository: Repository, door: Door) -> None:
    names = repository.namespaces
    names.set("foaf", "urn:old:")
    names.set("foaf", "http://xmlns.com/foaf/0.1/")
    names.set("ex", "http://example.org/")
    assert names.get("foaf") == "http://xmlns.com/foaf/0.1/"
    assert names.get("none") is None
    assert {row.prefix: row.namespace for row in names.list()} == {
        "ex": "http://example.org/",
        "foaf": "http://xmlns.com/foaf/0.1/",
    }
    door.everywhere("/namespaces", lambda text: "foaf,http://xmlns.com/foaf/0.1/" in text, Accept="text/csv")
    assert dict(repository.get().namespaces())["ex"] == URIRef("http://example.org/")

    names.remove("foaf")
    assert [row.prefix for row in names.list()] == ["ex"]
    names.clear()
    assert names.list() == []


def test_the_graph_store_holds_whole_graphs(repository: Repository) -> None:
    graphs = repository.graphs
    assert len(graphs.get(G)) == 0
    graphs.add(G, quads("<urn:a> <urn:p> <urn:a>"))
    graphs.add("urn:g", quads("<urn:a> <urn:p> <urn:b>"))
    graphs.add(DATASET_DEFAULT_GRAPH_ID, quads("<urn:b> <urn:p> <urn:b>"))
    assert set(graphs.get(G)) == {(A, P, A), (A, P, B)}
    assert set(graphs.get(DATASET_DEFAULT_GRAPH_ID)) == {(B, P, B)}
    graphs.overwrite(G, quads("<urn:b> <urn:p> <urn:a>"))
    assert set(graphs.get("urn:g")) == {(B, P, A)}
    graphs.overwrite(DATASET_DEFAULT_GRAPH_ID, quads("<urn:a> <urn:p> <urn:a>"))
    graphs.clear(G)
    assert repository.graph_names() == []
    assert repository.size() == 1


def test_a_transaction_sees_itself_is_seen_after_commit_and_leaves_nothing_after_rollback(
    repository: Repository, door: Door
) -> None:
    repository.upload(quads("<urn:a> <urn:p> <urn:a>"))
    with repository.transaction() as transaction:
        transaction.ping()
        transaction.upload(quads("<urn:b> <urn:p> <urn:b> <urn:g>"))
        transaction.update("INSERT DATA { <urn:b> <urn:p> 'new' }")
        transaction.delete(quads("<urn:a> <urn:p> <urn:a>"))
        assert (transaction.size(), transaction.size(G)) == (2, 1)
        assert {str(row.o) for row in transaction.query("SELECT ?o { <urn:b> <urn:p> ?o }")} == {"new", "urn:b"}
        assert transaction.query("ASK { <urn:a> ?p ?o }").askAnswer is False
        assert set(transaction.query("CONSTRUCT WHERE { ?s ?p ?o }").graph) == {(B, P, Literal("new")), (B, P, B)}
        assert len(transaction.get()) == 2
        assert set(transaction.get(subj=B, graph_name=G, content_type="text/turtle")) == {(B, P, B)}
        # Nobody outside sees anything of it.
        assert repository.size() == 1
    assert repository.size() == 2
    door.everywhere("/size", lambda text: text == "2")
    with pytest.raises(TransactionClosedError):
        transaction.ping()

    with pytest.raises(ZeroDivisionError):
        _fail_within(repository)
    with repository.transaction() as transaction:
        transaction.upload(quads("<urn:a> <urn:p> <urn:b>"))
        transaction.rollback()
    assert repository.size() == 2


def test_a_commit_that_fails_leaves_nothing_and_can_be_rolled_back(repository: Repository) -> None:
    repository.upload(quads("<urn:a> <urn:p> <urn:a> <urn:g>"))
    with repository.transaction() as transaction:
        transaction.upload(quads("<urn:b> <urn:p> <urn:b>"))
        transaction.update("CREATE GRAPH <urn:g>")
        with pytest.raises(TransactionCommitError):
            transaction.commit()
        transaction.rollback()
    assert repository.size() == 1


def test_the_default_graph_is_the_union_where_the_configuration_says_so(client: RDF4JClient, door: Door) -> None:
    config = CONFIG.format(id=door.repository) + "[] config:rep.id '" + door.repository + "' ."
    union = CONFIG.format(id=door.repository).replace("rdfs:label", "<urn:brokerha:config#union-default-graph> true ; rdfs:label")
    with pytest.raises(httpx.HTTPStatusError):
        client.repositories.create(door.repository, config)
    repository = client.repositories.create(door.repository, union)
    repository.upload(quads("<urn:a> <urn:p> <urn:b> <urn:g>", "<urn:b> <urn:p> <urn:a> <urn:h>"))
    assert len(repository.query("SELECT DISTINCT ?s { ?s <urn:p> ?o }")) == 2
    with repository.transaction() as transaction:
        transaction.upload(quads("<urn:c> <urn:p> <urn:c> <urn:h>"))
        assert len(transaction.query("SELECT DISTINCT ?s { ?s <urn:p> ?o }")) == 3
        transaction.update("DELETE WHERE { <urn:a> ?p ?o }")
    assert repository.graph_names() == [H]
    door.everywhere("/size", lambda text: text == "2")


def _fail_within(repository: Repository) -> None:
    with repository.transaction() as transaction:
        transaction.update("DELETE WHERE { ?s ?p ?o }")
        raise ZeroDivisionError
