"""Somebody dies at each step of adding and taking out a master, and schedules of every kind of bad luck (rule R15)."""

from __future__ import annotations

import pytest

from brokerha.model.epochs import ADD, REMOVE
from brokerha.model.ids import NodeId
from brokerha.model.records import EpochInstalled, EpochPromised
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochReport, Join
from tests.unit.sync.epoch_table import LAG_MS
from tests.unit.sync.member_schedules import MemberSchedule
from tests.unit.sync.trap_table import HALF_SENT, UNSENT, UNWRITTEN, Trap, TrapTable

SEEDS = 150
"""Schedules; about a quarter of a second each."""

STEPS = [
    (UNWRITTEN, EpochPromised),
    (UNSENT, EpochPromised),
    (HALF_SENT, EpochPrepare),
    (UNSENT, EpochReport),
    (HALF_SENT, EpochReport),
    (UNWRITTEN, EpochInstalled),
    (UNSENT, EpochInstalled),
    (HALF_SENT, EpochInstall),
    (HALF_SENT, Join),
]
"""Moments of a change of epoch."""


class TestSomebodyDiesAtAStep:
    @pytest.mark.parametrize(("point", "kind"), STEPS)
    @pytest.mark.parametrize("victims", [("m1",), ("m2",), ("m4",), ("m1", "m4"), ("m1", "m2", "m3", "m4")])
    def test_of_adding(self, victims: tuple[NodeId, ...], point: str, kind: type) -> None:
        # Given three masters that write, and a fourth one
        table = TrapTable()
        table.make_queue("a", "b")
        table.newcomer("m4")
        # When m1 is told to add it, and some die in the middle of it
        table.trap = Trap(victims, point, kind)
        table.add("m1", "m4")
        for number, node in enumerate(("m1", "m2", "m3")):
            if node in table.cores:
                table.write(node, f"x{number}")
        table.live(3 * LAG_MS)
        # Then, when they are back and it is said again, it is a master with everything
        table.start_all()
        table.until_done(ADD, "m4", "m1", "m2")
        table.start_all()
        table.live(6 * LAG_MS)
        table.are_of_one_mind("m1", "m2", "m3", "m4")
        written = {f"x{n}" for n in range(3) if table.journals[f"m{n + 1}"].body(f"m{n + 1}", f"x{n}") is not None}
        assert {"a", "b", *written} == set(table.queue("m4"))

    @pytest.mark.parametrize(("point", "kind"), STEPS)
    @pytest.mark.parametrize("victims", [("m1",), ("m2",), ("m3",), ("m1", "m3"), ("m1", "m2", "m3", "m4")])
    def test_of_taking_out(self, victims: tuple[NodeId, ...], point: str, kind: type) -> None:
        # Given four masters, one of which has taken in more than it may stamp
        table = TrapTable(4, queue_window=1)
        table.make_queue("a", "b")
        table.write("m3", *(f"x{n}" for n in range(4)))
        # When it is taken out, and some die in the middle of it
        table.trap = Trap(victims, point, kind)
        table.remove("m1", "m3")
        table.live(3 * LAG_MS)
        table.start_all()
        table.until_done(REMOVE, "m3", "m1", "m2")
        table.start_all()
        table.live(6 * LAG_MS)
        # Then the others are of one mind, and whoever is out knows it
        table.are_of_one_mind("m1", "m2", "m4")
        assert "taken out" in table.cores["m3"].retired
        if "m3" not in table.died:
            assert {"a", "b", "x0", "x1", "x2", "x3"} == set(table.queue("m1"))


class TestSchedules:
    @pytest.mark.parametrize("first", range(0, SEEDS, 25))
    def test_of_every_kind_of_bad_luck(self, first: int) -> None:
        for seed in range(first, first + 25):
            try:
                MemberSchedule(seed).run()
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
