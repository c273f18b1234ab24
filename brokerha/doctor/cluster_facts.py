"""Facts from the nodes: the program at an address, its clock, and the settings in force; and from the broker."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

import httpx2

from brokerha.client.http_connections import identity_headers, trusted
from brokerha.deploying.files import read_secret
from brokerha.deploying.machine import url_file
from brokerha.doctor.facts import BrokerFact, ClockFact, ManagementFact, PortFact, QueueFact, SettingsFact, Wanted, WorkersFact
from brokerha.doctor.machine_facts import is_here, listens, own_addresses
from brokerha.http.app import way_of
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.model.outside.hosts import is_loopback
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.file import variable
from brokerha.nodes.config.rules import http_address
from brokerha.transports.rabbitmq.addresses import Address, parse_addresses
from brokerha.transports.rights import WORKER_ROLE, rights_of, topic_rights_of, user_of
from brokerha.transports.tools import probing
from brokerha.transports.topology import (
    CHANGES_EXCHANGE,
    DATA_EXCHANGE,
    EXCHANGES,
    REJECTED_EXCHANGE,
    SYNC_EXCHANGE,
    QueueRow,
    exchanges_of,
    log_stream_row,
    topology_of,
)

_WITHIN_S = 5.0
_FORBIDDEN = (401, 403)


def port_fact(config: ClusterConfig, node: NodeId) -> PortFact | None:
    """Check the address of a node of this machine; None without an address."""
    address = config.node(node).http
    if not address:
        return None
    host, port = http_address(address)
    here = is_here(host)
    held = here and listens(host, port)
    problem = ""
    try:
        way_of(config, node)
    except ConfigurationError as error:
        problem = str(error)
    return PortFact(
        node,
        address,
        is_here=here,
        listens=held,
        is_node=held and (said := _probe(config.http_urls()[node])) is not None and said.text.startswith(("[+]loop", "[-]loop")),
        is_loopback=is_loopback(host),
        has_certificate=bool(config.http_certificate),
        is_plain=config.http_plain,
        problem=problem,
    )


def clock_facts(config: ClusterConfig) -> list[ClockFact]:
    """Read the clocks of all nodes that answer."""
    found = []
    for node, url in config.http_urls().items():
        before = time.time()
        answer = _probe(url)
        if answer is not None and (told := answer.headers.get("date")):
            found.append(ClockFact(node, offset_s(told, before, time.time())))
    return found


def settings_facts(config: ClusterConfig, environ: Mapping[str, str]) -> list[SettingsFact]:
    """Read the settings of all masters that show them."""
    found = []
    for master in config.masters:
        told = text_of(config, master.id, "cluster/settings", environ) if master.http else None
        with suppress(TypeError, ValueError, KeyError):
            rows = json.loads(told or "")["settings"]
            waiting = frozenset(row["name"] for row in rows if not row["live"] and row["in_force"] != row["value"])
            found.append(SettingsFact(master.id, {row["name"]: str(row["in_force"]) for row in rows}, waiting))
    return found


def workers_facts(config: ClusterConfig, environ: Mapping[str, str]) -> list[WorkersFact]:
    """Read the list of workers of all masters that show it."""
    found = []
    for master in config.masters:
        told = text_of(config, master.id, "cluster/workers", environ) if master.http else None
        with suppress(TypeError, ValueError, KeyError):
            listed = frozenset(row["id"] for row in json.loads(told or "")["workers"])
            found.append(WorkersFact(master.id, tuple(config.workers_of(master.id)), listed))
    return found


def offset_s(date: str, before_s: float, after_s: float) -> float:
    """Return the least offset of another clock, by its Date header in whole seconds; asked and answered at these local times.

    >>> offset_s("Thu, 01 Jan 1970 00:00:10 GMT", 10.2, 10.3), offset_s("Thu, 01 Jan 1970 00:00:10 GMT", 17.0, 17.5)
    (0.0, -6.0)
    """
    told_s = parsedate_to_datetime(date).timestamp()
    if told_s > after_s:
        return told_s - after_s
    return min(0.0, told_s + 1 - before_s)


def text_of(config: ClusterConfig, node: NodeId, path: str, environ: Mapping[str, str]) -> str | None:
    """Return a node's answer at a path, as this environment's user; None for no answer, a refusal, or an unsafe way."""
    url = config.http_urls()[node]
    try:
        headers = identity_headers(environ, [url])
        answer = httpx2.get(f"{url}/{path}", headers=headers, timeout=_WITHIN_S, trust_env=False, verify=trusted(environ))
    except (httpx2.HTTPError, OSError, ConfigurationError):
        return None
    return None if answer.status_code in _FORBIDDEN else answer.text


def _probe(url: str) -> httpx2.Response | None:
    """Return the answer of a node's probe, which needs no rights; None without one."""
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{url}/livez", timeout=_WITHIN_S, trust_env=False, verify=False)
    return None


# ---- What nodes need from their broker, by the cluster file, and its state: over AMQP as each user, and by the management interface.
#
# The management interface is at ``BROKERHA_MANAGEMENT_URL`` (or in the file of ``BROKERHA_MANAGEMENT_URL_FILE``), with a user that
# has the tag administrator. If each site has a broker, ``BROKERHA_MANAGEMENT_URL_M1`` is for that of the master m1. Without it, only
# an interface on this machine is asked, as the user of AMQP: no password is sent to another host unasked.

MANAGEMENT_VARIABLE: Final = "BROKERHA_MANAGEMENT_URL"
MANAGEMENT_PORT: Final = 15672
_GUEST: Final = "guest"
_NOT_FOUND: Final = 404
_OF_WORKERS = (SYNC_EXCHANGE, DATA_EXCHANGE, REJECTED_EXCHANGE)
_ALARMS = {"memory": "mem_alarm", "disk": "disk_free_alarm"}

T = TypeVar("T")


def users_of(config: ClusterConfig, nodes: Iterable[NodeId], secrets: Path | None) -> dict[str, tuple[NodeId, ...]]:
    """Return the URL of each broker and user, with its nodes; ``secrets`` has ID.url for nodes with users of their own."""
    found: dict[str, tuple[NodeId, ...]] = {}
    for node in nodes:
        own = read_secret(url_file(secrets, node)) if secrets else ""
        url = own or config.broker_of(node)
        found[url] = (*found.get(url, ()), node)
    return found


def wanted_of(config: ClusterConfig, nodes: tuple[NodeId, ...], user: str) -> Wanted:
    """Return what these nodes, which share this user, need from their broker."""
    rows: dict[str, QueueRow] = {}
    writes: dict[str, None] = {}
    for node in nodes:
        role, master = config.roles[node], config.master_of(node)
        is_worker = role == WORKER_ROLE
        queue_type = config.queue_type_at(config.broker_of(node))
        topology = topology_of(node, role, master if role == "backup" else "", queue_type)
        # Inboxes exist only during their nodes' connections, and other users cannot inspect them.
        rows |= {row.name: row for row in topology.queues if not row.is_exclusive}
        if config.log_stream and not is_worker:
            rows |= {(row := log_stream_row(master)).name: row}
        writes |= dict.fromkeys(_OF_WORKERS if is_worker else [exchange.name for exchange in EXCHANGES])
    rights, topic = None, None
    if len(nodes) == 1 and user == user_of(config.name, nodes[0]):
        node = nodes[0]
        rights = rights_of(node, config.roles[node], config.master_of(node))
        topic = topic_rights_of(config.roles[node])
    own = config.broker_of(nodes[0]) if nodes else config.broker
    others = {broker: each.id for each in config.masters if (broker := config.broker_of(each.id)) != own}
    here = sum(config.broker_of(each.id) == own for each in config.masters)
    return Wanted(tuple(rows.values()), tuple(writes), rights, topic, tuple(others.values()), here)


def broker_facts(
    config: ClusterConfig, url: str, nodes: tuple[NodeId, ...], environ: Mapping[str, str]
) -> list[tuple[BrokerFact, Wanted]]:
    """Return the state of each address of a URL, and what is needed there. Raises ConfigurationError for an invalid URL."""
    return [_one(config, address, nodes, environ) for address in parse_addresses(url)]


def _one(
    config: ClusterConfig, address: Address, nodes: tuple[NodeId, ...], environ: Mapping[str, str]
) -> tuple[BrokerFact, Wanted]:
    wanted = wanted_of(config, nodes, address.user)
    seen = probing.look(address, exchanges_of(config.name), wanted.queues, wanted.writes, CHANGES_EXCHANGE)
    management, problem = _management(address, _management_variable(config, nodes), environ)
    fact = BrokerFact(
        str(address),
        address.user,
        address.vhost,
        nodes,
        address.is_tls,
        is_loopback(address.host),
        unreachable=seen.unreachable,
        remedy=seen.remedy,
        refused=seen.refused,
        product=seen.product,
        version=seen.version,
        capabilities=seen.capabilities,
        exchanges=seen.exchanges,
        queues=tuple(QueueFact(*each) for each in seen.queues),
        unwritable=seen.unwritable,
        topic_is_open=seen.topic_is_open,
        blocked=seen.blocked,
        guest="" if seen.unreachable and not seen.refused else _guest(address),
        management=management,
        management_problem=problem,
    )
    return fact, wanted


def _guest(address: Address) -> str:
    """Return where guest can log in. A broker on this machine is also asked at the machine's other addresses."""
    as_guest = dataclasses.replace(address, user=_GUEST, password=_GUEST)
    if not is_loopback(address.host):
        return address.host if probing.comes_in(as_guest) else ""
    for place in own_addresses():
        if probing.comes_in(dataclasses.replace(as_guest, host=place)):
            return place
    return "here" if probing.comes_in(as_guest) else ""


def _management_variable(config: ClusterConfig, nodes: Iterable[NodeId]) -> str:
    """Return the variable with the management interface of these nodes' broker; one broker must not be judged by another's."""
    if len({config.broker_of(master.id) for master in config.masters}) == 1:
        return MANAGEMENT_VARIABLE
    return variable("management-url", config.master_of(next(iter(nodes))))


def _management(address: Address, name: str, environ: Mapping[str, str]) -> tuple[ManagementFact | None, str]:
    given = environ.get(name, "")
    if not given and f"{name}_FILE" in environ:
        given = read_secret(Path(environ[f"{name}_FILE"]))
    how = f"set {name} to one with an administrator"
    if not given and not is_loopback(address.host):
        return None, how
    try:
        parts = urlsplit(given or f"http://{_in_url(address.host)}")
        login = (unquote(parts.username or address.user), unquote(parts.password or address.password))
        door = f"{parts.scheme}://{_in_url(parts.hostname or '')}:{parts.port or MANAGEMENT_PORT}"
        with httpx2.Client(base_url=f"{door}/api", auth=login, timeout=_WITHIN_S, trust_env=False) as http:
            answer = http.get("/overview")
            if answer.status_code in _FORBIDDEN:
                return None, f"the management interface refuses {login[0]}: {how}"
            answer.raise_for_status()
            return _told(http, answer.json(), address.vhost), ""
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        return None, f"the management interface does not answer ({type(error).__name__}): {how}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _told(http: httpx2.Client, overview: dict[str, Any], vhost: str) -> ManagementFact:
    place = quote(vhost, safe="")
    return ManagementFact(
        users=_asked(http, "/users", lambda rows: tuple(each["name"] for each in rows)),
        permissions=_asked(
            http,
            f"/vhosts/{place}/permissions",
            lambda rows: {each["user"]: (each["configure"], each["write"], each["read"]) for each in rows},
        ),
        topic_permissions=_asked(
            http,
            f"/vhosts/{place}/topic-permissions",
            lambda rows: {e["user"]: (e["write"], e["read"]) for e in rows if e["exchange"] == CHANGES_EXCHANGE},
        ),
        alarms=_asked(
            http,
            "/nodes",
            lambda rows: tuple(f"{what} at {e['name']}" for e in rows for what, key in _ALARMS.items() if e.get(key)),
        ),
        partitions=_asked(http, "/nodes", lambda rows: {e["name"]: tuple(e["partitions"]) for e in rows if e.get("partitions")}),
        policies=_policies(http, place),
        links=_asked(
            http,
            f"/federation-links/{place}",
            lambda rows: {(e["upstream"], e["exchange"]): e.get("error") or e["status"] for e in rows if "exchange" in e},
        ),
        listeners=tuple(
            f"{each['ip_address']}:{each['port']}"
            for each in overview.get("listeners", ())
            if each.get("protocol") == "amqp" and not is_loopback(each["ip_address"])
        ),
    )


def _policies(http: httpx2.Client, place: str) -> dict[str, dict[str, Any]] | None:
    """Return what policies say of brokerha's queues and exchanges; of an exchange the broker tells only the name of its policy."""
    of_queues = _asked(http, f"/queues/{place}", lambda rows: {e["name"]: e.get("effective_policy_definition") for e in rows})
    defined = _asked(http, f"/policies/{place}", lambda rows: {e["name"]: e["definition"] for e in rows})
    of_exchanges = _asked(http, f"/exchanges/{place}", lambda rows: {e["name"]: (defined or {}).get(e.get("policy")) for e in rows})
    if of_queues is None or of_exchanges is None:
        return None
    found = {"queue": of_queues, "exchange": of_exchanges}
    return {
        f"{kind} {name}": dict(definition)
        for kind, definitions in found.items()
        for name, definition in definitions.items()
        if name.startswith("brokerha.") and definition
    }


def _asked(http: httpx2.Client, path: str, made: Callable[[list[dict[str, Any]]], T]) -> T | None:
    """Return a value made from a list of the management interface; None without the right to it, or without its plugin."""
    answer = http.get(path)
    if answer.status_code in (*_FORBIDDEN, _NOT_FOUND):
        return None
    answer.raise_for_status()
    return made(answer.json())
