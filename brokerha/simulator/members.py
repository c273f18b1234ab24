"""Masters that come and go in a world: who is one now, who waits to be added, and what operators want.

    spares      nodes that are not started: an operator starts one with an empty journal, and tells some master to add it
    masters     by the latest epoch that somebody has installed; at first those with which the world begins
    wanted      what an operator last wanted of each node; said again at the end, until it is so

Whatever an operator is told at a moment may be forgotten by a crash, so they say it again, each time to a master that is there.
"""

from __future__ import annotations

from dataclasses import replace

from brokerha.model.epochs import ADD, REMOVE
from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import NodeId
from brokerha.simulator.checks.truth import Truth
from brokerha.simulator.cluster import Cluster
from brokerha.simulator.nodes import SimMaster
from brokerha.simulator.processes import Process
from brokerha.sync.membership import UNDER_WAY, Wish

SAY_AGAIN_US = 1_000_000
"""How often an operator looks whether it is done."""
FORCE_US = 15_000_000
"""Time after healing in which a change that waits for the one before comes to pass, if it ever does."""


class Members:
    """Who belongs to the cluster of a world."""

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
        """Nodes that were emptied while they were to be added."""
        self._said_us = 0
        self._healed_us: int | None = None

    # ---- questions

    @property
    def is_fixed(self) -> bool:
        """Whether the masters of this world stay what they are."""
        return not (self._world.waiting or self.wanted)

    @property
    def masters(self) -> tuple[NodeId, ...]:
        """Names of the masters that there are now."""
        latest = self._truth.latest
        return latest.configuration.masters if latest is not None else self.founders

    @property
    def singles(self) -> list[SimMaster]:
        """Those of them that have no backups."""
        masters = [self._world.master(node) for node in self.masters]
        return [master for master in masters if isinstance(master, SimMaster)]

    def is_current(self, node: NodeId) -> bool:
        """Whether a node is a master now."""
        return node in self.masters

    # ---- what operators do

    @property
    def spares(self) -> list[NodeId]:
        """Nodes that are not started and may become masters."""
        return sorted(node for node in self._world.waiting if node not in self._truth.master_of)

    def choose_copy(self, node: NodeId, worker: NodeId) -> None:
        """An operator says which copy of a site is right."""
        self._truth.chosen.add(node)
        self._world.master(node).command("worker-trust", worker=worker)

    def begin_node(self, node: NodeId) -> None:
        """Start a spare with an empty journal; its file names the masters that there are, and itself."""
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
        """Begin anew one that was taken out again since, or whose file names masters that are none any more."""
        master = self._world.master(node)
        assert isinstance(master, SimMaster)
        if self.is_out(node):
            self.empty_site(node)
        elif master.is_up and not {*self.masters}.issubset(master.config.sync.members):
            master.die()
            self._write_file(node)
            master.start()

    def is_out(self, node: NodeId) -> bool:
        """Whether the journal that a node has now is that of a master that was taken out."""
        master, latest = self._world.master(node), self._truth.latest
        assert isinstance(master, SimMaster)
        return latest is not None and (node, master.journal.state().journal) in latest.configuration.retired

    def begun_twice(self, *more: NodeId) -> int:
        """How many nodes, ``more`` among them, are being added and may be so with a journal that they have no more."""
        masters = [master for master in self._world.masters if isinstance(master, SimMaster)]
        return sum(m.node in {*self._begun_twice, *more} and not self._is_back(m) for m in masters)

    def _of_site(self, node: NodeId) -> list[Process]:
        world = self._world
        return [*world.master(node).processes, *(w for w in world.workers if w.config.master == node)]

    def empty_site(self, node: NodeId) -> None:
        """A machine is lost: the journal of a master, and the copies of its workers; it is started again later."""
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
        """An operator wants something, and says so for the first time."""
        self.wanted[node] = kind
        self.say(kind, node)

    def say(self, kind: str, node: NodeId, *, is_forced: bool = False) -> Wish | None:
        """Tell one of the masters; None when there is nobody, or it cannot be done now."""
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

    # ---- coming together

    def settle(self) -> None:
        """Say again what is not done; replace a master that lost its disk."""
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
                # Of the masters before the last change too many are gone for good.
                self.say(kind, node, is_forced=True)
            return

    def _undone(self) -> list[tuple[str, NodeId]]:
        """What is to be said: to take out who lost its disk, then what was wanted."""
        masters = self.masters
        undone = [(REMOVE, master.node) for master in self.singles if master.is_wiped and not self._is_back(master)]
        for node, kind in sorted(self.wanted.items()):
            if kind == REMOVE and node in masters and len(masters) > 1:
                undone.append((REMOVE, node))
            elif kind == ADD and node not in masters:
                undone.append((ADD, node))
        return undone

    def _is_back(self, master: SimMaster) -> bool:
        """Whether an epoch names the journal with which it began anew."""
        latest = self._truth.latest
        return latest is not None and latest.configuration.journals.get(master.node) == master.journal.state().journal

    def missing(self) -> str:
        """What is not as it is wanted; empty when all is."""
        undone = self._undone()
        if undone:
            return f"{undone[0][0]} {undone[0][1]} is not done"
        latest = self._truth.latest
        for node, journal in latest.configuration.retired if latest is not None else ():
            if self._is_unaware(node, journal):
                return f"{node} does not know that it was taken out"
        return ""

    def _is_unaware(self, node: NodeId, journal: str) -> bool:
        """Whether one that was taken out takes itself for a master, although it could hear better."""
        master = self._world.master(node)
        if not isinstance(master, SimMaster) or master.journal.state().journal != journal:
            return False
        core = master.runner.core.sync
        return not core.retired and bool({*core.epoch.configuration.masters}.intersection(self.masters))
