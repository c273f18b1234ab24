"""All keys of a range at one moment, in any number, while others write.

    page at LSN 7, page at LSN 9, page at LSN 8   +   changes of the log from 7 to 9   =   the range at LSN 9

Each page shows one copy at one LSN. If the first page holds the whole range, it is the result. Else all pages go to a temporary
database on disk, which then gets the changes between the oldest and the newest page. A change names the whole value, so a change
that a page already includes does no harm.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgpack
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from brokerha.client.calls import Calls
from brokerha.client.reads import Least
from brokerha.model.errors import NotReady, TooLarge, UnknownSnapshot
from brokerha.model.ids import Lsn
from brokerha.model.operation_checks import TABLE
from brokerha.model.operations import Change, Logged, Staged, unpack_effect

PAGE_ROWS: Final = 10_000
PAGE_BYTES: Final = 8 * 1024 * 1024
"""Target size of a page, estimated from the rows of the previous page."""

PAUSE_S: Final = 0.05

Row = tuple[bytes, bytes]


class Export(NamedTuple):
    """Keys and values in byte order of the keys; can be iterated once."""

    lsn: Lsn
    """The moment that the rows show."""
    rows: Iterator[Row]


class Range(NamedTuple):
    """Keys of one table."""

    table: str
    prefix: bytes
    start: bytes
    end: bytes | None

    def has(self, table: str, key: bytes) -> bool:
        """Whether a key is in it."""
        return table == self.table and key.startswith(self.prefix) and key >= self.start and (self.end is None or key < self.end)


def export(calls: Calls, wanted: Range, min_lsn: Least, seconds: float, page_rows: int = PAGE_ROWS) -> Export:
    """Export a range (module head); ``seconds`` are for each question. Raises NotReady when the log is too short or went back."""
    pages = _pages(calls, wanted, min_lsn, seconds, page_rows)
    first, lsn, is_last = next(pages)
    if is_last:
        return Export(lsn, iter(first))
    lineage = _lineage_at(calls, lsn, seconds)
    held, lsns = _Held(), [lsn]
    held.put(first)
    for rows, lsn, _ in pages:
        held.put(rows)
        lsns.append(lsn)
    for changes in _changes(calls, min(lsns) + 1, max(lsns), seconds):
        for change in changes:
            if change[0] in {"put", "delete"} and wanted.has(change[1], change[2]):
                held.change(*change[2:])
            elif isinstance(change, Staged) and (TABLE, wanted.table) in change.stores:
                raise NotReady("a large transaction wrote the table while it was read: begin again")
    if _lineage_at(calls, max(lsns), seconds) != lineage:
        raise NotReady("the log went back while the table was read: begin again")
    return Export(max(lsns), held.rows())


def export_snapshot(
    calls: Calls, snapshot: str, wanted: Range, min_lsn: Least, seconds: float, page_rows: int = PAGE_ROWS
) -> Export:
    """Export a range of a snapshot, which never changes. Raises UnknownSnapshot, also when it is dropped during the export."""
    made = _made_at(calls, snapshot, min_lsn, seconds)

    def rows() -> Iterator[Row]:
        for found, lsn, _ in _pages(calls, wanted, made.read_lsn, seconds, page_rows, snapshot):
            # If the same snapshot is still there afterwards, it was there when the page was read.
            if _made_at(calls, snapshot, lsn, seconds).lsn != made.lsn:
                raise UnknownSnapshot(f"snapshot {snapshot!r} was dropped and made again while it was read: begin again")
            yield from found

    return Export(made.lsn, rows())


class _Made(NamedTuple):
    lsn: Lsn
    read_lsn: Lsn
    """LSN from which the asked node has the snapshot."""


def _made_at(calls: Calls, snapshot: str, min_lsn: Least, seconds: float) -> _Made:
    outcome = calls.read("snapshots", "", {}, min_lsn, seconds)
    for each in json.loads(outcome.body):
        if each["name"] == snapshot:
            return _Made(each["lsn"], outcome.lsn)
    raise UnknownSnapshot(f"there is no snapshot {snapshot!r}")


def _pages(
    calls: Calls, wanted: Range, min_lsn: Least, seconds: float, most_rows: int, snapshot: str | None = None
) -> Iterator[tuple[list[Row], Lsn, bool]]:
    """Yield pages in key order: rows, the one LSN that they show, and whether the page is the last."""
    start, is_last, rows = wanted.start, False, most_rows
    while not is_last:
        arguments = {
            "prefix": wanted.prefix, "from": start, "to": wanted.end, "limit": rows, "snapshot": snapshot,
        }  # fmt: skip
        try:
            # Only `together` returns exactly the LSN that its rows show.
            (outcome,) = calls.together([("range", wanted.table, arguments)], min_lsn=min_lsn, timeout=seconds)
        except TooLarge:
            if rows == 1:
                raise
            rows = max(1, rows // 8)
            continue
        found: list[Row] = list(msgpack.unpackb(outcome.body, use_list=False))
        is_last = len(found) < rows
        yield found, outcome.lsn, is_last
        if found:
            start = found[-1][0] + b"\0"
            rows = max(1, min(most_rows, rows * PAGE_BYTES // max(1, len(outcome.body))))


def _changes(calls: Calls, first: Lsn, last: Lsn, seconds: float) -> Iterator[list[Change]]:
    """Yield the changes of each transaction of a log range. Raises InvalidRequest when the log does not reach back, NotReady."""
    # Another master can lag a moment behind the one of the pages.
    again = Retrying(
        retry=retry_if_result(lambda lines: not lines),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(PAUSE_S),
        retry_error_callback=lambda _: [],
    )
    while first <= last:
        lines = [Logged(*row) for row in again(calls.ask, "logged", {"first_lsn": first, "last_lsn": last}, seconds)]
        if not lines:
            raise NotReady(f"the master that was asked does not know what LSN {first} changed: try again")
        for line in lines:
            yield unpack_effect(line.effect)
        first += len(lines)


def _lineage_at(calls: Calls, lsn: Lsn, seconds: float) -> int:
    lines = calls.ask("log", {"first_lsn": lsn, "last_lsn": lsn}, seconds) if lsn else []
    return int(lines[0].get("lineage", 0)) if lines else 0


class _Held:
    """Rows on disk, in byte order of their keys; the file has no name and disappears with the connection."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE held (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def put(self, rows: Iterable[Row]) -> None:
        self._database.executemany("INSERT OR REPLACE INTO held VALUES (?, ?)", rows)

    def change(self, key: bytes, value: bytes | None = None) -> None:
        if value is None:
            self._database.execute("DELETE FROM held WHERE key = ?", (key,))
        else:
            self.put([(key, value)])

    def rows(self) -> Iterator[Row]:
        yield from self._database.execute("SELECT key, value FROM held ORDER BY key")
        self._database.close()
