"""What a site says of itself: why it takes no writes, and what needs a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.following.leader import NEVER

if TYPE_CHECKING:
    from brokerha.replication.site import Site
    from brokerha.replication.site_config import WorkerFeed


def read_only_reason_of(site: Site, mono_ms: int) -> str:
    """Why writes are refused; empty when they are taken."""
    if site.disagreement:
        return site.disagreement
    in_sync = {worker.node for worker in site.in_sync(mono_ms)}
    good = len(in_sync)
    if site.is_settling(mono_ms):
        # Those that have not been heard since this master started get the time to speak up.
        good += sum(1 for worker in site.workers.values() if worker.heard_ms == NEVER and worker.is_switched_on)
    if good >= site.needed:
        return ""
    away = ", ".join(_away(worker) for worker in site.workers.values() if worker.node not in in_sync)
    return f"{good} of {len(site.workers)} workers in sync, writes need {site.needed}: {away}"


def _away(worker: WorkerFeed) -> str:
    if worker.is_on:
        # It is silent for too long, and is about to be judged.
        return f"{worker.node} is unknown (not heard)"
    return f"{worker.node} is {worker.standing.value}" + (f" ({worker.reason})" if worker.reason else "")


def attention_of(site: Site, mono_ms: int) -> str:
    """What needs a person: copies of which none is known to be good; empty when nothing does."""
    if site.disagreement or site.repair_sources or not site.workers or site.is_settling(mono_ms):
        return site.disagreement
    alive = [worker for worker in site.workers.values() if worker.is_switched_on and site.is_alive(worker, mono_ms)]
    if not alive or any(not worker.condemned or site.splits.may_restore(worker) for worker in alive):
        return ""
    if any(worker.progress is not None and worker.progress.total_bytes for worker in alive):
        return ""
    return "no copy is known to be good: " + "; ".join(
        f"{worker.node} at LSN {worker.applied} with {worker.fingerprint} ({worker.condemned})" for worker in alive
    )
