"""``python -m tests.bench``: performance of a cluster, compared with the broker alone.

writes    writes per second and latency, at several windows
copy      an empty worker takes a snapshot while its site writes on
replay    a worker that was off replays the transactions since then
sync      writes that backups must hold before they are acknowledged
tx        transactions of three operations, compared with the cost of a queue for each
fail-over masters, workers and primaries are stopped and killed under load
pipeline  archive, audit and rebuild on Spark, compared with one simple loop; needs no broker
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from brokerha.cli.common import logs
from brokerha.cli.common.command import Answer, single
from brokerha.cli.main import main as run_command
from tests.bench.options import BenchOptions


class Measured(enum.StrEnum):
    """What to measure."""

    WRITES = "writes"
    COPY = "copy"
    REPLAY = "replay"
    SYNC = "sync"
    TX = "tx"
    FAIL_OVER = "fail-over"
    PIPELINE = "pipeline"


def bench(
    options: BenchOptions,
    measured: Annotated[
        Measured, typer.Argument(metavar="|".join(Measured), help="What to measure.", show_default=False)
    ] = Measured.WRITES,
) -> Answer:
    """Measure writes per second and latency; how fast a worker is healed, what backups and transactions cost, or the pipeline.

    Beside them stands what the same broker does alone, or one simple loop. All but `writes` and `pipeline` need a RabbitMQ, with a
    virtual host of their own.
    """
    if measured is Measured.PIPELINE:
        from tests.bench import pipeline

        return pipeline.pipeline(options)
    if options.is_embedded and measured is not Measured.WRITES:
        raise typer.BadParameter(f"{measured} measures what travels through a RabbitMQ: give its address with --broker")
    from tests.bench import backups, healing, writes

    logs.to_stderr(logs.COMMAND)
    measures = {
        Measured.WRITES: writes.writes,
        Measured.COPY: healing.copy,
        Measured.REPLAY: healing.replay,
        Measured.SYNC: backups.sync,
        Measured.TX: backups.transactions,
        Measured.FAIL_OVER: backups.fail_over,
    }
    return measures[measured](options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(arguments, single("python -m tests.bench", bench))


if __name__ == "__main__":
    sys.exit(main())
