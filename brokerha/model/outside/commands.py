"""Operators' commands on their way to a master: which of them change anything, and what to say when nobody knows whether one did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from brokerha.model.errors import OutcomeUnknown

_LOOKS: Final = frozenset({"workers", "task", "tasks", "pins", "peers", "splits", "split", "settings", "rates"})
_LISTS: Final = {
    "backup": "backup list",
    "pin": "log pins",
    "unpin": "log pins",
    "peer": "peer list",
    "setting": "settings list",
    "split": "split-recovery",
    "worker": "worker list",
}
"""By the first word of a command: what shows whether it was carried out; for others, the status."""


def is_change(name: str, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a command changes anything."""
    return name not in _LOOKS and (name != "split-recovery" or "mode" in arguments)


def outcome_unknown(name: str, reason: str) -> OutcomeUnknown:
    """Return the error of a command that possibly reached a master; another master would take it for a new one."""
    shows = _LISTS.get(name.partition("-")[0], "status")
    return OutcomeUnknown(
        "", f"{reason}: whether {name} was carried out is unknown: look with `brokerha {shows}` before you give it again"
    )
