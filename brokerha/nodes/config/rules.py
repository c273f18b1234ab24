"""What must hold between the values of a cluster file; each rule is one function, and the first that fails speaks.

Rules see the document, with places, and raise one ConfigurationError that begins with the place of the value that is most
likely wrong and ends with what to write instead. Values alone (names, types, bounds) were checked before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import is_node_id
from brokerha.nodes.config.file import Document, Table, fail, nearest
from brokerha.transports.rabbitmq.addresses import is_embedded, parse_addresses

RESERVED_IDS = frozenset({"any"})
"""Names that the broker gives another meaning: the routing key of writes that any master may take."""
ANY_HOSTS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  (compared, never bound)
LOOPBACK_NAMES = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}


def check_rules(document: Document, defaults: dict[str, float]) -> None:
    """Raise ConfigurationError when values contradict each other; ``defaults`` are those of the section cluster."""
    _check_names(document)
    _check_members(document)
    _check_brokers(document)
    _check_http(document)
    _check_times(document.cluster, defaults)
    _check_guarantees(document)
    _check_followers(document.cluster)


def _check_names(document: Document) -> None:
    cluster = document.cluster
    if not is_node_id(cluster["name"].value):
        fail(
            cluster.where("name"),
            f'"{cluster["name"].value}" is no cluster name',
            _proposed_id("name", cluster["name"].value),
        )
    seen: dict[str, str] = {}
    for table in document.nodes:
        node, where = table["id"]
        if not is_node_id(node):
            fail(where, f'"{node}" is no node id', _proposed_id("id", node))
        if node in RESERVED_IDS:
            fail(where, f'node id "{node}" has another meaning in the broker', f'write another one, such as "{node}-1"')
        if node in seen:
            fail(
                where,
                f'node id "{node}" stands at {seen[node]} already',
                "write an id that no other node of the cluster has",
            )
        seen[node] = where


def _proposed_id(key: str, text: str) -> str:
    proposal = re.sub(r"[^a-z0-9-]+", "-", text.lower())[:32].strip("-")
    rule = "1 to 32 of a-z, 0-9 and -"
    return f'write {key} = "{proposal}" ({rule})' if proposal else f"write {rule}"


def _check_members(document: Document) -> None:
    masters = [table["id"].value for table in document.nodes if table.section == "master"]
    if not masters:
        fail(document.cluster.head, "the cluster has no master", 'write [[master]] and id = "m1"')
    for table in document.nodes:
        if table.section == "master":
            continue
        master, where = table["master"]
        if master not in masters:
            node = table["id"].value
            fail(
                where,
                f'{table.section} "{node}" belongs to "{master}", which is no master of this file',
                f'write master = "{nearest(master, masters)}"',
            )


def _check_brokers(document: Document) -> None:
    cluster = document.cluster
    _check_url(cluster)
    for table in document.nodes:
        if "broker" not in table.settings:
            continue
        where = table.where("broker")
        node = table["id"].value
        if is_embedded(cluster["broker"].value):
            fail(
                where,
                f'master "{node}" has a broker of its own, but the cluster is embedded:// in one process',
                "remove this line",
            )
        if is_embedded(table["broker"].value):
            fail(
                where,
                f'master "{node}" cannot be embedded:// while the cluster is not',
                "write amqp://… or amqps://…, or remove this line",
            )
        _check_url(table)


def _check_url(table: Table) -> None:
    url, where = table["broker"]
    if is_embedded(url):
        return
    try:
        parse_addresses(url)
    except ConfigurationError as error:
        fail(where, str(error).partition(": write")[0], "write amqp://user:password@host:5672/vhost, or embedded://")
    except ValueError as error:
        fail(
            where,
            f"the broker URL cannot be read ({error})",
            "write amqp://user:password@host:5672/vhost, or embedded://",
        )


def http_address(text: str) -> tuple[str, int]:
    """Host and port of an ``http`` value; the host of ``:7201`` is empty, for all addresses. Raises ValueError."""
    parts = urlsplit(f"//{text}")
    if (
        parts.port is None
        or parts.port == 0
        or parts.path
        or parts.query
        or parts.fragment
        or parts.username is not None
    ):
        message = f"{text!r} is not host:port"
        raise ValueError(message)
    return parts.hostname or "", parts.port


def _check_http(document: Document) -> None:
    taken: list[tuple[str, int, str, str]] = []
    for table in document.nodes:
        if "http" not in table.settings:
            continue
        text, where = table["http"]
        node = table["id"].value
        try:
            host, port = http_address(text)
        except ValueError:
            fail(where, f'http = "{text}" is no address', f'write http = "{_proposed_address(text)}"')
        for other_host, other_port, other, place in taken:
            if port == other_port and _same_host(host, other_host):
                fail(where, f'"{node}" and "{other}" ({place}) listen on the same address {text}', "write another port")
        taken.append((host, port, node, where))


def _proposed_address(text: str) -> str:
    """The address without what does not belong to it, else one that shows the form."""
    inner = text.partition("://")[2].partition("/")[0] if "://" in text else text.rstrip("/")
    try:
        http_address(inner)
    except ValueError:
        return "127.0.0.1:7201"
    return inner


def _same_host(one: str, other: str) -> bool:
    one, other = LOOPBACK_NAMES.get(one, one), LOOPBACK_NAMES.get(other, other)
    return one == other or one in ANY_HOSTS or other in ANY_HOSTS


def _check_times(cluster: Table, defaults: dict[str, float]) -> None:
    value = {key: cluster.get(key, default) for key, default in defaults.items()}
    for places, problem, remedy in contradictions(value):
        fail(cluster.where(*places), problem, f"write {remedy}")


def contradictions(value: Mapping[str, float]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(keys, the most likely wrong one first; what is wrong; what would be right) of all numbers of ``[cluster]``, by key.

    Waits that contain each other must be longer than what they contain.
    """
    lag_ms = value["max-peer-lag-s"] * 1000
    for key in ("round-timeout-ms", "idle-round-ms"):
        if value[key] >= lag_ms:
            yield (
                (key, "max-peer-lag-s"),
                f"{key} = {value[key]} is not below max-peer-lag-s = {value['max-peer-lag-s']:g}",
                f"{key} below {lag_ms:g}, or a longer max-peer-lag-s",
            )
    # News of a master may come through another one, a heartbeat later, and is no silence.
    least_ms = 2 * value["idle-round-ms"] + value["round-timeout-ms"]
    if lag_ms < least_ms:
        yield (
            ("max-peer-lag-s", "idle-round-ms", "round-timeout-ms"),
            (
                f"max-peer-lag-s = {value['max-peer-lag-s']:g} is less than two idle rounds of {value['idle-round-ms']} ms and "
                f"a round time-out of {value['round-timeout-ms']} ms"
            ),
            f"max-peer-lag-s = {least_ms / 1000:g} or more",
        )
    if value["retransmit-ms"] >= lag_ms:
        yield (
            ("retransmit-ms", "max-peer-lag-s"),
            f"retransmit-ms = {value['retransmit-ms']} is not below max-peer-lag-s = {value['max-peer-lag-s']:g}",
            f"retransmit-ms below {lag_ms:g}",
        )
    if value["tx-timeout-s"] > value["tx-timeout-max-s"]:
        yield (
            ("tx-timeout-s", "tx-timeout-max-s"),
            f"tx-timeout-s = {value['tx-timeout-s']:g} is above tx-timeout-max-s = {value['tx-timeout-max-s']:g}",
            f"tx-timeout-max-s = {value['tx-timeout-s']:g}",
        )
    if 2 * value["heartbeat-ms"] > value["dead-after-ms"]:
        yield (
            ("dead-after-ms", "heartbeat-ms"),
            f"dead-after-ms = {value['dead-after-ms']} is less than two heartbeats of {value['heartbeat-ms']} ms",
            f"dead-after-ms = {5 * value['heartbeat-ms']}",
        )
    if 0 < value["tx-log-hard-limit"] < value["tx-log-max-size"]:
        yield (
            ("tx-log-hard-limit", "tx-log-max-size"),
            f"tx-log-hard-limit = {value['tx-log-hard-limit']} is below tx-log-max-size = {value['tx-log-max-size']}",
            f"tx-log-hard-limit = {value['tx-log-max-size']} or more, or 0",
        )


def _check_guarantees(document: Document) -> None:
    """Never promise less than the file says: what this version cannot keep is refused."""
    cluster = document.cluster
    _check_backups(document)
    acknowledge, mode = cluster.get("acknowledge", "all"), cluster.get("split-recovery", "quorum")
    if mode != "quorum" and acknowledge != "all":
        fail(
            cluster.where("acknowledge"),
            f'acknowledge = "{acknowledge}" can lose transactions with split-recovery = "{mode}", where every side of a split goes on',
            'write acknowledge = "all", or split-recovery = "quorum"',
        )


PROCESSES_LIMIT = 10
"""Processes of one master: the last digit of a view says which of them is primary."""


def _check_backups(document: Document) -> None:
    wanted = document.cluster.get("sync-n", -1)
    for master in (table["id"].value for table in document.nodes if table.section == "master"):
        backups = [table for table in document.nodes if table.section == "backup" and table["master"].value == master]
        if len(backups) >= PROCESSES_LIMIT:
            fail(backups[PROCESSES_LIMIT - 1].head, f'"{master}" has {len(backups)} backups', "write at most 9")
        if wanted > len(backups):
            fail(
                document.cluster.where("sync-n"),
                f'sync-n = {wanted} waits for more backups than master "{master}" has ({len(backups)})',
                f"write sync-n = {len(backups)}, or more [[backup]] sections",
            )


def _check_followers(cluster: Table) -> None:
    """Where changes go on after a restart stands in the stream of the log."""
    if cluster.get("publish-changes", False) and not cluster.get("log-stream", True):
        fail(
            cluster.where("publish-changes"),
            "publish-changes needs log-stream",
            "write log-stream = true, or leave both out",
        )
