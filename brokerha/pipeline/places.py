"""Locations of archives and exports: a folder of this machine, or a URL of a file system that all executors reach.

    place("var/archive")                        '/srv/here/var/archive'  (relative to the working directory)
    place("s3://bucket/archive")                unchanged: S3 and compatible servers
    place("gopher://host/archive")              InvalidRequest, before anything is written

| scheme | what | credentials |
|---|---|---|
| none, `file` | a folder; a cluster needs it under the same path on all its machines | |
| `s3`, `s3a` | S3, MinIO, Ceph, … | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, a profile, a role |
| `abfs`, `abfss` | Azure Data Lake | `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, … |
| `gs` | Google Cloud Storage | `GOOGLE_APPLICATION_CREDENTIALS` |
| `hdfs` | Hadoop's file system | Hadoop's configuration |

One library reaches all of them, from the driver and from tasks: delta-rs. Its file system replaces Hadoop's, so Hadoop's jars are
not needed. Needs the extra ``brokerha[spark]``.

Writing the Parquet files of a table from a task, in bounded memory.

    batches of rows ──row groups──> a local file without a name ──SHA-256──> <place>/<sha256>.parquet      durable, under its own digest

A file is named by its content. So a task that runs twice writes the same file twice, and a reader that has the name can prove the
bytes. A killed task leaves at most a file that no table version names; vacuum deletes it. Must never change an existing file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError

SCHEMES: Final = ("file", "s3", "s3a", "abfs", "abfss", "gs", "hdfs")
_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})
_OF_URLS: Final = re.compile(r"[#?\\]|%[0-9A-Fa-f]{2}")
_COPY_BYTES: Final = 8 * 1024 * 1024
if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS: Final = 100_000
GROUP_BYTES: Final = 16 * 1024 * 1024
"""Limits of one row group, in rows and bytes of memory: all that a task holds at a time."""
SUFFIX: Final = ".parquet"
_SHA_DIGITS: Final = 64


def place(text: str) -> str:
    """Return an absolute path, or an unchanged URL. Raises InvalidRequest for an unsupported scheme.

    >>> place("file:///srv/archive/"), place("s3://bucket/archive")
    ('/srv/archive', 's3://bucket/archive')
    >>> place("htp://host/archive")
    Traceback (most recent call last):
    brokerha.model.errors.InvalidRequest: htp:// is no place for data: write a folder, or a URL of file, s3, s3a, abfs, abfss, gs, hdfs
    """
    scheme, sign, rest = text.partition("://")
    if not sign:
        return os.path.abspath(text)  # noqa: PTH100  (resolve would follow links)
    if scheme not in SCHEMES:
        raise InvalidRequest(f"{scheme}:// is no place for data: write a folder, or a URL of {', '.join(SCHEMES)}")
    if scheme == "file":
        return os.path.abspath(unquote(urlsplit(text).path))  # noqa: PTH100  (see above)
    if not rest.strip("/"):
        raise InvalidRequest(f"{text} names no bucket or host")
    return text.rstrip("/")


def check_table(where: str) -> None:
    """Raise InvalidRequest for a folder in which delta-rs does not find its own table: it reads these signs as those of a URL."""
    if is_local(where) and (found := _OF_URLS.search(where)):
        raise InvalidRequest(f"{where} cannot hold a Delta table, because of the {found[0]!r} in its name: choose another folder")


def is_local(where: str) -> bool:
    """Tell whether a place is a folder."""
    return "://" not in where


def is_of_hadoop(where: str) -> bool:
    """Tell whether PySpark itself can read a place; for other places its readers need jars."""
    return is_local(where) or where.startswith("hdfs://")


def delta_url(where: str) -> str:
    """Return a place in delta-rs's notation."""
    return Path(where).as_uri() if is_local(where) else where


def spark_path(where: str, name: str) -> str:
    """Return a file of a place in Spark's notation."""
    full = f"{where}/{name}".translate(_GLOB)
    return f"file://{full}" if is_local(where) else full


def file_system(where: str) -> Any:
    """Return a pyarrow file system for reading, with the place as root. Raises StoreError."""
    from deltalake.exceptions import DeltaError
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    try:
        return PyFileSystem(DeltaStorageHandler(delta_url(where)))
    except (DeltaError, OSError) as error:
        raise StoreError(f"cannot reach {where}: {first_line(error)}") from None


def keep(where: str, name: str, written: IO[bytes]) -> None:
    """Store a local file in a place under a name, atomically; durable on a local disk. Raises StoreError."""
    # PyArrow's streams pass buffers that this library's streams refuse, so this uses the library's own stream.
    from deltalake._internal import DeltaFileSystemHandler

    written.flush()
    written.seek(0)
    with telling(where):
        if is_local(where):
            Path(where).mkdir(parents=True, exist_ok=True)
        out: Any = DeltaFileSystemHandler(delta_url(where)).open_output_stream(name)
        shutil.copyfileobj(written, out, _COPY_BYTES)
        out.close()
    fsync(where, name)


def fsync(where: str, name: str) -> None:
    """Make a file and its name durable in a folder; elsewhere the server has done it."""
    if not is_local(where):
        return
    path = Path(where, name)
    with telling(where):
        for each in (path, path.parent):
            number = os.open(each, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


@contextmanager
def telling(where: str) -> Iterator[None]:
    """Turn the operating system's or object store's error about writing into one line."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {where}: {error.strerror or first_line(error)}") from None


@contextmanager
def committing(where: str) -> Iterator[None]:
    """Turn delta-rs's error about writing a table into one line; the table is unchanged then."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreError(f"cannot write {where}: {first_line(error)}; the table is as it was") from None


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn pyarrow's error about one file into a StoreDamaged that names it."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise StoreDamaged(f"{where} is missing: use a copy of this archive") from None
    except (OSError, pa.ArrowException) as error:
        raise StoreDamaged(f"{where} cannot be read ({first_line(error)}): use a copy of this archive") from None


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without its details."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


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
    """Create the Delta table of a place, with these files. Raises StoreError, InvalidRequest."""
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    check_table(where)
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
