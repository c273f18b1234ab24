"""LogHistory: the reading half of the log, for a core's questions about its own past.

Sources of an answer, in this order: the last appended records (`Recent`); other state in memory (content.py, ids.py); the disk,
where each record is read by its place in the index, verified, and unpacked once for a whole range.

Any thread can call all methods: one lock, held for microseconds by reads, and by `append` until its sync is done.

Records stay unpacked in memory, within a bound of bytes, so that the hot path never unpacks what it just packed.
`Recent` holds the last appended records: the core reads them again within a few turns (bodies when they are dispatched, entries
when a peer needs them again). `Unpacked` holds the last records read from disk, so that reading an old range in order unpacks
each record once. Both forget the oldest first and never the newest, however large it is.

Invariant: their answers equal those of the log; they are cleared when a commit fails.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, TypeVar

from brokerha.log.content import Content
from brokerha.log.frames import Frame, damaged
from brokerha.log.index import ADDED, ITEM_BITS, ITEMS_LIMIT
from brokerha.log.segments import Segments
from brokerha.model.errors import JournalDamaged, ProtocolError
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import Result
from brokerha.model.records import Accepted, Appended, BodiesHeld, MasterState, Outcomes, Record, Remembered, Rest, StreamState
from brokerha.model.wire.codec import decode_record
from brokerha.ports.disk import Disk

Item = TypeVar("Item")
_Find = Callable[[int], "tuple[int, Sequence[Item]] | None"]


class Unpacked:
    """Records by number, the oldest forgotten first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._records: OrderedDict[int, tuple[Record, int]] = OrderedDict()

    def get(self, number: int) -> Record | None:
        """Return a record, or None when it is not held."""
        held = self._records.get(number)
        return None if held is None else held[0]

    def add(self, number: int, record: Record, size_bytes: int) -> None:
        """Hold a record; its number is not held yet."""
        self._records[number] = (record, size_bytes)
        self._size_bytes += size_bytes
        while self._size_bytes > self._limit_bytes and len(self._records) > 1:
            self.forget_first()

    def first(self) -> int | None:
        """Return the number of the record that is forgotten next."""
        return next(iter(self._records), None)

    def forget_first(self) -> Record:
        """Forget the oldest record and return it."""
        _, (record, size_bytes) = self._records.popitem(last=False)
        self._size_bytes -= size_bytes
        return record

    def clear(self) -> None:
        """Forget all records."""
        self._records.clear()
        self._size_bytes = 0


_NO_BODIES: dict[TxId, bytes] = {}


class Recent(Unpacked):
    """The last appended records, and their bodies by origin and transaction id."""

    def __init__(self, node: NodeId, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._bodies: dict[NodeId, dict[TxId, bytes]] = {node: {}}
        self._own = self._bodies[node]

    def bodies(self, names: Iterable[tuple[NodeId, TxId]]) -> list[bytes | None]:
        """Return bodies by origin and id; None for a missing one."""
        of_origin = self._bodies.get
        return [of_origin(origin, _NO_BODIES).get(txid) for origin, txid in names]

    def add(self, number: int, record: Record, size_bytes: int) -> None:
        """Hold an appended record."""
        if type(record) is Accepted:
            self._own.update(record.items)
        elif type(record) is BodiesHeld:
            bodies = self._bodies
            for origin, txid, body in record.items:
                try:
                    bodies[origin][txid] = body
                except KeyError:
                    bodies[origin] = {txid: body}
        super().add(number, record, size_bytes)

    def forget_first(self) -> Record:
        """Forget the oldest record and its bodies, and return it."""
        record = super().forget_first()
        if type(record) is Accepted:
            forget = self._own.pop
            for txid, _ in record.items:
                forget(txid, None)
        elif type(record) is BodiesHeld:
            bodies = self._bodies
            for origin, txid, _ in record.items:
                bodies[origin].pop(txid, None)
        return record

    def forget_below(self, number: int) -> None:
        """Forget records that a trim can have dropped."""
        first = self.first()
        while first is not None and first < number:
            self.forget_first()
            first = self.first()

    def clear(self) -> None:
        """Forget all records and bodies."""
        super().clear()
        for bodies in self._bodies.values():
            bodies.clear()


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
    _lately: dict[tuple[NodeId, TxId], Lsn]
    """LSNs of the last entries read from disk, by origin and id: their bodies are usually requested next."""

    def state(self) -> MasterState:
        """Return the state for a restart. The cost depends on the unsynchronised tail, not on the length of the log."""
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
        """The number of the last record, deferred ones included; 0 when there is none."""
        return self._content.next_number - 1

    @property
    def executed_lsn(self) -> Lsn:
        """The last LSN with a result."""
        return self._content.current.executed_lsn

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[tuple[int, bytes]] | None:
        """Return encoded records ``first`` to ``last`` with their numbers: as many as ``limit_bytes`` allow, at least one.

        Each is verified. Results that a later `Rebased` made void are left out. None when ``first`` is before `numbered_from`.
        Raises JournalDamaged.
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
        """Return the lowest number from which nothing was trimmed: a follower with all lower records can follow from here."""
        return self._content.current.lacking_to + 1

    def records(self, start: int = 0) -> Iterator[tuple[int, Record]]:
        """Yield all held records with their numbers, from number ``start`` on, each verified. Raises JournalDamaged.

        Includes turns that are appended meanwhile; it never blocks the log for long.
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
        """Return the LSN of a synchronised transaction, or None: also when its id is forgotten. Raises JournalDamaged."""
        with self._lock:
            content = self._content
            lsn = content.ids.find(txid)
            return lsn if lsn is not None and lsn >= content.ids.floor(content.current.lsn) else None

    def known(self, txids: Iterable[TxId]) -> dict[TxId, Lsn]:
        """Return the newest LSNs of the synchronised ones of these transactions, forgotten ones too. Raises JournalDamaged."""
        with self._lock:
            return self._content.ids.known(txids)

    def known_at(self, txid: TxId, end: Lsn) -> Lsn | None:
        """Return the newest LSN of a transaction in a queue that ends at ``end``, forgotten ones too. Raises JournalDamaged."""
        with self._lock:
            return self._content.ids.find(txid, end)

    def ids_from(self, end: Lsn) -> Lsn:
        """Return the LSN below which ids are forgotten, in a queue that ends at ``end``; 0 for none."""
        with self._lock:
            return self._content.ids.floor(end)

    def body(self, origin: NodeId, txid: TxId) -> bytes | None:
        """Return the body of a transaction by origin and id, or None when it is not held. Raises JournalDamaged."""
        return self.bodies(((origin, txid),))[0]

    def bodies(self, names: Sequence[tuple[NodeId, TxId]]) -> list[bytes | None]:
        """Return bodies of transactions by origin and id; None for a missing one. Raises JournalDamaged."""
        with self._lock:
            found = self._recent.bodies(names)
            if dropped := self._content.dropped:
                # Two bodies can have had the name of a duplicate.
                found = [None if name in dropped else body for name, body in zip(names, found, strict=True)]
            for at in [at for at, body in enumerate(found) if body is None]:
                origin, txid = names[at]
                place = self._content.place_of(origin, txid, self._lately.get(names[at]))
                found[at] = self._body_at(place, origin, txid) if place else None
            return found

    def duplicates(self, txids: Iterable[TxId]) -> Collection[TxId]:
        """Return those of these transactions that this master accepted too, although they got their LSN through another master."""
        with self._lock:
            return {txid for txid in txids if self._content.is_dropped(self.node, txid)}

    def _body_at(self, place: int, origin: NodeId, txid: TxId) -> bytes | None:
        record, at = self._record(place >> ITEM_BITS), place & (ITEMS_LIMIT - 1)
        found: tuple[NodeId, TxId, bytes] | None = None
        if isinstance(record, Accepted) and at < len(record.items):
            found = (self.node, *record.items[at])
        elif isinstance(record, BodiesHeld) and at < len(record.items):
            found = record.items[at]
        if found is None or found[1] != txid:
            raise damaged(self.disk.place, f"record {place >> ITEM_BITS} does not hold transaction {txid}")
        # The transaction can have been added under another origin.
        return found[2] if found[0] == origin else None

    def stream(self, origin: NodeId, start: int, limit: int) -> list[Entry]:
        """Return up to ``limit`` entries of a stream from number ``start`` on; fewer or none where it ends or was trimmed."""
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
        """Return up to ``limit`` entries of the synchronised queue from ``first_lsn`` on; none where it was trimmed."""
        with self._lock:
            current = self._content.current
            if first_lsn < current.first_lsn:
                return []

            def find(lsn: Lsn) -> tuple[int, Sequence[Ordered]] | None:
                row = self._content.index.find(ADDED, lsn)
                return None if row is None else (row.start, self._content.added(row.number, row.start).entries[: row.size])

            found = _gather(find, first_lsn, current.lsn + 1, limit)
            if found and self._recent.bodies([(found[0][2], found[0][1])]) == [None]:
                self._lately = {(origin, txid): lsn for lsn, (_, txid, origin) in enumerate(found, first_lsn)}
            return found

    def entry_at(self, lsn: Lsn) -> Ordered | None:
        """Return the entry at an LSN, from `first_lsn` - 1 on; None elsewhere."""
        with self._lock:
            return self._content.entry(lsn) if lsn <= self._content.current.lsn else None

    def epochs(self, first_lsn: Lsn, limit: int) -> list[int]:
        """Return the epoch number of each entry of `ordered` with these arguments."""
        with self._lock:
            current = self._content.current
            if first_lsn < current.first_lsn:
                return []

            def find(lsn: Lsn) -> tuple[int, Sequence[int]] | None:
                row = self._content.index.find(ADDED, lsn)
                return None if row is None else (row.start, (self._content.added(row.number, row.start).epoch,) * row.size)

            return _gather(find, first_lsn, current.lsn + 1, limit)

    def results(self, first_lsn: Lsn, limit: int) -> list[Result]:
        """Return up to ``limit`` results of execution from ``first_lsn`` on; fewer where they are not yet known."""
        with self._lock:
            current = self._content.current
            if first_lsn < current.results_from:
                return []

            def find(lsn: Lsn) -> tuple[int, Sequence[Any]] | None:
                found = self._content.outcomes_at(lsn)
                return None if found is None else (found[0].first_lsn, found[0].results[: found[1]])

            return [Result(*result) for result in _gather(find, first_lsn, current.executed_lsn + 1, limit)]

    def first_lsn(self) -> Lsn:
        """Return the lowest LSN whose body is still held; one more than the last when the log is empty."""
        return self._content.current.first_lsn

    def results_from(self) -> Lsn:
        """Return the lowest LSN whose result is held; one more than the last executed one when none is."""
        return self._content.current.results_from

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Return the fingerprint of the content at an LSN, from `results_from` - 1 on; unknown (empty) elsewhere."""
        with self._lock:
            return self._content.fingerprint_at(lsn)

    def items_at(self, lsn: Lsn) -> int:
        """Return quads and keys at an LSN; 0 when unknown. Raises JournalDamaged."""
        with self._lock:
            return self._content.items_at(lsn)

    def rejection(self, lsn: Lsn) -> str | None:
        """Return the reason of a rejection, even after trimming; None when it was not rejected, or is forgotten."""
        with self._lock:
            return self._content.ids.rejection(lsn)

    def remembered(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """Return remembered transactions up to an LSN, from a cursor on; ``limit`` bounds the search. Raises JournalDamaged."""
        with self._lock:
            return self._content.ids.page(cursor, up_to, limit)

    def lsn_before(self, timestamp: Timestamp) -> Lsn:
        """Return the highest known LSN up to which all entries were stamped before a timestamp; 0 for none."""
        with self._lock:
            content = self._content
            first, end = content.current.first_lsn, content.current.lsn + 1
            held = bisect_left(range(first, end), timestamp, key=lambda lsn: (content.entry(lsn) or (0,))[0])
            if held:
                return first + held - 1
            mark = bisect_left(content.marks, timestamp, key=lambda mark: mark[1])
            return content.marks[mark - 1][0] if mark else 0

    def splits(self) -> list[Split]:
        """Return the head lines of the rewinds of the queue, oldest first."""
        with self._lock:
            return list(self._content.book.splits.values())

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Return up to ``limit`` transactions of a split, from an old LSN on; none when they are no longer listed."""
        with self._lock:
            return self._content.book.given_up(number, first_lsn, limit)

    def _record(self, number: int) -> Record:
        """Return a record, from memory when it was appended or read lately. Raises JournalDamaged."""
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
        """Yield every problem of the log as a sentence; none for a sound one. Reads the whole log."""
        yield from self._segments.problems()
        yield from self._content.ids.problems()
        yield from self._content.book.problems()
        yield from self._contradictions()

    def _contradictions(self) -> Iterator[str]:
        """Yield contradictions between the index and the records."""
        current = self._content.current
        for lsn in range(current.first_lsn, current.lsn + 1):
            try:
                entry = self._content.entry(lsn)
                if entry is None:
                    yield f"{self.disk.place}: LSN {lsn} is in no record"
                    continue
                _, txid, origin = entry
                found = self._content.ids.find(txid, lsn)
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
    """Return up to ``limit`` items from ``start`` to before ``end``; ``find`` returns the run of items around a position."""
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
