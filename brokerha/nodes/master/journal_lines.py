"""Lines of the log from a journal: its order and its results, read page by page, in the form for stores and for masters.

Invariant: one answer is of one lineage. When the log goes back during a read, the lines are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn, Ordered
from brokerha.model.log_lineages import Rewinds, rewinds_of
from brokerha.model.operations import LoggedRow, Result
from brokerha.model.records import History

LINES_LIMIT: Final = 1_000
ENTRIES_LIMIT: Final = 5_000
LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Limits of one answer; it ends with the page that reaches one of them."""
_FIRST_PAGE: Final = 16
_LARGEST_PAGE: Final = 1_024
Line = tuple[Ordered, Result, int]
"""The last item is the number of the epoch."""
Found = TypeVar("Found")


def held_from(journal: History) -> Lsn:
    """Return the first LSN that a journal holds with its result."""
    return max(journal.first_lsn(), journal.results_from())


def of_one_lineage(journal: History, read: Callable[[Rewinds], Found]) -> Found:
    """Return the result of ``read``, which gets the rewinds; read again if the log goes back, so that lineages never mix."""
    while True:
        splits = journal.splits()
        found = read(rewinds_of(splits))
        if journal.splits() == splits:
            return found


def pages(journal: History, first_lsn: Lsn, limit: int) -> Iterator[list[Line]]:
    """Yield lines with their results, as long as there are any.

    Pages begin small and double: large effects are never all in memory, and the journal is never blocked for long.
    """
    page = _FIRST_PAGE
    while limit > 0:
        count = min(page, limit)
        results = journal.results(first_lsn, count)
        ordered = journal.ordered(first_lsn, len(results)) if results else []
        epochs = journal.epochs(first_lsn, len(results)) if results else []
        # The lengths differ when the journal is trimmed in between; the caller then asks again from another LSN.
        found = list(zip(ordered, results, epochs, strict=False))
        yield found
        if len(found) < count:
            return
        first_lsn, limit, page = first_lsn + count, limit - count, min(2 * page, _LARGEST_PAGE)


def logged_lines(journal: History, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
    """Return lines of a range, as far as results and limits allow. Raises InvalidRequest when they are no longer held."""
    lines = of_one_lineage(journal, lambda _: _lines(journal, first_lsn, last_lsn, LINES_LIMIT))
    return [(txid, stamp, *result) for (stamp, txid, _), result, _ in lines]


def entry_rows(journal: History, first_lsn: Lsn, last_lsn: Lsn) -> list[tuple[Any, ...]]:
    """Return the same range with more columns: [lsn, txid, origin, timestamp, epoch, outcome, reason, effect, fingerprint].

    At most `ENTRIES_LIMIT` lines or about 8 MiB. Raises InvalidRequest when they are no longer held.
    """
    return told_entries(journal, first_lsn, last_lsn)[0]


def told_entries(journal: History, first_lsn: Lsn, last_lsn: Lsn) -> tuple[list[tuple[Any, ...]], Rewinds]:
    """Return the same rows, and the rewinds of the log that they belong to."""
    lines, rewinds = of_one_lineage(journal, lambda rewinds: (_lines(journal, first_lsn, last_lsn, ENTRIES_LIMIT), rewinds))
    rows = [
        (lsn, txid, origin, stamp, epoch, *result) for lsn, ((stamp, txid, origin), result, epoch) in enumerate(lines, first_lsn)
    ]
    return rows, rewinds


def _lines(journal: History, first_lsn: Lsn, last_lsn: Lsn, limit: int) -> list[Line]:
    if first_lsn < (held := held_from(journal)):
        raise InvalidRequest(f"LSN {first_lsn} is not held any more: the first one is {held}")
    lines: list[Line] = []
    size_bytes = 0
    for page in pages(journal, first_lsn, min(limit, last_lsn - first_lsn + 1)):
        lines += page
        size_bytes += sum(len(result.effect) for _, result, _ in page)
        if size_bytes >= LIMIT_BYTES:
            break
    return lines
