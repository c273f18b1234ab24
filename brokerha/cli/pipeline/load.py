"""``brokerha pipeline load``: files of any size as many small transactions, read by Spark and written by its sink ``brokerha``.

The same command, started again, continues an interrupted load: the ids of its transactions derive from files and options, and the
cluster recognises those that it has. ``--dry-run`` checks all rows and sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits, logs, output
from brokerha.cli.common.command import AckOption, Answer, Cluster, RepositoryOption
from brokerha.cli.pipeline.command import Spark, job, progress_of
from brokerha.model.errors import InvalidRequest

if TYPE_CHECKING:
    from brokerha.pipeline.loading import LoadOptions, LoadReport
    from brokerha.pipeline.publishing import Reject

MIB = 1024 * 1024
SHOWN_ON_TERMINAL = 5

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Files, folders, patterns or URLs that Spark reads: N-Triples, N-Quads, Turtle, TriG, RDF/XML, JSON-LD, CSV, JSON lines, Parquet.",
    ),
]
SyntaxOption = Annotated[
    str | None,
    typer.Option("--format", metavar="nt|nq|ttl|trig|rdf|jsonld|csv|json|parquet", help="Syntax; by the suffix of each file."),
]
MappingOption = Annotated[
    str | None,
    typer.Option("--mapping", metavar="FILE", help="TOML: how a row of CSV, JSON or Parquet becomes statements or keys."),
]
GraphOption = Annotated[str, typer.Option("--graph", metavar="IRI", help="Graph for triples; the default graph without it.")]
IdOption = Annotated[
    str, typer.Option("--id", metavar="ID", help="Begins the ids of all transactions; from files and options without it.")
]
MaxRejectsOption = Annotated[
    int,
    typer.Option(
        "--max-rejects",
        metavar="N",
        min=0,
        help="Bad rows that are allowed; with more the load stops. A file that cannot be read to its end is never allowed.",
    ),
]
RejectsOption = Annotated[
    str, typer.Option("--rejects", metavar="DIR", help="Folder or URL for bad rows, as lines of JSON; ID.rejects without it.")
]
OrderedOption = Annotated[bool, typer.Option("--ordered", help="One transaction after the other, in the order of the files.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check every row, send nothing.")]
WindowOption = Annotated[int, typer.Option("--window", metavar="N", min=1, max=1000, help="Transactions under way, of each task.")]
SplitOption = Annotated[
    int, typer.Option("--split-mib", metavar="MIB", min=1, max=4096, help="Block of a file that one task reads.")
]
PatienceOption = Annotated[
    float, typer.Option("--patience-s", metavar="SECONDS", min=0, help="How long to try the same transaction again.")
]


def load(
    cluster: Cluster,
    spark: Spark,
    files: FilesArgument,
    syntax: SyntaxOption = None,
    mapping: MappingOption = None,
    repository: RepositoryOption = "main",
    graph: GraphOption = "",
    id_: IdOption = "",
    max_rejects: MaxRejectsOption = 0,
    rejects: RejectsOption = "",
    is_ordered: OrderedOption = False,
    is_dry_run: DryRunOption = False,
    window: WindowOption = 8,
    split_mib: SplitOption = 32,
    patience_s: PatienceOption = 300.0,
    ack: AckOption = "applied",
) -> Answer:
    """Load large files by Spark, as many transactions.

    Start an interrupted load again with the same command; nothing is done twice.
    """
    program = job("load")
    from brokerha.pipeline.loading import LoadOptions

    options = LoadOptions(
        files=tuple(files), url="" if is_dry_run else _address(cluster), repository=repository, syntax=syntax, graph=graph, mapping=mapping,
        id=id_, ack=ack, timeout_s=cluster.timeout_s, window=window, patience_s=patience_s, max_rejects=max_rejects, rejects=rejects,
        split_bytes=split_mib * MIB, is_ordered=is_ordered, is_dry_run=is_dry_run,
    )  # fmt: skip
    _check(options)
    given = spark.options()
    logs.to_stderr(logs.COMMAND)
    with progress_of("load", "bytes") as tell:
        report: LoadReport = program(options, given, tell)
    code = exits.DONE if report.is_good else exits.FAILED
    return Answer(_answer(report), text="\n".join(_words(report)), hints=list(_hints(report)), code=code)


def _check(options: LoadOptions) -> None:
    """Check what is known before Spark starts. Raises typer.BadParameter, ConfigurationError for a wrong mapping."""
    from brokerha.pipeline.loading import OF_ROWS, no_mapping, read_as, syntax_of
    from brokerha.pipeline.loading_mapping import load_mapping

    for name in options.files:
        path = Path(name)
        if "://" not in name and not path.exists() and not set(name) & set("*?[{"):
            raise typer.BadParameter(f"{name} cannot be read: it does not exist")
        if options.syntax is None and not path.is_file():
            continue
        try:
            if read_as(syntax_of(name, options.syntax)) in OF_ROWS and options.mapping is None:
                raise no_mapping(name)
        except InvalidRequest as error:
            raise typer.BadParameter(str(error)) from None
    if options.mapping is not None:
        load_mapping(Path(options.mapping))


def _address(cluster: Cluster) -> str:
    """Return the address for tasks: the broker of a cluster file unless another address is given, else HTTP."""
    found = ",".join(cluster.addresses.values())
    return found if cluster.file is None or cluster.file.is_embedded else cluster.file.broker


def _words(report: LoadReport) -> Iterator[str]:
    """Return lines for people."""
    result = report.result
    done = f"{output.counted(result.items, report.unit)} in {output.counted(result.transactions, 'transaction')}"
    if report.is_dry_run:
        yield f"nothing was sent; {done} would be, {output.counted(result.rejects, 'reject')}"
    else:
        upto = f", up to LSN {result.lsn:,}" if result.lsn else ""
        before = f"; {result.repeated:,} of the transactions were there before" if result.repeated else ""
        yield f"{done}{upto}, {output.counted(result.rejects, 'reject')}, {report.seconds:.1f} s{before}"
    for reject in result.first_rejects[:SHOWN_ON_TERMINAL]:
        yield f"{_place(reject)}: {reject.reason}"
    if result.rejects > SHOWN_ON_TERMINAL and not report.rejects:
        yield "write all of them to a folder with --rejects DIR"
    if report.rejects:
        yield f"all rejects: {report.rejects}"


def _hints(report: LoadReport) -> Iterator[str]:
    if report.result.transactions and report.result.repeated == report.result.transactions:
        yield "this load was done before, so nothing was changed; to do it again give it another --id"
    if not report.is_good:
        yield _advice(report)


def _place(reject: Reject) -> str:
    """Return file and line, or row; with the first byte of its block, unless that is the first block."""
    source, start = reject.source.removeprefix("file:"), reject.part.rpartition(".")[2]
    if start != "0":
        return f"{source}, row {reject.row} from byte {start} on"
    # In other files the head, empty lines or line breaks do not count.
    is_line = {".nt", ".nq"} & set(Path(source).suffixes)
    return f"{source}:{reject.row}" if is_line else f"{source}, row {reject.row}"


def _advice(report: LoadReport) -> str:
    if report.result.unread and report.result.rejects <= report.max_rejects:
        files = output.counted(report.result.unread, "file")
        return f"{files} could not be read to its end, whatever --max-rejects allows: mend it, and load it anew"
    text = f"{output.counted(report.result.rejects, 'reject')}, and {report.max_rejects} allowed (--max-rejects)"
    if not report.result.is_stopped:
        return f"{text}; all other rows are {'good' if report.is_dry_run else 'loaded'}"
    return f"{text}; the load stopped: allow more, and the same command goes on, or mend the file and load it anew"


def _answer(report: LoadReport) -> dict[str, Any]:
    result = report.result
    return {
        "id": report.id,
        "dry_run": report.is_dry_run,
        "complete": report.is_complete,
        "files": report.files,
        "bytes": report.size_bytes,
        "rows": result.rows,
        "items": result.items,
        "unit": report.unit,
        "transactions": result.transactions,
        "transactions_before": result.repeated,
        "rejects": result.rejects,
        "rejects_folder": report.rejects or None,
        "first_rejects": [reject._asdict() for reject in result.first_rejects],
        "lsn": result.lsn or None,
        "seconds": round(report.seconds, 3),
    }
