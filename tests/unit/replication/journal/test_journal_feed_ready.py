"""JournalFeed: what counts as confirmed, who is ready, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model.ids import Instant
from brokerha.model.records import Accepted, TxDecided, TxPrepared, ViewStarted
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsWanted, Replicate
from brokerha.replication.journal.backups import CATCH_UP, JOINING, READY
from brokerha.replication.journal.feed import JournalFeed, JournalFeedConfig
from tests.unit.replication.journal_benches import BODY, VIEW, FeedBench
from tests.unit.replication.plain_log import PlainLog, filler

# ---- what counts as confirmed


def test_what_was_confirmed_never_moves_backwards() -> None:
    bench = FeedBench()
    bench.join()
    bench.write(*[filler(number) for number in range(12, 20)])
    for number, expected in ((15, 15), (13, 15), (11, 15), (19, 19), (12, 19)):
        bench.say((20, number))
        assert bench.feed.confirmations()["b1"] == expected


@pytest.mark.parametrize(
    "word",
    [
        {"last": (10, 11), "reason": "another record under this number"},
        {"last": (20, 12), "reason": "behind the end"},
        {"last": (20, 10), "reason": "of a view that began later"},
        {"last": (20, 11), "view": 10},
        {"last": (20, 11), "view": 30},
        {"last": (20, 11), "journal": "other"},
    ],
)
def test_nothing_counts_for_another_view_journal_or_record(word: dict[str, Any]) -> None:
    bench = FeedBench()
    bench.say(**word)
    assert bench.feed.confirmations() == {"b1": 0, "b2": 0}
    assert bench.row().state == JOINING
    assert bench.numbers() in ([], [11])


def test_confirmed_is_what_each_backup_has() -> None:
    bench = FeedBench()
    bench.join("b1")
    bench.join("b2")
    bench.feed.needs(5)
    bench.write(*[filler(number) for number in range(12, 20)])
    bench.say((20, 18), "b1")
    bench.say((20, 15), "b2")
    assert bench.feed.confirmations() == {"b1": 18, "b2": 15}
    assert bench.feed.needs(8) == {"b1": 6, "b2": 6}, "what the journal could do without when it ended before 16"
    bench.say((20, 19), "b1")
    bench.say((20, 19), "b2")
    assert bench.feed.needs(9) == {"b1": 9, "b2": 9}


def test_a_backup_that_loads_needs_what_comes_after_its_snapshot_while_it_is_heard() -> None:
    bench = FeedBench()
    bench.say((1, 0), "b1", journal="other", follows="load")
    bench.say((10, 10), "b2", view=10)
    assert bench.feed.needs(5) == {"b1": 6}
    bench.ms += bench.feed.config.dead_after_ms
    bench.sent()
    assert bench.feed.needs(5) == {}


def test_a_backup_that_says_it_obeys_an_older_primary_is_not_ready() -> None:
    bench = FeedBench()
    bench.join()
    bench.say((20, 11))
    assert bench.feed.ready() == ("b1",)
    bench.say((20, 11), view=10)
    assert bench.feed.ready() == ()


def test_after_going_back_the_journal_can_do_without_less() -> None:
    bench = FeedBench()
    bench.join("b1")
    bench.feed.needs(7)
    bench.write(filler(12))
    assert bench.feed.needs(3) == {"b1": 4}


def test_a_backup_whose_tail_parted_is_told_where() -> None:
    bench = FeedBench()
    bench.say((10, 15))
    (message,) = bench.sent()
    assert (message.previous, [number for number, _ in message.items]) == ((10, 10), [11])
    assert bench.row().reason == "its records after 10 are not those of the primary: it discards them"


def test_a_word_from_before_a_load_that_comes_late_takes_nobody_out_of_the_ready_ones() -> None:
    bench = FeedBench()
    bench.join()
    bench.say((20, 11))
    assert bench.feed.ready() == ("b1",)
    bench.say((1, 0), journal="before", follows="load")
    assert bench.feed.ready() == ("b1",)
    bench.say((20, 11))
    bench.say((1, 0), journal="before", follows="load")
    assert bench.feed.ready() == ("b1",)


def test_a_backup_that_lost_its_journal_has_confirmed_nothing() -> None:
    bench = FeedBench()
    bench.join()
    assert bench.feed.confirmations()["b1"] == 11
    bench.say((1, 0), journal="new")
    assert bench.feed.confirmations()["b1"] == 11
    bench.say((1, 0), journal="new")
    assert bench.feed.confirmations()["b1"] == 0
    assert bench.row().reason == "its journal is new, not j: it loads"


# ---- guard, trackers, readiness


def test_a_backup_is_ready_when_it_has_what_was_there_when_it_joined() -> None:
    bench = FeedBench()
    bench.say((10, 4))
    assert (bench.row().state, bench.row().guard) == (CATCH_UP, 11)
    assert bench.row().reason == "7 records are lacking up to its guard 11"
    bench.write(filler(12))
    bench.say((10, 10))
    assert bench.row().state == CATCH_UP
    bench.say((20, 11))
    assert (bench.row().state, bench.row().reason, bench.row().lag_records) == (READY, "", 1)
    assert bench.feed.ready() == ("b1",)


def test_an_expected_backup_has_a_guard_before_it_is_heard() -> None:
    bench = FeedBench(open_transactions=("t1",))
    assert (bench.row().state, bench.row().guard, bench.row().trackers) == (JOINING, 11, 1)


def test_a_backup_waits_for_transactions_that_were_open_when_it_joined() -> None:
    bench = FeedBench(open_transactions=("t1", "t2"))
    bench.join()
    assert bench.row().reason == "transactions that were open when it joined, and that it has not got: t1, t2"
    bench.feed.on_tx_settled("t1")
    bench.write(TxPrepared("t2", "", BODY, (), 0))
    assert bench.row().state == CATCH_UP
    bench.say((20, 12))
    assert bench.row().state == READY


def test_a_backup_that_takes_part_in_what_is_open_is_ready() -> None:
    bench = FeedBench(open_transactions=("t1", "t2"))
    assert bench.feed.take_part() == ()
    bench.say((10, 4))
    assert bench.feed.take_part() == (), "its guard is not reached"
    bench.say((20, 11))
    assert bench.row().state == CATCH_UP
    assert bench.feed.take_part() == ("b1",)
    assert (bench.row().state, bench.row().trackers) == (READY, 0)


def test_a_backup_takes_part_in_nothing_before_it_has_what_was_closed_without_it() -> None:
    bench = FeedBench(open_transactions=("t1", "t2"))
    bench.join()
    bench.write(TxPrepared("t1", "", BODY, (), 0))
    assert bench.feed.take_part() == ()
    bench.say((20, 12))
    assert bench.feed.take_part() == ("b1",)


def test_a_transaction_that_began_after_it_joined_does_not_hold_it_up() -> None:
    bench = FeedBench()
    bench.join()
    bench.open.append("t1")
    bench.say((20, 11))
    assert bench.row().state == READY


def test_a_transaction_prepared_before_this_primary_is_settled_with_the_guard() -> None:
    log = PlainLog("j")
    log.append([TxPrepared("t1", "", BODY, (), 0), ViewStarted(VIEW, "p0")])
    feed = JournalFeed(
        JournalFeedConfig(("b1",)), log, view=VIEW, journal="j", views=log.history.views,
        prepared=log.prepared, open_transactions=lambda: ["t1"],
    )  # fmt: skip
    feed.on_confirmed("b1", Confirmed(VIEW, "j", (1, 1), "basic"), Instant(0, 0))
    assert feed.ready() == ()
    feed.on_confirmed("b1", Confirmed(VIEW, "j", (VIEW, 2), "basic"), Instant(0, 0))
    assert feed.ready() == ("b1",)


def test_a_rollback_of_a_prepared_transaction_settles_it() -> None:
    bench = FeedBench(open_transactions=("t1",))
    bench.join()
    bench.write(TxPrepared("t1", "", BODY, (), 0), TxDecided("t1", is_commit=False, reason="no"))
    assert bench.row().trackers == 0


def test_a_silent_backup_is_dead_and_joins_anew_with_a_new_guard() -> None:
    bench = FeedBench(dead_after_ms=5000)
    bench.join()
    bench.write(filler(12))
    bench.ms += 5000
    bench.sent()
    assert (bench.row().state, bench.row().reason) == (JOINING, "not heard any more")
    bench.say((20, 11))
    assert (bench.row().state, bench.row().guard) == (CATCH_UP, 12)


@pytest.mark.parametrize("follows", ["load", "idle"])
def test_a_backup_that_loads_or_is_idle_is_not_ready_and_says_why(follows: str) -> None:
    bench = FeedBench()
    bench.join()
    bench.say((20, 11), follows=follows, reason="damaged")
    assert (bench.row().state, bench.row().reason) == (JOINING, f"it is in {follows}: damaged")
    assert bench.feed.ready() == ()


def test_a_gap_that_is_being_filled_takes_nobody_out() -> None:
    bench = FeedBench()
    bench.join()
    bench.say((20, 11), follows="request")
    assert bench.feed.ready() == ("b1",)


def test_a_backup_is_told_at_once_that_it_is_ready() -> None:
    bench = FeedBench()
    assert not bench.sent()[0].is_ready
    bench.say((20, 11))
    assert [message.is_ready for message in bench.sent()] == [True]


def test_lag_is_counted_in_records() -> None:
    bench = FeedBench()
    bench.join()
    bench.write(filler(12), filler(13))
    assert bench.row().lag_records == 2


# ---- skip set


def bodies(message: Replicate) -> list[int]:
    """Sizes of the items."""
    return [len(data) for _, data in message.items]


def test_a_participant_gets_the_record_of_a_prepared_transaction_without_its_body() -> None:
    bench = FeedBench()
    bench.join("b1")
    bench.join("b2")
    record = TxPrepared("t1", "", BODY, ("b1",), 0)
    bench.write(record)
    messages = {out.to: out.message for out in bench.feed.messages(bench.now)}
    assert isinstance(messages["b1"], Replicate)
    assert isinstance(messages["b2"], Replicate)
    assert messages["b1"].items == ((12, encode_record(TxPrepared("t1", "", b"", ("b1",), 0))),)
    assert messages["b2"].items == ((12, encode_record(record)),)


def test_what_follows_from_a_prepared_transaction_goes_without_its_body_to_who_confirmed_that() -> None:
    bench = FeedBench()
    bench.join("b1")
    bench.join("b2")
    bench.write(TxPrepared("t1", "", BODY, (), 0))
    bench.feed.messages(bench.now)
    bench.say((20, 12), "b1")
    accepted = Accepted((("t0", b"plain"), ("t1", BODY)))
    bench.write(TxDecided("t1", is_commit=True, reason=""), accepted)
    messages = {out.to: out.message for out in bench.feed.messages(bench.now)}
    assert isinstance(messages["b1"], Replicate)
    assert isinstance(messages["b2"], Replicate)
    assert messages["b1"].items[1] == (14, encode_record(Accepted((("t0", b"plain"), ("t1", b"")))))
    assert messages["b2"].items[1] == (14, encode_record(accepted))


def test_a_body_that_is_not_the_one_that_was_prepared_is_sent() -> None:
    bench = FeedBench()
    bench.join()
    bench.write(TxPrepared("t1", "", BODY, (), 0))
    bench.sent()
    bench.say((20, 12))
    bench.write(Accepted((("t1", b"other"),)))
    assert bench.sent()[0].items == ((13, encode_record(Accepted((("t1", b"other"),)))),)


def test_a_participant_that_joined_after_the_transaction_was_prepared_gets_its_body() -> None:
    bench = FeedBench()
    record = TxPrepared("t1", "", BODY, ("b1",), 0)
    bench.write(record)
    bench.say((20, 11))
    assert bench.sent()[0].items == ((12, encode_record(record)),)


def test_answers_to_questions_have_all_bodies() -> None:
    bench = FeedBench()
    bench.join()
    record = TxPrepared("t1", "", BODY, ("b1",), 0)
    bench.write(record)
    bench.sent()
    bench.feed.on_records_wanted("b1", RecordsWanted(VIEW, 12, 12))
    assert [out.message for out in bench.feed.messages(bench.now) if out.to == "b1"] == [
        Records((20, 11), ((12, encode_record(record)),))
    ]
