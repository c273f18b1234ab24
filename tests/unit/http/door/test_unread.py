"""Clients that do not read their answers hold neither a connection, nor memory, nor a place among the requests for longer than the limit."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from brokerha.http import HttpLimits, HttpServer, create_app
from brokerha.http.door.server import KEEP_ALIVE_S
from brokerha.http.replaced import Certificate
from tests.support.tls_door import make_certificate
from tests.unit.http.fake_front import FakeFront

LONG = 7 * 1024 * 1024
"""More than the kernel takes for a client that does not read."""
GET = b"GET /kv/t/long HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LAST = b"GET /kv/t/long HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@contextlib.contextmanager
def served(tls: Certificate | None = None, trusted: Path | None = None) -> Iterator[HttpServer]:
    app = create_app(FakeFront(threaded=True), HttpLimits(answer_stall_s=0.5))
    server = HttpServer(app, "localhost" if tls else "127.0.0.1", 0, tls)
    server.start()
    try:
        verify = True if trusted is None else ssl.create_default_context(cafile=trusted)
        assert httpx2.put(f"{server.url}/kv/t/long", content=b"v" * LONG, verify=verify).status_code == 204
        yield server
    finally:
        server.stop(1.0)


def connected(server: HttpServer) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    return connection


def is_free(server: HttpServer) -> bool:
    """Whether, within a part of the time of an idle connection, the door has no connection and no request any more."""
    assert server._server is not None
    for _ in range(int(KEEP_ALIVE_S / 3 / 0.05)):
        if not server._server.server_state.connections and not server._app.door.requests:
            return True
        threading.Event().wait(0.05)
    return False


@pytest.mark.parametrize("requests", [GET, LAST, GET + GET, GET * 5 + LAST], ids=["one", "last", "two", "many"])
def test_a_client_that_reads_nothing_is_cut_off(requests: bytes) -> None:
    with served() as server, connected(server) as connection:
        connection.sendall(requests)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        assert is_free(server)


@pytest.mark.parametrize("requests", [GET, LAST, GET + GET], ids=["one", "last", "two"])
def test_so_is_one_over_tls(requests: bytes, tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "localhost")
    context = ssl.create_default_context(cafile=made.certificate)
    with (
        served(Certificate(*made), made.certificate) as server,
        context.wrap_socket(connected(server), server_hostname="localhost") as connection,
    ):
        connection.sendall(requests)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        assert is_free(server)


def test_one_that_reads_gets_all_of_it() -> None:
    with served() as server, httpx2.Client() as client:
        for _ in range(3):
            assert client.get(f"{server.url}/kv/t/long").content == b"v" * LONG
            assert client.head(f"{server.url}/kv/t/long").headers["content-length"] == str(LONG)
