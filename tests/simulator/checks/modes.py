"""Checks of masters that go on on every side of a split (strategies none, simple, smart), from records alone.

There is no single order while sides are apart, so each master is compared with its own queue; one order is required after
convergence. Must never require what only a majority gives: an LSN can change until the sides are one.

Checked: a queue has no gap and no transaction twice (S1, S2), an epoch begins at its end (S1), it is as durable as its records say
(S3), and it goes back only within itself and with growing lineages; epochs grow, and one id is one decision (S12). At the end: one
epoch, one queue with every accepted transaction once (S4, S10). With simple and smart each copy has the content of the queue; with
none nothing that was applied before takes effect again (S7). Not checked: copies before the end, results, messages, backups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokerha.log.log import Log
from brokerha.model.epochs import Epoch
from brokerha.model.forgetting import forgotten_below, is_forgetting
from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.operations import APPLIED
from brokerha.model.records import Accepted, Added, ContentTaken, EpochInstalled, EpochPromised, Outcomes, Record, Rewound
from brokerha.model.wire.messages import Outgoing, Post
from brokerha.sync.modes import NONE, QUORUM
from tests.simulator.checks.checkers import Checkers
from tests.simulator.checks.model import Model
from tests.simulator.checks.truth import Truth, check
from tests.simulator.clients.transactions import TxClients
from tests.simulator.clients.workload import Clients
from tests.simulator.cluster import Cluster
from tests.simulator.members import Members
from tests.simulator.nodes import SimMaster
from tests.simulator.processes import Process


class ModeCheckers(Checkers):
    """The checks of a world whose strategy is not quorum; masters have no backups."""

    def __init__(self, world: Cluster, truth: Truth, members: Members, clients: Clients, tx_clients: TxClients) -> None:
        super().__init__(world, truth, members, clients, tx_clients)
        self.queues: dict[NodeId, list[Ordered]] = {node: [] for node in self.truth.members}
        self.lineages: dict[NodeId, int] = dict.fromkeys(self.truth.members, 0)
        self._applied: dict[NodeId, dict[Lsn, bool]] = {node: {} for node in self.truth.members}
        """Whether each LSN of a queue was applied at this site, if there is a result."""
        self._held: dict[NodeId, set[TxId]] = {node: set() for node in self.truth.members}
        """Given-up transactions that the content of each site still has."""
        self._mode = world.masters[0].config.sync.split_recovery
        self._promised: dict[Lsn, TxId] = {}
        """Transactions with a permanent place: a master added them there with quorum."""

    def on_start(self, node: NodeId, journal: Log) -> None:
        """Check that the journal of a starting master has its durable state."""
        state, mirror = journal.state(), self.truth.mirrors[node]
        mirror.journal = state.journal
        check(state.lsn == mirror.lsn, "S3", "the durable queue is kept", node=node, found=state.lsn, was=mirror.lsn)
        check(state.installed == mirror.epoch, "S12", "the epoch is kept", node=node)
        self._compare(node, journal)

    def on_safe(self, node: NodeId, records: Sequence[Record]) -> None:
        """Check durable records."""
        for record in records:
            self._on_record(node, record)

    def _on_record(self, node: NodeId, record: Record) -> None:
        mirror, queue = self.truth.mirrors[node], self.queues[node]
        match record:
            case Accepted():
                mirror.accepted.update(txid for txid, _ in record.items)
                self.truth.bodies.update(((node, txid), body) for txid, body in record.items)
            case Added():
                check(record.first_lsn == len(queue) + 1, "S1", "LSNs have no gap", node=node, first=record.first_lsn)
                self._keep_promises(node, record)
                for entry in record.entries:
                    is_new = _is_new(entry[1], queue)
                    check(is_new, "S2", "each transaction id once, while it is known", node=node, txid=entry[1])
                    self._world.faults_seen["ids forgotten"] += is_forgetting(entry[1])
                    self._world.faults_seen["id came again"] += any(entry[1] == txid for _, txid, _ in queue)
                    queue.append(entry)
            case Rewound():
                check(record.lsn <= len(queue), "S1", "a queue goes back", node=node, lsn=record.lsn, was=len(queue))
                grows = record.lineage > self.lineages[node]
                check(grows, "S1", "lineages grow", node=node, lineage=record.lineage, was=self.lineages[node])
                self.lineages[node] = record.lineage
                broken = [lsn for lsn in range(record.lsn + 1, len(queue) + 1) if self._promised.get(lsn) == queue[lsn - 1][1]]
                check(not broken, "S3", "what was synchronised with quorum is never given up", node=node, lsns=broken)
                self._world.faults_seen["queue went back" if record.lsn < len(queue) else "lineage begun"] += 1
                self._go_back(node, record)
            case Outcomes():
                results = enumerate(record.results, record.first_lsn)
                self._applied[node].update((lsn, result[0] == APPLIED) for lsn, result in results)
            case ContentTaken():
                self._held[node].clear()
            case EpochPromised(epoch):
                check(epoch > mirror.promised_epoch, "S12", "the promised epoch grows", node=node, epoch=epoch)
                mirror.promised_epoch = epoch
            case EpochInstalled():
                self._installed(node, record.epoch)
        mirror.lsn = len(queue)

    def _keep_promises(self, node: NodeId, record: Added) -> None:
        """Check that a place that was told with quorum keeps its transaction."""
        epoch = self.truth.mirrors[node].epoch
        is_told = (epoch.mode if epoch is not None and epoch.mode else self._mode) == QUORUM
        for lsn, (_, txid, _) in enumerate(record.entries, record.first_lsn):
            told = self._promised.setdefault(lsn, txid) if is_told else self._promised.get(lsn, txid)
            check(told == txid, "S3", "a place that was told with quorum is kept", node=node, lsn=lsn, told=told, found=txid)

    def on_deferred(self, process: Process, records: Sequence[Record]) -> None:
        """Check deferred records, which are read and told, but can be lost (R18)."""
        for record in records:
            if isinstance(record, Added):
                self._keep_promises(process.node, record)

    def _go_back(self, node: NodeId, record: Rewound) -> None:
        queue, applied = self.queues[node], self._applied[node]
        if record.keeps_content:
            given_up = enumerate(queue[record.lsn :], record.lsn + 1)
            self._held[node].update(txid for lsn, (_, txid, _) in given_up if applied.get(lsn))
        del queue[record.lsn :]
        self._applied[node] = {lsn: is_applied for lsn, is_applied in applied.items() if lsn <= record.lsn}

    def _installed(self, node: NodeId, epoch: Epoch) -> None:
        truth, lsn = self.truth, len(self.queues[node])
        mirror = truth.mirrors[node]
        known = truth.epochs.setdefault(epoch.id, epoch)
        check(known == epoch, "S12", "one decision for each epoch", epoch=epoch.id)
        check(epoch.id > mirror.epoch_id, "S12", "epochs grow", node=node, epoch=epoch.id)
        check(node in epoch.members, "S12", "members install it", node=node, epoch=epoch.id)
        check(epoch.base_lsn == lsn, "S1", "the base is owned", node=node, base=epoch.base_lsn, lsn=lsn)
        is_begun = len(epoch.agreed) <= 1 or self.lineages[node] >= epoch.number
        check(is_begun, "S1", "a lineage begins where sides come together", node=node, epoch=epoch.id)
        self._world.faults_seen["epoch begun"] += 1
        mirror.epoch = epoch

    def _compare(self, node: NodeId, journal: Log) -> None:
        first = journal.first_lsn()
        held = journal.ordered(first, len(self.queues[node]) + 1 - first)
        check(held == self.queues[node][first - 1 :], "S3", "the queue is what its records say", node=node)

    def on_message(self, process: Process, outgoing: Outgoing) -> None:
        """Count posts, because an idle cluster sends few."""
        if isinstance(outgoing.message, Post):
            self.posts[outgoing.sender or process.node, outgoing.to] += 1

    def in_full(self) -> None:
        """Check that each journal holds the queue of its records."""
        for master in self._world.masters:
            if isinstance(master, SimMaster):
                self._compare(master.node, master.journal)

    def missing_at_masters(self) -> str:
        """Return why the masters do not have one epoch and one queue with all accepted transactions; empty when they have."""
        queues, mirrors = self.queues, self.truth.mirrors
        first = self.truth.members[0]
        for node in self.truth.members:
            epoch = mirrors[node].epoch
            if epoch != mirrors[first].epoch or (epoch and epoch.members != self.truth.members):
                return f"{node} is in epoch {mirrors[node].epoch_id} of {epoch.members if epoch else 'all'}"
            if queues[node] != queues[first]:
                return f"{node} has another queue than {first}: {len(queues[node])} and {len(queues[first])} entries"
            if waiting := mirrors[node].accepted.difference(txid for _, txid, _ in queues[first]):
                return f"accepted at {node} and not added: {', '.join(sorted(waiting)[:5])}"
            if self._world.master(node).runner.core.sync.is_busy():
                return f"{node} has something to agree on"
        behind = [w.node for w in self._world.workers if w.copy.applied().lsn != len(queues[first])]
        return f"{behind[0]} has not applied all" if behind else ""

    def at_the_end(self) -> None:
        """Check convergence: one queue, and its content everywhere."""
        missing = self.missing_at_masters()
        check(not missing, "S10", "all masters are of one mind", what=missing)
        self.in_full()
        for worker in self._world.workers:
            found = worker.copy.recompute()
            check(found.fingerprint == worker.copy.applied().fingerprint, "S7", "a copy is what it says", node=worker.node)
        if NONE not in {self._mode, *self._world.options.modes}:
            self._contents_follow()
        else:
            self._nothing_twice()

    def _contents_follow(self) -> None:
        """Check that every copy has the content of the queue, executed in order."""
        model = Model()
        journal = self._world.masters[0].journal
        for lsn, (timestamp, txid, origin) in enumerate(self.queues[self.truth.members[0]], 1):
            body = self.truth.bodies.get((origin, txid))
            is_held = lsn < journal.first_lsn() or journal.body(origin, txid) == body
            check(body is not None and is_held, "S8", "what is synchronised has its body", txid=txid)
            model.fold(txid, timestamp, body or b"")
        for worker in self._world.workers:
            same = worker.copy.applied().fingerprint == model.fingerprints[-1]
            check(same, "S7", "a copy has what the queue makes", node=worker.node)

    def _nothing_twice(self) -> None:
        """Check that a transaction that a site had applied has no effect there at its new place.

        The record is kept here, because the split book has bounds; effects that a site takes from another one are not its own.
        """
        for master in self._world.masters:
            for txid in sorted(self._held[master.node]):
                if [each for _, each, _ in self.queues[master.node]].count(txid) > 1:
                    continue  # Its id was forgotten, and the last one is a new write.
                lsn = master.journal.lsn_of(txid)
                effects = [result.effect for result in master.journal.results(lsn, 1)] if lsn else []
                check(not any(effects), "S7", "nothing is executed twice", node=master.node, txid=txid, lsn=lsn)


def _is_new(txid: TxId, queue: Sequence[Ordered]) -> bool:
    """Tell whether an id is none of a queue, or is forgotten there."""
    ids_from = max([forgotten_below(each) for _, each, _ in queue if is_forgetting(each)], default=0)
    return max([lsn for lsn, (_, each, _) in enumerate(queue, 1) if each == txid], default=-1) < ids_from


def _nothing(*_arguments: object, **_named: object) -> None:
    """Skip a check that needs a majority."""


_UNCHECKED: tuple[str, ...] = (
    "on_taken", "on_reply", "on_decision", "on_store", "on_copy", "on_loaded", "on_worker_start", "on_detected",
    "after_worker_turn", "on_emptied", "after_turn", "on_tx_reply", "on_outcome",
)  # fmt: skip
_skip: Callable[..., None] = _nothing
for _name in _UNCHECKED:
    setattr(ModeCheckers, _name, _skip)
