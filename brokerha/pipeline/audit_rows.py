"""Checks of an archive's files and rows: each problem with its file and LSN.

    file ──missing?──> named
         ──SHA-256 is its name──> good; with `is_deep` its rows are computed again as well
         ──else──> rows ──> entries ──> entry hashes: the LSN whose hash is not the one in its row
                                   ──> rows again: the LSN and column that do not follow from the entry

Whether entries are missing, and whether they all belong to the chain, is checked on the whole table (brokerha/spark/audit.py). Must
never raise because of the content of a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from brokerha.model.errors import ProtocolError, StoreDamaged
from brokerha.model.ids import Lsn
from brokerha.pipeline.entries import LogEntry, entry_hash
from brokerha.pipeline.places import file_system, first_line, sha256_of
from brokerha.pipeline.rows import SCHEMA, entries_of, table_of, whole_entries
from brokerha.pipeline.table import LogFile, LogTable

DIFFERS: Final = "is not what was archived: its SHA-256 differs"
FILE: Final = "file"
_SHOWN: Final = 200
_READ_BYTES: Final = 4 * 1024 * 1024
_ROWS: Final = 20_000


class Problem(NamedTuple):
    """A damaged or altered part of an archive."""

    file: str
    lsn: Lsn
    """0 when it is about the whole file."""
    what: str


def check_file(where: str, file: LogFile) -> str:
    """Check the bytes of a file: return an empty string, `DIFFERS`, or a sentence about an unreadable file.

    The bytes of a file that another program has named cannot be checked; only its rows can.
    """
    digest = hashlib.sha256()
    try:
        with file_system(where).open_input_stream(file.path) as opened:
            while data := opened.read(_READ_BYTES):
                digest.update(data)
    except FileNotFoundError:
        return f"is missing: it held LSN {file.first_lsn} to {file.last_lsn}"
    except OSError as error:
        return f"cannot be read: {error.strerror or first_line(error)}"
    if digest.hexdigest() == sha256_of(file.path):
        return ""
    try:
        LogTable(where).read(file)
    except StoreDamaged as error:
        return str(error)
    return DIFFERS if sha256_of(file.path) else ""


def rows_of(where: str, files: Sequence[LogFile]) -> Iterator[pa.RecordBatch]:
    """Yield rows of some files, with the file name as the last column. Raises StoreDamaged."""
    for file in files:
        for batch in LogTable(where).read(file).to_batches(_ROWS):
            yield batch.append_column(FILE, pa.array([file.path] * batch.num_rows, pa.string()))


def checked(batches: Iterable[pa.RecordBatch]) -> Iterator[Problem]:
    """Yield the problems of rows, which come in order, as whole entries, with the column `FILE`."""
    for table in whole_entries(batches, _ROWS):
        files = dict(zip(table["lsn"].to_pylist(), table[FILE].to_pylist(), strict=True))
        rows = table.drop_columns([FILE]).cast(SCHEMA)
        entries, broken = _entries(rows)
        problems = [*broken, *_hash_problems(rows, entries, [entry_hash(entry) for entry in entries])]
        # Columns of an entry that is wrong anyway are not checked.
        known = {lsn for lsn, _ in problems}
        right = rows.filter(pc.invert(pc.is_in(rows["lsn"], pa.array(sorted(known), pa.int64())))) if known else rows
        problems += _column_problems(right, [entry for entry in entries if entry.lsn not in known])
        yield from (Problem(files[lsn], lsn, what) for lsn, what in problems)


def _entries(table: pa.Table) -> tuple[list[LogEntry], list[tuple[Lsn, str]]]:
    """Return the entries of the rows, and the LSNs whose rows form no valid entry."""
    try:
        return entries_of(table), []
    except (ProtocolError, ValueError, TypeError):
        pass
    entries: list[LogEntry] = []
    broken: list[tuple[Lsn, str]] = []
    for lsn, start, length in _runs(table["lsn"].to_pylist()):
        try:
            entries += entries_of(table.slice(start, length))
        except (ProtocolError, ValueError, TypeError) as error:
            broken.append((lsn, f"has rows that no entry has ({error})"))
    return entries, broken


def _runs(lsns: list[Lsn]) -> Iterator[tuple[Lsn, int, int]]:
    """Yield (LSN, first row, number of rows) of each entry."""
    start = 0
    for place in range(1, len(lsns) + 1):
        if place == len(lsns) or lsns[place] != lsns[start]:
            yield lsns[start], start, place - start
            start = place


def _hash_problems(table: pa.Table, entries: list[LogEntry], hashes: list[bytes]) -> Iterator[tuple[Lsn, str]]:
    """Yield entries whose hash differs from the one in their first row."""
    written: dict[Lsn, bytes | None] = {}
    for lsn, kept in zip(table["lsn"].to_pylist(), table["entry_hash"].to_pylist(), strict=True):
        written.setdefault(lsn, kept)
    for entry, found in zip(entries, hashes, strict=True):
        kept = written[entry.lsn]
        if kept != found:
            shown = kept.hex()[:16] if kept is not None else "nothing"
            yield (entry.lsn, f"is not what was archived: its rows have the entry hash {found.hex()[:16]}…, written is {shown}…")


def _column_problems(table: pa.Table, entries: list[LogEntry]) -> Iterator[tuple[Lsn, str]]:
    """Yield columns that do not match the entries; the entry hash does not cover these columns."""
    again = table_of(entries)
    lsns: list[Lsn] = table["lsn"].to_pylist()
    if again["lsn"].to_pylist() != lsns:
        for lsn in sorted(set(lsns)):
            number, right = lsns.count(lsn), again["lsn"].to_pylist().count(lsn)
            if number != right:
                yield lsn, f"has {number} rows, and from its entry follow {right}"
        return
    for name in table.schema.names:
        if table[name].equals(again[name]):
            continue
        for lsn, kept, right in zip(lsns, table[name].to_pylist(), again[name].to_pylist(), strict=True):
            if kept != right:
                yield lsn, f"has {name} {shown(kept)}, and from its entry follows {shown(right)}"


def row_differences(kept: pa.Table, right: pa.Table) -> list[str]:
    """Compare rows of one entry with the log of the cluster: one sentence for each differing cell, with store and key."""
    if kept.num_rows != right.num_rows:
        return [f"it has {kept.num_rows} rows, and the log of the cluster {right.num_rows}"]
    found = []
    for one, other in zip(kept.to_pylist(), right.to_pylist(), strict=True):
        for name, value in other.items():
            is_unknown = name in _MAY_LACK and None in (value, one[name])
            if one[name] != value and not is_unknown and not _follows(name):
                found.append(f"{_about(other)}: {name} is {shown(one[name])}, and {shown(value)} in the log of the cluster")
    return found


_MAY_LACK: Final = frozenset({"origin", "epoch"})
"""Columns that some sources do not know."""


def _follows(name: str) -> bool:
    """Tell whether a column is derived from others."""
    return name.startswith(("item_", "digest_")) or name == "entry_hash"


def _about(row: dict[str, Any]) -> str:
    if not row["operation"]:
        return "an entry without changes"
    if row["subject"] is not None:
        terms = (row[name] for name in ("subject", "predicate", "object", "graph"))
        return f"{row['kind']} {' '.join(term for term in terms if term is not None)} in repository {row['name']}"
    return f"{row['kind']} in {row['store']} {row['name']}" + (f", key {shown(row['key'])}" if row["key"] else "")


def shown(value: object) -> str:
    """Format a value for people: text as text, other bytes in hexadecimal, never long."""
    if value is None:
        return "nothing"
    if not isinstance(value, bytes):
        return repr(value) if len(repr(value)) <= _SHOWN else repr(value)[:_SHOWN] + "…"
    text = text_of(value)
    return (repr(text) if not text.startswith("0x") else text) if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def text_of(value: bytes) -> str:
    r"""Return bytes as printable text, or in hexadecimal.

    >>> text_of(b"1.50"), text_of(b"\xff\x00")
    ('1.50', '0xff00')
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"
