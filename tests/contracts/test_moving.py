"""A store that stands at a lower LSN from now on, with all of its content: what a site does that keeps its content behind a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest

from brokerha.model.errors import StoreError
from brokerha.model.operations import APPLIED, NO_OPERATIONS, Operation
from brokerha.ports.store import Store
from brokerha.stores.execution.worker_store import WorkerStore
from tests.contracts.store_contract import A, B, C, lines, quads, run
from tests.contracts.test_stores import OfFiles, OfMemory

FIRST: list[list[Operation]] = [
    [("put", "t", b"k", b"1")],
    [("add", "main", quads(A))],
    [("create-repository", "late")],
    [("add", "late", quads(B)), ("put", "t", b"l", b"2")],
    [("publish", "q", "m1", b"body")],
]
"""Five transactions about keys, two repositories and a queue; one of the repositories is made behind where the store is moved to."""


class MovingContract:
    """See the head of the module."""

    def test_the_content_stays_and_counts_from_there(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        # Given a store at LSN 5
        run(store, *FIRST)
        before = store.applied()
        # When it is to stand at LSN 2
        store.begin_lineage(7, 2)
        # Then nothing else of it has changed
        assert store.applied() == before._replace(lsn=2)
        assert (store.lineage, store.logged(1, 5), store.logged_from()) == (7, [], 3)
        # Nor behind a restart
        store = reopened(store)
        assert (store.applied(), store.lineage) == (before._replace(lsn=2), 7)
        assert (lines(store), lines(store, "late")) == ([A], [B])
        # And it goes on from there, more often than it went before
        again: list[list[Operation]] = [[("add", "main", quads(C))], [("add", "late", quads(C))], [("put", "t", b"k", b"3")]]
        run(store, *again, *again, *again)
        assert store.applied().lsn == 11
        found = store.applied()
        store = reopened(store)
        assert store.applied() == found
        assert (lines(store), lines(store, "late")) == ([A, C], [B, C])

    def test_a_place_that_is_not_lower_changes_the_lineage_only(self, store: Store) -> None:
        run(store, *FIRST)
        before = store.applied()
        store.begin_lineage(7, 5)
        store.begin_lineage(8, 9)
        store.begin_lineage(9)
        assert (store.applied(), store.lineage, store.logged_from()) == (before, 9, 1)

    def test_doing_it_twice_is_doing_it_once(self, store: Store) -> None:
        run(store, *FIRST)
        store.begin_lineage(7, 2)
        found = store.applied()
        store.begin_lineage(7, 2)
        assert store.applied() == found

    def test_what_the_content_holds_already_is_executed_without_its_operations(self, store: Store, other: Store) -> None:
        run(store, *FIRST)
        before = store.applied()
        (result,) = store.execute(6, [("again", 1_000_000, NO_OPERATIONS)])
        assert (result.outcome, result.reason, store.applied()) == (APPLIED, "", before._replace(lsn=6))
        # And its line can be applied like any other
        run(other, *FIRST)
        other.apply(6, [("again", 1_000_000, *result)])
        assert other.applied() == store.applied()


class TestMemoryStore(OfMemory, MovingContract):
    """The model."""


class TestWorkerStore(OfFiles, MovingContract):
    """The store in files."""


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize(
    ("place", "is_moved"), [("moving: positions do not count", False), ("moving: engines moved", False), ("moving: moved", True)]
)
def test_a_kill_on_the_way_leaves_the_store_where_it_was_or_where_it_goes(tmp_path: Path, place: str, is_moved: bool) -> None:
    def die(where: str) -> None:
        if where == place:
            raise Killed

    store = WorkerStore(tmp_path / "w1", cluster="orders", node="w1", crash_point=die)
    run(store, *FIRST)
    before = store.applied()
    with pytest.raises(Killed):
        store.begin_lineage(7, 2)
    store.close()
    # What is found there is one of both, whole, and goes on
    store = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    assert store.applied() == before._replace(lsn=2 if is_moved else 5)
    assert store.lineage == (7 if is_moved else 0)
    assert (lines(store), lines(store, "late")) == ([A], [B])
    store.begin_lineage(7, 2)
    run(store, [("add", "late", quads(C))])
    found = store.applied()
    store.close()
    store = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    assert store.applied() == found
    assert lines(store, "late") == [B, C]
    store.close()


class FullDisk:
    """An environment of LMDB whose commit of this number, from 1 on, finds no space."""

    def __init__(self, real: Any, number: int) -> None:
        self._real = real
        self._left = number

    def begin(self, *, write: bool = False) -> Any:
        self._left -= write
        return self._failing() if write and self._left == 0 else self._real.begin(write=write)

    @contextmanager
    def _failing(self) -> Iterator[Any]:
        with self._real.begin(write=True) as transaction:
            yield transaction
            transaction.abort()
            raise lmdb.DiskError("No space left on device")


@pytest.mark.parametrize("number", [1, 2])
def test_moving_that_finds_no_space_can_be_done_again(tmp_path: Path, number: int) -> None:
    store: Any = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    run(store, *FIRST)
    before = store.applied()
    environment = store._environment
    store._environment = replace(environment, lmdb=FullDisk(environment.lmdb, number))
    with pytest.raises(StoreError, match="cannot write down which log is followed"):
        store.begin_lineage(7, 2)
    assert (store.applied(), store.lineage) == (before, 0)
    store._environment = environment
    store.begin_lineage(7, 2)
    assert (store.applied(), store.lineage, store.logged_from()) == (before._replace(lsn=2), 7, 3)
    store.close()
    store = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    assert (store.applied(), store.lineage) == (before._replace(lsn=2), 7)
    store.close()
