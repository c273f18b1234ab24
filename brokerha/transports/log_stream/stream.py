"""Publishes the log of a master for followers outside, in its own thread and connection, from the journal.

    journal ── batches ──> LogSession ── "<node> master log" ──> stream brokerha.<node>.log, exchange brokerha.changes

The stream is its own bookmark: after every connect, its last message tells the next LSN. When there is none, or when it is of
another journal, all entries of the journal are published. Changes are published before the log message that covers them, so a crash
in between repeats them and never skips one.

Nothing here can block the master: the loop only signals new entries, and the thread reads the journal, which any thread can do. A
missing, slow or full broker costs the master nothing; the journal keeps the unpublished entries.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import structlog
from amqp.exceptions import NotFound, RecoverableConnectionError
from kombu import Connection

from brokerha.model.errors import JournalError
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.log_lineages import Rewinds, agreed, newest
from brokerha.ports.log_stream import CommittedLog, LogBatch
from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import declare
from brokerha.transports.lanes import Counters
from brokerha.transports.link import LinkState
from brokerha.transports.log_stream.messages import Post, groups_of, next_lsn, void_after, went_back
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.identity import Identity
from brokerha.transports.rabbitmq.kept_connection import ConnectionThread, KeptConnection
from brokerha.transports.rabbitmq.properties import Message
from brokerha.transports.topology import Topology, connection_name, consumer_tag, exchanges_of, log_stream, log_stream_row

log = structlog.get_logger(__name__)

GAP_S = 0.05
"""Least time between two batches: a message costs about the same with one write as with a hundred."""
BACKLOG_GAP_S = 0.01
"""The same during a backlog, so that filling a stream leaves the processor to the writes."""
REFUSED_PAUSE_S = 1.0
JOURNAL_PAUSE_S = 10.0
LAST_WITHIN_S = 5.0
"""Longest wait for the last message of a stream; after that the stream counts as empty."""
QUIET_S = 0.2
"""Wait for a next message: the last chunk can hold more than one."""
_FAR_S = 3600.0
_LOG = "log"


class News:
    """State shared by loop and publishing thread; plain assignments, so neither waits for the other."""

    def __init__(self) -> None:
        self.published: Lsn = 0
        self.shown: Lsn = 0
        """Highest LSN whose result can be published."""
        self.is_asleep = False
        """Whether the thread waits to be woken, after it has published everything."""


class LogSession:
    """One connection's publishing of the log; fulfils `kept_connection.Session`. It finds the next LSN, then publishes batch after
    batch, each step confirmed.

        declare ─> last message in the stream ─> batch ─> changes, confirmed ─> log message, confirmed ─> batch …

    Invariants: one group is under way at a time (a log message, or up to 100 changes), and the next begins when all of it is
    confirmed. So neither a refusal nor a lost connection leaves a gap or changes the order. At most one batch is published in 50
    ms, unless a batch was full.

    When the log goes back after a split, followers are first told which part is void, in the stream and beside it.

    Must never: declare the stream in the middle of a connection. A deleted stream would come back empty, and continue with a gap.
    Instead it is checked every few seconds, and the next connection fills it again.
    """

    def __init__(
        self,
        connection: Connection,
        node: NodeId,
        cluster: str,
        committed: CommittedLog,
        news: News,
        state: LinkState,
        config: TransportConfig,
    ) -> None:
        """Declare, and find the next LSN. Raises the errors of py-amqp."""
        self._node = node
        self._cluster = cluster
        self._committed = committed
        self._news = news
        self._state = state
        self._config = config
        self._batch: LogBatch | None = None
        self._groups: deque[list[Post]] = deque()
        """Unconfirmed groups of the batch; the first one is possibly under way."""
        self._on_way: dict[int, Post] = {}
        self._number = 0
        self._sent_s = 0.0
        self._due_s = 0.0
        """Of the next batch."""
        self._again_s = 0.0
        """Earliest next step after a refusal, or an unreadable journal."""
        last = last_headers(connection, node, cluster)
        self._rewinds = committed.rewinds()
        """How often the log has gone back, as far as followers know."""
        self._next = next_lsn(last, committed.journal, committed.first_lsn(), self._rewinds)
        self._tell_void(void_after(last, committed.journal, self._rewinds))
        news.published = self._next - 1
        log.info("log stream goes on", stream=log_stream(node), lsn=self._next, is_new=last is None)
        self._channel: Any = connection.channel()
        self._channel.confirm_select()
        self._channel.events["basic_ack"].add(self._answered)
        self._channel.events["basic_nack"].add(self._on_nack)
        self._channel.events["basic_return"].add(self._on_return)
        self._checks: Any = connection.channel()
        self._check_s = time.monotonic() + config.redeclare_every_ms / 1000

    def turn(self, now_s: float) -> float:
        """Take one step; return when the next one is due. Raises the errors that make the connection useless."""
        if self._state.is_blocked():
            # A blocked broker does not confirm, and reports its end of blocking by itself.
            self._sent_s = now_s
            return now_s + _FAR_S
        if self._on_way:
            deadline_s = self._sent_s + self._config.confirm_timeout_s
            if now_s >= deadline_s:
                raise RecoverableConnectionError("the broker does not confirm")
            return deadline_s
        if now_s >= self._check_s:
            self._checks.queue_declare(queue=log_stream(self._node), passive=True)
            self._check_s = now_s + self._config.redeclare_every_ms / 1000
        due_s = self._again_s if self._groups else max(self._due_s, self._again_s)
        if now_s < due_s:
            return min(due_s, self._check_s)
        if not self._groups and not self._load(now_s):
            return self._check_s if self._news.is_asleep else now_s
        self._publish(now_s)
        return self._sent_s + self._config.confirm_timeout_s

    def is_idle(self) -> bool:
        """Return True: unconfirmed messages are published after the next start."""
        return True

    def end(self) -> None:
        """Do nothing: the stream keeps its own position."""

    def _load(self, now_s: float) -> bool:
        """Take the next batch; return False when there is none, and then `note` wakes the thread."""
        # Set before the look: a `note` after the look wakes the thread, and the look sees earlier ones.
        self._news.is_asleep = True
        try:
            batch = self._committed.batch(self._next, self._news.shown)
            rewinds = self._committed.rewinds() if batch is None else batch.rewinds
        except JournalError as error:
            # The master itself reports its journal's failure; a reconnect would not help.
            log.warning("the log cannot be read for its stream", lsn=self._next, reason=str(error))
            self._news.is_asleep = False
            self._again_s = now_s + JOURNAL_PAUSE_S
            return False
        if rewinds != self._rewinds:
            self._news.is_asleep = False
            return self._go_back(rewinds)
        if batch is None and (held := self._committed.first_lsn()) > self._next:
            if self._news.shown >= self._next:
                # A master without workers has no results, and trims entries that it had no results for.
                log.warning("the journal was trimmed before its log was published", first_missing=self._next, next=held)
            self._next = held
            self._news.is_asleep = False
        if batch is None:
            return False
        self._news.is_asleep = False
        self._batch = batch
        self._groups.extend(groups_of(batch, self._node, self._cluster, self._committed.journal))
        self._due_s = now_s + (BACKLOG_GAP_S if batch.is_full else GAP_S)
        return True

    def _go_back(self, rewinds: Rewinds) -> bool:
        """Continue after the LSN to which the log went back; return whether there is something to publish at once."""
        place = agreed(rewinds, newest(self._rewinds))
        self._rewinds = rewinds
        if place is None or self._next <= place + 1:
            return False
        self._next = place + 1
        self._news.published = place
        self._tell_void(place)
        return True

    def _tell_void(self, place: Lsn | None) -> None:
        if place is not None:
            log.warning("the log went back", lsn=place, lineage=newest(self._rewinds), stream=log_stream(self._node))
            self._groups.extend(went_back(place, self._node, self._cluster, self._committed.journal, self._rewinds))

    def _publish(self, now_s: float) -> None:
        self._sent_s = now_s
        for post in self._groups[0]:
            message = Message(post.body, **post.properties)
            self._channel.basic_publish(message, post.exchange, post.key, mandatory=post.is_log)
            self._number += 1
            self._on_way[self._number] = post

    def _on_nack(self, number: int, multiple: bool) -> None:
        for post in self._answered(number, multiple, is_refused=True):
            if not post.is_log:
                # A full queue that refuses must not block the others: its owner chose to miss changes.
                log.warning("a queue refused a change", key=post.key, lsn=post.properties["application_headers"]["lsn"])

    def _on_return(self, _problem: Exception, _exchange: str, _key: str, _message: Any) -> None:
        # Its confirmation comes next and must not be read: it would count as success.
        raise RecoverableConnectionError("the log stream is missing")

    def _answered(self, number: int, multiple: bool, *, is_refused: bool = False) -> list[Post]:
        numbers = [each for each in self._on_way if each <= number] if multiple else [number]
        posts = [self._on_way.pop(each) for each in numbers if each in self._on_way]
        if is_refused and any(post.is_log for post in posts):
            # A log message is alone in its group, which stays the first one.
            self._again_s = time.monotonic() + REFUSED_PAUSE_S
        elif posts and not self._on_way:
            self._confirmed()
        return posts

    def _confirmed(self) -> None:
        self._groups.popleft()
        if not self._groups and self._batch is not None:
            self._next = self._batch.last_lsn + 1
            self._news.published = self._batch.last_lsn
            self._batch = None


def last_headers(connection: Connection, node: NodeId, cluster: str) -> Mapping[str, Any] | None:
    """Make sure that the stream exists; return the headers of its last message, or None when it is new or empty.

    Raises the errors of py-amqp, including TimeoutError.
    """
    wire: Any = connection.connection
    row = log_stream_row(node)
    channel: Any = connection.channel()
    is_new = False
    try:
        channel.queue_declare(queue=row.name, passive=True)
    except NotFound:
        # py-amqp has reopened the channel.
        is_new = True
    declare(channel, Topology(exchanges_of(cluster), (row,)))
    if is_new:
        return None
    found: list[Any] = []
    channel.basic_qos(0, 10, False)
    channel.basic_consume(
        queue=row.name, consumer_tag=consumer_tag(node, row.name), callback=found.append, arguments={"x-stream-offset": "last"}
    )
    deadline_s = time.monotonic() + LAST_WITHIN_S
    while (wait_s := QUIET_S if found else deadline_s - time.monotonic()) > 0:
        count = len(found)
        try:
            wire.drain_events(timeout=wait_s)
        except TimeoutError:
            break
        if count and len(found) == count:
            break
    # Not basic.cancel: a delivery that crosses it would be rejected, and a stream would end the connection for that.
    channel.close()
    return dict(found[-1].properties.get("application_headers") or {}) if found else None


class LogStream:
    """Fulfils `ports.LogPublisher` for ``amqp://`` and ``amqps://``."""

    def __init__(
        self, url: str, cluster: str, node: NodeId, committed: CommittedLog, config: TransportConfig | None = None
    ) -> None:
        """Raises ConfigurationError for an impossible URL."""
        self._cluster = cluster
        self._node = node
        self._committed = committed
        self._config = config or TransportConfig()
        self._news = News()
        self._state = LinkState((_LOG,))
        self._is_started = False
        identity, addresses = (Identity(connection_name(node, "master", _LOG), "master", node, cluster), parse_addresses(url))
        shared = (self._state, self._config, Counters())
        self._thread = ConnectionThread(
            identity.name, lambda wake: KeptConnection(identity, _LOG, addresses, self._session, wake, *shared)
        )

    def start(self) -> None:
        """Start the thread."""
        self._is_started = True
        self._thread.start()

    def note(self, shown_lsn: Lsn) -> None:
        """Wake the thread if it sleeps and there is something new to publish."""
        news = self._news
        # After a split there is less than before, which is news as well.
        has_less, news.shown = shown_lsn < news.shown, shown_lsn
        if news.is_asleep and (shown_lsn > news.published or has_less):
            news.is_asleep = False
            self._thread.waker.wake()

    def published_lsn(self) -> Lsn:
        """Return the LSN up to which everything is confirmed."""
        return self._news.published

    def close(self, timeout_s: float) -> None:
        """End the thread; nothing is lost at any moment."""
        if self._is_started:
            self._is_started = False
            self._thread.ask_to_end(time.monotonic() + timeout_s)
            self._thread.join(timeout_s)

    def _session(self, connection: Connection) -> LogSession:
        return LogSession(connection, self._node, self._cluster, self._committed, self._news, self._state, self._config)
