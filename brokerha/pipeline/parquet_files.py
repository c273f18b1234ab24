"""Writing the Parquet files of a table from a task, in bounded memory.

    batches of rows ──row groups──> a local file without a name ──SHA-256──> <place>/<sha256>.parquet      durable, under its own digest

A file is named by its content. So a task that runs twice writes the same file twice, and a reader that has the name can prove the
bytes. A killed task leaves at most a file that no table version names; vacuum deletes it. Must never change an existing file.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from brokerha.pipeline.places import committing, delta_url, is_local, keep, telling

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS: Final = 100_000
GROUP_BYTES: Final = 16 * 1024 * 1024
"""Limits of one row group, in rows and bytes of memory: all that a task holds at a time."""
SUFFIX: Final = ".parquet"
_SHA_DIGITS: Final = 64


class Kept(NamedTuple):
    """A durable file."""

    name: str
    size_bytes: int
    rows: int


def sha256_of(name: str) -> str:
    """Return the digest in a file name; empty for a file that another program has named.

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
    """Write batches into one file of a place; None when there is no row. Raises StoreError, and errors of the batches."""
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


def add_action(name: str, size_bytes: int, rows: int, *, is_new: bool = True, **statistics: Mapping[str, Any]) -> Any:
    """Return the commit action that adds a file to a table; `is_new`: whether its rows are new."""
    from deltalake.transaction import AddAction

    stats = json.dumps({"numRecords": rows, **statistics})
    return AddAction(name, size_bytes, {}, int(time.time() * 1000), data_change=is_new, stats=stats)


def begin_table(where: str, schema: pa.Schema, actions: Sequence[Any], name: str, **more: Any) -> None:
    """Create the Delta table of a place, with these files. Raises StoreError."""
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    with committing(where):
        if is_local(where):
            Path(where).mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(delta_url(where), Schema.from_arrow(schema), list(actions), name=name or None, **more)


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
