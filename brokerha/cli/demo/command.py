"""``brokerha demo``: a whole cluster in this process that loses nodes on the way, and ends equal everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from brokerha.cli.common import exits, logs


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line says."""

    input: Path | None
    """N-Triples or N-Quads; None for data that every machine has."""
    broker: str
    """``embedded://`` or the URL of a RabbitMQ."""


def demo(
    input: Annotated[  # noqa: A002  (the name of the option)
        Path | None, typer.Option("--input", metavar="FILE.nt", help="RDF to load; without it, data of Python itself.")
    ] = None,
    broker: Annotated[
        str, typer.Option("--broker", metavar="URL", help="A RabbitMQ instead of the broker inside this process.")
    ] = "embedded://",
) -> int:
    """Show a whole cluster at work in this process.

    Loads data through all masters, stops and heals nodes, and compares all copies; with the extra spark, archives the log and audits it.

    Ends with exit code 0 only if all copies are equal.
    """
    return run_demo(DemoOptions(input, broker), exits.say)


def run_demo(options: DemoOptions, report: Callable[[str], None]) -> int:
    """Carry the demonstration out; returns the exit code."""
    from brokerha.cli.demo import run as demo_run

    logs.to_stderr(logs.LOSSES)
    return demo_run.run(options.input, options.broker, report)
