"""Messages between masters about their epoch, and the row of each.

EpochPrepare ->  <- EpochReport | EpochRefused         who holds which entries (rule R9)
EpochInstall ->                                        the decision (R11, R12)
TailWanted ->  <- Tail                                 a part of the queue that a master lacks (R16)
StateWanted ->  <- State                               a state to take over when no master holds that part any more (R16)
Join ->                                                take me back (R8)
Leave ->                                               my process stops: do not wait for it (R8); of workers, too
Notice ->                                              you are no longer a master of this cluster (R15)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from brokerha.model.epochs import NO_CHANGE, NO_EPOCH, Change, Configuration, Epoch, EpochId
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.wire.channels import SYNC


@dataclass(frozen=True, slots=True)
class Row:
    """State of one master, from itself; (incarnation, number) orders its rows."""

    node: NodeId
    journal: str
    """Random name of its journal: another name under the same node id is another node."""
    incarnation: int
    number: int
    epoch: EpochId
    promised: EpochId
    """Highest promised epoch; while it differs from `epoch`, the master is frozen."""
    promise: Timestamp
    """Every own entry up to here is in its durable stream; later stamps are above it."""
    have: dict[NodeId, int]
    """Number of entries of each stream that it holds durably, with their bodies."""
    recovered: int
    """Number of entries of the epoch's recovered list, from its head on, that it holds durably, with their bodies."""
    lsn: Lsn
    """Length of its synchronised queue."""
    heard: tuple[NodeId, ...]
    """Masters that it heard directly within the round time-out."""
    fingerprint_lsn: Lsn = 0
    fingerprint: str = ""
    known: dict[NodeId, str] = field(default_factory=dict)
    """Journal names of masters that it has heard of, and of whose streams it holds no entry yet."""
    mode: str = "quorum"
    """Its strategy of split recovery in force."""
    file: str = ""
    """The strategy in its file, if it differs."""
    ids_from: Lsn = 1
    """Lowest LSN whose id it needs: ids from there on are not forgotten."""


@dataclass(frozen=True, slots=True)
class EpochPrepare:
    """Proposer to every configured master: promise this epoch, and report your entries (R9)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    change: Change = NO_CHANGE
    """Planned change of the configuration: an added master promises although none knows it, a removed one reports all."""
    mode: str = "quorum"
    """The sender's strategy of split recovery in force."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Answer to `EpochPrepare`: the sender is frozen from now on, and this is all that it could have added to (R9)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    """The promised epoch."""
    row: Row
    last_txid: TxId
    """Id of the transaction at the row's LSN; empty at LSN 0."""
    recovered: tuple[tuple[int, Timestamp, TxId, NodeId], ...]
    """Entries of its epoch's recovered list that it holds and has not added: place in that list, entry."""
    streams: tuple[tuple[NodeId, int, tuple[Entry, ...]], ...]
    """(origin, number of the first entry, entries) of each stream: entries that it holds and has not added."""
    configuration: Configuration
    """Configuration of its epoch."""
    parked: tuple[TxId, ...] = ()
    """For a master to be removed: transactions that it has accepted and not stamped."""
    parked_left: int = 0
    """Number of further ones."""
    members: tuple[NodeId, ...] = ()
    """Members of its epoch."""
    path: tuple[tuple[EpochId, Lsn], ...] = ()
    """Path of its epoch (`Epoch.path`)."""
    mode: str = ""
    """Mode of its epoch (`Epoch.mode`)."""
    reads: EpochId = NO_EPOCH
    """Epoch for which it went back, whose path is then ``path``; its queue is the beginning of that epoch's. Not yet installed."""
    lacking: tuple[tuple[int, Timestamp, TxId, NodeId], ...] = ()
    """Entries of that list that it has neither added nor holds, in the same form: a member of an older epoch can hold them."""


@dataclass(frozen=True, slots=True)
class EpochRefused:
    """Answer to `EpochPrepare`: it has promised a higher epoch, or is in it."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    """The requested epoch."""
    promised: EpochId


@dataclass(frozen=True, slots=True)
class EpochInstall:
    """Member to a master behind: this epoch was decided (R11, R12). To a master outside it: you are not yet a master (R15)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class TailWanted:
    """Master to a master ahead: send me this part of your synchronised queue, both ends included."""

    CHANNEL: ClassVar[str] = SYNC
    first_lsn: Lsn
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class Tail:
    """Answer to `TailWanted`: as much of it as fits, from ``first_lsn`` on; bodies come separately."""

    CHANNEL: ClassVar[str] = SYNC
    first_lsn: Lsn
    entries: tuple[Ordered, ...]
    kept_from: Lsn = 1
    """Lowest LSN that its sender holds: lower ones come only with a snapshot."""


@dataclass(frozen=True, slots=True)
class Join:
    """Excluded master to a member: I hear you, take me back (R8)."""

    CHANNEL: ClassVar[str] = SYNC
    incarnation: int
    number: int
    """(incarnation, number) of the receiver's last row that the sender heard: proof that the link works both ways."""
    row: Row


@dataclass(frozen=True, slots=True)
class Leave:
    """Last message of a process that stops cleanly: no more messages of this incarnation (R8). A worker sends it to its master."""

    CHANNEL: ClassVar[str] = SYNC


@dataclass(frozen=True, slots=True)
class Notice:
    """Member to a removed master that does not know it (R15)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    """Epoch of the sender."""
    journal: str
    """Journal with which the receiver was a master."""


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Master to a master ahead that no longer holds the next entries: send me your state instead (R16)."""

    CHANNEL: ClassVar[str] = SYNC
    lsn: Lsn
    """LSN of the state that is being read; 0 to begin."""
    cursor: bytes
    """Start of its next page; empty for the first one."""


@dataclass(frozen=True, slots=True)
class State:
    """Answer to `StateWanted`: a page of remembered transactions at an LSN; if that state is gone, the first page of another."""

    CHANNEL: ClassVar[str] = SYNC
    lsn: Lsn
    """The sender has synchronised and executed up to here, and holds the later entries."""
    cursor: bytes
    """Start of this page."""
    last: Ordered
    """The entry at `lsn`."""
    fingerprint: bytes
    """Fingerprint of the content at `lsn`."""
    items: int
    """Quads and keys at `lsn`; 0 when unknown."""
    ids: tuple[tuple[TxId, Lsn], ...]
    """Remembered transactions, none above `lsn`."""
    rejections: tuple[tuple[Lsn, str], ...]
    """Rejected ones among them, with the reason."""
    next_cursor: bytes
    """Start of the next page; empty for the last one."""
