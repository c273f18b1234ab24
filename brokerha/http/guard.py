"""Authentication and roles: finds the user of a request, and refuses strangers and users without the role.

Without users every request to a name of this door is allowed, which is for loopback. A page of another site never changes anything,
with or without users: browsers send credentials and tell where a request comes from. A name of such a page that leads here since the
page was loaded (DNS rebinding) is none of this door.

Each method of each path has its role (app.py); the path's subject (`Place`) decides where the role must hold. Probes are open.
Reading needs ``read``, also a long read that is sent with POST. Changing content needs ``write``; changing repositories or the
cluster needs ``admin``. A handler that learns from the request that it changes more asks for more (`Call.demand`). A user with
the role in single graphs of a repository gets in as well: door/passing.py limits each read and write to these graphs.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from brokerha.http.door import answer as answers
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call, lacks
from brokerha.http.users import ADMIN, READ, WRITE, Failures, User, Users
from brokerha.ingress.limits import is_plain_data, is_plain_request
from brokerha.ingress.rdf_bodies import Graph, context_text, contexts_of
from brokerha.model.control import failed_in
from brokerha.model.errors import InvalidRequest, NotAllowed, NotReady, TooLarge
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE
from brokerha.model.operations import Operation, unpack_operations
from brokerha.model.reserved import about
from brokerha.stores.reads.kinds import check_arguments, texts_argument
from brokerha.stores.sparql.targets import DEFAULT, Targets, dataset_of, name_of, targets_of

SAFE = frozenset({"GET", "HEAD"})
OPEN = ""
"""For everyone."""
_CHALLENGE = 'Basic realm="brokerha", charset="UTF-8", Bearer realm="brokerha"'


class Place(Enum):
    """The subject of a path."""

    ALL = "all"
    """The cluster: the general role counts."""
    STORE = "store"
    """The repository, table or queue in the path: the role there counts."""
    NAMED = "named"
    """Stores named by the request: any user with the role somewhere can come in; each store is then checked (`demand_operations`)."""


_NAMED = frozenset(
    {
        "/tx",
        "/tx/batch",
        "/tx/{id}",
        "/tx/{id}/{action}",
        "/together",
        "/repositories",
        "/kv",
        "/queues",
        "/snapshots/{name}",
        "/protocol",
    }
)
_STORES = {"/repositories/{id}": GRAPH, "/kv/{table}": TABLE, "/queues/{name}": QUEUE}


def place_of(path: str) -> Place:
    """Return the subject of a path."""
    if path in _NAMED:
        return Place.NAMED
    return Place.ALL if store_of(path) is None else Place.STORE


def store_of(path: str) -> tuple[str, str] | None:
    """Return the kind of a path's store, and the path parameter with its name; None for a path without a single store."""
    for beginning, kind in _STORES.items():
        if path.startswith(beginning):
            return kind, beginning[beginning.index("{") + 1 : -1]
    return None


class Guard:
    """The guard of one door: ``users`` returns the present users, ``wall_s`` the wall clock for ends of tokens, ``mono_s`` seconds."""

    def __init__(
        self, users: Callable[[], Users], wall_s: Callable[[], float], mono_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._users = users
        self._wall_s = wall_s
        self._mono_s = mono_s
        self._failures = Failures()

    async def refusal(self, call: Call, role: str, place: Place) -> Answer | None:
        """Return the refusal of this request, or None; note the user in the call."""
        if not role:
            return None
        address, now_s = call.address(), self._mono_s()
        scheme, _, given = call.header(b"authorization").partition(" ")
        known = self._known(scheme.lower(), given.strip(), self._wall_s()) if given else None
        if known is None:
            if not given:
                return _unknown(call, "this needs a user: send a token (Bearer) or a name and a password (Basic)")
            wait_s = self._failures.wait_s(address, now_s)
            if wait_s:
                return _refusal(call, f"too many failed logins from {address}", 429, {"Retry-After": wait_s})
            # Counted before scrypt runs, so that parallel requests do not all get through.
            self._failures.failed(address, now_s)
            name, password = _basic(given) if scheme.lower() == "basic" else ("", "")
            try:
                known = await call.door.in_thread(self._users().by_password, name, password) if name else None
            except NotReady:
                # The password was not checked.
                self._failures.take_back(address)
                raise
            if known is None:
                return _unknown(call, "this user, password or token is not known, or has expired")
            self._failures.take_back(address)
        call.user = known
        if not (known.may_somewhere(role) if place is Place.NAMED else known.may_enter(role, call.store)):
            return _refusal(call, lacks(known, role, call.store), 403, {})
        return None

    def _known(self, scheme: str, given: str, now_s: float) -> User | None:
        users = self._users()
        if scheme == "bearer":
            return users.by_token(given, now_s)
        return users.is_verified(*_basic(given)) if scheme == "basic" else None


def _basic(given: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return name, password


def _unknown(call: Call, text: str) -> Answer:
    return _refusal(call, text, 401, {"WWW-Authenticate": _CHALLENGE})


def _refusal(call: Call, text: str, status: int, headers: dict[str, str | int]) -> Answer:
    answer = answers.of_error(NotAllowed(text), wants_json=call.wants_json())
    answer.status, answer.headers = status, {**answer.headers, **headers}
    return answer


def is_foreign(call: Call) -> bool:
    """Tell whether a page of another site sends this request to change something."""
    origin = call.header(b"origin").lower()
    if not origin or call.method in SAFE or origin in call.door.origins:
        return False
    try:
        return urlsplit(origin).netloc != call.header(b"host").lower()
    except ValueError:  # No origin at all, such as http://[
        return True


def is_misled(call: Call) -> bool:
    """Tell whether this request is for a name that is none of this door, which has no users to protect it."""
    hosts, host = call.door.hosts, call.header(b"host")
    return hosts is not None and bool(host) and not _is_own(host.lower(), hosts)


@lru_cache(maxsize=256)
def _is_own(host: str, hosts: frozenset[str]) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name in hosts
    # No site can have another one's address as its name.
    return True


def parse_origins(text: str) -> frozenset[str]:
    """Parse the origins of a cluster file. Raises ValueError with the wrong one.

    >>> sorted(parse_origins("https://a.example, http://b:8080"))
    ['http://b:8080', 'https://a.example']
    """
    found = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    for origin in found:
        parts = urlsplit(origin)
        if (
            parts.scheme not in {"http", "https"}
            or not parts.hostname
            or origin != f"{parts.scheme}://{parts.netloc}"
            or "@" in origin
        ):
            raise ValueError(origin)
    return found


# ---- The rights that a transaction or several reads need, by the stores that they name: for users without all rights.
#
# A path like ``/tx`` is about many stores, so its role is not enough: a user with write there must not create a repository by an
# operation, nor change a read-only one. Each operation and each read is checked here:
#
#     update, add, remove, clear                 write in its repository
#     create-repository, remove-repository       admin in it
#     control-add, control-remove                admin
#     put, delete                                write in the table; for data about a repository (about.py): as its own path
#     publish, accept                            write in the queue
#     snapshot                                   write in each table that it names; of all tables: write
#     drop-snapshot, drop-staged                 write
#     stage, commit-staged                       only the rights of the staged operations; only its author commits a large transaction
#     expectations                               read in that repository, table or queue; of all content: read
#     a read of a repository, table or queue     read in it; of settings: admin; every other read: read
#
# An operation of a wrong shape needs nothing: the node refuses it with the reason.
#
# A user who lacks the role in a repository can have it in some of its graphs. `limited` then limits each read to these graphs, and an
# operation must name all graphs that it reads and changes (stores/sparql/targets.py). A request without an exact limit is refused.

_IN_STORES = {
    "update": (GRAPH, WRITE), "add": (GRAPH, WRITE), "remove": (GRAPH, WRITE), "clear": (GRAPH, WRITE),
    "create-repository": (GRAPH, ADMIN), "remove-repository": (GRAPH, ADMIN),
    "put": (TABLE, WRITE), "delete": (TABLE, WRITE), "expect-key": (TABLE, READ), "expect-range": (TABLE, READ),
    "publish": (QUEUE, WRITE), "publish-pieces": (QUEUE, WRITE), "accept": (QUEUE, WRITE),
}  # fmt: skip
_ELSEWHERE = {
    "drop-snapshot": WRITE,
    "drop-staged": WRITE,
    "control-add": ADMIN,
    "control-remove": ADMIN,
    "expect-fingerprint": READ,
}
_READS = {
    "query": GRAPH, "statements": GRAPH, "size": GRAPH, "contexts": GRAPH, "about": GRAPH, "get": TABLE, "range": TABLE, "queue": QUEUE,
    "message": QUEUE,
}  # fmt: skip
_OF_QUADS = frozenset({"update", "add", "remove"})
_CHANGES_OF_KEYS = frozenset({"put", "delete"})
_OF_ADMINS = (b"-repository", b"control-", about.TABLE.encode())
"""Bytes without which no packed transaction has an operation that needs `ADMIN`."""


async def demand_operations(call: Call, operations: Iterable[Operation]) -> None:
    """Refuse, with 403, operations of a transaction that this user has no right to."""
    if _may_everything(call):
        return
    for operation in operations:
        kind, *names = [each if isinstance(each, str) else "" for each in operation[:3]] or [""]
        if kind in _CHANGES_OF_KEYS and names[:1] == [about.TABLE]:
            _demand_about(call, operation[2] if len(operation) > 2 else b"")
        elif kind in _IN_STORES:
            store, role = _IN_STORES[kind]
            name = names[0] if names else ""
            if kind in _OF_QUADS and not call.may(role, (store, name)):
                await _demand_graphs(call, kind, name, operation[2:])
            else:
                call.demand(role, (store, name))
        elif kind == "snapshot":
            for table in operation[2:]:
                call.demand(WRITE, (TABLE, table) if isinstance(table, str) else None)
            if len(operation) < 3:
                call.demand(WRITE, None)
        elif kind == "expect-since":
            call.demand(READ, (names[0], names[1]) if len(names) > 1 else None)
        elif kind in _ELSEWHERE:
            call.demand(_ELSEWHERE[kind], None)


async def _demand_graphs(call: Call, kind: str, repository: str, rest: Sequence[Any]) -> None:
    """Refuse, with 403, an operation on quads that can read or change a graph that this user has no right to."""
    if call.user is None or not call.user.graphs_in(repository, WRITE) or [type(each) for each in rest] != [str]:
        call.demand(WRITE, (GRAPH, repository))
        return
    is_plain = is_plain_request if kind == "update" else is_plain_data
    targets = Targets(*await call.door.parsed(is_plain(rest[0]), targets_of, kind, rest[0]))
    for role, graphs, reason in ((WRITE, targets.changed, targets.changes_any), (READ, targets.read, targets.reads_any)):
        if reason:
            demand_all_graphs(call, role, repository, reason)
        demand_graphs(call, role, repository, graphs)


def demand_graphs(call: Call, role: str, repository: str, graphs: Iterable[str]) -> None:
    """Refuse, with 403, a user without this role in one of these graphs."""
    if call.user is not None and not call.may(role, (GRAPH, repository)):
        for graph in sorted(set(graphs) - set(call.user.graphs_in(repository, role))):
            raise NotAllowed(lacks(call.user, role, (GRAPH, repository), graph))


def demand_all_graphs(call: Call, role: str, repository: str, reason: str) -> None:
    """Refuse, with 403, a user without this role in all graphs of a repository, with the reason why that is needed."""
    if call.user is not None and not call.may(role, (GRAPH, repository)):
        raise NotAllowed(f"{reason}; {lacks(call.user, role, (GRAPH, repository))}")


def _demand_about(call: Call, key: Any) -> None:
    repository, _, rest = key.partition(b"/") if isinstance(key, bytes) else (b"", b"", b"")
    is_setting = not rest.startswith(about.NAMESPACE.encode())
    call.demand(ADMIN if is_setting else WRITE, (GRAPH, repository.decode(errors="replace")))


async def demand_packed(call: Call, body: bytes) -> None:
    """Refuse the same for a packed transaction, which is unpacked only if needed."""
    if _may_everything(call) or (_may_write_all(call) and not any(part in body for part in _OF_ADMINS)):
        return
    try:
        operations = unpack_operations(body)
    except (InvalidRequest, TooLarge):
        return
    await demand_operations(call, operations)


async def demand_reads(call: Call, wanted: Iterable[Any]) -> list[Any]:
    """Refuse the same for several reads, each a list that begins with kind and name; return them as `limited`."""
    allowed = []
    for each in wanted:
        if isinstance(each, (list, tuple)) and len(each) > 1:
            if each[0] == "settings":
                call.demand(ADMIN, None)
            kind, name = (one if isinstance(one, str) else "" for one in each[:2])
            store = (_READS[kind], name) if kind in _READS and name else None
            if store is not None and store[0] == GRAPH and kind != "contexts" and len(each) == 3 and isinstance(each[2], dict):
                allowed.append([kind, name, await limited(call, kind, name, each[2], is_inside=True)])
                continue
            call.demand(READ, store)
        allowed.append(each)
    return allowed


async def limited(call: Call, kind: str, name: str, arguments: dict[str, Any], *, is_inside: bool) -> dict[str, Any]:
    """Return the arguments of a read, limited to the graphs that this user can read. Raises NotAllowed, InvalidRequest.

    ``is_inside``: the read is in an open transaction, or one of several reads. The answer to ``contexts`` still has all graphs: its
    caller leaves out those of other users (`only_readable_graphs`).
    """
    user, store = call.user, (GRAPH, name)
    if user is None or not name or _READS.get(kind) != GRAPH or user.may(READ, store):
        return arguments
    held = user.graphs_in(name)
    if not held or kind == "about":
        call.demand(READ, store)
    check_arguments(kind, name, arguments)
    contexts = contexts_of(texts_argument(arguments, "context"))
    if kind == "query":
        default, named = (texts_argument(arguments, f"{which}-graph-uri") for which in ("default", "named"))
        if not (default or named):
            text = arguments["query"]
            default, named = await call.door.parsed(is_plain_request(text), dataset_of, text)
        if default or named:
            demand_graphs(call, READ, name, (*default, *named))
            return {**arguments, "default-graph-uri": tuple(default), "named-graph-uri": tuple(named), "context": ()}
        if is_inside:
            demand_all_graphs(call, READ, name, "in a transaction or among several reads, name the graphs of a query with FROM")
    demand_graphs(call, READ, name, map(name_of, contexts))
    if kind == "contexts":
        return arguments
    within = [context_text(graph) for graph in contexts] or ["null" if each == DEFAULT else f"<{each}>" for each in held]
    return {**arguments, "context": tuple(within)}


def readable_reason(call: Call, reason: str) -> str:
    """Return why a write failed, without what a check of the control suite found where the caller cannot read."""
    if call.may(READ, None) or (failed := failed_in(reason)) is None:
        return reason
    without_data, repository, table = failed
    if (repository and call.may(READ, (GRAPH, repository))) or (table and call.may(READ, (TABLE, table))):
        return reason
    return f"{without_data}: this user cannot read what it found"


def only_readable(call: Call, kind: str, names: Iterable[str]) -> list[str]:
    """Return the stores of a kind that the caller can read."""
    return [name for name in names if call.may(READ, (kind, name))]


def only_readable_graphs(call: Call, repository: str, graphs: Sequence[Graph]) -> Sequence[Graph]:
    """Return the graphs of a repository that the caller can read."""
    if call.user is None or call.may(READ, (GRAPH, repository)):
        return graphs
    held = call.user.graphs_in(repository)
    return [graph for graph in graphs if name_of(graph) in held]


def _may_everything(call: Call) -> bool:
    return call.user is None or (call.user.role == ADMIN and not call.user.stores)


def _may_write_all(call: Call) -> bool:
    return call.user is not None and call.user.may(WRITE) and not call.user.stores
