"""The content of a store at one LSN, and how it becomes files of their own while the store goes on.

    writers wait     backups of the engines (hard links)   +   one LMDB read transaction
    writers go on    keys and records are written into a fresh LMDB file, batch by batch

The files hold everything, but of the effects log only its last lines: opening them never asks for one, because the state row says
of each repository that everything up to the LSN is durable in it, which is so, as a backup flushes first. The last lines
are there for the master, which may not have them in its journal yet when the copy that they came from is lost. Every value is
checked on its way, so that a source that is damaged says so instead of giving it on. Memory is bounded by a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from brokerha.stores.control.table import read_suite
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.execution.last_changes import check_rows
from brokerha.stores.execution.state import StoreState, write_state
from brokerha.stores.files.environment import TABLES_LIMIT, Environment, store_errors
from brokerha.stores.rdf.repositories import Repositories
from brokerha.stores.tables.key_value import checked_value
from brokerha.stores.tables.queues import Queues, checked_message

TAIL_LSNS = 10_000
"""Lines of the log that a snapshot carries: more than a probe may be ahead of its master's journal."""
TAIL_LIMIT_BYTES = 64 * 1024 * 1024
BATCH_LIMIT_BYTES = 16 * 1024 * 1024
BATCH_ROWS_LIMIT = 50_000

Row = tuple[bytes, bytes]


class Frozen(NamedTuple):
    """What of a store is to be written out."""

    state: StoreState
    """As the copy has it."""
    lineage: int
    transaction: Any
    """LMDB read transaction; of the thread that began it."""
    environment: Environment


def backed_up(state: StoreState, repositories: Repositories, directory: Path) -> StoreState:
    """Back up all engines below a directory; returns the state for the copy. Raises StoreError."""
    directory.mkdir(parents=True)
    states = {}
    for name, repository in repositories.listed.items():
        repository.engine.backup(directory / repository.directory)
        position = repository.engine.position
        before = state.repositories[name]
        states[name] = before._replace(flushed_position=position, base_lsn=state.lsn)
    return state._replace(repositories=states)


def write_tables(frozen: Frozen, directory: Path, may_go_on: Callable[[], None], tail_lsns: int) -> None:
    """Write records and keys into an LMDB file in ``directory``, which is made. Raises StoreError; what `may_go_on` raises.

    ``tail_lsns`` is how many of the last lines of the log go with them.
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
            # Few enough for one transaction each; they are checked before that.
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
    """A place has no sum of its own; the scrub of the copy that is made compares it with its message."""


def _checked(rows: Iterable[Row], checked: Callable[[bytes, bytes], object]) -> Iterator[Row]:
    """The same rows. Raises StoreError at the first that is not what was written."""
    for row in rows:
        checked(*row)
        yield row


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in lists of bounded size."""
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
