"""Changing the masters of the cluster, one master at a time (rule R15).

    add m4      invited --(m4 is blank: joiner)--> reads --(Join)--> an epoch that names m4 and its journal
    remove m3   an epoch without m3, decided by a majority of the masters before --> m3 is told (Notice)

The master that an operator asks notes the wish, and forgets it when its process ends. Until the epoch is decided nothing has
happened, and the operator asks again. The configuration is a part of the epoch and changes with it, so epochs handle a crash in
between.

An epoch changes the configuration by one master only. A majority of the masters before decides it, and a majority of those after
takes it over; any two such majorities meet. But two epochs may change the same masters in different ways, and majorities of their
results need not meet. So until a change is **established** the masters before it count as well. No entry is added and no epoch
decided on top of it without a majority of them, or so many that the others are none. Then the next change can begin.

Must never: begin a change while the last one is not established, unless an operator forces it: the majority is gone for good.
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
"""A wish without progress for so long has failed."""
PARKED_LIMIT = 20_000
"""Transactions without a place that a report can have beside those with one."""
DONE, FAILED, UNDER_WAY = "done", "failed", "under way"


@dataclass(slots=True)
class Wish:
    """The wish of an operator, and its result."""

    kind: str
    """`ADD` or `REMOVE`."""
    node: NodeId
    is_forced: bool
    moved_ms: int
    """Time of the last progress."""
    stage: str
    """Reason why it waits, for people."""
    journal: str = ""
    """Journal of a master to take out, as far as it is known: one that came back with another journal since is not meant."""
    state: str = UNDER_WAY
    tried_ms: int | None = None
    """Time when the last attempt for it began."""
    seen: tuple[Lsn, bool] = (0, False)
    """(length of the queue of the node to add, whether it has asked to join), at the last look."""
    is_decided: bool = False
    """Whether the present epoch has the change; its recovered list has the entries that only the removed master held."""


class Membership:
    """Wishes at one master; see the head of the module."""

    def __init__(self, config: SyncConfig, suspicion: Suspicion) -> None:
        self._config = config
        self._suspicion = suspicion
        self.wish: Wish | None = None
        """The last wish, also when it is over."""
        self.is_leaving = False
        """Whether this master reports all its transactions because it is to be taken out: it takes no writes."""
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
        """Wish that a master leaves the cluster. Raises InvalidRequest, NotReady."""
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
            # The older wish may wait for a master that is gone for good.
            self._end(sync, FAILED, f"{wish.kind} {wish.node} was forced meanwhile")
        if not sync.epoch.configuration.masters or not identity.is_known(sync):
            raise NotReady(f"{sync.node} does not take part in the cluster yet: ask another master")
        self.wish = wish
        return wish

    # ---- questions of attempts

    def is_due(self, sync: SyncState, mono_ms: int) -> bool:
        """Tell whether an attempt has to begin for a wish; one that adds begins when the joiner asks (`Join`)."""
        wish = self.wish
        return wish is not None and wish.kind == REMOVE and not self._obstacle(sync, mono_ms)

    def _obstacle(self, sync: SyncState, mono_ms: int) -> str:
        """Return why no change can begin now, or an empty string. A change without a chance would delay all members."""
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
        """Tell whether a wish is under way."""
        return self.wish is not None and self.wish.state == UNDER_WAY

    def is_forced(self) -> bool:
        """Tell whether the wish overrides the majority."""
        return self.wish is not None and self.wish.state == UNDER_WAY and self.wish.is_forced

    def is_welcome(self, sync: SyncState, node: NodeId, mono_ms: int) -> bool:
        """Tell whether a Join of this node can lead to an epoch."""
        wish = self.wish
        is_invited = wish is not None and (wish.kind, wish.node) == (ADD, node) and not self._obstacle(sync, mono_ms)
        return is_invited or node not in sync.peers.guests

    def change(self, sync: SyncState, mono_ms: int) -> Change:
        """Return the change of the next attempt."""
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
        """Return the change if these reports allow it: they have the configuration that it was meant for, and all that it needs."""
        if known != own:
            return NO_CHANGE
        report = reports.get(change.node)
        if change.kind == ADD:
            return change if report is not None and report.row.journal == change.journal else NO_CHANGE
        return change if report is None or not report.parked_left else NO_CHANGE

    def parked(self, sync: SyncState) -> tuple[tuple[TxId, ...], int]:
        """Return accepted, unstamped transactions of a leaving master, as many as fit into a report, and the number of others."""
        if not self.is_leaving:
            return (), 0
        parked = tuple(islice(sync.parked, PARKED_LIMIT))
        return parked, len(sync.parked) - len(parked)

    # ---- events

    def on_begin(self, sync: SyncState, epoch: Epoch) -> None:
        """Note that an epoch was installed."""
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
            # Another epoch was decided instead of the one with the change.
            wish.is_decided = False
            if wish.kind == ADD:
                sync.peers.listen_to(wish.node)

    def look(self, sync: SyncState, now: Instant) -> list[Outgoing]:
        """Take note of a turn; return the invitation when it is due."""
        wish = self.wish
        if wish is None or wish.state != UNDER_WAY:
            return []
        if wish.is_decided:
            # Before a majority is in that epoch, another one may come without the change; a forced one may have no majority.
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
            # It was emptied since it was first heard, and has no past with any master.
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
        """Return when `look` may have work."""
        wish = self.wish
        if wish is None or wish.state != UNDER_WAY or wish.is_decided:
            return None
        again_ms = (self._invited_ms or 0) + self._config.idle_round_ms if wish.kind == ADD else wish.moved_ms + PATIENCE_MS
        return min(again_ms, wish.moved_ms + PATIENCE_MS)
