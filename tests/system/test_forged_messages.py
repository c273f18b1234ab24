"""F4: messages between nodes that somebody else publishes, or publishes again, change nothing and are counted.

Given three masters and their workers, each with the user that ``brokerha init definitions`` made for it, and writes under way; when a worker's user
and an administrator's publish what only masters may say, cut true messages off, and publish again all that was heard, then the content and the log
are what they were, all nodes are well, and each is counted by its reason. An app's user cannot publish there at all (test_rights_matrix.py).

Whoever speaks with the user of a node is believed, as the broker says that it is that node: of him only what is no valid message, or of another cluster,
is set aside, and what he repeats is idempotent.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

import brokerha
from brokerha.cli.main import main
from brokerha.http.operating.families import numbers_of
from brokerha.model.wire.codec import decode_envelopes, encode_envelope
from brokerha.model.wire.epoch_messages import EpochPrepare
from brokerha.model.wire.messages import Bodies
from tests.support.broker_source import BrokerSource
from tests.support.free_ports import free_ports
from tests.support.waiting import until

VHOST = "forged"
MASTERS = ("m1", "m2", "m3")
NODES = (*MASTERS, "m1w", "m2w", "m3w")
FORGED = 1000
HEARD_LEAST = 200
PATIENCE_S = 60.0


class Site:
    """Processes, each with a user of its own, and whoever wants to harm them."""

    def __init__(self, folder: Path, source: BrokerSource) -> None:
        self.folder, self.source = folder, source
        first = free_ports(len(NODES))
        self.urls = {node: f"http://127.0.0.1:{first + place}" for place, node in enumerate(NODES)}
        self.path = folder / "cluster.toml"
        text = f'[cluster]\nname = "forged"\nbroker = "{source.url_of(VHOST)}"\ndata = "{folder / "var"}"\n'
        for node in NODES:
            kind, belongs = ("worker", f'master = "{node[:2]}"\n') if node.endswith("w") else ("master", "")
            text += f'[[{kind}]]\nid = "{node}"\nhttp = "{self.urls[node][7:]}"\n{belongs}'
        self.path.write_text(text, encoding="utf-8")
        self._secrets = folder / "deploy" / "secrets"
        assert main(["init", "definitions", "-c", str(self.path), "--deploy", str(folder / "deploy")]) == 0
        self._imported = contextlib.ExitStack()
        self._imported.enter_context(source.imported(folder / "deploy" / "definitions.json"))
        self._log = (folder / "nodes.log").open("ab")
        self._running = [self._start(node) for node in NODES]
        self.db = brokerha.connect(self.urls["m1"])

    def _start(self, node: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "brokerha", "node", node, "-c", str(self.path)],
            stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "BROKERHA_CLUSTER_BROKER_FILE": str(self._secrets / f"{node}.url")},
        )  # fmt: skip

    def close(self) -> None:
        self.db.close()
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait(10)
        self._log.close()
        self._imported.close()

    def url_of(self, user: str) -> str:
        return (self._secrets / f"{user}.url").read_text(encoding="utf-8").strip()

    def connect(self, user: str = "") -> pika.BlockingConnection:
        """As this user; without one as the administrator of the broker."""
        return pika.BlockingConnection(pika.URLParameters(self.url_of(user) if user else self.source.url_of(VHOST)))

    def states(self) -> dict[str, str]:
        return {row["id"]: row["state"] for row in self.db.status(timeout=PATIENCE_S)["nodes"]}

    def is_well(self) -> bool:
        states = self.states()
        return sorted(states) == sorted(NODES) and set(states.values()) <= {"ok", "on", "writing", "waiting-write"}

    def counted(self) -> Counter[str]:
        """Messages that were set aside, by reason, at all nodes together."""
        found: Counter[str] = Counter()
        with brokerha_http() as http:
            for url in self.urls.values():
                for key, value in numbers_of(http.get(f"{url}/metrics").text).items():
                    if key[0] == "rejected_messages_total":
                        found[key[1]] += round(value)
        return found

    def evidence(self) -> tuple[Any, ...]:
        """Log and content, the same at all sites."""
        lsn = self.db.put("marks", b"last", b"x", timeout=PATIENCE_S).lsn
        self.db.wait(lsn, "all", timeout=PATIENCE_S)
        lines = [(each["txid"], each["lsn"]) for each in self.db.log(1, lsn, timeout=PATIENCE_S)]
        return lsn, lines, self.db.digests(timeout=PATIENCE_S)["fingerprint"]


def brokerha_http() -> Any:
    import httpx2

    return httpx2.Client(timeout=20, trust_env=False)


@pytest.fixture(scope="module")
def site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("forged"), broker)
    try:
        until(running.is_well, "all nodes are well")
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def heard(site: Site) -> list[tuple[str, str, bytes, str]]:
    """(exchange, key, body, user) of what the masters said while there were writes."""
    with site.connect() as connection:
        channel = connection.channel()
        tap = channel.queue_declare("", exclusive=True).method.queue
        for exchange in ("brokerha.sync", "brokerha.data"):
            for node in NODES:
                channel.queue_bind(tap, exchange, node)
        writing = threading.Thread(target=_write, args=(site,))
        writing.start()
        found: list[tuple[str, str, bytes, str]] = []
        for method, properties, body in channel.consume(tap, auto_ack=True, inactivity_timeout=0.5):
            if method is None:
                if not writing.is_alive() and len(found) >= HEARD_LEAST:
                    break
                continue
            found.append((method.exchange, method.routing_key, body, properties.user_id))
            if not writing.is_alive() and len(found) >= FORGED:
                break
        writing.join()
    return found


def _write(site: Site) -> None:
    for number in range(60):
        with brokerha.connect(site.urls[MASTERS[number % 3]]) as db:
            db.put("prices", b"sku-%d" % number, b"%d" % number, timeout=PATIENCE_S)


def publish(site: Site, messages: list[tuple[str, str, bytes]], user: str = "", user_id: str | None = None) -> None:
    with site.connect(user) as connection:
        channel = connection.channel()
        for exchange, key, body in messages:
            channel.basic_publish(exchange, key, body, pika.BasicProperties(user_id=user_id))


def assert_went_on(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    """One line more, the same lines before it, the same content."""
    assert after[0] == before[0] + 1
    assert after[1][: before[0]] == before[1]
    assert after[2] == before[2]


def test_each_message_of_a_node_says_which_user_published_it(site: Site, heard: list[tuple[str, str, bytes, str]]) -> None:
    for _, _, body, user in heard:
        assert {f"forged.{envelope.sender}" for envelope in decode_envelopes(body)} == {user}


def test_what_others_publish_in_the_name_of_masters_is_counted_and_changes_nothing(
    site: Site, heard: list[tuple[str, str, bytes, str]]
) -> None:
    before, counted = site.evidence(), site.counted()
    again = [(exchange, key, body) for exchange, key, body, _ in heard]
    # True messages of masters: a worker may publish to masters, but not as one of them; the administrator says nothing of who he is
    of_masters = [(x, k, b) for x, k, b in again if decode_envelopes(b)[0].sender in MASTERS][: FORGED // 2]
    publish(site, of_masters, user="m1w")
    publish(site, of_masters)
    # And new ones: an epoch that nobody has decided, bodies that nobody wrote
    made = [
        ("brokerha.sync", "m2", encode_envelope("forged", "m1", 2**40, EpochPrepare((2**30, "m1")))),
        ("brokerha.data", "m2", encode_envelope("forged", "m1", 2**40, Bodies((("m1", "t", b"x"),)))),
        # A process that speaks for a master, and is none of its
        ("brokerha.sync", "m2", encode_envelope("forged", "m1", 2**40, EpochPrepare((2**30, "m1")), "m1w")),
    ]
    publish(site, made, user="m1w", user_id="forged.m1w")
    publish(site, made)
    # Then each of them is counted
    expected = {"foreign_user": 4, "no_user": 2 * len(of_masters) + 2}
    until(lambda: all((site.counted() - counted)[word] >= number for word, number in expected.items()), "all are counted")
    assert site.is_well()
    # And the log goes on where it was, with the same lines
    after = site.evidence()
    assert_went_on(before, after)
    # And the logs name in whose name they came, and not a line for each
    told = [line for line in (site.folder / "nodes.log").read_text(encoding="utf-8").splitlines() if "messages set aside" in line]
    assert len(MASTERS) <= len(told) <= len(NODES) ** 2
    # And a few of them are kept for whoever wants to know
    with site.connect() as connection:
        kept = connection.channel().queue_declare("brokerha.rejected", passive=True).method.message_count
    assert 0 < kept < 200


def test_what_is_published_again_as_it_was_changes_nothing(site: Site, heard: list[tuple[str, str, bytes, str]]) -> None:
    # Given somebody who may do even that: the broker takes him for each of the nodes
    before = site.evidence()
    for _ in range(2):
        for node in NODES:
            own = [(exchange, key, body) for exchange, key, body, user in heard if user == f"forged.{node}"]
            publish(site, own, user=node, user_id=f"forged.{node}")
    after = site.evidence()
    assert_went_on(before, after)
    until(site.is_well, "all nodes are well")


def test_what_is_cut_off_or_of_another_cluster_changes_nothing(site: Site, heard: list[tuple[str, str, bytes, str]]) -> None:
    drawn = random.Random(7)
    before, counted = site.evidence(), site.counted()
    of_m1 = [(exchange, key, body) for exchange, key, body, user in heard if user == "forged.m1"]
    alone = [each for each in of_m1 if len(decode_envelopes(each[2])) == 1]
    cut = [(exchange, key, body[: drawn.randrange(len(body))]) for exchange, key, body in alone[:200]]
    other = [
        (exchange, key, encode_envelope("stock", envelope.sender, envelope.incarnation, envelope.message))
        for exchange, key, body in of_m1[:100]
        for envelope in decode_envelopes(body)[:1]
    ]
    publish(site, cut + other, user="m1", user_id="forged.m1")
    until(lambda: (site.counted() - counted)["undecodable"] >= len(cut), "what was cut off is counted")
    until(lambda: (site.counted() - counted)["foreign_cluster"] >= len(other), "what is of others is counted")
    after = site.evidence()
    assert_went_on(before, after)
    until(site.is_well, "all nodes are well")
