"""What every journal does, on a disk or in memory: one suite, run against both by test_journals.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import pytest

from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.fingerprints import EMPTY, UNKNOWN
from brokerha.model.invariants import InvariantBroken
from brokerha.model.records import (
    Added,
    Appended,
    ClockReserved,
    ContentTaken,
    MasterState,
    PeerJournal,
    PinsChanged,
    Rebased,
    Record,
    Started,
    StreamState,
    WorkersChanged,
)
from brokerha.ports.journal import Journal
from tests.unit.log.turns import Author, body_of, everything, filled, fingerprint_after, result_of


class Disk(Protocol):
    """Where a journal survives a crash."""

    journal: Journal

    def restart(self) -> Journal:
        """Crash and open again."""

    def full(self) -> AbstractContextManager[None]:
        """While it lasts no turn can be written."""


class JournalContract:
    """Subclasses give the fixture ``disk``."""

    def test_a_new_journal_knows_only_its_name(self, disk: Disk) -> None:
        state = disk.journal.state()
        assert state == MasterState(journal=state.journal)
        assert state.journal
        assert disk.journal.first_lsn() == 1
        assert disk.journal.lsn_of("t1") is None
        assert disk.journal.body("m1", "t1") is None
        assert not disk.journal.stream("m1", 0, 10)
        assert not disk.journal.ordered(1, 10)
        assert not disk.journal.results(1, 10)
        assert disk.journal.results_from() == 1
        assert [disk.journal.fingerprint_at(lsn) for lsn in (0, 1)] == [EMPTY, UNKNOWN]
        assert list(disk.journal.records()) == []

    def test_the_name_stays_over_restarts(self, disk: Disk) -> None:
        name = disk.journal.state().journal
        assert disk.restart().state().journal == name

    def test_what_was_appended_is_there_after_a_restart(self, disk: Disk) -> None:
        disk.journal.append([Started(3), ClockReserved(7_000), PeerJournal("m2", "other"), PeerJournal("m3", "third")])
        disk.journal.append([ClockReserved(9_000)])
        state = disk.restart().state()
        assert (state.incarnation, state.high_water) == (3, 9_000)
        assert state.peer_journals == {"m2": "other", "m3": "third"}

    def test_an_append_of_nothing_writes_nothing(self, disk: Disk) -> None:
        disk.journal.append([])
        assert list(disk.journal.records()) == []

    def test_accepted_transactions_are_parked_in_their_order_until_they_have_a_timestamp(self, disk: Disk) -> None:
        author = Author("m1")
        disk.journal.append([author.accept("b", "a", "c")])
        disk.journal.append([author.accept("0")])
        assert disk.journal.state().parked == ["b", "a", "c", "0"]
        disk.journal.append([author.stamp("b", "c")])
        assert disk.journal.state().parked == disk.restart().state().parked == ["a", "0"]

    def test_records_of_one_turn_build_on_each_other(self, disk: Disk) -> None:
        author = Author("m1")
        disk.journal.append(author.whole("a", "b"))
        state = disk.restart().state()
        assert (state.lsn, state.executed_lsn, state.items, state.parked) == (2, 2, 2, [])
        assert state.fingerprint == fingerprint_after(2)
        assert state.last == (20, "b", "m1")
        assert state.streams == {"m1": StreamState(2, [])}

    def test_the_state_brings_the_ends_of_all_streams_that_are_not_used(self, disk: Disk) -> None:
        author = Author("m1", "m2")
        disk.journal.append([author.accept("a", "b"), author.stamp("a", "b"), author.hold("m2", "c", "d")])
        disk.journal.append([author.append("m2", "c"), author.append("m2", "d"), author.add(3, epoch=4)])
        for state in (journal.state() for journal in around_restart(disk)):
            assert state.used == {"m1": 2, "m2": 1}
            assert state.streams == {"m1": StreamState(2, []), "m2": StreamState(1, [(40, "d")])}
            assert (state.lsn, state.epoch) == (3, 4)

    def test_a_state_is_a_copy(self, disk: Disk) -> None:
        author = Author("m1")
        disk.journal.append([author.accept("a", "b"), author.stamp("a"), PeerJournal("m2", "x")])
        state = disk.journal.state()
        state.parked.clear()
        state.streams["m1"].entries.clear()
        state.peer_journals.clear()
        assert disk.journal.state().parked == ["b"]
        assert disk.journal.state().streams["m1"].entries == [(10, "a")]
        assert disk.journal.state().peer_journals == {"m2": "x"}

    def test_bodies_are_found_by_origin_and_id_before_and_after_they_have_an_lsn(self, disk: Disk) -> None:
        author = Author("m1", "m2", "m3")
        disk.journal.append([author.accept("a"), author.hold("m2", "b", "c"), author.hold("m3", "d")])

        def found(journal: Journal) -> list[bytes | None]:
            wanted = [("m1", "a"), ("m2", "b"), ("m2", "c"), ("m3", "d"), ("m2", "a"), ("m1", "b"), ("m4", "a")]
            return [journal.body(origin, txid) for origin, txid in wanted]

        expected = [body_of("a"), body_of("b", "m2"), body_of("c", "m2"), body_of("d", "m3"), None, None, None]
        assert found(disk.journal) == expected
        assert found(disk.restart()) == expected
        disk.journal.append([author.stamp("a"), author.append("m2", "b", "c"), author.append("m3", "d"), author.add(3)])
        assert found(disk.journal) == expected
        assert found(disk.restart()) == expected

    def test_a_body_that_arrives_twice_is_held_once(self, disk: Disk) -> None:
        author = Author("m1", "m2")
        disk.journal.append([author.hold("m2", "a", "b"), author.accept("x")])
        disk.journal.append([author.hold("m2", "b", "c"), author.accept("x", "y")])
        disk.journal.append([author.append("m2", "a", "b", "c"), author.stamp("x"), author.add(3)])
        for journal in around_restart(disk):
            assert journal.state().parked == ["y"]
            assert [journal.body("m2", txid) for txid in "abc"] == [body_of(txid, "m2") for txid in "abc"]

    def test_a_transaction_that_two_masters_took_has_one_lsn_and_both_bodies(self, disk: Disk) -> None:
        # Given a transaction that m1 and m2 accepted under one id
        author = Author("m1", "m2")
        disk.journal.append([author.accept("a", "b"), author.hold("m2", "a"), author.stamp("a", "b")])
        disk.journal.append([author.append("m2", "a")])
        # When both entries are used up
        disk.journal.append([author.add(3)])
        # Then the first one counts, and a peer that lags can still be given either body
        for journal in around_restart(disk):
            assert journal.ordered(1, 10) == [(10, "a", "m1"), (20, "b", "m1")]
            assert journal.lsn_of("a") == 1
            assert journal.body("m1", "a") == body_of("a")
            assert journal.body("m2", "a") == body_of("a", "m2")
            assert journal.state().used == {"m1": 2, "m2": 1}

    def test_duplicates_alone_may_be_used_up(self, disk: Disk) -> None:
        author = Author("m1", "m2")
        disk.journal.append([*author.whole("a"), author.hold("m2", "a", "b"), author.append("m2", "a")])
        disk.journal.append([author.add(1)])
        disk.journal.append([author.append("m2", "b"), author.add(1)])
        for journal in around_restart(disk):
            assert journal.ordered(1, 10) == [(10, "a", "m1"), (30, "b", "m2")]
            assert journal.body("m2", "a") == body_of("a", "m2")
            assert journal.body("m2", "b") == body_of("b", "m2")

    def test_streams_are_read_from_any_number_over_many_records(self, disk: Disk) -> None:
        author = Author("m1", "m2")
        for n in range(10):
            disk.journal.append([author.append("m2", f"a{n}", f"b{n}", f"c{n}")])
        for journal in around_restart(disk):
            assert journal.stream("m2", 0, 100) == author.streams["m2"]
            assert journal.stream("m2", 4, 10) == author.streams["m2"][4:14]
            assert journal.stream("m2", 29, 10) == author.streams["m2"][29:]
            assert journal.stream("m2", 30, 10) == journal.stream("m2", 31, 10) == journal.stream("m1", 0, 10) == []

    def test_the_synchronised_queue_and_its_results_are_read_from_any_lsn(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=5, per_turn=3)
        disk.journal.append([author.accept("late"), author.stamp("late"), author.add(1)])
        for journal in around_restart(disk):
            assert [txid for _, txid, _ in journal.ordered(1, 100)] == [*[f"t{n}" for n in range(1, 16)], "late"]
            assert [txid for _, txid, _ in journal.ordered(5, 4)] == ["t5", "t6", "t7", "t8"]
            assert journal.ordered(17, 5) == journal.ordered(0, 5) == []
            assert journal.results(14, 5) == [result_of(14), result_of(15)]
            assert journal.results(16, 5) == []
            assert [journal.lsn_of(txid) for txid in ("t1", "t15", "late", "t16")] == [1, 15, 16, None]

    def test_each_lsn_has_the_fingerprint_of_its_result(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3, per_turn=2)
        disk.journal.append([author.accept("late"), author.stamp("late"), author.add(1)])
        for journal in around_restart(disk):
            assert journal.results_from() == 1
            found = [journal.fingerprint_at(lsn) for lsn in range(8)]
            assert found == [EMPTY, *map(fingerprint_after, range(1, 7)), UNKNOWN]

    def test_the_last_workers_that_were_named_count(self, disk: Disk) -> None:
        assert disk.journal.state().workers is None
        disk.journal.append([WorkersChanged((("w1", True, True),)), WorkersChanged((("w1", True, False), ("w2", False, True)))])
        for journal in around_restart(disk):
            assert journal.state().workers == (("w1", True, False), ("w2", False, True))
        disk.journal.append([WorkersChanged(())])
        assert disk.restart().state().workers == ()

    def test_the_last_pins_that_were_set_count(self, disk: Disk) -> None:
        assert disk.journal.state().pins == ()
        disk.journal.append([PinsChanged((("a", 1, 10),)), PinsChanged((("a", 7, 20), ("b", 2, 30)))])
        for journal in around_restart(disk):
            assert journal.state().pins == (("a", 7, 20), ("b", 2, 30))
        disk.journal.append([PinsChanged(())])
        assert disk.restart().state().pins == ()

    def test_that_content_came_from_elsewhere_is_remembered(self, disk: Disk) -> None:
        assert disk.journal.state().taken_splits == 0
        disk.journal.append([ContentTaken(3), ContentTaken(9)])
        for journal in around_restart(disk):
            assert journal.state().taken_splits == 9

    def test_records_are_returned_in_order_with_their_numbers(self, disk: Disk) -> None:
        author = Author("m1", "m2")
        turns: list[list[Record]] = [[Started(1)], author.whole("a"), [author.hold("m2", "b"), ClockReserved(5)]]
        for turn in turns:
            disk.journal.append(turn)
        for journal in around_restart(disk):
            found = list(journal.records())
            assert [record for _, record in found] == [record for turn in turns for record in turn]
            numbers = [number for number, _ in found]
            assert numbers == sorted(set(numbers))
            assert list(journal.records(numbers[3])) == found[3:]

    def test_numbers_go_on_after_a_restart(self, disk: Disk) -> None:
        filled(disk.journal, turns=2)
        before = list(disk.journal.records())
        disk.restart().append([Started(1)])
        found = list(disk.journal.records())
        assert found[: len(before)] == before
        assert found[-1][0] > before[-1][0]

    @pytest.mark.parametrize(
        "wrong",
        [
            Appended("m1", 1, ((99, "x"),)),
            Appended("m1", 3, ((99, "x"),)),
            Added(1, ((99, "x", "m1"),), {}),
            Added(4, ((99, "x", "m1"),), {}),
            Added(3, (), {"m1": 3}),
            Added(3, (), {"m1": 1}),
            Started(0),
            ClockReserved(1),
            Rebased(3, b"", 0, "above the last LSN"),
        ],
        ids=repr,
    )
    def test_a_record_that_does_not_follow_is_a_fault_and_changes_nothing(self, disk: Disk, wrong: Record) -> None:
        author = filled(disk.journal, turns=2)
        disk.journal.append([Started(1), ClockReserved(50)])
        before = everything(disk.journal, ["t1", "t2", "x"], ["m1"])
        with pytest.raises(InvariantBroken):
            disk.journal.append([wrong])
        assert everything(disk.journal, ["t1", "t2", "x"], ["m1"]) == before
        disk.journal.append(author.whole("t3"))
        assert disk.restart().state().lsn == 3

    def test_results_ahead_of_the_synchronised_queue_are_a_fault(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=1)
        author.lsn += 1
        with pytest.raises(InvariantBroken, match="only what is synchronised is executed"):
            disk.journal.append([author.execute(1)])

    def test_nothing_of_a_turn_is_there_when_the_disk_is_full(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        before = everything(disk.journal, ["t1", "t3", "t4"], ["m1"])
        turn = [author.accept("t4" * 60), *author.whole("t4")]
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.append(turn)
        assert everything(disk.journal, ["t1", "t3", "t4"], ["m1"]) == before
        assert everything(disk.restart(), ["t1", "t3", "t4"], ["m1"]) == before

    def test_a_turn_is_written_once_there_is_space_again(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        turn = author.whole("t4")
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.append(turn)
        disk.journal.append(turn)
        assert disk.restart().lsn_of("t4") == 4

    def test_a_closed_journal_takes_no_turn(self, disk: Disk) -> None:
        disk.journal.close()
        disk.journal.close()
        with pytest.raises(JournalError):
            disk.journal.append([Started(1)])


def around_restart(disk: Disk) -> Iterator[Journal]:
    """Return the journal as it is, then as it is after a restart."""
    yield disk.journal
    yield disk.restart()


@contextmanager
def flag_set(holder: object, name: str) -> Iterator[None]:
    """Set an attribute to True for a while."""
    setattr(holder, name, True)
    try:
        yield
    finally:
        setattr(holder, name, False)
