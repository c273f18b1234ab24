"""Lines of the log from a journal: its order and its results, read page by page, in the form for stores and for masters.

Invariant: one answer is of one lineage. When the log goes back during a read, the lines are read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import msgpack

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn, Ordered, TxId
from brokerha.model.log_lineages import Rewinds, rewinds_of
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE
from brokerha.model.operations import APPLIED, LoggedRow, Result
from brokerha.model.outside.authors import author_apart
from brokerha.model.records import History
from brokerha.ports.journal import Journal
from brokerha.ports.log_stream import LogBatch, PublishedChange

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


# ---- Messages for followers, made from a master's journal: batches of its log, and their changes with routing keys.
#
#     journal: results + ordered ──> [[lsn, txid, origin, timestamp, outcome, reason, effect,
#                                 │                       fingerprint, epoch], …]                     one message of the stream
#                                 └─> table.prices.put, graph.main.changed, …                       one message per change
#
# Invariants: a batch has consecutive LSNs of one lineage, and begins at the requested LSN. Its entries are final: their places are
# agreed on, and their results are durable at a worker. It holds at most 1,000 LSNs, and ends with the row that reaches 1 MiB.
#
# Must never: keep a position. The publisher knows its own position, and asks again from there.

BATCH_LSNS = 1_000
BATCH_BYTES = 1024 * 1024
PART_BYTES = 8 * 1024 * 1024
"""Largest message: RabbitMQ 4 refuses more than 16 MiB, and an effect can be larger than its transaction."""

_KEY_PARTS = {
    "quads": ("graph", "changed"),
    "clear": ("graph", "cleared"),
    "put": ("table", "put"),
    "delete": ("table", "deleted"),
    "publish": ("queue", "published"),
    "accept": ("queue", "accepted"),
    "create-repository": ("repository", "created"),
    "remove-repository": ("repository", "removed"),
    "control-add": ("control", "added"),
    "control-remove": ("control", "removed"),
}
_ON_STORES = {GRAPH: "changed", TABLE: "put", QUEUE: "published"}
"""Kind of change, by the kind of store that a large transaction changes."""
_UNKNOWN = ("other", "changed")
"""For a kind that only newer workers know: followers see that something changed."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


class ChangeLog:
    """`ports.CommittedLog` over a journal."""

    def __init__(self, journal: Journal, *, with_changes: bool) -> None:
        """``with_changes``: whether batches carry each single change."""
        self._journal = journal
        self._name = journal.state().journal
        self._with_changes = with_changes

    @property
    def journal(self) -> str:
        """Name of the journal."""
        return self._name

    def rewinds(self) -> Rewinds:
        """Return how often the log has gone back. Raises JournalError."""
        return rewinds_of(self._journal.splits())

    def first_lsn(self) -> Lsn:
        """Return the lowest LSN that is held with its result."""
        return held_from(self._journal)

    def batch(self, first_lsn: Lsn, last_lsn: Lsn) -> LogBatch | None:
        """Return the batch from ``first_lsn`` on, up to ``last_lsn`` at most; None when it would be empty. Raises JournalError."""
        return of_one_lineage(self._journal, partial(self._batch, first_lsn, last_lsn))

    def _batch(self, first_lsn: Lsn, last_lsn: Lsn, rewinds: Rewinds) -> LogBatch | None:
        rows: list[bytes] = []
        changes: list[PublishedChange] = []
        size_bytes = 0
        lines = chain.from_iterable(pages(self._journal, first_lsn, min(BATCH_LSNS, last_lsn - first_lsn + 1)))
        for lsn, ((timestamp, txid, origin), result, epoch) in enumerate(lines, first_lsn):
            packed: bytes = msgpack.packb((lsn, txid, origin, timestamp, *result, epoch))
            rows.append(packed)
            size_bytes += len(packed)
            if self._with_changes and result.outcome == APPLIED:
                changes += changes_of(lsn, txid, result.effect)
            if size_bytes >= BATCH_BYTES:
                break
        if not rows:
            return None
        body = msgpack.Packer().pack_array_header(len(rows)) + b"".join(rows)
        is_full = size_bytes >= BATCH_BYTES or len(rows) >= BATCH_LSNS
        return LogBatch(first_lsn, first_lsn + len(rows) - 1, split(body), tuple(changes), is_full, rewinds)


def split(body: bytes) -> tuple[bytes, ...]:
    """Split a body into parts that a broker takes; nearly always one."""
    return tuple(body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES))


def changes_of(lsn: Lsn, txid: TxId, effect: bytes) -> list[PublishedChange]:
    """Return one message for each change of an effect, in its order."""
    changes, user = author_apart(msgpack.unpackb(effect, use_list=False) if effect else ())
    found = []
    for change in changes:
        if change[0] == "staged":
            # The changes of a large transaction are too much for messages: followers learn where to look.
            keys = [f"{kind}.{_FOREIGN.sub('_', name)}.{_ON_STORES[kind]}" for kind, name, *_ in change[3]]
            found += [PublishedChange(lsn, txid, key, b"", user) for key in keys]
            continue
        body: bytes = msgpack.packb(change)
        found.append(PublishedChange(lsn, txid, routing_key(change), body if len(body) <= PART_BYTES else b"", user))
    return found


def routing_key(change: tuple[Any, ...]) -> str:
    """Return ``<store>.<name>.<kind>``, with _ for characters of a name outside A-Z, a-z, 0-9, _, -. A later version can differ.

    >>> routing_key(("put", "prices", b"sku-1", b"9.90"))
    'table.prices.put'
    >>> routing_key(("quads", "main", [], []))
    'graph.main.changed'
    """
    store, kind = _KEY_PARTS.get(change[0], _UNKNOWN)
    return f"{store}.{_FOREIGN.sub('_', change[1])}.{kind}"
