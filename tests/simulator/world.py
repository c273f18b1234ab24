"""One seeded world: a whole cluster of shipped runners in virtual time, its clients, its faults, and its checkers.

    events.py      virtual time             processes.py, nodes.py, backups.py   its processes
    cluster.py     the nodes and links      clients/, checks/, faults/           its clients, its checks, its faults

Two phases. In the **safety phase** faults happen and clients write; every check holds after every step. In the **liveness phase**
everything is healed and restarted. Within a bounded virtual time every accepted transaction must then be synchronised on all
masters and applied by all workers, and every ticket answered.

The classes are layers: World extends Cluster, and Cluster extends its processes' view of the world. No layer knows the one above.
Equal options give equal runs, event for event, in any process: this code never uses a real clock, hashes, or anything else that is
not drawn from the seed.

In the liveness phase switched-off workers are switched on, and removed workers are added; the cluster must do everything else by
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TextIO

from brokerha.model.ids import Lsn, NodeId, maker_of
from brokerha.replication.site.config import Standing, Trust
from brokerha.replication.site.site import Site
from brokerha.sync.modes import NONE
from brokerha.transactions.states import Part
from tests.simulator.checks.checkers import Checkers
from tests.simulator.checks.modes import ModeCheckers
from tests.simulator.checks.truth import Truth, check
from tests.simulator.clients.transactions import TxClients
from tests.simulator.clients.workload import Clients
from tests.simulator.cluster import Cluster
from tests.simulator.faults.timing import Faults
from tests.simulator.members import Members
from tests.simulator.network import both_ways
from tests.simulator.nodes import SimMaster
from tests.simulator.options import Options
from tests.simulator.processes import TURN_US

QUIET_POSTS = 5
"""Most posts from one idle master to another within three idle rounds."""
QUIET_AFTER_US = 7_000_000
"""Time after which an unused snapshot is forgotten."""
QUIET_MESSAGES = 1
"""Most messages of a kind, without heartbeats, between two idle nodes of a site in that time."""
WIPED_US = 5_000_000
"""Time after healing in which a master must notice that it lost its disk."""


def switch_all_on(world: Cluster, members: Members) -> None:
    """Add every worker of the world to its master, and switch it on; a repetition changes nothing.

    A worker after results that no node has any more is trusted, as its operator would do.
    """
    chosen: set[NodeId] = set()
    for worker in world.workers:
        master = world.master(worker.config.master)
        if not master.is_up or not members.is_current(master.node):
            continue
        known = master.runner.core.site.workers.get(worker.node)
        if known is None:
            master.command("worker-add", worker=worker.node)
        elif not known.is_switched_on:
            master.command("worker-on", worker=worker.node)
        elif (
            master.runner.core.site.lacks_results_of(known)
            and not _has_chosen(master.runner.core.site)
            and master.node not in chosen
        ):
            # One for each site, because the order is carried out later.
            chosen.add(master.node)
            members.choose_copy(master.node, worker.node)


def _has_chosen(site: Site) -> bool:
    return any(worker.trust is Trust.CHOSEN for worker in site.workers.values())


def missing_at_workers(world: Cluster, members: Members) -> str:
    """Return what is still wrong with a worker or site; empty when nothing is."""
    masters = [master for master in world.masters if members.is_current(master.node)]
    for master in masters:
        core = master.runner.core
        for node, worker in core.site.workers.items():
            if worker.standing is not Standing.ON:
                return f"{node} is {worker.standing.value} at {master.node}: {worker.reason}"
        if core.sites.differing and NONE not in {core.sync.mode, *world.options.modes}:
            return f"{master.node}: {core.sites.reason()}"
        if core.site.disagreement:
            return core.site.disagreement
    for process in world.workers:
        if members.is_current(process.config.master) and process.copy.recompute() != process.copy.applied():
            return f"the copy of {process.node} is damaged"
    return ""


def led_to(logs: Sequence[tuple[Lsn, Lsn]], lsn: Lsn) -> Lsn:
    """Return the LSN to which logs, each from its first to its last LSN and in this order, lead a copy at ``lsn``.

    >>> led_to([(1, 3), (5, 8)], 3), led_to([(1, 4), (5, 8)], 3)
    (3, 8)
    """
    for first, last in logs:
        lsn = max(lsn, last) if first <= lsn + 1 else lsn
    return lsn


def left_behind(world: Cluster, members: Members, truth: Truth) -> str:
    """Return remains of transactions that are not used any more; empty when there are none."""
    for master in world.masters:
        if not members.is_current(master.node):
            continue
        book = master.runner.core.transacting.coordinator.book
        for name, left in (
            ("transactions", book.table),
            ("feeds", book.ending),
            ("commits", book.executing),
            ("xids", book.xids),
            ("locks", book.locks),
            ("prepares", book.placed),
        ):
            if len(left):
                return f"{master.node} still has {len(left)} {name}"
    kept = [txid for txid in truth.model.prepared if members.is_current(maker_of(txid))]
    if kept:
        return f"{', '.join(kept)} is over and still kept as prepared"
    for process in world.standing_by:
        # A process that missed the rollback of an open transaction keeps it until its timeout.
        participant = process.runner.standby.participant
        joined = [each.txid for each in participant.joined.values() if each.part is not Part.COLLECTING]
        if joined:
            return f"{process.node} still takes part in {', '.join(joined)}"
    if world.tx_queues.names:
        return f"queues {', '.join(world.tx_queues.names)} are left"
    return ""


class World(Cluster):
    """A cluster, its clients and its faults."""

    checkers: Checkers
    clients: Clients
    tx_clients: TxClients
    faults: Faults

    def __init__(self, options: Options, out: TextIO | None = None) -> None:
        super().__init__(options, out)
        self.broken: list[tuple[NodeId, NodeId]] = []
        truth = Truth(self)
        self.members = Members(self, truth)
        self.clients = Clients(self)
        self.tx_clients = TxClients(self, self.clients, truth.model)
        is_quorum = self.masters[0].config.sync.split_recovery == "quorum"
        kind = Checkers if is_quorum and not options.modes else ModeCheckers
        self.checkers = kind(self, truth, self.members, self.clients, self.tx_clients)
        self.faults = Faults(self, self.members, self.checkers)

    # ---- phases

    def safety_phase(self) -> None:
        """Let faults happen and clients write."""
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
        """Heal all faults, and start all processes."""
        self.is_calm = True
        self.trace.note(self.now_us, "world", "heals")
        self.network.heal()
        self.network.cut_for_ever(self.broken)
        for process in self.processes_list:
            process.is_disk_full = process.is_disk_slow = False
            process.turn_us = TURN_US
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
        came_together = self.run_while(lambda: self._is_apart() and not self._is_content_lost(), self.options.liveness_us)
        if self._is_content_lost():
            self.faults_seen["content lost"] += 1
            is_said = self.run_while(self._is_loss_unsaid, self.options.liveness_us)
            check(is_said, "S10", "an operator is told that no copy is good")
            return
        check(came_together, "S10", "comes together after healing", what=self.what_is_missing())
        self.checkers.at_the_end()
        if self.options.looks_on:
            self._stays_quiet()

    def _is_content_lost(self) -> bool:
        """Tell whether no log continues any good copy, but one would continue a copy that a fault took, or damaged unnoticed."""
        truth = self.checkers.truth
        current = [master for master in self.masters if self.members.is_current(master.node)]
        if not self.workers or not all(master.is_up for master in current):
            return False
        logs = sorted((master.runner.core.history.first_lsn(), master.runner.core.sync.lsn) for master in current)
        good, bad = (
            led_to(logs, max([begin, *(truth.applied[worker.node] for worker in self.workers if worker.is_damaged is is_bad)]))
            for is_bad, begin in ((False, 0), (True, truth.lost_lsn))
        )
        return good < max(last for _, last in logs) <= bad

    def _is_loss_unsaid(self) -> bool:
        """Tell whether a site with reachable workers does not ask for a person; one with a shorter log waits for the others."""
        current = [master for master in self.masters if master.is_up and self.members.is_current(master.node)]
        top = max((master.runner.core.sync.lsn for master in current), default=0)
        for master in current:
            if master.runner.core.sync.lsn == top:
                site, mono_ms = master.runner.core.site, master.clock.now().mono_ms
                if any(site.is_alive(worker, mono_ms) for worker in site.workers.values()) and not site.attention(mono_ms):
                    return True
        return False

    def _stays_quiet(self) -> None:
        """R17: a cluster with nothing to agree on sends only heartbeats, and gives no orders."""
        self.run_until(self.now_us + max(3 * self._idle_us(), QUIET_AFTER_US))
        # All nodes know the last settings by now.
        before, told = dict(self.checkers.posts), self.checkers.told.copy()
        self.run_until(self.now_us + 3 * self._idle_us())
        for (sender, receiver), count in self.checkers.posts.items():
            posts = count - before.get((sender, receiver), 0)
            check(posts <= QUIET_POSTS, "R17", "idle masters are quiet", sender=sender, to=receiver, posts=posts)
        for what, count in (self.checkers.told - told).items():
            check(count <= QUIET_MESSAGES, "F11", "nothing is told for ever", what=what, count=count)

    def _idle_us(self) -> int:
        return max(master.config.sync.idle_round_ms for master in self.masters) * 1000

    def _is_apart(self) -> bool:
        switch_all_on(self, self.members)
        self.members.settle()
        self.tx_clients.forget_all()
        return bool(self.what_is_missing())

    def what_is_missing(self) -> str:
        """Return why the cluster has not converged; empty when it has."""
        return (
            self._missing_answers()
            or self.members.missing()
            or (self.checkers.missing_at_masters() if isinstance(self.checkers, ModeCheckers) else self._missing_at_masters())
            or missing_at_workers(self, self.members)
            or self.checkers.journals.what_is_missing()
            or left_behind(self, self.members, self.checkers.truth)
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
        """Run both phases. Raises Violation, InvariantBroken or any error of the cores."""
        self.safety_phase()
        self.liveness_phase()
