"""Messages that wait between a node and its broker, and their containers.

Publications on their way out and arrivals on their way in are labelled bytes, after encoding and before decoding. The code that
talks to a broker moves them, and reads only the label.

    Outgoing, ClientReply, … ─ kombu_transport.py ─> Publication ─ Outbox ─> broker, until confirmed: Unconfirmed
    broker ─ Inbox ─> Arrival ─ kombu_transport.py ─> Envelope, ClientMessage, until settled: Unsettled

A **lane** is a kind of traffic with its own limit. The lanes are listed in the order of service, so that the protocol's small
messages never wait for bulk.
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
"""Pieces of whole copies: large, requested again when lost, and served last."""
FIRM_LANE = "firm"
"""Rejected messages and changes: repeated until the broker has confirmed them."""
TX_LANE = "tx"
"""Queues of transactions and their messages: on their own channels, because making a queue takes time."""

ABSENCE_LANE = "absence"
"""Not a message: the broker's answer that the inbox of a master is gone; the routing key is the master's id."""

ARRIVAL_LANES = (ABSENCE_LANE, SYNC_LANE, TX_LANE, DATA_LANE, CLIENT_LANE)
PUBLICATION_LANES = (SYNC_LANE, TX_LANE, FIRM_LANE, REPLY_LANE, DATA_LANE, BULK_LANE)
PLAIN_LANES = (SYNC_LANE, REPLY_LANE, DATA_LANE)
"""Published without a confirmation: a node that misses a lost message asks for it again."""


class ClientTag(NamedTuple):
    """Handle of an unsettled message of an app."""

    generation: int
    """Number of its connection; on another connection the delivery tag has no meaning."""
    delivery_tag: int


class Arrival(NamedTuple):
    """A message delivered to this node."""

    lane: str
    tag: ClientTag
    body: bytes
    properties: dict[str, Any]
    exchange: str
    redelivered: bool
    routing_key: str = ""


@dataclass(slots=True)
class Publication:
    """A message to publish; its label decides the handling of a failure."""

    lane: str
    exchange: str
    routing_key: str
    body: bytes
    properties: dict[str, Any] = field(default_factory=dict)
    settles: ClientTag | None = None
    """Message of an app to settle once this publication is confirmed."""
    queued_s: float = 0.0
    """Monotonic time of queuing."""
    tx_queue: str = ""
    """Queue of the transaction that it belongs to; order is kept among all publications of that queue."""
    opens: bool = False
    """Make that queue; publish nothing."""
    also: tuple[str, ...] = ()
    """Further routing keys of a message between nodes; the broker makes the copies."""


def absence_of(master: str) -> Arrival:
    """Return the arrival for a master whose inbox is gone."""
    return Arrival(ABSENCE_LANE, ClientTag(0, 0), b"", {}, "", False, master)


def arrival_of(raw: Any, lane: str, generation: int) -> Arrival:
    """Label a message from py-amqp."""
    info = raw.delivery_info
    tag = ClientTag(generation, info["delivery_tag"])
    # py-amqp gives an empty str for an empty body.
    key = info.get("routing_key") or ""
    return Arrival(lane, tag, raw.body or b"", raw.properties, info["exchange"], info["redelivered"], key)


class Counters:
    """Monotone counts by name; any thread can use them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Add ``count``."""
        if count:
            with self._lock:
                self._counts[name] += count

    def read(self) -> dict[str, int]:
        """Return a copy of all counts."""
        with self._lock:
            return dict(self._counts)


class Inbox:
    """Arrivals that were not taken yet, in the order of service: sync, transactions, data, apps.

        reader ── put ──> [sync][tx][data][client] ── take ──> loop

    Invariants: for a lane over its limit the reader withholds acknowledgements (`has_room`, asked in each turn), so that the
    prefetch limit stops the broker. The excess over the limits is at most the prefetched messages. Any thread can use it. Lanes
    without an entry in ``limits`` are bounded by prefetch.
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
        """Return up to ``limit`` arrivals, in the order of the lanes."""
        taken: list[Arrival] = []
        with self._lock:
            for name, lane in self._lanes.items():
                while lane and len(taken) < limit:
                    arrival = lane.popleft()
                    self._size_bytes[name] -= len(arrival.body)
                    taken.append(arrival)
        return taken

    def __len__(self) -> int:
        """Return the number of waiting arrivals."""
        return sum(map(len, self._lanes.values()))

    def has_room(self, lane: str) -> bool:
        """Tell whether arrivals of the lane can be acknowledged."""
        limit = self._limits.get(lane)
        return limit is None or (len(self._lanes[lane]) < limit.messages and self._size_bytes[lane] < limit.size_bytes)

    def drop_clients_before(self, generation: int) -> None:
        """Drop messages of apps from older connections: the broker delivers them again."""
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
    """Publications that wait: one bounded lane for each kind of traffic, the protocol's small messages first.

        loop ── put ──> [sync][reply][data] ── take ──> writer: plain channel
                        [firm][bulk]        ── take ──> writer: confirming channel
                        [tx]                ── take ──> writer: channels of transactions

    Invariants: `put` never blocks. A full lane drops its oldest publication, and reports that, because the protocol repeats itself
    and needs the newest most. The order within a lane is kept. Any thread can use it.
    ``limits`` has one entry for each of `PUBLICATION_LANES`.
    """

    def __init__(self, limits: Mapping[str, LaneLimit]) -> None:
        self._lock = Lock()
        self._lanes = {lane: _Lane(limits[lane]) for lane in PUBLICATION_LANES}
        self._count = 0

    def put(self, publications: Sequence[Publication]) -> int:
        """Append publications to their lanes; return the number of older ones dropped."""
        with self._lock:
            dropped = sum([self._lanes[publication.lane].put(publication) for publication in publications])
            self._count += len(publications) - dropped
            return dropped

    def put_back(self, publications: Sequence[Publication]) -> None:
        """Return publications to the heads of their lanes, in order; for publications that must be repeated."""
        with self._lock:
            for publication in reversed(publications):
                self._lanes[publication.lane].put_first(publication)
            self._count += len(publications)

    def take(self, lanes: Iterable[str], most_messages: int, most_bytes: int) -> list[Publication]:
        """Remove and return publications of these lanes, one lane after another; at least one if the limits are above zero."""
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
        """Tell whether a publication waits in one of these lanes."""
        return any(self._lanes[name].waiting for name in lanes)

    def drop_older(self, lane: str, than_s: float) -> int:
        """Drop publications of a lane queued before the monotonic time ``than_s``; return their number."""
        dropped = 0
        with self._lock:
            waiting = self._lanes[lane].waiting
            while waiting and waiting[0].queued_s < than_s:
                self._lanes[lane].pop()
                dropped += 1
            self._count -= dropped
        return dropped

    def __len__(self) -> int:
        """Return the number of waiting publications."""
        return self._count


class Unconfirmed:
    """The window of a publishing channel: published, unconfirmed publications.

    RabbitMQ numbers the publications of a confirming channel from 1. It answers with ack or nack for one number, or for all numbers
    up to one. An unroutable message is returned before it is confirmed.

    Invariants: the window is bounded by messages and by bytes. It allows one message until the first confirmation, because a broker
    without memory reports that only in answer to a publication. It belongs to one thread, and a new channel gets a new one.
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
        """By number, ascending."""
        self.oldest_since_s = 0.0
        """Time when the oldest one was published, or the last one was confirmed."""

    def __len__(self) -> int:
        """Return the number of unconfirmed publications."""
        return len(self._waiting)

    @property
    def size_bytes(self) -> int:
        """Size of the unconfirmed publications."""
        return self._size_bytes

    def room(self) -> tuple[int, int, int]:
        """Return how many messages, bytes, and bytes of bulk can be published now."""
        most = self._most_messages if self._proven else 1
        return most - len(self._waiting), self._most_bytes - self._size_bytes, self._most_bulk_bytes - self._bulk_bytes

    def add(self, publication: Publication, now_s: float) -> None:
        """Note a publication on the channel."""
        if not self._waiting:
            self.oldest_since_s = now_s
        self._last_number += 1
        self._waiting[self._last_number] = publication
        self._size_bytes += len(publication.body)
        if publication.lane == BULK_LANE:
            self._bulk_bytes += len(publication.body)

    def confirm(self, number: int, *, multiple: bool, now_s: float) -> list[Publication]:
        """Remove and return the publications that the broker answered."""
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
        """Return the unconfirmed publications, oldest first."""
        return list(self._waiting.values())


class Unsettled:
    """Delivery tags of messages of apps, from delivery until they are settled, with as few acknowledgements as possible.

    AMQP can acknowledge one delivery, or all up to one. Apps' messages are settled in groups, mostly in order, but a slow read can
    delay one. It must not delay the others, or the prefetch limit would stop the node.

    >>> tags = Unsettled()
    >>> for tag in (1, 2, 3, 4, 5):
    ...     tags.deliver(tag)
    >>> tags.settle([1, 2, 4])
    [(2, True), (4, False)]
    >>> tags.settle([3])
    [(3, True)]
    >>> tags.settle([3])
    []

    Invariants: a tag is acknowledged once, even when it is settled twice; an unknown tag is ignored.

    Belongs to one channel and one thread; a new channel gets a new one.
    """

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        """Delivered tags, ascending, from the oldest unsettled one on."""
        self._open: set[int] = set()

    def __len__(self) -> int:
        """Return the number of unsettled messages."""
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
