"""Site: who is right when copies disagree, what a choice means, and copies and results that come from other sites."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model.wire.messages import Apply, Coin, Idle, LoadFrom, RangeMissing, Request
from brokerha.replication.site.config import Standing, Trust
from tests.unit.replication.benches import SiteBench, content, lines, text

THREE = ("w1", "w2", "w3")


def settled(lsn: int = 10, executed: int = 10, workers: tuple[str, ...] = THREE, **settings: Any) -> SiteBench:
    bench = SiteBench(lsn, executed, workers, **settings)
    bench.settle()
    return bench


def differs(bench: SiteBench, node: str, came_to: int, lsn: int = 7) -> None:
    """A worker came to another content at a line of the log, and stopped before it."""
    trouble = f"LSN {lsn}: another content"
    bench.heard(node, lsn - 1, follows="load", trouble=trouble, differs_lsn=lsn, differs_fingerprint=content(came_to))


# ---- disagreement


def test_one_that_differs_alone_is_healed_from_those_that_agree() -> None:
    bench = settled()
    bench.heard("w1", 10)
    bench.heard("w2", 9)
    differs(bench, "w3", 99)
    assert bench.orders("w3") == [LoadFrom(1, ("w1", "w2"), "LSN 7: another content")]
    assert bench.site.settle_overruled() is None
    assert bench.site.disagreement == ""


def test_healing_waits_for_live_copies_that_have_still_to_come_to_that_line() -> None:
    bench = settled()
    bench.heard("w1", 10)
    bench.heard("w2", 4)
    differs(bench, "w3", 99)
    assert bench.orders("w3") == []
    bench.heard("w2", 8)
    differs(bench, "w3", 99)
    assert bench.orders("w3")
    # One that died is not waited for.
    bench = settled()
    bench.heard("w2", 4)
    bench.ms += bench.config.dead_after_ms
    bench.heard("w1", 10)
    differs(bench, "w3", 99)
    assert bench.orders("w3")


def test_healing_waits_for_a_live_copy_no_longer_than_for_a_silent_one() -> None:
    bench = settled()
    bench.heard("w1", 10)
    # Given a copy that lives, and never comes to the line that another differs at
    for passed_ms in range(0, bench.config.dead_after_ms, 1000):
        bench.heard("w2", 4)
        differs(bench, "w3", 99)
        assert bench.orders("w3") == [], passed_ms
        bench.ms += 1000
    # When it had as long as a silent one gets
    bench.heard("w2", 4)
    bench.heard("w1", 10)
    differs(bench, "w3", 99)
    # Then the one that differs is healed without its vote.
    assert bench.orders("w3") == [LoadFrom(1, ("w1", "w2"), "LSN 7: another content")]


def test_a_majority_overrules_the_log_and_the_probe_is_the_one_that_is_replaced() -> None:
    bench = settled()
    bench.heard("w1", 10)
    bench.heard("w3", 6)
    differs(bench, "w2", 99)
    assert bench.site.settle_overruled() is None
    differs(bench, "w3", 99)
    votes = bench.site.settle_overruled()
    assert votes is not None
    assert votes.lsn == 7
    assert bench.site.settle_overruled() is None
    assert bench.standing("w1") is Standing.OUT_OF_SYNC
    assert bench.worker("w1").condemned == "differs from the majority at LSN 7"
    assert [(out.to, out.message) for out in bench.site.take_orders(bench.ms)] == [("w2", Coin(1, (), 7)), ("w3", Coin(1, (), 7))]


def test_nobody_is_overruled_before_all_live_copies_have_come_to_that_line() -> None:
    bench = settled(workers=("w1", "w2", "w3", "w4"))
    # Given that the probe died, two differ, and a third has still to come there
    bench.heard("w4", 4)
    differs(bench, "w2", 99)
    differs(bench, "w3", 99)
    assert bench.site.settle_overruled() is None
    # When it comes to what the log says, then two stand against one
    bench.heard("w4", 9)
    differs(bench, "w3", 99)
    votes = bench.site.settle_overruled()
    assert votes is not None
    assert votes.voters == {"w2", "w3"}


def test_one_that_differs_when_nobody_else_lives_does_not_overrule_the_log() -> None:
    bench = settled()
    differs(bench, "w2", 99)
    assert bench.site.settle_overruled() is None
    assert bench.worker("w2").condemned
    assert bench.orders("w2") == []
    # Whoever came to what the log says heals it on return.
    bench.heard("w1", 10)
    bench.ms += 1000
    differs(bench, "w2", 99)
    assert bench.orders("w2") == [LoadFrom(1, ("w1",), "LSN 7: another content")]


def test_a_vote_ends_with_the_copy_that_gave_it() -> None:
    bench = settled()
    bench.heard("w1", 10)
    differs(bench, "w2", 99)
    bench.heard("w2", 10, journal="a new copy")
    differs(bench, "w3", 99)
    assert bench.site.settle_overruled() is None
    assert bench.orders("w3") == [LoadFrom(1, ("w1", "w2"), "LSN 7: another content")]


def test_forgiveness_is_told_again_until_it_is_heard_and_holds_once() -> None:
    bench = settled()
    bench.heard("w1", 10)
    differs(bench, "w2", 99)
    differs(bench, "w3", 99)
    bench.site.settle_overruled()
    bench.begin_anew(6)
    bench.site.take_orders(bench.ms)
    # Given that the order to w2 was lost
    differs(bench, "w2", 99)
    assert bench.orders("w2") == [Coin(1, (), 7)]
    assert bench.site.overruled is None
    # When it follows again, it is a copy like any other
    bench.heard("w2", 6)
    assert bench.standing("w2") is Standing.ON
    # And when it differs there once more, that is a new vote.
    bench.log(10)
    differs(bench, "w2", 98)
    assert bench.worker("w2").condemned
    assert bench.orders("w2") == []


def test_without_a_majority_nothing_is_written_and_those_who_disagree_are_named() -> None:
    bench = settled()
    differs(bench, "w2", 98)
    bench.site.settle_overruled()
    differs(bench, "w3", 99)
    differs(bench, "w2", 98)
    assert bench.site.disagreement == "w2, w3 disagree about LSN 7 and no majority can be named"
    assert bench.site.read_only_reason(bench.ms) == bench.site.disagreement
    assert bench.site.attention(bench.ms) == bench.site.disagreement
    # A third one decides it.
    differs(bench, "w1", 98)
    assert bench.site.disagreement == ""
    # Nobody takes the content of another site over this.
    bench = settled(others=("w9",))
    differs(bench, "w2", 98)
    bench.site.settle_overruled()
    differs(bench, "w3", 99)
    differs(bench, "w2", 98)
    bench.site.take_orders(bench.ms)
    bench.ms += 1000
    differs(bench, "w2", 98)
    assert bench.site.take_orders(bench.ms) == []


def test_a_voter_that_was_removed_has_no_voice_and_does_no_harm() -> None:
    bench = settled()
    bench.heard("w1", 10)
    differs(bench, "w2", 98)
    bench.site.forget("w2")
    assert bench.site.disagreement == ""
    differs(bench, "w3", 99)
    assert bench.site.settle_overruled() is None
    assert bench.orders("w3") == [LoadFrom(1, ("w1",), "LSN 7: another content")]


def test_a_choice_ends_a_disagreement_and_brings_the_chosen_one_back() -> None:
    bench = settled()
    differs(bench, "w2", 98)
    bench.site.settle_overruled()
    differs(bench, "w3", 99)
    differs(bench, "w2", 98)
    bench.site.adopt(bench.worker("w3"), "chosen")
    assert bench.site.adopted == (6, content(6), 6, "chosen")
    assert bench.site.disagreement == ""
    bench.site.take_orders(bench.ms)
    bench.begin_anew(6)
    differs(bench, "w3", 99)
    assert bench.orders("w3") == [Coin(1, (), 7)]
    bench.heard("w3", 6)
    assert bench.standing("w3") is Standing.ON
    differs(bench, "w2", 98)
    assert bench.orders("w2") == []
    bench.log(10)
    bench.heard("w3", 8)
    differs(bench, "w2", 98)
    assert bench.orders("w2") == [LoadFrom(1, ("w3",), "LSN 7: another content", 6)]


# ---- a chosen copy


def test_a_chosen_copy_is_where_the_results_begin_anew() -> None:
    bench = settled(workers=("w1", "w2"))
    bench.heard("w1", 7, fingerprint=text(98))
    bench.worker("w1").trust, bench.worker("w1").condemned = Trust.CHOSEN, ""
    bench.heard("w1", 7, fingerprint=text(98))
    assert bench.site.adopted == (7, content(98), 7, "the copy of w1 was chosen")
    assert bench.worker("w1").trust is Trust.NONE


def test_a_chosen_copy_from_before_the_log_begins_cannot_be_followed() -> None:
    bench = settled(workers=("w1", "w2"))
    bench.site.history = _Trimmed(bench, first=9)
    bench.heard("w1", 7, fingerprint=text(98))
    bench.worker("w1").trust, bench.worker("w1").condemned = Trust.CHOSEN, ""
    bench.heard("w1", 7, fingerprint=text(98))
    assert bench.site.adopted is None
    assert bench.worker("w1").condemned


class _Trimmed:
    """The journal of a bench whose bodies begin later."""

    def __init__(self, bench: SiteBench, first: int) -> None:
        self._journal = bench.journal
        self._first = first

    def first_lsn(self) -> int:
        return self._first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def test_of_several_chosen_copies_the_first_decides_and_the_others_are_compared_with_it() -> None:
    bench = settled(workers=("w1", "w2"))
    for node, applied in (("w1", 7), ("w2", 8)):
        bench.heard(node, applied, fingerprint=text(98))
        bench.worker(node).trust, bench.worker(node).condemned = Trust.CHOSEN, ""
    bench.heard("w1", 7, fingerprint=text(98))
    assert bench.site.adopted is not None
    bench.site.adopted = None
    bench.heard("w2", 8, fingerprint=text(98))
    assert bench.site.adopted is None
    assert bench.worker("w2").condemned


# ---- other sites


def test_a_site_without_any_good_copy_takes_one_of_another_site() -> None:
    bench = settled(workers=("w1",), others=("w8", "w9"))
    bench.heard("w1", 10, trouble="damaged", follows="load")
    assert bench.orders("w1") == [LoadFrom(1, ("w8", "w9"), "damaged")]
    assert bench.worker("w1").trust is Trust.LOADED


@pytest.mark.parametrize("hope", ["settling", "another copy", "none"])
def test_it_does_so_only_when_there_is_no_hope_here(hope: str) -> None:
    bench = SiteBench(10, 10, ("w1", "w2"), others=("w9",))
    if hope != "settling":
        bench.settle()
    if hope == "another copy":
        bench.heard("w2", 10, follows="load", view=0)
    bench.heard("w1", 10, trouble="damaged", follows="load")
    assert [type(order) for order in bench.orders("w1")] == ([LoadFrom] if hope == "none" else [])


def test_a_copy_of_another_site_that_the_log_knows_is_on() -> None:
    bench = settled(workers=("w1",), others=("w9",))
    bench.heard("w1", 10, trouble="damaged", follows="load")
    assert not bench.site.took_elsewhere
    bench.heard("w1", 9, journal="a new copy")
    assert bench.standing("w1") is Standing.ON
    assert bench.worker("w1").trust is Trust.NONE
    # And what this site had executed of its own is not in it
    assert bench.site.took_elsewhere


@pytest.mark.parametrize("has_own_content", [True, False])
def test_a_copy_of_another_site_with_other_content_is_taken_where_each_site_has_its_own(has_own_content: bool) -> None:
    # Given a site that lost its only copy, and the copy of a site that came to something else
    bench = settled(workers=("w1",), others=("w9",))
    bench.site.has_own_content = has_own_content
    bench.heard("w1", 10, trouble="damaged", follows="idle")
    bench.heard("w1", 10, journal="a new copy", fingerprint=text(98))
    # Then the results here begin anew from it, as nobody has what they led to; where all are to be equal it is replaced again
    assert (bench.site.adopted is not None) == has_own_content == bench.site.took_elsewhere
    if bench.site.adopted is not None:
        assert bench.site.adopted[3] == "the content here is lost, and the copy of w1 is that of another site"
    assert bool(bench.worker("w1").condemned) != has_own_content


def test_not_while_another_copy_here_holds_what_the_log_says() -> None:
    bench = settled(workers=("w1", "w2"), others=("w9",))
    bench.site.has_own_content = True
    bench.heard("w2", 10)
    bench.worker("w1").trust = Trust.LOADED
    bench.heard("w1", 10, journal="a new copy", fingerprint=text(98))
    assert bench.site.adopted is None
    assert bench.worker("w1").condemned


def test_a_load_that_this_master_does_not_know_is_stopped_where_each_site_has_its_own_content() -> None:
    # Given a master that has begun anew, and a worker that loads from a source that the one before named
    bench = settled(workers=("w1", "w2"), others=("w9",))
    bench.site.has_own_content = True
    bench.heard("w2", 10)
    bench.heard("w1", 5, trouble="damaged", follows="load", total_bytes=7)
    assert [type(order) for order in bench.orders("w1")] == [Idle]
    # Then it loads from a copy of its own site
    bench.heard("w1", 5, trouble="damaged", follows="idle")
    assert bench.orders("w1") == [LoadFrom(1, ("w2",), "damaged")]


@pytest.mark.parametrize("has_own_content", [True, False])
def test_what_was_loaded_from_elsewhere_is_replaced_when_a_copy_of_the_own_site_has_come_back(has_own_content: bool) -> None:
    # Given a worker that loads from another site, as nobody else is heard here
    bench = settled(lsn=20, executed=10, workers=("w1", "w2"), others=("w9",))
    bench.site.has_own_content = has_own_content
    bench.heard("w1", 5, trouble="damaged", follows="idle")
    assert bench.orders("w1") == [LoadFrom(1, ("w9",), "damaged")]
    # When the other worker comes back, with the content of this site, before that load is through
    bench.heard("w2", 10)
    bench.heard("w1", 5, trouble="damaged", follows="load", total_bytes=7)
    bench.heard("w1", 15, journal="a new copy", fingerprint=text(98))
    # Then a copy ahead of the results here is good where all sites hold the same, and only there
    assert bool(bench.worker("w1").condemned) == has_own_content
    if has_own_content:
        assert bench.orders("w1")[-1] == LoadFrom(1, ("w2",), "it holds the content of another site, and this one has its own")


def test_the_chosen_copy_of_an_own_worker_is_not_from_elsewhere() -> None:
    bench = settled()
    differs(bench, "w2", 98)
    bench.site.settle_overruled()
    bench.worker("w2").trust = Trust.CHOSEN
    differs(bench, "w2", 98)
    assert not bench.site.took_elsewhere


def test_a_copy_of_another_site_beyond_the_log_waits_for_it() -> None:
    bench = settled(workers=("w1",), others=("w9",))
    bench.heard("w1", 10, trouble="damaged", follows="load")
    bench.orders("w1")
    bench.heard("w1", 12, journal="a new copy")
    assert bench.standing("w1") is Standing.OUT_OF_SYNC
    assert bench.worker("w1").reason == "waits until the log has LSN 12"
    assert bench.orders("w1") == []


def ahead(**settings: Any) -> SiteBench:
    """A site whose only worker took the copy of another site, which is ahead of the results here."""
    bench = settled(lsn=20, executed=10, workers=("w1",), others=("w8", "w9"), **settings)
    bench.heard("w1", 10, trouble="damaged", follows="load")
    bench.sent()
    bench.heard("w1", 15, journal="a new copy")
    return bench


def test_results_that_a_copy_of_another_site_is_ahead_of_are_fetched() -> None:
    bench = ahead()
    assert bench.worker("w1").reason == "waits for the results up to LSN 15"
    assert bench.sent()["w8"] == [Request(11, 15)]
    outcomes = bench.feed.on_lines("w8", lines(11, 13), bench.ms)
    assert outcomes is not None
    assert (outcomes.first_lsn, len(outcomes.results), outcomes.items) == (11, 3, 0)
    # The rest is asked for at once; what is known by then is skipped.
    assert bench.sent()["w8"] == [Request(14, 15)]
    assert bench.feed.on_lines("w8", lines(12, 15), bench.ms) is not None
    bench.feed.executed = 15
    assert "w8" not in bench.sent()
    assert bench.site.filling is None


def test_results_beyond_the_end_of_the_log_are_asked_for_when_it_has_come_so_far() -> None:
    # Given a copy that is ahead of the results, and of the log, of a master that may have been taken out for good
    bench = ahead()
    bench.sent()
    assert bench.feed.on_lines("w8", lines(11, 15), bench.ms) is not None
    bench.site.filling = None
    bench.feed.executed = 20
    bench.heard("w1", 22, journal="another copy")
    bench.site.fill(bench.worker("w1"), 22)
    # Then nobody is asked, however much time passes
    for _ in range(3):
        bench.ms += bench.feed.config.order_ms
        assert "w8" not in bench.sent()
    # When the log has that place, then somebody is
    bench.synchronise(2)
    assert bench.sent()["w8"] == [Request(21, 22)]


def test_lines_that_nobody_asked_for_or_that_are_of_another_log_are_dropped() -> None:
    bench = ahead()
    bench.sent()
    assert bench.feed.on_lines("w9", lines(11, 12), bench.ms) is None
    assert bench.feed.on_lines("w8", lines(12, 13), bench.ms) is None
    assert bench.feed.on_lines("w8", Apply(11, ()), bench.ms) is None
    assert bench.feed.on_lines("w8", Apply(11, lines(12, 13).items), bench.ms) is None
    assert bench.feed.executed == 10
    assert settled().feed.on_lines("w8", lines(11, 12), 0) is None


def test_every_source_of_missing_results_is_asked_and_then_there_is_a_pause() -> None:
    bench = ahead(order_ms=1000)
    asked = []
    for _ in range(3):
        asked += [node for node, messages in bench.sent().items() if Request(11, 15) in messages]
        bench.feed.on_lines_missing(asked[-1], RangeMissing(11, 15, 20))
    assert asked == ["w8", "w9", "w1"]
    assert not any(Request(11, 15) in messages for messages in bench.sent().values())
    bench.ms += 1000
    assert bench.sent()["w8"] == [Request(11, 15)]
    # Whoever is silent is left for the next one after that time; others are not believed.
    bench.feed.on_lines_missing("w1", RangeMissing(11, 15, 20))
    bench.ms += 1000
    assert bench.sent()["w9"] == [Request(11, 15)]


def test_where_nobody_has_the_results_any_more_they_begin_anew_from_the_copy_that_is_chosen() -> None:
    bench = ahead(order_ms=1000)
    bench.worker("w1").trust = Trust.CHOSEN
    for _ in range(3):
        [asked] = [node for node, messages in bench.sent().items() if Request(11, 15) in messages]
        assert bench.site.adopted is None
        bench.feed.on_lines_missing(asked, RangeMissing(11, 15, 20))
        bench.heard("w1", 15, journal="a new copy")
    assert bench.site.adopted == (15, content(15), 15, "the copy of w1 was chosen")


def test_where_nobody_has_the_results_any_more_their_site_waits_and_says_so() -> None:
    bench = ahead(order_ms=1000)
    bench.sent()
    for node in ("w8", "w9", "w1"):
        bench.feed.on_lines_missing(node, RangeMissing(11, 15, 20))
    bench.heard("w1", 15, journal="a new copy")
    assert bench.site.adopted is None
    assert bench.worker("w1").reason == "waits for the results up to LSN 15"
    assert bench.site.attention(bench.ms) == "nobody has the results after LSN 10 any more, which lead to the copy of w1"


def test_as_long_as_somebody_may_have_them_they_are_waited_for() -> None:
    bench = ahead(order_ms=1000)
    bench.worker("w1").trust = Trust.CHOSEN
    for node, first in (("w8", 11), ("w9", 11), ("w1", 12)):
        bench.sent()
        bench.feed.on_lines_missing(node, RangeMissing(first, 15, 20))
    bench.heard("w1", 15, journal="a new copy")
    assert bench.site.adopted is None
    # One gives some, and so all are asked for the rest.
    bench.sent()
    assert bench.site.filling is not None
    assert bench.feed.on_lines(bench.site.filling.source, lines(11, 11), bench.ms) is not None
    bench.feed.on_lines_missing("w1", RangeMissing(12, 15, 20))
    bench.heard("w1", 15, journal="a new copy")
    assert bench.site.adopted is None


def test_a_probe_that_does_not_know_its_own_results_has_them_fetched() -> None:
    bench = settled(lsn=12, executed=10, workers=("w1", "w2"))
    bench.heard("w1", 12)
    bench.feed.on_lines_missing("w2", RangeMissing(11, 12, 0))
    assert bench.site.filling is None
    bench.feed.on_lines_missing("w1", RangeMissing(11, 12, 0))
    assert Request(11, 12) in bench.sent()["w2"]
    due = bench.feed.deadline_ms(bench.ms)
    assert due is not None
    assert due <= bench.ms + bench.config.order_ms


# ---- repair


def test_a_site_that_takes_the_content_of_another_one_begins_anew_from_the_first_copy_of_it() -> None:
    bench = settled(workers=("w1", "w2"), others=("w9",))
    bench.site.repair_sources = ("w9",)
    for node in ("w1", "w2"):
        bench.heard(node, 10)
        bench.worker(node).condemned, bench.worker(node).standing = "repair", Standing.OUT_OF_SYNC
    bench.heard("w1", 10)
    assert bench.orders("w1") == [LoadFrom(1, ("w9",), "repair")]
    assert bench.worker("w1").trust is Trust.CHOSEN
    bench.heard("w1", 8, journal="a new copy", fingerprint=text(98))
    assert bench.site.adopted == (8, content(98), 8, "the copy of w1 was chosen")
    assert not bench.site.repair_sources


def test_without_sources_a_follower_is_told_to_stop_and_one_that_loads_is_not() -> None:
    bench = settled(workers=("w1", "w2"))
    bench.heard("w1", 10, trouble="damaged", follows="load")
    bench.heard("w2", 10, trouble="damaged")
    assert bench.orders("w1") == []
    bench.heard("w2", 10, trouble="damaged")
    assert bench.worker("w2").order == "Idle"
    assert Idle(1, "damaged").reason == bench.worker("w2").reason
