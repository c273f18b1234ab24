"""Splits: which copies are void when the log goes back, what is kept and restored.

    rewind -> lineages.py: which log a copy followed, and up to where that is the present log
    keep   -> below:        one worker keeps a copy over a split

A copy is **void** when it holds entries that were taken back. A kept copy is **usable** when it holds none, and the log reaches
back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerha.following.leader import NEVER
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.log_lineages import Rewinds
from brokerha.model.records import History
from brokerha.model.wire.messages import Coin, Keep, Outgoing, Restore
from brokerha.replication.site.config import FeedConfig, WorkerFeed
from brokerha.replication.site.lineages import Lineages

NO_CONTENT: tuple[Lsn, str] = (-1, "")
"""No content is on its way into the log, which tells the content of each LSN, also of 0."""


class Keeping:
    """The copies that the workers of one site have to keep.

    A master has one of its workers keep a copy of its content over a split (replication, section 5).

        keep(now)  -> Keep to one worker in sync ... Progress says that it keeps it     or: it died, or could not: the next one
        drop(now)  -> Keep (not wanted) to every worker with a kept copy

    No single message is essential: orders are repeated until the worker's messages show that they are followed. A master that has
    just started gives none before it is told to keep or to drop, because it does not know whether a split is under way. A copy that
    was kept before it started counts, as long as it can be restored.
    """

    def __init__(self, config: FeedConfig) -> None:
        self.config = config
        self.is_wanted: bool | None = None
        """None before the first `keep` or `drop`."""
        self._number = 0
        """Number of the last order."""
        self._dropped = 0
        """Copies kept by this number or a lower one do not count."""
        self._chosen: NodeId = ""
        self._ordered_ms: dict[NodeId, int] = {}
        self._tried: list[NodeId] = []
        """Workers that were chosen already, in this order."""

    def keep(self, now: Instant) -> None:
        """Have one worker keep a copy from now on. Idempotent."""
        if not self.is_wanted:
            self.is_wanted = True
            self._number = max(self._number + 1, now.wall_us)
            self._forget_orders()

    def drop(self, now: Instant) -> None:
        """Have no worker keep a copy from now on. Idempotent."""
        if self.is_wanted is not False:
            self.is_wanted = False
            self._number = self._dropped = max(self._number + 1, now.wall_us)
            self._forget_orders()

    def holders(self, workers: Iterable[WorkerFeed], is_usable: Callable[[WorkerFeed], bool]) -> dict[NodeId, Lsn]:
        """Return the workers with a kept copy that counts, and its LSN."""
        return {
            each.node: each.said.kept_lsn
            for each in workers
            if each.said.kept_lsn >= 0 and each.said.kept_number > self._dropped and is_usable(each)
        }

    def orders(self, alive: list[WorkerFeed], is_usable: Callable[[WorkerFeed], bool], view: int, mono_ms: int) -> list[Outgoing]:
        """Return orders to give now. ``alive`` are the live workers; ``is_usable`` tells whether a kept copy could be restored."""
        if self.is_wanted is None:
            return []
        if not self.is_wanted:
            return [
                Outgoing(each.node, Keep(view, max(self._number, each.said.kept_number), is_wanted=False))
                for each in alive
                if each.said.kept_lsn >= 0 and self._is_due(each.node, mono_ms)
            ]
        if self.holders(alive, is_usable):
            self._chosen = ""
            return []
        worker = self._worker(alive, mono_ms)
        if worker is None or not self._is_due(worker.node, mono_ms):
            return []
        # Its kept copy is not usable: a higher number has it keep another one.
        self._number = max(self._number, worker.said.kept_number + (worker.said.kept_lsn >= 0))
        return [Outgoing(worker.node, Keep(view, self._number, is_wanted=True))]

    def _worker(self, alive: list[WorkerFeed], mono_ms: int) -> WorkerFeed | None:
        """Return the chosen worker while it is in sync and does not refuse, else the next one."""
        able = {each.node: each for each in alive if each.is_on and each.is_following}
        chosen = able.get(self._chosen)
        # It may have refused an earlier order, and not have answered this one yet.
        if chosen is not None and (not chosen.said.kept_reason or not self._may_order(chosen.node, mono_ms)):
            return chosen
        if self._chosen:
            self._tried.append(self._chosen)
        fresh = [each for each in able.values() if each.node not in self._tried]
        if not fresh:
            # All of them have failed: begin again, at the pace of orders.
            self._tried, fresh = [], list(able.values())
        # The probe has the most work, and a worker with reads has more than one without.
        worker = min(fresh, key=lambda each: (each.is_probe, each.is_readable, each.said.running_reads, each.node), default=None)
        self._chosen = worker.node if worker is not None else ""
        return worker

    def _may_order(self, node: NodeId, mono_ms: int) -> bool:
        return mono_ms - self._ordered_ms.get(node, NEVER) >= self.config.order_ms

    def _is_due(self, node: NodeId, mono_ms: int) -> bool:
        if not self._may_order(node, mono_ms):
            return False
        self._ordered_ms[node] = mono_ms
        return True

    def _forget_orders(self) -> None:
        self._chosen, self._tried = "", []
        self._ordered_ms.clear()


class Splits:
    """Lineages and kept copies of one site."""

    def __init__(self, config: FeedConfig, history: History, rewinds: Rewinds) -> None:
        self.history = history
        self.lineages = Lineages(rewinds)
        self.keeping = Keeping(config)
        self.content = NO_CONTENT
        """LSN to which the log last went back while the site kept its content, and its fingerprint, on its way into the log."""

    def void(self, worker: WorkerFeed) -> str:
        """Return why its copy followed another log than the present one; empty when it did not."""
        progress = worker.progress
        if progress is None:
            return ""
        return self.lineages.problem(progress.lineage, progress.applied_lsn, worker.vouched_lsn)

    def may_move(self, worker: WorkerFeed) -> bool:
        """Tell whether its copy is void and has the log's content of the common end: it stands there, under another LSN."""
        return bool(self.void(worker)) and worker.said.fingerprint == self._content(worker) != ""

    def _content(self, worker: WorkerFeed) -> str:
        agreed = self._agreed(worker)
        return self.content[1] if self.content[0] == agreed else text_of(self.history.fingerprint_at(agreed))

    def is_usable(self, worker: WorkerFeed) -> bool:
        """Tell whether its kept copy is a beginning of the present log, and the log reaches back to it."""
        lsn = worker.said.kept_lsn
        is_reached = lsn + 1 >= self.history.results_from()
        return lsn >= 0 and is_reached and not self.lineages.problem(worker.said.kept_lineage, lsn)

    def may_restore(self, worker: WorkerFeed) -> bool:
        """Tell whether its copy is void and its kept copy is usable."""
        return worker.said.lineage < self.lineages.number and bool(self.void(worker)) and self.is_usable(worker)

    def restore(self, worker: WorkerFeed, view: int, reason: str) -> Restore:
        """Return the order to a worker that can restore."""
        return Restore(view, worker.said.kept_number, self.lineages.number, self._agreed(worker), reason)

    def coin(self, worker: WorkerFeed, view: int, sources: tuple[NodeId, ...]) -> Coin:
        """Return the order to follow the present log."""
        fingerprint = self._content(worker) if self.may_move(worker) else ""
        lineage, agreed = self.lineages.number, self._agreed(worker)
        return Coin(view, sources, worker.forgiven_lsn, lineage, agreed, fingerprint, worker.said.lineage)

    def _agreed(self, worker: WorkerFeed) -> Lsn:
        """Return the highest LSN at which it can change to the present lineage; 0 when it is of that lineage."""
        agreed = self.lineages.agreed(worker.said.lineage)
        return max(agreed, worker.vouched_lsn) if agreed is not None else 0

    def kept(self, workers: list[WorkerFeed]) -> dict[NodeId, Lsn]:
        """Return the workers with a kept copy that counts, and its LSN."""
        return self.keeping.holders(workers, self.is_usable)

    def orders(self, alive: list[WorkerFeed], view: int, mono_ms: int) -> list[Outgoing]:
        """Return orders to keep and to drop."""
        return self.keeping.orders(alive, self.is_usable, view, mono_ms)
