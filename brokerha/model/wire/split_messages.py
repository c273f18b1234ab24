"""Orders of a master to its workers around a split; messages.py has all others, and the numbers on the wire.

They travel with the lines of the log, so that what was sent before an order comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from brokerha.model.ids import Lsn
from brokerha.model.wire.channels import DATA


@dataclass(frozen=True, slots=True)
class Keep:
    """Master to worker: keep a copy of your content of now beside it, or drop the one that you keep.

    Of two orders the one with the higher number counts; the same one again changes nothing.
    """

    CHANNEL: ClassVar[str] = DATA
    view: int
    number: int
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Restore:
    """Master to worker: put the copy that you keep in the place of yours."""

    CHANNEL: ClassVar[str] = DATA
    view: int
    number: int
    """Of the order by which it is kept."""
    lineage: int
    """Of the log; only a copy of an older one is replaced,"""
    agreed_lsn: Lsn
    """and only one that holds something after this LSN, which is void."""
    reason: str
