"""The whole content of a store at one LSN, held for a fingerprint or a walk.

    writers wait     one LMDB read transaction   +   a started iterator of each engine
    writers go on    pages of LMDB checked       ->  keys, control suite, queues, quads

One thread, because the iterators of the engines belong to one. Must never let LMDB read an unchecked page: LMDB ends the process
on an emptied page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from brokerha.ports.store import Applied
from brokerha.stores.comparing.digests import Walk
from brokerha.stores.comparing.fingerprint import quads_digest, repository_digest, text_of
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE
from brokerha.stores.control.suite import read_suite
from brokerha.stores.execution.last_changes import check_rows
from brokerha.stores.files.data_pages import HeldPages
from brokerha.stores.files.environment import Environment
from brokerha.stores.reads.kinds import View
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.key_value import PACE_ITEMS, recomputed, rows_as_they_lie
from brokerha.stores.tables.queues import Queues


class Held(NamedTuple):
    """The content of one commit."""

    view: View
    environment: Environment
    transaction: Any
    """LMDB read transaction."""
    pages: HeldPages
    quads: list[tuple[str, Iterator[str]]]
    """Repositories with their lines, each for one iteration."""


def held(view: View, environment: Environment) -> Held:
    """Hold the view's content; the caller prevents commits and leaves the transaction. Raises StoreDamaged, StoreError."""
    transaction = environment.lmdb.begin()
    pages = HeldPages(environment.file, transaction.id())
    quads = [(name, _begun(one.engine.lines())) for name, one in view.repositories.items()]
    return Held(view, environment, transaction, pages, quads)


def recompute(found: Held, paced: Callable[[int], None]) -> Applied:
    """Compute fingerprint and count from the data itself (`Store.recompute`). Raises StoreDamaged, and what ``paced`` raises."""
    environment, transaction = found.environment, found.transaction
    found.pages.check(lambda: paced(0))
    fingerprint, items = recomputed(transaction, environment.keys, paced)
    fingerprint ^= read_suite(transaction, environment.control).fingerprint()
    check_rows(transaction, environment.changes)
    of_queues, messages = Queues(environment).recomputed(transaction, items, paced)
    fingerprint ^= of_queues
    items += messages
    for name, lines in found.quads:
        counted = _Counted(lines, items, paced)
        fingerprint ^= repository_digest(name) ^ quads_digest(name, counted)
        items += counted.count
    return Applied(found.view.lsn, text_of(fingerprint), items)


def answer(found: Held, walk: Walk) -> bytes:
    """Pass the content to a walk and return its answer. Raises TimedOut, TooLarge, and StoreDamaged for unreadable content."""
    environment, transaction, view = found.environment, found.transaction, found.view
    found.pages.check(walk.go_on)
    queues = Queues(environment)
    tables = walk.names(TABLE)
    for beginning in [b""] if tables is None else [row_key_of(table, b"") for table in tables]:
        walk.keys(rows_as_they_lie(transaction, environment.keys, beginning))
    wanted = walk.names(QUEUE)
    for queue in [None] if wanted is None else wanted:
        walk.messages(queues.rows(transaction, queue))
    if walk.names(CONTROL) != []:
        walk.checks(read_suite(transaction, environment.control).checks.values())
    repositories = walk.names(GRAPH)
    for name, lines in found.quads:
        if repositories is None or name in repositories:
            walk.quads(name, lines)
    counts = queues.all_counts(transaction)
    return walk.body(view.lsn, view.fingerprint, view.items, counts, view.repositories)


class _Counted:
    """A count of the items taken from an iterator, added to ``before`` and reported regularly."""

    def __init__(self, lines: Iterator[str], before: int, paced: Callable[[int], None]) -> None:
        self.count = 0
        self._lines = lines
        self._before = before
        self._paced = paced

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if self.count % PACE_ITEMS == 0:
                self._paced(self._before + self.count)
            self.count += 1
            yield line


def _begun(lines: Iterator[str]) -> Iterator[str]:
    """Return the iterator after it has taken its snapshot, which it does with its first line."""
    return chain(list(islice(lines, 1)), lines)
