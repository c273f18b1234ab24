"""From ASGI to `Call` and back; catches the errors of all handlers.

Any exception of a handler becomes one answer. An error of model/errors.py gives its status and its sentence. Any other gives 500
and a line in the log of the node, because it is a fault of brokerha. That line identifies the request by the template of its path
and by size and digest of its body, without any user data. The number of requests under way is bounded here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from brokerha.http.door import answer as answers
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call, headers_of, wants_json
from brokerha.http.door.door import Door
from brokerha.http.guard.guard import Guard, is_foreign, place_of, store_of
from brokerha.http.guard.rights import readable_reason
from brokerha.model.errors import BrokerhaError, NotReady
from brokerha.model.faults import fault_fields

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
        door = self._door
        if door.requests > door.limits.requests_limit:
            raise NotReady(f"{door.requests - 1} requests are under way at {door.front.node_id} already: try again")
        method = "GET" if call.method == "HEAD" else call.method
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
