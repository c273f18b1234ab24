"""Asks an application directly, without a socket: one request in, one answer out, and how much of the body was read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from brokerha.client.http_requests import command_of
from brokerha.http import HttpLimits, create_app
from brokerha.http.guard import Guard
from tests.unit.http.fake_front import FakeFront

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
UPDATE = {"Content-Type": "application/sparql-update"}
QUERY = {"Content-Type": "application/sparql-query"}
TURTLE = {"Content-Type": "text/turtle"}
NQUADS = {"Content-Type": "application/n-quads"}
JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/x-msgpack"}


def request_of(name: str, arguments: dict[str, Any]) -> tuple[str, str, bytes]:
    """Method, path and body of a command, as the client sends it."""
    request = command_of(name, arguments)
    return request.method, request.path, request.body


@dataclass
class Asked:
    """An answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    pieces_read: int = 0
    """How many pieces of the request's body the application took."""

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Node:
    """A front and the application before it."""

    def __init__(
        self,
        front: FakeFront | None = None,
        limits: HttpLimits | None = None,
        guard: Guard | None = None,
        origins: frozenset[str] = frozenset(),
        prefix: str = "",
        hosts: frozenset[str] | None = None,
    ) -> None:
        self.front = front or FakeFront()
        self.app = create_app(self.front, limits, guard, origins, prefix, hosts=hosts)

    def ask(self, method: str, target: str, body: bytes | str = b"", headers: dict[str, str] | None = None, **more: str) -> Asked:
        """One request; ``more`` are headers with _ for -."""
        data = body.encode() if isinstance(body, str) else body
        return asyncio.run(self.asked(method, target, [data], {**(headers or {}), **_named(more)}))

    def get(self, target: str, **more: str) -> Asked:
        return self.ask("GET", target, b"", None, **more)

    async def asked(
        self,
        method: str,
        target: str,
        pieces: Iterable[bytes],
        headers: dict[str, str],
        announce: bool = True,
        never_ends: bool = False,
        leaves: bool = False,
    ) -> Asked:
        """One request whose body comes in pieces, of a caller who then waits for the answer, or leaves."""
        data = list(pieces)
        path, _, query = target.partition("?")
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in {"Host": "node", **headers}.items()]
        if announce and any(data) and "Content-Length" not in headers:
            raw.append((b"content-length", str(sum(map(len, data))).encode()))
        scope = {
            "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode("latin-1"), "root_path": "",
            "query_string": query.encode("latin-1"), "headers": raw, "state": {},
        }  # fmt: skip
        answer = Asked()

        async def receive() -> dict[str, Any]:
            number = answer.pieces_read
            answer.pieces_read += 1
            if number >= len(data):
                if not (never_ends or leaves):
                    await asyncio.Event().wait()
                return {"type": "http.disconnect"}
            more = never_ends or number + 1 < len(data)
            return {"type": "http.request", "body": data[number], "more_body": more}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            else:
                answer.body += message["body"]

        await self.app(scope, receive, send)
        return answer


def _named(more: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in more.items()}
