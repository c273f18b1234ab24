"""The link to RabbitMQ: two connections that the node's loop serves itself, while it waits for arrivals and after it has sent.

There are two connections because a broker without memory stops reading from a publisher, and must still deliver to it. The reading
one is opened first: a process without an inbox, because another process has it, must not publish either.

    loop ── publish ──> outbox ── "<node> <role> out" ──> broker ──> "<node> <role> in" ── inbox ── take ──> loop

No thread is between a node and its broker: `publish` writes at once, and `take` reads while it waits. Only opening a connection
needs a thread (kept_connection.py). A blocked loop (a slow disk) does not serve its sockets; the broker waits two heartbeats.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from functools import partial

from kombu import Connection

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.ports.transport import Problem
from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes import (
    BULK_LANE,
    DATA_LANE,
    FIRM_LANE,
    REPLY_LANE,
    SYNC_LANE,
    TX_LANE,
    Arrival,
    ClientTag,
    Counters,
    Inbox,
    Outbox,
    Publication,
)
from brokerha.transports.link import LinkState
from brokerha.transports.rabbitmq.addresses import Address
from brokerha.transports.rabbitmq.identity import Identity
from brokerha.transports.rabbitmq.kept_connection import KeptConnection, Waker
from brokerha.transports.rabbitmq.reader import ReaderSession
from brokerha.transports.rabbitmq.reader_wishes import Doors, Followed, Sightings
from brokerha.transports.rabbitmq.writer import WriterSession
from brokerha.transports.topology import MASTER_ROLE, connection_name, topology_of

_IN = "in"
_OUT = "out"


class LoopLink:
    """Fulfils `link.Link` for ``amqp://`` and ``amqps://``."""

    def __init__(
        self,
        addresses: Sequence[Address],
        node: NodeId,
        role: str,
        config: TransportConfig,
        counters: Counters,
        master: NodeId = "",
        cluster: str = "",
    ) -> None:
        """Start to connect, without waiting; the virtual host must be that of ``cluster``."""
        self._node = node
        self._topology = topology_of(node, role, master, config.queue_type, cluster)
        self._config = config
        self._counters = counters
        self._generations = itertools.count(1)
        self.has_other_nodes = len(addresses) > 1
        self._is_closed = self._has_read = self._has_written = False
        self._settled: list[ClientTag] = []
        """Tags of settled messages of apps, for the reading half."""
        self._doors = Doors(is_serving=role == MASTER_ROLE)
        self._followed = Followed(config.followed_tx_queues)
        self._looks: set[NodeId] = set()
        self._sightings = Sightings()
        self._state = LinkState((_IN, _OUT))
        self._outbox = Outbox(
            {
                SYNC_LANE: config.outbox_sync,
                TX_LANE: config.outbox_tx,
                DATA_LANE: config.outbox_data,
                BULK_LANE: config.outbox_bulk,
                REPLY_LANE: config.outbox_replies,
                FIRM_LANE: config.outbox_firm,
            }
        )
        of_in, of_out = (Identity(connection_name(node, role, each), role, node, cluster) for each in (_IN, _OUT))
        self._waker = Waker()
        shared = (self._waker.wake, self._state, config, counters)
        self._reader = KeptConnection(of_in, _IN, addresses, self._read_from, *shared)
        self._writer = KeptConnection(of_out, _OUT, addresses, self._write_to, *shared)
        limits = {SYNC_LANE: config.inbox_sync, TX_LANE: config.inbox_tx, DATA_LANE: config.inbox_data}
        self._inbox = Inbox(limits)
        self._is_woken = False
        self._has_wishes = False
        """Whether there are wishes for the reading half since its last turn."""
        self._has_more = False
        """Whether a socket possibly holds more than was read."""
        self._serve(0.0, time.monotonic())

    def publish(self, publications: Sequence[Publication]) -> None:
        """Write as much as possible now; the rest waits in the outbox."""
        if publications:
            dropped = self._outbox.put(publications)
            if dropped:
                self._counters.add("dropped", dropped)
            self._writer.push(time.monotonic())

    def take(self, limit: int, timeout_s: float) -> list[Arrival]:
        """Return the arrivals, after serving both connections; see the port. Raises ConfigurationError."""
        now_s = time.monotonic()
        deadline_s = now_s + timeout_s
        if self._has_wishes:
            self._has_wishes = False
            self._reader.push(now_s)
        is_awaited = not self._inbox
        while True:
            self._serve(deadline_s if is_awaited and not self._is_woken else now_s, now_s)
            if problem := self._state.foreign:
                raise ConfigurationError(": ".join(problem))
            if (taken := self._inbox.take(limit)) or self._is_woken:
                self._is_woken = False
                return taken
            now_s = time.monotonic()
            if now_s >= deadline_s:
                return []

    def wake(self) -> None:
        """Make a waiting `take` return at once."""
        if not self._is_woken:
            self._is_woken = True
            self._waker.wake()

    def settle(self, tags: Iterable[ClientTag]) -> None:
        """Acknowledge them with the next `take`."""
        self._settled.extend(tags)
        self._has_wishes = True

    def _serve(self, until_s: float, now_s: float) -> None:
        """Wait until a socket is ready, a connection is due, or the timeout; then serve the connections that need it."""
        # The writer first: confirmations settle messages that the reader then acknowledges. But only once this process owns the
        # inbox: a second process under this id must not speak for the node.
        both = (self._writer, self._reader) if self._has_read else (self._reader,)
        watched = [(kept.watched.fileno(), kept.wants_room) for kept in both if kept.watched is not None]
        wait_s = 0.0 if self._has_more else min(until_s, *(kept.due_s for kept in both)) - now_s
        ready = self._waker.wait_for(wait_s, watched)
        now_s = time.monotonic()
        self._has_more = False
        for kept in both:
            if kept.wants_service(now_s, ready):
                self._has_more |= kept.serve(now_s)

    def serve_shared(self, is_open: bool) -> None:
        """Start or stop with the next `take`."""
        self._doors.is_sharing = is_open
        self._has_wishes = True

    def serve_clients(self, is_open: bool) -> None:
        """Start or stop with the next `take`."""
        self._doors.serve(is_open)
        self._has_wishes = True

    def follow(self, queue: str) -> None:
        """Follow the queue with the next `take`."""
        if not self._followed.follow(queue):
            self._counters.add("tx_queues_too_many")
        self._has_wishes = True

    def leave(self, queue: str) -> None:
        """Leave the queue with the next `take`."""
        self._followed.leave(queue)
        self._has_wishes = True

    def look(self, masters: Iterable[NodeId]) -> None:
        """Ask with the next `take`."""
        self._looks.update(masters)
        self._has_wishes = True

    def hear(self, node: NodeId) -> None:
        """Note it with the next `take`."""
        self._sightings.hear(node)
        self._has_wishes = True

    def leave_broker_node(self, directions: Iterable[str]) -> None:
        """Leave at once; unconfirmed messages are repeated as after any lost connection."""
        for direction in directions:
            (self._reader if direction == _IN else self._writer).leave()

    def state(self) -> tuple[str, Problem]:
        """Return the state word and the reason."""
        return self._state.read()

    def waiting(self) -> int:
        """Return the length of the outbox."""
        return len(self._outbox)

    def most_bytes(self) -> int:
        """Return the limit of the broker of the last connection."""
        return self._state.most_bytes

    def close(self, timeout_s: float) -> None:
        """Publish the waiting messages as far as time allows, settle the confirmed ones, and close."""
        if self._is_closed:
            return
        self._is_closed = True
        now_s = time.monotonic()
        deadline_s = now_s + timeout_s
        self._reader.push(now_s)
        while now_s < deadline_s and not self._is_done():
            self._serve(deadline_s, now_s)
            now_s = time.monotonic()
        self._writer.end()
        self._reader.push(now_s)
        self._reader.end()
        self._waker.close()

    def _is_done(self) -> bool:
        if self._writer.watched is None:
            return not len(self._outbox)
        return self._writer.is_idle()

    def _read_from(self, connection: Connection) -> ReaderSession:
        session = ReaderSession(
            connection,
            partial(next, self._generations),
            self._node,
            self._topology,
            self._inbox,
            self._settled,
            self._doors,
            self._followed,
            self._config,
            self._counters,
            self._looks,
            self._sightings,
            is_first=not self._has_read,
        )
        self._has_read = True
        return session

    def _write_to(self, connection: Connection) -> WriterSession:
        session = WriterSession(
            connection,
            self._topology,
            self._outbox,
            self._state,
            self.settle,
            self._config,
            self._counters,
            is_first=not self._has_written,
        )
        self._has_written = True
        return session
