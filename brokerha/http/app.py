"""Which path is answered by what: the whole outside of a node, on one page.

Each method of each path has the role that it needs beside it: one without a role cannot be written.

Routing looks at the raw path, so that percent-encoding is taken off once and after it: ``/kv/t/a%2Fb`` is the key ``a/b`` of
table ``t``, and ``/kv/t%2Fa/b`` a key of table ``t/a``. Paths that are asked often stand first.
"""

from __future__ import annotations

from starlette.routing import Route, Router

from brokerha.http import page
from brokerha.http.data import control, keys, open_transactions, queues, transactions
from brokerha.http.door.door import Door, HttpLimits
from brokerha.http.door.endpoint import Endpoint, Handler, not_found
from brokerha.http.door.outside import Outside
from brokerha.http.guard.guard import OPEN, Guard
from brokerha.http.guard.users import ADMIN, READ, WRITE
from brokerha.http.operating import cluster, commands, probes
from brokerha.http.operating.commands import Command
from brokerha.http.rdf import graphs, namespaces, rdf4j_transactions, repositories, sparql, statements
from brokerha.http.rdf import transaction_documents as rdf_transactions
from brokerha.local_reads.asking import LocalReads
from brokerha.ports.front import Front


def _verbs(of: graphs.Graphs) -> dict[str, tuple[str, Handler]]:
    return {"GET": (READ, of.get), "PUT": (WRITE, of.put), "POST": (WRITE, of.post), "DELETE": (WRITE, of.delete)}


_GRAPH = _verbs(graphs.W3C)
_SERVICE = _verbs(graphs.RDF4J)
PATHS: dict[str, dict[str, tuple[str, Handler]]] = {
    "/kv/{table}/{key:path}": {"GET": (READ, keys.get), "PUT": (WRITE, keys.put), "DELETE": (WRITE, keys.delete)},
    "/kv/{table}": {"GET": (READ, keys.get_range), "POST": (WRITE, keys.post_group)},
    "/kv": {"GET": (READ, keys.listed)},
    "/snapshots/{name}": {"PUT": (WRITE, keys.put_snapshot), "DELETE": (WRITE, keys.drop_snapshot)},
    "/snapshots": {"GET": (READ, keys.listed_snapshots)},
    "/repositories/{id}/sparql": {"GET": (READ, sparql.get), "POST": (READ, sparql.post)},
    "/repositories/{id}/statements": {
        "GET": (READ, statements.get),
        "POST": (WRITE, rdf_transactions.post),
        "PUT": (WRITE, statements.put),
        "DELETE": (WRITE, statements.delete),
    },
    "/repositories/{id}": {
        "GET": (READ, repositories.get),
        "POST": (READ, repositories.post),
        "PUT": (ADMIN, repositories.put),
        "DELETE": (ADMIN, repositories.delete),
    },
    "/repositories/{id}/size": {"GET": (READ, repositories.size)},
    "/repositories/{id}/contexts": {"GET": (READ, repositories.contexts)},
    "/repositories/{id}/config": {
        "GET": (READ, repositories.get_config),
        "POST": (ADMIN, repositories.put_config),
        "PUT": (ADMIN, repositories.put_config),
    },
    "/repositories/{id}/gsp": _GRAPH,
    "/repositories/{id}/gsp/{graph:path}": _GRAPH,
    "/repositories/{id}/rdf-graphs": {"GET": (READ, repositories.contexts)},
    "/repositories/{id}/rdf-graphs/service": _SERVICE,
    "/repositories/{id}/rdf-graphs/{graph:path}": _SERVICE,
    "/repositories/{id}/namespaces": {"GET": (READ, namespaces.listed), "DELETE": (WRITE, namespaces.clear)},
    "/repositories/{id}/namespaces/{prefix:path}": {
        "GET": (READ, namespaces.get),
        "PUT": (WRITE, namespaces.put),
        "DELETE": (WRITE, namespaces.delete),
    },
    "/repositories/{id}/transactions": {"POST": (WRITE, rdf4j_transactions.begin)},
    "/repositories/{id}/transactions/{tx}": {
        "PUT": (WRITE, rdf4j_transactions.act),
        "POST": (WRITE, rdf4j_transactions.act),
        "DELETE": (WRITE, rdf4j_transactions.delete),
    },
    "/repositories/{id}/transactions/{tx}/{action}": {
        "PUT": (WRITE, rdf4j_transactions.act),
        "POST": (WRITE, rdf4j_transactions.act),
        "GET": (READ, rdf4j_transactions.act),
    },
    "/repositories": {"GET": (READ, repositories.listed)},
    "/protocol": {"GET": (READ, repositories.protocol)},
    "/tx/batch": {"POST": (WRITE, transactions.post_batch)},
    "/tx": {"POST": (WRITE, transactions.post), "GET": (READ, open_transactions.listed)},
    "/tx/{id}": {"GET": (READ, transactions.get)},
    "/tx/{id}/{action}": {"POST": (WRITE, open_transactions.post)},
    "/together": {"POST": (READ, transactions.post_together)},
    "/queues/{name}/accept": {"POST": (WRITE, queues.accept)},
    "/queues/{name}/{id}": {"GET": (READ, queues.message)},
    "/queues/{name}": {"POST": (WRITE, queues.post), "GET": (READ, queues.get)},
    "/queues": {"GET": (READ, queues.listed)},
    "/cluster/status": {"GET": (READ, cluster.status)},
    "/cluster/log": {"GET": (READ, cluster.log)},
    "/cluster/fingerprints": {"GET": (READ, cluster.fingerprints)},
    "/cluster/digests": {"GET": (READ, cluster.digests)},
    "/cluster/digests/items": {"POST": (READ, cluster.digest_items)},
    "/cluster/wait": {"GET": (READ, cluster.wait)},
    "/cluster/control/{name}": {"PUT": (ADMIN, control.put), "DELETE": (ADMIN, control.delete)},
    "/cluster/control": {"GET": (READ, control.get)},
    "/cluster/workers": {"GET": (READ, Command("workers"))},
    "/cluster/workers/{worker}": {
        "PUT": (ADMIN, Command("worker-add", {"readable": bool})),
        "DELETE": (ADMIN, Command("worker-remove", flags=("force",))),
    },
    "/cluster/workers/{worker}/{command}": {"POST": (ADMIN, commands.OF_WORKERS)},
    "/cluster/repair": {"POST": (ADMIN, commands.repair)},
    "/cluster/pins": {"GET": (READ, Command("pins"))},
    "/cluster/pins/{name}": {"PUT": (ADMIN, commands.PIN), "DELETE": (ADMIN, Command("unpin"))},
    "/cluster/peers": {"GET": (READ, Command("peers"))},
    "/cluster/peers/{node}": {
        "PUT": (ADMIN, Command("peer-add", {}, begins="/cluster/peers")),
        "DELETE": (ADMIN, Command("peer-remove", flags=("force",), begins="/cluster/peers")),
    },
    "/cluster/staged": {"GET": (READ, open_transactions.staged)},
    "/cluster/settings": {"GET": (ADMIN, Command("settings"))},
    "/cluster/settings/{name}": {
        "GET": (ADMIN, commands.get_setting),
        "PUT": (ADMIN, commands.put_setting),
        "DELETE": (ADMIN, commands.delete_setting),
    },
    "/cluster/split-recovery": {"GET": (READ, Command("split-recovery")), "POST": (ADMIN, commands.SPLIT_RECOVERY)},
    "/cluster/splits": {"GET": (READ, Command("splits"))},
    "/cluster/splits/{number}": {"GET": (READ, commands.split)},
    "/cluster/nodes/{node}/{command}": {"POST": (ADMIN, commands.OF_NODES)},
    "/cluster/promote": {"POST": (ADMIN, commands.PROMOTE)},
    "/cluster/backup": {"POST": (ADMIN, commands.BACKUP)},
    "/cluster/tasks": {"GET": (READ, Command("tasks"))},
    "/cluster/tasks/{request}": {"GET": (READ, Command("task"))},
    "/livez": {"GET": (OPEN, probes.livez)},
    "/readyz": {"GET": (OPEN, probes.readyz)},
    "/writable": {"GET": (OPEN, probes.writable)},
    "/metrics": {"GET": (READ, probes.metrics)},
    "/page/live": {"GET": (READ, page.live)},
    "/page/rates": {"GET": (READ, page.rates)},
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
) -> Outside:
    """The application of one node; without a guard every request is allowed. Nothing of it runs before a server calls it."""
    door = Door(front, limits or HttpLimits(), origins, local_reads)
    routes = [Route(path, Endpoint(door, path, methods, guard)) for path, methods in PATHS.items()]
    # The router alone: what its application adds, catching errors, `Endpoint` does.
    return Outside(Router(routes, redirect_slashes=False, default=not_found), door, prefix, origins)
