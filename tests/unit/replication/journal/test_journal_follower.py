"""JournalFollower: what a backup takes, asks for, confirms and refuses."""

from __future__ import annotations

from brokerha.following.asking import AskConfig
from brokerha.following.machine import State
from brokerha.model.ids import Instant
from brokerha.model.records import Accepted, TxDecided, TxPrepared
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsMissing, Replicate
from brokerha.replication.journal.follower import FollowerReady, JournalFollower, JournalFollowerConfig
from tests.unit.replication.journal_benches import BODY, PREPARED, VIEW, WITHOUT, FollowerBench
from tests.unit.replication.plain_log import PlainLog, filler

# ---- the next records


def test_a_new_process_is_idle_and_says_nothing_before_it_hears_a_primary() -> None:
    bench = FollowerBench(is_coined=False)
    assert bench.turn() == FollowerReady()
    assert (bench.follows(), bench.core.reason) == (State.IDLE, "waits for its primary")
    assert bench.core.deadline_ms() is None
    assert bench.core.confirmation().last == (10, 5)


def test_records_are_written_in_one_batch_under_their_numbers_and_confirmed_at_once() -> None:
    bench = FollowerBench()
    bench.fillers(7, 8)
    bench.fillers(9, 9)
    assert bench.turn().records == ((7, filler(7)), (8, filler(8)), (9, filler(9)))
    assert bench.confirmed() == [(VIEW, 9)]
    assert bench.follows() is State.BASIC


def test_nothing_is_confirmed_before_it_is_durable_and_one_batch_is_written_at_a_time() -> None:
    bench = FollowerBench()
    bench.fillers(7, 7)
    assert bench.core.take(bench.now).records
    bench.fillers(8, 8)
    ready = bench.core.take(bench.now)
    assert (ready.records, ready.messages) == ((), ())
    assert bench.core.last == (VIEW, 6)
    bench.core.followed(7)
    ready = bench.core.take(bench.now)
    assert [number for number, _ in ready.records] == [8]
    assert bench.core.last == (VIEW, 7)


def test_a_batch_is_about_as_large_as_the_limit() -> None:
    bench = FollowerBench(batch_bytes=300)
    for number in range(7, 13):
        bench.records(number, filler(number, 100))
    assert [bench.numbers() for _ in range(4)] == [[7, 8], [9, 10], [11, 12], []]


def test_heartbeats_come_in_between() -> None:
    bench = FollowerBench(fail_over_after_ms=2000)
    began_ms, beats = bench.ms, []
    for _ in range(16):
        bench.out.clear()
        beats += [bench.ms - began_ms for _ in bench.confirmed()]
        bench.ms += 100
    assert beats == [500, 1000, 1500]


def test_records_that_are_there_are_dropped_and_confirmed_again() -> None:
    bench = FollowerBench()
    bench.fillers(7, 9)
    bench.turn()
    bench.out.clear()
    bench.fillers(7, 9)
    bench.fillers(8, 10)
    assert bench.numbers() == [10]
    assert bench.confirmed()[-1] == (VIEW, 10)


def test_the_decision_to_commit_is_never_written_without_what_it_accepts() -> None:
    bench = FollowerBench()
    bench.records(7, TxPrepared("t1", "", BODY, (), 0), TxDecided("t1", is_commit=True, reason=""), last_number=8_000)
    assert bench.numbers() == []
    bench.records(9, Accepted((("t1", b""),)), last_number=8_000)
    assert bench.turn().records[2] == (9, Accepted((("t1", BODY),)))


def test_a_disk_that_failed_is_named_until_a_batch_is_durable() -> None:
    bench = FollowerBench()
    bench.core.trouble = "the disk is full"
    assert bench.core.confirmation().reason == "the disk is full"
    bench.fillers(7, 7)
    assert bench.numbers() == [7]
    assert bench.core.confirmation().reason == ""


# ---- one primary at a time


def test_records_of_an_older_view_are_refused() -> None:
    bench = FollowerBench()
    assert not bench.fillers(7, 7, view=10, sender="b2")
    assert bench.numbers() == []


def test_a_second_primary_of_the_same_view_and_strangers_are_refused() -> None:
    bench = FollowerBench()
    assert not bench.fillers(7, 7, sender="b2")
    assert not bench.fillers(7, 7, sender="p9")
    assert bench.numbers() == []


def test_after_a_promise_the_old_primary_is_not_obeyed_and_hears_nothing() -> None:
    bench = FollowerBench()
    bench.core.refuse_below(32)
    bench.ms += 10_000
    assert not bench.fillers(7, 7)
    assert bench.asked() == []
    assert bench.confirmed() == []
    assert bench.core.primary == ""


def test_a_process_that_promised_before_it_started_refuses_older_views() -> None:
    log = PlainLog("j")
    log.promised = 30
    core = JournalFollower(JournalFollowerConfig("b1", ("p0",)), log, log.state())
    assert not core.on_replicate("p0", Replicate(20, (0, 0), (), 0, "j"), Instant(0, 0))
    assert core.on_replicate("p0", Replicate(30, (0, 0), (), 0, "j"), Instant(0, 0))


def test_a_new_primary_gets_its_answer_at_once_and_what_the_old_one_sent_is_given_up() -> None:
    bench = FollowerBench()
    bench.fillers(9, 9)
    assert bench.follows() is State.REQUEST
    bench.records(0, previous=(VIEW, 6), view=32, sender="b2", last_number=7)
    assert bench.follows() is State.BASIC
    assert bench.asked() == []
    assert [(to, message.view) for to, message in bench.out if isinstance(message, Confirmed)] == [("b2", 32)]


# ---- REQUEST


def test_a_gap_is_asked_for_exactly_and_what_showed_it_is_written_after_it() -> None:
    bench = FollowerBench()
    bench.fillers(9, 10)
    assert bench.follows() is State.REQUEST
    assert bench.asked() == [("p0", 7, 8)]
    bench.answer(7, 8)
    assert bench.numbers() == [7, 8, 9, 10]
    assert bench.follows() is State.BASIC


def test_a_heartbeat_shows_a_gap_too() -> None:
    bench = FollowerBench()
    bench.records(0, previous=(VIEW, 8), last_number=8)
    assert bench.asked() == [("p0", 7, 8)]


def test_no_answer_is_asked_again_with_growing_patience_and_never_leads_to_a_load() -> None:
    bench = FollowerBench()
    bench.fillers(9, 10)
    asked = []
    for _ in range(300):
        asked += [(bench.ms - 10_000, to) for to, _, _ in bench.asked()]
        bench.ms += 100
    assert [ms for ms, _ in asked][:6] == [0, 100, 300, 700, 1500, 3100]
    assert {to for _, to in asked} == {"p0"}
    assert bench.follows() is State.REQUEST


def test_the_other_processes_are_asked_when_the_primary_does_not_hold_it() -> None:
    bench = FollowerBench()
    bench.fillers(9, 10)
    bench.turn()
    bench.core.on_records_missing("p0", RecordsMissing(7, 8, 9), bench.now)
    assert bench.asked() == [("b2", 7, 8)]
    bench.answer(7, 8, sender="b2")
    assert bench.numbers() == [7, 8, 9, 10]


def test_what_nobody_holds_leads_to_a_load() -> None:
    bench = FollowerBench()
    bench.fillers(9, 10)
    bench.turn()
    bench.core.on_records_missing("p0", RecordsMissing(7, 8, 9), bench.now)
    bench.turn()
    bench.core.on_records_missing("b2", RecordsMissing(7, 8, 9), bench.now)
    assert (bench.follows(), bench.core.reason) == (State.LOAD, "nobody holds records 7 to 8 any more")


def test_a_silent_backup_counts_as_one_that_does_not_hold_it() -> None:
    bench = FollowerBench(ask=AskConfig(patience_ms=5000))
    bench.fillers(9, 10)
    bench.turn()
    bench.core.on_records_missing("p0", RecordsMissing(7, 8, 9), bench.now)
    for _ in range(49):
        bench.turn()
        bench.ms += 100
    assert bench.follows() is State.REQUEST
    bench.ms += 200
    bench.turn()
    assert bench.follows() is State.LOAD


def test_a_record_that_cannot_be_read_is_asked_for_elsewhere_and_then_loaded() -> None:
    bench = FollowerBench()
    bench.fillers(8, 8)
    bench.turn()
    for node in ("p0", "b2"):
        assert bench.follows() is State.REQUEST
        bench.core.on_records(node, Records((VIEW, 6), ((7, b"\xc1"),)), bench.now)
        bench.turn()
    assert bench.follows() is State.LOAD


def test_records_that_nobody_asked_for_are_left_alone() -> None:
    bench = FollowerBench()
    bench.answer(7, 8)
    bench.fillers(9, 9)
    bench.turn()
    bench.answer(7, 8, sender="b2")
    assert bench.numbers() == []


def test_void_results_between_two_records_are_no_gap_for_ever() -> None:
    bench = FollowerBench()
    bench.fillers(10, 10)
    assert bench.asked() == [("p0", 7, 9)]
    items = ((10, encode_record(filler(10))),)
    bench.core.on_records("p0", Records((VIEW, 6), items), bench.now)
    assert bench.numbers() == [10]
    assert bench.follows() is State.BASIC


def test_what_waits_behind_a_gap_is_bounded() -> None:
    bench = FollowerBench(line_bytes=1000)
    for number in range(9, 100):
        bench.records(number, filler(number, 100))
    assert bench.core._line.line._ahead_bytes <= 1000
    assert bench.asked() == [("p0", 7, 8)]


# ---- bodies that were left out


def test_a_body_that_came_through_its_queue_is_filled_in() -> None:
    bench = FollowerBench()
    bench.core.on_prepared_body("t1", BODY)
    bench.records(7, WITHOUT)
    assert bench.turn().records == ((7, PREPARED),)
    assert bench.core._bodies.of("t1") == BODY


def test_a_record_without_participants_lacks_nothing() -> None:
    bench = FollowerBench()
    bench.records(7, TxPrepared("t1", "", b"", (), 0))
    assert bench.numbers() == [7]


def test_a_record_waits_for_its_body_and_nothing_passes_it() -> None:
    bench = FollowerBench()
    bench.records(7, WITHOUT)
    bench.fillers(8, 8)
    assert bench.numbers() == []
    bench.core.on_prepared_body("t1", BODY)
    assert bench.turn().records == ((7, PREPARED), (8, filler(8)))
    bench.ms += bench.core.config.fill_wait_ms
    assert bench.asked() == []


def test_a_record_whose_body_does_not_come_is_asked_for_in_full() -> None:
    bench = FollowerBench(fill_wait_ms=500)
    bench.records(7, WITHOUT)
    bench.fillers(8, 8)
    assert bench.asked() == []
    assert bench.core.deadline_ms() == bench.ms + 500
    bench.ms += 500
    assert bench.asked() == [("p0", 7, 7)]
    bench.core.on_records("p0", Records((VIEW, 6), ((7, encode_record(PREPARED)),)), bench.now)
    assert bench.turn().records == ((7, PREPARED), (8, filler(8)))
    assert bench.follows() is State.BASIC


def test_what_a_prepared_transaction_comes_to_is_filled_in_from_its_record() -> None:
    bench = FollowerBench()
    bench.records(7, TxPrepared("t1", "", BODY, (), 0))
    bench.turn()
    bench.records(8, TxDecided("t1", is_commit=True, reason=""), Accepted((("t0", b"plain"), ("t1", b""))))
    assert bench.turn().records[1] == (9, Accepted((("t0", b"plain"), ("t1", BODY))))
    assert bench.core._bodies.of("t1") is None


def test_bodies_of_prepared_transactions_are_known_after_a_restart() -> None:
    log = PlainLog("j")
    log.append([PREPARED])
    core = JournalFollower(JournalFollowerConfig("b1", ("p0",)), log, log.state())
    assert core._bodies.of("t1") == BODY


def test_bodies_of_what_was_rolled_back_are_dropped() -> None:
    bench = FollowerBench()
    bench.core.on_prepared_body("t1", BODY)
    bench.records(7, WITHOUT, TxDecided("t1", is_commit=False, reason="no"))
    assert bench.core._bodies.of("t1") is None
    assert bench.numbers() == [7, 8]


def test_bodies_that_are_kept_are_bounded() -> None:
    bench = FollowerBench(bodies_bytes=1000)
    for number in range(5):
        bench.core.on_prepared_body(f"t{number}", BODY)
    assert [number for number in range(5) if bench.core._bodies.of(f"t{number}") is not None] == [3, 4]


def test_between_two_primaries_nobody_is_asked_and_nothing_is_loaded() -> None:
    bench = FollowerBench()
    bench.fillers(9, 10)
    bench.turn()
    bench.core.refuse_below(VIEW + 10)
    bench.out.clear()
    for sender in ("p0", "b2"):
        bench.core.on_records_missing(sender, RecordsMissing(7, 8, 9), bench.now)
    for _ in range(100):
        bench.ms += 1000
        bench.turn()
    assert (bench.follows(), bench.out) == (State.REQUEST, [])
