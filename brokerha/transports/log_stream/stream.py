"""Publishes the log of a master for followers outside: a thread and a connection of its own, fed from the journal.

    journal ── batches ──> LogSession ── "<node> master log" ──> stream brokerha.<node>.log, exchange brokerha.changes

The stream is its own bookmark: after every connect, the last message in it says where to go on; when there is none, or
one of another journal, everything that the journal holds is published. Changes go out before the log message that
covers them, so a crash in between repeats them and never skips one.

Nothing here can hold up the master: the loop says at most "there is more", and the thread reads the journal, which any
thread may. No broker, a slow broker or a full one cost the master nothing; the journal keeps what is to be published.
"""

from __future__ import annotations

import time

from kombu import Connection

from brokerha.model.ids import Lsn, NodeId
from brokerha.ports.log_stream import CommittedLog
from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes.parcels import Counters
from brokerha.transports.link import LinkState
from brokerha.transports.log_stream.session import LogSession, News
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.identity import Identity
from brokerha.transports.rabbitmq.kept_connection import ConnectionThread, KeptConnection
from brokerha.transports.topology import connection_name

_LOG = "log"


class LogStream:
    """Fulfils `ports.LogPublisher` for ``amqp://`` and ``amqps://``."""

    def __init__(
        self, url: str, cluster: str, node: NodeId, committed: CommittedLog, config: TransportConfig | None = None
    ) -> None:
        """Raises ConfigurationError for a URL that cannot be meant."""
        self._cluster = cluster
        self._node = node
        self._committed = committed
        self._config = config or TransportConfig()
        self._news = News()
        self._state = LinkState((_LOG,))
        self._counters = Counters()
        self._is_started = False
        identity, addresses = (
            Identity(connection_name(node, "master", _LOG), "master", node, cluster),
            parse_addresses(url),
        )
        shared = (self._state, self._config, self._counters)
        self._thread = ConnectionThread(
            identity.name, lambda wake: KeptConnection(identity, _LOG, addresses, self._session, wake, *shared)
        )

    def start(self) -> None:
        """Start the thread."""
        self._is_started = True
        self._thread.start()

    def note(self, shown_lsn: Lsn) -> None:
        """Wake the thread if it sleeps and there is something new that may be published."""
        news = self._news
        # After a split there is less than before: that is something new as well.
        has_less, news.shown = shown_lsn < news.shown, shown_lsn
        if news.is_asleep and (shown_lsn > news.published or has_less):
            news.is_asleep = False
            self._thread.waker.wake()

    def published_lsn(self) -> Lsn:
        """Up to where everything is confirmed."""
        return self._news.published

    def state(self) -> tuple[str, str]:
        """State word and reason."""
        return self._state.read()

    def counters(self) -> dict[str, int]:
        """Monotone counts."""
        return self._counters.read()

    def close(self, timeout_s: float) -> None:
        """End the thread; nothing is lost by ending it anywhere."""
        if self._is_started:
            self._is_started = False
            self._thread.ask_to_end(time.monotonic() + timeout_s)
            self._thread.join(timeout_s)

    def _session(self, connection: Connection) -> LogSession:
        return LogSession(
            connection,
            self._node,
            self._cluster,
            self._committed,
            self._news,
            self._state,
            self._config,
            self._counters,
        )
