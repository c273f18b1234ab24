"""Export: the state of an archive at an LSN or a time, as tables or as N-Quads.

    state(log up to L) ──fingerprint == that of entry L?──> quads, keys, messages ──a file for each task──> committed together at the end

    <into>/quads, keys, messages      Delta tables: repository and terms; table, key and value; queue, place, message id and body
    <into>/<repository>/<sha256>.nq   N-Quads; <into>/export.json, written last, lists the files and the LSN

Content whose fingerprint differs from that of its LSN is not exported. A failed run leaves at most files that no table and no
`export.json` names. Must never write into a place that is not empty.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import CommitProperties
from pyspark.sql import functions as f

from brokerha.model.errors import StoreDiffers, StoreError
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn, Timestamp
from brokerha.pipeline.places import (
    Kept,
    add_action,
    begin_table,
    check_table,
    file_system,
    first_line,
    is_local,
    keep,
    place,
    telling,
    write_table,
)
from brokerha.pipeline.rows import SCHEMA
from brokerha.pipeline.table import APPLICATION, LogState, LogTable
from brokerha.spark import frames
from brokerha.spark.rebuild import lsn_of
from brokerha.spark.session import errors_of_tasks
from brokerha.stores.comparing.items import GRAPH, QUEUE, TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELTA, NQUADS = "delta", "nquads"
STEPS: Final = 4
"""The proof, and three tables."""
TOLD: Final = "export.json"
_TABLES: Final = {
    "quads": (GRAPH, {"name": "repository", "subject": "subject", "predicate": "predicate", "object": "object", "graph": "graph"}),
    "keys": (TABLE, {"name": "table", "key": "key", "value": "value"}),
    "messages": (
        QUEUE, {"name": "queue", frames.PLACE: "place", "key": "message_id", "content_type": "content_type", "value": "body"},
    ),
}  # fmt: skip
"""Table -> its store, and the names of its columns; each has `lsn` and `timestamp` of the last change too."""
_TYPES: Final = {frames.PLACE: pa.int64(), "key": pa.binary(), **{field.name: field.type for field in SCHEMA}}

Tell = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """State to export, source and target."""

    archive: str
    """Folder or URL (pipeline/places.py); the same holds for `into`."""
    into: str
    format: str = DELTA
    """``delta`` or ``nquads``."""
    to_lsn: Lsn | None = None
    to_time_us: Timestamp | None = None
    """Microseconds since 1970: the last transaction at or before it. Default of both: the last one of the archive."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Result of an export."""

    archive: str
    into: str
    format: str
    cluster: str
    lsn: Lsn
    fingerprint: str
    quads: int = 0
    keys: int = 0
    messages: int = 0
    """N-Quads have neither keys nor messages."""
    files: int = 0
    seconds: float = 0.0


def run(options: ExportOptions, start: Callable[[], AbstractContextManager[SparkSession]], tell: Tell) -> ExportReport:
    """Export. Raises InvalidRequest, StoreError (the target is not free), StoreDiffers, StoreDamaged."""
    begun_s = time.monotonic()
    table, into = LogTable(place(options.archive)), place(options.into)
    if options.format == DELTA:
        check_table(into)
    state = table.state()
    lsn = lsn_of(table, state, options.to_lsn, options.to_time_us)
    _refuse(into)
    with start() as spark, errors_of_tasks():
        log = frames.unfolded(frames.archived(spark, table, state, 1, lsn))
        fingerprint = _proved(log, table, state, lsn)
        tell(1, STEPS)
        about: dict[str, Any] = {"cluster": state.head.cluster, "lsn": lsn, "fingerprint": fingerprint}
        export = _tables if options.format == DELTA else _nquads
        counts, files = export(log, into, about, tell)
    seconds = round(time.monotonic() - begun_s, 3)
    return ExportReport(archive=table.where, into=into, format=options.format, files=files, seconds=seconds, **{**about, **counts})


def _refuse(into: str) -> None:
    """Raise StoreError when the target exists and is not empty."""
    from pyarrow.fs import FileSelector

    if is_local(into):
        is_there = Path(into).exists() and (not Path(into).is_dir() or any(Path(into).iterdir()))
    else:
        try:
            is_there = bool(file_system(into).get_file_info(FileSelector("", allow_not_found=True, recursive=True)))
        except OSError as error:
            raise StoreError(f"cannot reach {into}: {first_line(error)}") from None
    if is_there:
        raise StoreError(f"{into} is not empty: choose another place for the export")


def _proved(log: DataFrame, table: LogTable, state: LogState, lsn: Lsn) -> str:
    found, expected = frames.fingerprint(log, is_unfolded=True), table.fingerprint_at(state, lsn)
    if found != expected:
        raise StoreDiffers(
            f"the rows of the archive in {table.where} lead to {text_of(found)} at LSN {lsn}, and its entry says {text_of(expected)}: "
            "brokerha pipeline audit says which row it is", lsn, found,
        )  # fmt: skip
    return text_of(found)


def _items(log: DataFrame, store: str, columns: Iterable[str]) -> DataFrame:
    """Return the items of one store, without repositories themselves."""
    items = frames.state(log.filter(f.col("store") == store), columns=["store", frames.IS_REPOSITORY, *columns], is_unfolded=True)
    return items.filter((f.col("store") == store) & ~f.col(frames.IS_REPOSITORY)).select(*columns)


def _tables(log: DataFrame, into: str, about: dict[str, Any], tell: Tell) -> tuple[dict[str, int], int]:
    counts: dict[str, int] = {}
    commits = []
    files = 0
    for number, (name, (store, own)) in enumerate(_TABLES.items(), 2):
        columns = {**own, "lsn": "lsn", "timestamp": "timestamp"}
        schema = pa.schema([(as_name, _TYPES[column]) for column, as_name in columns.items()])
        rows = _items(log, store, columns).toDF(*columns.values())
        written = rows.mapInArrow(partial(_write, f"{into}/{name}", schema), "name string, size_bytes long, rows long").collect()
        counts[name] = sum(file.rows for file in written)
        files += len(written)
        commits.append((f"{into}/{name}", schema, [Kept(*file) for file in written], name))
        tell(number, STEPS)
    told = CommitProperties(custom_metadata={APPLICATION: json.dumps(about)})
    for where, schema, kept, name in commits:
        begin_table(where, schema, [add_action(*file) for file in kept], name, commit_properties=told)
    return counts, files


def _write(where: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if (kept := write_table(where, schema, batches)) is not None:
        yield pa.RecordBatch.from_pylist([kept._asdict()])


def _nquads(log: DataFrame, into: str, about: dict[str, Any], tell: Tell) -> tuple[dict[str, int], int]:
    line = f.concat_ws(" ", "subject", "predicate", "object", "graph", f.lit("."))
    quads = _items(log, GRAPH, ("name", "subject", "predicate", "object", "graph"))
    rows = quads.select("name", line.alias("line")).repartition("name").sortWithinPartitions("name")
    written = rows.mapInArrow(partial(_write_lines, into), "name string, lines long").collect()
    told = {**about, "files": {row.name: row.lines for row in written}}
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(told, indent=1).encode())
        keep(into, TOLD, file)
    tell(STEPS, STEPS)
    return {"quads": sum(row.lines for row in written)}, len(written)


def _write_lines(into: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a file for each repository of a partition."""
    name: str | None = None
    file: Any = None
    lines = 0
    for batch in batches:
        for repository, line in zip(batch["name"].to_pylist(), batch["line"].to_pylist(), strict=True):
            if repository != name:
                yield from _ended(into, name, file, lines)
                name, file, lines = repository, tempfile.TemporaryFile(), 0  # noqa: SIM115  (closed by _ended)
            with telling(into):
                file.write(f"{line}\n".encode())
            lines += 1
    yield from _ended(into, name, file, lines)


def _ended(into: str, name: str | None, file: Any, lines: int) -> Iterator[pa.RecordBatch]:
    if file is None:
        return
    with file:
        file.seek(0)
        path = f"{name}/{hashlib.file_digest(file, 'sha256').hexdigest()}.nq"
        keep(into, path, file)
    yield pa.RecordBatch.from_pylist([{"name": path, "lines": lines}])
