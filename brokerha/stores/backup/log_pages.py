"""Lines of a log, taken in pages from a source that has them: a worker's own log, a journal, a master behind a connection.

    for lsn, row in pages(store.logged, 1, 5000): ...

Pages begin small and double as long as they are small, so that neither large effects nor a long log are ever in memory as a whole.
A line that is not there is an error and never a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from brokerha.model.errors import StoreError
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow
from brokerha.stores.files.environment import store_errors

PAGE_LINES = 16
"""Lines asked for at first; doubled as long as they are small, up to the next."""
PAGE_LINES_MOST = 1_024
PAGE_BYTES = 4 * 1024 * 1024


class LinesMissing(StoreError):
    """The log has no such line, or no longer."""


def row_of(line: Sequence[Any]) -> LoggedRow:
    """A line as it stands on the wire and on disk."""
    txid, timestamp, outcome, reason, effect, fingerprint = line
    return txid, timestamp, outcome, reason, effect, fingerprint


def pages(logged: Callable[[Lsn, Lsn], list[Any]], first_lsn: Lsn, last_lsn: Lsn) -> Iterator[tuple[Lsn, LoggedRow]]:
    """Lines of a log in pages that begin small, so that large effects are not all in memory.

    Raises LinesMissing at the first line that is not there.
    """
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
