"""One test for each sentence of the replication paper about the three logics of a follower: basic, request, load.

As in test_follower_paper.py: docstrings quote a few words, and say why where this design does something else on purpose.
"""

from __future__ import annotations

from brokerha.model import states
from brokerha.model.ready import (
    AbandonLoad,
    ApplyBatch,
    BeginLoad,
    ChunkKept,
    KeepChunk,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    OpenLoad,
    StoreFailed,
)
from brokerha.model.wire.messages import Chunk, ChunksWanted, Coin, LoadFrom, Request, SnapshotWanted
from tests.unit.paper.followers import chunks_come, loading, offered, progress_in
from tests.unit.paper.site_table import SiteTable
from tests.unit.replication.benches import WorkerBench, content, line, lines, text, told

# ---- basic logic


def test_basic_is_the_state_of_a_follower_once_it_is_coined() -> None:
    """Basic logic: "BASIC is the initial state for a newly instanciated slave": of one that has a primary, as elsewhere IDLE is."""
    assert WorkerBench(is_coined=False).progress().follows == "idle"
    assert WorkerBench().progress().follows == "basic"


def test_the_logic_waits_takes_the_head_performs_it_and_returns() -> None:
    """Basic logic: waits "for new replicate request", takes "from the head of the queue", updates and "returns"."""
    bench = WorkerBench()
    assert bench.take().decisions == ()
    for lsn in range(1, 4):
        assert bench.take(lines(lsn, lsn)).decisions == (ApplyBatch(lsn, (line(lsn),)),)
        assert bench.done(lsn, lsn).decisions == ()
        assert bench.progress().follows == "basic"


def test_a_request_that_is_not_the_next_one_is_queued_and_what_is_missing_is_remembered() -> None:
    """Basic logic: it "is queued up the requestQueue again", the range is saved, the state "is changed to REQUEST"."""
    bench = WorkerBench(applied=3)
    bench.take(lines(6, 7))
    assert bench.core._line.gap() == (4, 5)
    assert len(bench.core._line) == 2
    assert bench.progress().follows == "request"


def test_an_operation_that_fails_at_the_store_is_tried_again() -> None:
    """Basic logic: "if the request failed" leads to REQUEST there. A full disk is no gap: here it is tried again, and told."""
    bench = WorkerBench(retry_ms=500)
    bench.take(lines(1, 1))
    progress = progress_in(bench.answer(StoreFailed("disk full")))
    assert (progress.state, progress.reason, progress.follows) == (states.HALTED, "disk full", "basic")
    bench.ms += 500
    bench.take()
    assert bench.take(lines(1, 1)).decisions == (ApplyBatch(1, (line(1),)),)


# ---- request logic


def test_after_the_range_is_executed_the_state_is_basic_again() -> None:
    """Request logic: executed and written, heartbeat updated "with the last LSN", state "switched back to BASIC"."""
    bench = WorkerBench(applied=3)
    bench.take(lines(7, 7))
    bench.take(lines(4, 6))
    assert bench.progress().follows == "basic"
    assert progress_in(bench.done(7, 4)).applied_lsn == 7


def test_a_transport_error_in_request_is_tried_again_and_is_no_reason_to_load() -> None:
    """Request logic: "If the requesting ... fails the ... state is immediately changed to LOAD": not here.

    A lost message would cost a copy of the whole database. The same range is asked for with growing patience; only "nobody has
    it" leads to LOAD.
    """
    bench = WorkerBench(applied=3)
    bench.take(lines(7, 7))
    asked = 1
    for _ in range(100):
        bench.ms += 1000
        asked += sum(message == Request(4, 6) for message in told(bench.take()))
    assert 30 <= asked <= 40
    assert bench.progress().follows == "request"
    assert bench.take(lines(4, 6)).decisions == (ApplyBatch(4, lines(4, 7).items),)


def test_a_record_that_cannot_be_executed_rightly_leads_to_load() -> None:
    """Request logic: if "the execution of the replicate request fails" -> LOAD: here when it leads to another content."""
    bench = WorkerBench(applied=3)
    bench.take(lines(4, 4))
    bench.answer(StoreFailed("LSN 4: another content", is_damage=True, lsn=4, fingerprint=content(99)))
    assert bench.progress().follows == "load"


# ---- load logic


def test_the_old_files_are_kept_until_the_new_ones_are_open() -> None:
    """Load logic: old files "are copied into a pre-configured backup directory": here they are not touched before.

    Copying them costs time and space, and is needed only if the load fails; until it is opened, the old copy is where it was.
    """
    table = SiteTable("w1", "w2")
    table.write(30)
    table.settle(20)
    before = table.copies["w2"].recompute()
    table.core.site.workers["w2"].condemned = "told to take a new copy"
    for _ in range(200):
        table.turn()
        if table.copies["w2"].pending_load:
            assert table.copies["w2"].recompute() == before
        if table.sent_to("w1", SnapshotWanted) and not table.copies["w2"].pending_load and table.follows("w2") == "basic":
            break
    table.settle(20)
    assert table.sent_to("w2", Chunk)
    assert table.are_equal()
    assert table.feed("w2").is_on


def test_a_load_request_asks_for_metadata_and_the_limit_of_a_chunk() -> None:
    """Load logic: "asking for a set of database files metadata and a limit for the chunk-size"."""
    bench = WorkerBench(applied=3)
    request = next(m for m in told(bench.take(LoadFrom(1, ("w2",), ""))) if isinstance(m, SnapshotWanted))
    offer = offered(bench)
    assert request.request == offer.request
    assert bench.take(offer, sender="w2").decisions == (BeginLoad(offer),)


def test_a_follower_whose_load_request_fails_gives_up_and_waits() -> None:
    """Load logic: it "has to give up, switch over into the idle-mode and wait": once no source is left; the old copy stays."""
    bench = WorkerBench(applied=3)
    bench.take(LoadFrom(1, ("w2", "w3"), ""))
    bench.ms += 1
    assert bench.progress().follows == "load"
    ready = bench.take(offered(bench, "no space"), sender="w2")
    assert any(out.to == "w3" and isinstance(out.message, SnapshotWanted) for out in ready.messages)
    bench.take(offered(bench, "its own copy is in trouble"), sender="w3")
    progress = bench.progress()
    assert (progress.follows, progress.applied_lsn, progress.journal) == ("idle", 3, "journal")
    assert progress.reason == "no source gave a snapshot (w2: no space; w3: its own copy is in trouble)"
    bench.take(Coin(1))
    assert bench.take(lines(4, 4)).decisions


def test_chunk_requests_are_built_from_the_metadata_until_no_chunks_are_left() -> None:
    """Load logic: "builds a set of chunk-requests", each "written to the local disc until no chunks are left"."""
    bench = WorkerBench()
    name = loading(bench)
    for number in (0, 1, 2):
        kept = bench.take(Chunk(name, number, b"d"), sender="w2").decisions
        assert kept == (KeepChunk(number, b"d"),)
        opened = bench.answer(ChunkKept(number, is_good=True)).decisions
        assert opened == ((OpenLoad(),) if number == 2 else ())


def test_a_chunk_that_fails_is_asked_for_again_and_the_load_goes_on() -> None:
    """Load logic: "If only one chunk-request fails the complete progress ... has to be repeated": not here.

    Over a million chunks one is lost sooner or later; asking for it again costs one chunk.
    """
    bench = WorkerBench()
    name = loading(bench)
    chunks_come(bench, name, 0, 2)
    bench.ms += bench.core.config.load.chunk_wait_ms
    assert ChunksWanted(name, (1,)) in told(bench.take())
    bench.take(Chunk(name, 1, b"flipped"), sender="w2")
    assert ChunksWanted(name, (1,)) in told(bench.answer(ChunkKept(1, is_good=False)))
    assert chunks_come(bench, name, 1).decisions == (OpenLoad(),)


def test_after_all_chunks_the_state_is_basic_and_the_lsn_that_of_the_files() -> None:
    """Load logic: "The LSN of this state is used ... and finally the state ... is also changed back to BASIC"."""
    bench = WorkerBench()
    chunks_come(bench, loading(bench), 0, 1, 2)
    progress = progress_in(bench.answer(LoadOpened("new-copy", 40, text(40), 40)))
    assert (progress.follows, progress.applied_lsn, progress.fingerprint) == ("basic", 40, text(40))
    assert bench.take(lines(41, 41)).decisions == (ApplyBatch(41, (line(41),)),)


def test_a_load_goes_on_after_a_restart_where_it_was() -> None:
    """Load logic, beyond it: a kill in the middle keeps what is on disk; the snapshot is asked for by the same name."""
    bench = WorkerBench(pending_load="w1-77")
    assert SnapshotWanted("w1-77") in told(bench.take(LoadFrom(1, ("w2",), "")))
    bench.take(offered(bench), sender="w2")
    assert ChunksWanted("w1-77", (2,)) in told(bench.answer(LoadBegun("w1-77", (0, 1))))


def test_a_copy_that_cannot_be_opened_leaves_the_old_one_open() -> None:
    """Load logic, beyond it: what was loaded is checked as a whole before it counts."""
    bench = WorkerBench(applied=3)
    bench.take(LoadFrom(1, ("w2",), ""))
    offer = offered(bench)
    bench.take(offer, sender="w2")
    bench.answer(LoadBegun(offer.snapshot, (0, 1, 2)))
    ready = bench.answer(LoadFailed("its fingerprint is another"))
    assert AbandonLoad() in ready.decisions
    assert (bench.progress().follows, bench.progress().applied_lsn) == ("idle", 3)
