"""A worker's copy made in bulk from its sorted content at one LSN, instead of the lines that led there.

    repository   quads      ─>  the engine's bulk load, straight into its sorted files
    keys         ascending  ─>  LMDB, appended page after page
    messages     ascending  ─>  the same, and their places
    counters, checks, last changes, last lines of the log
    finish       state row  ─>  opened as a worker opens it  ─>  fingerprint computed from the data, compared with the log's

The content is checked, not trusted. `finish` returns only when all items of the copy were read again and their fingerprint equals
that of the log at its LSN. A worker that starts from the copy behaves as one that applied every line (a test checks this), except
that its log begins with the given lines.

Until `finish` returns, the directory is useless: the caller makes it beside its place, and starts again after a kill.
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
from brokerha.stores.control.suite import EMPTY, Suite, keep
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
"""Number of quads parsed together."""
LOAD_QUADS: Final = 250_000
"""Number of quads of one bulk load. The engine holds several copies while it sorts: 300 MB, where a million quads take 1.2 GB."""


class CopyBuilder:
    """A copy in the making. Each store is given once, in any order of the stores; `finish` or `close` ends it."""

    def __init__(self, directory: Path, *, cluster: str, node: str, lsn: Lsn, map_size_bytes: int = MAP_SIZE_BYTES) -> None:
        """``directory`` does not exist yet, or is empty. Raises StoreError."""
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
        """Make a repository of these quads: canonical lines without the final dot, without duplicates. Return their number.

        Raises StoreError, and StoreDamaged for a malformed line.
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
        """Put all keys: (table, NUL, key; value), ascending. Return their number. Raises StoreError."""
        number = self._append(self._environment.keys, ((key, key_digest(key, value) + value) for key, value in rows))
        self._items += number
        return number

    def messages(self, rows: Iterable[tuple[str, int, Message]]) -> int:
        """Put all messages: (queue, place, message), ascending by the bytes of the queue's name, then by place.

        The place is the number of the message among all messages ever published to its queue. Raises StoreError.
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
        """Put the LSN of the last change of each store, by (kind, name), see execution/last_changes.py. Raises StoreError."""
        with store_errors("cannot build the last changes"), self._environment.lmdb.begin(write=True) as writing:
            write_rows(writing, self._environment.changes, changes)

    def lines(self, lines: Sequence[LoggedRow]) -> None:
        """Put the last lines of the log, up to the LSN of the copy. Raises StoreError."""
        invariant(len(lines) <= self._lsn, "a copy has no more lines than LSNs", lines=len(lines), lsn=self._lsn)
        with store_errors("cannot build the log"), self._environment.lmdb.begin(write=True) as writing:
            if lines:
                EffectsLog(self._environment.effects).append(writing, self._lsn - len(lines) + 1, lines)

    def finish(self, fingerprint: bytes, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Finish a copy with the fingerprint of the log at its LSN, and read all data again. Return its LSN, fingerprint and count.

        ``paced`` is called regularly with the number of items read. Raises StoreDiffers when the content has another fingerprint,
        StoreDamaged, StoreError.
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
        """Release the directory. Idempotent."""
        if not self._environment.lock.closed:
            self._environment.close()

    def _append(self, table: Any, rows: Iterable[Row]) -> int:
        """Put rows after all present ones. Return their number."""
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
    """Counted quads of a repository."""

    def __init__(self, repository: str, lines: Iterable[str]) -> None:
        self.count = 0
        self.digest = 0
        """XOR of the digests of the quads."""
        self._repository = repository
        self._lines = iter(lines)

    def take(self, most: int) -> Iterator[Quad]:
        """Yield at most ``most`` more quads. Raises StoreDamaged for a malformed line."""
        taken = islice(self._lines, most)
        while some := list(islice(taken, LINES_AT_ONCE)):
            self.count += len(some)
            self.digest ^= quads_digest(self._repository, some)
            yield from parse_lines(some)


def _load(store: Store, lines: _Counted) -> None:
    """Pass all lines to the engine's bulk load, part by part."""
    before = -1
    while lines.count > before:
        before = lines.count
        store.bulk_extend(lines.take(LOAD_QUADS))
