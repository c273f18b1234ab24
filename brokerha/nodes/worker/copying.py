"""Carries out the decisions of a worker's core about its copy as a whole: snapshots, chunks, loads, ranges of the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from brokerha.model.errors import BrokerhaError, StoreDamaged, StoreError, StoreFull
from brokerha.model.ready import (
    AbandonLoad,
    BeginLoad,
    ChunkKept,
    ChunksRead,
    Condemn,
    CopyAnswer,
    CopyDecision,
    CopyFrozen,
    CopyKept,
    Damaged,
    DropKept,
    DropSnapshot,
    KeepChunk,
    KeepCopy,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    MakeSnapshot,
    OpenLoad,
    RangeRead,
    ReadChunks,
    ReadRange,
    RestoreKept,
    SnapshotMade,
)
from brokerha.ports.copies import Snapshot, Snapshots, WorkerCopy
from brokerha.replication.worker.config import CopyState
from brokerha.replication.worker.kept_here import NOTHING, KeptState


def state_of(copy: WorkerCopy) -> CopyState:
    """Return the state of the copy for a starting worker."""
    kept = copy.kept
    return CopyState(
        copy.journal,
        *copy.applied(),
        note=copy.trouble,
        pending_load=copy.pending_load,
        condemned=copy.condemned,
        lineage=copy.lineage,
        kept=KeptState(*kept[:3]) if kept is not None else NOTHING,
    )


def carry_out_copy(copy: WorkerCopy, decision: CopyDecision, tell: Callable[[CopyAnswer], None]) -> CopyAnswer | Damaged | None:
    """Carry out a decision; return the answer for the core, or None. ``tell`` gets an answer that must be known earlier."""
    match decision:
        case ReadRange():
            return _read_range(copy, decision)
        case MakeSnapshot():
            return _make(copy, decision)
        case ReadChunks():
            return read_chunks(copy, decision, StoreError)
        case DropSnapshot():
            copy.drop_snapshot(decision.snapshot)
            return None
        case AbandonLoad():
            copy.abandon_load()
            return None
        case Condemn():
            _condemn(copy, decision)
            return None
        case KeepCopy():
            return _keep(copy, decision, tell)
        case DropKept():
            # The next process reports a copy that stays on the disk, and the order comes again.
            with suppress(StoreError):
                copy.drop_kept()
            return None
        case BeginLoad() | KeepChunk() | OpenLoad() | RestoreKept():
            try:
                return _load(copy, decision)
            except StoreError as error:
                return LoadFailed(str(error), isinstance(error, StoreFull))


def _condemn(copy: WorkerCopy, decision: Condemn) -> None:
    if copy.journal == decision.journal:
        # When the disk cannot be written, the process and its master know of the damage all the same.
        with suppress(StoreError):
            copy.condemn(decision.reason)


def _read_range(copy: WorkerCopy, decision: ReadRange) -> RangeRead | Damaged:
    try:
        lines = copy.logged(decision.first_lsn, decision.last_lsn)
        kept_from = copy.logged_from()
    except StoreDamaged as error:
        return Damaged(str(error))
    except StoreError:
        lines, kept_from = [], 0
    return RangeRead(decision.to, decision.first_lsn, decision.last_lsn, tuple(lines), kept_from)


def _make(copy: WorkerCopy, decision: MakeSnapshot) -> SnapshotMade | Damaged:
    try:
        made = copy.make_snapshot(decision.snapshot)
    except StoreDamaged as error:
        return Damaged(str(error))
    except StoreError as error:
        return SnapshotMade(decision.snapshot, 0, "", 0, 0, (), str(error))
    return SnapshotMade(decision.snapshot, *made)


def read_chunks(copy: Snapshots, decision: ReadChunks, error: type[BrokerhaError]) -> ChunksRead:
    """Read chunks of a snapshot; when one cannot be read (``error``), the follower asks for another snapshot."""
    chunks: list[tuple[int, bytes | None]] = []
    for number in decision.numbers:
        try:
            chunks.append((number, copy.read_chunk(decision.snapshot, number)))
        except error:
            chunks.append((number, None))
    return ChunksRead(decision.to, decision.snapshot, tuple(chunks))


def load_chunks(copy: Snapshots, decision: BeginLoad | KeepChunk) -> LoadBegun | ChunkKept:
    """Begin a load, or keep one of its chunks. Raises the errors of the copy."""
    if isinstance(decision, KeepChunk):
        return ChunkKept(decision.number, copy.keep_chunk(decision.number, decision.data))
    offer = decision.offer
    snapshot = Snapshot(offer.lsn, offer.fingerprint, offer.items, offer.chunk_bytes, offer.files)
    return LoadBegun(offer.snapshot, tuple(sorted(copy.begin_load(offer.snapshot, snapshot))))


def _keep(copy: WorkerCopy, decision: KeepCopy, tell: Callable[[CopyAnswer], None]) -> CopyKept | Damaged:
    try:
        kept = copy.keep(decision.number, lambda: tell(CopyFrozen(decision.number)))
    except StoreDamaged as error:
        return Damaged(str(error))
    except StoreError as error:
        return CopyKept(decision.number, -1, 0, str(error))
    return CopyKept(kept.number, kept.lsn, kept.lineage)


def _load(copy: WorkerCopy, decision: BeginLoad | KeepChunk | OpenLoad | RestoreKept) -> LoadBegun | ChunkKept | LoadOpened:
    if isinstance(decision, BeginLoad | KeepChunk):
        return load_chunks(copy, decision)
    if isinstance(decision, RestoreKept):
        copy.restore_kept()
    else:
        copy.open_load()
    return LoadOpened(copy.journal, *copy.applied(), copy.lineage)
