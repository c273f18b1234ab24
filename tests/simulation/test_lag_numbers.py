"""What the metrics of a master say of who is behind: its workers, other masters, and how much of the log is held for them."""

from __future__ import annotations

from math import isnan

from brokerha.master.config import RetentionConfig
from brokerha.master.retention import Retention
from brokerha.model.ids import NodeId
from brokerha.model.numbers import Numbers
from brokerha.nodes.observing.master_view import MasterView
from brokerha.nodes.observing.staleness import Staleness
from tests.simulation.scene import Scene


def metrics(scene: Scene, node: NodeId) -> Numbers:
    runner = scene.master(node).runner
    age = Staleness()
    age.note(runner.core, runner.clock.now())
    return MasterView("c", runner, runner.transport, age).metrics(runner.clock.now())


def write(scene: Scene, count: int) -> None:
    last = scene.write_many("m1", f"t{scene.world.now_us}-", count)[-1]
    scene.until(lambda: last.is_done)
    scene.run(1_000)


class TestLag:
    def test_nobody_is_behind_where_all_have_everything(self) -> None:
        scene = Scene(workers=(2, 1))
        write(scene, 10)

        numbers = metrics(scene, "m1")

        for node in ("m1", "m1w1", "m1w2"):
            assert numbers["last_applied_entry", node] == 10
            assert numbers["lag_entries", node] == 0
            assert numbers["lag_seconds", node] == 0
        assert numbers["backlog_entries", "m2"] == 0
        assert numbers["log_needed_entries"] == 0
        assert numbers["stale_seconds"] == 0

    def test_a_worker_that_is_away_is_behind_in_entries_and_seconds_and_its_master_is_not(self) -> None:
        scene = Scene(workers=(2, 1))
        scene.kill("m1w2")
        write(scene, 10)
        younger = metrics(scene, "m1")
        scene.run(5_000)

        numbers = metrics(scene, "m1")

        assert numbers["lag_entries", "m1w2"] == 10
        assert numbers["lag_seconds", "m1w2"] >= 5
        assert numbers["lag_seconds", "m1w2"] > younger["lag_seconds", "m1w2"] > 0
        # The best worker counts for the master
        assert numbers["lag_entries", "m1"] == numbers["lag_entries", "m1w1"] == 0

    def test_a_worker_whose_next_line_is_not_held_any_more_is_behind_nobody_knows_how_long(self) -> None:
        scene = Scene(workers=(2, 1))
        scene.master("m1").runner.core.retention = Retention(RetentionConfig(max_size=4, slack=1, hard_limit=6))
        scene.kill("m1w2")
        for _ in range(10):
            # A round each: the log is forgotten by whole rounds
            write(scene, 4)

        numbers = metrics(scene, "m1")

        assert numbers["journal_first_lsn"] > 1
        assert numbers["lag_entries", "m1w2"] == 40
        assert isnan(numbers["lag_seconds", "m1w2"])

    def test_a_master_without_workers_is_not_behind(self) -> None:
        scene = Scene(workers=(1, 0))
        write(scene, 3)
        numbers = metrics(scene, "m2")
        assert numbers["lag_entries", "m2"] == 0


class TestBacklog:
    def test_what_an_excluded_master_lacks_is_counted_and_held(self) -> None:
        scene = Scene(max_peer_lag_ms=10_000)
        scene.isolate("m3")
        scene.run(20_000)
        write(scene, 10)

        numbers = metrics(scene, "m1")

        assert numbers["epoch_member", "m3"] == 0
        assert numbers["backlog_entries", "m3"] == 10
        assert numbers["backlog_entries", "m2"] == 0
        assert numbers["log_needed_entries"] == 10
        assert numbers["log_limit_entries"] > 10
        # And the other side does not know how old it is what it shows
        assert metrics(scene, "m3")["stale_seconds"] > 0 or isnan(metrics(scene, "m3")["stale_seconds"])
        scene.heal()
        scene.agree()
        assert metrics(scene, "m1")["log_needed_entries"] == 0
