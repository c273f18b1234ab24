"""Files of an archive, checked byte by byte and, where bytes differ, row by row: what is wrong, with file and LSN.

    file ──missing?──> named
         ──SHA-256 as the manifest says──> good; with `is_deep` its rows are computed again nevertheless
         ──differs──> rows ──> entries ──> entry hashes: the LSN whose hash is not the one in its row
                                        ──> rows again: the LSN and column that do not follow from the entry
                                        ──> all of them: not those of the chain

Works on one file, in memory as a whole: that is what a task of Spark does. Must never raise for what is in a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from brokerha.model.errors import ProtocolError, StoreDamaged
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive, ArchiveFile
from brokerha.pipeline.entries import LogEntry, entry_hash

if TYPE_CHECKING:
    import pyarrow as pa

PROBLEMS_LIMIT: Final = 20
"""Of one file that are told; where more is wrong, the file as a whole is."""
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of an archive that is not what was written."""

    file: str
    lsn: Lsn
    """0 when it is about the whole file."""
    what: str


def check_file(directory: Path, file: ArchiveFile, *, is_deep: bool) -> list[Problem]:
    """What is wrong with one file; nothing when it is what was archived. `is_deep`: do not trust the SHA-256 alone."""
    path = directory / file.path
    try:
        with path.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return [Problem(file.path, 0, f"is missing: it held LSN {file.first_lsn} to {file.last_lsn}")]
    except OSError as error:
        return [Problem(file.path, 0, f"cannot be read: {error.strerror}")]
    problems = []
    if found != file.sha256:
        problems.append(Problem(file.path, 0, "is not what was archived: its SHA-256 differs"))
    if not problems and not is_deep:
        return []
    try:
        table = Archive(directory).table(file)
    except StoreDamaged as error:
        return [*problems, Problem(file.path, 0, str(error))]
    return [*problems, *check_rows(table, file)]


def check_rows(table: pa.Table, file: ArchiveFile) -> list[Problem]:
    """What is wrong with the rows of a file."""
    from brokerha.pipeline.rows import SCHEMA

    if table.schema.names != SCHEMA.names or table.schema.types != SCHEMA.types:
        return [Problem(file.path, 0, "has other columns than rows of the log")]
    problems = [Problem(file.path, lsn, what) for lsn, what in _order_problems(table, file)]
    entries, broken = _entries(table)
    problems += [Problem(file.path, lsn, what) for lsn, what in broken]
    hashes = [entry_hash(entry) for entry in entries]
    problems += [Problem(file.path, lsn, what) for lsn, what in _hash_problems(table, entries, hashes)]
    if not problems:
        problems = [Problem(file.path, lsn, what) for lsn, what in _column_problems(table, entries)]
    if not problems and hashlib.sha256(b"".join(hashes)).hexdigest() != file.entries_sha256:
        what = "has rows that fit each other and are not those of the hash chain: entries were replaced together with their hashes"
        problems = [Problem(file.path, 0, what)]
    if len(problems) > PROBLEMS_LIMIT:
        more = Problem(file.path, 0, f"has {len(problems) - PROBLEMS_LIMIT} more rows like these")
        problems = [*problems[:PROBLEMS_LIMIT], more]
    return problems


def _order_problems(table: pa.Table, file: ArchiveFile) -> Iterator[tuple[Lsn, str]]:
    """Entries that are missing, strange or out of order."""
    following = file.first_lsn
    before = (0, 0, 0)
    places = zip(*(table[name].to_pylist() for name in ("lsn", "operation", "part")), strict=True)
    for lsn, operation, part in places:
        if lsn >= following:
            if lsn > following:
                yield following, f"is missing: after LSN {following - 1} comes {lsn}"
            following = lsn + 1
        if (lsn, operation, part) <= before:
            yield lsn, "stands twice, or not in order"
        before = lsn, operation, part
    if following != file.last_lsn + 1:
        yield following, f"is missing: the rows end with LSN {following - 1}, and the file with {file.last_lsn}"


def _entries(table: pa.Table) -> tuple[list[LogEntry], list[tuple[Lsn, str]]]:
    """The entries of the rows, and the LSNs whose rows are those of no entry."""
    from brokerha.pipeline.rows import entries_of

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
    """(LSN, first row, number of rows) of each entry."""
    start = 0
    for place in range(1, len(lsns) + 1):
        if place == len(lsns) or lsns[place] != lsns[start]:
            yield lsns[start], start, place - start
            start = place


def _hash_problems(table: pa.Table, entries: list[LogEntry], hashes: list[bytes]) -> Iterator[tuple[Lsn, str]]:
    """Entries whose hash is not the one that stands in their first row."""
    written: dict[Lsn, bytes | None] = {}
    for lsn, kept in zip(table["lsn"].to_pylist(), table["entry_hash"].to_pylist(), strict=True):
        written.setdefault(lsn, kept)
    for entry, found in zip(entries, hashes, strict=True):
        kept = written[entry.lsn]
        if kept != found:
            shown = kept.hex()[:16] if kept is not None else "nothing"
            yield (
                entry.lsn,
                f"is not what was archived: its rows have the entry hash {found.hex()[:16]}…, written is {shown}…",
            )


def _column_problems(table: pa.Table, entries: list[LogEntry]) -> Iterator[tuple[Lsn, str]]:
    """Columns that do not follow from the entries: none of them is in the entry hash."""
    from brokerha.pipeline.rows import table_of

    again = table_of(entries)
    if again.num_rows != table.num_rows:
        yield 0, f"has {table.num_rows} rows, and its entries have {again.num_rows}"
        return
    lsns: list[Lsn] | None = None
    for name in table.schema.names:
        if table[name].equals(again[name]):
            continue
        lsns = lsns or table["lsn"].to_pylist()
        for lsn, kept, right in zip(lsns, table[name].to_pylist(), again[name].to_pylist(), strict=True):
            if kept != right:
                yield lsn, f"has {name} {shown(kept)}, and from its entry follows {shown(right)}"


def row_differences(kept: pa.Table, right: pa.Table) -> list[str]:
    """What rows of one entry say and should say, one sentence for each cell; names store and key."""
    if kept.num_rows != right.num_rows:
        return [f"it has {kept.num_rows} rows, and the log of the cluster {right.num_rows}"]
    found = []
    for one, other in zip(kept.to_pylist(), right.to_pylist(), strict=True):
        for name, value in other.items():
            is_unknown = name in _MAY_LACK and None in (value, one[name])
            if one[name] != value and not is_unknown and not _follows(name):
                found.append(
                    f"{_about(other)}: {name} is {shown(one[name])}, and {shown(value)} in the log of the cluster"
                )
    return found


_MAY_LACK: Final = frozenset({"origin", "epoch"})
"""Columns that a source may not know."""


def _follows(name: str) -> bool:
    """Whether a column only says again what others say."""
    return name.startswith(("item_", "digest_")) or name == "entry_hash"


def _about(row: dict[str, Any]) -> str:
    if not row["operation"]:
        return "an entry without changes"
    if row["subject"] is not None:
        terms = (row[name] for name in ("subject", "predicate", "object", "graph"))
        return f"{row['kind']} {' '.join(term for term in terms if term is not None)} in repository {row['name']}"
    return f"{row['kind']} in {row['store']} {row['name']}" + (f", key {shown(row['key'])}" if row["key"] else "")


def shown(value: object) -> str:
    """A value for people: text where it is text, else in hexadecimal, never long."""
    if value is None:
        return "nothing"
    if not isinstance(value, bytes):
        return repr(value) if len(repr(value)) <= _SHOWN else repr(value)[:_SHOWN] + "…"
    text = text_of(value)
    return (repr(text) if not text.startswith("0x") else text) if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def text_of(value: bytes) -> str:
    r"""Bytes as text if they are that, else in hexadecimal.

    >>> text_of(b"1.50"), text_of(b"\xff\x00")
    ('1.50', '0xff00')
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"
