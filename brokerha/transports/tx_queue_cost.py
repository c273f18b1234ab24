"""What a queue for each transaction costs the broker alone: a yardstick for transactions, beside those in yardstick.py.

    tx_queue_cost(url, count=200, at_once=1)
        one connection makes a queue, publishes three messages to it, and deletes it; another reads the three from it

Plain py-amqp with the arguments of topology.py, each step as soon as the one before it is known to be done, and nothing
of brokerha's own transport: a yardstick must not move with what it measures.
"""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor

import amqp

from brokerha.transports.addresses import parse_addresses
from brokerha.transports.topology import tx_queue_name, tx_queue_row
from brokerha.transports.yardstick import Rate, connect, percentiles

EVENTS = 3
_PATIENCE_S = 30.0


def tx_queue_cost(url: str, count: int = 200, at_once: int = 1, size_bytes: int = 200) -> Rate:
    """Transactions per second, and the milliseconds of one, with ``at_once`` pairs of connections side by side.

    Raises Unreachable.
    """
    share = max(1, count // at_once)
    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        runs = [threads.submit(_one_after_the_other, url, share, size_bytes) for _ in range(at_once)]
        latencies = sorted(latency for run in runs for latency in run.result())
    elapsed = time.perf_counter() - started
    return Rate(len(latencies) / elapsed, *percentiles(latencies))


def _one_after_the_other(url: str, count: int, size_bytes: int) -> list[float]:
    address = parse_addresses(url)[0]
    message = amqp.Message(b"x" * size_bytes, delivery_mode=1)
    latencies = []
    with connect(address) as primary_connection, connect(address) as backup_connection:
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
            primary.queue_declare(name, durable=True, auto_delete=False, arguments=tx_queue_row(name).arguments)
            for _event in range(EVENTS):
                primary.basic_publish(message, "", name, mandatory=True)
            backup.basic_consume(name, callback=take, on_cancel=lambda _tag: None)
            while received < EVENTS:
                backup_connection.drain_events(timeout=_PATIENCE_S)
            primary.queue_delete(name)
            latencies.append(time.perf_counter() - began)
    return latencies
