"""What the journal of a process as a whole must do, on a disk or in memory; test_journal_copies.py runs it against both.

A class below gives two fixtures: `opened(process, node)` opens the journal of a process of master ``node``, and `reopened(copy)` ends
it as a kill would, and returns what stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pytest

from brokerha.model.errors import JournalError
from brokerha.model.ids import NodeId
from brokerha.model.records import MasterState, Started, ViewStarted
from brokerha.ports.copies import JournalCopy, Snapshot
from tests.contracts.follow_contract import carried, prepared, rolled_back
from tests.unit.log.turns import everything, filled

TXIDS = [f"t{n}" for n in range(1, 12)]


class Open(Protocol):
    def __call__(self, process: str, node: NodeId = "m1") -> JournalCopy: ...


class Reopen(Protocol):
    def __call__(self, copy: JournalCopy) -> JournalCopy: ...


def content(copy: JournalCopy) -> dict[str, object]:
    """All answers of the present journal but the promise, which is of the process."""
    found = everything(copy.journal, TXIDS, ["m1", "m2"])
    state = found["state"]
    assert isinstance(state, MasterState)
    state.promised_view = 0
    return found


def used(copy: JournalCopy) -> None:
    """Write something of everything."""
    filled(copy.journal, turns=5, per_turn=2)
    copy.journal.append([ViewStarted(10, "m1"), prepared("p", b"p" * 20_000), prepared("q"), rolled_back("q")])
    copy.journal.trim(below=4)


def numbers(snapshot: Snapshot) -> range:
    """All chunks of a snapshot."""
    return range(sum(len(sums) // 32 for _, _, sums in snapshot.files))


def give(source: JournalCopy, follower: JournalCopy, name: str, wanted: Iterable[int]) -> None:
    """Carry chunks over."""
    for number in wanted:
        data = source.read_chunk(name, number)
        assert data is not None
        assert follower.keep_chunk(number, data)


def carry(source: JournalCopy, follower: JournalCopy, name: str = "n") -> Snapshot:
    """A whole load up to the point where it can be opened; chunks come last first."""
    snapshot = source.make_snapshot(name)
    there = follower.begin_load(name, snapshot)
    give(source, follower, name, [number for number in reversed(numbers(snapshot)) if number not in there])
    return snapshot


class JournalCopyContract:
    """Tests of giving a journal away and replacing it."""

    def test_a_loaded_journal_is_that_of_its_source_under_its_name(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        old = follower.journal
        assert old.state().journal != source.journal.state().journal
        snapshot = carry(source, follower)
        assert (snapshot.lsn, snapshot.fingerprint, snapshot.items) == (source.journal.last_number, "", 0)
        follower.open_load()
        assert follower.journal is not old
        assert follower.pending_load == ""
        assert content(follower) == content(source)
        assert content(reopened(follower)) == content(source)

    def test_a_loaded_journal_follows_its_source(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        carry(source, follower)
        source.journal.append([Started(3), rolled_back("p")])
        follower.open_load()
        follower = reopened(follower)
        follower.journal.follow(carried(source.journal, follower.journal.last_number + 1))
        assert content(follower) == content(source)

    def test_a_loaded_journal_went_back_as_its_source_did(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("a"), opened("b")
        author = filled(source.journal, turns=5, per_turn=2)
        source.journal.append([author.go_back(5)])
        carry(source, follower)
        follower.open_load()
        for copy in (source, follower):
            copy.journal.append([author.bring([(7, "t8", "m1")])])
            copy.journal.trim(below=6)
            author.sink(5)
        follower = reopened(follower)
        assert content(follower) == content(source)
        (split,) = follower.journal.splits()
        assert source.journal.splits() == [split]
        assert follower.journal.given_up(split.number, 0, 9) == source.journal.given_up(split.number, 0, 9) != []

    def test_a_promise_is_neither_given_away_nor_replaced(self, opened: Open, reopened: Reopen) -> None:
        source, follower, other = opened("a"), opened("b"), opened("c")
        used(source)
        source.journal.promise(31)
        follower.journal.promise(12)
        for copy in (follower, other):
            carry(source, copy)
            copy.open_load()
        for copy, view in ((follower, 12), (other, 0)):
            assert copy.journal.state().promised_view == view
            assert reopened(copy).journal.state().promised_view == view

    def test_the_space_beside_a_journal_is_told(self, opened: Open) -> None:
        assert opened("p1").free_bytes() > 0

    def test_a_snapshot_stays_as_it_was_made(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        before = content(source)
        snapshot = source.make_snapshot("n")
        source.journal.append([Started(3)])
        source.journal.trim(below=8)
        assert source.make_snapshot("n") == snapshot
        carry(source, follower)
        follower.open_load()
        assert content(follower) == before

    def test_the_old_journal_is_untouched_until_the_new_one_is_opened(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        follower.journal.append([Started(7)])
        carry(source, follower)
        follower.journal.append([Started(8)])
        assert follower.journal.state().incarnation == 8
        follower = reopened(follower)
        assert follower.journal.state().incarnation == 8
        assert follower.pending_load == "n"

    def test_a_load_goes_on_after_a_kill(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = source.make_snapshot("n")
        assert follower.begin_load("n", snapshot) == set()
        give(source, follower, "n", (0, 2))
        follower = reopened(follower)
        assert follower.begin_load("n", snapshot) == {0, 2}
        give(source, follower, "n", [number for number in numbers(snapshot) if number not in {0, 2}])
        follower.open_load()
        assert content(follower) == content(source)

    def test_another_snapshot_takes_the_place_of_one_that_was_begun(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        carry(source, follower, "old")
        source.journal.append([Started(3)])
        assert follower.begin_load("new", source.make_snapshot("new")) == set()
        carry(source, follower, "new")
        follower.open_load()
        assert content(follower) == content(source)

    def test_a_wrong_chunk_is_not_kept(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = source.make_snapshot("n")
        follower.begin_load("n", snapshot)
        right = source.read_chunk("n", 1)
        assert right is not None
        for number, data in ((1, right[:-1]), (1, b"x" + right[1:]), (0, right), (-1, right), (len(numbers(snapshot)), b"")):
            assert not follower.keep_chunk(number, data)
        assert follower.begin_load("n", snapshot) == set()

    def test_a_load_with_missing_chunks_is_not_opened(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        follower.journal.append([Started(7)])
        snapshot = source.make_snapshot("n")
        follower.begin_load("n", snapshot)
        give(source, follower, "n", numbers(snapshot)[1:])
        with pytest.raises(JournalError, match=f"1 of {len(numbers(snapshot))} chunks are missing"):
            follower.open_load()
        follower.journal.append([Started(8)])
        give(source, follower, "n", [0])
        follower.open_load()
        assert content(follower) == content(source)

    def test_the_journal_of_another_master_is_not_opened(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("a", "m2"), opened("b")
        source.journal.append([Started(5)])
        follower.journal.append([Started(7)])
        carry(source, follower)
        with pytest.raises(JournalError, match="belongs to node m2"):
            follower.open_load()
        follower.journal.append([Started(8)])
        assert follower.pending_load == ""
        assert reopened(follower).journal.state().incarnation == 8

    def test_a_snapshot_that_is_none_of_its_number_is_not_opened(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = source.make_snapshot("n")
        follower.begin_load("n", snapshot._replace(lsn=snapshot.lsn + 1))
        give(source, follower, "n", numbers(snapshot))
        with pytest.raises(JournalError, match="its snapshot says"):
            follower.open_load()
        follower.journal.append([Started(1)])

    @pytest.mark.parametrize(
        "change",
        [
            {"chunk_bytes": 0},
            {"chunk_bytes": 1 << 40},
            {"files": ()},
            {"files": (("../other", 5, bytes(32)),)},
            {"files": (("data.mdb", 5, bytes(31)), ("journal", 5, bytes(31)))},
        ],
    )
    def test_a_list_of_chunks_that_contradicts_itself_is_refused(self, opened: Open, change: dict[str, object]) -> None:
        snapshot = opened("a").make_snapshot("n")
        follower = opened("b")
        with pytest.raises(JournalError, match="the snapshot"):
            follower.begin_load("n", Snapshot(**{**snapshot._asdict(), **change}))
        assert follower.pending_load == ""

    def test_chunks_that_are_not_there_are_none(self, opened: Open, reopened: Reopen) -> None:
        source = opened("a")
        snapshot = source.make_snapshot("n")
        assert source.read_chunk("n", 0) is not None
        assert source.read_chunk("n", len(numbers(snapshot))) is None
        assert source.read_chunk("n", -1) is None
        assert source.read_chunk("other", 0) is None
        assert reopened(source).read_chunk("n", 0) is None

    def test_a_snapshot_that_was_dropped_is_gone(self, opened: Open) -> None:
        source = opened("a")
        source.make_snapshot("n")
        source.drop_snapshot("n")
        source.drop_snapshot("n")
        assert source.read_chunk("n", 0) is None

    def test_only_the_last_snapshots_are_kept(self, opened: Open) -> None:
        source = opened("a")
        for name in "abcde":
            source.make_snapshot(name)
        assert [source.read_chunk(name, 0) is not None for name in "abcde"] == [False, False, True, True, True]

    def test_an_abandoned_load_is_gone(self, opened: Open, reopened: Reopen) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = carry(source, follower)
        follower.abandon_load()
        follower.abandon_load()
        assert follower.pending_load == ""
        for call in (follower.open_load, lambda: follower.keep_chunk(0, b"")):
            with pytest.raises(JournalError, match="no snapshot"):
                call()
        follower = reopened(follower)
        assert follower.pending_load == ""
        assert follower.begin_load("n", snapshot) == set()

    def test_a_closed_journal_takes_no_turn(self, opened: Open) -> None:
        copy = opened("a")
        copy.close()
        copy.close()
        with pytest.raises(JournalError):
            copy.journal.append([Started(1)])
