"""The LMDB environment of a journal: its tables, one snapshot to read from, and errors in our own words.

Reads go through one open snapshot (a read transaction) that is taken anew after each commit: opening one per read would
cost more than the read. While a write transaction is pending, reads go through that one. It is used under the journal's lock, by any thread. LMDB's errors are translated here: a full
map or disk into JournalFull, a page that does not fit into JournalDamaged, the rest into JournalError.

Must never: hold a snapshot over many turns (pages that were freed meanwhile could not be used again).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import lmdb

from brokerha.journal.directory import damaged, sync_directory
from brokerha.journal.rows import HEAD_BYTES, BadRow, number_key, number_of, unseal
from brokerha.model.codec import decode_record
from brokerha.model.errors import JournalError, JournalFull, ProtocolError
from brokerha.model.records import Record

Table = lmdb._Database  # noqa: SLF001 - the library has no public name for the type of its handles.

_META_PAGES = 2
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DAMAGED = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError, lmdb.BadTxnError)


class Tables(NamedTuple):
    """The tables, in the order of FORMAT.md."""

    meta: Table
    log: Table
    added: Table
    outcomes: Table
    stream: Table
    ids: Table
    dropped: Table
    waiting: Table
    trimmed: Table
    rejected: Table
    marks: Table
    prepared: Table
    decided: Table
    given: Table
    splits: Table


class Database:
    """An open environment. Raises JournalDamaged when LMDB does not take the file for its own, JournalError."""

    def __init__(self, path: Path, map_size_bytes: int, *, is_read_only: bool = False) -> None:
        self.path = path
        self.map_size_bytes = map_size_bytes
        self._is_read_only = is_read_only
        self.pending: lmdb.Transaction[bytes] | None = None
        """A write transaction that stays open: what it holds is read like the rest, and a crash loses it."""
        self.seed = 0
        """Checksum of the journal's name; every record's checksum starts from it."""
        self._open()

    def _open(self) -> None:
        with translated(self.path):
            self.env = lmdb.open(
                str(self.path.parent),
                map_size=self.map_size_bytes,
                max_dbs=len(Tables._fields),
                mode=0o600,
                max_readers=64,
                readonly=self._is_read_only,
                # Who reads only has the directory locked against writers, and may not be allowed to write a table of readers.
                lock=not self._is_read_only,
            )
            try:
                self.page_bytes = int(self.env.stat()["psize"])
                create = not self._is_read_only
                self.tables = Tables(*[self.env.open_db(name.encode(), create=create) for name in Tables._fields])
                self._snapshot = self.env.begin()
            except lmdb.NotFoundError:
                self.env.close()
                raise JournalError(
                    f"the journal {self.path} was left by an earlier version, or before its first turn: start its master once"
                ) from None
            except BaseException:
                self.env.close()
                raise

    def name(self, journal: str) -> None:
        """Set the journal's name, which all checksums of records include."""
        self.seed = crc32(journal.encode())

    def close(self) -> None:
        """Close the environment. Idempotent."""
        self._snapshot.abort()
        self.env.close()

    def exchange(self, copy: Path) -> None:
        """Put a copy of the file in its place, durably, and go on with that. Raises JournalError, OSError."""
        self.close()
        copy.replace(self.path)
        sync_directory(self.path.parent)
        self._open()

    def count_ids(self) -> int:
        """Return the number of rows of `ids`."""
        with translated(self.path):
            return int(self._snapshot.stat(self.tables.ids)["entries"])

    def size(self) -> tuple[int, int]:
        """Return the bytes of the file up to its last page, and how many of them are used."""
        with translated(self.path):
            stats = [self.env.stat(), *[self._snapshot.stat(table) for table in self.tables]]
            pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
            file_bytes = (int(self.env.info()["last_pgno"]) + 1) * self.page_bytes
            return file_bytes, min(file_bytes, (pages + _META_PAGES) * self.page_bytes)

    def refresh(self) -> None:
        """Read from what is durable now; what is pending and was not committed is given up."""
        self._snapshot.abort()
        self.pending = None
        self._snapshot = self.env.begin()

    def keep_open(self, txn: lmdb.Transaction[bytes]) -> None:
        """Read from a write transaction that goes on."""
        if txn is not self.pending:
            self._snapshot.abort()
            self._snapshot = self.pending = txn

    def get(self, key: bytes, table: Table) -> bytes | None:
        """Return a row, or None."""
        try:
            return self._snapshot.get(key, db=table)
        except lmdb.Error as error:
            raise _translate(error, self.path) from error

    def get_id(self, key: bytes) -> bytes | None:
        """Return a row of the table `ids`, or None; the hottest read of all."""
        try:
            return self._snapshot.get(key, db=self.tables.ids)
        except lmdb.Error as error:
            raise _translate(error, self.path) from error

    def floor(self, key: bytes, table: Table) -> tuple[bytes, bytes] | None:
        """Return the row with the highest key not above ``key``, or None."""
        with translated(self.path), self._snapshot.cursor(table) as cursor:
            found = (cursor.set_range(key) and cursor.key() == key) or (
                cursor.prev() if cursor.key() else cursor.last()
            )
            return cursor.item() if found else None

    def rows(self, table: Table, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows from the first key not below ``start`` on."""
        with translated(self.path), self._snapshot.cursor(table) as cursor:
            if not (cursor.set_range(start) if start else cursor.first()):
                return []
            return [row for row, _ in zip(cursor, range(limit), strict=False)]

    def records(self, start: int, limit: int) -> list[tuple[int, bytes]]:
        """Return numbers and rows of up to ``limit`` records from a number on."""
        return [(number_of(key), row) for key, row in self.rows(self.tables.log, number_key(start), limit)]

    def encodings(self, first: int, last: int, limit_bytes: int) -> list[tuple[int, bytes]]:
        """Return encoded records from ``first`` to ``last``, verified, as many as the limit allows, at least one."""
        found: list[tuple[int, bytes]] = []
        with translated(self.path), self._snapshot.cursor(self.tables.log) as cursor:
            there = cursor.set_range(number_key(first))
            while there:
                key, row = cursor.item()
                number = number_of(key)
                limit_bytes -= len(row) - HEAD_BYTES
                if number > last or (limit_bytes < 0 and found):
                    break
                found.append((number, self.check(number, row)))
                there = cursor.next()
        return found

    def record(self, number: int) -> tuple[Record, int]:
        """Return a record and its size in bytes. Raises JournalDamaged when it is missing or not what was written."""
        row = self.get(number_key(number), self.tables.log)
        if row is None:
            raise damaged(self.path, f"record {number} is missing")
        return self.unseal(number, row), len(row)

    def unseal(self, number: int, row: bytes) -> Record:
        """Return the record in a row of `log`. Raises JournalDamaged."""
        try:
            return decode_record(self.check(number, row))
        except ProtocolError as error:
            raise damaged(self.path, f"record {number} is not what was written ({error})") from error

    def check(self, number: int, row: bytes) -> bytes:
        """Return the encoding of the record in a row of `log`. Raises JournalDamaged when its checksum differs."""
        try:
            return unseal(self.seed, number, row)
        except BadRow as error:
            raise damaged(self.path, f"record {number} is not what was written ({error})") from error


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn LMDB's errors into those of the journal in ``path``."""
    try:
        yield
    except lmdb.Error as error:
        raise _translate(error, path) from error


def _translate(error: lmdb.Error, path: Path) -> JournalError:
    if isinstance(error, lmdb.MapFullError):
        return JournalFull(f"the journal {path} has reached its largest size; nothing of the turn was written")
    if isinstance(error, lmdb.DiskError) or getattr(error, "code", 0) in _FULL:
        return JournalFull(f"no space is left for the journal {path}: {error}; nothing of the turn was written")
    if isinstance(error, _DAMAGED):
        return damaged(path, f"a page is not what was written ({error})")
    return JournalError(f"the journal {path} cannot be used: {error}")
