"""The store in memory: images of what is durable, and the list of what was executed."""

from __future__ import annotations

import pytest

from brokerha.model.fingerprints import EMPTY
from brokerha.model.invariants import InvariantBroken
from brokerha.model.operations import REJECTED, Result
from tests.contracts.store_contract import A, B, lines, logged, quads, rows, run, transaction
from tests.support.memory_store.quads import NO_SPARQL
from tests.support.memory_store.store import MemoryStore


def test_an_image_is_not_touched_by_what_comes_after_it() -> None:
    store = MemoryStore()
    run(store, [("put", "t", b"k", b"1"), ("add", "main", quads(A))])
    image, before = store.image(), store.applied()
    run(store, [("put", "t", b"k", b"2"), ("add", "main", quads(B)), ("create-repository", "r")])

    for _ in range(2):
        restarted = MemoryStore.from_image(image)
        assert restarted.applied() == restarted.recompute() == before
        assert rows(restarted, "t") == [(b"k", b"1")]
        assert lines(restarted) == [A]
        run(restarted, [("delete", "t", b"k"), ("remove", "main", quads(A))])


def test_what_was_executed_is_listed_once_and_survives_a_crash() -> None:
    store = MemoryStore()
    batch = [transaction(("put", "t", b"k", b"1"), txid=f"tx-{number}") for number in range(3)]
    store.execute(1, batch[:2])
    store = MemoryStore.from_image(store.image())
    store.execute(1, batch)
    assert list(store.executed) == [("tx-0", 1), ("tx-1", 2), ("tx-2", 3)]


def test_sparql_is_rejected_with_one_fixed_reason() -> None:
    store = MemoryStore()
    assert run(store, [("update", "main", "INSERT DATA { <urn:a> <urn:b> 1 }")]) == [
        Result(REJECTED, NO_SPARQL, b"", EMPTY)
    ]


def test_results_are_dropped_when_there_are_twice_as_many_as_asked() -> None:
    store = MemoryStore(keep_results=3)
    given = logged([run(store, [("put", "t", b"k", b"%d" % number)])[0] for number in range(7)])
    assert store.logged(3, 7) == []
    assert store.logged(4, 7) == given[3:]
    assert store.logged(6, 6) == [given[5]]
    assert store.logged_from() == 4


def test_executing_again_what_was_dropped_is_a_fault() -> None:
    store = MemoryStore(keep_results=1)
    batch = [transaction(("put", "t", b"k", b"%d" % number)) for number in range(4)]
    store.execute(1, batch)
    with pytest.raises(InvariantBroken):
        store.execute(1, batch)


def test_anything_else_is_no_image() -> None:
    with pytest.raises(InvariantBroken):
        MemoryStore.from_image({})
