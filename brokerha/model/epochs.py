"""Epochs: the set of masters that agree at a time, and the start of their agreement.

    epoch 1                  epoch 2 of m1                     epoch 3 of m2
    m1 m2 m3  ---- m3 is silent ---->  m1 m2  ---- m3 is back ---->  m1 m2 m3

An **epoch** has members. Only members stamp entries, and an entry needs all of them. One master decides the next epoch from the
reports of a majority (R10). The decision has all that the members need to begin:

    synchronised queue   1 ........ base | recovered list | entries of the streams, from `starts` on

- **base**: the last LSN that any reporting master has in its synchronised queue; every member first gets all entries up to it;
- **recovered list**: entries that a master holds durably and none has synchronised, in the order in which all members add them;
- **starts**: the number of the first entry of each stream that belongs to this epoch. Numbers go on over epochs, so that
  a count means the same in every epoch; lower entries are in the synchronised queue or in the recovered list.

The **configuration** says who can be a member: the masters of the cluster, each with the name of its journal, because a master
whose disk was emptied is another one. Majorities are counted among them. An epoch can change it by one master (`Change`): any
majority before and any after such a step have a master in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from brokerha.model.ids import Lsn, NodeId, Ordered, Timestamp, TxId

EpochId = tuple[int, NodeId]
"""(number, master that decided it). Ids are ordered; the epoch with the higher id is the later one."""

FIRST: EpochId = (1, "")
"""The first epoch of a cluster, which no master decided."""
NO_EPOCH: EpochId = (0, "")
"""Placeholder for no epoch."""


ADD, REMOVE = "add", "remove"


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the configuration."""

    kind: str
    """`ADD` or `REMOVE`."""
    node: NodeId
    journal: str
    """Name of its journal; empty for a removed master with an unknown one."""


NO_CHANGE = Change("", "", "")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The masters that can be members of an epoch, and those that never can again."""

    masters: tuple[NodeId, ...] = ()
    """In alphabetical order."""
    before: tuple[NodeId, ...] = ()
    """The masters before the last change, until a majority of them certainly knows it; else empty."""
    retired: tuple[tuple[NodeId, str], ...] = ()
    """(node, journal) of removed masters: with that journal none of them comes back."""
    journals: dict[NodeId, str] = field(default_factory=dict)
    """Known journal names of the masters."""

    @property
    def majority(self) -> int:
        """Smallest size at which any two sets of masters have a member in common."""
        return len(self.masters) // 2 + 1

    def is_majority(self, nodes: Iterable[NodeId]) -> bool:
        """Tell whether these nodes include a majority of the masters."""
        return len({*nodes}.intersection(self.masters)) >= self.majority

    def is_known_before(self, nodes: Iterable[NodeId]) -> bool:
        """Tell whether the masters before the last change have no majority without these; then the next change can begin."""
        return 2 * len({*nodes}.intersection(self.before)) >= len(self.before)

    def is_majority_before(self, nodes: Iterable[NodeId]) -> bool:
        """Tell whether these nodes include a majority of the masters before the last change, if there are such."""
        return 2 * len({*nodes}.intersection(self.before)) > len(self.before) or not self.before

    def settled(self) -> Configuration:
        """Return the configuration after a majority of the masters before the last change knows of it."""
        return replace(self, before=())

    def after(self, change: Change) -> Configuration:
        """Return the configuration with this change; itself without a change, or after a repeated one."""
        if change == NO_CHANGE or (change.node in self.masters) == (change.kind == ADD):
            return self
        masters, journals, retired = {*self.masters}, dict(self.journals), {*self.retired}
        if change.kind == ADD:
            masters.add(change.node)
            journals[change.node] = change.journal
        else:
            masters.remove(change.node)
            journal = journals.pop(change.node, change.journal)
            if journal:
                retired.add((change.node, journal))
        return Configuration(tuple(sorted(masters)), self.masters, tuple(sorted(retired)), journals)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One decision; two epochs with the same id are equal (S12)."""

    number: int
    proposer: NodeId
    members: tuple[NodeId, ...]
    """In alphabetical order."""
    base_lsn: Lsn = 0
    base_txid: TxId = ""
    """Of the transaction at `base_lsn`; empty at LSN 0."""
    recovered: tuple[Ordered, ...] = ()
    """Entries after the base and before the epoch's streams."""
    starts: dict[NodeId, int] = field(default_factory=dict)
    """Number of the first entry of each stream that belongs to this epoch; 0 for a missing stream."""
    above: Timestamp = 0
    """Exclusive lower bound of all timestamps of this epoch."""
    configuration: Configuration = field(default_factory=Configuration)
    path: tuple[tuple[EpochId, Lsn], ...] = ()
    """Earlier epochs since all masters were in one, oldest first, each with the LSN at which it was left."""
    agreed: tuple[tuple[EpochId, Lsn, NodeId], ...] = ()
    """For each epoch that a member came from: the last LSN at which its queue equals this one's, and the node that submits again
    the transactions accepted by absent masters."""
    mode: str = ""
    """Strategy of split recovery from now on (sync/modes.py); empty for that of the cluster files."""

    @property
    def id(self) -> EpochId:
        """The id, which orders it among others."""
        return self.number, self.proposer


def first_epoch(members: Iterable[NodeId]) -> Epoch:
    """Return the first epoch of a cluster, with all its masters."""
    masters = tuple(sorted(members))
    return Epoch(*FIRST, masters, configuration=Configuration(masters))


OF_A_JOINER = Epoch(0, "", ())
"""The epoch of a **joiner**: a master with an empty journal that is to be added to a cluster, and not yet a member."""
