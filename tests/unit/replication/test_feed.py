"""Feed: one worker executes, the others apply, whoever is behind gets it again, nobody gets what is not durable."""

from __future__ import annotations

from brokerha.journal.memory_journal import MemoryJournal
from brokerha.model.messages import Apply, Execute, Executed, Message, Progress
from brokerha.model.records import Accepted, Added, Appended, Outcomes, Started
from brokerha.replication.feed import Feed, FeedConfig

RESULT = ("applied", "", b"e")


class Bench:
    """A feed over a journal with so many synchronised transactions."""

    def __init__(self, lsn: int = 3, workers: tuple[str, ...] = ("w1", "w2"), **settings: int) -> None:
        self.journal = MemoryJournal("m1", "journal-of-m1")
        self.journal.append([Started(1)])
        self.ms = 1000
        self.lsn = 0
        self.feed = Feed(FeedConfig(workers, **settings), self.journal, 0, 0, "", 0)
        self.greetings = self.feed.messages(self.ms)
        self.synchronise(lsn)

    def synchronise(self, count: int) -> None:
        fresh = range(self.lsn + 1, self.lsn + count + 1)
        self.journal.append([
            Accepted(tuple((f"t{n}", b"body") for n in fresh)),
            Appended("m1", self.lsn, tuple((n, f"t{n}") for n in fresh)),
            Added(self.lsn + 1, tuple((n, f"t{n}", "m1") for n in fresh), {"m1": self.lsn + count}),
        ])
        self.lsn += count
        self.feed.lsn = self.lsn

    def heard(self, worker: str, applied: int = 0, journal: str = "j", gap_from: int = 0) -> None:
        progress = Progress(journal, applied, "f", applied, "ok", gap_from=gap_from)
        self.feed.on_progress(worker, progress, self.ms)

    def executed(self, worker: str, first: int, last: int) -> Outcomes | None:
        report = Executed(first, (RESULT,) * (last - first + 1), last, f"f{last}", last)
        outcomes = self.feed.on_executed(worker, report, self.ms)
        if outcomes is not None:
            self.journal.append([outcomes])
        return outcomes

    def sent(self) -> dict[str, list[Message]]:
        found: dict[str, list[Message]] = {}
        for outgoing in self.feed.messages(self.ms):
            found.setdefault(outgoing.to, []).append(outgoing.message)
        return found


def lsns(messages: list[Message]) -> list[tuple[str, int, int]]:
    found = []
    for message in messages:
        items = message.items if isinstance(message, Execute) else message.results  # type: ignore[union-attr]
        found.append((type(message).__name__, message.first_lsn, message.first_lsn + len(items) - 1))  # type: ignore[union-attr]
    return found


def test_nobody_is_fed_before_it_was_heard() -> None:
    assert Bench().sent() == {}


def test_a_start_asks_every_worker_where_it_stands() -> None:
    assert [(out.to, out.message) for out in Bench().greetings] == [("w1", Apply(1, ())), ("w2", Apply(1, ()))]


def test_the_first_live_worker_executes_and_the_other_waits_for_effects() -> None:
    bench = Bench()
    bench.heard("w1")
    bench.heard("w2")
    sent = bench.sent()
    assert lsns(sent["w1"]) == [("Execute", 1, 3)]
    assert "w2" not in sent
    outcomes = bench.executed("w1", 1, 3)
    assert outcomes is not None
    assert (outcomes.first_lsn, len(outcomes.results), outcomes.fingerprint) == (1, 3, "f3")
    assert lsns(bench.sent()["w2"]) == [("Apply", 1, 3)]


def test_nothing_is_sent_twice_without_need_and_again_after_a_while() -> None:
    bench = Bench(retransmit_ms=100)
    bench.heard("w1")
    assert bench.sent()
    assert bench.sent() == {}
    bench.ms += 100
    assert lsns(bench.sent()["w1"]) == [("Execute", 1, 3)]


def test_a_gap_is_filled_from_where_it_begins() -> None:
    bench = Bench(lsn=5)
    bench.heard("w1")
    bench.sent()
    bench.heard("w1", applied=1, gap_from=2)
    assert lsns(bench.sent()["w1"]) == [("Execute", 2, 5)]


def test_a_worker_behind_the_results_applies_before_it_executes() -> None:
    bench = Bench(lsn=3)
    bench.heard("w1")
    bench.sent()
    bench.executed("w1", 1, 3)
    bench.synchronise(2)
    bench.ms += 10_000
    bench.heard("w2")
    assert lsns(bench.sent()["w2"]) == [("Apply", 1, 3), ("Execute", 4, 5)]
    assert bench.feed.executor == "w2"


def test_results_are_taken_in_once_and_without_a_gap() -> None:
    bench = Bench(lsn=5)
    bench.heard("w1")
    bench.sent()
    assert bench.executed("w1", 3, 4) is None
    assert bench.executed("w1", 1, 2) is not None
    assert bench.executed("w1", 1, 2) is None
    outcomes = bench.executed("w1", 2, 4)
    assert outcomes is not None
    assert (outcomes.first_lsn, len(outcomes.results)) == (3, 2)


def test_results_of_what_was_never_synchronised_are_counted_and_dropped() -> None:
    bench = Bench(lsn=1)
    assert bench.executed("w1", 1, 9) is None
    assert bench.feed.ignored == 1


def test_strangers_are_no_workers() -> None:
    bench = Bench()
    bench.heard("stranger")
    assert bench.executed("stranger", 1, 1) is None
    assert bench.sent() == {}


def test_a_worker_with_a_new_journal_starts_where_it_says() -> None:
    bench = Bench()
    bench.heard("w1")
    bench.executed("w1", 1, 3)
    assert bench.feed.applied_by(1) == 3
    bench.heard("w1", applied=0, journal="another")
    assert bench.feed.workers["w1"].applied == 0
    assert lsns(bench.sent()["w1"])[0] == ("Apply", 1, 3)


def test_messages_are_bounded_by_items_bytes_and_window() -> None:
    bench = Bench(lsn=10, window=6, message_items=4)
    bench.heard("w1")
    assert lsns(bench.sent()["w1"]) == [("Execute", 1, 4), ("Execute", 5, 6)]
    bench = Bench(lsn=4, message_bytes=5)
    bench.heard("w1")
    assert lsns(bench.sent()["w1"]) == [("Execute", 1, 2), ("Execute", 3, 4)]


def test_effects_are_cut_by_bytes_too() -> None:
    bench = Bench(lsn=4, message_bytes=2)
    bench.heard("w1")
    bench.sent()
    bench.executed("w1", 1, 4)
    bench.heard("w2")
    assert all(isinstance(message, Apply) for message in bench.sent()["w2"])


def test_how_far_enough_copies_are() -> None:
    bench = Bench()
    assert bench.feed.applied_by(1) == 0
    bench.heard("w1")
    bench.executed("w1", 1, 3)
    bench.heard("w2", applied=2)
    assert [bench.feed.applied_by(n) for n in (0, 1, 2, 3)] == [0, 3, 2, 0]


def test_the_next_moment_to_look() -> None:
    bench = Bench(dead_after_ms=5000, retransmit_ms=1000)
    assert bench.feed.deadline_ms(bench.ms) is None
    bench.heard("w1")
    bench.sent()
    due = bench.feed.deadline_ms(bench.ms)
    assert due is not None
    assert bench.ms < due <= bench.ms + 1000
    bench.executed("w1", 1, 3)
    assert bench.feed.deadline_ms(bench.ms) == bench.ms + 5000
