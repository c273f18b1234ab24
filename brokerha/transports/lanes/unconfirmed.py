"""The window of a publishing channel: what was published and not confirmed yet.

RabbitMQ numbers the publications of a confirming channel from 1 and answers with ack or nack of one number, or of all
numbers up to one. An unroutable message is returned before it is confirmed.

Invariants: the window is bounded by messages and by bytes; it lets one message through until the first confirmation
has come, because a broker that is out of memory says so only in answer to a publication; it belongs to one thread.
"""

from __future__ import annotations

from brokerha.transports.lanes.parcels import BULK_LANE, Publication


class Unconfirmed:
    """The window of one channel; made anew with it."""

    def __init__(self, most_messages: int, most_bytes: int, most_bulk_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._most_bulk_bytes = most_bulk_bytes
        self._bulk_bytes = 0
        self._last_number = 0
        self._size_bytes = 0
        self._proven = False
        self._waiting: dict[int, Publication] = {}
        """By number, in the order of numbers."""
        self.oldest_since_s = 0.0
        """Since when the oldest one has been waiting, or the last one was confirmed."""

    def __len__(self) -> int:
        """How many are not confirmed."""
        return len(self._waiting)

    @property
    def size_bytes(self) -> int:
        """Size of what is not confirmed."""
        return self._size_bytes

    def room(self) -> tuple[int, int, int]:
        """How many more messages, bytes, and bytes of bulk may be published now."""
        most = self._most_messages if self._proven else 1
        return most - len(self._waiting), self._most_bytes - self._size_bytes, self._most_bulk_bytes - self._bulk_bytes

    def add(self, publication: Publication, now_s: float) -> None:
        """Note a publication that is handed to the channel now."""
        if not self._waiting:
            self.oldest_since_s = now_s
        self._last_number += 1
        self._waiting[self._last_number] = publication
        self._size_bytes += len(publication.body)
        if publication.lane == BULK_LANE:
            self._bulk_bytes += len(publication.body)

    def confirm(self, number: int, *, multiple: bool, now_s: float) -> list[Publication]:
        """Remove and return what the broker answered for."""
        self._proven = True
        self.oldest_since_s = now_s
        if multiple:
            numbers = []
            for waiting in self._waiting:
                if waiting > number:
                    break
                numbers.append(waiting)
        else:
            numbers = [number] if number in self._waiting else []
        confirmed = [self._waiting.pop(each) for each in numbers]
        self._size_bytes -= sum([len(publication.body) for publication in confirmed])
        self._bulk_bytes -= sum([len(publication.body) for publication in confirmed if publication.lane == BULK_LANE])
        return confirmed

    def all(self) -> list[Publication]:
        """What the broker has not answered for, oldest first."""
        return list(self._waiting.values())
