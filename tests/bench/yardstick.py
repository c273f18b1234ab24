"""Measures the broker alone: the yardstick that `python -m tests.bench` shows beside its own figures, taken in the same run.

    publish_and_confirm    persistent messages to a durable queue, a window of them unconfirmed
    round_trip             one message there and one back, through two queues and two connections
    tx_queue_cost          a queue for each transaction: made, three messages through it, deleted
    transfer               large messages through a queue to another process, a window of them under way

It uses plain py-amqp, not brokerha's own transport: a yardstick must not depend on the measured code.
"""

from __future__ import annotations

import multiprocessing
import secrets
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import amqp

from brokerha.model.errors import Unreachable
from brokerha.model.wire.tx_queues import tx_queue_name
from brokerha.transports.rabbitmq.addresses import Address, parse_addresses
from brokerha.transports.rabbitmq.connecting import tls_options
from brokerha.transports.rabbitmq.identity import TOOL_ROLE, Identity
from brokerha.transports.topology import tx_queue_row

QUEUE_LIMIT = 20_000
_TX_EVENTS = 3
_PATIENCE_S = 30.0


class Rate(NamedTuple):
    """Messages per second, and milliseconds from publication to confirmation."""

    per_second: float
    p50_ms: float
    p99_ms: float


def _connect(address: Address) -> amqp.Connection:
    connection = amqp.Connection(
        host=f"{address.host}:{address.port}",
        userid=address.user,
        password=address.password,
        virtual_host=address.vhost,
        connect_timeout=10,
        ssl=tls_options(address),
        client_properties=Identity("brokerha bench", TOOL_ROLE).properties(),
    )
    try:
        connection.connect()
    except (OSError, amqp.AMQPError) as error:
        message = f"no broker answers at {address}: {error}"
        raise Unreachable(message) from None
    return connection


def publish_and_confirm(url: str, window: int, seconds: float, size_bytes: int = 200) -> Rate:
    """Publish for ``seconds`` with at most ``window`` messages unconfirmed."""
    name = f"brokerha.bench.{secrets.token_hex(4)}"
    with _connect(parse_addresses(url)[0]) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, auto_delete=False, arguments={"x-max-length": QUEUE_LIMIT})
        channel.confirm_select()
        under_way: deque[tuple[int, float]] = deque()
        latencies: list[float] = []

        def on_ack(tag: int, _multiple: bool) -> None:
            now = time.perf_counter()
            # One queue on one node confirms in order, so all messages up to the tag are confirmed, ``multiple`` or not.
            while under_way and under_way[0][0] <= tag:
                latencies.append(now - under_way.popleft()[1])

        channel.events["basic_ack"].add(on_ack)
        message = amqp.Message(b"x" * size_bytes, delivery_mode=2)
        started = time.perf_counter()
        number = 0
        while time.perf_counter() - started < seconds:
            while len(under_way) < window:
                number += 1
                under_way.append((number, time.perf_counter()))
                channel._basic_publish(message, "", name)
            connection.drain_events(timeout=10)
        elapsed = time.perf_counter() - started
        channel.queue_delete(name)
    latencies.sort()
    return Rate(len(latencies) / elapsed, *_percentiles(latencies))


def round_trip(url: str, count: int = 300) -> Rate:
    """Send one message at a time to another connection and back."""
    address = parse_addresses(url)[0]
    there, back = (f"brokerha.bench.{secrets.token_hex(4)}" for _ in range(2))
    stopping = threading.Event()

    def echo() -> None:
        with _connect(address) as connection:
            channel = connection.channel()
            channel.basic_consume(there, callback=lambda m: channel.basic_publish(amqp.Message(m.body), "", back), no_ack=True)
            while not stopping.is_set():
                try:
                    connection.drain_events(timeout=0.5)
                except TimeoutError:
                    continue

    with _connect(address) as connection:
        channel = connection.channel()
        for name in (there, back):
            # They expire by themselves: deleting a queue with consumers would cancel the consumers.
            channel.queue_declare(name, durable=True, auto_delete=False, arguments={"x-expires": 60_000})
        arrived = threading.Event()
        channel.basic_consume(back, callback=lambda _m: arrived.set(), no_ack=True)
        thread = threading.Thread(target=echo, daemon=True)
        thread.start()
        latencies = []
        started = time.perf_counter()
        for _ in range(count):
            arrived.clear()
            sent = time.perf_counter()
            channel.basic_publish(amqp.Message(b"x" * 200), "", there)
            while not arrived.is_set():
                connection.drain_events(timeout=10)
            latencies.append(time.perf_counter() - sent)
        elapsed = time.perf_counter() - started
        stopping.set()
        thread.join(5)
    latencies.sort()
    return Rate(count / elapsed, *_percentiles(latencies))


def transfer(url: str, count: int, size_bytes: int, window: int) -> float:
    """Return the bytes per second of ``count`` transient messages through a queue to another process, ``window`` under way.

    The receiver grants like a follower of a snapshot: half a window at a time.
    """
    address = parse_addresses(url)[0]
    name, grants = (f"brokerha.bench.{secrets.token_hex(4)}" for _ in range(2))
    with _connect(address) as connection:
        channel = connection.channel()
        for queue in (name, grants):
            channel.queue_declare(queue, durable=True, auto_delete=False, arguments={"x-expires": 60_000})
        sender = multiprocessing.get_context("spawn").Process(
            target=_send, args=(url, name, grants, count, size_bytes, window), daemon=True
        )
        sender.start()
        received = 0
        started = 0.0

        def take(message: amqp.Message) -> None:
            nonlocal received, started
            received += 1
            # The first message shows that the other process is running.
            started = started or time.perf_counter()
            if received % max(1, window // 2) == 0:
                channel.basic_ack(message.delivery_tag, multiple=True)
                channel.basic_publish(amqp.Message(b""), "", grants)

        channel.basic_qos(0, 256, False)
        channel.basic_consume(name, callback=take)
        while received <= count:
            connection.drain_events(timeout=30)
        elapsed = time.perf_counter() - started
        sender.join(10)
    return count * size_bytes / elapsed


def _send(url: str, name: str, grants: str, count: int, size_bytes: int, window: int) -> None:
    """Send one message, then as many as granted, each confirmed; the sending process of `transfer`."""
    with _connect(parse_addresses(url)[0]) as connection:
        channel = connection.channel()
        channel.confirm_select()
        granted = window + 1
        sent = 0

        def grant(_: amqp.Message) -> None:
            nonlocal granted
            granted += max(1, window // 2)

        channel.basic_consume(grants, callback=grant, no_ack=True)
        message = amqp.Message(secrets.token_bytes(size_bytes), delivery_mode=1)
        while sent <= count:
            while sent < granted and sent <= count:
                channel._basic_publish(message, "", name)
                sent += 1
            if sent <= count:
                connection.drain_events(timeout=30)


def tx_queue_cost(url: str, count: int = 200, at_once: int = 1, size_bytes: int = 200) -> Rate:
    """Return transactions per second, and the milliseconds of one, with ``at_once`` pairs of connections in parallel.

    Raises Unreachable.
    """
    share = max(1, count // at_once)
    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        runs = [threads.submit(_one_after_the_other, url, share, size_bytes) for _ in range(at_once)]
        latencies = sorted(latency for run in runs for latency in run.result())
    elapsed = time.perf_counter() - started
    return Rate(len(latencies) / elapsed, *_percentiles(latencies))


def _one_after_the_other(url: str, count: int, size_bytes: int) -> list[float]:
    address = parse_addresses(url)[0]
    message = amqp.Message(b"x" * size_bytes, delivery_mode=1)
    latencies = []
    with _connect(address) as primary_connection, _connect(address) as backup_connection:
        primary, backup = primary_connection.channel(), backup_connection.channel()
        primary.confirm_select()
        received = 0

        def take(delivered: amqp.Message) -> None:
            nonlocal received
            received += 1
            backup.basic_ack(delivered.delivery_tag)

        for _ in range(count):
            received = 0
            began = time.perf_counter()
            name = tx_queue_name("bench", secrets.token_hex(8), "backup")
            primary.queue_declare(name, durable=True, auto_delete=True, arguments=tx_queue_row(name).arguments)
            for _event in range(_TX_EVENTS):
                primary.basic_publish(message, "", name, mandatory=True)
            tag = backup.basic_consume(name, callback=take, on_cancel=lambda _tag: None)
            while received < _TX_EVENTS:
                backup_connection.drain_events(timeout=_PATIENCE_S)
            backup.basic_cancel(tag)
            latencies.append(time.perf_counter() - began)
    return latencies


def _percentiles(ordered: list[float]) -> tuple[float, float]:
    if not ordered:
        return 0.0, 0.0
    return ordered[len(ordered) // 2] * 1000, ordered[int(len(ordered) * 0.99)] * 1000
