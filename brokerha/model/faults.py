"""A fault in a few lines of a log: its type, its text cut short, and where it came from, never what was in its variables.

A traceback with local variables holds what users sent, and one of a deep recursion takes megabytes. So every log line about a fault is

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
"""Characters of the text of an error."""
FRAMES_LIMIT: Final = 20
"""Innermost frames of each error."""
ERRORS_LIMIT: Final = 3
"""Errors of one chain of causes, the last one included."""


def fault_fields(error: BaseException) -> dict[str, str]:
    """``error`` (its type), ``reason`` (its text, cut) and ``stack`` (one line a frame, the innermost last, causes first)."""
    text = str(error)
    reason = text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 3] + "..."
    return {"error": type(error).__name__, "reason": reason, "stack": stack_of(error)}


def stack_of(error: BaseException) -> str:
    """Where an error and its causes came from: names of types, files, lines and functions, and nothing else."""
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
    # Without a look into the files: a line of code says no more than its number.
    frames = traceback.StackSummary.extract(traceback.walk_tb(where), limit=-FRAMES_LIMIT, lookup_lines=False)
    return [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
