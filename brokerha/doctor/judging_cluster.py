"""Findings about nodes that answer: their clocks, and whether masters have the same settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokerha.doctor.facts import ClockFact, SettingsFact
from brokerha.doctor.findings import OK, WARNING, Finding, judged, not_checked

FAR_S: Final = 1.0


def of_clocks(clocks: Sequence[ClockFact]) -> list[Finding]:
    """Whether clocks agree. The order never depends on them; times in the log and time-outs of transactions do."""
    if not clocks:
        return [not_checked("clock", "no node with an http address answers")]
    command = "timedatectl set-ntp true (on both machines)"
    return [
        judged(
            f"{clock.node} clock",
            "agrees with this machine",
            (abs(clock.offset_s) > FAR_S, WARNING, f"{clock.offset_s:+.1f} s against this machine", command),
        )
        for clock in clocks
    ]


def of_settings(masters: Sequence[SettingsFact]) -> list[Finding]:
    """Whether the same is in force at all masters: one with short rounds takes another one with long ones for silent."""
    if len(masters) < 2:
        return [not_checked("settings of masters", "fewer than two masters tell theirs")]
    found = []
    for name, value in masters[0].values.items():
        values = {master.node: master.values.get(name, value) for master in masters}
        if len(set(values.values())) > 1:
            said = ", ".join(f"{each} at {node}" for node, each in values.items())
            found.append(Finding(WARNING, f"setting {name}", f"it is {said}", f"brokerha settings set {name} {value}"))
    return found or [Finding(OK, "settings of masters", f"the same at {', '.join(master.node for master in masters)}")]
