"""Which files are loaded, and how they are cut into splits.

| file | splits |
|---|---|
| `.nt`, `.nq`, `.csv` | pieces of equal size; a line belongs to the one in which it begins |
| the same with `.gz`, `.bz2`, `.xz`; CSV with line breaks inside of values | one |
| `.parquet` | runs of row groups |

Splits follow from names, sizes and options alone, so that a second run has the same ones. A file that changed between two runs is refused.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, Any, NamedTuple

from brokerha.model.errors import InvalidRequest
from brokerha.pipeline.loading import CSV, NQ, NT, PARQUET, Split
from brokerha.pipeline.loading_mapping import Mapping

COMPRESSED = frozenset({".gz", ".bz2", ".xz"})
_SYNTAXES = {
    "nt": NT, "ntriples": NT, "nq": NQ, "nquads": NQ, "csv": CSV, "parquet": PARQUET, "pq": PARQUET,
}  # fmt: skip
_PROBE_BYTES = 64 * 1024


class LoadFile(NamedTuple):
    """One file of a load, as it was when the load began."""

    number: int
    path: str
    syntax: str
    size_bytes: int
    digest: str
    """SHA-256 of its size, its beginning and its end: enough to notice another file under the same name."""


def load_files(paths: tuple[str, ...], syntax: str | None) -> list[LoadFile]:
    """The files, each readable. Raises InvalidRequest that names the one which is not, or whose syntax is not known."""
    files = []
    for number, name in enumerate(paths, 1):
        path = Path(name).absolute()
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                digest = _digest(file, size)
        except OSError as error:
            raise InvalidRequest(f"{name} cannot be read: {error.strerror or error}") from None
        files.append(LoadFile(number, str(path), syntax_of(path, syntax), size, digest))
    return files


def splits_of(files: list[LoadFile], mapping: Mapping | None, split_bytes: int) -> list[Split]:
    """The splits of all files, in order. Raises InvalidRequest for a Parquet file that cannot be read."""
    return [split for file in files for split in _splits(file, mapping, split_bytes)]


def opened(path: str) -> tuple[IO[bytes], IO[bytes]]:
    """A file as its content and as it lies there; the same twice unless it is compressed. Raises OSError."""
    raw = Path(path).open("rb")  # noqa: SIM115  (closed by who asked)
    suffix = Path(path).suffix
    content: Any = raw
    if suffix == ".gz":
        import gzip

        content = gzip.open(raw)  # noqa: SIM115  (closed by who asked)
    elif suffix == ".bz2":
        import bz2

        content = bz2.open(raw)  # noqa: SIM115  (closed by who asked)
    elif suffix == ".xz":
        import lzma

        content = lzma.open(raw)  # noqa: SIM115  (closed by who asked)
    return content, raw


def _splits(file: LoadFile, mapping: Mapping | None, split_bytes: int) -> list[Split]:
    if file.syntax == PARQUET:
        return _row_groups(file, split_bytes)
    is_whole = Path(file.path).suffix in COMPRESSED
    if is_whole or (file.syntax == CSV and mapping is not None and mapping.csv.has_line_breaks):
        return [Split(file.number, 1, file.path, file.syntax, 0, -1, file.size_bytes, 1)]
    starts = range(0, max(file.size_bytes, 1), split_bytes)
    return [
        Split(
            file.number, number, file.path, file.syntax, start, min(start + split_bytes, file.size_bytes),
            min(split_bytes, file.size_bytes - start), 1 if number == 1 else 0,
        )
        for number, start in enumerate(starts, 1)
    ]  # fmt: skip


def _row_groups(file: LoadFile, split_bytes: int) -> list[Split]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        groups = parquet.read_metadata(file.path)
        sizes = [
            (groups.row_group(number).num_rows, groups.row_group(number).total_byte_size)
            for number in range(groups.num_row_groups)
        ]
    except (OSError, pa.ArrowException) as error:
        raise InvalidRequest(f"{file.path} is no Parquet file: {str(error).splitlines()[0]}") from None
    splits: list[Split] = []
    start = rows = size = before = 0
    for number, (count, bytes_) in enumerate(sizes, 1):
        rows, size = rows + count, size + bytes_
        if size >= split_bytes or number == len(sizes):
            splits.append(
                Split(file.number, len(splits) + 1, file.path, PARQUET, start, number, size, before + 1)
            )  # fmt: skip
            start, before, rows, size = number, before + rows, 0, 0
    return splits


def syntax_of(path: Path, given: str | None) -> str:
    """The syntax that was given, else that of the suffix. Raises InvalidRequest when it is none that a load reads."""
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    word = (given or plain.suffix).lower().lstrip(".").replace("-", "")
    if word not in _SYNTAXES:
        raise InvalidRequest(
            f"{path.name}: {word or 'no suffix'!r} is none of nt, nq, csv, parquet: say --format, or use brokerha load for other syntaxes"
        )
    syntax = _SYNTAXES[word]
    if syntax == PARQUET and path.suffix in COMPRESSED:
        raise InvalidRequest(f"{path.name}: Parquet is compressed inside; unpack the file")
    return syntax


def no_mapping(name: str) -> InvalidRequest:
    """The error for a file of rows when nothing says what becomes of a row."""
    return InvalidRequest(f"{name}: say with --mapping how a row becomes statements or keys")


def _digest(file: IO[bytes], size: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    digest.update(file.read(_PROBE_BYTES))
    file.seek(max(0, size - _PROBE_BYTES))
    digest.update(file.read(_PROBE_BYTES))
    return digest.hexdigest()
