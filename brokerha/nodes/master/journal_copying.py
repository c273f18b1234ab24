"""Carries out the decisions of a process's core about its journal as a whole: snapshots, chunks, loads.

    thread "journal copy"    makes snapshots, reads and writes chunks, in the order of the decisions
    loop                     opens a loaded journal, because no record may be appended meanwhile

A `LoadOpened` has the number of the loaded journal's last record, where that of a worker has its LSN.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from brokerha.model.errors import JournalError
from brokerha.model.invariants import invariant
from brokerha.model.ready import (
    AbandonLoad,
    BeginLoad,
    ChunksRead,
    CopyAnswer,
    CopyDecision,
    DropSnapshot,
    KeepChunk,
    LoadFailed,
    LoadOpened,
    MakeSnapshot,
    OpenLoad,
    ReadChunks,
    SnapshotMade,
)
from brokerha.nodes.worker.copying import WorkThread, load_chunks, read_chunks
from brokerha.ports.copies import JournalCopy


def carry_out_journal(copy: JournalCopy, decision: CopyDecision) -> CopyAnswer | None:
    """Carry out a decision; return the answer for the core, or None when there is none."""
    try:
        match decision:
            case MakeSnapshot():
                return SnapshotMade(decision.snapshot, *copy.make_snapshot(decision.snapshot))
            case ReadChunks():
                return read_chunks(copy, decision, JournalError)
            case DropSnapshot():
                copy.drop_snapshot(decision.snapshot)
                return None
            case AbandonLoad():
                copy.abandon_load()
                return None
            case BeginLoad() | KeepChunk():
                return load_chunks(copy, decision)
            case OpenLoad():
                copy.open_load()
                state = copy.journal.state()
                return LoadOpened(state.journal, state.last_number, "", 0)
    except JournalError as error:
        return _failed(decision, str(error))
    invariant(False, "a journal is not asked for what only a worker's copy has", decision=decision)
    return None


def _failed(decision: CopyDecision, reason: str) -> CopyAnswer | None:
    """Return the answer to a decision that failed with a fault, so that its caller does not wait for ever."""
    match decision:
        case MakeSnapshot():
            return SnapshotMade(decision.snapshot, 0, "", 0, 0, (), reason)
        case ReadChunks():
            return ChunksRead(decision.to, decision.snapshot, tuple((number, None) for number in decision.numbers))
        case BeginLoad() | KeepChunk() | OpenLoad():
            return LoadFailed(reason)
    return None


class JournalThread:
    """`runner.JournalDoor` with a thread of its own."""

    def __init__(self, copy: JournalCopy, name: str, wake: Callable[[], None]) -> None:
        self._copy = copy
        self._wake = wake
        self._done: deque[CopyAnswer] = deque()
        self._thread: WorkThread[CopyDecision] = WorkThread(f"{name} journal copy", self._do)

    def begin(self, decision: CopyDecision) -> None:
        """Start a decision; a load is opened at once, in the calling loop."""
        if isinstance(decision, OpenLoad):
            self._do(decision)
        else:
            self._thread.put(decision)

    def finished(self) -> list[CopyAnswer]:
        """Return the answers since the last call."""
        return [self._done.popleft() for _ in range(len(self._done))]

    def close(self, timeout_s: float) -> None:
        """Finish the work in hand and take no more."""
        self._thread.close(timeout_s)

    def _do(self, decision: CopyDecision) -> None:
        try:
            answer = carry_out_journal(self._copy, decision)
        except Exception as error:  # noqa: BLE001  (a fault here ends a load or an offer, not the process)
            answer = _failed(decision, f"{type(error).__name__}: {error}")
        if answer is not None:
            self._done.append(answer)
            self._wake()
