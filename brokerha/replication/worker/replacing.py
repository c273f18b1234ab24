"""How the copy of a worker is replaced: by a snapshot of another one (loading.py), or by what it kept of its own (kept_here.py).

    LoadFrom -> Loading ... OpenLoad ----+
                                         +--> LoadOpened: there is another copy     LoadFailed: the old one, as it was
    Restore  -> KeptHere .. RestoreKept -+

Invariants: one of both at a time; a restore is worth more than a load, which is given up for it, unless it is opening already;
nothing is opened while the store changes the copy.
"""

from __future__ import annotations

from brokerha.following.loading import Loading, Loads
from brokerha.model.ids import Instant, Lsn
from brokerha.model.ready import (
    AbandonLoad,
    ChunkKept,
    CopyDecision,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    RestoreKept,
)
from brokerha.model.wire.messages import LoadFrom, Outgoing
from brokerha.model.wire.split_messages import Restore
from brokerha.replication.worker.config import CopyState
from brokerha.replication.worker.kept_here import KeptHere


class Replacing:
    """Loads and restores of one worker."""

    def __init__(self, loads: Loads, copy: CopyState) -> None:
        self.loads = loads
        self.kept = KeptHere(copy.kept)
        self.last = copy.note
        """What became of the last one, or of the copy that was here before; for the status."""
        self._decisions: list[CopyDecision] = []

    @property
    def loading(self) -> Loading | None:
        """The load that is under way."""
        return self.loads.current

    def on_load_from(self, order: LoadFrom, now: Instant) -> bool:
        """The master names sources; returns whether a load begins."""
        if self.kept.is_restoring or self.loads.is_under_way:
            return False
        self.loads.begin(order.sources, now)
        return True

    def on_restore(self, order: Restore, lineage: int, applied: Lsn) -> bool:
        """What this copy holds is void from somewhere on: returns whether the one that is kept takes its place."""
        if self.loads.is_opening or not self.kept.begin_restore(order, lineage, applied):
            return False
        if self.loads.current is not None:
            self._decisions.append(AbandonLoad())
            self.loads.stop()
        return True

    def on_answer(self, answer: LoadBegun | ChunkKept | LoadFailed, now: Instant) -> str:
        """The disk answers; returns why nothing comes of it at all, or empty."""
        if isinstance(answer, LoadFailed) and self.kept.is_restoring:
            self.loads.is_opening = False
            self.kept.on_failed()
            self.last = f"what was kept could not be restored: {answer.reason}"
            return self.last
        self.loads.on_answer(answer, now)
        return ""

    def on_opened(self, opened: LoadOpened) -> list[Outgoing]:
        """There is another copy, whatever was decided meanwhile; returns what its source has to know."""
        self.last = f"{'restored' if self.kept.is_restoring else 'loaded'} LSN {opened.applied_lsn}"
        return self.loads.on_opened()

    def take(self, now: Instant, *, is_free: bool) -> tuple[list[Outgoing], list[CopyDecision], str]:
        """What is to be sent and done now, and why a load comes to nothing; ``is_free`` says that the store does nothing."""
        messages, wanted, failures = self.loads.take(now) if is_free else ([], [], "")
        decisions, self._decisions = [*self._decisions, *wanted], []
        if failures:
            self.last = failures
        decisions += self.kept.take(may_restore=is_free)
        self.loads.is_opening |= any(isinstance(each, RestoreKept) for each in decisions)
        return messages, decisions, f"no source gave a snapshot ({failures})" if failures else ""
