"""The content of a store at one LSN, written to separate files while the store goes on.

    writers wait     backups of the engines (hard links)   +   one LMDB read transaction
    writers go on    keys and records are copied to a fresh LMDB file, batch by batch

The files hold all data, but only the last lines of the effects log. Opening them needs no lines, because the state row says for
each repository that all effects up to the LSN are durable in it (a backup flushes first). The last lines are for the master,
whose journal can lack them when the source copy is lost. Each value is checked while it is copied, so damage in the source raises
an error instead of spreading. Memory is bounded by a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from brokerha.stores.control.suite import read_suite
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.execution.last_changes import check_rows
from brokerha.stores.execution.state import StoreState, write_state
from brokerha.stores.files.environment import TABLES_LIMIT, Environment, store_errors
from brokerha.stores.rdf.repositories import Repositories
from brokerha.stores.tables.key_value import checked_value
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
    """Yield rows in lists of bounded size."""
    batch: list[Row] = []
    size_bytes = 0
    for row in rows:
        batch.append(row)
        size_bytes += len(row[0]) + len(row[1])
        if size_bytes >= BATCH_LIMIT_BYTES or len(batch) >= BATCH_ROWS_LIMIT:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
