"""Coming together: what the healer does for workers in the liveness phase, what still keeps a site apart, and what was left behind.

Workers that were switched off are switched on again, those that were removed are added; everything else the cluster has to do by itself.
"""

from __future__ import annotations

from brokerha.model.ids import maker_of
from brokerha.replication.site.config import Standing
from brokerha.simulator.checks.truth import Truth
from brokerha.simulator.cluster import Cluster
from brokerha.simulator.members import Members
from brokerha.sync.modes import NONE
from brokerha.transactions.states import Part


def switch_all_on(world: Cluster, members: Members) -> None:
    """Every worker of the world is one of its master's, and on; doing it again changes nothing."""
    for worker in world.workers:
        master = world.master(worker.config.master)
        if not master.is_up or not members.is_current(master.node):
            continue
        known = master.runner.core.site.workers.get(worker.node)
        if known is None:
            master.command("worker-add", worker=worker.node)
        elif not known.is_switched_on:
            master.command("worker-on", worker=worker.node)


def missing_at_workers(world: Cluster, members: Members) -> str:
    """What is still amiss with some worker or site; empty when nothing is."""
    masters = [master for master in world.masters if members.is_current(master.node)]
    for master in masters:
        core = master.runner.core
        for node, worker in core.site.workers.items():
            if worker.standing is not Standing.ON:
                return f"{node} is {worker.standing.value} at {master.node}: {worker.reason}"
        if core.sites.differing and NONE not in {core.sync.mode, *world.options.modes}:
            return f"{master.node}: {core.sites.reason()}"
        if core.site.disagreement:
            return core.site.disagreement
    for process in world.workers:
        if members.is_current(process.config.master) and process.copy.recompute() != process.copy.applied():
            return f"the copy of {process.node} is damaged"
    return ""


def left_behind(world: Cluster, members: Members, truth: Truth) -> str:
    """What transactions left behind that nobody uses any more; empty when nothing."""
    for master in world.masters:
        if not members.is_current(master.node):
            continue
        book = master.runner.core.transacting.coordinator.book
        for name, left in (
            ("transactions", book.table),
            ("feeds", book.ending),
            ("commits", book.executing),
            ("xids", book.xids),
            ("locks", book.locks),
            ("prepares", book.placed),
        ):
            if len(left):
                return f"{master.node} still has {len(left)} {name}"
    kept = [txid for txid in truth.model.prepared if members.is_current(maker_of(txid))]
    if kept:
        return f"{', '.join(kept)} is over and still kept as prepared"
    for process in world.standing_by:
        # Who did not hear that an open one was rolled back keeps it until its time is over.
        participant = process.runner.standby.participant
        joined = [each.txid for each in participant.joined.values() if each.part is not Part.COLLECTING]
        if joined:
            return f"{process.node} still takes part in {', '.join(joined)}"
    if world.tx_queues.names:
        return f"queues {', '.join(world.tx_queues.names)} are left"
    return ""
