"""Named scenarios of the sync protocol, as given / when / then on the shipped code in a scripted world.

Each title is a situation that the protocol has to survive. The checkers of the simulator watch every step, so that a scenario
states only what is special about it.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from brokerha.model import states
from brokerha.model.wire.messages import Bodies
from tests.simulation.mistakes.catalogue import planted
from tests.simulation.scene import Scene
from tests.simulator.checks.truth import Violation
from tests.simulator.options import HOUR_US

MASTERS = ("m1", "m2", "m3")


class TestIdleAndBusy:
    """Rounds run when there is something to agree on, and rest otherwise."""

    def test_an_idle_cluster_stays_idle(self) -> None:
        # Given a cluster that has agreed on everything
        scene = Scene()
        scene.write("m1", "t1")
        scene.agree()
        scene.run(3_000)
        # When a minute passes
        before, steps = scene.posts(), scene.world.steps
        scene.run(60_000)
        # Then each master sent one heartbeat a second to each other one, and did little else
        assert scene.posts() - before <= 6 * 62
        assert scene.world.steps - steps <= 60 * 40

    def test_one_write_wakes_it_at_once(self) -> None:
        # Given an idle cluster
        scene = Scene()
        scene.run(10_300)
        # When one write comes
        write = scene.write("m2", "t1")
        # Then it takes network time, not heartbeat time; and its place is written soon after
        assert scene.until(lambda: write.is_done) < 15
        assert scene.agree() < 120


class TestLaggers:
    """A master that was away or is slow holds the agreed prefix and catches up by itself."""

    def test_a_master_that_was_restarted_catches_up(self) -> None:
        # Given 50 transactions that m3 missed the end of
        scene = Scene(acknowledge="majority")
        scene.write_many("m1", "a", 25)
        scene.agree()
        scene.kill("m3")
        scene.write_many("m1", "b", 25)
        scene.run(500)
        # When it comes back
        scene.start("m3")
        # Then it has them all, in the same order
        scene.agree()
        assert scene.order("m3") == scene.order("m1")
        assert len(scene.order("m3")) == 50

    def test_a_master_with_a_slow_disk_is_waited_for_and_the_order_is_one(self) -> None:
        # Given a disk that takes 300 ms for each turn
        scene = Scene()
        scene["m3"].is_disk_slow = True
        # When all masters take writes
        for node in MASTERS:
            scene.write_many(node, node, 10)
        # Then all of them are agreed on, a few slow turns later
        assert scene.agree(within_ms=10_000) > 300
        assert scene.order("m1") == scene.order("m2") == scene.order("m3")

    def test_a_tail_longer_than_a_window_arrives_in_pieces(self) -> None:
        # Given windows of 3, and 40 transactions that m3 has not even heard of
        scene = Scene(post_window=3, acknowledge="majority")
        scene.isolate("m3")
        scene.write_many("m1", "a", 20)
        scene.write_many("m2", "b", 20)
        scene.run(2_000)
        assert scene.order("m3") == []
        # When m3 is heard again
        scene.heal()
        # Then it gets all of it (the checkers see to it that no post is over the window)
        scene.agree()
        assert len(scene.order("m3")) == 40


class TestBrokenLinks:
    """What test_scenarios_of_splits.py says of broken links holds because masters pass on what others do not hear."""

    def test_without_relaying_somebody_is_left_out(self) -> None:
        # Given the mistake that nothing is relayed
        with planted("nothing relayed"):
            scene = Scene()
            scene.cut("m1", "m3")
            # When a link is cut for longer than a master may be silent
            scene.run(30_000)
            # Then one of the two is left out: this is what those scenarios are able to see
            assert scene.truth.epochs

    def test_without_relaying_a_cut_link_stops_everything(self) -> None:
        # Given the mistake that nothing is relayed, and that masters are missed only after a minute
        with planted("nothing relayed"):
            scene = Scene(max_peer_lag_ms=60_000, suspect_after_ms=60_000)
            scene.cut("m1", "m3")
            scene.run(5_000)
            # When a write comes
            write = scene.write("m1", "t1")
            scene.run(10_000)
            # Then it is never agreed on: this is what those scenarios are able to see
            assert not write.is_done


class TestRestarts:
    """Everything that was told to anybody is in the journals."""

    @pytest.mark.parametrize("order", list(permutations(MASTERS)))
    def test_the_whole_cluster_is_killed_and_comes_back_in_any_order(self, order: tuple[str, ...]) -> None:
        # Given writes in every stage: agreed on, on their way, just accepted
        scene = Scene()
        for node in MASTERS:
            scene.write_many(node, f"{node}-a", 10)
        scene.run(3)
        for node in MASTERS:
            scene.write_many(node, f"{node}-b", 10)
        scene.run(1)
        # When everything is killed at once, and the masters come back one after the other
        scene.kill(*MASTERS, "m1w1", "m2w1", "m3w1")
        for node in order:
            scene.start(node)
            scene.run(700)
        scene.start("m1w1", "m2w1", "m3w1")
        # Then what was accepted is agreed on, once (clients that had no answer asked again)
        scene.agree()
        assert len(scene.order("m1")) == len(set(scene.order("m1"))) == 60

    def test_a_restart_with_a_clock_one_hour_back(self) -> None:
        # Given writes with today's timestamps
        scene = Scene()
        scene.write_many("m1", "a", 5)
        scene.agree()
        # When m1 restarts and its clock shows an hour ago
        scene.kill("m1")
        scene["m1"].clock.jump(-HOUR_US)
        scene.start("m1")
        scene.run(1_000)
        # Then its next writes come after the old ones, without waiting for that hour
        write = scene.write("m1", "later")
        assert scene.until(lambda: write.is_done) < 100
        scene.run(10)
        assert scene.order("m2")[-1] == "later"
        scene.agree()

    def test_a_clock_one_hour_ahead_takes_the_others_along(self) -> None:
        # Given a clock that is set one hour ahead
        scene = Scene()
        scene["m2"].clock.jump(HOUR_US)
        # When that master and another one write
        first = scene.write("m2", "ahead")
        scene.until(lambda: first.is_done)
        second = scene.write("m1", "after")
        # Then nobody waits for an hour, and what came later is later
        assert scene.until(lambda: second.is_done) < 100
        scene.run(10)
        assert scene.order("m3") == ["ahead", "after"]
        scene.agree()


class TestDuplicates:
    """A transaction id is agreed on once, whoever hands it in, and when."""

    def test_a_write_handed_in_at_two_masters_at_once(self) -> None:
        scene = Scene()
        # When two masters get the same write in the same moment
        write = scene.write("m1", "t1")
        scene.again("m2", write)
        # Then it has one LSN, and both tickets are answered with it (the checkers compare)
        scene.agree()
        assert scene.order("m3") == ["t1"]
        assert not scene.world.clients.tickets

    def test_a_write_handed_in_again_after_it_was_agreed_on(self) -> None:
        scene = Scene()
        write = scene.write("m1", "t1")
        scene.agree()
        # When the client asks again, elsewhere
        scene.again("m3", write)
        # Then it gets the answer of the first
        assert scene.until(lambda: not scene.world.clients.tickets) < 50
        scene.agree()
        assert scene.order("m2") == ["t1"]

    def test_a_write_handed_in_again_after_its_body_was_trimmed(self) -> None:
        # Given a log that was trimmed on all masters
        scene = Scene()
        first = scene.write("m1", "t1")
        scene.agree()
        scene.write("m1", "t2")
        scene.agree()
        for node in MASTERS:
            assert scene.master(node).journal.trim(2) == 1
            assert scene.master(node).journal.first_lsn() == 2
        # When the client hands the first write in again
        scene.again("m2", first)
        # Then it is known all the same
        assert scene.until(lambda: not scene.world.clients.tickets) < 50
        assert scene.order("m2") == ["t2"]

    def test_the_same_id_for_other_operations_is_refused(self) -> None:
        scene = Scene()
        scene.write("m1", "t1", b"first")
        scene.agree()
        # When somebody uses the id for something else
        other = scene.write("m2", "t1", b"second")
        scene.until(lambda: other.is_done)
        # Then it is refused, and nothing changes
        assert other.acknowledged == ""
        scene.agree()
        assert scene.order("m3") == ["t1"]


class TestLostBodiesAndDisks:
    """Nobody is asked to agree on what nobody can execute."""

    def test_the_only_holder_of_a_body_is_cut_off_before_anyone_else_has_it(self) -> None:
        # Given a transaction whose entry the others know, but whose body was lost on its way
        scene = Scene(suspect_after_ms=10_000)
        scene.lose(Bodies, "m1")
        write = scene.write("m1", "t1", level="accepted")
        scene.until(lambda: write.is_done)
        scene.run(10)
        scene.isolate("m1")
        scene.lose_nothing()
        # When the others go on
        scene.write("m2", "t2", level="accepted")
        scene.run(5_000)
        # Then they add nothing that could come after it, and say whom they wait for
        assert scene.order("m2") == scene.order("m3") == []
        assert scene.state("m2") == (states.WAITING_FOR_PEERS, "not heard: m1 (left out in 5 s)")
        # When it comes back, then the body is asked for and everything is agreed on
        scene.heal()
        scene.agree()
        assert scene.order("m3") == ["t1", "t2"]

    def test_a_body_that_was_lost_is_asked_for(self) -> None:
        # Given that the push of a body is lost
        scene = Scene()
        scene.lose(Bodies, "m1")
        write = scene.write("m1", "t1")
        scene.run(20)
        scene.lose_nothing()
        # Then it is asked for, and nobody waits for a heartbeat
        assert scene.until(lambda: write.is_done) < 500
        scene.agree()

    def test_a_lost_disk_under_the_old_id(self) -> None:
        # Given a master that took part
        scene = Scene(suspect_after_ms=10_000)
        scene.write_many("m2", "a", 5)
        scene.agree()
        # When its data directory is emptied and it starts under the same id
        scene.kill("m2")
        scene.master("m2").wipe()
        scene.start("m2")
        scene.run(3_000)
        # Then it knows, takes no writes, and the others are not disturbed
        assert scene.state("m2")[0] == states.LOST_STATE
        assert scene.order("m1") == scene.order("m3") == [f"a{number}" for number in range(5)]
        refused = scene.write("m2", "t1")
        scene.run(1_000)
        assert refused.acknowledged == ""

    @staticmethod
    def meet_a_stranger_first() -> Scene:
        """Masters m2 and m3 begin; then m2 loses its disk and meets m1, which had never heard of it."""
        scene = Scene((0, 0, 0), starts=False)
        scene.start("m2", "m3")
        scene.run(2_000)
        scene.kill("m2")
        scene.master("m2").wipe()
        # m3 cannot be heard while m2 is new to m1: it is the only one that remembers m2.
        scene.isolate("m3")
        scene.start("m1", "m2")
        scene.write("m2", "again", level="accepted")
        scene.run(3_000)
        scene.heal()
        scene.run(3_000)
        return scene

    def test_a_lost_disk_is_found_out_even_by_a_master_that_never_heard_of_it(self) -> None:
        # When a master with an emptied disk meets first somebody who takes it for a new one
        scene = self.meet_a_stranger_first()
        # Then it has stamped nothing, and finds out as soon as it meets somebody who knows
        assert scene.state("m2")[0] == states.LOST_STATE
        assert scene.truth.mirrors["m1"].counts.get("m2", 0) == 0

    def test_without_waiting_to_be_known_it_would_do_harm(self) -> None:
        # Given the mistake that a master stamps before everybody has told it that they know it
        # Then m1 takes what m2 stamps anew, which is not what m3 remembers
        with planted("emptied disk stamps at once"), pytest.raises(Violation, match="a stream is what its origin stamped"):
            self.meet_a_stranger_first()
