"""LogHistory: the reading half of the log; what a core may ask about its own past.

Where an answer comes from, in this order: what was appended last, as it was (recent.py); what has no LSN yet and what memory knows
(content.py, ids.py); the disk, each record read by its place in the index, verified, and unpacked once for a whole range.

All methods may be called by any thread: one lock, held for microseconds by reads, and by `append` until its sync is done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, TypeVar

from brokerha.log.content import Content
from brokerha.log.frames import Frame, damaged
from brokerha.log.index import ADDED, ITEM_BITS, ITEMS_LIMIT
from brokerha.log.recent import Recent, Unpacked
from brokerha.log.segments import Segments
from brokerha.model.errors import JournalDamaged, ProtocolError
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import Result
from brokerha.model.records import (
    Accepted,
    Appended,
    BodiesHeld,
    MasterState,
    Outcomes,
    Record,
    Remembered,
    Rest,
    StreamState,
)
from brokerha.model.wire.codec import decode_record
from brokerha.ports.disk import Disk

Item = TypeVar("Item")
_Find = Callable[[int], "tuple[int, Sequence[Item]] | None"]


class LogHistory:
    """`History` of a log that `Log` has opened and writes."""

    disk: Disk
    node: NodeId
    _lock: Lock
    _name: str
    _segments: Segments
    _content: Content
    _recent: Recent
    _unpacked: Unpacked
    _promised: int
    _rest: Rest
    _lately: dict[TxId, Lsn]
    """LSNs of the entries that were read from the disk last: their bodies are asked for next."""

    def state(self) -> MasterState:
        """What a restart begins from. Costs the un-synchronised tail, not the length of the log."""
        with self._lock:
            content = self._content
            state = content.current.master_state(self._name)
            state.parked = list(content.parked)
            for origin, entries in content.streams.items():
                state.streams[origin] = StreamState(state.used.get(origin, 0), entries.copy())
            state.last_number, state.promised_view = self.last_number, self._promised
            state.rest = self._rest
            state.prepared = content.prepared()
            state.decided = content.decisions.remembered()
            if content.current.installed_by:
                state.installed = content.installed()
            return state

    @property
    def last_number(self) -> int:
        """Number of the last record, deferred ones included; 0 when there is none."""
        return self._content.next_number - 1

    @property
    def executed_lsn(self) -> Lsn:
        """The last one with a result."""
        return self._content.current.executed_lsn

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[tuple[int, bytes]] | None:
        """Encoded records ``first`` to ``last`` with their numbers: as many as ``limit_bytes`` allow, at least one.

        They are what was written, each verified. Results that a `Rebased` after them made void are left out. None when ``first`` lies
        before `numbered_from`. Raises JournalDamaged.
        """
        with self._lock:
            if first < self.numbered_from():
                return None
            found: list[tuple[int, bytes]] = []
            for frame in self._segments.frames(first) if first <= last else ():
                if frame.number > last:
                    break
                if self._is_void(frame):
                    continue
                limit_bytes -= len(frame.payload)
                if limit_bytes < 0 and found:
                    break
                found.append((frame.number, frame.payload))
            return found

    def _is_void(self, frame: Frame) -> bool:
        if frame.number >= self._content.rebased_by:
            return False
        record = decode_record(frame.payload)
        return isinstance(record, Outcomes) and bool(record.results)

    def numbered_from(self) -> int:
        """Lowest number from which on nothing was trimmed: a follower that has all below may follow from here."""
        return self._content.current.lacking_to + 1

    def records(self, start: int = 0) -> Iterator[tuple[int, Record]]:
        """All held records with their numbers, from number ``start`` on, each verified. Raises JournalDamaged.

        Goes on while turns are appended, and then returns those as well; it never holds up the log for long.
        """
        while True:
            found: list[tuple[int, Record]] = []
            looked = 0
            with self._lock:
                for frame in self._segments.frames(start):
                    record = decode_record(frame.payload)
                    if self._content.is_needed(frame.number, record):
                        found.append((frame.number, record))
                    looked, start = looked + 1, frame.number + 1
                    if looked == 256:
                        break
            yield from found
            if looked < 256:
                return

    def lsn_of(self, txid: TxId) -> Lsn | None:
        """LSN of a synchronised transaction, or None. Raises JournalDamaged."""
        with self._lock:
            return self._content.ids.find(txid)

    def known(self, txids: Iterable[TxId]) -> Collection[TxId]:
        """Those of these transactions that are synchronised. Raises JournalDamaged."""
        with self._lock:
            return self._content.ids.known(txids)

    def body(self, origin: NodeId, txid: TxId) -> bytes | None:
        """Body of a transaction by origin and id, or None when it is not held. Raises JournalDamaged."""
        return self.bodies(((origin, txid),))[0]

    def bodies(self, names: Sequence[tuple[NodeId, TxId]]) -> list[bytes | None]:
        """Bodies of transactions by origin and id; None for what is not held. Raises JournalDamaged."""
        with self._lock:
            found = self._recent.bodies(names)
            for at in [at for at, body in enumerate(found) if body is None]:
                origin, txid = names[at]
                place = self._content.place_of(origin, txid, self._lately.get(txid))
                found[at] = self._body_at(place, origin, txid) if place else None
            return found

    def duplicates(self, txids: Iterable[TxId]) -> Collection[TxId]:
        """Those of these synchronised transactions that this master had accepted, too, while they came to their LSN through another one."""
        with self._lock:
            dropped = self._content.dropped
            return {txid for txid in txids if (self.node, txid) in dropped}

    def _body_at(self, place: int, origin: NodeId, txid: TxId) -> bytes | None:
        record, at = self._record(place >> ITEM_BITS), place & (ITEMS_LIMIT - 1)
        found: tuple[NodeId, TxId, bytes] | None = None
        if isinstance(record, Accepted) and at < len(record.items):
            found = (self.node, *record.items[at])
        elif isinstance(record, BodiesHeld) and at < len(record.items):
            found = record.items[at]
        if found is None or found[1] != txid:
            raise damaged(self.disk.place, f"record {place >> ITEM_BITS} does not hold transaction {txid}")
        # The transaction may have been added under another origin.
        return found[2] if found[0] == origin else None

    def stream(self, origin: NodeId, start: int, limit: int) -> list[Entry]:
        """Up to ``limit`` entries of a stream from number ``start`` on; fewer or none where it ends or was trimmed."""
        with self._lock:
            current = self._content.current
            if start < current.stream_begin(origin):
                return []

            def find(position: int) -> tuple[int, Sequence[Entry]] | None:
                row = self._content.index.find(origin, position)
                if row is None:
                    return None
                record = self._record(row.number)
                if not isinstance(record, Appended) or (record.origin, record.start) != (origin, row.start):
                    raise damaged(self.disk.place, f"record {row.number} does not hold entry {position} of {origin}")
                return row.start, record.entries

            return _gather(find, start, current.counts.get(origin, 0), limit)

    def ordered(self, first_lsn: Lsn, limit: int) -> list[Ordered]:
        """Up to ``limit`` entries of the synchronised queue from ``first_lsn`` on; none where it was trimmed."""
        with self._lock:
            current = self._content.current
            if first_lsn < current.first_lsn:
                return []

            def find(lsn: Lsn) -> tuple[int, Sequence[Ordered]] | None:
                row = self._content.index.find(ADDED, lsn)
                return None if row is None else (row.start, self._content.added(row.number, row.start).entries[: row.size])

            found = _gather(find, first_lsn, current.lsn + 1, limit)
            if found and self._recent.bodies([(found[0][2], found[0][1])]) == [None]:
                self._lately = {entry[1]: lsn for lsn, entry in enumerate(found, first_lsn)}
            return found

    def epochs(self, first_lsn: Lsn, limit: int) -> list[int]:
        """Numbers of the epochs that added the entries of `ordered`, one for each; none where it gives none."""
        with self._lock:
            current = self._content.current
            if first_lsn < current.first_lsn:
                return []

            def find(lsn: Lsn) -> tuple[int, Sequence[int]] | None:
                row = self._content.index.find(ADDED, lsn)
                return None if row is None else (row.start, (self._content.added(row.number, row.start).epoch,) * row.size)

            return _gather(find, first_lsn, current.lsn + 1, limit)

    def results(self, first_lsn: Lsn, limit: int) -> list[Result]:
        """Up to ``limit`` results of execution from ``first_lsn`` on; fewer where they are not known yet."""
        with self._lock:
            current = self._content.current
            if first_lsn < current.results_from:
                return []

            def find(lsn: Lsn) -> tuple[int, Sequence[Any]] | None:
                found = self._content.outcomes_at(lsn)
                return None if found is None else (found[0].first_lsn, found[0].results[: found[1]])

            return [Result(*result) for result in _gather(find, first_lsn, current.executed_lsn + 1, limit)]

    def first_lsn(self) -> Lsn:
        """Lowest LSN whose body is still held; one more than the last when the log is empty."""
        return self._content.current.first_lsn

    def results_from(self) -> Lsn:
        """Lowest LSN whose result is held; one more than the last executed one when none is."""
        return self._content.current.results_from

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Fingerprint of the content at an LSN, from `results_from` - 1 on; unknown (empty) elsewhere."""
        with self._lock:
            return self._content.fingerprint_at(lsn)

    def items_at(self, lsn: Lsn) -> int:
        """Quads and keys at an LSN; 0 when that is not known. Raises JournalDamaged."""
        with self._lock:
            return self._content.items_at(lsn)

    def rejection(self, lsn: Lsn) -> str | None:
        """Why the transaction at an LSN was rejected, also after trimming; None when it was not, or was forgotten."""
        with self._lock:
            return self._content.ids.rejection(lsn)

    def remembered(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """The remembered transactions up to an LSN, ``limit`` of all looked at, from a cursor on. Raises JournalDamaged."""
        with self._lock:
            return self._content.ids.page(cursor, up_to, limit)

    def lsn_before(self, timestamp: Timestamp) -> Lsn:
        """Highest LSN up to which everything was stamped before a timestamp, as far as that is known; 0 for nothing."""
        with self._lock:
            content = self._content
            first, end = content.current.first_lsn, content.current.lsn + 1
            held = bisect_left(range(first, end), timestamp, key=lambda lsn: (content.entry(lsn) or (0,))[0])
            if held:
                return first + held - 1
            mark = bisect_left(content.marks, timestamp, key=lambda mark: mark[1])
            return content.marks[mark - 1][0] if mark else 0

    def splits(self) -> list[Split]:
        """What was given up when the queue went back, by head lines, oldest first."""
        with self._lock:
            return list(self._content.book.splits.values())

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Up to ``limit`` transactions of a split, from an old LSN on; none when they are not listed any more."""
        with self._lock:
            return self._content.book.given_up(number, first_lsn, limit)

    def _record(self, number: int) -> Record:
        """A record, from memory when it was appended or read lately. Raises JournalDamaged."""
        record = self._recent.get(number) or self._unpacked.get(number)
        if record is None:
            data = self._segments.payload(number)
            try:
                record = decode_record(data)
            except ProtocolError as error:
                raise damaged(self.disk.place, f"record {number} is none that this version knows ({error})") from error
            self._unpacked.add(number, record, len(data))
        return record

    def verify(self) -> Iterator[str]:
        """Every problem of the log, each as a sentence; none for a sound one. Reads all of it."""
        yield from self._segments.problems()
        yield from self._content.ids.problems()
        yield from self._content.book.problems()
        yield from self._contradictions()

    def _contradictions(self) -> Iterator[str]:
        """What the index leads to has to be what it says."""
        current = self._content.current
        for lsn in range(current.first_lsn, current.lsn + 1):
            try:
                entry = self._content.entry(lsn)
                if entry is None:
                    yield f"{self.disk.place}: LSN {lsn} is in no record"
                    continue
                _, txid, origin = entry
                found = self._content.ids.find(txid)
                if found != lsn:
                    yield f"{self.disk.place}: transaction {txid} has LSN {lsn}, and its id says {found}"
                place = self._content.index.place(lsn)
                if place and self._body_at(place, origin, txid) is None:
                    yield f"{self.disk.place}: the body of LSN {lsn} is that of another origin"
            except JournalDamaged as error:
                yield str(error)
        for lsn in range(current.results_from, current.executed_lsn + 1):
            try:
                if self._content.outcomes_at(lsn) is None:
                    yield f"{self.disk.place}: the result of LSN {lsn} is in no record"
            except JournalDamaged as error:
                yield str(error)


def _gather(find: _Find[Item], start: int, end: int, limit: int) -> list[Item]:
    """Up to ``limit`` items from ``start`` to before ``end``; ``find`` gives the run of items around a position."""
    items: list[Item] = []
    end = min(end, start + limit)
    while start < end:
        run = find(start)
        if run is None:
            break
        found = run[1][start - run[0] : end - run[0]]
        if not found:
            break
        items += found
        start += len(found)
    return items
