"""JournalThread: every decision about a journal's copy is answered, whatever happens; and the thread behind it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from brokerha.model.errors import JournalError
from brokerha.model.ready import (
    AbandonLoad,
    BeginLoad,
    ChunkKept,
    ChunksRead,
    CopyAnswer,
    CopyDecision,
    DropSnapshot,
    KeepChunk,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    MakeSnapshot,
    OpenLoad,
    ReadChunks,
    SnapshotMade,
)
from brokerha.model.records import ViewStarted
from brokerha.model.wire.messages import SnapshotOffered
from brokerha.nodes.master.process_runner import JournalThread
from brokerha.nodes.worker.runner import WorkThread
from tests.support.logs import memory_copy

WAIT_S = 20.0


class Failing:
    """A copy of which nothing works."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _name: str) -> Any:
        def fail(*_: object) -> None:
            raise self._error

        return fail


def offer() -> SnapshotOffered:
    return SnapshotOffered("s", "s", 1, "", 0, 64, (("journal", 64, b"x" * 32),))


def answers_of(copy: Any, *decisions: CopyDecision) -> list[CopyAnswer]:
    """What a thread answers to these decisions; it has finished them when it is closed."""
    woken = threading.Event()
    thread = JournalThread(copy, "m1", woken.set)
    for decision in decisions:
        thread.begin(decision)
    thread.close(WAIT_S)
    found = thread.finished()
    assert woken.is_set() or not found
    assert thread.finished() == []
    return found


@pytest.mark.parametrize("error", [JournalError("the disk is bad"), OSError("the disk is bad")])
@pytest.mark.parametrize(
    ("decision", "kind"),
    [
        (MakeSnapshot("s"), SnapshotMade),
        (ReadChunks("b1", "s", (1, 2)), ChunksRead),
        (BeginLoad(offer()), LoadFailed),
        (KeepChunk(1, b"x"), LoadFailed),
        (OpenLoad(), LoadFailed),
    ],
)
def test_a_decision_that_meets_a_fault_is_answered_with_what_its_kind_understands(
    decision: CopyDecision, kind: type[CopyAnswer], error: Exception
) -> None:
    (answer,) = answers_of(Failing(error), decision)
    assert type(answer) is kind
    if isinstance(answer, ChunksRead):
        assert answer.chunks == ((1, None), (2, None))
    elif isinstance(answer, SnapshotMade | LoadFailed):
        assert "the disk is bad" in answer.reason


@pytest.mark.parametrize("decision", [DropSnapshot("s"), AbandonLoad()])
def test_a_fault_of_what_nobody_waits_for_is_answered_by_nothing(decision: CopyDecision) -> None:
    assert answers_of(Failing(OSError("the disk is bad")), decision) == []


def test_a_journal_goes_from_one_copy_to_another_in_chunks() -> None:
    source = memory_copy("m1", "journal-of-m1")
    source.journal.append([ViewStarted(10, "m1")])
    target = memory_copy("m1", "journal-of-b1")
    (made,) = answers_of(source, MakeSnapshot("s"))
    assert isinstance(made, SnapshotMade)
    count = sum(len(sums) // 32 for _, _, sums in made.files)
    (read,) = answers_of(source, ReadChunks("b1", "s", tuple(range(count))))
    assert isinstance(read, ChunksRead)
    offered = SnapshotOffered("s", "s", made.lsn, "", 0, made.chunk_bytes, made.files)
    chunks = [KeepChunk(number, data or b"") for number, data in read.chunks]
    begun, *kept = answers_of(target, BeginLoad(offered), *chunks)
    assert begun == LoadBegun("s", ())
    assert kept == [ChunkKept(number, is_good=True) for number in range(count)]
    assert answers_of(target, OpenLoad()) == [LoadOpened("journal-of-m1", 1, "", 0)]
    assert list(target.journal.records()) == list(source.journal.records())


def test_a_load_is_opened_before_anything_else_is_done_to_the_journal() -> None:
    thread = JournalThread(Failing(JournalError("no")), "m1", lambda: None)
    thread.begin(OpenLoad())
    assert thread.finished() == [LoadFailed("no")]
    thread.close(WAIT_S)


# ---- a thread that works


def test_work_is_done_in_its_order_and_what_was_handed_over_before_the_end_is_finished() -> None:
    done: list[int] = []
    thread = WorkThread("work", done.append)
    for number in range(100):
        thread.put(number)
    thread.close(WAIT_S)
    assert done == list(range(100))
    assert thread.busy_s == 0.0
    assert thread.idle_s == 0.0


def test_a_thread_says_how_long_it_has_been_at_its_work() -> None:
    release, began = threading.Event(), threading.Event()

    def work(_: int) -> None:
        began.set()
        release.wait(WAIT_S)

    thread = WorkThread("work", work)
    assert thread.busy_s == 0.0
    thread.put(1)
    assert began.wait(WAIT_S)
    while thread.busy_s == 0.0:
        time.sleep(0.001)
    assert thread.idle_s == 0.0
    release.set()
    thread.close(WAIT_S)
    assert thread.busy_s == 0.0
