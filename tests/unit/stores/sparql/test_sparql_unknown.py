"""Functions that nobody knows: an error of the expression that calls them, in queries, updates and checks, and the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import APPLIED, pack_operations
from brokerha.model.reserved.about import TABLE, TRUE, UNION, setting_key
from brokerha.stores.execution.worker_store import WorkerStore
from brokerha.stores.sparql.protocol import sliced
from brokerha.stores.sparql.tokens import tokenize
from brokerha.stores.sparql.unknown import unknown_functions

XSD = "http://www.w3.org/2001/XMLSchema#"
WKT = "http://www.opengis.net/ont/geosparql#wktLiteral"
GEO = "http://www.opengis.net/def/function/geosparql/"
DATA = "<urn:s> <urn:p> 1 . <urn:s> <urn:p> 2"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WorkerStore]:
    with closing(WorkerStore(tmp_path, cluster="orders", node="w1")) as made:
        run(made, ("update", "main", f"INSERT DATA {{ {DATA} }}"))
        yield made


def run(store: WorkerStore, *operations: Any) -> str:
    lsn = store.applied().lsn + 1
    (result,) = store.execute(lsn, [(f"tx.{lsn}", lsn, pack_operations(list(operations)))])
    return result.outcome


def asked(store: WorkerStore, query: str, **arguments: Any) -> Any:
    answer = store.read("query", "main", {"query": query, "accept": "application/sparql-results+json", **arguments})
    found = json.loads(b"".join(answer.pieces))
    if "boolean" in found:
        return found["boolean"]
    return [{name: cell["value"] for name, cell in row.items()} for row in found["results"]["bindings"]]


QUERIES: dict[str, tuple[str, Any]] = {
    "BIND leaves it unbound": ("SELECT ?x { BIND(<urn:f>(1) AS ?x) }", [{}]),
    "a SELECT expression too": ("SELECT (<urn:f>(1) AS ?x) ?y { BIND(2 AS ?y) }", [{"y": "2"}]),
    "a FILTER is false": ("SELECT ?o { ?s ?p ?o FILTER(<urn:f>(?o)) }", []),
    "and so is its negation": ("SELECT ?o { ?s ?p ?o FILTER(!<urn:f>(?o)) }", []),
    "COALESCE takes it": ("SELECT ?x { BIND(COALESCE(<urn:f>(1), 2) AS ?x) }", [{"x": "2"}]),
    "IF takes it": ("SELECT ?x { BIND(IF(true, 3, <urn:f>(1)) AS ?x) }", [{"x": "3"}]),
    "IF upon it has no value": ("SELECT ?x { BIND(IF(<urn:f>(1), 3, 4) AS ?x) }", [{}]),
    "or with what is true is true": ("ASK { FILTER(<urn:f>(1) || true) }", True),
    "and with what is false is false": ("ASK { FILTER(!(<urn:f>(1) && false)) }", True),
    "nested": ("SELECT ?x { BIND(COALESCE(STR(<urn:f>(<urn:g>(1))), 'none') AS ?x) }", [{"x": "none"}]),
    "in a group": ("SELECT (SUM(<urn:f>(?o)) AS ?x) { ?s ?p ?o }", [{}]),
    "by a prefix": ("PREFIX e: <urn:> SELECT ?x { BIND(COALESCE(e:f(1), 5) AS ?x) }", [{"x": "5"}]),
    "by the empty prefix": ("PREFIX : <urn:> SELECT ?x { BIND(COALESCE(:f (), 5) AS ?x) }", [{"x": "5"}]),
    "by a BASE": ("BASE <http://x/> SELECT ?x { BIND(COALESCE(<f>(1), 5) AS ?x) }", [{"x": "5"}]),
    "by an escape": (r"SELECT ?x { BIND(COALESCE(<urn:\u0066>(1), 5) AS ?x) }", [{"x": "5"}]),
    "a cast goes on": (f"SELECT ?x {{ BIND(<{XSD}integer>('01') AS ?x) }}", [{"x": "1"}]),
    "a cast by a prefix too": (f"PREFIX x: <{XSD}> SELECT ?x {{ BIND(x:boolean('1') AS ?x) }}", [{"x": "true"}]),
    "a cast that fails has no value": (f"SELECT ?x {{ BIND(<{XSD}integer>('x') AS ?x) }}", [{}]),
    "a cast that nobody has": (f"SELECT ?x {{ BIND(COALESCE(<{XSD}unheard>('1'), 6) AS ?x) }}", [{"x": "6"}]),
    "what the engine has more": (
        f"SELECT ?p ?x {{ BIND('POINT(1 1)'^^<{WKT}> AS ?p) BIND(<{GEO}sfEquals>(?p, ?p) AS ?x) FILTER(?x) }}",
        [{"p": "POINT(1 1)", "x": "true"}],
    ),
    "a list is no call": ("SELECT ?s { ?s <urn:p> (1 2) }", []),
}


@pytest.mark.parametrize(("query", "expected"), QUERIES.values(), ids=QUERIES)
def test_a_call_of_what_nobody_knows_is_an_error_of_its_expression(store: WorkerStore, query: str, expected: Any) -> None:
    assert asked(store, query) == expected
    if "BASE" not in query:
        # On top of an open transaction, and together with other reads, it is evaluated in another way.
        pending = pack_operations([("update", "main", "INSERT DATA { <urn:other> <urn:q> <urn:f> }")])
        assert asked(store, query, pending=pending, txid="t") == expected
        read = msgpack.packb(("query", "main", {"query": query, "accept": "application/sparql-results+json"}))
        ((_, body),) = msgpack.unpackb(b"".join(store.read("together", "", {"reads": (read,)}).pieces))
        found = json.loads(body)
        rows = found.get("results", {}).get("bindings", [])
        assert found.get("boolean", [{name: cell["value"] for name, cell in row.items()} for row in rows]) == expected


def test_a_graph_is_made_without_what_has_no_value(store: WorkerStore) -> None:
    query = "CONSTRUCT { ?s <urn:x> ?x, ?o } { ?s ?p ?o BIND(<urn:f>(?o) AS ?x) }"
    answer = store.read("query", "main", {"query": query, "accept": "application/n-triples"})
    assert len(b"".join(answer.pieces).splitlines()) == 2


@pytest.mark.parametrize("has_pending", [False, True])
def test_an_update_writes_what_has_a_value(store: WorkerStore, has_pending: bool) -> None:
    before = [("update", "main", "INSERT DATA { <urn:t> <urn:p> 3 }")] if has_pending else []
    text = (
        "PREFIX e: <urn:> INSERT { ?s <urn:x> ?x . ?s <urn:y> ?y } "
        "WHERE { ?s <urn:p> ?o BIND(e:f(?o) AS ?x) BIND(COALESCE(<urn:g>(?o), ?o) AS ?y) }"
    )
    assert run(store, *before, ("update", "main", text)) == APPLIED
    assert asked(store, "ASK { ?s <urn:x> ?x }") is False
    expected = ["1", "2", "3"] if has_pending else ["1", "2"]
    assert sorted(row["y"] for row in asked(store, "SELECT ?y { ?s <urn:y> ?y }")) == expected


def test_an_update_comes_to_the_same_content_everywhere(store: WorkerStore, tmp_path: Path) -> None:
    with closing(WorkerStore(tmp_path / "other", cluster="orders", node="w2")) as other:
        run(other, ("update", "main", f"INSERT DATA {{ {DATA} }}"))
        text = "INSERT { ?s <urn:x> ?x } WHERE { ?s <urn:p> ?o BIND(COALESCE(<urn:f>(RAND()), BNODE()) AS ?x) }"
        for each in (store, other):
            assert run(each, ("update", "main", text)) == APPLIED
        assert store.applied() == other.applied()


@pytest.mark.parametrize("has_pending", [False, True])
def test_an_update_of_a_union_of_all_graphs_too(store: WorkerStore, has_pending: bool) -> None:
    assert run(store, ("put", TABLE, setting_key("main", UNION), TRUE)) == APPLIED
    before = [("update", "main", "INSERT DATA { <urn:t> <urn:p> 1 }")] if has_pending else []
    text = "DELETE { ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o FILTER(COALESCE(<urn:f>(?o), ?o = 1)) }"
    assert run(store, *before, ("update", "main", text)) == APPLIED
    assert [row["o"] for row in asked(store, "SELECT ?o { ?s <urn:p> ?o }")] == ["2"]


def test_a_check_takes_it_as_an_error_too(store: WorkerStore) -> None:
    check = ("control-add", "no-f", "ask", "main", "ASK { ?s ?p ?o FILTER(<urn:f>(?o)) }", "false")
    assert run(store, check) == APPLIED
    assert run(store, ("update", "main", "INSERT DATA { <urn:a> <urn:b> 9 }")) == APPLIED


@pytest.mark.parametrize(
    "text", ["SELECT (<urn:f>(DISTINCT ?o) AS ?x) { ?s ?p ?o }", "PREFIX e: <urn:> SELECT (e:f( DISTINCT ?o) AS ?x) { ?s ?p ?o }"]
)
def test_an_aggregate_by_name_is_refused_with_what_there_is(store: WorkerStore, text: str) -> None:
    with pytest.raises(InvalidRequest, match="there is no aggregate that an IRI names"):
        asked(store, text)


def test_only_what_is_called_and_unknown_is_listed() -> None:
    text = f"SELECT * {{ ?s <urn:p> ?o FILTER(<urn:f>(<{XSD}integer>(?o), '<urn:g>(')) }} # <urn:h>(1)"
    tokens = tokenize(text)
    assert [name.value for name in unknown_functions(tokens, (0, len(tokens)), "")] == ["urn:f"]


def test_a_prefix_that_is_not_declared_is_an_error_of_the_text(store: WorkerStore) -> None:
    with pytest.raises(InvalidRequest, match="MALFORMED"):
        asked(store, "SELECT ?x { BIND(e:f(1) AS ?x) }")


def test_a_query_of_which_only_some_rows_are_wanted_keeps_its_columns() -> None:
    text = "SELECT ?s (<urn:f>(1) AS ?x) { ?s ?p ?o }"
    assert sliced(text, 1, 0, distinct=False).startswith("SELECT ?s ?x ")
