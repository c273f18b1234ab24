"""F4: with the generated definitions, exactly the permitted cells of user x exchange or queue x operation go through a real broker.

Given a virtual host that only ``brokerha init definitions`` has made, when each user tries to declare, publish to, bind and read everything
that is there, then what goes through is the table below, which is written by hand from what each is for, not from the patterns.

    configure   exchange.declare, queue.declare, as the entity is there
    write       basic.publish to an exchange; a queue is written by binding it to an exchange that the user may read
    read        basic.consume of a queue; an exchange is read by binding a queue that the user may write
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker

from brokerha.cli.main import main
from tests.support.broker_source import BrokerSource

VHOST: Final = "matrix"
REFUSED: Final = 403
FILE: Final = """\
[cluster]
name = "{vhost}"
broker = "{broker}"
[[master]]
id = "m1"
[[master]]
id = "m2"
[[backup]]
id = "m1b"
master = "m1"
[[worker]]
id = "w1"
master = "m1"
[[worker]]
id = "w2"
master = "m2"
"""
NODES: Final = ("m1", "m2", "m1b", "w1", "w2")
USERS: Final = (*NODES, "app", "follower", "monitor", "admin")
CLAIM: Final = "brokerha.cluster"
"""Says whose the virtual host is, by the alternate exchange that it was declared with; whoever makes it must be able to write to that."""
KINDS: Final = {
    CLAIM: "fanout",
    "brokerha.sync": "direct",
    "brokerha.data": "direct",
    "brokerha.writes": "direct",
    "brokerha.reads": "direct",
    "brokerha.rejected": "fanout",
    "brokerha.changes": "topic",
}
FOREIGN: Final = {"amq.direct": "direct", "amq.topic": "topic"}
EXCHANGES: Final = {*KINDS, *FOREIGN}
INBOXES: Final = {f"brokerha.{node}.{kind}" for node in NODES for kind in ("sync", "data")}
SHARED: Final = {"brokerha.writes.any", "brokerha.reads.any"}
OF_MASTERS: Final = {f"brokerha.{master}.{kind}" for master in ("m1", "m2") for kind in ("writes", "reads")}
LOGS: Final = {"brokerha.m1.log", "brokerha.m2.log"}
REJECTED: Final = {"brokerha.rejected"}
MADE_HERE: Final = {
    "brokerha.tx.m1.t-1.m1b",
    "brokerha.tx.m2.t-1.m2b",
    f"{VHOST}.follower.prices",
    f"{VHOST}.app.prices",
    "follower.prices",
    "somebody",
}
"""Queues that stand for those that come and go."""
QUEUES: Final = INBOXES | SHARED | OF_MASTERS | LOGS | REJECTED | MADE_HERE
KEY: Final = "graph.nobody.nothing"
"""Allowed for who publishes changes, and no key of any queue."""
TOPIC_KEYS: Final = {
    KEY: True,
    "table.prices.put": True,
    "queue.a.published": True,
    "other.changed": True,
    "log.m1.went-back": True,
    "strange.key": False,
    "m1": False,
    "xgraph.a.b": False,
}
"""Routing keys of changes, and whether masters publish such."""


def own(node: str) -> set[str]:
    return {f"brokerha.{node}.sync", f"brokerha.{node}.data"}


def of_apps(master: str) -> set[str]:
    return SHARED | {f"brokerha.{master}.writes", f"brokerha.{master}.reads"}


def expected(user: str) -> dict[str, set[str]]:
    """What a user may do: operation on exchanges or queues -> their names."""
    nothing: dict[str, set[str]] = {
        f"{what} {kind}": set() for what in ("configure", "write", "read") for kind in ("exchange", "queue")
    }
    if user in {"m1", "m1b", "m2"}:
        master = user[:2]
        of_tx = {f"brokerha.tx.{master}.t-1.{master}b"}
        inboxes, served, log = own(user), of_apps(master), {f"brokerha.{master}.log"}
        return {
            "configure exchange": set(KINDS),
            "configure queue": inboxes | served | log | of_tx | REJECTED,
            "write exchange": {*KINDS, ""} - {CLAIM},
            "write queue": inboxes | served | log | REJECTED,
            "read exchange": set(KINDS) - {"brokerha.changes"},
            "read queue": inboxes | served | log | of_tx | REJECTED,
        }
    if user in {"w1", "w2"}:
        exchanges = {"brokerha.sync", "brokerha.data", "brokerha.rejected"}
        read = {*exchanges, CLAIM}
        queues = own(user) | REJECTED
        return {
            "configure exchange": set(KINDS),
            "configure queue": queues,
            "write exchange": exchanges,
            "write queue": queues,
            "read exchange": read,
            "read queue": queues,
        }
    if user == "app":
        return {**nothing, "write exchange": {"brokerha.writes", "brokerha.reads"}}
    if user == "follower":
        mine = {f"{VHOST}.follower.prices"}
        return {
            **nothing,
            "configure queue": mine,
            "write queue": mine,
            "read queue": mine | LOGS,
            "read exchange": {"brokerha.changes"},
        }
    if user == "admin":
        return {what: {*EXCHANGES, ""} if "exchange" in what else set(QUEUES) for what in nothing}
    return nothing


class Trying:
    """One user with a connection; a refusal closes the channel, and the next try opens another."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel: BlockingChannel | None = None

    def close(self) -> None:
        self._connection.close()

    def may(self, method: str, *arguments: Any, **options: Any) -> bool:
        """Try it; False when it is refused for want of rights."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
            self._channel.basic_qos(prefetch_count=1)
        try:
            getattr(self._channel, method)(*arguments, **options)
        except ChannelClosedByBroker as refused:
            if refused.reply_code == REFUSED:
                return False
            raise
        return True

    def reads(self, queue: str) -> bool:
        """Consume for a moment."""
        if not self.may("basic_consume", queue, lambda *_: None):
            return False
        assert self._channel is not None
        self._channel.close()
        return True


@pytest.fixture(scope="module")
def made(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "cluster.toml").write_text(FILE.format(vhost=VHOST, broker=broker.url_of(VHOST)), encoding="utf-8")
    assert main(["init", "definitions", "-c", str(folder / "cluster.toml"), "--deploy", str(folder)]) == 0
    broker.delete_vhost(VHOST)
    with broker.imported(folder / "definitions.json") as definitions:
        admin = Trying(url_of(folder, "admin"))
        for queue in MADE_HERE:
            assert admin.may("queue_declare", queue, durable=True)
        admin.close()
        yield folder, definitions


def url_of(folder: Path, user: str) -> str:
    return (folder / "secrets" / f"{user}.url").read_text(encoding="utf-8").strip()


def arguments_of(definitions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {queue["name"]: queue["arguments"] for queue in definitions["queues"]}


@pytest.mark.parametrize("user", [each for each in USERS if each != "monitor"])
def test_exactly_the_permitted_cells_go_through(made: tuple[Path, dict[str, Any]], user: str):
    folder, definitions = made
    arguments = arguments_of(definitions)
    trying = Trying(url_of(folder, user))
    allowed = expected(user)
    known = {exchange["name"]: exchange["arguments"] for exchange in definitions["exchanges"]}
    configured = {
        name
        for name, kind in {**KINDS, **FOREIGN}.items()
        if trying.may("exchange_declare", name, kind, durable=True, arguments=known.get(name))
    }
    # The broker keeps its own exchanges to itself, whoever asks.
    assert configured | (set(FOREIGN) & allowed["configure exchange"]) == allowed["configure exchange"] - {""}
    declared = {name for name in QUEUES if trying.may("queue_declare", name, durable=True, arguments=arguments.get(name))}
    assert declared == allowed["configure queue"]
    published = {name for name in {*EXCHANGES, ""} if trying.may("basic_publish", name, KEY, b"")}
    assert published == allowed["write exchange"]
    assert {name for name in QUEUES if trying.reads(name)} == allowed["read queue"]
    bound = set()
    for exchange in sorted(EXCHANGES):
        for queue in sorted(QUEUES):
            if trying.may("queue_bind", queue, exchange, KEY):
                bound.add((exchange, queue))
                assert trying.may("queue_unbind", queue, exchange, KEY)
    readable = allowed["read exchange"] - {""}
    assert bound == {(exchange, queue) for exchange in readable for queue in allowed["write queue"]}
    trying.close()


@pytest.mark.parametrize("user", NODES)
def test_every_node_can_make_anew_what_says_whose_the_virtual_host_is_and_only_for_its_exchange(
    made: tuple[Path, dict[str, Any]], user: str
):
    admin, trying = Trying(url_of(made[0], "admin")), Trying(url_of(made[0], user))
    alternate = {"alternate-exchange": f"{CLAIM}.{VHOST}"}
    assert admin.may("exchange_delete", CLAIM)
    assert trying.may("exchange_declare", CLAIM, "fanout", durable=True, arguments=alternate)
    assert not trying.may("exchange_declare", f"{CLAIM}.{VHOST}", "fanout", durable=True)
    admin.close()
    trying.close()


@pytest.mark.parametrize("user", ["m1", "m1b", "m2"])
def test_masters_publish_changes_with_the_keys_of_changes_only(made: tuple[Path, dict[str, Any]], user: str):
    trying = Trying(url_of(made[0], user))
    assert {key: trying.may("basic_publish", "brokerha.changes", key, b"") for key in TOPIC_KEYS} == TOPIC_KEYS
    trying.close()


def test_who_only_looks_has_no_way_in_and_sees_the_dashboard(made: tuple[Path, dict[str, Any]], broker: BrokerSource):
    folder, _ = made
    trying = Trying(url_of(folder, "monitor")) if _connects(url_of(folder, "monitor")) else None
    if trying is not None:
        assert not trying.may("exchange_declare", "brokerha.sync", "direct", durable=True)
        assert not trying.reads("brokerha.m1.sync")
        trying.close()
    with broker.management_as(url_of(folder, "monitor")) as management:
        assert {queue["name"] for queue in management.queues(VHOST)} >= INBOXES


def test_a_wrong_password_and_another_virtual_host_are_refused(made: tuple[Path, dict[str, Any]], broker: BrokerSource):
    right = url_of(made[0], "m1")
    password = right.split(":")[2].split("@")[0]
    assert not _connects(right.replace(password, "wrong"))
    assert not _connects(right.replace(f"/{VHOST}", "/%2F"))


def test_the_broker_holds_what_the_definitions_say(made: tuple[Path, dict[str, Any]], broker: BrokerSource):
    _, definitions = made
    with broker.management() as management:
        there = management.export_definitions()
        assert management.vhost(VHOST)["default_queue_type"] == "classic"
    for part, names in (
        ("users", ("name", "password_hash", "limits")),
        ("permissions", ("user", "vhost", "configure", "write", "read")),
        ("topic_permissions", ("user", "vhost", "exchange", "write", "read")),
        ("policies", ("name", "vhost", "pattern", "definition")),
        ("exchanges", ("name", "vhost", "type")),
        ("queues", ("name", "vhost", "arguments", "durable")),
        ("bindings", ("source", "destination", "routing_key")),
        ("parameters", ("component", "vhost", "value")),
    ):
        held = [_told(row, names) for row in there[part]]
        for row in definitions[part]:
            assert _told(row, names) in held, part


def _told(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """These fields; of a queue with its type, which RabbitMQ 4 adds where the definitions leave it to the virtual host."""
    found = {name: row[name] for name in names}
    return found | {"arguments": {"x-queue-type": "classic", **row["arguments"]}} if "arguments" in names else found


def _connects(url: str) -> bool:
    try:
        pika.BlockingConnection(pika.URLParameters(url)).close()
    except AMQPConnectionError:
        return False
    return True
