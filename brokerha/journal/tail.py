"""What is not synchronised yet, in memory: bodies without an LSN, parked transactions, unused ends of streams.

The tail is bounded by the windows of the protocol, not by the log. A restart rebuilds it from the records from
`first_needed` on and from the rows of the table `waiting`, which stand for bodies in older records: one body that waits
for hours must not make a restart read hours of log.

Trimming relies on that: when the `Added` record that gave some bodies of a record their LSN is gone, the others of that
record are in `waiting`, and a restart does not look at the record again.

    Accepted, BodiesHeld          Appended own               Added
    ------------------->  places, parked  ------>  places, streams  ------>  (place in the row of `added`)
                                  ^-------------------'  EpochInstalled, unless it is in the recovered list

An epoch empties all streams. Then every own body is either parked or in the recovered list, so that one look at the places
says which; no history of stamping is needed for it, neither when the epoch is installed nor at a restart.

Invariants: each body without an LSN has exactly one place; a parked transaction has one under the own origin; the
first entry of ``streams[o]`` has the number ``used[o]``; exactly what is in ``spilled`` has a row in `waiting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter

import lmdb

from brokerha.journal.database import Table
from brokerha.journal.rows import HELD, ITEM_BITS, ITEMS_LIMIT, PARKED, number_key, waiting_row
from brokerha.model.epochs import Epoch
from brokerha.model.ids import Entry, NodeId, TxId
from brokerha.model.invariants import invariant
from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, Record

_origin_of = itemgetter(2)
_txid_of = itemgetter(0)
_entry_txid = itemgetter(1)


class Tail:
    """The tail of node ``node``'s journal. Rows for `waiting` collect in `waiting_puts` and `waiting_deletes`."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self.places: dict[NodeId, dict[TxId, int]] = {node: {}}
        """Place of each body without an LSN, oldest first, by origin and transaction id."""
        self.parked: dict[TxId, None] = {}
        self.streams: dict[NodeId, list[Entry]] = {}
        self.spilled: dict[tuple[NodeId, TxId], int] = {}
        """Places that have a row in `waiting`, older than all in `places`."""
        self.waiting_puts: list[tuple[bytes, bytes]] = []
        self.waiting_deletes: list[bytes] = []

    def place_of(self, origin: NodeId, txid: TxId) -> int:
        """Place of a body without an LSN, or 0."""
        places = self.places.get(origin)
        return (places and places.get(txid)) or self.spilled.get((origin, txid), 0)

    def hold(self, number: int, record: Accepted | BodiesHeld) -> int:
        """Take over the bodies of record ``number``; returns how many of them are new."""
        invariant(len(record.items) < ITEMS_LIMIT, "a record has fewer items than a place can say", number=number)
        first = number << ITEM_BITS
        if isinstance(record, Accepted):
            found = dict(zip(map(_txid_of, record.items), range(first, first + len(record.items)), strict=True))
            live = self._keep(self._node, found)
            self.parked.update(dict.fromkeys(found))
            return live
        by_origin: dict[NodeId, dict[TxId, int]] = {}
        for place, (origin, txid, _) in enumerate(record.items, first):
            try:
                by_origin[origin][txid] = place
            except KeyError:
                by_origin[origin] = {txid: place}
        return sum(self._keep(origin, found) for origin, found in by_origin.items())

    def _keep(self, origin: NodeId, found: dict[TxId, int]) -> int:
        """Add places. A body that is held twice keeps its older place, so that places stay in order of age."""
        places = self.places.setdefault(origin, {})
        twice = places.keys() & found.keys()
        if self.spilled:
            twice.update(txid for txid in found if (origin, txid) in self.spilled)
        for txid in twice:
            del found[txid]
        places.update(found)
        return len(found)

    def append(self, record: Appended) -> None:
        """Take over entries of a stream; own ones are parked no longer."""
        self.streams.setdefault(record.origin, []).extend(record.entries)
        if record.origin == self._node:
            self.unpark(record)

    def unpark(self, record: Appended) -> None:
        """Take own entries out of the parked, which is all that a restart needs of them here."""
        unpark, node, spilled = self.parked.pop, self._node, self.spilled
        for _, txid in record.entries:
            unpark(txid, None)
            if spilled and (node, txid) in spilled:
                self.waiting_puts.append((number_key(spilled[node, txid]), waiting_row(HELD, node, txid)))

    def add(self, record: Added, before: dict[NodeId, int]) -> tuple[list[int], list[tuple[NodeId, TxId, int]]]:
        """Take out what became synchronised, and duplicates that were used up instead.

        ``before`` is how much of each stream in ``record.used`` was used before. Returns the place of each entry's
        body, and (origin, transaction id, place) of each duplicate.
        """
        places = self.settle(record)
        dropped: list[tuple[NodeId, TxId, int]] = []
        added = Counter(map(_origin_of, record.entries))
        for origin, used in record.used.items():
            stream, count = self.streams.get(origin, []), used - before[origin]
            # Entries of a recovered list come first and are in no stream: equal counts say nothing then.
            if count != added[origin] or (count and _first_of(origin, record) != stream[0]):
                dropped += self._drop(origin, set(map(_entry_txid, stream[:count])), record)
            del stream[:count]
        return places, dropped

    def settle(self, record: Added) -> list[int]:
        """Return the place of each entry's body, or 0, and forget it here."""
        for origin in set(map(_origin_of, record.entries)) - self.places.keys():
            self.places[origin] = {}
        if self.parked:
            # In a tail or in a recovered list there are transactions that were parked.
            unpark, node = self.parked.pop, self._node
            for _, txid, origin in record.entries:
                if origin == node:
                    unpark(txid, None)
        pops = {origin: places.pop for origin, places in self.places.items()}
        found = [pops[origin](txid, 0) for _, txid, origin in record.entries]
        if self.spilled:
            found = [
                place or self._unspill(origin, txid)
                for place, (_, txid, origin) in zip(found, record.entries, strict=True)
            ]
        return found

    def _unspill(self, origin: NodeId, txid: TxId) -> int:
        place = self.spilled.pop((origin, txid), 0)
        if place:
            self.waiting_deletes.append(number_key(place))
        return place

    def _drop(self, origin: NodeId, used: set[TxId], record: Added) -> list[tuple[NodeId, TxId, int]]:
        duplicates = used.difference(txid for _, txid, o in record.entries if o == origin)
        found = [(origin, txid, self.forget(origin, txid)) for txid in sorted(duplicates)]
        if origin == self._node:
            # After going back it may be parked although it stands in the stream.
            for txid in duplicates:
                self.parked.pop(txid, None)
        return [duplicate for duplicate in found if duplicate[2]]

    def install(self, epoch: Epoch) -> list[tuple[NodeId, TxId, int]]:
        """Empty all streams; returns (origin, transaction id, place) of each foreign entry that the epoch leaves out.

        Such an entry is a duplicate of one that is synchronised or in the recovered list under another origin.
        """
        recovered = _bodies_of(epoch)
        dropped: list[tuple[NodeId, TxId, int]] = []
        for origin, entries in self.streams.items():
            if origin != self._node:
                left_out = sorted({txid for _, txid in entries if (origin, txid) not in recovered})
                dropped += [(origin, txid, self.forget(origin, txid)) for txid in left_out]
            self.streams[origin] = []
        for origin in epoch.starts:
            self.streams.setdefault(origin, [])
        self.park(epoch)
        return [duplicate for duplicate in dropped if duplicate[2]]

    def park(self, epoch: Epoch) -> None:
        """Park the own transactions that are not in the recovered list, in the order in which they were accepted."""
        node, was_parked, recovered = self._node, self.parked, _bodies_of(epoch)
        self.parked = {}
        for place, txid in sorted((place, txid) for (origin, txid), place in self.spilled.items() if origin == node):
            is_parked = (node, txid) not in recovered
            if is_parked:
                self.parked[txid] = None
            if is_parked != (txid in was_parked):
                self.waiting_puts.append((number_key(place), waiting_row(PARKED if is_parked else HELD, node, txid)))
        self.parked.update((txid, None) for txid in self.places[node] if (node, txid) not in recovered)

    def take_state(self, is_known: Callable[[TxId], bool]) -> Counter[int]:
        """Forget the bodies of transactions that the state knows; all others get rows in `waiting`, so that no restart looks behind.

        Returns how many bodies are left of each record that has any.
        """
        for origin, places in self.places.items():
            for txid, place in places.items():
                self.spilled[origin, txid] = place
                mark = PARKED if origin == self._node and txid in self.parked else HELD
                self.waiting_puts.append((number_key(place), waiting_row(mark, origin, txid)))
            places.clear()
        for origin, txid in [body for body in self.spilled if is_known(body[1])]:
            self._unspill(origin, txid)
            if origin == self._node:
                self.parked.pop(txid, None)
        return Counter(place >> ITEM_BITS for place in self.spilled.values())

    def revive(self, bodies: Iterable[tuple[NodeId, TxId, int]]) -> None:
        """Hold bodies again, (origin, transaction id, place), whose LSNs were given up; own ones are parked.

        They may be older than what is held. So everything gets a row in `waiting`, and a restart reads none of the records before.
        """
        node, is_parked = self._node, set(self.parked)
        found = [(o, txid, place) for o, places in self.places.items() for txid, place in places.items()]
        for places in self.places.values():
            places.clear()
        for origin, txid, place in bodies:
            found.append((origin, txid, place))
            if origin == node:
                is_parked.add(txid)
        self.spilled.update(((origin, txid), place) for origin, txid, place in found)
        for origin, txid, place in found:
            mark = PARKED if origin == node and txid in is_parked else HELD
            self.waiting_puts.append((number_key(place), waiting_row(mark, origin, txid)))
        put = {key for key, _ in self.waiting_puts}
        self.waiting_deletes = [key for key in self.waiting_deletes if key not in put]
        own = sorted((place, txid) for (origin, txid), place in self.spilled.items() if origin == node)
        self.parked = dict.fromkeys(txid for _, txid in own if txid in is_parked)

    @property
    def node(self) -> NodeId:
        """Whose journal it is."""
        return self._node

    def is_waiting(self, origin: NodeId, txid: TxId) -> bool:
        """Whether a transaction stands in the unused end of a stream."""
        return any(entry[1] == txid for entry in self.streams.get(origin, ()))

    def forget(self, origin: NodeId, txid: TxId) -> int:
        """Take out one body; returns its place, or 0."""
        return self.places.get(origin, {}).pop(txid, 0) or self._unspill(origin, txid)

    def first_needed(self, next_number: int) -> int:
        """Number of the first record that a restart has to read for bodies without an LSN."""
        oldest = [next(iter(places.values())) >> ITEM_BITS for places in self.places.values() if places]
        return min(oldest, default=next_number)

    def spill(self, number: int, record: Record) -> None:
        """Give the bodies of record ``number`` that have no LSN rows in `waiting`; it must be the first needed one."""
        bodies: list[tuple[NodeId, TxId]] = []
        if isinstance(record, Accepted):
            bodies = [(self._node, txid) for txid, _ in record.items]
        elif isinstance(record, BodiesHeld):
            bodies = [(origin, txid) for origin, txid, _ in record.items]
        for place, (origin, txid) in enumerate(bodies, number << ITEM_BITS):
            places = self.places.get(origin, {})
            if places.get(txid) == place:
                self.spilled[origin, txid] = places.pop(txid)
                mark = PARKED if origin == self._node and txid in self.parked else HELD
                self.waiting_puts.append((number_key(place), waiting_row(mark, origin, txid)))

    def write(self, txn: lmdb.Transaction, waiting: Table) -> None:
        """Write the rows of `waiting` that have collected."""
        for key, row in self.waiting_puts:
            txn.put(key, row, db=waiting)
        for key in self.waiting_deletes:
            txn.delete(key, db=waiting)
        self.forget_rows()

    def forget_rows(self) -> None:
        """Forget the rows that have collected; they are written already."""
        self.waiting_puts.clear()
        self.waiting_deletes.clear()


def _first_of(origin: NodeId, record: Added) -> Entry | None:
    return next(((timestamp, txid) for timestamp, txid, o in record.entries if o == origin), None)


def _bodies_of(epoch: Epoch) -> set[tuple[NodeId, TxId]]:
    return {(origin, txid) for _, txid, origin in epoch.recovered}
