"""Coming together of the workers: what the healer does for them in the liveness phase, and what still keeps a site apart.

Whoever was switched off is switched on again, whoever was removed is added; everything else the cluster has to do by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.replication.site.config import Standing

if TYPE_CHECKING:
    from brokerha.simulator.world import World


def switch_all_on(world: World) -> None:
    """Every worker of the world is one of its master's, and on; doing it again changes nothing."""
    for worker in world.workers:
        master = world.master(worker.config.master)
        if not master.is_up or not world.members.is_current(master.node):
            continue
        known = master.runner.core.site.workers.get(worker.node)
        if known is None:
            master.command("worker-add", worker=worker.node)
        elif not known.is_switched_on:
            master.command("worker-on", worker=worker.node)


def missing_at_workers(world: World) -> str:
    """What is still amiss with some worker or site; empty when nothing is."""
    masters = [master for master in world.masters if world.members.is_current(master.node)]
    for master in masters:
        core = master.runner.core
        for node, worker in core.site.workers.items():
            if worker.standing is not Standing.ON:
                return f"{node} is {worker.standing.value} at {master.node}: {worker.reason}"
        if core.sites.differing and core.sync.mode != "none":
            return f"{master.node}: {core.sites.reason()}"
        if core.site.disagreement:
            return core.site.disagreement
    for process in world.workers:
        if world.members.is_current(process.config.master) and process.copy.recompute() != process.copy.applied():
            return f"the copy of {process.node} is damaged"
    return ""
