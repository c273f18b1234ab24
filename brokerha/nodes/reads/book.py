"""The book of a worker's reads: waiting, running and overdue ones. It has no thread and no clock.

    admit --> waiting (for its least LSN) --> ready --> running --> over
                                                           |  at its deadline: its caller is answered at once
                                                           |  still running a grace later: its thread is STUCK
                                                           `  the thread returns much later, or never

The engine cannot be stopped while it computes. So the caller does not wait for the thread, and another thread replaces a stuck one,
up to `stuck` of them. After that the worker takes no reads and reports that it must be restarted (`overrun`). A read that runs
longer than `slow_s` gets a low priority (`Slow`).

    working threads <= limits.threads          all threads <= limits.threads + limits.stuck

Invariants: a job is settled exactly once. A job gives rows only when its own thread settles it while the door is unchanged since it
began. Callers hold a lock around every call.
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from brokerha.model.errors import BrokerhaError, NotReady, TimedOut
from brokerha.model.ids import Lsn
from brokerha.model.invariants import invariant
from brokerha.nodes.timetable import Timetable
from brokerha.ports.front import ReadOutcome

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of one worker's reads."""

    threads: int = 4
    queue: int = 256
    """Most reads that wait or run; more are refused."""
    result_bytes: int = 64 * MIB
    stuck: int = 0
    """Most stuck threads; 0 for twice `threads`."""
    grace_s: float = 0.5
    """Time after the deadline of a running read when its thread counts as stuck."""
    slow_s: float = 1.0

    @property
    def stuck_limit(self) -> int:
        """Most stuck threads."""
        return self.stuck or 2 * self.threads


@dataclass(eq=False, slots=True)
class Job:
    """One read."""

    kind: str
    name: str
    arguments: dict[str, Any]
    min_lsn: Lsn
    deadline_s: float
    number: int = 0
    future: Future[ReadOutcome] = field(default_factory=Future)
    is_settled: bool = False
    is_stuck: bool = False
    is_slow: bool = False
    opening: int = 0
    """Number of the door's opening when the read came in."""
    began_s: float = 0.0
    thread: int = 0
    """Id of the thread that runs it, from the system; 0 while none does."""


@dataclass(slots=True)
class Due:
    """Result of `ReadBook.due`: the jobs that fail, and the other changes."""

    failed: list[tuple[Job, BrokerhaError]] = field(default_factory=list)
    slow: list[Job] = field(default_factory=list)
    stuck: list[Job] = field(default_factory=list)


class ReadBook:
    """All reads of one worker."""

    def __init__(self, limits: ReadLimits) -> None:
        self.limits = limits
        self.closed_reason = ""
        """Return why the door is closed; empty while it is open."""
        self._is_shut = False
        self.opening = 0
        """Number of times that the door was closed."""
        self.open_jobs = 0
        """Number of reads whose callers wait."""
        self.taken = 0
        self.failed = 0
        self._numbers = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        """Jobs that are not settled, and settled ones that still run."""
        self._waiting = Timetable()
        """By the LSN that they wait for."""
        self._ready: dict[int, None] = {}
        """In the order in which they became ready."""
        self._running: set[int] = set()
        self._stuck: set[int] = set()
        self._timetable = Timetable()

    # ---- jobs

    def admit(self, job: Job, applied: Lsn) -> NotReady | None:
        """Take a job, which is then ready or waits for its LSN; return the refusal, or None."""
        refusal = self._refusal()
        if refusal is not None:
            self.failed += 1
            return refusal
        self.taken += 1
        self.open_jobs += 1
        job.number, job.opening = next(self._numbers), self.opening
        self._jobs[job.number] = job
        self._timetable.set(job.number, job.deadline_s)
        if job.min_lsn > applied:
            self._waiting.set(job.number, job.min_lsn)
        else:
            self._ready[job.number] = None
        return None

    def glance(self) -> NotReady | None:
        """Count a read that is answered at once; return the refusal, or None."""
        refusal = self._closed()
        if refusal is None:
            self.taken += 1
        else:
            self.failed += 1
        return refusal

    def _closed(self) -> NotReady | None:
        reason = self.closed_reason or self.overrun
        return NotReady(reason) if reason else None

    def _refusal(self) -> NotReady | None:
        closed = self._closed()
        if closed is not None:
            return closed
        if self.open_jobs >= self.limits.queue:
            return NotReady(f"{self.limits.queue} reads are under way already: try again")
        return None

    def on_applied(self, lsn: Lsn) -> int:
        """Make the jobs ready that waited for this LSN; return their number."""
        numbers = self._waiting.take(lsn)
        self._ready.update(dict.fromkeys(numbers))
        return len(numbers)

    def begin(self, now_s: float, thread: int) -> Job | None:
        """Return the next job for a thread; None when there is none."""
        number = next(iter(self._ready), None)
        if number is None:
            return None
        del self._ready[number]
        job = self._jobs[number]
        job.began_s, job.thread = now_s, thread
        self._running.add(number)
        self._timetable.set(number, min(job.deadline_s, now_s + self.limits.slow_s))
        return job

    def settle(self, job: Job) -> bool:
        """Settle a job; return whether its caller still waits. Then only the caller of this method can complete the future."""
        if job.is_settled:
            return False
        job.is_settled = True
        self.open_jobs -= 1
        if job.number not in self._running:
            self._forget(job)
        return True

    def end(self, job: Job) -> bool:
        """Note that the thread of a job returned; tell whether it can take other jobs."""
        self._running.discard(job.number)
        self._stuck.discard(job.number)
        self._forget(job)
        job.thread = 0
        return not (job.is_stuck or job.is_slow)

    def due(self, now_s: float, applied: Lsn) -> Due:
        """Return the changes that time alone causes."""
        due = Due()
        for number in self._timetable.take(now_s):
            job = self._jobs[number]
            is_running = number in self._running
            if is_running and not job.is_slow and now_s >= job.began_s + self.limits.slow_s:
                job.is_slow = True
                due.slow.append(job)
            if now_s >= job.deadline_s and not job.is_settled:
                due.failed.append((job, self._timed_out(job, applied, is_running=is_running)))
                self.settle(job)
            if is_running and now_s >= job.deadline_s + self.limits.grace_s:
                job.is_stuck = True
                self._stuck.add(number)
                due.stuck.append(job)
            elif is_running:
                self._timetable.set(number, self._next_s(job, now_s))
        if due.stuck and self.overrun:
            # No thread will come for the waiting reads; another worker can still serve them.
            waiting = [job for job in self._jobs.values() if not job.is_settled and job.number not in self._running]
            due.failed += [(job, NotReady(self.overrun)) for job in waiting if self.settle(job)]
        self.failed += len(due.failed)
        return due

    def _next_s(self, job: Job, now_s: float) -> float:
        times = (job.began_s + self.limits.slow_s, job.deadline_s, job.deadline_s + self.limits.grace_s)
        return min(time_s for time_s in times if time_s > now_s)

    def _timed_out(self, job: Job, applied: Lsn, *, is_running: bool) -> TimedOut:
        if is_running:
            return TimedOut("the read did not finish in its time: ask for less, or give it more time")
        if job.min_lsn > applied:
            return TimedOut(f"LSN {job.min_lsn} was not applied in time; this copy is at {applied}")
        return TimedOut(f"no thread was free for the read in its time: {len(self._running)} reads are running")

    def next_s(self) -> float | None:
        """Return when `due` must be called next; None when nothing waits."""
        return self._timetable.next()

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.number, None)
        self._timetable.drop(job.number)
        self._waiting.drop(job.number)
        self._ready.pop(job.number, None)

    # ---- the door

    def close_door(self, reason: str) -> list[Job]:
        """Take no reads until `open_door`; return the jobs to fail with the reason. Idempotent."""
        self._is_shut = False
        return self._close(reason)

    def shut(self, reason: str) -> list[Job]:
        """Close the door before its owner knows the reason: it opens only after the owner has closed it as well."""
        self._is_shut = True
        return self._close(reason)

    def _close(self, reason: str) -> list[Job]:
        invariant(bool(reason), "a closed door has a reason")
        self.opening += not self.closed_reason
        self.closed_reason = reason
        open_jobs = [job for job in self._jobs.values() if not job.is_settled]
        for job in open_jobs:
            self.settle(job)
        self.failed += len(open_jobs)
        return open_jobs

    def open_door(self) -> None:
        """Take reads again, unless the door was shut and the owner has not closed it since then."""
        if not self._is_shut:
            self.closed_reason = ""

    # ---- threads

    def threads_wanted(self, idle: int, alive: int) -> int:
        """Return how many threads to start, when ``idle`` of ``alive`` threads wait for work."""
        stuck = len(self._stuck)
        if stuck >= self.limits.stuck_limit:
            return 0
        missing = min(len(self._ready) - idle, self.limits.threads - (alive - stuck))
        return max(0, missing)

    @property
    def ready(self) -> int:
        """Number of reads that a thread can begin."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """Number of reads in threads, including stuck ones."""
        return len(self._running)

    def running_before(self, opening: int) -> int:
        """Return the number of reads in threads that came in before the ``opening``-th closing of the door."""
        return sum(self._jobs[number].opening < opening for number in self._running)

    @property
    def stuck(self) -> int:
        """Number of threads with an overdue read."""
        return len(self._stuck)

    @property
    def overrun(self) -> str:
        """Return why this worker must be restarted; empty while all is well."""
        if len(self._stuck) < self.limits.stuck_limit:
            return ""
        return (
            f"{len(self._stuck)} reads go on although their time is over, and cannot be stopped: the worker has to be started again"
        )
