"""The files of a log: segments for appending, the index of each closed one, and the checkpoint for a start.

    <folder>/00000007.log      frames (frames.py); the first one names the log and the length of the segment before
    <folder>/00000007.index    the index of its records (index.py), once it is closed
    <folder>/checkpoint        the state after all closed segments; a start reads it and the later segments
    <folder>/ids-…, split-…    files that the checkpoint names

A write is one `write` and one `sync` of the segment. A segment that is long enough is closed, in this order:

    1. it is cut to its length, synced; its index is written, synced, its name too
    2. the next segment begins, synced, its name too
    3. files that the checkpoint names are synced; the checkpoint is written beside the old one, synced, renamed, the name synced
    4. unneeded segments are removed, and files that no checkpoint names

A crash in between leaves the old checkpoint with all files that it needs. Space is freed by whole segments, in any order: a
single needed record keeps its segment.

Must never remove a file that the checkpoint on disk needs, or write after the remains of a torn write.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgpack

from brokerha.log.disks import FULL
from brokerha.log.frames import (
    BEGIN,
    HEAD,
    HEAD_BYTES,
    LAST,
    NOTHING,
    RECORD,
    Frame,
    damaged,
    pack_into,
    read_at,
    scan,
    sealed,
    seed_of,
    unsealed,
)
from brokerha.log.index import Index, SegmentIndex, read_index
from brokerha.log.limits import SEGMENT_BYTES
from brokerha.model.errors import JournalDamaged
from brokerha.ports.disk import Disk

READ_BYTES = 4_096
"""Number of bytes first read of a record: most are shorter."""
MANY_BYTES = 256 * 1024
"""Number of bytes read at once for many records."""
CHECKPOINT = "checkpoint"


@dataclass(slots=True)
class Segment:
    """One segment; ``last`` and ``length`` of the active one grow."""

    place: int
    """Its number in the sequence; names its files."""
    first: int
    """Lower bound of the numbers of its records."""
    last: int = 0
    """Number of its last record; 0 for none."""
    length: int = 0
    needed_lsn: int = 0
    """Highest LSN that needs a record of it."""

    def packed(self) -> list[int]:
        """Return its part of a checkpoint."""
        return [self.place, self.first, self.last, self.length, self.needed_lsn]


class Segments:
    """The segments of one log in ``folder``. Raises OSError, JournalDamaged."""

    def __init__(self, disk: Disk, folder: str, journal: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.disk = disk
        self.folder = folder
        self.journal = journal
        self._segment_bytes = segment_bytes
        self.index = Index(self._load_index)
        self.all: list[Segment] = []
        """Oldest first; the last one is active."""
        self.pending = bytearray()
        """Frames that wait for the next write."""
        self._is_ended = True
        """Whether the last pending frame is marked as the last of its write."""
        self._proven = 0
        """Number of bytes of the active segment that a later frame proves durable: damage to them is never a torn write."""
        self._seed = 0
        self._active_name = ""
        self.roll_at = segment_bytes
        """Length at which the active segment is closed."""

    # ------------------------------------------------------------------------- writing

    @property
    def active(self) -> Segment:
        """The active segment, which is written."""
        return self.all[-1]

    def add(self, number: int, payload: bytes, kind: int = RECORD, *, is_last: bool = False) -> int:
        """Add a frame to the next write; return its size."""
        active, pending = self.all[-1], self.pending
        if kind == RECORD:
            self.index.put(number, active.length + len(pending))
            active.last = number
        self._is_ended = is_last
        return pack_into(pending, active.length, number, kind | LAST if is_last else kind, payload, self._seed)

    def commit(self) -> None:
        """Write and sync the pending frames; after an error their state is unknown, and `take_back` must follow."""
        active, name = self.all[-1], self._active_name
        if not self._is_ended:
            self.add(0, b"", NOTHING, is_last=True)
        self.disk.write(name, active.length, self.pending)
        self.disk.sync(name)
        self._proven = active.length
        active.length += len(self.pending)
        self.pending = bytearray()

    @property
    def proven_bytes(self) -> int:
        """The number of bytes of the active segment that a later frame proves durable."""
        return self._proven

    def attest(self) -> None:
        """Write a frame that proves the last write durable, unless one does or frames are pending; the next write replaces it.

        It is not synced, so no frame can follow it: that frame would prove it durable, which is wrong.
        """
        active = self.all[-1]
        if self._proven < active.length and not self.pending:
            frame = bytearray()
            pack_into(frame, active.length, 0, NOTHING | LAST, b"", self._seed)
            self.disk.write(self._active_name, active.length, frame)
            self._proven = active.length

    def take_back(self) -> None:
        """Drop pending frames, and the remains of a failed write in the file."""
        self.pending, self._is_ended, self._proven = bytearray(), True, 0
        if self.all:
            self.disk.cut(self.name(self.active.place), self.active.length)

    def begin(self, first: int) -> None:
        """Begin the next segment; nothing was written since the last one was closed."""
        place, before = (self.active.place + 1, self.active.length) if self.all else (0, 0)
        name = self.name(place)
        head, seed = bytearray(), seed_of(self.journal, place)
        size = pack_into(head, 0, 0, BEGIN | LAST, msgpack.packb([self.journal, place, before, first]), seed)
        try:
            self.disk.create(name, self._segment_bytes)
            self.disk.write(name, 0, head)
            self.disk.sync(name)
            self.disk.sync_names(self.folder)
        except OSError:
            # The new segment must not exist when the previous one continues.
            self.disk.remove(name)
            self.disk.sync_names(self.folder)
            raise
        self.all.append(Segment(place, first, 0, size))
        self._seed, self.roll_at, self._active_name, self._proven = seed, self._segment_bytes, name, 0
        self.index.roll(place)

    def close_active(self) -> None:
        """Close the active segment, so that another one can begin."""
        active = self.active
        name = self.name(active.place)
        self.disk.cut(name, active.length)
        self.disk.sync(name)
        index = f"{self.folder}/{active.place:08}.index"
        self.disk.create(index)
        self.disk.write(index, 0, self.index.active.packed())
        self.disk.sync(index)
        # When the next segment exists, a start treats this one as closed.
        self.disk.sync_names(self.folder)

    def need(self, oldest: int, lsn: int) -> None:
        """Note that records from a number on are needed by an LSN."""
        active = self.all[-1]
        if oldest >= active.first:
            active.needed_lsn = max(lsn, active.needed_lsn)
            return
        for segment in reversed(self.all):
            segment.needed_lsn = max(lsn, segment.needed_lsn)
            if segment.first <= oldest:
                return

    # ---------------------------------------------------------------------- checkpoints

    def write_checkpoint(self, values: Any, unsynced: list[str], gone: list[Segment]) -> None:
        """Write the checkpoint of all closed segments except ``gone`` ones; it names the ``unsynced`` files, not yet durable."""
        for name in unsynced:
            try:
                self.disk.sync(name)
            except OSError as error:
                # Even of a full disk: nothing writes these bytes again, and a later sync would not tell that they are lost.
                raise OSError(errno.EIO if error.errno in FULL else error.errno, error.strerror, name) from error
        places = {segment.place for segment in gone}
        closed = [segment.packed() for segment in self.all[:-1] if segment.place not in places]
        state = closed, self.active.place, self.active.first, self.index.packed(places), values
        new = f"{self.folder}/{CHECKPOINT}.new"
        self.disk.create(new)
        self.disk.write(new, 0, sealed(state))
        self.disk.sync(new)
        self.disk.sync_names(self.folder)
        self.disk.rename(new, f"{self.folder}/{CHECKPOINT}")
        self.disk.sync_names(self.folder)

    def read_checkpoint(self) -> Any:
        """Return the values of the checkpoint and restore segments and index; `replay` continues."""
        name = f"{self.folder}/{CHECKPOINT}"
        state = unsealed(self.disk.read(name, 0, self.disk.size(name)), f"{self.disk.place}/{name}")
        closed, place, first, index, values = state
        self.all = [Segment(*segment) for segment in closed]
        self.pending, self._is_ended = bytearray(), True
        self.index.read(index, place)
        self.all.append(Segment(place, first))
        return values

    def replay(self, take: Callable[[Frame], None], known_end: tuple[int, int] | None = None) -> None:
        """Pass the later frames, oldest first, to ``take``, up to the end of the log, or to (segment, length) if that is known."""
        while True:
            active = self.active
            name = self.name(active.place)
            place = f"{self.disk.place}/{name}"
            data = self.disk.read(name, 0, self.disk.size(name))
            is_last = known_end is not None and known_end[0] == active.place
            if is_last and known_end is not None:
                data = data[: known_end[1]]
            self._seed, self.roll_at, self._active_name = seed_of(self.journal, active.place), self._segment_bytes, name
            for frame in scan(data, self._seed, place):
                if frame.offset == 0:
                    self._check_begin(frame, active, place)
                elif frame.kind & ~LAST == RECORD:
                    self.index.put(frame.number, frame.offset)
                    active.last = frame.number
                active.length, self._proven = frame.end, frame.batch
                take(frame)
            if not active.length:
                raise damaged(place, "the segment does not say what it is")
            if is_last or not self._goes_on(data):
                return

    def _check_begin(self, frame: Frame, active: Segment, place: str) -> None:
        values = msgpack.unpackb(frame.payload, use_list=False)
        if frame.kind != BEGIN | LAST or values[:2] != (self.journal, active.place):
            raise damaged(place, "the segment is none of this log, or not in its place")

    def _goes_on(self, data: bytes) -> bool:
        """Tell whether there is another segment; an empty one that a crash left does not count."""
        active = self.active
        name = self.name(active.place + 1)
        if name not in self.disk.names():
            return False
        head = read_at(self.disk.read(name, 0, READ_BYTES), 0, seed_of(self.journal, active.place + 1))
        if head is not None and head.kind == BEGIN | LAST:
            _, _, before, first = msgpack.unpackb(head.payload)
            if before == active.length:
                self.all.append(Segment(active.place + 1, first))
                self.index.roll(active.place + 1)
                return True
            rest = self.disk.read(name, head.end, READ_BYTES)
            if read_at(rest, 0, 0) is not None or rest.strip(b"\0"):
                place = f"{self.disk.place}/{self.name(active.place)}"
                raise damaged(place, f"only {active.length:,} of {before:,} bytes are what was written")
        elif (
            head is None
            and self.disk.size(name)
            and self.disk.read(name, 0, HEAD_BYTES).strip(b"\0")
            and len(data) == active.length
        ):
            rest = self.disk.read(name, 0, self.disk.size(name))
            if any(
                f is not None
                for f in (read_at(rest, at, seed_of(self.journal, active.place + 1)) for at in range(8, min(len(rest), 512), 8))
            ):
                raise damaged(f"{self.disk.place}/{name}", "the segment does not say what it is")
        return False

    def make_durable(self) -> None:
        """Rewrite the replayed active segment in place, with zeros over what a torn write left behind it, and sync it.

        After a failed sync of an earlier process, unwritten bytes can look present, and a sync alone would not write them. The
        next write begins where the torn one did: torn too, it must not find its missing frames there.
        """
        name, length = self.name(self.active.place), self.active.length
        rest = self.disk.read(name, length, self.disk.size(name))
        # Comparing is a hundred times faster than stripping, and nearly always there is nothing.
        torn = len(rest.rstrip(b"\0")) if rest != bytes(len(rest)) else 0
        self.disk.write(name, 0, self.disk.read(name, 0, length) + bytes(torn))
        self.disk.sync(name)
        self.disk.sync_names(self.folder)

    # ---------------------------------------------------------------------- removal

    def unneeded(self, lacking_to: int, first_lsn: int, needed: set[int]) -> list[Segment]:
        """Return closed segments without data from an LSN on, without records that a follower lacks, and without needed numbers."""
        firsts = [segment.first for segment in self.all]
        kept = {bisect_right(firsts, number) - 1 for number in needed}
        return [
            segment
            for at, segment in enumerate(self.all[:-1])
            if at not in kept and segment.last <= lacking_to and segment.needed_lsn < first_lsn
        ]

    def drop(self, gone: list[Segment]) -> None:
        """Forget segments that the checkpoint does not name; `tidy` removes their files."""
        for segment in gone:
            self.index.drop(segment.place)
        places = {segment.place for segment in gone}
        self.all = [segment for segment in self.all if segment.place not in places]

    def tidy(self, files: list[str]) -> None:
        """Remove files that the checkpoint on disk does not need; ``files`` stay, beside the segments."""
        needed = {f"{self.folder}/{CHECKPOINT}", *files, *self.files()}
        for name in self.disk.names():
            if name.startswith(f"{self.folder}/") and name not in needed:
                self.disk.remove(name)

    def files(self) -> list[str]:
        """Return the files of segments and of their indexes."""
        closed = [
            name for segment in self.all[:-1] for name in (self.name(segment.place), f"{self.folder}/{segment.place:08}.index")
        ]
        return [*closed, self.name(self.active.place)]

    # -------------------------------------------------------------------------- reading

    def name(self, place: int) -> str:
        """Return the file of a segment."""
        return f"{self.folder}/{place:08}.log"

    def _load_index(self, place: int) -> SegmentIndex:
        name = f"{self.folder}/{place:08}.index"
        return read_index(self.disk.read(name, 0, self.disk.size(name)), f"{self.disk.place}/{name}")

    def payload(self, number: int) -> bytes:
        """Return the bytes of a record. Raises JournalDamaged when it is missing or damaged."""
        segment = self._of(number)
        offset = None if segment is None else self.index.offset(segment.place, number)
        if segment is None or offset is None:
            raise damaged(self.disk.place, f"record {number} is missing")
        frame = self._frame(segment, offset)
        if frame is None or frame.number != number:
            raise damaged(
                f"{self.disk.place}/{self.name(segment.place)}", f"record {number} at offset {offset:,} is not what was written"
            )
        return frame.payload

    def _of(self, number: int) -> Segment | None:
        if number >= self.active.first:
            return self.active
        at = bisect_right(self.all, number, key=attrgetter("first")) - 1
        return self.all[at] if at >= 0 else None

    def _frame(self, segment: Segment, offset: int) -> Frame | None:
        seed = self._seed if segment is self.active else seed_of(self.journal, segment.place)
        if segment is self.active and offset >= segment.length:
            return read_at(self.pending, offset - segment.length, seed)
        name = self.name(segment.place)
        data = self.disk.read(name, offset, READ_BYTES)
        if len(data) >= HEAD_BYTES and (size := HEAD.unpack_from(data)[0]) + HEAD_BYTES > len(data):
            data = self.disk.read(name, offset, min(size, segment.length) + HEAD_BYTES)
        return read_at(data, 0, seed)

    def frames(self, start: int) -> Iterator[Frame]:
        """Yield the frames of all records from a number on, each verified. Raises JournalDamaged."""
        for segment in [segment for segment in self.all if segment.last >= start or segment is self.active]:
            index = self.index.of_segment(segment.place)
            numbers, offsets = index.numbers, index.offsets
            at = bisect_right(numbers, start - 1)
            seed = seed_of(self.journal, segment.place)
            name, block, begin = self.name(segment.place), b"", 0
            while at < len(numbers):
                offset = offsets[at]
                if segment is self.active and offset >= segment.length:
                    frame = read_at(self.pending, offset - segment.length, seed)
                else:
                    frame = read_at(block, offset - begin, seed)
                    if frame is None:
                        block, begin = self.disk.read(name, offset, MANY_BYTES), offset
                        frame = read_at(block, 0, seed) or self._frame(segment, offset)
                if frame is None or frame.number != numbers[at]:
                    raise damaged(f"{self.disk.place}/{name}", f"record {numbers[at]} at offset {offset:,} is not what was written")
                yield frame
                at += 1

    def problems(self) -> Iterator[str]:
        """Yield every problem of the closed segments and of the active one as a sentence."""
        for segment in self.all:
            place = f"{self.disk.place}/{self.name(segment.place)}"
            try:
                data = self.disk.read(self.name(segment.place), 0, segment.length)
                end, numbers = 0, []
                for frame in scan(data, seed_of(self.journal, segment.place), place):
                    end = frame.end
                    if frame.kind & ~LAST == RECORD:
                        numbers.append((frame.number, frame.offset))
                if end != segment.length:
                    yield f"{place}: only {end:,} of {segment.length:,} bytes are what was written"
                index = self.index.of_segment(segment.place)
                if numbers != [row for row in zip(index.numbers, index.offsets, strict=True) if row[1] < segment.length]:
                    yield f"{place}: its index says that other records are in it"
            except (JournalDamaged, OSError) as error:
                yield str(error)
