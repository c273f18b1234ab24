"""What every journal does with records that may wait for the next commit."""

from __future__ import annotations

import threading
from typing import Protocol

import pytest

from brokerha.model.errors import JournalFull
from brokerha.model.records import ClockReserved, Record
from brokerha.ports.journal import Journal
from tests.contracts.journal_contract import Disk
from tests.unit.log.turns import Author, body_of, fingerprint_after


class CrashingDisk(Disk, Protocol):
    """A disk on which a journal can be left as it is at a moment."""

    def crash(self) -> Journal:
        """Open what a crash leaves."""


def waiting(author: Author, journal: Journal, *txids: str) -> list[Record]:
    """Write what cannot be worked out again, and return what can."""
    journal.append([author.accept(*txids), author.stamp(*txids)])
    return [author.add(len(txids)), author.execute(len(txids))]


class DeferContract:
    """Subclasses give the fixture ``disk``."""

    def test_what_is_deferred_is_read_like_the_rest(self, disk: CrashingDisk) -> None:
        author, journal = Author("m1"), disk.journal
        journal.defer(waiting(author, journal, "a", "b"))
        assert (journal.state().lsn, journal.state().executed_lsn) == (2, 2)
        assert [journal.lsn_of(txid) for txid in "ab"] == [1, 2]
        assert journal.ordered(1, 10) == [(10, "a", "m1"), (20, "b", "m1")]
        assert journal.body("m1", "b") == body_of("b")
        assert len(journal.results(1, 10)) == 2
        assert journal.fingerprint_at(2) == fingerprint_after(2)

    def test_a_crash_loses_what_is_deferred_and_nothing_else(self, disk: CrashingDisk) -> None:
        author, journal = Author("m1"), disk.journal
        journal.append([ClockReserved(5)])
        journal.defer(waiting(author, journal, "a", "b"))
        state = disk.crash().state()
        assert (state.high_water, state.lsn, state.executed_lsn) == (5, 0, 0)
        assert state.streams["m1"] == (0, [(10, "a"), (20, "b")])

    def test_the_next_turn_brings_what_waited_before_it(self, disk: CrashingDisk) -> None:
        author, journal = Author("m1"), disk.journal
        first = waiting(author, journal, "a")
        journal.defer(first[:1])
        journal.defer(first[1:])
        journal.append([author.accept("b"), author.stamp("b"), author.add(1)])
        state = disk.crash().state()
        assert (state.lsn, state.executed_lsn, state.last_number) == (2, 1, 7)

    def test_what_is_settled_is_durable(self, disk: CrashingDisk) -> None:
        author, journal = Author("m1"), disk.journal
        journal.defer(waiting(author, journal, "a"))
        journal.settle()
        journal.settle()
        assert disk.crash().state().executed_lsn == 1

    def test_whoever_closes_a_journal_leaves_nothing_behind(self, disk: CrashingDisk) -> None:
        author, journal = Author("m1"), disk.journal
        records = waiting(author, journal, "a")
        writer = threading.Thread(target=lambda: journal.defer(records))
        writer.start()
        writer.join()
        disk.journal.close()
        assert disk.restart().state().executed_lsn == 1

    def test_trimming_comes_after_what_was_deferred(self, disk: CrashingDisk) -> None:
        author, journal = Author("m1"), disk.journal
        journal.defer(waiting(author, journal, "a", "b"))
        journal.keep(3)
        state = disk.crash().state()
        assert state.executed_lsn == 2
        assert disk.journal.first_lsn() == 3

    def test_a_turn_that_cannot_be_written_takes_what_waited_with_it(self, disk: CrashingDisk) -> None:
        author, journal = Author("m1"), disk.journal
        records = waiting(author, journal, "a")
        journal.defer(records)
        with disk.full(), pytest.raises(JournalFull):
            journal.append([ClockReserved(7)])
        assert (journal.state().lsn, journal.state().high_water) == (0, 0)
        assert journal.lsn_of("a") is None
        journal.append(records)
        assert disk.crash().state().executed_lsn == 1
