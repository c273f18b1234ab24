"""The recovered list of an epoch at one member: its held and its synchronised entries (R6, R10).

    recovered list   0 ....... done ......... held ........ end
                     synchronised | body durable | body on its way

Its order was decided with the epoch, so an entry needs no promises: it is added when all required members hold it. Its place
follows from the LSN, which is how a restart finds it again. But entries that came with a tail since then may be of the queue of a
later epoch, which went on without an entry whose body no master had. Such an entry is not synchronised, wherever the queue ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.model.epochs import Epoch
from brokerha.model.ids import Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.sync.catching_up import Has, Missing


def _nothing(_origin: NodeId, _txid: TxId) -> bool:
    return False


class Recovery:
    """See the head of the module."""

    def __init__(self, epoch: Epoch, lsn: Lsn, has: Has, is_left: Has = _nothing, ids_from: Lsn = 0) -> None:
        """``is_left`` tells whether a body is here and its transaction is not synchronised; ids are known from an LSN on."""
        self.entries = epoch.recovered
        passed = max(0, min(len(self.entries), lsn - epoch.base_lsn))
        # An id that is forgotten there belongs to another transaction now.
        known = max(0, ids_from - 1 - epoch.base_lsn)
        left = (place for place in range(known, passed) if is_left(self.entries[place][2], self.entries[place][1]))
        self.done = next(left, passed)
        """Number of entries, from the head on, in the own synchronised queue."""
        self.held = self.done
        """Number of entries, from the head on, that are durable here with their bodies."""
        self.missing = Missing(self.entries[self.done :])
        self.is_over = self.done == len(self.entries)
        """Whether all entries are synchronised here."""
        self.hold(has)

    def left(self) -> Sequence[Ordered]:
        """Return the entries that are not synchronised here yet."""
        return self.entries[self.done :]

    def hold(self, has: Has) -> int:
        """Count the entries at the head whose bodies are here now; return how many are new."""
        count = len(self.missing.take(has))
        self.held += count
        return count

    def next(self, up_to: int) -> list[Ordered]:
        """Return the entries to add when all required members hold ``up_to`` entries; they count as done."""
        first, self.done = self.done, max(self.done, min(up_to, self.held))
        self.is_over = self.done == len(self.entries)
        return list(self.entries[first : self.done])

    def reported(self, has: Has) -> tuple[tuple[int, Timestamp, TxId, NodeId], ...]:
        """Return entries that are here with their bodies and not synchronised, with their places: also those after missing ones."""
        places = range(self.done, len(self.entries))
        return tuple((place, *self.entries[place]) for place in places if place < self.held or self._is_here(place, has))

    def lacking(self, has: Has) -> tuple[tuple[int, Timestamp, TxId, NodeId], ...]:
        """Return entries that are neither synchronised nor here, with their places in the list."""
        places = range(self.held, len(self.entries))
        return tuple((place, *self.entries[place]) for place in places if not self._is_here(place, has))

    def _is_here(self, place: int, has: Has) -> bool:
        _, txid, origin = self.entries[place]
        return has(origin, txid)
