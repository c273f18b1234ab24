"""One test for each sentence of the replication paper about its passive side, the follower: here, a worker of a site.

Docstrings name the chapter and quote a few words of the sentence. Where this design does something else on purpose, the test
shows what replaces it, and its docstring says why. Its "slave" is our follower, its "master" our primary, which is the
master of the site; its heartbeat thread is the `Progress` message.
"""

from __future__ import annotations

import pytest

from brokerha.model.ready import ApplyBatch, ChunksRead, Damaged, LoadOpened, OpenLoad, SnapshotMade
from brokerha.model.wire.messages import (
    Apply,
    Chunk,
    ChunksWanted,
    Coin,
    Idle,
    LoadFrom,
    Progress,
    RangeMissing,
    Request,
    SnapshotOffered,
    SnapshotWanted,
)
from tests.unit.paper.followers import FILES, chunks_come, loading, progress_in
from tests.unit.paper.site_table import SiteTable
from tests.unit.replication.benches import SiteBench, WorkerBench, line, lines, text, told, transactions

# ---- behaviour


def test_followers_are_passive_and_have_to_be_triggered() -> None:
    """Behavior: slaves "have to be triggered by a master's request"; alone they send heartbeats and nothing else."""
    bench = WorkerBench(applied=5, is_coined=False)
    for _ in range(10):
        ready = bench.take()
        assert all(isinstance(message, Progress) for message in told(ready))
        assert ready.decisions == ()
        bench.ms += 1000


def test_heartbeats_come_in_periodic_intervals() -> None:
    """Behavior: the heartbeat thread "sends messages in periodic intervals to the master"."""
    bench = WorkerBench(heartbeat_ms=1000)
    began_ms = bench.ms
    beats = []
    for _ in range(50):
        bench.ms += 100
        beats += [bench.ms - began_ms for message in told(bench.take()) if isinstance(message, Progress)]
    assert beats == [1000, 2000, 3000, 4000, 5000]


def test_an_entry_is_executed_and_after_success_the_lsn_is_updated() -> None:
    """Basic replication [4, 5]: "executed as well", and only "after successfully finishing" the LSN moves."""
    bench = WorkerBench()
    assert bench.take(lines(1, 1)).decisions == (ApplyBatch(1, (line(1),)),)
    assert bench.progress().applied_lsn == 0
    bench.done(1, 1)
    assert bench.progress().applied_lsn == 1


def test_progress_causes_an_additional_heartbeat() -> None:
    """Basic replication [6]: "This update causes an additional heartbeat", without waiting for the interval."""
    bench = WorkerBench()
    bench.take(lines(1, 1))
    assert progress_in(bench.done(1, 1)).applied_lsn == 1


def test_the_answer_to_a_client_waits_until_enough_have_confirmed() -> None:
    """Basic replication [7]: "stalls the acknowledgement ... until at least N slaves have confirmed"."""
    table = SiteTable("w1", "w2")
    table.settle(5)
    table.write(ticket=7, copies=2)
    table.settle(20, lambda _sender, out: not (out.to == "w2" and isinstance(out.message, Apply)))
    assert table.lsns() == {"w1": 1, "w2": 0}
    assert table.replies == []
    table.settle(150)
    assert [(reply.ticket, reply.status) for reply in table.replies] == [(7, "applied")]


# ---- request missing log entries


def test_the_range_goes_from_the_last_inserted_operation_to_the_requested_one() -> None:
    """Request [4]: "builds a range from the last inserted operation to the actual requested one"."""
    bench = WorkerBench(applied=3)
    assert Request(4, 8) in told(bench.take(lines(9, 9)))


def test_the_state_changes_to_request_and_the_primary_is_asked() -> None:
    """Request [5]: "inner state of this slave changes to REQUEST and it requests the missing log entries at the master"."""
    bench = WorkerBench(applied=3)
    ready = bench.take(lines(9, 9))
    assert progress_in(ready).follows == "request"
    assert [out.to for out in ready.messages if isinstance(out.message, Request)] == ["m1"]


def test_entries_are_executed_in_their_natural_ordering() -> None:
    """Request [6]: executed "according to their natural ordering given by the LSN", in whatever order they come."""
    bench = WorkerBench()
    bench.take(lines(7, 7))
    bench.take(lines(5, 6))
    bench.take(lines(3, 4))
    assert bench.take(lines(1, 2)).decisions == (ApplyBatch(1, lines(1, 7).items),)


def test_the_entry_that_showed_the_gap_is_executed_last() -> None:
    """Request [7]: "Now the log entry which was triggering this scenario is executed and the LSN ... updated too"."""
    bench = WorkerBench(applied=3)
    bench.take(lines(6, 6))
    assert bench.take(lines(4, 5)).decisions == (ApplyBatch(4, lines(4, 6).items),)
    assert progress_in(bench.done(6, 4)).applied_lsn == 6
    assert bench.progress().follows == "basic"


def test_a_master_finally_hears_of_it_and_acts_as_in_the_first_scenario() -> None:
    """Request [8]: "Finally the master gets the heartbeat message": a lost message costs nobody the answer."""
    table = SiteTable("w1", "w2")
    table.settle(5)
    lost: list[int] = []

    def loses_first(_sender: str, out: object) -> bool:
        message = getattr(out, "message", None)
        is_first = isinstance(message, Apply) and bool(message.items) and not lost
        if is_first:
            lost.append(1)
        return not is_first

    for number in range(3):
        table.write(ticket=number + 1, copies=2)
        table.turn(loses_first)
        table.turn(loses_first)
        table.turn(loses_first)
    table.settle(30)
    assert table.sent_by("w2", Request)
    assert [reply.status for reply in table.replies] == ["applied"] * 3
    assert table.are_equal()


# ---- initial load


def test_whoever_cannot_get_the_range_loads_the_whole_database() -> None:
    """Initial load: "cannot synchronize ... by requesting missing log entries" -> "load the complete database"."""
    bench = WorkerBench(applied=3)
    bench.take(lines(9, 9))
    bench.take(RangeMissing(4, 8, 9))
    assert bench.progress().follows == "load"
    assert bench.progress().trouble == "the log lacks LSN 4 to 8 everywhere"
    # The primary names who has a copy, which need not be itself: it keeps a log and no data.
    assert SnapshotWanted("w1-1000000") in told(bench.take(LoadFrom(1, ("w2",), "")))


def test_other_holders_of_the_log_are_asked_before_anything_is_loaded() -> None:
    """Initial load is "the most infrequently occurring scenario": unlike there, every node that may have the range is asked."""
    bench = WorkerBench(applied=3, is_coined=False)
    bench.take(Coin(1, ("w2",)))
    bench.take(lines(9, 9))
    ready = bench.take(RangeMissing(4, 8, 9))
    assert [(out.to, out.message) for out in ready.messages if isinstance(out.message, Request)] == [("w2", Request(4, 8))]
    assert bench.progress().follows == "request"
    assert bench.take(lines(4, 8), sender="w2").decisions == (ApplyBatch(4, lines(4, 9).items),)


def test_the_answer_to_a_load_request_is_a_set_of_file_metadata() -> None:
    """Initial load [6, 7]: "a set of file metadata", and what a chunk is; the source is a worker in sync, which has the files."""
    bench = WorkerBench(applied=40)
    bench.take(SnapshotWanted("w2-1"), sender="w2")
    ready = bench.answer(SnapshotMade("w2-1", 40, text(40), 40, 10, FILES))
    offer = next(message for message in told(ready) if isinstance(message, SnapshotOffered))
    assert (offer.files, offer.chunk_bytes, offer.lsn) == (FILES, 10, 40)


def test_files_are_fetched_in_chunks_and_then_the_new_copy_is_opened_with_its_lsn() -> None:
    """Initial load [8-10]: chunks saved, data loaded, "heartbeat LSN is updated to the latest LSN retrieved from the files".

    Unlike there nothing is restarted: the copy is exchanged in the running process, and reads of the old one end in peace.
    """
    bench = WorkerBench(applied=3)
    name = loading(bench)
    assert chunks_come(bench, name, 2, 0, 1).decisions == (OpenLoad(),)
    progress = progress_in(bench.answer(LoadOpened("new-copy", 40, text(40), 40)))
    assert (progress.applied_lsn, progress.journal, progress.follows) == (40, "new-copy", "basic")


def test_loading_mostly_happens_when_a_follower_joins_a_group_that_was_in_action_before() -> None:
    """Initial load: "if a slave joins a replication group that was in action before"."""
    table = SiteTable("w1", "w2")
    for _ in range(4):
        table.write(10)
        table.settle(5)
    table.journal.trim(21)
    table.wipe("w2")
    table.start("w2")
    table.settle(200)
    assert table.sent_to("w2", LoadFrom)
    assert table.lsns() == {"w1": 40, "w2": 40}
    assert table.are_equal()
    # The step hereafter is again the same as in basic replication.
    table.write(1)
    table.settle(20)
    assert table.lsns() == {"w1": 41, "w2": 41}


# ---- architecture


def test_there_is_an_operation_to_stop_and_one_to_follow() -> None:
    """Architecture: "an operation to stop ... (idle-mode) and put it into slave ... mode"."""
    bench = WorkerBench()
    bench.take(Idle(1, "stop"))
    assert bench.progress().follows == "idle"
    bench.take(Coin(1))
    assert bench.progress().follows == "basic"


def test_the_latest_lsn_is_that_of_the_latest_entry_on_disk() -> None:
    """Architecture: the LSN "identifies the latest log entry that is written to the disc log"; what waits does not count."""
    bench = WorkerBench(applied=3)
    bench.take(lines(4, 4))
    bench.take(lines(5, 9))
    assert (bench.progress().applied_lsn, bench.progress().wanted_lsn) == (3, 9)


def test_on_startup_a_participant_remains_idle_and_is_coined() -> None:
    """Architecture: "On startup ... remains in an idle-mode and is coined on the declaration of a master"."""
    bench = WorkerBench(applied=3, is_coined=False)
    assert bench.progress().follows == "idle"
    assert bench.take(lines(4, 4)).decisions == ()
    table = SiteTable("w1")
    table.settle(5)
    assert table.sent_to("w1", Coin)
    assert table.follows("w1") == "basic"


def test_whoever_cannot_answer_a_request_says_so() -> None:
    """Master, request: entries are "send back", "otherwise it will be informed about the failure"."""
    bench = SiteBench(lsn=9, executed=4)
    bench.begin_anew(4)
    bench.log(9)
    bench.heard("w1", 5)
    bench.sent()
    bench.feed.on_request("w1", Request(6, 7))
    bench.feed.on_request("w1", Request(2, 3))
    assert bench.sent()["w1"] == [lines(6, 7), RangeMissing(2, 3, 5)]


def test_a_chunk_request_is_answered_with_a_byte_range() -> None:
    """Master, chunk: "answered with a serialized byte-range according to the request's details"."""
    table = SiteTable("w1", "w2")
    table.write(20)
    table.settle(20)
    snapshot = table.copies["w1"].make_snapshot("w2-1")
    path, size, _ = snapshot.files[0]
    assert path
    chunks = [table.copies["w1"].read_chunk("w2-1", number) for number in range(-(-size // snapshot.chunk_bytes))]
    assert sum(len(chunk or b"") for chunk in chunks) == size
    assert all(len(chunk or b"") == snapshot.chunk_bytes for chunk in chunks[:-1])


def test_files_that_changed_meanwhile_are_no_failure() -> None:
    """Master, chunk: "If the files on disk has been changed meanwhile, a failure-message": here a snapshot does not change.

    A database under load would never be loaded else. Only a snapshot that is gone is a failure, and says so.
    """
    bench = WorkerBench(applied=40)
    bench.take(SnapshotWanted("w2-1"), sender="w2")
    bench.answer(SnapshotMade("w2-1", 40, text(40), 40, 10, FILES))
    bench.take(lines(41, 45))
    bench.done(45, 41)
    bench.take(ChunksWanted("w2-1", (1,)), sender="w2")
    ready = bench.answer(ChunksRead("w2", "w2-1", ((1, b"data"),)))
    assert Chunk("w2-1", 1, b"data") in told(ready)
    assert Chunk("w9-9", 1, b"", is_gone=True) in told(bench.take(ChunksWanted("w9-9", (1,)), sender="w9"))


# ---- slave


def test_only_what_belongs_to_a_follower_is_accepted() -> None:
    """Slave: a dispatcher "which only accepts state and replicate requests": everything else is dropped."""
    bench = WorkerBench()
    assert bench.take(Progress("j", 1, "f", 1, "on")).decisions == ()


def test_requests_are_buffered_in_ascending_order() -> None:
    """Slave: requests are "previously buffered in a requestQueue ascending ordered by their LSNs"."""
    bench = WorkerBench()
    bench.take(lines(1, 1))
    for first in (4, 2, 6, 3, 5):
        bench.take(lines(first, first))
    assert bench.done(1, 1).decisions == (ApplyBatch(2, lines(2, 6).items),)


@pytest.mark.parametrize("sender", ["m2", "w2", "stranger"])
def test_only_configured_participants_are_obeyed(sender: str) -> None:
    """Slave: "only allow requests from pre-configured participants": orders and records of the own primary only."""
    bench = WorkerBench(applied=3)
    for message in (Coin(9), Idle(9, ""), LoadFrom(9, (sender,), ""), lines(4, 4), transactions(4, 4)):
        assert bench.take(message, sender=sender).decisions == ()
    assert bench.progress().follows == "basic"
    # Lines from somebody else count only when they were asked for there.
    bench.take(lines(9, 9))
    assert bench.take(lines(4, 8), sender=sender).decisions == ()


def test_lookups_are_served_meanwhile() -> None:
    """Slave: "or lookup operations by the local user application": reads, as long as the copy may be trusted."""
    bench = WorkerBench(applied=3)
    assert bench.core.may_be_read
    bench.take(lines(9, 9))
    assert bench.core.may_be_read
    bench.answer(Damaged("damaged"))
    assert not bench.core.may_be_read
