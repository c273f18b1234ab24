"""The state that the records of a log lead to: a restart begins from it, and each record updates it, in memory.

    current      a few numbers                                               current.py
    tail         entries without an LSN: places of bodies, parked transactions, unused ends of streams
    dropped      places of duplicates
    rewinds      data for trimming about each time that the queue went back
    decisions    prepared transactions, remembered decisions                 current.py
    marks        trimmed LSNs with a known timestamp
    index, ids, book     places of all records; LSN of each id; transactions given up

`take` applies one record: the same records give the same content, whether a master makes them, a backup follows them or a start
reads them again. Trimming is recorded in the log too, so that a replay repeats it at the same place (`trim_to`).

Memory holds the places of bodies, not the bodies; own parked ones keep the order of their places. An epoch empties all streams:
then every own body is either parked or in the recovered list.

Must never read a clock, or depend on anything except the earlier records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from brokerha.log.current import Body, Current, Decision, Decisions, Dropped, Rewind, unpack
from brokerha.log.frames import damaged
from brokerha.log.ids import Ids
from brokerha.log.index import ADDED, ITEM_BITS, ITEMS_LIMIT, OUTCOMES, Index, Row
from brokerha.log.limits import MARK_LSNS
from brokerha.log.split_book import SplitBook
from brokerha.model.epochs import Epoch
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.given_up import UNKNOWN_OUTCOME, GivenUp, Split
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operations import APPLIED, REJECTED
from brokerha.model.records import (
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    EpochInstalled,
    IdsTaken,
    Outcomes,
    Rebased,
    Record,
    Rewound,
    StateTaken,
    TxDecided,
    TxPrepared,
)
from brokerha.model.wire.codec import decode_record, encode_record

_txid_of, _origin_of, _entry_txid = itemgetter(0), itemgetter(2), itemgetter(1)
_SIMPLE = (Accepted, BodiesHeld)


class Content:
    """The content of the log of ``node``; ``read`` returns a record by number. Raises InvariantBroken, JournalDamaged, OSError."""

    def __init__(self, node: NodeId, index: Index, ids: Ids, book: SplitBook, read: Callable[[int], Record], place: str) -> None:
        self.node = node
        self.index = index
        self.ids = ids
        self.book = book
        self._read = read
        self._place = place
        self.current = Current()
        self.decisions = Decisions()
        self.next_number = 1
        self.places: dict[NodeId, dict[TxId, int]] = {node: {}}
        """Place of each body without an LSN, by origin and transaction id."""
        self.parked: dict[TxId, None] = {}
        self.streams: dict[NodeId, list[Entry]] = {}
        """The unused end of each stream."""
        self.dropped: dict[Body, Dropped] = {}
        self.rewinds: dict[int, Rewind] = {}
        """Rewinds by the number of the `Rewound`, until it is trimmed."""
        self.marks: list[tuple[Lsn, Timestamp]] = []
        self.last_trimmed = 0
        """Number of the last trimmed record that used up entries of streams."""
        self.rebased_by = 0
        """Number of the last `Rebased`: results before it are void."""
        self.void_results = 0
        """Number of the last record of results that were given up since the last `Rebased`."""
        self.oldest = 0
        """Lowest number of a record that the last taken record still needs; 0 for none."""
        self.oldest_to: Lsn = 0
        """LSN up to which it needs that."""

    # ------------------------------------------------------------------- one more record

    def take(self, number: int, record: Record) -> None:
        """Apply one more record, whose place is in the index."""
        if number < self.next_number:
            invariant(False, "numbers of records grow", number=number, following=self.next_number)
        kind = type(record)
        if kind is Added:
            self._added(number, record)  # type: ignore[arg-type]
        elif kind is EpochInstalled:
            self._installed(number, record)  # type: ignore[arg-type]
        elif kind is StateTaken:
            self._taken(number, record)  # type: ignore[arg-type]
        elif kind is Rewound:
            self._gone_back(number, record)  # type: ignore[arg-type]
        elif kind in _SIMPLE:
            self._held(number, record)  # type: ignore[arg-type]
        else:
            self.current.advance(record, number)
            if isinstance(record, Appended):
                self._appended(number, record)
            elif isinstance(record, Outcomes):
                self._executed(number, record)
            elif isinstance(record, Rebased):
                self._note_void(number, record)
            elif isinstance(record, IdsTaken):
                self.ids.note(dict(record.ids))
                self.ids.rejected.update(record.rejections)
            elif isinstance(record, Decision):
                self.decisions.take(number, record)
        self.next_number = number + 1

    def _held(self, number: int, record: Accepted | BodiesHeld) -> None:
        items = record.items
        if len(items) >= ITEMS_LIMIT:
            invariant(False, "a record has fewer items than a place can say", number=number)
        first = number << ITEM_BITS
        if isinstance(record, Accepted):
            found = dict(zip(map(_txid_of, items), range(first, first + len(items)), strict=True))
            self._keep(self.node, found)
            self.parked.update(dict.fromkeys(found))
            return
        by_origin: dict[NodeId, dict[TxId, int]] = {}
        for place, (origin, txid, _) in enumerate(record.items, first):
            try:
                by_origin[origin][txid] = place
            except KeyError:
                by_origin[origin] = {txid: place}
        for origin, places in by_origin.items():
            self._keep(origin, places)

    def _keep(self, origin: NodeId, found: dict[TxId, int]) -> None:
        """Note places. A body that is held twice keeps its older place."""
        places = self.places.setdefault(origin, {})
        if places:
            for txid in places.keys() & found.keys():
                del found[txid]
        places.update(found)

    def _appended(self, number: int, record: Appended) -> None:
        entries = record.entries
        if entries:
            self.index.add(record.origin, record.start, number, len(entries))
        self.streams.setdefault(record.origin, []).extend(entries)
        if record.origin == self.node:
            unpark = self.parked.pop
            for _, txid in entries:
                unpark(txid, None)

    def _added(self, number: int, record: Added) -> None:
        before = {origin: self.current.used.get(origin, 0) for origin in record.used}
        self.current.advance(record, number)
        self.oldest_to = self.current.lsn
        places = self._settle(record)
        self.ids.add(record.first_lsn, record.entries)
        lowest = number
        # Entries of a tail or a recovered list are not in the unused end of a stream; equal counts then prove nothing.
        added = Counter(map(_origin_of, record.entries))
        for origin, used in record.used.items():
            stream, count = self.streams.get(origin, []), used - before[origin]
            if count:
                row = self.index.find(origin, before[origin])
                lowest = lowest if row is None else min(lowest, row.number)
                if count != added[origin] or not (
                    # Usually the record begins with it.
                    (record.entries[0][2] == origin and record.entries[0][:2] == stream[0])
                    or _first_of(origin, record) == stream[0]
                ):
                    lowest = min(lowest, self._drop(origin, set(map(_entry_txid, stream[:count])), record))
                del stream[:count]
        self.index.add(ADDED, record.first_lsn, number, len(places), places)
        self.oldest = min(lowest, min(filter(None, places), default=number << ITEM_BITS) >> ITEM_BITS)

    def _settle(self, record: Added) -> list[int]:
        """Return the place, or 0, of the body of each entry, which now has an LSN."""
        if self.parked:
            unpark, node = self.parked.pop, self.node
            for _, txid, origin in record.entries:
                if origin == node:
                    unpark(txid, None)
        places = self.places
        try:
            pops = {origin: places[origin].pop for origin in set(map(_origin_of, record.entries))}
        except KeyError:
            pops = {origin: places.setdefault(origin, {}).pop for origin in set(map(_origin_of, record.entries))}
        found = [pops[origin](txid, 0) for _, txid, origin in record.entries]
        if self.dropped and 0 in found:
            for at, (_, txid, origin) in enumerate(record.entries):
                held = self.dropped.get((origin, txid))
                if not found[at] and held is not None and not held.lsn:
                    # An epoch left out its entry, and its origin stamped it again.
                    found[at] = self.dropped.pop((origin, txid)).place
        return found

    def _drop(self, origin: NodeId, used: set[TxId], record: Added) -> int:
        """Note the duplicates among the used entries; return the lowest number of their records."""
        duplicates = used.difference(txid for _, txid, o in record.entries if o == origin)
        # Without entries in the record, all LSNs up to the last can be trimmed already.
        at = self.current.lsn if record.entries else self.current.lsn + 1
        return self._drop_all(origin, {txid: self.ids.find(txid) or 0 for txid in duplicates}, at)

    def _drop_all(self, origin: NodeId, duplicates: Mapping[TxId, Lsn], at: Lsn) -> int:
        lowest = self.next_number
        for txid, lsn in duplicates.items():
            place = self.places.get(origin, {}).pop(txid, 0)
            if place:
                self.dropped[origin, txid] = Dropped(place, at, lsn)
                self.oldest_to = max(at, self.oldest_to)
                lowest = min(lowest, place >> ITEM_BITS)
            if origin == self.node:
                # After a rewind it can be parked although it is in the stream.
                self.parked.pop(txid, None)
        return lowest

    def _installed(self, number: int, record: EpochInstalled) -> None:
        epoch = record.epoch
        # The last record of each stream is needed until this record is trimmed, with the next LSN at the earliest.
        unused = [self.index.find(origin, self.current.used.get(origin, 0)) for origin, entries in self.streams.items() if entries]
        lowest = min([number, *(row.number for row in unused if row is not None)])
        self.current.advance(record, number)
        self.oldest_to = self.current.lsn + 1
        recovered = _bodies_of(epoch)
        for origin, entries in self.streams.items():
            if origin != self.node:
                left_out = dict.fromkeys([txid for _, txid in entries if (origin, txid) not in recovered], 0)
                lowest = min(lowest, self._drop_all(origin, left_out, self.oldest_to))
            self.streams[origin] = []
        for origin in epoch.starts:
            self.streams.setdefault(origin, [])
        self.parked = {txid: None for txid in self._own() if (self.node, txid) not in recovered}
        self.index.add(ADDED, epoch.base_lsn + 1, number, 0, [])
        self.oldest = lowest

    def _own(self) -> list[TxId]:
        """Return own bodies without an LSN, in the order of their acceptance."""
        places = self.places[self.node]
        return sorted(places, key=places.__getitem__)

    def _executed(self, number: int, record: Outcomes) -> None:
        if not record.results:
            return
        self.index.add(OUTCOMES, record.first_lsn, number, len(record.results))
        for lsn, result in enumerate(record.results, record.first_lsn):
            if result[0] == REJECTED:
                self.ids.rejected[lsn] = result[1]

    def _note_void(self, number: int, record: Rebased) -> None:
        """Void all held results, and the rejections above the LSN of the copy, up to the end of the queue."""
        current = self.current
        for row in reversed(list(self.index.rows(OUTCOMES, 0))):
            # A follower needs these results: only they have the rejections, and the outcomes before a rewind.
            if row.number < current.rewound_by or self._has_rejected(row, record.lsn):
                current.lacking_to = max(current.lacking_to, row.number)
                break
        current.lacking_to = max(current.lacking_to, self.void_results)
        self.void_results = 0
        self.index.clear(OUTCOMES)
        self.rebased_by = number
        # Rejections after the queue came with the state of another master, and are not results of this site.
        self.ids.void_rejections(record.lsn, current.lsn)

    def _has_rejected(self, row: Row, up_to: Lsn) -> bool:
        """Tell whether a row of results has a rejection up to an LSN."""
        found = self.outcomes_at(row.start) if row.start <= up_to else None
        if found is None:
            return False
        return any(result[0] == REJECTED for result in found[0].results[: min(row.size, up_to + 1 - row.start)])

    def _taken(self, number: int, record: StateTaken) -> None:
        self.current.advance(record, number)
        floor = max(1, self.ids.floor(record.lsn))
        for origin, places in self.places.items():
            for txid in [txid for txid in places if floor <= (self.ids.find(txid) or 0) <= record.lsn]:
                del places[txid]
                if origin == self.node:
                    self.parked.pop(txid, None)
        self.index.clear(ADDED)
        self.index.clear(OUTCOMES)
        self.dropped, self.rewinds = {}, {}
        self.marks.append((record.lsn, record.last[0]))
        self.last_trimmed, self.void_results = number - 1, 0

    # ------------------------------------------------------------------------- rewinds

    def _gone_back(self, number: int, record: Rewound) -> None:
        current, lsn, old = self.current, record.lsn, self.current.lsn
        current.check_back(lsn)
        fingerprint, items = self._content_at(lsn)
        entries: list[tuple[Lsn, Ordered, int]] = []
        given: set[int] = set()
        for row, left, places in self.index.cut(ADDED, lsn + 1):
            if not left:
                given.add(row.number)
            if places:
                added = self.added(row.number, row.start)
                found = added.entries[left : row.size]
                entries += [
                    (at, entry, place) for at, (entry, place) in enumerate(zip(found, places, strict=True), row.start + left)
                ]
        given_up = self._given_up(entries)
        for row, _, _ in self.index.cut(OUTCOMES, lsn + 1):
            self.void_results = max(self.void_results, row.number)
        txids = {txid for _, (_, txid, _), _ in entries}
        self.ids.void_after(old)
        self.ids.go_back(txids, lsn)
        self.ids.void_rejections(lsn, old)
        bodies = {(origin, txid): place for _, (_, txid, origin), place in entries if place}
        again = [body for body, held in self.dropped.items() if body[1] in txids and not 0 < held.lsn <= lsn]
        bodies.update({body: self.dropped.pop(body).place for body in again})
        self.dropped = {body: held._replace(at=min(held.at, lsn + 1)) for body, held in self.dropped.items()}
        loose = {body: place for body, place in bodies.items() if body[0] != self.node}
        for (origin, txid), place in bodies.items():
            self.places.setdefault(origin, {})[txid] = place
            if origin == self.node:
                self.parked[txid] = None
        self.parked = {txid: None for txid in self._own() if txid in self.parked}
        for earlier in [earlier for earlier in self.rewinds if earlier in given]:
            loose = {**self.rewinds.pop(earlier).loose, **loose}
        self.rewinds[number] = Rewind(dict(current.used), loose)
        current.go_back(lsn, number, self.entry(lsn), fingerprint, items)
        self.index.add(ADDED, lsn + 1, number, 0, [])
        stamped = entries[-1][1][0] if entries else 0
        about = record.epoch, record.lineage, record.keeps_content
        self.book.add(Split(number, *about, lsn, len(given_up), stamped, 0), given_up, self._is_open)

    def _given_up(self, entries: list[tuple[Lsn, Ordered, int]]) -> list[GivenUp]:
        executed = self.current.executed_lsn

        def outcome(lsn: Lsn) -> str:
            # This holds after a `Rebased` too: the content includes the transaction, and rejections stay known.
            if self.ids.rejection(lsn) is not None:
                return REJECTED
            return APPLIED if lsn <= executed else UNKNOWN_OUTCOME

        return [GivenUp(lsn, txid, origin, outcome(lsn)) for lsn, (_, txid, origin), _ in entries]

    def _is_open(self, given: GivenUp) -> bool:
        """Tell whether the content has a given up transaction that can run again: held without an LSN, or with an untrimmed one."""
        if given.outcome != APPLIED:
            return False
        lsn = self.ids.find(given.txid)
        return given.txid in self.places.get(given.origin, {}) or (lsn is not None and lsn >= self.current.first_lsn)

    def _content_at(self, lsn: Lsn) -> tuple[bytes, int]:
        """Return fingerprint and items at an LSN, as far as they are known."""
        current = self.current
        if lsn >= current.executed_lsn:
            return current.fingerprint, current.items
        return self.fingerprint_at(lsn), self.items_at(lsn)

    # ------------------------------------------------------------------------- trimming

    def plan(self, below: Lsn, most_lsns: int, most_records: int) -> tuple[Lsn, int]:
        """Return one step of trimming: the first LSN that stays, and the last record that goes; the present values for no step."""
        current = self.current
        first = start = current.first_lsn
        last = self.last_trimmed
        below = min(below, current.lsn + 1)
        count = 0
        for row in self.index.rows(ADDED, start):
            if row.number <= self.last_trimmed:
                continue
            end = row.start + row.size
            if end > below or (first > start and end - start > most_lsns) or count >= most_records:
                break
            first, last, count = end, row.number, count + 1
        return first, last

    def trim_to(self, first: Lsn, last: int) -> None:
        """Forget all below an LSN; ``last`` is the last trimmed record that used up entries of streams."""
        current = self.current
        last_mark, stamped = self.marks[-1] if self.marks else (0, 0)
        before = self.entry(first - 1)
        if first - 1 - last_mark >= MARK_LSNS:
            self.marks.append((first - 1, max(stamped, before[0] if before else 0)))
        gone: dict[Body, int] = {}
        for row in self.index.rows(ADDED, current.first_lsn):
            if row.number > last:
                break
            if row.number > self.last_trimmed:
                record = self._read(row.number)
                if isinstance(record, Added):
                    current.trimmed.update(record.used)
                elif isinstance(record, EpochInstalled):
                    current.trimmed.update(record.epoch.starts)
                else:
                    rewind = self.rewinds.pop(row.number)
                    current.trimmed.update(rewind.used)
                    gone.update(rewind.loose)
        results_from = current.results_after_trim(first)
        current.base = self.fingerprint_at(results_from - 1)
        current.results_from, current.first_lsn, current.before = results_from, first, before
        self.last_trimmed = max(last, self.last_trimmed)
        self.dropped = {body: held for body, held in self.dropped.items() if held.at >= first}
        self._forget_loose(gone)
        forgotten = self.ids.forget(first)
        self.marks = [mark for mark in self.marks[:-1] if mark[0] >= forgotten - 1] + self.marks[-1:]
        results = self.index.last_before(OUTCOMES, first)
        current.lacking_to = max(current.lacking_to, self.last_trimmed, results.number if results else 0)

    def _forget_loose(self, gone: dict[Body, int]) -> None:
        """Forget foreign bodies that lost their LSN, unless a stream or the epoch's recovered list has them."""
        if not gone:
            return
        wanted = {(origin, txid) for origin, entries in self.streams.items() for _, txid in entries}
        if self.current.installed_by:
            epoch = self.installed()
            wanted |= {(origin, txid) for _, txid, origin in epoch.recovered if (self.ids.find(txid) or 0) <= epoch.base_lsn}
        for (origin, txid), place in gone.items():
            places = self.places.get(origin, {})
            if places.get(txid) == place and (origin, txid) not in wanted:
                del places[txid]

    def is_needed(self, number: int, record: Record) -> bool:
        """Tell whether a record is still held: it has an entry at or above the first LSN, or without an LSN, or it is newer."""
        current = self.current
        match record:
            case Accepted(items):
                bodies = [(self.node, txid) for txid, _ in items]
            case BodiesHeld(items):
                bodies = [(origin, txid) for origin, txid, _ in items]
            case Appended(origin, start, entries) if entries:
                return start + len(entries) > current.trimmed.get(origin, 0)
            case Outcomes(first_lsn, results) if results:
                if number < self.rebased_by:
                    return False
                row = self.index.find(OUTCOMES, first_lsn)
                if row is not None and row.number == number:
                    return row.start + row.size > current.first_lsn
                bodies = []
            case _:
                if number in self.decisions.prepared.values() or number == current.installed_by:
                    return True
                bodies = []
        if isinstance(record, Added | EpochInstalled | Rewound):
            # Trimming reads them.
            return number > self.last_trimmed
        if number > max(self.last_trimmed, current.lacking_to):
            return True
        return any(self.place_of(*body) >> ITEM_BITS == number for body in bodies)

    def needed(self) -> set[int]:
        """Return the numbers of the records with entries without an LSN, and of pinned records."""
        numbers = {place >> ITEM_BITS for places in self.places.values() for place in places.values()}
        numbers.update(self.decisions.prepared.values())
        if self.current.installed_by:
            numbers.add(self.current.installed_by)
        for origin, entries in self.streams.items():
            if entries:
                used = self.current.used.get(origin, 0)
                numbers.update(row.number for row in self.index.rows(origin, used))
        return numbers

    # -------------------------------------------------------------------------- reading

    def place_of(self, origin: NodeId, txid: TxId, lsn: Lsn | None = None) -> int:
        """Return the place of a body, or 0. It can be that of the same id under another origin, which its record shows."""
        place = self.places.get(origin, {}).get(txid, 0)
        if place:
            return place
        if self.is_dropped(origin, txid):
            return self.dropped[origin, txid].place
        lsn = lsn or self._held_lsn(origin, txid)
        return self.index.place(lsn) if lsn >= self.current.first_lsn else 0

    def _held_lsn(self, origin: NodeId, txid: TxId) -> Lsn:
        """Return the LSN of a body by its name: not always the newest of its id, where an entry of before it was forgotten is held."""
        lsn = self.ids.find(txid) or 0
        older = self.ids.find(txid, lsn - 1) or 0
        newest = self.entry(lsn) if older >= self.current.first_lsn else None
        return lsn if newest is None or newest[2] == origin else older

    def is_dropped(self, origin: NodeId, txid: TxId) -> bool:
        """Tell whether the body of a duplicate is held; once its id is forgotten, the same name is that of another body."""
        held = self.dropped.get((origin, txid))
        return held is not None and (not held.lsn or held.lsn >= self.ids.floor(self.current.lsn))

    def installed(self) -> Epoch:
        """Return the last installed epoch, which exists."""
        number = self.current.installed_by
        record = self._read(number)
        if not isinstance(record, EpochInstalled) or record.epoch.id != self.current.installed:
            raise damaged(self._place, f"record {number} does not hold the epoch {self.current.installed}")
        return record.epoch

    def prepared(self) -> dict[TxId, TxPrepared]:
        """Return prepared and undecided transactions, oldest first."""
        found: dict[TxId, TxPrepared] = {}
        for txid, number in self.decisions.prepared.items():
            record = self._read(number)
            if not isinstance(record, TxPrepared):
                raise damaged(self._place, f"record {number} does not hold a prepared transaction")
            found[txid] = record
        return found

    def entry(self, lsn: Lsn) -> Ordered | None:
        """Return the entry at an LSN, held or just before what is held; else None."""
        if lsn == self.current.first_lsn - 1:
            return self.current.before
        row = self.index.find(ADDED, lsn) if lsn >= self.current.first_lsn else None
        return None if row is None else self.added(row.number, row.start).entries[lsn - row.start]

    def added(self, number: int, first_lsn: Lsn) -> Added:
        """Return the record that adds entries from an LSN on. Raises JournalDamaged for another record."""
        record = self._read(number)
        if not isinstance(record, Added) or record.first_lsn != first_lsn:
            raise damaged(self._place, f"record {number} does not add LSN {first_lsn}")
        return record

    def outcomes_at(self, lsn: Lsn) -> tuple[Outcomes, int] | None:
        """Return the record with the result of an LSN, and how many of its results count."""
        row = self.index.find(OUTCOMES, lsn)
        if row is None:
            return None
        record = self._read(row.number)
        if not isinstance(record, Outcomes) or record.first_lsn != row.start:
            raise damaged(self._place, f"record {row.number} does not hold the result of LSN {lsn}")
        return record, row.size

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Return the fingerprint of the content at an LSN, from `results_from` - 1 on; unknown (empty) elsewhere."""
        current = self.current
        if lsn == current.executed_lsn:
            return current.fingerprint
        if lsn == current.results_from - 1:
            return current.base
        if not current.results_from <= lsn < current.executed_lsn:
            return UNKNOWN
        found = self.outcomes_at(lsn)
        return UNKNOWN if found is None else found[0].results[lsn - found[0].first_lsn][3]

    def items_at(self, lsn: Lsn) -> int:
        """Return quads and keys at an LSN; 0 when unknown."""
        current = self.current
        if lsn == current.executed_lsn:
            return current.items
        found = self.outcomes_at(lsn) if current.results_from <= lsn < current.executed_lsn else None
        if found is None or lsn != found[0].first_lsn + len(found[0].results) - 1:
            return 0
        return found[0].items

    # ---------------------------------------------------------------------- checkpoints

    def packed(self) -> Any:
        """Return the part for a checkpoint, without index, ids and book."""
        decisions = self.decisions
        return [
            self.current.pack(),
            self.current.pack_history(),
            self.next_number,
            [[origin, list(places.items())] for origin, places in self.places.items()],
            list(self.parked),
            list(self.streams.items()),
            [[*body, *held] for body, held in self.dropped.items()],
            [[n, list(r.used.items()), [[*body, at] for body, at in r.loose.items()]] for n, r in self.rewinds.items()],
            self.marks,
            self.last_trimmed,
            self.rebased_by,
            self.void_results,
            list(decisions.prepared.items()),
            [(number, encode_record(record)) for number, record in decisions.decided.values()],
        ]

    def read(self, packed: Any) -> None:
        """Restore the result of `packed`."""
        current, history, self.next_number, places, parked, streams, dropped, rewinds, marks, *rest = packed
        self.last_trimmed, self.rebased_by, self.void_results, prepared, decided = rest
        self.current = unpack(current, history)
        self.places = {self.node: {}, **{origin: dict(held) for origin, held in places}}
        self.parked = dict.fromkeys(parked)
        self.streams = {origin: list(entries) for origin, entries in streams}
        self.dropped = {(origin, txid): Dropped(*held) for origin, txid, *held in dropped}
        self.rewinds = {n: Rewind(dict(used), {(o, txid): at for o, txid, at in loose}) for n, used, loose in rewinds}
        self.marks = [tuple(mark) for mark in marks]
        self.decisions = Decisions()
        self.decisions.prepared = dict(prepared)
        for number, encoded in decided:
            record = decode_record(encoded)
            if isinstance(record, TxDecided):
                self.decisions.remember(number, record)


def _first_of(origin: NodeId, record: Added) -> Entry | None:
    return next(((timestamp, txid) for timestamp, txid, o in record.entries if o == origin), None)


def _bodies_of(epoch: Epoch) -> set[Body]:
    return {(origin, txid) for _, txid, origin in epoch.recovered}
