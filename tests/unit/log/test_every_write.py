"""A crash at every call that writes to the disk, by count: whatever was acknowledged is there, each turn whole or not at all.

The disk is the simulator's. Before each call the process dies (what it wrote is there) or the power goes as well (what was not synced
is lost but for some sectors); for each call there are several of both.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from brokerha.log.copies import LogCopy
from brokerha.log.log import Log
from brokerha.model.errors import JournalError
from brokerha.model.forgetting import forgetting_id
from tests.contracts.journal_copy_contract import carry
from tests.simulator.disk import SimDisk
from tests.unit.log.turns import Author, everything, result_of

BOUNDS: dict[str, Any] = {"segment_bytes": 3_000, "ids_held": 20}
TXIDS = [f"t{n}" for n in range(1, 200, 7)]
WRITING = ("create", "write", "sync", "sync_names", "rename", "remove", "cut")


class DiedError(BaseException):
    """The process died; nobody catches it."""


class CountingDisk(SimDisk):
    """Counts the calls that change it; dies at one of them, or tells somebody before each."""

    def __init__(self, seed: str, dies_at: int = 0, before_call: Callable[[], None] = lambda: None) -> None:
        super().__init__(seed)
        self.calls: list[str] = []
        self.dies_at = dies_at
        self.before_call = before_call

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name not in WRITING:
            return found

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) == self.dies_at:
                raise DiedError
            self.before_call()
            return found(*arguments, **options)

        return counted


def twin(disk: SimDisk, seed: str) -> SimDisk:
    """Another disk with the same bytes, for readers and on the platters."""
    other = SimDisk(seed)
    made: dict[int, bytearray] = {}

    def of(file: bytearray) -> bytearray:
        if id(file) not in made:
            made[id(file)] = bytearray(file)
            other._platters[id(made[id(file)])] = bytearray(disk._platters[id(file)])
            other._dirty[id(made[id(file)])] = list(disk._dirty[id(file)])
        return made[id(file)]

    other.files = {name: of(file) for name, file in disk.files.items()}
    other._stable = {name: of(file) for name, file in disk._stable.items()}
    return other


def workload(log: Log, turns: int, note: Callable[[], None]) -> None:
    """Turns with everything: accepted and foreign bodies, deferred places, trimming, forgotten ids, a queue that goes back, files that are held for a
    snapshot."""
    author = Author("m1", "m2")
    held: list[str] = []
    for n in range(turns):
        first = author.lsn + 1
        txids = [f"t{first + i + 200 * n}" for i in range(3)]
        log.append([author.accept(*txids), author.stamp(*txids), author.hold("m2", f"m{n}"), author.append("m2", f"m{n}")])
        note()
        log.defer([author.add(4), author.execute(4)])
        if n % 5 == 3:
            log.append([author.go_back(max(author.lsn - 2, log.first_lsn() - 1))])
        elif n % 3 == 0:
            log.trim(max(1, author.lsn - 12))
        else:
            log.settle()
        note()
        if n % 7 == 6:
            log.append(author.whole(forgetting_id(log.first_lsn() - 1)))
            note()
        if n % 9 == 4:
            log.let_go(held)
            held = [f"{log.folder}/{name}" for name, _ in log.hold_files()[2]]
        while log.keep(0):
            pass


def facts(log: Log) -> int:
    """All that is told of a log, as one number."""
    found = everything(log, TXIDS, ["m1", "m2"])
    return hash(repr([found[name] for name in ("state", "first", "numbers", "lsns", "ordered", "results", "rejections", "bodies")]))


def crash_at_every_call(turns: int, part: int = 0, parts: int = 1) -> tuple[int, int]:
    """Let a process live through a workload; before each call that writes, or each so many-th, it dies three times, the power going twice. Returns the
    calls and the crashes."""
    told: list[int] = []
    found: list[tuple[int, int, int]] = []

    def die() -> None:
        at = len(disk.calls)
        if at % parts != part:
            return
        for seed in range(3):
            left = twin(disk, f"{turns} {at} {seed}")
            if seed:
                left.lose_power()
            again = Log(left, "c", "m1", name="j", **BOUNDS)
            assert list(again.verify()) == [], (at, seed)
            # Nothing is left of a torn write, with which frames of the next one could make a whole one.
            active = again._segments.active
            assert not any(left.files[again._segments.name(active.place)][active.length :]), (at, seed)
            if told:
                found.append((at, len(told), facts(again)))
                go_on(again, left)
            else:
                assert again.last_number == 0

    disk = CountingDisk("life", before_call=die)
    log = Log(disk, "c", "m1", name="j", **BOUNDS)
    told.append(facts(log))
    workload(log, turns, lambda: told.append(facts(log)))
    for at, count, answers in found:
        # What was told last, or what the turn that was under way comes to, whole.
        assert answers in told[count - 1 : count + 1], at
    return len(disk.calls), len(found)


def go_on(log: Log, disk: SimDisk) -> None:
    """What is written after a crash is there after the next one."""
    state = log.state()
    author = Author("m1")
    author.lsn, author.executed, author.clock = state.lsn, state.executed_lsn, 10**6
    author.streams["m1"] = [(0, "")] * state.used.get("m1", 0)
    author.used["m1"] = state.used.get("m1", 0)
    if not state.streams.get("m1", (0, []))[1]:
        log.append(author.synchronised("afterwards"))
        disk.lose_power()
        assert Log(disk, "c", "m1", **BOUNDS).lsn_of("afterwards") == state.lsn + 1


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_every_write_leaves_what_was_told_and_no_turn_by_half(part: int) -> None:
    calls, crashes = crash_at_every_call(40, part, 4)
    assert calls > 300
    assert crashes > calls / 2


@pytest.mark.campaign
def test_a_crash_at_every_write_of_two_thousand_transactions() -> None:
    calls, crashes = crash_at_every_call(500)
    print(f"{calls} calls that write, {crashes} crashes")


def test_a_commit_of_one_record_is_one_write_and_one_sync() -> None:
    disk = CountingDisk("one")
    log = Log(disk, "c", "m1", name="j")
    author = Author("m1")
    disk.calls.clear()
    log.append([author.accept("a")])
    assert disk.calls == ["write", "sync"]
    disk.calls.clear()
    log.append(author.whole(*[f"t{n}" for n in range(500)]))
    assert disk.calls == ["write", "sync"]
    disk.calls.clear()
    log.defer([author.rebase(0)])
    log.settle()
    assert disk.calls == ["write", "sync"]


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_every_write_of_a_load_leaves_the_old_log_or_the_new_one(seed: int) -> None:
    def opened(disk: SimDisk) -> LogCopy:
        return LogCopy(disk, "c", "m1", chunk_bytes=700, **BOUNDS)

    source = opened(SimDisk("source"))
    author = Author("m1")
    for n in range(30):
        source.journal.append(author.whole(f"t{n}"))
    wanted = source.journal.state()
    found: list[str] = []
    at = 1
    while not found or found[-1] != "done":
        disk = CountingDisk(f"{seed} {at}")
        follower = opened(disk)
        follower.journal.append([author.accept("old")])
        old = follower.journal.state()
        disk.calls.clear()
        disk.dies_at = at
        try:
            carry(source, follower)
            follower.open_load()
            found.append("done")
        except DiedError:
            disk.dies_at = 0
            if Random(f"{seed} {at}").random() < 0.6:
                disk.lose_power()
            again = opened(disk)
            state = again.journal.state()
            assert list(again.journal.verify()) == []
            assert state in (old, wanted)
            found.append("old" if state == old else "new")
            if found[-1] == "old":
                carry(source, again)
                again.open_load()
            assert again.journal.state() == wanted
        source.clear_snapshots()
        at += 1
    moment = found.index("new")
    assert set(found[:moment]) == {"old"} or seed
    assert moment > 20


def test_what_a_failed_sync_left_is_never_told_and_written_anew_by_the_next_start() -> None:
    # Given a turn whose sync failed: what a reader sees of it is on no platter, and no later sync would write it
    disk = SimDisk("failing")
    log = Log(disk, "c", "m1", name="j")
    author = Author("m1")
    log.append(author.whole("a"))
    disk.sync_fails = 1.0
    with pytest.raises(JournalError, match="cannot be written"):
        log.append(author.whole("b"))
    # Then the log says what it was, and writes nothing more
    assert (log.state().lsn, log.lsn_of("b"), log.results(1, 9)) == (1, None, [result_of(1)])
    disk.sync_fails = 0.0
    with pytest.raises(JournalError, match="until the node is started again"):
        log.append([author.accept("c")])
    # And what the next start says is there is there, whatever happens then
    found = Log(disk, "c", "m1").state()
    disk.lose_power()
    assert Log(disk, "c", "m1").state() == found


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("ids_held", [3, 1_000])
def test_a_log_for_which_there_is_no_descriptor_left_goes_on_in_its_segment(
    ids_held: int, reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a process that can open no more files when the next segment, or the next file of ids, is due
    disk = SimDisk("crowded")
    log = Log(disk, "c", "m1", name="j", segment_bytes=3_000, ids_held=ids_held)
    author = Author("m1")

    def refused(name: str, reserve_bytes: int = 0) -> None:
        raise OSError(reason, "too many open files", name)

    # When it writes on
    before = disk.names()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "create", refused)
        for n in range(40):
            log.append(author.whole(f"a{n}"))
    assert disk.names() == before
    # Then everything is there, and the files come once there are descriptors again
    for n in range(40):
        log.append(author.whole(f"b{n}"))
    assert len(disk.names()) > len(before)
    disk.lose_power()
    again = Log(disk, "c", "m1", segment_bytes=3_000, ids_held=ids_held)
    assert again.state().lsn == 80
    assert list(again.verify()) == []


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_ids_that_a_full_disk_lost_in_a_sync_are_never_named_by_a_checkpoint(reason: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a file system that finds out only in the sync that it is full, as one on a thin volume does
    disk = SimDisk("thin")
    log = Log(disk, "c", "m1", name="j", segment_bytes=3_000, ids_held=5)
    author = Author("m1")
    sync = disk.sync
    lost: list[str] = []

    def fails_once(name: str) -> None:
        if "/ids-" in name and not lost:
            lost.append(name)
            disk._dirty[id(disk.files[name])].clear()
            raise OSError(reason, "no space left on device", name)
        sync(name)

    monkeypatch.setattr(disk, "sync", fails_once)
    # When it writes on, as long as it takes writes
    written = 0
    try:
        for n in range(40):
            log.append(author.whole(f"a{n}"))
            written = n + 1
    except JournalError:
        pass
    assert lost
    # Then what it told is there after a power cut
    disk.lose_power()
    again = Log(disk, "c", "m1", segment_bytes=3_000, ids_held=5)
    assert again.state().lsn >= written
    assert again.lsn_of("a0") == 1
    assert list(again.verify()) == []
