"""Progress of long work on standard error: a bar with rate and time left; nothing at all when it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text


class Meter(Protocol):
    """Takes note of what is done."""

    def advance(self, count: float) -> None:
        """``count`` more are done."""


class _Silent:
    def advance(self, count: float) -> None:
        """Nobody looks."""


@contextmanager
def progress(what: str, total: float | None, unit: str) -> Iterator[Meter]:
    """A meter of ``total`` units (None when the end is not known)."""
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
        task = bars.add_task(what, total=total)

        class Bar:
            """The meter of the one bar."""

            def advance(self, count: float) -> None:
                bars.advance(task, count)

        yield Bar()
