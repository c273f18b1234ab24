"""Net changes of quads, as sorted N-Quads lines without the final dot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class QuadChange(NamedTuple):
    """What an operation or a transaction changed, net: `removed` was there and is gone, `added` was not there and is.

    Both hold canonical N-Quads lines without the final dot, sorted and without duplicates; they have no line in common.
    """

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


class PendingQuads:
    """A net change that is not in the engine yet, and grows change by change.

    Invariant: `removed` are lines that the engine holds, `added` lines that it does not; they are disjoint.
    """

    __slots__ = ("added", "removed")

    def __init__(self) -> None:
        self.removed: set[str] = set()
        self.added: set[str] = set()

    def __bool__(self) -> bool:
        """Whether anything is pending."""
        return bool(self.removed or self.added)

    def include(self, change: QuadChange) -> None:
        """Put a change on top, which is net relative to the engine with what was pending before."""
        raise NotImplementedError

    def change(self) -> QuadChange:
        """All that is pending as one net change."""
        raise NotImplementedError

    def copy(self) -> PendingQuads:
        """An independent copy, for a transaction that may have to be taken back."""
        raise NotImplementedError


def check_nquads(text: str) -> None:
    """Admission of an ``add`` or ``remove`` operation. Raises InvalidRequest: bad syntax, reserved graph."""
    raise NotImplementedError


def parse_lines(lines: Iterable[str]) -> list[object]:
    """The quads of canonical lines."""
    raise NotImplementedError
