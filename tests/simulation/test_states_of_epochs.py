"""What an operator sees of epochs: the word and the reason of each master, the rows, the metrics and the log lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from brokerha.model import states
from brokerha.model.ids import NodeId
from brokerha.model.numbers import Numbers
from brokerha.model.wire.epoch_messages import EpochInstall, Tail
from brokerha.model.wire.messages import Keep
from brokerha.nodes.observing.master_view import MasterView
from brokerha.nodes.observing.staleness import Staleness
from brokerha.nodes.observing.status import summary
from brokerha.nodes.observing.watching import EpochLog
from tests.simulation.scene import Scene

LAG_MS = 10_000
BEFORE = "not heard: m3 (left out in 6 s)"


class Watched:
    """A scene, and what its masters tell: each step of time is a turn of the loop."""

    def __init__(self, workers: tuple[int, ...] = (1, 1, 1), **settings: Any) -> None:
        self.scene = Scene(workers, **settings)
        self.logs = {f"m{place}": EpochLog(f"m{place}") for place in range(1, len(workers) + 1)}
        self.ages = {node: Staleness() for node in self.logs}
        self.views: dict[NodeId, MasterView] = {}
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
                self.view(node).splits.note(runner.core)
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

    def metrics(self, node: NodeId) -> Numbers:
        now = self.scene.master(node).runner.clock.now()
        return {**self.view(node).metrics(now), **self.logs[node].metrics(now.mono_ms)}

    def view(self, node: NodeId) -> MasterView:
        if node not in self.views:
            runner = self.scene.master(node).runner
            self.views[node] = MasterView("c", runner, runner.transport, self.ages[node])
        return self.views[node]

    def row(self, node: NodeId) -> dict[str, Any]:
        """The status row of a master or a worker."""
        return next(dict(row) for row in self.status()["nodes"] if row["id"] == node)


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
        assert numbers["epoch_member", "m3"] == 0 < numbers["epoch_member", "m1"]
        assert (numbers["epoch_changes_total"], numbers["epoch_frozen"]) == (1, 0)
        assert 0 <= numbers["frozen_seconds_total"] < 2

    def test_a_master_without_a_majority_says_whom_it_needs(self) -> None:
        watched = without_m3()
        assert watched.scene.state("m3") == (states.NO_MAJORITY, "2 of 3 masters are needed, not heard: m1, m2")
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


def without(missing: str) -> str:
    """The reason of a master that goes on without others, in its second epoch."""
    return f"goes on in epoch 2 without {missing}; what is synchronised meanwhile may get another place"


SIDES = {"m1": (states.SPLIT, without("m3")), "m2": (states.SPLIT, without("m3")), "m3": (states.SPLIT, without("m1, m2"))}


def apart(mode: str) -> Watched:
    """Three masters of a strategy in which every side goes on; m3 is apart, and both sides have put the same key."""
    watched = Watched(split_recovery=mode)
    for other in ("m1", "m2"):
        watched.scene.cut("m3", other)
    watched.until(lambda: (watched.members("m1"), watched.members("m3")) == (("m1", "m2"), ("m3",)))
    for node in ("m1", "m3"):
        write = watched.scene.write_again(node, f"{node}-t", b"key", node.encode())
        watched.until(lambda write=write: write.is_done)  # type: ignore[misc]
    return watched


class TestOtherModes:
    """Any side goes on; who looks is told what that means, at each of them, and what it came to afterwards."""

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_before_a_side_goes_on_it_names_whom_it_waits_for(self, mode: str) -> None:
        watched = Watched(split_recovery=mode)
        for other in ("m1", "m2"):
            watched.scene.cut("m3", other)
        watched.run(4_000)
        assert watched.scene.state("m1") == (states.WAITING_FOR_PEERS, BEFORE)
        assert watched.scene.state("m3") == (states.WAITING_FOR_PEERS, "not heard: m1 (left out in 6 s), m2 (left out in 6 s)")
        # When it is over before that time, then nothing was but waiting, and nothing is told
        watched.scene.heal()
        watched.run(3_000)
        assert {watched.scene.state(node) for node in SIDES} == {(states.OK, "")}
        assert set().union(*watched.words.values()) == {states.OK, states.WAITING_FOR_PEERS}
        assert not watched.lines

    @pytest.mark.parametrize("mode", ["smart", "simple", "none"])
    def test_both_sides_say_that_they_go_on_and_what_that_means(self, mode: str) -> None:
        watched = apart(mode)
        assert {node: watched.scene.state(node) for node in SIDES} == SIDES
        # And rows and numbers of either side tell its own epoch
        rows = {node: watched.row(node) for node in SIDES}
        assert [(rows[node]["epoch"], rows[node]["members"], rows[node]["excluded"]) for node in SIDES] == [
            (2, ["m1", "m2"], ["m3"]),
            (2, ["m1", "m2"], ["m3"]),
            (2, ["m3"], ["m1", "m2"]),
        ]
        assert {(row["split_recovery"], row["split_recovery_from"], row["splits"]) for row in rows.values()} == {(mode, "file", 0)}
        numbers = watched.metrics("m3")
        assert (numbers["epoch_members"], numbers["epoch_excluded"], numbers["splits_total"]) == (1, 2, 0)
        # And the log has one line of it at each master, a warning
        for node, (left_out, members) in {"m1": (["m3"], ["m1", "m2"]), "m3": (["m1", "m2"], ["m3"])}.items():
            (line,) = (line for line in watched.lines if line["node"] == node and line["event"] != "epoch change begins")
            assert (line["event"], line["log_level"], line["left_out"], line["members"]) == (
                "epoch begins",
                "warning",
                left_out,
                members,
            )

    @pytest.mark.parametrize("mode", ["smart", "simple", "none"])
    def test_who_goes_back_says_so_in_its_row_its_numbers_and_its_log(self, mode: str) -> None:
        watched = apart(mode)
        watched.scene.heal()
        watched.until(lambda: {watched.members(node) for node in SIDES} == {("m1", "m2", "m3")})
        watched.run(3_000)
        went_back = {"m1": mode == "simple", "m2": mode == "simple", "m3": True}
        for node, gave_up in went_back.items():
            lsn = 0 if gave_up else 1
            # Then there is one line, a warning where something lost its place
            (line,) = watched.said(node, "goes back")
            assert (line["log_level"], line["lsn"], line["given_up"]) == ("warning" if gave_up else "info", lsn, int(gave_up))
            assert (line["epoch"], line["lineage"]) == (2, watched.row(node)["epoch"])
            assert line["keeps_content"] == (mode == "none" and gave_up), line
            # And the same in the row and in numbers
            row, numbers = watched.row(node), watched.metrics(node)
            told = f"went back to LSN {lsn}, {int(gave_up)} given up, epoch 2"
            assert (row["splits"], row["given_up"], row["last_split"]) == (1, int(gave_up), told)
            assert (numbers["splits_total"], numbers["transactions_given_up_total"]) == (1, int(gave_up))
            line = watched.said(node, "epoch begins")[-1]
            assert (line["left_out"], line["back"]) == ([], ["m1", "m2"] if node == "m3" else ["m3"])
        # And all is well again, unless sites hold what is unlike
        if mode != "none":
            assert {watched.scene.state(node) for node in SIDES} == {(states.OK, "")}

    def test_with_none_the_sites_that_differ_are_named(self) -> None:
        watched = apart("none")
        watched.scene.heal()
        watched.until(lambda: {watched.scene.state(node)[0] for node in SIDES} == {states.DIFFERS})
        for node, others in {"m1": "m3", "m2": "m3", "m3": "m[12]"}.items():
            word, reason = watched.scene.state(node)
            assert word == states.DIFFERS
            assert re.match(rf"at LSN \d+ this site holds 1:[0-9a-f]+, that of {others} 1:[0-9a-f]+", reason)


def test_a_worker_that_waits_for_a_copy_in_a_split_says_so() -> None:
    # Given a side of a split whose only worker was away when it began, and does not get the order to keep a copy
    watched = Watched(split_recovery="simple")
    scene = watched.scene
    scene.write_many("m1", "a", 5)
    scene.agree()
    scene.kill("m3w1")
    scene.isolate("m3")
    watched.until(lambda: watched.members("m3") == ("m3",))
    scene.lose(Keep, "m3")
    scene.write_many("m3", "b", 5)
    # When it is back
    scene.start("m3w1")
    watched.until(lambda: watched.row("m3w1")["state"] == states.ON)
    # Then it executes nothing of the split yet, and tells why
    row = watched.row("m3w1")
    assert (row["applied_lsn"], row["reason"]) == (5, "waits at LSN 5 of the split until a copy of what all sides have is kept")
    # And it goes on when it was waited for long enough
    watched.until(lambda: watched.row("m3w1")["applied_lsn"] == len(scene.order("m3")) > 5)
    assert watched.row("m3w1")["reason"] == ""
