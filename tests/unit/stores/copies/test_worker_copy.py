"""A copy in files while it is used: writers and readers go on while a snapshot is made and while the copy is replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest

from brokerha.model.errors import NotReady, StoreDamaged, StoreError, StoreFull, StoreStuck
from brokerha.ports.copies import Snapshot
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.execution.worker_store import StoreOptions
from brokerha.stores.files.durable import replace_file
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.reads.kinds import packed_reads
from tests.contracts.copy_contract import carry, content, filled
from tests.contracts.store_contract import lines, quads, read, rows, run
from tests.unit.stores.store_place import files_limited_to

OPTIONS = StoreOptions(map_size_bytes=256 * 1024 * 1024)
LIMIT_S = 30.0


class Copies:
    """Two copies, and what is to happen at their crash points."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.at: dict[str, Callable[[], object]] = {}
        self.source = self.open("w1")
        self.follower = self.open("w2")

    def open(self, node: str) -> WorkerCopy:
        return WorkerCopy(
            self.directory / node, cluster="orders", node=node, options=OPTIONS, chunk_bytes=4096, crash_point=self.visit
        )

    def visit(self, place: str) -> None:
        if place in self.at:
            self.at[place]()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    copies = Copies(tmp_path)
    yield copies
    copies.source.close()
    copies.follower.close()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write(copy: WorkerCopy, number: int) -> None:
    run(copy, [("put", "t", b"%d" % number, b""), ("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>"))])


def test_writes_go_on_between_the_steps_of_a_snapshot_and_are_not_in_it(copies: Copies) -> None:
    write(copies.source, 1)
    then = content(copies.source)
    copies.at = {
        "snapshot: engines backed up": lambda: write(copies.source, 2),
        "snapshot: tables written": lambda: write(copies.source, 3),
    }
    carry(copies.source, copies.follower)
    copies.at = {}
    copies.follower.open_load()
    assert content(copies.follower) == then
    assert copies.source.applied().lsn == 3


def test_snapshots_under_a_running_writer_are_each_one_state(copies: Copies) -> None:
    stop = threading.Event()
    done: dict[int, object] = {0: copies.source.applied()}

    def writing() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            write(copies.source, number)
            done[number] = copies.source.applied()

    writer = threading.Thread(target=writing)
    writer.start()
    snapshots = []
    try:
        for number in range(3):
            snapshots.append(carry(copies.source, copies.follower, f"n{number}"))
            copies.follower.open_load()
            found = copies.follower.applied()
            assert copies.follower.recompute() == found
            assert len(rows(copies.follower, "t")) == len(lines(copies.follower)) == found.lsn
    finally:
        stop.set()
        writer.join(LIMIT_S)
    assert [done[snapshot.lsn] for snapshot in snapshots] == [snapshot[:3] for snapshot in snapshots]


def test_a_source_with_a_damaged_value_gives_no_snapshot(copies: Copies) -> None:
    run(copies.source, [("put", "t", b"k", b"precious value")])
    # The engine is up to date, so that no line of the log is read when the copy opens.
    write(copies.source, 1)
    copies.source.close()
    file = copies.directory / "w1/copy.1/data/data.mdb"
    file.write_bytes(file.read_bytes().replace(b"precious value", b"precious valuE"))
    copies.source = copies.open("w1")
    assert copies.source.trouble == ""
    with pytest.raises(StoreDamaged, match="damaged"):
        copies.source.make_snapshot("n")
    assert names(copies.directory / "w1/snapshots") == []


@pytest.mark.parametrize("ending", ["drop", "close"])
def test_a_snapshot_that_is_not_wanted_any_more_is_not_made(copies: Copies, ending: str) -> None:
    filled(copies.source)
    closing = threading.Thread(target=copies.source.close)

    def end() -> None:
        if ending == "drop":
            copies.source.drop_snapshot("n")
        else:
            closing.start()
            # Closing waits for the snapshot, and the snapshot sees that it is closed.
            copies_closed(copies.source)

    copies.at = {"snapshot: tables written": end}
    with pytest.raises(StoreError, match="not wanted any more"):
        copies.source.make_snapshot("n")
    if ending == "close":
        closing.join(LIMIT_S)
    assert copies.source.read_chunk("n", 0) is None
    snapshots = copies.directory / "w1/snapshots"
    assert not snapshots.exists() or names(snapshots) == []


def copies_closed(copy: WorkerCopy) -> None:
    """Wait until `close` of the copy has told its snapshots."""
    deadline = threading.Event()
    for _ in range(3000):
        if copy._snapshots._is_closed:
            return
        deadline.wait(0.01)
    raise AssertionError("close did not begin")


def test_reads_that_began_before_a_load_finish_on_the_old_copy(copies: Copies) -> None:
    filled(copies.source)
    many = [f'<urn:s> <urn:p> "{number:01000}"' for number in range(2500)]
    run(copies.follower, [("add", "main", quads(*many)), ("put", "t", b"old", bytes(3_000_000))])
    old = copies.directory / "w2/copy.1"
    statements = copies.follower.read("statements", "main", {"accept": "application/n-quads"})
    keys = copies.follower.read("range", "t", {})
    unread = copies.follower.read("get", "t", {"key": b"old"})
    pieces = [next(statements.pieces), next(keys.pieces)]
    carry(copies.source, copies.follower)
    copies.follower.open_load()
    assert content(copies.follower) == content(copies.source)
    assert old.exists()
    rest = b"".join(statements.pieces)
    assert len((pieces[0] + rest).splitlines()) == len(many)
    assert len(pieces[1] + b"".join(keys.pieces)) > 3_000_000
    assert old.exists()
    del unread
    assert not old.exists()


def test_a_scrub_of_a_copy_that_is_replaced_ends(copies: Copies) -> None:
    filled(copies.source)
    run(copies.follower, [("put", "t", b"%d" % number, b"") for number in range(3000)])
    carry(copies.source, copies.follower)

    def replaced(_items: int) -> None:
        if copies.follower.applied().lsn == 1:
            copies.follower.open_load()

    with pytest.raises(StoreError, match="the copy was replaced"):
        copies.follower.recompute(replaced)
    assert copies.follower.recompute() == copies.source.applied()
    assert names(copies.directory / "w2") == ["copy.2", "life", "lock", "present"]


@pytest.mark.parametrize("place", ["load: files durable", "load: identity written", "load: opened"])
def test_a_load_that_fails_on_the_way_leaves_the_old_copy_and_can_be_done_again(copies: Copies, place: str) -> None:
    filled(copies.source)
    write(copies.follower, 1)
    before = content(copies.follower), copies.follower.journal
    snapshot = carry(copies.source, copies.follower)

    def fail() -> None:
        raise StoreError("the disk is full")

    copies.at = {place: fail}
    with pytest.raises(StoreError, match="the disk is full"):
        copies.follower.open_load()
    copies.at = {}
    assert (content(copies.follower), copies.follower.journal) == before
    write(copies.follower, 2)
    finish(copies, snapshot)
    assert content(copies.follower) == content(copies.source)


def test_a_pointer_that_cannot_be_replaced_leaves_the_old_copy(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(copies.source)
    write(copies.follower, 1)
    before = content(copies.follower), copies.follower.journal
    snapshot = carry(copies.source, copies.follower)
    failures = iter([True])

    def replaced_and_failed(path: Path, data: bytes) -> None:
        replace_file(path, data)
        if path.name == "present" and next(failures, False):
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("brokerha.stores.copies.directory.replace_file", replaced_and_failed)
        with pytest.raises(StoreError, match="cannot change the present copy"):
            copies.follower.open_load()
    assert (content(copies.follower), copies.follower.journal) == before
    copies.follower.close()
    copies.follower = copies.open("w2")
    assert (content(copies.follower), copies.follower.journal) == before
    finish(copies, snapshot)
    assert content(copies.follower) == content(copies.source)


def finish(copies: Copies, snapshot: Snapshot) -> None:
    """Load again what is missing, and open it."""
    assert carry(copies.source, copies.follower) == snapshot
    copies.follower.open_load()


def test_a_closed_copy_answers_nothing_and_closes_again(copies: Copies) -> None:
    copies.follower.close()
    copies.follower.close()
    with pytest.raises(StoreError, match="closed"):
        read(copies.follower, "get", "t", key=b"k")
    with pytest.raises(StoreError):
        copies.follower.make_snapshot("n")


class Stuck:
    """An environment of LMDB that could not write its root."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def begin(self, *_: object, **__: object) -> None:
        raise lmdb.PanicError("Update of meta page failed or environment had fatal error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_store_that_is_stuck_is_opened_anew_by_the_next_write(copies: Copies) -> None:
    copy = copies.source
    write(copy, 1)
    store: Any = copy._generation.store
    store._environment = replace(store._environment, lmdb=Stuck(store._environment.lmdb))
    with pytest.raises(StoreStuck, match="the store is opened anew"):
        write(copy, 2)
    with pytest.raises(NotReady, match="the store is opened anew"):
        copy.read("together", "", {"reads": packed_reads([("get", "t", {"key": b"1"})])})
    write(copy, 3)
    assert [key for key, _ in rows(copy, "t")] == [b"1", b"3"]
    assert len(lines(copy)) == 2
    assert copy.applied() == copy.recompute()


def test_a_store_that_is_stuck_is_opened_anew_to_follow_another_log(copies: Copies) -> None:
    copy = copies.source
    write(copy, 1)
    store: Any = copy._generation.store
    store._environment = replace(store._environment, lmdb=Stuck(store._environment.lmdb))
    with pytest.raises(StoreStuck):
        copy.begin_lineage(7)
    copy.begin_lineage(7)
    assert copy.lineage == 7


def test_a_store_that_is_stuck_and_cannot_be_opened_yet_is_opened_later(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copies.source
    write(copy, 1)
    store: Any = copy._generation.store
    store._environment = replace(store._environment, lmdb=Stuck(store._environment.lmdb))
    with pytest.raises(StoreStuck):
        write(copy, 2)
    with monkeypatch.context() as full:

        def no_space(*_: object, **__: object) -> None:
            raise StoreError("the disk is full")

        full.setattr(copy, "_opened", no_space)
        for _ in range(2):
            with pytest.raises(StoreError, match="the disk is full"):
                write(copy, 2)
            # It is closed meanwhile: another worker answers.
            with pytest.raises(NotReady, match="closed"):
                read(copy, "get", "t", key=b"1")
    write(copy, 2)
    assert [key for key, _ in rows(copy, "t")] == [b"1", b"2"]


class Bounded(RdfRepository):
    """An engine on a disk of its own, which is full for a while."""

    is_full = False

    def commit(self, removed: Iterable[str], added: Iterable[str], lsn: int) -> None:
        with files_limited_to(16) if Bounded.is_full else nullcontext():
            super().commit(removed, added, lsn)


def test_an_engine_that_could_not_write_is_opened_anew_when_files_can_grow_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = WorkerCopy(tmp_path / "w1", cluster="orders", node="w1", options=OPTIONS, open_engine=Bounded)
    write(copy, 1)
    monkeypatch.setattr(Bounded, "is_full", True)
    with pytest.raises(StoreStuck, match="the store is opened anew"):
        write(copy, 2)
    with files_limited_to(4096), pytest.raises(StoreFull, match="there is no room: the disk is full"):
        write(copy, 2)
    # What is open can still be read.
    assert lines(copy) == ["<urn:s> <urn:p> <urn:1>"]
    monkeypatch.setattr(Bounded, "is_full", False)
    for number in (2, 3):
        write(copy, number)
    assert [key for key, _ in rows(copy, "t")] == [b"1", b"2", b"3"]
    assert len(lines(copy)) == 3
    assert copy.applied() == copy.recompute()
    copy.close()
