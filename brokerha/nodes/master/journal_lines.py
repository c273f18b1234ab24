"""Lines of the log as a store can apply them, from a journal: its order and its results, put together page by page.

Invariant: one answer is of one lineage; when the log goes back while it is read, it is read again.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn, Ordered
from brokerha.model.log_lineages import Rewinds, rewinds_of
from brokerha.model.operations import LoggedRow, Result
from brokerha.model.records import History

LINES_LIMIT: Final = 1_000
ENTRIES_LIMIT: Final = 5_000
LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Of one answer; it closes with the page that reaches either, and pages begin small and double."""
_FIRST_PAGE: Final = 16
_LARGEST_PAGE: Final = 1_024


def held_from(journal: History) -> Lsn:
    """The first line that a journal has with its result."""
    return max(journal.first_lsn(), journal.results_from())


def logged_lines(journal: History, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
    """Lines of a range, as far as there are results and the limits allow. Raises InvalidRequest: not held any more."""
    found = _found(journal, first_lsn, last_lsn, LINES_LIMIT)
    return [(txid, stamp, *result) for (stamp, txid, _), result, _ in found.lines]


def entry_rows(journal: History, first_lsn: Lsn, last_lsn: Lsn) -> list[tuple[Any, ...]]:
    """The same range with what masters know beside it: [lsn, txid, origin, timestamp, epoch, outcome, reason, effect, fingerprint].

    At most `ENTRIES_LIMIT` or about 8 MiB. Raises InvalidRequest: not held any more.
    """
    return told_entries(journal, first_lsn, last_lsn)[0]


def told_entries(journal: History, first_lsn: Lsn, last_lsn: Lsn) -> tuple[list[tuple[Any, ...]], Rewinds]:
    """The same, and how often the log had gone back when they were its lines."""
    found = _found(journal, first_lsn, last_lsn, ENTRIES_LIMIT)
    rows = [
        (lsn, txid, origin, stamp, epoch, *result)
        for lsn, ((stamp, txid, origin), result, epoch) in enumerate(found.lines, first_lsn)
    ]
    return rows, found.rewinds


class _Found(NamedTuple):
    lines: list[tuple[Ordered, Result, int]]
    """With the number of the epoch."""
    rewinds: Rewinds


def _found(journal: History, first_lsn: Lsn, last_lsn: Lsn, limit: int) -> _Found:
    while True:
        splits = journal.splits()
        lines = _lines(journal, first_lsn, last_lsn, limit)
        if journal.splits() == splits:
            return _Found(lines, rewinds_of(splits))


def _lines(journal: History, first_lsn: Lsn, last_lsn: Lsn, limit: int) -> list[tuple[Ordered, Result, int]]:
    if first_lsn < (held := held_from(journal)):
        raise InvalidRequest(f"LSN {first_lsn} is not held any more: the first one is {held}")
    rows: list[tuple[Ordered, Result, int]] = []
    size_bytes, page = 0, _FIRST_PAGE
    while len(rows) < min(limit, last_lsn - first_lsn + 1) and size_bytes < LIMIT_BYTES:
        following = first_lsn + len(rows)
        count = min(page, last_lsn - following + 1, limit - len(rows))
        results = journal.results(following, count)
        ordered = journal.ordered(following, len(results)) if results else []
        epochs = journal.epochs(following, len(results)) if results else []
        # They differ in length when the journal is trimmed in between; then the caller asks again, and is told.
        found = list(zip(ordered, results, epochs, strict=False))
        rows += found
        size_bytes += sum(len(result.effect) for result in results)
        if len(found) < count:
            break
        page = min(2 * page, _LARGEST_PAGE)
    return rows
