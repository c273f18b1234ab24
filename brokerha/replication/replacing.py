"""How the copy of a worker is replaced: by a snapshot of another one (loading.py), or by what it kept of its own (kept_here.py).

    LoadFrom -> Loading ... OpenLoad ----+
                                         +--> LoadOpened: there is another copy     LoadFailed: the old one, as it was
    Restore  -> KeptHere .. RestoreKept -+

Invariants: one of both at a time; a restore is worth more than a load, which is given up for it, unless it is opening already;
nothing is opened while the store changes the copy.
"""

from __future__ import annotations

from brokerha.model.ids import Instant, Lsn
from brokerha.model.messages import Chunk, LoadFrom, Outgoing, SnapshotOffered
from brokerha.model.ready import (
    AbandonLoad,
    ChunkKept,
    CopyDecision,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    OpenLoad,
    RestoreKept,
)
from brokerha.model.split_messages import Restore
from brokerha.replication.kept_here import KeptHere
from brokerha.replication.loading import Loading, Phase, new_request
from brokerha.replication.worker_config import CopyState, WorkerConfig


class Replacing:
    """Loads and restores of one worker."""

    def __init__(self, config: WorkerConfig, copy: CopyState) -> None:
        self.config = config
        self.loading: Loading | None = None
        self.kept = KeptHere(copy.kept)
        self.last = copy.note
        """What became of the last one, or of the copy that was here before; for the status."""
        self.is_opening = False
        self._pending_load = copy.pending_load
        self._decisions: list[CopyDecision] = []

    def on_load_from(self, order: LoadFrom, now: Instant) -> bool:
        """The master names sources; returns whether a load begins."""
        if self.kept.is_restoring or (self.loading is not None and self.loading.phase is not Phase.FAILED):
            return False
        request = self._pending_load or new_request(self.config.node, now)
        self.loading = Loading(self.config.load, order.sources, request, now)
        return True

    def on_restore(self, order: Restore, lineage: int, applied: Lsn) -> bool:
        """What this copy holds is void from somewhere on: returns whether the one that is kept takes its place."""
        if self.is_opening or not self.kept.begin_restore(order, lineage, applied):
            return False
        if self.loading is not None:
            self._decisions.append(AbandonLoad())
            self.loading, self._pending_load = None, ""
        return True

    def on_message(self, sender: str, message: SnapshotOffered | Chunk, now: Instant) -> None:
        """A source says something."""
        if self.loading is None:
            return
        if isinstance(message, Chunk):
            self.loading.on_chunk(sender, message, now)
        else:
            self.loading.on_offered(sender, message, now)

    def on_answer(self, answer: LoadBegun | ChunkKept | LoadFailed, now: Instant) -> str:
        """The disk answers; returns why nothing comes of it at all, or empty."""
        if not isinstance(answer, LoadFailed):
            if self.loading is not None:
                self.loading.on_answer(answer, now)
            return ""
        self.is_opening = False
        if self.kept.is_restoring:
            self.kept.on_failed()
            self.last = f"what was kept could not be restored: {answer.reason}"
            return self.last
        if self.loading is not None:
            self.loading.on_answer(answer, now)
        return ""

    def on_opened(self, opened: LoadOpened) -> list[Outgoing]:
        """There is another copy, whatever was decided meanwhile; returns what its source has to know."""
        self.is_opening = False
        self._pending_load = ""
        self.last = f"{'restored' if self.kept.is_restoring else 'loaded'} LSN {opened.applied_lsn}"
        return self.loading.farewell() if self.loading is not None else []

    def stop(self) -> None:
        """It is over, one way or the other."""
        self.loading = None
        self.kept.stop()

    def take(self, now: Instant, *, is_free: bool) -> tuple[list[Outgoing], list[CopyDecision], str]:
        """What is to be sent and done now, and why a load comes to nothing; ``is_free`` says that the store does nothing."""
        messages: list[Outgoing] = []
        decisions, self._decisions = self._decisions, []
        failure = ""
        if self.loading is not None and is_free:
            messages, wanted = self.loading.take(now)
            decisions += wanted
            if self.loading.phase is Phase.FAILED:
                self.last = "; ".join(self.loading.failures)
                failure = f"no source gave a snapshot ({self.last})"
                self._pending_load = ""
        decisions += self.kept.take(may_restore=is_free)
        self.is_opening = self.is_opening or any(isinstance(each, OpenLoad | RestoreKept) for each in decisions)
        return messages, decisions, failure

    def deadline_ms(self) -> int | None:
        """When something has to be asked again."""
        return self.loading.deadline_ms() if self.loading is not None else None
