"""Masters that come and go in a world: current ones, spares, and the wishes of operators.

    spares      nodes that are not started: an operator starts one with an empty journal, and asks some master to add it
    masters     those of the latest installed epoch; at first those with which the world begins
    wanted      an operator's last wish for each node; repeated at the end until it is fulfilled

A crash can erase a wish from a master, so operators repeat it, each time to a master that is up.
"""

from __future__ import annotations

from dataclasses import replace

from brokerha.model.epochs import ADD, REMOVE
from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import NodeId
from brokerha.sync.membership import UNDER_WAY, Wish
from tests.simulator.checks.truth import Truth
from tests.simulator.cluster import Cluster
from tests.simulator.nodes import SimMaster
from tests.simulator.processes import Process

SAY_AGAIN_US = 1_000_000
"""Interval at which an operator checks a wish."""
FORCE_US = 15_000_000
"""Time after healing within which a change that waits for the one before takes place, if it can."""


class Members:
    """The members of the cluster of a world."""

    def __init__(self, world: Cluster, truth: Truth) -> None:
        self._world = world
        self._truth = truth
        count = len(world.options.workers)
        names = tuple(master.node for master in world.masters)
        self.founders = names[:count]
        spares = {*names[count:]}
        world.waiting.update(spares, (worker.node for worker in world.workers if worker.config.master in spares))
        self.wanted: dict[NodeId, str] = {}
        self._begun_twice: set[NodeId] = set()
        """Nodes that were emptied during their addition."""
        self._said_us = 0
        self._healed_us: int | None = None

    # ---- questions

    @property
    def is_fixed(self) -> bool:
        """Whether the masters of this world never change."""
        return not (self._world.waiting or self.wanted)

    @property
    def masters(self) -> tuple[NodeId, ...]:
        """Names of the current masters."""
        latest = self._truth.latest
        return latest.configuration.masters if latest is not None else self.founders

    @property
    def singles(self) -> list[SimMaster]:
        """The current masters without backups."""
        masters = [self._world.master(node) for node in self.masters]
        return [master for master in masters if isinstance(master, SimMaster)]

    def is_current(self, node: NodeId) -> bool:
        """Tell whether a node is a master now."""
        return node in self.masters

    # ---- actions of operators

    @property
    def spares(self) -> list[NodeId]:
        """Nodes that are not started and can become masters."""
        return sorted(node for node in self._world.waiting if node not in self._truth.master_of)

    def choose_copy(self, node: NodeId, worker: NodeId) -> None:
        """Declare which copy of a site is right."""
        self._truth.chosen.add(node)
        self._world.master(node).command("worker-trust", worker=worker)

    def begin_node(self, node: NodeId) -> None:
        """Start a spare with an empty journal; its file names the current masters and itself."""
        self._write_file(node)
        for process in self._of_site(node):
            self._world.waiting.discard(process.node)
            process.start()

    def _write_file(self, node: NodeId) -> None:
        master = self._world.master(node)
        assert isinstance(master, SimMaster)
        members = tuple(sorted({*self.masters, node}))
        master.config = replace(master.config, sync=replace(master.config.sync, members=members))

    def _renew_node(self, node: NodeId) -> None:
        """Restart a node that was removed again meanwhile, or whose file names former masters."""
        master = self._world.master(node)
        assert isinstance(master, SimMaster)
        if self.is_out(node):
            self.empty_site(node)
        elif master.is_up and not {*self.masters}.issubset(master.config.sync.members):
            master.die()
            self._write_file(node)
            master.start()

    def is_out(self, node: NodeId) -> bool:
        """Tell whether the current journal of a node is that of a removed master."""
        master, latest = self._world.master(node), self._truth.latest
        assert isinstance(master, SimMaster)
        return latest is not None and (node, master.journal.state().journal) in latest.configuration.retired

    def begun_twice(self, *more: NodeId) -> int:
        """Count nodes, including ``more``, that can be added with a journal that they have lost."""
        masters = [master for master in self._world.masters if isinstance(master, SimMaster)]
        return sum(m.node in {*self._begun_twice, *more} and not self._is_back(m) for m in masters)

    def _of_site(self, node: NodeId) -> list[Process]:
        world = self._world
        return [*world.master(node).processes, *(w for w in world.workers if w.config.master == node)]

    def empty_site(self, node: NodeId) -> None:
        """Lose a machine: the journal of a master, and the copies of its workers; it is started again later."""
        world = self._world
        for process in self._of_site(node):
            if process.is_up:
                process.die()
            world.plan_restart(process)
        master = world.master(node)
        assert isinstance(master, SimMaster)
        if not self.is_current(node) and not self.is_out(node):
            self._begun_twice.add(node)
        master.wipe()
        self._write_file(node)
        for worker in world.workers:
            if worker.config.master == node:
                worker.empty()

    def want(self, kind: str, node: NodeId) -> None:
        """Record an operator's wish, and tell it for the first time."""
        self.wanted[node] = kind
        self.say(kind, node)

    def say(self, kind: str, node: NodeId, *, is_forced: bool = False) -> Wish | None:
        """Tell a wish to one of the masters; None when none is available, or it cannot be fulfilled now."""
        world = self._world
        able = [m for m in self.singles if m.node != node and m.is_up and not m.runner.failure]
        if not able:
            return None
        master = world.rng.choice(able)
        core, now = master.runner.core.sync, master.clock.now()
        membership = core.epochs.membership
        world.trace.note(world.now_us, master.node, "is told", f"{kind} {node}")
        try:
            wish = membership.add(core, node, now) if kind == ADD else membership.remove(core, node, now, is_forced=is_forced)
        except BrokerhaError as error:
            world.trace.note(world.now_us, master.node, "refuses", str(error))
            return None
        master.wake()
        return wish

    # ---- convergence

    def settle(self) -> None:
        """Repeat unfulfilled wishes; replace a master that lost its disk."""
        world = self._world
        if self.is_fixed or world.now_us - self._said_us < SAY_AGAIN_US:
            return
        self._said_us = world.now_us
        if self._healed_us is None:
            self._healed_us = world.now_us
        for kind, node in self._undone():
            if kind == ADD:
                self._renew_node(node)
            wish = self.say(kind, node)
            is_stuck = wish is not None and wish.state == UNDER_WAY and "not established" in wish.stage
            if is_stuck and kind == REMOVE and world.now_us - self._healed_us > FORCE_US:
                # Too many of the masters before the last change are gone for good.
                self.say(kind, node, is_forced=True)
            return

    def _undone(self) -> list[tuple[str, NodeId]]:
        """Return the wishes to tell: first removal of masters that lost their disks, then operators' wishes."""
        masters = self.masters
        undone = [(REMOVE, master.node) for master in self.singles if master.is_wiped and not self._is_back(master)]
        for node, kind in sorted(self.wanted.items()):
            if kind == REMOVE and node in masters and len(masters) > 1:
                undone.append((REMOVE, node))
            elif kind == ADD and node not in masters:
                undone.append((ADD, node))
        return undone

    def _is_back(self, master: SimMaster) -> bool:
        """Tell whether an epoch names the new journal of a master."""
        latest = self._truth.latest
        return latest is not None and latest.configuration.journals.get(master.node) == master.journal.state().journal

    def missing(self) -> str:
        """Return which wish is not fulfilled; empty when all are."""
        undone = self._undone()
        if undone:
            return f"{undone[0][0]} {undone[0][1]} is not done"
        latest = self._truth.latest
        for node, journal in latest.configuration.retired if latest is not None else ():
            if self._is_unaware(node, journal):
                return f"{node} does not know that it was taken out"
        return ""

    def _is_unaware(self, node: NodeId, journal: str) -> bool:
        """Tell whether a removed node believes that it is a master although it could have heard better."""
        master = self._world.master(node)
        if not isinstance(master, SimMaster) or master.journal.state().journal != journal:
            return False
        core = master.runner.core.sync
        return not core.retired and bool({*core.epoch.configuration.masters}.intersection(self.masters))
