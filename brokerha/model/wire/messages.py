"""Every message between nodes, one frozen class each; the class is its schema on the wire.

`CHANNEL` names the inbox it travels through: ``sync`` for the small messages of the protocol, ``data`` for bodies,
effects and reads, so that bulk never stands in front of agreement; ``tx`` for events that travel through the queue of their
transaction. codec.py turns messages into bytes and back and
checks every field against its annotation. Sender and incarnation travel in the envelope, beside cluster and version.

What the processes of one master tell each other is in process_messages.py, what masters tell each other about epochs in
epoch_messages.py.

See brokerha/sync/PROTOCOL.md and brokerha/replication/PROTOCOL.md for who sends what, and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from brokerha.model.ids import Entry, Lsn, NodeId, Timestamp, TxId
from brokerha.model.operations import LoggedRow, ResultRow
from brokerha.model.wire.channels import DATA, SYNC
from brokerha.model.wire.epoch_messages import (
    EpochInstall,
    EpochPrepare,
    EpochRefused,
    EpochReport,
    Join,
    Leave,
    Notice,
    Row,
    State,
    StateWanted,
    Tail,
    TailWanted,
)
from brokerha.model.wire.process_messages import (
    Candidate,
    Confirmed,
    NodeAnswer,
    NodeOrder,
    Promote,
    Records,
    RecordsMissing,
    RecordsWanted,
    Replicate,
    TxAnswer,
    TxEvents,
    TxJoin,
    Vote,
)


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
    """With their bodies."""
    view: int = 1
    lineage: int = 0


@dataclass(frozen=True, slots=True)
class Executed:
    """Executing worker to master: outcomes and effects in LSN order, durable at the worker."""

    CHANNEL: ClassVar[str] = DATA
    first_lsn: Lsn
    results: tuple[ResultRow, ...]
    applied_lsn: Lsn
    fingerprint: str
    """Of the whole content at ``applied_lsn``."""
    items: int
    """Quads and keys held at ``applied_lsn``."""
    journal: str = ""
    """Name of the copy that holds them, as in `Progress`."""
    lineage: int = 0


@dataclass(frozen=True, slots=True)
class Apply:
    """Master to every other worker: lines of the log in LSN order, the first at ``first_lsn``.

    Also the answer to a `Request`, from a node that has the range.
    """

    CHANNEL: ClassVar[str] = DATA
    first_lsn: Lsn
    items: tuple[LoggedRow, ...]
    view: int = 1
    lineage: int = 0


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
    follows: str = "idle"
    """State of its follower machine: ``idle``, ``basic``, ``request`` or ``load``."""
    view: int = 0
    """Of the primary that it obeys; 0 when it obeys none."""
    trouble: str = ""
    """Why this copy must not be trusted any more (damage, another content at the same LSN); empty when it may be."""
    load_lsn: Lsn = 0
    """LSN of the snapshot that it is loading; 0 when it loads none."""
    done_bytes: int = 0
    total_bytes: int = 0
    """Of the snapshot that it is loading."""
    free_bytes: int = 0
    """Free disk space where its data is; 0 when that is not known."""
    wanted_lsn: Lsn = 0
    """Highest LSN that it knows of."""
    differs_lsn: Lsn = 0
    """Line of the log that led this copy to another content than the line says; 0 when none did."""
    differs_fingerprint: bytes = b""
    """What this copy came to there."""
    lineage: int = 0
    """Of the log that this copy has followed."""
    kept_lsn: Lsn = -1
    """LSN of the copy that it keeps; -1 when it keeps none."""
    kept_lineage: int = 0
    kept_number: int = 0
    kept_reason: str = ""
    """Why the last order to keep a copy could not be followed; empty when it could."""


@dataclass(frozen=True, slots=True)
class Read:
    """Master to worker: evaluate this and send the result back."""

    CHANNEL: ClassVar[str] = DATA
    request: str
    kind: str
    """A kind of read; stores/reads/reading.py lists them."""
    repository: str
    """Repository, table or queue, as the kind has it."""
    arguments: dict[str, str | bytes | int | bool | tuple[str | bytes, ...] | None]
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
    """Any node to another one: what is your state? Answered with `StatusReport`."""

    CHANNEL: ClassVar[str] = SYNC
    request: str


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Answer to `StatusRequest`: rows of the status table as seen by the sender."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    nodes: tuple[dict[str, str | int | float | bool | tuple[str, ...] | None], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class SettingsRequest:
    """A process of a master that can ask no worker, to a master: which settings are there? Answered with `SettingsReport`."""

    CHANNEL: ClassVar[str] = SYNC


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """Answer to `SettingsRequest`, from a master that has learnt them from a copy or from another master."""

    CHANNEL: ClassVar[str] = SYNC
    lsn: Lsn
    """A copy that had applied it has"""
    rows: tuple[tuple[str, bytes], ...]
    """these rows (model/reserved/settings.py): name and value."""


@dataclass(frozen=True, slots=True)
class ClaimsWanted:
    """Master to master: some ask for messages of this queue, and there are only those that the other one has claimed (model/reserved/claims.py).

    What nobody takes there is given back by a transaction.
    """

    CHANNEL: ClassVar[str] = SYNC
    queue: str


@dataclass(frozen=True, slots=True)
class Coin:
    """Master to worker: obey this primary from now on, and follow its log (replication 2)."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    sources: tuple[NodeId, ...] = ()
    """Nodes that may have older parts of the log than the master."""
    forgiven_lsn: Lsn = 0
    """Where this copy differed from the log at this LSN, the log was wrong."""
    lineage: int = 0
    """Of the log to follow."""
    agreed_lsn: Lsn = 0
    """The last LSN that the log of an older lineage has in common with this one: a copy beyond it cannot go over,"""
    fingerprint: str = ""
    """but with this content, which the log has there: the copy stands there from then on. Empty for none."""
    since: int = 0
    """The lineage that the copy had said it follows; of one of an older lineage nothing is said here."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Master to worker: stop following, serve nothing; by command, or because nothing better is left."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    reason: str


@dataclass(frozen=True, slots=True)
class LoadFrom:
    """Master to worker: replace your copy by a snapshot of the first of these nodes that gives one."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    sources: tuple[NodeId, ...]
    reason: str
    least_lsn: Lsn = 0
    """From here on the log goes on: an earlier snapshot is of no use."""


@dataclass(frozen=True, slots=True)
class Request:
    """Follower to any node that may have it: send me exactly this range of the log, both ends included."""

    CHANNEL: ClassVar[str] = SYNC
    first_lsn: Lsn
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class RangeMissing:
    """Answer to a `Request`: not all of that range is held here any more."""

    CHANNEL: ClassVar[str] = DATA
    first_lsn: Lsn
    last_lsn: Lsn
    kept_from: Lsn
    """Lowest LSN that is held; 0 when none is."""


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """Follower in LOAD to a source: make a snapshot of your copy, or tell me again of the one that you made for me."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    least_lsn: Lsn = 0
    """A copy that is not so far refuses."""


@dataclass(frozen=True, slots=True)
class SnapshotOffered:
    """Source to follower: this is the snapshot; an empty name is a refusal with its reason."""

    CHANNEL: ClassVar[str] = DATA
    request: str
    snapshot: str
    """Name of the snapshot at its source."""
    lsn: Lsn
    fingerprint: str
    items: int
    chunk_bytes: int
    files: tuple[tuple[str, int, bytes], ...]
    """(path, size in bytes, SHA-256 of each chunk one after the other)"""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChunksWanted:
    """Follower to source: send me these chunks, by their number over all files in order."""

    CHANNEL: ClassVar[str] = SYNC
    snapshot: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Source to follower: one chunk; ``is_gone`` says that the source has no such snapshot any more."""

    CHANNEL: ClassVar[str] = DATA
    snapshot: str
    number: int
    data: bytes
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotDone:
    """Follower to source: nobody needs this snapshot any more."""

    CHANNEL: ClassVar[str] = SYNC
    snapshot: str


@dataclass(frozen=True, slots=True)
class Task:
    """Master to worker: long work on its copy (``backup``, ``scrub``), by its request id; sent again until answered."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    kind: str
    arguments: dict[str, str | int | bool | None]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Worker to master: how far a `Task` is."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    state: str
    """``running``, ``done`` or ``failed``."""
    done: int
    total: int
    """In bytes for a backup, in items for a scrub."""
    reason: str
    """What went wrong; empty unless ``failed``."""
    answer: dict[str, str | int | bool | None]
    """What came out, when it is ``done``."""


# Orders around a split travel with the lines of the log, so that what was sent before an order comes before it.


@dataclass(frozen=True, slots=True)
class Keep:
    """Master to worker: keep a copy of your content of now beside it, or drop the one that you keep.

    Of two orders the one with the higher number counts; the same one again changes nothing.
    """

    CHANNEL: ClassVar[str] = DATA
    view: int
    number: int
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Restore:
    """Master to worker: put the copy that you keep in the place of yours."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    number: int
    """Of the order by which it is kept."""
    lineage: int
    """Of the log; only a copy of an older one is replaced,"""
    agreed_lsn: Lsn
    """and only one that holds something after this LSN, which is void."""
    reason: str


Message = (
    Post | Bodies | Fetch | Execute | Executed | Apply | Progress | Read | ReadResult | StatusRequest | StatusReport
    | Coin | Idle | LoadFrom | Request | RangeMissing | SnapshotWanted | SnapshotOffered | ChunksWanted | Chunk
    | SnapshotDone | Task | TaskReport | Replicate | Confirmed | Candidate | Vote | RecordsWanted | Records
    | RecordsMissing | TxJoin | TxEvents | TxAnswer | Promote | EpochPrepare | EpochReport | EpochRefused | EpochInstall
    | TailWanted | Tail | Join | Notice | StateWanted | State | Keep | Restore | NodeOrder | NodeAnswer
    | SettingsRequest | SettingsReport | Leave | ClaimsWanted
)  # fmt: skip

SnapshotAsked = Request | SnapshotWanted | ChunksWanted | SnapshotDone
Order = Coin | Idle | LoadFrom | Keep | Restore

MESSAGES: tuple[type, ...] = (
    Post, Bodies, Fetch, Execute, Executed, Apply, Progress, Read, ReadResult, StatusRequest, StatusReport,
    Coin, Idle, LoadFrom, Request, RangeMissing, SnapshotWanted, SnapshotOffered, ChunksWanted, Chunk,
    SnapshotDone, Task, TaskReport, Replicate, Confirmed, Candidate, Vote, RecordsWanted, Records,
    RecordsMissing, TxJoin, TxEvents, TxAnswer, Promote, EpochPrepare, EpochReport, EpochRefused, EpochInstall,
    TailWanted, Tail, Join, Notice, StateWanted, State, Keep, Restore, NodeOrder, NodeAnswer,
    SettingsRequest, SettingsReport, Leave, ClaimsWanted,
)  # fmt: skip
"""All message classes; the place in this tuple is the number on the wire, so new ones go to the end."""


BETWEEN_PROCESSES = frozenset({
    Replicate, Confirmed, Candidate, Vote, RecordsWanted, Records, RecordsMissing, TxJoin, TxEvents, TxAnswer,
    SnapshotWanted, SnapshotOffered, ChunksWanted, Chunk, SnapshotDone, Promote, NodeOrder, NodeAnswer,
})  # fmt: skip
"""Messages that one process sends to another one as itself. All others go from node id to node id: those to a master reach
whichever of its processes is primary."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with what every message carries."""

    cluster: str
    sender: NodeId
    """The node that speaks: a process, or the master that it is primary of."""
    incarnation: int
    message: Message
    process: NodeId = ""
    """The process that sent it, whose inbox answers go to; empty when it is the sender itself."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message with its destination."""

    to: NodeId
    message: Message
    queue: str = ""
    """Queue of a transaction that it goes through, instead of the inbox."""
    sender: NodeId = ""
    """The master that the process speaks for; empty when it speaks for itself."""
    incarnation: int = 0
    """Of that master; counts only with ``sender``."""
