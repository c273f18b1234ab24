"""Which path is answered by what: the whole outside of a node, on one page.

Routing looks at the raw path, so that percent-encoding is taken off once and behind it: ``/kv/t/a%2Fb`` is the key ``a/b`` of
table ``t``, and ``/kv/t%2Fa/b`` a key of table ``t/a``. Paths that are asked often stand first.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from brokerha.http import (
    cluster,
    control,
    digests,
    graphs,
    keys,
    moment,
    namespaces,
    open_transactions,
    page,
    peers,
    pins,
    probes,
    processes,
    queues,
    rdf4j_transactions,
    rdf_transactions,
    repositories,
    sparql,
    splits,
    statements,
    tasks,
    transactions,
    workers,
)
from brokerha.http.door import Door
from brokerha.http.endpoint import Endpoint, Handler, not_found
from brokerha.http.guard import Guard
from brokerha.http.limits import HttpLimits
from brokerha.http.roles import role_of
from brokerha.ports.front import Front

_GRAPH: dict[str, Handler] = {
    "GET": graphs.get,
    "PUT": graphs.put,
    "POST": graphs.post,
    "DELETE": graphs.delete,
}
_SERVICE: dict[str, Handler] = {
    "GET": graphs.get_service,
    "PUT": graphs.put_service,
    "POST": graphs.post_service,
    "DELETE": graphs.delete_service,
}
PATHS: dict[str, dict[str, Handler]] = {
    "/kv/{table}/{key:path}": {"GET": keys.get, "PUT": keys.put, "DELETE": keys.delete},
    "/kv/{table}": {"GET": keys.get_range, "POST": keys.post_group},
    "/repositories/{id}/sparql": {"GET": sparql.get, "POST": sparql.post},
    "/repositories/{id}/statements": {
        "GET": statements.get,
        "POST": rdf_transactions.post,
        "PUT": statements.put,
        "DELETE": statements.delete,
    },
    "/repositories/{id}": {
        "GET": repositories.get,
        "POST": repositories.post,
        "PUT": repositories.put,
        "DELETE": repositories.delete,
    },
    "/repositories/{id}/size": {"GET": repositories.size},
    "/repositories/{id}/contexts": {"GET": repositories.contexts},
    "/repositories/{id}/config": {
        "GET": repositories.get_config,
        "POST": repositories.put_config,
        "PUT": repositories.put_config,
    },
    "/repositories/{id}/gsp": _GRAPH,
    "/repositories/{id}/gsp/{graph:path}": _GRAPH,
    "/repositories/{id}/rdf-graphs": {"GET": repositories.contexts},
    "/repositories/{id}/rdf-graphs/service": _SERVICE,
    "/repositories/{id}/rdf-graphs/{graph:path}": _SERVICE,
    "/repositories/{id}/namespaces": {"GET": namespaces.listed, "DELETE": namespaces.clear},
    "/repositories/{id}/namespaces/{prefix:path}": {
        "GET": namespaces.get,
        "PUT": namespaces.put,
        "DELETE": namespaces.delete,
    },
    "/repositories/{id}/transactions": {"POST": rdf4j_transactions.begin},
    "/repositories/{id}/transactions/{tx}": {
        "PUT": rdf4j_transactions.act,
        "POST": rdf4j_transactions.act,
        "DELETE": rdf4j_transactions.delete,
    },
    "/repositories/{id}/transactions/{tx}/{action}": {
        "PUT": rdf4j_transactions.act,
        "POST": rdf4j_transactions.act,
        "GET": rdf4j_transactions.act,
    },
    "/repositories": {"GET": repositories.listed},
    "/protocol": {"GET": repositories.protocol},
    "/tx/batch": {"POST": transactions.post_batch},
    "/tx": {"POST": transactions.post, "GET": open_transactions.listed},
    "/tx/{id}": {"GET": transactions.get},
    "/tx/{id}/{action}": {"POST": open_transactions.post},
    "/together": {"POST": moment.post},
    "/queues/{name}/accept": {"POST": queues.accept},
    "/queues/{name}": {"POST": queues.post, "GET": queues.get},
    "/queues": {"GET": queues.listed},
    "/cluster/status": {"GET": cluster.status},
    "/cluster/log": {"GET": cluster.log},
    "/cluster/fingerprints": {"GET": cluster.fingerprints},
    "/cluster/digests": {"GET": digests.get},
    "/cluster/digests/items": {"POST": digests.post_items},
    "/cluster/wait": {"GET": cluster.wait},
    "/cluster/control/{name}": {"PUT": control.put, "DELETE": control.delete},
    "/cluster/control": {"GET": control.get},
    "/cluster/workers": {"GET": workers.listed},
    "/cluster/workers/{id}": {"PUT": workers.put, "DELETE": workers.delete},
    "/cluster/workers/{id}/{command}": {"POST": workers.post},
    "/cluster/pins": {"GET": pins.listed},
    "/cluster/pins/{name}": {"PUT": pins.put, "DELETE": pins.delete},
    "/cluster/peers": {"GET": peers.listed},
    "/cluster/peers/{id}": {"PUT": peers.put, "DELETE": peers.delete},
    "/cluster/split-recovery": {"GET": splits.mode, "POST": splits.post_mode},
    "/cluster/splits": {"GET": splits.listed},
    "/cluster/splits/{number}": {"GET": splits.get},
    "/cluster/promote": {"POST": processes.promote},
    "/cluster/repair": {"POST": workers.repair},
    "/cluster/tasks": {"GET": workers.tasks},
    "/cluster/backup": {"POST": tasks.post_backup},
    "/cluster/tasks/{request}": {"GET": tasks.get},
    "/livez": {"GET": probes.livez},
    "/readyz": {"GET": probes.readyz},
    "/writable": {"GET": probes.writable},
    "/metrics": {"GET": probes.metrics},
    "/page/live": {"GET": page.live},
    "/page/rates": {"GET": page.rates},
    "/page/{name}": {"GET": page.file},
    "/": {"GET": page.get},
}


def create_app(front: Front, limits: HttpLimits | None = None, guard: Guard | None = None) -> Starlette:
    """The application of one node; without a guard everybody may everything. Nothing of it runs before a server calls it."""
    door = Door(front, limits or HttpLimits())
    app = Starlette(
        routes=[
            Route(path, Endpoint(door, handlers, {method: role_of(path, method) for method in handlers}, guard))
            for path, handlers in PATHS.items()
        ],
        middleware=[Middleware(RawPath)],
    )
    app.router.redirect_slashes = False
    app.router.default = not_found
    app.state.door = door
    return app


class RawPath:
    """Lets routing see the path as it was sent."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Hand the request on."""
        if scope["type"] == "http":
            scope["path"] = scope["raw_path"].decode("latin-1")
        await self._app(scope, receive, send)
