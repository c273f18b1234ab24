"""Destination of a command's log lines: standard error, because standard output holds the result.

A node logs all events; a command with nodes or a connection inside logs warnings and worse.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from brokerha.model.faults import fault_fields

NODE = 20
"""Information and above, for a process that is a node."""
COMMAND = 30
"""Warnings and above, for other commands."""
LOSSES = 40
"""Faults only, for a command that stops nodes on purpose and reports that itself."""


def to_stderr(level: int) -> None:
    """Send log lines of this level (a number of the logging module) and above to standard error."""
    # Imported here, because it takes as long as the rest of a small command.
    import structlog

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_told),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # The stream is looked up for each line, because a program that calls commands can replace it.
        logger_factory=lambda *_names: structlog.PrintLogger(file=sys.stderr),
    )


def _told(stream: TextIO, given: Any) -> None:
    """Write an exception as in all lines about faults: structlog's own format would print megabytes of local variables."""
    fields = fault_fields(given[1])
    stream.write(f"{fields['stack']}: {fields['reason']}")
