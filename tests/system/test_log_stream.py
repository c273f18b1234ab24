"""The log stream and the changes over a real RabbitMQ, read with plain pika as a follower would.

Given two masters with a worker each, when they take a mixed load, and are stopped, cut off, or have their stream deleted in
between, then each stream holds what the master's journal holds, in order and without a gap; repeats are dropped by LSN.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pika
import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import ReadOnly, Rejected
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.transports.topology import log_stream
from tests.support.configs import config_of
from tests.support.private_broker import PrivateBroker
from tests.support.waiting import until

WAIT_S = 30.0


def config(url: str, folder: Path) -> ClusterConfig:
    return config_of("follow", url, folder, {"m1": "w1", "m2": "w2"}, publish_changes=True)


@pytest.fixture
def cluster(vhost_url: str, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config(vhost_url, tmp_path)) as running:
        yield running


@contextlib.contextmanager
def channel_of(url: str) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def taken(write: Callable[[], object]) -> None:
    """Write once it is taken: a master that has not heard its workers for a while is read-only until it hears them again."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            write()
        except ReadOnly:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def load(cluster: EmbeddedCluster, count: int, word: str) -> None:
    """Puts, deletes, SPARQL and a transaction that is rejected, at both masters."""
    db = cluster.client("m1")
    for n in range(count):
        db = cluster.client("m1" if n % 2 else "m2")
        taken(partial(db.put, "prices", b"%s-%d" % (word.encode(), n), b"v" * 50, timeout=WAIT_S))
    taken(partial(db.delete, "prices", b"%s-0" % word.encode(), timeout=WAIT_S))
    taken(partial(db.update, "main", f'INSERT DATA {{ <urn:{word}> <urn:is> "here" }}', timeout=WAIT_S))
    with contextlib.suppress(Rejected):
        taken(partial(db.update, "nowhere", "INSERT DATA { <urn:a> <urn:b> 1 }", timeout=WAIT_S))


def journal_rows(cluster: EmbeddedCluster, node: str) -> list[list[Any]]:
    """What the stream must say, made straight from the journal."""
    journal = cluster.masters[node].journal
    results = journal.results(1, 100_000)
    return [
        [lsn, txid, origin, timestamp, *result, 1]
        for lsn, ((timestamp, txid, origin), result) in enumerate(zip(journal.ordered(1, len(results)), results, strict=True), 1)
    ]


def messages(channel: Any, stream: str, offset: object = "first", quiet_s: float = 1.0) -> list[tuple[Any, bytes]]:
    """Everything in a stream from an offset on."""
    found = []
    channel.basic_qos(prefetch_count=100)
    for method, properties, body in channel.consume(stream, inactivity_timeout=quiet_s, arguments={"x-stream-offset": offset}):
        if method is None:
            break
        found.append((properties, body))
        channel.basic_ack(method.delivery_tag)
    return found


def stream_rows(url: str, node: str) -> list[list[Any]]:
    """Rows of a stream with repeats dropped by LSN; fails on a gap."""
    rows: list[list[Any]] = []
    with channel_of(url) as channel:
        for properties, body in messages(channel, log_stream(node)):
            part = msgpack.unpackb(body)
            headers = properties.headers
            assert [headers["first_lsn"], headers["last_lsn"]] == [part[0][0], part[-1][0]]
            assert properties.message_id == f"{part[0][0]}-{part[-1][0]}"
            assert (headers["cluster"], headers["node"]) == ("follow", node)
            for row in part:
                assert row[0] <= len(rows) + 1, "a gap"
                if row[0] == len(rows) + 1:
                    rows.append(row)
    return rows


def await_published(cluster: EmbeddedCluster) -> None:
    """Until every master has executed the same, and published all of it."""

    def numbers() -> list[tuple[int, int, int]]:
        return [
            (m.runner.core.sync.lsn, m.runner.core.feed.executed, m.followers.published_lsn() if m.followers else -1)
            for m in cluster.masters.values()
        ]

    until(lambda: len({number for triple in numbers() for number in triple}) == 1, numbers)


def check_all(cluster: EmbeddedCluster, url: str) -> None:
    await_published(cluster)
    for node in cluster.masters:
        rows = journal_rows(cluster, node)
        assert rows
        assert stream_rows(url, node) == rows


def test_each_stream_says_what_the_journal_holds(cluster: EmbeddedCluster, vhost_url: str):
    load(cluster, 40, "mixed")
    check_all(cluster, vhost_url)
    outcomes = {row[4] for row in journal_rows(cluster, "m1")}
    assert outcomes == {"applied", "rejected"}


def test_a_master_that_was_stopped_goes_on_where_its_stream_ends(cluster: EmbeddedCluster, vhost_url: str):
    for n in range(3):
        load(cluster, 6, f"round{n}")
        cluster.stop_node("m1")
        cluster.start_node("m1")
    load(cluster, 6, "last")
    check_all(cluster, vhost_url)


def test_a_stream_that_was_deleted_is_filled_again(cluster: EmbeddedCluster, vhost_url: str):
    load(cluster, 10, "before")
    await_published(cluster)
    with channel_of(vhost_url) as channel:
        channel.queue_delete(log_stream("m1"))
    load(cluster, 10, "after")
    check_all(cluster, vhost_url)


def test_a_stream_that_was_deleted_while_nothing_happens_is_filled_again_too(cluster: EmbeddedCluster, vhost_url: str):
    load(cluster, 4, "before")
    await_published(cluster)
    with channel_of(vhost_url) as channel:
        channel.queue_delete(log_stream("m2"))

    def is_back() -> bool:
        try:
            return stream_rows(vhost_url, "m2") == journal_rows(cluster, "m2")
        except pika.exceptions.AMQPError:
            # Away, or RabbitMQ (3.10) gives the connection up because the stream comes and goes under it.
            return False

    until(is_back)


def test_a_stream_of_another_journal_is_followed_by_everything(vhost_url: str, tmp_path: Path):
    with EmbeddedCluster(config(vhost_url, tmp_path / "first")) as first:
        load(first, 6, "first")
        await_published(first)
    with EmbeddedCluster(config(vhost_url, tmp_path / "second")) as second:
        load(second, 2, "second")
        await_published(second)
        name = second.masters["m1"].journal.state().journal
        with channel_of(vhost_url) as channel:
            found = [b for p, b in messages(channel, log_stream("m1")) if p.headers["journal"] == name]
        rows = [row for body in found for row in msgpack.unpackb(body)]
        assert rows == journal_rows(second, "m1")


def test_it_goes_on_after_lost_connections_and_a_killed_broker(private_broker: PrivateBroker, tmp_path: Path):
    url = private_broker.create_vhost("log-stream-faults")
    try:
        with EmbeddedCluster(config(url, tmp_path)) as cluster:
            load(cluster, 6, "calm")
            for n in range(3):
                private_broker.close_all_connections()
                load(cluster, 6, f"cut{n}")
            await_published(cluster)
            private_broker.kill()
            private_broker.restart()
            load(cluster, 6, "killed")
            check_all(cluster, url)
    finally:
        private_broker.delete_vhost("log-stream-faults")


def test_changes_come_once_with_their_keys_in_order(cluster: EmbeddedCluster, vhost_url: str):
    with channel_of(vhost_url) as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        for key in ("table.#", "graph.main.changed", "repository.*.created"):
            channel.queue_bind(queue, "brokerha.changes", key)
        db = cluster.client("m2")
        db.put("new prices", b"k", b"v", timeout=WAIT_S)
        db.delete("new prices", b"k", timeout=WAIT_S)
        db.update("main", 'INSERT DATA { <urn:a> <urn:b> "c" }', timeout=WAIT_S)
        db.create_repository("other", timeout=WAIT_S)
        await_published(cluster)
        found = []
        for method, properties, body in channel.consume(queue, inactivity_timeout=1.0, auto_ack=True):
            if method is None:
                break
            found.append((properties.headers["lsn"], method.routing_key, msgpack.unpackb(body)))
            assert properties.headers["txid"] == journal_rows(cluster, "m1")[properties.headers["lsn"] - 1][1]
    assert found == [
        (1, "table.new_prices.put", ["put", "new prices", b"k", b"v"]),
        (2, "table.new_prices.deleted", ["delete", "new prices", b"k"]),
        (3, "graph.main.changed", ["quads", "main", [], ['<urn:a> <urn:b> "c"']]),
        (4, "repository.other.created", ["create-repository", "other"]),
    ]
