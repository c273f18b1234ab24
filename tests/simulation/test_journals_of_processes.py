"""The simulated journal of a process: it follows, promises and is replaced with the habits of a simulated disk."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerha.model.errors import JournalFull
from brokerha.model.records import Record, Started
from tests.simulator.disk import SimJournalCopy, sim_copy
from tests.simulator.events import Trace


class DiedError(Exception):
    """The process died."""


class FakeProcess:
    """What a simulated journal needs of the process that writes it."""

    def __init__(self) -> None:
        self.node = "m1"
        self.is_disk_full = False
        self.dies_at = ""
        self.writes = 0
        nothing = SimpleNamespace(on_durable=lambda *_: None, on_promise=lambda *_: None)
        self.world = SimpleNamespace(trace=Trace(None), now_us=0, faults_seen={"write refused by a full disk": 0}, checkers=nothing)

    def reach(self, point: str, _at_hand: Sequence[Record]) -> None:
        if point == self.dies_at:
            raise DiedError(point)

    def spend_write(self) -> None:
        self.writes += 1


def opened(process: FakeProcess, name: str = "journal") -> SimJournalCopy:
    copy = sim_copy("m1", name)
    copy.journal.process = cast("Any", process)
    return copy


def survived(copy: SimJournalCopy, process: FakeProcess) -> SimJournalCopy:
    process.dies_at = ""
    survivor = copy.survivor()
    survivor.journal.process = cast("Any", process)
    return survivor


@pytest.mark.parametrize(("point", "last", "view"), [("append absent", 4, 11), ("append there", 9, 21)])
def test_a_crash_leaves_what_was_followed_and_promised_wholly_there_or_wholly_absent(point: str, last: int, view: int) -> None:
    process = FakeProcess()
    copy = opened(process)
    copy.journal.follow([(4, Started(1))])
    copy.journal.promise(11)
    assert process.writes == 2
    process.dies_at = point
    with pytest.raises(DiedError):
        copy.journal.follow([(7, Started(2)), (9, Started(3))])
    copy = survived(copy, process)
    process.dies_at = point
    with pytest.raises(DiedError):
        copy.journal.promise(21)
    copy = survived(copy, process)
    assert (copy.journal.last_number, copy.journal.state().promised_view) == (last, view)


def test_a_full_disk_refuses_everything_that_is_written() -> None:
    process = FakeProcess()
    source, copy = opened(process, "source"), opened(process)
    snapshot = source.make_snapshot("n")
    process.is_disk_full = True
    for write in (
        lambda: copy.journal.follow([(1, Started(1))]),
        lambda: copy.journal.promise(11),
        lambda: copy.begin_load("n", snapshot),
    ):
        with pytest.raises(JournalFull):
            write()
    assert (copy.journal.last_number, copy.journal.state().promised_view, copy.pending_load) == (0, 0, "")


def test_a_load_goes_on_after_a_crash_and_the_new_journal_is_written_by_the_same_process() -> None:
    process = FakeProcess()
    source, copy = opened(process, "source"), opened(process)
    source.journal.append([Started(5)])
    snapshot = source.make_snapshot("n")
    copy.begin_load("n", snapshot)
    for number in range(sum(len(sums) // 32 for _, _, sums in snapshot.files)):
        copy = survived(copy, process)
        copy.begin_load("n", snapshot)
        assert copy.keep_chunk(number, source.read_chunk("n", number) or b"")
    # The power may have taken some of them.
    for missing in set(range(number + 1)) - copy.begin_load("n", snapshot):
        assert copy.keep_chunk(missing, source.read_chunk("n", missing) or b"")
    copy.open_load()
    copy.journal.append([Started(6)])
    assert survived(copy, process).journal.state().incarnation == 6
    assert copy.journal.state().journal == "source"
