"""The handler of each path: the whole outside of a node in one table.

Each method of each path names its role, which cannot be left out, and its parameters if it has any (`$*`: all names with
this prefix). Other parameters are refused.

Routing uses the raw path, so that percent-encoding is decoded once and afterwards: ``/kv/t/a%2Fb`` is the key ``a/b`` of table
``t``, and ``/kv/t%2Fa/b`` a key of table ``t/a``. Frequent paths come first.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.routing import Route, Router

from brokerha.http import page
from brokerha.http.data import keys, queues, transactions
from brokerha.http.door.door import Door, HttpLimits
from brokerha.http.door.endpoint import Endpoint, Outside, Ways, not_found, parse_prefix
from brokerha.http.door.server import HttpServer
from brokerha.http.guard import OPEN, Guard, parse_origins
from brokerha.http.operating import cluster, commands
from brokerha.http.operating.commands import Command
from brokerha.http.rdf import rdf4j_transactions, repositories, sparql, statements
from brokerha.http.rdf import transaction_documents as rdf_transactions
from brokerha.http.replaced import Certificate
from brokerha.http.users import ADMIN, READ, WRITE, UsersFile
from brokerha.local_reads.asking import LocalReads
from brokerha.model.errors import ConfigurationError
from brokerha.model.outside.hosts import is_loopback
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.rules import http_address
from brokerha.ports.front import Front

_SPARQL = (
    "query update queryLn baseURI infer timeout limit offset distinct default-graph-uri named-graph-uri "
    "using-graph-uri using-named-graph-uri insert-graph-uri remove-graph-uri $* "
    "Accept "
    # SPARQLWrapper sends these in addition to the header Accept, which counts.
    "format output results"
)
_READ_IN = "context baseURI preserveNodeId"
_PATTERN = "subj pred obj context infer Accept"
_ACT = f"{_READ_IN} subj pred obj {_SPARQL}"


def _verbs(of: statements.Graphs, names: str) -> Ways:
    documents = f"{names} baseURI preserveNodeId" if names else ""
    return {
        "GET": (READ, of.get, f"{names} Accept"),
        "PUT": (WRITE, of.put, documents),
        "POST": (WRITE, of.post, documents),
        "DELETE": (WRITE, of.delete, names),
    }


PATHS: dict[str, Ways] = {
    "/kv/{table}/{key:path}": {
        "GET": (READ, keys.get, "snapshot"),
        "PUT": (WRITE, keys.put, "snapshot"),
        "DELETE": (WRITE, keys.delete, "snapshot"),
    },
    "/kv/{table}": {
        "GET": (READ, keys.get_range, "prefix from to limit reverse snapshot"),
        "POST": (WRITE, keys.post_group, "snapshot"),
    },
    "/kv": {"GET": (READ, keys.listed)},
    "/snapshots/{name}": {"PUT": (WRITE, keys.put_snapshot, "table"), "DELETE": (WRITE, keys.drop_snapshot)},
    "/snapshots": {"GET": (READ, keys.listed_snapshots)},
    "/repositories/{id}/sparql": {"GET": (READ, sparql.get, _SPARQL), "POST": (READ, sparql.post, _SPARQL)},
    "/repositories/{id}/statements": {
        "GET": (READ, statements.get, _PATTERN),
        "POST": (WRITE, rdf_transactions.post, f"{_READ_IN} {_SPARQL}"),
        "PUT": (WRITE, statements.put, _READ_IN),
        "DELETE": (WRITE, statements.delete, _PATTERN),
    },
    "/repositories/{id}": {
        "GET": (READ, repositories.get, _SPARQL),
        "POST": (READ, repositories.post, _SPARQL),
        "PUT": (ADMIN, repositories.put),
        "DELETE": (ADMIN, repositories.delete),
    },
    "/repositories/{id}/size": {"GET": (READ, repositories.size, "context infer")},
    "/repositories/{id}/contexts": {"GET": (READ, repositories.contexts, "Accept")},
    "/repositories/{id}/config": {
        "GET": (READ, repositories.get_config, "Accept"),
        "POST": (ADMIN, repositories.put_config),
        "PUT": (ADMIN, repositories.put_config),
    },
    "/repositories/{id}/gsp": _verbs(statements.W3C, "graph default"),
    "/repositories/{id}/gsp/{graph:path}": _verbs(statements.W3C, ""),
    "/repositories/{id}/rdf-graphs": {"GET": (READ, repositories.contexts, "Accept")},
    "/repositories/{id}/rdf-graphs/service": _verbs(statements.RDF4J, "graph default"),
    "/repositories/{id}/rdf-graphs/{graph:path}": _verbs(statements.RDF4J, ""),
    "/repositories/{id}/namespaces": {
        "GET": (READ, repositories.listed_namespaces, "Accept"),
        "DELETE": (WRITE, repositories.clear),
    },
    "/repositories/{id}/namespaces/{prefix:path}": {
        "GET": (READ, repositories.get_namespace),
        "PUT": (WRITE, repositories.put_namespace),
        "DELETE": (WRITE, repositories.delete_namespace),
    },
    "/repositories/{id}/transactions": {"POST": (WRITE, rdf4j_transactions.begin, "isolation-level transaction-setting__*")},
    "/repositories/{id}/transactions/{tx}": {
        "PUT": (WRITE, rdf4j_transactions.act, f"action {_ACT}"),
        "POST": (WRITE, rdf4j_transactions.act, f"action {_ACT}"),
        "DELETE": (WRITE, rdf4j_transactions.delete),
    },
    "/repositories/{id}/transactions/{tx}/{action}": {
        "PUT": (WRITE, rdf4j_transactions.act, _ACT),
        "POST": (WRITE, rdf4j_transactions.act, _ACT),
        "GET": (READ, rdf4j_transactions.act, _ACT),
    },
    "/repositories": {"GET": (READ, repositories.listed, "Accept")},
    "/protocol": {"GET": (READ, repositories.protocol)},
    "/tx/batch": {"POST": (WRITE, transactions.post_batch)},
    "/tx": {"POST": (WRITE, transactions.post), "GET": (READ, transactions.listed)},
    "/tx/{id}": {"GET": (READ, transactions.get)},
    "/tx/{id}/{action}": {"POST": (WRITE, transactions.post_step, "first queue count wait-s by-hand one-phase")},
    "/together": {"POST": (READ, transactions.post_together)},
    "/queues/{name}/accept": {"POST": (WRITE, queues.accept, "count wait-s")},
    "/queues/{name}/{id}": {"GET": (READ, queues.message, "piece")},
    "/queues/{name}": {"POST": (WRITE, queues.post), "GET": (READ, queues.get, "after limit")},
    "/queues": {"GET": (READ, queues.listed)},
    "/cluster/status": {"GET": (READ, cluster.status)},
    "/cluster/log": {"GET": (READ, cluster.log, "from to effects entries lineage")},
    "/cluster/fingerprints": {"GET": (READ, cluster.fingerprints, "lsn timeout-s")},
    "/cluster/digests": {"GET": (READ, cluster.digests, "bits")},
    "/cluster/digests/items": {"POST": (READ, cluster.digest_items)},
    "/cluster/wait": {"GET": (READ, cluster.wait, "lsn workers timeout-s")},
    "/cluster/control/{name}": {"PUT": (ADMIN, keys.put_check), "DELETE": (ADMIN, keys.delete_check)},
    "/cluster/control": {"GET": (READ, keys.get_checks)},
    "/cluster/workers": {"GET": (READ, Command("workers"))},
    "/cluster/workers/{worker}": {
        "PUT": (ADMIN, Command("worker-add", {"readable": bool})),
        "DELETE": (ADMIN, Command("worker-remove", flags=("force",)), "force"),
    },
    "/cluster/workers/{worker}/{command}": {"POST": (ADMIN, commands.OF_WORKERS)},
    "/cluster/repair": {"POST": (ADMIN, commands.repair)},
    "/cluster/pins": {"GET": (READ, Command("pins"))},
    "/cluster/pins/{name}": {"PUT": (ADMIN, commands.PIN), "DELETE": (ADMIN, Command("unpin"))},
    "/cluster/peers": {"GET": (READ, Command("peers"))},
    "/cluster/peers/{node}": {
        "PUT": (ADMIN, Command("peer-add", {}, begins="/cluster/peers")),
        "DELETE": (ADMIN, Command("peer-remove", flags=("force",), begins="/cluster/peers"), "force"),
    },
    "/cluster/staged": {"GET": (READ, transactions.staged)},
    "/cluster/settings": {"GET": (ADMIN, Command("settings"))},
    "/cluster/settings/{name}": {
        "GET": (ADMIN, commands.get_setting),
        "PUT": (ADMIN, commands.put_setting),
        "DELETE": (ADMIN, commands.delete_setting),
    },
    "/cluster/split-recovery": {"GET": (READ, Command("split-recovery")), "POST": (ADMIN, commands.SPLIT_RECOVERY)},
    "/cluster/splits": {"GET": (READ, Command("splits"))},
    "/cluster/splits/{number}": {"GET": (READ, commands.split, "from limit")},
    "/cluster/nodes/{node}/{command}": {"POST": (ADMIN, commands.OF_NODES)},
    "/cluster/promote": {"POST": (ADMIN, commands.PROMOTE)},
    "/cluster/backup": {"POST": (ADMIN, commands.BACKUP)},
    "/cluster/tasks": {"GET": (READ, Command("tasks"))},
    "/cluster/tasks/{request}": {"GET": (READ, Command("task"))},
    # A probe with unknown parameters must not fail on a healthy node.
    "/livez": {"GET": (OPEN, cluster.livez, "*")},
    "/readyz": {"GET": (OPEN, cluster.readyz, "max-lag-s max-lag sync timeout *")},
    "/writable": {"GET": (OPEN, cluster.writable, "*")},
    "/metrics": {"GET": (READ, cluster.metrics)},
    "/page/live": {"GET": (READ, page.live)},
    "/page/rates": {"GET": (READ, page.rates, "after")},
    "/page/{name}": {"GET": (READ, page.file)},
    "/": {"GET": (READ, page.get)},
}


def create_app(
    front: Front,
    limits: HttpLimits | None = None,
    guard: Guard | None = None,
    origins: frozenset[str] = frozenset(),
    prefix: str = "",
    local_reads: LocalReads | None = None,
    hosts: frozenset[str] | None = None,
) -> Outside:
    """Return the application of one node; without a guard every request to one of ``hosts`` is allowed. It does nothing before a server calls it."""
    door = Door(front, limits or HttpLimits(), origins, local_reads, hosts)
    routes = [Route(path, Endpoint(door, path, methods, guard)) for path, methods in PATHS.items()]
    # Only the router: `Endpoint` catches errors, as Starlette's application would.
    return Outside(Router(routes, redirect_slashes=False, default=not_found), door, prefix, origins)


# ---- The HTTP door of one node from the cluster file: address, TLS, users.
#
# A door that other machines can reach must have TLS and users, or the file says that something else protects it (``http-plain``).
# Anything else is refused at the start.


class Way(NamedTuple):
    """Settings of a node's HTTP door."""

    host: str
    port: int
    guard: Guard | None
    origins: frozenset[str]
    prefix: str
    tls: Certificate | None
    hosts: frozenset[str] | None


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
    return Way(host, port, guard, origins, prefix, tls, None if guard is not None else _hosts(config, origins))


def _hosts(config: ClusterConfig, origins: frozenset[str]) -> frozenset[str]:
    """Return the names of a door without users: of this machine, of the file's addresses and origins; containers are named after nodes."""
    addresses = [http_address(node.http)[0] for node in config.nodes if node.http]
    names = [socket.gethostname(), *addresses, *(urlsplit(origin).hostname or "" for origin in origins), *config.roles]
    return frozenset(name.lower().rstrip(".") for name in names if name)


def open_door(config: ClusterConfig, node_id: str, front: Front) -> HttpServer | None:
    """Return the server of a node, not started; None for a node without an address. Raises ConfigurationError."""
    way = way_of(config, node_id)
    if way is None:
        return None
    local_reads = None if config.is_embedded or config.node(node_id).role == "worker" else LocalReads(config.name, config.data)
    app = create_app(front, guard=way.guard, origins=way.origins, prefix=way.prefix, local_reads=local_reads, hosts=way.hosts)
    return HttpServer(app, way.host, way.port, way.tls)


def _file(config: ClusterConfig, text: str, node_id: str) -> Path | None:
    return config.path.parent / text.replace("{id}", node_id) if text else None
