"""The effects log: the last lines of the log, kept by the store itself, executed or applied.

It has three uses. After a power failure a repository can lack committed effects, and the store applies them again. Results that
were lost on their way to the master are sent again without another execution. Another copy can get missing lines from here.

One row holds the lines of consecutive LSNs, usually of one batch:

    key    LSN of the first, 8 bytes big-endian
    value  CRC-32 of key and body, 4 bytes | body: msgpack list of [txid, timestamp, outcome, reason, effect, fingerprint]

Rows follow each other without gap or overlap, and are dropped whole, oldest first. Every read checks the checksum, so that a
damaged disk raises an error instead of making a wrong copy. The caller of `trim` decides what to drop.

`bring_up` brings repositories up to date when the store opens. After a kill an engine can lack one commit, because it commits
last. After a power failure it can lack all writes since its last flush. It lacks the effects after its own position, or after its
base LSN, up to which it certainly has all of them:

    effects log     ... 95 96 97 98 99 100          applied LSN 100
    main            position 98                     gets 99 and 100
    quiet           position 12, base LSN 97        gets 98 to 100, which do not change it

Commits are idempotent and carry their position, so that a crash in here needs only another start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import msgpack

from brokerha.model.errors import StoreDamaged
from brokerha.model.ids import Lsn
from brokerha.model.invariants import invariant
from brokerha.model.operations import Logged, LoggedRow, QuadsChanged, unpack_effect
from brokerha.stores.files.environment import WriteTransaction
from brokerha.stores.rdf.change import QuadChange
from brokerha.stores.rdf.repositories import Repositories

ROW_LINES_LIMIT = 512
ROW_LIMIT_BYTES = 1024 * 1024
"""Size limit of a row with several lines; a larger single line has a row of its own."""
WAITING_LINES_LIMIT = 50_000
"""Lines that can wait in memory before they are committed."""


class EffectsLog:
    """The log in one LMDB table; each call works in the given transaction."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def append(self, transaction: WriteTransaction, first_lsn: Lsn, lines: Sequence[LoggedRow]) -> None:
        """Add lines at the end, the first at ``first_lsn``."""
        if len(lines) > ROW_LINES_LIMIT:
            self._append_halves(transaction, first_lsn, lines)
            return
        body = msgpack.packb(lines)
        if len(body) > ROW_LIMIT_BYTES and len(lines) > 1:
            self._append_halves(transaction, first_lsn, lines)
            return
        key = first_lsn.to_bytes(8, "big")
        row = crc32(body, crc32(key)).to_bytes(4, "big") + body
        is_last = transaction.put(key, row, append=True, overwrite=False, db=self._table)
        invariant(is_last, "the effects log only grows at its end", first_lsn=first_lsn)

    def _append_halves(self, transaction: WriteTransaction, first_lsn: Lsn, lines: Sequence[LoggedRow]) -> None:
        middle = len(lines) // 2
        self.append(transaction, first_lsn, lines[:middle])
        self.append(transaction, first_lsn + middle, lines[middle:])

    def clear(self, transaction: WriteTransaction) -> None:
        """Drop all lines; the next line can have any LSN."""
        transaction.drop(self._table, delete=False)

    def rows(self, transaction: Any, first_lsn: Lsn) -> Iterator[tuple[Lsn, list[Logged]]]:
        """Yield rows from the one with ``first_lsn`` on, each with the LSN of its first line.

        Yields nothing when ``first_lsn`` is no longer held. Raises StoreDamaged for a damaged or missing row.
        """
        with transaction.cursor(self._table) as cursor:
            if not self._seek(cursor, first_lsn):
                return
            next_lsn = 0
            for key, row in cursor:
                row_lsn, lines = int.from_bytes(key, "big"), _checked(key, row)
                if next_lsn not in {0, row_lsn}:
                    raise StoreDamaged(
                        f"the effects log lacks LSN {next_lsn} to {row_lsn - 1}; take the content from another worker"
                    )
                yield row_lsn, lines
                next_lsn = row_lsn + len(lines)

    def read(self, transaction: Any, first_lsn: Lsn, last_lsn: Lsn, limit_bytes: int | None = None) -> list[Logged]:
        """Return lines of these LSNs; none when ``first_lsn`` is no longer held.

        They are fewer where the log ends, and end with the row that brings their effects to ``limit_bytes``.
        """
        found: list[Logged] = []
        size_bytes = 0
        for row_lsn, lines in self.rows(transaction, first_lsn):
            part = lines[max(first_lsn - row_lsn, 0) : last_lsn - row_lsn + 1]
            found += part
            size_bytes += sum(len(line.effect) for line in part)
            # Check this before reading the next row, which can be large or damaged.
            if row_lsn + len(lines) > last_lsn or (limit_bytes is not None and size_bytes >= limit_bytes):
                break
        return found

    def effects_from(self, transaction: Any, first_lsn: Lsn) -> Iterator[bytes]:
        """Yield effects from an LSN on; none when it is no longer held."""
        for row_lsn, lines in self.rows(transaction, first_lsn):
            yield from (line.effect for line in lines[max(first_lsn - row_lsn, 0) :])

    def first_lsn(self, transaction: Any) -> Lsn | None:
        """Return the lowest LSN held, or None when the log is empty."""
        with transaction.cursor(self._table) as cursor:
            return int.from_bytes(cursor.key(), "big") if cursor.first() else None

    def trim(self, transaction: WriteTransaction, below: Lsn, limit_bytes: int) -> None:
        """Drop rows that hold only LSNs below this one, and the oldest rows while the log has more bytes than the limit."""
        with transaction.cursor(self._table) as cursor:
            # A row ends where the next begins, so the last row stays.
            while cursor.first() and cursor.next():
                next_lsn = int.from_bytes(cursor.key(), "big")
                if next_lsn > below and self._size_bytes(transaction) <= limit_bytes:
                    return
                cursor.first()
                cursor.delete()

    def _size_bytes(self, transaction: WriteTransaction) -> int:
        pages = transaction.stat(self._table)
        return int(pages["psize"] * (pages["leaf_pages"] + pages["overflow_pages"]))

    def tail(self, transaction: Any, lsns: int, limit_bytes: int) -> list[tuple[bytes, bytes]]:
        """Return the last rows unchanged, for about ``lsns`` LSNs and at most ``limit_bytes``; at least one row, if there is any.

        Raises StoreDamaged for a damaged row.
        """
        found: list[tuple[bytes, bytes]] = []
        size_bytes = 0
        with transaction.cursor(self._table) as cursor:
            is_there = cursor.last()
            while is_there:
                key, row = cursor.item()
                _checked(key, row)
                size_bytes += len(row)
                if found and size_bytes > limit_bytes:
                    break
                found.append((key, row))
                if int.from_bytes(found[0][0], "big") - int.from_bytes(key, "big") >= lsns:
                    break
                is_there = cursor.prev()
        return found[::-1]

    def _seek(self, cursor: Any, first_lsn: Lsn) -> bool:
        """Put the cursor on the row with ``first_lsn``; return False when there is none."""
        key = first_lsn.to_bytes(8, "big")
        if cursor.set_range(key) and cursor.key() == key:
            return True
        if not cursor.prev() and not cursor.last():
            return False
        return int.from_bytes(cursor.key(), "big") <= first_lsn


def _checked(key: bytes, row: bytes) -> list[Logged]:
    body = row[4:]
    if crc32(body, crc32(key)) != int.from_bytes(row[:4], "big"):
        message = f"the effects log is damaged at LSN {int.from_bytes(key, 'big')}; take the content from another worker"
        raise StoreDamaged(message)
    return [Logged(*line) for line in msgpack.unpackb(body)]


def bring_up(repositories: Repositories, log: EffectsLog, transaction: Any, lsn: Lsn) -> None:
    """Give every repository the effects up to ``lsn`` that it lacks. Raises StoreDamaged when the log does not reach back."""
    behind = {
        name: max(repository.engine.position, repository.base_lsn)
        for name, repository in repositories.listed.items()
        if max(repository.engine.position, repository.base_lsn) < lsn
    }
    if not behind:
        return
    next_lsn = min(behind.values()) + 1
    for row_lsn, lines in log.rows(transaction, next_lsn):
        for line in lines[next_lsn - row_lsn :]:
            _give(repositories, behind, next_lsn, line.effect)
            next_lsn += 1
        if _waiting_lines(repositories) > WAITING_LINES_LIMIT:
            repositories.commit(next_lsn - 1)
    if next_lsn != lsn + 1:
        name = min(behind, key=lambda name: behind[name])
        raise StoreDamaged(
            f"repository {name} is at LSN {behind[name]} of {lsn}, and the effects log lacks LSN {next_lsn}: "
            "take the content from another worker"
        )
    repositories.commit(lsn)


def _give(repositories: Repositories, behind: dict[str, Lsn], lsn: Lsn, effect: bytes) -> None:
    for change in unpack_effect(effect):
        # An effect on an earlier repository of the same name is below the base LSN of this one.
        if isinstance(change, QuadsChanged) and behind.get(change.repository, lsn) < lsn:
            pending = repositories.listed[change.repository].pending
            pending.include(QuadChange(change.removed, change.added))


def _waiting_lines(repositories: Repositories) -> int:
    return sum(len(one.pending.removed) + len(one.pending.added) for one in repositories.listed.values())
