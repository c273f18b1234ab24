"""A journal without a disk as a whole: given away as a snapshot, replaced by one. For the simulator and for tests.

It does what `LmdbJournalCopy` does, over a `MemoryJournal`. A snapshot is made of bytes, cut into chunks with their SHA-256, so
that it goes through messages like a real one. A crash of the process loses the snapshots; what was loaded stays:

    copy = MemoryJournalCopy(MemoryJournal("m1", "journal-of-m1"))
    disk = copy.image()
    copy = MemoryJournalCopy.from_image(disk)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from brokerha.journal.chunks import Chunks, sums_of
from brokerha.journal.memory_content import JournalImage, read_image
from brokerha.journal.memory_journal import MemoryJournal
from brokerha.model.errors import JournalError, JournalForeign, JournalFull
from brokerha.ports.copies import Snapshot

FILE = "journal"
SNAPSHOTS_LIMIT = 3


@dataclass(slots=True)
class Load:
    """What was loaded so far; durable."""

    name: str
    snapshot: Snapshot
    chunks: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyImage:
    """What a disk held at one moment."""

    journal: JournalImage
    load: Load | None


class MemoryJournalCopy:
    """Fulfils `ports.copies.JournalCopy`. One thread."""

    def __init__(self, journal: MemoryJournal, *, chunk_bytes: int = 64) -> None:
        self._journal = journal
        self._chunk_bytes = chunk_bytes
        self._load: Load | None = None
        self._snapshots: dict[str, tuple[Snapshot, list[bytes]]] = {}

    @classmethod
    def from_image(cls, image: CopyImage, *, chunk_bytes: int = 64) -> MemoryJournalCopy:
        """Return what a restart finds; the image stays as it is."""
        copy = cls(MemoryJournal.from_image(image.journal), chunk_bytes=chunk_bytes)
        copy._load = image.load and replace(image.load, chunks=dict(image.load.chunks))
        return copy

    def image(self) -> CopyImage:
        """Return what is durable now; nothing that happens later changes it."""
        return CopyImage(self._journal.image(), self._load and replace(self._load, chunks=dict(self._load.chunks)))

    def exchanged(self, image: JournalImage) -> MemoryJournal:
        """The journal that takes the place of the present one; a subclass makes one of its own class."""
        return MemoryJournal.from_image(image)

    @property
    def journal(self) -> MemoryJournal:
        """The present journal; another object after `open_load`."""
        return self._journal

    @property
    def pending_load(self) -> str:
        """Name of the snapshot whose load has begun and is not open yet; empty when there is none."""
        return self._load.name if self._load is not None else ""

    def make_snapshot(self, name: str) -> Snapshot:
        """Make a snapshot, or answer the one that has the name already."""
        if name in self._snapshots:
            return self._snapshots[name][0]
        data = self._journal.image().pack()
        pieces = [data[at : at + self._chunk_bytes] for at in range(0, len(data), self._chunk_bytes)]
        files = ((FILE, len(data), sums_of(pieces)),)
        snapshot = Snapshot(self._journal.last_number, "", 0, self._chunk_bytes, files)
        while len(self._snapshots) >= SNAPSHOTS_LIMIT:
            del self._snapshots[next(iter(self._snapshots))]
        self._snapshots[name] = snapshot, pieces
        return snapshot

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """One chunk; None when there is no such snapshot or number."""
        _, pieces = self._snapshots.get(name, (None, []))
        return pieces[number] if 0 <= number < len(pieces) else None

    def drop_snapshot(self, name: str) -> None:
        """Delete a snapshot. Idempotent."""
        self._snapshots.pop(name, None)

    def begin_load(self, name: str, snapshot: Snapshot) -> set[int]:
        """Begin to load, or go on; returns chunks that are there. Raises JournalError, JournalFull."""
        Chunks(snapshot, FILE)
        self._check_space()
        if self._load is None or (self._load.name, self._load.snapshot) != (name, snapshot):
            self._load = Load(name, snapshot)
        return set(self._load.chunks)

    def keep_chunk(self, number: int, data: bytes) -> bool:
        """Keep a chunk; False when it is not what its SHA-256 says. Raises JournalError, JournalFull."""
        load = self._begun_load()
        if not Chunks(load.snapshot, FILE).is_right(number, data):
            return False
        self._check_space()
        load.chunks[number] = data
        return True

    def open_load(self) -> None:
        """Make what was loaded the present journal. Raises JournalError; then the old one is the present one, as before."""
        load = self._begun_load()
        self._check_space()
        count = len(Chunks(load.snapshot, FILE))
        if len(load.chunks) < count:
            missing = count - len(load.chunks)
            raise JournalError(f"the snapshot cannot be opened: {missing} of {count} chunks are missing")
        try:
            image = self._loaded(load)
        except JournalError:
            self._load = None
            raise
        self._journal.close()
        self._journal = self.exchanged(image)
        self._load = None

    def _loaded(self, load: Load) -> JournalImage:
        image, own = read_image(b"".join(load.chunks[number] for number in sorted(load.chunks))), self._journal.image()
        if image.node != own.node:
            raise JournalForeign(f"the journal that was loaded belongs to node {image.node}, not to node {own.node}")
        if image.content.next_number - 1 != load.snapshot.lsn:
            raise JournalError(
                f"the journal that was loaded ends with record {image.content.next_number - 1}, its snapshot says "
                f"{load.snapshot.lsn}"
            )
        image.content.promised_view = own.content.promised_view
        return image

    def abandon_load(self) -> None:
        """Delete what was loaded so far. Idempotent."""
        self._load = None

    def close(self) -> None:
        """Refuse further appends, forget the snapshots. Idempotent."""
        self._snapshots.clear()
        self._journal.close()

    def _begun_load(self) -> Load:
        if self._load is None:
            raise JournalError("no snapshot is being loaded")
        return self._load

    def _check_space(self) -> None:
        if self._journal.is_full:
            raise JournalFull("there is no space for a snapshot beside the journal")
