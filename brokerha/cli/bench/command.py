"""``brokerha bench``: what a cluster does with a broker, beside what the broker does alone.

writes    writes per second and latency, at several windows
copy      a worker without anything takes a snapshot while its site writes on
replay    a worker that was off replays what was written meanwhile
sync      writes that backups must hold before anybody hears of them
tx        transactions of three operations, beside what a queue for each costs alone
fail-over the primary is killed under load, again and again
pipeline  archive, audit and rebuild on Spark, beside one simple loop; needs no broker
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from brokerha.cli.common import exits, logs
from brokerha.cli.common.options import FormatOption
from brokerha.cli.common.output import Format, write

COLUMNS = {
    "what": "WRITE",
    "window": "WINDOW",
    "writes_per_s": "WRITES/S",
    "p50_ms": "P50 MS",
    "p99_ms": "P99 MS",
    "to_raw": "OF RAW",
    "cpu_us": "CPU US",
    "turns": "TURNS",
    "messages": "MESSAGES",
}
COPY_COLUMNS = {
    "mb": "MB",
    "copy_mb_s": "MB/S",
    "raw_mb_s": "RAW MB/S",
    "raw_busy_mb_s": "RAW, WRITING",
    "of_raw": "OF RAW",
    "healed_s": "SECONDS",
    "writes_before": "WRITES/S",
    "writes_during": "MEANWHILE",
    "load_average": "LOAD",
}
REPLAY_COLUMNS = {
    "what": "WRITE",
    "behind": "BEHIND",
    "live_per_s": "WRITTEN/S",
    "replay_per_s": "REPLAYED/S",
    "to_live": "TIMES",
    "before_mb": "MB BEFORE",
    "peak_mb": "MB MOST",
    "load_average": "LOAD",
}


SYNC_COLUMNS = {
    "sync_n": "N",
    "window": "WINDOW",
    "writes_per_s": "WRITES/S",
    "p50_ms": "P50 MS",
    "p99_ms": "P99 MS",
    "seed_per_s": "SEED'S OWN",
    "to_seed": "TIMES",
}
TX_COLUMNS = {
    "backups": "BACKUPS",
    "clients": "CLIENTS",
    "per_s": "TX/S",
    "p50_ms": "P50 MS",
    "p99_ms": "P99 MS",
    "raw_per_s": "RAW/S",
    "raw_p50_ms": "RAW P50 MS",
    "of_raw": "OF RAW",
    "times_raw": "TIMES RAW",
}
FAIL_OVER_COLUMNS = {
    "run": "RUN",
    "killed": "KILLED",
    "primary": "PRIMARY",
    "median_s": "MEDIAN S",
    "worst_s": "WORST S",
    "sent_again": "SENT AGAIN",
}


PIPELINE_COLUMNS = {
    "step": "STEP",
    "where": "WHERE",
    "seconds": "SECONDS",
    "start_s": "START",
    "entries_per_s": "ENTRIES/S",
    "rows_per_s": "ROWS/S",
    "cpu_s": "CPU S",
    "peak_mb": "MB MOST",
    "jvm_mb": "OF JVM",
    "times_plain": "TIMES PLAIN",
    "times_plain_with_start": "WITH START",
    "load_average": "LOAD",
}


WINDOWS = {"writes": "1,20,100,1000", "copy": "20", "replay": "100", "sync": "1,20,100,1000"}


class Measured(enum.StrEnum):
    """What to measure."""

    WRITES = "writes"
    COPY = "copy"
    REPLAY = "replay"
    SYNC = "sync"
    TX = "tx"
    FAIL_OVER = "fail-over"
    PIPELINE = "pipeline"


OF_BACKUPS = (Measured.SYNC, Measured.TX, Measured.FAIL_OVER)


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
    measured: Annotated[
        Measured, typer.Argument(metavar="|".join(Measured), help="What to measure.", show_default=False)
    ] = Measured.WRITES,
    broker: Annotated[
        str, typer.Option("--broker", metavar="URL", help="The RabbitMQ to measure with.")
    ] = "embedded://",
    windows: Annotated[
        str,
        typer.Option(
            "--windows",
            metavar="N,N,…",
            help="Writes under way at once, one measurement each; 1,20,100,1000 without it. For copy and replay one number; 20 and 100.",
        ),
    ] = "",
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Duration of each measurement.")] = 5.0,
    masters: Annotated[int, typer.Option("--masters", min=1, max=9, help="Masters, each with one worker.")] = 3,
    triples: Annotated[int, typer.Option("--triples", min=1000, help="For copy: triples in the store.")] = 1_000_000,
    transactions: Annotated[
        int, typer.Option("--transactions", min=1000, help="For replay: transactions that the worker is behind.")
    ] = 100_000,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=100, help="For copy and replay: the median counts.")
    ] = 3,
    runs: Annotated[int, typer.Option("--runs", min=1, max=1000, help="For fail-over: primaries to kill.")] = 10,
    entries: Annotated[
        int, typer.Option("--entries", min=1000, help="For pipeline: entries of the log that is made for it.")
    ] = 1_000_000,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="For pipeline: where log and archive stay, to be used again."),
    ] = None,
    steps: Annotated[
        str, typer.Option("--steps", metavar="STEP,…", help="For pipeline: only some steps.", show_default=False)
    ] = "",
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Measure writes per second and latency, how fast a worker is healed, what backups and transactions cost, or the pipeline.

    Beside them stands what the same broker does alone, or one simple loop. All but `writes` and `pipeline` need a RabbitMQ, with a
    virtual host of their own.
    """
    if measured is Measured.PIPELINE:
        return run_pipeline(entries, folder, steps, chosen)
    if measured in OF_BACKUPS:
        return run_backups(measured, broker, parse_windows(windows or WINDOWS["sync"]), seconds, runs, chosen)
    if measured is not Measured.WRITES:
        size = triples if measured is Measured.COPY else transactions
        return run_healing(measured, broker, size, parse_windows(windows or WINDOWS[measured]), rounds, chosen)
    return run_bench(
        BenchOptions(broker, parse_windows(windows or WINDOWS[measured]), seconds, masters, chosen), exits.say
    )


def run_bench(options: BenchOptions, report: Callable[[str], None]) -> int:
    """Measure and print; returns the exit code."""
    from brokerha.cli.bench import run as bench_run

    logs.to_stderr(logs.COMMAND)
    answer = bench_run.run(options.broker, options.windows, options.seconds, options.masters, report)
    write(answer, answer["writes"], options.format, COLUMNS)
    return exits.DONE


def run_pipeline(entries: int, folder: Path | None, steps: str, chosen: Format) -> int:
    """Measure the pipeline, and print; returns the exit code."""
    from brokerha.cli.bench import pipeline as bench_pipeline
    from brokerha.cli.bench.pipeline_steps import STEPS

    wanted = tuple(steps.split(",")) if steps else STEPS
    unknown = sorted(set(wanted) - set(STEPS))
    if unknown:
        message = f"there is no step {unknown[0]!r}; there are {', '.join(STEPS)}"
        raise typer.BadParameter(message)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    answer = bench_pipeline.pipeline(entries, wanted, bench_pipeline.WHERE, folder, exits.say)
    write(answer, answer["steps"], chosen, PIPELINE_COLUMNS)
    return exits.DONE


def check_broker(measured: Measured, broker: str) -> None:
    """Raise typer.BadParameter when there is no RabbitMQ to measure with."""
    if broker.startswith("embedded:"):
        message = f"{measured} measures what travels through a RabbitMQ: give its address with --broker"
        raise typer.BadParameter(message)


def run_backups(
    measured: Measured, broker: str, windows: tuple[int, ...], seconds: float, runs: int, chosen: Format
) -> int:
    """Measure a master with backups, and print; returns the exit code."""
    check_broker(measured, broker)
    from brokerha.cli.bench import fail_over as bench_fail_over
    from brokerha.cli.bench import sync as bench_sync
    from brokerha.cli.bench import tx as bench_tx

    logs.to_stderr(logs.COMMAND)
    if measured is Measured.SYNC:
        answer = bench_sync.sync(broker, windows, seconds, exits.say)
        write(answer, answer["writes"], chosen, SYNC_COLUMNS)
    elif measured is Measured.TX:
        answer = bench_tx.transactions(broker, seconds, exits.say)
        write(answer, answer["transactions"], chosen, TX_COLUMNS)
    else:
        answer = bench_fail_over.fail_over(broker, runs, exits.say)
        write(answer, answer["runs"], chosen, FAIL_OVER_COLUMNS)
        exits.say(f"median {answer['median_s']:.2f} s, worst {answer['worst_s']:.2f} s")
    return exits.DONE


def run_healing(
    measured: Measured, broker: str, size: int, windows: tuple[int, ...], rounds: int, chosen: Format
) -> int:
    """Measure how a worker is healed, and print; returns the exit code."""
    check_broker(measured, broker)
    from brokerha.cli.bench import healing as bench_healing

    logs.to_stderr(logs.COMMAND)
    if measured is Measured.COPY:
        answer = bench_healing.copy(broker, size, windows[0], rounds, exits.say)
    else:
        answer = bench_healing.replay(broker, size, windows[0], rounds, exits.say)
    write(answer, answer["rounds"], chosen, COPY_COLUMNS if measured is Measured.COPY else REPLAY_COLUMNS)
    return exits.DONE
