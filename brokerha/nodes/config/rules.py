"""Rules between the values of a cluster file; each rule is one function, and the first that fails gives the error.

Rules see the document, with places. They raise one ConfigurationError that begins with the place of the value that is most
likely wrong and ends with the remedy. Values alone (names, types, bounds) are checked before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import is_node_id
from brokerha.nodes.config.file import Document, Table
from brokerha.nodes.config.settings import fail, nearest
from brokerha.transports.rabbitmq.addresses import is_embedded, parse_addresses

RESERVED_IDS = frozenset({"any"})
"""Reserved by the broker: the routing key of writes that any master can take."""
PROCESSES_LIMIT = 10
"""Most processes of one master: the last digit of a view tells which of them is primary."""
ANY_HOSTS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  (compared, never bound)
LOOPBACK_NAMES = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}
_URL = "write amqp://user:password@host:5672/vhost, or embedded://"


def check_rules(document: Document) -> None:
    """Raise ConfigurationError when values contradict each other."""
    _check_names(document)
    _check_members(document)
    _check_brokers(document)
    _check_http(document)
    _check_times(document.cluster)
    _check_backups(document)
    _check_promises(document.cluster)


def _check_names(document: Document) -> None:
    name, where = document.cluster["name"], document.cluster.where("name")
    if not is_node_id(name):
        fail(where, f'"{name}" is no cluster name', _proposed_id("name", name))
    seen: dict[str, str] = {}
    for table in document.nodes:
        node, where = table["id"], table.where("id")
        if not is_node_id(node):
            fail(where, f'"{node}" is no node id', _proposed_id("id", node))
        if node in RESERVED_IDS:
            fail(where, f'node id "{node}" has another meaning in the broker', f'write another one, such as "{node}-1"')
        if node in seen:
            remedy = "write an id that no other node of the cluster has"
            fail(where, f'node id "{node}" stands at {seen[node]} already', remedy)
        seen[node] = where


def _proposed_id(key: str, text: str) -> str:
    proposal = re.sub(r"[^a-z0-9-]+", "-", text.lower())[:32].strip("-")
    rule = "1 to 32 of a-z, 0-9 and -"
    return f'write {key} = "{proposal}" ({rule})' if proposal else f"write {rule}"


def _check_members(document: Document) -> None:
    masters = [table["id"] for table in document.of("master")]
    if not masters:
        fail(document.cluster.head, "the cluster has no master", 'write [[master]] and id = "m1"')
    for table in (*document.of("backup"), *document.of("worker")):
        master = table["master"]
        if master not in masters:
            problem = f'{table.section} "{table["id"]}" belongs to "{master}", which is no master of this file'
            fail(table.where("master"), problem, f'write master = "{nearest(master, masters)}"')
    for table in document.of("master"):
        if table["probe"]:
            workers = [each["id"] for each in document.of("worker") if each["master"] == table["id"]]
            _check_probe(table, workers)


def _check_probe(master: Table, workers: list[str]) -> None:
    """A probe that is not there would leave the workers to take over from each other, as if it had died."""
    probe, node = master["probe"], master["id"]
    if probe in workers:
        return
    remedy = f'remove this line, or write its [[worker]] with id = "{probe}" and master = "{node}"'
    if workers:
        likely = workers[0] if len(workers) == 1 else nearest(probe, workers)
        remedy = f'write probe = "{likely}", or remove this line' if likely in workers else f"write {likely}, or remove this line"
    fail(master.where("probe"), f'probe = "{probe}" is no worker of master "{node}" in this file', remedy)


def _check_brokers(document: Document) -> None:
    cluster = document.cluster
    _check_url(cluster)
    for table in document.of("master"):
        if not table["broker"]:
            continue
        node, where = table["id"], table.where("broker")
        if is_embedded(cluster["broker"]):
            problem = f'master "{node}" has a broker of its own, but the cluster is embedded:// in one process'
            fail(where, problem, "remove this line")
        if is_embedded(table["broker"]):
            remedy = "write amqp://… or amqps://…, or remove this line"
            fail(where, f'master "{node}" cannot be embedded:// while the cluster is not', remedy)
        _check_url(table)


def _check_url(table: Table) -> None:
    if is_embedded(table["broker"]):
        return
    try:
        parse_addresses(table["broker"])
    except ConfigurationError as error:
        fail(table.where("broker"), str(error).partition(": write")[0], _URL)
    except ValueError as error:
        fail(table.where("broker"), f"the broker URL cannot be read ({error})", _URL)


def http_address(text: str) -> tuple[str, int]:
    """Return host and port of an ``http`` value; the host of ``:7201`` is empty, for all addresses. Raises ValueError."""
    parts = urlsplit(f"//{text}")
    if not parts.port or parts.path or parts.query or parts.fragment or parts.username is not None:
        message = f"{text!r} is not host:port"
        raise ValueError(message)
    return parts.hostname or "", parts.port


def _check_http(document: Document) -> None:
    taken: list[tuple[str, int, str, str]] = []
    for table in document.nodes:
        text, where, node = table["http"], table.where("http"), table["id"]
        if not text:
            continue
        try:
            host, port = http_address(text)
        except ValueError:
            fail(where, f'http = "{text}" is no address', f'write http = "{_proposed_address(text)}"')
        for other_host, other_port, other, place in taken:
            if port == other_port and _same_host(host, other_host):
                fail(where, f'"{node}" and "{other}" ({place}) listen on the same address {text}', "write another port")
        taken.append((host, port, node, where))


def _proposed_address(text: str) -> str:
    """Return the address without its extra parts, or an example when that is no address."""
    inner = text.partition("://")[2].partition("/")[0] if "://" in text else text.rstrip("/")
    try:
        http_address(inner)
    except ValueError:
        return "127.0.0.1:7201"
    return inner


def _same_host(one: str, other: str) -> bool:
    one, other = LOOPBACK_NAMES.get(one, one), LOOPBACK_NAMES.get(other, other)
    return one == other or one in ANY_HOSTS or other in ANY_HOSTS


def _check_times(cluster: Table) -> None:
    for names, problem, remedy in contradictions(cluster):
        fail(cluster.where(*names), problem, f"write {remedy}")


class Values(Protocol):
    """Values of ``[cluster]``, by name."""

    def __getitem__(self, name: str, /) -> Any:
        """Return one value."""


def contradictions(cluster: Values) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield (names, the most likely wrong one first; problem; remedy).

    A wait must be longer than each wait that it contains. A hard limit must not be below the normal one.
    """
    lag_s, round_ms, idle_ms = cluster["max-peer-lag-s"], cluster["round-timeout-ms"], cluster["idle-round-ms"]
    lag_ms, lag = lag_s * 1000, f"max-peer-lag-s = {lag_s:g}"
    # A heartbeat can come through another master, one heartbeat later; that is not silence.
    least_ms = 2 * idle_ms + round_ms
    again_ms, beat_ms, dead_ms = cluster["retransmit-ms"], cluster["heartbeat-ms"], cluster["dead-after-ms"]
    tx_s, longest_s = cluster["tx-timeout-s"], cluster["tx-timeout-max-s"]
    size, most = cluster["tx-log-max-size"], cluster["tx-log-hard-limit"]
    rules = [
        *(
            (
                cluster[name] >= lag_ms, (name, "max-peer-lag-s"),
                f"{name} = {cluster[name]} is not below {lag}",
                f"{name} below {lag_ms:g}, or a longer max-peer-lag-s",
            )
            for name in ("round-timeout-ms", "idle-round-ms")
        ),
        (
            lag_ms < least_ms, ("max-peer-lag-s", "idle-round-ms", "round-timeout-ms"),
            f"{lag} is less than two idle rounds of {idle_ms} ms and a round time-out of {round_ms} ms",
            f"max-peer-lag-s = {least_ms / 1000:g} or more",
        ),
        (
            again_ms >= lag_ms, ("retransmit-ms", "max-peer-lag-s"),
            f"retransmit-ms = {again_ms} is not below {lag}",
            f"retransmit-ms below {lag_ms:g}",
        ),
        (
            tx_s > longest_s, ("tx-timeout-s", "tx-timeout-max-s"),
            f"tx-timeout-s = {tx_s:g} is above tx-timeout-max-s = {longest_s:g}",
            f"tx-timeout-max-s = {tx_s:g}",
        ),
        (
            2 * beat_ms > dead_ms, ("dead-after-ms", "heartbeat-ms"),
            f"dead-after-ms = {dead_ms} is less than two heartbeats of {beat_ms} ms",
            f"dead-after-ms = {5 * beat_ms}",
        ),
        (
            0 < most < size, ("tx-log-hard-limit", "tx-log-max-size"),
            f"tx-log-hard-limit = {most} is below tx-log-max-size = {size}",
            f"tx-log-hard-limit = {size} or more, or 0",
        ),
    ]  # fmt: skip
    for is_wrong, names, problem, remedy in rules:
        if is_wrong:
            yield names, problem, remedy


def _check_backups(document: Document) -> None:
    wanted = document.cluster["sync-n"]
    for master in (table["id"] for table in document.of("master")):
        backups = [table for table in document.of("backup") if table["master"] == master]
        if len(backups) >= PROCESSES_LIMIT:
            fail(backups[PROCESSES_LIMIT - 1].head, f'"{master}" has {len(backups)} backups', "write at most 9")
        if wanted > len(backups):
            problem = f'sync-n = {wanted} waits for more backups than master "{master}" has ({len(backups)})'
            remedy = f"write sync-n = {len(backups)}, or more [[backup]] sections"
            fail(document.cluster.where("sync-n"), problem, remedy)


def _check_promises(cluster: Table) -> None:
    """Refuse settings that this version cannot keep, so that a promise of the file always holds."""
    acknowledge, mode = cluster["acknowledge"], cluster["split-recovery"]
    if mode != "quorum" and acknowledge != "all":
        loss = f'acknowledge = "{acknowledge}" can lose transactions with split-recovery = "{mode}"'
        remedy = 'write acknowledge = "all", or split-recovery = "quorum"'
        fail(cluster.where("acknowledge"), f"{loss}, where every side of a split goes on", remedy)
    # The position of the published changes after a restart is in the stream of the log.
    if cluster["publish-changes"] and not cluster["log-stream"]:
        remedy = "write log-stream = true, or leave both out"
        fail(cluster.where("publish-changes"), "publish-changes needs log-stream", remedy)
