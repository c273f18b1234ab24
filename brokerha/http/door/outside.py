"""Work before routing: the raw path, a prefix for some clients, and pages of other sites (CORS).

Pages from the origins of ``http-origins`` can use this door like its own pages. A browser learns that from the answer to its
preflight (``OPTIONS`` with ``Access-Control-Request-Method``) and from every answer. For any other page the headers are missing, so
that its browser withholds the answer. There are no cookies, and browsers are not asked for stored passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from brokerha.http.door import answer as answers
from brokerha.http.door.answer import Answer
from brokerha.http.door.door import Door

METHODS: Final = "GET, HEAD, POST, PUT, DELETE"
MAY_SEND: Final = (
    "Accept, Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-Match, If-None-Match, "
    "Brokerha-Ack, Brokerha-Apart, Brokerha-Min-Lsn, Brokerha-Session, Brokerha-Timeout-Ms, Brokerha-Transaction"
)
MAY_READ: Final = (
    "Brokerha-Ack, Brokerha-Apart, Brokerha-Error, Brokerha-Lsn, Brokerha-Stale-Ms, Brokerha-Tx, ETag, Location, Retry-After"
)
MAX_AGE_S: Final = 600
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)+\Z")


class Outside:
    """A wrapper of the application of one door."""

    def __init__(self, app: Any, door: Door, prefix: str = "", origins: frozenset[str] = frozenset()) -> None:
        self.door = door
        """State shared by all its requests; closed with the server."""
        self._app = app
        self._prefix = prefix
        self._origins = origins

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] = scope["raw_path"].decode("latin-1")
        if self._prefix and path.startswith(f"{self._prefix}/"):
            # Routing removes it; addresses in answers keep it.
            scope["root_path"] = self._prefix
        if not self._origins:
            await self._app(scope, receive, send)
            return
        origin = _one(scope, b"origin")
        allowed = origin if origin.lower() in self._origins else ""
        if scope["method"] == "OPTIONS" and origin and _one(scope, b"access-control-request-method"):
            await _preflight(allowed).send(_with(send, allowed))
            return
        await self._app(scope, receive, _with(send, allowed))


def _one(scope: dict[str, Any], wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")


def _preflight(allowed: str) -> Answer:
    if not allowed:
        return answers.text("pages of this origin may not ask here: http-origins lists those that may", 403)
    headers: dict[str, str | int] = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": MAY_SEND,
        "Access-Control-Max-Age": MAX_AGE_S,
    }
    return Answer(204, headers=headers)


def _with(send: Any, allowed: str) -> Any:
    """Return a ``send`` that adds the allowed origin to each answer; caches must keep answers by origin."""
    more = [(b"vary", b"Origin")]
    if allowed:
        more += [
            (b"access-control-allow-origin", allowed.encode("latin-1")),
            (b"access-control-expose-headers", MAY_READ.encode()),
        ]

    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent


def parse_prefix(text: str, paths: Iterable[str]) -> str:
    """Check the prefix of a cluster file; empty for none. Raises ValueError with the remedy.

    >>> parse_prefix("/rdf4j-server", ["/repositories/{id}"])
    '/rdf4j-server'
    """
    if not text:
        return ""
    if _PREFIX.match(text) is None:
        raise ValueError("write it as /rdf4j-server, with a slash before it and none after")
    own = {path.split("/")[1] for path in paths}
    if text.split("/")[1] in own:
        raise ValueError("paths of the door itself begin so")
    return text
