"""Messages between the processes of one master, its primary and its backups: journal, views, transactions.

    Replicate ->  <- Confirmed                                    the journal, record by record (replication 1 to 3)
    Candidate ->  <- Vote                                         who is primary (replication 4)
    TxJoin, TxEvents ->  <- TxAnswer                              transactions that are under way (transactions 2)

They go from process to process, each under its own node id, while all other messages are for whichever process is primary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brokerha.model.ids import Lsn, TxId
from brokerha.model.wire.channels import DATA, SYNC, TX


@dataclass(frozen=True, slots=True)
class Replicate:
    """Primary to each backup: records of its journal, in order; without any it is a heartbeat."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    previous: tuple[int, int]
    """(view, number) of the record before the first item: a backup that holds another one there has another journal."""
    items: tuple[tuple[int, bytes], ...]
    """(number, encoded record). The body of a `TxPrepared`, or of an `Accepted` that follows from one, may be empty: it came
    through the tx-queue, or with the prepare record (skip set)."""
    last_number: int
    """Of the primary's journal."""
    journal: str
    """Name of the journal: a backup with another one begins anew."""
    floor: tuple[Lsn, Lsn] = (0, 0)
    """(LSN, LSN) below which bodies, and ids, need not be kept."""
    is_ready: bool = False
    """Whether the primary counts the receiver as ready."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Backup to primary: heartbeat, at once after progress: everything up to ``number`` is durable here."""

    CHANNEL: ClassVar[str] = SYNC
    view: int
    """Of the primary that it obeys."""
    journal: str
    last: tuple[int, int]
    """(view, number) of its last durable record."""
    follows: str
    """State of its follower machine: ``idle``, ``basic``, ``request`` or ``load``; ``paused`` while an operator has paused it."""
    reason: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    """Of the snapshot that it is loading."""
    free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process of a master to the others: I would be primary of this view; my journal ends there."""

    CHANNEL: ClassVar[str] = SYNC
    view: int
    journal: str
    last: tuple[int, int]
    is_by_hand: bool = False
    """Whether an operator wants it: then it does not matter that the present primary lives."""


@dataclass(frozen=True, slots=True)
class Promote:
    """To one process of a master, from the one that an operator told it: become primary."""

    CHANNEL: ClassVar[str] = SYNC
    is_forced: bool
    """Whether its own vote is enough, although others may hold more than it does."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """To one process of a master, from the one that an operator told it: pause, coin or continue."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    """Chosen by the sender; the answer has it again."""
    command: str
    is_forced: bool


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Back: what was ordered is durable, or why it was refused."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    is_changed: bool
    state: str
    reason: str
    """State word and reason of the process from now on."""
    error: str
    """Name of an error; empty when it was carried out."""
    refusal: str
    """What the error says."""


@dataclass(frozen=True, slots=True)
class Vote:
    """Answer to a `Candidate`; also tells a process that speaks for an older view that there is a newer one."""

    CHANNEL: ClassVar[str] = SYNC
    view: int
    """Of the candidate."""
    is_granted: bool
    promised: int
    """Highest view that the voter has promised to; durable."""
    last: tuple[int, int]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """Backup to any process of its master: send me exactly these records of the journal, both ends included."""

    CHANNEL: ClassVar[str] = SYNC
    view: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Records:
    """Answer to `RecordsWanted`: as many of them as one message takes, with all their bodies."""

    CHANNEL: ClassVar[str] = DATA
    previous: tuple[int, int]
    items: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class RecordsMissing:
    """Answer to `RecordsWanted`: not all of them are held here any more."""

    CHANNEL: ClassVar[str] = DATA
    first: int
    last: int
    kept_from: int


@dataclass(frozen=True, slots=True)
class TxJoin:
    """Primary to a ready backup: a transaction is open, its events come through this queue."""

    CHANNEL: ClassVar[str] = SYNC
    txid: TxId
    view: int
    queue: str


@dataclass(frozen=True, slots=True)
class TxEvents:
    """Primary to one backup, through the queue of the transaction: what happened in it, in the order of the client."""

    CHANNEL: ClassVar[str] = TX
    txid: TxId
    view: int
    first: int
    """Number of the first event; ``begin`` is number 0."""
    events: tuple[tuple[str, bytes], ...]
    """(``begin``, xid), (``operation``, packed operation), (``prepare``, SHA-256 of the body), (``commit``, empty),
    (``rollback``, reason)"""


@dataclass(frozen=True, slots=True)
class TxAnswer:
    """Backup to its primary: how far it is with a transaction."""

    CHANNEL: ClassVar[str] = SYNC
    txid: TxId
    view: int
    answer: str
    """``prepared`` (durable here), ``refused``, ``missing`` (events from ``next`` on), or ``done`` (the queue is left)."""
    next: int
    """Number of the first event that it does not have."""
    reason: str = ""
