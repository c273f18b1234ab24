"""Publish writes to RabbitMQ, one for each input line, and print the outcome of each. It needs no library of brokerha.

    python -m brokerha.programs.producers.publisher --broker amqp://guest:guest@127.0.0.1:5672/orders < writes.jsonl

A line is {"id": "order-4711", "update": "INSERT DATA { <urn:order:4711> <urn:state> 1 }"}. The id makes it safe to publish a line
again, after a lost broker or in a later run: the write takes effect once. Each line gives a JSON line: id, status, lsn, reason. Exit code
0: all are applied; 1: some are not; 2: no broker, or an unreadable line. SIGTERM ends it at once, with 143: publish lines without a
result again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgpack
import pika
from pika.exceptions import AMQPError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

ID_BYTES = 255
"""AMQP takes no longer one."""
ANSWERS = "amq.rabbitmq.reply-to"


class Publisher:
    """A connection that reopens after a failure."""

    def __init__(self, parameters: pika.URLParameters, repository: str, timeout_s: float) -> None:
        self._parameters, self._timeout_s = parameters, timeout_s
        self._headers = {"repository": repository, "ack": "applied", "timeout_ms": round(timeout_s * 1000)}
        self._channel: Any = None
        self._answers: dict[str, list[Any]] = {}

    def publish(self, key: str, update: str) -> list[Any]:
        """Publish a write; return its status, LSN, error and reason. The status is ``unknown`` without an answer in time. Raises AMQPError."""
        if self._channel is None or not self._channel.is_open:
            self._channel = pika.BlockingConnection(self._parameters).channel()
            self._channel.confirm_delivery()
            self._channel.basic_consume(ANSWERS, self._on_answer, auto_ack=True)
        properties = pika.BasicProperties("application/sparql-update", None, self._headers, delivery_mode=2, message_id=key)
        properties.reply_to, properties.correlation_id = ANSWERS, key
        self._answers.clear()
        # Mandatory and confirmed: a message that no queue takes raises.
        self._channel.basic_publish("brokerha.writes", "any", update.encode(), properties, mandatory=True)
        deadline_s = time.monotonic() + self._timeout_s
        while key not in self._answers and time.monotonic() < deadline_s:
            self._channel.connection.process_data_events(time_limit=1)
        return self._answers.get(key, ["unknown", 0, "TimedOut", "publish it again with the same id"])

    def _on_answer(self, _channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
        self._answers.update((txid, rest) for txid, *rest in msgpack.unpackb(body))


def writes_of(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (id, update) of each line. Raises ValueError with the number of a wrong line."""
    for number, line in enumerate(lines, 1):
        try:
            write = json.loads(line)
            key, update = str(write["id"]), str(write["update"])
            size = len(key.encode())
        except (ValueError, KeyError, TypeError):
            key, update, size = "", "", ID_BYTES + 1
        if size > ID_BYTES:
            message = f'line {number} is no {{"id": …, "update": …}} with an id of at most {ID_BYTES} bytes: {line[:80].strip()}'
            raise ValueError(message)
        yield key, update


def broker_of(url: str) -> pika.URLParameters:
    """Parse the address of a RabbitMQ. Raises ArgumentTypeError."""
    with contextlib.suppress(ValueError):  # A port that is no number.
        if url.startswith(("amqp://", "amqps://")) and url.count("/") >= 3:
            return pika.URLParameters(url)
    raise argparse.ArgumentTypeError("write amqp://user:password@host:port/vhost")


def main() -> int:
    """Publish all lines; return the exit code."""
    parser = argparse.ArgumentParser(prog="publisher", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", required=True, type=broker_of, help="amqp://user:password@host:port/vhost")
    parser.add_argument("--repository", default="main")
    parser.add_argument("--timeout-s", type=float, default=30.0, help="for an answer, and for a broker that is away")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    publisher, applied, patience = (
        Publisher(options.broker, options.repository, options.timeout_s),
        True,
        stop_after_delay(options.timeout_s),
    )
    again = Retrying(
        retry=retry_if_exception_type(AMQPError), wait=wait_random_exponential(0.2, max=5), stop=patience, reraise=True
    )
    try:
        for key, update in writes_of(sys.stdin):
            status, lsn, error, reason = again(publisher.publish, key, update)
            print(json.dumps({"id": key, "status": status, "lsn": lsn, "reason": reason or error}), flush=True)
            applied = applied and status == "applied"
    except (AMQPError, ValueError) as problem:
        parser.exit(2, f"publisher: {problem if isinstance(problem, ValueError) else f'no broker: {problem!r}'}\n")
    return 0 if applied else 1


if __name__ == "__main__":
    sys.exit(main())
