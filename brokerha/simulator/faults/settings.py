"""Settings that an operator changes during a run: in the configurations of the masters' parts, in place, between two turns.

All masters get the same values, each at its own time within a second, as they learn them from a copy (nodes/settings.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from brokerha.nodes.settings import put_in_force
from brokerha.simulator.backups import SimGroup
from brokerha.simulator.faults.luck import Luck
from brokerha.simulator.nodes import SimMaster
from brokerha.simulator.options import SECOND_US

TURNED: Final[tuple[tuple[str, str, tuple[Any, ...]], ...]] = (
    ("sync", "round_timeout_ms", (100, 500)),
    ("sync", "idle_round_ms", (300, 1_000)),
    ("sync", "post_gap_ms", (0, 5, 30)),
    ("sync", "retransmit_ms", (50, 250)),
    ("sync", "fetch_after_ms", (5, 50, 100)),
    ("sync", "queue_window", (100, 20_000)),
    ("feed", "dead_after_ms", (2_500, 5_000, 10_000)),
    ("feed", "probe_turn", (1, 10, 10_000)),
    ("feed", "replay_factor", (1.0, 1.3, 100.0)),
    ("tx", "timeout_ms", (500, 2_000, 60_000)),
    ("tx", "lost_backup", ("continue", "abort")),
    ("tx", "open_limit", (2, 2_000)),
)
"""Part of `MasterConfig`, field, values: live settings of model/reserved/settings.py, by their names in the cores. Each is
compatible with all values that a world draws, as the door ensures (nodes/settings.py)."""
LEARNT_US: Final = SECOND_US
"""Time in which all masters learn a setting."""


class SettingFaults:
    """Each method is one of the kinds of `Faults`."""

    def __init__(self, faults: Luck) -> None:
        self._faults = faults
        self._set: dict[tuple[str, str], Any] = {}
        """Last values, by part and field."""
        self.kinds: dict[str, Callable[[], None]] = {"change setting": self._change}

    def _change(self) -> None:
        world = self._faults.world
        part, name, values = world.rng.choice(TURNED)
        self._set[part, name] = value = world.rng.choice(values)
        self._faults.note("setting changed", f"{name} = {value}")
        for master in world.masters:
            world.at(world.now_us + world.rng.randint(0, LEARNT_US), self._learn, master, part, name)

    def _learn(self, master: SimMaster | SimGroup, part: str, name: str) -> None:
        held = getattr(master.config, part)
        put_in_force(held, replace(held, **{name: self._set[part, name]}))
