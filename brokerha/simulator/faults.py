"""What goes wrong in a world, and when: each kind comes by itself, at random moments, with a strength that the seed drew.

Every fault is undone by itself after a while, and all of them at once when the liveness phase begins. Faults aimed at critical
moments let a process die exactly between two steps of a turn: before its records are durable, after, between two
messages, before an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerha.model.ids import NodeId
from brokerha.model.messages import Bodies, Executed, Post
from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, ClockReserved, Outcomes, PeerJournal, Started
from brokerha.simulator.network import both_ways
from brokerha.simulator.options import HOUR_US, SECOND_US
from brokerha.simulator.processes import Aim, Process, SimMaster, SimWorker

if TYPE_CHECKING:
    from brokerha.simulator.world import World

MASTER_POINTS = (
    "nothing written",
    "append absent",
    "append there",
    "written, nothing sent",
    "half sent",
    "sent, not answered",
)
WORKER_POINTS = ("store absent", "store there", "half sent")
RECORDS = (Started, ClockReserved, PeerJournal, Accepted, BodiesHeld, Appended, Added, Added, Outcomes, None, None)
MESSAGES = (Post, Bodies, Executed, None)


class Faults:
    """The bad luck of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kinds: dict[str, Callable[[], None]] = {
            "crash master": self._crash_master,
            "crash worker": self._crash_worker,
            "aimed crash": self._aim,
            "crash all": self._crash_all,
            "cut one way": self._cut_one_way,
            "cut link": self._cut_link,
            "isolate": self._isolate,
            "partition": self._partition,
            "bridge": self._bridge,
            "clog": self._clog,
            "clock jump": self._clock_jump,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "store failure": self._store_failure,
            "empty worker": self._empty_worker,
            "trim": self._trim,
            "wipe": self._wipe,
        }

    def begin(self) -> None:
        """Plan the first of each kind."""
        for kind in self._world.options.faults:
            self._plan(kind)

    def _plan(self, kind: str) -> None:
        mean_us = self._world.options.faults[kind]
        after_us = int(self._world.rng.expovariate(1 / mean_us))
        self._world.at(self._world.now_us + after_us, self._strike, kind)

    def _strike(self, kind: str) -> None:
        if not self._world.is_calm:
            self._kinds[kind]()
            self._plan(kind)

    # ---- helpers

    def _note(self, kind: str, what: str) -> None:
        world = self._world
        world.faults_seen[kind] += 1
        world.trace.note(world.now_us, "world", kind, what)

    def _a_while(self) -> int:
        return self._world.rng.choice((50_000, 500_000, 2 * SECOND_US, 5 * SECOND_US))

    def _one(self, processes: list[SimMaster] | list[SimWorker]) -> Process | None:
        up = [process for process in processes if process.is_up]
        return self._world.rng.choice(up) if up else None

    def _names(self) -> list[NodeId]:
        return [master.node for master in self._world.masters]

    # ---- crashes

    def _crash_master(self) -> None:
        self._crash(self._one(self._world.masters))

    def _crash_worker(self) -> None:
        self._crash(self._one(self._world.workers))

    def _crash(self, process: Process | None) -> None:
        if process is not None:
            self._note("crash", process.node)
            process.die()
            self._world.plan_restart(process)

    def _crash_all(self) -> None:
        self._note("crash of all masters", "all at once")
        for master in self._world.masters:
            if master.is_up:
                master.die()
                self._world.plan_restart(master)

    def _aim(self) -> None:
        rng = self._world.rng
        process = rng.choice(self._world.processes_list)
        if isinstance(process, SimMaster):
            point = rng.choice(MASTER_POINTS)
            kind = rng.choice(MESSAGES if point == "half sent" else RECORDS)
            kind = None if point == "nothing written" else kind
        else:
            point, kind = rng.choice(WORKER_POINTS), None
        process.aim = Aim(point, kind, rng.randint(1, 4))

    def _empty_worker(self) -> None:
        process = self._one(self._world.workers)
        if isinstance(process, SimWorker):
            self._note("worker emptied", process.node)
            process.die()
            process.empty()
            self._world.plan_restart(process)

    def _trim(self) -> None:
        """A master forgets the oldest part of its log, as far as nobody needs it any more."""
        truth = self._world.checkers.truth
        master = self._one(self._world.masters)
        feeding = [m.node for m in self._world.masters if m.config.feed.workers]
        executed = [truth.mirrors[node].executed for node in feeding]
        done = min([mirror.lsn for mirror in truth.mirrors.values()] + executed + list(truth.applied.values()))
        if isinstance(master, SimMaster) and done:
            below = self._world.rng.randint(1, done + 1)
            if master.journal.trim(below):
                self._note("log trimmed", f"{master.node} below {below}")

    def _wipe(self) -> None:
        """One data directory is lost, of a master that somebody has heard of; only once in a run."""
        world = self._world
        if any(master.is_wiped for master in world.masters):
            return
        known = [
            m
            for m in world.masters
            if m.is_up and any(m.node in o.journal.state().peer_journals for o in world.masters)
        ]
        if known:
            master = world.rng.choice(known)
            self._note("data directory lost", master.node)
            master.die()
            master.wipe()
            world.plan_restart(master)

    # ---- the wire

    def _cut(self, kind: str, directions: list[tuple[NodeId, NodeId]]) -> None:
        if directions:
            self._note(kind, " ".join(f"{sender}>{receiver}" for sender, receiver in directions))
            self._world.network.cut(directions, self._a_while())

    def _cut_one_way(self) -> None:
        links = self._world.links
        self._cut("cut one way", [self._world.rng.choice(links)] if links else [])

    def _cut_link(self) -> None:
        links = self._world.links
        self._cut("cut link", both_ways([self._world.rng.choice(links)]) if links else [])

    def _isolate(self) -> None:
        names = self._names()
        alone = self._world.rng.choice(names)
        self._cut("isolate", both_ways((alone, other) for other in names if other != alone))

    def _partition(self) -> None:
        names = self._names()
        self._world.rng.shuffle(names)
        if len(names) > 1:
            place = self._world.rng.randint(1, len(names) - 1)
            self._cut("partition", both_ways((one, other) for one in names[:place] for other in names[place:]))

    def _bridge(self) -> None:
        """Two sides that only one master hears both of."""
        names = self._names()
        self._world.rng.shuffle(names)
        if len(names) > 2:
            place = self._world.rng.randint(1, len(names) - 2)
            self._cut("bridge", both_ways((one, other) for one in names[:place] for other in names[place + 1 :]))

    def _clog(self) -> None:
        """Links are clogged one by one and come free in another order."""
        world, rng = self._world, self._world.rng
        chosen = [link for link in world.links if rng.random() < 0.5]
        if chosen:
            self._note("clog", f"{len(chosen)} directions")
        for place, link in enumerate(chosen):
            start_us = place * 20_000
            world.at(world.now_us + start_us, world.network.clog, link, rng.randint(1, 10) * 200_000)

    # ---- clocks and disks

    def _clock_jump(self) -> None:
        rng = self._world.rng
        master = rng.choice(self._world.masters)
        by_us = rng.choice((-1, 1)) * rng.choice((2_000, 100_000, 5 * SECOND_US, HOUR_US))
        self._note("clock jump", f"{master.node} by {by_us / SECOND_US} s")
        master.clock.jump(by_us)

    def _slow_disk(self) -> None:
        process = self._world.rng.choice(self._world.processes_list)
        self._note("slow disk", process.node)
        process.is_disk_slow = True
        self._world.at(self._world.now_us + self._a_while(), self._quick_disk, process)

    def _quick_disk(self, process: Process) -> None:
        process.is_disk_slow = False

    def _full_disk(self) -> None:
        self._fill(self._world.rng.choice(self._world.masters))

    def _store_failure(self) -> None:
        if self._world.workers:
            self._fill(self._world.rng.choice(self._world.workers))

    def _fill(self, process: Process) -> None:
        self._note("full disk", process.node)
        process.is_disk_full = True
        self._world.at(self._world.now_us + self._a_while(), self._empty_disk, process)

    def _empty_disk(self, process: Process) -> None:
        process.is_disk_full = False
