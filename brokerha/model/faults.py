"""A fault in a few lines of a log: its type, its shortened text, and its place, without the values of variables.

A traceback with local variables contains users' data; a deep recursion makes it megabytes. So every log line about a fault is

    log.error("a request failed by a fault of brokerha", **fault_fields(error), ...)

>>> fault_fields(ValueError("x" * 400))["reason"][-10:]
'xxxxxxx...'
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Final

REASON_LIMIT: Final = 300
"""Limit of characters of the text of an error."""
FRAMES_LIMIT: Final = 20
"""Limit of innermost frames of each error."""
ERRORS_LIMIT: Final = 3
"""Limit of errors in one chain of causes, the last one included."""


def fault_fields(error: BaseException) -> dict[str, str]:
    """Return ``error`` (its type), ``reason`` (its text, cut) and ``stack`` (one line a frame, causes first, innermost last)."""
    text = str(error)
    reason = text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 3] + "..."
    return {"error": type(error).__name__, "reason": reason, "stack": stack_of(error)}


def stack_of(error: BaseException) -> str:
    """Return the place of an error and its causes: only names of types, files, lines and functions."""
    chain = list(_chain(error))[::-1]
    return "\n".join("\n".join([*_frames(each.__traceback__), type(each).__name__]) for each in chain)


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(ERRORS_LIMIT):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _frames(where: TracebackType | None) -> list[str]:
    # Without reading the files: a line of code says no more than its number.
    frames = traceback.StackSummary.extract(traceback.walk_tb(where), limit=-FRAMES_LIMIT, lookup_lines=False)
    return [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
