"""Interaction with a person at a terminal: a progress bar, notes while waiting, a question before a removal.

A script gets no question and must say ``--yes``. Without a terminal on standard error there is no bar.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from brokerha.cli.common import exits
from brokerha.model.errors import TimedOut

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

MEGABYTE = 1e6
PAUSE_S = 0.25
"""Pause between two questions."""
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal it is needed.")]


def confirm(plan: str, is_sure: bool) -> None:
    """Say what is going to happen, and ask a person at a terminal. Raises typer.Abort, typer.BadParameter without a terminal."""
    if not is_sure and not sys.stdin.isatty():
        raise typer.BadParameter(f"there is no terminal to ask at, so write --yes: {plan}")
    exits.say(plan)
    if not is_sure:
        typer.confirm("Go on?", abort=True, err=True)


class Waiting:
    """Waiting for other nodes, with a timeout in seconds; 0 means no wait."""

    def __init__(self, wait_s: float) -> None:
        self.is_wanted = wait_s > 0
        self._end_s = time.monotonic() + wait_s
        self._told = ""

    @property
    def left_s(self) -> float:
        """Remaining seconds."""
        return max(0.0, self._end_s - time.monotonic())

    def pause(self, stage: str, late: str) -> None:
        """Report a new stage (unless empty), and wait a moment. Raises TimedOut with the text ``late`` after the timeout."""
        if stage and stage != self._told:
            self._told = stage
            exits.say(stage)
        if not self.left_s:
            raise TimedOut(late)
        time.sleep(PAUSE_S)


class Meter(Protocol):
    """Counts the work done."""

    def advance(self, count: float) -> None:
        """Note that ``count`` more are done."""


class _Silent:
    def advance(self, count: float) -> None:
        """Do nothing: there is no display."""


@contextmanager
def progress(what: str, total: float | None, unit: str, scale: float = 1.0) -> Iterator[Meter]:
    """Yield a meter up to ``total`` (None when the end is unknown); one displayed unit is ``scale`` counted ones."""
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

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None if total is None else total / scale)

        class Bar:
            """The meter of the one bar."""

            def advance(self, count: float) -> None:
                bars.advance(task, count / scale)

        yield Bar()
