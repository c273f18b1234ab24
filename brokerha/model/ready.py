"""Ready: what a core asks of the world, in the order in which it must happen.

    1. records     written and fsynced together, in one commit; deferred ones with those of a later Ready
    2. messages    sent after 1, so they may reveal what the records say
    3. decisions   work for the stores, after 1
    4. replies     answers to clients, after 1

Queues of transactions are opened and followed before 2, dropped and left after it.

The runner carries a whole Ready out before it steps the core again. When 1 fails nothing else of it is done, and the
core is thrown away and built again from the journal: what it believed and what is durable are never apart.
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
    """Decision: what is applied from now on is of this lineage; to be durable before any of it is."""

    lineage: int
    lsn: Lsn = -1
    """Where the store stands from then on, with the content that it has; -1 for where it stands."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Decision: read this range of the log from the store and send it to a node that asked."""

    to: NodeId
    first_lsn: Lsn
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class MakeSnapshot:
    """Decision: make a snapshot of the copy under this name, while writing goes on."""

    snapshot: str


@dataclass(frozen=True, slots=True)
class ReadChunks:
    """Decision: read these chunks of a snapshot for a node that asked."""

    to: NodeId
    snapshot: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Decision: delete a snapshot; nothing is answered."""

    snapshot: str


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """Decision: make room for a snapshot beside the present copy, or go on with the one that was begun before."""

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
    """Decision: delete what was loaded so far; the present copy stays. Nothing is answered."""


@dataclass(frozen=True, slots=True)
class Condemn:
    """Decision: remember over a restart that the copy of this name is not to be trusted, and why; nothing is answered."""

    journal: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Decision: keep a copy of the content of now under this number; one that is kept already goes when the new one is whole."""

    number: int


@dataclass(frozen=True, slots=True)
class DropKept:
    """Decision: delete the copy that is kept. Nothing is answered."""


@dataclass(frozen=True, slots=True)
class RestoreKept:
    """Decision: put the copy that is kept in the place of the present one. Answered like `OpenLoad`."""


@dataclass(frozen=True, slots=True)
class OpenTxQueue:
    """Decision of a primary: declare the queue of a transaction, before what is sent through it."""

    queue: str


@dataclass(frozen=True, slots=True)
class FollowTxQueue:
    """Decision of a backup: consume the queue of a transaction; one that is not there is made anew."""

    queue: str


@dataclass(frozen=True, slots=True)
class LeaveTxQueue:
    """Decision of a backup: consume it no longer, and with that it is gone. Idempotent."""

    queue: str


TxQueueDecision = OpenTxQueue | FollowTxQueue | LeaveTxQueue
"""Work of the transport, in the order in which it was decided, and in order with what is sent."""
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
"""Work beside the store; in the order in which it was decided."""
Decision = StoreDecision | CopyDecision


@dataclass(frozen=True, slots=True)
class StoreDone:
    """Input to a worker's core: a decision was carried out and is durable."""

    first_lsn: Lsn
    applied_lsn: Lsn
    results: tuple[ResultRow, ...]
    """Of an `ExecuteBatch` or `ResendResults`; empty for an `ApplyBatch`."""
    fingerprint: str
    items: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Input to a worker's core: a decision could not be carried out; nothing of it was kept."""

    reason: str
    is_damage: bool = False
    """Whether the copy itself is to blame and has to be replaced."""
    lsn: Lsn = 0
    """Of the line of the log that led to another content than it says; 0 unless that was the reason."""
    fingerprint: bytes = b""
    """What this copy would have come to there."""


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Input to a worker's core: what the store has of a range; fewer lines than asked for, or none."""

    to: NodeId
    first_lsn: Lsn
    last_lsn: Lsn
    items: tuple[LoggedRow, ...]
    kept_from: Lsn


@dataclass(frozen=True, slots=True)
class SnapshotMade:
    """Input to a worker's core: a snapshot is there; an empty list of files with a reason is a failure."""

    snapshot: str
    lsn: Lsn
    fingerprint: str
    items: int
    chunk_bytes: int
    files: tuple[tuple[str, int, bytes], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChunksRead:
    """Input to a worker's core: chunks for a node that asked; None where the snapshot is gone."""

    to: NodeId
    snapshot: str
    chunks: tuple[tuple[int, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class LoadBegun:
    """Input to a worker's core: there is room; these chunks are there already and are right."""

    snapshot: str
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChunkKept:
    """Input to a worker's core: a chunk is written, or was not what its SHA-256 says."""

    number: int
    is_good: bool


@dataclass(frozen=True, slots=True)
class LoadOpened:
    """Input to a worker's core: the snapshot, or what was kept, is the copy now."""

    journal: str
    applied_lsn: Lsn
    fingerprint: str
    items: int
    lineage: int = 0


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Input to a worker's core: no room, or what was loaded cannot be opened; the copy from before is open again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CopyFrozen:
    """Input to a worker's core: what is being kept under this number is settled, whatever is written from now on; `CopyKept` follows."""

    number: int


@dataclass(frozen=True, slots=True)
class CopyKept:
    """Input to a worker's core: a copy is kept now at this LSN; with a reason there is none under this number."""

    number: int
    lsn: Lsn
    lineage: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Input to a worker's core: somebody (scrub, a read) found that the copy is not what it should be."""

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
    """The records can be worked out again after a crash (R18 of sync): what goes with them need not wait for a flush."""
    settles: bool = False
    """All that was deferred is to be durable."""
    looks: tuple[NodeId, ...] = ()
    """Masters of which the broker is asked whether anybody reads their inbox; an `Absence` comes back where nobody does."""

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
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
