"""Choosing the strategy of split recovery while the cluster runs (rules R13 and R19).

    choose(smart) --(all masters are heard, and nothing is frozen)--> an epoch of all masters that says `mode = smart`
                  --(every one of them is heard in that epoch)--> done

    from quorum, or to it: an epoch of all masters that says `mode = to-smart`
                  --(every one of them is heard in that epoch)--> the proposer of that epoch, unasked: an epoch with `mode = smart`

The strategy is a part of the epoch: it is durable with it and changes with it. The master that an operator asks notes the wish, and
forgets it when its process ends. Until the epoch is decided nothing has happened, and the operator asks again.

An epoch without a wish repeats the strategy of the latest of its reporters' epochs. If that named none the files count; if these
differ, the epoch names the strategy of one file, so that all follow the same from then on.

Must never: put a strategy in force before every master durably has the step before it. Quorum and the other strategies have
different rules of agreement, so masters must not follow both at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from brokerha.model.epochs import Epoch
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant, NodeId
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.sync.config import SyncConfig
from brokerha.sync.membership import DONE, FAILED, PATIENCE_MS, UNDER_WAY
from brokerha.sync.modes import JOINT, SPLIT_RECOVERY, step_to
from brokerha.sync.state import SyncState


@dataclass(slots=True)
class Choice:
    """The wish of an operator, and its result."""

    mode: str
    began_ms: int
    stage: str
    """Reason why it waits, for people."""
    state: str = UNDER_WAY
    is_decided: bool = False
    """Whether the present epoch has the strategy."""


class Choosing:
    """Wishes at one master; see the head of the module."""

    def __init__(self, config: SyncConfig) -> None:
        self._config = config
        self.choice: Choice | None = None
        """The last choice, also when it is over."""
        self._leads_to = ""
        """The strategy after the step in force, if this master is the one that continues from that step."""
        self._tried_ms: int | None = None
        """Time when the last attempt for these began."""

    def choose(self, sync: SyncState, wanted: str, now: Instant) -> Choice:
        """Wish for a strategy; one that is in force everywhere is done at once. Raises InvalidRequest, NotReady."""
        mode = wanted.lower()
        if mode not in SPLIT_RECOVERY:
            raise InvalidRequest(f"split-recovery = {mode!r} is not known: write one of {', '.join(SPLIT_RECOVERY)}")
        if sync.mode == mode and not differing(sync):
            return Choice(mode, now.mono_ms, f"{mode} is in force", state=DONE)
        known = self.choice
        if known is not None and known.state == UNDER_WAY:
            if known.mode == mode:
                return known
            raise NotReady(f"{known.mode} is being put in force here ({known.stage}): one after the other")
        if reason := obstacle(sync, now.mono_ms):
            raise NotReady(f"refused during a split: {reason}; {sync.mode} stays in force")
        self.choice = Choice(mode, now.mono_ms, "an epoch is to be decided")
        return self.choice

    @property
    def is_under_way(self) -> bool:
        """Tell whether a wish is under way, or a step is in force from which this master continues."""
        return bool(self._leads_to) or (self.choice is not None and self.choice.state == UNDER_WAY)

    def _wanted(self) -> str:
        """Return the strategy to put in force next, or to come nearer to; empty for none."""
        choice = self.choice
        is_wished = choice is not None and choice.state == UNDER_WAY and not choice.is_decided
        return choice.mode if choice is not None and is_wished else self._leads_to

    # ---- questions of attempts

    def is_due(self, sync: SyncState, mono_ms: int) -> bool:
        """Tell whether an attempt has to begin for a wish."""
        is_tried = self._tried_ms is not None and mono_ms - self._tried_ms < self._config.lag_ms
        return bool(self._wanted()) and not is_tried and not obstacle(sync, mono_ms)

    def mode(self, sync: SyncState, mono_ms: int) -> str:
        """Return the strategy that the attempt beginning now puts in force; empty for no change."""
        if not self.is_due(sync, mono_ms):
            return ""
        self._tried_ms = mono_ms
        return step_to(sync.mode, self._wanted())

    # ---- events

    def on_begin(self, epoch: Epoch) -> None:
        """Note that an epoch was installed."""
        self._tried_ms = None
        if self.choice is not None and self.choice.state == UNDER_WAY:
            self.choice.is_decided = epoch.mode == self.choice.mode

    def look(self, sync: SyncState, now: Instant) -> None:
        """Take note of a turn."""
        self._leads_to = JOINT.get(sync.mode, "") if sync.epoch.proposer == sync.node else ""
        choice = self.choice
        if choice is None or choice.state != UNDER_WAY:
            return
        if choice.is_decided and sync.is_whole():
            choice.state, choice.stage = DONE, f"since epoch {sync.epoch.number}"
        elif now.mono_ms - choice.began_ms >= PATIENCE_MS:
            choice.state = FAILED
        else:
            reason = obstacle(sync, now.mono_ms)
            is_nearer = JOINT.get(sync.epoch.mode) == choice.mode
            done = "an epoch is being decided"
            if choice.is_decided or is_nearer:
                done = f"epoch {sync.epoch.number} has {sync.epoch.mode}"
            choice.stage = f"{done}: {reason}" if reason else done

    def deadline_ms(self) -> int | None:
        """Return when `look` or `is_due` may have work though nothing happened."""
        if not self.is_under_way:
            return None
        again_ms = self._tried_ms + self._config.lag_ms if self._tried_ms is not None else None
        end_ms = self.choice.began_ms + PATIENCE_MS if self.choice is not None and self.choice.state == UNDER_WAY else None
        return min((at for at in (again_ms, end_ms) if at is not None), default=None)


def obstacle(sync: SyncState, mono_ms: int) -> str:
    """Return why nothing can be chosen now, with the names of the masters; empty when all masters are there."""
    epoch, peers = sync.epoch, sync.peers
    masters = epoch.configuration.masters
    others = [node for node in masters if node != sync.node]
    if not peers.is_known_before():
        return (
            f"the last change of the masters is not established yet: of {', '.join(epoch.configuration.before)} too few are heard"
        )
    if silent := [node for node in others if not peers.is_heard(node, mono_ms)]:
        return f"not heard: {', '.join(silent)}"
    if left := sorted({*masters}.difference(epoch.members)):
        return f"epoch {epoch.number} is without {', '.join(left)}"
    if sync.is_frozen():
        return f"epoch {sync.promised[0]} is being agreed on"
    # With quorum each place is a promise: all masters must have it durably before any side can give places by itself.
    end = epoch.base_lsn + len(epoch.recovered) if epoch.mode in JOINT else 0
    if sync.lsn < end:
        return f"{end - sync.lsn:,} transactions from before epoch {epoch.number} are being synchronised"
    for node in others:
        row = peers.peers[node].row
        if row is None:
            return f"{node} is not in epoch {epoch.number} yet"
        if row.lsn < end:
            return f"{node} lacks {end - row.lsn:,} transactions from before epoch {epoch.number}"
        if deaf := sorted({*others}.difference([node, *row.heard])):
            return f"{node} does not hear {', '.join(deaf)}"
    return ""


def files(sync: SyncState) -> dict[NodeId, str]:
    """Return the strategy in the file of each master that was heard."""
    said = {sync.node: sync.config.split_recovery}
    for node in sync.epoch.configuration.masters:
        row = sync.peers.last_row(node) if node != sync.node else None
        if row is not None:
            said[node] = row.file or row.mode
    return dict(sorted(said.items()))


def differing(sync: SyncState) -> dict[NodeId, str]:
    """Return masters that follow another strategy than this one, because no epoch names one and their files differ."""
    return {} if sync.epoch.mode else {node: mode for node, mode in files(sync).items() if mode != sync.mode}


def allowed(sync: SyncState, mode: str, reports: Mapping[NodeId, EpochReport]) -> str:
    """Return the wished strategy if all masters of this epoch have reported; else an empty string."""
    are_all = {*reports} == {*sync.epoch.configuration.masters}
    return mode if are_all and all(report.row.epoch == sync.epoch.id for report in reports.values()) else ""


def mode_of(reports: Collection[EpochReport]) -> tuple[str, str]:
    """Return (strategy by which the reporters come together, strategy that their next epoch names without a wish)."""
    latest = max(report.row.epoch for report in reports)
    if mode := next(report.mode for report in reports if report.row.epoch == latest):
        return mode, mode
    first = min((r for r in reports if r.row.epoch == latest), key=lambda report: report.row.node)
    are_alike = len({report.row.mode for report in reports}) == 1
    return first.row.mode, "" if are_alike else first.row.mode
