"""A crash at every call that writes to the disk, by count: whatever was acknowledged is there, each turn whole or not at all.

The disk is the simulator's. Before the n-th call the process dies (what it wrote is there) or the power goes as well (what was not synced
is lost but for some sectors); for each n there are several of each.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from brokerha.log.copies import LogCopy
from brokerha.log.log import Log
from brokerha.model.errors import JournalError
from brokerha.simulator.disk import SimDisk
from tests.contracts.journal_copy_contract import carry
from tests.unit.log.turns import Author, everything, result_of

BOUNDS: dict[str, Any] = {"segment_bytes": 3_000, "ids_held": 20}
TXIDS = [f"t{n}" for n in range(1, 200, 7)]
WRITING = ("create", "write", "sync", "sync_names", "rename", "remove", "cut")


class DiedError(BaseException):
    """The process died; nobody catches it."""


class CountingDisk(SimDisk):
    """Counts the calls that change it, and dies at one of them."""

    def __init__(self, seed: str, dies_at: int = 0) -> None:
        super().__init__(seed)
        self.calls: list[str] = []
        self.dies_at = dies_at

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name not in WRITING:
            return found

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) == self.dies_at:
                raise DiedError
            return found(*arguments, **options)

        return counted


def workload(log: Log, told: list[dict[str, object]], turns: int) -> None:
    """Turns with everything: accepted and foreign bodies, deferred places, trimming, forgotten ids, and a queue that goes back."""
    author = Author("m1", "m2")
    for n in range(turns):
        first = author.lsn + 1
        txids = [f"t{first + i + 200 * n}" for i in range(3)]
        log.append([author.accept(*txids), author.stamp(*txids), author.hold("m2", f"m{n}"), author.append("m2", f"m{n}")])
        note(log, told)
        log.defer([author.add(4), author.execute(4)])
        if n % 5 == 3:
            log.append([author.go_back(max(author.lsn - 2, log.first_lsn() - 1))])
        elif n % 3 == 0:
            log.trim(max(1, author.lsn - 12))
        else:
            log.settle()
        note(log, told)
        if n % 7 == 6:
            log.forget_ids(author.lsn - 20)
            note(log, told)
        while log.keep(0, 0):
            pass


def note(log: Log, told: list[dict[str, object]]) -> None:
    """What is durable now."""
    told.append(facts(log))


def facts(log: Log) -> dict[str, object]:
    found = everything(log, TXIDS, ["m1", "m2"])
    return {name: found[name] for name in ("state", "first", "numbers", "lsns", "ordered", "results", "rejections", "bodies")}


def calls_of(turns: int) -> int:
    disk = CountingDisk("count")
    workload(Log(disk, "c", "m1", name="j", **BOUNDS), [], turns)
    assert {"create", "sync_names", "rename", "remove", "cut"} <= set(disk.calls)
    return len(disk.calls)


def crash(seed: int, dies_at: int, turns: int) -> None:
    """One life that ends at a call, and what the next one finds."""
    disk, told = CountingDisk(f"{seed}", dies_at), list[dict[str, object]]()
    try:
        log = Log(disk, "c", "m1", name="j", **BOUNDS)
        note(log, told)
        workload(log, told, turns)
    except DiedError:
        pass
    disk.dies_at = 0
    if seed % 3:
        disk.lose_power()
    found = Log(disk, "c", "m1", name="j", **BOUNDS)
    assert list(found.verify()) == [], (seed, dies_at)
    answers = facts(found)
    if not told:
        assert found.last_number == 0
        return
    if answers != told[-1]:
        # Then it is what the turn that was under way would have come to, whole.
        assert answers in following(told, turns), (seed, dies_at)
    state = found.state()
    author = Author("m1")
    author.lsn, author.executed, author.clock = state.lsn, state.executed_lsn, 10**6
    author.streams["m1"] = [(0, "")] * state.used.get("m1", 0)
    author.used["m1"] = state.used.get("m1", 0)
    if not state.streams.get("m1", (0, []))[1]:
        found.append(author.synchronised("afterwards"))
        disk.lose_power()
        assert Log(disk, "c", "m1", **BOUNDS).lsn_of("afterwards") == state.lsn + 1


def following(told: list[dict[str, object]], turns: int) -> list[dict[str, object]]:
    """What the same workload says at its next moments."""
    whole: list[dict[str, object]] = []
    log = Log(SimDisk("again"), "c", "m1", name="j", **BOUNDS)
    note(log, whole)
    workload(log, whole, turns)
    return whole[len(told) : len(told) + 1]


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_every_write_leaves_what_was_told_and_no_turn_by_half(part: int) -> None:
    turns = 14
    for dies_at in range(1 + part, calls_of(turns) + 1, 4):
        for seed in range(3):
            crash(3 * dies_at + seed, dies_at, turns)


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
