"""Primary: the acting process of a master and its backups (replication, sections 1 to 4).

    note ------> JournalFeed ---- Replicate ----> backups            written records go to them
    hold ------> Gate <---------- Confirmed ----- backups            messages wait until enough of them hold the records
                 Role <---- Candidate, Vote ----> backups            which process is primary
                 Offering <-- SnapshotWanted ---- backups            the whole journal for one that begins anew

It stands beside the MasterCore of the same process; the runner carries all data from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from brokerha.following.offering import OfferConfig, Offering
from brokerha.model.errors import USE_FORCE
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.numbers import Numbers
from brokerha.model.ready import ChunksRead, CopyAnswer, CopyDecision, Ready, SnapshotMade
from brokerha.model.records import MasterState, Record, TxPrepared
from brokerha.model.requests import Reply, TxReply
from brokerha.model.wire.messages import Bodies, ChunksWanted, Envelope, Outgoing, SnapshotDone, SnapshotWanted
from brokerha.model.wire.process_messages import Candidate, Confirmed, Promote, RecordsWanted, Replicate, Vote
from brokerha.replication.journal.backups import READY
from brokerha.replication.journal.feed import JournalFeed, JournalFeedConfig
from brokerha.replication.journal.log import NumberedLog
from brokerha.replication.role.config import RoleChange
from brokerha.replication.role.gate import Gate, GateConfig
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState

IDLE_AFTER = 2
"""With ``goes_idle``, the primary steps down after so many timeouts without enough backups."""

SNAPSHOTS = 3
"""Backups that can load at once, as many as a journal gives: at the very first start all of them do."""


@dataclass(frozen=True, slots=True)
class PrimaryReady:
    """The actions that a primary asks for, in this order."""

    promise: int = 0
    """View to promise durably before all other actions; 0 for none."""
    messages: tuple[Outgoing, ...] = ()
    """To the other processes."""
    decisions: tuple[CopyDecision, ...] = ()
    released: tuple[Outgoing, ...] = ()
    """To all receivers: enough backups hold the records behind them."""
    replies: tuple[Reply, ...] = ()
    tx_replies: tuple[TxReply, ...] = ()


class Primary:
    """Role, feed, gate and offers of the acting process, while its view lasts."""

    MESSAGES = (Confirmed, RecordsWanted, Candidate, Vote, Replicate, Promote, SnapshotWanted, ChunksWanted, SnapshotDone)

    def __init__(self, role: Role, log: NumberedLog, state: MasterState, *, sync_timeout_ms: int, goes_idle: bool = False) -> None:
        """``state`` is that of the journal, with the `ViewStarted` of this view as its last record."""
        config = role.config
        self.role = role
        self.goes_idle = goes_idle
        self.change: RoleChange | None = None
        """Set once the role has changed: then this object is over."""
        self._open: frozenset[TxId] = frozenset(state.prepared)
        self._prepared: set[TxId] = set(state.prepared)
        self._successor: NodeId = ""
        self._hands_over_until_ms = 0
        self._farewell: tuple[Outgoing, ...] = ()
        feed_config = JournalFeedConfig(
            config.others, fail_over_after_ms=config.fail_over_after_ms, dead_after_ms=max(5000, 2 * config.fail_over_after_ms)
        )
        self.feed = JournalFeed(
            feed_config,
            log,
            view=role.view,
            journal=state.journal,
            views=state.views,
            prepared=state.prepared,
            open_transactions=lambda: self._open,
        )
        self.gate = Gate(GateConfig(role.view, config.sync_n, sync_timeout_ms, backups=config.others))
        self.offering = Offering(OfferConfig(snapshots=SNAPSHOTS))
        self._processes = frozenset(config.others)

    # ---- inputs

    def takes(self, envelope: Envelope) -> bool:
        """Tell whether a message is for this object: it comes from another process of the same master.

        While it hands over it also takes bodies of other masters, and drops them: each would bring records that the successor lacks,
        and so the end of the journal would never be reached where others write all the time. The next primary asks for them.
        """
        if self._successor and isinstance(envelope.message, Bodies):
            return True
        return envelope.sender in self._processes and isinstance(envelope.message, self.MESSAGES)

    def step(self, envelope: Envelope, now: Instant) -> None:
        """Take in one message of another process."""
        sender, message = envelope.sender, envelope.message
        match message:
            case Confirmed():
                self.role.on_confirmed(sender, message.view, now)
                self.feed.on_confirmed(sender, message, now)
                self._confirm(sender)
            case RecordsWanted():
                self.feed.on_records_wanted(sender, message)
            case Candidate():
                self.role.on_candidate(sender, message, now)
            case Vote():
                self.role.on_vote(sender, message, now)
            case Replicate():
                self.role.heard(sender, message.view, now)
            case SnapshotWanted() | ChunksWanted() | SnapshotDone():
                self.offering.on_message(sender, message, "", now)
            case _:
                pass

    def _confirm(self, sender: NodeId) -> None:
        number = self.feed.confirmations()[sender]
        if number:
            self.gate.confirm(sender, self.role.view, number)
        else:
            self.gate.forget(sender)

    def answer(self, answer: CopyAnswer, now: Instant) -> None:
        """Take in an answer of the disk."""
        if isinstance(answer, SnapshotMade | ChunksRead):
            self.offering.on_answer(answer, 0, now)

    def note(self, first_number: int, records: Sequence[Record]) -> None:
        """Note that a turn is in the own journal."""
        self.feed.note(first_number, records)
        self._prepared.update(record.txid for record in records if isinstance(record, TxPrepared))
        self.role.moved((self.role.view, self.feed.last_number))

    def hold(self, number: int, ready: Ready, messages: Sequence[Outgoing], now: Instant) -> None:
        """Hold back the messages of a turn until enough backups have its last record."""
        self.gate.hold(number, messages, ready.replies, ready.tx_replies, now)

    def on_transactions(self, txids: Iterable[TxId]) -> None:
        """Set the transactions that are open or prepared now."""
        now_open = frozenset(txids)
        for txid in self._open - now_open:
            # A backup must get the record of a prepared one; the feed sees that by itself.
            if txid not in self._prepared:
                self.feed.on_tx_settled(txid)
        self._prepared &= now_open
        self._open = now_open

    def keep(self, below: Lsn) -> None:
        """Set what the journal can forget, here and at the backups."""
        self.feed.floor = below

    def hand_over(self, successor: NodeId, now: Instant) -> str:
        """Begin to hand over to another process for an operator. Return why it cannot be primary; empty when it will be tried.

        No writes are taken until it holds all records; then this process steps down and tells it to stand.
        """
        row = next((row for row in self.feed.rows() if row.node == successor), None)
        if row is None or row.state != READY:
            state = f"{row.state}{f', {row.reason}' if row.reason else ''}" if row is not None else "no backup"
            return f"{successor} is not ready ({state}): wait until it is, or {USE_FORCE}"
        self._successor = successor
        self._hands_over_until_ms = now.mono_ms + self.role.config.fail_over_after_ms
        return ""

    def _go_on_handing_over(self, now: Instant) -> None:
        if self.feed.confirmations().get(self._successor, 0) >= self.feed.last_number:
            self.role.step_down(f"handed over to {self._successor}", now)
            self._farewell = (Outgoing(self._successor, Promote(is_forced=False)),)
            self._successor = ""
        elif now.mono_ms >= self._hands_over_until_ms:
            self._successor = ""

    def wake(self, now: Instant) -> None:
        """Act on expired deadlines."""
        if self._successor:
            self._go_on_handing_over(now)
        if self.goes_idle and self.gate.blocked_ms(now) >= IDLE_AFTER * self.gate.config.timeout_ms:
            self.role.pause(self.gate.reason(now), until_declared=True)

    # ---- output

    def take(self, now: Instant, *, is_silent: bool = False) -> PrimaryReady:
        """Return the actions that are due; once the role has changed no message is released.

        ``is_silent``: the backups hear nothing, and nothing is released; another process may take over.
        """
        ready = self.role.take(now)
        if ready.change is not None and ready.change.state is not RoleState.PRIMARY:
            self.change = ready.change
            return PrimaryReady(ready.promise, (*ready.messages, *self._farewell))
        if is_silent:
            return PrimaryReady(ready.promise, ready.messages)
        offered, decisions = self.offering.take(now)
        expired = self.gate.expire(now)
        released = self.gate.release()
        messages = (*ready.messages, *self.feed.messages(now), *offered)
        return PrimaryReady(
            ready.promise,
            messages,
            tuple(decisions),
            released.messages,
            (*released.replies, *expired.replies),
            (*released.tx_replies, *expired.tx_replies),
        )

    def deadline_ms(self) -> int | None:
        """Return when `take` has work."""
        due = (self.role.deadline_ms(), self.feed.deadline_ms(), self.gate.deadline_ms())
        return min((at for at in due if at is not None), default=None)

    def lose(self, silent: Mapping[NodeId, str]) -> None:
        """Exclude backups that a transaction lost, with reasons: they must join anew to be ready, and then have its record."""
        for backup, reason in silent.items():
            self.feed.part(backup, reason)

    # ---- questions

    @property
    def is_over(self) -> bool:
        """Tell whether this process is no longer primary."""
        return self.role.state is not RoleState.PRIMARY

    def withheld(self, now: Instant) -> str:
        """Return why no write is taken now; empty when enough backups confirm."""
        if self._successor:
            return f"{self._successor} is about to become primary"
        return self.gate.reason(now)

    def metrics(self, now: Instant) -> Numbers:
        """Return numbers for /metrics."""
        messages, replies = self.gate.held
        numbers: Numbers = {
            "view": self.role.view,
            "backups_ready": len(self.feed.ready()),
            "sync_n": self.role.config.sync_n,
            "held_messages": messages,
            "held_replies": replies,
            "held_dropped_total": self.gate.dropped,
            "held_seconds": self.gate.blocked_ms(now) / 1000,
            "journal_last_number": self.feed.last_number,
        }
        for row in self.feed.rows():
            numbers["backup_lag_records", row.node] = row.lag_records
            numbers["backup_ready", row.node] = row.state == READY
        return numbers
