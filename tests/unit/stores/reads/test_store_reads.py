"""Reads beside the writer, and reads when the store closes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import Conflict, StoreError, TimedOut, UnknownRepository
from brokerha.model.operations import pack_operations
from brokerha.stores.execution.worker_store import WorkerStore
from brokerha.stores.reads import reading
from tests.contracts.store_contract import quads, run
from tests.contracts.store_pending_contract import wanted
from tests.contracts.store_staged_contract import ok, stage
from tests.unit.stores.store_place import COUNT, Place


def test_a_read_that_may_not_go_on_stops(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"k", b"v")])
    with pytest.raises(TimedOut):
        list(store.read("range", "t", {}, lambda: False).pieces)


def slowly(pieces: Iterator[bytes], beside: threading.Thread) -> Iterator[bytes]:
    """Pieces, each after giving another thread time to come by."""
    for piece in pieces:
        beside.join(0.05)
        yield piece


def test_reads_end_when_the_store_is_closed(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"%d" % number, bytes(900_000)) for number in range(8)])
    pieces = store.read("range", "t", {}).pieces
    next(pieces)
    closing = threading.Thread(target=store.close)
    closing.start()
    with pytest.raises(StoreError, match="closed"):
        list(slowly(pieces, closing))
    closing.join(20)
    assert not closing.is_alive()
    for ask in (lambda: store.read("get", "t", {"key": b"1"}), lambda: run(store, [COUNT]), store.recompute):
        with pytest.raises(StoreError, match="closed"):
            ask()


def test_closing_and_a_read_that_waits_for_its_turn_do_not_wait_for_each_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = place.open()
    monkeypatch.setattr(reading, "_CLOSE_LIMIT_S", 30.0)
    refused: list[str] = []

    def recompute() -> None:
        try:
            store.recompute()
        except StoreError as error:
            refused.append(str(error))

    waiting = threading.Thread(target=recompute, daemon=True)

    def begin_to_read() -> None:
        # The store is about to be closed: it has the writer's turn already.
        waiting.start()
        while waiting.is_alive() and not store._reading._running:
            waiting.join(0.01)

    monkeypatch.setattr(store._drafts, "clear", begin_to_read)
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    waiting.join()
    assert refused == ["the store is closed"]
    monkeypatch.undo()
    assert place.open().applied().lsn == 0


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("together", {"reads": (wanted("size", "none"),)}),
        ("together", {"reads": (wanted("get", "t", key=b"k"),), "seen": pack_operations([("expect-since", "graph", "main", 0)])}),
    ],
)
def test_a_read_that_fails_leaves_the_work_for_large_transactions(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    store = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    ok(stage(store, 1, ("add", "main", quads("<urn:a> <urn:p> <urn:o>"))))
    run(store, [("add", "main", quads("<urn:a> <urn:p> <urn:p>"))])
    drafts = dict(store._drafts.transactions)
    assert drafts
    with pytest.raises((UnknownRepository, Conflict)):
        store.read(kind, "", more)
    assert store._drafts.transactions == drafts
    store.close()


def test_readers_see_whole_batches_only(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"%d" % number, b"0") for number in range(50)])
    is_over = threading.Event()
    mixed: list[object] = []
    seen = 0

    def look() -> None:
        nonlocal seen
        last = -1
        while not is_over.is_set():
            answer = store.read("range", "t", {})
            values = {int(value) for _, value in msgpack.unpackb(b"".join(answer.pieces))}
            if len(values) != 1 or min(values) < last or min(values) + 1 < answer.lsn:
                mixed.append((values, answer.lsn, last))
            last = min(values)
            seen += 1

    reader = threading.Thread(target=look)
    reader.start()
    for value in range(1, 100):
        run(store, [("put", "t", b"%d" % number, b"%d" % value) for number in range(50)])
    is_over.set()
    reader.join(20)
    assert not mixed
    assert seen > 0


def test_recomputing_beside_a_writer_gives_what_was_added_up(place: Place) -> None:
    store = place.open()
    expected = {0: store.applied()}
    is_over = threading.Event()
    found = []

    def look() -> None:
        while not is_over.is_set():
            found.append(store.recompute())

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1, 150):
        run(store, [("put", "t", b"%d" % (number % 7), b"%d" % number), ("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>"))])
        expected[number] = store.applied()
    is_over.set()
    reader.join(20)
    assert found
    assert all(one == expected[one.lsn] for one in found)
