"""JournalFeed: what each backup is sent, and when."""

from __future__ import annotations

import pytest

from brokerha.model.ids import Instant
from brokerha.model.records import Outcomes, Rebased
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.process_messages import Records, RecordsMissing, RecordsWanted, Replicate
from brokerha.replication.journal.backups import CATCH_UP
from brokerha.replication.journal.feed import PAUSE_AFTER, JournalFeed, JournalFeedConfig
from brokerha.replication.journal.log import AnswerLimits
from tests.unit.replication.journal_benches import VIEW, FeedBench
from tests.unit.replication.plain_log import PlainLog, filler

# ---- what is sent


def test_a_backup_that_was_never_heard_gets_heartbeats_and_no_records() -> None:
    bench = FeedBench(fail_over_after_ms=2000)
    began_ms, beats = bench.ms, []
    for _ in range(21):
        beats += [(bench.ms - began_ms, message) for message in bench.sent()]
        bench.ms += 100
    assert [ms for ms, _ in beats] == [0, 500, 1000, 1500, 2000]
    assert beats[0][1] == Replicate(VIEW, (0, 0), (), 11, "j")
    assert bench.row().reason == "not heard yet"


def test_everything_new_of_a_turn_goes_in_one_message() -> None:
    bench = FeedBench()
    bench.join()
    bench.write(filler(12), filler(13))
    bench.write(filler(14))
    (message,) = bench.sent()
    assert (message.previous, [number for number, _ in message.items], message.last_number) == ((20, 11), [12, 13, 14], 14)
    assert message.items[0][1] == encode_record(filler(12))
    assert bench.sent() == []


def test_a_backup_that_is_behind_is_caught_up_from_the_journal() -> None:
    bench = FeedBench()
    bench.say((10, 4))
    (message,) = bench.sent()
    assert (message.previous, [number for number, _ in message.items]) == ((10, 4), [5, 6, 7, 8, 9, 10, 11])


def test_a_message_is_cut_at_the_end_of_a_turn() -> None:
    bench = FeedBench(message_bytes=400)
    bench.join()
    for number in range(12, 22, 2):
        bench.write(filler(number, 100), filler(number + 1, 100))
    cuts = [[number for number, _ in message.items] for message in bench.sent()]
    assert cuts == [[12, 13], [14, 15], [16, 17], [18, 19], [20, 21]]


def test_a_record_larger_than_a_message_goes_alone() -> None:
    bench = FeedBench(message_bytes=400)
    bench.join()
    bench.write(filler(12), filler(13, 1000), filler(14))
    assert [[number for number, _ in message.items] for message in bench.sent()] == [[12], [13], [14]]


def test_a_window_bounds_what_is_in_flight_and_confirmations_open_it() -> None:
    bench = FeedBench(window_records=3)
    bench.join()
    bench.write(*[filler(number) for number in range(12, 20)])
    assert bench.numbers() == [12, 13, 14]
    assert bench.numbers() == []
    bench.say((20, 13))
    assert bench.numbers() == [15, 16]


def test_a_window_of_bytes_is_kept_too() -> None:
    bench = FeedBench(window_bytes=500, message_bytes=200)
    bench.join()
    bench.write(*[filler(number, 100) for number in range(12, 30)])
    size = sum(len(data) for message in bench.sent() for _, data in message.items)
    assert 400 < size <= 600


def test_records_that_stay_unconfirmed_are_sent_again_after_a_wait_that_doubles() -> None:
    bench = FeedBench(resend_ms=1000, dead_after_ms=10**6)
    bench.join()
    bench.write(filler(12))
    began_ms, sent = bench.ms, []
    for _ in range(40):
        sent += [bench.ms - began_ms for _ in bench.numbers()]
        bench.ms += 100
    assert sent == [0, 1000, 3000]


def test_a_backup_that_stands_still_is_paused_and_shown_its_gap_and_goes_on_when_it_moves() -> None:
    bench = FeedBench(resend_ms=100, dead_after_ms=10**6)
    bench.join()
    bench.write(filler(12), filler(13))
    for _ in range(2**PAUSE_AFTER):
        bench.sent()
        bench.ms += 100
    bench.ms += 1000
    bench.write(filler(14))
    (heartbeat,) = bench.sent()
    assert (heartbeat.previous, heartbeat.items) == ((20, 14), ())
    assert bench.row().state == CATCH_UP
    slow = "too slow, 2 records behind: it is fed no more, and asks for what it lacks"
    assert bench.row().reason == slow
    bench.say((20, 11), reason="disk-full: no space")
    assert bench.row().reason == f"{slow}; it says: disk-full: no space"
    assert bench.feed.ready() == ()
    bench.say((20, 13))
    assert bench.numbers() == [14]
    bench.say((20, 14))
    assert bench.feed.ready() == ("b1",)


def test_a_backup_beyond_the_reach_of_the_journal_is_shown_its_gap() -> None:
    bench = FeedBench()
    bench.log.trim(8)
    bench.say((10, 4))
    (heartbeat,) = bench.sent()
    assert (heartbeat.previous, heartbeat.items) == ((20, 11), ())
    assert bench.row().reason == "the journal does not reach back to record 5: it asks the others, and loads"
    bench.feed.on_records_wanted("b1", RecordsWanted(VIEW, 5, 11))
    assert [out.message for out in bench.feed.messages(bench.now)] == [RecordsMissing(5, 11, 8)]


def test_memory_of_recent_records_is_bounded_and_older_ones_come_from_the_journal() -> None:
    bench = FeedBench(memory_bytes=300)
    bench.join()
    for number in range(12, 40):
        bench.write(filler(number, 50))
    assert bench.feed._recent.first > 30
    assert bench.numbers() == list(range(12, 40))


def test_a_process_without_backups_sends_nothing_and_confirms_itself() -> None:
    log = PlainLog("j")
    feed = JournalFeed(JournalFeedConfig(), log, view=1, journal="j", views=())
    feed.note(log.append([filler(1)]), [filler(1)])
    assert feed.messages(Instant(0, 0)) == []
    assert feed.deadline_ms() is None
    assert (feed.confirmations(), feed.needs(1)) == ({}, {})


# ---- records that are asked for


def test_exactly_the_records_that_are_asked_for_come_in_full_in_as_many_messages_as_one_answer_takes() -> None:
    bench = FeedBench(answer=AnswerLimits(300, 600))
    bench.join()
    bench.write(*[filler(number, 100) for number in range(12, 30)])
    bench.feed.on_records_wanted("b1", RecordsWanted(VIEW, 12, 25))
    answers = [out.message for out in bench.feed.messages(bench.now) if isinstance(out.message, Records)]
    assert [answer.previous for answer in answers] == [(20, 11), (20, 13), (20, 15)]
    assert [number for answer in answers for number, _ in answer.items] == list(range(12, 18))


def test_a_whole_window_of_void_results_is_passed_over() -> None:
    bench = FeedBench(memory_bytes=1, window_records=2)
    results = Outcomes(1, (("applied", "", b"", b""),), 0)
    bench.write(results, results, results, Rebased(0, b"", 0, "because"), filler(16))
    bench.say((VIEW, 11))
    (message,) = bench.sent()
    assert (message.previous, [number for number, _ in message.items]) == ((VIEW, 11), [15])


def test_a_range_that_ends_with_void_results_is_answered_up_to_the_record_after_it() -> None:
    """Each answer stands for itself: one that only said "there is nothing more" would, coming late, hide what was lost before it."""
    bench = FeedBench(memory_bytes=1)
    bench.join()
    results = Outcomes(1, (("applied", "", b"", b""),), 0)
    bench.write(filler(12), results, results, Rebased(0, b"", 0, "because"), filler(16))
    bench.feed.messages(bench.now)
    for first, last, expected in ((12, 14, [12, 15]), (13, 14, [15]), (13, 13, [15])):
        bench.feed.on_records_wanted("b1", RecordsWanted(VIEW, first, last))
        answers = [out.message for out in bench.feed.messages(bench.now) if isinstance(out.message, Records)]
        assert answers[0].previous == (VIEW, first - 1)
        assert [number for answer in answers for number, _ in answer.items] == expected


@pytest.mark.parametrize(
    ("sender", "wanted"), [("p9", RecordsWanted(VIEW, 2, 3)), ("b1", RecordsWanted(10, 2, 3)), ("b1", RecordsWanted(VIEW, 12, 13))]
)
def test_questions_of_strangers_of_other_views_or_beyond_the_end_are_left_alone(sender: str, wanted: RecordsWanted) -> None:
    bench = FeedBench()
    bench.join()
    bench.feed.on_records_wanted(sender, wanted)
    assert not [out for out in bench.feed.messages(bench.now) if isinstance(out.message, Records | RecordsMissing)]


# ---- time


def test_the_next_deadline_is_that_of_the_next_heartbeat_resending_or_silence() -> None:
    bench = FeedBench(fail_over_after_ms=4000, resend_ms=700, dead_after_ms=900)
    assert bench.feed.deadline_ms() == 0
    bench.sent()
    assert bench.feed.deadline_ms() == bench.ms + 1000
    bench.join()
    assert bench.feed.deadline_ms() == bench.ms + 900
    bench.write(filler(12))
    bench.sent()
    assert bench.feed.deadline_ms() == bench.ms + 700
