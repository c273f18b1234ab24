"""What travels between the port and the wire: a publication on its way out, an arrival on its way in.

Both are bytes with a label, before encoding ends and after decoding begins: the threads that talk to a broker move
them and look at nothing but the label.

    Outgoing, ClientReply, … ─ kombu_transport.py ─> Publication ─ outbox ─> broker
    broker ─ inbox ─> Arrival ─ kombu_transport.py ─> Envelope, ClientMessage

A **lane** is a kind of traffic with its own limit; lanes are listed in the order in which they are served, so that the
small messages of the protocol never wait for bulk.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

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
