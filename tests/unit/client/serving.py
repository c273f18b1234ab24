"""Real servers for client tests: a model behind the real door, with faults of the network put before it on demand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from brokerha.http import HttpLimits, HttpServer, create_app
from tests.unit.http.fake_front import FakeFront

CUT = "the request arrives and its answer is cut"
CUT_BEFORE = "the connection ends before the request arrives"
GATEWAY = "a gateway answers 502"
STRANGER = "something that is no node answers 200"
HANG = "the request arrives and is never answered"
ASKED_BESIDE = ("/readyz", "/writable")
"""What a client with several addresses asks in threads of its own, at no certain moment."""


class Unreliable:
    """Passes requests on; each fault of the list befalls one batch or read, in turn."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.faults: list[str] = []
        self.batches = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_batch = scope["path"] == "/tx/batch"
        self.batches += is_batch
        is_due = scope["type"] == "http" and scope["path"] not in ASKED_BESIDE
        fault = self.faults.pop(0) if self.faults and is_due else ""
        if fault == CUT_BEFORE:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            raise ConnectionError(fault)
        if fault == HANG:
            await asyncio.Event().wait()
        elif fault == GATEWAY:
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        elif fault == STRANGER:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
        elif fault == CUT:
            await self.app(scope, receive, _Cut(send))
        else:
            await self.app(scope, receive, send)


class _Cut:
    def __init__(self, send: Any) -> None:
        self._send = send

    async def __call__(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionError(CUT)
        await self._send(message)


class Served:
    """One server with what is behind it."""

    def __init__(self, front: FakeFront, limits: HttpLimits | None = None) -> None:
        self.front = front
        self.network = Unreliable(create_app(front, limits))
        self.server = HttpServer(self.network, "127.0.0.1", 0)
        self.server.start()

    @property
    def url(self) -> str:
        return self.server.url

    def stop(self) -> None:
        self.server.stop(0.2)


@contextmanager
def serving(*fronts: FakeFront) -> Iterator[list[Served]]:
    """Servers, one for each front, stopped at the end."""
    servers = [Served(front) for front in fronts]
    try:
        yield servers
    finally:
        for server in servers:
            server.stop()


def wait_until(holds: Any, seconds: float = 5.0) -> None:
    """Wait for something that another thread does."""
    deadline = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if holds():
            return
        deadline.wait(0.005)
    raise AssertionError("it did not happen in time")
