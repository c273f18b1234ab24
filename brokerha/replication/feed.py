"""The feed: one master brings its workers along the agreed order (architecture, section 3, steps 5 and 6).

In each site one worker, the **executor**, executes transactions and reports results; the others apply the effects. Both
get them in LSN order, a window at a time, and confirm the LSN up to which their store is durable.

    synchronised   1 2 3 4 5 6 7 8 9            lsn        what sync added
    results        1 2 3 4 5 6                  executed   durable in the master's journal
    executor       . . . . . . > > >            gets Execute for 7..9
    other worker   . . . > > >                  gets Apply for 4..6

Whoever is behind is sent again from what it confirmed; there is no state about a worker that a restart could lose.
An executor that died is replaced by the next worker that is alive: it executes the same LSNs and, because execution
depends on state, id and timestamp alone, comes to the same results.

Invariants: results are taken in without a gap; a worker is never sent an effect beyond `executed`, nor a transaction
that is not durable in the synchronised queue (R7); what a worker confirmed never moves backwards within its journal.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.ids import Lsn, NodeId
from brokerha.model.messages import Apply, Execute, Executed, Outgoing, Progress
from brokerha.model.records import History, Outcomes

NEVER = -(10**12)


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """Windows and waits between a master and its workers."""

    workers: tuple[NodeId, ...] = ()
    window: int = 4000
    """Transactions sent to a worker beyond what it confirmed."""
    message_items: int = 1000
    message_bytes: int = 1024 * 1024
    retransmit_ms: int = 1000
    """What a worker has not confirmed after this long is sent again."""
    dead_after_ms: int = 5000
    """A worker that was not heard for this long is dead, and another one executes."""
    gap_ms: int = 100
    """After a gap what follows is sent again at most this often: answering each report of it would multiply them."""


@dataclass(slots=True)
class WorkerFeed:
    """One worker, as its master sees it."""

    node: NodeId
    journal: str = ""
    applied: Lsn = 0
    sent: Lsn = 0
    moved_ms: int = NEVER
    """When it last confirmed something, or had nothing to confirm."""
    heard_ms: int = NEVER
    rewound_ms: int = NEVER
    """When a gap last made it be sent again what it was sent."""
    state: str = "unknown"
    reason: str = ""
    fingerprint: str = ""
    items: int = 0
    running_reads: int = 0


class Feed:
    """All workers of one master."""

    def __init__(self, config: FeedConfig, history: History, lsn: Lsn, executed: Lsn, fingerprint: str, items: int) -> None:
        self.config = config
        self.history = history
        self.lsn = lsn
        """Length of the durable synchronised queue."""
        self.executed = executed
        self.fingerprint = fingerprint
        self.items = items
        self.workers = {node: WorkerFeed(node) for node in config.workers}
        self.ignored = 0
        """Reports of what was never synchronised here (a worker with the state of another cluster), or of a lost copy."""
        self._executor: NodeId | None = None
        self._to_greet = list(self.workers)

    # ---- inputs

    def on_executed(self, sender: NodeId, report: Executed, mono_ms: int) -> Outcomes | None:
        """Take in results; returns the record of those that are new, or None."""
        worker = self.workers.get(sender)
        if worker is None:
            return None
        if report.journal and worker.journal and report.journal != worker.journal:
            # Said by the copy that this worker had before; what it had applied is gone with it.
            self.ignored += 1
            return None
        self._confirm(worker, report.applied_lsn, mono_ms)
        worker.fingerprint, worker.items = report.fingerprint, report.items
        skip = self.executed + 1 - report.first_lsn
        if skip < 0:
            self._rewind(worker, self.executed, mono_ms)
            return None
        fresh = report.results[skip:]
        if not fresh:
            return None
        first = self.executed + 1
        if first + len(fresh) - 1 > self.lsn:
            self.ignored += 1
            return None
        self.executed += len(fresh)
        worker.moved_ms = mono_ms
        # A report in parts, or one that was asked for again, has the fingerprint of a later LSN than its last result.
        is_theirs = report.applied_lsn == self.executed
        self.fingerprint, self.items = (report.fingerprint, report.items) if is_theirs else ("", 0)
        return Outcomes(first, fresh, self.fingerprint, self.items)

    def on_progress(self, sender: NodeId, progress: Progress, mono_ms: int) -> None:
        """Take in a worker's heartbeat."""
        worker = self.workers.get(sender)
        if worker is None:
            return
        if worker.journal != progress.journal:
            worker.journal, worker.applied, worker.sent = progress.journal, progress.applied_lsn, progress.applied_lsn
        self._confirm(worker, progress.applied_lsn, mono_ms)
        worker.state, worker.reason = progress.state, progress.reason
        worker.fingerprint, worker.items = progress.fingerprint, progress.items
        worker.running_reads = progress.running_reads
        if progress.gap_from:
            self._rewind(worker, progress.gap_from - 1, mono_ms)

    def _confirm(self, worker: WorkerFeed, applied: Lsn, mono_ms: int) -> None:
        worker.heard_ms = mono_ms
        if applied > worker.applied:
            worker.applied = applied
            worker.moved_ms = mono_ms
        worker.sent = max(worker.sent, worker.applied)

    def _rewind(self, worker: WorkerFeed, last: Lsn, mono_ms: int) -> None:
        """Send again what comes after ``last``, unless that was done just now."""
        if last < worker.sent and mono_ms - worker.rewound_ms >= self.config.gap_ms:
            worker.sent, worker.rewound_ms = last, mono_ms

    # ---- output

    def messages(self, mono_ms: int) -> list[Outgoing]:
        """What every live worker has to be sent now."""
        self._choose_executor(mono_ms)
        # An empty Apply asks a worker where it stands, so that a master that has just started need not wait for heartbeats.
        outgoing = [Outgoing(worker, Apply(self.executed + 1, ())) for worker in self._to_greet]
        self._to_greet = []
        for worker in self.workers.values():
            if self.is_alive(worker.node, mono_ms):
                outgoing.extend(self._messages_for(worker, mono_ms))
        return outgoing

    def _choose_executor(self, mono_ms: int) -> None:
        """Keep the executor while it lives; else the first live worker of the list takes over."""
        if self._executor is not None and self.is_alive(self._executor, mono_ms):
            return
        alive = [node for node in self.workers if self.is_alive(node, mono_ms)]
        self._executor = alive[0] if alive else None
        if self._executor is not None:
            worker = self.workers[self._executor]
            worker.sent = min(worker.sent, self.executed)

    def _messages_for(self, worker: WorkerFeed, mono_ms: int) -> list[Outgoing]:
        is_executor = worker.node == self._executor
        confirmed = min(worker.applied, self.executed) if is_executor else worker.applied
        goal = self.lsn if is_executor else self.executed
        if confirmed >= goal:
            worker.moved_ms = mono_ms
            return []
        worker.sent = max(worker.sent, confirmed)
        if worker.sent == confirmed:
            worker.moved_ms = mono_ms
        elif mono_ms - worker.moved_ms >= self.config.retransmit_ms:
            worker.sent, worker.moved_ms = confirmed, mono_ms
        outgoing: list[Outgoing] = []
        while worker.sent < min(goal, confirmed + self.config.window):
            first = worker.sent + 1
            room = min(self.config.message_items, confirmed + self.config.window - worker.sent)
            message: Apply | Execute | None
            if first <= self.executed and worker.applied < first:
                message = self._apply(first, min(room, self.executed - first + 1))
                count = len(message.results) if message else 0
            else:
                message = self._execute(first, min(room, self.lsn - first + 1))
                count = len(message.items) if message else 0
            if message is None or not count:
                break
            outgoing.append(Outgoing(worker.node, message))
            worker.sent += count
        return outgoing

    def _apply(self, first: Lsn, count: int) -> Apply | None:
        results: list[tuple[str, str, bytes]] = []
        size = 0
        for result in self.history.results(first, count):
            results.append((result[0], result[1], result[2]))
            size += len(result[2])
            if size >= self.config.message_bytes:
                break
        return Apply(first, tuple(results)) if results else None

    def _execute(self, first: Lsn, count: int) -> Execute | None:
        items = []
        size = 0
        for timestamp, txid, origin in self.history.ordered(first, count):
            body = self.history.body(origin, txid)
            if body is None:
                break
            items.append((txid, timestamp, body))
            size += len(body)
            if size >= self.config.message_bytes:
                break
        return Execute(first, tuple(items)) if items else None

    # ---- questions

    def is_alive(self, node: NodeId, mono_ms: int) -> bool:
        """Whether this worker was heard lately."""
        return mono_ms - self.workers[node].heard_ms < self.config.dead_after_ms

    def alive(self, mono_ms: int) -> list[NodeId]:
        """Workers that were heard lately, in the order of the configuration."""
        return [node for node in self.workers if self.is_alive(node, mono_ms)]

    @property
    def executor(self) -> NodeId | None:
        """The worker that executes now."""
        return self._executor

    def applied_by(self, copies: int) -> Lsn:
        """Highest LSN that at least ``copies`` workers have applied; 0 when there are not that many."""
        applied = sorted((worker.applied for worker in self.workers.values()), reverse=True)
        return min(applied[copies - 1], self.executed) if 1 <= copies <= len(applied) else 0

    def deadline_ms(self, mono_ms: int) -> int | None:
        """When something has to be sent again, or a silent worker is to be called dead; None when nothing waits."""
        due = []
        for worker in self.workers.values():
            if not self.is_alive(worker.node, mono_ms):
                continue
            if worker.applied < self.lsn:
                due.append(max(worker.moved_ms, mono_ms - self.config.retransmit_ms + 1) + self.config.retransmit_ms)
            if worker.node == self._executor:
                due.append(worker.heard_ms + self.config.dead_after_ms)
        return min(due, default=None)
