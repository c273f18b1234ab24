"""``brokerha bench``: writes per second and latency at several windows, beside what the broker alone can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from brokerha.cli import exits, logs
from brokerha.cli.options import FormatOption
from brokerha.cli.output import Format, write

COLUMNS = {
    "what": "WRITE",
    "window": "WINDOW",
    "writes_per_s": "WRITES/S",
    "p50_ms": "P50 MS",
    "p99_ms": "P99 MS",
    "to_raw": "OF RAW",
}


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the command line says."""

    broker: str
    windows: tuple[int, ...]
    """Writes under way at once, one measurement each."""
    seconds: float
    """Duration of each measurement."""
    masters: int
    format: Format


def parse_windows(text: str) -> tuple[int, ...]:
    """Numbers separated by commas. Raises typer.BadParameter."""
    try:
        windows = tuple(int(each) for each in text.split(","))
    except ValueError:
        windows = ()
    if not windows or not all(1 <= window <= 100_000 for window in windows):
        message = f"{text!r}: write numbers from 1 to 100000, such as 1,20,100,1000"
        raise typer.BadParameter(message)
    return windows


def bench(
    broker: Annotated[
        str, typer.Option("--broker", metavar="URL", help="The RabbitMQ to measure with.")
    ] = "embedded://",
    windows: Annotated[
        str, typer.Option("--windows", metavar="N,N,…", help="Writes under way at once.")
    ] = "1,20,100,1000",
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Duration of each measurement.")] = 5.0,
    masters: Annotated[int, typer.Option("--masters", min=1, max=9, help="Masters, each with one worker.")] = 3,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Measure writes per second and latency.

    Beside them stands the raw publish-and-confirm rate of the same broker.
    """
    return run_bench(BenchOptions(broker, parse_windows(windows), seconds, masters, chosen), exits.say)


def run_bench(options: BenchOptions, report: Callable[[str], None]) -> int:
    """Measure and print; returns the exit code."""
    from brokerha.cli import bench_run

    logs.to_stderr(logs.COMMAND)
    answer = bench_run.run(options.broker, options.windows, options.seconds, options.masters, report)
    write(answer, answer["writes"], options.format, COLUMNS)
    return exits.DONE
