"""Options of ``python -m tests.bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from brokerha.cli.common.command import Options


def _checked(text: str) -> str:
    """Check numbers separated by commas, or nothing. Raises typer.BadParameter."""
    parts = text.split(",") if text else []
    if not all(part.strip().isdecimal() and 1 <= int(part) <= 100_000 for part in parts):
        raise typer.BadParameter(f"{text!r}: write numbers from 1 to 100000, such as 1,20,100,1000")
    return text


def _spark_checked(text: str) -> str:
    """Check numbers of cores and URLs of masters, separated by commas. Raises typer.BadParameter."""
    if not all((part.isdecimal() and int(part) > 0) or "://" in part for part in text.split(",")):
        raise typer.BadParameter(
            f"{text!r}: write numbers of cores from 1 on, or URLs of Spark masters, such as 1,2,spark://host:7077"
        )
    return text


@dataclass(frozen=True, slots=True)
class BenchOptions(Options):
    """Options of the command line."""

    broker: Annotated[str, typer.Option("--broker", metavar="URL", help="The RabbitMQ to measure with.")] = "embedded://"
    windows: Annotated[
        str,
        typer.Option(
            "--windows",
            metavar="N,N,…",
            callback=_checked,
            help="Writes under way at once, one measurement each; 1,20,100,1000 without it. For copy and replay one number; 20 and 100.",
        ),
    ] = ""
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Duration of each measurement.")] = 5.0
    masters: Annotated[int, typer.Option("--masters", min=1, max=9, help="Masters, each with one worker.")] = 3
    triples: Annotated[int, typer.Option("--triples", min=1000, help="For copy: triples in the store.")] = 1_000_000
    transactions: Annotated[
        int, typer.Option("--transactions", min=1000, help="For replay: transactions that the worker is behind.")
    ] = 100_000
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=100, help="For copy and replay: the median counts.")] = 3
    runs: Annotated[int, typer.Option("--runs", min=1, max=1000, help="For fail-over: how often each is stopped, and killed.")] = 5
    entries: Annotated[int, typer.Option("--entries", min=1000, help="For pipeline: entries of the log that is made for it.")] = (
        1_000_000
    )
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="For pipeline: where log and archive stay, to be used again.")
    ] = None
    steps: Annotated[str, typer.Option("--steps", metavar="STEP,…", help="For pipeline: only some steps.", show_default=False)] = ""
    spark: Annotated[
        str,
        typer.Option(
            "--spark",
            metavar="N|URL,…",
            callback=_spark_checked,
            help="For pipeline: with so many cores of this machine, or by this master, as spark://host:7077.",
        ),
    ] = "1,2"

    @property
    def is_embedded(self) -> bool:
        """Whether no RabbitMQ is given."""
        return self.broker.startswith("embedded:")

    def windows_or(self, default: str) -> list[int]:
        """Return the numbers of concurrent writes, one measurement each."""
        return [int(each) for each in (self.windows or default).split(",")]
