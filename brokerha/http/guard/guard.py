"""Authentication and roles: finds the user of a request, and refuses strangers and users without the role.

Without users every request is allowed, which is for loopback. A page of another site never changes anything, with or without users:
browsers send credentials and tell where a request comes from.

Each method of each path has its role (app.py); the path's subject (`Place`) decides where the role must hold. Probes are open.
Reading needs ``read``, also a long read that is sent with POST. Changing content needs ``write``; changing repositories or the
cluster needs ``admin``. A handler that learns from the request that it changes more asks for more (`Call.demand`, rights.py). A user with
the role in single graphs of a repository gets in as well: door/passing.py limits each read and write to these graphs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from enum import Enum
from urllib.parse import urlsplit

from brokerha.http.door import answer as answers
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call, lacks
from brokerha.http.guard.users import Failures, User, Users
from brokerha.model.errors import NotAllowed, NotReady
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE

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
    """Stores named by the request: any user with the role somewhere can come in; each store is then checked (rights.py)."""


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
    """The guard of one door: ``users`` returns the present users, ``wall_s`` the seconds of the wall clock."""

    def __init__(self, users: Callable[[], Users], wall_s: Callable[[], float]) -> None:
        self._users = users
        self._wall_s = wall_s
        self._failures = Failures()

    async def refusal(self, call: Call, role: str, place: Place) -> Answer | None:
        """Return the refusal of this request, or None; note the user in the call."""
        if not role:
            return None
        address, now_s = call.address(), self._wall_s()
        scheme, _, given = call.header(b"authorization").partition(" ")
        known = self._known(scheme.lower(), given.strip(), now_s) if given else None
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
