"""One turn of a worker: receive, step, send, pass decisions to the store; master/runner.py has the rules, and a master's turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from brokerha.model.errors import BrokerhaError, StoreDamaged, StoreDiffers, StoreError, StoreFull
from brokerha.model.operations import ResultRow
from brokerha.model.ready import (
    AbandonLoad,
    ApplyBatch,
    BeginLineage,
    BeginLoad,
    ChunkKept,
    ChunksRead,
    Condemn,
    CopyAnswer,
    CopyDecision,
    CopyFrozen,
    CopyKept,
    Damaged,
    Decision,
    DropKept,
    DropSnapshot,
    ExecuteBatch,
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
    StoreAnswer,
    StoreDecision,
    StoreDone,
    StoreFailed,
)
from brokerha.model.wire.epoch_messages import Leave
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.nodes.master.runner import IDLE_MS, TURN_LIMIT, NodeHandler
from brokerha.ports.clock import Clock
from brokerha.ports.copies import Snapshot, Snapshots, WorkerCopy
from brokerha.ports.store import Store
from brokerha.ports.transport import Transport
from brokerha.replication.worker.config import CopyState, WorkerConfig
from brokerha.replication.worker.core import WorkerCore
from brokerha.replication.worker.kept_here import NOTHING, KeptState

# ---- Carries out the decisions of a worker's core about its copy as a whole: snapshots, chunks, loads, ranges of the log.

# ---- A thread that does one piece of work after another, and tells the duration of the present one.

Work = TypeVar("Work")

ASK_AFTER_S = 1.0
"""Shorter work never counts as idle."""
IDLE_SHARE = 0.01
"""A thread that computes for less than this share of its time counts as waiting."""


class WorkThread(Generic[Work]):
    """One thread that does one piece of work after another."""

    def __init__(self, name: str, do: Callable[[Work], None]) -> None:
        self._do = do
        self._since_s: float | None = None
        """Begin of the present work."""
        self._begun_at_s = 0.0
        """Processor time of the thread at that moment."""
        self._todo: deque[Work | None] = deque()
        self._signal = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Work | None) -> None:
        """Queue work; None ends the thread after the work before it."""
        self._todo.append(work)
        self._signal.release()

    def _run(self) -> None:
        while True:
            self._signal.acquire()
            work = self._todo.popleft()
            if work is None:
                return
            self._begun_at_s = time.thread_time()
            self._since_s = time.monotonic()
            try:
                self._do(work)
            finally:
                self._since_s = None

    @property
    def busy_s(self) -> float:
        """Time spent on the present work; 0 when it has none."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    @property
    def idle_s(self) -> float:
        """Time spent on the present work while the thread hardly computed; 0 otherwise."""
        busy_s, thread = self.busy_s, self._thread.ident
        # Only a living thread can be asked, and a thread in the middle of its work is alive.
        if not busy_s or busy_s < ASK_AFTER_S or thread is None or not hasattr(time, "pthread_getcpuclockid"):
            return 0.0
        computed_s = time.clock_gettime(time.pthread_getcpuclockid(thread)) - self._begun_at_s
        return 0.0 if computed_s > busy_s * IDLE_SHARE else busy_s

    def close(self, timeout_s: float) -> None:
        """Finish the queued work and take no more."""
        self.put(None)
        self._thread.join(timeout_s)


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


def failed_answer(decision: CopyDecision, reason: str) -> CopyAnswer | None:
    """Return the answer to a decision that failed with a fault, so that no follower waits for ever; None if nobody waits."""
    match decision:
        case MakeSnapshot():
            return SnapshotMade(decision.snapshot, 0, "", 0, 0, (), reason)
        case ReadChunks():
            return ChunksRead(decision.to, decision.snapshot, tuple((number, None) for number in decision.numbers))
        case ReadRange():
            return RangeRead(decision.to, decision.first_lsn, decision.last_lsn, (), 0)
        case KeepCopy():
            # The store waits while a kept copy is frozen.
            return CopyKept(decision.number, -1, 0, reason)
        case BeginLoad() | KeepChunk() | OpenLoad() | RestoreKept():
            return LoadFailed(reason)
    return None


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


class StoreDoor(Protocol):
    """Passes decisions to the copy and returns its answers; at most one decision that writes the store is under way."""

    def begin(self, decision: Decision) -> None:
        """Start to carry out a decision; never blocks."""

    def finished(self) -> list[StoreAnswer]:
        """Return the answers since the last call."""


class WorkerRunner:
    """One worker: core, store and transport, a turn at a time."""

    def __init__(self, config: WorkerConfig, core: WorkerCore, door: StoreDoor, transport: Transport, clock: Clock) -> None:
        self.config = config
        self.core = core
        self.door = door
        self.transport = transport
        self.clock = clock
        self.turns = 0
        self.on_node: NodeHandler = lambda _envelope, _now: False

    def wait_ms(self) -> int:
        """Return how long the next turn can wait for a message."""
        due = self.core.deadline_ms()
        return 0 if due is None else max(0, min(IDLE_MS, due - self.clock.now().mono_ms))

    def turn(self, wait_ms: int = 0) -> int:
        """Take the inputs and carry out the consequences; return the number of inputs."""
        items = self.transport.receive(TURN_LIMIT, wait_ms)
        now = self.clock.now()
        self.turns += 1
        answers = self.door.finished()
        for answer in answers:
            self.core.step(answer, now)
        for item in items:
            if isinstance(item, Envelope) and not self.on_node(item, now):
                self.core.step(item, now)
        self.core.wake(now)
        ready = self.core.take_ready(now)
        self.transport.send(ready.messages)
        for decision in ready.decisions:
            self.door.begin(decision)
        return len(items) + len(answers)

    def leave(self) -> None:
        """Tell the master that this process ends, so that another worker executes; called after the last turn."""
        self.transport.send([Outgoing(self.config.master, Leave())])


def carry_out(store: Store, decision: StoreDecision) -> StoreDone | StoreFailed:
    """Carry out a decision, in the thread that writes the store; the answer tells the durable LSN."""
    results: Sequence[ResultRow] = ()
    try:
        if isinstance(decision, ExecuteBatch):
            results = store.execute(decision.first_lsn, decision.items)
        elif isinstance(decision, ApplyBatch):
            store.apply(decision.first_lsn, decision.items)
        elif isinstance(decision, BeginLineage):
            store.begin_lineage(decision.lineage, decision.lsn)
        else:
            results = [line[2:] for line in store.logged(decision.first_lsn, decision.last_lsn)]
    except StoreDiffers as error:
        return StoreFailed(str(error), is_damage=True, lsn=error.lsn, fingerprint=error.fingerprint)
    except StoreError as error:
        return StoreFailed(str(error), isinstance(error, StoreDamaged), is_disk_full=isinstance(error, StoreFull))
    applied = store.applied()
    first_lsn = applied.lsn + 1 if isinstance(decision, BeginLineage) else decision.first_lsn
    return StoreDone(first_lsn, applied.lsn, tuple(results), applied.fingerprint, applied.items)
