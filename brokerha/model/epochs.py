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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from brokerha.model.ids import Lsn, NodeId, Ordered, Timestamp, TxId

EpochId = tuple[int, NodeId]
"""(number, master that decided it). Ids are ordered; of two epochs the one with the higher id is the later one."""

FIRST: EpochId = (1, "")
"""The epoch in which a cluster begins; nobody decided it."""


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
    journals: dict[NodeId, str] = field(default_factory=dict)
    """Journal names of the members."""

    @property
    def id(self) -> EpochId:
        """What orders it among others."""
        return self.number, self.proposer


def first_epoch(members: Iterable[NodeId]) -> Epoch:
    """The one in which a cluster begins, with all its masters."""
    return Epoch(*FIRST, tuple(sorted(members)))
