"""A load as a whole: what comes before its tasks, and what after them.

    files, mapping ──> ledger (new, or that of an earlier run) ──> splits that are not done ──> tasks
                                                                    reject file, report <── results

How the tasks are run is given: by `brokerha.spark.load`, or one after the other. Everything that can be known before is
checked first: files, mapping, columns, cluster, repository.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from brokerha.client import Client
from brokerha.model.errors import BrokerhaError, InvalidRequest, UnknownRepository, error_named
from brokerha.pipeline.loading import (
    CSV,
    NT,
    PARQUET,
    SIZE_LIMIT_BYTES,
    STATEMENTS_LIMIT,
    LoadJob,
    LoadOptions,
    LoadReport,
    Split,
    SplitResult,
    Tell,
)
from brokerha.pipeline.loading_ledger import Ledger
from brokerha.pipeline.loading_mapping import Mapping, load_mapping
from brokerha.pipeline.loading_plan import LoadFile, load_files, no_mapping, splits_of
from brokerha.pipeline.loading_rejects import gather
from brokerha.pipeline.loading_rows import head_of
from brokerha.pipeline.loading_split import Connect, run_split

STATE_FOLDER = ".brokerha-load"
PROGRESS_EVERY_S = 0.5

Run = Callable[[LoadJob, list[Split], Callable[[], None]], list[SplitResult]]
"""Runs `run_split` for each split; the last argument tells how far all of them are, and may be called at any time."""


class _Plan(NamedTuple):
    job: LoadJob
    files: list[LoadFile]
    splits: list[Split]
    ledger: Ledger


def default_state(paths: tuple[str, ...], *parts: str) -> str:
    """A folder in the present one that the same load, started again, finds by itself."""
    names = [str(Path(path).absolute()) for path in paths]
    return str(Path(STATE_FOLDER) / hashlib.sha256(json.dumps([names, parts]).encode()).hexdigest()[:16])


def one_after_the_other(job: LoadJob, splits: list[Split], progress: Callable[[], None]) -> list[SplitResult]:
    """Run splits in this process, in their order."""
    with told_again_and_again(progress):
        return [run_split(job, split) for split in splits]


@contextmanager
def told_again_and_again(progress: Callable[[], None]) -> Iterator[None]:
    """Tell how far the tasks are, from another thread, as long as the block runs."""
    is_over = threading.Event()

    def again() -> None:
        while not is_over.wait(PROGRESS_EVERY_S):
            progress()

    thread = threading.Thread(target=again, name="brokerha load progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def run_load(options: LoadOptions, run: Run, tell: Tell, connect: Connect) -> LoadReport:
    """Load. Raises InvalidRequest, ConfigurationError, Unreachable, and what ended the patience of a task."""
    started_s = time.monotonic()
    mapping = load_mapping(Path(options.mapping)) if options.mapping else None
    files = load_files(options.files, options.syntax)
    columns = _checked(options, files, mapping)
    with _state(options) as ledger:
        plan = _planned(options, files, mapping, columns, ledger, connect)
        before = {split.name: found for split in plan.splits if (found := ledger.result(split)) is not None}
        left = [split for split in plan.splits if split.name not in before]
        sizes = {split.name: split.size_bytes for split in plan.splits}
        total = sum(sizes.values())

        def progress() -> None:
            tell(min(ledger.done_bytes(sizes), total), total)

        progress()
        results = run(plan.job, left, progress) if left else []
        progress()
        return _report(options, plan, before, results, time.monotonic() - started_s)


# ---- before


def _checked(options: LoadOptions, files: list[LoadFile], mapping: Mapping | None) -> dict[int, tuple[str, ...]]:
    """The columns of the files that have some. Raises InvalidRequest for options that do not go together."""
    columns = {}
    for file in files:
        if file.syntax in {CSV, PARQUET}:
            if mapping is None:
                raise no_mapping(file.path)
            columns[file.number] = head_of(file, mapping)
        elif options.graph and file.syntax != NT:
            raise InvalidRequest(f"{file.path} names its graphs itself: a graph can be given for triples only")
    if mapping is not None and not columns:
        raise InvalidRequest("a mapping is for CSV and Parquet, and none of the files is one")
    if options.graph and len(columns) == len(files):
        raise InvalidRequest("the mapping names the graph: leave out --graph")
    return columns


@contextmanager
def _state(options: LoadOptions) -> Iterator[Ledger]:
    """The ledger, held by this program; of a dry run one that goes with it."""
    if not options.is_dry_run:
        ledger = Ledger(options.state)
        with ledger.held():
            yield ledger
        return
    folder = Path(f"{options.state}.dry-run-{secrets.token_hex(4)}")
    try:
        yield Ledger(str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.name == STATE_FOLDER:
            # Made for this folder, unless something else is in it.
            with suppress(OSError):
                folder.parent.rmdir()


def _planned(
    options: LoadOptions,
    files: list[LoadFile],
    mapping: Mapping | None,
    columns: dict[int, tuple[str, ...]],
    ledger: Ledger,
    connect: Connect,
) -> _Plan:
    cluster = ""
    if not options.is_dry_run:
        with connect(options.address) as client:
            cluster = _cluster_of(client, options, mapping)
    found = ledger.begin(
        {
            "key": f"load-{secrets.token_hex(8)}",
            "cluster": cluster,
            "repository": options.repository,
            "graph": options.graph,
            "mapping": json.loads(json.dumps(asdict(mapping))) if mapping is not None else None,
            "limits": [options.split_bytes, STATEMENTS_LIMIT, SIZE_LIMIT_BYTES],
            "files": [file._asdict() for file in files],
        }
    )
    job = LoadJob(
        secrets.token_hex(4), found["key"], options.address, str(ledger.directory.absolute()), options.repository, options.graph, mapping, columns,
        options.ack, options.timeout_s, 1 if options.is_ordered else options.window, options.patience_s,
        options.max_rejects, options.is_dry_run,
    )  # fmt: skip
    return _Plan(job, files, splits_of(files, mapping, options.split_bytes), ledger)


def _cluster_of(client: Client, options: LoadOptions, mapping: Mapping | None) -> str:
    """Name of the cluster, which answers and has the repository."""
    name = str(client.status(timeout=options.timeout_s)["cluster"])
    if (mapping is None or mapping.keys is None) and options.repository not in client.repositories(
        timeout=options.timeout_s
    ):
        raise UnknownRepository(f"the cluster {name} has no repository {options.repository!r}: create it first")
    return name


# ---- after


def _report(
    options: LoadOptions, plan: _Plan, before: dict[str, SplitResult], results: list[SplitResult], seconds: float
) -> LoadReport:
    known = before | {result.name: result for result in results}
    whole = [known[split.name] for split in plan.splits if split.name in known]
    statements = sum(result.statements for result in whole)
    failed = next((result for result in results if result.error), None)
    if failed is not None:
        raise _with_hint(failed, statements, _unit(plan.job.mapping))
    first, rejects_file = gather(plan.splits, known, plan.ledger, options.rejects, is_dry_run=options.is_dry_run)
    return LoadReport(
        key="" if options.is_dry_run else plan.job.key,
        state=options.state,
        files=len(plan.files),
        splits=len(plan.splits),
        splits_before=len(before),
        size_bytes=sum(split.size_bytes for split in plan.splits),
        lines=sum(result.lines for result in whole),
        statements=statements,
        unit=_unit(plan.job.mapping),
        transactions=sum(result.transactions for result in whole),
        rejects=sum(result.rejects for result in whole),
        max_rejects=options.max_rejects,
        rejects_file=rejects_file,
        first_rejects=first,
        lsn=max((result.lsn for result in whole), default=0),
        is_complete=len(whole) == len(plan.splits) and not any(result.is_stopped for result in whole),
        is_dry_run=options.is_dry_run,
        seconds=seconds,
    )


def _unit(mapping: Mapping | None) -> str:
    return "key" if mapping is not None and mapping.keys is not None else "statement"


def _with_hint(failed: SplitResult, statements: int, unit: str) -> BrokerhaError:
    hint = f" ({statements:,} {unit}s are known to be loaded; the same command goes on behind them)"
    return error_named(failed.error, failed.reason + hint)
