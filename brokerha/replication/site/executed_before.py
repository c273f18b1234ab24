"""What the content holds already although its place in the queue was taken back (strategy none): it must not be executed again.

Read from the split book: of each split in which the site kept its content, transactions that were applied here and have no result in the
queue of now yet. They come again, in another order, or were not synchronised again so far. The book loses none of these
(log/split_book.py). A site that has taken the content of another one holds nothing of what it had executed itself by then.

Must never name a transaction that was rejected or of unknown outcome only: the content does not hold it.
"""

from __future__ import annotations

from brokerha.model.ids import Lsn, TxId
from brokerha.model.records import History

APPLIED = "applied"
PAGE_ENTRIES = 1_000
"""Entries read at once."""


def executed_before(history: History, executed: Lsn, since: int = 0) -> set[TxId]:
    """Transactions that were applied here before a split; those up to LSN ``executed`` have a result in the queue of now already.

    Splits up to number ``since`` do not count: the content of this site comes from elsewhere since then.
    """
    found: set[TxId] = set()
    for split in history.splits():
        if split.number <= since:
            continue
        first = split.lsn + 1
        while split.keeps_content and (page := history.given_up(split.number, first, PAGE_ENTRIES)):
            for entry in page:
                lsn = history.lsn_of(entry.txid) if entry.outcome == APPLIED else 0
                if lsn is None or lsn > executed:
                    found.add(entry.txid)
            first = page[-1].lsn + 1
    return found
