"""A worker's copy without files, the model in the contract tests.

It does what `WorkerCopy` does, over a `MemoryStore`. A snapshot is made of bytes (msgpack, cut into chunks with their SHA-256),
so that it goes through messages like a real one:

    data/state            LSN, fingerprint, items, control suite
    data/keys             (row key, value) sorted
    data/queues           (name, counters, messages with their places) sorted
    data/changes          (kind, name, LSN) of the last change of each store, sorted
    data/log              the last lines of the log, with the LSN of the first
    repositories/<name>   lines, sorted

A crash takes `image`: everything durable, a half-loaded snapshot included; snapshots for others are gone, as files
of a process that died are. `damage` changes data behind the back of the fingerprint, as a disk would. No clock, no file, no
randomness: journal names are given by the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgpack

from brokerha.model.control import Check
from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import packed
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operations import Change, Delete, Logged, LoggedRow, Put, QuadsChanged, Result
from brokerha.ports.copies import Kept, Snapshot
from brokerha.ports.store import Applied, ReadAnswer
from brokerha.stores.control.suite import Suite
from brokerha.stores.copies.snapshot_chunks import Chunks, sums_of
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.queue_change import Counts, Message
from tests.support.memory_store.image import MemoryQueue
from tests.support.memory_store.store import MemoryStore

_CHUNK_BYTES = 64
_SNAPSHOTS_LIMIT = 3
_TAIL_LINES = 30
"""Last lines of the log that a snapshot carries."""


@dataclass(slots=True)
class _Load:
    """What was loaded so far; durable."""

    name: str
    snapshot: Snapshot
    places: Chunks
    chunks: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _Image:
    """Everything durable."""

    store: object
    journal: str
    load: _Load | None
    condemned: str
    kept: tuple[Kept, object] | None


class MemoryCopy:
    """All data of one worker, in memory. Fulfils `ports.copies.WorkerCopy`."""

    def __init__(
        self,
        journals: Callable[[], str],
        *,
        chunk_bytes: int = _CHUNK_BYTES,
        free_bytes: Callable[[], int] | None = None,
        keep_results: int = 100_000,
    ) -> None:
        """An empty one. ``journals`` gives a name that was never used, for each copy that comes into being here."""
        self._journals = journals
        self._chunk_bytes = chunk_bytes
        self._free_bytes = free_bytes
        self._keep_results = keep_results
        self._store = MemoryStore(keep_results)
        self._journal = journals()
        self._trouble = ""
        self._condemned = ""
        self._load: _Load | None = None
        self._kept: tuple[Kept, object] | None = None
        """What is kept, and the image of its store."""
        self._snapshots: dict[str, tuple[Snapshot, list[bytes]]] = {}

    @classmethod
    def from_image(
        cls,
        image: object,
        journals: Callable[[], str],
        *,
        chunk_bytes: int = _CHUNK_BYTES,
        free_bytes: Callable[[], int] | None = None,
        keep_results: int = 100_000,
        trouble: str = "",
    ) -> MemoryCopy:
        """The copy after a crash; with ``trouble`` its data cannot be read, and an empty one begins in its place."""
        invariant(isinstance(image, _Image), "an image comes from MemoryCopy.image")
        found = cast("_Image", image)
        copy = cls(journals, chunk_bytes=chunk_bytes, free_bytes=free_bytes, keep_results=keep_results)
        copy._trouble = trouble
        if not trouble:
            copy._store = MemoryStore.from_image(found.store, keep_results)
            copy._journal = found.journal
            copy._condemned = found.condemned
        copy._kept = found.kept
        if found.load is not None:
            copy._load = replace(found.load, chunks=dict(found.load.chunks))
        return copy

    def image(self) -> object:
        """A copy of everything durable, for `from_image`."""
        load = self._load and replace(self._load, chunks=dict(self._load.chunks))
        return _Image(self._store.image(), self._journal, load, self._condemned, self._kept)

    def damage(self, change: Change) -> None:
        """Change data and nothing else, as a disk would: ``("put", table, key, value)``, ``("delete", table, key)`` or

        ``("quads", repository, removed lines, added lines)``. Fingerprint and number of items stay as they are.
        """
        image = cast("Any", self._store.image())
        match change:
            case Put():
                image.keys[row_key_of(change.table, change.key)] = change.value
            case Delete():
                del image.keys[row_key_of(change.table, change.key)]
            case QuadsChanged():
                lines = image.repositories[change.repository]
                lines -= set(change.removed)
                lines |= set(change.added)
        self._store = MemoryStore.from_image(image, self._keep_results)

    @property
    def journal(self) -> str:
        """Name of the present copy; a loaded one has another."""
        return self._journal

    @property
    def trouble(self) -> str:
        """Why the copy found at the start could not be used; else empty."""
        return self._trouble

    @property
    def condemned(self) -> str:
        """Why the present copy is not to be trusted; else empty."""
        return self._condemned

    @property
    def pending_load(self) -> str:
        """Name of the snapshot whose load has begun and is not open yet; empty when there is none."""
        return self._load.name if self._load is not None else ""

    @property
    def kept(self) -> Kept | None:
        """The copy that is kept; None when there is none."""
        return self._kept[0] if self._kept is not None else None

    def keep(self, number: int, frozen: Callable[[], None] = lambda: None) -> Kept:
        """Keep the content of now under a number."""
        if self._kept is None or self._kept[0].number != number:
            image, (lsn, fingerprint, items) = self._store.image(), self._store.applied()
            size_bytes = sum(len(content) for _, content in _written(cast("Any", image)))
            self._check_space("the copy to keep", size_bytes)
            self._kept = Kept(number, lsn, self._store.lineage, fingerprint, items, size_bytes), image
            frozen()
        return self._kept[0]

    def drop_kept(self) -> None:
        """Delete the copy that is kept. Idempotent."""
        self._kept = None

    def restore_kept(self) -> None:
        """Put the kept copy in the place of the present one, under a new name. Raises StoreError."""
        if self._kept is None:
            raise StoreError("no copy is kept")
        self.abandon_load()
        self._check_space("the kept copy", self._kept[0].size_bytes)
        self._store = MemoryStore.from_image(self._kept[1], self._keep_results)
        self._journal = self._journals()
        self._trouble = self._condemned = ""

    @property
    def lineage(self) -> int:
        """Number of the log that the present copy followed."""
        return self._store.lineage

    def begin_lineage(self, lineage: int, lsn: Lsn = -1) -> None:
        """What comes from now on is of this lineage, and begins after ``lsn`` if that is lower than where this stands."""
        self._store.begin_lineage(lineage, lsn)

    @property
    def executed(self) -> Iterator[tuple[TxId, Lsn]]:
        """(transaction id, LSN) of everything that the present copy executed, in order."""
        return self._store.executed

    def execute(self, first_lsn: Lsn, items: Sequence[tuple[TxId, Timestamp, bytes]]) -> list[Result]:
        """Execute transactions in order."""
        return self._store.execute(first_lsn, items)

    def apply(self, first_lsn: Lsn, items: Sequence[LoggedRow]) -> None:
        """Apply lines of the log in order. Raises StoreDiffers."""
        self._store.apply(first_lsn, items)

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Lines of the log that the copy keeps; none from before it was loaded."""
        return self._store.logged(first_lsn, last_lsn)

    def logged_from(self) -> Lsn:
        """Lowest LSN that `logged` has."""
        return self._store.logged_from()

    def applied(self) -> Applied:
        """Where the copy stands."""
        return self._store.applied()

    def read(
        self, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool] = lambda: True
    ) -> ReadAnswer:
        """Answer a read."""
        return self._store.read(kind, name, arguments, may_go_on)

    def recompute(self, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Fingerprint and count from the data itself."""
        return self._store.recompute(paced)

    def free_bytes(self) -> int:
        """Space for a snapshot, as the copy was told when it was made; else 0: memory has no disk."""
        return self._free_bytes() if self._free_bytes is not None else 0

    def condemn(self, reason: str) -> None:
        """Remember that the present copy is not to be trusted."""
        self._condemned = reason

    def make_snapshot(self, name: str) -> Snapshot:
        """Make a snapshot at the LSN applied now, or answer the one that has the name already."""
        kept = self._snapshots.get(name)
        if kept is not None:
            return kept[0]
        files, chunks = [], []
        for path, content in _written(cast("Any", self._store.image())):
            pieces = [content[at : at + self._chunk_bytes] for at in range(0, len(content), self._chunk_bytes)]
            files.append((path, len(content), sums_of(iter(pieces))))
            chunks += pieces
        snapshot = Snapshot(*self._store.applied(), self._chunk_bytes, tuple(files))
        while len(self._snapshots) >= _SNAPSHOTS_LIMIT:
            del self._snapshots[next(iter(self._snapshots))]
        self._snapshots[name] = snapshot, chunks
        return snapshot

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """One chunk; None when there is no such snapshot or number."""
        _, chunks = self._snapshots.get(name, (None, []))
        return chunks[number] if 0 <= number < len(chunks) else None

    def drop_snapshot(self, name: str) -> None:
        """Delete a snapshot. Idempotent."""
        self._snapshots.pop(name, None)

    def begin_load(self, name: str, snapshot: Snapshot) -> set[int]:
        """Begin to load, or go on; returns chunks that are there. Raises StoreError: no space, paths that lead out."""
        places = Chunks(snapshot)
        if self._load is None or (self._load.name, self._load.snapshot) != (name, snapshot):
            self._load = None
        found = {} if self._load is None else self._load.chunks
        needed_bytes = places.size_bytes - sum(map(len, found.values()))
        self._check_space("the snapshot", needed_bytes)
        self._load = _Load(name, snapshot, places, found)
        return set(found)

    def keep_chunk(self, number: int, data: bytes) -> bool:
        """Keep a chunk; False when it is not what its SHA-256 says."""
        load = self._begun_load()
        place = load.places.place(number)
        if place is None or not place.is_right(data):
            return False
        load.chunks[number] = data
        return True

    def open_load(self) -> None:
        """Make what was loaded the present copy. Raises StoreError; the old copy is the present one then, as before."""
        load = self._begun_load()
        missing = len(load.places) - len(load.chunks)
        if missing:
            raise StoreError(f"the snapshot cannot be opened: {missing} of {len(load.places)} chunks are missing")
        contents: dict[str, bytearray] = {path: bytearray() for path, _, _ in load.snapshot.files}
        for number, place in load.places.places():
            contents[place.path] += load.chunks[number]
        store = MemoryStore.from_image(_opened(contents), self._keep_results)
        if store.applied() != Applied(*load.snapshot[:3]):
            self._load = None
            raise StoreDamaged(f"the copy that was loaded is {store.applied()}, and its snapshot says otherwise")
        self._store = store
        self._journal = self._journals()
        self._trouble = self._condemned = ""
        self._load = None

    def abandon_load(self) -> None:
        """Delete what was loaded so far. Idempotent."""
        self._load = None

    def close(self) -> None:
        """Forget the snapshots."""
        self._snapshots.clear()

    def _check_space(self, what: str, needed_bytes: int) -> None:
        if self._free_bytes is not None and self._free_bytes() < needed_bytes:
            raise StoreError(f"no space for {what}: it needs {needed_bytes:,} bytes, {self._free_bytes():,} are free")

    def _begun_load(self) -> _Load:
        if self._load is None:
            raise StoreError("no snapshot is being loaded")
        return self._load


def _written(image: Any) -> Iterator[tuple[str, bytes]]:
    """The files of a store's image, in the order of a snapshot."""
    checks = [list(check) for check in image.suite.checks.values()]
    lines = image.lines[-_TAIL_LINES:]
    yield "data/log", msgpack.packb([image.lsn - len(lines) + 1, lines])
    yield "data/keys", msgpack.packb(sorted(image.keys.items()))
    queues = [(name, queue.counts, list(queue.messages.values())) for name, queue in sorted(image.queues.items())]
    yield "data/queues", msgpack.packb(queues)
    changes = [(kind, name, lsn) for (kind, name), lsn in image.changed.items() if kind is not None]
    yield "data/changes", msgpack.packb(sorted(changes))
    yield "data/state", msgpack.packb([image.lsn, packed(image.fingerprint), image.items, checks, image.lineage])
    for name, lines in sorted(image.repositories.items()):
        yield f"repositories/{name}", msgpack.packb(sorted(lines))


def _opened(contents: dict[str, bytearray]) -> object:
    """The image of a store from its files. Raises StoreDamaged."""
    try:
        keys = dict(msgpack.unpackb(contents.pop("data/keys"), use_list=False))
        first_kept, lines = msgpack.unpackb(contents.pop("data/log"))
        queues = {
            name: MemoryQueue(Counts(*counts), {row[1][0]: (row[0], Message(*row[1])) for row in messages})
            for name, counts, messages in msgpack.unpackb(contents.pop("data/queues"))
        }
        changed = {(kind, name): lsn for kind, name, lsn in msgpack.unpackb(contents.pop("data/changes"))}
        lsn, fingerprint, items, checks, lineage = msgpack.unpackb(contents.pop("data/state"))
        repositories = {path.partition("/")[2]: set(msgpack.unpackb(lines)) for path, lines in contents.items()}
    except (KeyError, ValueError, TypeError) as error:
        raise StoreDamaged(f"the copy that was loaded is none: {error}") from error
    return replace(
        cast("Any", MemoryStore().image()),
        keys=keys,
        repositories=repositories,
        queues=queues,
        changed=changed,
        suite=Suite(Check(*check) for check in checks),
        fingerprint=int.from_bytes(fingerprint[1:], "big"),
        items=items,
        lsn=lsn,
        lineage=lineage,
        first_kept=first_kept,
        lines=[Logged(*line) for line in lines],
    )
