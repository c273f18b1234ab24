"""Scenarios in which masters are added, taken out, come back, and lose their disks (19, 20 and 21 of the protocol's list)."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model.epochs import ADD, REMOVE
from brokerha.model.ids import NodeId
from brokerha.model.records import EpochInstalled, EpochPromised
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochReport, Join
from brokerha.sync.core import SyncCore
from brokerha.sync.membership import DONE, Wish
from tests.simulation.mistakes.catalogue import planted
from tests.simulation.split_scene import LAG_MS, SOON_MS, SplitScene
from tests.simulator.checks.truth import Violation

A_CHANGE_MS = 6 * LAG_MS
"""Enough for a master to read what there is, ask to join and be taken in, or for one to be taken out."""


class MemberScene(SplitScene):
    """A scripted world whose masters come and go.

    scene = MemberScene()                       m1 m2 m3, and m4 m5 that are not started
    scene.begin("m4")                           m4 begins with an empty journal
    wish = scene.tell("m1", ADD, "m4")          an operator tells m1 to add it
    scene.until_masters("m1", "m2", "m3", "m4")
    """

    def __init__(self, masters: int = 3, spares: int = 2, workers: int = 0, **settings: Any) -> None:
        super().__init__(masters, workers, others={"spares": (workers,) * spares}, **settings)

    def core(self, node: NodeId) -> SyncCore:
        """The core of a master, to be looked at."""
        return self.master(node).runner.core.sync

    def begin(self, node: NodeId) -> None:
        """A spare begins."""
        self.world.members.begin_node(node)

    def tell(self, at: NodeId, kind: str, node: NodeId) -> Wish:
        """An operator tells a master to add or to take out another one."""
        master = self.master(at)
        membership, now = self.core(at).epochs.membership, master.clock.now()
        wish = membership.add(self.core(at), node, now) if kind == ADD else membership.remove(self.core(at), node, now)
        master.wake()
        return wish

    @property
    def masters(self) -> tuple[NodeId, ...]:
        """By the latest epoch that somebody has installed."""
        return self.world.members.masters

    def until_masters(self, *nodes: NodeId, within_ms: int = A_CHANGE_MS) -> None:
        """Wait until these are the masters, and all of them are members of one epoch."""
        self.until(lambda: self.masters == tuple(sorted(nodes)), within_ms)
        self.until_members(*nodes, within_ms=within_ms)

    def lose_machine(self, node: NodeId) -> None:
        """The data of a master are lost; it begins again with nothing."""
        self.world.members.empty_site(node)
        self.start(node)

    def come_together(self, within_ms: int = 60_000) -> None:
        """All links work again; wait until all masters are of one mind."""
        self.heal()
        self.agree(within_ms)
        orders = {tuple(self.order(node)) for node in self.masters}
        assert len(orders) == 1
        order = orders.pop()
        assert len(set(order)) == len(order)


MOMENTS = {
    "before it had promised": ("append absent", EpochPromised),
    "when it had promised": ("written, nothing sent", EpochPromised),
    "in the middle of what it asks": ("half sent", EpochPrepare),
    "when it reports": ("half sent", EpochReport),
    "before it had installed": ("append absent", EpochInstalled),
    "when it had installed": ("written, nothing sent", EpochInstalled),
    "when it had told one": ("half sent", EpochInstall),
    "when it asks to join": ("half sent", Join),
}


class TestAddingAndTakingOut:
    """19: under load, whoever it is, and whoever dies in which step."""

    def test_a_master_is_added_under_load(self) -> None:
        # Given three masters that clients write to all the time
        scene = MemberScene(workers=1)
        for number in range(5):
            scene.write_many("m1", f"a{number}-", 20)
            scene.run(200)
        # When a fourth is added meanwhile
        scene.begin("m4")
        wish = scene.tell("m2", ADD, "m4")
        for number in range(20):
            scene.write_many(f"m{1 + number % 3}", f"b{number}-", 10)
            scene.run(200)
        scene.until_masters("m1", "m2", "m3", "m4")
        scene.until(lambda: wish.state == DONE)
        # Then it has everything, its worker too, and writes
        write = scene.write("m4", "of-m4")
        scene.until(lambda: write.is_done)
        scene.come_together()
        assert len(scene.order("m4")) == 301

    def test_a_master_is_taken_out_under_load_and_nothing_is_lost(self) -> None:
        scene = MemberScene(queue_window=5)
        for node in scene.names[:3]:
            scene.write_many(node, f"{node}-", 50)
        wish = scene.tell("m1", REMOVE, "m3")
        scene.until(lambda: wish.state == DONE, A_CHANGE_MS)
        scene.come_together()
        assert scene.masters == ("m1", "m2")
        assert len(scene.order("m1")) == 150
        assert "taken out" in scene.core("m3").retired

    def test_the_proposer_is_taken_out(self) -> None:
        # Given that m1 has decided the epoch in which they are
        scene = MemberScene(4)
        scene.split("m1 m2 m3", "m4")
        scene.until_members("m1", "m2", "m3")
        scene.heal()
        scene.until_members("m1", "m2", "m3", "m4")
        # When m3 is told to take it out
        scene.write_many("m1", "a", 5)
        wish = scene.tell("m3", REMOVE, "m1")
        scene.until_masters("m2", "m3", "m4")
        scene.until(lambda: wish.state == DONE)
        # Then the others go on, and leave out whoever is missed next
        scene.split("m2 m3", "m4")
        scene.until_members("m2", "m3")
        scene.come_together()
        assert len(scene.order("m2")) == 5

    @pytest.mark.parametrize("moment", MOMENTS)
    @pytest.mark.parametrize("victims", ["m1", "m2", "m4", "m1 m4", "m1 m2 m3 m4"])
    def test_somebody_dies_while_a_master_is_added(self, victims: str, moment: str) -> None:
        scene = MemberScene()
        scene.write_many("m2", "a", 5)
        scene.begin("m4")
        self.while_some_die(scene, ADD, "m4", victims.split(), moment)
        scene.until_masters("m1", "m2", "m3", "m4", within_ms=20 * LAG_MS)
        scene.come_together()
        assert len(scene.order("m4")) == 5

    @pytest.mark.parametrize("moment", MOMENTS)
    @pytest.mark.parametrize("victims", ["m1", "m2", "m3", "m1 m3", "m1 m2 m3 m4"])
    def test_somebody_dies_while_a_master_is_taken_out(self, victims: str, moment: str) -> None:
        scene = MemberScene(4)
        scene.write_many("m2", "a", 5)
        self.while_some_die(scene, REMOVE, "m3", victims.split(), moment)
        scene.until_masters("m1", "m2", "m4", within_ms=20 * LAG_MS)
        scene.come_together()
        assert len(scene.order("m4")) == 5

    @staticmethod
    def while_some_die(scene: MemberScene, kind: str, node: NodeId, victims: list[NodeId], moment: str) -> None:
        """m1 is told to change the masters, some die in the middle of that and come back, and it is told again."""
        for victim in victims:
            scene.aim(victim, *MOMENTS[moment])
        scene.tell("m1", kind, node)
        scene.run(SOON_MS)
        for victim in victims:
            scene[victim].aim = None
        scene.start(*(victim for victim in victims if not scene[victim].is_up))
        scene.run(LAG_MS)
        scene.tell("m1", kind, node)


class TestComingBack:
    """20: a master that was taken out; 21: one whose disk was emptied under its old id."""

    def test_one_that_was_taken_out_while_it_was_away_does_no_harm(self) -> None:
        scene = MemberScene(4)
        scene.write_many("m1", "a", 3)
        scene.agree()
        scene.kill("m4")
        scene.tell("m1", REMOVE, "m4")
        scene.until_masters("m1", "m2", "m3")
        # When it is back, in a world in which it could find a majority of the masters that it knows
        scene.split("m1", "m2 m3 m4")
        scene.start("m4")
        write = scene.write("m2", "b")
        scene.until(lambda: write.is_done, SOON_MS)
        scene.run(SOON_MS)
        # Then it is told, takes nothing in, and the others do as before
        assert "taken out" in scene.core("m4").retired
        assert scene.order("m4") == ["a0", "a1", "a2"]
        scene.come_together()
        assert scene.masters == ("m1", "m2", "m3")

    def test_with_its_old_journal_it_does_not_come_back_and_with_a_new_one_it_does(self) -> None:
        scene = MemberScene()
        scene.write_many("m3", "a", 3)
        scene.agree()
        wish = scene.tell("m1", REMOVE, "m3")
        scene.until(lambda: wish.state == DONE, A_CHANGE_MS)
        scene.tell("m1", ADD, "m3")
        scene.run(SOON_MS)
        assert scene.masters == ("m1", "m2")
        # When it is emptied, then it is added
        scene.lose_machine("m3")
        scene.until_masters("m1", "m2", "m3")
        write = scene.write("m3", "again")
        scene.until(lambda: write.is_done, SOON_MS)
        scene.come_together()
        assert scene.order("m2") == ["a0", "a1", "a2", "again"]

    def test_one_that_is_emptied_while_it_is_added_is_added_with_the_journal_that_it_has(self) -> None:
        # Given m4 that all have heard, as each of them was told to add it, and that nobody has added yet
        scene = MemberScene()
        scene.write_many("m1", "a", 3)
        scene.agree()
        scene.begin("m4")
        scene.lose_if(lambda _sender, _to, message: isinstance(message, Join))
        for node in ("m1", "m2", "m3"):
            scene.tell(node, ADD, "m4")
        scene.until(lambda: all("m4" in scene.core(node).peers.journals for node in ("m1", "m2", "m3")), A_CHANGE_MS)
        # When its machine is lost
        scene.lose_machine("m4")
        scene.run(2 * LAG_MS)
        scene.lose_nothing()
        # Then it is added, without another word
        scene.until_masters("m1", "m2", "m3", "m4")
        scene.come_together()
        assert scene.order("m4") == ["a0", "a1", "a2"]

    def test_a_disk_that_was_emptied_under_the_old_id(self) -> None:
        # Given m3 that stamped and promised, and begins with nothing
        scene = MemberScene()
        scene.write_many("m3", "a", 3)
        scene.agree()
        scene.lose_machine("m3")
        scene.run(SOON_MS)
        # Then it knows it, and makes up no majority
        assert "m3" in scene.core("m3").lost
        scene.kill("m2")
        write = scene.write("m1", "b", level="synchronised")
        scene.run(SOON_MS)
        assert not write.is_done
        # When it is replaced
        scene.start("m2")
        scene.run(SOON_MS)
        wish = scene.tell("m2", REMOVE, "m3")
        scene.until(lambda: wish.state == DONE, A_CHANGE_MS)
        scene.tell("m1", ADD, "m3")
        scene.until_masters("m1", "m2", "m3")
        # Then it is one of three again
        scene.kill("m1")
        last = scene.write("m3", "c")
        scene.until(lambda: last.is_done, A_CHANGE_MS)
        scene.start("m1")
        scene.come_together()
        assert sorted(scene.order("m3")) == ["a0", "a1", "a2", "b", "c"]


class TestRivalChanges:
    """Two epochs that change the same four masters in different ways."""

    @staticmethod
    def of_four_masters(kind: str = REMOVE, node: NodeId = "m4") -> MemberScene:
        """m1 and m5 are in an epoch that has m5 as well; m2 and m3 in a later one with another change, for which m4 has voted."""
        scene = MemberScene(4)
        scene.begin("m5")
        scene.run(1_000)
        scene.split("m1 m2 m3 m5 m6", "m4")
        scene.lose_if(lambda _sender, to, message: isinstance(message, EpochInstall) and to in {"m2", "m3", "m4"})
        scene.tell("m1", ADD, "m5")
        scene.until(lambda: scene.masters == ("m1", "m2", "m3", "m4", "m5"), A_CHANGE_MS)
        scene.split("m1 m5", "m2 m3 m4 m6")
        scene.lose_nothing()
        if kind == ADD:
            scene.begin(node)
        scene.tell("m2", kind, node)
        masters = {"m1", "m2", "m3", "m4"} ^ {node}
        scene.until(lambda: {*scene.masters} == masters, 20 * LAG_MS)
        scene.split("m1 m4 m5", "m2 m3 m6")
        return scene

    @pytest.mark.parametrize(("kind", "node"), [(REMOVE, "m4"), (ADD, "m6")])
    def test_one_of_them_goes_on(self, kind: str, node: NodeId) -> None:
        scene = self.of_four_masters(kind, node)
        write = scene.write("m2", "x", level="synchronised")
        other = scene.write("m1", "y", level="accepted")
        scene.until(lambda: write.is_done, 20 * LAG_MS)
        scene.run(10 * LAG_MS)
        # m1 has waited
        assert other.is_done
        assert scene.order("m1") == []
        scene.come_together()
        assert scene.order("m1") == ["x", "y"]

    def test_if_the_masters_before_did_not_count_both_would(self) -> None:
        with planted("masters before a change not counted"), pytest.raises(Violation, match=r"^S1:"):
            self.test_one_of_them_goes_on(REMOVE, "m4")
