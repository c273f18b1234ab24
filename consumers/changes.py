"""Follow the committed changes: print a JSON line for each change that RabbitMQ delivers from the exchange `brokerha.changes`.

    python -m brokerha.programs.consumers.changes --broker amqp://guest:guest@127.0.0.1:5672/orders --queue prices-follower --keys 'table.prices.*'

Needs `publish-changes = true` in the cluster file, and no library of brokerha. The queue is durable: changes that
are committed while this program is down arrive when it is back. A change leaves the queue after its line is written, so a crash can
repeat a line: a reader drops lines with an LSN below the last one. The program waits for an absent broker. SIGTERM ends it with exit code 0.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import logging
import signal
import sys
import threading
import time
from typing import Any

import msgpack
import pika
from pika.exceptions import AMQPError
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, sleep_using_event, stop_when_event_set
from tenacity import wait_random_exponential as growing

QUEUE_BYTES = 64 * 1024 * 1024
"""A full queue drops its oldest messages; the log of the cluster still has them."""
LOOK_S = 0.5
BOUND_FOR_S = 30.0
log = logging.getLogger("changes")


def follow(parameters: pika.URLParameters, queue: str, keys: list[str], stopping: threading.Event) -> None:
    """Write changes to standard output until `stopping` is set. Raises AMQPError."""
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        channel.queue_declare(queue, durable=True, arguments={"x-max-length-bytes": QUEUE_BYTES})
        bound_s = bind(channel, queue, keys)
        for method, properties, body in channel.consume(queue, inactivity_timeout=LOOK_S):
            if stopping.is_set():
                return
            if time.monotonic() - bound_s >= BOUND_FOR_S:
                # A deleted exchange takes its bindings along; the nodes restore only the exchange.
                bound_s = bind(channel, queue, keys)
            if method is not None:
                print(line_of(method.routing_key, properties.headers, body), flush=True)
                channel.basic_ack(method.delivery_tag)


def bind(channel: Any, queue: str, keys: list[str]) -> float:
    """Bind the queue to the changes; return the time of that. Raises AMQPError."""
    for key in keys:
        channel.queue_bind(queue, "brokerha.changes", key)
    return time.monotonic()


def line_of(key: str, headers: dict[str, Any], body: bytes) -> str:
    """Return a change as JSON: LSN, transaction, routing key, and the change, which is null when it is too large for a message (docs/amqp.md)."""
    change = msgpack.unpackb(body) if body else None
    fields = {"lsn": headers["lsn"], "txid": headers.get("txid"), "key": key, "change": change}
    return json.dumps(fields, default=text_of, ensure_ascii=False)


def text_of(value: bytes) -> Any:
    """Return bytes as text, or as {"base64": …} when they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def broker_of(url: str) -> pika.URLParameters:
    """Parse the address of a RabbitMQ. Raises ArgumentTypeError."""
    with contextlib.suppress(ValueError):  # A port that is no number.
        if url.startswith(("amqp://", "amqps://")) and url.count("/") >= 3:
            return pika.URLParameters(url)
    raise argparse.ArgumentTypeError("write amqp://user:password@host:port/vhost")


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="changes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", required=True, type=broker_of, help="amqp://user:password@host:port/vhost")
    parser.add_argument("--queue", required=True, help="queue of this follower; each has its own")
    parser.add_argument("--keys", nargs="+", default=["#"], help="routing keys: table.prices.*, graph.main.changed; all by default")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    again = Retrying(
        retry=retry_if_exception_type(AMQPError), wait=growing(0.2, max=10), stop=stop_when_event_set(stopping),
        sleep=sleep_using_event(stopping), before_sleep=before_sleep_log(log, logging.WARNING),
        retry_error_callback=lambda _: None,
    )  # fmt: skip
    again(follow, options.broker, options.queue, options.keys, stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
