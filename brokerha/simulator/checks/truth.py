"""What is true in a world: the canon, the streams, and a mirror of what each master holds durably.

Kept by the checkers from records alone, in step with the virtual disks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.epochs import FIRST, Change, Epoch, EpochId
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import ResultRow
from brokerha.model.wire.epoch_messages import EpochReport, Row
from brokerha.simulator.checks.model import Model
from brokerha.simulator.cluster import Cluster
from brokerha.sync.streams import FORGET_STEP


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its name."""


def check(holds: bool, rule: str, what: str, /, **facts: object) -> None:
    """Raise `Violation` naming the rule unless it holds."""
    if not holds:
        known = ", ".join(f"{name}={value!r}" for name, value in sorted(facts.items()))
        raise Violation(f"{rule}: {what}: {known}" if known else f"{rule}: {what}")


@dataclass(slots=True)
class Mirror:
    """What one master holds durably, as its records say."""

    journal: str = ""
    """Name of its journal; empty before it was started."""
    journals: dict[NodeId, str] = field(default_factory=dict)
    """Journals that it has written down, by node."""
    incarnation: int = 0
    high_water: Timestamp = 0
    counts: dict[NodeId, int] = field(default_factory=dict)
    bodies: set[tuple[NodeId, TxId]] = field(default_factory=set)
    accepted: set[TxId] = field(default_factory=set)
    stamped: set[TxId] = field(default_factory=set)
    """Own transactions that have a place in this epoch: in the recovered list, or in the own stream."""
    epoch: Epoch | None = None
    """The last one installed; None in the first."""
    promised_epoch: EpochId = FIRST
    known: set[TxId] = field(default_factory=set)
    """Transactions that came with states of others."""
    state_lsn: Lsn = 0
    """Position of the last state that it took over; no copy below it can follow any more."""
    lsn: Lsn = 0
    executed: Lsn = 0
    waiting_lsns: int = 0
    """How many places in the order it has worked out that are not durable yet (R18)."""
    waiting_results: int = 0
    waiting_since_us: int | None = None
    promised: Timestamp = 0
    """Highest promise that it ever posted."""
    promises: dict[int, Timestamp] = field(default_factory=dict)
    """The last one of each incarnation."""
    posted: dict[int, int] = field(default_factory=dict)
    """Number of the last post of each incarnation."""

    @property
    def told_lsn(self) -> Lsn:
        """Up to where it may tell its own workers and clients of the order."""
        return self.lsn + self.waiting_lsns

    @property
    def told_executed(self) -> Lsn:
        """The same of results."""
        return self.executed + self.waiting_results

    def forget_waiting(self) -> None:
        """What waited is durable now, or lost."""
        self.waiting_lsns, self.waiting_results, self.waiting_since_us = 0, 0, None

    @property
    def epoch_id(self) -> EpochId:
        """Of the epoch that it is in."""
        return self.epoch.id if self.epoch else FIRST

    @property
    def is_frozen(self) -> bool:
        """Whether it has promised a later epoch than the one that it is in."""
        return self.promised_epoch > self.epoch_id


class Truth:
    """Everything that is known from outside."""

    def __init__(self, world: Cluster) -> None:
        self.world = world
        self.members = tuple(master.node for master in world.masters)
        """All that may ever be masters."""
        self.founders = self.members[: len(world.options.workers)]
        self.acknowledge = world.masters[0].config.sync.acknowledge
        self.mirrors = {node: Mirror() for node in self.members}
        self.fresh: dict[NodeId, int] = {}
        """Where the streams of masters with new disks begin, which have stamped nothing yet."""
        self.before_wipe: dict[NodeId, Mirror] = {}
        """Mirrors of what was on the disks that were lost, until their masters are back with other ones."""
        self.past: dict[NodeId, list[Mirror]] = {node: [] for node in self.members}
        """The same of disks whose masters are back."""
        self.lost_entries: set[tuple[NodeId, int, Entry]] = set()
        """(origin, number, entry) of what was stamped on a lost disk and reported by nobody when its master came back."""
        self.accepted_when: dict[tuple[NodeId, int, int], frozenset[TxId]] = {}
        """By row of a report of one that is to go: what it had accepted and nobody had added."""
        self.changes: dict[EpochId, Change] = {}
        """What each proposal is to change."""
        self.told_by_leaving: dict[EpochId, tuple[NodeId, frozenset[TxId]]] = {}
        """By proposal: the master that is to go and whose report has come, and what it had accepted by then."""
        self.canon: list[Ordered] = []
        self.epochs: dict[EpochId, Epoch] = {}
        """Every epoch that was decided, by what a message or a record says of it."""
        self.latest: Epoch | None = None
        """Highest one that was installed; None in the first."""
        self.epoch_at: list[EpochId] = []
        """Epoch in which each place of the canon was added first."""
        self.lsn_of: dict[TxId, Lsn] = {}
        self.results: list[ResultRow] = []
        self.model = Model()
        self.streams: dict[NodeId, list[Entry]] = {node: [] for node in self.members}
        self.numbers: dict[tuple[NodeId, Timestamp], int] = {}
        """Number of an entry in its stream, by origin and timestamp."""
        self.bodies: dict[tuple[NodeId, TxId], bytes] = {}
        """Bodies that an origin accepted."""
        self.waiting: dict[TxId, list[NodeId]] = {}
        """Accepted and not in the canon, with the masters that accepted it."""
        self.rows: dict[tuple[NodeId, str, int, int], Row] = {}
        """What each master said, by node, journal, incarnation and number."""
        self.applied: dict[NodeId, Lsn] = {worker.node: 0 for worker in world.workers}
        self.reached: dict[NodeId, Lsn] = dict(self.applied)
        self.assumed: dict[NodeId, set[Lsn]] = {node: set() for node in self.members}
        """LSNs whose results a site never had: it takes each of them for applied."""
        self.chosen: set[NodeId] = set()
        """Masters at which an operator chose a copy."""
        self.lost_lsn: Lsn = 0
        """How far the copies had come that faults took."""
        """Highest LSN that any copy of a worker ever had."""
        self.worker_config = {worker.node: worker.config for worker in world.workers}
        self.may_differ = False
        """Set by scenarios that let copies come to different contents: equal content is demanded at the end only."""
        self.master_of = {worker.node: worker.config.master for worker in world.workers}

    @property
    def lsn(self) -> Lsn:
        """Length of the canon."""
        return len(self.canon)

    def holders(self, entry: Ordered, number: int, epoch: EpochId) -> set[NodeId]:
        """Members of an epoch that hold an entry durably (or held it, when their disk was lost afterwards).

        What was recovered is held with its body; an entry of a stream has to stand in it as well.
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
        # Who has gone on to a later epoch has told what it holds, or had it in its queue.
        return mirror.epoch_id > epoch or entry in recovered or mirror.counts.get(entry[2], 0) > number

    def decided(self, epoch: Epoch) -> None:
        """S12: what is said of an epoch is always the same."""
        if epoch.id == FIRST:
            return  # Nobody decided it; one that is to be added is told of it, and waits with one of its own.
        known = self.epochs.get(epoch.id)
        if known is None:
            self._decided_first(epoch)
        else:
            check(known == epoch, "S12", "one decision for each epoch", epoch=epoch.id)

    def _decided_first(self, epoch: Epoch) -> None:
        """What somebody has added already comes next in it, in that order."""
        self.epochs[epoch.id] = epoch
        base = epoch.base_lsn
        check(base <= self.lsn, "S1", "a base is in the queue", epoch=epoch.id, base=base)
        check(not base or self.canon[base - 1][1] == epoch.base_txid, "S1", "a base is the queue's", epoch=epoch.id)
        below = [*epoch.recovered, *self.canon[base - 1 : base]]
        is_above = all(entry[0] <= epoch.above for entry in below)
        check(is_above, "S11", "an epoch is above everything before it", epoch=epoch.id, above=epoch.above)
        # What was added in a later one, it knows nothing of, and no majority takes it.
        beyond = [entry for entry, added in zip(self.canon[base:], self.epoch_at[base:], strict=True) if added <= epoch.id]
        is_right = list(epoch.recovered[: len(beyond)]) == beyond
        check(is_right, "S1", "what was added beyond the base is recovered first", epoch=epoch.id, added=beyond)
        self._configured(epoch)

    def _configured(self, epoch: Epoch) -> None:
        """R15: one step at a time, of what some earlier epoch had; what a master that goes has told is not lost."""
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
        """What the sender of a report had accepted by then; it was noted when the report was sent."""
        return self.accepted_when.get((report.row.node, report.row.incarnation, report.row.number), frozenset())

    def masters_of(self, epoch: Epoch | None) -> tuple[NodeId, ...]:
        """Who counts in an epoch; None is the first one."""
        return self.founders if epoch is None else epoch.configuration.masters

    def installed(self, epoch: Epoch) -> None:
        """Somebody has installed it: count who is no member any more, and who is one again."""
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
        """Masters whose disks were lost are named with new ones: from here on they are masters like others."""
        for node in [*self.before_wipe]:
            mirror = self.mirrors[node]
            if mirror.journal and epoch.configuration.journals.get(node) == mirror.journal:
                self.past[node].append(self.before_wipe.pop(node))
                start = epoch.starts.get(node, 0)
                stream = self.streams[node]
                self.lost_entries.update((node, number, entry) for number, entry in enumerate(stream) if number >= start)
                # A disk that is new begins well after what the old one may have stamped.
                stream[start:] = []
                stream.extend([(0, "")] * (start - len(stream)))
                self.fresh[node] = start
                self.world.master(node).is_wiped = False
                self.world.faults_seen["master came back"] += 1

    def _leap_again(self, epoch: Epoch) -> None:
        """A master with a new disk that was not there yet when the epoch began that named it: the next one lets it begin further on."""
        for node, start in [*self.fresh.items()]:
            stream, begin = self.streams[node], epoch.starts.get(node, 0)
            if len(stream) > start:
                del self.fresh[node]
            elif begin > start:
                stream.extend([(0, "")] * (begin - start))
                self.fresh[node] = begin

    def body_at(self, lsn: Lsn) -> bytes:
        """Body of the transaction at an LSN."""
        _, txid, origin = self.canon[lsn - 1]
        return self.bodies[origin, txid]

    def set_applied(self, node: NodeId, lsn: Lsn) -> None:
        """A worker's copy stands here now."""
        self.applied[node] = lsn
        self.reached[node] = max(self.reached[node], lsn)

    def wipe(self, node: NodeId) -> None:
        """A disk is lost: what it held is remembered apart."""
        self.before_wipe.setdefault(node, self.mirrors[node])
        self.mirrors[node] = Mirror()
        if self.world.options.wipes:
            return
        for txid, nodes in [*self.waiting.items()]:
            # What nobody else has is gone with the disk.
            self.waiting[txid] = [other for other in nodes if other != node]
            if not self.waiting[txid]:
                del self.waiting[txid]

    def missing_accepted(self, lost: set[NodeId]) -> list[TxId]:
        """Accepted transactions that no master added, those of lost disks left out."""
        return [txid for txid, nodes in self.waiting.items() if set(nodes) - lost]

    def memory_bound(self, used: int, count: int) -> int:
        """Most entries of a stream that may be kept in memory."""
        windows = self.world.masters[0].config.sync
        return (count - used) + 4 * windows.post_window + FORGET_STEP
