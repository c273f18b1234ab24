"""The true state of a world: the canon, the streams, and a mirror of each master's durable state.

Kept by the checkers from records alone, in step with the virtual disks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.epochs import FIRST, Change, Epoch, EpochId
from brokerha.model.forgetting import forgotten_below, is_forgetting
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import ResultRow
from brokerha.model.wire.epoch_messages import EpochReport, Row
from brokerha.sync.streams import FORGET_STEP
from tests.simulator.checks.model import Model
from tests.simulator.cluster import Cluster


class Violation(AssertionError):
    """A broken invariant; the text begins with its name."""


def check(holds: bool, rule: str, what: str, /, **facts: object) -> None:
    """Raise `Violation` with the name of the rule unless it holds."""
    if not holds:
        known = ", ".join(f"{name}={value!r}" for name, value in sorted(facts.items()))
        raise Violation(f"{rule}: {what}: {known}" if known else f"{rule}: {what}")


@dataclass(slots=True)
class Mirror:
    """Durable state of one master, by its records."""

    journal: str = ""
    """Name of its journal; empty before its start."""
    journals: dict[NodeId, str] = field(default_factory=dict)
    """Journals that it has recorded, by node."""
    incarnation: int = 0
    high_water: Timestamp = 0
    counts: dict[NodeId, int] = field(default_factory=dict)
    bodies: set[tuple[NodeId, TxId]] = field(default_factory=set)
    accepted: set[TxId] = field(default_factory=set)
    stamped: set[TxId] = field(default_factory=set)
    """Own transactions with a place in this epoch: in the recovered list, or in the own stream."""
    epoch: Epoch | None = None
    """The last installed epoch; None in the first."""
    promised_epoch: EpochId = FIRST
    known: set[TxId] = field(default_factory=set)
    """Transactions from states of other masters."""
    state_lsn: Lsn = 0
    """Position of the last adopted state; no copy with a lower LSN can follow any more."""
    lsn: Lsn = 0
    executed: Lsn = 0
    waiting_lsns: int = 0
    """Number of computed places in the order that are not durable yet (R18)."""
    waiting_results: int = 0
    waiting_since_us: int | None = None
    promised: Timestamp = 0
    """Highest promise that it ever posted."""
    promises: dict[int, Timestamp] = field(default_factory=dict)
    """The last promise of each incarnation."""
    posted: dict[int, int] = field(default_factory=dict)
    """Number of the last post of each incarnation."""

    @property
    def told_lsn(self) -> Lsn:
        """Last LSN that it can tell its own workers and clients."""
        return self.lsn + self.waiting_lsns

    @property
    def told_executed(self) -> Lsn:
        """Last LSN whose result it can tell."""
        return self.executed + self.waiting_results

    def forget_waiting(self) -> None:
        """Reset the deferred records: they are durable now, or lost."""
        self.waiting_lsns, self.waiting_results, self.waiting_since_us = 0, 0, None

    @property
    def epoch_id(self) -> EpochId:
        """Id of its epoch."""
        return self.epoch.id if self.epoch else FIRST

    @property
    def is_frozen(self) -> bool:
        """Whether it has promised a later epoch than its own."""
        return self.promised_epoch > self.epoch_id


class Truth:
    """Everything that is known from outside."""

    def __init__(self, world: Cluster) -> None:
        self.world = world
        self.members = tuple(master.node for master in world.masters)
        """All nodes that can ever be masters."""
        self.founders = self.members[: len(world.options.workers)]
        self.acknowledge = world.masters[0].config.sync.acknowledge
        self.mirrors = {node: Mirror() for node in self.members}
        self.fresh: dict[NodeId, int] = {}
        """Beginnings of the streams of masters with new disks that have stamped nothing yet."""
        self.before_wipe: dict[NodeId, Mirror] = {}
        """Mirrors of lost disks, until their masters are back with new ones."""
        self.past: dict[NodeId, list[Mirror]] = {node: [] for node in self.members}
        """Mirrors of lost disks whose masters are back."""
        self.lost_entries: set[tuple[NodeId, int, Entry]] = set()
        """(origin, number, entry) of entries that were stamped on a lost disk and not reported when its master came back."""
        self.accepted_when: dict[tuple[NodeId, int, int], frozenset[TxId]] = {}
        """By row of a leaving master's report: its accepted transactions that no master had added."""
        self.changes: dict[EpochId, Change] = {}
        """The change of each proposal."""
        self.told_by_leaving: dict[EpochId, tuple[NodeId, frozenset[TxId]]] = {}
        """By proposal: the leaving master whose report has come, and its accepted transactions at that time."""
        self.canon: list[Ordered] = []
        self.epochs: dict[EpochId, Epoch] = {}
        """Every decided epoch, from a message or a record."""
        self.latest: Epoch | None = None
        """The highest installed epoch; None in the first."""
        self.epoch_at: list[EpochId] = []
        """Epoch in which each place of the canon was first added."""
        self.lsn_of: dict[TxId, Lsn] = {}
        """The newest LSN of each transaction id."""
        self.places: dict[TxId, list[Lsn]] = {}
        """All LSNs of each transaction id: one that was forgotten can come again."""
        self.floors: list[tuple[Lsn, Lsn]] = []
        """Of each entry that forgets ids: its LSN, and the LSN below which it forgets them."""
        self.results: list[ResultRow] = []
        self.model = Model()
        self.streams: dict[NodeId, list[Entry]] = {node: [] for node in self.members}
        self.numbers: dict[tuple[NodeId, Timestamp], int] = {}
        """Number of an entry in its stream, by origin and timestamp."""
        self.bodies: dict[tuple[NodeId, TxId], bytes] = {}
        """Bodies that an origin accepted."""
        self.waiting: dict[TxId, list[NodeId]] = {}
        """Accepted transactions outside of the canon, with the masters that accepted them."""
        self.rows: dict[tuple[NodeId, str, int, int], Row] = {}
        """Rows in posts of each master, by node, journal, incarnation and number."""
        self.applied: dict[NodeId, Lsn] = {worker.node: 0 for worker in world.workers}
        self.reached: dict[NodeId, Lsn] = dict(self.applied)
        """Highest LSN that any copy of a worker ever had."""
        self.assumed: dict[NodeId, set[Lsn]] = {node: set() for node in self.members}
        """LSNs whose results a site never had; it assumes that each was applied."""
        self.chosen: set[NodeId] = set()
        """Masters at which an operator trusted a copy."""
        self.lost_lsn: Lsn = 0
        """Highest LSN of the copies that faults took."""
        self.worker_config = {worker.node: worker.config for worker in world.workers}
        self.may_differ = False
        """Set by scenarios in which copies can differ: equal content is required only at the end."""
        self.master_of = {worker.node: worker.config.master for worker in world.workers}

    @property
    def lsn(self) -> Lsn:
        """Length of the canon."""
        return len(self.canon)

    def extend(self, entry: Ordered) -> None:
        """Take an entry to the end of the canon."""
        self.canon.append(entry)
        txid = entry[1]
        self.lsn_of[txid] = self.lsn
        self.places.setdefault(txid, []).append(self.lsn)
        if is_forgetting(txid):
            self.floors.append((self.lsn, forgotten_below(txid)))
            self.world.faults_seen["ids forgotten"] += 1
        if len(self.places[txid]) > 1:
            self.world.faults_seen["id came again"] += 1

    def ids_from(self, end: Lsn) -> Lsn:
        """Return the LSN below which ids are forgotten, in a queue that ends at an LSN."""
        return max([below for lsn, below in self.floors if lsn <= end], default=0)

    def is_new(self, txid: TxId, end: Lsn) -> bool:
        """Tell whether an id is none of a queue that ends at an LSN, or is forgotten there."""
        return max([lsn for lsn in self.places.get(txid, ()) if lsn <= end], default=-1) < self.ids_from(end)

    def holders(self, entry: Ordered, number: int, epoch: EpochId) -> set[NodeId]:
        """Return members of an epoch that hold an entry durably (or held it before their disk was lost).

        A recovered entry is held with its body; an entry of a stream must also be in that stream.
        """
        found = set()
        recovered = self.epochs[epoch].recovered if epoch in self.epochs else ()
        for node in self.members:
            past = [*self.past[node], self.before_wipe.get(node) or self.mirrors[node]]
            if any(self._is_holder(mirror, entry, number, epoch, recovered) for mirror in past):
                found.add(node)
        return found

    @staticmethod
    def _is_holder(mirror: Mirror, entry: Ordered, number: int, epoch: EpochId, recovered: tuple[Ordered, ...]) -> bool:
        if mirror.epoch_id < epoch or (entry[2], entry[1]) not in mirror.bodies:
            return False
        # A node in a later epoch has reported what it holds, or had it in its queue.
        return mirror.epoch_id > epoch or entry in recovered or mirror.counts.get(entry[2], 0) > number

    def decided(self, epoch: Epoch) -> None:
        """S12: check that all statements about an epoch agree."""
        if epoch.id == FIRST:
            return  # It was not decided; a node that is to be added is told of it, and waits with its own.
        known = self.epochs.get(epoch.id)
        if known is None:
            self._decided_first(epoch)
        else:
            check(known == epoch, "S12", "one decision for each epoch", epoch=epoch.id)

    def _decided_first(self, epoch: Epoch) -> None:
        """Check that an epoch recovers all entries that a master has added already, in that order."""
        self.epochs[epoch.id] = epoch
        base = epoch.base_lsn
        check(base <= self.lsn, "S1", "a base is in the queue", epoch=epoch.id, base=base)
        check(not base or self.canon[base - 1][1] == epoch.base_txid, "S1", "a base is the queue's", epoch=epoch.id)
        below = [*epoch.recovered, *self.canon[base - 1 : base]]
        is_above = all(entry[0] <= epoch.above for entry in below)
        check(is_above, "S11", "an epoch is above everything before it", epoch=epoch.id, above=epoch.above)
        # Entries added in a later epoch are unknown to it, and no majority takes it.
        beyond = [entry for entry, added in zip(self.canon[base:], self.epoch_at[base:], strict=True) if added <= epoch.id]
        is_right = list(epoch.recovered[: len(beyond)]) == beyond
        check(is_right, "S1", "what was added beyond the base is recovered first", epoch=epoch.id, added=beyond)
        self._configured(epoch)

    def _configured(self, epoch: Epoch) -> None:
        """R15: check one change at a time, from an earlier configuration, and that entries of a leaving master are not lost."""
        masters = set(epoch.configuration.masters)
        earlier = [set(known.configuration.masters) for known in self.epochs.values() if known.id < epoch.id]
        is_step = any(len(masters ^ before) <= 1 for before in [set(self.founders), *earlier])
        check(is_step, "M1", "the masters change by one at a time", epoch=epoch.id, masters=sorted(masters))
        node, told = self.told_by_leaving.get(epoch.id, ("", frozenset[TxId]()))
        if node and node not in masters:
            there = {txid for _, txid, _ in epoch.recovered}
            lost = sorted(txid for txid in told.difference(there) if txid not in self.lsn_of)
            check(not lost, "M2", "what a master that goes had accepted is recovered", node=node, lost=lost)
            self.world.faults_seen["master gone"] += 1
        for name, journal in epoch.configuration.journals.items():
            is_retired = (name, journal) in epoch.configuration.retired
            check(not is_retired, "M3", "who is out for good is out", node=name, journal=journal)

    def accepted_at(self, report: EpochReport) -> frozenset[TxId]:
        """Return the transactions that the sender of a report had accepted, noted when the report was sent."""
        return self.accepted_when.get((report.row.node, report.row.incarnation, report.row.number), frozenset())

    def masters_of(self, epoch: Epoch | None) -> tuple[NodeId, ...]:
        """Return the masters that count in an epoch; None is the first one."""
        return self.founders if epoch is None else epoch.configuration.masters

    def installed(self, epoch: Epoch) -> None:
        """Note an installed epoch: count nodes that are excluded now, and nodes that are members again."""
        before = set(self.latest.members if self.latest else self.founders)
        if self.latest is None or epoch.id > self.latest.id:
            self.latest = epoch
            seen, members = self.world.faults_seen, set(epoch.members)
            seen["epoch begun"] += 1
            seen["member left out"] += len(before - members)
            seen["member taken back"] += len(members - before)
            self._leap_again(epoch)
            self._come_back(epoch)

    def _come_back(self, epoch: Epoch) -> None:
        """Note masters that an epoch names with new disks: from now on they are normal masters."""
        for node in [*self.before_wipe]:
            mirror = self.mirrors[node]
            if mirror.journal and epoch.configuration.journals.get(node) == mirror.journal:
                self.past[node].append(self.before_wipe.pop(node))
                start = epoch.starts.get(node, 0)
                stream = self.streams[node]
                self.lost_entries.update((node, number, entry) for number, entry in enumerate(stream) if number >= start)
                # A new disk begins well after all entries that the old one can have stamped.
                stream[start:] = []
                stream.extend([(0, "")] * (start - len(stream)))
                self.fresh[node] = start
                self.world.master(node).is_wiped = False
                self.world.faults_seen["master came back"] += 1

    def _leap_again(self, epoch: Epoch) -> None:
        """Let a master with a new disk begin later by the next epoch, if it was absent in the epoch that named it."""
        for node, start in [*self.fresh.items()]:
            stream, begin = self.streams[node], epoch.starts.get(node, 0)
            if len(stream) > start:
                del self.fresh[node]
            elif begin > start:
                stream.extend([(0, "")] * (begin - start))
                self.fresh[node] = begin

    def body_at(self, lsn: Lsn) -> bytes:
        """Return the body of the transaction at an LSN."""
        _, txid, origin = self.canon[lsn - 1]
        return self.bodies[origin, txid]

    def set_applied(self, node: NodeId, lsn: Lsn) -> None:
        """Note the LSN of a worker's copy."""
        self.applied[node] = lsn
        self.reached[node] = max(self.reached[node], lsn)

    def wipe(self, node: NodeId) -> None:
        """Note a lost disk, and keep its content separately."""
        self.before_wipe.setdefault(node, self.mirrors[node])
        self.mirrors[node] = Mirror()
        if self.world.options.wipes:
            return
        for txid, nodes in [*self.waiting.items()]:
            # Transactions that only this disk had are lost.
            self.waiting[txid] = [other for other in nodes if other != node]
            if not self.waiting[txid]:
                del self.waiting[txid]

    def attach(self, node: NodeId, txids: set[TxId]) -> None:
        """Note that transactions of a state are those that a master has accepted, even if they are forgotten elsewhere by now."""
        for txid in sorted(txids.intersection(self.waiting)):
            self.waiting[txid] = [other for other in self.waiting[txid] if other != node]
            if not self.waiting[txid]:
                del self.waiting[txid]

    def missing_accepted(self, lost: set[NodeId]) -> list[TxId]:
        """Return accepted transactions that no master added, except those of lost disks."""
        return [txid for txid, nodes in self.waiting.items() if set(nodes) - lost]

    def memory_bound(self, used: int, count: int) -> int:
        """Return the most entries of a stream that can be kept in memory."""
        windows = self.world.masters[0].config.sync
        return (count - used) + 4 * windows.post_window + FORGET_STEP
