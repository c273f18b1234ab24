"""Records kept unpacked in memory, within a bound of bytes, so that the hot path never unpacks what it just packed.

`Recent` holds the last appended records: the core reads them again within a few turns (bodies when they are dispatched, entries
when a peer needs them again). `Unpacked` holds the last records read from disk, so that reading an old range in order unpacks
each record once. Both forget the oldest first and never the newest, however large it is.

Invariant: their answers equal those of the log; they are cleared when a commit fails.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from brokerha.model.ids import NodeId, TxId
from brokerha.model.records import Accepted, BodiesHeld, Record


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
