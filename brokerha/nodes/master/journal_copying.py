"""Carrying out what the core of a master's process decides about its journal as a whole: snapshots, chunks, loads.

    thread "journal copy"    makes snapshots, reads and writes chunks; in the order in which it was decided
    loop                     opens a journal that was loaded, because nothing may append meanwhile

A `LoadOpened` names the number of the loaded journal's last record where a worker's has its LSN.
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
from brokerha.nodes.worker.copying import load_chunks, read_chunks
from brokerha.nodes.worker.work_thread import WorkThread
from brokerha.ports.copies import JournalCopy


def carry_out_journal(copy: JournalCopy, decision: CopyDecision) -> CopyAnswer | None:
    """Do what a decision says; the answer for the core, None where there is none."""
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
    """The answer to a decision that met a fault: its caller must not wait for ever."""
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
        """Hand a decision over; a load is opened at once, by the loop that called."""
        if isinstance(decision, OpenLoad):
            self._do(decision)
        else:
            self._thread.put(decision)

    def finished(self) -> list[CopyAnswer]:
        """Answers since the last call."""
        return [self._done.popleft() for _ in range(len(self._done))]

    def close(self, timeout_s: float) -> None:
        """Finish what is under way, take no more."""
        self._thread.close(timeout_s)

    def _do(self, decision: CopyDecision) -> None:
        try:
            answer = carry_out_journal(self._copy, decision)
        except Exception as error:  # noqa: BLE001  (a fault in it ends a load or an offer, not the process)
            answer = _failed(decision, f"{type(error).__name__}: {error}")
        if answer is not None:
            self._done.append(answer)
            self._wake()
