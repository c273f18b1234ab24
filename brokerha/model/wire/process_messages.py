"""Messages between the processes of one master, its primary and its backups: journal, views, transactions.

    Replicate ->  <- Confirmed                                    the journal, record by record (replication 1 to 3)
    Candidate ->  <- Vote                                         who is primary (replication 4)
    TxJoin, TxEvents ->  <- TxAnswer                              open transactions (transactions 2)

They go from process to process, each under its own node id. All other messages go to whichever process is primary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brokerha.model.ids import Lsn, TxId
from brokerha.model.wire.channels import DATA, SYNC, TX


@dataclass(frozen=True, slots=True)
class Replicate:
    """Primary to each backup: records of its journal, in order; without records it is a heartbeat."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    previous: tuple[int, int]
    """(view, number) of the record before the first item: a backup with another record there has another journal."""
    items: tuple[tuple[int, bytes], ...]
    """(number, encoded record). The body of a `TxPrepared`, or of the `Accepted` that follows from it, can be empty: it came
    through the tx-queue, or with the prepare record (skip set)."""
    last_number: int
    """Last number in the primary's journal."""
    journal: str
    """Name of the journal: a backup with another one starts again."""
    floor: Lsn = 0
    """LSN below which nothing need be kept."""
    is_ready: bool = False
    """Whether the primary counts the receiver as ready."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Backup to primary: heartbeat, and sent at once after progress: all records up to ``number`` are durable here."""

    CHANNEL: ClassVar[str] = SYNC
    view: int
    """View of the primary that it obeys."""
    journal: str
    last: tuple[int, int]
    """(view, number) of its last durable record."""
    follows: str
    """State of its follower machine: ``idle``, ``basic``, ``request`` or ``load``; ``paused`` while an operator has paused it."""
    reason: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    """Size of the snapshot that it is loading."""
    free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process of a master to the others: I want to be primary of this view; my journal ends there."""

    CHANNEL: ClassVar[str] = SYNC
    view: int
    journal: str
    last: tuple[int, int]
    is_by_hand: bool = False
    """Whether an operator wants it: then a living primary is no obstacle."""


@dataclass(frozen=True, slots=True)
class Promote:
    """To one process of a master, from the process that got an operator's command: become primary."""

    CHANNEL: ClassVar[str] = SYNC
    is_forced: bool
    """Whether its own vote is enough, although others can hold more records."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """To one process of a master, from the process that got an operator's command: pause, coin or continue."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    """Chosen by the sender and returned in the answer."""
    command: str
    is_forced: bool


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Answer to `NodeOrder`: the order is durable, or the reason of its refusal."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    is_changed: bool
    state: str
    reason: str
    """New state word and reason of the process."""
    error: str
    """Name of an error; empty for success."""
    refusal: str
    """Text of the error."""


@dataclass(frozen=True, slots=True)
class Vote:
    """Answer to a `Candidate`; also tells a primary of an older view about a newer one."""

    CHANNEL: ClassVar[str] = SYNC
    view: int
    """View of the candidate."""
    is_granted: bool
    promised: int
    """Highest view that the voter has promised; durable."""
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
    """Answer to `RecordsWanted`: as many of them as fit into one message, with all their bodies."""

    CHANNEL: ClassVar[str] = DATA
    previous: tuple[int, int]
    items: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class RecordsMissing:
    """Answer to `RecordsWanted`: the sender no longer holds all of them."""

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
    """Primary to one backup, through the queue of the transaction: its events, in the order of the client."""

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
    """Backup to its primary: its progress with a transaction."""

    CHANNEL: ClassVar[str] = SYNC
    txid: TxId
    view: int
    answer: str
    """``prepared`` (durable here), ``refused``, ``missing`` (events from ``next`` on), or ``done`` (it has left the queue)."""
    next: int
    """Number of the first event that it lacks."""
    reason: str = ""
