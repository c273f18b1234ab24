"""Adopting: a copy that counts as right, whatever the log here says (config.Trust): the log follows it, if it can.

    the copy is                        consequence
    where the log has no transactions  it waits for them
    ahead of the results here          the lines up to it are fetched from a worker that has them
    ahead, and the log does not        the results of this site begin anew from it: no worker was here before it,
    reach back to the results          and the transactions to execute next were forgotten
    ahead, and no worker has the lines the same if a person chose it; rejected ones on the way then count as applied
    chosen, and the log differs        the same: a person chose it
    loaded, and the log differs        the same where each site has its own content (strategy none): this one's is lost
    loaded, and another is in sync     it is not right where each site has its own content

A copy only loaded from another site is right where this site has no results yet; one that an operator chose even against the log.
"""

from __future__ import annotations

from typing import Protocol

from brokerha.model.ids import Lsn, NodeId
from brokerha.model.records import History
from brokerha.model.wire.messages import Progress
from brokerha.replication.site.config import Filling, Standing, Trust, WorkerFeed
from brokerha.replication.site.judging import Verdict, cut_off
from brokerha.replication.site.splits import Splits


class Adopter(Protocol):
    """The questions and commands of this module to the site."""

    history: History
    executed: Lsn
    filling: Filling | None
    workers: dict[NodeId, WorkerFeed]
    splits: Splits
    took_elsewhere: bool
    has_own_content: bool

    def stand(self, worker: WorkerFeed, standing: Standing, reason: str) -> None:
        """Set the standing of a worker."""

    def fill(self, worker: WorkerFeed, last: Lsn) -> None:
        """Fetch the results up to ``last``."""

    def adopt(self, worker: WorkerFeed, reason: str) -> None:
        """Begin the results anew from this copy."""


def adopts(site: Adopter, worker: WorkerFeed, progress: Progress, found: Verdict) -> bool:
    """Tell whether this settles the worker's standing for now; otherwise it is judged like any other."""
    if worker.condemned:
        return False
    if found is Verdict.BEYOND and site.splits.void(worker):
        # Its load failed, and this is still the old copy: the log will never have that LSN.
        worker.trust = Trust.NONE
        return False
    if found is Verdict.BEYOND:
        site.stand(worker, Standing.OUT_OF_SYNC, f"waits until the log has LSN {progress.applied_lsn}")
        return True
    first = cut_off(site.history, site.executed)
    is_fetched = found is Verdict.AHEAD and not first
    if is_fetched and any(each.is_on for each in site.workers.values() if each is not worker):
        if site.has_own_content and worker.is_from_elsewhere:
            # Nothing here contradicts it yet: a copy of this site has come back while it was loaded.
            worker.is_from_elsewhere, worker.trust = False, Trust.NONE
            worker.condemn("it holds the content of another site, and this one has its own")
        return False
    is_chosen = worker.trust is Trust.CHOSEN
    is_in_vain = site.filling is not None and site.filling.is_in_vain
    if is_fetched and not (is_chosen and is_in_vain):
        site.fill(worker, progress.applied_lsn)
        site.stand(worker, Standing.OUT_OF_SYNC, f"waits for the results up to LSN {progress.applied_lsn}")
        return True
    is_lost = found is Verdict.DIFFERENT and site.has_own_content and not any(each.is_on for each in site.workers.values())
    may_begin = (is_chosen or is_lost or found is Verdict.AHEAD) and progress.applied_lsn + 1 >= site.history.first_lsn()
    worker.trust = Trust.NONE
    if found is Verdict.FOUND or may_begin or is_chosen:
        site.took_elsewhere, worker.is_from_elsewhere = site.took_elsewhere or worker.is_from_elsewhere, False
    if found is Verdict.FOUND:
        worker.vouched_lsn = progress.applied_lsn
    if not may_begin:
        return False
    node = worker.node
    if is_chosen:
        reason = f"the copy of {node} was chosen"
    elif is_lost:
        reason = f"the content here is lost, and the copy of {node} is that of another site"
    else:
        reason = f"there was no copy here before that of {node}"
    site.adopt(worker, reason)
    return True
