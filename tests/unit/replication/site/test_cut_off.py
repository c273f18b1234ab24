"""A site whose log does not reach back to its results: it had no worker when that part was forgotten, and gets its first one now."""

from __future__ import annotations

from brokerha.model.records import Rebased
from brokerha.model.wire.messages import Coin, Execute, Idle, LoadFrom
from brokerha.replication.site.config import Standing, Trust
from brokerha.replication.site.judging import cut_off
from tests.unit.replication.benches import SiteBench, content, text

BEGINS_AFTER_6 = "it is at LSN 0, the log begins after 6"


def cut(others: tuple[str, ...] = ("x1",)) -> SiteBench:
    """Ten transactions, of which the log here has 7 to 10, and none was ever executed here."""
    bench = SiteBench(6, 0, ("w1",), others=others)
    bench.synchronise(4)
    bench.journal.trim(7)
    bench.settle()
    return bench


def test_a_log_that_goes_on_where_the_results_end_is_not_cut_off() -> None:
    bench = SiteBench(6, 6, ("w1",))
    bench.synchronise(4)
    assert cut_off(bench.journal, 6) == 0
    bench.journal.trim(7)
    assert cut_off(bench.journal, 6) == 0
    assert cut_off(bench.journal, 5) == 7


def test_an_empty_copy_is_not_what_the_log_says_and_takes_the_content_of_another_site() -> None:
    bench = cut()
    bench.heard("w1", 0)
    assert (bench.standing("w1"), bench.worker("w1").reason) == (Standing.OUT_OF_SYNC, BEGINS_AFTER_6)
    assert bench.orders("w1") == [LoadFrom(1, ("x1",), BEGINS_AFTER_6, 6)]
    assert bench.site.readable(bench.ms) == []
    assert not any(isinstance(message, Execute) for message in bench.sent().get("w1", []))


def test_where_nobody_is_so_far_it_is_told_again_after_a_while_only() -> None:
    bench = cut()
    bench.heard("w1", 0)
    assert bench.orders("w1") == [LoadFrom(1, ("x1",), BEGINS_AFTER_6, 6)]
    bench.heard("w1", 0, follows="load")
    bench.orders("w1")
    bench.heard("w1", 0, follows="idle")
    assert bench.orders("w1") == []
    bench.ms += bench.site.config.order_ms
    bench.heard("w1", 0, follows="idle")
    assert bench.orders("w1") == [LoadFrom(1, ("x1",), BEGINS_AFTER_6, 6)]


def test_without_another_site_it_serves_nothing_and_a_person_is_asked() -> None:
    bench = cut(others=())
    bench.heard("w1", 0)
    assert bench.orders("w1") == [Idle(1, BEGINS_AFTER_6)]
    assert bench.site.attention(bench.ms) == f"no copy is known to be good: w1 at LSN 0 with {text(0)} ({BEGINS_AFTER_6})"


def test_the_results_begin_anew_from_the_copy_that_was_taken() -> None:
    bench = cut()
    bench.heard("w1", 0)
    bench.heard("w1", 9, journal="taken")
    assert bench.site.took_elsewhere
    assert bench.site.adopted == (9, content(9), 9, "there was no copy here before that of w1")
    # More that it says in the same turn changes nothing
    bench.heard("w1", 9, journal="taken")
    assert bench.site.adopted is not None
    assert not bench.worker("w1").condemned
    # Then it follows, and executes what comes after
    bench.site.adopted = None
    bench.journal.append([Rebased(9, content(9), 9, "as the master does")])
    bench.feed.rebase(9)
    bench.site.executed = 9
    bench.heard("w1", 9, journal="taken", follows="idle")
    assert bench.orders("w1") == [Coin(1, ())]
    bench.heard("w1", 9, journal="taken")
    assert bench.standing("w1") is Standing.ON
    assert [message.first_lsn for message in bench.sent()["w1"] if isinstance(message, Execute)] == [10]


def test_a_copy_of_elsewhere_that_the_log_does_not_reach_back_to_either_is_replaced_again() -> None:
    bench = cut()
    bench.heard("w1", 0)
    bench.heard("w1", 3, journal="taken")
    assert bench.site.adopted is None
    assert bench.worker("w1").condemned == "it is at LSN 3, the log begins after 6"


def test_one_that_is_ahead_of_the_log_waits_for_it() -> None:
    bench = cut()
    bench.heard("w1", 0)
    bench.heard("w1", 12, journal="taken")
    assert (bench.site.adopted, bench.worker("w1").reason) == (None, "waits until the log has LSN 12")
    assert bench.worker("w1").trust is Trust.LOADED


def test_a_copy_that_nobody_vouches_for_is_not_believed_although_nothing_contradicts_it() -> None:
    bench = cut()
    bench.heard("w1", 9)
    assert bench.worker("w1").condemned == "it is at LSN 9, and there are no results here to compare it with"
    # An operator may choose it, as after a restore from a backup
    bench.worker("w1").trust, bench.worker("w1").condemned = Trust.CHOSEN, ""
    bench.heard("w1", 9)
    assert bench.site.adopted == (9, content(9), 9, "the copy of w1 was chosen")
