"""What an operator sees of epochs: the word and the reason of each master, the rows, the metrics and the log lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from brokerha.model import states
from brokerha.model.epoch_messages import EpochInstall, Tail
from brokerha.model.ids import NodeId
from brokerha.nodes.epoch_log import EpochLog
from brokerha.nodes.master_view import MasterView
from brokerha.nodes.staleness import Staleness
from brokerha.nodes.status import summary
from tests.simulation.scene import Scene

LAG_MS = 10_000
BEFORE = "not heard: m3 (left out in 6 s)"


class Watched:
    """A scene, and what its masters tell: each step of time is a turn of the loop."""

    def __init__(self, workers: tuple[int, ...] = (1, 1, 1), **settings: Any) -> None:
        self.scene = Scene(workers, **settings)
        self.logs = {f"m{place}": EpochLog(f"m{place}") for place in range(1, len(workers) + 1)}
        self.ages = {node: Staleness() for node in self.logs}
        self.lines: list[dict[str, Any]] = []
        self.words: dict[NodeId, set[str]] = {node: set() for node in self.logs}
        self.step()

    def up(self) -> list[NodeId]:
        return [node for node in self.logs if self.scene[node].is_up]

    def step(self, for_ms: int = 0) -> None:
        self.scene.run(for_ms)
        with capture_logs() as lines:
            for node in self.up():
                runner = self.scene.master(node).runner
                self.logs[node].note(runner.core, runner.clock.now().mono_ms)
                self.ages[node].note(runner.core, runner.clock.now())
                self.words[node].add(self.scene.state(node)[0])
        self.lines += [dict(line) for line in lines]

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // 50):
            self.step(50)

    def until(self, condition: Callable[[], bool], within_ms: int = 40_000) -> None:
        for _ in range(within_ms // 50):
            if condition():
                return
            self.step(50)
        raise AssertionError(f"not within {within_ms} ms; missing: {self.scene.world.what_is_missing()}")

    def members(self, node: NodeId) -> tuple[NodeId, ...]:
        return self.scene.master(node).runner.core.sync.epoch.members

    def said(self, node: NodeId, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if (line["node"], line["event"]) == (node, event)]

    def status(self) -> dict[str, Any]:
        rows = [row for node in self.up() for row in self.view(node).rows(self.scene.master(node).runner.clock.now())]
        return summary("c", 1, rows)

    def metrics(self, node: NodeId) -> dict[str, float]:
        now = self.scene.master(node).runner.clock.now()
        return {**self.view(node).metrics(now), **self.logs[node].metrics(now.mono_ms)}

    def view(self, node: NodeId) -> MasterView:
        runner = self.scene.master(node).runner
        return MasterView("c", runner, runner.transport, self.ages[node])


def without_m3() -> Watched:
    """Three masters, one of which is cut off from both others until they go on without it."""
    watched = Watched()
    for other in ("m1", "m2"):
        watched.scene.cut("m3", other)
    watched.run(4_000)
    assert watched.scene.state("m1") == (states.WAITING_FOR_PEERS, BEFORE)
    watched.until(lambda: watched.members("m1") == watched.members("m2") == ("m1", "m2"))
    return watched


class TestExclusionAndReturn:
    """A majority goes on without a master, and takes it back; who looks sees it at each of them."""

    def test_who_is_left_out_is_named_in_rows_metrics_and_lines(self) -> None:
        # Given three masters in their first epoch, one of which is cut off
        watched = without_m3()
        # Then those that go on are well, and say so
        watched.run(1_000)
        assert {watched.scene.state(node) for node in ("m1", "m2")} == {(states.OK, "")}
        status = watched.status()
        number = status["epoch"]
        assert number >= 2
        assert (status["members"], status["excluded"]) == (["m1", "m2"], ["m3"])
        rows = {row["id"]: row for row in status["nodes"]}
        assert (rows["m1"]["epoch"], rows["m1"]["members"], rows["m1"]["excluded"]) == (number, ["m1", "m2"], ["m3"])
        assert rows["m1w1"]["members"] is None
        # And the one that is alone tells its own epoch, which is the first
        assert (rows["m3"]["epoch"], rows["m3"]["members"], rows["m3"]["excluded"]) == (1, ["m1", "m2", "m3"], [])
        # And what it shows is as old as the last that it heard, while the others are up to date
        assert (rows["m1"]["stale_s"], rows["m2"]["stale_s"]) == (0.0, 0.0)
        assert rows["m3"]["stale_s"] >= LAG_MS / 1000
        (line,) = watched.said("m1", "epoch begins")
        assert (line["log_level"], line["epoch"], line["members"]) == ("warning", number, ["m1", "m2"])
        assert (line["left_out"], line["back"]) == (["m3"], [])
        numbers = watched.metrics("m1")
        assert (numbers["epoch"], numbers["epoch_members"], numbers["epoch_excluded"]) == (number, 2, 1)
        assert numbers['epoch_member{master="m3"}'] == 0 < numbers['epoch_member{master="m1"}']
        assert (numbers["epoch_changes_total"], numbers["epoch_frozen"]) == (1, 0)
        assert 0 <= numbers["frozen_seconds_total"] < 2

    def test_a_master_without_a_majority_says_whom_it_needs(self) -> None:
        watched = without_m3()
        assert watched.scene.state("m3") == (
            states.NO_MAJORITY,
            "2 of 3 masters are needed, not heard: m1, m2",
        )
        assert states.NO_MAJORITY in states.DEGRADED
        assert [line["log_level"] for line in watched.said("m3", "hears no majority")] == ["warning"]

    def test_it_is_excluded_as_long_as_it_hears_the_others_and_they_do_not_hear_it(self) -> None:
        # Given a master that cannot send any more, but hears
        watched = Watched()
        for other in ("m1", "m2"):
            watched.scene.cut_one_way("m3", other)
        watched.until(lambda: watched.members("m1") == ("m1", "m2"))
        number = watched.status()["epoch"]
        # Then it soon knows that the others are in an epoch without it, and in which
        watched.run(4_000)
        word, reason = watched.scene.state("m3")
        assert (word, reason) == (states.EXCLUDED, f"m1, m2 are in epoch {number}, this master in epoch 1")
        assert word in states.DEGRADED
        assert watched.said("m3", "is excluded")[0]["reason"] == reason
        # When it can send again, then it is taken back, and each says so
        watched.scene.heal()
        watched.until(lambda: watched.members("m1") == watched.members("m3") == ("m1", "m2", "m3"))
        watched.run(3_000)
        assert [watched.scene.state(node) for node in ("m1", "m2", "m3")] == [(states.OK, "")] * 3
        line = watched.said("m1", "epoch begins")[-1]
        assert (line["log_level"], line["left_out"], line["back"]) == ("info", [], ["m3"])
        assert watched.said("m3", "agrees again")
        status = watched.status()
        assert (status["members"], status["excluded"]) == (["m1", "m2", "m3"], [])
        assert {row["stale_s"] for row in status["nodes"] if row["role"] == "master"} == {0.0}
        watched.scene.agree()


class TestComingBack:
    """What a master still lacks, and for how long it may add nothing."""

    def test_the_number_of_transactions_to_take_over_is_told(self) -> None:
        # Given a master that missed twenty transactions, and gets no tail of them
        watched = without_m3()
        for number in range(20):
            watched.scene.write("m1", f"t{number}", level="accepted")
        watched.until(lambda: len(watched.scene.order("m1")) == 20)
        watched.scene.world.network.sieve = lambda _node, outgoing: isinstance(outgoing.message, Tail)
        # When it hears the others again, then it says what it lacks
        watched.scene.heal()
        watched.run(3_000)
        word, reason = watched.scene.state("m3")
        assert word == states.EXCLUDED
        assert re.search(r"; 20 transactions to take over from m[12]$", reason)
        # When it has it, then it goes on with the others
        watched.scene.lose_nothing()
        watched.until(lambda: watched.members("m1") == watched.members("m3") == ("m1", "m2", "m3"))
        assert len(watched.scene.order("m3")) == 20
        watched.scene.agree()

    def test_how_long_a_master_was_frozen_is_counted(self) -> None:
        # Given that a member has promised the next epoch, and does not hear what was decided
        watched = Watched()
        watched.scene.world.network.sieve = lambda _node, outgoing: isinstance(outgoing.message, EpochInstall)
        for other in ("m1", "m2"):
            watched.scene.cut("m3", other)
        watched.until(lambda: watched.members("m1") == ("m1", "m2"))
        watched.run(2_000)
        # Then it is frozen, and counts
        assert watched.said("m2", "epoch change begins")
        numbers = watched.metrics("m2")
        assert numbers["epoch_frozen"] == 1
        assert 1.5 <= numbers["frozen_seconds_total"] <= 3
        # When it hears it, then it counts no further
        watched.scene.lose_nothing()
        watched.until(lambda: watched.metrics("m2")["epoch_frozen"] == 0)
        frozen_s = watched.metrics("m2")["frozen_seconds_total"]
        watched.run(2_000)
        assert watched.metrics("m2")["frozen_seconds_total"] == frozen_s


class TestOtherModes:
    """Any side goes on."""

    def test_who_is_left_out_is_told_before_and_after(self) -> None:
        watched = Watched(split_recovery="none")
        for other in ("m1", "m2"):
            watched.scene.cut("m3", other)
        watched.run(LAG_MS + 5_000)
        assert [watched.scene.state(node)[0] for node in ("m1", "m2", "m3")] == [states.SPLIT] * 3
        assert not [line for line in watched.lines if line["event"] != "epoch begins"]
