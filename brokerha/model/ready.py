"""Ready: the actions that a core requests, in the order in which they must happen.

    1. records     written and fsynced together, in one commit; deferred ones with those of a later Ready
    2. messages    sent after 1, so they can reveal the records
    3. decisions   work for the stores, after 1
    4. replies     answers to clients, after 1

Queues of transactions are opened and followed before 2, dropped and left after it.

The runner carries out a whole Ready before it steps the core again. When step 1 fails, it does none of the rest; it drops the
core and builds it again from the journal, so that the core's state and the durable state always agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId
from brokerha.model.operations import LoggedRow, ResultRow
from brokerha.model.records import Record
from brokerha.model.requests import Reply, TxReply
from brokerha.model.wire.messages import Outgoing, SnapshotOffered


@dataclass(frozen=True, slots=True)
class ExecuteBatch:
    """Decision: execute these transactions in order and report a result for each."""

    first_lsn: Lsn
    items: tuple[tuple[TxId, Timestamp, bytes], ...]


@dataclass(frozen=True, slots=True)
class ApplyBatch:
    """Decision: apply these lines of the log in order."""

    first_lsn: Lsn
    items: tuple[LoggedRow, ...]


@dataclass(frozen=True, slots=True)
class ResendResults:
    """Decision: read results ``first_lsn`` to ``last_lsn`` from the store's effects log and report them again."""

    first_lsn: Lsn
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class BeginLineage:
    """Decision: let later lines belong to this lineage; durable before the first of them."""

    lineage: int
    lsn: Lsn = -1
    """The LSN that the store has from then on, with its present content; -1 to keep its LSN."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Decision: read this range of the log from the store and send it to the requesting node."""

    to: NodeId
    first_lsn: Lsn
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class MakeSnapshot:
    """Decision: make a snapshot of the copy under this name, while writing goes on."""

    snapshot: str


@dataclass(frozen=True, slots=True)
class ReadChunks:
    """Decision: read these chunks of a snapshot for the requesting node."""

    to: NodeId
    snapshot: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Decision: delete a snapshot; no answer."""

    snapshot: str


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """Decision: make room for a snapshot beside the present copy, or resume an earlier load."""

    offer: SnapshotOffered


@dataclass(frozen=True, slots=True)
class KeepChunk:
    """Decision: check a chunk against its SHA-256 and write it to its place."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Decision: all chunks are there: make them durable, open them as the copy, then delete the old files."""


@dataclass(frozen=True, slots=True)
class AbandonLoad:
    """Decision: delete the loaded chunks; the present copy stays. No answer."""


@dataclass(frozen=True, slots=True)
class Condemn:
    """Decision: record durably that the copy of this name is not trusted, and why; no answer."""

    journal: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Decision: keep a copy of the present content under this number; then delete the earlier kept copy."""

    number: int


@dataclass(frozen=True, slots=True)
class DropKept:
    """Decision: delete the kept copy. No answer."""


@dataclass(frozen=True, slots=True)
class RestoreKept:
    """Decision: replace the present copy by the kept one. Answered like `OpenLoad`."""


@dataclass(frozen=True, slots=True)
class OpenTxQueue:
    """Decision of a primary: declare the queue of a transaction, before messages go through it."""

    queue: str


@dataclass(frozen=True, slots=True)
class FollowTxQueue:
    """Decision of a backup: consume the queue of a transaction; a missing queue is made again."""

    queue: str


@dataclass(frozen=True, slots=True)
class LeaveTxQueue:
    """Decision of a backup: stop consuming the queue, which deletes it. Idempotent."""

    queue: str


TxQueueDecision = OpenTxQueue | FollowTxQueue | LeaveTxQueue
"""Work of the transport, in the order of the decisions and of sent messages."""
StoreDecision = ExecuteBatch | ApplyBatch | ResendResults | BeginLineage
"""Work of the one thread that writes the store; one at a time."""
CopyDecision = (
    ReadRange
    | MakeSnapshot
    | ReadChunks
    | DropSnapshot
    | BeginLoad
    | KeepChunk
    | OpenLoad
    | AbandonLoad
    | Condemn
    | KeepCopy
    | DropKept
    | RestoreKept
)
"""Work beside the store, in the order of the decisions."""
Decision = StoreDecision | CopyDecision


@dataclass(frozen=True, slots=True)
class StoreDone:
    """Input to a worker's core: a decision was carried out and is durable."""

    first_lsn: Lsn
    applied_lsn: Lsn
    results: tuple[ResultRow, ...]
    """Results of an `ExecuteBatch` or `ResendResults`; empty for an `ApplyBatch`."""
    fingerprint: str
    items: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Input to a worker's core: a decision failed, and none of it was kept."""

    reason: str
    is_damage: bool = False
    """Whether the copy itself is damaged and has to be replaced."""
    lsn: Lsn = 0
    """LSN of the line that led to other content than it says; 0 for other reasons."""
    fingerprint: bytes = b""
    """Fingerprint that this copy reached there."""
    is_disk_full: bool = False


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Input to a worker's core: the lines of a range that the store has; possibly fewer than requested, or none."""

    to: NodeId
    first_lsn: Lsn
    last_lsn: Lsn
    items: tuple[LoggedRow, ...]
    kept_from: Lsn


@dataclass(frozen=True, slots=True)
class SnapshotMade:
    """Input to a worker's core: a snapshot is ready; an empty list of files with a reason is a failure."""

    snapshot: str
    lsn: Lsn
    fingerprint: str
    items: int
    chunk_bytes: int
    files: tuple[tuple[str, int, bytes], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChunksRead:
    """Input to a worker's core: chunks for the requesting node; None if the snapshot is gone."""

    to: NodeId
    snapshot: str
    chunks: tuple[tuple[int, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class LoadBegun:
    """Input to a worker's core: there is room; these chunks are already there and verified."""

    snapshot: str
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChunkKept:
    """Input to a worker's core: a chunk is written, or its SHA-256 differs."""

    number: int
    is_good: bool


@dataclass(frozen=True, slots=True)
class LoadOpened:
    """Input to a worker's core: the snapshot, or the kept copy, is now the copy."""

    journal: str
    applied_lsn: Lsn
    fingerprint: str
    items: int
    lineage: int = 0


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Input to a worker's core: no room, or the loaded copy cannot be opened; the previous copy is open again."""

    reason: str
    is_disk_full: bool = False


@dataclass(frozen=True, slots=True)
class CopyFrozen:
    """Input to a worker's core: the content kept under this number is fixed, whatever later writes do; `CopyKept` follows."""

    number: int


@dataclass(frozen=True, slots=True)
class CopyKept:
    """Input to a worker's core: a copy at this LSN is kept; with a reason, none is kept under this number."""

    number: int
    lsn: Lsn
    lineage: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Input to a worker's core: a scrub or a read found that the copy is damaged."""

    reason: str


OfferAnswer = RangeRead | SnapshotMade | ChunksRead
CopyAnswer = OfferAnswer | LoadBegun | ChunkKept | LoadOpened | LoadFailed | CopyFrozen | CopyKept
StoreAnswer = StoreDone | StoreFailed | CopyAnswer | Damaged


@dataclass(frozen=True, slots=True)
class Ready:
    """One batch of consequences."""

    records: tuple[Record, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    decisions: tuple[Decision, ...] = ()
    replies: tuple[Reply, ...] = ()
    tx_queues: tuple[TxQueueDecision, ...] = ()
    tx_replies: tuple[TxReply, ...] = ()
    is_deferred: bool = False
    """The records can be computed again after a crash (R18 of sync): what goes with them need not wait for a flush."""
    settles: bool = False
    """All deferred records must become durable."""
    looks: tuple[NodeId, ...] = ()
    """Masters to ask the broker about: does a process consume their inbox? If not, an `Absence` comes back."""

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(
            self.records
            or self.messages
            or self.decisions
            or self.replies
            or self.tx_queues
            or self.tx_replies
            or self.settles
            or self.looks
        )
