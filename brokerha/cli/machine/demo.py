"""``brokerha demo``: a whole cluster in this process that loses nodes, with equal copies at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brokerha.cli.common import logs


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
    from brokerha.cli.machine.demonstration import run

    logs.to_stderr(logs.LOSSES)
    return run(input, broker)
