"""Writing the Parquet files of a table from a task, in memory that does not grow with what comes.

    batches of rows ──row groups──> a local file without a name ──SHA-256──> <place>/<sha256>.parquet      durable, under its own digest

A file is named by its content. So a task that runs twice writes the same file twice, whoever has the name can prove the bytes, and what a
killed task leaves is a file that no version of the table names, which vacuum deletes. Must never change a file that is there.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from brokerha.model.errors import StoreError
from brokerha.pipeline.places import delta_url, first_line, is_local, keep, telling

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS: Final = 100_000
GROUP_BYTES: Final = 16 * 1024 * 1024
"""Rows, and bytes of them in memory, of one row group: what a task holds at a time."""
SUFFIX: Final = ".parquet"
_SHA_DIGITS: Final = 64


class Kept(NamedTuple):
    """A file that is durable in its place."""

    name: str
    size_bytes: int
    rows: int


def sha256_of(name: str) -> str:
    """The digest that a file is named by; empty for one that another program has named.

    >>> sha256_of("ab" * 32 + ".parquet") == "ab" * 32, sha256_of("part-00000-1b.zstd.parquet")
    (True, '')
    """
    stem = name.rpartition("/")[2].removesuffix(SUFFIX)
    return stem if len(stem) == _SHA_DIGITS and not stem.strip("0123456789abcdef") else ""


def write_table(
    where: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    dictionary: Sequence[str] | None = None,
    statistics: Sequence[str] | None = None,
) -> Kept | None:
    """Write batches into one file of a place; None when there is no row. Raises StoreError, what the batches raise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    with telling(where), tempfile.TemporaryFile() as file:
        with pq.ParquetWriter(
            file, schema, compression="zstd", compression_level=1, use_dictionary=True if dictionary is None else dictionary,
            write_statistics=True if statistics is None else statistics, write_page_checksum=True,
        ) as writer:  # fmt: skip
            for group in _groups(batches):
                table = pa.Table.from_batches(group).cast(schema)
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
        if not rows:
            return None
        file.seek(0)
        name = hashlib.file_digest(file, "sha256").hexdigest() + SUFFIX
        size_bytes = file.seek(0, 2)
        keep(where, name, file)
    return Kept(name, size_bytes, rows)


def commit(where: str, schema: pa.Schema, files: Sequence[Kept], name: str, told: Mapping[str, Any]) -> None:
    """Make files part of the Delta table in a place, which begins with them if it is new; ``told`` stands in the commit. Raises StoreError."""
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, create_table_with_add_actions

    now_ms = int(time.time() * 1000)
    adds: list[Any] = [
        AddAction(file.name, file.size_bytes, {}, now_ms, data_change=True, stats=json.dumps({"numRecords": file.rows}))
        for file in files
    ]
    properties = CommitProperties(custom_metadata=dict(told))
    url = delta_url(where)
    try:
        if DeltaTable.is_deltatable(url):
            DeltaTable(url).create_write_transaction(
                adds, "append", Schema.from_arrow(schema), commit_properties=properties
            )
            return
        if is_local(where):
            Path(where).mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(url, Schema.from_arrow(schema), adds, name=name, commit_properties=properties)
    except (DeltaError, OSError) as error:
        raise StoreError(f"cannot write {where}: {first_line(error)}") from None


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Any]]:
    group: list[Any] = []
    rows = size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            group.append(batch)
            rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= GROUP_ROWS or size_bytes >= GROUP_BYTES:
            yield group
            group, rows, size_bytes = [], 0, 0
    if group:
        yield group
