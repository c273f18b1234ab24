"""The workers of a master in the order in which they get reads: the one with the fewest running queries first.

    load   worker   last read               choose()  ->  w2, and w2 moves after w3
    0      w2       number 17
    0      w3       number 19
    3      w1       number 12
    0      w4       number 11   benched: left the last three reads unanswered, gets probes only

The order is kept sorted and re-ordered after every read, by (load, number of the last read); nothing goes through all
reads to choose one worker. The load of a worker is what this master has under way there, and what the worker said
was running there besides (its own HTTP door) in its last heartbeat.

Two things come before the load: a worker that left several reads in a row unanswered comes last of all until it answers
something, and one that is far behind the least LSN of a read comes after those that are near.

Invariant: a worker's place in the order is taken away before its load changes and given back afterwards.
There is no clock in here; times are arguments, in milliseconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from sortedcontainers import SortedKeyList

from brokerha.model.ids import Lsn, NodeId

NEAR_LSNS = 1000
"""A worker that lacks no more than this is about to have it: its load counts, not its lag."""

SAID_AGAIN_MS = 1000
"""After this long a number of running reads that did not change is taken as said anew."""


class WorkerFacts(NamedTuple):
    """What a master knows of a worker that may be asked."""

    node: NodeId
    applied: Lsn
    running_reads: int
    """Over all doors, as said in the heartbeat at `heard_ms`."""
    heard_ms: int


@dataclass(eq=False, slots=True)
class QueuedWorker:
    """One worker in the order."""

    node: NodeId
    own: int = 0
    """Reads of this master under way there."""
    elsewhere: int = 0
    """Reads that came through other doors, by its last heartbeat."""
    last_used: int = 0
    unanswered: int = 0
    """Reads in a row that it left unanswered, or answered with a fault of its own."""
    said: int = 0
    """Running reads as it said them at `said_ms`."""
    said_ms: int = 0
    applied: Lsn = 0
    heard_ms: int = -1

    @property
    def load(self) -> int:
        """Queries that run there."""
        return self.own + self.elsewhere


class WorkerQueue:
    """Workers that may be asked; `bench_after` unanswered reads in a row put one at the end."""

    def __init__(self, bench_after: int) -> None:
        self._bench_after = bench_after
        self._workers: dict[NodeId, QueuedWorker] = {}
        self._order: SortedKeyList[QueuedWorker, tuple[int, int]] = SortedKeyList(
            key=lambda worker: (worker.load, worker.last_used)
        )
        self._uses = 0

    def update(self, facts: Sequence[WorkerFacts]) -> list[NodeId]:
        """Take in who may be asked now; returns those that no longer may."""
        for fact in facts:
            worker = self._workers.get(fact.node)
            if worker is None:
                worker = self._workers[fact.node] = QueuedWorker(fact.node)
                self._order.add(worker)
            worker.applied = fact.applied
            worker.heard_ms = fact.heard_ms
            # The same number again may be old, as not only heartbeats count as heard, or may say that nothing has ended.
            if fact.running_reads != worker.said or fact.heard_ms - worker.said_ms >= SAID_AGAIN_MS:
                worker.said, worker.said_ms = fact.running_reads, fact.heard_ms
                with self._moving(worker):
                    worker.elsewhere = max(0, fact.running_reads - worker.own)
        if len(facts) == len(self._workers):
            return []
        named = {fact.node for fact in facts}
        gone = [node for node in self._workers if node not in named]
        for node in gone:
            self._order.remove(self._workers.pop(node))
        return gone

    def choose(self, tried: Container[NodeId], min_lsn: Lsn) -> NodeId | None:
        """The worker for the next read; None when all have been tried."""
        best: NodeId | None = None
        best_rank = (True, 0)
        worker: QueuedWorker
        for worker in self._order:
            if worker.node in tried:
                continue
            gap = max(0, min_lsn - worker.applied)
            rank = (self._is_benched(worker), gap if gap > NEAR_LSNS else 0)
            if rank == (False, 0):
                return worker.node
            if best is None or rank < best_rank:
                best, best_rank = worker.node, rank
        return best

    def begin(self, node: NodeId) -> None:
        """A read is on its way there."""
        worker = self._workers[node]
        self._uses += 1
        with self._moving(worker):
            worker.own += 1
            worker.last_used = self._uses

    def end(self, node: NodeId) -> None:
        """A read is not under way there any more."""
        worker = self._workers.get(node)
        if worker is not None and worker.own:
            with self._moving(worker):
                worker.own -= 1

    def answered(self, node: NodeId) -> None:
        """It answered something: it counts as well again."""
        if (worker := self._workers.get(node)) is not None:
            worker.unanswered = 0

    def unanswered(self, node: NodeId) -> bool:
        """It left a read unanswered; returns whether this one puts it on the bench."""
        worker = self._workers.get(node)
        if worker is None:
            return False
        worker.unanswered += 1
        return worker.unanswered == self._bench_after

    def is_benched(self, node: NodeId) -> bool:
        """Whether it gets no reads but probes, as long as there is another."""
        worker = self._workers.get(node)
        return worker is not None and self._is_benched(worker)

    def heard_ms(self, node: NodeId) -> int:
        """When it was last heard; -1 when it may not be asked."""
        worker = self._workers.get(node)
        return -1 if worker is None else worker.heard_ms

    def loads(self) -> dict[NodeId, int]:
        """Load of each worker, in the order of the queue."""
        return {worker.node: worker.load for worker in self._order}

    def _is_benched(self, worker: QueuedWorker) -> bool:
        return worker.unanswered >= self._bench_after

    @contextmanager
    def _moving(self, worker: QueuedWorker) -> Iterator[None]:
        self._order.remove(worker)
        yield
        self._order.add(worker)
