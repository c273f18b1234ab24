"""WorkerCore: follows the log of its site, hands it to the store one decision at a time, and gives and takes snapshots.

    Execute, Apply --> backlog --> decision --> store --> StoreDone --> Executed, Progress
    Coin, Idle, LoadFrom --> follower's machine (follower.py) --> Request, or a load (loading.py)
    SnapshotWanted, ChunksWanted --> offering.py          Keep, Restore --> kept_here.py

While a decision is with the store, what comes in meanwhile gathers in the backlog and becomes the next decision: batches
grow with the load by themselves. What the store did is durable before it is reported.

Invariants: decisions are contiguous from the store's applied LSN on; never two of the store at once, none while a load is under
way; nothing is handed over twice; what was confirmed never moves backwards within a copy; records of an older view, of an
unknown sender, of another lineage, or that come in IDLE or LOAD change nothing; a copy that is in trouble is neither read nor given away.
A copy goes over to another lineage by a Coin only, and only where it is not beyond what both agree on.
"""

from __future__ import annotations

from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.invariants import invariant
from brokerha.model.messages import (
    Apply,
    Chunk,
    Coin,
    Envelope,
    Execute,
    Executed,
    Idle,
    LoadFrom,
    Message,
    Order,
    Outgoing,
    RangeMissing,
    Request,
    SnapshotAsked,
    SnapshotOffered,
)
from brokerha.model.ready import (
    ApplyBatch,
    BeginLineage,
    ChunkKept,
    Condemn,
    CopyKept,
    Damaged,
    Decision,
    ExecuteBatch,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    OfferAnswer,
    Ready,
    ResendResults,
    StoreAnswer,
    StoreDecision,
    StoreDone,
    StoreFailed,
)
from brokerha.model.split_messages import Keep, Restore
from brokerha.replication.asking import Asking
from brokerha.replication.backlog import Backlog, Items
from brokerha.replication.cutting import cut, result_bytes
from brokerha.replication.follower import FOLLOWING, Event, State, after
from brokerha.replication.going_over import GoingOver
from brokerha.replication.offering import Offering
from brokerha.replication.replacing import Replacing
from brokerha.replication.resending import Resending
from brokerha.replication.worker_config import CopyState, WorkerConfig
from brokerha.replication.worker_words import progress_of, word_of


class WorkerCore:
    """The part of a worker that decides; the store does the work."""

    def __init__(self, config: WorkerConfig, copy: CopyState) -> None:
        self.config = config
        self.journal = copy.journal
        self.going_over = GoingOver(copy.lineage)
        self.applied = copy.applied
        self.fingerprint = copy.fingerprint
        self.items = copy.items
        self.trouble = copy.condemned
        """Why this copy must not be trusted; empty when it may be."""
        self.state = State.IDLE
        self.view = 0
        self.idle_reason = ""
        self.failure = ""
        self.ignored = 0
        self.master_lsn = copy.applied
        """Highest LSN that the master is known to have."""
        self.running_reads = 0
        self.free_bytes = 0
        self.offering = Offering(config.offer)
        self.replacing = Replacing(config, copy)
        self.kept = self.replacing.kept
        self.differs: tuple[Lsn, bytes] = (0, b"")
        """Line of the log that led this copy to another content, and to which; (0, empty) when none did."""
        self._asking = Asking(config.ask)
        self._backlog = Backlog(copy.applied, config.backlog)
        self._resending = Resending()
        self._at_store: StoreDecision | None = None
        self._retry_at_ms: int | None = None
        self._sources: tuple[NodeId, ...] = ()
        self._outgoing: list[Outgoing] = []
        self._decisions: list[Decision] = []
        self._heartbeat_at_ms: int | None = None
        self._tell = True

    @property
    def lineage(self) -> int:
        """Of the log that this copy follows."""
        return self.going_over.lineage

    # ---- inputs

    def step(self, item: Envelope | StoreAnswer, now: Instant) -> None:
        """Take in a message from the wire or an answer of the store."""
        match item:
            case Envelope():
                self._on_message(item.sender, item.message, now)
            case StoreDone():
                self._on_done(item)
            case StoreFailed():
                self._on_failed(item, now)
            case Damaged():
                self._on_damaged(item.reason)
            case CopyKept():
                self.kept.on_kept(item)
                self._tell = True
            case _ if isinstance(item, OfferAnswer):
                self.offering.on_answer(item, self.view, now, self.lineage)
            case LoadOpened():
                self._on_opened(item)
            case LoadBegun() | ChunkKept() | LoadFailed():
                self._fail_load(self.replacing.on_answer(item, now))

    def _on_message(self, sender: NodeId, message: Message, now: Instant) -> None:
        if sender == self.config.master and self._on_order(message, now):
            return
        if isinstance(message, Apply | Execute) and message.items and message.lineage != self.lineage:
            # Places of another log, sent before this copy went over to the one of now, or while it cannot.
            self.ignored += 1
            return
        match message:
            case Apply() if sender == self.config.master or self._asking.is_asked(sender, message.first_lsn):
                self._on_items(False, message.first_lsn, message.items, message.view, now)
            case Execute() if sender == self.config.master:
                self._on_items(True, message.first_lsn, message.items, message.view, now)
            case RangeMissing():
                self._on_range_missing(sender, message, now)
            case _ if isinstance(message, SnapshotAsked):
                self.offering.on_message(sender, message, self._refusal(message), now)
            case SnapshotOffered() | Chunk() if self.replacing.loading is not None:
                self.replacing.on_message(sender, message, now)
            case _:
                self.ignored += 1

    def _on_order(self, message: Message, now: Instant) -> bool:
        """Orders of the primary; those of an older view are ignored. Returns whether it was one."""
        if not isinstance(message, Order):
            return False
        if message.view < self.view:
            self.ignored += 1
            return True
        is_new = message.view > self.view
        self.view = message.view
        self._tell = True
        match message:
            case Coin():
                self._sources = message.sources
                if message.forgiven_lsn and message.forgiven_lsn == self.differs[0]:
                    self.trouble, self.differs = "", (0, b"")
                    self._change(Event.PAUSED)
                is_other = self._goes_over(message)
                if (is_new or is_other or self.state is State.IDLE) and not self.trouble:
                    self._change(Event.COINED)
            case Idle():
                self.idle_reason = message.reason
                self._change(Event.PAUSED)
            case LoadFrom() if self.replacing.on_load_from(message, now):
                self._change(Event.TOLD)
            case Keep():
                self.kept.on_keep(message, self._refusal(message))
            case Restore() if self.replacing.on_restore(message, self.lineage, self.applied):
                self._change(Event.TOLD)
        return True

    def _goes_over(self, coin: Coin) -> bool:
        """Go over to the lineage that the primary says, if this copy may; what was received of the other one is dropped."""
        if self.state is State.LOAD or self.trouble:
            return False
        is_busy = self._at_store is not None
        end = self.going_over.place(coin, self._backlog_end(), self.fingerprint, is_busy=is_busy)
        if end is None:
            return False
        self.applied = min(end, self.applied)
        self._asking.stop()
        self._backlog.restart(end)
        self._resending.drop()
        self.master_lsn = end
        return True

    def _change(self, event: Event) -> None:
        """Let the machine take an event; whatever belonged to the state that it leaves is dropped."""
        before, self.state = self.state, after(self.state, event)
        if self.state is before:
            return
        self._tell = True
        self._asking.stop()
        self.idle_reason = "" if self.state in FOLLOWING else self.idle_reason
        if self.state not in FOLLOWING or event is Event.COINED:
            self._backlog.restart(self._backlog_end())
            self._resending.drop()
        if before is State.LOAD:
            self.replacing.stop()
        if self.state not in FOLLOWING:
            self.offering.forget_all()

    def _backlog_end(self) -> Lsn:
        """Where the store will stand after what it is doing."""
        decision = self._at_store
        if isinstance(decision, ExecuteBatch | ApplyBatch):
            return decision.first_lsn + len(decision.items) - 1
        return self.applied

    def _on_items(self, is_execute: bool, first: Lsn, items: Items, view: int, now: Instant) -> None:
        if not items:
            # The master asks where this worker stands.
            self._tell = True
            return
        if self.state not in FOLLOWING or view < self.view:
            # Refused; the heartbeat says why nothing is confirmed.
            self.ignored += 1
            return
        last = first + len(items) - 1
        self.master_lsn = max(self.master_lsn, last)
        if is_execute and first <= self.applied:
            self._resending.want(first, min(last, self.applied))
        if last <= self._backlog.queued:
            self._tell = self._tell or last <= self.applied
            return
        self._backlog.add(is_execute, first, items)
        self._look_for_gap(now)

    def _look_for_gap(self, now: Instant) -> None:
        gap = self._backlog.gap()
        if gap is None:
            self._change(Event.FILLED)
        else:
            self._change(Event.GAP)
            self._asking.want(gap, (self.config.master, *self._sources), now)

    def _on_range_missing(self, sender: NodeId, answer: RangeMissing, now: Instant) -> None:
        if self.state is State.REQUEST and self._asking.on_missing(sender, answer, now):
            self._fall("the log lacks LSN " + self._asking.range_text() + " everywhere", Event.MISSING)

    # ---- the store

    def _on_done(self, done: StoreDone) -> None:
        decision, self._at_store = self._at_store, None
        invariant(decision is not None, "the store answers what it was asked")
        invariant(done.applied_lsn >= self.applied, "what was applied never moves backwards", lsn=done.applied_lsn)
        self.failure = ""
        self.applied, self.fingerprint, self.items = done.applied_lsn, done.fingerprint, done.items
        self._backlog.on_applied(self.applied)
        if isinstance(decision, ApplyBatch | BeginLineage):
            self.going_over.on_written(decision)
            self._tell = True
            return
        if isinstance(decision, ResendResults) and not done.results:
            # This copy came from elsewhere and does not know how it came to be there.
            self._send(self.config.master, RangeMissing(decision.first_lsn, decision.last_lsn, 0))
        first = done.first_lsn
        for part in cut(done.results, result_bytes):
            report = Executed(first, part, self.applied, self.fingerprint, self.items, self.journal, self.lineage)
            self._send(self.config.master, report)
            first += len(part)

    def _on_failed(self, failed: StoreFailed, now: Instant) -> None:
        self._at_store = None
        self._backlog.restart(self.applied)
        self._tell = True
        if failed.is_damage:
            self.differs = (failed.lsn, failed.fingerprint)
            self._on_damaged(failed.reason)
            return
        self.failure = failed.reason
        self._retry_at_ms = now.mono_ms + self.config.retry_ms

    def _on_damaged(self, reason: str) -> None:
        if not self.trouble:
            # One that differs finds that out again; whether it is right is not settled by itself.
            self.kept.on_damaged(reason)
            self._decisions += [Condemn(self.journal, reason)] if not self.differs[0] else []
            self._fall(reason, Event.DAMAGED)

    def _fall(self, reason: str, event: Event) -> None:
        """This copy is of no use any more; the master will name a source."""
        self.trouble = reason
        self._tell = True
        self.offering.forget_all()
        self._change(event)

    def _on_opened(self, opened: LoadOpened) -> None:
        """There is another copy, whatever was decided meanwhile."""
        self._outgoing += self.replacing.on_opened(opened)
        self.journal, self.applied = opened.journal, opened.applied_lsn
        self.fingerprint, self.items = opened.fingerprint, opened.items
        self.trouble, self.failure, self.differs = "", "", (0, b"")
        self.going_over.on_opened(opened.lineage)
        self.master_lsn = max(self.master_lsn, self.applied)
        self._change(Event.LOADED)
        self._backlog.restart(self.applied)
        self._tell = True

    def _refusal(self, message: Message) -> str:
        """Why nobody gets anything of this copy; empty when they may. Lines of the log are right also when it is idle."""
        if self.trouble or self.failure:
            return f"its own copy is in trouble: {self.trouble or self.failure}"
        is_fit = self.state in FOLLOWING or (self.state is State.IDLE and isinstance(message, Request))
        return "" if is_fit else f"it is {self.state.value}"

    # ---- time

    def wake(self, now: Instant) -> None:
        """Serve what is due."""
        if self._retry_at_ms is not None and now.mono_ms >= self._retry_at_ms:
            self._retry_at_ms, self._tell = None, True
            # Where nothing is left to be done, nothing would show that the store can do it again.
            self.failure = self.failure if self.master_lsn > self.applied else ""

    def deadline_ms(self) -> int | None:
        """When the core wants to be woken; None before the first turn."""
        # A load begins when the store has finished what it is doing.
        loading = self.replacing.deadline_ms() if self._at_store is None else None
        waits = (self._heartbeat_at_ms, self._retry_at_ms, loading, self._asking.deadline_ms(), self.offering.deadline_ms())
        return min((at for at in waits if at is not None), default=None)

    # ---- output

    def take_ready(self, now: Instant) -> Ready:
        """What to send and what to have done."""
        if self._at_store is None and self._retry_at_ms is None:
            self._at_store = self._next_decision()
            if self._at_store is not None:
                self._decisions.append(self._at_store)
        for target, request in self._asking.take(now):
            self._send(target, request)
        loads, replaced, failure = self.replacing.take(now, is_free=self._at_store is None)
        messages, decisions = self.offering.take(now)
        self._outgoing += [*messages, *loads]
        self._decisions += [*decisions, *replaced]
        self._fail_load(failure)
        if self._heartbeat_at_ms is None or now.mono_ms >= self._heartbeat_at_ms:
            self._tell = True
        if self._tell:
            self._tell = False
            self._heartbeat_at_ms = now.mono_ms + self.config.heartbeat_ms
            self._send(self.config.master, progress_of(self))
        ready = Ready(messages=tuple(self._outgoing), decisions=tuple(self._decisions))
        self._outgoing, self._decisions = [], []
        return ready

    def _fail_load(self, reason: str) -> None:
        """Nothing takes the place of this copy: back to IDLE, the old files as they were. Empty for no reason."""
        if reason:
            self.idle_reason = reason
            self._change(Event.FAILED)

    def _next_decision(self) -> StoreDecision | None:
        if self.state not in FOLLOWING or self.replacing.is_opening:
            return None
        if not self.going_over.is_durable:
            return self.going_over.decision()
        if (again := self._resending.take(self.config.decision_items)) is not None:
            return again
        if not self._backlog.has_pieces:
            return None
        is_execute, first, items = self._backlog.take(self.config.decision_items, self.config.decision_bytes)
        return ExecuteBatch(first, items) if is_execute else ApplyBatch(first, items)

    def _send(self, to: NodeId, message: Message) -> None:
        self._outgoing.append(Outgoing(to, message))

    # ---- questions

    @property
    def is_writing(self) -> bool:
        """Whether the store is changing the copy."""
        return self._at_store is not None

    @property
    def may_be_read(self) -> bool:
        """Whether this copy may answer reads."""
        return self.state in FOLLOWING and not self.trouble

    def word(self) -> tuple[str, str]:
        """State word and reason."""
        return word_of(self)
