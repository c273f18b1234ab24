"""From ASGI to `Call` and back; catches the errors of all handlers.

Any exception of a handler becomes one answer. An error of model/errors.py gives its status and its sentence. Any other gives 500
and a line in the log of the node, because it is a fault of brokerha. That line identifies the request by the template of its path
and by size and digest of its body, without any user data. The number of requests under way is bounded here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import structlog

from brokerha.http.door import answer as answers
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call, headers_of, wants_json
from brokerha.http.door.door import Door
from brokerha.http.guard import OPEN, Guard, is_foreign, is_misled, place_of, readable_reason, store_of
from brokerha.model.errors import BrokerhaError, NotReady
from brokerha.model.faults import fault_fields

# ---- Work before routing: the raw path, a prefix for some clients, and pages of other sites (CORS).
#
# Pages from the origins of ``http-origins`` can use this door like its own pages. A browser learns that from the answer to its
# preflight (``OPTIONS`` with ``Access-Control-Request-Method``) and from every answer. For any other page the headers are missing, so
# that its browser withholds the answer. There are no cookies, and browsers are not asked for stored passwords.

METHODS: Final = "GET, HEAD, POST, PUT, DELETE"
MAY_SEND: Final = (
    "Accept, Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-Match, If-None-Match, "
    "Brokerha-Ack, Brokerha-Apart, Brokerha-Min-Lsn, Brokerha-Session, Brokerha-Timeout-Ms, Brokerha-Transaction"
)
MAY_READ: Final = (
    "Brokerha-Ack, Brokerha-Apart, Brokerha-Error, Brokerha-Lsn, Brokerha-More, Brokerha-Stale-Ms, Brokerha-Tx, "
    "ETag, Location, Retry-After"
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
        more += [(b"access-control-allow-origin", allowed.encode("latin-1")), (b"access-control-expose-headers", MAY_READ.encode())]

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


log = structlog.get_logger()
Handler = Callable[[Call], Awaitable[Answer]]
Ways = dict[str, tuple[str, Handler] | tuple[str, Handler, str]]
"""Method -> (required role, handler, known parameters)."""


class Endpoint:
    """All methods of one path, as an ASGI application."""

    def __init__(self, door: Door, path: str, methods: Ways, guard: Guard | None = None) -> None:
        self._door = door
        self._path = path
        self._roles = {method: way[0] for method, way in methods.items()}
        self._parameters = {method: tuple(dict.fromkeys("".join(way[2:]).split())) for method, way in methods.items()}
        self._place = place_of(path)
        self._store = store_of(path)
        self._guard = guard
        handlers = self._handlers = {method: way[1] for method, way in methods.items()}
        if "GET" in handlers:
            self._handlers.setdefault("HEAD", handlers["GET"])

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        door = self._door
        door.requests += 1
        call = Call(door, scope, receive)
        try:
            answer = await self._net(call)
            door.answered[call.method if call.method in self._handlers else "other", answer.status] += 1
            root, location = scope.get("root_path", ""), answer.headers.get("Location")
            if root and isinstance(location, str) and location.startswith("/"):
                answer.headers = {**answer.headers, "Location": f"{root}{location}"}
            await answer.send(send, door.limits.answer_stall_s)
        except (BrokerhaError, TimeoutError) as error:
            # The head was sent: the server closes a connection with an unfinished answer, so that no client takes it as complete.
            log.warning("an answer was cut off", **self._digest(call), reason=str(error) or "nobody takes it")
        finally:
            door.requests -= 1
            call.release_body()

    async def _net(self, call: Call) -> Answer:
        try:
            return await self._answer(call)
        except BrokerhaError as error:
            answer = answers.of_error(error, wants_json=call.wants_json(), sentence=readable_reason(call, str(error)))
            answer.headers = {**call.error_headers, **answer.headers}
            answer.status = call.error_status or answer.status
            return answer
        except Exception as error:  # noqa: BLE001  (the client gets an answer, and the log has the details)
            log.error("a request failed by a fault of brokerha", **self._digest(call), **fault_fields(error))
            sentence = "a fault in brokerha: the log of this node has the details"
            return answers.told(sentence, 500, wants_json=call.wants_json())

    def _digest(self, call: Call) -> dict[str, str | int]:
        """Return facts that identify this request, without its content."""
        method = call.method if call.method in self._handlers else "other"
        facts: dict[str, str | int] = {"method": method, "path": self._path}
        if call.whole_body is not None:
            facts["body_bytes"] = len(call.whole_body)
            facts["body_blake2b"] = hashlib.blake2b(call.whole_body, digest_size=8).hexdigest()
        return facts

    async def _answer(self, call: Call) -> Answer:
        handler = self._handlers.get(call.method)
        if handler is None:
            allowed = ", ".join(sorted(self._handlers))
            sentence = f"{call.method} is not possible here: use {allowed}"
            answer = answers.told(sentence, 405, wants_json=call.wants_json())
            answer.headers = {"Allow": allowed}
            return answer
        if is_foreign(call):
            return answers.told(
                f"a page of another site may not change anything here: it is from {call.header(b'origin')}, and this door is {call.header(b'host')}; "
                "for a proxy in between write http-origins",
                403,
                wants_json=call.wants_json(),
            )
        method = "GET" if call.method == "HEAD" else call.method
        if self._roles[method] != OPEN and is_misled(call):
            return answers.told(
                f"this door has no users, so it answers only to its own names, and {call.header(b'host')[:200]} is none: write http-users, "
                "or that name into http-origins",
                403,
                wants_json=call.wants_json(),
            )
        door = self._door
        if door.requests > door.limits.requests_limit:
            raise NotReady(f"{door.requests - 1} requests are under way at {door.front.node_id} already: try again")
        if self._guard is not None:
            if self._store is not None:
                kind, parameter = self._store
                call.store = kind, call.path_text(parameter)
            refusal = await self._guard.refusal(call, self._roles[method], self._place)
            if refusal is not None:
                return refusal
        call.known_parameters = self._parameters[method]
        # Checked even if the handler reads none: a misspelt parameter must not be ignored.
        call.parameters()
        return await handler(call)


async def not_found(scope: Any, _receive: Any, send: Any) -> None:
    """Answer for a path without a handler."""
    sentence = "there is nothing at this path: / shows the status, /repositories/{id} is RDF, /kv/{table}/{key} keys"
    await answers.told(sentence, 404, wants_json=wants_json(headers_of(scope, b"accept"))).send(send)
