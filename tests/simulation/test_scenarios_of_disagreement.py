"""Named scenarios of copies that came to different contents: who is right, who is healed, and when a person has to choose.

Like test_scenarios_of_workers.py: given / when / then on the shipped code in a scripted world.
"""

from __future__ import annotations

from brokerha.model import states
from brokerha.model.operations import pack_operations
from brokerha.replication.site.config import Standing
from tests.simulation.mistakes.catalogue import planted
from tests.simulation.scene import NO_SCRUB, Scene, damage, loaded, probe_of, site


class TestDisagreement:
    """Copies that came to different contents."""

    def test_the_majority_is_right_against_the_probe(self) -> None:
        # Given three workers, of which the probe has a damaged value that nobody has looked at
        scene = Scene((3, 1, 1), others=NO_SCRUB)
        scene.write("m1", "t1")
        scene.agree()
        scene.truth.may_differ = True
        probe = probe_of(scene, "m1")
        damage(scene.worker(probe), b"t1")
        # When that value is written again, so that the probe comes to another content than the others
        write = scene.write_again("m1", "t2", b"t1", b"new")
        scene.until(lambda: write.is_done, within_ms=10_000)
        # Then the others are right, the log goes back before that line, and the probe takes a copy of them
        scene.agree()
        assert loaded(scene) == 1
        assert site(scene, probe).standing is Standing.ON

    def test_on_a_tie_the_probe_is_right(self) -> None:
        # Given two workers, of which the one that applies has a damaged value
        scene = Scene((2, 1, 1), others=NO_SCRUB)
        scene.write("m1", "t1")
        scene.agree()
        scene.truth.may_differ = True
        other = "m1w2" if probe_of(scene, "m1") == "m1w1" else "m1w1"
        before = scene.worker(other).copy.journal
        damage(scene.worker(other), b"t1")
        # When that value is written again
        scene.write_again("m1", "t2", b"t1", b"new")
        # Then the one that differs takes a copy of the probe
        scene.agree()
        assert loaded(scene) == 1
        assert scene.worker(other).copy.journal != before

    def test_without_taking_it_out_it_would_stay_different(self) -> None:
        # Given the mistake that a copy which differs is kept
        with planted("differing copy kept"):
            scene = Scene((2, 1, 1), others=NO_SCRUB)
            scene.write("m1", "t1")
            scene.agree()
            scene.truth.may_differ = True
            other = "m1w2" if probe_of(scene, "m1") == "m1w1" else "m1w1"
            damage(scene.worker(other), b"t1")
            scene.write_again("m1", "t2", b"t1", b"new")
            scene.run(20_000)
            # Then it never applies the next line: this is what the scenario above is able to see
            assert scene.world.what_is_missing().startswith(f"{other} ")

    def test_two_unknown_workers_and_no_good_one_wait_for_a_choice(self) -> None:
        # Given two workers whose copies are of another history, each of its own
        scene = Scene((2,), others=NO_SCRUB)
        scene.write_many("m1", "t", 3)
        scene.agree()
        # And a master that has written the results of its own
        scene.run(200)
        scene.truth.may_differ = True
        scene.kill("m1w1", "m1w2")
        for node in ("m1w1", "m1w2"):
            strange = [(f"x{n}", n, pack_operations([("put", "table", node.encode(), b"%d" % n)])) for n in range(3)]
            worker = scene.worker(node)
            worker.empty()
            worker.copy.execute(1, strange)
            scene.truth.set_applied(node, 3)
        scene.kill("m1")
        scene.start("m1", "m1w1", "m1w2")
        scene.run(10_000)
        # Then nothing is chosen by itself; both are named, and neither is read
        word, reason = scene.state("m1")
        assert word == states.NEEDS_ATTENTION
        assert "m1w1" in reason
        assert "m1w2" in reason
        assert scene.master("m1").runner.core.feed.readable(scene.master("m1").clock.now().mono_ms) == []
        # When an operator chooses one
        assert scene.master("m1").command("worker-trust", worker="m1w2") is not None
        scene.until(lambda: all(site(scene, node).is_on for node in ("m1w1", "m1w2")), within_ms=20_000)
        # Then the other one takes a copy of it, and writes go on
        assert loaded(scene) == 1
        assert scene.worker("m1w1").copy.applied() == scene.worker("m1w2").copy.applied()
        write = scene.write("m1", "after")
        scene.until(lambda: write.is_done, within_ms=10_000)

    def test_a_differing_site_is_named_within_a_round_and_mended_by_a_command(self) -> None:
        # Given a site whose only worker has a damaged value
        scene = Scene((1, 1, 1), others=NO_SCRUB)
        scene.write("m1", "t1")
        scene.agree()
        scene.truth.may_differ = True
        damage(scene.worker("m2w1"), b"t1")
        # When that value is written again
        scene.write_again("m1", "t2", b"t1", b"new")
        # Then every master names the site that differs, within a round or two
        scene.until(lambda: all("m2" in scene.master(node).runner.core.sites.differing for node in ("m1", "m3")), 2_500)
        assert scene.state("m1")[0] == states.DIFFERS
        assert set(scene.master("m2").runner.core.sites.differing) == {"m1", "m3"}
        # And a command mends it
        assert scene.master("m2").command("worker-repair", **{"from": ["m1w1", "m3w1"]}) is not None
        scene.agree()
        assert loaded(scene) == 1
        assert scene.state("m1")[0] == scene.state("m2")[0] == states.OK
