"""Waits for what takes a moment to come true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    found: Callable[[], T | None], what: str | Callable[[], object] = "it comes true", within_s: float = 60.0, pause_s: float = 0.05
) -> T:
    """Ask until the answer is true, and return it. ``what`` is told when it never is; a function is asked only then."""
    deadline = time.monotonic() + within_s
    while not (answer := found()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what() if callable(what) else what}"
        time.sleep(pause_s)
    return answer
