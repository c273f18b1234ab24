"""The handler of each path: the whole outside of a node in one table.

Each method of each path names its role, which cannot be left out, and its parameters if it has any (`$*`: all names with
this prefix). Other parameters are refused.

Routing uses the raw path, so that percent-encoding is decoded once and afterwards: ``/kv/t/a%2Fb`` is the key ``a/b`` of table
``t``, and ``/kv/t%2Fa/b`` a key of table ``t/a``. Frequent paths come first.
"""

from __future__ import annotations

from starlette.routing import Route, Router

from brokerha.http import page
from brokerha.http.data import control, keys, open_transactions, queues, transactions
from brokerha.http.door.door import Door, HttpLimits
from brokerha.http.door.endpoint import Endpoint, Ways, not_found
from brokerha.http.door.outside import Outside
from brokerha.http.guard.guard import OPEN, Guard
from brokerha.http.guard.users import ADMIN, READ, WRITE
from brokerha.http.operating import cluster, commands, probes
from brokerha.http.operating.commands import Command
from brokerha.http.rdf import graphs, namespaces, rdf4j_transactions, repositories, sparql, statements
from brokerha.http.rdf import transaction_documents as rdf_transactions
from brokerha.local_reads.asking import LocalReads
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


def _verbs(of: graphs.Graphs, names: str) -> Ways:
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
    "/repositories/{id}/gsp": _verbs(graphs.W3C, "graph default"),
    "/repositories/{id}/gsp/{graph:path}": _verbs(graphs.W3C, ""),
    "/repositories/{id}/rdf-graphs": {"GET": (READ, repositories.contexts, "Accept")},
    "/repositories/{id}/rdf-graphs/service": _verbs(graphs.RDF4J, "graph default"),
    "/repositories/{id}/rdf-graphs/{graph:path}": _verbs(graphs.RDF4J, ""),
    "/repositories/{id}/namespaces": {"GET": (READ, namespaces.listed, "Accept"), "DELETE": (WRITE, namespaces.clear)},
    "/repositories/{id}/namespaces/{prefix:path}": {
        "GET": (READ, namespaces.get),
        "PUT": (WRITE, namespaces.put),
        "DELETE": (WRITE, namespaces.delete),
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
    "/tx": {"POST": (WRITE, transactions.post), "GET": (READ, open_transactions.listed)},
    "/tx/{id}": {"GET": (READ, transactions.get)},
    "/tx/{id}/{action}": {"POST": (WRITE, open_transactions.post, "first queue count wait-s by-hand one-phase")},
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
    "/cluster/control/{name}": {"PUT": (ADMIN, control.put), "DELETE": (ADMIN, control.delete)},
    "/cluster/control": {"GET": (READ, control.get)},
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
    "/cluster/staged": {"GET": (READ, open_transactions.staged)},
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
    "/livez": {"GET": (OPEN, probes.livez, "*")},
    "/readyz": {"GET": (OPEN, probes.readyz, "max-lag-s max-lag sync timeout *")},
    "/writable": {"GET": (OPEN, probes.writable, "*")},
    "/metrics": {"GET": (READ, probes.metrics)},
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
) -> Outside:
    """Return the application of one node; without a guard every request is allowed. It does nothing before a server calls it."""
    door = Door(front, limits or HttpLimits(), origins, local_reads)
    routes = [Route(path, Endpoint(door, path, methods, guard)) for path, methods in PATHS.items()]
    # Only the router: `Endpoint` catches errors, as Starlette's application would.
    return Outside(Router(routes, redirect_slashes=False, default=not_found), door, prefix, origins)
