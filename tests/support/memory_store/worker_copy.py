"""A worker's copy without files, the model in the contract tests: a `MemoryStore` that can be given away, replaced and kept.

A snapshot is one file, the image with the last lines of its log, cut into chunks with their SHA-256, so that it goes through
messages like a real one. A crash (`restarted`) leaves everything durable, a half-loaded snapshot included; snapshots for others
are gone, as files of a process that died are. `damage` changes data behind the back of the fingerprint, as a disk would. No clock,
no file, no randomness: journal names are given by the owner.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from brokerha.model.errors import StoreDamaged, StoreError, StoreFull
from brokerha.model.operations import Change, Delete, Put, QuadsChanged
from brokerha.ports.copies import Kept, Snapshot
from brokerha.stores.copies.snapshots import Chunks, sums_of
from brokerha.stores.tables.key_range import row_key_of
from tests.support.memory_store.image import MemoryImage
from tests.support.memory_store.store import MemoryStore

CHUNK_BYTES = 64
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


class MemoryCopy(MemoryStore):
    """All data of one worker, in memory. Fulfils `ports.copies.WorkerCopy`."""

    def __init__(self, journals: Callable[[], str], *, free_bytes: Callable[[], int] | None = None) -> None:
        """An empty one. ``journals`` gives a name that was never used, for each copy that comes into being here."""
        super().__init__()
        self._journals = journals
        self._free_bytes = free_bytes
        self.journal = journals()
        self.trouble = ""
        self.condemned = ""
        self._load: _Load | None = None
        self._kept: tuple[Kept, MemoryImage] | None = None
        """What is kept, and its image, which never changes."""
        self._given: dict[str, tuple[Snapshot, list[bytes]]] = {}

    def restarted(self) -> Self:
        """The copy after a crash."""
        copy = super().restarted()
        copy._load = self._load and replace(self._load, chunks=dict(self._load.chunks))
        copy._given = {}
        return copy

    def damage(self, change: Change) -> None:
        """Change data and nothing else, as a disk would: ``("put", table, key, value)``, ``("delete", table, key)`` or

        ``("quads", repository, removed lines, added lines)``. Fingerprint and number of items stay as they are.
        """
        image = self._image.copy()
        match change:
            case Put():
                image.keys[row_key_of(change.table, change.key)] = change.value
            case Delete():
                del image.keys[row_key_of(change.table, change.key)]
            case QuadsChanged():
                lines = image.repositories[change.repository]
                lines -= set(change.removed)
                lines |= set(change.added)
        self._stand_at(image)

    def condemn(self, reason: str) -> None:
        """Remember that the present copy is not to be trusted."""
        self.condemned = reason

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
            image, size_bytes = self._image.copy(), len(_packed(self._image))
            self._check_space("the copy to keep", size_bytes)
            lsn, fingerprint, items = self.applied()
            self._kept = Kept(number, lsn, self.lineage, fingerprint, items, size_bytes), image
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
        self._become(self._kept[1].copy())

    def free_bytes(self) -> int:
        """Space for a snapshot, as the copy was told when it was made; else 0: memory has no disk."""
        return self._free_bytes() if self._free_bytes is not None else 0

    def make_snapshot(self, name: str) -> Snapshot:
        """Make a snapshot at the LSN applied now, or answer the one that has the name already."""
        kept = self._given.get(name)
        if kept is not None:
            return kept[0]
        content = _packed(self._image)
        chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
        snapshot = Snapshot(*self.applied(), CHUNK_BYTES, (("data/image", len(content), sums_of(iter(chunks))),))
        while len(self._given) >= _SNAPSHOTS_LIMIT:
            del self._given[next(iter(self._given))]
        self._given[name] = snapshot, chunks
        return snapshot

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """One chunk; None when there is no such snapshot or number."""
        _, chunks = self._given.get(name, (None, []))
        return chunks[number] if 0 <= number < len(chunks) else None

    def drop_snapshot(self, name: str) -> None:
        """Delete a snapshot. Idempotent."""
        self._given.pop(name, None)

    def begin_load(self, name: str, snapshot: Snapshot) -> set[int]:
        """Begin to load, or go on; returns chunks that are there. Raises StoreError: no space, paths that lead out."""
        places = Chunks(snapshot)
        if self._load is None or (self._load.name, self._load.snapshot) != (name, snapshot):
            self._load = None
        found = {} if self._load is None else self._load.chunks
        self._check_space("the snapshot", places.size_bytes - sum(map(len, found.values())))
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
        image = pickle.loads(b"".join(load.chunks[number] for number, _ in load.places.places()))
        loaded = MemoryStore()
        loaded._stand_at(image)
        self._load = None
        if loaded.applied() != load.snapshot[:3]:
            raise StoreDamaged(f"the copy that was loaded is {loaded.applied()}, and its snapshot says otherwise")
        self._become(image)

    def abandon_load(self) -> None:
        """Delete what was loaded so far. Idempotent."""
        self._load = None

    def close(self) -> None:
        """Forget the snapshots."""
        self._given.clear()

    def _become(self, image: MemoryImage) -> None:
        """Begin a new copy, with this content."""
        self._stand_at(image)
        self.journal = self._journals()
        self.trouble = self.condemned = ""

    def _check_space(self, what: str, needed_bytes: int) -> None:
        if self._free_bytes is not None and self._free_bytes() < needed_bytes:
            raise StoreFull(f"no space for {what}: it needs {needed_bytes:,} bytes, {self._free_bytes():,} are free")

    def _begun_load(self) -> _Load:
        if self._load is None:
            raise StoreError("no snapshot is being loaded")
        return self._load


def _packed(image: MemoryImage) -> bytes:
    lines = image.lines[-_TAIL_LINES:]
    return pickle.dumps(replace(image, lines=lines, first_kept=image.lsn - len(lines) + 1))
