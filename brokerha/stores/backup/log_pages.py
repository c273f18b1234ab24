"""Lines of a log, read in pages from a source: a worker's own log, a journal, a master behind a connection.

    for lsn, row in pages(store.logged, 1, 5000): ...

The page size starts small and doubles while pages stay small, so that memory holds neither many large effects nor a long log. A
missing line raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from brokerha.model.errors import StoreError
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow
from brokerha.stores.files.environment import store_errors

PAGE_LINES = 16
"""Lines of the first page; doubled up to the next constant while pages stay small."""
PAGE_LINES_MOST = 1_024
PAGE_BYTES = 4 * 1024 * 1024


class LinesMissing(StoreError):
    """The log does not have this line, or no longer."""


def row_of(line: Sequence[Any]) -> LoggedRow:
    """Return a line in its form on the wire and on disk."""
    txid, timestamp, outcome, reason, effect, fingerprint = line
    return txid, timestamp, outcome, reason, effect, fingerprint


def pages(logged: Callable[[Lsn, Lsn], list[Any]], first_lsn: Lsn, last_lsn: Lsn) -> Iterator[tuple[Lsn, LoggedRow]]:
    """Yield lines of a log in pages that start small. Raises LinesMissing at the first missing line."""
    following, count = first_lsn, PAGE_LINES
    while following <= last_lsn:
        with store_errors("cannot read the log"):
            found = logged(following, min(following + count - 1, last_lsn))
        if not found:
            raise LinesMissing(f"LSN {following} is not in the log (any more)")
        size_bytes = 0
        for row in found:
            yield following, row_of(row)
            following += 1
            size_bytes += len(row[4])
        count = min(2 * count, PAGE_LINES_MOST) if size_bytes < PAGE_BYTES // 2 else max(1, count // 2)
