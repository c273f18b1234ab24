"""Common part of all faults: count and report, last for a while, choose a living process, cut links, fill disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from brokerha.model.ids import NodeId
from tests.simulator.checks.checkers import Checkers
from tests.simulator.cluster import Cluster
from tests.simulator.members import Members
from tests.simulator.options import SECOND_US
from tests.simulator.processes import Process


class Luck:
    """The parts of a world that a fault can use: the cluster, its members, and the checkers."""

    def __init__(self, world: Cluster, members: Members, checkers: Checkers) -> None:
        self.world = self._world = world
        self.members = members
        self.checkers = checkers

    def note(self, kind: str, what: str) -> None:
        """Count a fault, and add it to the story."""
        world = self._world
        world.faults_seen[kind] += 1
        world.trace.note(world.now_us, "world", kind, what)

    def strike(self, kind: str) -> None:
        """Let a kind of fault happen now."""
        raise NotImplementedError

    def a_while(self) -> int:
        """Draw the duration of a fault, in microseconds."""
        return self._world.rng.choice((50_000, 500_000, 2 * SECOND_US, 5 * SECOND_US))

    def one(self, processes: Sequence[Process]) -> Process | None:
        """Return a random living process, or None."""
        up = [process for process in processes if process.is_up]
        return self._world.rng.choice(up) if up else None

    def kill(self, kind: str, process: Process | None, lose: Callable[[], None] | None = None) -> None:
        """Kill a process, if there is one; it loses what ``lose`` takes, and is started again later."""
        if process is not None:
            self.note(kind, process.node)
            process.die()
            if lose is not None:
                lose()
            self._world.plan_restart(process)

    def kill_all(self, processes: Iterable[Process]) -> None:
        """Kill all living processes at once; they are started again later."""
        for process in processes:
            if process.is_up:
                process.die()
                self._world.plan_restart(process)

    def for_a_while(self, process: Process, name: str, value: object, usual: object) -> None:
        """Give an attribute of a process a value for a while."""
        setattr(process, name, value)
        self._world.at(self._world.now_us + self.a_while(), setattr, process, name, usual)

    def cut(self, kind: str, directions: list[tuple[NodeId, NodeId]]) -> None:
        """Lose all messages in these directions for a while."""
        if directions:
            self.note(kind, " ".join(f"{sender}>{receiver}" for sender, receiver in directions))
            self._world.network.cut(directions, self.a_while())

    def fill(self, process: Process) -> None:
        """Fill the disk of a process for a while."""
        self.note("full disk", process.node)
        self.for_a_while(process, "is_disk_full", value=True, usual=False)
