"""Facts from the nodes: the program at an address, its clock, and the settings in force."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

import httpx2

from brokerha.client.http_connections import identity_headers, trusted
from brokerha.doctor.facts import ClockFact, PortFact, SettingsFact
from brokerha.doctor.machine_facts import is_here, listens
from brokerha.http.app import way_of
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.model.outside.hosts import is_loopback
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.rules import http_address

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
        is_node=held and _is_node(config.http_urls()[node]),
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
        try:
            answer = httpx2.get(f"{url}/livez", timeout=_WITHIN_S, trust_env=False, verify=False)
        except httpx2.HTTPError:
            continue
        if told := answer.headers.get("date"):
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


def _is_node(url: str) -> bool:
    """Tell whether a brokerha node answers there: its probe needs no rights."""
    try:
        answer = httpx2.get(f"{url}/livez", timeout=_WITHIN_S, trust_env=False, verify=False)
    except httpx2.HTTPError:
        return False
    return answer.text.startswith(("[+]loop", "[-]loop"))
