"""Findings about nodes that answer: their clocks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokerha.doctor.facts import ClockFact
from brokerha.doctor.findings import WARNING, Finding, judged, not_checked

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
