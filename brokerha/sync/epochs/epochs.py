"""Epochs at one master: promises, reports, installing, and coming back (rules R8, R9, R11, R12).

    follows the epoch --(a prepare, also the own one)--> frozen --(install)--> catches up to the base --> follows the next

Frozen: this master does not stamp, merge or add, because its report has told a proposer what it holds. Only the next epoch ends it.
A tail, entries that others have synchronised, is taken in at any time: a majority is behind each step, so there is one order.

The inputs take note; `before` and `after` are the parts of a round (core.py). suspicion.py notes the reasons for a change,
proposing.py leads an attempt, and deciding.py decides its result.

Invariants: the promised epoch only grows, and is durable before a report or a prepare tells of it; a master installs only the epoch
that it promised, and only when its synchronised queue ends at that epoch's base.
"""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.model.epochs import ADD, FIRST, NO_EPOCH, REMOVE, Change, EpochId
from brokerha.model.ids import Instant, Lsn, NodeId, Ordered
from brokerha.model.records import EpochInstalled, EpochPromised
from brokerha.model.wire.epoch_messages import (
    EpochInstall,
    EpochPrepare,
    EpochRefused,
    EpochReport,
    Join,
    Notice,
    Row,
    State,
    StateWanted,
    Tail,
    TailWanted,
)
from brokerha.model.wire.messages import Message, Outgoing
from brokerha.sync import identity
from brokerha.sync.catching_up import TAIL_LIMIT
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.beginning import begin
from brokerha.sync.epochs.proposing import Proposing
from brokerha.sync.epochs.suspicion import Suspicion
from brokerha.sync.membership import Membership
from brokerha.sync.modes import are_alike, keeps_sides
from brokerha.sync.peers import NEVER
from brokerha.sync.round import RoundResult
from brokerha.sync.splits.choosing import Choosing
from brokerha.sync.splits.going_back import GoingBack, come_together
from brokerha.sync.state import SyncState
from brokerha.sync.transferring import StateReader, state_for
from brokerha.sync.waiting import culprits, head_of

NEAR = TAIL_LIMIT
"""A master that lacks no more entries than this can be taken back."""
EPOCH_MESSAGES = (EpochPrepare, EpochReport, EpochRefused, EpochInstall, TailWanted, Tail, Join, Notice, StateWanted, State)
"""The messages that `Epochs.on_message` takes."""


class Epochs:
    """See the head of the module."""

    def __init__(self, config: SyncConfig, mode: str) -> None:
        self._config = config
        self.transfer = StateReader()
        self.going_back = GoingBack(config)
        self.suspicion = Suspicion(config)
        self.suspicion.choose(mode)
        self.membership = Membership(config, self.suspicion)
        self.choosing = Choosing(config)
        self.proposing = Proposing(config, self.suspicion, self.membership, self.choosing)
        self._goal: Lsn | None = None
        """Length of the others' queue when they were first heard in a later epoch."""
        self._is_promise_new = False
        self._is_touched, self._looked_ms = False, NEVER
        """Whether news of an epoch came since the last look, and the time of that look."""
        self._calm_until_ms: int | None = None
        """Time of the next look without news, as of the last look; later news can only postpone it."""
        self._asked: dict[NodeId, EpochId] = {}
        """Proposers that wait for a report."""
        self._joins: dict[NodeId, Row] = {}
        """Masters in a later epoch to ask for being taken back, with their rows."""
        self._outgoing: list[Outgoing] = []
        self._told_ms: dict[NodeId, int] = {}
        """When a master in another epoch was last told of this one, or asked to take this one back."""

    def is_due(self, mono_ms: int) -> bool:
        """Tell whether `after` may have work: time has passed, news of an epoch came, or a change is under way."""
        return mono_ms - self._looked_ms >= self._config.look_ms or self._is_at_work()

    def _is_at_work(self) -> bool:
        return (
            self._is_touched
            or self.proposing.attempt is not None
            or (self.membership.wish is not None and self.membership.is_under_way)
            or (self.choosing.choice is not None and self.choosing.is_under_way)
        )

    # ---- inputs

    def on_message(self, sync: SyncState, sender: NodeId, message: Message, now: Instant) -> None:
        """Take note of a message about epochs."""
        self._is_touched = True
        match message:
            case EpochPrepare():
                self.on_prepare(sync, sender, message, now)
            case EpochReport():
                self.on_report(sync, sender, message)
            case EpochRefused():
                self.on_refused(sync, sender, message, now)
            case EpochInstall():
                self.on_install(sync, sender, message)
            case TailWanted():
                self.on_tail_wanted(sync, sender, message)
            case Tail():
                self.on_tail(sync, sender, message)
            case Join():
                self.on_join(sync, sender, message, now)
            case Notice():
                identity.on_notice(sync, sender, message)
            case StateWanted() | State():
                self._on_state(sync, sender, message)

    def on_prepare(self, sync: SyncState, sender: NodeId, message: EpochPrepare, now: Instant) -> None:
        """Promise, or tell the proposer which epoch was promised (R9)."""
        if sync.peers.peer(sender) is None or sender in sync.peers.impostors:
            sync.peers.ignored["unknown_proposer"] += 1
            return
        change = message.change
        is_added = change == Change(ADD, sync.node, sync.journal) and sync.is_joiner()
        if not (is_added or are_alike(message.mode, sync.mode)):
            sync.peers.ignored["other_mode"] += 1
            return
        if not identity.is_known(sync) and not is_added:
            # A master without a past may have lost it: it must not count towards a majority (R15).
            sync.peers.ignored["not_known_yet"] += 1
            return
        self.proposing.saw(message.epoch)
        if message.epoch > sync.promised:
            self.promise(sync, message.epoch, now)
        if message.epoch == sync.promised and message.epoch != sync.epoch.id:
            # The disk keeps the promise without its change: after a crash the next prepare tells it again.
            self.membership.is_leaving = (change.kind, change.node) == (REMOVE, sync.node)
            self._asked[sender] = message.epoch
        else:
            self._outgoing.append(Outgoing(sender, EpochRefused(message.epoch, sync.promised)))

    def promise(self, sync: SyncState, epoch: EpochId, now: Instant) -> None:
        """Promise an epoch: take part in no older one. The next report must be complete, so no tail is read meanwhile."""
        sync.promised, self._is_promise_new, sync.decided = epoch, True, None
        self._asked = {}
        sync.tail.aim(0, ())
        self.proposing.on_promise(epoch, now.mono_ms)

    def on_report(self, sync: SyncState, sender: NodeId, report: EpochReport) -> None:
        """Take in the report of a master that has promised the own proposal."""
        if report.row.node != sender or sync.peers.peer(sender) is None or not sync.peers.is_known_journal(report.row):
            sync.peers.ignored["unknown_reporter"] += 1
            return
        identity.check_own_state(sync, report.row)
        if self.proposing.on_report(report):
            # Masters that were added while this one was away are asked, too (R9).
            for node in report.configuration.masters:
                sync.peers.listen_to(node, report.configuration.journals.get(node, ""))

    def on_refused(self, sync: SyncState, sender: NodeId, refused: EpochRefused, now: Instant) -> None:
        """Take in a refusal: its sender has promised a higher epoch."""
        if sync.peers.peer(sender) is not None:
            self.proposing.on_refused(refused, now.mono_ms)

    def on_install(self, sync: SyncState, sender: NodeId, message: EpochInstall) -> None:
        """Take in a decision; only the promised epoch can be installed (R11)."""
        epoch = message.epoch
        if sync.peers.peer(sender) is not None:
            identity.on_epoch(sync, epoch)
        self.proposing.saw(epoch.id)
        if sync.node not in epoch.members or epoch.id != sync.promised or epoch.id in {sync.epoch.id, FIRST}:
            return  # The first epoch is begun, never installed: a joiner has no part in it.
        if not keeps_sides(sync.mode_of(epoch)) and sync.lsn > epoch.base_lsn:
            # This master gave that epoch up, and has since read entries of a later one.
            sync.peers.ignored["base_passed"] += 1
            return
        sync.decided = epoch
        sync.tail.aim(epoch.base_lsn, [sender], epoch.base_txid)

    def on_row_of_other_epoch(self, sync: SyncState, sender: NodeId, row: Row, now: Instant) -> None:
        """Handle a direct post from a master in another epoch: tell it of this one, or ask to be taken back."""
        self._is_touched = True
        self.proposing.saw(max(row.epoch, row.promised))
        # The later epoch sets the rules: earlier queues are parts of its queue, or sides of a split come together.
        is_apart = keeps_sides(row.mode) if row.epoch > sync.epoch.id else sync.keeps_sides
        if is_apart:
            self._meet(sync, sender, row, now)
        elif row.epoch > sync.epoch.id:
            sync.later[sender] = row
            if sync.decided is not None and row.epoch > sync.decided.id:
                sync.decided = None  # The others went on without it.
            if sync.decided is None:
                self._come_near(sync, sender, row, now)
        elif (sender in sync.peers.peers or identity.is_in_doubt(row)) and self._may_tell(sender, now.mono_ms):
            self._outgoing.append(Outgoing(sender, EpochInstall(sync.epoch)))

    def _meet(self, sync: SyncState, sender: NodeId, row: Row, now: Instant) -> None:
        """Handle a master of another side: bring it into this epoch, or begin a change so that sides come together."""
        if sender in sync.peers.peers and row.promised == sync.epoch.id:
            self.suspicion.on_its_way(sync.peers.peers[sender], row.lsn, now.mono_ms)
            if self._may_tell(sender, now.mono_ms):
                self._outgoing.append(Outgoing(sender, EpochInstall(sync.epoch)))
        elif not sync.is_frozen():
            # A master that reads up to an epoch that is over here reads on first: it lacks less then, and no master waits for it.
            is_over = row.promised != row.epoch and row.promised in dict(sync.epoch.path)
            if not is_over or not self.suspicion.gets_on(sender, row.lsn, now.mono_ms):
                self.suspicion.on_join(sender, now.mono_ms)

    def _come_near(self, sync: SyncState, sender: NodeId, row: Row, now: Instant) -> None:
        """Read the missed entries first, and ask to be taken back when few are left: the others wait from then on.

        It must read all entries of the first look: a master that cannot get bodies would only delay the others.
        """
        if sync.is_frozen() and row.epoch < sync.promised and self.proposing.is_young(now.mono_ms):
            return  # Its report is about to be decided on.
        if self._goal is None:
            self._goal = row.lsn
        tail, heard = sync.tail, sync.peers.heard_of(sync.tail.sources, now.mono_ms)
        if sync.lsn < row.lsn and (tail.target <= sync.lsn or sender in tail.sources or not heard or tail.kept_from):
            tail.aim(row.lsn, [sender])
        is_near = sync.lsn >= self._goal and row.lsn - sync.lsn <= NEAR
        if is_near and (identity.is_known(sync) or sync.is_joiner()) and self._may_tell(sender, now.mono_ms):
            self._joins[sender] = row

    def on_join(self, sync: SyncState, sender: NodeId, join: Join, now: Instant) -> None:
        """Handle a Join: a lagging master may be a member that does not know this epoch, or wants to become one."""
        peers = sync.peers
        if peers.peer(sender) is None or join.row.node != sender or not peers.is_known_journal(join.row):
            peers.ignored["unknown_peer"] += 1
        elif sync.keeps_sides:
            # The sender proposed, and found that this master has to decide.
            if sync.is_frozen() and sync.promised[1] == sender:
                self.proposing.on_handed_over(now.mono_ms)
        elif join.incarnation == sync.incarnation and join.row.epoch < sync.epoch.id:
            if not self.membership.is_welcome(sync, sender, now.mono_ms):
                peers.ignored["not_invited"] += 1
            elif sender in peers.outside or join.row.promised > sync.epoch.id:
                # A member that has promised a higher epoch cannot install this one any more.
                self.suspicion.on_join(sender, now.mono_ms)
            elif self._may_tell(sender, now.mono_ms):
                self._outgoing.append(Outgoing(sender, EpochInstall(sync.epoch)))

    def on_leave(self, sync: SyncState, sender: NodeId, incarnation: int, now: Instant) -> None:
        """Note that the process of a member is being stopped: a reason for an epoch change, like its silence."""
        self._is_touched = True
        peer = sync.peers.peers.get(sender)
        if peer is None or not self.suspicion.on_leave(peer, incarnation, now.mono_ms):
            sync.peers.ignored["left_before"] += 1

    def on_stranger(self, sync: SyncState, sender: NodeId, row: Row, now: Instant) -> None:
        """Answer a post of a node that is no master here: tell one that was taken out, and one that takes itself for a founder."""
        if row.node != sender:
            return
        self._is_touched = True
        if sync.peers.is_retired(row):
            if self._may_tell(sender, now.mono_ms):
                self._outgoing.append(Outgoing(sender, Notice(sync.epoch.id, row.journal)))
        elif sync.is_joiner() or not identity.is_known(sync):
            return  # This master has no epoch to tell of yet.
        elif row.epoch == FIRST and sync.peers.peer(sender) is None and self._may_tell(sender, now.mono_ms):
            self._outgoing.append(Outgoing(sender, EpochInstall(sync.epoch)))

    def _may_tell(self, node: NodeId, mono_ms: int) -> bool:
        told_ms = self._told_ms.get(node)
        if told_ms is not None and mono_ms - told_ms < self._config.retransmit_ms:
            return False
        self._told_ms[node] = mono_ms
        return True

    def on_tail_wanted(self, sync: SyncState, sender: NodeId, wanted: TailWanted) -> None:
        """Answer from the durable queue."""
        if sync.peers.peer(sender) is None:
            sync.peers.ignored["unknown_peer"] += 1
            return
        limit = min(TAIL_LIMIT, wanted.last_lsn - wanted.first_lsn + 1)
        entries: Sequence[Ordered] = sync.history.ordered(wanted.first_lsn, limit) if limit > 0 else ()
        if entries or wanted.first_lsn < sync.history.first_lsn():
            entries, bodies = sync.bodies.beside(entries, sender)
            self._outgoing += [Outgoing(sender, each) for each in bodies]
            self._outgoing.append(Outgoing(sender, Tail(wanted.first_lsn, tuple(entries), sync.history.first_lsn())))

    def on_tail(self, sync: SyncState, sender: NodeId, tail: Tail) -> None:
        """Take in a requested part of another master's synchronised queue."""
        if sender in sync.tail.sources:
            sync.tail.on_tail(sync.lsn, tail, sender)

    def _on_state(self, sync: SyncState, sender: NodeId, message: StateWanted | State) -> None:
        """Give a state to a master whose queue cannot continue any more, or take in such a state (R16)."""
        if sync.peers.peer(sender) is None:
            sync.peers.ignored["unknown_peer"] += 1
        elif isinstance(message, State):
            sync.peers.ignored["unwanted_state"] += not self.transfer.on_state(sender, message, sync.lsn)
        else:
            state = state_for(sync, message)
            self._outgoing += [Outgoing(sender, state)] if state else []

    # ---- the parts of a round

    def before(self, sync: SyncState, result: RoundResult, now: Instant) -> bool:
        """Decide, take in the tail, install; records of earlier rounds are durable. Return False when this master must stop."""
        self.proposing.end_if_outrun(sync, now.mono_ms)
        base = self.proposing.base(sync, now.mono_ms)
        if base is not None:
            base_lsn, sources = base
            if base_lsn < 0:
                self._hand_over(sync, sources, now)
            elif sync.lsn < base_lsn:
                sync.tail.aim(base_lsn, sources)
            else:
                sync.decided = self.proposing.decide(sync)
                others = [node for node in sync.decided.members if node != sync.node]
                self._outgoing += [Outgoing(node, EpochInstall(sync.decided)) for node in others]
                self._told_ms.update(dict.fromkeys(others, now.mono_ms))
        if not sync.is_standing_still():
            return True
        if sync.decided is not None and self.going_back.is_due(sync, sync.decided):
            if self.going_back.step(sync, sync.decided, result, now):
                sync.tail.begin_anew()
            return not sync.lost
        taken = sync.tail.take(sync.lsn, sync.bodies.has)
        if taken:
            sync.append_of_others(taken, result)
            self.proposing.on_progress(now.mono_ms)
        elif self.transfer.take(sync, result):
            self.proposing.on_progress(now.mono_ms)
            if sync.decided is not None and sync.lsn > sync.decided.base_lsn:
                sync.decided = None  # The others have gone on since, and take this one back.
        decided = sync.decided
        if decided is not None and sync.lsn == decided.base_lsn:
            if sync.last()[1] != decided.base_txid:
                sync.lost = f"LSN {sync.lsn} is another transaction here than at the other masters"
                return False
            come_together(sync, decided, result)
            result.records.append(EpochInstalled(decided))
            sync.decided, sync.later, self._told_ms, self._goal = None, {}, {}, None
            self.suspicion.begin(sync.epoch.members, decided.members, now.mono_ms)
            self.proposing.begin()
            begin(sync, decided)
            self.on_settings(sync.mode)
            self.membership.on_begin(sync, decided)
            self.choosing.on_begin(decided)
        return True

    def on_settings(self, mode: str) -> None:
        """Use the timeouts of the strategy in force."""
        self.suspicion.choose(mode)

    def _hand_over(self, sync: SyncState, sources: list[NodeId], now: Instant) -> None:
        """Leave the decision to a master whose queue stays."""
        first = min(sources)
        row = sync.peers.last_row(first)
        self.proposing.hand_over(now.mono_ms)
        if row is not None:
            self._joins[first] = row

    def on_absence(self, sync: SyncState, node: NodeId, now: Instant) -> None:
        """Note the broker's answer that the inbox of a master is gone."""
        peer = sync.peers.peers.get(node)
        if peer is not None and self.suspicion.on_absence(peer, now.mono_ms):
            self._is_touched = True

    def after(self, sync: SyncState, result: RoundResult, now: Instant) -> None:
        """Check whether a change is due, and collect the messages to send."""
        self._is_touched, self._calm_until_ms, self._looked_ms = False, None, now.mono_ms
        self._outgoing += self.membership.look(sync, now)
        self.choosing.look(sync, now)
        self.suspicion.look(sync.peers, head_of(sync), now.mono_ms, lambda: culprits(sync, now.mono_ms))
        result.looks = self.suspicion.looks(sync.peers, now.mono_ms)
        if self.proposing.is_due(sync, now.mono_ms):
            self.promise(sync, self.proposing.begin_attempt(sync, now.mono_ms), now)
            self._asked[sync.node] = sync.promised
        if self._is_promise_new:
            result.records.append(EpochPromised(sync.promised))
            self._is_promise_new = False
        for proposer, epoch in self._asked.items():
            report = self._report(sync, epoch, now)
            if proposer == sync.node:
                self.proposing.on_report(report)
            else:
                self._outgoing.append(Outgoing(proposer, report))
        for node, row in self._joins.items():
            self._outgoing.append(Outgoing(node, Join(row.incarnation, row.number, sync.own_row(now))))
        self._asked, self._joins = {}, {}
        result.messages.extend(self._outgoing)
        self._outgoing = []
        result.messages.extend(self.proposing.messages(sync, now.mono_ms))
        if sync.is_standing_still():
            again_ms = self._config.retransmit_ms
            self.transfer.look(sync, now.mono_ms)
            result.messages.extend(self.transfer.messages(now.mono_ms, again_ms))
            result.messages.extend(sync.tail.messages(sync.lsn, sync.bodies.has, now.mono_ms, again_ms))

    def _report(self, sync: SyncState, epoch: EpochId, now: Instant) -> EpochReport:
        """Return the entries that a master with this promise holds and has not added."""
        streams = tuple(
            (origin, stream.used, tuple(stream.between(stream.used, 2**62)))
            for origin, stream in sync.streams.items()
            if stream.used < stream.count
        )
        return EpochReport(
            epoch,
            sync.own_row(now),
            sync.last()[1],
            sync.recovery.reported(sync.bodies.is_durable),
            streams,
            sync.epoch.configuration,
            *self.membership.parked(sync),
            sync.epoch.members,
            sync.reads.path if sync.reads else () if sync.is_whole() else sync.epoch.path,
            sync.epoch.mode,
            sync.reads.id if sync.reads else NO_EPOCH,
            sync.recovery.lacking(sync.bodies.is_durable),
        )

    def deadline_ms(self, sync: SyncState) -> int | None:
        """Return when a round has work on epochs, at the earliest some time after the last look."""
        if self._calm_until_ms is not None and not self._is_at_work() and not sync.is_standing_still():
            return self._calm_until_ms
        again_ms, looked_ms = self._config.retransmit_ms, self._looked_ms
        due = [
            self.suspicion.deadline_ms(sync.peers),
            self.proposing.deadline_ms(sync, looked_ms),
            self.membership.deadline_ms(),
            self.choosing.deadline_ms(),
        ]
        soonest_ms = looked_ms + self._config.look_ms
        if sync.is_standing_still():
            due += [sync.tail.due_ms(sync.lsn, again_ms), self.transfer.due_ms(again_ms), self.going_back.until_ms]
            soonest_ms = looked_ms
        due_ms = [max(at, soonest_ms) if at > looked_ms else looked_ms + again_ms for at in due if at is not None]
        self._calm_until_ms = min(due_ms, default=None)
        return self._calm_until_ms
