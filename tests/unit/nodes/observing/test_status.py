"""The status of the whole cluster, gathered from whoever answers for each master."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model import states
from brokerha.model.wire.messages import StatusReport
from brokerha.nodes.observing.status import StatusGathering, cut_off
from brokerha.ports.transport import TransportStatus

Report = tuple[str, list[dict[str, Any]]]
WAIT_MS = 30_000
"""Longer than any machine needs: who gets everything is not kept waiting for it."""


def master(primary: str, view: int) -> dict[str, Any]:
    return {"id": "m1", "role": "master", "state": "ok", "master": "m1", "primary": primary, "view": view}


def standby(process: str) -> dict[str, Any]:
    return {"id": process, "role": "backup", "state": states.WAITING_FOR_PRIMARY, "master": "m1"}


def gathered(*reports: Report, timeout_ms: int = WAIT_MS, wire_state: str = "connected") -> list[dict[str, Any]]:
    """Rows when these are the answers to the question about m1, in this order, as (sender, rows)."""
    gathering = StatusGathering("", ["m1"])

    class Loop:
        def call(self, act: Any) -> None:
            act()

    class Wire:
        def send(self, asked: Any) -> None:
            for sender, rows in reports:
                gathering.on_report(sender, StatusReport(asked[0].message.request, tuple(rows)))

        def status(self) -> TransportStatus:
            return TransportStatus(wire_state, "", 0, {})

    loop: Any = Loop()
    wire: Any = Wire()
    return gathering.gather(loop, wire, timeout_ms)


def test_a_process_that_stands_by_does_not_answer_for_its_master():
    everything = [master("m1b", 31), {"id": "w1", "role": "worker", "state": "on", "master": "m1"}]
    for own in ("m1", "m1c"):
        assert gathered((own, [standby(own)]), ("m1", everything)) == everything


def test_of_two_that_say_that_they_are_primary_the_newer_view_counts():
    newer, older = ("m1", [master("m1b", 31)]), ("m1", [master("m1", 20)])
    for reports in ((newer, older), (older, newer)):
        assert gathered(*reports) == [master("m1b", 31)]


def test_a_master_without_a_primary_is_named_with_all_processes_that_stand_by():
    rows = gathered(("m1", [standby("m1")]), ("m1c", [standby("m1c")]), timeout_ms=50)
    assert [(row["id"], row["role"], row["state"]) for row in rows] == [
        ("m1", "master", states.WAITING_FOR_PRIMARY),
        ("m1", "backup", states.WAITING_FOR_PRIMARY),
        ("m1c", "backup", states.WAITING_FOR_PRIMARY),
    ]
    assert rows[0]["reason"] == "no process of it is primary"


def test_a_master_of_which_nobody_answers_is_unreachable():
    assert [row["state"] for row in gathered(timeout_ms=1)] == [states.UNREACHABLE]


def test_a_master_that_cannot_be_asked_without_the_broker_is_not_told_to_be_started():
    (row,) = gathered(timeout_ms=1, wire_state="waiting-for-broker")
    assert (row["state"], row["reason"]) == (
        states.UNREACHABLE,
        "cannot be asked: the node that tells this reaches nobody over its broker",
    )
    assert row["action"] == "first do what the row of that node asks for"


@pytest.mark.parametrize(
    ("state", "is_told"), [(states.UNKNOWN, False), (states.JOINING, False), (states.READY, True), (states.OFF, True)]
)
def test_without_the_broker_a_master_says_nothing_of_who_is_silent(state: str, is_told: bool):
    row = {"id": "m1b", "role": "backup", **states.describe(state, "not heard any more")}
    assert (cut_off(row) == row) is is_told
    assert is_told or cut_off(row)["action"] == "first do what the row of that node asks for"


def test_what_strangers_say_is_not_taken_in():
    strange = {**standby("m9"), "master": "m9"}
    assert [row["id"] for row in gathered(("m9", [strange]), ("m9", [master("m9", 1)]), timeout_ms=50)] == ["m1"]


def test_a_node_that_is_no_master_learns_from_the_answers_which_masters_there_are():
    """m3 was taken out and m4 was added since it was started; m2 has not heard of it yet, and m3 goes on as if nothing had been."""
    gathering = StatusGathering("w1", ["m1", "m2", "m3"])
    asked: list[list[str]] = []

    def row(node: str, epoch: int, *masters: str) -> dict[str, Any]:
        return {"id": node, "role": "master", "state": "ok", "master": node, "epoch": epoch, "proposer": "m1", "masters": masters}

    rows = {"m1": row("m1", 7, "m1", "m2", "m4"), "m2": row("m2", 5, "m1", "m2", "m3"), "m3": row("m3", 5, "m1", "m2", "m3")}
    rows["m4"] = row("m4", 7, "m1", "m2", "m4")

    class Loop:
        def call(self, act: Any) -> None:
            act()

    class Wire:
        def send(self, outgoing: Any) -> None:
            asked.append([each.to for each in outgoing])
            for each in outgoing:
                gathering.on_report(each.to, StatusReport(each.message.request, (rows[each.to],)))

        def status(self) -> TransportStatus:
            return TransportStatus("connected", "", 0, {})

    loop: Any = Loop()
    wire: Any = Wire()
    for expected in ([["m1", "m2", "m3"], ["m4"]], [["m1", "m2", "m4"]]):
        asked.clear()
        assert [row["id"] for row in gathering.gather_all(loop, wire, WAIT_MS)] == ["m1", "m2", "m4"]
        assert asked == expected
