"""The HTTP door of one node from the cluster file: address, TLS, users.

A door that other machines can reach must have TLS and users, or the file says that something else protects it (``http-plain``).
Anything else is refused at the start.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from brokerha.http.app import PATHS, create_app
from brokerha.http.door.outside import parse_prefix
from brokerha.http.door.server import HttpServer
from brokerha.http.guard.guard import Guard, parse_origins
from brokerha.http.guard.users import UsersFile
from brokerha.http.replaced import Certificate
from brokerha.local_reads.asking import LocalReads
from brokerha.model.errors import ConfigurationError
from brokerha.model.outside.hosts import is_loopback
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.rules import http_address
from brokerha.ports.front import Front


class Way(NamedTuple):
    """Settings of a node's HTTP door."""

    host: str
    port: int
    guard: Guard | None
    origins: frozenset[str]
    prefix: str
    tls: Certificate | None


def way_of(config: ClusterConfig, node_id: str) -> Way | None:
    """Return the settings of a node's door; None for a node without an address. Raises ConfigurationError."""
    address = config.node(node_id).http
    if not address:
        return None
    host, port = http_address(address)
    certificate, key = (_file(config, text, node_id) for text in (config.http_certificate, config.http_key))
    if (certificate is None) != (key is None):
        raise ConfigurationError(f"{config.path}: http-certificate and http-key belong together: write both, or none")
    if not is_loopback(host) and not config.http_plain:
        where = f'{config.path}: http = "{address}" of {node_id} can be reached from other machines'
        if certificate is None:
            raise ConfigurationError(
                f"{where}, and has no TLS: write http-certificate and http-key (brokerha init certificates makes them), or http-plain = true if a proxy or a private network keeps others out"
            )
        if not config.http_users:
            raise ConfigurationError(
                f"{where}, and everybody there could do everything: write http-users, or http-plain = true if something else keeps others out"
            )
    users = _file(config, config.http_users, node_id)
    guard = Guard(UsersFile(users), time.time) if users is not None else None
    try:
        origins = parse_origins(config.http_origins)
    except ValueError as error:
        raise ConfigurationError(
            f"{config.path}: http-origins has {error}: write the scheme and the host as a browser shows them, as https://brokerha.example.org"
        ) from None
    try:
        prefix = parse_prefix(config.http_prefix, PATHS)
    except ValueError as error:
        raise ConfigurationError(f'{config.path}: http-prefix = "{config.http_prefix}": {error}') from None
    tls = None if certificate is None or key is None else Certificate(certificate, key)
    return Way(host, port, guard, origins, prefix, tls)


def open_door(config: ClusterConfig, node_id: str, front: Front) -> HttpServer | None:
    """Return the server of a node, not started; None for a node without an address. Raises ConfigurationError."""
    way = way_of(config, node_id)
    if way is None:
        return None
    local_reads = None if config.is_embedded or config.node(node_id).role == "worker" else LocalReads(config.name, config.data)
    app = create_app(front, guard=way.guard, origins=way.origins, prefix=way.prefix, local_reads=local_reads)
    return HttpServer(app, way.host, way.port, way.tls)


def _file(config: ClusterConfig, text: str, node_id: str) -> Path | None:
    return config.path.parent / text.replace("{id}", node_id) if text else None
