"""The way of each read through the workers of a master: where it is sent, retried, hedged, given up.

    ask ---> attempt at w2 ---- answer -------------------------------------> the read is answered
                 |   `--------- the request is wrong -----------------------> answered with the error: it is wrong everywhere
                 |   `--------- an error of the worker, or it is lost ------> attempt at the next one not tried yet
                 |                                                            none left: given up, with the answer of each
                 `- silent for its patience: a second attempt at w3           the first answer of the two counts

An attempt has all the remaining time of the read, because a long query must not be cut. Its share, after which another worker is
asked as well, is the `Patience`. A worker that was heard meanwhile is slow and not frozen, and gets four times that. At most two
attempts of a read count as under way. An attempt at a silent worker does not count, so that two frozen workers do not block a
third.

A worker that leaves several reads in a row unanswered is benched: it gets no more reads while there is another worker, but a small
probe at intervals. Any answer ends that.

Invariants: each read ends exactly once, answered or given up, a grace after its deadline at the latest. A read is never sent to one
worker twice. A late answer is counted and dropped. Everything that waits has an entry in the timetable. This module has no clock,
thread or connection: times are arguments, and `take` returns the steps.

>>> routing = Routing(RoutingLimits())
>>> _ = routing.update([WorkerFacts("w1", 10, 0, 0), WorkerFacts("w2", 10, 0, 0)], 0)
>>> read = routing.ask("get", 0, 5000, 0)
>>> routing.take()
[Send(attempt=2, read=1, worker='w1', timeout_ms=5000)]
>>> routing.failed(2, "NotReady", "busy", 10)
>>> routing.take()
[Send(attempt=3, read=1, worker='w2', timeout_ms=4990)]
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sortedcontainers import SortedList

from brokerha.model.ids import Lsn, NodeId
from brokerha.nodes.reads.worker_order import WorkerFacts, WorkerQueue
from brokerha.nodes.timetable import Timetable

PROBE = 0
"""The read number of a probe of a benched worker."""
SAMPLES = 128
"""Number of recent answers of one kind that count."""
LEAST_SAMPLES = 8
KINDS_LIMIT = 16
"""Most kinds that are distinguished; a program can ask for any word."""
TIMES = 4
EARNED = 0.05


@dataclass(frozen=True, slots=True)
class RoutingLimits:
    """Bounds of the reads of one master."""

    reads: int = 10_000
    """Most attempts under way, late ones included; more reads are refused."""
    patience_ms: int = 500
    """Least time before another worker is asked the same."""
    attempts: int = 2
    """Most attempts of one read under way, without those at silent workers."""
    savings: int = 10
    """Most second questions in a row without success."""
    alive_factor: int = 4
    """Factor of the patience for a worker that was heard since it was asked."""
    silent_ms: int = 1500
    """Silence, since it was asked, after which a worker is possibly frozen."""
    bench_after: int = 3
    probe_ms: int = 2000
    """Interval of the probes of a benched worker."""
    grace_ms: int = 1000
    """Extra time for a worker's answer, because the worker has the same deadline."""


class Send(NamedTuple):
    """Send this read to a worker."""

    attempt: int
    read: int
    """`PROBE` for a probe."""
    worker: NodeId
    timeout_ms: int


class GiveUp(NamedTuple):
    """This read has failed."""

    read: int
    is_timeout: bool
    """Whether only the time was too short."""
    text: str


Step = Send | GiveUp


@dataclass(slots=True)
class _Attempt:
    number: int
    read: int
    worker: NodeId
    began_ms: int
    ends_ms: int
    is_second: bool
    moved_ms: int
    is_counted: bool = False
    """Whether the attempt was counted as unanswered for its worker."""


@dataclass(slots=True)
class _Read:
    number: int
    kind: str
    min_lsn: Lsn
    deadline_ms: int
    tried: dict[NodeId, tuple[str, str]] = field(default_factory=dict)
    """Error and text of each worker that was tried; empty while it has not answered."""
    open: dict[int, _Attempt] = field(default_factory=dict)


class Recent:
    """Durations of the last answers of one kind."""

    def __init__(self) -> None:
        self._in_turn: deque[int] = deque()
        self._sorted: SortedList[int] = SortedList()

    def note(self, duration_ms: int) -> None:
        """Add the duration of an answer."""
        if len(self._in_turn) == SAMPLES:
            self._sorted.remove(self._in_turn.popleft())
        self._in_turn.append(duration_ms)
        self._sorted.add(duration_ms)

    def p95_ms(self) -> int:
        """Return the 95th percentile; 0 while there are too few answers."""
        count = len(self._sorted)
        return 0 if count < LEAST_SAMPLES else int(self._sorted[min(count - 1, count * 95 // 100)])


class Patience:
    """Hedged reads: the delay before a second worker is asked the same, by kind of read, and the budget for that.

    The patience with a kind of read is four times the 95th percentile of its recent answers, and never below a floor. So slow
    queries get a long patience, and a `get` that hangs is noticed at once.

    A second question costs a second worker, so it must be earned. Each timely answer earns a twentieth of one; a second question
    that was answered first earns its price back. When a query is slow everywhere, the savings are soon used up and it stays with
    one worker. When one of several workers hangs, they last.

        savings  10.0 -> ask again -1.0 -> the second was first +1.0        bounded by the limit, never below 0
    """

    def __init__(self, floor_ms: Callable[[], int], savings_limit: int) -> None:
        """``floor_ms`` returns the present floor."""
        self._floor_ms = floor_ms
        self._savings_limit = float(savings_limit)
        self._savings = float(savings_limit)
        self._recent: dict[str, Recent] = {}

    def of(self, kind: str) -> int:
        """Return how many milliseconds to wait for an answer to a read of this kind."""
        recent = self._recent.get(self._known(kind))
        floor_ms = self._floor_ms()
        return floor_ms if recent is None else max(floor_ms, TIMES * recent.p95_ms())

    def note(self, kind: str, duration_ms: int) -> None:
        """Note an answer to a read of this kind."""
        self._recent.setdefault(self._known(kind), Recent()).note(duration_ms)
        self._savings = min(self._savings_limit, self._savings + EARNED)

    def pay(self) -> bool:
        """Pay for a second question; return False when it cannot be paid."""
        if self._savings < 1:
            return False
        self._savings -= 1
        return True

    def give_back(self) -> None:
        """Refund a second question that was answered first."""
        self._savings = min(self._savings_limit, self._savings + 1)

    def _known(self, kind: str) -> str:
        return kind if kind in self._recent or len(self._recent) < KINDS_LIMIT else ""


class Routing:
    """All reads of one master, and the workers that can get them."""

    def __init__(self, limits: RoutingLimits) -> None:
        self.limits = limits
        self.counts: Counter[str] = Counter()
        """``retried``, ``hedged``, ``hedges_won``, ``failed``, ``late``, ``probes``."""
        self._queue = WorkerQueue(limits.bench_after)
        self._patience = Patience(lambda: limits.patience_ms, limits.savings)
        self._numbers = itertools.count(1)
        self._reads: dict[int, _Read] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._probes: dict[int, NodeId] = {}
        self._timetable = Timetable()
        self._steps: list[Step] = []

    # ---- inputs

    def update(self, facts: Sequence[WorkerFacts], mono_ms: int) -> None:
        """Set the readable workers. Attempts at workers that are no longer readable fail."""
        for node in self._queue.update(facts):
            for attempt in [each for each in self._attempts.values() if each.worker == node]:
                self.failed(attempt.number, "NotReady", "was lost, or may not serve reads any more", mono_ms)

    def ask(self, kind: str, min_lsn: Lsn, timeout_ms: int, mono_ms: int) -> int:
        """Take a new read; return its number."""
        read = _Read(next(self._numbers), kind, min_lsn, mono_ms + timeout_ms)
        self._reads[read.number] = read
        if len(self._attempts) >= self.limits.reads:
            self._give_up(read, is_timeout=False, text=f"{len(self._attempts)} reads are under way already: try again")
        elif not self._start(read, mono_ms, is_second=False):
            text = "no worker of this master can serve reads: start one, or ask another master"
            self._give_up(read, is_timeout=False, text=text)
        return read.number

    def heard(self, number: int, mono_ms: int) -> int | None:
        """Note a piece of an answer, which shows that the worker is busy with it. Return the read if it is still open."""
        attempt = self._attempts.get(number)
        if attempt is None or attempt.read not in self._reads:
            return None
        attempt.moved_ms = mono_ms
        self._set_due(self._reads[attempt.read], mono_ms)
        return attempt.read

    def answered(self, number: int, mono_ms: int, *, is_good: bool = True) -> int | None:
        """Note an answer; ``is_good`` is False when the request is wrong. Return the read, or None when the answer is late."""
        attempt = self._ended(number)
        if attempt is None:
            self.counts["late"] += 1
            return None
        self._queue.answered(attempt.worker)
        read = self._reads.get(attempt.read)
        if read is None:
            self.counts["late"] += attempt.read != PROBE
            return None
        if is_good:
            self._patience.note(read.kind, mono_ms - attempt.began_ms)
        if attempt.is_second:
            self._patience.give_back()
            self.counts["hedges_won"] += 1
        self._close(read, mono_ms)
        return read.number

    def failed(self, number: int, error: str, text: str, mono_ms: int) -> None:
        """Note the error of a worker, by its name; the read goes to the next worker."""
        attempt = self._ended(number)
        if attempt is None:
            self.counts["late"] += 1
            return
        if error == "TimedOut":
            # The reader chose the time, so a worker that reports its end in time is healthy.
            self._queue.answered(attempt.worker)
        else:
            self._count_unanswered(attempt, mono_ms)
        read = self._reads.get(attempt.read)
        if read is None:
            self.counts["late"] += attempt.read != PROBE
            return
        read.tried[attempt.worker] = (error, text)
        if not read.open:
            self._go_on(read, mono_ms)

    def tick(self, mono_ms: int) -> None:
        """Serve what is due: second attempts, deadlines, probes."""
        for number in self._timetable.take(mono_ms):
            if number in self._reads:
                self._look_after(self._reads[number], mono_ms)
            elif number in self._probes:
                self._probe(number, mono_ms)
            elif (attempt := self._ended(number)) is not None:
                self._count_unanswered(attempt, mono_ms)

    def close(self, text: str) -> None:
        """Give up all reads."""
        for read in list(self._reads.values()):
            self._give_up(read, is_timeout=False, text=text)

    # ---- output

    def take(self) -> list[Step]:
        """Return the steps to take now."""
        steps, self._steps = self._steps, []
        return steps

    def due_ms(self) -> int | None:
        """Return when `tick` is due next; None when nothing waits."""
        return int(self._timetable.next() or 0) if self._timetable.due else None

    def is_over(self, number: int) -> bool:
        """Tell whether an attempt no longer waits for an answer."""
        return number not in self._attempts

    def benched(self) -> list[NodeId]:
        """Return the workers that get only probes."""
        return [node for node in self._queue.loads() if self._queue.is_benched(node)]

    def __len__(self) -> int:
        return len(self._reads)

    # ---- one read

    def _start(self, read: _Read, mono_ms: int, *, is_second: bool) -> bool:
        worker = self._queue.choose(read.tried, read.min_lsn)
        if worker is None:
            return False
        timeout_ms = read.deadline_ms - mono_ms
        attempt = self._attempt(read.number, worker, timeout_ms, mono_ms, is_second=is_second)
        read.tried[worker] = ("", "")
        read.open[attempt.number] = attempt
        self._set_due(read, mono_ms)
        return True

    def _attempt(self, read: int, worker: NodeId, timeout_ms: int, mono_ms: int, *, is_second: bool = False) -> _Attempt:
        ends_ms = mono_ms + timeout_ms + self.limits.grace_ms
        attempt = _Attempt(next(self._numbers), read, worker, mono_ms, ends_ms, is_second, mono_ms)
        self._attempts[attempt.number] = attempt
        self._queue.begin(worker)
        self._steps.append(Send(attempt.number, read, worker, timeout_ms))
        return attempt

    def _go_on(self, read: _Read, mono_ms: int) -> None:
        """Try the next worker after all attempts have failed, or give up."""
        if mono_ms < read.deadline_ms and self._start(read, mono_ms, is_second=False):
            self.counts["retried"] += 1
            return
        self._give_up_tried(read, mono_ms)

    def _look_after(self, read: _Read, mono_ms: int) -> None:
        """Act at the end of the read's patience or of its time."""
        if mono_ms >= read.deadline_ms + self.limits.grace_ms:
            self._give_up_tried(read, mono_ms)
            return
        if self._wants_second(read, mono_ms) and self._patience.pay():
            if self._start(read, mono_ms, is_second=True):
                self.counts["hedged"] += 1
                return
            self._patience.give_back()
        self._set_due(read, mono_ms)

    def _wants_second(self, read: _Read, mono_ms: int) -> bool:
        under_way = sum(not self._is_silent(attempt, mono_ms) for attempt in read.open.values())
        return mono_ms < read.deadline_ms and under_way < self.limits.attempts and mono_ms >= self._patient_until(read)

    def _is_silent(self, attempt: _Attempt, mono_ms: int) -> bool:
        heard_ms = max(self._queue.heard_ms(attempt.worker), attempt.moved_ms)
        return mono_ms - heard_ms >= self.limits.silent_ms

    def _patient_until(self, read: _Read) -> int:
        """Return when another worker can be asked as well, by the patience with the last attempt."""
        patience_ms = self._patience.of(read.kind)
        attempt = max(read.open.values(), key=lambda each: each.number)
        is_alive = self._queue.heard_ms(attempt.worker) > attempt.moved_ms
        return attempt.moved_ms + patience_ms * (self.limits.alive_factor if is_alive else 1)

    def _set_due(self, read: _Read, mono_ms: int) -> None:
        last_ms = read.deadline_ms + self.limits.grace_ms
        look_ms = self._patient_until(read) if read.open else last_ms
        if look_ms <= mono_ms:
            # No worker could be asked; a worker can come, and savings too.
            look_ms = mono_ms + self.limits.patience_ms
        self._timetable.set(read.number, min(last_ms, look_ms) if mono_ms < read.deadline_ms else last_ms)

    def _close(self, read: _Read, mono_ms: int) -> None:
        """End a read; its open attempts can still be answered, but late."""
        del self._reads[read.number]
        self._timetable.drop(read.number)
        for attempt in read.open.values():
            self._count_unanswered(attempt, mono_ms)
            self._timetable.set(attempt.number, attempt.ends_ms)

    def _give_up_tried(self, read: _Read, mono_ms: int) -> None:
        is_over = mono_ms >= read.deadline_ms
        said = []
        for worker, (error, text) in read.tried.items():
            said.append(f"{worker}: {text}" if error else f"{worker} did not answer")
        is_timeout = is_over or all(error in ("TimedOut", "") for error, _ in read.tried.values())
        head = "no worker answered the read in time" if is_over else "no worker could serve the read"
        for attempt in list(read.open.values()):
            self._count_unanswered(attempt, mono_ms)
        self._give_up(read, is_timeout=is_timeout, text=f"{head}; {'; '.join(said)}")

    def _give_up(self, read: _Read, *, is_timeout: bool, text: str) -> None:
        del self._reads[read.number]
        self._timetable.drop(read.number)
        for number in list(read.open):
            self._ended(number)
        self._steps.append(GiveUp(read.number, is_timeout, text))
        self.counts["failed"] += 1

    def _ended(self, number: int) -> _Attempt | None:
        """Forget an attempt; return it, or None when it is unknown."""
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return None
        self._timetable.drop(number)
        self._queue.end(attempt.worker)
        read = self._reads.get(attempt.read)
        if read is not None:
            read.open.pop(number, None)
        return attempt

    # ---- workers that do not answer

    def _count_unanswered(self, attempt: _Attempt, mono_ms: int) -> None:
        if attempt.is_counted:
            return
        attempt.is_counted = True
        if self._queue.unanswered(attempt.worker) and attempt.worker not in self._probes.values():
            number = next(self._numbers)
            self._probes[number] = attempt.worker
            self._timetable.set(number, mono_ms + self.limits.probe_ms)

    def _probe(self, number: int, mono_ms: int) -> None:
        """Probe a benched worker; forget it when it is no longer benched."""
        worker = self._probes[number]
        if not self._queue.is_benched(worker):
            del self._probes[number]
            return
        self.counts["probes"] += 1
        probe = self._attempt(PROBE, worker, self.limits.probe_ms, mono_ms)
        self._timetable.set(probe.number, probe.ends_ms)
        self._timetable.set(number, mono_ms + self.limits.probe_ms)
