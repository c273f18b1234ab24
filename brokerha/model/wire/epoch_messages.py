"""Messages between masters about the epoch that they are in, and the row that each says of itself.

EpochPrepare ->  <- EpochReport | EpochRefused         who holds what (rule R9)
EpochInstall ->                                        what was decided (R11, R12)
TailWanted ->  <- Tail                                 the part of the queue that a master lacks (R16)
StateWanted ->  <- State                               what a master takes over when nobody holds that part any more (R16)
Join ->                                                take me back (R8)
Leave ->                                               my process is stopped: do not wait for it (R8); of workers, too
Notice ->                                              you are no master of this cluster any more (R15)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from brokerha.model.epochs import NO_CHANGE, NO_EPOCH, Change, Configuration, Epoch, EpochId
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.wire.channels import SYNC


@dataclass(frozen=True, slots=True)
class Row:
    """What one master says of itself; (incarnation, number) orders its rows."""

    node: NodeId
    journal: str
    """Random name of its journal: another one under the same node id is another node."""
    incarnation: int
    number: int
    epoch: EpochId
    promised: EpochId
    """Highest epoch that it has promised to; while that is another one than `epoch`, it is frozen."""
    promise: Timestamp
    """Every own entry up to here is in its durable stream, and none will be stamped at or below it."""
    have: dict[NodeId, int]
    """How many entries of each stream it holds durably, with their bodies."""
    recovered: int
    """How many entries of the epoch's recovered list, from its head on, it holds durably, with their bodies."""
    lsn: Lsn
    """Length of its synchronised queue."""
    heard: tuple[NodeId, ...]
    """Masters that it heard directly within the round time-out."""
    fingerprint_lsn: Lsn = 0
    fingerprint: str = ""
    known: dict[NodeId, str] = field(default_factory=dict)
    """Journal names of masters that it has heard of and of whose streams it holds nothing yet."""
    mode: str = "quorum"
    """The strategy of split recovery in force at it."""
    file: str = ""
    """What its file says of that, when it is something else."""


@dataclass(frozen=True, slots=True)
class EpochPrepare:
    """Proposer to every configured master: promise this epoch, and report what you hold (R9)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    change: Change = NO_CHANGE
    """What is to become of the configuration: one that is added promises although nobody knows it, one that is taken out reports all."""
    mode: str = "quorum"
    """The strategy of split recovery in force at the sender."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Answer to `EpochPrepare`: from now on its sender is frozen, and this is all that it could have added to (R9)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    """That was promised."""
    row: Row
    last_txid: TxId
    """Of the transaction at the row's LSN; empty at LSN 0."""
    recovered: tuple[tuple[int, Timestamp, TxId, NodeId], ...]
    """What it holds of the recovered list of its epoch and has not added: place in that list, entry."""
    streams: tuple[tuple[NodeId, int, tuple[Entry, ...]], ...]
    """(origin, number of the first entry, entries) of each stream: what it holds and has not added."""
    configuration: Configuration
    """Of its epoch."""
    parked: tuple[TxId, ...] = ()
    """Of a master that is to be taken out: what it has accepted and not stamped."""
    parked_left: int = 0
    """How many more of them there are."""
    members: tuple[NodeId, ...] = ()
    """Of its epoch."""
    path: tuple[tuple[EpochId, Lsn], ...] = ()
    """Of its epoch (`Epoch.path`)."""
    mode: str = ""
    """Of its epoch (`Epoch.mode`)."""
    reads: EpochId = NO_EPOCH
    """It went back for this epoch, whose path is ``path`` then, and its queue is the beginning of that one's: it has not installed it yet."""
    lacking: tuple[tuple[int, Timestamp, TxId, NodeId], ...] = ()
    """What it has neither added nor holds of that list, in the same form: somebody of an older epoch may hold it."""


@dataclass(frozen=True, slots=True)
class EpochRefused:
    """Answer to `EpochPrepare`: promised to a higher one already, or in it."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    """That was asked for."""
    promised: EpochId


@dataclass(frozen=True, slots=True)
class EpochInstall:
    """Any member to one that is behind: this epoch was decided (R11, R12). To one that is no master of it: you are none yet (R15)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class TailWanted:
    """Master to one that is ahead: send me this part of your synchronised queue, both ends included."""

    CHANNEL: ClassVar[str] = SYNC
    first_lsn: Lsn
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class Tail:
    """Answer to `TailWanted`: as much of it as fits, from ``first_lsn`` on; bodies come beside it."""

    CHANNEL: ClassVar[str] = SYNC
    first_lsn: Lsn
    entries: tuple[Ordered, ...]
    kept_from: Lsn = 1
    """Lowest LSN that its sender holds: what is wanted below it comes with a snapshot only."""


@dataclass(frozen=True, slots=True)
class Join:
    """Excluded master to a member: I hear you, take me back (R8)."""

    CHANNEL: ClassVar[str] = SYNC
    incarnation: int
    number: int
    """(incarnation, number) of the last row of the receiver that the sender heard: the link works both ways."""
    row: Row


@dataclass(frozen=True, slots=True)
class Leave:
    """Last message of a process that is stopped in order: nothing more comes of this incarnation (R8). A worker says so to its master."""

    CHANNEL: ClassVar[str] = SYNC


@dataclass(frozen=True, slots=True)
class Notice:
    """Member to one that was taken out and does not know it (R15)."""

    CHANNEL: ClassVar[str] = SYNC
    epoch: EpochId
    """Of the sender."""
    journal: str
    """With which the receiver was a master."""


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Master to one that is ahead and does not hold what comes next any more: send me your state instead (R16)."""

    CHANNEL: ClassVar[str] = SYNC
    lsn: Lsn
    """Position of the state that is being read; 0 to begin."""
    cursor: bytes
    """Where its next page begins; empty for the first one."""


@dataclass(frozen=True, slots=True)
class State:
    """Answer to `StateWanted`: a page of what is remembered at a position. For a position that is gone the first page of another one."""

    CHANNEL: ClassVar[str] = SYNC
    lsn: Lsn
    """Synchronised and executed up to here by its sender, who holds what comes after."""
    cursor: bytes
    """Where this page begins."""
    last: Ordered
    """The entry at `lsn`."""
    fingerprint: bytes
    """Of the content at `lsn`."""
    items: int
    """Quads and keys at `lsn`; 0 when that is not known."""
    ids: tuple[tuple[TxId, Lsn], ...]
    """Transactions that are remembered, none above `lsn`."""
    rejections: tuple[tuple[Lsn, str], ...]
    """Which of these were rejected, and why."""
    next_cursor: bytes
    """Where the next page begins; empty when this is the last one."""
