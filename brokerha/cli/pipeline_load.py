"""``brokerha pipeline load``: files of any size as many small transactions, sent by the tasks of Spark.

The same command, started again in the same folder, goes on where an earlier one ended: the state folder knows what is done, and the cluster
knows the ids of the transactions. With ``--dry-run`` all lines are checked and nothing is sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli import exits, logs, output
from brokerha.cli.access import addresses
from brokerha.cli.options import (
    DEFAULT_CONFIG,
    DEFAULT_TIMEOUT_S,
    AckOption,
    ConfigOption,
    FormatOption,
    RepositoryOption,
    TimeoutOption,
    UrlOption,
)
from brokerha.cli.output import Format
from brokerha.cli.pipeline import job, progress_of, spark_options
from brokerha.cli.pipeline_options import DEFAULT_MASTER, DEFAULT_MEMORY, ConfOption, MasterOption, MemoryOption
from brokerha.model.errors import InvalidRequest

if TYPE_CHECKING:
    from brokerha.pipeline.loading import LoadReport

MIB = 1024 * 1024
SHOWN_ON_TERMINAL = 5

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE", help="N-Triples, N-Quads, CSV, also .gz, .xz, .bz2; Parquet. Each task opens them by this path."
    ),
]
SyntaxOption = Annotated[
    str | None, typer.Option("--format", metavar="nt|nq|csv|parquet", help="Syntax; by the suffix of each file.")
]
MappingOption = Annotated[
    str | None,
    typer.Option("--mapping", metavar="FILE", help="TOML: how a row of CSV or Parquet becomes statements or keys."),
]
GraphOption = Annotated[
    str, typer.Option("--graph", metavar="IRI", help="Graph for triples; the default graph without it.")
]
StateOption = Annotated[
    str | None,
    typer.Option("--state", metavar="DIR", help="Folder that knows what is done; one in .brokerha-load without it."),
]
MaxRejectsOption = Annotated[
    int,
    typer.Option("--max-rejects", metavar="N", min=0, help="Bad lines that are allowed; with more the load stops."),
]
RejectsOption = Annotated[
    str | None,
    typer.Option(
        "--rejects", metavar="FILE", help="Where bad lines go, as lines of JSON; the state folder without it."
    ),
]
OrderedOption = Annotated[
    bool, typer.Option("--ordered", help="One transaction after the other, in the order of the files.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check every line, send nothing.")]
WindowOption = Annotated[
    int, typer.Option("--window", metavar="N", min=1, max=1000, help="Transactions under way, of each task.")
]
SplitOption = Annotated[
    int, typer.Option("--split-mib", metavar="MIB", min=1, max=4096, help="Part of a file that one task reads.")
]
PatienceOption = Annotated[
    float, typer.Option("--patience-s", metavar="SECONDS", min=0, help="How long to try the same transaction again.")
]


def load(
    files: FilesArgument,
    syntax: SyntaxOption = None,
    mapping: MappingOption = None,
    repository: RepositoryOption = "main",
    graph: GraphOption = "",
    state: StateOption = None,
    max_rejects: MaxRejectsOption = 0,
    rejects: RejectsOption = None,
    is_ordered: OrderedOption = False,
    is_dry_run: DryRunOption = False,
    window: WindowOption = 8,
    split_mib: SplitOption = 32,
    patience_s: PatienceOption = 300.0,
    ack: AckOption = "applied",
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    spark_master: MasterOption = DEFAULT_MASTER,
    spark_memory: MemoryOption = DEFAULT_MEMORY,
    spark_conf: ConfOption = [],  # noqa: B006  (typer copies it)
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Load large files from the tasks of Spark, as many transactions.

    A load that was interrupted is started again with the same command; what was done is not done twice.
    """
    program = job("load")
    from brokerha.pipeline.loading import LoadOptions
    from brokerha.pipeline.loading_job import default_state

    _check_syntax(files, syntax, mapping)
    options = LoadOptions(
        files=tuple(files), address="" if is_dry_run else _address(config, url),
        state=state or default_state(tuple(files), repository, graph, mapping or "", syntax or ""),
        repository=repository, syntax=syntax, graph=graph, mapping=mapping, ack=ack, timeout_s=timeout_s, window=window,
        patience_s=patience_s, max_rejects=max_rejects, rejects=rejects, split_bytes=split_mib * MIB, is_ordered=is_ordered,
        is_dry_run=is_dry_run,
    )  # fmt: skip
    spark = spark_options(spark_master, spark_memory, spark_conf)
    logs.to_stderr(logs.COMMAND)
    with progress_of("load", "bytes", _size(files)) as tell:
        report = program(options, spark, tell)
    _show(report, chosen)
    return exits.DONE if report.is_good else exits.FAILED


def _check_syntax(files: list[str], syntax: str | None, mapping: str | None) -> None:
    """Raises typer.BadParameter for a syntax that is not known, and for rows without a mapping."""
    from brokerha.pipeline.loading import CSV, PARQUET
    from brokerha.pipeline.loading_plan import no_mapping, syntax_of

    for name in files:
        try:
            if syntax_of(Path(name), syntax) in {CSV, PARQUET} and mapping is None:
                raise no_mapping(name)
        except InvalidRequest as error:
            raise typer.BadParameter(str(error)) from None


def _size(files: list[str]) -> int:
    """Of all files together. Raises typer.BadParameter when one is not there."""
    total = 0
    for name in files:
        try:
            total += Path(name).stat().st_size
        except OSError as error:
            message = f"{name} cannot be read: {error.strerror or error}"
            raise typer.BadParameter(message) from None
    return total


def _address(config: Path | None, url: str | None) -> str:
    """Where tasks publish: the broker of a cluster file, as long as no other address is given, else HTTP."""
    found = ",".join(addresses(config, url).values())
    if url is not None and config is None:
        return found
    from brokerha.cli.access import cluster_file

    cluster = cluster_file(config or DEFAULT_CONFIG)
    return found if cluster.is_embedded else cluster.broker


def _show(report: LoadReport, chosen: Format) -> None:
    if chosen is not Format.TABLE:
        answer = _answer(report)
        output.write(answer, [answer], chosen, {})
        return
    done = f"{output.counted(report.statements, report.unit)} in {output.counted(report.transactions, 'transaction')}"
    if report.is_dry_run:
        print(f"nothing was sent; {done} would be, {output.counted(report.rejects, 'reject')}")
    else:
        upto = f", up to LSN {report.lsn:,}" if report.lsn else ""
        before = f"; {report.splits_before} of {report.splits} splits were done before" if report.splits_before else ""
        print(f"{done}{upto}, {output.counted(report.rejects, 'reject')}, {report.seconds:.1f} s{before}")
    for reject in report.first_rejects[:SHOWN_ON_TERMINAL]:
        print(f"{reject.file}:{reject.line}: {reject.reason}")
    if report.rejects > SHOWN_ON_TERMINAL and report.rejects_file is None:
        print("write all of them to a file with --rejects FILE")
    if report.rejects_file is not None:
        print(f"all rejects: {report.rejects_file}")
    if report.splits and report.splits_before == report.splits:
        exits.say(f"this load was done before, so nothing was sent; to do it again delete {report.state}")
    if not report.is_good:
        exits.say(_advice(report))


def _advice(report: LoadReport) -> str:
    text = f"{output.counted(report.rejects, 'reject')}, and {report.max_rejects} allowed (--max-rejects)"
    if report.is_complete:
        return f"{text}; all other lines are {'good' if report.is_dry_run else 'loaded'}"
    return f"{text}; the load stopped: allow more, and the same command goes on, or mend the file and begin anew with --state"


def _answer(report: LoadReport) -> dict[str, object]:
    return {
        "key": report.key or None,
        "state": None if report.is_dry_run else report.state,
        "dry_run": report.is_dry_run,
        "complete": report.is_complete,
        "files": report.files,
        "splits": report.splits,
        "splits_before": report.splits_before,
        "bytes": report.size_bytes,
        "lines": report.lines,
        "statements": report.statements,
        "unit": report.unit,
        "transactions": report.transactions,
        "rejects": report.rejects,
        "rejects_file": report.rejects_file,
        "first_rejects": [
            {"file": one.file, "line": one.line, "reason": one.reason, "text": one.text} for one in report.first_rejects
        ],
        "lsn": report.lsn or None,
        "seconds": round(report.seconds, 3),
    }
