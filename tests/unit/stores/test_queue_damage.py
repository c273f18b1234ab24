"""What the disk changed of queues and of last changes is found: by whoever reads it, by the scrub, and by a snapshot on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.stores.copies.frozen import write_tables
from brokerha.stores.execution.worker_store import WorkerStore
from tests.contracts.store_contract import read, run
from tests.contracts.store_queue_contract import accept, execute, ids, publish


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], WorkerStore]]:
    stores: list[WorkerStore] = []

    def open_one() -> WorkerStore:
        stores.append(WorkerStore(tmp_path / "w1", cluster="orders", node="w1"))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def damaged(opened: Callable[[], WorkerStore], tmp_path: Path) -> Callable[..., WorkerStore]:
    """A store with two messages whose table was changed: each row by a function, None deletes it."""

    def damage(
        table: bytes, change: Callable[[bytes], bytes | None], of_key: Callable[[bytes], bytes] = lambda key: key
    ) -> WorkerStore:
        store = opened()
        execute(store, "tx", publish(b"one"), publish(b"two"), ("put", "t", b"k", b"v"))
        store.close()
        with lmdb.Environment(str(tmp_path / "w1" / "data"), max_dbs=16) as environment:
            rows = environment.open_db(table)
            with environment.begin(write=True, db=rows) as writing:
                for key, row in list(writing.cursor()):
                    changed = change(row)
                    writing.delete(key)
                    if changed is not None:
                        writing.put(of_key(key), changed)
        return opened()

    return damage


def flipped(row: bytes) -> bytes:
    return row[:-1] + bytes([row[-1] ^ 1])


def look_at(store: WorkerStore, table: bytes) -> None:
    """Do what comes by the rows of a table."""
    if table == b"changes":
        run(store, [("expect-since", "queue", "q", 1)])
    else:
        read(store, "queue" if table == b"queues" else "queues", "q")


@pytest.mark.parametrize("change", [flipped, lambda _: b"", lambda _: bytes(40), lambda row: row[:10]])
@pytest.mark.parametrize("table", [b"queues", b"counts", b"changes"])
def test_a_row_that_is_not_what_was_written_is_damage(
    damaged: Callable[..., WorkerStore], tmp_path: Path, table: bytes, change: Callable[[bytes], bytes]
) -> None:
    store = damaged(table, change)
    with pytest.raises(StoreDamaged, match="another worker"):
        store.recompute()
    with store.frozen(tmp_path / "engines") as frozen, pytest.raises(StoreDamaged, match="another worker"):
        write_tables(frozen, tmp_path / "tables", lambda: None, 10)
    with pytest.raises(StoreDamaged):
        look_at(store, table)


@pytest.mark.parametrize("table", [b"queues", b"counts", b"places"])
def test_a_row_that_is_lost_is_damage_to_the_scrub(damaged: Callable[..., WorkerStore], table: bytes) -> None:
    store = damaged(table, lambda _: None)
    with pytest.raises(StoreDamaged):
        store.recompute()


@pytest.mark.parametrize(("table", "kind"), [(b"kv", "tables"), (b"counts", "queues"), (b"queues", "")])
def test_a_name_that_is_no_text_any_more_is_damage(damaged: Callable[..., WorkerStore], table: bytes, kind: str) -> None:
    store = damaged(table, lambda row: row, lambda key: bytes([key[0] ^ 0x80]) + key[1:])
    with pytest.raises(StoreDamaged, match="another worker"):
        store.recompute()
    if kind:
        with pytest.raises(StoreDamaged, match="another worker"):
            read(store, kind)


def test_a_place_that_leads_elsewhere_is_damage(damaged: Callable[..., WorkerStore]) -> None:
    store = damaged(b"places", lambda row: (int.from_bytes(row, "big") + 5).to_bytes(8, "big"))
    with pytest.raises(StoreDamaged, match="the place of message"):
        store.recompute()
    with pytest.raises(StoreDamaged, match=r"message 'tx\.1'"):
        run(store, [accept("tx.1")])


def test_a_batch_that_failed_leaves_nothing_in_queues(opened: Callable[[], WorkerStore], monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened()
    execute(store, "a", publish(b"1"))
    before = store.applied()

    def fail(*_arguments: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patched:
        patched.setattr("brokerha.stores.execution.batch.write_state", fail)
        with pytest.raises(StoreError, match="no"):
            run(store, [publish(b"2"), accept("a.1")])
    assert store.applied() == store.recompute() == before
    assert ids(store) == ["a.1"]
    execute(store, "b", ("expect-since", "queue", "q", 1), accept("a.1"))
    assert ids(store) == []
