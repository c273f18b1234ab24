"""WorkerCore: takes transactions and effects in LSN order, one decision at a time, and gives and takes snapshots.

    Execute, Apply --> line --> decision --> store --> StoreDone --> Executed, Progress
    Coin, Idle, LoadFrom --> Follower (following/follower.py) --> Request, or a load
    SnapshotWanted, ChunksWanted --> Offering             Keep, Restore --> kept_here.py

It is the policy of a `Follower`. While a decision is with the store, new items gather in its line and become the next decision, so
batches grow with the load by themselves. Reported work of the store is durable.

Invariants: decisions are contiguous from the store's applied LSN on; never two at the store at once, none while a load is under
way; nothing is handed over twice; the confirmed LSN never moves backwards within a copy. Records of an older view, an unknown
sender or another lineage, or that come in IDLE or LOAD, change nothing. A copy in trouble is neither read nor given away. A copy
changes its lineage only by a Coin, and only where it is not beyond the common part.
"""

from __future__ import annotations

from typing import Any

from brokerha.following.follower import FollowConfig, Follower
from brokerha.following.line import Limits, Line, piece
from brokerha.following.loading import Loading, Loads, too_early
from brokerha.following.machine import Event, State
from brokerha.following.offering import Offering, cut, result_bytes
from brokerha.model import states
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.invariants import invariant
from brokerha.model.ready import (
    AbandonLoad,
    ApplyBatch,
    BeginLineage,
    ChunkKept,
    Condemn,
    CopyDecision,
    CopyFrozen,
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
    RestoreKept,
    StoreAnswer,
    StoreDecision,
    StoreDone,
    StoreFailed,
)
from brokerha.model.wire.messages import (
    Apply,
    Chunk,
    Coin,
    Envelope,
    Execute,
    Executed,
    Idle,
    Keep,
    LoadFrom,
    Message,
    Order,
    Outgoing,
    Progress,
    RangeMissing,
    Request,
    Restore,
    SnapshotAsked,
    SnapshotOffered,
    SnapshotWanted,
)
from brokerha.replication.site.lineages import GoingOver
from brokerha.replication.worker.config import CopyState, WorkerConfig
from brokerha.replication.worker.kept_here import KeptHere


class Replacing:
    """Loads and restores of one worker.

    They replace the copy of a worker: by a snapshot of another one (loading.py), or by its own kept copy (kept_here.py).

        LoadFrom -> Loading ... OpenLoad ----+
                                             +--> LoadOpened: there is another copy     LoadFailed: the old one, as it was
        Restore  -> KeptHere .. RestoreKept -+

    Invariants: only one of both at a time; a restore replaces a load, unless the load is opening already; nothing is opened while
    the store changes the copy.
    """

    def __init__(self, loads: Loads, copy: CopyState) -> None:
        self.loads = loads
        self.kept = KeptHere(copy.kept)
        self.last = copy.note
        """Result of the last one, or the fate of the copy that was here before; for the status."""
        self._decisions: list[CopyDecision] = []

    @property
    def loading(self) -> Loading | None:
        """Return the load that is under way."""
        return self.loads.current

    def on_load_from(self, order: LoadFrom, now: Instant) -> bool:
        """Follow the master's order to load from sources; return whether a load begins."""
        if self.kept.is_restoring or self.loads.is_under_way:
            return False
        self.loads.begin(order.sources, now, order.least_lsn)
        return True

    def on_restore(self, order: Restore, lineage: int, applied: Lsn) -> bool:
        """Restore the kept copy, because this one is void after some LSN; return whether a restore begins."""
        if self.loads.is_opening or not self.kept.begin_restore(order, lineage, applied):
            return False
        if self.loads.current is not None:
            self._decisions.append(AbandonLoad())
            self.loads.stop()
        return True

    def on_answer(self, answer: LoadBegun | ChunkKept | LoadFailed, now: Instant) -> str:
        """Take in an answer of the disk; return why the attempt failed, or empty."""
        if isinstance(answer, LoadFailed) and self.kept.is_restoring:
            self.loads.is_opening = False
            self.kept.on_failed()
            self.last = f"what was kept could not be restored: {answer.reason}"
            return self.last
        self.loads.on_answer(answer, now)
        return ""

    def on_opened(self, opened: LoadOpened) -> list[Outgoing]:
        """Note that there is another copy, whatever was decided meanwhile; return the messages to its source."""
        self.last = f"{'restored' if self.kept.is_restoring else 'loaded'} LSN {opened.applied_lsn}"
        return self.loads.on_opened()

    def take(self, now: Instant, *, is_free: bool) -> tuple[list[Outgoing], list[CopyDecision], str]:
        """Return (messages, decisions, why a load failed) that are due; ``is_free`` says that the store does nothing."""
        messages, wanted, failures = self.loads.take(now) if is_free else ([], [], "")
        decisions, self._decisions = [*self._decisions, *wanted], []
        if failures:
            self.last = failures
        decisions += self.kept.take(may_restore=is_free)
        self.loads.is_opening |= any(isinstance(each, RestoreKept) for each in decisions)
        return messages, decisions, f"no source gave a snapshot ({failures})" if failures else ""


class Resending:
    """The range of results that is still to be reported again; at most one.

    They come from the store's own log, from the lowest on, because the master takes in results without a gap.
    """

    def __init__(self) -> None:
        self._range: tuple[Lsn, Lsn] | None = None

    def want(self, first: Lsn, last: Lsn) -> None:
        """Add a range."""
        if self._range is not None:
            first, last = min(first, self._range[0]), max(last, self._range[1])
        self._range = (first, last)

    def drop(self) -> None:
        """Drop the range."""
        self._range = None

    def take(self, limit: int) -> ResendResults | None:
        """Return the next ``limit`` results; None when there are none."""
        if self._range is None:
            return None
        first, last = self._range
        end = min(last, first + limit - 1)
        self._range = (end + 1, last) if end < last else None
        return ResendResults(first, end)


class WorkerCore:
    """The deciding part of a worker; the store does the work."""

    def __init__(self, config: WorkerConfig, copy: CopyState) -> None:
        self.config = config
        self.journal = copy.journal
        self.going_over = GoingOver(copy.lineage)
        self.applied = copy.applied
        self.fingerprint = copy.fingerprint
        self.items = copy.items
        self.trouble = copy.condemned
        """Why this copy must not be trusted; empty when it can be."""
        self.view = 0
        self.idle_reason = ""
        self.failure = ""
        self.is_disk_full = False
        """Whether the last write, of the copy or of a load, failed for want of space."""
        self.master_lsn = copy.applied
        """Highest LSN that the master is known to have."""
        self.running_reads = 0
        self.free_bytes = 0
        self.offering = Offering(config.offer)
        self._line = Line(copy.applied, Limits(config.backlog, config.backlog_bytes))
        follow = FollowConfig(config.node, config.heartbeat_ms, config.retry_ms, config.ask, config.load)
        self.follower = Follower(follow, self._line, self._on_left, copy.pending_load)
        self.replacing = Replacing(self.follower.loads, copy)
        self.kept = self.replacing.kept
        self.differs: tuple[Lsn, bytes] = (0, b"")
        """Line of the log where this copy came to another content, and that content; (0, empty) when there is none."""
        self._resending = Resending()
        self._sources: tuple[NodeId, ...] = ()
        self._outgoing: list[Outgoing] = []
        self._decisions: list[Decision] = []

    @property
    def state(self) -> State:
        """Return its state as a follower."""
        return self.follower.state

    @property
    def lineage(self) -> int:
        """Return the lineage of the log that this copy follows."""
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
            case CopyFrozen():
                self.kept.on_frozen(item)
            case CopyKept():
                self.kept.on_kept(item)
                self.follower.must_tell = True
            case _ if isinstance(item, OfferAnswer):
                self.offering.on_answer(item, self.view, now, self.lineage)
            case LoadOpened():
                self._on_opened(item)
            case LoadBegun() | ChunkKept() | LoadFailed():
                self.is_disk_full = isinstance(item, LoadFailed) and item.is_disk_full
                self._fail_load(self.replacing.on_answer(item, now))

    def _on_message(self, sender: NodeId, message: Message, now: Instant) -> None:
        if sender == self.config.master and self._on_order(message, now):
            return
        if isinstance(message, Apply | Execute) and message.items and message.lineage != self.lineage:
            # Places of another lineage, sent before this copy changed its lineage, or while it cannot.
            return
        match message:
            case Apply() if sender == self.config.master or self.follower.asking.is_asked(sender, message.first_lsn):
                self._on_items(False, message.first_lsn, message.items, message.view, now)
            case Execute() if sender == self.config.master:
                self._on_items(True, message.first_lsn, message.items, message.view, now)
            case RangeMissing():
                self._on_range_missing(sender, message.first_lsn, now)
            case _ if isinstance(message, SnapshotAsked):
                self.offering.on_message(sender, message, self._refusal(message), now)
            case SnapshotOffered() | Chunk() if self.follower.loads.current is not None:
                self.follower.loads.on_message(sender, message, now)

    def _on_order(self, message: Message, now: Instant) -> bool:
        """Carry out orders of the primary; ignore those of an older view. Returns whether it was one."""
        if not isinstance(message, Order):
            return False
        if message.view < self.view:
            return True
        is_new = message.view > self.view
        self.view = message.view
        self.follower.must_tell = True
        match message:
            case Coin():
                self._sources = message.sources
                if message.forgiven_lsn and message.forgiven_lsn == self.differs[0]:
                    self.trouble, self.differs = "", (0, b"")
                    self.follower.change(Event.PAUSED)
                is_other = self._goes_over(message)
                if (is_new or is_other or self.state is State.IDLE) and not self.trouble:
                    self.follower.change(Event.COINED)
            case Idle():
                self.idle_reason = message.reason
                self.follower.change(Event.PAUSED)
            case LoadFrom() if self.replacing.on_load_from(message, now):
                self.follower.change(Event.TOLD)
            case Keep():
                self.kept.on_keep(message, self._refusal(message), now)
            case Restore() if self.replacing.on_restore(message, self.lineage, self.applied):
                self.follower.change(Event.TOLD)
        return True

    def _goes_over(self, coin: Coin) -> bool:
        """Change to the lineage of the primary, if this copy can; drop received items of the other one."""
        if self.state is State.LOAD or self.trouble:
            return False
        end = self.going_over.place(coin, self._line_start(), self.fingerprint, is_busy=self.is_writing)
        if end is None:
            return False
        self.applied = min(end, self.applied)
        self.follower.asking.stop()
        self._line.restart(end)
        self._resending.drop()
        self.master_lsn = end
        return True

    def _on_left(self, before: State, event: Event) -> None:
        """Drop all that belonged to the state that was left."""
        is_following = self.follower.is_following
        self.idle_reason = "" if is_following else self.idle_reason
        if not is_following or event is Event.COINED:
            self._line.restart(self._line_start())
            self._resending.drop()
        if before is State.LOAD:
            self.kept.stop()
        if not is_following:
            self.offering.forget_all()

    def _line_start(self) -> Lsn:
        """Return the LSN of the store after its present decision."""
        decision = self.follower.at_disk
        if isinstance(decision, ExecuteBatch | ApplyBatch):
            return decision.first_lsn + len(decision.items) - 1
        return self.applied

    def _on_items(self, is_execute: bool, first: Lsn, items: tuple[Any, ...], view: int, now: Instant) -> None:
        if not items:
            # The master asks for the position of this worker.
            self.follower.must_tell = True
            return
        if not self.follower.is_following or view < self.view:
            # Refused; the heartbeat says why nothing is confirmed.
            return
        last = first + len(items) - 1
        self.master_lsn = max(self.master_lsn, last)
        if is_execute and first <= self.applied:
            self._resending.want(first, min(last, self.applied))
        if last <= self._line.end:
            self.follower.must_tell |= last <= self.applied
            return
        # The body of a transaction, or the effect in a line of the log.
        sizes = [len(item[2]) for item in items] if is_execute else [len(item[4]) for item in items]
        self._line.add(piece(first, items, sizes, is_execute))
        self.follower.look_for_gap((self.config.master, *self._sources), now)

    def _on_range_missing(self, sender: NodeId, first: Lsn, now: Instant) -> None:
        asking = self.follower.asking
        if self.state is State.REQUEST and first == asking.first and asking.on_missing(sender, now):
            self._fall_for_want_of_lines()

    def _fall_for_want_of_lines(self) -> None:
        self._fall(f"the log lacks LSN {self.follower.asking.range_text()} everywhere", Event.MISSING)

    # ---- the store

    def _on_done(self, done: StoreDone) -> None:
        decision = self.follower.finish()
        invariant(done.applied_lsn >= self.applied, "what was applied never moves backwards", lsn=done.applied_lsn)
        self.failure, self.is_disk_full = "", False
        self.applied, self.fingerprint, self.items = done.applied_lsn, done.fingerprint, done.items
        if isinstance(decision, ApplyBatch | BeginLineage):
            self.going_over.on_written(decision)
            self.follower.must_tell = True
            return
        if isinstance(decision, ResendResults) and not done.results:
            # This copy came from elsewhere and does not know the results before it.
            self._send(self.config.master, RangeMissing(decision.first_lsn, decision.last_lsn, 0))
        first = done.first_lsn
        for part in cut(done.results, result_bytes):
            report = Executed(first, part, self.applied, self.fingerprint, self.items, self.journal, self.lineage)
            self._send(self.config.master, report)
            first += len(part)

    def _on_failed(self, failed: StoreFailed, now: Instant) -> None:
        self.follower.finish()
        self._line.restart(self.applied)
        self.follower.must_tell = True
        self.is_disk_full = failed.is_disk_full
        if failed.is_damage:
            self.differs = (failed.lsn, failed.fingerprint)
            self._on_damaged(failed.reason)
            return
        self.failure = failed.reason
        self.follower.retry(now)

    def _on_damaged(self, reason: str) -> None:
        if not self.trouble:
            # A differing copy finds that out again; whether it is right is still open.
            self.kept.on_damaged(reason)
            self._decisions += [Condemn(self.journal, reason)] if not self.differs[0] else []
            self._fall(reason, Event.DAMAGED)

    def _fall(self, reason: str, event: Event) -> None:
        """Stop using this copy; the master will name a source."""
        self.trouble = reason
        self.follower.must_tell = True
        self.follower.change(event)

    def _on_opened(self, opened: LoadOpened) -> None:
        """Continue with another copy, whatever was decided meanwhile."""
        self._outgoing += self.replacing.on_opened(opened)
        self.journal, self.applied = opened.journal, opened.applied_lsn
        self.fingerprint, self.items = opened.fingerprint, opened.items
        self.trouble, self.failure, self.differs, self.is_disk_full = "", "", (0, b""), False
        self.going_over.on_opened(opened.lineage)
        self.master_lsn = max(self.master_lsn, self.applied)
        self.follower.change(Event.LOADED)
        self._line.restart(self.applied)
        self.follower.must_tell = True

    def _refusal(self, message: Message) -> str:
        """Return why this copy must not be given away; empty when it can be. Lines of the log are right also when it is idle."""
        if self.trouble or self.failure:
            return f"its own copy is in trouble: {self.trouble or self.failure}"
        if isinstance(message, SnapshotWanted) and self.applied < message.least_lsn:
            return too_early(self.applied, message.least_lsn)
        is_fit = self.follower.is_following or (self.state is State.IDLE and isinstance(message, Request))
        return "" if is_fit else f"it is {self.state.value}"

    # ---- time

    def wake(self, now: Instant) -> None:
        """Act on expired deadlines."""
        if self.follower.wake(now):
            self.follower.must_tell = True
            # Without further work, no success would show that the store works again.
            self.failure = self.failure if self.master_lsn > self.applied else ""

    def deadline_ms(self) -> int | None:
        """Return when the core needs to be woken; None before the first turn."""
        follower = self.follower
        waits = (follower.heartbeat_at_ms(), follower.deadline_ms(), self.offering.deadline_ms(), self.kept.freezes_until_ms)
        return min((at for at in waits if at is not None), default=None)

    # ---- output

    def take_ready(self, now: Instant) -> Ready:
        """Return messages to send and decisions to carry out."""
        may_write = self.follower.may_write and not self.kept.is_freezing(now)
        decision = self._next_decision() if may_write else None
        if decision is not None:
            self.follower.begin(decision)
            self._decisions.append(decision)
        self._ask(now)
        loads, replaced, failure = self.replacing.take(now, is_free=not self.is_writing)
        messages, decisions = self.offering.take(now)
        self._outgoing += [*messages, *loads]
        self._decisions += [*decisions, *replaced]
        self._fail_load(failure)
        if self.follower.is_due(now):
            self._send(self.config.master, progress_of(self))
        ready = Ready(messages=tuple(self._outgoing), decisions=tuple(self._decisions))
        self._outgoing, self._decisions = [], []
        return ready

    def _fail_load(self, reason: str) -> None:
        """Go back to IDLE if there is a reason: nothing replaces this copy, and the old files stay."""
        if reason:
            self.idle_reason = reason
            self.follower.change(Event.FAILED)

    def _ask(self, now: Instant) -> None:
        if self.follower.asking.is_in_vain(now):
            self._fall_for_want_of_lines()
        question = self.follower.question(now)
        if question is not None:
            self._send(question[0], Request(*question[1]))

    def _next_decision(self) -> StoreDecision | None:
        if not self.going_over.is_durable:
            return self.going_over.decision()
        if (again := self._resending.take(self.config.decision_items)) is not None:
            return again
        pieces = self._line.pieces
        if not pieces:
            return None
        first, is_execute = pieces[0].numbers[0], pieces[0].kind
        items: list[Any] = []
        size = 0
        # Pieces of one kind, put together.
        while pieces and pieces[0].kind is is_execute and len(items) < self.config.decision_items:
            taken = self._line.pop()
            items.extend(taken.items)
            size += taken.size
            if size >= self.config.decision_bytes:
                break
        return ExecuteBatch(first, tuple(items)) if is_execute else ApplyBatch(first, tuple(items))

    def _send(self, to: NodeId, message: Message) -> None:
        self._outgoing.append(Outgoing(to, message))

    # ---- questions

    @property
    def is_writing(self) -> bool:
        """Tell whether the store is changing the copy."""
        return self.follower.at_disk is not None

    @property
    def may_be_read(self) -> bool:
        """Tell whether this copy can answer reads."""
        return self.follower.is_following and not self.trouble

    def word(self) -> tuple[str, str]:
        """Return state word and reason."""
        if self.state is State.LOAD:
            return states.REPLICATION_CLIENT, (f"{self.trouble}; " if self.trouble else "") + _loading(self)
        if self.trouble:
            return states.OUT_OF_SYNC, self.trouble
        if self.failure:
            return states.HALTED, self.failure
        if self.state is State.IDLE:
            return (states.OFF, self.idle_reason) if self.idle_reason else (states.UNINITIALISED, "waits for its master")
        followers = self.offering.followers
        if followers:
            word = states.WRITING_COPY if self.is_writing else states.REPLICATION_SERVER
            return word, f"gives its copy to {', '.join(followers)}"
        if self.master_lsn > self.applied:
            word = states.WRITING if self.is_writing else states.WAITING_WRITE
            return word, f"{self.master_lsn - self.applied} to apply"
        return states.ON, ""


def _loading(core: WorkerCore) -> str:
    loading = core.replacing.loading
    if core.kept.is_restoring:
        return f"restores what it kept at LSN {core.kept.state.lsn}"
    if loading is None:
        return "waits for a source"
    if not loading.total_bytes:
        return f"waits for a snapshot of {loading.source}"
    return f"loading from {loading.source}: {100 * loading.done_bytes // loading.total_bytes} %"


def progress_of(core: WorkerCore) -> Progress:
    """Return the heartbeat."""
    word, reason = core.word()
    loading = core.replacing.loading
    return Progress(
        journal=core.journal,
        applied_lsn=core.applied,
        fingerprint=core.fingerprint,
        items=core.items,
        state=word,
        reason=reason,
        running_reads=core.running_reads,
        follows=core.state.value,
        view=core.view,
        trouble=core.trouble,
        load_lsn=loading.lsn if loading is not None else 0,
        done_bytes=loading.done_bytes if loading is not None else 0,
        total_bytes=loading.total_bytes if loading is not None else 0,
        free_bytes=core.free_bytes,
        wanted_lsn=core.master_lsn,
        differs_lsn=core.differs[0],
        differs_fingerprint=core.differs[1],
        lineage=core.lineage,
        kept_lsn=core.kept.state.lsn,
        kept_lineage=core.kept.state.lineage,
        kept_number=core.kept.state.number,
        kept_reason=core.kept.reason,
        is_disk_full=core.is_disk_full and (bool(core.failure) or not core.follower.is_following),
    )
