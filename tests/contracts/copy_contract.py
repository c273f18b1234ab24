"""What every worker's copy must do, whatever it is made of; test_copies.py runs it on each of them.

A class below gives three fixtures: `opened(node)`, which opens the copy of a node for the first time, `reopened(copy)`, which ends
a copy as a kill would leave it and returns what stands in its place, and `free_bytes`, a list with the free space that copies see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from brokerha.model.errors import StoreError, StoreFull
from brokerha.model.operations import Logged, LoggedRow
from brokerha.ports.copies import Snapshot, WorkerCopy
from tests.contracts.store_contract import IN_GRAPH, A, B, C, lines, quads, read, rows, run
from tests.contracts.store_queue_contract import counters, queue

Open = Callable[[str], WorkerCopy]
Reopen = Callable[[WorkerCopy], WorkerCopy]


def filled(copy: WorkerCopy) -> None:
    """Something of everything that a copy can hold."""
    run(copy, [("add", "main", quads(A, B, IN_GRAPH)), ("put", "t", b"k", b"v" * 3000)])
    run(copy, [("create-repository", "r")], [("create-repository", "s"), ("add", "s", quads(C))])
    run(copy, [("put", "t", b"gone", b"")], [("delete", "t", b"gone")], [("put", "u", bytes(20), b"u")])
    run(copy, [("control-add", "stock", "key", "t", "k", "present")])
    # Messages are called after their transaction, and `run` calls all of them alike.
    run(copy, [("publish", "q", "text/plain", b"1"), ("publish", "q", "a/b", b"2" * 3000), ("publish", "p", "", b"")])
    run(copy, [("accept", "q", "tx.1"), ("accept", "p", "tx.3")])


def numbers(snapshot: Snapshot) -> range:
    """All chunks of a snapshot."""
    return range(sum(len(sums) // 32 for _, _, sums in snapshot.files))


def chunks(source: WorkerCopy, name: str, wanted: Iterable[int]) -> dict[int, bytes]:
    """Chunks read at their source."""
    found = {number: source.read_chunk(name, number) for number in wanted}
    assert None not in found.values()
    return {number: data for number, data in found.items() if data is not None}


def carry(source: WorkerCopy, follower: WorkerCopy, name: str = "n") -> Snapshot:
    """A whole load up to the point where it can be opened; chunks come last first."""
    snapshot = source.make_snapshot(name)
    there = follower.begin_load(name, snapshot)
    for number, data in reversed(chunks(source, name, numbers(snapshot)).items()):
        assert number in there or follower.keep_chunk(number, data)
    return snapshot


def content(copy: WorkerCopy) -> object:
    """Everything that readers can see."""
    repositories = {name: lines(copy, name) for name in ("main", "r", "s") if name.encode() in read(copy, "repositories")}
    return copy.applied(), repositories, rows(copy, "t"), rows(copy, "u"), read(copy, "control"), queues(copy)


def queues(copy: WorkerCopy) -> object:
    """Messages and counters."""
    return queue(copy), queue(copy, "p"), counters(copy)


def changed_since(copy: WorkerCopy) -> list[str]:
    """Why expectations about each store and LSN fail; this executes transactions."""
    stores = [("graph", "main"), ("graph", "s"), ("table", "t"), ("table", "u"), ("queue", "q"), ("queue", "p")]
    lsns = range(copy.applied().lsn)
    return [result.reason for result in run(copy, *[[("expect-since", *each, lsn)] for each in stores for lsn in lsns])]


class CopyContract:
    """Tests of giving a copy away and replacing it."""

    def test_a_loaded_copy_has_the_content_of_its_source_and_a_name_of_its_own(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        run(follower, [("put", "t", b"other", b"")])
        before = follower.journal
        snapshot = carry(source, follower)
        follower.open_load()
        assert content(follower) == content(source)
        assert follower.recompute() == follower.applied() == source.applied()
        assert (snapshot.lsn, snapshot.fingerprint, snapshot.items) == source.applied()
        assert follower.journal not in {before, source.journal}

    def test_a_loaded_copy_knows_when_each_store_was_changed_last(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        carry(source, follower)
        follower.open_load()
        follower = reopened(follower)
        assert changed_since(follower) == changed_since(source)
        assert len(set(changed_since(source))) > 6

    def test_a_loaded_copy_goes_on_like_its_source_and_survives_a_restart(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        carry(source, follower)
        follower.open_load()
        for copy in (source, follower):
            run(copy, [("remove", "main", quads(A)), ("put", "t", b"k", b"2")], [("remove-repository", "s")])
        name = follower.journal
        follower = reopened(follower)
        assert content(follower) == content(source)
        assert follower.journal == name
        assert follower.recompute() == source.applied()

    def test_a_loaded_copy_has_the_last_lines_of_its_source_and_takes_the_next_one(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        carry(source, follower)
        lsn = source.applied().lsn
        run(source, [("put", "t", b"later", b"")])
        follower.open_load()
        # The master may not have the results of these yet when the source is lost.
        assert follower.logged_from() <= lsn
        assert follower.logged(lsn, lsn) == source.logged(lsn, lsn)
        line: LoggedRow = Logged(*source.logged(lsn + 1, lsn + 1)[0])
        follower.apply(lsn + 1, [line])
        assert follower.applied() == source.applied()
        assert follower.logged(lsn + 1, lsn + 1) == [line]

    def test_a_snapshot_stays_at_its_moment_while_its_source_goes_on(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        then = content(source)
        snapshot = source.make_snapshot("n")
        run(source, [("add", "main", quads(C)), ("delete", "t", b"k")], [("remove-repository", "r")])
        assert source.make_snapshot("n") == snapshot
        carry(source, follower)
        follower.open_load()
        assert content(follower) == then
        assert source.make_snapshot("later").lsn == source.applied().lsn

    def test_chunks_that_do_not_exist_are_none(self, opened: Open) -> None:
        source = opened("w1")
        snapshot = source.make_snapshot("n")
        assert source.read_chunk("n", len(numbers(snapshot))) is None
        assert source.read_chunk("n", -1) is None
        assert source.read_chunk("other", 0) is None
        assert source.read_chunk("n", 0) is not None
        source.drop_snapshot("n")
        source.drop_snapshot("n")
        assert source.read_chunk("n", 0) is None

    def test_the_oldest_snapshot_goes_when_there_are_too_many(self, opened: Open) -> None:
        source = opened("w1")
        for number in range(4):
            source.make_snapshot(f"n{number}")
        assert source.read_chunk("n0", 0) is None
        assert source.read_chunk("n3", 0) is not None

    def test_snapshots_do_not_survive_their_process(self, opened: Open, reopened: Reopen) -> None:
        source = opened("w1")
        source.make_snapshot("n")
        assert reopened(source).read_chunk("n", 0) is None

    def test_a_chunk_that_is_not_what_its_sum_says_is_refused(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        snapshot = source.make_snapshot("n")
        follower.begin_load("n", snapshot)
        data = chunks(source, "n", [0])[0]
        assert not follower.keep_chunk(0, data[:-1] + bytes([data[-1] ^ 1]))
        assert not follower.keep_chunk(0, data + b"\0")
        assert not follower.keep_chunk(0, b"")
        assert not follower.keep_chunk(len(numbers(snapshot)), data)
        assert not follower.keep_chunk(-1, data)
        assert follower.begin_load("n", snapshot) == set()
        assert follower.keep_chunk(0, data)
        assert follower.keep_chunk(0, data)
        assert follower.begin_load("n", snapshot) == {0}

    def test_a_load_goes_on_after_a_restart(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        snapshot = source.make_snapshot("n")
        everything = chunks(source, "n", numbers(snapshot))
        half = set(list(everything)[::2])
        follower.begin_load("n", snapshot)
        assert all(follower.keep_chunk(number, everything[number]) for number in half)
        run(follower, [("put", "t", b"old", b"1")])
        follower = reopened(follower)
        assert rows(follower, "t") == [(b"old", b"1")], "the present copy is as it was"
        there = follower.begin_load("n", snapshot)
        # Chunks of nothing but zeros may be there without ever having come.
        assert half <= there < everything.keys()
        for number in everything.keys() - there:
            assert follower.keep_chunk(number, everything[number])
        follower.open_load()
        assert content(follower) == content(source)

    def test_a_load_of_another_snapshot_begins_anew(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        carry(source, follower, "n")
        run(source, [("put", "t", b"k", b"2")])
        snapshot = source.make_snapshot("m")
        assert follower.begin_load("m", snapshot) == set()
        with pytest.raises(StoreError, match="chunks are missing"):
            follower.open_load()
        carry(source, follower, "m")
        follower.open_load()
        assert content(follower) == content(source)

    def test_a_condemned_copy_stays_condemned_over_a_restart_until_it_is_replaced(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        run(follower, [("put", "t", b"other", b"")])
        assert follower.condemned == ""
        # When somebody found out that the copy is damaged
        follower.condemn("scrub: the data has another fingerprint")
        # Then that is known to the next process, though the copy can be opened
        follower = reopened(follower)
        assert follower.condemned == "scrub: the data has another fingerprint"
        assert follower.applied().lsn == 1
        # And it is said of this copy only
        carry(source, follower)
        follower.open_load()
        assert follower.condemned == ""
        assert reopened(follower).condemned == ""

    def test_what_is_not_complete_is_not_opened(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        run(follower, [("put", "t", b"old", b"1")])
        before = content(follower), follower.journal
        snapshot = source.make_snapshot("n")
        follower.begin_load("n", snapshot)
        for number, data in chunks(source, "n", list(numbers(snapshot))[1:]).items():
            follower.keep_chunk(number, data)
        with pytest.raises(StoreError, match=f"1 of {len(numbers(snapshot))} chunks are missing"):
            follower.open_load()
        assert (content(follower), follower.journal) == before
        assert follower.keep_chunk(0, chunks(source, "n", [0])[0])
        follower.open_load()
        assert content(follower) == content(source)

    @pytest.mark.parametrize("field", [{"lsn": 3}, {"fingerprint": "1:00"}, {"items": 1}])
    def test_a_copy_that_is_not_what_its_snapshot_says_is_not_opened(self, opened: Open, field: dict[str, object]) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        run(follower, [("put", "t", b"old", b"1")])
        before = content(follower), follower.journal
        snapshot = source.make_snapshot("n")
        wrong = snapshot._replace(**field)  # type: ignore[arg-type]
        follower.begin_load("n", wrong)
        for number, data in chunks(source, "n", numbers(snapshot)).items():
            follower.keep_chunk(number, data)
        with pytest.raises(StoreError, match="and its snapshot says"):
            follower.open_load()
        assert (content(follower), follower.journal) == before
        run(follower, [("put", "t", b"more", b"2")])
        carry(source, follower, "again")
        follower.open_load()
        assert content(follower) == content(source)

    def test_a_load_that_is_given_up_is_gone(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        snapshot = carry(source, follower)
        follower.abandon_load()
        follower.abandon_load()
        for late in (follower.open_load, lambda: follower.keep_chunk(0, b"")):
            with pytest.raises(StoreError, match="no snapshot is being loaded"):
                late()
        assert follower.begin_load("n", snapshot) == set()

    def test_no_space_is_said_before_anything_is_loaded(self, opened: Open, free_bytes: list[int]) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        snapshot = source.make_snapshot("n")
        free_bytes[0] = 1234
        with pytest.raises(StoreFull, match=r"no space for the snapshot: it needs [\d,]+ bytes.*, 1,234 are free"):
            follower.begin_load("n", snapshot)
        with pytest.raises(StoreError, match="no snapshot is being loaded"):
            follower.open_load()
        free_bytes[0] = 1 << 40
        carry(source, follower)
        follower.open_load()
        assert content(follower) == content(source)

    def test_the_space_beside_a_copy_is_told(self, opened: Open, free_bytes: list[int]) -> None:
        copy = opened("w1")
        free_bytes[0] = 1234
        assert copy.free_bytes() == 1234
        free_bytes[0] = 0
        assert copy.free_bytes() == 0

    def test_a_path_that_leads_out_of_the_copy_is_refused(self, opened: Open) -> None:
        follower = opened("w2")
        outside = ["/etc/passwd", "../x", "data/../../x", "data/..", "lock", "other/x", ""]
        for path in [*outside, "data", "data/", "data//x", "data/./x", "data/\0", "repositories"]:
            with pytest.raises(StoreError, match="which does not belong into a copy"):
                follower.begin_load("n", Snapshot(1, "1:00", 0, 10, ((path, 0, b""),)))
            with pytest.raises(StoreError, match="no snapshot is being loaded"):
                follower.open_load()

    def test_a_snapshot_that_contradicts_itself_is_refused(self, opened: Open) -> None:
        follower = opened("w2")
        for snapshot, problem in (
            (Snapshot(1, "", 0, 0, ()), "chunks of 0 bytes"),
            (Snapshot(1, "", 0, 1 << 30, ()), "chunks of 1073741824 bytes"),
            (Snapshot(1, "", 0, 10, (("data/x", 11, bytes(32)),)), "32 bytes of sums"),
            (Snapshot(1, "", 0, 10, (("data/x", -1, b""),)), "of -1 bytes"),
            (Snapshot(1, "", 0, 10, (("data/x", 0, b""), ("data/x", 0, b""))), "names a file twice"),
            (Snapshot(1, "", 0, 10, (("data/x", 0, b""), ("data/x/y", 0, b""))), "inside of another file"),
        ):
            with pytest.raises(StoreError, match=problem):
                follower.begin_load("n", snapshot)

    def test_a_second_load_replaces_a_loaded_copy(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        names = {follower.journal}
        for number in range(3):
            run(source, [("put", "t", b"k", b"%d" % number), ("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>"))])
            carry(source, follower, f"n{number}")
            follower.open_load()
            names.add(follower.journal)
            assert content(follower) == content(source)
        assert len(names) == 4

    def test_a_loaded_copy_can_be_a_source(self, opened: Open) -> None:
        source, between, last = opened("w1"), opened("w2"), opened("w3")
        filled(source)
        carry(source, between)
        between.open_load()
        carry(between, last)
        last.open_load()
        assert content(last) == content(source)
