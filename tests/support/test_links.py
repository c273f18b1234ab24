"""A link passes bytes on as TCP does; cut, held, delayed or healed, it does what its words say."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.links import BACKWARD, BLACK_HOLE, FORWARD, RESET, Link, Links
from tests.support.waiting import until

SILENCE_S = 0.1
DEADLINE_S = 20.0


class Echo:
    """A server that says what it hears, and keeps it."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        # Wakes the thread that waits for somebody.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def await_heard(self, count: int) -> None:
        until(lambda: len(self.heard) >= count, lambda: f"{count} bytes, and not {len(self.heard)}", pause_s=0.002)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                self.heard += data
                connection.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def link(echo: Echo) -> Iterator[Link]:
    with Links() as links:
        yield links.add("a>b", "127.0.0.1", echo.port)


@pytest.fixture
def client(link: Link) -> Iterator[socket.socket]:
    with connect(link) as connection:
        assert ask(connection, b"hello") == b"hello"
        yield connection


def connect(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=DEADLINE_S)


def ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return read(connection, len(data))


def read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = connection.recv(count - len(found))
        assert data, f"ended after {len(found)} bytes of {count}"
        found += data
    return found


def is_silent(connection: socket.socket) -> bool:
    """Whether nothing comes for a moment, neither bytes nor an end."""
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(DEADLINE_S)
    return False


def test_it_passes_all_bytes_in_both_directions(link: Link, client: socket.socket) -> None:
    data = bytes(range(256)) * 20_000
    sender = threading.Thread(target=client.sendall, args=(data,))

    sender.start()

    assert read(client, len(data)) == data
    sender.join()
    assert link.carried() == {FORWARD: len(data) + 5, BACKWARD: len(data) + 5}
    assert link.connections == 1


def test_the_end_of_a_stream_is_passed_on_behind_its_bytes(client: socket.socket) -> None:
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)

    assert read(client, 10) == b"last words"
    assert client.recv(1) == b""


def test_cut_with_a_reset_ends_what_is_open_and_refuses_what_is_new(link: Link, client: socket.socket) -> None:
    link.cut(RESET)

    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(link)


@pytest.mark.parametrize("times", [1, 2])
def test_a_reset_link_takes_connections_on_its_old_port_once_it_is_healed(link: Link, client: socket.socket, times: int) -> None:
    port = link.port
    for _ in range(times):
        link.cut(RESET)
        link.cut(RESET)
        link.heal()

    assert link.port == port
    with connect(link) as fresh:
        assert ask(fresh, b"again") == b"again"


def test_in_a_black_hole_nothing_is_heard_not_even_an_end(echo: Echo, link: Link, client: socket.socket) -> None:
    link.cut(BLACK_HOLE)

    client.sendall(b"anybody?")

    assert is_silent(client)
    assert bytes(echo.heard) == b"hello"
    with connect(link) as fresh:
        fresh.sendall(b"or here?")
        assert is_silent(fresh)
    assert link.connections == 1


def test_what_outlives_a_black_hole_goes_on(link: Link, client: socket.socket) -> None:
    link.cut(BLACK_HOLE)
    client.sendall(b"slow")
    with connect(link) as fresh:
        fresh.sendall(b"slower")

        link.heal()

        assert read(client, 4) == b"slow"
        assert read(fresh, 6) == b"slower"


def test_whoever_leaves_a_black_hole_is_missed_only_when_it_is_healed(echo: Echo, link: Link, client: socket.socket) -> None:
    link.cut(BLACK_HOLE)
    client.sendall(b"bye")
    client.close()
    assert bytes(echo.heard) == b"hello"

    link.heal()

    echo.await_heard(8)
    assert bytes(echo.heard) == b"hellobye"


def test_a_black_hole_may_become_a_reset_and_the_reverse(link: Link, client: socket.socket) -> None:
    link.cut(BLACK_HOLE)
    link.cut(RESET)
    with pytest.raises(ConnectionResetError):
        client.recv(1)

    link.cut(BLACK_HOLE)

    with connect(link) as fresh:
        assert is_silent(fresh)


def test_one_way_the_target_hears_and_is_not_heard(echo: Echo, link: Link, client: socket.socket) -> None:
    link.hold(BACKWARD)

    client.sendall(b"hear me")
    echo.await_heard(12)

    assert is_silent(client)
    link.heal()
    assert read(client, 7) == b"hear me"


def test_one_way_the_other_way(echo: Echo, link: Link, client: socket.socket) -> None:
    link.hold(FORWARD)

    client.sendall(b"hear me")

    assert is_silent(client)
    assert bytes(echo.heard) == b"hello"
    link.heal()
    assert read(client, 7) == b"hear me"


def test_delayed_bytes_take_their_time_in_both_directions(link: Link, client: socket.socket) -> None:
    link.delay(50)
    began = time.monotonic()

    assert ask(client, b"far away") == b"far away"

    # A lower bound holds on a slow machine too.
    assert time.monotonic() - began >= 0.1


def test_a_delay_costs_no_bandwidth(link: Link, client: socket.socket) -> None:
    data = b"x" * 1024 * 1024
    link.delay(50)

    def send() -> None:
        for at in range(0, len(data), 4096):
            client.sendall(data[at : at + 4096])

    sender = threading.Thread(target=send)
    began = time.monotonic()

    sender.start()
    assert read(client, len(data)) == data
    sender.join()

    # One after the other, 256 pieces would take 25 seconds.
    assert time.monotonic() - began < 12


def test_held_bytes_stop_their_sender_in_the_end(link: Link, client: socket.socket) -> None:
    link.cut(BLACK_HOLE)
    client.settimeout(SILENCE_S)
    sent = 0

    with contextlib.suppress(TimeoutError):
        while sent < 100_000_000:
            sent += client.send(bytes(65536))

    assert sent < 100_000_000
    client.settimeout(DEADLINE_S)
    link.heal()
    assert read(client, sent) == bytes(sent)


def test_a_target_that_is_not_there_resets_whoever_connects(echo: Echo, link: Link) -> None:
    echo.close()

    # It may come so early that connecting itself fails.
    with pytest.raises(ConnectionResetError), connect(link) as fresh:
        fresh.recv(1)


def test_a_target_that_ends_abruptly_resets_the_client(link: Link, client: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Links() as links:
        other = links.add("a>c", "127.0.0.1", server.getsockname()[1])
        with connect(other) as fresh:
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            accepted.close()

            with pytest.raises(ConnectionResetError):
                fresh.recv(1)

    assert ask(client, b"still here") == b"still here"


def test_links_are_cut_one_by_one_and_healed_together(echo: Echo) -> None:
    with Links() as links:
        first, second = (links.add(name, "127.0.0.1", echo.port) for name in ("a>b", "b>a"))
        links.cut("a>b")

        with pytest.raises(ConnectionRefusedError):
            connect(first)
        with connect(second) as fresh:
            assert ask(fresh, b"open") == b"open"
        links.heal()
        with connect(first) as fresh:
            assert ask(fresh, b"open") == b"open"
    with pytest.raises(ConnectionRefusedError):
        connect(second)
