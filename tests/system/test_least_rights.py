"""T11: a master with backups does everything with the least rights in its broker, and with no more than those.

Each process has a user of its own with the rights of tests/support/least_rights.py; the app has a user that may publish and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pika
import pytest

import brokerha
from brokerha.model.tx_queues import tx_queue_name
from brokerha.transports.topology import data_queue, sync_queue, writes_queue
from tests.support.broker_source import BrokerSource
from tests.support.least_rights import Rights, app_rights, rights_of
from tests.system.tx_site import TxSite

APP = "app"


def rights() -> dict[str, Rights]:
    """Of each user."""
    processes = {process: rights_of(process, "backup", "m1") for process in ("m1", "m1b", "m1c")}
    workers = {worker: rights_of(worker, "worker") for worker in ("w1", "w2")}
    return {**processes, **workers, APP: app_rights()}


def as_user(url: str, user: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{user}@{parts.hostname}:{parts.port}"))


class LeastSite(TxSite):
    """Every process comes to the broker as the user that has its name."""

    def start(self, *nodes: str) -> None:
        for node in nodes:
            command = [sys.executable, "-m", "brokerha", "node", node, "-c", str(self.path)]
            self._running[node] = subprocess.Popen(
                command,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "BROKERHA_CLUSTER_BROKER": as_user(self.broker, node)},
            )


@pytest.fixture(scope="module")
def site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeastSite]:
    vhost = "rights"
    url = broker.create_vhost(vhost)
    with broker.management() as management:
        for user, least in rights().items():
            management.create_user(user, user)
            management.set_permissions(vhost, user, *least)
    site = LeastSite(tmp_path_factory.mktemp("rights"), broker, url)
    try:
        site.start(*site.nodes)
        site.await_primary()
        site.await_ready(*site.nodes)
        yield site
    finally:
        site.close()
        broker.delete_vhost(vhost)


def test_transactions_fail_over_and_streams_need_no_more(site: LeastSite) -> None:
    with brokerha.connect(as_user(site.broker, APP)) as db:
        db.publish("a", b"x")
        with db.transaction() as tx:
            message = tx.accept("a")
            assert message is not None
            tx.publish("b", message.body)
            tx.put("prices", b"sku-1", b"9.90")
        primary = site.await_primary()
        site.kill(primary)
        site.await_primary()
        with db.transaction() as tx:
            message = tx.accept("b")
            assert message is not None
            tx.put("prices", b"sku-2", message.body)
        site.start(primary)
        site.await_ready(primary)
        assert db.get("prices", b"sku-2") == b"x"
        depths = {name: counts["depth"] for name, counts in db.queues().items()}
    assert depths == {"a": 0, "b": 0}
    assert "ACCESS_REFUSED" not in site.log_tail(10_000)


@pytest.mark.parametrize(
    ("user", "queue"),
    [
        ("w1", data_queue("w2")),
        ("w1", writes_queue("m1")),
        ("m1b", sync_queue("m1")),
        ("m1b", data_queue("w1")),
        (APP, data_queue("m1")),
    ],
)
def test_nobody_reads_what_is_for_others(site: LeastSite, user: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(as_user(site.broker, user))) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.basic_get(queue)


def test_neither_workers_nor_apps_make_queues_of_transactions(site: LeastSite) -> None:
    for user in ("w1", APP):
        with pika.BlockingConnection(pika.URLParameters(as_user(site.broker, user))) as connection:
            channel = connection.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
                channel.queue_declare(tx_queue_name("m1", "t-1", "m1b"), durable=True)
