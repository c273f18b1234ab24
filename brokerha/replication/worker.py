"""WorkerCore: takes transactions and effects in LSN order and hands them to the store, one decision at a time.

    Execute, Apply ---> backlog (contiguous, bounded) ---> decision ---> store ---> StoreDone ---> Executed, Progress

While a decision is with the store, what comes in meanwhile gathers in the backlog and becomes the next decision: batches
grow with the load by themselves. What the store did is durable before it is reported.

Invariants: decisions are contiguous from the store's applied LSN on; never two at once; nothing is handed over twice; what
was confirmed never moves backwards. A gap is reported at once and the master sends again; what was executed before is
answered from the store's effects log, never executed again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from brokerha.model import states
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.invariants import invariant
from brokerha.model.messages import Apply, Envelope, Execute, Executed, Message, Outgoing, Progress
from brokerha.model.ready import ApplyBatch, Decision, ExecuteBatch, Ready, ResendResults, StoreDone, StoreFailed

RESULT_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How one worker takes part."""

    node: NodeId
    master: NodeId
    heartbeat_ms: int = 1000
    backlog: int = 8000
    """Transactions that may wait for the store; what comes beyond is dropped and asked for again."""
    decision_items: int = 1000
    decision_bytes: int = 4 * 1024 * 1024
    gap_ms: int = 100
    """A gap is reported at most this often."""
    retry_ms: int = 2000
    """After a failure of the store the decision is tried again after this long."""


Piece = tuple[bool, Lsn, tuple[Any, ...]]


class WorkerCore:
    """The part of a worker that decides; the store does the work."""

    def __init__(self, config: WorkerConfig, journal: str, applied: Lsn, fingerprint: str, items: int) -> None:
        self.config = config
        self.journal = journal
        self.applied = applied
        self.fingerprint = fingerprint
        self.items = items
        self.failure = ""
        self.ignored = 0
        self.master_lsn = applied
        """Highest LSN that the master is known to have sent."""
        self._queued = applied
        self._pieces: deque[Piece] = deque()
        self._resend: tuple[Lsn, Lsn] | None = None
        self._at_store: Decision | None = None
        self._retry_at_ms: int | None = None
        self._messages: list[Message] = []
        self._heartbeat_at_ms: int | None = None
        self._gap_from: Lsn = 0
        self._gap_at_ms = -(10**12)
        self._tell = True
        self.running_reads = 0

    # ---- inputs

    def step(self, item: Envelope | StoreDone | StoreFailed, now: Instant) -> None:
        """Take in a message from the wire or an answer of the store."""
        if isinstance(item, StoreDone):
            self._on_done(item)
        elif isinstance(item, StoreFailed):
            self._on_failed(item, now)
        elif item.sender != self.config.master:
            self.ignored += 1
        elif isinstance(item.message, Execute):
            self._on_items(True, item.message.first_lsn, item.message.items, now)
        elif isinstance(item.message, Apply):
            self._on_items(False, item.message.first_lsn, item.message.results, now)
        else:
            self.ignored += 1

    def _on_items(self, is_execute: bool, first: Lsn, items: tuple[Any, ...], now: Instant) -> None:
        last = first + len(items) - 1
        self.master_lsn = max(self.master_lsn, last)
        if is_execute and first <= self.applied:
            self._report_again(first, min(last, self.applied))
        if last <= self._queued:
            self._tell = self._tell or last <= self.applied
            return
        if first > self._queued + 1:
            self._gap_from = self._queued + 1
            if now.mono_ms - self._gap_at_ms >= self.config.gap_ms:
                self._gap_at_ms = now.mono_ms
                self._tell = True
            return
        fresh = items[self._queued + 1 - first :]
        if self._queued - self.applied + len(fresh) > self.config.backlog:
            fresh = fresh[: self.config.backlog - (self._queued - self.applied)]
        if fresh:
            self._pieces.append((is_execute, self._queued + 1, fresh))
            self._queued += len(fresh)
            self._gap_from = 0

    def _report_again(self, first: Lsn, last: Lsn) -> None:
        """Results that the master asks for again, from the lowest on: it takes them in without a gap only."""
        if self._resend is not None:
            first, last = min(first, self._resend[0]), max(last, self._resend[1])
        self._resend = (first, last)

    def _on_done(self, done: StoreDone) -> None:
        decision, self._at_store = self._at_store, None
        invariant(decision is not None, "the store answers what it was asked")
        invariant(done.applied_lsn >= self.applied, "what was applied never moves backwards", lsn=done.applied_lsn)
        self.failure = ""
        self.applied, self.fingerprint, self.items = done.applied_lsn, done.fingerprint, done.items
        self._queued = max(self._queued, self.applied)
        if isinstance(decision, ApplyBatch):
            self._tell = True
            return
        first = done.first_lsn
        for part in _cut(done.results):
            self._messages.append(Executed(first, part, self.applied, self.fingerprint, self.items, self.journal))
            first += len(part)

    def _on_failed(self, failed: StoreFailed, now: Instant) -> None:
        self._at_store = None
        self._pieces.clear()
        self._queued = self.applied
        self.failure = failed.reason
        self._retry_at_ms = now.mono_ms + self.config.retry_ms
        self._tell = True

    def wake(self, now: Instant) -> None:
        """Serve what is due."""
        if self._retry_at_ms is not None and now.mono_ms >= self._retry_at_ms:
            self._retry_at_ms = None
            self._gap_from = self._queued + 1
            self._tell = True

    def deadline_ms(self) -> int | None:
        """When the core wants to be woken; None before the first turn."""
        due = [at for at in (self._heartbeat_at_ms, self._retry_at_ms) if at is not None]
        return min(due, default=None)

    # ---- output

    def take_ready(self, now: Instant) -> Ready:
        """What to send and what to hand to the store."""
        decisions: tuple[Decision, ...] = ()
        if self._at_store is None and self._retry_at_ms is None:
            self._at_store = self._next_decision()
            decisions = (self._at_store,) if self._at_store is not None else ()
        if self._heartbeat_at_ms is None or now.mono_ms >= self._heartbeat_at_ms:
            self._tell = True
        if self._tell:
            self._tell = False
            self._heartbeat_at_ms = now.mono_ms + self.config.heartbeat_ms
            self._messages.append(self._progress())
        messages, self._messages = self._messages, []
        return Ready(messages=tuple(Outgoing(self.config.master, m) for m in messages), decisions=decisions)

    def _next_decision(self) -> Decision | None:
        if self._resend is not None:
            first, last = self._resend
            end = min(last, first + self.config.decision_items - 1)
            self._resend = (end + 1, last) if end < last else None
            return ResendResults(first, end)
        if not self._pieces:
            return None
        is_execute, first, _ = self._pieces[0]
        items: list[Any] = []
        size = 0
        while self._pieces and self._pieces[0][0] == is_execute and len(items) < self.config.decision_items:
            piece = self._pieces.popleft()[2]
            items.extend(piece)
            size += sum(len(item[2]) for item in piece)
            if size >= self.config.decision_bytes:
                break
        if is_execute:
            return ExecuteBatch(first, tuple(items))
        return ApplyBatch(first, tuple(items))

    def _progress(self) -> Progress:
        state, reason = self.state()
        return Progress(
            journal=self.journal,
            applied_lsn=self.applied,
            fingerprint=self.fingerprint,
            items=self.items,
            state=state,
            reason=reason,
            running_reads=self.running_reads,
            gap_from=self._gap_from,
        )

    def state(self) -> tuple[str, str]:
        """State word and reason."""
        if self.failure:
            return states.HALTED, self.failure
        if self.master_lsn > self.applied:
            return states.CATCHING_UP, f"{self.master_lsn - self.applied} transactions to apply"
        return states.OK, ""


def _cut(results: tuple[tuple[str, str, bytes], ...]) -> list[tuple[tuple[str, str, bytes], ...]]:
    """Cut results into messages of bounded size; one empty message when there are none."""
    parts: list[tuple[tuple[str, str, bytes], ...]] = []
    start, size = 0, 0
    for place, result in enumerate(results):
        size += len(result[2])
        if size >= RESULT_MESSAGE_BYTES:
            parts.append(results[start : place + 1])
            start, size = place + 1, 0
    if start < len(results):
        parts.append(results[start:])
    return parts
