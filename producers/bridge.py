"""Move the messages of a RabbitMQ queue, in order, to a queue of brokerha, where all sites have them.

    python -m brokerha.programs.producers.bridge --from amqp://guest:guest@127.0.0.1:5672/shop --queue orders --to http://127.0.0.1:7201 --into inbox

A message leaves RabbitMQ after its copy is applied. Its id becomes the id of the transaction, so a message that is delivered or published
again arrives once. A message without an id can arrive twice. A message that brokerha never takes (above 8 MiB, for instance) goes to the
queue `--aside` of RabbitMQ, with the reason in its header `brokerha-reason`. The program waits for an absent broker or cluster, and for the
right to write. SIGTERM ends it with exit code 0; RabbitMQ then delivers unfinished messages again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import os
import re
import signal
import sys
import threading
from typing import Any

import pika
from pika.exceptions import AMQPError
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, sleep_using_event, stop_when_event_set
from tenacity import wait_random_exponential as growing

import brokerha
from brokerha.errors import BrokerhaError, ConfigurationError, InvalidRequest, NotAllowed, Rejected

LOOK_S = 0.5
NAME_LIMIT_BYTES = 64
log = logging.getLogger("bridge")


def move(
    parameters: pika.URLParameters, queue: str, cluster: brokerha.Client, into: str, aside: str, stopping: threading.Event
) -> None:
    """Move messages until `stopping` is set. Raises AMQPError and BrokerhaError that a retry can cure."""
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=100)
        for method, properties, body in channel.consume(queue, inactivity_timeout=LOOK_S):
            if stopping.is_set():
                return  # Unacknowledged messages go back to the queue.
            if method is None:
                continue
            key = f"{queue}/{properties.message_id}" if properties.message_id else ""
            if key and not re.fullmatch("[!-~]{1,128}", key):  # No id of a transaction.
                key = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
            try:
                done = cluster.publish(into, body, properties.content_type or "application/octet-stream", key=key)
            except (InvalidRequest, Rejected) as error:
                # A rejected id stays rejected; a message without one gets a new transaction next time. Rights are no fault of a message.
                if isinstance(error, NotAllowed) or (isinstance(error, Rejected) and not key):
                    raise
                log.error("message %s goes to the queue %s: %s", properties.message_id, aside, error)
                _put_aside(channel, aside, body, properties, str(error))
            else:
                log.info("message %s has LSN %d", properties.message_id, done.lsn)
            channel.basic_ack(method.delivery_tag)


def _put_aside(channel: Any, aside: str, body: bytes, properties: pika.BasicProperties, reason: str) -> None:
    """Publish a message to a queue of RabbitMQ, confirmed; it stays there until a person has looked at it."""
    headers = {**(properties.headers or {}), "brokerha-reason": reason}
    if properties.user_id:  # RabbitMQ takes it from this user only.
        headers["brokerha-user-id"] = properties.user_id
    properties.headers, properties.user_id, properties.expiration, properties.delivery_mode = headers, None, None, 2
    channel.queue_declare(aside, durable=True)
    channel.basic_publish("", aside, body, properties, mandatory=True)


def broker_of(url: str) -> pika.URLParameters:
    """Parse the address of a RabbitMQ. Raises ArgumentTypeError."""
    with contextlib.suppress(ValueError):  # A port that is no number.
        if url.startswith(("amqp://", "amqps://")) and url.count("/") >= 3:
            return pika.URLParameters(url)
    raise argparse.ArgumentTypeError("write amqp://user:password@host:port/vhost")


def name_of(queue: str) -> str:
    """Check the name of a queue of brokerha: for a wrong one every message would go aside. Raises ArgumentTypeError."""
    if 1 <= len(os.fsencode(queue)) <= NAME_LIMIT_BYTES:
        return queue
    raise argparse.ArgumentTypeError(f"a queue name has 1 to {NAME_LIMIT_BYTES} bytes")


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="bridge", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", required=True, dest="broker", type=broker_of, help="amqp://user:password@host/vhost")
    parser.add_argument("--queue", required=True, help="of RabbitMQ")
    parser.add_argument("--to", required=True, help="address of the cluster: http://… or amqp://…")
    parser.add_argument("--into", required=True, type=name_of, help="queue of brokerha")
    parser.add_argument("--aside", help="queue of RabbitMQ for messages that brokerha never takes; QUEUE.aside without it")
    options = parser.parse_args()
    try:
        cluster = brokerha.connect(options.to)
    except ConfigurationError as error:
        parser.error(f"--to: {error}")
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with cluster:
        again = Retrying(
            retry=retry_if_exception_type((AMQPError, BrokerhaError)), wait=growing(0.2, max=10),
            stop=stop_when_event_set(stopping), sleep=sleep_using_event(stopping), before_sleep=before_sleep_log(log, logging.WARNING),
            retry_error_callback=lambda _: None,
        )  # fmt: skip
        again(move, options.broker, options.queue, cluster, options.into, options.aside or f"{options.queue}.aside", stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
