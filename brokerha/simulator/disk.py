"""Simulated disks: files that a crash tears, on which the shipped log runs, one for each process.

`SimDisk` keeps of each file what a reader sees and what is on the platter. A sync carries one to the other; a crash of the process loses
nothing of the first, a power cut everything that was not synced but for some sectors, in any order. A sync may fail: then nothing of it
was carried over, nothing is left to be carried over by the next one, and the journal must never believe that it was. A disk may be full.

`SimJournal` is the log of a process. An append may be cut off: before it began, while its bytes are on their way (`append absent`, either of
the two, never whole), or when it is durable (`append there`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from brokerha.log.copies import LogCopy
from brokerha.log.disks import MemoryDisk
from brokerha.log.log import Log
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.records import Accepted, ClockReserved, Record
from brokerha.simulator.processes import Process

SECTOR_BYTES = 64
"""What is there as a whole, or not at all, after a power cut; short, as the logs are."""
BOUNDS: dict[str, Any] = {"segment_bytes": 3_000, "ids_held": 10, "cache_bytes": 1 << 20}
"""Of simulated logs: each seed closes segments, drops them, and merges ids."""
CLUSTER = "simulated"


class SimDisk(MemoryDisk):
    """One disk, with the random decisions of ``seed``; `sync_fails` is the chance that a sync fails."""

    def __init__(self, seed: str) -> None:
        super().__init__(f"disk-{seed}")
        self.rng = Random(seed)
        self.sync_fails = 0.0
        self._stable: dict[str, bytearray] = {}
        """Names that are durable, with what is durable of their files."""
        self._platters: dict[int, bytearray] = {}
        """What is durable of each file, by the identity of what a reader sees."""
        self._dirty: dict[int, list[tuple[int, int]]] = {}
        """What was written to it since: from one offset to before another."""

    def create(self, name: str, reserve_bytes: int = 0) -> None:
        """Make an empty file."""
        super().create(name, reserve_bytes)
        file = self.files[name]
        self._platters[id(file)], self._dirty[id(file)] = bytearray(), []

    def write(self, name: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write for readers, not yet for the platter."""
        super().write(name, offset, data)
        self._dirty[id(self.files[name])].append((offset, offset + len(data)))

    def sync(self, name: str) -> None:
        """Carry what was written over to the platter, or fail."""
        file = self._file(name)
        dirty, platter = self._dirty[id(file)], self._platters[id(file)]
        if self.sync_fails and dirty and self.rng.random() < self.sync_fails:
            dirty.clear()
            raise OSError(errno.EIO, "the sync failed")
        del platter[len(file) :]
        for start, end in dirty:
            _carry(file, platter, start, end)
        dirty.clear()

    def sync_names(self, folder: str = "") -> None:
        """Make names durable."""
        self._stable = dict(self.files)

    def write_torn(self, name: str, offset: int, data: bytes) -> None:
        """A process dies, and the power goes, while it writes: some sectors are there, and not all."""
        file = self._file(name)
        platter = self._platters[id(file)]
        super().write(name, offset, data)
        # The last bytes may be zeros, and are there as it is.
        starts = list(range(offset, offset + len(data.rstrip(b"\0")), SECTOR_BYTES))
        lost = self.rng.randrange(len(starts))
        for at, start in enumerate(starts):
            if at != lost and self.rng.random() < 0.5:
                _carry(file, platter, start, min(start + SECTOR_BYTES, offset + len(data)))
        self._read_platters()

    def crash(self) -> None:
        """The process dies; now and then the power goes with it, and some of what was not synced."""
        if self.rng.random() < 0.5:
            self.lose_power()

    def lose_power(self) -> None:
        """Lose what was not synced, but for some sectors and names."""
        for file in {id(file): file for file in (*self.files.values(), *self._stable.values())}.values():
            platter = self._platters[id(file)]
            for begin, end in self._dirty[id(file)]:
                for start in range(begin, end, SECTOR_BYTES):
                    if self.rng.random() < 0.5:
                        _carry(file, platter, start, min(start + SECTOR_BYTES, end))
        names = dict.fromkeys((*self._stable, *self.files))
        kept = {name: (self.files if self.rng.random() < 0.5 else self._stable).get(name) for name in names}
        self.files = {name: file for name, file in kept.items() if file is not None}
        self._read_platters()

    def flip(self, name: str, offset: int, bit: int) -> None:
        """One bit of a file turns over, for readers and on the platter."""
        file = self._file(name)
        for data in (file, self._platters[id(file)]):
            if offset < len(data):
                data[offset] ^= 1 << bit

    def _read_platters(self) -> None:
        """Readers see what is durable."""
        found: dict[str, bytearray] = {}
        platters: dict[int, bytearray] = {}
        for name, file in self.files.items():
            platter = self._platters[id(file)]
            found[name] = bytearray(platter)
            platters[id(found[name])] = platter
        self.files, self._stable, self._platters = found, dict(found), platters
        self._dirty = {at: [] for at in platters}


def _carry(file: bytearray, platter: bytearray, start: int, end: int) -> None:
    if start > len(platter):
        platter += bytes(start - len(platter))
    platter[start:end] = file[start:end]


class SimJournal(Log):
    """The log of a simulated process of a master."""

    disk: SimDisk
    process: Process
    """Who writes it; set when a process opens it."""
    last_turn: Sequence[Record] = ()
    """The records written last."""
    _numbers: tuple[int, ...] = ()
    """Their numbers, where they are those of another process."""
    waiting: tuple[Record, ...] = ()
    """What is deferred."""
    doubt: tuple[Record, ...] = ()
    """What a sync that failed may have left or not."""

    def append(self, records: Sequence[Record]) -> None:
        """Write a turn, in its virtual time, with a chance to die while it is written, or after that."""
        self._numbers = ()
        self._carried_out(records, "writes", lambda: Log.append(self, records))

    def defer(self, records: Sequence[Record]) -> None:
        """Take records that a crash loses; it takes no time."""
        process = self._reach(records, records)
        super().defer(records)
        process.world.trace.note(process.world.now_us, process.node, "defers", list(records))
        self.waiting = (*self.waiting, *records)
        process.world.checkers.on_deferred(process, records)
        process.world.faults.on_deferred(process)
        self.last_turn = records

    def settle(self) -> None:
        """Make durable what was deferred, with the habits of an append."""
        if self.waiting:
            self._numbers = ()
            self._carried_out((), "writes", lambda: Log.settle(self))

    def trim(self, below: int) -> int:
        """Trim; what waits is written first, with the habits of an append."""
        self.settle()
        self.disk.is_full = self.process.is_disk_full
        try:
            return super().trim(below)
        except JournalError as error:
            self._failed(error)
            raise

    def try_trim(self, below: int) -> int:
        """Trim, unless the disk does not let it."""
        try:
            return self.trim(below)
        except JournalError:
            return 0

    def forget_ids(self, below: int) -> None:
        """Forget ids, which may fail as a trim does."""
        try:
            super().forget_ids(below)
        except JournalError as error:
            self._failed(error)
            raise

    def _lose(self) -> None:
        if self.waiting:
            self.waiting = ()
            self.process.world.checkers.on_lost(self.process)

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records of another process, with the same habits."""
        plain = [record for _, record in records]
        self._numbers = tuple(number for number, _ in records)
        self._carried_out(plain, "follows", lambda: Log.follow(self, records))

    def promise(self, view: int) -> None:
        """Promise to a view, with the same habits; no record says so."""
        process = self._reach(f"view {view}", ())
        try:
            super().promise(view)
        except JournalError as error:
            self._failed(error)
            raise
        process.world.trace.note(process.world.now_us, process.node, "promises", f"view {view}")
        process.world.checkers.on_promise(process, view)
        process.reach("append there", ())
        process.spend_write()

    def _carried_out(self, records: Sequence[Record], verb: str, write: Callable[[], None]) -> None:
        records = (*self.waiting, *records)
        process = self._reach(records, records)
        try:
            write()
        except JournalError as error:
            if not isinstance(error, JournalFull):
                self.doubt = records
            self._lose()
            self._failed(error)
            raise
        self.waiting = ()
        process.world.trace.note(process.world.now_us, process.node, verb, list(records))
        self.last_turn = records
        self.flush(records)
        process.reach("append there", records)
        process.spend_write()

    def _failed(self, error: JournalError) -> None:
        """A process whose disk fails is started again by its supervisor."""
        process = self.process
        if not isinstance(error, JournalFull):
            process.world.faults_seen["sync failed"] += 1
            process.world.trace.note(process.world.now_us, process.node, "sync failed", str(error))
            process.world.at(process.world.now_us + 20_000, process.start_again, process.life)

    def _reach(self, what: object, records: Sequence[Record]) -> Process:
        """The moment before a write: the disk may be full, and the process may die, with a part of the write on the disk."""
        process = self.process
        self.disk.is_full = process.is_disk_full
        if self.disk.is_full:
            process.world.faults_seen["write refused by a full disk"] += 1
            noted = list(records) if records else what
            process.world.trace.note(process.world.now_us, process.node, "disk full", noted)
        try:
            process.reach("append absent", records)
        except BaseException:
            self._tear(records)
            raise
        return process

    def _tear(self, records: Sequence[Record]) -> None:
        """Leave a part of a write behind, or nothing."""
        if not self.disk.is_full and self.disk.rng.random() < 0.7:
            with self._lock:
                if self._numbers and records:
                    found = list(zip(self._numbers, records, strict=True))
                else:
                    found = list(enumerate(records[len(self.waiting) :], self.last_number + 1))
                name, offset, data = self.torn(found)
            if data:
                self.disk.write_torn(name, offset, data)

    def flush(self, records: Sequence[Record]) -> None:
        """The fsync: from here on the records are durable."""
        self.process.world.checkers.on_durable(self.process, records, self._numbers)

    def die(self) -> None:
        """The process dies, now and then while it writes what nobody is told of."""
        self.disk.is_full = False
        if not self._refusal and not self._is_closed and self.disk.rng.random() < 0.5:
            # Unlike all that an earlier crash may have left at this place, sector by sector.
            high_water = self._content.current.high_water + self.disk.rng.randrange(1, 1 << 40)
            self.waiting, self._numbers = (), ()
            self._segments.take_back()
            # Of what was deferred memory is not asked any more.
            number = max(self._segments.active.last, self.last_number) + 1
            torn = Accepted(((f"torn-{high_water}", self.disk.rng.randbytes(self.disk.rng.randrange(300))),))
            turn: list[Record] = [ClockReserved(high_water), torn]
            name, offset, data = self.torn(list(enumerate(turn, number)))
            self.disk.write_torn(name, offset, data)
        else:
            self.disk.crash()

    def rot(self, rng: Random) -> None:
        """Flip a bit of what a start reads, of which something says that it was durable."""
        segments = self._segments
        active = segments.name(segments.active.place)
        name = rng.choice([active, active, f"{self.folder}/checkpoint", "current"])
        end = segments.proven_bytes if name == active else self.disk.size(name)
        self.disk.flip(name, rng.randrange(max(1, end)), rng.randrange(8))

    def survivor(self) -> SimJournal:
        """The journal that the next start finds after a crash."""
        self.die()
        return self.found_again()

    def found_again(self) -> SimJournal:
        """The journal that a start finds. Raises JournalDamaged."""
        fails, self.disk.sync_fails = self.disk.sync_fails, 0.0
        journal = type(self)(self.disk, CLUSTER, self.node, **BOUNDS)
        self.disk.sync_fails = fails
        self.hand_over(journal)
        return journal

    def hand_over(self, journal: SimJournal) -> None:
        """Let what a start found be written by the same process."""
        if hasattr(self, "process"):
            journal.process = self.process
            if self.doubt and journal.last_number > self.last_number:
                # Nobody was told of it, and it is there.
                journal._numbers = self._numbers
                journal.flush(self.doubt)


def sim_journal(node: str, name: str, seed: str = "", sync_fails: float = 0.0) -> SimJournal:
    """An empty journal on a disk of its own."""
    journal = SimJournal(SimDisk(f"{seed} {name}"), CLUSTER, node, name=name, **BOUNDS)
    journal.disk.sync_fails = sync_fails
    return journal


class SimJournalCopy(LogCopy):
    """The journal of a simulated process of a master with the place where it lives; its journals are `SimJournal`s."""

    make = SimJournal
    disk: SimDisk

    @property
    def journal(self) -> SimJournal:
        """The present journal; another object after `open_load`."""
        assert isinstance(self._journal, SimJournal)
        return self._journal

    def begin_load(self, name: str, snapshot: Any) -> set[int]:
        """As a full disk lets it."""
        self.disk.is_full = self.journal.process.is_disk_full
        return super().begin_load(name, snapshot)

    def open_load(self) -> None:
        """The loaded journal is written by the process that wrote the old one."""
        process = self.journal.process
        self.disk.is_full = process.is_disk_full
        fails, self.disk.sync_fails = self.disk.sync_fails, 0.0
        try:
            super().open_load()
        finally:
            self.journal.process = process
            self.disk.sync_fails = fails

    def survivor(self) -> SimJournalCopy:
        """What the next start finds: the journal, and what was loaded so far; snapshots are gone."""
        old = self.journal
        old.die()
        fails, self.disk.sync_fails = self.disk.sync_fails, 0.0
        copy = type(self)(old.disk, CLUSTER, old.node, chunk_bytes=self._chunk_bytes, **BOUNDS)
        self.disk.sync_fails = fails
        old.hand_over(copy.journal)
        return copy


def sim_copy(node: str, name: str, chunk_bytes: int = 4_096, seed: str = "", sync_fails: float = 0.0) -> SimJournalCopy:
    """An empty journal with the place where it lives, on a disk of its own."""
    copy = SimJournalCopy(SimDisk(f"{seed} {name}"), CLUSTER, node, name=name, chunk_bytes=chunk_bytes, **BOUNDS)
    copy.disk.sync_fails = sync_fails
    return copy
