"""Named scenarios of the strategies smart, simple and none in which more goes wrong than a link: a side splits again, processes die in
the middle, copies cannot be had. What has to come out is the same each time: one queue, everything in it once, and in smart and simple
every copy with what it makes (the checkers see to it).
"""

from __future__ import annotations

from itertools import permutations

import pytest

from brokerha.model import states
from brokerha.model.epochs import FIRST
from brokerha.model.ids import NodeId
from brokerha.model.ready import DropKept, KeepCopy, OpenLoad, RestoreKept
from brokerha.model.records import EpochInstalled, Rewound
from brokerha.model.wire.messages import Bodies, Keep
from tests.simulation.mistakes.catalogue import planted
from tests.simulation.mode_scene import MODES, UK, US, ModeScene, has_all, once, written
from tests.simulation.split_scene import LAG_MS


class TestSplitsWithinSplits:
    """A side that splits again, and sides that meet one after the other."""

    @pytest.mark.parametrize("mode", MODES)
    def test_a_split_within_a_split(self, mode: str) -> None:
        # Given five masters of which three go on as one side and two as another
        scene = ModeScene(mode, 5)
        scene.part("m1 m2 m3", "m4 m5")
        scene.put("m1", "abc", b"key", b"abc")
        scene.put("m4", "de", b"key", b"de")
        # When m3 is cut off as well, then all three sides go on
        scene.part("m1 m2", "m3", "m4 m5")
        for node in ("m1", "m3", "m4"):
            scene.put(node, f"{node}-alone", b"key", node.encode())
        assert (scene.order("m1"), scene.order("m3")) == (["abc", "m1-alone"], ["abc", "m3-alone"])
        # When m3 meets the side of m4, of which it never was one, then these agree without m1
        scene.part("m1 m2", "m3 m4 m5")
        scene.until(lambda: {scene.worker(f"{node}w1").copy.applied().lsn for node in ("m3", "m4", "m5")} == {4})
        scene.put("m5", "cde", b"key", b"cde")
        once_here = ["abc", "de", "m3-alone", "m4-alone", "cde"]
        scene.until(lambda: all(sorted(scene.order(node)) == sorted(once_here) for node in ("m3", "m4", "m5")))
        assert scene.order("m3") == scene.order("m4") == scene.order("m5")
        with_m3 = scene.order("m3")
        # And m3 has handed in for m1, which is away, what it had seen of it, before its own that may have followed from that
        assert with_m3.index("abc") < with_m3.index("m3-alone")
        # When all come together, then each of them is there once
        scene.come_together(60_000)
        once(scene, [*once_here, "m1-alone"])
        # And smart and none have stayed with the side of three, whose first one was that of two: m1 has gone back behind both
        if mode != "simple":
            assert scene.order("m1") == [*with_m3, "m1-alone"]
            assert scene.gave_up("m1") == [(0, 2)]
            assert with_m3[:2] == ["de", "m4-alone"]

    @pytest.mark.parametrize("mode", MODES)
    def test_each_master_goes_on_for_itself_and_they_meet_one_after_the_other(self, mode: str) -> None:
        scene = ModeScene(mode, 4)
        scene.part("m1", "m2", "m3", "m4")
        for node in scene.names:
            scene.put_many(node, f"{node}-", 3)
        scene.part("m1 m4", "m2", "m3")
        scene.part("m1 m4 m2", "m3")
        scene.come_together(60_000)
        once(scene, [f"{node}-{number}" for node in scene.names for number in range(3)])

    @pytest.mark.parametrize("mode", MODES)
    def test_it_splits_again_while_it_comes_together(self, mode: str) -> None:
        # Given that the link breaks again as soon as the first of them has gone back
        scene = written(mode)
        scene.heal()
        scene.until(lambda: scene.world.faults_seen["queue went back"] > 0, 20_000)
        scene.split(UK, US)
        scene.run(2 * LAG_MS)
        scene.put("m1", "uk-again", b"again", b"uk")
        scene.put("m3", "us-again", b"again", b"us")
        scene.come_together(60_000)
        once(scene, ["before", "a0", "a1", "a2", "uk", "c0", "c1", "c2", "us", "uk-again", "us-again"])


def read_a_part(mode: str, before: int, *, dies: bool) -> ModeScene:
    """Two masters have parted while a third one was away; this one has read a part of what one of them has added, and then met the other one."""
    scene = ModeScene(mode, body_message_bytes=1)
    for number in range(before):
        scene.put("m1", f"before{number}", b"key", b"all")
    scene.agree()
    scene.kill("m3", "m3w1")
    scene.part("m1", "m2")
    for number in range(6):
        scene.put("m2", f"b{number}", b"key", b"m2")
    for number in range(4):
        scene.put("m1", f"a{number}", b"key", b"m1")
    scene.lose_if(lambda _sender, to, message: to == "m3" and isinstance(message, Bodies) and message.items[0][1] != "a0")
    scene.split("m1 m3", "m2")
    scene.start("m3", "m3w1")
    scene.until(lambda: "a0" in scene.order("m3"), 20_000)
    if dies:
        scene.kill("m3")
    scene.lose_nothing()
    scene.split("m1", "m2 m3")
    if dies:
        scene.start("m3")
    scene.until(lambda: scene.are_members("m2", "m3"), 60_000)
    return scene


class TestReadingTheQueueOfAnotherSide:
    """A master that was away while the others parted, and reads what one of them has added, is of none of both before it is through."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("dies", [True, False])
    @pytest.mark.parametrize("before", [0, 1])
    def test_it_has_read_a_part_when_it_meets_the_other_one(self, mode: str, before: int, *, dies: bool) -> None:
        scene = read_a_part(mode, before, dies=dies)
        # Then it has given up what it had read, and all come together
        assert scene.order("m3") == scene.order("m2")
        scene.come_together()

    @pytest.mark.parametrize(
        ("mistake", "dies"),
        [("queue of another side read as the own one", False), ("what was read is forgotten at a restart", True)],
    )
    def test_a_planted_mistake_is_seen(self, mistake: str, *, dies: bool) -> None:
        with planted(mistake):
            scene = read_a_part("none", 1, dies=dies)
            assert scene.order("m3") != scene.order("m2")


class TestTheWholeClusterIsKilled:
    """Everything that has to be remembered of a split is durable before it matters."""

    @pytest.mark.parametrize("mode", MODES)
    def test_in_the_middle_of_a_split(self, mode: str) -> None:
        scene = written(mode, workers=2)
        everybody = list(scene.world.processes)
        kept = scene.kept()
        scene.kill(*everybody)
        scene.start(*everybody)
        # Then each side goes on where it was, and keeps what it kept
        scene.put("m1", "uk-later", b"later", b"uk")
        scene.put("m3", "us-later", b"later", b"us")
        assert {scene.state(node)[0] for node in scene.names} == {states.SPLIT}
        assert scene.kept() == kept
        assert len(kept) == (0 if mode == "none" else 3)
        scene.come_together()
        assert [txid for txid in scene.order("m1") if txid.startswith("us")] == ["us", "us-later"]
        assert len(scene.order("m1")) == 11

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("order", list(permutations(("m1", "m2", "m3")))[::2])
    def test_in_the_middle_of_a_split_and_healed_when_they_come_back(self, mode: str, order: tuple[NodeId, ...]) -> None:
        scene = written(mode)
        scene.kill(*scene.world.processes)
        scene.heal()
        for node in order:
            scene.start(f"{node}w1", node)
            scene.run(700)
        scene.come_together()
        has_all(scene, mode)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("point", ["append absent", "append there"])
    @pytest.mark.parametrize("record", [Rewound, EpochInstalled])
    def test_in_the_middle_of_coming_together(self, mode: str, point: str, record: type) -> None:
        # Given that m3 dies just before, or just after, it has written that it goes back, or that it is a member again
        scene = written(mode)
        scene.aim("m3", point, record)
        scene.heal()
        scene.until(lambda: not scene["m3"].is_up, 20_000)
        # And everybody with it
        everybody = list(scene.world.processes)
        scene.kill(*everybody)
        scene.start(*everybody)
        scene.come_together()
        has_all(scene, mode)

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    @pytest.mark.parametrize("point", ["copy absent", "copy there"])
    def test_in_the_middle_of_a_restore(self, mode: str, point: str) -> None:
        scene = written(mode, workers=2)
        (keeper,) = (node for node in scene.kept() if node.startswith("m3"))
        scene.aim(keeper, point, RestoreKept)
        scene.heal()
        scene.until(lambda: not scene[keeper].is_up, 20_000)
        everybody = list(scene.world.processes)
        scene.kill(*everybody)
        scene.start(*everybody)
        scene.come_together()
        has_all(scene, mode)


class TestCopies:
    """What is kept for the time when sides come together, and what becomes of it."""

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_the_kept_copy_is_dropped_when_the_split_is_over_before_its_time(self, mode: str) -> None:
        # Given a link that is cut for less than a master may be silent, and a write that waits
        scene = ModeScene(mode, workers=2)
        scene.split(UK, US)
        write = scene.write("m3", "c")
        scene.until(lambda: len(scene.kept()) == 3, LAG_MS)
        # When it works again
        scene.come_together()
        # Then nothing has happened but the copies, which are gone
        assert write.is_done
        assert scene.nobody_was_left_out()
        assert [scene.gave_up(node) for node in scene.names] == [[], [], []]
        assert scene.who_began(KeepCopy) == scene.who_began(DropKept)
        assert scene.who_began(RestoreKept) == scene.who_began(OpenLoad) == []

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_a_side_waits_for_its_copy_but_not_for_ever(self, mode: str) -> None:
        # Given that the worker of m3 is not told to keep a copy
        scene = ModeScene(mode)
        scene.lose_if(lambda _sender, receiver, message: isinstance(message, Keep) and receiver == "m3w1")
        scene.split(UK, US)
        # Then m3 waits while the others, who have their copies, go on
        scene.until_members("m1", "m2")
        scene.run(1_000)
        assert scene.epoch_id("m3") == FIRST
        # When it is told, then m3 goes on as soon as the copy is there
        scene.lose_nothing()
        scene.until(lambda: scene.are_members("m3"), 2_000)
        assert scene.kept() == ["m1w1", "m2w1", "m3w1"]
        scene.come_together()
        # When it is never told, then m3 goes on without a copy after a second time-out, and nothing is lost all the same
        scene.lose_if(lambda _sender, receiver, message: isinstance(message, Keep) and receiver == "m3w1")
        scene.part(UK, US)
        assert scene.kept() == ["m1w1", "m2w1"]
        scene.put("m1", "a", b"key", b"uk")
        scene.put("m3", "c", b"key", b"us")
        scene.lose_nothing()
        scene.come_together()
        once(scene, ["a", "c"])
        assert "m3w1" not in scene.who_began(RestoreKept)

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    @pytest.mark.parametrize("point", ["copy absent", "copy there"])
    def test_a_worker_is_killed_while_it_keeps_a_copy(self, mode: str, point: str) -> None:
        # Given three workers in New York; the one that is to keep a copy dies, and stays away
        scene = ModeScene(mode, workers=3)
        workers = ("m3w1", "m3w2", "m3w3")
        for worker in workers:
            scene.aim(worker, point, KeepCopy)
        scene.split(UK, US)
        scene.until(lambda: not all(scene[worker].is_up for worker in workers), LAG_MS)
        (dead,) = (worker for worker in workers if not scene[worker].is_up)
        for worker in workers:
            scene[worker].aim = None
        # Then another one keeps it, and the side goes on
        scene.until(lambda: scene.are_members("m3"), 3 * LAG_MS)
        (other,) = {*scene.kept()}.intersection(workers) - {dead}
        scene.put("m3", "c", b"key", b"us")
        scene.put("m1", "a", b"key", b"uk")
        scene.heal()
        scene.until(lambda: other in scene.who_began(RestoreKept), 20_000)
        # And when the first one is back nothing is kept any more, by it neither
        scene.start(dead)
        scene.come_together()
        once(scene, ["a", "c"])

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_a_second_split_before_the_first_copy_could_be_dropped(self, mode: str) -> None:
        # Given that the worker of New York is dead when the sides have come together, so that its copy stays kept
        scene = written(mode)
        scene.kill("m3w1")
        scene.heal()
        scene.until_members(*scene.names)
        scene.run(2_000)
        assert "m3w1" in scene.kept()
        # When they part again, and its worker is back on its side alone, then it restores what it had kept, and both sides go on
        scene.part(UK, US)
        scene.start("m3w1")
        scene.until(lambda: scene.worker("m3w1").copy.applied().lsn == 9, 20_000)
        assert scene.begun["m3w1", RestoreKept] == 1
        scene.put("m1", "uk-again", b"again", b"uk")
        scene.put("m3", "us-again", b"again", b"us")
        assert "m3w1" in scene.kept()
        # Then what it keeps is of use a second time
        scene.come_together()
        once(scene, ["before", "a0", "a1", "a2", "uk", "c0", "c1", "c2", "us", "uk-again", "us-again"])
        assert scene.begun["m3w1", RestoreKept] == 2

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_nobody_restores_where_nothing_was_written(self, mode: str) -> None:
        # Given a side that has gone on, and done nothing
        scene = ModeScene(mode)
        scene.part(UK, US)
        scene.put("m1", "a", b"key", b"uk")
        scene.come_together()
        # Who reads from its own end on what another side has added notes that it went back to there
        was = [[(1, 0)], [(1, 0)], [(0, 0)]] if mode == "smart" else [[(0, 1)], [(0, 1)], [(0, 0)]]
        assert [scene.gave_up(node) for node in scene.names] == was
        assert "m3w1" not in scene.who_began(RestoreKept)

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    @pytest.mark.parametrize("point", ["copy absent", "copy there"])
    def test_a_worker_is_killed_while_it_restores(self, mode: str, point: str) -> None:
        scene = written(mode, workers=2)
        (keeper,) = (node for node in scene.kept() if node.startswith("m3"))
        scene.aim(keeper, point, RestoreKept)
        scene.heal()
        scene.until(lambda: not scene[keeper].is_up, 20_000)
        # When nobody of that site holds what the log says, then it waits for one that does
        scene.run(3_000)
        scene.start(keeper)
        scene.come_together()
        has_all(scene, mode)
        # And the other worker of the site has its content from it, or from elsewhere
        (other,) = {"m3w1", "m3w2"}.difference({keeper})
        assert scene.begun[other, OpenLoad] == 1

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_the_disk_of_the_one_that_keeps_it_is_lost(self, mode: str) -> None:
        # Given that the copy that New York kept is gone with the worker that kept it, after it had gone on
        scene = written(mode)
        scene.kill("m3w1")
        scene.worker("m3w1").empty()
        scene.start("m3w1")
        # Then it keeps another one before it executes again what may be void, and nothing is lost
        scene.come_together()
        has_all(scene, mode)
        assert (scene.begun["m3w1", RestoreKept], scene.begun["m3w1", OpenLoad]) == (1, 0)

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_workers_that_come_back_after_the_split_began_keep_a_copy_first(self, mode: str) -> None:
        # Given that no worker lives when both sides part, so that nobody keeps anything, and masters that begin anew in the split
        scene = ModeScene(mode)
        scene.put("m1", "before", b"key", b"before")
        scene.agree()
        workers = [worker.node for worker in scene.world.workers]
        scene.kill(*workers)
        scene.part(UK, US)
        scene.write_many("m1", "a", 3)
        scene.write_many("m3", "c", 3)
        scene.run(3_000)
        scene.kill(*scene.names)
        scene.start(*scene.names)
        # When workers come back, and execute all that their side has
        scene.start(*workers)
        scene.until(lambda: all(scene.runner(node).core.site.executed == scene.lsn(node) > 1 for node in scene.names), 20_000)
        # Then each has kept what is common to both sides first, and no site needs the content of another one, which is as void as its own
        assert [worker.copy.kept.lsn for worker in scene.world.workers if worker.copy.kept is not None] == [1, 1, 1]
        scene.come_together()
        assert not scene.who_began(OpenLoad)
        once(scene, ["before", *(f"{side}{number}" for side in "ac" for number in range(3))])

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_a_site_without_a_worker_has_no_copy_to_keep(self, mode: str) -> None:
        # Given a site without any worker when the others are lost
        scene = ModeScene(mode)
        scene.kill("m3w1")
        scene.run(5_000)
        # Then it goes on without one, and takes nothing in that nobody could execute
        scene.part(UK, US)
        assert scene.kept() == ["m1w1", "m2w1"]
        assert scene.runner("m3").core.site.read_only_reason(scene.master("m3").clock.now().mono_ms)
        # When its worker is back, then it does, and afterwards that is there once
        scene.start("m3w1")
        scene.run(2_000)
        scene.put("m3", "c", b"key", b"us")
        scene.put("m1", "a", b"key", b"uk")
        scene.come_together()
        once(scene, ["a", "c"])
