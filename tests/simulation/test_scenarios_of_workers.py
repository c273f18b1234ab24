"""Named scenarios of workers: who executes, who is healed, from where, and what happens to the writes meanwhile.

Like test_scenarios_of_the_protocol.py: given / when / then on the shipped code in a scripted world, in which one way takes 1 ms.
"""

from __future__ import annotations

import pytest

from brokerha.following.loading import Phase
from brokerha.master.config import RetentionConfig
from brokerha.model import states
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import ChunksWanted, Outgoing
from brokerha.replication.site.config import Standing
from tests.simulation.scene import QUICK, Scene, fill, loaded, lose, probe_of, site
from tests.simulator.processes import Aim


class TestProbe:
    """One executes; who it is does not matter."""

    @pytest.mark.parametrize("point", ["store absent", "store there"])
    def test_the_probe_dies_in_the_middle_of_a_batch_and_comes_back(self, point: str) -> None:
        # Given a probe that dies before or after its commit, before its report
        scene = Scene((3, 1, 1))
        scene.write("m1", "first")
        scene.agree()
        probe = probe_of(scene, "m1")
        scene[probe].aim = Aim(point, None, 1)
        # When writes come
        writes = scene.write_many("m1", "t", 20, level="applied")
        scene.until(lambda: not scene[probe].is_up)
        # Then another one executes them, to the same results, and the first one is in sync when it is back
        scene.until(lambda: all(write.is_done for write in writes), within_ms=10_000)
        assert probe_of(scene, "m1") != probe
        scene.agree()
        assert loaded(scene) == 0

    def test_a_frozen_probe_is_replaced_and_goes_on_later(self) -> None:
        # Given a probe that stops, as with SIGSTOP
        scene = Scene((2, 1, 1), others={"feed": {"min_in_sync": 1}})
        scene.write("m1", "first")
        scene.agree()
        probe = probe_of(scene, "m1")
        scene.worker(probe).freeze(20_000_000)
        # When a write comes
        write = scene.write("m1", "t1")
        # Then it is done as soon as the probe counts as dead
        assert scene.until(lambda: write.is_done, within_ms=10_000) < 6_500
        assert site(scene, probe).standing is Standing.UNKNOWN
        scene.agree(within_ms=40_000)
        assert loaded(scene) == 0

    def test_a_dedicated_probe_executes_whenever_it_can(self) -> None:
        # Given a dedicated probe that is switched off for a while
        scene = Scene((3,), others={"dedicated_probe": True})
        scene.write("m1", "t1")
        scene.agree()
        assert probe_of(scene, "m1") == "m1w1"
        scene.master("m1").command("worker-off", worker="m1w1")
        write = scene.write("m1", "t2")
        scene.until(lambda: write.is_done)
        assert probe_of(scene, "m1") != "m1w1"
        # When it is back
        scene.master("m1").command("worker-on", worker="m1w1")
        scene.agree()
        # Then it executes again
        write = scene.write("m1", "t3")
        scene.until(lambda: write.is_done)
        assert probe_of(scene, "m1") == "m1w1"
        scene.agree()


class TestLoads:
    """A copy is replaced; the site goes on."""

    def test_writing_goes_on_while_a_worker_loads(self) -> None:
        # Given a site of three workers with some content
        scene = Scene((3, 1, 1), others=QUICK)
        fill(scene, 50)
        lose(scene, "m1w3")
        scene.until(lambda: scene.worker("m1w3").runner.core.state.value == "load")
        # When writes come while it loads
        for number in range(10):
            write = scene.write("m1", f"meanwhile{number}")
            assert scene.until(lambda write=write: write.is_done) < 100  # type: ignore[misc]
        # Then they did not wait, and it ends with all of them
        scene.agree()
        assert loaded(scene) == 1

    def test_a_source_dies_and_the_next_one_is_asked(self) -> None:
        # Given a worker that loads from one of two sources
        scene = Scene((3, 1, 1), others=QUICK)
        fill(scene, 100)
        lose(scene, "m1w3")
        core = scene.worker("m1w3").runner.core
        scene.until(lambda: core.replacing.loading is not None and core.replacing.loading.phase is Phase.FETCHING)
        assert core.replacing.loading is not None
        first = core.replacing.loading.source
        # When that one dies
        scene.kill(first)
        scene.until(lambda: loaded(scene) == 1, within_ms=10_000)
        # Then the copy came from the other one
        scene.start(first)
        scene.agree()
        assert "m1w3" not in scene.worker("m1w1" if first == "m1w2" else "m1w2").runner.core.offering.followers

    def test_a_crash_while_loading_does_not_begin_anew(self) -> None:
        # Given a worker that has loaded a good part of a snapshot
        scene = Scene((2, 1, 1), others=QUICK)
        fill(scene, 100)
        asked: list[int] = []

        def count(node: NodeId, outgoing: Outgoing) -> bool:
            if node == "m1w2" and isinstance(outgoing.message, ChunksWanted):
                asked.extend(outgoing.message.numbers)
            return False

        scene.world.network.sieve = count
        lose(scene, "m1w2")
        scene.until(lambda: len(asked) > 20)
        # When it dies and comes back
        scene.kill("m1w2")
        scene.run(50)
        scene.start("m1w2")
        scene.agree()
        # Then hardly any chunk was asked for twice
        assert loaded(scene) == 1
        assert len(asked) > 40
        assert len(asked) - len(set(asked)) <= 8

    def test_the_log_was_trimmed_under_a_dead_worker(self) -> None:
        # Given a worker that is dead while others go on, and a log that no longer reaches back to it
        scene = Scene((2, 1, 1), others={**QUICK, "feed": {"min_in_sync": 1}})
        scene.write_many("m1", "a", 5)
        scene.agree()
        scene.kill("m1w2")
        writes = scene.write_many("m1", "b", 20, level="applied")
        scene.until(lambda: all(write.is_done for write in writes), within_ms=15_000)
        scene.run(1_000)
        assert scene.master("m1").journal.trim(26) > 0
        # When it comes back
        scene.start("m1w2")
        # Then it gets a snapshot, not an error
        scene.agree()
        assert loaded(scene) == 1

    def test_a_site_that_lost_its_only_copy_takes_one_from_another_site(self) -> None:
        # Given a site whose only worker lost everything, and a log that was trimmed
        scene = Scene((1, 1, 1), others=QUICK)
        fill(scene, 20)
        lose(scene, "m2w1")
        # Then it gets a copy of another site by itself, and writes go on
        scene.agree()
        assert loaded(scene) == 1
        write = scene.write("m2", "after")
        scene.until(lambda: write.is_done)
        scene.agree()

    def test_silent_damage_is_found_and_healed_and_survives_no_restart(self) -> None:
        # Given a copy that scrub finds to be damaged, while its source cannot be reached
        scene = Scene((2, 1, 1), others={**QUICK, "scrub_us": 500_000})
        scene.write_many("m1", "t", 5)
        scene.agree()
        scene.world.network.cut_for_ever([("m1w1", "m1w2"), ("m1w2", "m1w1")])
        scene.worker("m1w2").damage()
        scene.until(lambda: bool(scene.worker("m1w2").runner.core.trouble))
        # When its site starts again
        scene.kill("m1", "m1w2")
        scene.start("m1", "m1w2")
        scene.run(2_000)
        # Then it is not read, as before
        assert not scene.worker("m1w2").runner.core.may_be_read
        assert site(scene, "m1w2").standing is not Standing.ON
        # And once a source can be reached it is healed
        scene.heal()
        scene.agree()
        assert loaded(scene) == 1


class TestOnAndOff:
    """Workers come and go while the site is used."""

    def test_a_worker_is_switched_off_and_on(self) -> None:
        scene = Scene((3, 1, 1))
        scene.write("m1", "t1")
        scene.agree()
        # When one is switched off
        scene.master("m1").command("worker-off", worker="m1w3")
        scene.run(100)
        assert site(scene, "m1w3").standing is Standing.OFF
        write = scene.write("m1", "t2")
        scene.until(lambda: write.is_done)
        scene.run(3_000)
        # Then it gets nothing, also after its master started again
        assert scene.worker("m1w3").copy.applied().lsn == 1
        scene.kill("m1")
        scene.start("m1")
        scene.run(3_000)
        assert site(scene, "m1w3").standing is Standing.OFF
        assert scene.worker("m1w3").copy.applied().lsn == 1
        # And switched on it catches up
        scene.master("m1").command("worker-on", worker="m1w3")
        scene.agree()
        assert loaded(scene) == 0

    def test_the_last_worker_in_sync_is_not_switched_off(self) -> None:
        scene = Scene((1, 1, 1))
        assert scene.master("m1").command("worker-off", worker="m1w1") is None
        assert scene.master("m1").command("worker-off", worker="m1w1", force=True) is not None
        scene.run(100)
        assert scene.state("m1")[0] == states.READ_ONLY

    def test_a_site_with_too_few_workers_takes_no_writes_until_one_is_back(self) -> None:
        # Given a site of two workers, of which one dies
        scene = Scene((2, 1, 1))
        scene.run(3_000)
        scene.kill("m1w2")
        scene.run(6_000)
        # Then it refuses writes and says why
        word, reason = scene.state("m1")
        assert word == states.READ_ONLY
        assert "1 of 2 workers in sync, writes need 2: m1w2" in reason
        # When it is back
        scene.start("m1w2")
        scene.agree()
        # Then it takes them again
        write = scene.write("m1", "t1")
        assert scene.until(lambda: write.is_done) < 100

    def test_a_live_worker_holds_the_log_and_a_dead_one_does_not(self) -> None:
        # Given a master that keeps three transactions, and one of its workers is slow
        retention = RetentionConfig(max_size=3, slack=1, hard_limit=1_000)
        others = {**QUICK, "retention": retention, "feed": {"min_in_sync": 0, "window": 2}}
        scene = Scene((1, 2), others=others)
        scene.run(3_000)
        scene["m2w2"].is_disk_slow = True
        journal = scene.master("m2").journal
        # When writes come, then its log is held for the slow one
        for number in range(20):
            write = scene.write("m1", f"t{number}")
            scene.until(lambda write=write: write.is_done)  # type: ignore[misc]
            assert journal.first_lsn() <= scene.truth.applied["m2w2"] + 1
        # And when it is dead, it is held no more
        scene.kill("m2w2")
        scene.until(lambda: journal.first_lsn() > scene.truth.applied["m2w2"] + 1, within_ms=15_000)
        scene["m2w2"].is_disk_slow = False
        scene.start("m2w2")
        scene.agree()
        assert loaded(scene) == 1
