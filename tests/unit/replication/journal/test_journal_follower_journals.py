"""Both halves of following a journal over journals that know what their records mean: a backup could take over at any moment."""

from __future__ import annotations

from brokerha.model.ids import Instant
from brokerha.model.records import Record, Started, TxDecided, TxPrepared, ViewStarted
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsWanted, Replicate
from brokerha.replication.journal.feed import JournalFeed, JournalFeedConfig
from brokerha.replication.journal.follower import JournalFollower, JournalFollowerConfig
from tests.support.logs import memory_log, reopened
from tests.unit.log.turns import Author


class Pair:
    """A primary m1 and its backup b1, with a wire that brings everything at once."""

    def __init__(self) -> None:
        self.ms = 1000
        self.journal = memory_log("m1", "journal-of-m1")
        self.copy = memory_log("m1", "journal-of-m1")
        self.journal.append([ViewStarted(10, "m1"), Started(1)])
        state = self.journal.state()
        self.feed = JournalFeed(
            JournalFeedConfig(("b1",), memory_bytes=200), self.journal, view=10, journal=state.journal, views=state.views
        )
        self.start()

    def start(self) -> None:
        """The backup starts, from what it holds durably."""
        self.copy = reopened(self.copy)
        self.core = JournalFollower(JournalFollowerConfig("b1", ("m1",)), self.copy, self.copy.state())

    def write(self, *records: Record) -> None:
        first = self.journal.last_number + 1
        self.journal.append(records)
        self.feed.note(first, records)

    def settle(self, rounds: int = 10) -> None:
        for _ in range(rounds):
            self.ms += 300
            now = Instant(self.ms, self.ms * 1000)
            for out in self.feed.messages(now):
                if isinstance(out.message, Replicate):
                    self.core.on_replicate("m1", out.message, now)
                elif isinstance(out.message, Records):
                    self.core.on_records("m1", out.message, now)
            ready = self.core.take(now)
            if ready.records:
                self.copy.follow(ready.records)
                self.core.followed(ready.records[-1][0])
            for out in (*ready.messages, *self.core.take(now).messages):
                if isinstance(out.message, Confirmed):
                    self.feed.on_confirmed("b1", out.message, now)
                elif isinstance(out.message, RecordsWanted):
                    self.feed.on_records_wanted("b1", out.message)

    def are_equal(self) -> bool:
        """Whether a restart of either begins from the same, and holds the same."""
        own, other = self.journal.state(), self.copy.state()
        return own == other and list(self.journal.records()) == list(self.copy.records())


def test_a_backup_holds_what_a_restart_of_its_primary_would_find() -> None:
    pair = Pair()
    author = Author("m1", "m2")
    pair.write(author.accept("a", "b"))
    pair.write(author.stamp("a", "b"), author.hold("m2", "c"))
    pair.settle()
    pair.write(author.append("m2", "c"), author.add(3))
    pair.write(author.execute(3))
    pair.settle()
    assert pair.feed.ready() == ("b1",)
    assert pair.are_equal()


def test_results_that_became_void_are_passed_over_by_a_backup_that_was_away() -> None:
    pair = Pair()
    author = Author("m1", "m2")
    pair.write(author.accept("a", "b"), author.stamp("a", "b"))
    pair.settle()
    pair.write(author.add(2))
    pair.write(author.execute(1))
    pair.write(author.execute(1))
    pair.write(author.rebase(1))
    pair.write(author.accept("d"))
    pair.start()
    pair.settle()
    assert pair.copy.last_number == pair.journal.last_number
    assert pair.are_equal()


def test_transactions_that_are_prepared_and_decided_are_the_same_on_both() -> None:
    pair = Pair()
    pair.settle()
    author = Author("m1")
    body = author.accept("t1").items[0][1]
    pair.write(TxPrepared("t1", "1:6f:", body, ("b1",), 5), TxPrepared("t2", "1:70:", b"two", ("b1",), 6))
    pair.settle()
    pair.start()
    pair.write(TxDecided("t1", is_commit=True, reason=""), author.accept("t1"))
    pair.write(TxDecided("t2", is_commit=False, reason="no"))
    pair.settle()
    assert pair.copy.body("m1", "t1") == body
    assert pair.are_equal()
