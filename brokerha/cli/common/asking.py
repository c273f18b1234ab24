"""A person at a terminal is asked before something is gone; a script is not, and is told what happens."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from brokerha.cli.common import exits

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask again on a terminal.")]


def confirm(plan: str, is_sure: bool) -> None:
    """Say what is going to happen; a person at a terminal is asked. Raises typer.Abort."""
    exits.say(plan)
    if not is_sure and sys.stdin.isatty():
        typer.confirm("Go on?", abort=True, err=True)
