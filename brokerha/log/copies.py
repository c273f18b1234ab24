"""LogCopy: the log on a disk as a whole: given away as a snapshot, replaced by another.

    copy = LogCopy(FileDisk(Path("data/m1")), cluster="orders", node="m1")
    copy.journal.append([...])                                    # the present log

    source:    make_snapshot -> read_chunk ... -> drop_snapshot
    follower:  begin_load -> keep_chunk ... -> open_load

A snapshot is the checkpoint, the files that it names, and the later segments up to one write. No file is copied: written bytes
never change, and files of a snapshot are not removed meanwhile.

A load arrives in its own folder, beside the present one, and replaces that by one rename:

    1. <n+1>/…        all chunks synced; opened, read-only, as a log of this cluster and node that ends with the snapshot's record
    2. current        names the new folder, durable; this is the decisive moment
    3. <n+1>          opened; only then <n> is removed

After an error in 2 or 3, `current` names the old folder again. The promise of this process is beside both and stays.

Must never change the present log before step 2, use an unchecked chunk after a restart, or release the directory before `close`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

from brokerha.log.disks import FULL
from brokerha.log.frames import sealed, unsealed
from brokerha.log.limits import ROOM_BYTES
from brokerha.log.log import CURRENT, Log
from brokerha.log.segments import CHECKPOINT
from brokerha.model.errors import JournalDamaged, JournalError, JournalFull
from brokerha.model.ids import NodeId
from brokerha.ports.copies import CHUNK_BYTES, Snapshot
from brokerha.ports.disk import Disk

SUM_BYTES = 32
CHUNK_LIMIT_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
MANIFEST = "loading"
SNAPSHOTS_LIMIT = 3
SYNCED_EACH = 32
"""Number of chunks after which their file is synced, so that opening the load need not wait for all of it."""


class Place(NamedTuple):
    """Place of a chunk."""

    file: str
    offset: int
    size: int


class Chunks:
    """The place of each chunk of a snapshot, and the check of its bytes. Raises JournalError for a contradictory snapshot.

    The files of the snapshot follow each other, each cut into chunks of equal size; the last chunk of a file can be shorter.

    The list comes from another process, so all of it is checked here before use.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._chunk_bytes = snapshot.chunk_bytes
        if not 0 < self._chunk_bytes <= CHUNK_LIMIT_BYTES:
            raise JournalError(f"the snapshot has chunks of {self._chunk_bytes} bytes")
        self.sizes: dict[str, int] = {}
        self._firsts: list[int] = []
        self._sums = b""
        for name, size, sums in snapshot.files:
            count = (size + self._chunk_bytes - 1) // self._chunk_bytes
            if not _NAME.fullmatch(name) or name in self.sizes or size < 0:
                raise JournalError(f"the snapshot has a file {name!r} of {size} bytes: it is none of a log")
            if len(sums) != count * SUM_BYTES:
                raise JournalError(f"the snapshot gives {len(sums)} bytes of sums for {count} chunks of {name}")
            self._firsts.append(len(self))
            self.sizes[name] = size
            self._sums += sums
        if not self._sums:
            raise JournalError("the snapshot has no chunks: it is none of a log")
        self._names = list(self.sizes)

    def __len__(self) -> int:
        return len(self._sums) // SUM_BYTES

    def place(self, number: int) -> Place | None:
        """Return the place of a chunk; None for an unknown number."""
        if not 0 <= number < len(self):
            return None
        at = bisect_right(self._firsts, number) - 1
        while not self.sizes[self._names[at]]:
            at -= 1
        offset = (number - self._firsts[at]) * self._chunk_bytes
        return Place(self._names[at], offset, min(self._chunk_bytes, self.sizes[self._names[at]] - offset))

    def is_right(self, number: int, data: bytes) -> bool:
        """Tell whether these are the bytes of a chunk."""
        place = self.place(number)
        if place is None or len(data) != place.size:
            return False
        return sha256(data).digest() == self._sums[number * SUM_BYTES : (number + 1) * SUM_BYTES]


def sums_of(pieces: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of each chunk, concatenated."""
    return b"".join(sha256(piece).digest() for piece in pieces)


@dataclass(slots=True)
class Given:
    """A snapshot for others."""

    snapshot: Snapshot
    chunks: Chunks
    checkpoint: bytes
    """Kept in memory, because the next checkpoint replaces it on disk."""
    folder: str
    pinned: list[str]


@dataclass(slots=True)
class Load:
    """A snapshot that is being received."""

    folder: str
    name: str
    snapshot: Snapshot
    chunks: Chunks
    kept: set[int] = field(default_factory=set)
    """Numbers of the verified chunks."""
    files: set[str] = field(default_factory=set)
    """Existing files."""


class LogCopy:
    """Fulfils `ports.copies.JournalCopy` for one process of node ``node``; ``bounds`` are those of `Log`.

    Loading, appending and opening in one thread, snapshots in any. Raises JournalForeign, JournalDamaged, JournalError.
    """

    def __init__(
        self, disk: Disk, cluster: str, node: NodeId, *, chunk_bytes: int = CHUNK_BYTES, name: str = "", **bounds: Any
    ) -> None:
        self.disk = disk
        self._chunk_bytes = chunk_bytes
        self._opened = partial(self.make, disk, cluster, node, keeps_disk=True, **bounds)
        self._given: dict[str, Given] = {}
        self._lock = Lock()
        try:
            self._journal = self._opened(name=name)
            with self._disk_errors("cannot be tidied"):
                self._load = self._found_load()
                self._remove_folders({self._journal.folder, self._load.folder if self._load else ""})
        except BaseException:
            disk.close()
            raise

    make: type[Log] = Log
    """Class of the log; a subclass can replace it."""

    @property
    def journal(self) -> Log:
        """The present log; `open_load` replaces it by another object."""
        return self._journal

    @property
    def pending_load(self) -> str:
        """The name of the snapshot that is being loaded; empty when there is none."""
        return self._load.name if self._load is not None else ""

    # ---------------------------------------------------------------------- given away

    def make_snapshot(self, name: str) -> Snapshot:
        """Make a snapshot; appending goes on. A repeated name returns the same one. Raises JournalFull, JournalError."""
        with self._lock:
            if name in self._given:
                return self._given[name].snapshot
            while len(self._given) >= SNAPSHOTS_LIMIT:
                self._drop(next(iter(self._given)))
            journal = self._journal
            with self._disk_errors("cannot be given away"):
                number, checkpoint, files = journal.hold_files()
                folder = journal.folder
                try:
                    rows = [(CHECKPOINT, len(checkpoint), sums_of(self._pieces(checkpoint)))]
                    rows += [(file, size, sums_of(self._read(f"{folder}/{file}", size))) for file, size in files]
                    snapshot = Snapshot(number, "", 0, self._chunk_bytes, tuple(rows))
                    given = Given(snapshot, Chunks(snapshot), checkpoint, folder, [f"{folder}/{file}" for file, _ in files])
                except BaseException:
                    journal.let_go([f"{folder}/{file}" for file, _ in files])
                    raise
            self._given[name] = given
            return snapshot

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), self._chunk_bytes):
            yield data[at : at + self._chunk_bytes]

    def _read(self, name: str, size: int) -> Iterator[bytes]:
        for at in range(0, size, self._chunk_bytes):
            yield self.disk.read(name, at, min(self._chunk_bytes, size - at))

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """Return one chunk; None when there is no such snapshot or number. Any thread. Raises JournalError."""
        with self._lock:
            given = self._given.get(name)
            place = None if given is None else given.chunks.place(number)
            if given is None or place is None:
                return None
            if place.file == CHECKPOINT:
                return given.checkpoint[place.offset : place.offset + place.size]
            with self._disk_errors("cannot be given away"):
                return self.disk.read(f"{given.folder}/{place.file}", place.offset, place.size)

    def drop_snapshot(self, name: str) -> None:
        """Delete a snapshot. Idempotent."""
        with self._lock:
            self._drop(name)

    def _drop(self, name: str) -> None:
        given = self._given.pop(name, None)
        if given is not None:
            self._journal.let_go(given.pinned)

    # ------------------------------------------------------------------------ coming in

    def _found_load(self) -> Load | None:
        folder = self._next_folder()
        try:
            data = self.disk.read(f"{folder}/{MANIFEST}", 0, self.disk.size(f"{folder}/{MANIFEST}"))
            name, fields = unsealed(data, self.disk.place)
            snapshot = Snapshot(*fields)
            return Load(folder, name, snapshot, Chunks(snapshot))
        except (FileNotFoundError, JournalDamaged, JournalError, TypeError, ValueError):
            return None

    def _next_folder(self) -> str:
        return str(int(self._journal.folder) + 1)

    def begin_load(self, name: str, snapshot: Snapshot) -> set[int]:
        """Make room beside the present log, or resume the same load; return the chunks that are already there.

        An earlier, different load is deleted. Raises JournalFull, and JournalError for a contradictory list.
        """
        chunks = Chunks(snapshot)
        load = self._load
        if load is not None and (load.name, load.snapshot) == (name, snapshot):
            with self._disk_errors("cannot be read"):
                self._resume(load)
            self._check_space(load)
            return set(load.kept)
        self.abandon_load()
        load = Load(self._next_folder(), name, snapshot, chunks)
        self._check_space(load)
        with self._disk_errors("cannot be loaded"):
            manifest = f"{load.folder}/{MANIFEST}"
            self.disk.create(manifest)
            self.disk.write(manifest, 0, sealed([name, list(snapshot)]))
            self.disk.sync(manifest)
            self.disk.sync_names(load.folder)
        self._load = load
        return set()

    def _resume(self, load: Load) -> None:
        there = set(self.disk.names())
        load.files = {file for file in load.chunks.sizes if f"{load.folder}/{file}" in there}
        for number in range(len(load.chunks)):
            place = load.chunks.place(number)
            if place is not None and place.file in load.files:
                data = self.disk.read(f"{load.folder}/{place.file}", place.offset, place.size)
                if load.chunks.is_right(number, data):
                    load.kept.add(number)
                else:
                    load.kept.discard(number)

    def free_bytes(self) -> int:
        """Return the free space; 0 when it is unknown. Any thread."""
        with suppress(OSError):
            return self.disk.free_bytes()
        return 0

    def _check_space(self, load: Load) -> None:
        there = sum(place.size for number in load.kept if (place := load.chunks.place(number)))
        needed = sum(load.chunks.sizes.values()) - there + ROOM_BYTES
        with self._disk_errors("cannot be loaded"):
            free = self.disk.free_bytes()
        if free < needed:
            raise JournalFull(f"no space for a snapshot of the journal: it needs {needed:,} bytes, {free:,} are free")

    def keep_chunk(self, number: int, data: bytes) -> bool:
        """Write a chunk to its place; return False when its SHA-256 differs. Raises JournalFull, JournalError."""
        load = self._begun()
        place = load.chunks.place(number)
        if place is None or not load.chunks.is_right(number, data):
            return False
        if number not in load.kept:
            name = f"{load.folder}/{place.file}"
            with self._disk_errors("cannot be loaded"):
                if place.file not in load.files:
                    self.disk.create(name)
                    load.files.add(place.file)
                self.disk.write(name, place.offset, data)
                if len(load.kept) % SYNCED_EACH == SYNCED_EACH - 1:
                    self.disk.sync(name)
            load.kept.add(number)
        return True

    def open_load(self) -> None:
        """Replace the present log by the loaded one.

        Raises JournalError: then the old log is open as before. A load that is not a log of this node is deleted.
        """
        load = self._begun()
        missing = len(load.chunks) - len(load.kept)
        if missing:
            raise JournalError(f"the snapshot cannot be opened: {missing} of {len(load.chunks)} chunks are missing")
        with self._disk_errors("cannot be made durable"):
            for file in load.chunks.sizes:
                if file not in load.files:
                    self.disk.create(f"{load.folder}/{file}")
                self.disk.sync(f"{load.folder}/{file}")
            self.disk.sync_names(load.folder)
        try:
            self._check(load)
        except JournalFull:
            raise
        except JournalError as error:
            self.abandon_load()
            raise JournalError(f"the snapshot that was loaded cannot be opened: {error}") from error
        old = self._journal.folder
        self.clear_snapshots()
        self._journal.end()
        try:
            self._point_at(load.folder)
            self._journal = self._opened()
        except BaseException:
            self._point_at(old)
            self._journal = self._opened()
            raise
        self._load = None
        with self._disk_errors("cannot be tidied"):
            self._remove_folders({load.folder})

    def _check(self, load: Load) -> None:
        loaded = self._opened(folder=load.folder, is_read_only=True)
        loaded.end()
        if loaded.last_number != load.snapshot.lsn:
            raise JournalError(f"it ends with record {loaded.last_number}, and its snapshot says {load.snapshot.lsn}")

    def _point_at(self, folder: str) -> None:
        with self._disk_errors("cannot be exchanged"):
            new = f"{CURRENT}.new"
            self.disk.create(new)
            self.disk.write(new, 0, sealed(folder))
            self.disk.sync(new)
            self.disk.rename(new, CURRENT)
            self.disk.sync_names()

    def abandon_load(self) -> None:
        """Delete the loaded chunks. Idempotent. Raises JournalError."""
        self._load = None
        with self._disk_errors("cannot be tidied"):
            folder = self._next_folder()
            # The manifest goes first: a kill in between must not leave a load with holes in place of chunks.
            self.disk.remove(f"{folder}/{MANIFEST}")
            self._remove_folders({self._journal.folder})

    def _remove_folders(self, kept: set[str]) -> None:
        for name in self.disk.names():
            folder, slash, _ = name.partition("/")
            if slash and folder.isdecimal() and folder not in kept:
                self.disk.remove(name)

    def clear_snapshots(self) -> None:
        """Forget all snapshots."""
        with self._lock:
            for name in list(self._given):
                self._drop(name)

    def close(self) -> None:
        """Release the directory, and forget the snapshots. Idempotent."""
        self.clear_snapshots()
        self._journal.close()

    def _begun(self) -> Load:
        if self._load is None:
            raise JournalError("no snapshot of a journal is being loaded")
        return self._load

    @contextmanager
    def _disk_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = JournalFull if error.errno in FULL else JournalError
            raise kind(f"the journal in {self.disk.place} {what}: {error.strerror}") from error
