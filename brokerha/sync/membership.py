"""Changing who is a master of the cluster, one master at a time (rule R15).

    add m4      invited --(m4 is blank: joiner)--> reads --(Join)--> an epoch that names m4 and its journal
    remove m3   an epoch without m3, decided by a majority of the masters before --> m3 is told (Notice)

A wish is noted by the master that was asked, and is forgotten when its process ends: until the epoch is decided nothing has happened,
and who wishes says so again. The configuration is a part of the epoch, so it changes where everything else changes, and a crash
in between is one of those that epochs are made for.

An epoch changes it by one master only, decided by a majority of the masters before and taken over by a majority of those after. Any two
such majorities meet; but two epochs may change the same masters in different ways, and majorities of what they come to need not. So
until a change is **established** the masters before it count as well: nothing is added, and nothing decided on top of it, without a majority
of them or so many in it that the others are none. Then the next change may begin.

Must never: begin a change while the last one is not established, but when an operator forces it, for whom the majority is gone for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from brokerha.model.epochs import ADD, NO_CHANGE, REMOVE, Change, Configuration, Epoch
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.wire.epoch_messages import EpochInstall, EpochReport
from brokerha.model.wire.messages import Outgoing
from brokerha.sync import identity
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.suspicion import Suspicion
from brokerha.sync.state import SyncState

PATIENCE_MS = 60_000
"""A wish that comes no nearer for so long has failed."""
PARKED_LIMIT = 20_000
"""Transactions without a place that a report may have beside those with one."""
DONE, FAILED, UNDER_WAY = "done", "failed", "under way"


@dataclass(slots=True)
class Wish:
    """What an operator wants, and what became of it."""

    kind: str
    """`ADD` or `REMOVE`."""
    node: NodeId
    is_forced: bool
    moved_ms: int
    """When it last came nearer."""
    stage: str
    """What it waits for, for people."""
    journal: str = ""
    """Of one that is to be taken out, as far as it is known: one that came back with another one since is not meant."""
    state: str = UNDER_WAY
    tried_ms: int | None = None
    """When an attempt last began for it."""
    seen: tuple[Lsn, bool] = (0, False)
    """How long the queue of one that is added was, and whether it has asked to join, when last looked at."""
    is_decided: bool = False
    """Whether the present epoch has the change; what a master that is taken out alone held is in its recovered list."""


class Membership:
    """Wishes at one master; see the head of the module."""

    def __init__(self, config: SyncConfig, suspicion: Suspicion) -> None:
        self._config = config
        self._suspicion = suspicion
        self.wish: Wish | None = None
        """The last one, also when it is over."""
        self.is_leaving = False
        """Whether this master has been asked for everything because it is to be taken out: it takes no writes."""
        self._invited_ms: int | None = None

    # ---- wishes

    def add(self, sync: SyncState, node: NodeId, now: Instant) -> Wish:
        """Wish that a node becomes a master. Raises InvalidRequest, NotReady."""
        if node in sync.epoch.configuration.masters:
            return Wish(ADD, node, is_forced=False, moved_ms=now.mono_ms, stage=f"{node} is a master", state=DONE)
        wish = self._begin(sync, Wish(ADD, node, is_forced=False, moved_ms=now.mono_ms, stage=f"{node} is not heard yet"))
        sync.peers.listen_to(node)
        return wish

    def remove(self, sync: SyncState, node: NodeId, now: Instant, *, is_forced: bool = False) -> Wish:
        """Wish that a master is none any more. Raises InvalidRequest, NotReady."""
        if node not in sync.epoch.configuration.masters:
            return Wish(REMOVE, node, is_forced, now.mono_ms, stage=f"{node} is no master", state=DONE)
        if node == sync.node:
            raise InvalidRequest(f"{node} cannot take itself out: ask another master")
        journal = sync.epoch.configuration.journals.get(node, sync.peers.journals.get(node, ""))
        wish = Wish(REMOVE, node, is_forced, now.mono_ms, stage="an epoch is to be decided", journal=journal)
        return self._begin(sync, wish)

    def _begin(self, sync: SyncState, wish: Wish) -> Wish:
        if sync.keeps_sides and (wish.kind == ADD or sync.peers.is_heard(wish.node, wish.moved_ms)):
            raise InvalidRequest(
                f"masters are added and taken out with split-recovery = quorum, now it is {sync.mode}: first brokerha split-recovery quorum, "
                f"and afterwards brokerha split-recovery {sync.mode}; only one that is not heard is taken out without"
            )
        if sync.lost or sync.retired:
            raise NotReady(sync.lost or sync.retired)
        known = self.wish
        if known is not None and known.state == UNDER_WAY:
            if (known.kind, known.node) == (wish.kind, wish.node):
                known.is_forced = known.is_forced or wish.is_forced
                return known
            if not wish.is_forced:
                raise NotReady(f"{known.kind} {known.node} is under way here ({known.stage}): one at a time")
            # What it waits for may be gone for good.
            self._end(sync, FAILED, f"{wish.kind} {wish.node} was forced meanwhile")
        if not sync.epoch.configuration.masters or not identity.is_known(sync):
            raise NotReady(f"{sync.node} does not take part in the cluster yet: ask another master")
        self.wish = wish
        return wish

    # ---- what attempts ask

    def is_due(self, sync: SyncState, mono_ms: int) -> bool:
        """Whether an attempt is to begin for the sake of a wish; one that adds begins when the joiner says so (`Join`)."""
        wish = self.wish
        return wish is not None and wish.kind == REMOVE and not self._obstacle(sync, mono_ms)

    def _obstacle(self, sync: SyncState, mono_ms: int) -> str:
        """Why no change may be begun now; empty when one may. A change that cannot come to anything would hold everybody up."""
        wish, configuration = self.wish, sync.epoch.configuration
        if wish is None or wish.state != UNDER_WAY or wish.is_decided:
            return "there is nothing to change"
        if wish.is_forced:
            return ""
        if wish.tried_ms is not None and mono_ms - wish.tried_ms < self._config.lag_ms:
            return "an epoch is being decided"
        heard = {sync.node, *sync.peers.heard_of([*sync.peers.peers, *sync.peers.outside], mono_ms)}
        if not sync.peers.is_known_before():
            named = ", ".join(configuration.before)
            return f"the change before is not established yet: of {named} too few are heard"
        if sync.keeps_sides and (away := {*configuration.masters}.difference(heard, [wish.node])):
            return f"all other masters are needed, not heard: {', '.join(sorted(away))}"
        if not sync.needs_majority:
            return ""
        after = configuration.after(Change(wish.kind, wish.node, ""))
        for masters in (configuration, after):
            if not masters.is_majority(heard):
                named = ", ".join(sorted({*masters.masters}.difference(heard)))
                return f"{masters.majority} of {len(masters.masters)} masters are needed, not heard: {named}"
        return ""

    @property
    def is_under_way(self) -> bool:
        """Whether a change is wished for, and not over."""
        return self.wish is not None and self.wish.state == UNDER_WAY

    def is_forced(self) -> bool:
        """Whether the wish goes before the majority."""
        return self.wish is not None and self.wish.state == UNDER_WAY and self.wish.is_forced

    def is_welcome(self, sync: SyncState, node: NodeId, mono_ms: int) -> bool:
        """Whether a node that asks to join may bring about an epoch."""
        wish = self.wish
        is_invited = wish is not None and (wish.kind, wish.node) == (ADD, node) and not self._obstacle(sync, mono_ms)
        return is_invited or node not in sync.peers.guests

    def change(self, sync: SyncState, mono_ms: int) -> Change:
        """What the next attempt changes."""
        wish = self.wish
        if wish is None or self._obstacle(sync, mono_ms):
            return NO_CHANGE
        journal = sync.peers.journals.get(wish.node, "")
        if wish.kind == ADD and not (journal and self._suspicion.is_joining(wish.node)):
            return NO_CHANGE
        wish.tried_ms = mono_ms
        return Change(wish.kind, wish.node, journal)

    @staticmethod
    def allowed(change: Change, known: Configuration, own: Configuration, reports: Mapping[NodeId, EpochReport]) -> Change:
        """The change as far as these reports allow it: of the configuration that it was meant for, and with all that it concerns."""
        if known != own:
            return NO_CHANGE
        report = reports.get(change.node)
        if change.kind == ADD:
            return change if report is not None and report.row.journal == change.journal else NO_CHANGE
        return change if report is None or not report.parked_left else NO_CHANGE

    def parked(self, sync: SyncState) -> tuple[tuple[TxId, ...], int]:
        """What a master that is to be taken out has accepted and not stamped, as much as fits into a report; and how many more."""
        if not self.is_leaving:
            return (), 0
        parked = tuple(islice(sync.parked, PARKED_LIMIT))
        return parked, len(sync.parked) - len(parked)

    # ---- what happens

    def on_begin(self, sync: SyncState, epoch: Epoch) -> None:
        """An epoch was installed."""
        self.is_leaving = False
        wish = self.wish
        if wish is None or wish.state != UNDER_WAY:
            return
        named = epoch.configuration.journals.get(wish.node, wish.journal)
        is_there = wish.node in epoch.configuration.masters and (not wish.journal or named == wish.journal)
        if is_there == (wish.kind == ADD):
            wish.is_decided = True
            wish.stage = "what it brings is being synchronised"
        else:
            # Another epoch was decided instead of the one that had it.
            wish.is_decided = False
            if wish.kind == ADD:
                sync.peers.listen_to(wish.node)

    def look(self, sync: SyncState, now: Instant) -> list[Outgoing]:
        """Take note of a turn; returns the invitation when it is due."""
        wish = self.wish
        if wish is None or wish.state != UNDER_WAY:
            return []
        if wish.is_decided:
            # Before a majority is in that epoch another one may still come without it; by force there may be none.
            if wish.is_forced or (sync.recovery.is_over and sync.peers.is_active(sync.journal)):
                self._end(sync, DONE, f"since epoch {sync.epoch.number}")
            return []
        if now.mono_ms - wish.moved_ms >= PATIENCE_MS:
            self._end(sync, FAILED, wish.stage)
            return []
        obstacle = self._obstacle(sync, now.mono_ms)
        if obstacle or wish.kind == REMOVE:
            wish.stage = obstacle or "an epoch is being decided"
        return self._invite(sync, wish, now) if wish.kind == ADD else []

    def _invite(self, sync: SyncState, wish: Wish, now: Instant) -> list[Outgoing]:
        if wish.node in sync.peers.impostors:
            # It was emptied since it was first heard, and has no past with anybody.
            sync.peers.begin_anew(wish.node)
        row = sync.peers.last_row(wish.node)
        if not sync.peers.is_heard(wish.node, now.mono_ms) or row is None:
            wish.stage = f"{wish.node} is not heard: start it, with this cluster's name and masters in its file"
        else:
            seen = row.lsn, self._suspicion.is_joining(wish.node)
            if seen != wish.seen:
                wish.seen, wish.moved_ms = seen, now.mono_ms
            left = max(0, sync.lsn - row.lsn)
            if not self._obstacle(sync, now.mono_ms):
                wish.stage = f"{wish.node} has {left:,} transactions to take over"
        if self._invited_ms is not None and now.mono_ms - self._invited_ms < self._config.idle_round_ms:
            return []
        self._invited_ms = now.mono_ms
        return [Outgoing(wish.node, EpochInstall(sync.epoch))]

    def _end(self, sync: SyncState, state: str, stage: str) -> None:
        assert self.wish is not None
        self.wish.state, self.wish.stage = state, stage
        self._invited_ms = None
        sync.peers.let_go(self.wish.node)

    def deadline_ms(self) -> int | None:
        """When `look` may have something to do."""
        wish = self.wish
        if wish is None or wish.state != UNDER_WAY or wish.is_decided:
            return None
        again_ms = (self._invited_ms or 0) + self._config.idle_round_ms if wish.kind == ADD else wish.moved_ms + PATIENCE_MS
        return min(again_ms, wish.moved_ms + PATIENCE_MS)
