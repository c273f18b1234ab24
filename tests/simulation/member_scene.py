"""A scripted world whose masters come and go.

scene = MemberScene()                       m1 m2 m3, and m4 m5 that are not started
scene.begin("m4")                           m4 begins with an empty journal
wish = scene.tell("m1", ADD, "m4")          an operator tells m1 to add it
scene.until_masters("m1", "m2", "m3", "m4")
"""

from __future__ import annotations

from typing import Any

from brokerha.model.epochs import ADD
from brokerha.model.ids import NodeId
from brokerha.sync.core import SyncCore
from brokerha.sync.membership import Wish
from tests.simulation.split_scene import LAG_MS, SplitScene

A_CHANGE_MS = 6 * LAG_MS
"""Enough for a master to read what there is, ask to join and be taken in, or for one to be taken out."""


class MemberScene(SplitScene):
    """See the head of the module."""

    def __init__(self, masters: int = 3, spares: int = 2, workers: int = 0, **settings: Any) -> None:
        super().__init__(masters, workers, others={"spares": (workers,) * spares}, **settings)

    def core(self, node: NodeId) -> SyncCore:
        """The core of a master, to be looked at."""
        return self.master(node).runner.core.sync

    def begin(self, node: NodeId) -> None:
        """A spare begins."""
        self.world.members.begin_node(node)

    def tell(self, at: NodeId, kind: str, node: NodeId) -> Wish:
        """An operator tells a master to add or to take out another one."""
        master = self.master(at)
        membership, now = self.core(at).epochs.membership, master.clock.now()
        wish = membership.add(self.core(at), node, now) if kind == ADD else membership.remove(self.core(at), node, now)
        master.wake()
        return wish

    @property
    def masters(self) -> tuple[NodeId, ...]:
        """By the latest epoch that somebody has installed."""
        return self.world.members.masters

    def until_masters(self, *nodes: NodeId, within_ms: int = A_CHANGE_MS) -> None:
        """Wait until these are the masters, and all of them are members of one epoch."""
        self.until(lambda: self.masters == tuple(sorted(nodes)), within_ms)
        self.until_members(*nodes, within_ms=within_ms)

    def lose_machine(self, node: NodeId) -> None:
        """The data of a master are lost; it begins again with nothing."""
        self.world.members.empty_site(node)
        self.start(node)

    def come_together(self, within_ms: int = 60_000) -> None:
        """All links work again; wait until all masters are of one mind."""
        self.heal()
        self.agree(within_ms)
        orders = {tuple(self.order(node)) for node in self.masters}
        assert len(orders) == 1
        order = orders.pop()
        assert len(set(order)) == len(order)
