"""Makes messages for followers from a master's journal: batches of its log, and the changes in them with their keys.

    journal: results + ordered ──> [[lsn, txid, origin, timestamp, outcome, reason, effect,
                                │                       fingerprint, epoch], …]                     one message of the stream
                                └─> table.prices.put, graph.main.changed, …                       one message per change

Invariants: a batch has consecutive LSNs, and begins where it was asked to; nothing is in it that could come out otherwise: its
place is agreed on, and its result durable at a worker; it holds at most 1,000 LSNs and closes with the row that reaches 1 MiB; it is of one lineage of the log. Reading goes in pages that begin small
and double, so that large effects are not all in memory, and the journal is never held up for long.

Must never: keep a position. Who publishes knows how far it is, and asks again from there.

>>> routing_key(("put", "prices", b"sku-1", b"9.90"))
'table.prices.put'
>>> routing_key(("quads", "main", [], []))
'graph.main.changed'
"""

from __future__ import annotations

import re
from typing import Any

import msgpack

from brokerha.model.ids import Lsn, TxId
from brokerha.model.log_lineages import Rewinds, rewinds_of
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE
from brokerha.model.operations import APPLIED
from brokerha.model.outside.authors import author_apart
from brokerha.ports.journal import Journal
from brokerha.ports.log_stream import LogBatch, PublishedChange

BATCH_LSNS = 1_000
BATCH_BYTES = 1024 * 1024
PART_BYTES = 8 * 1024 * 1024
"""Largest message; RabbitMQ 4 refuses more than 16 MiB, and an effect may be larger than the transaction was."""
_FIRST_PAGE = 16

_KEY_PARTS = {
    "quads": ("graph", "changed"),
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
"""Of a store that a large transaction is about."""
_UNKNOWN = ("other", "changed")
"""For a kind that a worker of a newer version knows: followers see that there was something."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


class ChangeLog:
    """`ports.CommittedLog` over a journal."""

    def __init__(self, journal: Journal, *, with_changes: bool) -> None:
        """``with_changes``: whether batches carry their changes one by one."""
        self._journal = journal
        self._name = journal.state().journal
        self._with_changes = with_changes

    @property
    def journal(self) -> str:
        """Name of the journal."""
        return self._name

    def rewinds(self) -> Rewinds:
        """How often the log has gone back. Raises JournalError."""
        return rewinds_of(self._journal.splits())

    def first_lsn(self) -> Lsn:
        """Lowest LSN that is held with its result."""
        return max(self._journal.first_lsn(), self._journal.results_from())

    def batch(self, first_lsn: Lsn, last_lsn: Lsn) -> LogBatch | None:
        """What follows from ``first_lsn`` on, up to ``last_lsn`` at most; None when there is nothing yet. Raises JournalError."""
        while True:
            splits = self._journal.splits()
            batch = self._batch(first_lsn, last_lsn, rewinds_of(splits))
            # Where the log goes back in between, a batch could have lines of both lineages.
            if self._journal.splits() == splits:
                return batch

    def _batch(self, first_lsn: Lsn, last_lsn: Lsn, rewinds: Rewinds) -> LogBatch | None:
        rows: list[bytes] = []
        changes: list[PublishedChange] = []
        size_bytes = 0
        page = _FIRST_PAGE
        is_full = False
        while not is_full and (left := last_lsn - first_lsn - len(rows) + 1) > 0:
            page = min(page, left, BATCH_LSNS - len(rows))
            found = self._page(first_lsn + len(rows), page)
            for row in found:
                packed: bytes = msgpack.packb(row)
                rows.append(packed)
                size_bytes += len(packed)
                if self._with_changes and row[4] == APPLIED:
                    changes += changes_of(row[0], row[1], row[6])
                if size_bytes >= BATCH_BYTES or len(rows) >= BATCH_LSNS:
                    is_full = True
                    break
            if len(found) < page:
                break
            page *= 2
        if not rows:
            return None
        body = msgpack.Packer().pack_array_header(len(rows)) + b"".join(rows)
        return LogBatch(first_lsn, first_lsn + len(rows) - 1, split(body), tuple(changes), is_full, rewinds)

    def _page(self, first_lsn: Lsn, limit: int) -> list[tuple[Any, ...]]:
        results = self._journal.results(first_lsn, limit)
        ordered = self._journal.ordered(first_lsn, len(results)) if results else []
        epochs = self._journal.epochs(first_lsn, len(results)) if results else []
        # They differ in length when the journal is trimmed in between; then the publisher asks from elsewhere.
        return [
            (lsn, txid, origin, timestamp, *result, epoch)
            for lsn, ((timestamp, txid, origin), result, epoch) in enumerate(
                zip(ordered, results, epochs, strict=False), first_lsn
            )
        ]


def split(body: bytes) -> tuple[bytes, ...]:
    """The body in parts that a broker takes; nearly always one."""
    return tuple(body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES))


def changes_of(lsn: Lsn, txid: TxId, effect: bytes) -> list[PublishedChange]:
    """One message for each change of an effect, in its order."""
    changes, user = author_apart(msgpack.unpackb(effect, use_list=False) if effect else ())
    found = []
    for change in changes:
        if change[0] == "staged":
            # What a large transaction changes is too much for messages: followers are told where to look.
            keys = [f"{kind}.{_FOREIGN.sub('_', name)}.{_ON_STORES[kind]}" for kind, name in change[3]]
            found += [PublishedChange(lsn, txid, key, b"", user) for key in keys]
            continue
        body: bytes = msgpack.packb(change)
        found.append(PublishedChange(lsn, txid, routing_key(change), body if len(body) <= PART_BYTES else b"", user))
    return found


def routing_key(change: tuple[Any, ...]) -> str:
    """``<store>.<name>.<kind>``; what is not A-Z, a-z, 0-9, _ or - in a name becomes _, so that words stay words. A later version may have others."""
    store, kind = _KEY_PARTS.get(change[0], _UNKNOWN)
    return f"{store}.{_FOREIGN.sub('_', change[1])}.{kind}"
