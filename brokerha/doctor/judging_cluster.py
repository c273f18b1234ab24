"""Findings about nodes that answer: their clocks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokerha.doctor.facts import ClockFact
from brokerha.doctor.findings import OK, WARNING, Finding, not_checked

FAR_S: Final = 1.0


def of_clocks(clocks: Sequence[ClockFact]) -> list[Finding]:
    """Whether clocks agree. The order never depends on them; times in the log and time-outs of transactions do."""
    if not clocks:
        return [not_checked("clock", "no node with an http address answers")]
    found = []
    for clock in clocks:
        what = f"{clock.offset_s:+.1f} s against this machine"
        if abs(clock.offset_s) > FAR_S:
            found.append(Finding(WARNING, f"{clock.node} clock", what, "timedatectl set-ntp true (on both machines)"))
        else:
            found.append(Finding(OK, f"{clock.node} clock", "agrees with this machine"))
    return found
