"""The two followers of docs/amqp.md are run as they stand; only the address is replaced.

Given a cluster that publishes its log and its changes, when something is written, then both followers print it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pika

from brokerha.embedded import EmbeddedCluster
from tests.docs.pages import output_of, the_block
from tests.support.configs import config_of
from tests.support.waiting import until

WAIT_S = 30.0
URL = "amqp://guest:guest@127.0.0.1:5672/orders"


def example(words: str, url: str) -> str:
    code = the_block("docs/amqp.md", "python", words)
    assert URL in code
    return code.replace(URL, url)


def test_the_followers_print_what_was_committed(vhost_url: str, tmp_path: Path):
    config = config_of("followed", vhost_url, tmp_path / "data", {"m1": "w1"}, publish_changes=True)
    # The queue of the second follower is made here, as if it had been started before.
    connection = pika.BlockingConnection(pika.URLParameters(vhost_url))
    channel = connection.channel()
    channel.exchange_declare("brokerha.changes", "topic", durable=True)
    channel.queue_declare("prices-follower", durable=True, arguments={"x-max-length-bytes": 64 * 1024 * 1024})
    channel.queue_bind("prices-follower", "brokerha.changes", "table.prices.*")
    connection.close()
    with EmbeddedCluster(config) as cluster:
        written = cluster.client("m1").put("prices", b"sku-1", b"9.90", timeout=WAIT_S)
        followers = cluster.masters["m1"].followers
        assert followers is not None
        until(lambda: followers.published_lsn() >= written.lsn)
        printed = [
            output_of([sys.executable, "-c", example(words, vhost_url)], tmp_path, dict(os.environ)).split(" ", 2)
            for words in ("brokerha.m1.log", "prices-follower")
        ]
    log, change = printed
    assert log[:2] == change[:2] == [str(written.lsn), written.txid]
    assert log[2].strip() == "applied [['put', 'prices', b'sku-1', b'9.90']]"
    assert change[2].strip() == "table.prices.put ['put', 'prices', b'sku-1', b'9.90']"
