"""Connections kept for the next request: which are used again, which are not, and what ends a wait."""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import brokerha
from brokerha.client import http_connections
from brokerha.client.http_connections import FAULTS, Connections, Exchange, NotConnected, identity_headers, trusted
from brokerha.model.errors import BrokerhaError, ConfigurationError, InvalidRequest, Unreachable
from tests.support.tls_door import TlsDoor, make_certificate

WAIT_S = 10.0
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nBrokerha-Lsn: 7\r\n\r\nbody"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"


class Node:
    """Answers each request with the next of its answers, the last one again and again; None holds the answer back."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while request := _request(connection):
                self.requests.append(request)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is not None:
                    connection.sendall(answer)
        except OSError:
            return  # closed by a test that had what it came for, at any moment

    def hang_up(self) -> None:
        for connection in self.connections:
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()
        for connection in self.connections:
            connection.close()


def _request(connection: socket.socket) -> bytes:
    """The next request with all of its body, in however many pieces it comes; empty at the end."""
    request = b""
    while piece := connection.recv(65536):
        request += piece
        head, end, body = request.partition(b"\r\n\r\n")
        told = re.search(rb"content-length: (\d+)", head.lower())
        if end and len(body) >= (int(told[1]) if told else 0):
            break
    return request


@pytest.fixture
def connections() -> Iterator[Connections]:
    found = Connections({"Authorization": "Bearer t"})
    yield found
    found.close()


def send(connections: Connections, url: str, content: bytes = b"", wait_s: float = WAIT_S) -> Exchange:
    return connections.send("POST" if content else "GET", url, "/kv/t/k", {"X": "1"}, content, 1.0, wait_s)


def whole(connections: Connections, url: str) -> bytes:
    return send(connections, url).content(time.monotonic() + WAIT_S)


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED, b"HTTP/1.1 204 No Content\r\n\r\n"])
def test_a_connection_is_used_again_after_an_answer_that_was_read_to_its_end(connections: Connections, answer: bytes) -> None:
    node = Node(answer)
    for _ in range(3):
        assert whole(connections, node.url) == (b"" if b"204" in answer else b"body")
    assert (len(node.connections), len(node.requests)) == (1, 3)
    node.close()


def test_head_and_body_go_out_with_what_every_request_has(connections: Connections) -> None:
    node = Node(WHOLE)
    exchange = send(connections, f"{node.url}/prefix", b"content")
    assert (exchange.status, exchange.headers["brokerha-lsn"]) == (200, "7")
    exchange.close()
    head, _, body = node.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /prefix/kv/t/k HTTP/1.1\r\nHost: 127.0.0.1:")
    assert {b"Authorization: Bearer t", b"X: 1", b"Content-Length: 7"} <= set(head.split(b"\r\n"))
    assert body == b"content"
    node.close()


def test_a_name_and_a_password_in_the_url_are_sent_as_such(connections: Connections) -> None:
    node = Node(WHOLE)
    whole(connections, node.url.replace("//", "//user:pass%20word@"))
    assert b"Authorization: Basic " + base64.b64encode(b"user:pass word") in node.requests[0]
    node.close()


def test_a_connection_that_the_node_wants_to_end_is_not_used_again(connections: Connections) -> None:
    node = Node(WHOLE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))
    assert [whole(connections, node.url) for _ in range(2)] == [b"body"] * 2
    assert len(node.connections) == 2
    node.close()


def test_a_connection_that_the_node_has_closed_meanwhile_is_not_used(connections: Connections) -> None:
    node = Node(WHOLE)
    whole(connections, node.url)
    node.connections[0].shutdown(socket.SHUT_RDWR)
    assert whole(connections, node.url) == b"body"
    assert len(node.connections) == 2
    node.close()


def test_a_connection_that_was_kept_for_long_is_not_used(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "KEEP_ALIVE_S", 0.0)
    node = Node(WHOLE)
    assert [whole(connections, node.url) for _ in range(2)] == [b"body"] * 2
    assert len(node.connections) == 2
    node.close()


def test_an_answer_that_was_not_read_closes_its_connection(connections: Connections) -> None:
    node = Node(WHOLE)
    exchange = send(connections, node.url)
    exchange.close()
    exchange.close()
    whole(connections, node.url)
    assert len(node.connections) == 2
    node.close()


@pytest.mark.parametrize("answer", [WHOLE[:-2], CHUNKED[:-9], b"HTTP/1.1 200 OK\r\nConte", b"no HTTP\r\n\r\n"])
def test_an_answer_that_is_cut_off_is_a_fault(connections: Connections, answer: bytes) -> None:
    node = Node(answer)
    waiting = threading.Timer(0.1, node.hang_up)
    waiting.start()
    with pytest.raises(FAULTS):
        whole(connections, node.url)
    waiting.join()
    node.close()


def test_who_refuses_is_told_apart_from_who_does_not_answer(connections: Connections) -> None:
    node = Node(None)
    with pytest.raises(TimeoutError):
        send(connections, node.url, wait_s=0.1)
    node.close()
    with pytest.raises(NotConnected, match="refused"):
        send(connections, "http://127.0.0.1:1")


def test_a_body_that_trickles_in_ends_in_time(connections: Connections) -> None:
    node = Node(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    exchange = send(connections, node.url)
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.02):
            node.connections[0].sendall(b"x")

    dripping = threading.Thread(target=trickle)
    dripping.start()
    with pytest.raises(TimeoutError):
        exchange.content(time.monotonic() + 0.3)
    stop.set()
    dripping.join()
    node.close()


def test_no_more_connections_than_the_limit_and_who_waits_for_one_gets_it(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_room", threading.Semaphore(1))
    node = Node(WHOLE)
    held = send(connections, node.url)
    with pytest.raises(NotConnected, match="in use"):
        send(connections, node.url, wait_s=0.05)
    threading.Timer(0.1, held.close).start()
    assert whole(connections, node.url) == b"body"
    node.close()


def test_room_is_given_back_however_an_exchange_ends(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_room", threading.Semaphore(1))
    node = Node(b"no HTTP\r\n\r\n", None, WHOLE)
    for _ in range(2):
        with pytest.raises(FAULTS):
            send(connections, node.url, wait_s=0.1).content(time.monotonic() + 0.1)
    for url in ("http://127.0.0.1:1", f"http://{'a' * 70}.example"):
        with pytest.raises(NotConnected):
            send(connections, url)
    assert whole(connections, node.url) == b"body"
    node.close()


def test_closing_ends_who_waits_and_takes_no_more(connections: Connections) -> None:
    node = Node(None)
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            send(connections, node.url)
        except FAULTS as error:
            ends.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not node.requests:
        time.sleep(0.005)
    connections.close()
    waiting.join(WAIT_S)
    assert len(ends) == 1
    with pytest.raises(NotConnected):
        send(connections, node.url)
    node.close()


# ---- as who they speak: from the environment, or from files named there


def test_a_token_goes_before_a_password() -> None:
    given = {"BROKERHA_TOKEN": "t", "BROKERHA_USER": "u", "BROKERHA_PASSWORD": "p"}

    assert identity_headers(given) == {"Authorization": "Bearer t"}
    assert identity_headers({**given, "BROKERHA_TOKEN": ""}) == {"Authorization": "Basic dTpw"}
    assert identity_headers({}) == {}


def test_a_password_in_a_url_is_a_secret_too() -> None:
    with pytest.raises(ConfigurationError, match=r"http://m1\.example\.org:7201 is not https") as told:
        brokerha.connect("http://ops:secret@m1.example.org:7201")
    assert "secret" not in str(told.value)
    with pytest.raises(Unreachable) as away, brokerha.connect("http://ops:secret@127.0.0.1:1", timeout=0.2) as db:
        db.status()
    assert "127.0.0.1" in str(away.value)
    assert "secret" not in str(away.value)


def test_each_connection_can_be_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(WHOLE)
    monkeypatch.setenv("BROKERHA_TOKEN", "of the environment")
    for address, token, sent in [
        (node.url, "mine", b"Bearer mine"),
        (node.url.replace("//", "//u:p@"), "", b"Basic dTpw"),
        (node.url, "", b"Bearer of the environment"),
    ]:
        with brokerha.connect(address, token=token, timeout=0.2) as db, contextlib.suppress(BrokerhaError):
            db.status()
        assert b"Authorization: " + sent in node.requests[-1]
    node.close()


@pytest.mark.parametrize("address", ["amqp://u:p@127.0.0.1/orders", "http://u:p@127.0.0.1:7201"])
def test_a_token_beside_a_user_in_the_url_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match="a token is for HTTP without a user in the URL"):
        brokerha.connect(address, token="mine")


def test_secrets_may_stand_in_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p\n")

    assert identity_headers({"BROKERHA_TOKEN_FILE": str(secret)}) == {"Authorization": "Bearer p"}
    assert identity_headers({"BROKERHA_USER": "u", "BROKERHA_PASSWORD_FILE": str(secret)}) == {"Authorization": "Basic dTpw"}


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="BROKERHA_TOKEN_FILE"):
        identity_headers({"BROKERHA_TOKEN_FILE": str(tmp_path / "none")})


def test_a_file_that_holds_more_than_a_token_is_refused_without_showing_it(tmp_path: Path) -> None:
    wrong = tmp_path / "users.toml"
    for text in ("secret\nsecret", "sécret"):
        wrong.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationError, match="brokerha user add") as told:
            identity_headers({"BROKERHA_TOKEN_FILE": str(wrong)})
        assert "cret" not in str(told.value)


def test_a_certificate_that_is_not_trusted_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_self: http.client.HTTPSConnection) -> None:
        error = ssl.SSLCertVerificationError()
        error.verify_message = "unable to get local issuer certificate"
        raise error

    monkeypatch.setattr(http.client.HTTPSConnection, "connect", connect)
    with pytest.raises(NotConnected, match=r"\(unable to get local issuer certificate\): .*BROKERHA_CA_FILE"):
        send(Connections({}, trusted({})), "https://localhost:1")


def test_http_at_a_door_with_tls_is_told_as_such_and_nothing_was_sent(connections: Connections, tmp_path: Path) -> None:
    # Nothing listens behind it, and nothing is to come through.
    with TlsDoor(make_certificate(tmp_path, "localhost"), "127.0.0.1", 1) as door:
        with pytest.raises(NotConnected, match="it takes TLS only: write https://") as told:
            send(connections, f"http://127.0.0.1:{door.port}", b"body")
        assert told.value.remedy is None


def test_https_at_a_door_without_tls_is_told_as_such() -> None:
    def refuse() -> None:
        with listening.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=refuse, daemon=True).start()
        with pytest.raises(NotConnected, match="it answers without TLS: write http://") as told:
            send(Connections({}, trusted({})), f"https://127.0.0.1:{listening.getsockname()[1]}")
    assert told.value.remedy is None
