"""A worker keeps a copy by order of its master, restores it, and goes over from one lineage of the log to another."""

from __future__ import annotations

from dataclasses import replace

from brokerha.model.ready import (
    AbandonLoad,
    ApplyBatch,
    BeginLineage,
    BeginLoad,
    CopyFrozen,
    CopyKept,
    Damaged,
    DropKept,
    ExecuteBatch,
    KeepCopy,
    LoadBegun,
    LoadFailed,
    LoadOpened,
    RangeRead,
    RestoreKept,
    StoreDone,
    StoreFailed,
)
from brokerha.model.wire.messages import (
    Apply,
    Coin,
    Execute,
    Executed,
    Idle,
    Keep,
    LoadFrom,
    Progress,
    Request,
    Restore,
    SnapshotOffered,
)
from brokerha.replication.worker.kept_here import FREEZE_MS, KeptState
from tests.unit.replication.benches import WorkerBench, lines, results, text, told, transactions

WANTED = Keep(1, 7, is_wanted=True)


def of(lineage: int, message: Apply | Execute) -> Apply | Execute:
    return replace(message, lineage=lineage)


def kept(bench: WorkerBench) -> tuple[int, int, int, str]:
    """LSN, lineage and number of what is kept, and why nothing is, by its own words."""
    said = bench.progress()
    return said.kept_lsn, said.kept_lineage, said.kept_number, said.kept_reason


def keeping(applied: int) -> WorkerBench:
    """A worker that keeps a copy at LSN 4 under number 7, and went on."""
    return WorkerBench(applied, kept=KeptState(7, 4, 0))


# ---- keeping


def test_an_order_to_keep_is_followed_once_and_told_when_it_is_durable() -> None:
    bench = WorkerBench(applied=4)
    assert kept(bench) == (-1, 0, 0, "")
    assert bench.take(WANTED).decisions == (KeepCopy(7),)
    # The same again, while it is with the disk and after that
    assert bench.take(WANTED).decisions == ()
    assert kept(bench) == (-1, 0, 0, "")
    ready = bench.answer(CopyKept(7, 4, 0))
    assert kept(bench) == (4, 0, 7, "")
    assert any(isinstance(message, Progress) and message.kept_lsn == 4 for message in told(ready))
    assert bench.take(WANTED).decisions == ()


def test_what_comes_after_the_order_is_written_when_the_copy_is_frozen() -> None:
    """What is kept is the content at the moment of the order, and a split may have begun right after it (R14)."""
    bench = WorkerBench(applied=4)
    # Lines that come together with the order, and later
    assert bench.take(WANTED, lines(5, 6)).decisions == (KeepCopy(7),)
    assert bench.take(lines(7, 8)).decisions == ()
    assert bench.answer(CopyFrozen(7)).decisions == (ApplyBatch(5, (*lines(5, 6).items, *lines(7, 8).items)),)
    # What is told of another one changes nothing
    bench = WorkerBench(applied=4)
    bench.take(WANTED, lines(5, 6))
    assert bench.answer(CopyFrozen(6)).decisions == ()


def test_writing_does_not_wait_for_a_busy_disk_for_ever() -> None:
    bench = WorkerBench(applied=4)
    bench.take(WANTED, lines(5, 6))
    bench.ms += FREEZE_MS - 1
    assert bench.take().decisions == ()
    bench.ms += 1
    assert bench.take().decisions == (ApplyBatch(5, lines(5, 6).items),)


def test_writing_goes_on_when_no_copy_could_be_kept() -> None:
    bench = WorkerBench(applied=4)
    bench.take(WANTED, lines(5, 6))
    assert bench.answer(CopyKept(7, -1, 0, "no space")).decisions == (ApplyBatch(5, lines(5, 6).items),)
    # Or it is not wanted any more
    bench = WorkerBench(applied=4)
    bench.take(WANTED, lines(5, 6))
    assert set(bench.take(Keep(1, 9, is_wanted=False)).decisions) == {DropKept(), ApplyBatch(5, lines(5, 6).items)}


def test_an_order_with_a_higher_number_has_another_copy_kept() -> None:
    bench = keeping(6)
    assert bench.take(Keep(1, 8, is_wanted=True)).decisions == (KeepCopy(8),)
    assert kept(bench)[:3] == (4, 0, 7)
    bench.answer(CopyKept(8, 6, 0))
    assert kept(bench)[:3] == (6, 0, 8)
    # And the old order, when it comes late, changes nothing
    assert bench.take(WANTED, Keep(1, 7, is_wanted=False)).decisions == ()
    assert kept(bench)[:3] == (6, 0, 8)


def test_what_is_kept_is_dropped_and_a_late_order_to_keep_it_means_nothing() -> None:
    bench = keeping(6)
    assert bench.take(Keep(1, 9, is_wanted=False)).decisions == (DropKept(),)
    assert kept(bench) == (-1, 0, 0, "")
    assert bench.take(Keep(1, 9, is_wanted=False), WANTED, Keep(1, 8, is_wanted=True)).decisions == ()


def test_what_is_dropped_while_it_is_made_is_not_told() -> None:
    bench = WorkerBench(applied=4)
    bench.take(WANTED)
    assert bench.take(Keep(1, 9, is_wanted=False)).decisions == (DropKept(),)
    bench.answer(CopyKept(7, 4, 0))
    assert kept(bench)[0] == -1


def test_why_a_copy_could_not_be_kept_is_told_and_the_one_before_stays() -> None:
    bench = keeping(6)
    bench.take(Keep(1, 8, is_wanted=True))
    bench.answer(CopyKept(8, -1, 0, "no space"))
    assert kept(bench) == (4, 0, 7, "no space")
    # When it is ordered again it is tried again
    assert bench.take(Keep(1, 8, is_wanted=True)).decisions == (KeepCopy(8),)
    assert kept(bench)[3] == ""


def test_a_copy_that_is_idle_or_in_trouble_is_not_kept() -> None:
    bench = WorkerBench(applied=4, is_coined=False)
    assert bench.take(WANTED).decisions == ()
    assert "idle" in kept(bench)[3]
    bench = WorkerBench(applied=4)
    bench.answer(Damaged("a bit flipped"))
    assert KeepCopy(7) not in bench.take(WANTED).decisions
    assert "a bit flipped" in kept(bench)[3]


def test_damage_that_is_found_while_a_copy_is_kept_ends_that() -> None:
    bench = WorkerBench(applied=4)
    bench.take(WANTED)
    bench.answer(Damaged("a bit flipped"))
    assert kept(bench) == (-1, 0, 0, "a bit flipped")


def test_an_order_of_an_older_view_is_not_followed() -> None:
    bench = WorkerBench(applied=4)
    bench.take(Coin(3))
    assert bench.take(WANTED).decisions == ()
    assert bench.take(Keep(3, 7, is_wanted=True)).decisions == (KeepCopy(7),)


# ---- another lineage


def test_a_copy_that_is_not_beyond_goes_over_and_writes_that_down_first() -> None:
    bench = WorkerBench(applied=4)
    ready = bench.take(Coin(1, lineage=5, agreed_lsn=4), of(5, lines(5, 6)))
    assert ready.decisions == (BeginLineage(5),)
    assert bench.progress().lineage == 5
    assert bench.answer(StoreDone(5, 4, (), text(4), 4)).decisions == (ApplyBatch(5, lines(5, 6).items),)


def test_places_of_another_lineage_are_not_taken() -> None:
    bench = WorkerBench(applied=4)
    bench.take(Coin(1, lineage=5, agreed_lsn=4))
    bench.answer(StoreDone(5, 4, (), text(4), 4))
    # Late ones, of before it went over, and those of a lineage that it was not told of yet
    assert bench.take(lines(5, 6), transactions(5, 5), of(7, lines(5, 6))).decisions == ()
    assert bench.progress().wanted_lsn == 4
    assert bench.take(of(5, transactions(5, 5))).decisions == (ExecuteBatch(5, transactions(5, 5).items),)
    report = next(message for message in told(bench.done(5, 5, results(5, 5))) if isinstance(message, Executed))
    assert report.lineage == 5


def test_what_waited_for_the_store_is_dropped_when_it_goes_over() -> None:
    bench = WorkerBench(applied=4)
    bench.take(lines(5, 5))
    # Given lines that follow, and some behind a gap, and the store at work
    bench.take(lines(6, 7), lines(9, 9))
    assert bench.progress().follows == "request"
    ready = bench.take(Coin(1, lineage=5, agreed_lsn=5))
    assert ready.decisions == ()
    assert bench.progress().follows == "basic"
    assert bench.done(5, 5).decisions == (BeginLineage(5),)
    ready = bench.answer(StoreDone(6, 5, (), text(5), 5))
    assert ready.decisions == ()
    assert not [message for message in told(ready) if isinstance(message, Request)]


def test_a_copy_that_is_beyond_stays_in_its_lineage() -> None:
    bench = WorkerBench(applied=4)
    assert bench.take(Coin(1, lineage=5, agreed_lsn=3)).decisions == ()
    assert bench.progress().lineage == 0
    # Also one that will be when the store is done
    bench = WorkerBench(applied=3)
    bench.take(transactions(4, 5))
    bench.take(Coin(1, lineage=5, agreed_lsn=4))
    ready = bench.done(5, 4, results(4, 5))
    assert ready.decisions == ()
    assert bench.progress().lineage == 0
    assert all(message.lineage == 0 for message in told(ready) if isinstance(message, Executed))


def test_a_late_order_does_not_lead_back_to_an_older_lineage() -> None:
    bench = WorkerBench(applied=4)
    bench.take(Coin(1, lineage=5, agreed_lsn=4))
    bench.answer(StoreDone(5, 4, (), text(4), 4))
    bench.take(Coin(1), Coin(1, lineage=3, agreed_lsn=100))
    assert bench.progress().lineage == 5
    assert bench.take(lines(5, 5)).decisions == ()


def test_a_lineage_that_cannot_be_written_down_is_tried_again_before_anything_is_applied() -> None:
    bench = WorkerBench(applied=4, retry_ms=500)
    bench.take(Coin(1, lineage=5, agreed_lsn=4), of(5, lines(5, 5)))
    bench.answer(StoreFailed("disk full"))
    bench.ms += 500
    assert bench.take(of(5, lines(5, 5))).decisions == (BeginLineage(5),)


def test_lines_for_another_follower_say_their_lineage() -> None:
    bench = WorkerBench(applied=4)
    bench.take(Coin(1, lineage=5, agreed_lsn=4))
    bench.take(Request(3, 4), sender="w2")
    ready = bench.answer(RangeRead("w2", 3, 4, lines(3, 4).items, 1))
    assert of(5, lines(3, 4)) in told(ready)


# ---- restoring

RESTORE = Restore(1, 7, 5, 5, "it holds what is void")


def test_what_is_kept_takes_the_place_of_a_copy_that_is_beyond() -> None:
    bench = keeping(applied=8)
    ready = bench.take(RESTORE)
    assert ready.decisions == (RestoreKept(),)
    assert bench.progress().follows == "load"
    assert not bench.core.may_be_read
    # Nothing is applied meanwhile, and the order is followed once
    assert bench.take(RESTORE, lines(9, 9)).decisions == ()
    bench.answer(LoadOpened("restored", 4, text(4), 4, 0))
    said = bench.progress()
    assert (said.follows, said.journal, said.applied_lsn, said.lineage) == ("basic", "restored", 4, 0)
    assert said.kept_lsn == 4
    # Then it goes over, and on from there
    ready = bench.take(Coin(1, lineage=5, agreed_lsn=5), of(5, lines(5, 9)))
    assert ready.decisions == (BeginLineage(5),)
    assert bench.answer(StoreDone(5, 4, (), text(4), 4)).decisions == (ApplyBatch(5, lines(5, 9).items),)


def test_lines_of_before_that_come_after_the_restore_are_not_applied() -> None:
    bench = keeping(applied=8)
    bench.take(RESTORE)
    bench.answer(LoadOpened("restored", 4, text(4), 4, 0))
    bench.take(Coin(1, lineage=5, agreed_lsn=5))
    bench.answer(StoreDone(5, 4, (), text(4), 4))
    assert bench.take(lines(5, 12)).decisions == ()
    assert bench.progress().follows == "basic"


def test_restoring_waits_until_the_store_is_done() -> None:
    bench = keeping(applied=8)
    bench.take(lines(9, 9))
    assert bench.take(RESTORE).decisions == ()
    assert bench.done(9, 9).decisions == (RestoreKept(),)


def test_a_late_order_to_restore_is_not_followed_by_a_copy_that_is_right() -> None:
    # One that is not beyond, one of the lineage already, one that keeps something else, one that keeps nothing
    assert keeping(applied=5).take(RESTORE).decisions == ()
    bench = keeping(applied=5)
    bench.take(Coin(1, lineage=5, agreed_lsn=5), of(5, lines(6, 8)))
    bench.answer(StoreDone(6, 5, (), text(5), 5))
    bench.done(8, 6)
    assert bench.take(RESTORE).decisions == ()
    assert keeping(applied=8).take(replace(RESTORE, number=6)).decisions == ()
    assert WorkerBench(applied=8).take(RESTORE).decisions == ()


def test_a_load_is_given_up_for_a_restore() -> None:
    bench = keeping(applied=8)
    bench.take(LoadFrom(1, ("w2",), "told"))
    assert bench.core.replacing.loading is not None
    offer = SnapshotOffered(bench.core.replacing.loading.request, "s", 8, text(8), 8, 10, (("data/x", 10, bytes(32)),))
    assert any(isinstance(each, BeginLoad) for each in bench.take(offer, sender="w2").decisions)
    assert bench.take(RESTORE).decisions == (AbandonLoad(), RestoreKept())
    # What the disk says of the load comes too late; and no other load begins
    assert bench.answer(LoadBegun("s", ())).decisions == ()
    assert bench.take(LoadFrom(1, ("w2",), "told")).decisions == ()
    bench.answer(LoadOpened("restored", 4, text(4), 4, 0))
    assert bench.progress().applied_lsn == 4


def test_what_cannot_be_restored_is_not_kept_and_a_load_can_follow() -> None:
    bench = keeping(applied=8)
    bench.take(RESTORE)
    bench.answer(LoadFailed("damaged"))
    said = bench.progress()
    assert (said.follows, said.applied_lsn, said.kept_lsn) == ("idle", 8, -1)
    assert said.reason == "what was kept could not be restored: damaged"
    assert bench.take(RESTORE).decisions == ()
    bench.take(LoadFrom(1, ("w2",), "told"))
    assert bench.progress().follows == "load"


def test_an_order_to_stop_comes_before_a_restore_that_has_not_begun() -> None:
    bench = keeping(applied=8)
    bench.take(lines(9, 9))
    bench.take(RESTORE)
    bench.take(Idle(1, "told"))
    assert bench.done(9, 9).decisions == ()
    assert bench.progress().applied_lsn == 9


def test_a_restore_that_ends_after_an_order_to_stop_is_the_copy_all_the_same() -> None:
    bench = keeping(applied=8)
    bench.take(RESTORE)
    bench.take(Idle(1, "told"))
    bench.answer(LoadOpened("restored", 4, text(4), 4, 0))
    said = bench.progress()
    assert (said.follows, said.journal, said.applied_lsn) == ("idle", "restored", 4)


def test_a_worker_that_starts_again_says_what_it_keeps_and_which_log_it_followed() -> None:
    bench = WorkerBench(6, is_coined=False, kept=KeptState(7, 4, 3), lineage=5)
    said = bench.progress()
    assert (said.lineage, said.kept_lsn, said.kept_lineage, said.kept_number) == (5, 4, 3, 7)
