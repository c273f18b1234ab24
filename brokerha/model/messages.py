"""Every message between nodes, one frozen class each; the class is its schema on the wire.

`CHANNEL` names the inbox it travels through: ``sync`` for the small messages of the protocol, ``data`` for bodies,
effects and reads, so that bulk never stands in front of agreement. codec.py turns messages into bytes and back and
checks every field against its annotation. Sender and incarnation travel in the envelope, beside cluster and version.

See brokerha/sync/PROTOCOL.md and brokerha/replication/PROTOCOL.md for who sends what, and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from brokerha.model.ids import Entry, Lsn, NodeId, Timestamp, TxId

SYNC = "sync"
DATA = "data"


@dataclass(frozen=True, slots=True)
class Row:
    """What one master says of itself; (incarnation, number) orders its rows."""

    node: NodeId
    journal: str
    """Random name of its journal: another one under the same node id is another node."""
    incarnation: int
    number: int
    epoch: int
    promised: int
    """Highest epoch number that it has promised to."""
    promise: Timestamp
    """Every own entry up to here is in its durable stream, and none will be stamped at or below it."""
    have: dict[NodeId, int]
    """How many entries of each stream it holds durably, with their bodies."""
    recovered: int
    """How many of the epoch's recovered list it holds."""
    lsn: Lsn
    """Length of its synchronised queue."""
    heard: tuple[NodeId, ...]
    """Masters that it heard directly within the round time-out."""
    frozen: bool = False
    fingerprint_lsn: Lsn = 0
    fingerprint: str = ""
    known: dict[NodeId, str] = field(default_factory=dict)
    """Journal names of masters that it has heard of and of whose streams it holds nothing yet."""


@dataclass(frozen=True, slots=True)
class Post:
    """Master to each peer: the POST of a round (sync 4, rules R3 and R4)."""

    CHANNEL: ClassVar[str] = SYNC
    row: Row
    relayed: tuple[Row, ...]
    """Last known rows of other masters, for a peer that does not hear them."""
    streams: tuple[tuple[NodeId, int, tuple[Entry, ...]], ...]
    """(origin, number of the first entry, entries) of each stream that the peer lacks something of."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """Master to peer: bodies of transactions, pushed once by the origin or sent on request."""

    CHANNEL: ClassVar[str] = DATA
    items: tuple[tuple[NodeId, TxId, bytes], ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Master to peer: send me these bodies, named by origin and transaction id."""

    CHANNEL: ClassVar[str] = SYNC
    wanted: tuple[tuple[NodeId, TxId], ...]


@dataclass(frozen=True, slots=True)
class Execute:
    """Master to the executing worker: transactions in LSN order, the first at ``first_lsn``."""

    CHANNEL: ClassVar[str] = DATA
    first_lsn: Lsn
    items: tuple[tuple[TxId, Timestamp, bytes], ...]
    """(transaction id, timestamp, body)"""


@dataclass(frozen=True, slots=True)
class Executed:
    """Executing worker to master: outcomes and effects in LSN order, durable at the worker."""

    CHANNEL: ClassVar[str] = DATA
    first_lsn: Lsn
    results: tuple[tuple[str, str, bytes], ...]
    """(outcome, reason, effect)"""
    applied_lsn: Lsn
    fingerprint: str
    """Of the whole content at ``applied_lsn``."""
    items: int
    """Quads and keys held at ``applied_lsn``."""
    journal: str = ""
    """Name of the copy that holds them, as in `Progress`."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Master to every other worker: effects in LSN order, the first at ``first_lsn``."""

    CHANNEL: ClassVar[str] = DATA
    first_lsn: Lsn
    results: tuple[tuple[str, str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """Worker to its master: heartbeat, at once after progress (replication 1)."""

    CHANNEL: ClassVar[str] = SYNC
    journal: str
    applied_lsn: Lsn
    fingerprint: str
    items: int
    state: str
    reason: str = ""
    running_reads: int = 0
    gap_from: Lsn = 0
    """First LSN that it lacks although later ones arrived; 0 when there is no gap."""


@dataclass(frozen=True, slots=True)
class Read:
    """Master to worker: evaluate this and send the result back."""

    CHANNEL: ClassVar[str] = DATA
    request: str
    kind: str
    """``query``, ``get``, ``range``, ``statements``, ``size``, ``contexts`` or ``fingerprint``."""
    repository: str
    """Repository, or table for the kinds ``get`` and ``range``."""
    arguments: dict[str, str | bytes | int | bool | tuple[str, ...] | None]
    min_lsn: Lsn
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Worker to master: one piece of a result; the last one has ``more`` false."""

    CHANNEL: ClassVar[str] = DATA
    request: str
    part: int
    more: bool
    error: str
    """Name of the class in errors.py, or empty."""
    content_type: str
    body: bytes
    applied_lsn: Lsn


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Master to peer, or master to worker: what is your state? Answered with `StatusReport`."""

    CHANNEL: ClassVar[str] = SYNC
    request: str


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Answer to `StatusRequest`: rows of the status table as seen by the sender."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    nodes: tuple[dict[str, str | int | float | bool | None], ...] = field(default=())


Message = Post | Bodies | Fetch | Execute | Executed | Apply | Progress | Read | ReadResult | StatusRequest | StatusReport

MESSAGES: tuple[type, ...] = (
    Post, Bodies, Fetch, Execute, Executed, Apply, Progress, Read, ReadResult, StatusRequest, StatusReport,
)
"""All message classes; the place in this tuple is the number on the wire, so new ones go to the end."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with what every message carries."""

    cluster: str
    sender: NodeId
    incarnation: int
    message: Message


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message with its destination."""

    to: NodeId
    message: Message
