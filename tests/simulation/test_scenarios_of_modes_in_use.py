"""Named scenarios of the strategies smart, simple and none as those see them who work with them: clients that wait, sites that keep what
they did, a long split, and the operator who chooses. The checkers of the simulator watch as in the others.
"""

from __future__ import annotations

import pytest

from brokerha.model.errors import NotReady
from brokerha.model.ready import OpenLoad, RestoreKept
from tests.simulation.mode_scene import MODES, UK, US, ModeScene, has_all, once, written
from tests.simulator.processes import Aim

STILL_MS = 2_000
"""For so long a worker is still counted on."""


class TestLongSplits:
    """Thousands of transactions on both sides."""

    @pytest.mark.parametrize("mode", MODES)
    def test_a_large_backlog_when_the_links_are_back(self, mode: str) -> None:
        scene = ModeScene(mode)
        scene.part(UK, US)
        scene.put_many("m1", "a", 1_000)
        scene.put_many("m3", "c", 1_000)
        scene.come_together()
        # Then each side's is there in its own order, and all copies have it
        order = scene.order("m2")
        uk, us = [f"a{number}" for number in range(1_000)], [f"c{number}" for number in range(1_000)]
        assert [txid for txid in order if txid[0] == "c"] == us
        assert [txid for txid in order if txid[0] == "a"] == uk
        assert {worker.copy.applied().items for worker in scene.world.workers} == {2_000}
        # And the books count them all
        stayed = {node: sum(order[place] == txid for place, txid in enumerate(own)) for node, own in (("m1", uk), ("m3", us))}
        if mode == "simple":
            told = {node: {"same place": same, "executed again": 1_000 - same} for node, same in stayed.items()}
            assert {node: scene.effects(node) for node in told} == {
                node: {e: n for e, n in t.items() if n} for node, t in told.items()
            }
        else:
            assert scene.effects("m1") == {}
            assert scene.effects("m3") == {"not executed again" if mode == "none" else "executed again": 1_000}


class TestWaitingClients:
    """A client never has to guess: the transaction id is what stays."""

    @pytest.mark.parametrize("mode", MODES)
    def test_one_that_waits_through_a_split_gets_its_outcome_of_the_final_order(self, mode: str) -> None:
        # Given that New York has no worker, so that its client waits for an outcome though the order is there
        scene = ModeScene(mode)
        scene.put("m1", "before", b"key", b"before")
        scene.agree()
        scene.part(UK, US)
        scene.kill("m3w1")
        claim = scene.hand_in("m3", "us", ("expect-key", "table", b"seat", ""), ("put", "table", b"seat", b"us"))
        scene.until(lambda: scene.order("m3") == ["before", "us"])
        scene.put_many("m1", "a", 3)
        scene.claim("m1", "uk", b"seat", b"uk")
        assert not claim.is_done
        # When they come together, and its worker is back
        scene.heal()
        scene.until_members(*scene.names)
        scene.start("m3w1")
        scene.all_done([claim])
        scene.come_together()
        # Then it is told what became of its transaction in the order of all, and at which place, once
        lsn = 1 + scene.order("m1").index("us")
        (answer,) = scene.answers["us"]
        assert (answer.status, answer.lsn) == ({"rejected": "rejected", "applied": "applied"}[scene.outcome("m1", "us")[0]], lsn)
        assert {scene.outcome(node, "us")[1] for node in scene.names} == {lsn}
        if mode != "simple":
            assert (answer.status, lsn) == ("rejected", 6)

    @pytest.mark.parametrize("mode", MODES)
    def test_one_whose_write_waits_for_the_time_out_is_told_what_its_side_says_and_asks_again_afterwards(self, mode: str) -> None:
        scene = ModeScene(mode)
        scene.split(UK, US)
        writes = [scene.write("m1", "a"), scene.write("m3", "c")]
        scene.all_done(writes)
        assert [[(answer.status, answer.lsn) for answer in scene.answers[txid]] for txid in ("a", "c")] == [[("applied", 1)]] * 2
        scene.come_together()
        # Then each master tells the same place, and the id is the same
        for txid in ("a", "c"):
            assert {scene.outcome(node, txid) for node in scene.names} == {("applied", 1 + scene.order("m1").index(txid))}

    @pytest.mark.parametrize("mode", MODES)
    def test_one_that_hands_it_in_on_both_sides_has_one_transaction(self, mode: str) -> None:
        scene = ModeScene(mode)
        scene.part(UK, US)
        scene.put("m1", "a", b"other", b"uk")
        write = scene.put("m1", "twice", b"key", b"v")
        scene.again("m3", write)
        scene.until(lambda: "twice" in scene.order("m3"))
        assert scene.lsn("m1") == 2
        scene.come_together()
        once(scene, ["a", "twice"])
        assert scene.values(b"key") == [b"v"] * 3


class TestSitesOfNone:
    """Content stays where it is; what a worker lacks comes from the one beside it."""

    def test_a_slow_site_executes_all_that_it_has_before_its_log_is_replaced(self) -> None:
        # Given that New York's worker is far behind when the links are back: it stands still for a while
        scene = ModeScene("none")
        scene.part(UK, US)
        for number in range(4):
            orders = ("publish", "orders", "text/plain", b"%d" % number)
            scene.all_done([scene.hand_in("m1", f"a{number}", orders)])
        scene["m3w1"].freeze(STILL_MS * 1_000)
        for number in range(4):
            orders = ("publish", "orders", "text/plain", b"%d" % number)
            scene.all_done([scene.hand_in("m3", f"c{number}", orders, level="synchronised")])
        assert scene.worker("m3w1").copy.applied().lsn == 0
        # When they come together
        scene.come_together()
        # Then it has executed its own first, and each order is there once at every site
        assert scene.effects("m3") == {"not executed again": 4}
        assert [split["keeps_content"] for split in scene.splits("m3")] == [True]
        assert [scene.messages(f"{node}w1", "orders") for node in scene.names] == [8, 8, 8]
        assert scene.who_began(OpenLoad) == []

    def test_a_site_that_is_too_slow_to_execute_all_does_not_keep_what_it_has(self) -> None:
        # Given that New York's worker takes one transaction at a time, and longer for all of them than a master waits
        scene = ModeScene("none", others={"feed": {"window": 1}})
        scene.part(UK, US)
        scene["m3w1"].is_disk_slow = True
        writes = [scene.hand_in("m3", f"c{number}", ("publish", "orders", "", b"us"), level="synchronised") for number in range(30)]
        scene.all_done([*writes, scene.hand_in("m1", "a", ("publish", "orders", "", b"uk"))])
        # When they come together while one of them is on its way to the worker
        scene.heal()
        scene.until(lambda: bool(scene.gave_up("m3")), 20_000)
        scene["m3w1"].is_disk_slow = False
        scene.come_together()
        # Then nobody says that it kept its content, and it has that of the others, with each order once
        assert [split["keeps_content"] for split in scene.splits("m3")] == [False]
        assert [scene.messages(f"{node}w1", "orders") for node in scene.names] == [31, 31, 31]
        assert scene.worker("m3w1").copy.applied() == scene.worker("m1w1").copy.applied()

    @pytest.mark.parametrize("place", [1, 2])
    @pytest.mark.parametrize("point", ["store absent", "store there"])
    def test_the_worker_is_killed_while_it_goes_over_to_the_log_of_now(self, point: str, place: int) -> None:
        scene = ModeScene("none")
        scene.part(UK, US)
        for number in range(3):
            orders = ("publish", "orders", "text/plain", b"%d" % number)
            scene.all_done([scene.hand_in("m3", f"c{number}", orders), scene.hand_in("m1", f"a{number}", orders)])
        # When it dies at the first, or at the second thing that it writes after the log of its site was replaced
        scene.heal()
        scene.until(lambda: bool(scene.gave_up("m3")), 20_000)
        scene["m3w1"].aim = Aim(point, None, place)
        scene.until(lambda: not scene["m3w1"].is_up, 20_000)
        scene.run(500)
        scene.start("m3w1")
        scene.come_together()
        assert [scene.messages(f"{node}w1", "orders") for node in scene.names] == [6, 6, 6]
        assert scene.effects("m3") == {"not executed again": 3}
        assert scene.who_began(OpenLoad) == []

    @pytest.mark.parametrize("executed", [0, 1, 2])
    def test_a_worker_that_was_dead_takes_the_content_of_the_other_one_of_its_site(self, executed: int) -> None:
        # Given two workers in New York, one of which dies before all that is written there is executed by it, or after that
        scene = ModeScene("none", workers=2)
        scene.put("m1", "before", b"key", b"before")
        scene.agree()
        scene.part(UK, US)
        for number in range(2):
            if number == executed:
                scene.kill("m3w2")
            scene.put("m3", f"us-{number}", b"key", b"us")
        scene.kill("m3w2")
        scene.put("m1", "uk", b"key", b"uk")
        # When they come together, then nobody waits for it
        scene.heal()
        scene.until_members(*scene.names)
        scene.until(lambda: scene.worker("m3w1").copy.applied().lsn == 4)
        # When it is back, with the content of a place that its site has left
        scene.start("m3w2")
        scene.come_together()
        # Then it has what the other one has, and not what the log makes
        assert scene.values(b"key") == [b"us"] * 4 + [b"uk"] * 2
        assert scene.worker("m3w2").copy.applied() == scene.worker("m3w1").copy.applied()
        assert scene.effects("m3") == {"not executed again": 2}
        # And where it has executed all it goes on with that
        assert scene.who_began(OpenLoad) == ["m3w2"][: executed < 2]

    def test_all_workers_of_a_site_are_dead_when_they_come_together(self) -> None:
        # Given that what New York has executed is at no live worker
        scene = ModeScene("none")
        scene.part(UK, US)
        scene.put("m3", "us", b"key", b"us")
        scene.put("m1", "uk", b"key", b"uk")
        scene.kill("m3w1")
        scene.heal()
        scene.until_members(*scene.names)
        # Then the book does not say that content was kept
        assert [split["keeps_content"] for split in scene.splits("m3")] == [False]
        # When it is back, then it goes over to what the others hold
        scene.start("m3w1")
        scene.come_together()
        assert scene.values(b"key") == [b"us"] * 3
        assert scene.book("m3") == [(1, "us", "applied", 2, "applied", "executed again")]


class TestTheStrategyIsChanged:
    """Due to the stateful nature of recovery strategies, a master's preferred strategy cannot be changed during a split."""

    def test_by_command_before_a_split(self) -> None:
        # Given a cluster whose files say smart
        scene = ModeScene("smart")
        scene.put("m1", "before", b"key", b"before")
        answer = scene.tell("m2", "split-recovery", mode="Simple")
        assert (answer["change"]["state"], answer["mode"]) == ("under way", "smart")
        scene.until(lambda: scene.tell("m2", "split-recovery")["change"]["state"] == "done", 10_000)
        # Then all masters have it, by an epoch, and over a restart of all
        scene.kill(*scene.names)
        scene.start(*scene.names)
        scene.come_together()
        for node in scene.names:
            told = scene.tell(node, "split-recovery")
            assert (told["mode"], told["source"]) == ("simple", "epoch")
        # And the next split is one of that strategy: both sides go back
        scene.part(UK, US)
        scene.put("m1", "a", b"key", b"uk")
        scene.put("m3", "c", b"key", b"us")
        scene.come_together()
        assert [scene.gave_up(node) for node in scene.names] == [[(1, 1)]] * 3
        assert scene.who_began(RestoreKept) == ["m1w1", "m2w1", "m3w1"]

    @pytest.mark.parametrize("mode", MODES)
    def test_it_is_refused_during_a_split(self, mode: str) -> None:
        scene = written(mode)
        other = "simple" if mode != "simple" else "smart"
        # When an operator of either side tells it, then who is missing is named, and nothing is changed
        for node, missing in (("m1", "m3"), ("m3", "m1, m2")):
            with pytest.raises(NotReady, match=f"refused during a split: not heard: {missing}; {mode} stays in force"):
                scene.tell(node, "split-recovery", mode=other)
            assert scene.tell(node, "split-recovery")["mode"] == mode
        # Nor while they come together
        scene.heal()
        scene.until(scene.runner("m3").core.sync.is_frozen, 20_000)
        with pytest.raises(NotReady, match="refused during a split"):
            scene.tell("m3", "split-recovery", mode=other)
        scene.come_together()
        has_all(scene, mode)
        # Afterwards it is done
        scene.tell("m3", "split-recovery", mode=other)
        scene.until(lambda: all(scene.tell(node, "split-recovery")["mode"] == other for node in scene.names), 10_000)

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_a_split_begins_while_it_is_changed(self, mode: str) -> None:
        # Given a wish that no epoch has decided yet when the link breaks
        scene = ModeScene(mode)
        scene.tell("m1", "split-recovery", mode="none")
        scene.part(UK, US)
        # Then either side goes on with one strategy, and they come together by one
        scene.put("m1", "a", b"key", b"uk")
        scene.put("m3", "c", b"key", b"us")
        scene.come_together(60_000)
        once(scene, ["a", "c"])
        assert len({scene.tell(node, "split-recovery")["mode"] for node in scene.names}) == 1
