"""What waits between a node and its broker, and what it waits in.

Publications on their way out and arrivals on their way in are bytes with a label, before encoding ends and after
decoding begins: what talks to a broker moves them and looks at nothing but the label.

    Outgoing, ClientReply, … ─ kombu_transport.py ─> Publication ─ Outbox ─> broker, until confirmed: Unconfirmed
    broker ─ Inbox ─> Arrival ─ kombu_transport.py ─> Envelope, ClientMessage, until settled: Unsettled

A **lane** is a kind of traffic with its own limit; lanes are listed in the order in which they are served, so that the
small messages of the protocol never wait for bulk.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from brokerha.transports.config import LaneLimit

SYNC_LANE = "sync"
DATA_LANE = "data"
CLIENT_LANE = "client"
REPLY_LANE = "reply"
BULK_LANE = "bulk"
"""Pieces of whole copies: large, asked for again when they are lost, and never in the way of anything else."""
FIRM_LANE = "firm"
"""Repeated until the broker has confirmed them: rejected messages, changes."""
TX_LANE = "tx"
"""Queues of transactions and what travels through them: on channels of its own, because making a queue takes time."""

ABSENCE_LANE = "absence"
"""No message: the broker's answer that the inbox of a master is gone, whose id is the routing key."""

ARRIVAL_LANES = (ABSENCE_LANE, SYNC_LANE, TX_LANE, DATA_LANE, CLIENT_LANE)
PUBLICATION_LANES = (SYNC_LANE, TX_LANE, FIRM_LANE, REPLY_LANE, DATA_LANE, BULK_LANE)
PLAIN_LANES = (SYNC_LANE, REPLY_LANE, DATA_LANE)
"""Published without a confirmation: what is lost is asked for again by the node that misses it."""


class ClientTag(NamedTuple):
    """Handle of an unsettled message of an app."""

    generation: int
    """Number of the connection it came through; on another one its delivery tag means nothing."""
    delivery_tag: int


class Arrival(NamedTuple):
    """A message that was delivered to this node."""

    lane: str
    tag: ClientTag
    body: bytes
    properties: dict[str, Any]
    exchange: str
    redelivered: bool
    routing_key: str = ""


@dataclass(slots=True)
class Publication:
    """A message to be published; its label decides what happens when that fails."""

    lane: str
    exchange: str
    routing_key: str
    body: bytes
    properties: dict[str, Any] = field(default_factory=dict)
    settles: ClientTag | None = None
    """Message of an app that is settled once this publication is confirmed."""
    queued_s: float = 0.0
    """Monotonic time at which it was queued."""
    tx_queue: str = ""
    """Queue of the transaction that it is about: it stays in order with all else about that queue."""
    opens: bool = False
    """That queue is to be made; nothing is published."""
    also: tuple[str, ...] = ()
    """Further routing keys of a message between nodes: the broker makes the copies."""


def absence_of(master: str) -> Arrival:
    """What arrives when a master's inbox is gone."""
    return Arrival(ABSENCE_LANE, ClientTag(0, 0), b"", {}, "", False, master)


def arrival_of(raw: Any, lane: str, generation: int) -> Arrival:
    """Label a message as py-amqp delivered it."""
    info = raw.delivery_info
    tag = ClientTag(generation, info["delivery_tag"])
    # py-amqp gives an empty str for an empty body.
    key = info.get("routing_key") or ""
    return Arrival(lane, tag, raw.body or b"", raw.properties, info["exchange"], info["redelivered"], key)


class Counters:
    """Monotone counts by name; callable from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count ``count`` more."""
        if count:
            with self._lock:
                self._counts[name] += count

    def read(self) -> dict[str, int]:
        """A copy of all counts."""
        with self._lock:
            return dict(self._counts)


class Inbox:
    """What has arrived and was not taken yet: sync before events of transactions before data before messages of apps.

        reader ── put ──> [sync][tx][data][client] ── take ──> loop

    Invariants: a lane over its limit asks the reader to withhold acknowledgements (`has_room`), so that prefetch stops the broker; it asks
    again in each turn. The inbox is over its limits by what was prefetched, and by no more. Callable from any thread.
    ``limits`` names the lanes that have one; the others are bounded by prefetch.
    """

    def __init__(self, limits: Mapping[str, LaneLimit]) -> None:
        self._lock = Lock()
        self._lanes: dict[str, deque[Arrival]] = {lane: deque() for lane in ARRIVAL_LANES}
        self._size_bytes = dict.fromkeys(ARRIVAL_LANES, 0)
        self._limits = dict(limits)

    def put(self, arrivals: Iterable[Arrival]) -> None:
        """Add arrivals."""
        with self._lock:
            for arrival in arrivals:
                self._lanes[arrival.lane].append(arrival)
                self._size_bytes[arrival.lane] += len(arrival.body)

    def take(self, limit: int) -> list[Arrival]:
        """Up to ``limit`` arrivals, in the order of the lanes."""
        taken: list[Arrival] = []
        with self._lock:
            for name, lane in self._lanes.items():
                while lane and len(taken) < limit:
                    arrival = lane.popleft()
                    self._size_bytes[name] -= len(arrival.body)
                    taken.append(arrival)
        return taken

    def __len__(self) -> int:
        """How many arrivals wait."""
        return sum(map(len, self._lanes.values()))

    def has_room(self, lane: str) -> bool:
        """Whether what arrived in the lane may be acknowledged."""
        limit = self._limits.get(lane)
        return limit is None or (len(self._lanes[lane]) < limit.messages and self._size_bytes[lane] < limit.size_bytes)

    def drop_clients_before(self, generation: int) -> None:
        """Drop messages of apps that came through older connections: the broker delivers them again."""
        with self._lock:
            kept = [a for a in self._lanes[CLIENT_LANE] if a.tag.generation >= generation]
            self._lanes[CLIENT_LANE] = deque(kept)
            self._size_bytes[CLIENT_LANE] = sum(len(arrival.body) for arrival in kept)


class _Lane:
    """One lane; the outbox holds the lock."""

    __slots__ = ("limit", "size_bytes", "waiting")

    def __init__(self, limit: LaneLimit) -> None:
        self.limit = limit
        self.waiting: deque[Publication] = deque()
        self.size_bytes = 0

    def put(self, publication: Publication) -> int:
        self.waiting.append(publication)
        self.size_bytes += len(publication.body)
        dropped = 0
        while self._is_over() and len(self.waiting) > 1:
            self.pop()
            dropped += 1
        return dropped

    def pop(self) -> Publication:
        publication = self.waiting.popleft()
        self.size_bytes -= len(publication.body)
        return publication

    def put_first(self, publication: Publication) -> None:
        self.waiting.appendleft(publication)
        self.size_bytes += len(publication.body)

    def _is_over(self) -> bool:
        return len(self.waiting) > self.limit.messages or self.size_bytes > self.limit.size_bytes


class Outbox:
    """What waits to be published: one bounded lane for each kind of traffic, the protocol's small messages first.

        loop ── put ──> [sync][reply][data] ── take ──> writer: plain channel
                        [firm][bulk]        ── take ──> writer: confirming channel
                        [tx]                ── take ──> writer: channels of transactions

    Invariants: `put` never blocks; a full lane drops its oldest publication, and says so, because what is newest is worth
    most to a protocol that repeats itself; the order within a lane is kept. Callable from any thread.
    ``limits`` has one entry for each of `PUBLICATION_LANES`.
    """

    def __init__(self, limits: Mapping[str, LaneLimit]) -> None:
        self._lock = Lock()
        self._lanes = {lane: _Lane(limits[lane]) for lane in PUBLICATION_LANES}
        self._count = 0

    def put(self, publications: Sequence[Publication]) -> int:
        """Add publications at the ends of their lanes; return how many older ones were dropped."""
        with self._lock:
            dropped = sum([self._lanes[publication.lane].put(publication) for publication in publications])
            self._count += len(publications) - dropped
            return dropped

    def put_back(self, publications: Sequence[Publication]) -> None:
        """Return publications to the heads of their lanes, in their order; used for what must be repeated."""
        with self._lock:
            for publication in reversed(publications):
                self._lanes[publication.lane].put_first(publication)
            self._count += len(publications)

    def take(self, lanes: Iterable[str], most_messages: int, most_bytes: int) -> list[Publication]:
        """Remove publications of these lanes, one lane after the other; at least one if the limits are above zero."""
        taken: list[Publication] = []
        with self._lock:
            for name in lanes:
                lane = self._lanes[name]
                while lane.waiting and len(taken) < most_messages and most_bytes > 0:
                    taken.append(lane.pop())
                    most_bytes -= len(taken[-1].body)
            self._count -= len(taken)
        return taken

    def has_any(self, lanes: Iterable[str]) -> bool:
        """Whether something waits in one of these lanes."""
        return any(self._lanes[name].waiting for name in lanes)

    def drop_older(self, lane: str, than_s: float) -> int:
        """Drop what was queued in a lane before the monotonic time ``than_s``; return how many."""
        dropped = 0
        with self._lock:
            waiting = self._lanes[lane].waiting
            while waiting and waiting[0].queued_s < than_s:
                self._lanes[lane].pop()
                dropped += 1
            self._count -= dropped
        return dropped

    def __len__(self) -> int:
        """How many publications wait."""
        return self._count


class Unconfirmed:
    """The window of a publishing channel: what was published and not confirmed yet.

    RabbitMQ numbers the publications of a confirming channel from 1 and answers with ack or nack of one number, or of all
    numbers up to one. An unroutable message is returned before it is confirmed.

    Invariants: the window is bounded by messages and by bytes; it lets one message through until the first confirmation
    has come, because a broker that is out of memory says so only in answer to a publication; it belongs to one thread, and is made
    anew with its channel.
    """

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


class Unsettled:
    """Delivery tags of messages of apps, from delivery until they are settled: as few acknowledgements as possible.

    AMQP can acknowledge one delivery, or all up to one. Apps' messages are settled in groups, mostly in the order in
    which they came, but a slow read may hold one back; it must not hold back the others, or prefetch would stop the node.

    >>> tags = Unsettled()
    >>> for tag in (1, 2, 3, 4, 5):
    ...     tags.deliver(tag)
    >>> tags.settle([1, 2, 4])
    [(2, True), (4, False)]
    >>> tags.settle([3])
    [(3, True)]
    >>> tags.settle([3])
    []

    Invariants: a tag is acknowledged once, also when it is settled twice; a tag that was never delivered is ignored.

    Of one channel; made anew with it, used by one thread.
    """

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        """Delivered tags, ascending, from the oldest that is not settled on."""
        self._open: set[int] = set()

    def __len__(self) -> int:
        """How many are not settled."""
        return len(self._open)

    def deliver(self, tag: int) -> None:
        """Note a delivery; tags ascend."""
        self._order.append(tag)
        self._open.add(tag)

    def settle(self, tags: Iterable[int]) -> list[tuple[int, bool]]:
        """Settle tags; return the acknowledgements to send, as (tag, multiple)."""
        settled = self._open.intersection(tags)
        self._open -= settled
        up_to = 0
        while self._order and self._order[0] not in self._open:
            tag = self._order.popleft()
            if tag in settled:
                settled.discard(tag)
                up_to = tag
        acknowledgements = [(up_to, True)] if up_to else []
        return acknowledgements + [(tag, False) for tag in sorted(settled)]
