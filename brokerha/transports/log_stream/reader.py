"""Reads the published log of a master, up to the end of its stream when reading began.

    with LogReader(url, "m1") as reader:
        for lsn, row in reader.lines(1, reader.last_lsn): ...

A binary search by headers finds the begin of a range, so that a part of a long stream is read without the rest.

A stream can have repeats, can have the log of an earlier journal before the present one, and splits a large transaction into parts.
The reader returns each LSN of the newest journal once, in order. When the log went back after a split, the last message tells so,
and void lines are left out as well. Lines that the stream no longer has are left out, and a program that applies the rest sees the
gap.

Reading takes nothing away and declares nothing. Every wait has an end: a stream that is silent for ten seconds is unreachable.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, Final, Self

import msgpack
from amqp.exceptions import AMQPError
from amqp.exceptions import NotFound as AMQPNotFound
from kombu import Connection

from brokerha.model.errors import NotFound, Unreachable
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.log_lineages import Rewinds, agreed, journal_of, lineage_of
from brokerha.model.operations import LoggedRow
from brokerha.transports.config import TransportConfig
from brokerha.transports.log_stream.messages import rewinds_in
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.connecting import explain, no_broker, open_connection
from brokerha.transports.rabbitmq.identity import TOOL_ROLE, Identity
from brokerha.transports.topology import log_stream

# py-amqp logs each delivery to a closing channel; a program that wants these lines configures logging.
logging.getLogger("amqp").addHandler(logging.NullHandler())

OFFSET: Final = "x-stream-offset"
"""Header that the broker adds to each message."""
PREFETCH: Final = 10
"""Most messages under way; each has up to 1 MiB, or 8 MiB as part of a large transaction."""
LAST_WITHIN_S: Final = 5.0
"""Longest wait for the last message; a stream without one counts as empty."""
QUIET_S: Final = 0.5
"""Wait for a next message: the last chunk can hold more than one."""
SILENCE_S: Final = 10.0
_NOT_SAID: Final = (0, "", "", 0, "", "", b"", b"", 0)


class LogReader:
    """One stream of one master; one thread. Raises Unreachable, NotFound (no such stream), ConfigurationError."""

    def __init__(self, url: str, node: NodeId, config: TransportConfig | None = None) -> None:
        self.stream = log_stream(node)
        self._connection = _connected(url, Identity(f"{node} log reader", TOOL_ROLE), config or TransportConfig())
        try:
            last = self._last_headers()
        except BaseException:
            self.close()
            raise
        self.cluster = str(last.get("cluster", ""))
        """Name of the publishing cluster; empty for an empty stream."""
        self.last_lsn: Lsn = int(last.get("last_lsn", 0))
        """End of the stream when it was opened."""
        self.rewinds: Rewinds = rewinds_in(last)
        """How often the log had gone back by then."""
        self._journal = journal_of(str(last.get("journal")))
        self._last_offset = int(last.get(OFFSET, 0))
        self._first_lsn: Lsn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self._connection.release()

    @property
    def first_lsn(self) -> Lsn:
        """First LSN of the newest journal that the stream still has; one more than the last when it has none."""
        if not self._first_lsn:
            self._first_lsn = self._read_first_lsn()
        return self._first_lsn

    def lines(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[tuple[Lsn, LoggedRow]]:
        """Yield lines of a range in order, without repeats, as far as the stream has them. Raises Unreachable."""
        for lsn, txid, _origin, timestamp, outcome, reason, effect, fingerprint, _epoch in self.rows(first_lsn, last_lsn):
            yield lsn, (txid, timestamp, outcome, reason, effect, fingerprint)

    def rows(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[tuple[Any, ...]]:
        """Yield the same with all columns: (lsn, txid, origin, timestamp, outcome, reason, effect, fingerprint, epoch).

        A stream of an earlier version has no epoch (0), or no fingerprint (empty).
        """
        seen = first_lsn - 1
        last = min(last_lsn, self.last_lsn)
        if seen >= last:
            return
        start = self._offset_of(lambda headers: self._end_of(headers) >= first_lsn)
        with closing(self._bodies(start)) as bodies:
            while seen < last:
                end, body = next(bodies)
                for row in msgpack.unpackb(body, use_list=False):
                    if seen < row[0] <= min(last, end):
                        seen = row[0]
                        yield (row[:9] + _NOT_SAID[len(row) - 9 :]) if len(row) < 9 else row[:9]

    def _is_ours(self, headers: Mapping[str, Any]) -> bool:
        return journal_of(str(headers.get("journal"))) == self._journal

    def _end_of(self, headers: Mapping[str, Any]) -> Lsn:
        """Return the last LSN of a message that is not void."""
        place = agreed(self.rewinds, lineage_of(str(headers.get("journal"))))
        last_lsn = int(headers.get("last_lsn", 0))
        return last_lsn if place is None else min(last_lsn, place)

    def _is_void(self, headers: Mapping[str, Any]) -> bool:
        """Tell whether the log went back before the first LSN of a message."""
        place = agreed(self.rewinds, lineage_of(str(headers.get("journal"))))
        return place is not None and int(headers.get("first_lsn", 0)) > place

    def _read_first_lsn(self) -> Lsn:
        if not self.last_lsn:
            return 1
        start = self._offset_of(lambda _headers: True)
        with closing(self._messages(start, QUIET_S)) as messages:
            for headers, _ in messages:
                # The oldest parts of a large transaction are possibly gone.
                if self._is_ours(headers) and headers.get("part", 1) == 1 and not self._is_void(headers):
                    return int(headers["first_lsn"])
        return self.last_lsn + 1

    def _offset_of(self, is_found: Callable[[Mapping[str, Any]], bool]) -> int | str:
        """Return the first message of the newest journal that ``is_found`` accepts; it must accept all later ones too."""
        low, high = 0, self._last_offset
        while low < high:
            middle = (low + high) // 2
            # The broker skips missing messages and returns the oldest one that exists.
            headers = self._headers_at(middle)
            offset = int(headers.get(OFFSET, middle))
            if self._is_ours(headers) and is_found(headers):
                high = middle
            else:
                low = max(middle, offset) + 1
        return low

    def _headers_at(self, offset: int) -> Mapping[str, Any]:
        """Return the headers of the message at an offset, or of the next existing one."""
        with closing(self._messages(offset, SILENCE_S, prefetch=1)) as messages:
            for headers, _ in messages:
                return headers
        raise Unreachable(f"the stream {self.stream} has said nothing for {SILENCE_S:g} seconds")

    def _bodies(self, start: int | str) -> Generator[tuple[Lsn, bytes], None, None]:
        """Yield the last valid LSN and the body of each message of the newest journal. Endless; raises Unreachable on silence."""
        parts: list[bytes] = []
        for headers, body in self._messages(start, SILENCE_S):
            if not self._is_ours(headers):
                continue
            part, count = headers.get("part", 1), headers.get("parts", 1)
            # Parts come again from the first one when the publisher was cut off between them.
            parts = [*parts, body] if part == len(parts) + 1 else [body] if part == 1 else []
            if len(parts) == count:
                yield self._end_of(headers), b"".join(parts)
                parts = []
        raise Unreachable(f"the stream {self.stream} has said nothing for {SILENCE_S:g} seconds")

    def _last_headers(self) -> Mapping[str, Any]:
        """Return the headers of the last message; empty for an empty stream."""
        found: Mapping[str, Any] = {}
        deadline_s = time.monotonic() + LAST_WITHIN_S
        while not found and time.monotonic() < deadline_s:
            for headers, _ in self._messages("last", QUIET_S):
                found = headers
        return found

    def _messages(
        self, offset: int | str, quiet_s: float, prefetch: int = PREFETCH
    ) -> Generator[tuple[Mapping[str, Any], bytes], None, None]:
        """Yield messages from an offset on, until none comes for this long."""
        wire: Any = self._connection.connection
        found: deque[Any] = deque()
        channel: Any = None
        troubles = (*self._connection.connection_errors, *self._connection.channel_errors)
        try:
            channel = self._connection.channel()
            channel.basic_qos(0, prefetch, False)
            channel.basic_consume(queue=self.stream, callback=found.append, arguments={"x-stream-offset": offset})
            while True:
                while found:
                    message = found.popleft()
                    yield message.properties.get("application_headers") or {}, as_bytes(message.body)
                    channel.basic_ack(message.delivery_tag)
                try:
                    wire.drain_events(timeout=quiet_s)
                except TimeoutError:
                    break
        except AMQPNotFound as error:
            raise NotFound(f"{self.stream} cannot be read ({error.reply_text}): which master? write its node id") from error
        except troubles as error:
            raise Unreachable(f"{self.stream}: {error or type(error).__name__}") from error
        finally:
            # Not basic.cancel: a delivery that crosses it would be rejected, and a stream would end the connection for that.
            with suppress(*troubles):
                if channel is not None and channel.is_open:
                    channel.close()


def as_bytes(body: bytes | str) -> bytes:
    """Return a body as it was sent: the library decodes bodies that claim to be text."""
    return body.encode() if isinstance(body, str) else bytes(body)


def _connected(url: str, identity: Identity, config: TransportConfig) -> Connection:
    problems = []
    for address in parse_addresses(url):
        try:
            return open_connection(address, identity, config)
        except (AMQPError, OSError) as error:
            problems.append(explain(error, address))
    raise no_broker(*problems)
