"""Planted mistakes in the log on the disk; for `catalogue.py`, which makes them. A crash, a power cut or a failed sync has to show each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgpack

from brokerha.log import frames as frames_module
from brokerha.log import log as log_module
from brokerha.log import segments as segments_module
from brokerha.log.content import Content
from brokerha.log.frames import HEAD, HEAD_BYTES, LAST, RECORD, SUM, Frame
from brokerha.log.ids import Ids
from brokerha.log.index import Index
from brokerha.log.log import Log
from brokerha.log.segments import Segment, Segments
from brokerha.master import deferring as deferring_module
from brokerha.master.deferring import Deferring
from brokerha.model.errors import JournalDamaged
from brokerha.model.ids import Instant, Lsn
from brokerha.model.records import Accepted, Appended, BodiesHeld, ClockReserved, EpochInstalled, EpochPromised, Record
from brokerha.sync.round import is_derived
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.patches import Patch
from tests.simulator.disk import SimJournal

# The replacements below take ``self`` of classes whose insides they must touch.


def _write_only(self: Segments) -> None:
    sync, self.disk.sync = self.disk.sync, lambda name: None  # type: ignore[method-assign]
    try:
        _commit(self)
    finally:
        self.disk.sync = sync  # type: ignore[method-assign]


_commit = Segments.commit


def _believe(self: Segments) -> None:
    active, pending = self.active, self.pending
    try:
        _commit(self)
    except OSError as error:
        if error.errno != 5:
            raise
        active.length += len(pending)
        self.pending = bytearray()


def _sync_twice(self: Segments) -> None:
    sync = self.disk.sync

    def again(name: str) -> None:
        with suppress(OSError):
            sync(name)
            return
        sync(name)

    self.disk.sync = again  # type: ignore[method-assign]
    try:
        _commit(self)
    finally:
        self.disk.sync = sync  # type: ignore[method-assign]


def _take_without_sum(data: bytes | bytearray | memoryview, offset: int, seed: int) -> Frame | None:
    if offset + HEAD_BYTES > len(data):
        return None
    size, batch, key, wanted = HEAD.unpack_from(data, offset)
    start = offset + HEAD_BYTES
    if size > len(data) - start or not key | wanted:
        return None
    return Frame(offset, key >> 8, key & 0xFF, batch, bytes(data[start : start + size]), start + size + (-size & 7))


def _half_writes(data: bytes, seed: int, place: str) -> Iterator[Frame]:
    offset = 0
    while (frame := frames_module.read_at(data, offset, seed)) is not None:
        yield frame
        offset = frame.end


def _cut_last_write(data: bytes, seed: int, place: str) -> Iterator[Frame]:
    found = list(_scan(data, seed, place))
    begin = found[-1].batch if found else 0
    yield from (frame for frame in found if frame.batch != begin or not begin)


_scan = frames_module.scan


def _drop_all(self: Segments, lacking_to: int, first_lsn: int, needed: set[int]) -> list[Segment]:
    return self.all[:-1]


def _name_unsynced(self: Segments, values: Any, unsynced: list[str], gone: list[Segment]) -> None:
    _write_checkpoint(self, values, [], gone)


_write_checkpoint = Segments.write_checkpoint


def _too_new(self: Segments, values: Any, unsynced: list[str], gone: list[Segment]) -> None:
    last = self.all[-2:]
    if len(last) == 2:
        # A start begins after records that it never reads.
        last[1].first += 1
    values[4][2] += 1
    _write_checkpoint(self, values, unsynced, gone)


def _forget_memory(self: Ids, packed: Any) -> None:
    _read_ids(self, [packed[0], [], [], *packed[3:5], [], packed[6]])


_read_ids = Ids.read


def _forget_runs(self: Ids, packed: Any) -> None:
    _read_ids(self, [*packed[:6], []])


def _ahead(self: Index, number: int, offset: int) -> None:
    _put(self, number, offset + 8 if number % 7 == 0 else offset)


_put = Index.put


def _known_still(self: Content, number: int, record: Any) -> None:
    before = dict(self.ids.lsns)
    _gone_back(self, number, record)
    self.ids.lsns = before


_gone_back = Content._gone_back


def _parked_lost(self: Content, packed: Any) -> None:
    _read_content(self, packed)
    self.parked = {}


_read_content = Content.read


def _take_twice(self: Log, frame: Frame) -> None:
    kind = frame.kind & ~LAST
    if kind == RECORD and frame.number < self._content.next_number:
        return
    if kind != RECORD or frame.number % 5:
        _replay(self, frame)


_replay = Log._replay


def _read_unsummed(data: bytes, place: str) -> Any:
    with suppress(JournalDamaged):
        return _unsealed(data, place)
    with suppress(Exception):
        return msgpack.unpackb(data[SUM.size :], use_list=False, strict_map_key=False)
    raise frames_module.damaged(place, "the file cannot be read")


_unsealed = frames_module.unsealed


def _attest_in_the_way(self: Segments) -> None:
    before = self._proven
    _attest(self)
    if self._proven != before:
        self.active.length += HEAD_BYTES


_attest = Segments.attest


LOG_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "fsync skipped": lambda: [(Segments, "commit", _write_only)],
    "a sync that failed is believed": lambda: [(Segments, "commit", _believe)],
    "a sync that failed is tried again": lambda: [(Segments, "commit", _sync_twice)],
    "frames are taken without their sums": lambda: [
        (frames_module, "read_at", _take_without_sum),
        (segments_module, "read_at", _take_without_sum),
    ],
    "half a write counts": lambda: [(segments_module, "scan", _half_writes)],
    "the last write is cut off": lambda: [(segments_module, "scan", _cut_last_write)],
    "segments that are needed are dropped": lambda: [(Segments, "unneeded", _drop_all)],
    "a checkpoint names what is not synced": lambda: [(Segments, "write_checkpoint", _name_unsynced)],
    "a checkpoint is newer than the log": lambda: [(Segments, "write_checkpoint", _too_new)],
    "a checkpoint loses the ids in memory": lambda: [(Ids, "read", _forget_memory)],
    "a checkpoint loses the runs of ids": lambda: [(Ids, "read", _forget_runs)],
    "the index is ahead of the frames": lambda: [(Index, "put", _ahead)],
    "ids that were given up stay known": lambda: [(Content, "_gone_back", _known_still)],
    "a checkpoint loses what is parked": lambda: [(Content, "read", _parked_lost)],
    "a start leaves out a record": lambda: [(Log, "_replay", _take_twice)],
    "damage passes for the end of the log": lambda: [(frames_module, "_written_after", lambda *_: None)],
    "damage: small files are taken without their sums": lambda: [
        (segments_module, "unsealed", _read_unsummed),
        (log_module, "unsealed", _read_unsummed),
    ],
    "the frame that attests is not written over": lambda: [(Segments, "attest", _attest_in_the_way)],
}
"""Every mistake about the log, by what goes wrong."""


def _also(*kinds: type[Record]) -> Callable[[], list[Patch]]:
    def waits(record: Record) -> bool:
        return isinstance(record, kinds) or is_derived(record)

    return lambda: [(deferring_module, "is_derived", waits)]


def _whole_queue(sync: SyncState) -> Lsn:
    return sync.lsn


def _never_due(self: Deferring, records: Sequence[Record], now: Instant) -> tuple[bool, bool]:
    return _decide(self, records, now if records else now._replace(mono_ms=-(10**12)))


_decide = Deferring.decide


def _never(_self: Deferring) -> None:
    return


def _always_room(_self: Deferring, _records: Sequence[Record]) -> bool:
    return True


def _drop_what_waits(self: Log, records: Sequence[Record]) -> None:
    if self._segments.pending:
        self._segments.take_back()
        self._load((self._segments.active.place, self._segments.active.length))
    _append(self, records)


_append = Log.append


def _counted_as_used(self: SimJournal) -> SimJournal:
    used = dict(self._content.current.used)
    journal = _survivor(self)
    journal._content.current.used = used
    return journal


_survivor = SimJournal.survivor


def _no_further(self: Deferring) -> Lsn:
    return self._sync.lsn


DEFERRING_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "what was accepted waits": _also(Accepted, Appended, ClockReserved),
    "what is held waits": _also(BodiesHeld, Appended),
    "the clock waits": _also(ClockReserved),
    "the promise of an epoch waits": _also(EpochPromised),
    "an epoch waits": _also(EpochInstalled),
    "rows tell of what waits": lambda: [(SyncState, "_durable_lsn", _whole_queue)],
    "what waits is never written": lambda: [(Deferring, "decide", _never_due), (Deferring, "deadline_ms", _never)],
    "what waits has no bound": lambda: [(Deferring, "_is_room_for", _always_room)],
    "what waited is not written": lambda: [(Log, "append", _drop_what_waits)],
    "places are not found again": lambda: [(SimJournal, "survivor", _counted_as_used)],
    "a copy ahead of the log is condemned": lambda: [(Deferring, "reach", _no_further)],
}
"""Every mistake about what may wait, by what goes wrong."""
