"""What comes in between while masters are added and taken out: two wishes at once, rival epochs, who is out or not in yet (rule R15)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from brokerha.model.epochs import FIRST, NO_CHANGE, REMOVE, Change, Configuration
from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import NodeId
from brokerha.model.records import EpochInstalled
from brokerha.model.wire.epoch_messages import EpochInstall, EpochReport, Join, Notice
from brokerha.model.wire.messages import Bodies, Outgoing, Post
from brokerha.sync.membership import DONE, UNDER_WAY, Membership
from tests.unit.paper.masters import with_row
from tests.unit.sync.epoch_table import LAG_MS, STEP_MS
from tests.unit.sync.member_table import MemberTable, between, without
from tests.unit.sync.reports import report

UNWRITTEN, UNSENT = "before it is written", "before anything is sent"


class TrapTable(MemberTable):
    """Masters of which one dies at a point, once."""

    def __init__(self, masters: int = 3, **settings: object) -> None:
        self.trap: tuple[NodeId, str, type] | None = None
        """Who dies, at which point, and what is at hand then."""
        self.died: list[NodeId] = []
        super().__init__(masters, **settings)

    def round(self, *names: NodeId) -> None:
        for name in names or tuple(self.cores):
            if name not in self.cores:
                continue
            result = self.cores[name].collect(self.instant(name))
            at_hand = [*result.records, *(out.message for out in result.messages)]
            victim, point, kind = self.trap or ("", "", type(None))
            dies = name == victim and any(isinstance(each, kind) for each in at_hand)
            if result.records and not (dies and point == UNWRITTEN):
                self.journals[name].append(result.records)
            if dies:
                self.trap = None
                self.died.append(name)
                self.crash(name)
                continue
            letters = [(name, out) for out in result.messages if out.to in self.cores]
            self.mail.extend(letters)
            self.sent.extend(letters)

    def is_told_again(self, at: NodeId, node: NodeId) -> bool:
        """An operator tells a master to add one, again; whether that was of use."""
        with suppress(BrokerhaError):
            self.add(at, node)
            return True
        return False


class TestTwoWishes:
    def test_two_masters_with_different_wishes_get_both(self) -> None:
        # Given a newcomer, and five masters of which two are told different things in the same moment
        table = MemberTable(5)
        table.make_queue("a")
        table.newcomer("m6")
        added, removed = table.add("m1", "m6"), table.remove("m2", "m5")
        table.live(10 * LAG_MS)
        # Then both come to pass, one after the other
        assert (added.state, removed.state) == (DONE, DONE)
        assert {table.masters(n) for n in ("m1", "m2", "m3", "m4", "m6")} == {("m1", "m2", "m3", "m4", "m6")}

    def test_two_masters_that_take_each_other_out(self) -> None:
        table = MemberTable()
        table.make_queue("a")
        table.remove("m1", "m2")
        table.remove("m2", "m1")
        table.live(10 * LAG_MS)
        # Then one of them is out, and the other goes on with m3
        masters = table.masters("m3")
        assert masters in {("m1", "m3"), ("m2", "m3")}
        table.write("m3", "b")
        table.live(LAG_MS)
        assert {tuple(table.queue(name)) for name in masters} == {("a", "b")}

    def test_two_masters_that_add_the_same_one(self) -> None:
        table = MemberTable()
        table.newcomer("m4")
        wishes = [table.add(node, "m4") for node in ("m1", "m2", "m3")]
        table.live(6 * LAG_MS)
        assert [wish.state for wish in wishes] == [DONE] * 3
        assert {table.masters(name) for name in table.cores} == {("m1", "m2", "m3", "m4")}

    def test_who_is_excluded_is_taken_back_beside_one_that_is_added(self) -> None:
        # Given m3 left out, and m4 to be added
        table = MemberTable()
        table.make_queue("a")
        table.live(3 * LAG_MS, without("m3"))
        assert table.members("m1") == ("m1", "m2")
        table.newcomer("m4")
        wish = table.add("m2", "m4")
        table.write("m1", "b")
        # When m3 is heard again
        table.live(8 * LAG_MS)
        # Then all four are members
        assert wish.state == DONE
        assert {table.members(name) for name in table.cores} == {("m1", "m2", "m3", "m4")}
        assert {tuple(table.queue(name)) for name in table.cores} == {("a", "b")}

    def test_a_wish_to_take_out_a_master_is_over_when_it_came_back_with_another_journal(self) -> None:
        # Given that m1 and m2 are told to take m3 out, whose disk was emptied, and that m2 hears of nothing
        table = MemberTable(5)
        table.make_queue("a")
        table.empty_disk("m3")
        table.live(LAG_MS)
        wish = table.remove("m2", "m3")
        table.remove("m1", "m3")
        table.live(4 * LAG_MS, without("m2"))
        table.add("m1", "m3")
        table.live(6 * LAG_MS, without("m2"))
        assert table.masters("m1") == ("m1", "m2", "m3", "m4", "m5")
        # When m2 is heard again, then the new m3 stays
        table.live(10 * LAG_MS)
        assert wish.state == DONE
        assert {table.masters(name) for name in table.cores} == {("m1", "m2", "m3", "m4", "m5")}


class TestProposers:
    def test_one_that_is_to_go_proposes_and_goes_all_the_same(self) -> None:
        # Given m3 in the middle of proposing an epoch
        table = MemberTable()
        table.make_queue("a")
        table.attempt("m3")
        table.deliver(lambda _sender, out: out.to == "m2")
        # When m1 is told to take it out
        wish = table.remove("m1", "m3")
        table.live(8 * LAG_MS)
        assert wish.state == DONE, wish.stage
        assert table.masters("m1") == table.masters("m2") == ("m1", "m2")
        assert table.cores["m3"].retired

    def test_a_proposer_that_meets_a_later_configuration_makes_no_change(self) -> None:
        # Given a change that was meant for three masters which were so for long
        meant = Configuration(("m1", "m2", "m3"), journals={"m3": "j3"})
        change = Change(REMOVE, "m3", "j3")
        reports = {"m1": report("m1")}
        assert Membership.allowed(change, meant, meant, reports) == change
        # Then it is not made where these three are masters since a moment ago, whether others know of that or not
        young = replace(meant, before=("m1", "m2", "m3", "m4"))
        assert Membership.allowed(change, young, meant, reports) == NO_CHANGE
        other_disk = replace(meant, journals={"m3": "another"})
        assert Membership.allowed(change, other_disk, meant, reports) == NO_CHANGE


class TestWhoIsOut:
    def test_one_that_died_after_its_promise_tells_all_that_it_accepted_before_it_goes(self) -> None:
        # Given m2, frozen, with a transaction that it has accepted and not stamped
        table = TrapTable(2)
        table.make_queue("a")
        table.prepare("m2", (1, "m1"))
        table.write("m2", "own")
        table.round("m2")
        # When it is to go, has its promise on the disk, and dies before it tells what it has
        table.trap = "m2", UNSENT, EpochReport
        wish = table.remove("m1", "m2")
        table.live_until(lambda: table.died == ["m2"])
        table.start("m2")
        table.live(6 * LAG_MS)
        # Then it is out, and what it had accepted is in the queue
        assert wish.state == DONE, wish.stage
        assert (table.masters("m1"), table.queue("m1")) == (("m1",), ["a", "own"])

    def test_what_a_retired_one_says_changes_nothing(self) -> None:
        # Given m3 taken out, which has not heard of it
        table = MemberTable()
        table.make_queue("a")
        table.remove("m1", "m3")
        table.live(4 * LAG_MS, without("m3"))
        before = {name: table.cores[name].epoch for name in ("m1", "m2")}
        # When it writes, proposes and wants to be taken back
        table.write("m3", "late")
        table.attempt("m3")
        row = table.cores["m3"].own_row(table.instant("m3"))
        for name in ("m1", "m2"):
            table.tell(name, Join(table.cores[name].incarnation, 1, row), "m3")
            table.tell(name, EpochInstall(table.first()), "m3")
        table.deliver()
        table.live(4 * LAG_MS)
        # Then nobody listens, and it is told
        assert {name: table.cores[name].epoch for name in ("m1", "m2")} == before
        assert table.queue("m1") == ["a"]
        assert "taken out" in table.cores["m3"].retired

    def test_what_an_epoch_names_is_believed_by_a_joiner_that_has_died(self) -> None:
        # Given m4 that is named by an epoch and died before it knew
        table = TrapTable()
        table.make_queue("a")
        table.newcomer("m4")
        table.trap = "m4", UNSENT, EpochReport
        table.add("m1", "m4")
        table.live(3 * LAG_MS)
        assert table.died == ["m4"]
        table.start("m4")
        table.trap = "m4", UNWRITTEN, EpochInstalled
        table.live_until(lambda: len(table.died) == 2 or not table.is_told_again("m1", "m4"))
        assert "m4" in table.masters("m1")
        # When it is back, and one of the three is away for good
        table.start("m4")
        table.crash("m3")
        table.live(10 * LAG_MS)
        # Then it takes part, as nobody could do without it
        assert table.members("m1") == ("m1", "m2", "m4")
        table.write("m4", "b")
        table.live(LAG_MS)
        assert table.queue("m1") == ["a", "b"]


class TestJoiners:
    def test_a_joiner_installs_no_first_epoch_of_another_one_that_waits(self) -> None:
        # Given m4 and m5 that wait to be added, each with the other one in its file
        table = MemberTable()
        table.newcomer("m4")
        table.newcomer("m5")
        table.add("m1", "m4")
        table.live_until(table.cores["m4"].is_joiner)
        # When m5, which takes itself for a founder, tells m4 of the first epoch
        table.tell("m4", EpochInstall(table.first()), "m5")
        table.round("m4")
        # Then m4 goes on to join
        assert table.cores["m4"].is_joiner()
        table.live(4 * LAG_MS)
        assert table.masters("m4") == ("m1", "m2", "m3", "m4")

    def test_one_that_has_promised_and_died_may_still_be_added(self) -> None:
        # Given a joiner that promised to m1, which then died
        table = TrapTable()
        table.make_queue("a")
        table.newcomer("m4")
        table.trap = "m4", UNSENT, EpochReport
        table.add("m1", "m4")
        table.live_until(lambda: table.died == ["m4"])
        table.crash("m1")
        table.live(4 * LAG_MS)
        assert table.masters("m2") == ("m1", "m2", "m3")
        # When it is started again, and m2 is told to add it
        table.start("m4")
        assert table.cores["m4"].promised > FIRST
        wish = table.add("m2", "m4")
        table.live(6 * LAG_MS)
        assert wish.state == DONE, wish.stage
        table.start("m1")
        table.live(4 * LAG_MS)
        assert {(table.masters(name), table.members(name)) for name in table.cores} == {(("m1", "m2", "m3", "m4"),) * 2}
        assert {tuple(table.queue(name)) for name in table.cores} == {("a",)}

    def test_it_believes_masters_that_were_emptied_since_it_heard_of_them(self) -> None:
        # Given m4 that waits, and has heard of m2 before its disk was emptied and it was replaced
        table = MemberTable()
        table.make_queue("a")
        table.newcomer("m4")
        table.add("m1", "m4")
        table.live_until(table.cores["m4"].is_joiner)
        table.tell("m4", with_row(table.posts("m2", "m1")[-1]), "m2")
        table.live(LAG_MS, without("m4"))
        table.empty_disk("m2")
        table.remove("m3", "m2")
        table.live(4 * LAG_MS, without("m4"))
        table.add("m3", "m2")
        table.live(4 * LAG_MS, without("m4"))
        assert table.masters("m3") == ("m1", "m2", "m3")
        # When only that one is told to add it, then it is
        table.live(4 * LAG_MS, lambda sender, out: {sender, out.to} != {"m4", "m1"} and {sender, out.to} != {"m4", "m3"})
        wish = table.add("m2", "m4")
        table.live(4 * LAG_MS)
        assert wish.state == DONE, wish.stage

    def test_its_bodies_are_lost_on_the_way_and_come_later(self) -> None:
        table = MemberTable()
        table.make_queue(*(f"a{n}" for n in range(30)))
        table.newcomer("m4")
        table.add("m1", "m4")

        def no_bodies(_sender: str, out: Outgoing) -> bool:
            return not (isinstance(out.message, Bodies) and out.to == "m4")

        table.live(4 * LAG_MS, no_bodies)
        assert "m4" not in table.masters("m1")
        table.write("m1", "b")
        table.live(STEP_MS * 20)
        table.live(4 * LAG_MS)
        assert table.masters("m1") == ("m1", "m2", "m3", "m4")
        assert len(table.queue("m4")) == 31


def test_a_change_is_not_done_before_a_majority_is_in_its_epoch() -> None:
    # Given an epoch of m1 to m4 that of the three before only m1 has installed
    table = MemberTable()
    table.make_queue("a")
    table.newcomer("m4")
    wish = table.add("m1", "m4")
    table.live_until(lambda: "m4" in table.masters("m1"))
    table.mail.clear()
    # When the other two do not hear of it and go on
    table.live(12 * LAG_MS, between("m2", "m3"))
    assert table.masters("m2") == ("m1", "m2", "m3")
    # Then nobody was told that it is done; and it comes to pass at last
    assert wish.state == UNDER_WAY
    table.live(12 * LAG_MS)
    assert wish.state == DONE, wish.stage
    assert {table.masters(name) for name in table.cores} == {("m1", "m2", "m3", "m4")}


def test_who_alone_took_a_master_out_comes_back_through_that_one_when_no_other_is_left() -> None:
    # Given an epoch without m3 that only m1 has installed, instead of which m2 and m3 decided another one
    table = MemberTable()
    table.make_queue("a")
    table.remove("m1", "m3")
    table.live_until(lambda: "m3" not in table.masters("m1"))
    table.mail.clear()
    table.live(12 * LAG_MS, between("m2", "m3"))
    assert table.masters("m3") == ("m1", "m2", "m3")
    table.write("m3", "b")
    # When only m1 and m3 are left
    table.live(12 * LAG_MS, between("m1", "m3"))
    # Then they go on, and m3 is not out
    assert not table.cores["m3"].retired
    assert table.members("m1") == table.members("m3") == ("m1", "m3")
    assert table.queue("m1") == table.queue("m3") == ["a", "b"]


def test_who_was_taken_out_by_a_majority_is_out_whatever_epoch_it_says_it_is_in() -> None:
    # Given m3 that was taken out, and was not told
    table = MemberTable()
    table.make_queue("a")
    table.remove("m1", "m3")
    table.live(6 * LAG_MS, without("m3"))
    assert table.masters("m1") == ("m1", "m2")
    # When a post of it comes that names a later epoch
    core, before = table.cores["m1"], table.cores["m1"].own_row(table.instant("m1"))
    row = replace(before, node="m3", journal="journal-of-m3", epoch=(99, "m3"), promised=(99, "m3"))
    table.tell("m1", Post(row, (), ()), "m3")
    # Then nobody listens to it
    assert core.peers.peer("m3") is None


def test_only_a_later_epoch_that_another_master_names_with_this_journal_takes_a_master_out() -> None:
    table = MemberTable()
    table.make_queue("a")
    core, journal = table.cores["m1"], "journal-of-m1"
    for sender, notice in (
        ("stranger", Notice((4, "m2"), journal)),
        ("m2", Notice((4, "m2"), "another")),
        ("m2", Notice(core.epoch.id, journal)),
    ):
        table.tell("m1", notice, sender)
    assert not core.retired
    # Nor does it begin anew when an epoch does not name it
    table.tell("m1", EpochInstall(table.next_epoch(4, "m2", "m2", "m3", configuration=Configuration(("m2", "m3")))), "m2")
    assert not core.is_joiner()
    table.tell("m1", Notice((4, "m2"), journal), "m2")
    assert core.retired


def test_two_masters_become_one_and_two_again() -> None:
    table = MemberTable(2)
    table.make_queue("a")
    table.remove("m1", "m2")
    table.live(4 * LAG_MS)
    assert table.masters("m1") == ("m1",)
    table.newcomer("m3")
    wish = table.add("m1", "m3")
    table.live(4 * LAG_MS)
    assert wish.state == DONE, wish.stage
