"""Reads the log that a master has published, from the beginning of its stream to where it ended when reading began.

    with LogReader(url, "m1") as reader:
        for lsn, row in reader.lines(1, reader.last_lsn): ...

A stream may say things twice, hold the log of an earlier journal before that of the present one, and cut a large transaction into
parts: what comes out has each LSN of the newest journal once, in order. Lines that the stream no longer has are left out, and
whoever applies the rest sees the gap.

Reading takes nothing away and declares nothing. Every wait has an end: a stream that says nothing for ten seconds is unreachable.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

import msgpack
from amqp.exceptions import AMQPError
from amqp.exceptions import NotFound as AMQPNotFound
from kombu import Connection

from brokerha.model.errors import NotFound, Unreachable
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.operations import LoggedRow
from brokerha.transports.addresses import parse_addresses
from brokerha.transports.config import TransportConfig
from brokerha.transports.rabbitmq import explain, open_connection
from brokerha.transports.topology import log_stream

PREFETCH: Final = 10
"""Messages under way; each has up to 1 MiB, or 8 MiB as part of a large transaction."""
LAST_WITHIN_S: Final = 5.0
"""How long the last message may take to come; a stream that gives none is taken for empty."""
QUIET_S: Final = 0.5
"""The last chunk may hold more than one message: wait so long for the next one."""
SILENCE_S: Final = 10.0


class LogReader:
    """One stream of one master; one thread. Raises Unreachable, NotFound (no such stream), ConfigurationError."""

    def __init__(self, url: str, node: NodeId, config: TransportConfig | None = None) -> None:
        self.stream = log_stream(node)
        self._connection = _connected(url, f"{node} log reader", config or TransportConfig())
        try:
            last = self._last_headers()
        except BaseException:
            self.close()
            raise
        self.cluster = str(last.get("cluster", ""))
        """Name of the cluster that published; empty when the stream is."""
        self.last_lsn: Lsn = int(last.get("last_lsn", 0))
        """Where the stream ended when it was opened."""
        self._journal = last.get("journal")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self._connection.release()

    def lines(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[tuple[Lsn, LoggedRow]]:
        """Lines of a range in order, without repeats, as far as the stream has them. Raises Unreachable."""
        seen = first_lsn - 1
        last = min(last_lsn, self.last_lsn)
        bodies = self._bodies()
        while seen < last:
            for lsn, txid, _origin, timestamp, outcome, reason, effect, *fingerprint in msgpack.unpackb(next(bodies)):
                if seen < lsn <= last:
                    seen = lsn
                    # A stream that was written before lines had fingerprints has none.
                    yield lsn, (txid, timestamp, outcome, reason, effect, fingerprint[0] if fingerprint else b"")

    def _bodies(self) -> Iterator[bytes]:
        """Bodies of the messages of the newest journal, parts joined. Endless; raises Unreachable when nothing comes."""
        parts: list[bytes] = []
        for headers, body in self._messages("first", SILENCE_S):
            if headers.get("journal") != self._journal:
                continue
            part, count = headers.get("part", 1), headers.get("parts", 1)
            # Parts come again from the first one on when the publisher was cut off between them.
            parts = [*parts, body] if part == len(parts) + 1 else [body] if part == 1 else []
            if len(parts) == count:
                yield b"".join(parts)
                parts = []
        raise Unreachable(f"the stream {self.stream} has said nothing for {SILENCE_S:g} seconds")

    def _last_headers(self) -> Mapping[str, Any]:
        """Headers of the last message; empty for an empty stream."""
        found: Mapping[str, Any] = {}
        deadline_s = time.monotonic() + LAST_WITHIN_S
        while not found and time.monotonic() < deadline_s:
            for headers, _ in self._messages("last", QUIET_S):
                found = headers
        return found

    def _messages(self, offset: str, quiet_s: float) -> Iterator[tuple[Mapping[str, Any], bytes]]:
        """Messages from an offset on, until there are none for so long."""
        wire: Any = self._connection.connection
        found: deque[Any] = deque()
        try:
            channel: Any = self._connection.channel()
            channel.basic_qos(0, PREFETCH, False)
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
            # Not basic.cancel: a delivery that crosses it would be rejected, which a stream answers by ending the connection.
            channel.close()
        except AMQPNotFound as error:
            raise NotFound(
                f"{self.stream} cannot be read ({error.reply_text}): which master? write its node id"
            ) from error
        except (*self._connection.connection_errors, *self._connection.channel_errors) as error:
            raise Unreachable(f"{self.stream}: {error or type(error).__name__}") from error


def as_bytes(body: bytes | str) -> bytes:
    """A body as it was sent: the library decodes what says that it is text."""
    return body.encode() if isinstance(body, str) else bytes(body)


def _connected(url: str, name: str, config: TransportConfig) -> Connection:
    problems = []
    for address in parse_addresses(url):
        try:
            return open_connection(address, name, config)
        except (AMQPError, OSError) as error:
            problems.append(explain(error, address))
    raise Unreachable("; ".join(problems))
