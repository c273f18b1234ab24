"""Values that no argument should break on: of every type that msgpack, JSON or AMQP can bring, out of every range, large and deep."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

NAN, INFINITY = float("nan"), float("inf")


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    found: Any = ()
    for _ in range(levels):
        found = (found,)
    return found


WRONG: tuple[Any, ...] = (
    None, True, False, 0, -1, -2, 1, 5, 2**31, 2**63, 2**64 - 1, 2**70, -(2**63), -(2**70), 0.0, 1.5, NAN, INFINITY, -INFINITY,
    "", "x", "0", "-1", "nan", "all", "\0", "\ud800", "é" * 600, "x" * 5000, b"", b"x", b"\xff", b"\xc1", b"x" * 5000, b"\x91" * 5000,
    (), (5,), (None,), ("x",), (b"x",), (b"\xc1",), ("\ud800",), [1, 2], [[]], (b"\x93\xa3get\xa1t\x80",), deep(900), (b"\x93" * 900,), ("x",) * 100_001,
    {}, {"a": 1}, {"a": {"a": {}}}, {b"a": 1}, {1: 1}, {"\ud800": 1}, Decimal("Infinity"), Decimal("NaN"), datetime(2000, 1, 1, tzinfo=UTC),
)  # fmt: skip


def without_each(given: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments without one of them, for each."""
    return [{name: value for name, value in given.items() if name != left_out} for left_out in given]
