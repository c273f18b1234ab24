"""The link to RabbitMQ: a reader thread and a writer thread, each keeping a connection of its own.

Two connections, because a broker that is short of memory stops reading from whoever publishes, and must not thereby
stop delivering to it; two threads, because py-amqp's connections each belong to one.

    loop ── outbox ──> "<node> <role> out" ──> broker ──> "<node> <role> in" ── inbox ──> loop
    loop ── settled ─────────────────────────────────────────────^
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from functools import partial

from kombu import Connection

from brokerha.model.ids import NodeId
from brokerha.transports.addresses import Address
from brokerha.transports.config import TransportConfig
from brokerha.transports.connection_thread import ConnectionThread
from brokerha.transports.identity import Identity
from brokerha.transports.inbox import Inbox
from brokerha.transports.link import LinkState
from brokerha.transports.outbox import Outbox
from brokerha.transports.parcels import (
    BULK_LANE,
    DATA_LANE,
    FIRM_LANE,
    REPLY_LANE,
    SYNC_LANE,
    TX_LANE,
    Arrival,
    ClientTag,
    Counters,
    Publication,
)
from brokerha.transports.reader import ReaderSession
from brokerha.transports.reader_wishes import Doors, Followed, Settled
from brokerha.transports.topology import MASTER_ROLE, connection_name, topology_of
from brokerha.transports.writer import WriterSession

_IN = "in"
_OUT = "out"


class ThreadedLink:
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
        """Start both threads; ``cluster`` shows in the dashboard. Waits for nothing."""
        self._node = node
        self._topology = topology_of(node, role, master)
        self._config = config
        self._counters = counters
        self._generations = itertools.count(1)
        self._is_closed = False
        self._settled = Settled()
        self._doors = Doors(is_serving=role == MASTER_ROLE)
        self._followed = Followed(config.followed_tx_queues)
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
        shared = (self._state, config, counters)
        self._reader = ConnectionThread(of_in, _IN, addresses, self._read_from, lambda: False, *shared)
        self._writer = ConnectionThread(of_out, _OUT, addresses, self._write_to, self._has_waiting, *shared)
        limits = {SYNC_LANE: config.inbox_sync, TX_LANE: config.inbox_tx, DATA_LANE: config.inbox_data}
        self._inbox = Inbox(limits, on_room=self._reader.waker.wake)
        self._reader.start()
        self._writer.start()

    def publish(self, publications: Sequence[Publication]) -> None:
        """Queue for the writer."""
        if publications:
            dropped = self._outbox.put(publications)
            if dropped:
                self._counters.add("dropped", dropped)
            self._writer.waker.wake()

    def take(self, limit: int, timeout_s: float) -> list[Arrival]:
        """What the reader has put into the inbox."""
        return self._inbox.take(limit, timeout_s)

    def wake(self) -> None:
        """Make a waiting `take` return at once."""
        self._inbox.wake()

    def settle(self, tags: Iterable[ClientTag]) -> None:
        """Pass on to the reader, which owns the channel."""
        self._settled.add(tags)
        self._reader.waker.wake()

    def serve_shared(self, is_open: bool) -> None:
        """Tell the reader, which owns the channel."""
        self._doors.is_sharing = is_open
        self._reader.waker.wake()

    def serve_clients(self, is_open: bool) -> None:
        """Tell the reader, which owns the channel."""
        self._doors.serve(is_open)
        self._reader.waker.wake()

    def follow(self, queue: str) -> None:
        """Tell the reader, which owns the channels."""
        if not self._followed.follow(queue):
            self._counters.add("tx_queues_too_many")
        self._reader.waker.wake()

    def leave(self, queue: str) -> None:
        """Tell the reader, which owns the channels."""
        self._followed.leave(queue)
        self._reader.waker.wake()

    def state(self) -> tuple[str, str]:
        """State word and reason."""
        return self._state.read()

    def waiting(self) -> int:
        """Length of the outbox."""
        return len(self._outbox)

    def close(self, timeout_s: float) -> None:
        """Let the writer finish, then both say goodbye."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline_s = time.monotonic() + timeout_s
        self._writer.ask_to_end(deadline_s)
        self._writer.join(timeout_s)
        # After the writer: its last confirmations settle messages that the reader acknowledges.
        self._reader.ask_to_end(time.monotonic())
        self._reader.join(max(1.0, deadline_s - time.monotonic()))

    def _read_from(self, connection: Connection) -> ReaderSession:
        return ReaderSession(
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
        )

    def _has_waiting(self) -> bool:
        return len(self._outbox) > 0

    def _write_to(self, connection: Connection) -> WriterSession:
        return WriterSession(
            connection, self._topology, self._outbox, self._state, self.settle, self._config, self._counters
        )
