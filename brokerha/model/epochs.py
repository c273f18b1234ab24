"""Epochs: the set of masters that agree at a time, and where their agreement begins.

    epoch 1                  epoch 2 of m1                     epoch 3 of m2
    m1 m2 m3  ---- m3 is silent ---->  m1 m2  ---- m3 is back ---->  m1 m2 m3

An **epoch** has members; only they stamp entries, and an entry needs all of them. Which epoch follows is decided by one
master from the reports of a majority (R10), and the decision is all that the members need to begin:

    synchronised queue   1 ........ base | recovered list | what the streams bring, from `starts` on

- **base**: the last LSN that somebody has in its synchronised queue; every member owns everything up to there first;
- **recovered list**: what somebody holds durably and nobody has synchronised, in the order in which all of them add it;
- **starts**: the number of the first entry of each stream that belongs to this epoch. Numbers go on over epochs, so that
  one count says the same in every epoch; what is below is in the synchronised queue or in the recovered list.

Who may be a member is the **configuration**: the masters of the cluster, each with the name of its journal, because a master whose disk was
emptied is another one. Majorities are counted among them. An epoch may change it by one master (`Change`): any majority before and any
after such a step have a master in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from brokerha.model.ids import Lsn, NodeId, Ordered, Timestamp, TxId

EpochId = tuple[int, NodeId]
"""(number, master that decided it). Ids are ordered; of two epochs the one with the higher id is the later one."""

FIRST: EpochId = (1, "")
"""The epoch in which a cluster begins; nobody decided it."""
NO_EPOCH: EpochId = (0, "")
"""Stands where an epoch might be named and none is."""


ADD, REMOVE = "add", "remove"


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the configuration."""

    kind: str
    """`ADD` or `REMOVE`."""
    node: NodeId
    journal: str
    """Name of its journal; empty for one that is taken out and that nobody has heard of."""


NO_CHANGE = Change("", "", "")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Who may be a member of an epoch, and who may never be one again."""

    masters: tuple[NodeId, ...] = ()
    """In alphabetical order."""
    before: tuple[NodeId, ...] = ()
    """The masters before the last change, as long as it is not sure that a majority of them knows of it; else none."""
    retired: tuple[tuple[NodeId, str], ...] = ()
    """(node, journal) of masters that were taken out: with that journal none of them comes back."""
    journals: dict[NodeId, str] = field(default_factory=dict)
    """Journal names of the masters, as far as they are known."""

    @property
    def majority(self) -> int:
        """Smallest number of masters of which any two sets have one in common."""
        return len(self.masters) // 2 + 1

    def is_majority(self, nodes: Iterable[NodeId]) -> bool:
        """Whether these are enough of the masters."""
        return len({*nodes}.intersection(self.masters)) >= self.majority

    def is_known_before(self, nodes: Iterable[NodeId]) -> bool:
        """Whether the masters before the last change have no majority without these, who know of it; then the next one may begin."""
        return 2 * len({*nodes}.intersection(self.before)) >= len(self.before)

    def is_majority_before(self, nodes: Iterable[NodeId]) -> bool:
        """Whether these are enough of the masters before the last change, too."""
        return 2 * len({*nodes}.intersection(self.before)) > len(self.before) or not self.before

    def settled(self) -> Configuration:
        """The same, now that a majority of the masters before the last change knows of it."""
        return replace(self, before=())

    def after(self, change: Change) -> Configuration:
        """The configuration with this change; itself when there is none, or when it has been made already."""
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
    """One decision; two epochs with one id are equal (S12)."""

    number: int
    proposer: NodeId
    members: tuple[NodeId, ...]
    """In alphabetical order."""
    base_lsn: Lsn = 0
    base_txid: TxId = ""
    """Of the transaction at `base_lsn`; empty at LSN 0."""
    recovered: tuple[Ordered, ...] = ()
    """What comes after the base, before anything of this epoch's streams."""
    starts: dict[NodeId, int] = field(default_factory=dict)
    """Number of the first entry of each stream that belongs to this epoch; 0 for one that is not named."""
    above: Timestamp = 0
    """Every timestamp of this epoch is higher."""
    configuration: Configuration = field(default_factory=Configuration)
    path: tuple[tuple[EpochId, Lsn], ...] = ()
    """Epochs before it since all masters were in one, the oldest first, each with the LSN at which it was left."""
    agreed: tuple[tuple[EpochId, Lsn, NodeId], ...] = ()
    """For each epoch that a member came from: up to which LSN its queue is that of this one, and who hands in again what was taken
    in by masters that are not here."""
    mode: str = ""
    """What becomes of a split from now on (sync/modes.py); empty: what the files say."""

    @property
    def id(self) -> EpochId:
        """What orders it among others."""
        return self.number, self.proposer


def first_epoch(members: Iterable[NodeId]) -> Epoch:
    """The one in which a cluster begins, with all its masters."""
    masters = tuple(sorted(members))
    return Epoch(*FIRST, masters, configuration=Configuration(masters))


OF_A_JOINER = Epoch(0, "", ())
"""That of a **joiner**: a master with an empty journal, which is to be added to a cluster and is no member of anything yet."""
