"""Limits of a worker, as the cluster file sets them. They load without the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MACHINE_SHARE: Final = 0.75
"""Share of the machine's memory for all workers of a site together."""


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """Limits of a worker."""

    memory_bytes: int = 0
    """0 for no limit."""
    store_patience_s: float = 300.0
    grace_s: float = 5.0
