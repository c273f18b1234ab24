"""Heads of requests on a real socket: bounded in size, number and time, and with one Host."""

from __future__ import annotations

import contextlib
import socket
import tracemalloc
from collections.abc import Iterator

import pytest

from brokerha.http import HttpLimits, HttpServer, create_app
from brokerha.http.door.server import HeadLimits
from tests.unit.http.fake_front import FakeFront

GET = b"GET /protocol HTTP/1.1\r\nHost: x\r\n"
PUT = b"PUT /kv/t/k HTTP/1.1\r\nHost: x\r\n"
LIMIT = HeadLimits().size_bytes


@contextlib.contextmanager
def served(heads: HeadLimits | None = None, limits: HttpLimits | None = None) -> Iterator[HttpServer]:
    server = HttpServer(create_app(FakeFront(threaded=True), limits or HttpLimits()), "127.0.0.1", 0, heads=heads)
    server.start()
    try:
        yield server
    finally:
        server.stop(1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with served() as running:
        yield running


def connected(server: HttpServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.settimeout(20)
    return connection


def answers(server: HttpServer, *pieces: bytes) -> bytes:
    """Everything that comes until the server ends the connection, which it does after a refusal or ``Connection: close``."""
    with connected(server) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (GET + b"X: " + b"x" * (LIMIT - 200) + b"\r\n", 200),
        (GET + b"X: y\r\n" * 200, 200),
        (GET.replace(b"1.1", b"1.0"), 200),
        (b"GET /protocol HTTP/1.0\r\n", 200),
        (b"GET /protocol?" + b"&" * (LIMIT - 200) + b" HTTP/1.1\r\nHost: x\r\n", 200),
        (GET + b"X: " + b"x" * LIMIT + b"\r\n", 431),
        (GET + b"x" * LIMIT + b": y\r\n", 431),
        (GET + b"X: " + b"x" * 2000 + b"\r\n" + (b"Y: " + b"y" * 2000 + b"\r\n") * 40, 431),
        (GET + b"X: y\r\n" * 260, 431),
        (b"GET /protocol?" + b"x" * LIMIT + b" HTTP/1.1\r\nHost: x\r\n", 431),
        (GET + b"Host: y\r\n", 400),
        (b"GET /protocol HTTP/1.0\r\nHost: x\r\nHost: y\r\n", 400),
        (b"GET /protocol HTTP/1.1\r\n", 400),
        (b"GET /protocol HTTP/9.9\r\nHost: x\r\n", 400),
        (b"nonsense\r\n", 400),
        (PUT + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
        (PUT + b"Content-Length: 1\r\nContent-Length: 2\r\n", 400),
        (PUT + b"Content-Length: -1\r\n", 400),
        (PUT + b"Content-Length: 1_0\r\n", 400),
        (PUT + b"Content-Length: 99999999999999999999999\r\n", 400),
        (PUT + b"Transfer-Encoding: rubbish\r\n", 400),
        (GET + b"X: a\x00b\r\n", 400),
    ],
)
def test_each_head_has_one_status(server: HttpServer, head: bytes, status: int) -> None:
    answer = answers(server, head + b"Connection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert answer.count(b"HTTP/1.1") == 1


def test_a_refusal_says_in_one_sentence_what_is_wrong(server: HttpServer) -> None:
    large, hosts = answers(server, GET + b"X: y\r\n" * 260), answers(server, GET + b"Host: y\r\n\r\n")

    assert b"connection: close" in large
    assert large.endswith(b"more than 65536 bytes or 256 headers: send a long query in the body\n")
    assert hosts.endswith(b"a request has one Host header, and this one has 2\n")


@pytest.mark.parametrize(
    "beginning",
    [
        GET + b"X: ",
        GET + b"x",
        b"GET /protocol?",
        PUT + b"Transfer-Encoding: chunked\r\n\r\n1\r\nv\r\n0\r\nX: ",
        PUT + b"Transfer-Encoding: chunked\r\n\r\n1;x=",
        b"\r\n" * 1000,
    ],
)
def test_what_streams_in_without_an_end_is_refused_before_it_takes_memory(server: HttpServer, beginning: bytes) -> None:
    piece = b"\r\n" * 32_768 if beginning.startswith(b"\r\n") else b"x" * 65_536
    tracemalloc.start()

    sent, answer = 0, b""
    with connected(server) as connection:
        try:
            connection.sendall(beginning)
            for _ in range(3000):
                connection.sendall(piece)
                sent += len(piece)
        except ConnectionError:
            pass
        answer = rest(connection)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert most < 8_000_000
    assert not answer or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


def test_trailers_count_and_change_nothing(server: HttpServer) -> None:
    chunked = PUT + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nv\r\n0\r\n"

    assert answers(server, chunked + b"Host: y\r\nContent-Encoding: br\r\n\r\n").startswith(b"HTTP/1.1 204 ")
    assert b"204" not in answers(server, chunked + b"X: y\r\n" * 300 + b"\r\n")


def test_a_body_in_many_small_chunks_is_taken_although_its_framing_is_large(server: HttpServer) -> None:
    body = b"1;extension=%b\r\nv\r\n" % (b"x" * 500) * 1000

    answer = answers(server, PUT + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n", body, b"0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 204 ")


def test_many_requests_on_one_connection_have_a_limit_each(server: HttpServer) -> None:
    head = GET + b"X: " + b"x" * 40_000 + b"\r\n"

    answer = answers(server, (head + b"\r\n") * 5, head + b"Connection: close\r\n\r\n")

    assert answer.count(b"HTTP/1.1 200 OK") == 6


def test_a_head_that_does_not_end_is_given_up_and_a_whole_one_is_not() -> None:
    with served(HeadLimits(time_s=0.3)) as server:
        assert answers(server, GET + b"X: ").startswith(b"HTTP/1.1 408 ")
        assert answers(server, b"G").startswith(b"HTTP/1.1 408 ")
        with connected(server) as connection:
            connection.sendall(GET + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")
            connection.sendall(GET[:10])
            assert rest(connection).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_stops_coming_is_given_up_and_took_no_room_from_others() -> None:
    # One body that is announced would fill the door.
    limits = HttpLimits(body_stall_s=0.5, body_limit_bytes=1000, all_bodies_limit_bytes=1000)
    with served(limits=limits) as server, connected(server) as stalled:
        stalled.sendall(PUT + b"Content-Length: 1000\r\n\r\nv")
        assert answers(server, PUT + b"Content-Length: 900\r\nConnection: close\r\n\r\n" + b"v" * 900).startswith(b"HTTP/1.1 204 ")
        answer = stalled.recv(65536)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"nothing more of the body came for 0.5 s" in answer


def test_a_long_answer_is_not_cut_by_the_beginning_of_the_next_request() -> None:
    with served(HeadLimits(time_s=0.1)) as server, connected(server) as connection:
        connection.sendall(PUT + b"Content-Length: 2\r\n\r\nv")
        late = connected(server)
        late.sendall(b"G")
        assert rest(late).startswith(b"HTTP/1.1 408 ")  # So much time has passed
        connection.sendall(b"w" + GET + b"Connection: close\r\n\r\n")
        both = rest(connection)
        late.close()

    assert both.startswith(b"HTTP/1.1 204 ")
    assert both.count(b"HTTP/1.1 200 OK") == 1
