"""Cutting long lists into messages of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MESSAGE_BYTES = 1024 * 1024


def cut(items: tuple[Any, ...], size_of: Callable[[Any], int]) -> list[tuple[Any, ...]]:
    """Parts of about `MESSAGE_BYTES`, in order; none for no items."""
    parts: list[tuple[Any, ...]] = []
    start, size = 0, 0
    for place, item in enumerate(items):
        size += size_of(item)
        if size >= MESSAGE_BYTES:
            parts.append(items[start : place + 1])
            start, size = place + 1, 0
    if start < len(items):
        parts.append(items[start:])
    return parts


def result_bytes(row: tuple[Any, ...]) -> int:
    """About how large a `ResultRow` or `LoggedRow` is: its effect stands before its fingerprint."""
    return len(row[-2]) + len(row[-3])
