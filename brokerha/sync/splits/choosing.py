"""Choosing what becomes of a split, while the cluster runs: none, simple and smart among each other (rule R13).

    choose(smart) --(all masters are heard, and nothing is frozen)--> an epoch of all masters that says `mode = smart`
                  --(every one of them is heard in that epoch)--> done

The strategy is a part of the epoch, so it is durable with it, and changes where everything else changes. A wish is noted by the master that
was asked, and is forgotten when its process ends: until the epoch is decided nothing has happened, and who wishes says so again.

An epoch that nobody wished anything for says what the latest of its reporters' epochs said. Where none said anything the files count; if
these differ, the epoch says what the file of one of them says, so that all follow the same from then on.

Must never: choose between a strategy and quorum. By these the rules of agreement differ, so no two masters may follow different ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from brokerha.model.epochs import Epoch
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant, NodeId
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.sync.config import SPLIT_RECOVERY, SyncConfig
from brokerha.sync.membership import DONE, FAILED, PATIENCE_MS, UNDER_WAY
from brokerha.sync.state import SyncState

QUORUM = "quorum"
MODES = tuple(mode for mode in SPLIT_RECOVERY if mode != QUORUM)
"""Those that may be chosen."""


@dataclass(slots=True)
class Choice:
    """What an operator wants, and what became of it."""

    mode: str
    began_ms: int
    stage: str
    """What it waits for, for people."""
    state: str = UNDER_WAY
    tried_ms: int | None = None
    """When an attempt last began for it."""
    is_decided: bool = False
    """Whether the present epoch has it."""


class Choosing:
    """Wishes at one master; see the head of the module."""

    def __init__(self, config: SyncConfig) -> None:
        self._config = config
        self.choice: Choice | None = None
        """The last one, also when it is over."""

    def choose(self, sync: SyncState, wanted: str, now: Instant) -> Choice:
        """Wish for a strategy; what is in force everywhere is done at once. Raises InvalidRequest, NotReady."""
        mode = self._allowed(sync, wanted.lower())
        if self._config.is_quorum or (sync.mode == mode and not differing(sync)):
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

    def _allowed(self, sync: SyncState, mode: str) -> str:
        """The strategy, if a command may put it in force."""
        if mode not in SPLIT_RECOVERY:
            raise InvalidRequest(f"split-recovery = {mode!r} is not known: write one of {', '.join(SPLIT_RECOVERY)}")
        if (mode == QUORUM) != self._config.is_quorum:
            raise InvalidRequest(
                f"between quorum and the others no command leads, as the masters would agree by two rules: stop all masters, write "
                f'split-recovery = "{mode}" into the files of all of them, and start them all; now it is {sync.mode}'
            )
        return mode

    @property
    def is_under_way(self) -> bool:
        """Whether something is wished for, and not over."""
        return self.choice is not None and self.choice.state == UNDER_WAY

    # ---- what attempts ask

    def is_due(self, sync: SyncState, mono_ms: int) -> bool:
        """Whether an attempt is to begin for the sake of a wish."""
        choice = self.choice
        if choice is None or choice.state != UNDER_WAY or choice.is_decided:
            return False
        is_tried = choice.tried_ms is not None and mono_ms - choice.tried_ms < self._config.lag_ms
        return not is_tried and not obstacle(sync, mono_ms)

    def mode(self, sync: SyncState, mono_ms: int) -> str:
        """What the attempt that begins now is to put in force; empty for nothing new."""
        choice = self.choice
        if choice is None or not self.is_due(sync, mono_ms):
            return ""
        choice.tried_ms = mono_ms
        return choice.mode

    # ---- what happens

    def on_begin(self, epoch: Epoch) -> None:
        """An epoch was installed."""
        if self.choice is not None and self.choice.state == UNDER_WAY:
            self.choice.is_decided = epoch.mode == self.choice.mode

    def look(self, sync: SyncState, now: Instant) -> None:
        """Take note of a turn."""
        choice = self.choice
        if choice is None or choice.state != UNDER_WAY:
            return
        if choice.is_decided and sync.is_whole():
            choice.state, choice.stage = DONE, f"since epoch {sync.epoch.number}"
        elif now.mono_ms - choice.began_ms >= PATIENCE_MS:
            choice.state = FAILED
        else:
            reason = obstacle(sync, now.mono_ms)
            done = f"epoch {sync.epoch.number} has it" if choice.is_decided else "an epoch is being decided"
            choice.stage = f"{done}: {reason}" if reason else done

    def deadline_ms(self) -> int | None:
        """When `look` or `is_due` may have something new to say though nothing happened."""
        choice = self.choice
        if choice is None or choice.state != UNDER_WAY:
            return None
        end_ms = choice.began_ms + PATIENCE_MS
        if choice.is_decided or choice.tried_ms is None:
            return end_ms
        return min(end_ms, choice.tried_ms + self._config.lag_ms)


def obstacle(sync: SyncState, mono_ms: int) -> str:
    """Why nothing can be chosen now, with the names of the masters; empty when every one is there."""
    epoch, peers = sync.epoch, sync.peers
    masters = epoch.configuration.masters
    others = [node for node in masters if node != sync.node]
    if silent := [node for node in others if not peers.is_heard(node, mono_ms)]:
        return f"not heard: {', '.join(silent)}"
    if left := sorted({*masters}.difference(epoch.members)):
        return f"epoch {epoch.number} is without {', '.join(left)}"
    if sync.is_frozen():
        return f"epoch {sync.promised[0]} is being agreed on"
    for node in others:
        row = peers.peers[node].row
        if row is None:
            return f"{node} is not in epoch {epoch.number} yet"
        if deaf := sorted({*others}.difference([node, *row.heard])):
            return f"{node} does not hear {', '.join(deaf)}"
    return ""


def files(sync: SyncState) -> dict[NodeId, str]:
    """What the file of each master says, as far as it was heard of."""
    said = {sync.node: sync.config.split_recovery}
    for node in sync.epoch.configuration.masters:
        row = sync.peers.last_row(node) if node != sync.node else None
        if row is not None:
            said[node] = row.mode or QUORUM
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
    chosen = [report for report in reports if report.mode]
    if chosen:
        mode = max(chosen, key=lambda report: report.row.epoch).mode
        return mode, mode
    latest = max(report.row.epoch for report in reports)
    first = min((r for r in reports if r.row.epoch == latest), key=lambda report: report.row.node)
    are_alike = len({report.row.mode for report in reports}) == 1
    return first.row.mode, "" if are_alike else first.row.mode
