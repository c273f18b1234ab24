"""Feed: one worker executes, the others apply, whoever is behind gets it again, nobody gets what is not durable."""

from __future__ import annotations

from typing import Any

from brokerha.model.records import Rebased
from brokerha.model.wire.messages import Apply, Execute, Executed, Idle, RangeMissing, Request
from tests.unit.replication.benches import SiteBench, content, ranges, results, text


def test_nobody_is_fed_before_it_was_heard() -> None:
    assert SiteBench(lsn=3).sent() == {}


def test_a_start_asks_every_worker_where_it_stands() -> None:
    assert [(out.to, out.message) for out in SiteBench().greetings] == [("w1", Apply(1, ())), ("w2", Apply(1, ()))]


def test_a_silent_worker_is_asked_again_and_one_that_is_heard_is_not() -> None:
    bench = SiteBench(dead_after_ms=5_000)
    bench.heard("w1")
    asked = []
    for _ in range(22):
        bench.ms += 500
        bench.heard("w1")
        asked += [(bench.ms - 1_000, out.to) for out in bench.feed.messages(bench.ms) if out.message == Apply(1, ())]
    assert asked == [(5_000, "w2"), (10_000, "w2")]


def test_the_first_live_worker_executes_and_the_other_waits_for_lines() -> None:
    bench = SiteBench(lsn=3)
    bench.heard("w1")
    bench.heard("w2")
    sent = bench.sent()
    assert ranges(sent["w1"]) == [("Execute", 1, 3)]
    assert "w2" not in sent
    outcomes = bench.executed("w1", 1, 3)
    assert outcomes is not None
    assert (outcomes.first_lsn, len(outcomes.results), outcomes.results[-1][3]) == (1, 3, content(3))
    assert ranges(bench.sent()["w2"]) == [("Apply", 1, 3)]


def test_lines_carry_what_a_copy_is_compared_with() -> None:
    bench = SiteBench(lsn=2, executed=2)
    bench.heard("w1")
    message = bench.sent()["w1"][0]
    assert isinstance(message, Apply)
    assert message.items[1] == ("t2", 2, "applied", "", b"e", content(2))
    assert message.view == bench.site.view


def test_a_worker_that_does_not_follow_is_sent_nothing() -> None:
    for follows in ("idle", "load"):
        bench = SiteBench(lsn=3)
        bench.heard("w1", follows=follows)
        assert ranges(bench.sent().get("w1", [])) == []


def test_nothing_is_sent_twice_without_need_and_again_after_a_while() -> None:
    bench = SiteBench(lsn=3, retransmit_ms=100)
    bench.heard("w1")
    assert bench.sent()
    assert bench.sent() == {}
    bench.ms += 100
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 3)]


def test_exactly_the_range_that_is_asked_for_is_sent() -> None:
    bench = SiteBench(lsn=9, executed=9)
    bench.heard("w1")
    bench.sent()
    bench.feed.on_request("w1", Request(4, 6))
    assert ranges(bench.sent()["w1"]) == [("Apply", 4, 6)]
    assert bench.sent() == {}


def test_a_fingerprint_is_shown_with_its_own_lsn_or_not_at_all() -> None:
    bench = SiteBench(lsn=9, executed=5)
    bench.heard("w1", applied=5)
    worker = bench.feed.workers["w1"]
    assert (worker.applied, worker.fingerprint) == (5, text(5))
    bench.feed.on_executed("w1", Executed(6, results(6, 7), 7, text(7), 77, "copy-of-w1"), bench.ms)
    assert (worker.applied, worker.fingerprint) == (7, text(7))
    bench.feed.on_executed("w1", Executed(6, results(6, 6), 6, text(6), 66, "copy-of-w1"), bench.ms)
    assert (worker.applied, worker.fingerprint) == (7, "")
    bench.heard("w1", applied=8)
    assert (worker.applied, worker.fingerprint) == (8, text(8))


def test_items_are_those_that_it_said_last() -> None:
    bench = SiteBench(lsn=9, executed=5)
    worker = bench.feed.workers["w1"]
    assert worker.items_now == 0
    bench.heard("w1", applied=5)
    assert worker.items_now == 5
    # The executing worker says them with its results, long before its next heartbeat
    bench.feed.on_executed("w1", Executed(6, results(6, 7), 7, text(7), 77, "copy-of-w1"), bench.ms)
    assert (worker.applied, worker.items_now) == (7, 77)
    # A report that comes late tells nothing of what it holds now
    bench.feed.on_executed("w1", Executed(6, results(6, 6), 6, text(6), 66, "copy-of-w1"), bench.ms)
    assert worker.items_now == 5
    bench.heard("w1", applied=8)
    assert worker.items_now == 8


def test_the_probe_gets_transactions_for_what_is_not_executed_yet() -> None:
    bench = SiteBench(lsn=9, executed=5)
    bench.heard("w1")
    bench.sent()
    bench.feed.on_request("w1", Request(4, 7))
    assert ranges(bench.sent()["w1"]) == [("Apply", 4, 5), ("Execute", 6, 7)]


def test_another_worker_gets_no_transactions_whatever_it_asks_for() -> None:
    bench = SiteBench(lsn=9, executed=5)
    bench.heard("w1", applied=5)
    bench.heard("w2", applied=3)
    bench.sent()
    bench.feed.on_request("w2", Request(4, 7))
    assert ranges(bench.sent()["w2"]) == [("Apply", 4, 5)]


def test_what_is_asked_for_and_was_trimmed_is_said_to_be_missing() -> None:
    bench = SiteBench(lsn=9, executed=5)
    bench.journal.append([Rebased(5, content(5), 5, "as if everything before had been trimmed")])
    bench.heard("w1", applied=5)
    bench.sent()
    bench.feed.on_request("w1", Request(2, 4))
    assert bench.sent()["w1"] == [RangeMissing(2, 4, 6)]


def test_an_answer_is_as_long_as_the_window_and_not_a_fixed_number() -> None:
    bench = SiteBench(lsn=100, executed=100, window=40, message_items=10)
    bench.heard("w1")
    bench.sent()
    bench.feed.on_request("w1", Request(1, 100))
    assert ranges(bench.sent()["w1"]) == [("Apply", n, n + 9) for n in (1, 11, 21, 31)]


def test_ranges_that_wait_are_bounded_and_the_same_one_counts_once() -> None:
    bench = SiteBench(lsn=50, executed=50)
    bench.heard("w1")
    bench.sent()
    for first in (1, *range(1, 50, 2)):
        bench.feed.on_request("w1", Request(first, first))
    assert ranges(bench.sent()["w1"]) == [("Apply", n, n) for n in range(1, 16, 2)]
    bench.feed.on_request("w1", Request(9, 3))
    assert bench.sent() == {}


def test_a_worker_behind_the_results_applies_before_it_executes() -> None:
    bench = SiteBench(lsn=3)
    bench.heard("w1")
    bench.sent()
    bench.executed("w1", 1, 3)
    bench.synchronise(2)
    bench.ms += 10_000
    bench.heard("w2")
    assert ranges(bench.sent()["w2"]) == [("Apply", 1, 3), ("Execute", 4, 5)]
    assert bench.feed.probe == "w2"


def test_results_are_taken_in_once_and_without_a_gap() -> None:
    bench = SiteBench(lsn=5)
    bench.heard("w1")
    bench.sent()
    assert bench.executed("w1", 3, 4) is None
    # What lacks is asked for again.
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 2)]
    assert bench.executed("w1", 1, 2) is not None
    assert bench.executed("w1", 1, 2) is None
    outcomes = bench.executed("w1", 2, 4)
    assert outcomes is not None
    assert (outcomes.first_lsn, len(outcomes.results)) == (3, 2)


def test_results_that_are_missed_are_asked_for_once_however_many_come_after_them() -> None:
    bench = SiteBench(lsn=9)
    bench.heard("w1")
    bench.sent()
    for lsn in (4, 6, 5, 8):
        assert bench.executed("w1", lsn, lsn) is None
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 3)]
    for lsn in (5, 8, 4):
        assert bench.executed("w1", lsn, lsn) is None
    assert "w1" not in bench.sent()
    # When they do not come they are asked for again; when some come, what is missed after them is.
    bench.ms += bench.feed.config.retransmit_ms
    assert bench.executed("w1", 4, 4) is None
    assert ("Execute", 1, 3) in ranges(bench.sent()["w1"])
    assert bench.executed("w1", 1, 2) is not None
    assert bench.executed("w1", 4, 4) is None
    assert ("Execute", 3, 3) in ranges(bench.sent()["w1"])


def test_items_are_counted_where_the_report_ends() -> None:
    bench = SiteBench(lsn=5)
    bench.heard("w1")
    whole = Executed(1, results(1, 2), 2, text(2), 77, "copy-of-w1")
    outcomes = bench.feed.on_executed("w1", whole, bench.ms)
    assert outcomes is not None
    assert outcomes.items == 77
    part = Executed(3, results(3, 3), 5, text(5), 99, "copy-of-w1")
    outcomes = bench.feed.on_executed("w1", part, bench.ms)
    assert outcomes is not None
    assert outcomes.items == 0


def test_results_of_what_was_never_synchronised_are_dropped() -> None:
    bench = SiteBench(lsn=1)
    bench.heard("w1")
    assert bench.executed("w1", 1, 9) is None


def test_results_of_a_copy_that_is_not_the_present_one_are_dropped() -> None:
    bench = SiteBench(lsn=3)
    bench.heard("w1", journal="another")
    assert bench.executed("w1", 1, 3) is None
    assert bench.feed.executed == 0


def test_results_of_a_condemned_copy_are_dropped() -> None:
    bench = SiteBench(lsn=3)
    bench.heard("w1")
    bench.worker("w1").condemned = "damaged"
    assert bench.executed("w1", 1, 3) is None


def test_strangers_are_no_workers_and_are_told_to_stop() -> None:
    bench = SiteBench(lsn=3)
    bench.heard("stranger")
    bench.feed.on_request("stranger", Request(1, 1))
    assert bench.executed("stranger", 1, 1) is None
    assert bench.sent() == {"stranger": [Idle(1, "it is no worker of this master")]}


def test_a_worker_with_a_new_journal_starts_where_it_says() -> None:
    bench = SiteBench(lsn=3)
    bench.heard("w1")
    bench.executed("w1", 1, 3)
    assert bench.feed.applied_by(1) == 3
    bench.heard("w1", applied=0, journal="another")
    assert bench.feed.workers["w1"].applied == 0
    assert ranges(bench.sent()["w1"])[0] == ("Apply", 1, 3)


def test_messages_are_bounded_by_items_bytes_and_window() -> None:
    bench = SiteBench(lsn=10, window=6, message_items=4)
    bench.heard("w1")
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 4), ("Execute", 5, 6)]
    bench = SiteBench(lsn=4, message_bytes=5)
    bench.heard("w1")
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 2), ("Execute", 3, 4)]


def test_lines_are_cut_by_bytes_too() -> None:
    bench = SiteBench(lsn=4, message_bytes=2)
    bench.heard("w1")
    bench.sent()
    bench.executed("w1", 1, 4)
    bench.heard("w2")
    assert ranges(bench.sent()["w2"]) == [("Apply", 1, 2), ("Apply", 3, 4)]


def test_how_far_enough_copies_are() -> None:
    bench = SiteBench(lsn=3)
    assert bench.feed.applied_by(1) == 0
    bench.heard("w1")
    bench.executed("w1", 1, 3)
    bench.heard("w2", applied=2)
    assert [bench.feed.applied_by(n) for n in (0, 1, 2, 3)] == [0, 3, 2, 0]
    bench.worker("w2").condemned = "damaged"
    assert [bench.feed.applied_by(n) for n in (1, 2)] == [3, 0]


def test_the_next_moment_to_look() -> None:
    bench = SiteBench(lsn=3, dead_after_ms=5000, retransmit_ms=1000)
    assert bench.feed.deadline_ms(bench.ms) == bench.ms + 5000
    bench.heard("w1")
    bench.sent()
    due = bench.feed.deadline_ms(bench.ms)
    assert due is not None
    assert bench.ms < due <= bench.ms + 1000
    bench.executed("w1", 1, 3)
    # When nothing is under way, then to ask whether one that is silent is there, and to take it for dead
    bench.ms += 500
    assert bench.feed.looks(bench.ms) == []
    assert bench.feed.deadline_ms(bench.ms) == bench.ms - 500 + 2500
    bench.worker("w1").looked_ms = bench.ms + 4000
    bench.ms += 2000
    bench.feed.looks(bench.ms)
    assert bench.feed.deadline_ms(bench.ms) == bench.ms - 2500 + 5000


def test_what_a_worker_confirmed_never_moves_backwards_within_its_copy() -> None:
    bench = SiteBench(lsn=5, executed=5)
    bench.heard("w1", applied=4)
    bench.heard("w1", applied=2)
    assert bench.worker("w1").applied == 4
    assert bench.feed.applied_by(1) == 4


def test_a_log_that_begins_anew_is_executed_from_there() -> None:
    bench = SiteBench(lsn=5, executed=4)
    bench.heard("w1", applied=2)
    bench.sent()
    bench.journal.append([Rebased(2, content(2), 2, "chosen")])
    bench.feed.rebase(2)
    bench.site.executed = 2
    assert bench.feed.executed == 2
    assert ranges(bench.sent()["w1"]) == [("Execute", 3, 5)]


def test_a_worker_that_came_later_is_asked_where_it_stands() -> None:
    bench = SiteBench()
    bench.feed.greet("w2")
    assert bench.sent() == {"w2": [Apply(1, ())]}


def test_a_probe_that_was_removed_executes_nothing_more() -> None:
    bench = SiteBench(lsn=2)
    bench.heard("w1")
    bench.sent()
    del bench.site.workers["w1"]
    bench.feed.on_changed_workers()
    assert bench.feed.probe is None
    bench.heard("w2")
    assert isinstance(bench.sent()["w2"][0], Execute)


def _lingering(**settings: Any) -> SiteBench:
    bench = SiteBench(linger_ms=20, linger_items=5, **settings)
    bench.heard("w1")
    bench.heard("w2")
    return bench


def test_what_nobody_waits_for_lingers_and_is_executed_together() -> None:
    bench = _lingering()
    bench.synchronise(1)
    assert bench.sent() == {}
    bench.ms += 10
    bench.synchronise(2)
    assert bench.sent() == {}
    assert bench.feed.deadline_ms(bench.ms) == bench.ms + 10
    bench.ms += 10
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 3)]
    # Lines of the log go to the other copies at once
    bench.executed("w1", 1, 3)
    assert ranges(bench.sent()["w2"]) == [("Apply", 1, 3)]


def test_what_comes_after_it_lingers_for_itself() -> None:
    bench = _lingering()
    bench.synchronise(1)
    bench.sent()
    bench.ms += 20
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 1)]
    bench.synchronise(1)
    assert bench.sent() == {}
    assert bench.feed.deadline_ms(bench.ms) == bench.ms + 20


def test_enough_of_them_do_not_linger() -> None:
    bench = _lingering()
    bench.synchronise(4)
    assert bench.sent() == {}
    bench.synchronise(1)
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 5)]


def test_what_somebody_waits_for_does_not_linger_nor_does_what_leads_to_it() -> None:
    bench = _lingering()
    bench.synchronise(2)
    assert bench.sent() == {}
    assert bench.feed.lingers_after == 0
    bench.feed.expect(2)
    assert bench.feed.deadline_ms(bench.ms) == bench.ms
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 2)]
    bench.synchronise(1)
    assert bench.sent() == {}
    # Somebody who waits for more than there is waits for each that comes
    bench.feed.expect(4)
    assert ranges(bench.sent()["w1"]) == [("Execute", 3, 3)]
    bench.synchronise(1)
    assert ranges(bench.sent()["w1"]) == [("Execute", 4, 4)]


def test_nothing_lingers_twice_where_the_window_takes_a_part_of_it() -> None:
    bench = _lingering(window=1)
    bench.synchronise(2)
    assert bench.sent() == {}
    bench.ms += 20
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 1)]
    bench.executed("w1", 1, 1)
    assert ranges(bench.sent()["w1"]) == [("Execute", 2, 2)]


def test_what_the_probe_has_executed_before_does_not_linger() -> None:
    bench = _lingering(retransmit_ms=100)
    bench.synchronise(1)
    bench.sent()
    bench.ms += 20
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 1)]
    # The results are lost, and so is the memory of what somebody waited for
    bench.feed.awaited_lsn = 0
    bench.heard("w1", 1)
    bench.ms += 100
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 1)]
