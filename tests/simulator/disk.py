"""Simulated disks for the shipped log, one for each process: files that a crash tears.

`SimDisk` holds two states of each file: the one for readers, and the one on the platter. A sync copies the first to the second. A
crash of the process loses nothing of the first; a power cut loses everything unsynced except some random sectors. A sync can fail:
then it copies nothing, the next one does not make up for it, and the journal must never believe otherwise. A disk can be full.

`SimJournal` is the log of a process. A crash can cut an append off: before it, while its bytes are written (`append absent`: some
bytes or none, never all), or when it is durable (`append there`).
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
from tests.simulator.processes import Process

SECTOR_BYTES = 64
"""Unit that a power cut keeps or loses as a whole; short, because the logs are short."""
BOUNDS: dict[str, Any] = {"segment_bytes": 3_000, "ids_held": 10, "cache_bytes": 1 << 20}
"""Limits of simulated logs: each seed closes segments, drops them, and merges ids."""
CLUSTER = "simulated"


class SimDisk(MemoryDisk):
    """One disk, with the random decisions of ``seed``; `sync_fails` is the chance that a sync fails."""

    def __init__(self, seed: str) -> None:
        super().__init__(f"disk-{seed}")
        self.rng = Random(seed)
        self.sync_fails = 0.0
        self._stable: dict[str, bytearray] = {}
        """Durable names, with the durable content of their files."""
        self._platters: dict[int, bytearray] = {}
        """Durable content of each file, by the identity of the readers' content."""
        self._dirty: dict[int, list[tuple[int, int]]] = {}
        """Unsynced ranges of each file: from one offset to before another."""

    def create(self, name: str, reserve_bytes: int = 0) -> None:
        """Make an empty file."""
        super().create(name, reserve_bytes)
        file = self.files[name]
        self._platters[id(file)], self._dirty[id(file)] = bytearray(), []

    def write(self, name: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write for readers, not yet to the platter."""
        super().write(name, offset, data)
        self._dirty[id(self.files[name])].append((offset, offset + len(data)))

    def sync(self, name: str) -> None:
        """Copy the written ranges to the platter, or fail."""
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
        """Write while the process dies and the power goes: some sectors are written, but not all."""
        file = self._file(name)
        platter = self._platters[id(file)]
        super().write(name, offset, data)
        # The last bytes can be zeros, which look written anyway.
        starts = list(range(offset, offset + len(data.rstrip(b"\0")), SECTOR_BYTES))
        lost = self.rng.randrange(len(starts))
        for at, start in enumerate(starts):
            if at != lost and self.rng.random() < 0.5:
                _carry(file, platter, start, min(start + SECTOR_BYTES, offset + len(data)))
        self._read_platters()

    def crash(self) -> None:
        """Let the process die, sometimes with a power cut that loses unsynced data."""
        if self.rng.random() < 0.5:
            self.lose_power()

    def lose_power(self) -> None:
        """Lose unsynced data, except some sectors and names."""
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
        """Flip one bit of a file, for readers and on the platter."""
        file = self._file(name)
        for data in (file, self._platters[id(file)]):
            if offset < len(data):
                data[offset] ^= 1 << bit

    def _read_platters(self) -> None:
        """Show the durable content to readers."""
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
    """The process that writes it; set when it opens the journal."""
    last_turn: Sequence[Record] = ()
    """The records of the last write."""
    _numbers: tuple[int, ...] = ()
    """Their numbers, if they come from another process."""
    waiting: tuple[Record, ...] = ()
    """The deferred records."""
    doubt: tuple[Record, ...] = ()
    """Records of a failed sync, which can be durable or not."""

    def append(self, records: Sequence[Record]) -> None:
        """Write a turn in virtual time; the process can die during the write or after it."""
        self._numbers = ()
        self._carried_out(records, "writes", lambda: Log.append(self, records))

    def defer(self, records: Sequence[Record]) -> None:
        """Take records that a crash loses, without using time."""
        process = self._reach(records, records)
        super().defer(records)
        process.world.trace.note(process.world.now_us, process.node, "defers", list(records))
        self.waiting = (*self.waiting, *records)
        process.world.checkers.on_deferred(process, records)
        process.world.faults.on_deferred(process)
        self.last_turn = records

    def settle(self) -> None:
        """Make the deferred records durable, with the faults of an append."""
        if self.waiting:
            self._numbers = ()
            self._carried_out((), "writes", lambda: Log.settle(self))

    def trim(self, below: int) -> int:
        """Trim; first write the deferred records, with the faults of an append."""
        self.settle()
        self.disk.is_full = self.process.is_disk_full
        try:
            return super().trim(below)
        except JournalError as error:
            self._failed(error)
            raise

    def try_trim(self, below: int) -> int:
        """Trim if the disk allows it."""
        try:
            return self.trim(below)
        except JournalError:
            return 0

    def _lose(self) -> None:
        if self.waiting:
            self.waiting = ()
            self.process.world.checkers.on_lost(self.process)

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records of another process, with the same faults."""
        plain = [record for _, record in records]
        self._numbers = tuple(number for number, _ in records)
        self._carried_out(plain, "follows", lambda: Log.follow(self, records))

    def promise(self, view: int) -> None:
        """Promise to a view, with the same faults; it has no record."""
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
        """Let the supervisor restart a process whose disk fails."""
        process = self.process
        if not isinstance(error, JournalFull):
            process.world.faults_seen["sync failed"] += 1
            process.world.trace.note(process.world.now_us, process.node, "sync failed", str(error))
            process.world.at(process.world.now_us + 20_000, process.start_again, process.life)

    def _reach(self, what: object, records: Sequence[Record]) -> Process:
        """Start a write: the disk can be full, and the process can die with a part of the write on the disk."""
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
        """Fsync: from here on the records are durable."""
        self.process.world.checkers.on_durable(self.process, records, self._numbers)

    def die(self) -> None:
        """Let the process die, sometimes during an unreported write."""
        self.disk.is_full = False
        if not self._refusal and not self._is_closed and self.disk.rng.random() < 0.5:
            # Different from the remains of earlier crashes at this place, sector by sector.
            high_water = self._content.current.high_water + self.disk.rng.randrange(1, 1 << 40)
            self.waiting, self._numbers = (), ()
            self._segments.take_back()
            # The deferred records in memory are gone.
            number = max(self._segments.active.last, self.last_number) + 1
            torn = Accepted(((f"torn-{high_water}", self.disk.rng.randbytes(self.disk.rng.randrange(300))),))
            turn: list[Record] = [ClockReserved(high_water), torn]
            name, offset, data = self.torn(list(enumerate(turn, number)))
            self.disk.write_torn(name, offset, data)
        else:
            self.disk.crash()

    def rot(self, rng: Random) -> None:
        """Flip a bit in data that a start reads and that provably was durable."""
        segments = self._segments
        active = segments.name(segments.active.place)
        name = rng.choice([active, active, f"{self.folder}/checkpoint", "current"])
        end = segments.proven_bytes if name == active else self.disk.size(name)
        self.disk.flip(name, rng.randrange(max(1, end)), rng.randrange(8))

    def survivor(self) -> SimJournal:
        """Return the journal that the next start finds after a crash."""
        self.die()
        return self.found_again()

    def found_again(self) -> SimJournal:
        """Return the journal that a start finds. Raises JournalDamaged."""
        fails, self.disk.sync_fails = self.disk.sync_fails, 0.0
        journal = type(self)(self.disk, CLUSTER, self.node, **BOUNDS)
        self.disk.sync_fails = fails
        self.hand_over(journal)
        return journal

    def hand_over(self, journal: SimJournal) -> None:
        """Let the same process write the journal that a start found."""
        if hasattr(self, "process"):
            journal.process = self.process
            if self.doubt and journal.last_number > self.last_number:
                # It was not reported, but it is durable.
                journal._numbers = self._numbers
                journal.flush(self.doubt)


def sim_journal(node: str, name: str, seed: str = "", sync_fails: float = 0.0) -> SimJournal:
    """Return an empty journal on a disk of its own."""
    journal = SimJournal(SimDisk(f"{seed} {name}"), CLUSTER, node, name=name, **BOUNDS)
    journal.disk.sync_fails = sync_fails
    return journal


class SimJournalCopy(LogCopy):
    """The journal of a simulated process of a master, with its storage; its journals are `SimJournal`s."""

    make = SimJournal
    disk: SimDisk

    @property
    def journal(self) -> SimJournal:
        """The current journal; another object after `open_load`."""
        assert isinstance(self._journal, SimJournal)
        return self._journal

    def begin_load(self, name: str, snapshot: Any) -> set[int]:
        """Begin a load, unless the disk is full."""
        self.disk.is_full = self.journal.process.is_disk_full
        return super().begin_load(name, snapshot)

    def open_load(self) -> None:
        """Open the loaded journal for the process of the old one."""
        process = self.journal.process
        self.disk.is_full = process.is_disk_full
        fails, self.disk.sync_fails = self.disk.sync_fails, 0.0
        try:
            super().open_load()
        finally:
            self.journal.process = process
            self.disk.sync_fails = fails

    def survivor(self) -> SimJournalCopy:
        """Return what the next start finds: the journal, and the loaded part of another; snapshots are gone."""
        old = self.journal
        old.die()
        fails, self.disk.sync_fails = self.disk.sync_fails, 0.0
        copy = type(self)(old.disk, CLUSTER, old.node, chunk_bytes=self._chunk_bytes, **BOUNDS)
        self.disk.sync_fails = fails
        old.hand_over(copy.journal)
        return copy


def sim_copy(node: str, name: str, chunk_bytes: int = 4_096, seed: str = "", sync_fails: float = 0.0) -> SimJournalCopy:
    """Return an empty journal with its storage, on a disk of its own."""
    copy = SimJournalCopy(SimDisk(f"{seed} {name}"), CLUSTER, node, name=name, chunk_bytes=chunk_bytes, **BOUNDS)
    copy.disk.sync_fails = sync_fails
    return copy
