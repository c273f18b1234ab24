"""WorkerCore: LSNs go to the store in order, once, one decision at a time; gaps, repetitions and failures are survived."""

from __future__ import annotations

from brokerha.following.offering import OfferConfig
from brokerha.model import states
from brokerha.model.ready import (
    ApplyBatch,
    ChunkKept,
    Condemn,
    Damaged,
    DropSnapshot,
    ExecuteBatch,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    MakeSnapshot,
    RangeRead,
    ReadRange,
    ResendResults,
    StoreFailed,
)
from brokerha.model.wire.messages import (
    Apply,
    Chunk,
    Coin,
    Executed,
    Fetch,
    Idle,
    LoadFrom,
    Progress,
    RangeMissing,
    Request,
    SnapshotDone,
    SnapshotOffered,
    SnapshotWanted,
)
from tests.unit.replication.benches import WorkerBench, content, line, lines, results, text, told, transactions


def heartbeat(bench: WorkerBench) -> Progress:
    """The next heartbeat, whenever it comes."""
    bench.ms += bench.core.config.heartbeat_ms
    return next(message for message in told(bench.take()) if isinstance(message, Progress))


def test_it_tells_where_it_stands_when_it_starts() -> None:
    ready = WorkerBench(applied=7, is_coined=False).take()
    reason = "waits for its master"
    assert told(ready) == [Progress("journal", 7, text(7), 7, states.UNINITIALISED, reason, wanted_lsn=7)]
    assert ready.messages[0].to == "m1"


def test_a_worker_that_is_coined_says_whom_it_obeys() -> None:
    bench = WorkerBench(applied=7, is_coined=False)
    ready = bench.take(Coin(3))
    progress = told(ready)[0]
    assert isinstance(progress, Progress)
    assert (progress.follows, progress.view, progress.state) == ("basic", 3, states.ON)


def test_transactions_become_one_decision_and_what_comes_meanwhile_the_next() -> None:
    bench = WorkerBench()
    assert bench.take(transactions(1, 2)).decisions == (ExecuteBatch(1, transactions(1, 2).items),)
    assert bench.take(transactions(3, 3), transactions(4, 5)).decisions == ()
    ready = bench.done(2, 1, results(1, 2))
    assert ready.decisions == (ExecuteBatch(3, (*transactions(3, 3).items, *transactions(4, 5).items)),)
    assert told(ready)[0] == Executed(1, results(1, 2), 2, text(2), 2, "journal")


def test_lines_are_applied_and_confirmed() -> None:
    bench = WorkerBench()
    assert bench.take(lines(1, 3)).decisions == (ApplyBatch(1, lines(1, 3).items),)
    progress = told(bench.done(3, 1))[-1]
    assert isinstance(progress, Progress)
    assert progress.applied_lsn == 3
    assert progress.fingerprint == text(3)


def test_transactions_and_lines_are_never_mixed_in_one_decision() -> None:
    bench = WorkerBench()
    bench.take(lines(1, 1))
    bench.take(lines(2, 2), transactions(3, 3))
    assert bench.done(1, 1).decisions == (ApplyBatch(2, (line(2),)),)
    assert bench.done(2, 2).decisions == (ExecuteBatch(3, transactions(3, 3).items),)


def test_a_gap_is_asked_for_at_once_and_nothing_behind_it_is_taken() -> None:
    bench = WorkerBench()
    ready = bench.take(transactions(3, 4))
    assert ready.decisions == ()
    assert Request(1, 2) in told(ready)
    assert bench.progress().follows == "request"
    # The gap is asked for once, however many records show it.
    assert Request(1, 2) not in told(bench.take(transactions(5, 5)))
    ready = bench.take(transactions(1, 2))
    assert ready.decisions == (ExecuteBatch(1, transactions(1, 5).items),)
    assert bench.progress().follows == "basic"
    bench.ms += 10_000
    assert Request(1, 2) not in told(bench.take())


def test_what_is_known_already_is_skipped() -> None:
    bench = WorkerBench(applied=4)
    assert bench.take(lines(3, 6)).decisions == (ApplyBatch(5, lines(5, 6).items),)
    assert bench.take(lines(1, 2)).decisions == ()


def test_what_was_executed_before_is_answered_from_the_effects_log() -> None:
    bench = WorkerBench(applied=4)
    ready = bench.take(transactions(3, 4))
    assert ready.decisions == (ResendResults(3, 4),)
    ready = bench.done(4, 3, results(3, 4))
    assert told(ready)[0] == Executed(3, results(3, 4), 4, text(4), 4, "journal")


def test_results_that_are_asked_for_in_pieces_are_sent_again_from_the_lowest_on() -> None:
    bench = WorkerBench(applied=6, decision_items=2)
    bench.take(transactions(3, 3))
    # While the store is busy with the first, more is asked for again.
    bench.take(transactions(5, 6))
    bench.take(transactions(4, 4))
    assert bench.done(6, 3, results(3, 3)).decisions == (ResendResults(4, 5),)
    assert bench.done(6, 4, results(4, 5)).decisions == (ResendResults(6, 6),)


def test_a_failure_of_the_store_is_told_and_tried_again_after_a_pause() -> None:
    bench = WorkerBench(retry_ms=500)
    bench.take(transactions(1, 2))
    ready = bench.answer(StoreFailed("disk full"))
    progress = told(ready)[0]
    assert isinstance(progress, Progress)
    assert (progress.state, progress.reason) == (states.HALTED, "disk full")
    # Whatever comes during the pause is not lost: it waits.
    assert bench.take(transactions(1, 2)).decisions == ()
    bench.ms += 500
    deadline = bench.core.deadline_ms()
    assert deadline is not None
    assert deadline <= bench.ms
    ready = bench.take()
    assert isinstance(told(ready)[0], Progress)
    assert ready.decisions == (ExecuteBatch(1, transactions(1, 2).items),)
    assert bench.done(2, 1, results(1, 2)).messages
    assert bench.core.word() == (states.ON, "")


def test_the_backlog_is_bounded() -> None:
    bench = WorkerBench(backlog=3)
    bench.take(transactions(1, 1))
    bench.take(transactions(2, 9))
    ready = bench.done(1, 1, results(1, 1))
    assert ready.decisions == (ExecuteBatch(2, transactions(2, 4).items),)
    # What found no room is asked for as soon as there is some.
    assert Request(5, 9) in told(ready)


def test_it_tells_where_it_stands_when_its_master_asks_whatever_it_is_doing() -> None:
    for is_coined in (True, False):
        bench = WorkerBench(applied=4, is_coined=is_coined)
        bench.take()
        for first in (1, 5, 9):
            ready = bench.take(Apply(first, ()))
            assert [type(message) for message in told(ready)] == [Progress]
            assert ready.decisions == ()


def test_only_the_own_master_is_obeyed() -> None:
    bench = WorkerBench()
    for message in (transactions(1, 1), lines(1, 1), Coin(9), Idle(9, "no"), LoadFrom(9, ("w2",), "no")):
        assert bench.take(message, sender="m2").decisions == ()
    assert bench.take(Fetch(())).decisions == ()
    assert (bench.progress().follows, bench.progress().view) == ("basic", 1)


def test_heartbeats_come_by_themselves() -> None:
    bench = WorkerBench(heartbeat_ms=100)
    assert told(bench.take()) == []
    assert bench.core.deadline_ms() == bench.ms + 100
    bench.ms += 100
    assert isinstance(told(bench.take())[0], Progress)


def test_it_says_how_much_it_has_to_apply() -> None:
    bench = WorkerBench()
    bench.take(transactions(1, 5))
    assert bench.core.word() == (states.WRITING, "5 to apply")
    bench = WorkerBench()
    bench.take(transactions(3, 5))
    assert bench.core.word() == (states.WAITING_WRITE, "5 to apply")


def test_large_results_are_cut_into_messages() -> None:
    bench = WorkerBench()
    bench.take(transactions(1, 3))
    big = ("applied", "", b"x" * 700_000, content(1))
    parts = [m for m in told(bench.done(3, 1, (big, big, big))) if isinstance(m, Executed)]
    assert [(part.first_lsn, len(part.results)) for part in parts] == [(1, 2), (3, 1)]


def test_records_of_an_older_view_are_refused_and_so_are_orders() -> None:
    bench = WorkerBench(is_coined=False)
    bench.take(Coin(5))
    assert bench.take(lines(1, 1, view=4)).decisions == ()
    bench.take(Idle(4, "late"))
    assert bench.progress().follows == "basic"
    assert bench.take(lines(1, 1, view=5)).decisions


def test_a_new_primary_begins_anew_with_a_follower_that_asks() -> None:
    bench = WorkerBench(applied=2)
    bench.take(lines(5, 6))
    assert bench.progress().follows == "request"
    bench.take(Coin(2))
    assert bench.progress().follows == "basic"
    # What the old primary sent is forgotten: the new one's record shows the gap again.
    bench.ms += 1000
    assert Request(3, 5) in told(bench.take(lines(6, 6, view=2)))


def test_another_follower_gets_the_part_of_the_log_that_is_kept_here() -> None:
    bench = WorkerBench(applied=9, offer=OfferConfig(lines=3))
    assert bench.take(Request(2, 9), sender="w2").decisions == (ReadRange("w2", 2, 4),)
    ready = bench.answer(RangeRead("w2", 2, 4, lines(2, 4).items, 1))
    assert [(out.to, out.message) for out in ready.messages] == [("w2", lines(2, 4))]
    ready = bench.answer(RangeRead("w2", 2, 4, (), 7))
    assert told(ready) == [RangeMissing(2, 4, 7)]


def test_a_copy_in_trouble_has_no_lines_to_give_and_nobody_has_a_range_that_ends_before_it_begins() -> None:
    bench = WorkerBench(applied=9)
    bench.answer(Damaged("damaged"))
    assert told(bench.take(Request(2, 3), sender="w2")) == [RangeMissing(2, 3, 0)]
    assert told(WorkerBench(applied=9).take(Request(3, 2), sender="w2")) == [RangeMissing(3, 2, 0)]


def test_a_copy_that_nobody_coined_yet_can_say_what_happened_up_to_it() -> None:
    bench = WorkerBench(applied=9, is_coined=False)
    assert bench.take(Request(2, 3)).decisions == (ReadRange("m1", 2, 3),)


def test_a_copy_that_does_not_know_its_own_results_says_that_they_are_missing() -> None:
    bench = WorkerBench(applied=9)
    assert bench.take(transactions(3, 4)).decisions == (ResendResults(3, 4),)
    assert RangeMissing(3, 4, 0) in told(bench.done(9, 3))


def test_a_line_that_leads_elsewhere_is_told_with_what_this_copy_came_to() -> None:
    bench = WorkerBench(applied=4)
    bench.take(lines(5, 6))
    failed = StoreFailed("LSN 5: another content", is_damage=True, lsn=5, fingerprint=content(99))
    progress = told(bench.answer(failed))[-1]
    assert isinstance(progress, Progress)
    assert (progress.follows, progress.trouble, progress.applied_lsn) == ("load", "LSN 5: another content", 4)
    assert (progress.differs_lsn, progress.differs_fingerprint) == (5, content(99))
    assert not bench.core.may_be_read


def test_a_copy_that_is_forgiven_follows_again() -> None:
    bench = WorkerBench(applied=4)
    bench.take(lines(5, 6))
    bench.answer(StoreFailed("another content", is_damage=True, lsn=5, fingerprint=content(99)))
    bench.take(Coin(1, (), 4))
    assert bench.progress().follows == "load"
    bench.take(Coin(1, (), 5))
    assert (bench.progress().follows, bench.progress().trouble, bench.progress().differs_lsn) == ("basic", "", 0)
    assert bench.take(transactions(5, 5)).decisions == (ExecuteBatch(5, transactions(5, 5).items),)


def test_damage_is_told_once_and_ends_following_and_giving() -> None:
    bench = WorkerBench(applied=4)
    bench.take(SnapshotWanted("w2-7"), sender="w2")
    ready = bench.answer(Damaged("the data is not what its fingerprint says"))
    assert DropSnapshot("w2-7") in ready.decisions
    progress = told(ready)[-1]
    assert isinstance(progress, Progress)
    assert (progress.follows, progress.trouble) == ("load", "the data is not what its fingerprint says")
    bench.answer(Damaged("something else"))
    assert bench.progress().trouble == "the data is not what its fingerprint says"
    assert bench.take(lines(5, 5)).decisions == ()


def test_a_worker_that_is_switched_off_says_why_and_comes_back() -> None:
    bench = WorkerBench(applied=4)
    bench.take(Idle(1, "switched off"))
    assert bench.core.word() == (states.OFF, "switched off")
    assert bench.take(lines(5, 5)).decisions == ()
    bench.take(Coin(1))
    assert bench.core.word()[0] == states.ON
    assert bench.take(lines(5, 5)).decisions


def test_what_the_store_is_doing_when_it_is_switched_off_is_still_confirmed() -> None:
    bench = WorkerBench(applied=4)
    bench.take(lines(5, 6))
    bench.take(lines(7, 7))
    bench.take(Idle(1, "switched off"), Coin(1))
    assert bench.done(6, 5).decisions == ()
    assert heartbeat(bench).applied_lsn == 6
    assert bench.take(lines(7, 7)).decisions == (ApplyBatch(7, (line(7),)),)


def test_damage_is_made_durable_beside_the_copy_and_found_there_after_a_restart() -> None:
    bench = WorkerBench(applied=4)
    assert Condemn("journal", "a page cannot be read") in bench.answer(Damaged("a page cannot be read")).decisions
    bench = WorkerBench(applied=4, is_coined=False, condemned="a page cannot be read")
    bench.take(Coin(1))
    assert (bench.progress().follows, bench.progress().trouble) == ("idle", "a page cannot be read")
    assert bench.core.word() == (states.OUT_OF_SYNC, "a page cannot be read")
    assert not bench.core.may_be_read


def test_a_difference_is_not_made_durable_because_the_log_may_be_what_is_wrong() -> None:
    bench = WorkerBench(applied=4)
    bench.take(lines(5, 6))
    ready = bench.answer(StoreFailed("another content", is_damage=True, lsn=5, fingerprint=content(99)))
    assert not any(isinstance(decision, Condemn) for decision in ready.decisions)


def test_answers_about_a_load_that_nobody_wants_any_more_change_nothing() -> None:
    bench = WorkerBench(applied=4)
    for answer in (LoadBegun("w1-7", ()), ChunkKept(0, is_good=True), LoadFailed("no space")):
        assert bench.answer(answer).decisions == ()
    assert bench.take(Chunk("w1-7", 0, b"d"), SnapshotDone("w1-7"), sender="w2").decisions == ()
    assert bench.progress().follows == "basic"


def test_a_full_disk_is_told_until_a_write_succeeds_or_none_is_wanted() -> None:
    bench = WorkerBench(applied=4, retry_ms=500)
    bench.take(lines(5, 6))
    bench.answer(StoreFailed("no room", is_disk_full=True))
    assert bench.progress().is_disk_full
    bench.ms += 500
    bench.take(lines(5, 6))
    bench.done(6, 5)
    assert not bench.progress().is_disk_full
    # Nor can it take another copy
    bench.take(LoadFrom(1, ("w2",), "because"))
    bench.answer(LoadFailed("no room", is_disk_full=True))
    assert bench.progress().is_disk_full
    bench.take(Idle(1, "its source is away"))
    assert bench.progress().is_disk_full
    bench.take(Coin(1))
    assert not bench.progress().is_disk_full


def test_a_snapshot_that_was_opened_counts_although_the_load_was_given_up_meanwhile() -> None:
    bench = WorkerBench(applied=4)
    bench.take(LoadFrom(1, ("w2",), "because"))
    bench.take(Idle(1, "switched off"))
    bench.answer(LoadOpened("new-copy", 40, text(40), 40))
    progress = bench.progress()
    assert (progress.journal, progress.applied_lsn, progress.follows) == ("new-copy", 40, "idle")


def test_a_second_order_to_load_does_not_begin_the_load_anew() -> None:
    bench = WorkerBench(applied=4)
    bench.take(LoadFrom(1, ("w2",), "because"))
    load = bench.core.replacing.loading
    bench.ms += 100
    bench.take(LoadFrom(1, ("w3",), "because"))
    assert bench.core.replacing.loading is load


def test_a_load_waits_until_the_store_has_finished_what_it_is_doing() -> None:
    bench = WorkerBench(applied=4)
    bench.take(lines(5, 5))
    assert not any(isinstance(message, SnapshotWanted) for message in told(bench.take(LoadFrom(1, ("w2",), "because"))))
    assert any(isinstance(message, SnapshotWanted) for message in told(bench.done(5, 5)))
    assert bench.progress().applied_lsn == 5


def test_what_nobody_has_is_missing_only_for_one_that_asked() -> None:
    bench = WorkerBench(applied=4)
    bench.take(RangeMissing(5, 6, 9))
    assert bench.progress().follows == "basic"
    assert bench.progress().trouble == ""


def test_a_copy_that_is_given_away_says_to_whom() -> None:
    bench = WorkerBench(applied=4)
    bench.take(SnapshotWanted("w2-7"), sender="w2")
    assert bench.core.word() == (states.REPLICATION_SERVER, "gives its copy to w2")
    bench.take(lines(5, 5))
    assert bench.core.word() == (states.WRITING_COPY, "gives its copy to w2")
    bench.done(5, 5)
    bench.take(SnapshotDone("w2-7"), sender="w2")
    assert bench.core.word() == (states.ON, "")


def test_a_copy_that_is_not_so_far_as_is_wanted_is_not_given_away() -> None:
    bench = WorkerBench(applied=4)
    assert told(bench.take(SnapshotWanted("w2-7", 5), sender="w2")) == [
        SnapshotOffered("w2-7", "", 0, "", 0, 0, (), "it is at LSN 4, the log goes on after 5")
    ]
    assert MakeSnapshot("w2-8") in bench.take(SnapshotWanted("w2-8", 4), sender="w2").decisions


def test_words_of_a_load_say_from_whom_and_how_far() -> None:
    bench = WorkerBench(applied=4)
    bench.answer(Damaged("damaged"))
    assert bench.core.word() == (states.REPLICATION_CLIENT, "damaged; waits for a source")
    bench.take(LoadFrom(1, ("w2",), "damaged"))
    assert bench.core.word() == (states.REPLICATION_CLIENT, "damaged; waits for a snapshot of w2")
    offer = SnapshotOffered("w1-1000000", "w1-1000000", 40, text(40), 40, 10, (("data", 20, b"s" * 64),))
    bench.take(offer, sender="w2")
    bench.answer(LoadBegun("w1-1000000", (0,)))
    assert bench.core.word() == (states.REPLICATION_CLIENT, "damaged; loading from w2: 50 %")
    progress = bench.progress()
    assert (progress.load_lsn, progress.done_bytes, progress.total_bytes) == (40, 10, 20)
