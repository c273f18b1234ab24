"""One seeded world: a heap of events, one source of luck, virtual time, and a whole cluster of shipped runners in it.

    at(when, what) ---> heap ---> step: the earliest event happens ---> checks ---> more events

Two phases. In the **safety phase** faults happen and clients write; every check holds after every step. In the
**liveness phase** everything heals and restarts; within a bounded virtual time every accepted transaction has to be
synchronised on all masters and applied by all workers, and every ticket answered.

Equal options give equal runs, event for event, in any process: nothing here looks at a real clock, at hashes, or at
anything that was not drawn from the seed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import combinations, islice
from random import Random
from typing import Any, TextIO

from brokerha.master.core import MasterConfig
from brokerha.master.deferring import DeferConfig
from brokerha.master.retention import RetentionConfig
from brokerha.model.ids import NodeId
from brokerha.nodes.master.process_runner import ProcessConfig
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.simulator.backups import SimGroup, SimProcess
from brokerha.simulator.checks.checkers import Checkers
from brokerha.simulator.checks.modes import ModeCheckers
from brokerha.simulator.checks.truth import check
from brokerha.simulator.clients.transactions import TxClients, left_behind
from brokerha.simulator.clients.workload import Clients
from brokerha.simulator.clocks import SimClock
from brokerha.simulator.disk import sim_journal
from brokerha.simulator.faults.timing import Faults
from brokerha.simulator.members import Members
from brokerha.simulator.network import Network, both_ways
from brokerha.simulator.options import Options
from brokerha.simulator.processes import Process, SimMaster, SimWorker
from brokerha.simulator.settling import missing_at_workers, switch_all_on
from brokerha.simulator.trace import Trace
from brokerha.simulator.tx_queues import TxQueues
from brokerha.sync.config import SyncConfig
from brokerha.transactions.config import TxConfig

DEFER_MS = (1_000, 100, 20)
"""How long a master may wait with what it can work out again; a seed has one of these."""
RESTART_US = (1_000, 3_000_000)
"""How long a dead process stays away."""
LOOK_US = 50_000
"""How often the liveness phase looks whether everything has come together."""
QUIET_POSTS = 5
"""Most posts from one idle master to another within three idle rounds."""
QUIET_AFTER_US = 7_000_000
"""Time in which a snapshot that nobody asks for any more is forgotten."""
QUIET_MESSAGES = 1
"""Most messages of a kind, heartbeats left out, between two idle nodes of a site in that time."""
WIPED_US = 5_000_000
"""Time after healing in which a master that lost its disk has to find out."""
FULL_STEPS = 250
"""Everything is checked in full after so many steps."""
LIVENESS_STEPS = 20_000
"""Steps after which a cluster that has not come together is called stuck, whatever the virtual clock says."""


class World:
    """A cluster, its clients and its bad luck."""

    def __init__(self, options: Options, out: TextIO | None = None) -> None:
        self.options = options
        self.rng = Random(options.seed)
        self.now_us = 0
        self.steps = 0
        self.trace = Trace(out)
        self.faults_seen: Counter[str] = Counter()
        self.is_calm = False
        """Whether faults are over."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._event = 0
        self._full_at = FULL_STEPS
        self.has_backups = any(options.backups)
        self.masters: list[SimMaster | SimGroup] = []
        self.groups: list[SimGroup] = []
        """Masters with backups."""
        self.workers: list[SimWorker] = []
        self.tx_queues = TxQueues(self)
        self._build()
        self.owner = {process.node: master.node for master in self.masters for process in master.processes}
        """Master of each process."""
        self.master_processes: list[SimMaster | SimProcess] = [p for m in self.masters for p in m.processes]
        self.processes_list: list[Process] = [*self.master_processes, *self.workers]
        self.processes: dict[NodeId, Process] = {process.node: process for process in self.processes_list}
        self.links = self._all_links()
        self.worker_links = self._all_worker_links()
        self.broken: list[tuple[NodeId, NodeId]] = []
        self.members = Members(self)
        self.clients = Clients(self)
        self.tx_clients = TxClients(self)
        self.network = Network(self)
        is_quorum = self.masters[0].config.sync.split_recovery == "quorum"
        self.checkers = Checkers(self) if is_quorum else ModeCheckers(self)
        self.faults = Faults(self)

    def _build(self) -> None:
        options = self.options
        counts = (*options.workers, *options.spares)
        names = tuple(f"m{number}" for number in range(1, len(counts) + 1))
        founders = names[: len(options.workers)]
        sites = {
            name: tuple(f"{name}w{number}" for number in range(1, count + 1))
            for name, count in zip(names, counts, strict=True)
        }
        for name, workers in sites.items():
            sync = SyncConfig(node=name, members=tuple(sorted({*founders, name})), **options.sync)
            others = tuple(worker for other in names if other != name for worker in sites[other])
            probe = workers[0] if workers and options.dedicated_probe else ""
            is_late = options.late and name == founders[-1]
            feed = FeedConfig(workers=() if is_late else workers, others=others, probe=probe, **options.feed)
            # The log of the anchor's site has to reach back to it, whatever the settings say.
            is_anchored = bool(workers) and not self.workers
            retention = RetentionConfig() if is_anchored else options.retention
            backups = options.backups[len(self.masters)] if options.backups else 0
            sync_n = options.sync_n[len(self.masters)] if backups else 0
            tx = TxConfig(sync_n=sync_n, **options.tx_config)
            # Workers keep the results of four windows; what a master may lose of them is less.
            defer = DeferConfig(min(DeferConfig().lsns, feed.window), age_ms=DEFER_MS[options.seed % len(DEFER_MS)])
            config = MasterConfig(sync, feed, options.accept_limit, options.apply_limit, retention, tx, defer)
            if backups:
                self._build_group(config, backups, sync_n)
            else:
                journal = sim_journal(name, f"{name}-journal", str(options.seed), options.disk.sync_fails)
                self.masters.append(SimMaster(self, config, self._clock(), journal))
            for worker in workers:
                self.workers.append(SimWorker(self, WorkerConfig(worker, name, **options.worker), self._clock()))

    def _build_group(self, config: MasterConfig, backups: int, sync_n: int) -> None:
        """A master of several processes: the first one has its name."""
        name, options = config.sync.node, self.options
        names = (name, *(f"{name}-{letter}" for letter in "bcdefghij"[:backups]))
        processes = []
        for process in names:
            role = RoleConfig(process, name, names, sync_n, options.fail_over_ms)
            process_config = ProcessConfig(config, role, sync_timeout_ms=options.sync_timeout_ms)
            processes.append(SimProcess(self, process_config, self._clock()))
        group = SimGroup(config, processes)
        self.groups.append(group)
        self.masters.append(group)

    @property
    def anchor(self) -> SimWorker | None:
        """The worker whose disk is never lost nor damaged, so that at least one copy of the content survives."""
        return self.workers[0] if self.workers else None

    def _clock(self) -> SimClock:
        skew = self.rng.randint(-self.options.skew_us, self.options.skew_us)
        return SimClock(self._true_us, skew, self.rng.uniform(-self.options.drift, self.options.drift))

    def _true_us(self) -> int:
        return self.now_us

    def _all_links(self) -> list[tuple[NodeId, NodeId]]:
        names = [process.node for process in self.master_processes]
        links = [(one, other) for one in names for other in names if one != other]
        pairs = [(w.node, p.node) for w in self.workers for p in self.master(w.config.master).processes]
        return links + both_ways(pairs)

    def _all_worker_links(self) -> list[tuple[NodeId, NodeId]]:
        """Ways that only loads and questions for results take: between workers, and to workers of other sites."""
        pairs = [(one.node, other.node) for one, other in combinations(self.workers, 2)]
        pairs += [
            (process.node, worker.node)
            for process in self.master_processes
            for worker in self.workers
            if worker.config.master != self.owner[process.node]
        ]
        return both_ways(pairs)

    def master(self, node: NodeId) -> SimMaster | SimGroup:
        """One master by its name."""
        return next(master for master in self.masters if master.node == node)

    @property
    def standing_by(self) -> list[SimProcess]:
        """Processes that live and do not act."""
        return [p for group in self.groups for p in group.processes if p.is_up and p.master is None]

    # ---- events

    def at(self, when_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen at a moment; what is planned first happens first."""
        self._event += 1
        heapq.heappush(self._heap, (when_us, self._event, action, arguments))

    def _step(self) -> None:
        self.now_us, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)

    def run_until(self, when_us: int, steps: int = 1_000_000_000) -> None:
        """Let everything happen up to a moment, or until so many more turns were taken."""
        last = self.steps + steps
        while self._heap and self._heap[0][0] <= when_us and self.steps < last:
            self._step()
        if self.steps < last:
            self.now_us = max(self.now_us, when_us)

    def run_while(self, goes_on: Callable[[], bool], for_us: int, every_us: int = LOOK_US) -> bool:
        """Let things happen until a question is answered with no, or the time is over; return whether it was answered so."""
        end_us = self.now_us + for_us
        last = self.steps + LIVENESS_STEPS
        while goes_on():
            if self.now_us >= end_us or self.steps >= last:
                return False
            self.run_until(self.now_us + every_us, LIVENESS_STEPS)
        return True

    def look_in_full(self) -> None:
        """Check everything in full now and then, the more seldom the more there is."""
        if self.steps >= self._full_at:
            self.checkers.in_full()
            self._full_at = self.steps + max(FULL_STEPS, self.checkers.truth.lsn)

    def plan_restart(self, process: Process) -> None:
        """Let a dead process come back after a while."""
        self.at(self.now_us + self.rng.randint(*RESTART_US), self._restart, process)

    def _restart(self, process: Process) -> None:
        if not process.is_up and process.node not in self.members.waiting:
            process.start()

    # ---- phases

    def start_all(self) -> None:
        """All processes begin."""
        for process in self.processes_list:
            if process.node not in self.members.waiting:
                process.start()

    def safety_phase(self) -> None:
        """Faults happen, clients write."""
        options = self.options
        for process in self.processes_list:
            self.at(self.rng.randint(0, 200_000), self._restart, process)
        if options.broken_link:
            names = [master.node for master in self.masters]
            pair = self.rng.sample(names, 2)
            self.broken = both_ways([(pair[0], pair[1])])
            self.network.cut_for_ever(self.broken)
        self.clients.begin()
        self.tx_clients.begin()
        self.faults.begin()
        self.run_until(options.safety_us, options.safety_steps)

    def heal(self) -> None:
        """Everything is mended, and everybody is started."""
        self.is_calm = True
        self.trace.note(self.now_us, "world", "heals")
        self.network.heal()
        self.network.cut_for_ever(self.broken)
        for process in self.processes_list:
            process.is_disk_full = process.is_disk_slow = False
            process.mend()
            process.aim = None
            self._restart(process)
            process.thaw()

    def liveness_phase(self) -> None:
        """S4 and S10: within a bounded time everything that was accepted is everywhere."""
        self.heal()
        if self.options.wipes:
            self.run_until(self.now_us + WIPED_US)
            for master in self.masters:
                if master.is_wiped and isinstance(master, SimMaster):
                    check(bool(master.runner.core.sync.lost), "S3", "who lost its disk knows it", node=master.node)
            return
        came_together = self.run_while(self._is_apart, self.options.liveness_us)
        check(came_together, "S10", "comes together after healing", what=self.what_is_missing())
        self.checkers.at_the_end()
        if self.options.looks_on:
            self._stays_quiet()

    def _stays_quiet(self) -> None:
        """R17: a cluster with nothing to agree on sends heartbeats and nothing else, and gives no orders."""
        idle_us = max(master.config.sync.idle_round_ms for master in self.masters) * 1000
        self.run_until(self.now_us + max(3 * idle_us, QUIET_AFTER_US))
        before, told = dict(self.checkers.posts), self.checkers.told.copy()
        self.run_until(self.now_us + 3 * idle_us)
        for (sender, receiver), count in self.checkers.posts.items():
            posts = count - before.get((sender, receiver), 0)
            check(posts <= QUIET_POSTS, "R17", "idle masters are quiet", sender=sender, to=receiver, posts=posts)
        for what, count in (self.checkers.told - told).items():
            check(count <= QUIET_MESSAGES, "F11", "nothing is told for ever", what=what, count=count)

    def _is_apart(self) -> bool:
        switch_all_on(self)
        self.members.settle()
        self.tx_clients.forget_all()
        return bool(self.what_is_missing())

    def what_is_missing(self) -> str:
        """What still keeps the cluster from being of one mind; empty when nothing does."""
        return (
            self._missing_answers()
            or self.members.missing()
            or (
                self.checkers.missing_at_masters()
                if isinstance(self.checkers, ModeCheckers)
                else self._missing_at_masters()
            )
            or missing_at_workers(self)
            or self.checkers.missing_at_backups()
            or left_behind(self)
        )

    def _missing_answers(self) -> str:
        clients, transactions = self.clients, self.tx_clients
        if clients.undone or clients.tickets:
            return f"answers for {clients.undone} writes and {len(clients.tickets)} tickets"
        if silent := next((m.node for m in self.masters if not m.is_up and self.members.is_current(m.node)), ""):
            return f"{silent} has no primary"
        if transactions.undone or transactions.open_count:
            return f"answers for {transactions.undone} transactions and {transactions.open_count} steps"
        return ""

    def _missing_at_masters(self) -> str:
        truth = self.checkers.truth
        lsn = truth.lsn
        everybody = self.members.masters
        mirrors = {node: mirror for node, mirror in truth.mirrors.items() if node in everybody}
        if waiting := truth.missing_accepted({*truth.mirrors}.difference(everybody)):
            return f"accepted and not added: {', '.join(islice(waiting, 5))}"
        for node, mirror in mirrors.items():
            if mirror.lsn < lsn:
                return f"{node} is at LSN {mirror.lsn} of {lsn}"
        for node, applied in truth.applied.items():
            if applied < lsn and truth.master_of[node] in everybody:
                return f"{node} has applied {applied} of {lsn}"
        for origin in everybody:
            stream = truth.streams[origin]
            for node, mirror in mirrors.items():
                if mirror.counts.get(origin, 0) < len(stream):
                    return f"{node} holds {mirror.counts.get(origin, 0)} of {len(stream)} entries of {origin}"
        current = [master for master in self.masters if master.node in everybody]
        for master in current:
            sync = master.runner.core.sync
            if sync.is_busy():
                return f"{master.node} has something to agree on"
            if sync.epoch.members != everybody or sync.epoch != current[0].runner.core.sync.epoch:
                return f"{master.node} is in epoch {sync.epoch.id} of {', '.join(sync.epoch.members)}"
        return ""

    def run(self) -> None:
        """Both phases. Raises Violation, InvariantBroken or whatever else the cores raise."""
        self.safety_phase()
        self.liveness_phase()
