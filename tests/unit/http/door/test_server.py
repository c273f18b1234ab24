"""The real server on a real socket: ports, starting, stopping, connections that stay open."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from brokerha.http import HttpLimits, HttpServer, create_app
from brokerha.http.door.accepting import connections_limit
from brokerha.http.replaced import Certificate
from brokerha.model.errors import ConfigurationError
from tests.support.tls_door import make_certificate
from tests.unit.http.fake_front import FakeFront


@pytest.fixture
def server() -> Iterator[HttpServer]:
    running = HttpServer(create_app(FakeFront(threaded=True), HttpLimits(body_limit_bytes=100_000)), "127.0.0.1", 0)
    running.start()
    yield running
    running.stop(1.0)


def test_it_serves_on_the_port_that_it_names(server: HttpServer) -> None:
    assert httpx2.get(f"{server.url}/protocol").text == "12\n"
    assert server.url == f"http://127.0.0.1:{server.port}"


def test_a_port_that_is_taken_is_an_error_at_once_that_says_what_to_do(server: HttpServer) -> None:
    other = HttpServer(create_app(FakeFront()), "127.0.0.1", server.port)

    with pytest.raises(ConfigurationError, match="another process listens there: stop it"):
        other.start()

    other.stop()


def test_an_address_of_another_machine_is_an_error_too() -> None:
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1:0"):
        HttpServer(create_app(FakeFront()), "192.0.2.1", 0).start()


def test_it_stops_in_time_although_a_connection_is_open_and_gives_its_port_back() -> None:
    server = HttpServer(create_app(FakeFront()), "127.0.0.1", 0)
    server.start()
    with httpx2.Client() as client:
        client.get(f"{server.url}/protocol")
        assert server.stop(2.0)
    assert server.stop(2.0)

    again = HttpServer(create_app(FakeFront()), "127.0.0.1", server.port)
    again.start()
    assert again.stop(2.0)


def test_stopping_does_not_wait_for_a_request_that_a_node_never_answers() -> None:
    front = FakeFront()
    front.is_dead = True
    server = HttpServer(create_app(front), "127.0.0.1", 0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"PUT /kv/t/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nv")
        while not front.submitted:
            threading.Event().wait(0.005)
        assert server.stop(0.2)


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"PUT /kv/t/k HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n")
        connection.settimeout(5)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"divide the value over several keys\n")


def test_keys_of_any_bytes_travel_over_a_real_socket(server: HttpServer) -> None:
    target = f"{server.url}/kv/t/a%2Fb%FF%00%25"

    assert httpx2.put(target, content=b"v").status_code == 204
    assert httpx2.get(target).content == b"v"
    assert httpx2.head(target).headers["content-length"] == "1"


def test_answers_are_not_held_back_by_the_network(server: HttpServer) -> None:
    """Head and body of an answer are two writes; with Nagle's algorithm the second waits for an acknowledgement."""
    listening = server._server._listening if server._server else None

    assert listening is not None
    assert listening.proto == socket.IPPROTO_TCP


def silent(server: HttpServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.settimeout(20)
    return connection


def is_answered(connection: socket.socket, tls: ssl.SSLContext | None) -> bool:
    """Whether the door answers there; it closes a connection above its limit."""
    try:
        if tls is not None:
            connection = tls.wrap_socket(connection, server_hostname="localhost")
        connection.sendall(b"GET /protocol HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.parametrize("is_tls", [False, True])
def test_connections_above_the_limit_are_closed_also_before_a_tls_handshake_and_those_that_are_there_stay(
    is_tls: bool, tmp_path: Path
) -> None:
    certificate = key = None
    if is_tls:
        certificate, key = make_certificate(tmp_path, "localhost")
    tls = ssl.create_default_context(cafile=certificate) if certificate else None
    given = Certificate(certificate, key) if certificate and key else None
    server = HttpServer(create_app(FakeFront(threaded=True)), "127.0.0.1", 0, given, connections_limit=3)
    server.start()
    try:
        # Given as many silent connections as the door takes
        there = [silent(server) for _ in range(3)]
        # Then it closes each further one at once
        for _ in range(5):
            with silent(server) as further:
                assert further.recv(1) == b""
        # And those that are there can go on, and so can new ones in their place, also in that of one that sent nonsense
        with there.pop() as connection:
            connection.sendall(b"nonsense\r\n\r\n")
        assert all(is_answered(connection, tls) for connection in there)
        while not is_answered(silent(server), tls):
            threading.Event().wait(0.005)
    finally:
        server.stop(1.0)


def test_the_limit_of_connections_leaves_descriptors_to_the_node() -> None:
    assert [connections_limit(soft) for soft in (256, 1024, 65_536, -1)] == [128, 512, 8192, 8192]
