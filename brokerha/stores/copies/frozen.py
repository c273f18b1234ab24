"""The content of a store at one LSN while the store goes on, written to separate files, or held for a fingerprint or a walk.

    writers wait     backups of the engines (hard links)   +   one LMDB read transaction
    writers go on    keys and records are copied to a fresh LMDB file, batch by batch

The files hold all data, but only the last lines of the effects log. Opening them needs no lines, because the state row says for
each repository that all effects up to the LSN are durable in it (a backup flushes first). The last lines are for the master,
whose journal can lack them when the source copy is lost. Each value is checked while it is copied, so damage in the source raises
an error instead of spreading. Memory is bounded by a batch.

Held for a fingerprint or a walk:

    writers wait     one LMDB read transaction   +   a started iterator of each engine
    writers go on    pages of LMDB checked       ->  keys, control suite, queues, quads

One thread, because the iterators of the engines belong to one. Must never let LMDB read an unchecked page: LMDB ends the process
on an emptied page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from brokerha.ports.store import Applied
from brokerha.stores.comparing.digests import Walk
from brokerha.stores.comparing.fingerprint import quads_digest, repository_digest, text_of
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE
from brokerha.stores.control.suite import read_suite
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.execution.last_changes import check_rows
from brokerha.stores.execution.state import StoreState, write_state
from brokerha.stores.files.data_pages import HeldPages
from brokerha.stores.files.environment import TABLES_LIMIT, Environment, store_errors
from brokerha.stores.rdf.repositories import Repositories
from brokerha.stores.reads.kinds import View
from brokerha.stores.tables.key_range import in_batches, row_key_of
from brokerha.stores.tables.key_value import PACE_ITEMS, checked_value, recomputed, rows_as_they_lie
from brokerha.stores.tables.queues import Queues, checked_message

TAIL_LSNS = 10_000
"""Lines of the log in a snapshot: more than a probe can be ahead of its master's journal."""
TAIL_LIMIT_BYTES = 64 * 1024 * 1024
BATCH_LIMIT_BYTES = 16 * 1024 * 1024
BATCH_ROWS_LIMIT = 50_000

Row = tuple[bytes, bytes]


class Frozen(NamedTuple):
    """The part of a store to write out."""

    state: StoreState
    """The state that the copy will have."""
    lineage: int
    transaction: Any
    """LMDB read transaction; belongs to the thread that began it."""
    environment: Environment


def backed_up(state: StoreState, repositories: Repositories, directory: Path) -> StoreState:
    """Back up all engines below a directory; return the state for the copy. Raises StoreError."""
    directory.mkdir(parents=True)
    states = {}
    for name, repository in repositories.listed.items():
        repository.engine.backup(directory / repository.directory)
        position = repository.engine.position
        before = state.repositories[name]
        states[name] = before._replace(flushed_position=position, base_lsn=state.lsn)
    return state._replace(repositories=states)


def write_tables(frozen: Frozen, directory: Path, may_go_on: Callable[[], None], tail_lsns: int) -> None:
    """Write records and keys to an LMDB file in the new ``directory``. Raises StoreError, and the exceptions of `may_go_on`.

    ``tail_lsns`` is the number of last lines of the log to include.
    """
    source = frozen.environment
    with store_errors("cannot write the tables of a snapshot"):
        directory.mkdir()
        map_size_bytes = source.lmdb.info()["map_size"]
        target = lmdb.Environment(str(directory), map_size=map_size_bytes, max_dbs=TABLES_LIMIT, sync=False, lock=False)
        with target:
            meta = target.open_db(b"meta")
            with target.begin(write=True, db=meta) as writing:
                with frozen.transaction.cursor(source.meta) as cursor:
                    for key, row in cursor:
                        writing.put(key, row)
                write_state(writing, meta, frozen.state)
            # These tables are small enough for one transaction each; their digests are checked first.
            read_suite(frozen.transaction, source.control)
            Queues(source).all_counts(frozen.transaction)
            check_rows(frozen.transaction, source.changes)
            for name, table in ((b"control", source.control), (b"counts", source.counts), (b"changes", source.changes)):
                small = target.open_db(name)
                with target.begin(write=True, db=small) as writing, frozen.transaction.cursor(table) as cursor:
                    for key, row in cursor:
                        writing.put(key, row)
            effects = target.open_db(b"effects")
            with target.begin(write=True, db=effects) as writing:
                for key, row in EffectsLog(source.effects).tail(frozen.transaction, tail_lsns, TAIL_LIMIT_BYTES):
                    writing.put(key, row, append=True)
            large: tuple[tuple[bytes, Any, Callable[[bytes, bytes], object]], ...] = (
                (b"kv", source.keys, checked_value),
                (b"queues", source.queues, checked_message),
                (b"places", source.places, _checked_place),
            )
            for name, table, checked in large:
                written = target.open_db(name)
                with frozen.transaction.cursor(table) as cursor:
                    for batch in batches(_checked(cursor, checked)):
                        may_go_on()
                        with target.begin(write=True, db=written) as writing, writing.cursor() as place:
                            place.putmulti(batch, append=True)
            target.sync(force=True)


def _checked_place(_key: bytes, _row: bytes) -> None:
    """A place has no checksum of its own; the scrub of the new copy compares it with its message."""


def _checked(rows: Iterable[Row], checked: Callable[[bytes, bytes], object]) -> Iterator[Row]:
    """Yield the same rows. Raises StoreError at the first row with a wrong checksum."""
    for row in rows:
        checked(*row)
        yield row


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Return rows in lists of bounded size."""
    return in_batches(rows, lambda row: len(row[0]) + len(row[1]), BATCH_ROWS_LIMIT, BATCH_LIMIT_BYTES)


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
