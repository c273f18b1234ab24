"""Which role a request needs: by path and method, so that a new path without a role is refused when the application is made.

Probes are open. Reading needs ``read``; so does what is sent with POST because it is long and changes nothing. What changes
content needs ``write``, what changes repositories or the cluster ``admin``. A handler that finds out from the body that
a request changes something asks for more (`Call.demand`).
"""

from __future__ import annotations

from brokerha.http.users import ADMIN, READ, WRITE

OPEN = ""
"""For everybody."""
_SAFE = frozenset({"GET", "HEAD"})
_OPEN_PATHS = frozenset({"/livez", "/readyz", "/writable"})
_READ_BY_POST = frozenset({"/repositories/{id}/sparql", "/repositories/{id}", "/together", "/cluster/digests/items"})
_FIRST = {"kv": WRITE, "repositories": WRITE, "tx": WRITE, "queues": WRITE, "together": WRITE, "cluster": ADMIN}
_ADMIN_PATHS = frozenset({"/repositories/{id}", "/repositories/{id}/config"})
_KNOWN = frozenset({*_FIRST, "protocol", "page", "metrics", ""})


def role_of(path: str, method: str) -> str:
    """The role a method of a path needs. Raises LookupError for a path that nobody thought about."""
    first = path.split("/")[1]
    if path in _OPEN_PATHS and method in _SAFE:
        return OPEN
    if first not in _KNOWN:
        raise LookupError(f"{method} {path} has no role")
    if method in _SAFE or (method == "POST" and path in _READ_BY_POST):
        return READ
    if path in _ADMIN_PATHS:
        return ADMIN
    if first not in _FIRST:
        raise LookupError(f"{method} {path} has no role")
    return _FIRST[first]
