"""The link of an embedded cluster, without thread or socket: each call does its work at once.

Publishing puts a message directly into the queue of the other node, with the limits of that queue; taking sleeps on the bell of
this node. So nine nodes in one process have nine loops and no other thread, and none wakes up without a reason.

While a lane has messages, later lanes wait: bulk never delays agreement. Messages of nodes are acknowledged when taken, messages of
apps when settled.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.model.wire.tx_queues import TX_QUEUE_PREFIX
from brokerha.ports.transport import Problem
from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import LANE_OF_KIND
from brokerha.transports.in_process import local_broker
from brokerha.transports.in_process.local_broker import LocalMessage
from brokerha.transports.lanes import (
    CLIENT_LANE,
    DATA_LANE,
    SYNC_LANE,
    TX_LANE,
    Arrival,
    ClientTag,
    Counters,
    Publication,
    absence_of,
)
from brokerha.transports.link import CONNECTED
from brokerha.transports.topology import DEFAULT_EXCHANGE, MASTER_ROLE, QueueRow, sync_queue, topology_of, tx_queue_row


class DirectLink:
    """Fulfils `link.Link` for ``embedded://``."""

    def __init__(
        self, url: str, node: NodeId, role: str, config: TransportConfig, counters: Counters, master: NodeId = "", cluster: str = ""
    ) -> None:
        """Raises ConfigurationError when the broker of this name is another cluster's."""
        self._counters = counters
        self._config = config
        self._topology = topology_of(node, role, master, cluster=cluster)
        self._is_sharing = True
        self._is_serving = role == MASTER_ROLE
        self._is_closed = self._is_woken = False
        self._generation = 1
        """Generation of messages of apps: a new one begins when the unsettled ones were given back."""
        self._last_tag = 0
        self._unsettled: dict[int, tuple[str, LocalMessage]] = {}
        """Messages of apps with their queues, by delivery tag."""
        self._arrived: list[Arrival] = []
        self._read: dict[str, dict[str, None]] = {lane: {} for lane in (SYNC_LANE, DATA_LANE, TX_LANE, CLIENT_LANE)}
        """Queues that are read, by lane, in the order of service."""
        self._broker = local_broker.enter(urlsplit(url).hostname or "")
        self._bell = threading.Condition(self._broker.lock)
        try:
            self._subscribe()
        except ConfigurationError:
            local_broker.leave(self._broker)
            raise

    def publish(self, publications: Sequence[Publication]) -> None:
        """Put each publication into its queue; count those without a queue as returned."""
        for publication in publications:
            try:
                self._publish(publication)
            except LookupError:
                # The exchange was deleted: declare everything again, as after a deleted queue.
                self._broker.declare(self._topology)
                self._publish(publication)
            if publication.settles is not None:
                self.settle([publication.settles])
        self._counters.add("sent", sum(not publication.opens for publication in publications))

    def take(self, limit: int, timeout_s: float) -> list[Arrival]:
        """Return up to ``limit`` arrivals; wait on the bell."""
        deadline_s = time.monotonic() + timeout_s
        while not self._arrived and (self._deliver() or self._wait(deadline_s)):
            pass
        while len(self._arrived) < limit and self._deliver():
            pass
        taken, self._arrived = self._arrived, []
        return taken

    def wake(self) -> None:
        """Ring the bell."""
        with self._bell:
            self._is_woken = True
            self._bell.notify_all()

    def settle(self, tags: Iterable[ClientTag]) -> None:
        """Acknowledge messages of apps."""
        for tag in tags:
            if tag.generation == self._generation:
                self._unsettled.pop(tag.delivery_tag, None)

    def serve_shared(self, is_open: bool) -> None:
        """Start or stop reading the queue that all masters share."""
        self._is_sharing = is_open
        for row in self._topology.queues_of_apps():
            if row.is_shared_writes:
                self._stop(CLIENT_LANE, row.name)
                if self._is_wanted(row):
                    self._start(CLIENT_LANE, row.name)

    def serve_clients(self, is_open: bool) -> None:
        """Start reading messages of apps, or give back all unsettled ones."""
        self._is_serving = is_open
        if is_open:
            for row in filter(self._is_wanted, self._topology.queues_of_apps()):
                self._start(CLIENT_LANE, row.name)
            return
        self._stop_all(CLIENT_LANE)
        self._give_back()
        self._arrived = [arrival for arrival in self._arrived if arrival.lane != CLIENT_LANE]
        self._generation += 1

    def look(self, masters: Iterable[NodeId]) -> None:
        """Report the inboxes of masters that have no reader; a missing inbox gives no report."""
        for master in masters:
            with suppress(LookupError):
                if not self._broker.readers(sync_queue(master)):
                    self._arrived.append(absence_of(master))

    has_other_nodes = False

    def leave_broker_node(self, directions: Iterable[str]) -> None:
        """Do nothing: there is only one."""

    def hear(self, node: NodeId) -> None:
        """Do nothing: every node is at this broker."""

    def follow(self, queue: str) -> None:
        """Read the queue of a transaction; declare it again when it is missing."""
        followed = self._read[TX_LANE]
        if queue in followed:
            return
        if len(followed) >= self._config.followed_tx_queues:
            self._counters.add("tx_queues_too_many")
            return
        self._declare_tx(queue)
        self._start(TX_LANE, queue)

    def leave(self, queue: str) -> None:
        """Stop reading the queue of a transaction."""
        self._stop(TX_LANE, queue)

    def state(self) -> tuple[str, Problem]:
        """Return *connected*: nothing can be lost here."""
        return CONNECTED, Problem("", "")

    def waiting(self) -> int:
        """Return 0: nothing waits here."""
        return 0

    def most_bytes(self) -> int:
        """Return more than any message has."""
        return sys.maxsize

    def close(self, timeout_s: float) -> None:  # The port's signature; nothing takes time here.
        """Give back the unsettled messages, and leave. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            for lane in self._read:
                self._stop_all(lane)
            self._give_back()
            local_broker.leave(self._broker)

    def has_ready(self) -> bool:
        """Tell whether `take` would find something now."""
        return any(self._broker.has_ready(queue) for lane in self._open_lanes() for queue in self._read[lane])

    # ------------------------------------------------------------------------- reading

    def _open_lanes(self) -> list[str]:
        """Return the lanes that take more: messages of apps only up to their prefetch."""
        is_full = len(self._unsettled) >= self._config.prefetch_clients
        return [lane for lane in self._read if not (is_full and lane == CLIENT_LANE)]

    def _wait(self, deadline_s: float) -> bool:
        """Sleep until there is possibly a message; return False when woken or timed out."""
        with self._bell:
            if self._is_woken:
                self._is_woken = False
                return False
            if not self.has_ready():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._bell.wait(left_s)
            return True

    def _deliver(self) -> bool:
        """Take one message, or note that a queue is gone; return False for neither."""
        for lane in self._open_lanes():
            for queue in self._read[lane]:
                message = self._broker.take(queue)
                if message is not None:
                    self._arrive(lane, queue, message)
                    return True
                if not self._broker.has_queue(queue):
                    self._on_gone(lane, queue)
                    return True
        return False

    def _arrive(self, lane: str, queue: str, message: LocalMessage) -> None:
        self._last_tag += 1
        if lane == CLIENT_LANE:
            self._unsettled[self._last_tag] = queue, message
        tag = ClientTag(self._generation, self._last_tag)
        _, body, properties, exchange, key, redelivered = message
        self._arrived.append(Arrival(lane, tag, body, properties, exchange, redelivered, key))

    def _on_gone(self, lane: str, queue: str) -> None:
        """Leave a deleted queue of a transaction; declare any other again."""
        self._stop(lane, queue)
        if lane == TX_LANE:
            self._counters.add("tx_queues_gone")
        else:
            self._counters.add("cancelled")
            self._subscribe()

    def _subscribe(self) -> None:
        """Declare everything and read the wanted queues."""
        self._broker.declare(self._topology)
        for row in filter(self._is_wanted, self._topology.queues_to_consume()):
            self._start(LANE_OF_KIND[row.kind], row.name)

    def _is_wanted(self, row: QueueRow) -> bool:
        if not row.is_of_apps:
            return True
        return self._is_serving and (self._is_sharing or not row.is_shared_writes)

    def _start(self, lane: str, queue: str) -> None:
        if queue not in self._read[lane]:
            self._broker.subscribe(queue, self._bell)
            self._read[lane][queue] = None

    def _stop(self, lane: str, queue: str) -> None:
        """Stop reading a queue; its messages stay unsettled."""
        if queue in self._read[lane]:
            del self._read[lane][queue]
            self._broker.unsubscribe(queue, self._bell)

    def _stop_all(self, lane: str) -> None:
        for queue in list(self._read[lane]):
            self._stop(lane, queue)

    def _give_back(self) -> None:
        for queue in {queue for queue, _ in self._unsettled.values()}:
            self._broker.give_back(queue, [message for of, message in self._unsettled.values() if of == queue])
        self._unsettled.clear()

    # ---------------------------------------------------------------------- publishing

    def _publish(self, publication: Publication) -> None:
        if publication.opens:
            self._declare_tx(publication.tx_queue)
            self._counters.add("tx_queues_opened")
            return
        exchange = publication.exchange
        for key in (publication.routing_key, *publication.also):
            routed, refused, dropped = self._broker.publish(exchange, key, publication.body, publication.properties)
            if refused:
                self._counters.add("nacked")
            elif not routed and exchange == DEFAULT_EXCHANGE:
                self._counters.add("returned" if key.startswith(TX_QUEUE_PREFIX) else "returned_replies")
            self._counters.add("dropped", dropped)

    def _declare_tx(self, queue: str) -> None:
        row = tx_queue_row(queue, self._config.tx_queue_expires_ms)
        self._broker.declare_queue(row.name, row.arguments, auto_delete=True)
