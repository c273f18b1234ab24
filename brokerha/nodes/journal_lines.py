"""Lines of the log as a store can apply them, from a journal: its order and its results, put together page by page."""

from __future__ import annotations

from typing import Final

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow
from brokerha.model.records import History

LINES_LIMIT: Final = 1_000
LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Of one answer; it closes with the page that reaches either, and pages begin small and double."""
_FIRST_PAGE: Final = 16


def held_from(journal: History) -> Lsn:
    """The first line that a journal has with its result."""
    return max(journal.first_lsn(), journal.results_from())


def logged_lines(journal: History, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
    """Lines of a range, as far as there are results and the limits allow. Raises InvalidRequest: not held any more."""
    if first_lsn < (held := held_from(journal)):
        raise InvalidRequest(f"LSN {first_lsn} is not held any more: the first one is {held}")
    rows: list[LoggedRow] = []
    size_bytes, page = 0, _FIRST_PAGE
    while len(rows) < min(LINES_LIMIT, last_lsn - first_lsn + 1) and size_bytes < LIMIT_BYTES:
        following = first_lsn + len(rows)
        count = min(page, last_lsn - following + 1, LINES_LIMIT - len(rows))
        results = journal.results(following, count)
        ordered = journal.ordered(following, len(results)) if results else []
        # The two differ in length when the journal is trimmed in between; then the caller asks again, and is told.
        found = [(txid, stamp, *result) for (stamp, txid, _), result in zip(ordered, results, strict=False)]
        rows += found
        size_bytes += sum(len(result.effect) for result in results)
        if len(found) < count:
            break
        page *= 2
    return rows
