"""Site: what a master thinks of each worker, the order that follows from it, and when it takes no writes."""

from __future__ import annotations

import pytest

from brokerha.model.wire.messages import Coin, Idle, LoadFrom, Message
from brokerha.replication.site.config import Standing
from brokerha.replication.worker.config import WorkerConfig
from tests.unit.replication.benches import SiteBench, text


def settled(lsn: int = 10, executed: int = 10, workers: tuple[str, ...] = ("w1", "w2"), **settings: object) -> SiteBench:
    """A site whose master has run for a while."""
    bench = SiteBench(lsn, executed, workers, **settings)
    bench.settle()
    return bench


# ---- standings


def test_a_worker_that_was_never_heard_is_unknown_and_gets_no_order() -> None:
    bench = settled()
    assert bench.standing("w1") is Standing.UNKNOWN
    assert bench.orders("w1") == []


def test_a_copy_that_the_log_knows_is_coined_and_on() -> None:
    bench = settled()
    bench.heard("w1", 7, follows="idle", view=0)
    assert bench.standing("w1") is Standing.ON
    assert bench.orders("w1") == [Coin(1, ())]
    assert bench.worker("w1").agreed_lsn == 7


def test_a_follower_of_an_older_view_is_coined_again_with_those_that_may_have_older_lines() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 7, view=0)
    assert bench.orders("w1") == [Coin(1, ("w2",))]


def test_an_order_is_given_again_after_a_while_until_it_is_followed() -> None:
    bench = settled(order_ms=1000)
    given: list[tuple[int, Message]] = []
    began_ms = bench.ms
    for _ in range(5):
        bench.heard("w1", 7, follows="idle", view=0)
        given += [(bench.ms - began_ms, order) for order in bench.orders("w1")]
        bench.ms += 500
    assert given == [(0, Coin(1)), (1000, Coin(1)), (2000, Coin(1))]
    bench.heard("w1", 7)
    assert bench.orders("w1") == []
    # It was restarted: that it was coined a moment ago does not count.
    bench.heard("w1", 7, follows="idle", view=0)
    assert bench.orders("w1") == [Coin(1)]


def test_an_order_that_was_lost_is_given_again_at_the_next_heartbeat() -> None:
    bench = settled()
    bench.heard("w1", 7, follows="idle", view=0)
    assert bench.orders("w1") == [Coin(1)]
    # Given that the next heartbeat was a little faster on its way
    bench.ms += WorkerConfig("w1", "m1").heartbeat_ms - 100
    bench.heard("w1", 7, follows="idle", view=0)
    assert bench.orders("w1") == [Coin(1)]


def test_a_copy_that_holds_something_else_is_out_of_sync_and_takes_a_snapshot_of_a_good_one() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 7, fingerprint=text(99))
    assert bench.standing("w1") is Standing.OUT_OF_SYNC
    reason = f"at LSN 7 it holds {text(99)}, the log says {text(7)}"
    assert bench.orders("w1") == [LoadFrom(1, ("w2",), reason)]
    assert bench.site.readable(bench.ms) == ["w2"]


def test_a_copy_that_differs_and_has_nobody_to_copy_from_stops_serving() -> None:
    bench = settled()
    bench.heard("w1", 7, fingerprint=text(99))
    reason = f"at LSN 7 it holds {text(99)}, the log says {text(7)}"
    assert bench.orders("w1") == [Idle(1, reason)]
    bench.heard("w1", 7, fingerprint=text(99), follows="idle")
    assert bench.orders("w1") == []
    assert bench.standing("w1") is Standing.OUT_OF_SYNC


def test_a_copy_from_before_the_log_begins_takes_a_snapshot() -> None:
    bench = settled()
    bench.begin_anew(8)
    bench.log(10)
    bench.heard("w2", 10)
    bench.heard("w1", 7, follows="idle", view=0)
    assert bench.orders("w1") == [LoadFrom(1, ("w2",), "it is at LSN 7, the log begins after 8", 8)]


def test_a_copy_whose_late_message_said_too_low_an_lsn_is_not_replaced() -> None:
    bench = settled()
    bench.begin_anew(8)
    bench.log(10)
    bench.heard("w2", 10)
    bench.heard("w1", 7, follows="idle", view=0)
    assert bench.worker("w1").condemned
    bench.orders("w1")
    bench.heard("w1", 10, follows="idle", view=0)
    assert not bench.worker("w1").condemned
    assert [type(order) for order in bench.orders("w1")] == [Coin]


@pytest.mark.parametrize("then", ["damaged", "differs"])
def test_a_copy_that_is_condemned_for_its_content_stays_so_at_a_higher_lsn(then: str) -> None:
    bench = settled()
    bench.begin_anew(8)
    bench.log(10)
    bench.heard("w2", 10)
    bench.heard("w1", 7, follows="idle", view=0)
    if then == "damaged":
        bench.heard("w1", 7, follows="idle", view=0, trouble="damaged")
    else:
        bench.heard("w1", 10, follows="idle", view=0, fingerprint=text(99))
    bench.heard("w1", 10, follows="idle", view=0)
    assert bench.worker("w1").condemned


def test_a_copy_beyond_the_log_takes_a_snapshot() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 12)
    assert bench.orders("w1") == [LoadFrom(1, ("w2",), "it is at LSN 12, the log ends at 10")]


def test_a_copy_beyond_the_log_waits_where_the_log_may_come_by_itself() -> None:
    bench = settled()
    bench.site.reach = 12
    bench.heard("w1", 12, follows="idle", view=0)
    assert bench.orders("w1") == []
    assert (bench.standing("w1"), bench.worker("w1").condemned) == (Standing.OUT_OF_SYNC, "")
    bench.synchronise(2)
    assert bench.orders("w1") == [Coin(1, ())]
    assert bench.standing("w1") is Standing.ON


def test_a_copy_that_is_ahead_of_the_results_is_good_until_they_say_otherwise() -> None:
    bench = settled(lsn=12, executed=10)
    bench.heard("w1", 11, fingerprint=text(99))
    assert bench.standing("w1") is Standing.ON
    assert bench.worker("w1").agreed_lsn == 0
    bench.log(11)
    bench.heard("w1", 11, fingerprint=text(99))
    assert bench.standing("w1") is Standing.OUT_OF_SYNC


def test_a_condemned_copy_never_comes_back_whatever_it_says() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 7, fingerprint=text(99))
    bench.ms += 1000
    bench.heard("w2", 10)
    bench.heard("w1", 8)
    assert bench.standing("w1") is Standing.OUT_OF_SYNC
    # A new copy has a new name and begins without.
    bench.heard("w1", 8, journal="a new copy")
    assert bench.standing("w1") is Standing.ON


def test_a_copy_in_trouble_is_condemned_and_replaced() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 10, trouble="a page cannot be read", follows="idle")
    assert bench.standing("w1") is Standing.OUT_OF_SYNC
    assert bench.orders("w1") == [LoadFrom(1, ("w2",), "a page cannot be read")]


def test_damage_that_a_worker_told_is_remembered_when_it_dies_and_knows_nothing_of_it_any_more() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 10, trouble="the data is not what its fingerprint says", follows="load")
    assert bench.orders("w1") == [LoadFrom(1, ("w2",), "the data is not what its fingerprint says")]
    # When it comes back with the same copy, which adds up to the right fingerprint
    bench.ms += 1000
    bench.heard("w2", 10)
    bench.heard("w1", 10, follows="idle", view=0)
    # Then it is still not trusted.
    assert bench.standing("w1") is Standing.OUT_OF_SYNC
    assert bench.orders("w1") == [LoadFrom(1, ("w2",), "the data is not what its fingerprint says")]


def test_a_load_under_way_is_left_alone() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 0, follows="load", reason="loading from w2: 5 %", total_bytes=100)
    assert bench.standing("w1") is Standing.LOADING
    assert bench.worker("w1").reason == "loading from w2: 5 %"
    assert bench.orders("w1") == []


def test_a_worker_that_is_far_behind_replays_or_copies_by_the_rule() -> None:
    slow = settled(lsn=900, executed=900, replay_s=0.1, replay_factor=1.0, window=100)
    slow.heard("w2", 900)
    slow.heard("w1", 0, follows="idle", view=0)
    assert slow.orders("w1") == [LoadFrom(1, ("w2",), "900 transactions behind: takes a snapshot")]
    # A snapshot has the size of its source, however little a wiped worker holds itself.
    large = settled(lsn=900, executed=900, replay_s=0.1, replay_factor=1.0, window=100)
    large.heard("w2", 900, items=10**9)
    large.heard("w1", 0, follows="idle", view=0, items=0)
    assert large.orders("w1") == [Coin(1, ("w2",))]
    quick = settled(lsn=900, executed=900, window=100)
    quick.heard("w2", 900)
    quick.heard("w1", 0, follows="idle", view=0)
    assert quick.orders("w1") == [Coin(1, ("w2",))]
    assert quick.standing("w1") is Standing.OUT_OF_SYNC
    assert quick.worker("w1").reason == "replays the log: 900 transactions to go"


def test_a_worker_is_on_within_a_window_and_stays_so_within_three() -> None:
    bench = settled(lsn=900, executed=900, window=100)
    for applied, standing in ((799, Standing.OUT_OF_SYNC), (800, Standing.ON)):
        bench.heard("w1", applied)
        assert bench.standing("w1") is standing
    bench.synchronise(201)
    bench.log(1100)
    bench.heard("w1", 800)
    assert bench.standing("w1") is Standing.ON
    bench.log(1101)
    bench.heard("w1", 800)
    assert bench.standing("w1") is Standing.OUT_OF_SYNC


def test_how_fast_a_worker_catches_up_is_measured() -> None:
    bench = settled(lsn=900, executed=900)
    bench.heard("w1", 0)
    bench.ms += 500
    bench.heard("w1", 400)
    assert bench.worker("w1").replay_per_s == 0
    bench.ms += 1500
    bench.heard("w1", 600)
    assert bench.worker("w1").replay_per_s == 300


def test_a_silent_worker_is_unknown_and_not_counted() -> None:
    bench = settled()
    bench.heard("w1", 10)
    bench.ms += bench.config.dead_after_ms
    bench.orders("w1")
    assert (bench.standing("w1"), bench.worker("w1").reason) == (Standing.UNKNOWN, "not heard")
    assert bench.site.in_sync(bench.ms) == []
    bench.heard("w1", 10)
    assert bench.standing("w1") is Standing.ON


def test_a_worker_that_is_switched_off_is_told_to_stop_and_then_left_alone() -> None:
    bench = settled()
    bench.worker("w1").is_switched_on = False
    bench.heard("w1", 7)
    assert bench.standing("w1") is Standing.OFF
    assert bench.orders("w1") == [Idle(1, "switched off by its master")]
    bench.heard("w1", 7, follows="idle")
    assert bench.orders("w1") == []
    bench.worker("w1").is_switched_on = True
    bench.heard("w1", 7, follows="idle")
    assert bench.orders("w1") == [Coin(1)]
    assert bench.standing("w1") is Standing.ON


def test_only_workers_that_are_on_follow_and_are_free_are_read() -> None:
    bench = settled(workers=("w1", "w2", "w3", "w4", "w5"))
    for node in ("w1", "w2", "w3", "w4"):
        bench.heard(node, 10)
    bench.heard("w5", 10, follows="idle")
    bench.worker("w2").is_readable = False
    bench.worker("w3").task = "backup-1"
    bench.heard("w4", 10, fingerprint=text(99))
    assert bench.site.readable(bench.ms) == ["w1"]


def test_the_word_of_a_worker_is_its_own_while_it_is_on_and_the_masters_otherwise() -> None:
    bench = settled()
    bench.heard("w1", 10, state="writing")
    assert bench.worker("w1").state == "writing"
    bench.worker("w1").task = "backup-1"
    assert bench.worker("w1").state == "off"
    bench.worker("w1").task = ""
    bench.heard("w1", 10, state="uninitialised", follows="idle")
    assert bench.worker("w1").state == "on"
    bench.heard("w1", 10, state="on", fingerprint=text(99))
    assert bench.worker("w1").state == "out-of-sync"


def test_what_is_told_late_of_an_earlier_copy_or_of_less_changes_nothing() -> None:
    bench = settled()
    bench.heard("w1", 9)
    bench.heard("w1", 10, journal="a new copy")
    for late in ({"journal": "copy-of-w1"}, {"journal": "a new copy", "fingerprint": text(99)}):
        bench.heard("w1", 9, **late)
        assert (bench.worker("w1").journal, bench.worker("w1").applied) == ("a new copy", 10)
        assert bench.standing("w1") is Standing.ON


def test_a_worker_that_says_nothing_else_any_more_stands_where_it_says() -> None:
    bench = settled()
    bench.heard("w1", 10)
    # Given that its directory was replaced by an older state of the same copy
    for _ in range(12):
        bench.ms += 1000
        bench.heard("w1", 6, follows="idle", view=0)
    assert bench.worker("w1").applied == 6
    assert bench.standing("w1") is Standing.ON
    assert bench.site.is_alive(bench.worker("w1"), bench.ms)


def test_a_condemned_copy_does_not_come_back_by_telling_of_less() -> None:
    bench = settled()
    bench.heard("w2", 10)
    bench.heard("w1", 7, fingerprint=text(99))
    bench.ms += bench.config.dead_after_ms
    bench.heard("w2", 10)
    bench.heard("w1", 5)
    assert bench.worker("w1").applied == 5
    assert bench.standing("w1") is Standing.OUT_OF_SYNC


# ---- the read-only rule


@pytest.mark.parametrize(
    ("workers", "in_sync", "is_writable"),
    [
        (1, 1, True),
        (1, 0, False),
        (2, 2, True),
        (2, 1, False),
        (2, 0, False),
        (3, 3, True),
        (3, 2, True),
        (3, 1, False),
        (3, 0, False),
        (0, 0, True),
    ],
)
def test_a_master_is_read_only_exactly_while_too_few_workers_are_in_sync(workers: int, in_sync: int, is_writable: bool) -> None:
    names = tuple(f"w{number}" for number in range(1, workers + 1))
    bench = settled(workers=names)
    for place, node in enumerate(names):
        bench.heard(node, 10, fingerprint=text(10 if place < in_sync else 99))
    assert (bench.site.read_only_reason(bench.ms) == "") is is_writable


def test_why_it_is_read_only_names_who_is_missing() -> None:
    bench = settled(workers=("w1", "w2"))
    bench.heard("w1", 10)
    bench.heard("w2", 10, follows="load", reason="loading")
    assert bench.site.read_only_reason(bench.ms) == "1 of 2 workers in sync, writes need 2: w2 is replication-client (loading)"


@pytest.mark.parametrize(("min_in_sync", "needed"), [(-1, 2), (0, 0), (1, 1), (3, 3), (9, 3)])
def test_the_least_number_is_a_setting_and_never_more_than_there_are(min_in_sync: int, needed: int) -> None:
    bench = settled(workers=("w1", "w2", "w3"), min_in_sync=min_in_sync)
    assert bench.site.needed == needed


def test_while_a_master_has_just_started_silence_means_nothing() -> None:
    bench = SiteBench(workers=("w1", "w2"))
    assert bench.site.read_only_reason(bench.ms) == ""
    # One that spoke up and is not good does not count.
    bench.heard("w1", 0, fingerprint=text(99))
    assert bench.site.read_only_reason(bench.ms) != ""
    bench.heard("w1", 0, journal="a new copy")
    assert bench.site.read_only_reason(bench.ms) == ""
    # One that is switched off does not count either.
    bench.worker("w2").is_switched_on = False
    assert bench.site.read_only_reason(bench.ms) != ""
    bench.worker("w2").is_switched_on = True
    bench.ms += bench.config.dead_after_ms - 1
    bench.heard("w1", 0)
    assert bench.site.read_only_reason(bench.ms) == ""
    bench.ms += 1
    assert bench.site.read_only_reason(bench.ms) != ""


# ---- no good copy


def test_two_unknown_copies_and_no_good_one_are_both_named_and_nothing_is_chosen() -> None:
    bench = settled()
    bench.heard("w1", 7, fingerprint=text(98))
    bench.heard("w2", 8, fingerprint=text(99))
    said = bench.site.attention(bench.ms)
    assert said.startswith("no copy is known to be good: ")
    for part in ("w1 at LSN 7", text(98), "w2 at LSN 8", text(99)):
        assert part in said
    assert [type(order) for node in ("w1", "w2") for order in bench.orders(node)] == [Idle]
    assert bench.site.adopted is None


def test_nobody_is_asked_for_while_there_is_hope() -> None:
    bench = SiteBench(10, 10)
    bench.heard("w1", 7, fingerprint=text(98))
    assert bench.site.attention(bench.ms) == ""
    bench.settle()
    bench.heard("w1", 7, fingerprint=text(98))
    bench.heard("w2", 10)
    assert bench.site.attention(bench.ms) == ""
    bench.heard("w2", 10, fingerprint=text(98))
    assert bench.site.attention(bench.ms)
    bench.heard("w2", 10, follows="load", total_bytes=100)
    assert bench.site.attention(bench.ms) == ""
    assert settled(workers=()).site.attention(10**6) == ""
    assert settled().site.attention(10**6) == ""
