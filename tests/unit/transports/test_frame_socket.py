"""The socket under py-amqp: frames in any pieces, writes that the peer does not take, bytes that are no AMQP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import pack

import pytest
from amqp.exceptions import UnexpectedFrame

from brokerha.transports.rabbitmq.connecting import TcpFrameSocket


@pytest.fixture
def ends() -> Iterator[tuple[TcpFrameSocket, socket.socket]]:
    """A frame socket and the other end of it."""
    near, far = socket.socketpair()
    frames = TcpFrameSocket("127.0.0.1:1")
    frames.sock = near
    frames._setup_transport()
    yield frames, far
    near.close()
    far.close()


def frame(payload: bytes, channel: int = 1, kind: int = 1) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def read_all(frames: TcpFrameSocket) -> list[tuple[int, int, bytes]]:
    found = []
    while frames.fill():
        while (each := frames.next_frame()) is not None:
            found.append(each)
    return found


def test_several_frames_in_one_read_come_one_by_one(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, far = ends
    far.sendall(frame(b"one") + frame(b"") + frame(b"three", channel=7, kind=3))
    assert read_all(frames) == [(1, 1, b"one"), (1, 1, b""), (3, 7, b"three")]


def test_a_frame_in_pieces_comes_when_its_last_byte_is_there(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, far = ends
    found = []
    for n in range(len(whole := frame(b"payload"))):
        far.sendall(whole[n : n + 1])
        found.append(read_all(frames))
    assert found[:-1] == [[]] * (len(whole) - 1)
    assert found[-1] == [(1, 1, b"payload")]


def test_many_frames_of_many_sizes_cross_the_end_of_the_buffer_whole(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, far = ends
    payloads = [bytes([n % 256]) * (n * 977 % 131_000) for n in range(60)]
    found = []
    for payload in payloads:
        rest = memoryview(frame(payload))
        while rest:
            rest = rest[far.send(rest[:50_000]) :]
            found += read_all(frames)
    assert [each[2] for each in found] == payloads


def test_nothing_to_read_is_no_error_and_the_end_is_one(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, far = ends
    assert not frames.fill()
    far.close()
    with pytest.raises(ConnectionResetError):
        frames.fill()


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request", b"\x01\x00\x01\x00\x00\x00\x03abc\x00"])
def test_bytes_that_are_no_amqp_are_refused(ends: tuple[TcpFrameSocket, socket.socket], garbage: bytes):
    frames, far = ends
    far.sendall(garbage)
    frames.fill()
    with pytest.raises(UnexpectedFrame):
        frames.next_frame()


def test_writes_are_collected_until_they_are_flushed(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, far = ends
    frames.write(b"one ")
    frames.write(memoryview(b"two"))
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(100)
    assert frames.flush()
    assert far.recv(100) == b"one two"


def test_what_the_peer_does_not_take_stays_and_leaves_later(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, far = ends
    sent = bytes(range(256)) * 40_000
    frames.write(sent)
    assert not frames.flush()
    assert 0 < frames.unsent_bytes < len(sent)
    received = bytearray()
    while len(received) < len(sent):
        received += far.recv(1 << 20)
        frames.flush()
    assert received == sent
    assert frames.flush()


def test_a_synchronous_call_gives_up_when_no_frame_comes(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, _far = ends
    with frames.having_timeout(0), pytest.raises(TimeoutError):
        frames.read_frame()


def test_a_synchronous_call_writes_first_and_then_reads(ends: tuple[TcpFrameSocket, socket.socket]):
    frames, far = ends
    frames.write(b"question")
    far.sendall(frame(b"answer"))
    assert frames.read_frame() == (1, 1, b"answer")
    assert far.recv(100) == b"question"
