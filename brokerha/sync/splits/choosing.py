"""Choosing what becomes of a split, while the cluster runs (rules R13 and R19).

    choose(smart) --(all masters are heard, and nothing is frozen)--> an epoch of all masters that says `mode = smart`
                  --(every one of them is heard in that epoch)--> done

    from quorum, or to it: an epoch of all masters that says `mode = to-smart`
                  --(every one of them is heard in that epoch)--> the proposer of that epoch, by itself: an epoch that says `mode = smart`

The strategy is a part of the epoch, so it is durable with it, and changes where everything else changes. A wish is noted by the master that
was asked, and is forgotten when its process ends: until the epoch is decided nothing has happened, and who wishes says so again.

An epoch that nobody wished anything for says what the latest of its reporters' epochs said. Where that said nothing the files count; if
these differ, the epoch says what the file of one of them says, so that all follow the same from then on.

Must never: put a strategy in force before every master has the step before it durably. By quorum and by the others the rules of agreement
differ, so no two masters may follow both.
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
    """What an operator wants, and what became of it."""

    mode: str
    began_ms: int
    stage: str
    """What it waits for, for people."""
    state: str = UNDER_WAY
    is_decided: bool = False
    """Whether the present epoch has it."""


class Choosing:
    """Wishes at one master; see the head of the module."""

    def __init__(self, config: SyncConfig) -> None:
        self._config = config
        self.choice: Choice | None = None
        """The last one, also when it is over."""
        self._leads_to = ""
        """Where the step leads that is in force, when this master is the one that goes on from it."""
        self._tried_ms: int | None = None
        """When an attempt last began for any of these."""

    def choose(self, sync: SyncState, wanted: str, now: Instant) -> Choice:
        """Wish for a strategy; what is in force everywhere is done at once. Raises InvalidRequest, NotReady."""
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
        """Whether something is wished for, and not over, or a step is in force that this master goes on from."""
        return bool(self._leads_to) or (self.choice is not None and self.choice.state == UNDER_WAY)

    def _wanted(self) -> str:
        """The strategy to put in force next, or to come nearer to; empty for none."""
        choice = self.choice
        is_wished = choice is not None and choice.state == UNDER_WAY and not choice.is_decided
        return choice.mode if choice is not None and is_wished else self._leads_to

    # ---- what attempts ask

    def is_due(self, sync: SyncState, mono_ms: int) -> bool:
        """Whether an attempt is to begin for the sake of a wish."""
        is_tried = self._tried_ms is not None and mono_ms - self._tried_ms < self._config.lag_ms
        return bool(self._wanted()) and not is_tried and not obstacle(sync, mono_ms)

    def mode(self, sync: SyncState, mono_ms: int) -> str:
        """What the attempt that begins now is to put in force; empty for nothing new."""
        if not self.is_due(sync, mono_ms):
            return ""
        self._tried_ms = mono_ms
        return step_to(sync.mode, self._wanted())

    # ---- what happens

    def on_begin(self, epoch: Epoch) -> None:
        """An epoch was installed."""
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
        """When `look` or `is_due` may have something new to say though nothing happened."""
        if not self.is_under_way:
            return None
        again_ms = self._tried_ms + self._config.lag_ms if self._tried_ms is not None else None
        end_ms = self.choice.began_ms + PATIENCE_MS if self.choice is not None and self.choice.state == UNDER_WAY else None
        return min((at for at in (again_ms, end_ms) if at is not None), default=None)


def obstacle(sync: SyncState, mono_ms: int) -> str:
    """Why nothing can be chosen now, with the names of the masters; empty when every one is there."""
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
    # What quorum promised a place is at all masters, durably, before any side may give a place by itself.
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
    """What the file of each master says, as far as it was heard of."""
    said = {sync.node: sync.config.split_recovery}
    for node in sync.epoch.configuration.masters:
        row = sync.peers.last_row(node) if node != sync.node else None
        if row is not None:
            said[node] = row.file or row.mode
    return dict(sorted(said.items()))


def differing(sync: SyncState) -> dict[NodeId, str]:
    """Masters that follow another strategy than this one, because no epoch says anything and their files say something else."""
    return {} if sync.epoch.mode else {node: mode for node, mode in files(sync).items() if mode != sync.mode}


def allowed(sync: SyncState, mode: str, reports: Mapping[NodeId, EpochReport]) -> str:
    """What was wished for, if all masters have reported, of this epoch; else nothing."""
    are_all = {*reports} == {*sync.epoch.configuration.masters}
    return mode if are_all and all(report.row.epoch == sync.epoch.id for report in reports.values()) else ""


def mode_of(reports: Collection[EpochReport]) -> tuple[str, str]:
    """(strategy by which those who report come together, what their next epoch says of it when nobody wishes anything)."""
    latest = max(report.row.epoch for report in reports)
    if mode := next(report.mode for report in reports if report.row.epoch == latest):
        return mode, mode
    first = min((r for r in reports if r.row.epoch == latest), key=lambda report: report.row.node)
    are_alike = len({report.row.mode for report in reports}) == 1
    return first.row.mode, "" if are_alike else first.row.mode
