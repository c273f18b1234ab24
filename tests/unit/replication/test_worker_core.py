"""WorkerCore: LSNs go to the store in order, once, one decision at a time; gaps, repetitions and failures are survived."""

from __future__ import annotations

from brokerha.model import states
from brokerha.model.ids import Instant
from brokerha.model.messages import Apply, Envelope, Execute, Executed, Fetch, Message, Progress
from brokerha.model.ready import ApplyBatch, ExecuteBatch, Ready, ResendResults, StoreDone, StoreFailed
from brokerha.replication.worker import WorkerConfig, WorkerCore

RESULT = ("applied", "", b"e")


class Bench:
    """A worker core, a clock, and the last consequences."""

    def __init__(self, applied: int = 0, **settings: int) -> None:
        self.core = WorkerCore(WorkerConfig("w1", "m1", **settings), "journal", applied, "f", 0)
        self.ms = 1000

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def take(self, *messages: Message, sender: str = "m1") -> Ready:
        for message in messages:
            self.core.step(Envelope("c", sender, 1, message), self.now())
        self.core.wake(self.now())
        return self.core.take_ready(self.now())

    def done(self, applied: int, first: int, results: tuple[tuple[str, str, bytes], ...] = ()) -> Ready:
        self.core.step(StoreDone(first, applied, results, f"f{applied}", applied), self.now())
        return self.core.take_ready(self.now())


def transactions(first: int, last: int) -> Execute:
    return Execute(first, tuple((f"t{n}", n, b"body") for n in range(first, last + 1)))


def effects(first: int, last: int) -> Apply:
    return Apply(first, (RESULT,) * (last - first + 1))


def told(ready: Ready) -> list[Message]:
    return [outgoing.message for outgoing in ready.messages]


def test_it_tells_where_it_stands_when_it_starts() -> None:
    ready = Bench(applied=7).take()
    assert told(ready) == [Progress("journal", 7, "f", 0, states.OK)]
    assert ready.messages[0].to == "m1"


def test_transactions_become_one_decision_and_what_comes_meanwhile_the_next() -> None:
    bench = Bench()
    assert bench.take(transactions(1, 2)).decisions == (ExecuteBatch(1, transactions(1, 2).items),)
    assert bench.take(transactions(3, 3), transactions(4, 5)).decisions == ()
    ready = bench.done(2, 1, (RESULT, RESULT))
    assert ready.decisions == (ExecuteBatch(3, (*transactions(3, 3).items, *transactions(4, 5).items)),)
    assert told(ready)[0] == Executed(1, (RESULT, RESULT), 2, "f2", 2, "journal")


def test_effects_are_applied_and_confirmed() -> None:
    bench = Bench()
    assert bench.take(effects(1, 3)).decisions == (ApplyBatch(1, (RESULT,) * 3),)
    progress = told(bench.done(3, 1))[-1]
    assert isinstance(progress, Progress)
    assert progress.applied_lsn == 3
    assert progress.fingerprint == "f3"


def test_transactions_and_effects_are_never_mixed_in_one_decision() -> None:
    bench = Bench()
    bench.take(effects(1, 1))
    bench.take(effects(2, 2), transactions(3, 3))
    assert bench.done(1, 1).decisions == (ApplyBatch(2, (RESULT,)),)
    assert bench.done(2, 2).decisions == (ExecuteBatch(3, transactions(3, 3).items),)


def test_a_gap_is_told_at_once_and_nothing_behind_it_is_taken() -> None:
    bench = Bench()
    bench.take()
    ready = bench.take(transactions(3, 4))
    assert ready.decisions == ()
    progress = told(ready)[0]
    assert isinstance(progress, Progress)
    assert progress.gap_from == 1
    # The gap is told at most so often.
    assert told(bench.take(transactions(5, 5))) == []
    ready = bench.take(transactions(1, 4))
    assert ready.decisions == (ExecuteBatch(1, transactions(1, 4).items),)


def test_what_is_known_already_is_skipped() -> None:
    bench = Bench(applied=4)
    bench.take()
    assert bench.take(effects(3, 6)).decisions == (ApplyBatch(5, (RESULT, RESULT)),)
    assert bench.take(effects(1, 2)).decisions == ()


def test_what_was_executed_before_is_answered_from_the_effects_log() -> None:
    bench = Bench(applied=4)
    bench.take()
    ready = bench.take(transactions(3, 4))
    assert ready.decisions == (ResendResults(3, 4),)
    ready = bench.done(4, 3, (RESULT, RESULT))
    assert told(ready)[0] == Executed(3, (RESULT, RESULT), 4, "f4", 4, "journal")


def test_a_failure_of_the_store_is_told_and_tried_again_after_a_pause() -> None:
    bench = Bench(retry_ms=500)
    bench.take(transactions(1, 2))
    bench.core.step(StoreFailed("disk full"), bench.now())
    ready = bench.core.take_ready(bench.now())
    progress = told(ready)[0]
    assert isinstance(progress, Progress)
    assert (progress.state, progress.reason) == (states.HALTED, "disk full")
    assert bench.take(transactions(1, 2)).decisions == ()
    bench.ms += 500
    assert bench.core.deadline_ms() is not None
    ready = bench.take()
    progress = told(ready)[0]
    assert isinstance(progress, Progress)
    # Whatever came during the pause is not lost: either it is handed over now, or it is asked for.
    assert ready.decisions or progress.gap_from == 1


def test_the_backlog_is_bounded() -> None:
    bench = Bench(backlog=3)
    bench.take(transactions(1, 1))
    bench.take(transactions(2, 9))
    ready = bench.done(1, 1, (RESULT,))
    assert ready.decisions == (ExecuteBatch(2, transactions(2, 3).items),)


def test_it_tells_where_it_stands_when_its_master_asks() -> None:
    bench = Bench(applied=4)
    bench.take()
    for first in (1, 5):
        assert isinstance(told(bench.take(Apply(first, ())))[0], Progress)


def test_only_the_own_master_is_obeyed() -> None:
    bench = Bench()
    assert bench.take(transactions(1, 1), sender="m2").decisions == ()
    assert bench.take(Fetch(())).decisions == ()
    assert bench.core.ignored == 2


def test_heartbeats_come_by_themselves() -> None:
    bench = Bench(heartbeat_ms=100)
    bench.take()
    assert told(bench.take()) == []
    assert bench.core.deadline_ms() == bench.ms + 100
    bench.ms += 100
    assert isinstance(told(bench.take())[0], Progress)


def test_it_says_that_it_catches_up() -> None:
    bench = Bench()
    bench.take(transactions(1, 5))
    assert bench.core.state() == (states.CATCHING_UP, "5 transactions to apply")


def test_large_results_are_cut_into_messages() -> None:
    bench = Bench()
    bench.take(transactions(1, 3))
    big = ("applied", "", b"x" * 700_000)
    parts = [m for m in told(bench.done(3, 1, (big, big, big))) if isinstance(m, Executed)]
    assert [(part.first_lsn, len(part.results)) for part in parts] == [(1, 2), (3, 1)]
