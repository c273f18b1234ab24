"""The writing half of a link: takes from the outbox, publishes, and handles the broker's answers.

    outbox ── sync, reply, data ──> plain channel        no answers; lost messages are asked for again
           ── firm, bulk ─────────> confirming channel   in a window
           ── tx ─────────────────> separate channels, below

| the broker says | answer to an app, mandatory¹ | bulk | firm: rejected message, mandatory |
|---|---|---|---|
| ack | - | makes room for more | done; settles its message |
| nack | - | counted | published again a second later |
| return (no queue) | counted | - | reconnect, which declares the queue, then again |
| nothing (connection lost) | asked again by the app | counted; asked for again | published again on the next connection |

¹ Except answers by direct reply-to: their delivery is not reported.

The broker is asked each second whether it serves the plain channel (quiet_channel.py).

Invariants: at most a window of confirmed publications is under way. Nothing is written while the broker is blocked or the socket is
full, so a slow broker stops plain publications by reading less. Messages of nodes that waited too long for a connection are
dropped.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
from amqp.exceptions import FrameSyntaxError, RecoverableConnectionError
from kombu import Connection

from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import declare
from brokerha.transports.lanes import (
    BULK_LANE,
    DATA_LANE,
    FIRM_LANE,
    PLAIN_LANES,
    REPLY_LANE,
    SYNC_LANE,
    TX_LANE,
    ClientTag,
    Counters,
    Outbox,
    Publication,
    Unconfirmed,
)
from brokerha.transports.link import LinkState
from brokerha.transports.rabbitmq.connecting import RepeatedMessage
from brokerha.transports.rabbitmq.properties import Message
from brokerha.transports.rabbitmq.quiet_channel import OpenChannel, Pulse, QuietChannel
from brokerha.transports.topology import REJECTED_EXCHANGE, REPLY_ADDRESS, Topology, tx_queue_row

log = structlog.get_logger(__name__)
_NODE_LANES = (SYNC_LANE, DATA_LANE, BULK_LANE)
_FAR_S = 3600.0
_NACK_PAUSE_S = 1.0
_UNSENDABLE = (FrameSyntaxError, struct.error, TypeError, ValueError)
"""Errors of py-amqp, before any write, for properties that AMQP cannot carry."""


class _Share:
    """One channel with its unanswered publications."""

    def __init__(self, open_channel: OpenChannel, config: TransportConfig, counters: Counters) -> None:
        self._open_channel = open_channel
        self._expires_ms = config.tx_queue_expires_ms
        self._limits = (config.window_tx_messages, config.window_bytes, config.window_bytes)
        self._counters = counters
        self._channel: QuietChannel | None = None
        self._opening = 0
        """Number of requested queues without an answer."""
        self._window = Unconfirmed(*self._limits)
        self._last_reason = ""
        self.heard_s = 0.0
        """Time of the broker's last answer, or of the begin of the wait."""

    def __len__(self) -> int:
        """Return the number of unanswered requests."""
        return self._opening + len(self._window)

    def carry_out(self, publication: Publication, now_s: float) -> None:
        """Write a publication to the channel, which is opened if needed."""
        if not len(self):
            self.heard_s = now_s
        channel = self._channel or self._open()
        if publication.opens:
            self._opening += 1
            channel.declare(publication.tx_queue, tx_queue_row(publication.tx_queue, self._expires_ms).arguments)
            return
        message = RepeatedMessage(publication.body, **publication.properties)
        channel.basic_publish(message, publication.exchange, publication.routing_key, mandatory=True)
        self._window.add(publication, now_s)
        self._counters.add("sent")

    def give_up(self) -> None:
        """Count the unanswered requests; the protocol sends them again."""
        self._counters.add("unconfirmed", len(self))
        self._opening = 0
        self._window = Unconfirmed(*self._limits)
        self._channel = None

    def size_bytes(self) -> int:
        """Return the size of the unconfirmed events."""
        return self._window.size_bytes

    def _open(self) -> QuietChannel:
        channel = self._channel = self._open_channel(self._on_answer, self._on_closed)
        channel.confirm_select(nowait=True)
        channel.events["basic_ack"].add(self._on_confirmed)
        channel.events["basic_nack"].add(self._on_refused)
        channel.events["basic_return"].add(lambda *_facts: self._counters.add("returned"))
        return channel

    def _on_answer(self, _what: str) -> None:
        self.heard_s = time.monotonic()
        self._opening -= 1
        self._counters.add("tx_queues_opened")

    def _on_confirmed(self, number: int, multiple: bool) -> None:
        self.heard_s = time.monotonic()
        self._window.confirm(number, multiple=multiple, now_s=self.heard_s)

    def _on_refused(self, number: int, multiple: bool) -> None:
        self.heard_s = time.monotonic()
        refused = self._window.confirm(number, multiple=multiple, now_s=self.heard_s)
        self._counters.add("nacked", len(refused))

    def _on_closed(self, reason: str) -> None:
        """Note that the broker refused a queue, or that an invitation's exchange is gone; nothing after that was done."""
        if reason != self._last_reason:
            log.warning("queue of a transaction refused", reason=reason)
        self._last_reason = reason
        self._counters.add("tx_queues_refused")
        self._opening -= bool(self._opening)
        self.give_up()


class TxWriter:
    """The part of the writing half that opens and fills queues of transactions, separately from all other publishing.

    It holds the shares of one connection; see the head of the module.

        outbox, lane tx ── take(room) ──> channel of that queue: declare, publish … publish ──> broker

    No program deletes such a queue: it is removed with its reader. (RabbitMQ 4 ends the connection that deletes one whose node is
    down.) A broker makes queues in milliseconds, one after another on each channel. So there are separate channels, each for its
    share of the queues: the order of one queue is kept, and no other publication waits for it. The invitation to a transaction
    (`TxJoin`) uses them as well, so that the queue exists when its backup gets the invitation.

    | the broker | queue to be opened | event |
    |---|---|---|
    | answers, confirms | done | done |
    | refuses, or finds no queue | counted; its channel is opened again | counted |
    | is lost | counted | counted |

    Invariants: nothing here waits; unanswered requests are bounded; the protocol sends lost events again.
    """

    def __init__(self, open_channel: OpenChannel, outbox: Outbox, config: TransportConfig, counters: Counters) -> None:
        """Opens nothing before it is needed."""
        self._outbox = outbox
        self._config = config
        self._shares = [_Share(open_channel, config, counters) for _ in range(config.tx_channels)]
        self._is_waiting = False
        """Whether an answer was due at the end of the last turn."""

    def turn(self, now_s: float) -> float:
        """Carry out as much as the window takes; return the latest time of the next turn."""
        if not self._outbox and not self._is_waiting:
            return now_s + _FAR_S
        waiting = [share for share in self._shares if len(share)]
        room = self._config.window_tx_messages - sum(map(len, waiting))
        room_bytes = self._config.window_bytes - sum(share.size_bytes() for share in waiting)
        if room > 0:
            for publication in self._outbox.take((TX_LANE,), room, room_bytes):
                self._share_of(publication.tx_queue).carry_out(publication, now_s)
        deadlines = [share.heard_s + self._config.confirm_timeout_s for share in self._shares if len(share)]
        self._is_waiting = bool(deadlines)
        if not deadlines:
            return now_s + _FAR_S
        if now_s >= min(deadlines):
            raise RecoverableConnectionError("the broker does not answer for the queues of transactions")
        return min(deadlines)

    def pause(self, now_s: float) -> None:
        """Expect no answer: the broker takes nothing now."""
        for share in self._shares:
            share.heard_s = now_s

    def is_idle(self) -> bool:
        """Tell whether everything is answered."""
        return not any(len(share) for share in self._shares)

    def end(self) -> None:
        """Give up all shares: the connection is gone."""
        for share in self._shares:
            share.give_up()

    def _share_of(self, queue: str) -> _Share:
        return self._shares[zlib.crc32(queue.encode()) % len(self._shares)]


class WriterSession:
    """One connection's writing; fulfils `kept_connection.Session`."""

    def __init__(
        self,
        connection: Connection,
        topology: Topology,
        outbox: Outbox,
        state: LinkState,
        settle: Callable[[list[ClientTag]], None],
        config: TransportConfig,
        counters: Counters,
        *,
        is_first: bool,
    ) -> None:
        """Declare the exchanges and the queue of rejected messages, and switch confirms on. Raises the errors of py-amqp.

        Only the first session of a node waits for that: the leader of that queue can be at a broker node that is down.
        """
        self._outbox = outbox
        self._state = state
        self._settle = settle
        self._config = config
        self._counters = counters
        self._window = Unconfirmed(config.window_messages, config.window_bytes, config.window_bulk_bytes)
        self._again: list[Publication] = []
        """Refused firm publications, to be put back at `_again_s`."""
        self._again_s = 0.0
        self._wire: Any = connection.connection
        self._frames: Any = self._wire.transport
        self._channel: Any = connection.channel()
        declare(self._channel, topology.to_publish(), nowait=not is_first)
        self._channel.confirm_select(nowait=not is_first)
        self._plain: Any = connection.channel()
        self._pulse = Pulse(self._plain.ask, config.answer_within_s)
        self._plain.events["basic_return"].add(self._on_return)
        self._channel.events["basic_ack"].add(self._on_ack)
        self._channel.events["basic_nack"].add(self._on_nack)
        self._channel.events["basic_return"].add(self._on_return)
        self._tx = TxWriter(partial(QuietChannel, self._wire), outbox, config, counters)
        stale_s = time.monotonic() - config.stale_after_ms / 1000
        counters.add("stale", sum(outbox.drop_older(lane, stale_s) for lane in _NODE_LANES))

    def turn(self, now_s: float) -> float:
        """Publish as much as the window, the socket and the broker allow."""
        if self._state.is_blocked():
            self._window.oldest_since_s = now_s
            self._tx.pause(now_s)
            self._pulse.pause(now_s)
            return now_s + _FAR_S
        if self._again and now_s >= self._again_s:
            self._outbox.put_back(self._again)
            self._again = []
        tx_s = now_s + _FAR_S
        if self._frames.unsent_bytes:
            self._pulse.pause(now_s)
        else:
            plain: Sequence[Publication] = ()
            if self._outbox:
                plain = self._outbox.take(PLAIN_LANES, self._config.window_messages, self._config.window_bytes)
                for publication in plain:
                    self._publish_plain(publication)
                if self._outbox:
                    self._publish_confirmed(now_s)
            tx_s = self._tx.turn(now_s)
            if self._outbox and self._outbox.has_any(PLAIN_LANES):
                # The rest follows once the socket has taken this.
                tx_s = now_s
            tx_s = min(tx_s, self._pulse.turn(now_s, is_used=bool(plain)))
        due_s = min(tx_s, self._again_s) if self._again else tx_s
        if not self._window:
            return due_s
        deadline_s = self._window.oldest_since_s + self._config.confirm_timeout_s
        if now_s >= deadline_s:
            raise RecoverableConnectionError("the broker does not confirm")
        return min(deadline_s, due_s)

    def is_idle(self) -> bool:
        """Tell whether everything is published and confirmed."""
        is_sent = not (self._window or len(self._outbox) or self._again or self._frames.unsent_bytes)
        return is_sent and self._tx.is_idle()

    def end(self) -> None:
        """Put back the firm publications; count the rest."""
        unconfirmed = self._window.all()
        firm = [publication for publication in unconfirmed if publication.lane == FIRM_LANE]
        self._outbox.put_back(firm + self._again)
        self._tx.end()
        self._counters.add("repeated", len(firm))
        self._counters.add("unconfirmed", len(unconfirmed) - len(firm))

    def _publish_plain(self, publication: Publication) -> None:
        if publication.lane != REPLY_LANE:
            self._plain.publish_to_nodes(publication)
            self._counters.add("sent")
            return
        # A direct reply-to has no queue: if mandatory, RabbitMQ would return each delivered answer with its body.
        has_queue = not publication.routing_key.startswith(REPLY_ADDRESS)
        self._publish(self._plain, publication, is_mandatory=has_queue)

    def _publish_confirmed(self, now_s: float) -> None:
        messages, size_bytes, bulk_bytes = self._window.room()
        taken = self._outbox.take((FIRM_LANE,), messages, size_bytes)
        if not taken:
            taken = self._outbox.take((BULK_LANE,), messages, min(size_bytes, bulk_bytes))
        for publication in taken:
            if self._publish(self._channel, publication, is_mandatory=publication.lane == FIRM_LANE):
                self._window.add(publication, now_s)

    def _publish(self, channel: Any, publication: Publication, *, is_mandatory: bool) -> bool:
        message = Message(publication.body, **publication.properties)
        try:
            channel.basic_publish(message, publication.exchange, publication.routing_key, mandatory=is_mandatory)
        except _UNSENDABLE:
            self._counters.add("unsendable")
            return False
        self._counters.add("sent")
        return True

    def _on_ack(self, number: int, multiple: bool) -> None:
        confirmed = self._window.confirm(number, multiple=multiple, now_s=time.monotonic())
        settled = [publication.settles for publication in confirmed if publication.settles is not None]
        if settled:
            self._settle(settled)

    def _on_nack(self, number: int, multiple: bool) -> None:
        now_s = time.monotonic()
        refused = self._window.confirm(number, multiple=multiple, now_s=now_s)
        self._counters.add("nacked", len(refused))
        self._again += [publication for publication in refused if publication.lane == FIRM_LANE]
        self._again_s = now_s + _NACK_PAUSE_S

    def _on_return(self, _problem: Exception, exchange: str, _key: str, _message: Any) -> None:
        if exchange == REJECTED_EXCHANGE:
            # Its confirmation comes next and must not be read: it would count as success.
            raise RecoverableConnectionError("the queue for rejected messages is missing")
        self._counters.add("returned_replies")
