"""Kinds of faults and their random times: each kind happens by itself, with a strength drawn by the seed; faults of workers.

Every fault ends by itself after a while, and all end when the liveness phase begins. Aimed faults kill a process exactly between
two steps of a turn: before its records are durable, after that, between two messages, before an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from brokerha.model.ids import NodeId
from brokerha.model.ready import BeginLoad, KeepChunk, MakeSnapshot, OpenLoad, ReadChunks
from brokerha.model.records import (
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    ClockReserved,
    Outcomes,
    PeerJournal,
    Started,
    TxDecided,
    TxPrepared,
    ViewStarted,
)
from brokerha.model.wire.messages import Bodies, Chunk, Executed, Post, SnapshotOffered
from brokerha.model.wire.process_messages import Candidate, Confirmed, Replicate, TxAnswer, TxEvents, TxJoin, Vote
from tests.simulator.backups import SimProcess
from tests.simulator.checks.checkers import Checkers
from tests.simulator.cluster import Cluster
from tests.simulator.faults.backups import BackupFaults
from tests.simulator.faults.luck import Luck
from tests.simulator.faults.members import MemberFaults, SettingFaults
from tests.simulator.members import Members
from tests.simulator.network import both_ways
from tests.simulator.nodes import SimMaster, SimWorker
from tests.simulator.options import HOUR_US, SECOND_US
from tests.simulator.processes import TURN_US, Aim, Process

MASTER_POINTS = ("nothing written", "append absent", "append there", "written, nothing sent", "half sent", "sent, not answered")
WORKER_POINTS = ("store absent", "within the store", "store there", "half sent", "copy absent", "copy there")
SLOW_TURN_US = (1_000, 10_000, 60_000)
"""Duration of a turn at a busy node; at real ones 1,000 to 2,000."""
COPY_STEPS = (BeginLoad, KeepChunk, OpenLoad, MakeSnapshot, ReadChunks, None)
WORKER_KINDS: dict[str, tuple[type | None, ...]] = {
    "copy absent": COPY_STEPS,
    "copy there": COPY_STEPS,
    "half sent": (Executed, SnapshotOffered, Chunk, None),
}
"""Object that must be at hand, for points with several kinds of objects."""
RECORDS = (Started, ClockReserved, PeerJournal, Accepted, BodiesHeld, Appended, Added, Added, Outcomes, None, None)
MESSAGES = (Post, Bodies, Executed, None)
PROCESS_POINTS = (*MASTER_POINTS, "view started", "copy absent", "copy there")
PROCESS_RECORDS = (ViewStarted, Started, TxPrepared, TxPrepared, TxDecided, TxDecided, Accepted, Added, None)
PROCESS_MESSAGES = (Replicate, Confirmed, Candidate, Vote, TxJoin, TxEvents, TxAnswer, None)


class WorkerFaults:
    """Faults of workers; `Faults` decides their strength and times.

    Faults of workers and copies: lost, damaged, unreadable, frozen, switched off, told to take another copy, added late.

    One worker of the world, the anchor, never loses or damages its disk, so that the content survives in every run; else it has the
    same faults as any worker. If its master took over the state of another one, that master's log can begin too late for the
    anchor. Then the content survives only in the other workers, and no worker loses a copy until the anchor has caught up. The
    other masters can trim their log in the anchor's absence, after the only newer copy was damaged: then the content is lost
    (`World`).
    """

    def __init__(self, faults: Luck) -> None:
        self._faults = faults
        self._world = faults.world
        self.kinds: dict[str, Callable[[], None]] = {
            "empty worker": lambda: self._lose("worker emptied", SimWorker.empty),
            "damage worker": self._damage,
            "spoil worker": lambda: self._lose("worker spoiled", SimWorker.spoil),
            "freeze worker": self._freeze,
            "switch worker": self._switch,
            "copy worker": lambda: self._order("copy ordered", self._expendable(), "worker-copy"),
            "remove worker": self._remove,
            "late worker": self._late,
            "cut workers": self._cut,
        }

    def _any(self) -> SimWorker | None:
        return self._faults.one(self._world.workers)  # type: ignore[return-value]

    def _expendable(self) -> SimWorker | None:
        """Return a worker that can lose its copy."""
        worker, anchor = self._any(), self._world.anchor
        if worker is anchor or (anchor is not None and self._is_cut_off(anchor)):
            return None
        return worker

    def _is_cut_off(self, worker: SimWorker) -> bool:
        """Tell whether no process of its master holds the lines that this worker lacks."""
        lacks = self._faults.checkers.truth.applied[worker.node] + 1
        processes = self._world.master(worker.config.master).processes
        return all(process.journal.results_from() > lacks for process in processes)

    # ---- copies

    def _lose(self, kind: str, lose: Callable[[SimWorker], None]) -> None:
        if (worker := self._expendable()) is not None:
            self._faults.kill(kind, worker, partial(lose, worker))

    def _damage(self) -> None:
        worker = self._expendable()
        if worker is not None:
            self._faults.note("worker damaged", worker.node)
            worker.damage()

    # ---- processes and links

    def _freeze(self) -> None:
        worker = self._any()
        if worker is not None:
            self._faults.note("worker frozen", worker.node)
            worker.freeze(self._faults.a_while())

    def _cut(self) -> None:
        links = self._world.worker_links
        self._faults.cut("cut workers", both_ways([self._world.rng.choice(links)]) if links else [])

    # ---- commands

    def _order(self, kind: str, worker: SimWorker | None, command: str) -> None:
        if worker is None:
            return
        answer = self._world.master(worker.config.master).command(command, worker=worker.node)
        if answer is not None:
            self._faults.note(kind, worker.node)

    def _switch(self) -> None:
        worker = self._any()
        self._order("worker switched off", worker, "worker-off")
        self._later("worker switched on", worker, "worker-on")

    def _remove(self) -> None:
        worker = self._any()
        self._order("worker removed", worker, "worker-remove")
        self._later("worker added", worker, "worker-add")

    def _late(self) -> None:
        """Add a worker to a site that can have trimmed the beginning of its log."""
        last = self._world.masters[len(self._world.options.workers) - 1].node
        worker = self._faults.one([worker for worker in self._world.workers if worker.config.master == last])
        self._order("late worker added", worker, "worker-add")  # type: ignore[arg-type]

    def _later(self, kind: str, worker: SimWorker | None, command: str) -> None:
        self._world.at(self._world.now_us + self._faults.a_while(), self._order, kind, worker, command)


class Faults(Luck):
    """All faults of one world."""

    def __init__(self, world: Cluster, members: Members, checkers: Checkers) -> None:
        super().__init__(world, members, checkers)
        self._is_power_failing = False
        self._kinds: dict[str, Callable[[], None]] = {
            "crash master": lambda: self._end(self.one(world.master_processes)),
            "crash worker": lambda: self._end(self.one(world.workers)),
            "aimed crash": self._aim,
            "crash all": self._crash_all,
            "lose power": self._lose_power,
            "cut one way": self._cut_one_way,
            "cut link": self._cut_link,
            "isolate": self._isolate,
            "partition": self._partition,
            "bridge": self._bridge,
            "clog": self._clog,
            "clock jump": self._clock_jump,
            "slow disk": self._slow_disk,
            "slow processor": self._slow_processor,
            "full disk": lambda: self.fill(world.rng.choice(world.master_processes)),
            "store failure": self._store_failure,
            "trim": self._trim,
            "wipe": self._wipe,
            **MemberFaults(self).kinds,
            **SettingFaults(self).kinds,
            **WorkerFaults(self).kinds,
            **BackupFaults(self).kinds,
        }

    def begin(self) -> None:
        """Plan the first fault of each kind."""
        for kind in self._world.options.faults:
            self._plan(kind)

    def _plan(self, kind: str) -> None:
        mean_us = self._world.options.faults[kind]
        after_us = int(self._world.rng.expovariate(1 / mean_us))
        self._world.at(self._world.now_us + after_us, self._strike_again, kind)

    def _strike_again(self, kind: str) -> None:
        if not self._world.is_calm:
            self.strike(kind)
            self._plan(kind)

    def strike(self, kind: str) -> None:
        """Let a kind of fault happen now, unless the liveness phase has begun."""
        if not self._world.is_calm:
            self._kinds[kind]()

    def _names(self) -> list[NodeId]:
        return [process.node for process in self._world.master_processes]

    # ---- crashes

    def _end(self, process: Process | None) -> None:
        """Stop half of them in order, and kill the others."""
        if process is None:
            return
        if self._world.rng.random() < 0.5:
            self.note("stop", process.node)
            process.stop()
        else:
            self.note("crash", process.node)
            process.die()
        self._world.plan_restart(process)

    def _crash_all(self) -> None:
        self.note("crash of all masters", "all at once")
        self.kill_all(self._world.master_processes)

    def _lose_power(self) -> None:
        self._is_power_failing = True

    def on_deferred(self, master: Process) -> None:
        """Sometimes cut the power soon after a master has deferred records, at that master or everywhere."""
        world = self._world
        if self._is_power_failing and not world.is_calm:
            self._is_power_failing = False
            victims = world.rng.choice(([master], [master], world.master_processes, world.processes_list))
            world.at(world.now_us + world.rng.choice((0, 2_000, 15_000)), self._go_dark, list(victims))

    def _go_dark(self, victims: Sequence[Process]) -> None:
        self.note("power lost", f"{len(victims)} processes")
        self.kill_all(victims)

    def _aim(self) -> None:
        rng = self._world.rng
        process = rng.choice(self._world.processes_list)
        kind: type | None
        if isinstance(process, SimMaster):
            point = rng.choice(MASTER_POINTS)
            kind = rng.choice(MESSAGES if point == "half sent" else RECORDS)
            kind = None if point == "nothing written" else kind
        elif isinstance(process, SimProcess):
            point = rng.choice(PROCESS_POINTS)
            kind = rng.choice(PROCESS_MESSAGES if point == "half sent" else PROCESS_RECORDS)
            kind = None if point in ("nothing written", "view started") or point.startswith("copy") else kind
        else:
            point = rng.choice(WORKER_POINTS)
            kind = rng.choice(WORKER_KINDS.get(point, (None,)))
        process.aim = Aim(point, kind, rng.randint(1, 4))

    def _trim(self) -> None:
        """Trim the oldest part of a master's log that it has executed and its peers hold, even if its workers need it."""
        world = self._world
        truth = self.checkers.truth
        master = self.one(world.master_processes)
        if not isinstance(master, SimMaster) or master.journal.waiting:
            return
        done = min(mirror.lsn for mirror in truth.mirrors.values())
        if master.config.feed.workers:
            done = min(done, truth.mirrors[master.node].executed)
        if world.anchor is not None and world.anchor.config.master == master.node:
            done = min(done, truth.applied[world.anchor.node])
        if done:
            below = world.rng.randint(1, done + 1)
            if master.journal.try_trim(below):
                self.note("log trimmed", f"{master.node} below {below}")

    def _wipe(self) -> None:
        """Lose one data directory, of a master that another one has heard; only once in a run."""
        world = self._world
        singles = [master for master in world.masters if isinstance(master, SimMaster)]
        if any(master.is_wiped for master in singles):
            return
        known = [m for m in singles if m.is_up and any(m.node in o.journal.state().peer_journals for o in world.masters)]
        if known:
            master = world.rng.choice(known)
            self.kill("data directory lost", master, master.wipe)

    # ---- the wire

    def _cut_one_way(self) -> None:
        links = self._world.links
        self.cut("cut one way", [self._world.rng.choice(links)] if links else [])

    def _cut_link(self) -> None:
        links = self._world.links
        self.cut("cut link", both_ways([self._world.rng.choice(links)]) if links else [])

    def _isolate(self) -> None:
        names = self._names()
        alone = self._world.rng.choice(names)
        self.cut("isolate", both_ways((alone, other) for other in names if other != alone))

    def _partition(self) -> None:
        names = self._names()
        self._world.rng.shuffle(names)
        if len(names) > 1:
            place = self._world.rng.randint(1, len(names) - 1)
            self.cut("partition", both_ways((one, other) for one in names[:place] for other in names[place:]))

    def _bridge(self) -> None:
        """Cut two sides whose only connection is one master."""
        names = self._names()
        self._world.rng.shuffle(names)
        if len(names) > 2:
            place = self._world.rng.randint(1, len(names) - 2)
            self.cut("bridge", both_ways((one, other) for one in names[:place] for other in names[place + 1 :]))

    def _clog(self) -> None:
        """Clog links one by one; they come free in another order."""
        world, rng = self._world, self._world.rng
        chosen = [link for link in world.links if rng.random() < 0.5]
        if chosen:
            self.note("clog", f"{len(chosen)} directions")
        for place, link in enumerate(chosen):
            start_us = place * 20_000
            world.at(world.now_us + start_us, world.network.clog, link, rng.randint(1, 10) * 200_000)

    # ---- clocks and disks

    def _clock_jump(self) -> None:
        rng = self._world.rng
        master = rng.choice(self._world.master_processes)
        by_us = rng.choice((-1, 1)) * rng.choice((2_000, 100_000, 5 * SECOND_US, HOUR_US))
        self.note("clock jump", f"{master.node} by {by_us / SECOND_US} s")
        master.clock.jump(by_us)

    def _slow_disk(self) -> None:
        process = self._world.rng.choice(self._world.processes_list)
        self.note("slow disk", process.node)
        self.for_a_while(process, "is_disk_slow", value=True, usual=False)

    def _slow_processor(self) -> None:
        """Give a process few turns, each with much work."""
        rng = self._world.rng
        process = rng.choice(self._world.processes_list)
        turn_us = rng.choice(SLOW_TURN_US)
        self.note("slow processor", f"{process.node}, {turn_us} us a turn")
        self.for_a_while(process, "turn_us", turn_us, TURN_US)

    def _store_failure(self) -> None:
        if self._world.workers:
            self.fill(self._world.rng.choice(self._world.workers))
