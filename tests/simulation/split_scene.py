"""A scripted world that splits: three masters or more, two sides that do not hear each other, and who is a member of what.

scene = SplitScene()                     m1 m2 m3, a member is missed after LAG_MS
scene.split("m1 m2", "m3")               nothing passes between the sides
scene.until_members("m1", "m2")          these two have gone on together, in an epoch of their own
scene.come_together()                    the links work again, everybody is a member, everything is everywhere
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from brokerha.model.epochs import FIRST, Epoch, EpochId
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Message, Outgoing
from tests.simulation.scene import Scene
from tests.simulator.network import both_ways
from tests.simulator.processes import Aim

LAG_MS = 4_000
"""After this long without a member the others go on without it. While idle, news of a member whose link to another one broke may
take three heartbeats and a round's time-out to come through a third."""
SOON_MS = 3 * LAG_MS
"""Enough for an epoch change, with all that it waits for."""


class SplitScene(Scene):
    """See the head of the module."""

    def __init__(self, masters: int = 3, workers: int = 1, others: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__((workers,) * masters, others=others, **{"max_peer_lag_ms": LAG_MS, "suspect_after_ms": LAG_MS, **settings})
        # Who dies here stays dead until a test starts it.
        self.world.plan_restart = lambda process: None  # type: ignore[method-assign]
        self.names = tuple(master.node for master in self.world.masters)

    # ---- who hears whom

    def split(self, *sides: str) -> None:
        """From now on only masters of one side hear each other."""
        self.heal()
        for one, other in combinations([side.split() for side in sides], 2):
            self.world.network.cut_for_ever(both_ways((a, b) for a in one for b in other))

    def come_together(self, within_ms: int = 30_000) -> None:
        """All links work again; wait until all are of one mind."""
        self.heal()
        self.agree(within_ms)
        assert len({tuple(self.order(node)) for node in self.names}) == 1
        order = self.order(self.names[0])
        assert len(set(order)) == len(order)

    def lose_if(self, is_lost: Callable[[NodeId, NodeId, Message], bool]) -> None:
        """Messages of which (sender, receiver, message) this says so are lost, until `lose_nothing`."""

        def sieve(sender: NodeId, outgoing: Outgoing) -> bool:
            return is_lost(sender, outgoing.to, outgoing.message)

        self.world.network.sieve = sieve

    def aim(self, node: NodeId, point: str, kind: type, countdown: int = 1) -> None:
        """Let a process die at a point, when something of this kind is at hand."""
        self[node].aim = Aim(point, kind, countdown)

    # ---- epochs

    def epoch_id(self, node: NodeId) -> EpochId:
        """Id of the epoch that a master is in, durably."""
        return self.truth.mirrors[node].epoch_id

    def promised(self, node: NodeId) -> EpochId:
        """Highest epoch that a master has promised, durably."""
        return self.truth.mirrors[node].promised_epoch

    def epoch(self, node: NodeId) -> Epoch:
        """The epoch that a master is in, durably; not the first one."""
        epoch = self.truth.mirrors[node].epoch
        assert epoch is not None
        return epoch

    def are_members(self, *nodes: NodeId) -> bool:
        """Whether exactly these masters are in one epoch together."""
        epochs = [self.truth.mirrors[node].epoch for node in nodes]
        return all(epoch is not None and epoch.members == tuple(sorted(nodes)) and epoch == epochs[0] for epoch in epochs)

    def until_members(self, *nodes: NodeId, within_ms: int = SOON_MS) -> float:
        """Wait until exactly these masters are in one epoch together; return how many milliseconds that took."""
        return self.until(lambda: self.are_members(*nodes), within_ms)

    def nobody_was_left_out(self) -> bool:
        """Whether the cluster is in the epoch in which it began."""
        return all(self.epoch_id(node) == FIRST for node in self.names) and not self.truth.epochs

    # ---- what is to be seen

    def value(self, key: str) -> bytes | None:
        """Value of a key in the content that all workers have to have at the end of the agreed order."""
        return next((value for name, value in self.truth.model.keys.items() if name.endswith(key.encode())), None)

    def lsn(self, node: NodeId) -> int:
        """Length of the synchronised queue of a master."""
        return self.truth.mirrors[node].lsn
