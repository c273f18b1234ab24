"""Standby: a process of a master that is not primary: it follows the journal, takes part in transactions, and votes.

    Replicate, Records ----> JournalFollower ----> records for the own journal ----> Confirmed
    TxJoin, TxEvents ------> Participant     ----> bodies for records that came without; prepared, refused
    Candidate, Vote -------> Role            ----> promises, votes; at last: primary

The participant says *prepared* only after the prepare record has gone from the follower to the journal. A promise to a new view
forbids following an older one; the follower learns of it at once. While an operator has paused the process (`Resting`) it only
votes and tells its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brokerha.following.machine import FOLLOWING, State
from brokerha.model import states
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.ready import CopyAnswer, CopyDecision, LoadOpened, TxQueueDecision
from brokerha.model.records import MasterState, Record, Rest, TxDecided, TxPrepared
from brokerha.model.wire.messages import Chunk, ChunksWanted, Envelope, Outgoing, SnapshotOffered, SnapshotWanted
from brokerha.model.wire.process_messages import (
    Candidate,
    Confirmed,
    Promote,
    Records,
    RecordsMissing,
    RecordsWanted,
    Replicate,
    TxEvents,
    TxJoin,
    Vote,
)
from brokerha.replication.journal.follower import JournalFollower, JournalFollowerConfig
from brokerha.replication.journal.log import NumberedLog
from brokerha.replication.role.config import RoleChange
from brokerha.replication.role.resting import Resting
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState
from brokerha.transactions.config import ParticipantConfig
from brokerha.transactions.participant import Participant


@dataclass(frozen=True, slots=True)
class StandbyReady:
    """The actions that a standby asks for, in this order."""

    promise: int = 0
    """View to promise durably before all other actions; 0 for none."""
    rest: Rest | None = None
    """For `Journal.rest`, before the following actions; None for no change."""
    records: tuple[tuple[int, Record], ...] = ()
    """For `Journal.follow`, in one commit; answered by `followed`."""
    floor: Lsn | None = None
    """For `Journal.keep`: what the journal can forget; None for no change."""
    tx_queues: tuple[TxQueueDecision, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    look: NodeId = ""
    """A primary about whose process the broker is to be asked."""
    decisions: tuple[CopyDecision, ...] = ()
    change: RoleChange | None = None

    def __bool__(self) -> bool:
        """Tell whether there is any action."""
        return bool(
            self.promise
            or self.rest
            or self.records
            or self.floor
            or self.tx_queues
            or self.messages
            or self.look
            or self.decisions
            or self.change
        )


class Standby:
    """Role, follower and participant of a process that is not primary."""

    def __init__(self, role: Role, log: NumberedLog, state: MasterState, pending_load: str = "") -> None:
        config = role.config
        self.role = role
        follower = JournalFollowerConfig(config.process, config.others, fail_over_after_ms=config.fail_over_after_ms)
        self.follower = JournalFollower(follower, log, state, pending_load)
        self.participant = Participant(ParticipantConfig(), role.view)
        for txid in state.prepared:
            self.participant.on_record_durable(txid)
        self.resting = Resting(role, self.follower, state.rest)
        if state.rest.is_on:
            self.participant.leave_off()
        self._processes = frozenset(config.others)
        self._given: set[TxId] = set()
        """Transactions whose bodies the follower has from their queues."""
        self._kept: Lsn = 0
        self._extra: list[Outgoing] = []

    # ---- inputs

    def step(self, envelope: Envelope, now: Instant) -> None:
        """Take in one message; what is not of another process of this master is ignored."""
        sender, message = envelope.sender, envelope.message
        if sender not in self._processes:
            return
        match message:
            case Replicate():
                self._on_replicate(sender, message, now)
            case TxJoin() | TxEvents():
                self.participant.step(envelope, now)
            case Candidate() | Vote() | Promote() | Confirmed():
                self._on_role(sender, message, now)
            case Records() | RecordsMissing() | RecordsWanted() | SnapshotOffered() | Chunk():
                self._on_journal(sender, message, now)
            case SnapshotWanted():
                refusal = f"{self.role.config.process} is not primary"
                self._extra.append(Outgoing(sender, SnapshotOffered(message.request, "", 0, "", 0, 0, (), refusal)))
            case ChunksWanted():
                number = message.numbers[0] if message.numbers else 0
                self._extra.append(Outgoing(sender, Chunk(message.snapshot, number, b"", is_gone=True)))

    def _on_role(self, sender: NodeId, message: Candidate | Vote | Promote | Confirmed, now: Instant) -> None:
        match message:
            case Candidate():
                self.role.on_candidate(sender, message, now)
            case Vote():
                self.role.on_vote(sender, message, now)
            case Promote():
                self.role.promoted_by_hand(now, force=message.is_forced)
            case Confirmed():
                self.role.on_view(message.view, now)

    def _on_journal(
        self, sender: NodeId, message: Records | RecordsMissing | RecordsWanted | SnapshotOffered | Chunk, now: Instant
    ) -> None:
        match message:
            case Records():
                self.follower.on_records(sender, message, now)
            case RecordsMissing():
                self.follower.on_records_missing(sender, message, now)
            case RecordsWanted():
                self.follower.on_records_wanted(sender, message)
            case SnapshotOffered() | Chunk():
                self.follower.loads.on_message(sender, message, now)

    def _on_replicate(self, sender: NodeId, message: Replicate, now: Instant) -> None:
        self.role.heard(sender, message.view, now)
        is_resting = self.resting.rest.is_on
        if not self.role.obeys(message.view) or (self.role.state is RoleState.IDLE and not is_resting):
            return
        if self.follower.on_replicate(sender, message, now) and not is_resting:
            self.participant.on_new_view(message.view)

    def answer(self, answer: CopyAnswer, log: NumberedLog, state: MasterState | None, now: Instant) -> None:
        """Take in an answer of the disk; ``log`` and ``state`` are those of the journal that a `LoadOpened` opened."""
        if isinstance(answer, LoadOpened) and state is not None:
            self.follower.on_loaded(log, state)
            for txid in state.prepared:
                self.participant.on_record_durable(txid)
            self.role.moved(self.follower.last, state.journal)
        elif not isinstance(answer, LoadOpened):
            self.follower.loads.on_answer(answer, now)  # type: ignore[arg-type]

    def followed(self, records: Sequence[tuple[int, Record]]) -> None:
        """Note that these records are durable here."""
        self.follower.followed(records[-1][0])
        self.role.moved(self.follower.last)
        for _, record in records:
            if isinstance(record, TxPrepared):
                self.participant.on_record_durable(record.txid)
            elif isinstance(record, TxDecided):
                self.participant.on_decided(record.txid)
                self._given.discard(record.txid)

    def order(self, command: str, now: Instant, *, is_forced: bool = False) -> str:
        """Take an operator's `pause`, `coin` or `continue`, in force after the next `take`. Return why it is refused, or empty."""
        refusal = self.resting.order(command, now, is_forced=is_forced)
        if self.resting.rest.is_on:
            self.participant.leave_off()
        return refusal

    def wake(self, now: Instant) -> None:
        """Act on expired deadlines."""
        self.role.may_vote = self.follower.state is not State.LOAD
        self.participant.wake(now)

    # ---- output

    def take(self, now: Instant) -> StandbyReady:
        """Return the actions that are due."""
        self._give_bodies()
        role = self.role.take(now)
        rest = self.resting.take(now)
        self.follower.refuse_below(self.role.promised)
        if role.change is not None and role.change.state is RoleState.PRIMARY:
            self.participant.on_new_view(self.role.view)
            ready = self.participant.take_ready()
            return StandbyReady(role.promise, rest, tx_queues=ready.tx_queues, messages=role.messages, change=role.change)
        follower, taken = self.follower.take(now), self.participant.take_ready()
        extra, self._extra = self._extra, []
        messages = (*role.messages, *follower.messages, *taken.messages, *extra)
        return StandbyReady(
            role.promise,
            rest,
            follower.records,
            self._floor(),
            taken.tx_queues,
            messages,
            role.look,
            follower.decisions,
            role.change,
        )

    def _give_bodies(self) -> None:
        """Give bodies that came through queues to the follower, which fills records with them."""
        for txid in self.participant.joined:
            if txid not in self._given and (body := self.participant.bodies(txid)) is not None:
                self._given.add(txid)
                self.follower.on_prepared_body(txid, body)
        self._given.intersection_update(self.participant.joined)

    def _floor(self) -> Lsn | None:
        floor = self.follower.floor
        if floor == self._kept or self.follower.state not in FOLLOWING:
            return None
        self._kept = floor
        return floor

    def deadline_ms(self) -> int | None:
        """Return when `take` has work."""
        due = (self.role.deadline_ms(), self.follower.deadline_ms(), self.participant.deadline_ms())
        return min((at for at in due if at is not None), default=None)

    # ---- questions

    def state(self, now: Instant) -> tuple[str, str]:
        """Return state word and reason."""
        follower = self.follower
        if self.resting.rest.is_on:
            return states.PAUSED, self.resting.reason
        if self.role.state is RoleState.IDLE:
            return states.IDLE, self.role.reason
        if not follower.primary or follower.heard_ms is None:
            return states.WAITING_FOR_PRIMARY, self.role.explain(now)
        if now.mono_ms - follower.heard_ms >= self.role.config.fail_over_after_ms:
            return states.WAITING_FOR_PRIMARY, self.role.explain(now)
        if follower.state is State.LOAD or follower.state is State.IDLE:
            return states.JOINING, follower.reason
        if not follower.is_ready:
            behind = max(0, follower.primary_last - follower.last[1])
            return states.CATCHING_UP, follower.reason or f"{behind} records of {follower.primary} to go"
        return states.READY, ""
