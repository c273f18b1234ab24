"""Named scenarios of epoch changes, as given / when / then on the shipped code in a scripted world: what happens in the middle of one.

The checkers of the simulator watch every step: one decision for each epoch, what was promised is kept, what was added stays. At
the end stand planted mistakes that need their events in an order that no seed has.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from brokerha.model.epochs import FIRST
from brokerha.model.records import EpochInstalled, EpochPromised
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochReport
from brokerha.model.wire.messages import Bodies, Post
from brokerha.sync.epochs.proposing import Proposing
from tests.simulation.mistakes.catalogue import planted
from tests.simulation.split_scene import LAG_MS, SOON_MS, SplitScene
from tests.simulator.checks.truth import Violation
from tests.simulator.options import HOUR_US

MASTERS = ("m1", "m2", "m3")

MOMENTS = {
    "before it said anything": ("append there", EpochPromised, 1),
    "after its prepare": ("sent, not answered", EpochPromised, 1),
    "when it had decided": ("append absent", EpochInstalled, 1),
    "when it had installed and told nobody": ("written, nothing sent", EpochInstalled, 1),
    "when it had told one": ("half sent", EpochInstall, 1),
    "when it had told two": ("half sent", EpochInstall, 2),
}


class TestProposers:
    """Whoever begins an epoch change may die in it, or not be the only one."""

    @pytest.mark.parametrize("moment", MOMENTS)
    def test_the_proposer_dies(self, moment: str) -> None:
        # Given five masters of which m5 is silent, and writes at all of them
        scene = SplitScene(5)
        scene.split("m1 m2 m3 m4", "m5")
        # When m1, the first of the others to begin, dies in the middle of the change
        scene.aim("m1", *MOMENTS[moment])
        writes = [scene.write(node, f"{node}-t", level="accepted") for node in scene.names]
        scene.until(lambda: not scene["m1"].is_up, SOON_MS)
        assert all(write.is_done for write in writes)
        # Then the other three go on without either
        scene.until_members("m2", "m3", "m4", within_ms=12 * LAG_MS)
        write = scene.write("m2", "after")
        assert scene.until(lambda: write.is_done, LAG_MS) > 0
        # And both come back
        scene.start("m1")
        scene.come_together()
        assert len(scene.order("m1")) == 6

    def test_two_proposers_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Given that nobody leaves it to others to begin
        monkeypatch.setattr(Proposing, "_wait_ms", lambda *_: 0)
        scene = SplitScene(5)
        proposers: set[str] = set()

        def see(sender: str, _to: str, message: object) -> bool:
            if isinstance(message, EpochPrepare):
                proposers.add(sender)
            return False

        scene.lose_if(see)
        # When m5 is silent
        scene.split("m1 m2 m3 m4", "m5")
        scene.write_many("m1", "a", 5)
        scene.until_members("m1", "m2", "m3", "m4", within_ms=12 * LAG_MS)
        # Then several began, and one epoch came of it (the checkers see to it that each number is decided once)
        assert len(proposers) > 1
        scene.come_together()

    def test_a_proposer_that_is_cut_off_before_anybody_reports(self) -> None:
        scene = SplitScene(5)
        scene.split("m1 m2 m3 m4", "m5")
        # When the reports to m1 are lost, and then m1 is cut off too
        scene.lose_if(lambda _sender, to, message: to == "m1" and isinstance(message, EpochReport))
        scene.write("m3", "t1", level="accepted")
        scene.until(lambda: scene.promised("m2") > FIRST, SOON_MS)
        scene.split("m1", "m2 m3 m4", "m5")
        scene.lose_nothing()
        # Then one of those whom it had asked begins anew, above its number
        scene.until_members("m2", "m3", "m4", within_ms=12 * LAG_MS)
        scene.until(lambda: scene.order("m4") == ["t1"])
        scene.come_together()

    def test_a_decision_that_comes_late(self) -> None:
        # Given an epoch of m1 that m2 promised and never heard the outcome of, as m1 died
        scene = _m2_has_promised_to_somebody_else()
        # When the outcome comes after all
        late = scene.truth.epochs[(2, "m1")]
        scene.inject("m2", "m1", EpochInstall(late), scene["m1"].incarnation)
        scene.run(5)
        # Then it is too late for it
        assert scene.epoch_id("m2") != late.id
        scene.start("m1")
        scene.come_together()

    def test_nobody_begins_an_epoch_while_all_is_well(self) -> None:
        scene = SplitScene()
        prepared: list[str] = []

        def note(sender: str, _to: str, message: object) -> bool:
            if isinstance(message, EpochPrepare):
                prepared.append(sender)
            return False

        scene.lose_if(note)
        for number in range(10):
            scene.write_many(MASTERS[number % 3], f"{number}-", 5)
            scene.run(3_000)
        scene.agree()
        assert not prepared
        assert scene.nobody_was_left_out()


def _m2_has_promised_to_somebody_else() -> SplitScene:
    scene = SplitScene()
    scene.split("m1 m2", "m3")
    scene.lose(EpochInstall, "m1")
    scene.write("m1", "a", level="accepted")
    scene.until(lambda: scene.epoch_id("m1") > FIRST, SOON_MS)
    scene.kill("m1")
    scene.lose_nothing()
    scene.heal()
    scene.until(lambda: scene.promised("m2") > (2, "m1"), 12 * LAG_MS)
    return scene


class TestRestartsInAnEpochChange:
    """What was promised and what was installed is found again."""

    @pytest.mark.parametrize("order", list(permutations(MASTERS)))
    @pytest.mark.parametrize("moment", ["promised", "installed by one"])
    def test_the_whole_cluster_is_killed(self, moment: str, order: tuple[str, ...]) -> None:
        # Given m1 and m2 in the middle of leaving m3 out, with writes everywhere
        scene = SplitScene()
        scene.write_many("m1", "agreed", 3)
        scene.agree()
        scene.split("m1 m2", "m3")
        writes = [write for node in MASTERS for write in scene.write_many(node, f"{node}-", 3)]
        scene.until(lambda: all(write.is_done for write in writes))
        of = scene.promised if moment == "promised" else scene.epoch_id
        scene.until(lambda: max(map(of, MASTERS)) > FIRST, SOON_MS)
        # When all of them die at once, and come back one after the other in a healed world
        scene.kill(*MASTERS)
        scene.heal()
        for node in order:
            scene.start(node)
            scene.run(700)
        # Then everything that was accepted is agreed on, once
        scene.come_together(60_000)
        assert len(scene.order("m1")) == 12

    @pytest.mark.parametrize("order", list(permutations(MASTERS)))
    def test_the_whole_cluster_is_killed_while_it_takes_a_master_back(self, order: tuple[str, ...]) -> None:
        scene = SplitScene()
        scene.split("m1 m2", "m3")
        scene.write_many("m3", "c", 3)
        scene.write_many("m1", "a", 3)
        scene.until_members("m1", "m2")
        scene.until(lambda: scene.lsn("m2") == 3)
        scene.heal()
        before = scene.promised("m1")
        scene.until(lambda: scene.promised("m3") > before, SOON_MS)
        scene.kill(*MASTERS)
        for node in order:
            scene.start(node)
            scene.run(700)
        scene.come_together(60_000)
        assert scene.order("m3")[:3] == ["a0", "a1", "a2"]
        assert len(scene.order("m3")) == 6

    def test_a_restart_with_a_clock_one_hour_back(self) -> None:
        # Given m1 and m2 in an epoch of their own
        scene = SplitScene()
        scene.split("m1 m2", "m3")
        scene.write_many("m1", "a", 3)
        scene.until_members("m1", "m2")
        scene.until(lambda: scene.lsn("m2") == 3)
        above = scene.epoch("m1").above
        # When all restart, and the clocks of m1 and m3 show an hour ago
        scene.kill(*MASTERS)
        for node in ("m1", "m3"):
            scene[node].clock.jump(-HOUR_US)
        scene.start(*MASTERS)
        writes = [scene.write(node, f"{node}-later") for node in ("m1", "m2")]
        # Then what they write comes after what was there, without waiting for that hour
        assert scene.until(lambda: all(write.is_done for write in writes)) < 2_000
        assert scene.master("m1").journal.ordered(4, 1)[0][0] > above
        scene.write("m3", "m3-later", level="accepted")
        scene.come_together()
        assert scene.order("m1")[-1] == "m3-later"

    def test_a_clock_one_hour_ahead_on_the_smaller_side(self) -> None:
        # Given that m3, whose clock is an hour ahead, wrote before the split
        scene = SplitScene()
        scene["m3"].clock.jump(HOUR_US)
        scene.split("m1 m2", "m3")
        scene.write("m3", "ahead", level="accepted")
        after = scene.write("m1", "now")
        scene.until(lambda: after.is_done, SOON_MS)
        # When it comes back, then its write is behind what was agreed on without it, although its timestamp is higher
        scene.come_together()
        assert scene.order("m1") == ["now", "ahead"]
        # And nobody waits for an hour afterwards
        last = scene.write("m2", "last")
        assert scene.until(lambda: last.is_done) < 100
        scene.run(10)
        assert scene.order("m1")[-1] == "last"


class TestMistakesThatNoSeedMeets:
    """Each needs its events in the right order: so that the scenarios are known to see what they look for."""

    @staticmethod
    def one_queue_is_ahead_and_away() -> SplitScene:
        """m2 alone has added m1's write and is gone; m3, who comes back to m1, has an older write of its own."""
        scene = SplitScene(acknowledge="majority")
        scene.split("m1 m2", "m3")
        older = scene.write("m3", "a-older", level="accepted")
        scene.until_members("m1", "m2")
        scene.run(1_000)
        assert older.is_done
        scene.lose(Post, "m2")
        scene.write("m1", "z-newer", level="accepted")
        scene.until(lambda: scene.order("m2") == ["z-newer"])
        scene.kill("m2")
        scene.lose_nothing()
        assert scene.order("m1") == []
        return scene

    def test_what_the_later_epoch_knows_comes_first(self) -> None:
        scene = self.one_queue_is_ahead_and_away()
        # When m1 and m3 go on together
        scene.heal()
        scene.until_members("m1", "m3", within_ms=12 * LAG_MS)
        scene.until(lambda: scene.lsn("m3") == 2)
        # Then they add what m2 may have added before what it cannot have
        assert scene.order("m3") == ["z-newer", "a-older"]
        scene.start("m2")
        scene.come_together()

    def test_without_that_rule_it_would_do_harm(self) -> None:
        with planted("lowest epoch first"), pytest.raises(Violation, match=r"^S1:"):
            self.test_what_the_later_epoch_knows_comes_first()

    def test_a_list_that_was_recovered_by_nobody_yet_is_recovered_again_in_its_order(self) -> None:
        # Given that m1 and m3 have an epoch whose recovered list they cannot add: bodies do not pass
        scene = self.one_queue_is_ahead_and_away()
        scene.lose_if(lambda _sender, _to, message: isinstance(message, Bodies))
        scene.heal()
        scene.until_members("m1", "m3", within_ms=12 * LAG_MS)
        first = scene.epoch("m1")
        assert [txid for _, txid, _ in first.recovered] == ["z-newer", "a-older"]
        # When they are asked to promise another one, and its proposer is gone, so that they begin one themselves
        asked = EpochPrepare((first.number + 1, "m2"))
        scene.inject("m1", "m2", asked, scene["m2"].incarnation)
        scene.until(lambda: scene.epoch_id("m1") > first.id, 12 * LAG_MS)
        # Then that one recovers the same, in the same order
        assert scene.epoch("m1").recovered == first.recovered
        scene.lose_nothing()
        scene.until(lambda: scene.lsn("m1") == scene.lsn("m3") == 2, SOON_MS)
        scene.start("m2")
        scene.come_together()

    @pytest.mark.parametrize(
        ("mistake", "rule"),
        [
            ("recovered list sorted again", "S1"),
            ("recovered list not reported", "S1"),
            ("recovered list reported without bodies", "S8"),
        ],
    )
    def test_without_reporting_it_as_it_is_it_would_do_harm(self, mistake: str, rule: str) -> None:
        with planted(mistake), pytest.raises(Violation, match=f"^{rule}:"):
            self.test_a_list_that_was_recovered_by_nobody_yet_is_recovered_again_in_its_order()

    def test_a_proposer_recovers_what_it_does_not_hold_itself(self) -> None:
        # Given that m3 alone has added m2's write and is gone, and that its body never came to m1
        scene = SplitScene(acknowledge="majority")
        scene.lose_if(
            lambda sender, to, message: (
                (to == "m1" and isinstance(message, Bodies)) or (sender == "m3" and isinstance(message, Post))
            )
        )
        scene.write("m2", "t1", level="accepted")
        scene.until(lambda: scene.order("m3") == ["t1"])
        scene.kill("m3")
        assert scene.order("m2") == []
        # When m1 decides an epoch with m2
        scene.until_members("m1", "m2", within_ms=12 * LAG_MS)
        assert scene.epoch("m1").proposer == "m1"
        # Then it has to be in it
        assert [txid for _, txid, _ in scene.epoch("m1").recovered] == ["t1"]
        scene.lose_nothing()
        scene.until(lambda: scene.order("m1") == ["t1"])
        scene.start("m3")
        scene.come_together()

    @pytest.mark.parametrize("mistake", ["own report alone", "entries of others dropped"])
    def test_without_the_reports_of_others_it_would_do_harm(self, mistake: str) -> None:
        with planted(mistake), pytest.raises(Violation, match=r"^S1:"):
            self.test_a_proposer_recovers_what_it_does_not_hold_itself()

    def test_without_looking_at_the_promise_a_late_decision_would_do_harm(self) -> None:
        with planted("epoch installed that was not promised"), pytest.raises(Violation, match=r"^S12:"):
            TestProposers().test_a_decision_that_comes_late()
