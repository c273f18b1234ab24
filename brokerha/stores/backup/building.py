"""A worker's copy made in bulk: all of its content at one LSN is given, sorted, instead of the lines that led there.

    repository   quads      ─>  the engine's bulk load, straight into its sorted files
    keys         ascending  ─>  LMDB, appended page after page
    messages     ascending  ─>  the same, and their places
    counters, checks, last changes, last lines of the log
    finish       state row  ─>  opened as a worker opens it  ─>  fingerprint computed from the data, compared with the log's

Nothing of what is given is believed. Only when the copy was read again, every item of it, and its fingerprint is the one that the log has
at its LSN, `finish` returns; and a worker that starts from it cannot be told from one that applied every line (a test holds it to
that), but that its log begins with the lines that were given.

Until `finish` returned, the directory is of no use: the caller makes it beside its place, and begins anew after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pyoxigraph import Quad, Store

from brokerha.model.control import Check
from brokerha.model.errors import StoreDiffers, StoreError
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn
from brokerha.model.invariants import invariant
from brokerha.model.operations import ControlAdd, LoggedRow
from brokerha.ports.store import Applied
from brokerha.stores.comparing.fingerprint import key_digest, packed_digest, quads_digest
from brokerha.stores.control.suite import EMPTY, Suite
from brokerha.stores.control.table import keep
from brokerha.stores.copies.frozen import BATCH_ROWS_LIMIT, Row, batches
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.execution.last_changes import write_rows
from brokerha.stores.execution.state import RepositoryState, StoreState, write_state
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from brokerha.stores.files.environment import MAP_SIZE_BYTES, open_environment, store_errors
from brokerha.stores.rdf.change import parse_lines
from brokerha.stores.rdf.errors import engine_errors
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.tables.queue_change import Counts, Message
from brokerha.stores.tables.queues import counts_row, message_rows

LINES_AT_ONCE: Final = 10_000
"""Quads that are parsed together."""
LOAD_QUADS: Final = 250_000
"""Quads of one bulk load, which holds them in memory several times while it sorts them: 300 MB, where a million take 1.2 GB."""


class CopyBuilder:
    """One copy in the making. Each store is given once, in any order of the stores; `finish` or `close` ends it."""

    def __init__(self, directory: Path, *, cluster: str, node: str, lsn: Lsn, map_size_bytes: int = MAP_SIZE_BYTES) -> None:
        """``directory`` is not there yet, or empty. Raises StoreError."""
        if directory.exists() and any(directory.iterdir()):
            raise StoreError(f"{directory} is not empty: a copy is built in a directory of its own")
        self._directory = directory
        self._cluster, self._node = cluster, node
        self._lsn = lsn
        self._map_size_bytes = map_size_bytes
        self._environment = open_environment(directory, cluster, node, map_size_bytes)
        self._repositories: dict[str, RepositoryState] = {}
        self._items = 0
        self._suite = EMPTY

    def repository(self, name: str, lines: Iterable[str]) -> int:
        """Make a repository of these quads: canonical lines without the final dot, none twice. Returns their number.

        Raises StoreError, StoreDamaged (a line is none).
        """
        invariant(name not in self._repositories, "a repository is given once", name=name)
        directory = f"{name}.{len(self._repositories)}"
        path = self._environment.repositories / directory
        counted = _Counted(name, lines)
        with store_errors(f"cannot make the repository {name}"):
            path.mkdir()
        with engine_errors(f"the repository {name} cannot be built"):
            _load(Store(str(path)), counted)
        engine = RdfRepository(path)
        try:
            if self._lsn:
                engine.commit((), (), self._lsn)
            engine.flush()
        finally:
            engine.close()
        self._repositories[name] = RepositoryState(directory, self._lsn, self._lsn, counted.count, packed_digest(counted.digest))
        self._items += counted.count
        return counted.count

    def keys(self, rows: Iterable[Row]) -> int:
        """Put all keys: (table, NUL, key; value), ascending. Returns their number. Raises StoreError."""
        number = self._append(self._environment.keys, ((key, key_digest(key, value) + value) for key, value in rows))
        self._items += number
        return number

    def messages(self, rows: Iterable[tuple[str, int, Message]]) -> int:
        """Put all messages: (queue, place, message), ascending by the bytes of the queue's name, then by place.

        The place is the number of the message among all that were ever published to its queue. Raises StoreError.
        """
        places: list[Row] = []

        def with_places() -> Iterator[Row]:
            for each in rows:
                row, of_place = message_rows(*each)
                places.append(of_place)
                if len(places) >= BATCH_ROWS_LIMIT:
                    self._put(self._environment.places, places)
                    places.clear()
                yield row

        number = self._append(self._environment.queues, with_places())
        self._put(self._environment.places, places)
        self._items += number
        return number

    def counts(self, counts: Mapping[str, Counts]) -> None:
        """Put the counters of all queues that ever had a message. Raises StoreError."""
        self._put(self._environment.counts, (counts_row(queue, each) for queue, each in counts.items()))

    def checks(self, checks: Iterable[Check]) -> None:
        """Put the control suite. Raises StoreError."""
        with store_errors("cannot build the control suite"), self._environment.lmdb.begin(write=True) as writing:
            self._suite = Suite(checks)
            for check in self._suite.checks.values():
                keep(writing, self._environment.control, EMPTY, ControlAdd("control-add", *check))

    def last_changes(self, changes: Mapping[tuple[str | None, str], Lsn]) -> None:
        """Put the LSN of the last change of each store that ever was, by (kind, name); `stores/execution/last_changes.py`. Raises StoreError."""
        with store_errors("cannot build the last changes"), self._environment.lmdb.begin(write=True) as writing:
            write_rows(writing, self._environment.changes, changes)

    def lines(self, lines: Sequence[LoggedRow]) -> None:
        """Put the last lines of the log, the last of which is that of the copy's LSN. Raises StoreError."""
        invariant(len(lines) <= self._lsn, "a copy has no more lines than LSNs", lines=len(lines), lsn=self._lsn)
        with store_errors("cannot build the log"), self._environment.lmdb.begin(write=True) as writing:
            if lines:
                EffectsLog(self._environment.effects).append(writing, self._lsn - len(lines) + 1, lines)

    def finish(self, fingerprint: bytes, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Make it a copy with the fingerprint that the log has at its LSN; read everything again. Returns where it stands.

        ``paced`` is called with the number of items that were read, now and then. Raises StoreDiffers when the content has another
        fingerprint, StoreDamaged, StoreError.
        """
        state = StoreState(self._lsn, int.from_bytes(fingerprint[1:], "big"), self._items, self._repositories, self._suite)
        environment = self._environment
        with store_errors("cannot end the building"), environment.lmdb.begin(write=True) as writing:
            write_state(writing, environment.meta, state)
        self.close()
        options = StoreOptions(map_size_bytes=self._map_size_bytes)
        store = WorkerStore(self._directory, cluster=self._cluster, node=self._node, options=options)
        try:
            found, wanted = store.recompute(paced), store.applied()
        finally:
            store.close()
        if found != wanted:
            message = (
                f"the content given for LSN {self._lsn} has fingerprint {found.fingerprint} and {found.items} items, the log says "
                f"{text_of(fingerprint)}, and {wanted.items} items were given: the source of it is not what was logged"
            )
            raise StoreDiffers(message, self._lsn, fingerprint)
        return found

    def close(self) -> None:
        """Let go of the directory. Idempotent."""
        if not self._environment.lock.closed:
            self._environment.close()

    def _append(self, table: Any, rows: Iterable[Row]) -> int:
        """Put rows after all that are there. Returns their number."""
        number = 0
        for batch in batches(rows):
            with store_errors("cannot build a table"), self._environment.lmdb.begin(write=True, db=table) as writing:
                _, added = writing.cursor().putmulti(batch, append=True, overwrite=False)
            invariant(added == len(batch), "rows are given in order, and none twice", after=batch[0][0])
            number += added
        return number

    def _put(self, table: Any, rows: Iterable[Row]) -> None:
        """Put rows in any order."""
        for batch in batches(rows):
            with store_errors("cannot build a table"), self._environment.lmdb.begin(write=True, db=table) as writing:
                writing.cursor().putmulti(batch)


class _Counted:
    """The quads of a repository, counted while they are taken."""

    def __init__(self, repository: str, lines: Iterable[str]) -> None:
        self.count = 0
        self.digest = 0
        """XOR of theirs."""
        self._repository = repository
        self._lines = iter(lines)

    def take(self, most: int) -> Iterator[Quad]:
        """So many more at most. Raises StoreDamaged for a line that is none."""
        taken = islice(self._lines, most)
        while some := list(islice(taken, LINES_AT_ONCE)):
            self.count += len(some)
            self.digest ^= quads_digest(self._repository, some)
            yield from parse_lines(some)


def _load(store: Store, lines: _Counted) -> None:
    """Give all lines to the engine's bulk load, part by part."""
    before = -1
    while lines.count > before:
        before = lines.count
        store.bulk_extend(lines.take(LOAD_QUADS))
