"""Masters that are added to a cluster and taken out of it while it runs (rule R15).

Under load, and with deaths at each step: tests/simulation/test_scenarios_of_members.py.
"""

from __future__ import annotations

import pytest

from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.wire.messages import Post
from brokerha.sync.membership import DONE, FAILED, PATIENCE_MS, UNDER_WAY
from tests.unit.sync.epoch_table import LAG_MS, STEP_MS
from tests.unit.sync.member_table import MemberTable, between, without

# ---- add


def test_what_a_master_took_in_before_it_was_one_is_synchronised_then() -> None:
    table = MemberTable()
    table.newcomer("m4")
    table.write("m4", "early")
    table.live(2 * LAG_MS)
    assert table.queue("m1") == []
    table.add("m2", "m4")
    table.live(3 * LAG_MS)
    assert table.queue("m1") == ["early"]


@pytest.mark.parametrize("masters", [1, 2])
def test_a_small_cluster_grows(masters: int) -> None:
    table = MemberTable(masters)
    table.make_queue("a")
    for node in [f"m{n}" for n in range(masters + 1, 6)]:
        table.newcomer(node)
        wish = table.add("m1", node)
        table.live(4 * LAG_MS)
        assert wish.state == DONE, wish.stage
        table.write(node, f"of-{node}")
        table.live(LAG_MS)
    assert table.masters("m5") == ("m1", "m2", "m3", "m4", "m5")
    assert len({tuple(table.queue(name)) for name in table.cores}) == 1
    assert len(table.queue("m5")) == 6 - masters


def test_a_master_is_added_in_a_later_epoch_too_and_after_restarts_all_know_it() -> None:
    table = MemberTable()
    table.live(3 * LAG_MS, without("m3"))
    table.newcomer("m4")
    table.add("m1", "m4")
    table.live(4 * LAG_MS, without("m3"))
    assert table.masters("m4") == ("m1", "m2", "m3", "m4")
    table.live(4 * LAG_MS)
    for name in tuple(table.cores):
        table.restart(name)
    table.write("m4", "x")
    table.live(3 * LAG_MS)
    assert {table.masters(name) for name in table.cores} == {("m1", "m2", "m3", "m4")}
    assert {tuple(table.queue(name)) for name in table.cores} == {("x",)}


def test_one_that_cannot_be_taken_out_in_time_says_what_it_waited_for() -> None:
    table = MemberTable()
    wish = table.remove("m1", "m3")
    table.live(LAG_MS, without("m2", "m3"))
    wish.moved_ms -= PATIENCE_MS
    table.live(STEP_MS, without("m2", "m3"))
    assert (wish.state, wish.stage) == (FAILED, "2 of 3 masters are needed, not heard: m2, m3")


def test_one_that_is_not_started_is_not_added_and_nobody_waits_for_it() -> None:
    table = MemberTable()
    wish = table.add("m1", "m4")
    table.write("m2", "a")
    table.live(PATIENCE_MS + LAG_MS)
    assert (wish.state, table.masters("m1")) == (FAILED, ("m1", "m2", "m3"))
    assert "m4 is not heard" in wish.stage
    assert table.cores["m1"].epoch.id == (1, "")
    assert table.queue("m3") == ["a"]


def test_the_wish_is_idempotent_and_there_is_one_at_a_time() -> None:
    table = MemberTable()
    wish = table.add("m1", "m4")
    assert table.add("m1", "m4") is wish
    with pytest.raises(NotReady, match="add m4 is under way"):
        table.remove("m1", "m3")
    assert table.add("m1", "m2").state == DONE
    assert table.remove("m2", "m9").state == DONE


def test_by_force_one_wish_goes_before_another_that_waits_for_a_majority() -> None:
    # Given m4 that is added while both others die, so that the change is never established
    table = MemberTable()
    table.newcomer("m4")
    adding = table.add("m1", "m4")
    table.live_until(lambda: adding.is_decided)
    for node in ("m2", "m3", "m4"):
        table.crash(node)
    table.live(2 * LAG_MS)
    assert adding.state == UNDER_WAY
    with pytest.raises(NotReady, match="one at a time"):
        table.remove("m1", "m2")
    # When an operator forces the others out, one after the other
    for node in ("m2", "m3", "m4"):
        wish = table.remove("m1", node, is_forced=True)
        table.live(4 * LAG_MS)
        assert wish.state == DONE, wish.stage
    # Then the first wish has failed, with the reason, and m1 goes on
    assert (adding.state, adding.stage) == (FAILED, "remove m2 was forced meanwhile")
    table.write("m1", "a")
    table.live(LAG_MS)
    assert (table.masters("m1"), table.queue("m1")) == (("m1",), ["a"])


def test_no_master_takes_itself_out() -> None:
    with pytest.raises(InvalidRequest, match="ask another master"):
        MemberTable().remove("m1", "m1")


def test_masters_are_not_changed_in_other_modes() -> None:
    table = MemberTable(split_recovery="simple")
    with pytest.raises(InvalidRequest, match="quorum"):
        table.add("m1", "m4")


# ---- remove


def test_whom_a_removed_master_proposes_to_does_not_listen() -> None:
    table = MemberTable()
    table.remove("m1", "m3")
    table.live(3 * LAG_MS, without("m3"))
    epoch = table.cores["m2"].epoch.id
    table.prepare("m2", (99, "m3"))
    assert table.cores["m2"].epoch.id == epoch
    assert not table.is_frozen("m2")


def test_five_shrink_to_one_step_by_step() -> None:
    table = MemberTable(5)
    table.make_queue("a")
    for node in ("m5", "m4", "m3", "m2"):
        wish = table.remove("m1", node)
        table.live(4 * LAG_MS)
        assert wish.state == DONE, wish.stage
        table.write("m1", f"without-{node}")
        table.live(LAG_MS)
    assert table.masters("m1") == ("m1",)
    assert table.queue("m1") == ["a", *(f"without-{node}" for node in ("m5", "m4", "m3", "m2"))]


def test_a_change_that_would_leave_no_majority_is_not_begun() -> None:
    # Given m2 away: m1 and m3 are a majority of three, m1 alone would be none of m1 and m2
    table = MemberTable()
    wish = table.remove("m1", "m3")
    table.live(3 * LAG_MS, without("m2"))
    assert (wish.state, table.masters("m1")) == (UNDER_WAY, ("m1", "m2", "m3"))
    assert "not heard: m2" in wish.stage
    table.write("m1", "goes on")
    table.live(LAG_MS, without("m2"))
    assert table.queue("m3") == ["goes on"]


def test_by_force_the_last_one_goes_on_alone() -> None:
    # Given two of three that never come back
    table = MemberTable()
    table.make_queue("a")
    table.crash("m2")
    table.crash("m3")
    table.live(2 * LAG_MS)
    for node in ("m2", "m3"):
        wish = table.remove("m1", node, is_forced=True)
        table.live(2 * LAG_MS)
        assert wish.state in (DONE, UNDER_WAY), wish.stage
    table.write("m1", "b")
    table.live(LAG_MS)
    assert table.masters("m1") == ("m1",)
    assert table.queue("m1") == ["a", "b"]


# ---- a master whose disk was emptied


def test_an_emptied_master_comes_back_when_it_was_taken_out_and_added_again() -> None:
    # Given a master that wrote, and lost its disk
    table = MemberTable()
    table.make_queue("a")
    table.write("m3", "of-m3")
    table.live(LAG_MS)
    table.empty_disk("m3")
    table.live(3 * LAG_MS)
    assert "m3" in table.cores["m3"].lost
    # When it is taken out, and added
    wish = table.remove("m1", "m3")
    table.live(3 * LAG_MS)
    assert wish.state == DONE, wish.stage
    wish = table.add("m1", "m3")
    table.live(4 * LAG_MS)
    # Then it has everything again, writes, and its old disk stays out
    assert wish.state == DONE, wish.stage
    table.write("m3", "again")
    table.live(LAG_MS)
    assert {tuple(table.queue(name)) for name in table.cores} == {("a", "of-m3", "again")}
    table.old_disk("m3")
    table.live(3 * LAG_MS)
    assert table.cores["m3"].retired
    assert table.masters("m1") == ("m1", "m2", "m3")


# ---- one step at a time


def test_who_slept_through_two_changes_finds_no_majority_of_the_first() -> None:
    # Given m1 m2 m3 that become m1 m2 m3 m4 while only m2 and m4 are told so
    table = MemberTable()
    table.newcomer("m4")
    table.newcomer("m5")
    table.add("m2", "m4")
    table.live(3 * LAG_MS, between("m2", "m4"))
    # When m5 is to be added as well by those two
    with pytest.raises(NotReady):
        table.add("m2", "m5")
    table.live(3 * LAG_MS, between("m2", "m4", "m5"))
    # Then no epoch came of either, because they are no majority of the three
    assert table.masters("m2") == ("m1", "m2", "m3")


def test_the_next_change_waits_until_a_majority_before_the_last_one_knows_of_it() -> None:
    # Given an epoch with m4 that m1 and m3 have promised and never installed
    table = MemberTable()
    table.make_queue("a")
    table.newcomer("m4")
    table.newcomer("m5")
    table.add("m2", "m4")
    table.live_until(lambda: table.cores["m2"].decided is not None or "m4" in table.masters("m2"))
    table.mail.clear()
    told = between("m2", "m4")
    table.live(600, told)
    assert table.masters("m2") == ("m1", "m2", "m3", "m4")
    # When m5 is to come, too, while the others are away
    wish = table.wish_again("m2", "m5")
    table.live(2 * LAG_MS, between("m2", "m4", "m5"))
    # Then it waits, and m1 and m3 find each other in the old configuration without a contradiction
    assert table.masters("m2") == ("m1", "m2", "m3", "m4")
    assert "not established" in wish.stage
    table.write("m1", "b")
    table.live(6 * LAG_MS, between("m1", "m3"))
    table.live(8 * LAG_MS)
    assert len({tuple(table.queue(name)) for name in ("m1", "m2", "m3")}) == 1


# ---- where any side of a split may go on


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
def test_where_any_side_goes_on_masters_change_through_quorum_while_all_is_used(mode: str) -> None:
    # Given masters of which any side may go on
    table = MemberTable(2, split_recovery=mode)
    table.make_queue("a")
    table.settings["split_recovery"] = "quorum"  # the file of the one to come
    table.newcomer("m3")
    with pytest.raises(
        InvalidRequest, match=f"first brokerha split-recovery quorum, and afterwards brokerha split-recovery {mode}"
    ):
        table.add("m1", "m3")
    # When they are told quorum, to take one in, and to be as before
    table.choose("m1", "quorum")
    table.live(3 * LAG_MS)
    wish = table.add("m1", "m3")
    table.live(4 * LAG_MS)
    assert wish.state == DONE
    table.choose("m2", mode)
    table.live(3 * LAG_MS)
    # Then all three follow it, the new one whatever its file says
    assert {core.mode for core in table.cores.values()} == {mode}
    table.live(6 * LAG_MS, without("m3"))
    table.write("m3", "z")
    table.write("m1", "b")
    table.live(LAG_MS, without("m3"))
    assert (table.queue("m3"), table.queue("m2")) == (["a", "z"], ["a", "b"])
    table.live(8 * LAG_MS)
    assert [sorted(table.queue(name)) for name in table.cores] == [["a", "b", "z"]] * 3


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
@pytest.mark.parametrize("masters", [2, 3])
def test_one_that_is_gone_for_good_is_taken_out_by_all_the_others(mode: str, masters: int) -> None:
    # Given masters that went on without one
    table = MemberTable(masters, split_recovery=mode)
    table.make_queue("a")
    last = f"m{masters}"
    with pytest.raises(InvalidRequest, match="only one that is not heard is taken out without"):
        table.remove("m1", last)
    table.live(6 * LAG_MS, without(last))
    # When it is taken out
    wish = table.remove("m1", last)
    table.write(last, "alone")
    table.live(2 * LAG_MS, without(last))
    # Then the others are whole, and can choose what they like
    assert (wish.state, table.cores["m1"].is_whole()) == (DONE, True)
    choice = table.choose("m1", "quorum")
    table.live(3 * LAG_MS, without(last))
    assert (choice.state, table.masters("m1")) == (DONE, tuple(f"m{n}" for n in range(1, masters)))
    # And it is told when it is there again
    table.live(4 * LAG_MS)
    assert "was taken out" in table.cores[last].retired
    assert table.queue("m1") == ["a"]
    # And posts no more
    posts = len(table.messages(Post, last))
    table.live(LAG_MS)
    assert len(table.messages(Post, last)) == posts


def test_one_of_several_that_are_away_is_not_taken_out() -> None:
    table = MemberTable(4, split_recovery="smart")
    table.live(6 * LAG_MS, without("m3", "m4"))
    wish = table.remove("m1", "m4")
    table.live(2 * LAG_MS, without("m3", "m4"))
    assert (wish.state, wish.stage) == (UNDER_WAY, "all other masters are needed, not heard: m3")
    table.live(8 * LAG_MS, without("m4"))
    assert (wish.state, table.masters("m3")) == (DONE, ("m1", "m2", "m3"))
