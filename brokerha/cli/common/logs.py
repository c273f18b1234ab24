"""Where log lines of a command go: to standard error, because standard output belongs to what was asked for.

A node tells what happens to it; a command that only has nodes or a connection inside tells warnings and worse.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from brokerha.model.faults import fault_fields

NODE = 20
"""Everything from information on, for a process that is a node."""
COMMAND = 30
"""Warnings and worse, for a command that is not."""
LOSSES = 40
"""Faults only, for a command that takes nodes away on purpose and says so itself."""


def to_stderr(level: int) -> None:
    """Send log lines of this level (a number of the logging module) and above to standard error."""
    # Imported here: it takes as long as the rest of a small command.
    import structlog

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_told),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # The stream is looked up for each line: a program that calls commands may have put another one in its place.
        logger_factory=lambda *_names: structlog.PrintLogger(file=sys.stderr),
    )


def _told(stream: TextIO, given: Any) -> None:
    """An exception as every line about a fault tells it: structlog's own way would print local variables, megabytes of them."""
    fields = fault_fields(given[1])
    stream.write(f"{fields['stack']}: {fields['reason']}")
