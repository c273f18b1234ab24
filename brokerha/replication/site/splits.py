"""What splits of the cluster mean for the copies of one site: which are void, what could be restored, and what is to be kept.

    rewind -> lineages.py: which log a copy followed, and up to where that is the log of now
    keep   -> keeping.py:  one worker keeps a copy over a split

A copy is **void** when it holds what was taken back. What a worker keeps is **usable** when nothing of it was, and the log reaches
back to it.
"""

from __future__ import annotations

from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.records import History
from brokerha.model.wire.messages import Coin, Outgoing
from brokerha.model.wire.split_messages import Restore
from brokerha.replication.site.config import FeedConfig, WorkerFeed
from brokerha.replication.site.keeping import Keeping
from brokerha.replication.site.lineages import Lineages, Rewind

NO_CONTENT: tuple[Lsn, str] = (-1, "")
"""Nothing is on its way into the log: what is said at any LSN, 0 as well, is in it."""


class Splits:
    """Lineages and kept copies of one site."""

    def __init__(self, config: FeedConfig, history: History, rewinds: tuple[Rewind, ...]) -> None:
        self.history = history
        self.lineages = Lineages(rewinds)
        self.keeping = Keeping(config)
        self.content = NO_CONTENT
        """LSN to which the log went back last while the site kept its content, and the fingerprint of that; it is on its way into the log."""

    def void(self, worker: WorkerFeed) -> str:
        """Why its copy followed another log than that of now; empty when it did not."""
        progress = worker.progress
        if progress is None:
            return ""
        return self.lineages.problem(progress.lineage, progress.applied_lsn, worker.vouched_lsn)

    def may_move(self, worker: WorkerFeed) -> bool:
        """Whether its copy is void and has the content that the log has where it is not: it stands there, under another LSN."""
        progress = worker.progress
        return progress is not None and bool(self.void(worker)) and progress.fingerprint == self._content(worker) != ""

    def _content(self, worker: WorkerFeed) -> str:
        agreed = self._agreed(worker)
        return self.content[1] if self.content[0] == agreed else text_of(self.history.fingerprint_at(agreed))

    def is_usable(self, worker: WorkerFeed) -> bool:
        """Whether what it keeps is the beginning of the log of now, and the log reaches back to it."""
        lsn = worker.kept_lsn
        is_reached = lsn + 1 >= self.history.results_from()
        return lsn >= 0 and is_reached and not self.lineages.problem(worker.kept_lineage, lsn)

    def may_restore(self, worker: WorkerFeed) -> bool:
        """Whether its copy is void and what it keeps is not."""
        return worker.lineage < self.lineages.number and bool(self.void(worker)) and self.is_usable(worker)

    def restore(self, worker: WorkerFeed, view: int, reason: str) -> Restore:
        """The order to a worker that may restore."""
        return Restore(view, worker.kept_number, self.lineages.number, self._agreed(worker), reason)

    def coin(self, worker: WorkerFeed, view: int, sources: tuple[NodeId, ...]) -> Coin:
        """The order to follow the log of now."""
        fingerprint = self._content(worker) if self.may_move(worker) else ""
        return Coin(view, sources, worker.forgiven_lsn, self.lineages.number, self._agreed(worker), fingerprint)

    def _agreed(self, worker: WorkerFeed) -> Lsn:
        """Up to where it may be to go over to the lineage of now; 0 when it is of that one."""
        agreed = self.lineages.agreed(worker.lineage)
        return max(agreed, worker.vouched_lsn) if agreed is not None else 0

    def kept(self, workers: list[WorkerFeed]) -> dict[NodeId, Lsn]:
        """Which of them keep a copy that counts, and its LSN."""
        return self.keeping.holders(workers, self.is_usable)

    def orders(self, alive: list[WorkerFeed], view: int, mono_ms: int) -> list[Outgoing]:
        """Orders to keep and to drop."""
        return self.keeping.orders(alive, self.is_usable, view, mono_ms)
