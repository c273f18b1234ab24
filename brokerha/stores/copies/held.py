"""The whole content of a store at one LSN, held while somebody looks at all of it: to compute its fingerprint, or for a walk.

    writers wait     one LMDB read transaction   +   an iterator of each engine, begun
    writers go on    pages of LMDB checked       ->  keys, control suite, queues, quads

Of one thread, because the iterators of the engines are. Must never bring LMDB to a page that was not checked, as LMDB ends the
process on one that was emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from brokerha.ports.store import Applied
from brokerha.stores.comparing.digests import Walk
from brokerha.stores.comparing.fingerprint import quads_digest, repository_digest, text_of
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE
from brokerha.stores.control.table import read_suite
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
    """Repositories with their lines, which can be taken once."""


def held(view: View, environment: Environment) -> Held:
    """Hold what the view shows; no commit may come in between. The transaction has to be left. Raises StoreDamaged, StoreError."""
    transaction = environment.lmdb.begin()
    pages = HeldPages(environment.file, transaction.id())
    quads = [(name, _begun(one.engine.lines())) for name, one in view.repositories.items()]
    return Held(view, environment, transaction, pages, quads)


def recompute(found: Held, paced: Callable[[int], None]) -> Applied:
    """Fingerprint and count from the data itself. Raises StoreDamaged, and what ``paced`` raises (`Store.recompute`)."""
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
    """Have a walk see what it wants of the content, and answer. Raises TimedOut, TooLarge, StoreDamaged for what cannot be read."""
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
    """Counts what is taken from an iterator, after so many other items, and says so now and then."""

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
    """An iterator that has its snapshot now, not when its first line is taken."""
    return chain(list(islice(lines, 1)), lines)
