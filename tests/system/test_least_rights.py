"""T11, F4: a master with backups does everything with the least rights in its broker, and with no more than those.

Each process has the user, and the app the user, that ``brokerha init definitions`` gave it, with a password that it drew; nothing else is in
the virtual host but what these definitions made.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgpack
import pika
import pytest

import brokerha
from brokerha.cli.main import main
from brokerha.model.errors import Rejected
from brokerha.model.wire.tx_queues import tx_queue_name
from brokerha.transports.topology import data_queue, log_stream, sync_queue, writes_queue
from tests.support.broker_source import BrokerSource
from tests.system.tx_site import SETTINGS, TxSite

APP, FOLLOWER = "app", "follower"


class LeastSite(TxSite):
    """Every process comes to the broker as its own user."""

    def __init__(self, folder: Path, source: BrokerSource, broker: str, secrets: Path) -> None:
        self.secrets = secrets
        super().__init__(folder, source, broker, settings=f"{SETTINGS}publish-changes = true\n")

    def environment(self, node: str) -> dict[str, str]:
        return {"BROKERHA_CLUSTER_BROKER_FILE": str(self.secrets / f"{node}.url")}

    def url_of(self, user: str) -> str:
        """The broker for one of its users."""
        return (self.secrets / f"{user}.url").read_text(encoding="utf-8").strip()


@pytest.fixture(scope="module")
def site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeastSite]:
    folder = tmp_path_factory.mktemp("rights")
    made = folder / "deploy"
    site = LeastSite(folder, broker, broker.url_of("rights"), made / "secrets")
    assert main(["init", "definitions", "-c", str(site.path), "--deploy", str(made)]) == 0
    with broker.imported(made / "definitions.json"), contextlib.closing(site):
        site.start(*site.nodes)
        site.await_primary()
        site.await_ready(*site.nodes)
        yield site


def test_transactions_fail_over_and_streams_need_no_more(site: LeastSite) -> None:
    with brokerha.connect(site.url_of(APP)) as db:
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


def test_a_follower_reads_the_log_and_the_changes_and_nothing_else(site: LeastSite) -> None:
    with brokerha.connect(site.url_of(APP)) as db, pika.BlockingConnection(pika.URLParameters(site.url_of(FOLLOWER))) as connection:
        channel = connection.channel()
        mine = f"{urlsplit(site.url_of(FOLLOWER)).username}.prices"
        channel.queue_declare(mine, durable=True)
        channel.queue_bind(mine, "brokerha.changes", "table.prices.*")
        written = db.put("prices", b"sku-3", b"1").lsn
        changes: list[object] = []
        for method, properties, body in channel.consume(mine, inactivity_timeout=30):
            assert method is not None, changes
            assert properties.headers["user"] == urlsplit(site.url_of(APP)).username
            changes.append(msgpack.unpackb(body))
            if ["put", "prices", b"sku-3", b"1"] in changes:
                break
        streamed = connection.channel()
        streamed.basic_qos(prefetch_count=100)
        lsns: list[int] = []
        for method, _, body in streamed.consume(log_stream("m1"), arguments={"x-stream-offset": "first"}, inactivity_timeout=30):
            assert method is not None, lsns
            lsns += [row[0] for row in msgpack.unpackb(body)]
            if written in lsns:
                break
        streamed.close()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.basic_get(data_queue("m1"))


def test_the_log_names_who_wrote_what_by_the_word_of_the_broker(site: LeastSite) -> None:
    app = str(urlsplit(site.url_of(APP)).username)
    with brokerha.connect(site.url_of(APP)) as db:
        first = db.put("owners", b"k", b"1").lsn
        with db.transaction() as tx:
            tx.put("owners", b"l", b"2")
        with pytest.raises(Rejected):
            db.write([("expect-key", "owners", b"k", ""), ("put", "owners", b"k", b"3")])
    with site.client() as unnamed:
        last = unnamed.put("owners", b"m", b"4").lsn

    lines = [
        json.loads(line) for line in site.run("log", "show", "--from", str(first), "--to", str(last), "-o", "json").splitlines()
    ]
    assert [(line["user"], line["kind"], line["outcome"]) for line in lines] == [
        (app, "put", "applied"), (app, "put", "applied"), (app, "transaction", "rejected"), (None, "put", "applied"),
    ]  # fmt: skip
    hers = site.run("log", "show", "--from", str(first), "--user", app, "-o", "json").splitlines()
    assert [json.loads(line)["lsn"] for line in hers] == [line["lsn"] for line in lines[:3]]


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
    with pika.BlockingConnection(pika.URLParameters(site.url_of(user))) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.basic_get(queue)


def test_neither_workers_nor_apps_make_queues_of_transactions(site: LeastSite) -> None:
    for user in ("w1", APP):
        with pika.BlockingConnection(pika.URLParameters(site.url_of(user))) as connection:
            channel = connection.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
                channel.queue_declare(tx_queue_name("m1", "t-1", "m1b"), durable=True)
