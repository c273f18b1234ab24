"""Named scenarios of splits, as given / when / then on the shipped code in a scripted world: who goes on, who waits, what comes out.

The checkers of the simulator watch every step: one order, nothing lost, nothing twice. A scenario states only what is special
about it. Split recovery is *quorum*: more than half of all masters go on, the others wait and come back.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from brokerha.model import states
from brokerha.model.epochs import FIRST
from tests.simulation.split_scene import LAG_MS, SOON_MS, SplitScene
from tests.simulator.options import SECOND_US

MASTERS = ("m1", "m2", "m3")
LONG_MS = 30_000


class TestOneIsSilent:
    """A master that is not heard of holds the others up for a while, and then no longer."""

    def test_the_others_go_on_up_to_its_last_promise_then_wait_then_leave_it_out(self) -> None:
        # Given that m3, whose clock is a second ahead, has promised for that second, and is silent then
        scene = SplitScene(acknowledge="majority")
        scene["m3"].clock.jump(SECOND_US)
        scene.run(2_500)
        scene.split("m1 m2", "m3")
        # When m1 takes a write below that promise, then it is agreed on without m3
        early = scene.write("m1", "early")
        assert scene.until(lambda: early.is_done) < 100
        assert scene.epoch_id("m1") == FIRST
        # When one comes above it
        scene.run(1_200)
        late = scene.write("m1", "late")
        scene.run(1_000)
        # Then rounds bring nothing
        assert scene.order("m1") == scene.order("m2") == ["early"]
        # Until m3 is left out
        scene.until_members("m1", "m2")
        assert scene.until(lambda: late.is_done) < 500
        # When it comes back, then it joins, and has it all
        scene.come_together()
        assert scene.order("m3") == ["early", "late"]
        assert scene.are_members(*MASTERS)

    def test_how_long_nobody_can_write(self) -> None:
        # Given that m3 is cut off while m1 takes a write
        scene = SplitScene()
        scene.isolate("m3")
        write = scene.write("m1", "t1")
        # Then the write waits for about as long as a master may be silent, and no longer
        assert LAG_MS * 0.5 < scene.until(lambda: write.is_done, SOON_MS) < LAG_MS + 2_500
        # And the next one does not wait at all
        after = scene.write("m2", "t2")
        assert scene.until(lambda: after.is_done) < 50
        scene.heal()
        scene.come_together()

    def test_with_the_settings_that_nobody_changed_two_seconds_are_enough(self) -> None:
        # Given m3, which was heard a second ago at most, and is silent from the moment at which m1 takes a write
        scene = SplitScene(max_peer_lag_ms=10_000, suspect_after_ms=2_000)
        scene.run(2_000)
        scene["m3"].freeze(20 * SECOND_US)
        write = scene.write("m1", "t1")
        # Then the write waits no longer than that, and for a change of epoch
        assert 900 < scene.until(lambda: write.is_done) < 2_500
        assert scene.are_members("m1", "m2")
        scene.come_together(40_000)

    def test_one_that_stood_still_for_a_moment_is_given_more_time_the_next_time(self) -> None:
        # Given m3, whose process stood still for longer than that, was left out and came back
        scene = SplitScene(max_peer_lag_ms=10_000, suspect_after_ms=2_000)
        scene["m3"].freeze(3 * SECOND_US)
        first = scene.write("m1", "t1")
        assert scene.until(lambda: first.is_done) < 2_500
        scene.come_together()
        assert scene.are_members(*MASTERS)
        before = scene.epoch_id("m1")
        # When it does so again
        scene["m3"].freeze(3 * SECOND_US)
        second = scene.write("m1", "t2")
        # Then it is waited for, and stays a member
        assert 2_500 < scene.until(lambda: second.is_done) < 4_000
        assert scene.epoch_id("m1") == before

    def test_it_says_that_it_is_left_out(self) -> None:
        scene = SplitScene()
        scene.cut_one_way("m3", "m1")
        scene.cut_one_way("m3", "m2")
        # When m3 hears the others, and is not heard by them
        scene.until_members("m1", "m2")
        scene.run(2_000)
        # Then it knows why its writes wait
        assert scene.state("m3")[0] == states.EXCLUDED
        waiting = scene.write("m3", "t1", level="accepted")
        scene.until(lambda: waiting.is_done)
        scene.run(LONG_MS)
        assert scene.order("m1") == []
        # And it has not disturbed them by coming back one way only
        assert scene.epoch_id("m1")[0] == 2
        scene.come_together()
        assert scene.order("m1") == ["t1"]

    def test_one_that_hears_nobody_but_is_heard(self) -> None:
        # Given that m3 speaks and hears nothing, so that it confirms nothing
        scene = SplitScene()
        scene.cut_one_way("m1", "m3")
        scene.cut_one_way("m2", "m3")
        write = scene.write("m1", "t1")
        # Then the write is stuck until the others go on without it, once
        scene.until_members("m1", "m2")
        assert scene.until(lambda: write.is_done) < 500
        scene.run(LONG_MS)
        assert scene.are_members("m1", "m2")
        assert scene.epoch_id("m1")[0] == 2
        scene.come_together()


class TestBrokenLinks:
    """Whoever is heard of through somebody else is not missed."""

    def test_one_link_of_three_is_cut(self) -> None:
        # Given that m1 and m3 hear each other through m2 only, busy or idle
        scene = SplitScene()
        scene.cut("m1", "m3")
        for second in range(20):
            scene.write(MASTERS[second % 3], f"t{second}", level="accepted")
            scene.run(1_000)
        scene.run(LONG_MS)
        # Then nobody is left out, and writes are a few hops slower
        assert scene.nobody_was_left_out()
        write = scene.write("m1", "last")
        assert scene.until(lambda: write.is_done) < 30
        scene.agree()

    def test_a_bridge(self) -> None:
        # Given that m1 and m2 hear m4 and m5 through m3 only
        scene = SplitScene(5)
        for one in ("m1", "m2"):
            for other in ("m4", "m5"):
                scene.cut(one, other)
        scene.run(LONG_MS)
        # Then nobody is left out, and everybody can write
        assert scene.nobody_was_left_out()
        writes = [scene.write(node, f"{node}-t") for node in scene.names]
        assert scene.until(lambda: all(write.is_done for write in writes)) < 500
        # When the bridge dies, then two sides of two are left, and neither goes on
        scene.kill("m3")
        lonely = [scene.write(node, f"{node}-u", level="accepted") for node in ("m1", "m5")]
        scene.run(LONG_MS)
        assert all(write.is_done for write in lonely)
        assert scene.lsn("m1") == scene.lsn("m5") == 5
        # When it comes back, then all go on
        scene.start("m3")
        scene.come_together()
        assert len(scene.order("m1")) == 7

    @pytest.mark.parametrize(("sender", "receiver"), list(permutations(MASTERS, 2)))
    def test_a_one_way_link(self, sender: str, receiver: str) -> None:
        scene = SplitScene()
        scene.cut_one_way(sender, receiver)
        scene.run(2 * LAG_MS)
        # Then what does not come directly comes through the third
        writes = [scene.write(node, f"{node}-t") for node in MASTERS]
        assert scene.until(lambda: all(write.is_done for write in writes)) < 100
        scene.run(2 * LAG_MS)
        assert scene.nobody_was_left_out()
        scene.agree()


class TestTheAtlanticCable:
    """Masters in the United Kingdom and in the United States, and the cable between them is cut."""

    def test_two_in_the_uk_and_one_in_the_us(self) -> None:
        # Given a shop with m1 and m2 in London and m3 in New York, that has sold one book
        london, new_york = "m1", "m3"
        scene = SplitScene()
        scene.write(london, "book-1")
        scene.agree()
        # When the cable is cut, and both sides go on selling
        scene.split("m1 m2", "m3")
        sold = scene.write(london, "book-2")
        promised = scene.write(new_york, "book-3", level="accepted")
        # Then London sells after a moment, because two of three are more than half
        scene.until(lambda: sold.is_done, SOON_MS)
        # And New York keeps the order in its drawer, and says why
        assert promised.acknowledged == "accepted"
        scene.run(LONG_MS)
        assert scene.order(new_york) == ["book-1"]
        assert scene.state(new_york)[0] == states.NO_MAJORITY
        # When the cable is mended, then New York learns of what London sold, and its own order comes after it, once
        scene.come_together()
        assert scene.order(new_york) == ["book-1", "book-2", "book-3"]
        # And from then on both sell again without waiting
        again = scene.write(new_york, "book-4")
        assert scene.until(lambda: again.is_done) < 50

    def test_two_in_the_uk_and_two_in_the_us(self) -> None:
        # Given two masters on each side: neither side is more than half
        scene = SplitScene(4)
        scene.write("m1", "book-1")
        scene.agree()
        # When the cable is cut
        scene.split("m1 m2", "m3 m4")
        orders = [scene.write(node, f"{node}-book", level="accepted") for node in scene.names]
        scene.run(LONG_MS)
        # Then orders are taken on both sides, and nothing is sold on either
        assert all(order.is_done for order in orders)
        assert {scene.lsn(node) for node in scene.names} == {1}
        assert {scene.state(node)[0] for node in scene.names} == {states.NO_MAJORITY}
        # When it is mended, then every order is sold, once, in the order in which they came
        scene.come_together()
        assert scene.order("m4") == ["book-1", "m1-book", "m2-book", "m3-book", "m4-book"]

    def test_an_operator_of_the_smaller_side_sees_that_reads_go_on_and_writes_wait(self) -> None:
        scene = SplitScene()
        scene.write("m1", "t1", b"before")
        scene.agree()
        scene.split("m1 m2", "m3")
        waiting = scene.write("m3", "t2")
        scene.run(LONG_MS // 2)
        # The copy in the US still is what was agreed on, nothing of the write that waits is in it
        assert scene.worker("m3w1").copy.applied() == scene.worker("m1w1").copy.applied()
        assert not waiting.is_done
        scene.come_together()
        assert waiting.acknowledged == "applied"


class TestWritesOnBothSides:
    """What both sides took in is agreed on afterwards: once, and none before what the majority had agreed on."""

    def test_content_and_order(self) -> None:
        # Given a key that both sides write while they are apart
        scene = SplitScene()
        scene.write("m1", "key", b"old")
        scene.agree()
        scene.split("m1 m2", "m3")
        scene.run(100)
        minority = [scene.write_again("m3", "c0", b"key", b"minority")]
        majority = scene.write_again("m2", "b0", b"key", b"majority")
        minority += scene.write_many("m3", "c", 5)[1:]
        more = [scene.write("m1", f"a{number}") for number in range(5)]
        scene.until(lambda: majority.is_done and all(write.is_done for write in more), SOON_MS)
        assert scene.value("key") == b"majority"
        # When they come together
        scene.come_together()
        # Then all is there, and what the majority had agreed on comes first, although it was written later
        order = scene.order("m3")
        assert order.index("b0") < order.index("c0")
        assert max(order.index(f"a{number}") for number in range(5)) < order.index("c0")
        assert sorted(order) == sorted(scene.order("m1"))
        assert [txid for txid in order if txid[0] == "c"] == [f"c{number}" for number in range(5)]
        # And the content is what this order makes of it (the checkers compare all copies)
        assert scene.value("key") == b"minority"

    def test_a_write_that_was_half_agreed_on_when_the_link_broke(self) -> None:
        # Given that the entry of m1's write came to m2 and not to m3
        scene = SplitScene()
        scene.cut("m1", "m3")
        scene.cut("m2", "m3")
        mine = [scene.write("m1", "a"), scene.write("m3", "c")]
        scene.until_members("m1", "m2")
        scene.until(lambda: mine[0].is_done)
        scene.come_together()
        assert scene.order("m3") == ["a", "c"]


class TestSplitsWithinSplits:
    """A side that splits again."""

    def test_a_split_during_a_split(self) -> None:
        # Given five masters of which three go on
        scene = SplitScene(5)
        scene.split("m1 m2 m3", "m4 m5")
        first = scene.write("m1", "first")
        scene.until_members("m1", "m2", "m3")
        scene.until(lambda: first.is_done)
        # When one of the three is cut off as well
        scene.split("m1 m2", "m3", "m4 m5")
        waiting = [scene.write(node, f"{node}-t", level="accepted") for node in scene.names]
        scene.run(LONG_MS)
        # Then nobody goes on: no side is more than half of five
        assert all(write.is_done for write in waiting)
        assert {scene.lsn(node) for node in ("m1", "m2", "m3")} == {1}
        # When m3, the only one that knows of the first write, meets m4 and m5
        scene.split("m1 m2", "m3 m4 m5")
        scene.until_members("m3", "m4", "m5")
        # Then they begin with it
        scene.until(lambda: scene.lsn("m5") == 4)
        assert scene.order("m5")[0] == "first"
        # When all come together
        scene.come_together()
        assert len(scene.order("m1")) == 6

    def test_the_majority_loses_another_master(self) -> None:
        # Given m1 and m2 without m3
        scene = SplitScene()
        scene.split("m1 m2", "m3")
        write = scene.write("m1", "a")
        scene.until(lambda: write.is_done, SOON_MS)
        # When m2 dies, then m1 alone agrees on nothing
        scene.kill("m2")
        waiting = scene.write("m1", "b", level="accepted")
        scene.run(LONG_MS)
        assert waiting.is_done
        assert scene.order("m1") == ["a"]
        assert scene.state("m1")[0] == states.NO_MAJORITY
        # When m3 is heard again, then these two are a majority, and m3 gets what it missed first
        scene.heal()
        scene.until_members("m1", "m3")
        scene.until(lambda: scene.order("m3") == ["a", "b"])
        scene.start("m2")
        scene.come_together()

    def test_one_after_the_other_is_left_out(self) -> None:
        scene = SplitScene(5, acknowledge="present")
        # When each master is away in its turn, some of them while the one before is still catching up
        for round_number in range(2):
            for node in scene.names:
                scene.split(node, " ".join(other for other in scene.names if other != node))
                scene.write_many(node, f"{node}-{round_number}-", 3)
                scene.run(LAG_MS + 2_000)
        scene.come_together()
        assert len(scene.order("m1")) == 30


class TestLongSplits:
    """What piled up is brought over in pieces."""

    def test_a_tail_longer_than_one_answer(self) -> None:
        # Given that m3 missed more than one message brings
        scene = SplitScene(workers=0)
        scene.split("m1 m2", "m3")
        scene.until_members("m1", "m2")
        scene.write_many("m1", "a", 4_500)
        scene.until(lambda: scene.lsn("m2") == 4_500, SOON_MS)
        # When it comes back, then it has it all
        scene.come_together()
        assert scene.lsn("m3") == 4_500

    def test_a_backlog_of_thousands_on_the_smaller_side(self) -> None:
        scene = SplitScene(workers=0)
        scene.split("m1 m2", "m3")
        writes = scene.write_many("m3", "c", 3_000)
        scene.until_members("m1", "m2")
        scene.until(lambda: all(write.is_done for write in writes))
        # When the two sides meet, then all of it is recovered in its order
        scene.come_together()
        assert scene.order("m1") == [f"c{number}" for number in range(3_000)]

    def test_a_window_of_one(self) -> None:
        # Given windows of one entry, and writes on both sides
        scene = SplitScene(post_window=1, queue_window=1)
        scene.split("m1 m2", "m3")
        scene.write_many("m1", "a", 10)
        scene.write_many("m3", "c", 10)
        scene.until(lambda: scene.lsn("m2") == 10, SOON_MS)
        # Then they come together, one after the other
        scene.come_together(60_000)
        assert len(scene.order("m3")) == 20


class TestClientsOfASplit:
    """What a client sees."""

    def test_a_client_waits_through_a_split_and_gets_its_outcome(self) -> None:
        scene = SplitScene()
        scene.split("m1 m2", "m3")
        # When a client writes on the side that waits, and is patient
        write = scene.write("m3", "t1")
        scene.run(LONG_MS // 2)
        assert not write.is_done
        # Then it has its answer once the split is over
        scene.heal()
        assert scene.until(lambda: write.is_done, 10_000) > 0
        assert write.acknowledged == "applied"
        scene.come_together()

    def test_a_client_asks_the_other_side_by_its_id(self) -> None:
        # Given a write that waits on the smaller side
        scene = SplitScene()
        scene.split("m1 m2", "m3")
        write = scene.write("m3", "t1", level="accepted")
        scene.until_members("m1", "m2")
        # When the client hands it in at the other side, under its id
        scene.again("m1", write)
        scene.until(lambda: scene.order("m2") == ["t1"])
        # Then it is there once when the sides meet, and whoever asks m3 is told the same LSN (the checkers compare)
        scene.come_together()
        scene.again("m3", write)
        scene.until(lambda: not scene.world.clients.tickets)
        assert scene.order("m3") == ["t1"]

    def test_a_write_handed_in_on_both_sides_of_a_split(self) -> None:
        scene = SplitScene()
        scene.split("m1 m2", "m3")
        write = scene.write("m1", "t1")
        scene.again("m3", write)
        scene.write_many("m3", "c", 3)
        scene.until_members("m1", "m2")
        # When the sides meet, then both tickets are answered, with one LSN
        scene.come_together()
        assert scene.order("m3").count("t1") == 1
        assert not scene.world.clients.tickets
        # And after everything was trimmed nobody has forgotten it
        for node in MASTERS:
            scene.master(node).journal.trim(2)
        scene.again("m2", write)
        assert scene.until(lambda: not scene.world.clients.tickets) < 50
        assert scene.lsn("m1") == 4
