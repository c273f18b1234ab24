"""Progress of long work on standard error: a bar with rate and time left; nothing at all when it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text


MEGABYTE = 1e6


class Meter(Protocol):
    """Takes note of what is done."""

    def advance(self, count: float) -> None:
        """``count`` more are done."""


class _Silent:
    def advance(self, count: float) -> None:
        """Nobody looks."""


@contextmanager
def progress(what: str, total: float | None, unit: str, scale: float = 1.0) -> Iterator[Meter]:
    """A meter up to ``total`` (None when the end is not known); a unit that is shown is ``scale`` of what is counted."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Units per second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:,.0f} {unit}/s" if speed else f"- {unit}/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None if total is None else total / scale)

        class Bar:
            """The meter of the one bar."""

            def advance(self, count: float) -> None:
                bars.advance(task, count / scale)

        yield Bar()
