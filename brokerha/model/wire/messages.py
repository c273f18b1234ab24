"""Every message between nodes, one frozen class each; the class is its schema on the wire.

`CHANNEL` names the inbox of a message: ``sync`` for the small messages of the protocol, ``data`` for bodies, effects and reads,
so that bulk never delays agreement, ``tx`` for events that travel through the queue of their transaction. codec.py converts
messages to bytes and back, and checks every field against its annotation. The envelope has cluster, version, sender and
incarnation.

process_messages.py has the messages between the processes of one master, epoch_messages.py those between masters about epochs.

brokerha/sync/PROTOCOL.md and brokerha/replication/PROTOCOL.md describe who sends which message, and when.
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
    """(origin, number of the first entry, entries) of each stream of which the peer lacks entries."""


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
    """(transaction id, timestamp, body) of each."""
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
    """Fingerprint of the whole content at ``applied_lsn``."""
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
    """Worker to its master: heartbeat, and sent at once after progress (replication 1)."""

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
    """View of the primary that it obeys; 0 when it obeys none."""
    trouble: str = ""
    """Reason why this copy is no longer trusted (damage, other content at the same LSN); empty when it is."""
    load_lsn: Lsn = 0
    """LSN of the snapshot that it is loading; 0 when it loads none."""
    done_bytes: int = 0
    total_bytes: int = 0
    """Size of the snapshot that it is loading."""
    free_bytes: int = 0
    """Free disk space for its data; 0 when unknown."""
    wanted_lsn: Lsn = 0
    """Highest LSN that it knows of."""
    differs_lsn: Lsn = 0
    """LSN of the line that led this copy to other content than the line says; 0 when none did."""
    differs_fingerprint: bytes = b""
    """Fingerprint that this copy reached there."""
    lineage: int = 0
    """Lineage of the log that this copy has followed."""
    kept_lsn: Lsn = -1
    """LSN of the copy that it keeps; -1 when it keeps none."""
    kept_lineage: int = 0
    kept_number: int = 0
    kept_reason: str = ""
    """Reason why the last order to keep a copy failed; empty when it did not."""
    is_disk_full: bool = False
    """Whether it cannot write, or cannot take another copy, for want of space: a person must act, whatever its state says."""


@dataclass(frozen=True, slots=True)
class Read:
    """Master to worker: evaluate this and return the result."""

    CHANNEL: ClassVar[str] = DATA
    request: str
    kind: str
    """A kind of read; stores/reads/reading.py lists them."""
    repository: str
    """Name of a repository, table or queue, depending on the kind."""
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
    """Process of a master that can ask no worker, to a master: what are the settings? Answered with `SettingsReport`."""

    CHANNEL: ClassVar[str] = SYNC


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """Answer to `SettingsRequest`, from a master that knows them from a copy or from another master."""

    CHANNEL: ClassVar[str] = SYNC
    lsn: Lsn
    """LSN of a copy with"""
    rows: tuple[tuple[str, bytes], ...]
    """these rows (model/reserved/settings.py): name and value."""


@dataclass(frozen=True, slots=True)
class ClaimsWanted:
    """Master to master: my consumers want messages of this queue, and you have claimed all of them (model/reserved/claims.py).

    The receiver gives back messages that its consumers do not take, by a transaction.
    """

    CHANNEL: ClassVar[str] = SYNC
    queue: str


@dataclass(frozen=True, slots=True)
class Coin:
    """Master to worker: obey this primary from now on, and follow its log (replication 2)."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    sources: tuple[NodeId, ...] = ()
    """Nodes that can have older parts of the log than the master."""
    forgiven_lsn: Lsn = 0
    """If this copy differed from the log at this LSN, the log was wrong."""
    lineage: int = 0
    """Lineage of the log to follow."""
    agreed_lsn: Lsn = 0
    """The last LSN that the log of an older lineage has in common with this one. A copy beyond it cannot change over,"""
    fingerprint: str = ""
    """except with this content, which the log has there: it then counts as a copy at that LSN. Empty for none."""
    since: int = 0
    """The lineage that the copy reported; the fields above do not concern copies of an older one."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Master to worker: stop following, serve nothing; by command, or because there is no better choice."""

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
    """Lowest useful LSN of a snapshot: the log continues from here."""


@dataclass(frozen=True, slots=True)
class Request:
    """Follower to any node that can have it: send me exactly this range of the log, both ends included."""

    CHANNEL: ClassVar[str] = SYNC
    first_lsn: Lsn
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class RangeMissing:
    """Answer to a `Request`: the sender no longer holds the whole range."""

    CHANNEL: ClassVar[str] = DATA
    first_lsn: Lsn
    last_lsn: Lsn
    kept_from: Lsn
    """Lowest LSN that is held; 0 when none is."""


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """Follower in LOAD to a source: make a snapshot of your copy, or repeat the offer of the one made for me."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    least_lsn: Lsn = 0
    """A copy below this LSN refuses."""


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
    """(path, size in bytes, SHA-256 of each chunk concatenated)"""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChunksWanted:
    """Follower to source: send me these chunks, by their number over all files in order."""

    CHANNEL: ClassVar[str] = SYNC
    snapshot: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Source to follower: one chunk; ``is_gone`` means that the source no longer has the snapshot."""

    CHANNEL: ClassVar[str] = DATA
    snapshot: str
    number: int
    data: bytes
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotDone:
    """Follower to source: this snapshot is no longer needed."""

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
    """Worker to master: progress of a `Task`."""

    CHANNEL: ClassVar[str] = SYNC
    request: str
    state: str
    """``running``, ``done`` or ``failed``."""
    done: int
    total: int
    """In bytes for a backup, in items for a scrub."""
    reason: str
    """Reason of the failure; empty unless ``failed``."""
    answer: dict[str, str | int | bool | None]
    """Result, when it is ``done``."""


# Orders around a split travel with the lines of the log, so that earlier lines arrive before an order.


@dataclass(frozen=True, slots=True)
class Keep:
    """Master to worker: keep a copy of your present content beside it, or drop the kept copy.

    Of two orders the higher number counts; a repeated order changes nothing.
    """

    CHANNEL: ClassVar[str] = DATA
    view: int
    number: int
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Restore:
    """Master to worker: replace your copy by the kept one."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    number: int
    """Number of the order that kept it."""
    lineage: int
    """Lineage of the log; only a copy of an older lineage is replaced,"""
    agreed_lsn: Lsn
    """and only if it goes beyond this LSN, as later transactions are void."""
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
"""All message classes; the index in this tuple is the number on the wire, so new ones go to the end."""


BETWEEN_PROCESSES = frozenset({
    Replicate, Confirmed, Candidate, Vote, RecordsWanted, Records, RecordsMissing, TxJoin, TxEvents, TxAnswer,
    SnapshotWanted, SnapshotOffered, ChunksWanted, Chunk, SnapshotDone, Promote, NodeOrder, NodeAnswer,
})  # fmt: skip
"""Messages between processes under their own ids. All others go from node id to node id: a message to a master reaches whichever
of its processes is primary."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with the fields that every message carries."""

    cluster: str
    sender: NodeId
    """The node that sends: a process, or the master that it is primary of."""
    incarnation: int
    message: Message
    process: NodeId = ""
    """The sending process, whose inbox gets answers; empty when it is the sender itself."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message with its destination."""

    to: NodeId
    message: Message
    queue: str = ""
    """Queue of a transaction that carries it instead of the inbox."""
    sender: NodeId = ""
    """The master that the process speaks for; empty when it speaks for itself."""
    incarnation: int = 0
    """Incarnation of that master; counts only with ``sender``."""
