"""The workers of a master, in the order in which they get reads: the worker with the fewest running queries first.

    load   worker   last read               choose()  ->  w2, and w2 moves after w3
    0      w2       number 17
    0      w3       number 19
    3      w1       number 12
    0      w4       number 11   benched: left the last three reads unanswered, gets only probes

The order is kept sorted by (load, number of the last read), and updated after every read, so that a choice does not look at all
reads. The load of a worker is the number of this master's reads there, plus the other reads (of its own HTTP door) in its last
heartbeat.

Two things come before the load. A worker that left several reads in a row unanswered comes last until it answers something. A
worker that is far behind the least LSN of a read comes after those that are near.

Invariant: a worker leaves the order before its load changes, and returns afterwards. This module has no clock; times are arguments,
in milliseconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from sortedcontainers import SortedKeyList

from brokerha.model.ids import Lsn, NodeId

NEAR_LSNS = 1000
"""A worker that lacks no more entries than this will have them soon: its load counts, not its lag."""

SAID_AGAIN_MS = 1000
"""After this time an unchanged number of running reads counts as a new report."""


class WorkerFacts(NamedTuple):
    """What a master knows of a readable worker."""

    node: NodeId
    applied: Lsn
    running_reads: int
    """Over all doors, from the heartbeat at `heard_ms`."""
    heard_ms: int


@dataclass(eq=False, slots=True)
class QueuedWorker:
    """One worker in the order."""

    node: NodeId
    own: int = 0
    """Number of this master's reads there."""
    elsewhere: int = 0
    """Number of reads through other doors, by its last heartbeat."""
    last_used: int = 0
    unanswered: int = 0
    """Number of reads in a row that it left unanswered, or answered with a fault of its own."""
    said: int = 0
    """Running reads that it reported at `said_ms`."""
    said_ms: int = 0
    applied: Lsn = 0
    heard_ms: int = -1

    @property
    def load(self) -> int:
        """Number of queries that run there."""
        return self.own + self.elsewhere


class WorkerQueue:
    """Readable workers; `bench_after` unanswered reads in a row put one at the end."""

    def __init__(self, bench_after: int) -> None:
        self._bench_after = bench_after
        self._workers: dict[NodeId, QueuedWorker] = {}
        self._order: SortedKeyList[QueuedWorker, tuple[int, int]] = SortedKeyList(
            key=lambda worker: (worker.load, worker.last_used)
        )
        self._uses = 0

    def update(self, facts: Sequence[WorkerFacts]) -> list[NodeId]:
        """Set the readable workers; return those that are no longer readable."""
        for fact in facts:
            worker = self._workers.get(fact.node)
            if worker is None:
                worker = self._workers[fact.node] = QueuedWorker(fact.node)
                self._order.add(worker)
            worker.applied = fact.applied
            worker.heard_ms = fact.heard_ms
            # An unchanged number can be old, because not only heartbeats count as heard; or it can mean that nothing has ended.
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
        """Return the worker for the next read; None when all have been tried."""
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
        """Note that a read was sent to it."""
        worker = self._workers[node]
        self._uses += 1
        with self._moving(worker):
            worker.own += 1
            worker.last_used = self._uses

    def end(self, node: NodeId) -> None:
        """Note that a read is no longer under way there."""
        worker = self._workers.get(node)
        if worker is not None and worker.own:
            with self._moving(worker):
                worker.own -= 1

    def answered(self, node: NodeId) -> None:
        """Note an answer: the worker counts as healthy again."""
        if (worker := self._workers.get(node)) is not None:
            worker.unanswered = 0

    def unanswered(self, node: NodeId) -> bool:
        """Note an unanswered read; return whether this one puts the worker on the bench."""
        worker = self._workers.get(node)
        if worker is None:
            return False
        worker.unanswered += 1
        return worker.unanswered == self._bench_after

    def is_benched(self, node: NodeId) -> bool:
        """Tell whether it gets only probes, as long as there is another worker."""
        worker = self._workers.get(node)
        return worker is not None and self._is_benched(worker)

    def heard_ms(self, node: NodeId) -> int:
        """Return when it was last heard; -1 when it is not readable."""
        worker = self._workers.get(node)
        return -1 if worker is None else worker.heard_ms

    def loads(self) -> dict[NodeId, int]:
        """Return the load of each worker, in the order of the queue."""
        return {worker.node: worker.load for worker in self._order}

    def _is_benched(self, worker: QueuedWorker) -> bool:
        return worker.unanswered >= self._bench_after

    @contextmanager
    def _moving(self, worker: QueuedWorker) -> Iterator[None]:
        self._order.remove(worker)
        yield
        self._order.add(worker)
