"""The part of the writing half that opens, fills and drops queues of transactions, beside all other publishing.

    outbox, lane tx ── take(room) ──> channel of that queue: declare, publish … publish, delete ──> broker

A broker makes and deletes queues in milliseconds, one after the other on each channel. So this has channels of its own,
each for its share of the queues: what concerns one queue stays in its order, and nothing else waits for it. The
invitation to a transaction (`TxJoin`) travels here too, so that the queue is there when its backup hears of it.

| the broker | queue to be opened | event | queue to be dropped |
|---|---|---|---|
| answers, confirms | done | done | done |
| refuses, or finds no queue | counted; its channel is opened again | counted | counted, left to expire |
| is lost | counted | counted | dropped on the next connection |

Invariants: nothing here waits; what has no answer yet is bounded; lost events are for the protocol to send again, and a
queue that nobody could drop any more expires.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable

import structlog
from amqp.exceptions import RecoverableConnectionError

from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes.outbox import Outbox
from brokerha.transports.lanes.parcels import DROP_QUEUE, OPEN_QUEUE, TX_LANE, Counters, Publication
from brokerha.transports.lanes.unconfirmed import Unconfirmed
from brokerha.transports.rabbitmq.connecting import RepeatedMessage
from brokerha.transports.rabbitmq.quiet_channel import OpenChannel, QuietChannel
from brokerha.transports.topology import tx_queue_row

log = structlog.get_logger(__name__)

_FAR_S = 3600.0


class _Share:
    """One channel with what has no answer on it yet."""

    def __init__(
        self,
        open_channel: OpenChannel,
        put_back: Callable[[list[Publication]], None],
        config: TransportConfig,
        counters: Counters,
    ) -> None:
        self._put_back = put_back
        self._open_channel = open_channel
        self._expires_ms = config.tx_queue_expires_ms
        self._limits = (config.window_tx_messages, config.window_bytes, config.window_bytes)
        self._counters = counters
        self._channel: QuietChannel | None = None
        self._deeds: deque[Publication] = deque()
        """Asked for and not answered, in order."""
        self._window = Unconfirmed(*self._limits)
        self._last_reason = ""
        self.heard_s = 0.0
        """When the broker last answered, or when something began to wait."""

    def __len__(self) -> int:
        """How much has no answer yet."""
        return len(self._deeds) + len(self._window)

    def carry_out(self, publication: Publication, now_s: float) -> None:
        """Write it to the channel, which is opened if need be."""
        if not len(self):
            self.heard_s = now_s
        channel = self._channel or self._open()
        if publication.deed:
            self._deeds.append(publication)
            if publication.deed == OPEN_QUEUE:
                channel.declare(publication.tx_queue, tx_queue_row(publication.tx_queue, self._expires_ms).arguments)
            else:
                channel.delete(publication.tx_queue)
            return
        message = RepeatedMessage(publication.body, **publication.properties)
        channel.basic_publish(message, publication.exchange, publication.routing_key, mandatory=True)
        self._window.add(publication, now_s)
        self._counters.add("sent")

    def give_up(self) -> None:
        """Put back the queues of which the broker never said that they are gone; the rest is counted."""
        drops = [deed for deed in self._deeds if deed.deed == DROP_QUEUE]
        self._counters.add("unconfirmed", len(self) - len(drops))
        self._put_back(drops)
        self._deeds.clear()
        self._window = Unconfirmed(*self._limits)
        self._channel = None

    def size_bytes(self) -> int:
        """Of the events that are not confirmed."""
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
        deed = self._deeds.popleft()
        self._counters.add("tx_queues_opened" if deed.deed == OPEN_QUEUE else "tx_queues_dropped")

    def _on_confirmed(self, number: int, multiple: bool) -> None:
        self.heard_s = time.monotonic()
        self._window.confirm(number, multiple=multiple, now_s=self.heard_s)

    def _on_refused(self, number: int, multiple: bool) -> None:
        self.heard_s = time.monotonic()
        refused = self._window.confirm(number, multiple=multiple, now_s=self.heard_s)
        self._counters.add("nacked", len(refused))

    def _on_closed(self, reason: str) -> None:
        """The broker refused a deed, or the exchange of an invitation is gone; nothing that came after it was done."""
        if reason != self._last_reason:
            log.warning("queue of a transaction refused", reason=reason)
        self._last_reason = reason
        self._counters.add("tx_queues_refused")
        if self._deeds:
            # If that one was a queue to be dropped, it is left to expire: it would be refused for ever.
            self._deeds.popleft()
        self.give_up()


class TxWriter:
    """The shares of one connection; see the head of the module."""

    def __init__(self, open_channel: OpenChannel, outbox: Outbox, config: TransportConfig, counters: Counters) -> None:
        """Nothing is opened before it is needed."""
        self._outbox = outbox
        self._config = config
        self._shares = [_Share(open_channel, outbox.put_back, config, counters) for _ in range(config.tx_channels)]
        self._is_waiting = False
        """Whether some answer was due at the end of the last turn."""

    def turn(self, now_s: float) -> float:
        """Carry out as much as the window takes; return when the next turn is wanted at the latest."""
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
        """The broker takes nothing now: no answer is due."""
        for share in self._shares:
            share.heard_s = now_s

    def is_idle(self) -> bool:
        """Whether everything is answered."""
        return not any(len(share) for share in self._shares)

    def end(self) -> None:
        """The connection is gone: what must be done on the next one goes back to the outbox."""
        for share in self._shares:
            share.give_up()

    def _share_of(self, queue: str) -> _Share:
        return self._shares[zlib.crc32(queue.encode()) % len(self._shares)]
