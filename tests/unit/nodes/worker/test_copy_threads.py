"""What the threads of a copy tell of work that does not come back."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from brokerha.model.ready import (
    ApplyBatch,
    ChunksRead,
    CopyAnswer,
    CopyDecision,
    CopyKept,
    KeepCopy,
    LoadFailed,
    MakeSnapshot,
    OpenLoad,
    RangeRead,
    ReadChunks,
    ReadRange,
    SnapshotMade,
    StoreDone,
)
from brokerha.nodes.worker import runner
from brokerha.nodes.worker.node import CopyThreads
from brokerha.ports.store import Applied

WAIT_S = 20.0


class Waiting:
    """A copy whose writes wait or compute until they are let go."""

    def __init__(self, *, computes: bool) -> None:
        self.computes = computes
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def apply(self, *_: object) -> None:
        self.begun.set()
        while self.computes and not self.let_go.is_set():
            pass
        assert self.let_go.wait(WAIT_S)

    def applied(self) -> Applied:
        return Applied(1, "", 0)


@pytest.mark.parametrize("computes", [False, True])
def test_a_write_that_waits_is_told_from_one_that_computes(computes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ASK_AFTER_S", 0.0)
    copy: Any = Waiting(computes=computes)
    woken = threading.Semaphore(0)
    threads = CopyThreads(copy, "w1", woken.release)
    assert (threads.store_busy_s, threads.idle_s) == (0, 0)
    threads.begin(ApplyBatch(1, ()))
    assert copy.begun.wait(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    # Whatever else the machine does: one that waits computes nothing, and one that computes is not idle for long.
    while (threads.idle_s > 0) is computes or not threads.store_busy_s:
        assert time.monotonic() < deadline
    copy.let_go.set()
    assert woken.acquire(timeout=WAIT_S)
    assert isinstance(threads.finished()[0], StoreDone)
    threads.close(WAIT_S)
    assert (threads.store_busy_s, threads.idle_s) == (0, 0)


def test_whoever_wants_to_know_hears_of_a_snapshot_that_was_made() -> None:
    class Source:
        def make_snapshot(self, _name: str) -> tuple[object, ...]:
            return 1, "", 0, 1, (("data/data.mdb", 0, b""),)

    copy: Any = Source()
    given = threading.Event()
    threads = CopyThreads(copy, "w1", lambda: None, given.set)
    threads.begin(MakeSnapshot("n"))
    assert given.wait(WAIT_S)
    threads.close(WAIT_S)


class Faulty:
    """A copy of which every call ends in a fault."""

    def __getattr__(self, _name: str) -> Any:
        def fails(*_: object) -> None:
            raise MemoryError("a fault")

        return fails


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (KeepCopy(7), CopyKept(7, -1, 0, "MemoryError: a fault")),
        (MakeSnapshot("n"), SnapshotMade("n", 0, "", 0, 0, (), "MemoryError: a fault")),
        (ReadChunks("w2", "n", (3, 4)), ChunksRead("w2", "n", ((3, None), (4, None)))),
        (ReadRange("w2", 1, 9), RangeRead("w2", 1, 9, (), 0)),
        (OpenLoad(), LoadFailed("MemoryError: a fault")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_whoever_waits_for_work_that_ends_in_a_fault_is_told(decision: CopyDecision, answer: CopyAnswer) -> None:
    copy: Any = Faulty()
    woken = threading.Semaphore(0)
    threads = CopyThreads(copy, "w1", woken.release)
    threads.begin(decision)
    assert woken.acquire(timeout=WAIT_S)
    threads.close(WAIT_S)
    assert threads.finished() == [answer]
