"""A worker's store with its real engine: SPARQL through the one door, effects to other workers, files of another day."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.model.errors import InvalidRequest, NotAcceptable, UnknownRepository
from brokerha.model.operations import APPLIED, REJECTED, Operation, unpack_effect
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from tests.contracts.store_contract import json_like, lines, logged, quads, read, rows, run

INSERT = "INSERT DATA { <urn:a> <urn:p> 1 , 2 . GRAPH <urn:g> { <urn:a> <urn:p> 3 } }"
INCREASE = "DELETE { ?s <urn:p> ?n } INSERT { ?s <urn:p> ?more } WHERE { ?s <urn:p> ?n BIND(?n + 10 AS ?more) }"
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[WorkerStore, WorkerStore]]:
    executing = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    applying = WorkerStore(tmp_path / "w2", cluster="orders", node="w2")
    yield executing, applying
    executing.close()
    applying.close()


def test_an_update_reaches_another_worker_as_quads(stores: tuple[WorkerStore, WorkerStore]) -> None:
    executing, applying = stores
    results = run(executing, [("update", "main", INSERT)], [("update", "main", INCREASE)])
    assert json_like(unpack_effect(results[1].effect)) == [
        [
            "quads",
            "main",
            [f'<urn:a> <urn:p> "{n}"{INTEGER}' for n in (1, 2)],
            [f'<urn:a> <urn:p> "{n}"{INTEGER}' for n in (11, 12)],
        ]
    ]
    applying.apply(1, logged(results))
    assert applying.applied() == executing.applied() == executing.recompute() == applying.recompute()
    assert executing.applied().items == 3
    assert lines(applying) == lines(executing)


def test_functions_that_differ_per_call_give_one_effect(stores: tuple[WorkerStore, WorkerStore]) -> None:
    text = "INSERT { [] <urn:p> ?now ; <urn:q> ?id ; <urn:r> ?dice } WHERE { BIND(NOW() AS ?now) BIND(UUID() AS ?id) BIND(RAND() AS ?dice) }"
    first, second = (run(store, [("update", "main", text), ("update", "main", text)]) for store in stores)
    assert first == second
    assert first[0].outcome == APPLIED
    assert stores[0].applied().items == 6


def test_operations_of_one_transaction_see_those_before_them(stores: tuple[WorkerStore, WorkerStore]) -> None:
    store, _ = stores
    (result,) = run(
        store,
        [
            ("create-repository", "r"),
            ("update", "main", INSERT),
            ("put", "t", b"k", b"v"),
            ("update", "r", "INSERT DATA { <urn:x> <urn:p> 5 }"),
            ("update", "main", INCREASE),
            ("update", "r", INCREASE),
            ("remove", "main", quads(f'<urn:a> <urn:p> "11"{INTEGER}')),
        ],
    )
    assert result.outcome == APPLIED
    assert lines(store) == [f'<urn:a> <urn:p> "12"{INTEGER}', f'<urn:a> <urn:p> "3"{INTEGER} <urn:g>']
    assert lines(store, "r") == [f'<urn:x> <urn:p> "15"{INTEGER}']
    assert store.recompute() == store.applied()


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { this is no triple }",
        "LOAD <http://127.0.0.1:1/data.ttl>",
        "CREATE GRAPH <urn:g>",
        "INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
    ],
)
def test_a_failing_update_takes_the_keys_of_its_transaction_with_it(stores: tuple[WorkerStore, WorkerStore], text: str) -> None:
    before = stores[0].applied()
    (result,), (twin,) = (
        run(store, [("put", "t", b"k", b"v"), ("update", "main", INSERT), ("update", "main", text)]) for store in stores
    )
    assert result.outcome == REJECTED
    assert result == twin, "the reason is the same on every site"
    for store in stores:
        assert store.applied() == store.recompute() == before._replace(lsn=1)
        assert rows(store, "t") == []
        assert lines(store) == []


def test_many_updates_in_one_batch_are_the_same_as_one_by_one(stores: tuple[WorkerStore, WorkerStore]) -> None:
    batched, single = stores
    history: list[list[Operation]] = [[("update", "main", INSERT)]]
    for number in range(40):
        history.append([("update", "main", INCREASE), ("put", "t", b"k", b"%d" % number)])
        history.append([("add", "main", quads(*(f"<urn:s{n}> <urn:q{number}> <urn:o>" for n in range(20))))])
    results = run(batched, *history)
    assert [result for operations in history for result in run(single, operations)] == results
    assert batched.applied() == single.applied() == batched.recompute()
    assert batched.applied().items == 3 + 1 + 40 * 20


def test_queries_are_answered_in_the_format_that_was_asked_for(stores: tuple[WorkerStore, WorkerStore]) -> None:
    store, _ = stores
    run(store, [("update", "main", INSERT)])
    arguments: dict[str, object] = {"query": "SELECT ?n { <urn:a> <urn:p> ?n } ORDER BY ?n", "accept": "text/csv"}
    answer = store.read("query", "main", arguments)
    assert answer.content_type.startswith("text/csv")
    assert b"".join(answer.pieces).split() == [b"n", b"1", b"2"]
    assert answer.lsn == 1
    in_graph = {**arguments, "default-graph-uri": "urn:g"}
    assert b"".join(store.read("query", "main", in_graph).pieces).split() == [b"n", b"3"]
    assert read(store, "size", "main") == b"3"
    assert read(store, "size", "main", context=("<urn:g>",)) == b"1"
    assert json.loads(read(store, "contexts", "main")) == ["<urn:g>"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, InvalidRequest),
        ({"query": 7}, InvalidRequest),
        ({"query": "SELECT"}, InvalidRequest),
        ({"query": "ASK {}", "colour": "red"}, InvalidRequest),
        ({"query": "ASK {}", "named-graph-uri": [1]}, InvalidRequest),
        ({"query": "ASK {}", "accept": "image/png"}, NotAcceptable),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    stores: tuple[WorkerStore, WorkerStore], arguments: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        list(stores[0].read("query", "main", arguments).pieces)
    with pytest.raises(UnknownRepository):
        stores[0].read("query", "nowhere", {"query": "ASK {}"})


def test_a_repository_from_an_older_copy_is_brought_up_from_the_log(tmp_path: Path) -> None:
    options = StoreOptions(flush_after_lsns=10**9, flush_after_s=1e9)

    def opened() -> WorkerStore:
        return WorkerStore(tmp_path / "w1", cluster="orders", node="w1", options=options)

    store = opened()
    run(store, [("update", "main", INSERT)])
    store.close()
    # As if what comes now had been lost with the power.
    shutil.copytree(tmp_path / "w1/repositories", tmp_path / "old")
    store = opened()
    run(store, *[[("update", "main", INCREASE)] for _ in range(5)])
    run(store, [("create-repository", "r"), ("update", "r", INSERT)])
    applied, expected = store.applied(), (lines(store), lines(store, "r"))
    store.close()
    shutil.rmtree(tmp_path / "w1/repositories")
    shutil.move(tmp_path / "old", tmp_path / "w1/repositories")

    store = opened()
    try:
        assert store.applied() == store.recompute() == applied
        assert (lines(store), lines(store, "r")) == expected
    finally:
        store.close()
