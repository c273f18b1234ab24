"""A message broker inside this process: exchanges, queues and bindings of one embedded cluster.

It has only the functions of RabbitMQ that brokerha needs: direct, fanout and default exchanges; bounded queues that drop their
oldest message or refuse a new one; redelivery in order when a reader is gone; a signal to readers when a queue is deleted. It keeps
nothing on disk and runs no thread: a publisher rings the bells of the connections that read the queue, and a reader waits for its
bell.

    publish("brokerha.sync", "m2", message) ──> queue brokerha.m2.sync ──> bell of m2's connection

Each cluster name has its own broker (`enter`), which ends when the last connection has left (`leave`): two embedded clusters in one
process are separate.

Invariants: every action holds the broker's one lock, which is never held during a wait or a callback. A message is in one queue, or
with one reader, or gone. Ages (x-message-ttl) are ignored: in an embedded cluster no node is away while its messages exceed the
limits of the queue. A queue without a reader for its time (x-expires) is removed when the next queue is declared, so that they do
not pile up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from brokerha.model.errors import ConfigurationError
from brokerha.model.invariants import invariant
from brokerha.transports.topology import CLUSTER_EXCHANGE, DEFAULT_EXCHANGE, Topology, foreign_problem

_UNLIMITED = 1 << 62

Bell = threading.Condition
"""Rung when there is possibly something to read; made on the broker's lock."""


class LocalMessage(NamedTuple):
    """A message in a queue."""

    number: int
    """Place among all messages of the broker; returned messages keep this order."""
    body: bytes
    properties: dict[str, Any]
    exchange: str
    routing_key: str
    redelivered: bool = False


class Published(NamedTuple):
    """Result of a publication, in numbers of queues and of messages."""

    routed: int
    refused: int
    """Full queues that refuse (x-overflow: reject-publish)."""
    dropped: int
    """Older messages that were dropped (x-overflow: drop-head)."""


class LocalQueue:
    """A bounded queue; its broker holds the lock around every call."""

    def __init__(self, name: str, arguments: Mapping[str, Any], *, auto_delete: bool = False) -> None:
        self.name = name
        self.auto_delete = auto_delete
        """The queue is removed with its last reader, once it had one."""
        self.ready: deque[LocalMessage] = deque()
        self.bells: list[Bell] = []
        self._size_bytes = 0
        self._most_messages = int(arguments.get("x-max-length", _UNLIMITED))
        self._most_bytes = int(arguments.get("x-max-length-bytes", _UNLIMITED))
        self._refuses = arguments.get("x-overflow", "drop-head") == "reject-publish"
        self.expires_s = int(arguments["x-expires"]) / 1000 if "x-expires" in arguments else None
        self.unused_since_s = 0.0
        """Counts while it has no reader; monotonic."""

    def put(self, message: LocalMessage) -> int | None:
        """Add a message; return the number of older ones dropped for it, or None when it was refused."""
        if self._refuses and self._is_over(1, len(message.body)):
            return None
        self.ready.append(message)
        self._size_bytes += len(message.body)
        dropped = 0
        while self._is_over(0, 0) and len(self.ready) > 1:
            self._size_bytes -= len(self.ready.popleft().body)
            dropped += 1
        for bell in self.bells:
            bell.notify_all()
        return dropped

    def take(self) -> LocalMessage | None:
        """Remove and return the oldest message."""
        if not self.ready:
            return None
        message = self.ready.popleft()
        self._size_bytes -= len(message.body)
        return message

    def give_back(self, messages: Iterable[LocalMessage]) -> None:
        """Return taken messages to their places; the limit does not apply to them."""
        returned = [message._replace(redelivered=True) for message in messages]
        self._size_bytes += sum(len(message.body) for message in returned)
        self.ready = deque(sorted([*returned, *self.ready], key=lambda message: message.number))
        for bell in self.bells:
            bell.notify_all()

    def _is_over(self, more_messages: int, more_bytes: int) -> bool:
        return len(self.ready) + more_messages > self._most_messages or self._size_bytes + more_bytes > self._most_bytes


class LocalBroker:
    """The exchanges and queues of one namespace; any thread can use it."""

    def __init__(self, name: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._monotonic_s = monotonic_s
        self._expiring: set[str] = set()
        """Queues with a time to expire."""
        self.lock = threading.RLock()
        self.connections = 0
        self._published = 0
        self._kinds: dict[str, str] = {}
        self._cluster = ""
        """Name of the owning cluster, from the argument of its exchange."""
        self._routes: dict[tuple[str, str], list[str]] = {}
        """Queue names by (exchange, key); a fanout exchange has the one key ``""``."""
        self._queues: dict[str, LocalQueue] = {}

    def declare(self, topology: Topology) -> None:
        """Make missing exchanges, queues and bindings. Raises ConfigurationError when the broker is another cluster's."""
        for exchange in topology.exchanges:
            if exchange.name == CLUSTER_EXCHANGE:
                self._belong_to(exchange.arguments["alternate-exchange"])
            self.declare_exchange(exchange.name, exchange.kind)
        for row in topology.queues:
            self.declare_queue(row.name, row.arguments)
            if row.exchange != DEFAULT_EXCHANGE:
                self.bind(row.name, row.exchange, row.key)

    def _belong_to(self, cluster: str) -> None:
        with self.lock:
            self._cluster = self._cluster or cluster
            if self._cluster != cluster:
                problem = foreign_problem(f"'{cluster}' '{self._cluster}'", f"embedded://{self.name}")
                raise ConfigurationError(f"{problem}: write another name after embedded://")

    def declare_exchange(self, name: str, kind: str) -> None:
        """Make an exchange, unless it exists."""
        with self.lock:
            known = self._kinds.setdefault(name, kind)
            invariant(known == kind, "an exchange keeps its kind", exchange=name, known=known, asked=kind)

    def declare_queue(self, name: str, arguments: Mapping[str, Any], *, auto_delete: bool = False) -> None:
        """Make a queue, unless it exists; remove expired queues."""
        with self.lock:
            now_s = self._monotonic_s()
            self._expire(now_s)
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = LocalQueue(name, arguments, auto_delete=auto_delete)
                if queue.expires_s is not None:
                    self._expiring.add(name)
            queue.unused_since_s = now_s

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """Make an exchange route a key to a queue. Raises LookupError when either is missing."""
        with self.lock:
            self._queue(queue)
            kind = self._kind(exchange)
            invariant(kind in {"direct", "fanout"}, "in-process exchanges are direct or fanout", kind=kind)
            queues = self._routes.setdefault((exchange, "" if kind == "fanout" else key), [])
            if queue not in queues:
                queues.append(queue)

    def delete_queue(self, name: str) -> None:
        """Remove a queue with its messages and bindings, and ring its readers."""
        with self.lock:
            queue = self._queues.pop(name, None)
            self._expiring.discard(name)
            for queues in self._routes.values():
                if name in queues:
                    queues.remove(name)
            for bell in queue.bells if queue else ():
                bell.notify_all()

    def has_queue(self, name: str) -> bool:
        """Tell whether the queue exists."""
        with self.lock:
            return name in self._queues

    def has_ready(self, name: str) -> bool:
        """Tell whether a reader of the queue has something to do: a message, or the end of the queue."""
        with self.lock:
            queue = self._queues.get(name)
            return queue is None or bool(queue.ready)

    def publish(self, exchange: str, key: str, body: bytes, properties: dict[str, Any]) -> Published:
        """Route a message to its queues. Raises LookupError when the exchange is missing."""
        with self.lock:
            self._published += 1
            message = LocalMessage(self._published, body, properties, exchange, key)
            routed = refused = dropped = 0
            for name in self._route(exchange, key):
                outcome = self._queues[name].put(message)
                if outcome is None:
                    refused += 1
                else:
                    routed += 1
                    dropped += outcome
            return Published(routed, refused, dropped)

    def subscribe(self, name: str, bell: Bell) -> None:
        """Ring this bell whenever the queue gets a message. Raises LookupError when it is missing."""
        with self.lock:
            self._queue(name).bells.append(bell)

    def unsubscribe(self, name: str, bell: Bell) -> None:
        """Undo `subscribe`; harmless when the queue is gone."""
        with self.lock:
            queue = self._queues.get(name)
            if queue is not None and bell in queue.bells:
                queue.bells.remove(bell)
                queue.unused_since_s = self._monotonic_s()
                if queue.auto_delete and not queue.bells:
                    self.delete_queue(name)

    def readers(self, name: str) -> int:
        """Return the number of readers of a queue. Raises LookupError when it is missing."""
        with self.lock:
            return len(self._queue(name).bells)

    def take(self, name: str) -> LocalMessage | None:
        """Take the oldest ready message of a queue, or None."""
        with self.lock:
            queue = self._queues.get(name)
            return queue.take() if queue is not None else None

    def give_back(self, name: str, messages: Iterable[LocalMessage]) -> None:
        """Return taken, unsettled messages; harmless when the queue is gone."""
        with self.lock:
            queue = self._queues.get(name)
            if queue is not None:
                queue.give_back(messages)

    def _expire(self, now_s: float) -> None:
        for name in list(self._expiring):
            queue = self._queues[name]
            if not queue.bells and queue.expires_s is not None and now_s - queue.unused_since_s >= queue.expires_s:
                self.delete_queue(name)

    def _route(self, exchange: str, key: str) -> list[str]:
        if not exchange:
            return [key] if key in self._queues else []
        return self._routes.get((exchange, "" if self._kind(exchange) == "fanout" else key), [])

    def _kind(self, exchange: str) -> str:
        try:
            return self._kinds[exchange]
        except KeyError:
            raise LookupError(f"there is no exchange {exchange!r}") from None

    def _queue(self, name: str) -> LocalQueue:
        try:
            return self._queues[name]
        except KeyError:
            raise LookupError(f"there is no queue {name!r}") from None


_namespaces: dict[str, LocalBroker] = {}
_namespaces_lock = threading.Lock()


def enter(name: str) -> LocalBroker:
    """Return the broker of a namespace, made at the first call; each call needs one `leave`."""
    with _namespaces_lock:
        broker = _namespaces.setdefault(name, LocalBroker(name))
        broker.connections += 1
        return broker


def leave(broker: LocalBroker) -> None:
    """Release a broker; its queues end with the last release."""
    with _namespaces_lock:
        broker.connections -= 1
        if broker.connections == 0:
            del _namespaces[broker.name]
