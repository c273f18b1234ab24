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
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError

SCHEMES: Final = ("file", "s3", "s3a", "abfs", "abfss", "gs", "hdfs")
_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})
_COPY_BYTES: Final = 8 * 1024 * 1024


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
