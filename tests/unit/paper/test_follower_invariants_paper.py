"""One test for each invariant of the replication paper that concerns followers, and for each fault of its implementation.

As in test_follower_paper.py: docstrings quote a few words, and say why where this design does something else on purpose.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model import states
from brokerha.model.ready import ApplyBatch
from brokerha.model.wire.messages import (
    Apply,
    Coin,
    Execute,
    Idle,
    LoadFrom,
    Message,
    Progress,
    RangeMissing,
    Request,
    SnapshotWanted,
)
from brokerha.replication.worker.config import CopyState, WorkerConfig
from tests.unit.paper.followers import progress_in
from tests.unit.paper.site_table import SiteTable
from tests.unit.replication.benches import WorkerBench, lines, text, transactions

# ---- invariants


def test_every_participant_is_idle_or_follows_as_declared() -> None:
    """Invariants: instances "can be declared to master, slave or remain in a well defined idle-mode"."""
    bench = WorkerBench(is_coined=False)
    assert bench.core.word() == (states.UNINITIALISED, "waits for its master")
    bench.take(Coin(1))
    assert bench.core.word() == (states.ON, "")
    bench.take(Idle(1, "switched off"))
    assert bench.core.word() == (states.OFF, "switched off")


def test_a_follower_obeys_only_one_primary_at_a_time() -> None:
    """Invariants: "A slave does obey only one master at a time": the one of the highest view."""
    bench = WorkerBench(applied=3, is_coined=False)
    bench.take(Coin(7))
    assert bench.take(lines(4, 4, view=6)).decisions == ()
    for order in (Coin(6), Idle(6, ""), LoadFrom(6, ("w2",), "")):
        bench.take(order)
    assert (bench.progress().follows, bench.progress().view) == ("basic", 7)
    bench.take(Coin(8))
    assert bench.take(lines(4, 4, view=7)).decisions == ()
    assert bench.take(lines(4, 4, view=8)).decisions


def test_followers_are_read_only() -> None:
    """Invariants: "Slaves are read-only": transactions of anybody but the own primary never reach the store (slaveCheck)."""
    bench = WorkerBench(applied=3)
    assert bench.take(Execute(4, (("t", 4, b"body"),)), sender="client").decisions == ()


def test_a_follower_that_cannot_synchronise_changes_to_idle() -> None:
    """Invariants: "cannot synchronize ... for any reason it will immediately change to the idle-mode"; both mechanisms failed."""
    bench = WorkerBench(applied=3)
    bench.take(lines(9, 9))
    bench.take(RangeMissing(4, 8, 9))
    bench.take(LoadFrom(1, ("w2",), ""))
    bench.ms += bench.core.config.load.patience_ms
    bench.take()
    assert bench.progress().follows == "idle"
    assert bench.take(lines(4, 4)).decisions == ()


def every_state() -> dict[str, WorkerBench]:
    idle, basic, request, load = (WorkerBench(applied=3, is_coined=number > 0) for number in range(4))
    request.take(lines(9, 9))
    load.take(LoadFrom(1, ("w2",), ""))
    return {"idle": idle, "basic": basic, "request": request, "load": load}


@pytest.mark.parametrize("state", ["idle", "basic", "request", "load"])
def test_at_any_time_a_follower_can_state_a_distinct_lsn(state: str) -> None:
    """Invariants: "At any time every participant can state a distinct LSN": asked with an empty Apply, in every state."""
    bench = every_state()[state]
    bench.take()
    progress = progress_in(bench.take(Apply(99, ())))
    assert (progress.follows, progress.applied_lsn, progress.fingerprint) == (state, 3, text(3))


@pytest.mark.parametrize("state", ["basic", "request", "load"])
def test_replication_can_be_suspended_in_every_state(state: str) -> None:
    """Explanations: "With the pauses() method ... the replication can be suspended"; idle "rejects any operation except" few."""
    bench = every_state()[state]
    bench.take(Idle(1, "paused"))
    assert bench.progress().follows == "idle"
    refused: tuple[Message, ...] = (lines(4, 4), transactions(4, 4))
    for message in refused:
        assert bench.take(message).decisions == ()
    assert not bench.core.may_be_read
    bench.take(Coin(1))
    assert bench.progress().follows == "basic"


def test_a_follower_has_to_be_coined_before_it_is_continued() -> None:
    """Explanations: coin() "has necessarily to be executed, before the slave is continued"."""
    bench = WorkerBench(applied=3, is_coined=False)
    assert bench.take(lines(4, 5)).decisions == ()
    bench.take(Coin(1))
    assert bench.take(lines(4, 5)).decisions == (ApplyBatch(4, lines(4, 5).items),)


# ---- faults of the earlier implementation


def test_an_answer_of_more_than_8_kib_arrives_whole() -> None:
    """Earlier fault: REQUEST answers over 8 KiB were cut. Here they are cut into messages of a MiB, and nothing is lost."""
    table = SiteTable("w1", "w2")
    for number in range(30):
        table.submit(("put", "t", b"k%d" % number, b"x" * 100_000))
    table.settle(20, lambda _sender, out: out.to != "w2")
    assert table.lsns() == {"w1": 30, "w2": 0}
    table.settle(300)
    assert table.lsns() == {"w1": 30, "w2": 30}
    assert table.are_equal()
    big = [m for m in table.sent_to("w2", Apply) if isinstance(m, Apply) and sum(len(row[4]) for row in m.items) > 8192]
    assert big


def test_every_chunk_of_a_load_stays_in_the_file() -> None:
    """Earlier fault: LOAD truncated the file at every chunk. Here a file of many chunks, in any order, is whole."""
    source = SiteTable("w1", "w2")
    source.write(60)
    source.settle(20)
    made = source.copies["w1"].make_snapshot("w2-1")
    target = source.copies["w2"]
    target.begin_load("w2-1", made)
    total = sum(len(digests) // 32 for _, _, digests in made.files)
    assert total > 20
    for number in reversed(range(total)):
        assert target.keep_chunk(number, source.copies["w1"].read_chunk("w2-1", number) or b"")
    target.open_load()
    assert source.are_equal()


def test_what_was_acknowledged_in_common_never_moves_backwards() -> None:
    """Earlier fault: the common acknowledged LSN could move backwards, by a late heartbeat for instance."""
    table = SiteTable("w1", "w2")
    late: list[Progress] = []
    common = 0
    for _ in range(5):
        table.write(5)
        table.settle(5)
        late += [m for m in table.sent_by("w2", Progress) if isinstance(m, Progress)]
        for old in late:
            table.core.feed.on_progress("w2", replace(old, state=states.ON), table.ms)
            assert table.core.feed.applied_by(2) >= common
            common = table.core.feed.applied_by(2)
    assert common == 25


def test_a_busy_follower_is_never_skipped_and_asks_no_storms() -> None:
    """Earlier fault: a busy follower was skipped (gaps, request storms). Here it gets a window, and the rest when it is ready."""
    table = SiteTable("w1", "w2", worker={"backlog": 10}, window=50)
    table.settle(5)
    for _ in range(10):
        table.write(40)
        table.settle(3, lambda _sender, out: out.to != "w2")
    asked = len(table.sent_by("w2", Request))
    table.settle(3000)
    assert table.lsns() == {"w1": 400, "w2": 400}
    assert table.are_equal()
    assert not table.sent_to("w2", LoadFrom)
    # At most one question for each hundred milliseconds that passed.
    assert len(table.sent_by("w2", Request)) - asked <= 300


def test_a_follower_added_to_an_existing_database_loads_once_and_follows() -> None:
    """Earlier fault: adding replicas to an existing database looped between checkpoint and LOAD, as the log was cut meanwhile."""
    table = SiteTable("w1", "w2", min_in_sync=1)
    for number in range(20):
        table.write(10)
        table.settle(3)
        table.journal.trim(10 * number)
    table.wipe("w2")
    table.start("w2")
    for number in range(20, 40):
        table.write(10)
        table.settle(10)
        # The log goes on being cut, but not what the load still needs: its LSN is a pin.
        needed = min(table.feed("w2").applied or 10**9, _snapshot_lsn(table))
        table.journal.trim(min(10 * number - 20, needed))
    table.settle(100)
    assert table.lsns() == {"w1": 400, "w2": 400}
    assert len({m.request for m in table.sent_by("w2", SnapshotWanted) if isinstance(m, SnapshotWanted)}) == 1


def _snapshot_lsn(table: SiteTable) -> int:
    progress = table.feed("w2").progress
    return progress.load_lsn if progress is not None and progress.load_lsn else 10**9


def test_times_are_settings_and_none_is_fixed_in_code() -> None:
    """Earlier fault: a lease of 60 s fixed in code. Here the time after which a follower counts as dead is a setting."""
    for dead_after_ms in (2000, 9000):
        table = SiteTable("w1", "w2", dead_after_ms=dead_after_ms)
        table.settle(10)
        table.crash("w2")
        table.settle(1, step_ms=dead_after_ms - 1000)
        table.turn()
        assert table.feed("w2").is_on
        table.settle(3, step_ms=500)
        assert not table.feed("w2").is_on
    assert WorkerConfig("w1", "m1", heartbeat_ms=123).heartbeat_ms == 123
    assert CopyState("j", 0, "", 0).pending_load == ""
