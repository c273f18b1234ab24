"""The nodes of a world, by its options: masters, with or without backups, and workers; and the links between them."""

from __future__ import annotations

from itertools import combinations
from typing import TextIO

from brokerha.master.config import DeferConfig, MasterConfig, RetentionConfig
from brokerha.model.ids import NodeId
from brokerha.nodes.master.process_runner import ProcessConfig
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.sync.config import SyncConfig
from brokerha.transactions.config import TxConfig
from tests.simulator.backups import SimGroup, SimProcess
from tests.simulator.copies import Home
from tests.simulator.disk import sim_journal
from tests.simulator.network import both_ways
from tests.simulator.nodes import SimMaster, SimWorker
from tests.simulator.options import KEEP_RESULTS, Options
from tests.simulator.processes import Process, SimClock, Surroundings

DEFER_MS = (1_000, 100, 20)
"""Longest time that a master defers records that it can compute again; each seed has one of these."""


class Cluster(Surroundings):
    """All processes of a world, without clients."""

    def __init__(self, options: Options, out: TextIO | None = None) -> None:
        super().__init__(options, out)
        self.home = Home()
        """Folder of the workers' files; the creator of the world closes it."""
        self.masters: list[SimMaster | SimGroup] = []
        self.groups: list[SimGroup] = []
        """Masters with backups."""
        self.workers: list[SimWorker] = []
        self._build()
        self.owner.update({process.node: master.node for master in self.masters for process in master.processes})
        self.master_processes: list[SimMaster | SimProcess] = [p for m in self.masters for p in m.processes]
        self.processes_list: list[Process] = [*self.master_processes, *self.workers]
        self.processes.update({process.node: process for process in self.processes_list})
        self.links = self._all_links()
        self.worker_links = self._all_worker_links()

    def _build(self) -> None:
        options = self.options
        counts = (*options.workers, *options.spares)
        names = tuple(f"m{number}" for number in range(1, len(counts) + 1))
        founders = names[: len(options.workers)]
        sites = {
            name: tuple(f"{name}w{number}" for number in range(1, count + 1)) for name, count in zip(names, counts, strict=True)
        }
        for name, workers in sites.items():
            sync = SyncConfig(node=name, members=tuple(sorted({*founders, name})), **options.sync)
            others = tuple(worker for other in names if other != name for worker in sites[other])
            probe = workers[0] if workers and options.dedicated_probe else ""
            is_late = options.late and name == founders[-1]
            feed = FeedConfig(workers=() if is_late else workers, others=others, probe=probe, **options.feed)
            # The log of the anchor's site must reach back to its start, whatever the settings are.
            is_anchored = bool(workers) and not self.workers and not options.forgets
            retention = RetentionConfig() if is_anchored else options.retention
            backups = options.backups[len(self.masters)] if options.backups else 0
            sync_n = options.sync_n[len(self.masters)] if backups else 0
            tx = TxConfig(sync_n=sync_n, **options.tx_config)
            # Workers keep the results of four windows; a master must not lose more of them.
            defer = DeferConfig(min(DeferConfig().lsns, feed.window), age_ms=DEFER_MS[options.seed % len(DEFER_MS)])
            config = MasterConfig(sync, feed, options.accept_limit, options.apply_limit, retention, tx, defer)
            if backups:
                self._build_group(config, backups, sync_n)
            else:
                journal = sim_journal(name, f"{name}-journal", str(options.seed), options.disk.sync_fails)
                self.masters.append(SimMaster(self, config, self._clock(), journal))
            for worker in workers:
                # At least one copy must have the results that a site lacks after a long time without a copy.
                kept = options.disk.keep_results if self.workers else KEEP_RESULTS
                self.workers.append(SimWorker(self, self.home, WorkerConfig(worker, name, **options.worker), self._clock(), kept))

    def _build_group(self, config: MasterConfig, backups: int, sync_n: int) -> None:
        """Build a master of several processes: the first one has its name."""
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
        """The worker whose disk is never lost or damaged, so that at least one copy of the content survives."""
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
        """Return the links used only for loads and questions about results: between workers, and to workers of other sites."""
        pairs = [(one.node, other.node) for one, other in combinations(self.workers, 2)]
        pairs += [
            (process.node, worker.node)
            for process in self.master_processes
            for worker in self.workers
            if worker.config.master != self.owner[process.node]
        ]
        return both_ways(pairs)

    def master(self, node: NodeId) -> SimMaster | SimGroup:
        """Return a master by its name."""
        return next(master for master in self.masters if master.node == node)

    @property
    def standing_by(self) -> list[SimProcess]:
        """Living processes that do not act."""
        return [p for group in self.groups for p in group.processes if p.is_up and p.master is None]
