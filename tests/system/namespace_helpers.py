"""What runs inside the namespaces of tests/system/namespaces.py, or starts there; each is a process of its own.

    doors FD PORT [FD PORT …]    whoever connects to a listening socket from outside reaches 127.0.0.1:PORT in here
    delay DEVICE MS              a network device that gives each packet back so many milliseconds later
    up CLUSTER-FILE NODE=NETNS…  ``brokerha up --restart``, each node in its namespace

The first two say ``ready``, and end when their input ends; the third ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

_READ_BYTES = 64 * 1024
_PACKET_BYTES = 65536
_TUNSETIFF = 0x400454CA
_PR_SET_PDEATHSIG = 1
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


# ---- doors


async def _serve_doors(pairs: Sequence[tuple[int, int]]) -> None:
    servers = [await asyncio.start_server(partial(_pass_through, port), sock=socket.socket(fileno=fd)) for fd, port in pairs]
    _say_ready()
    await asyncio.to_thread(sys.stdin.buffer.read)
    for server in servers:
        server.close()


async def _pass_through(port: int, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
    try:
        far_in, far_out = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        near_out.transport.abort()
        return
    await asyncio.gather(_copy(near_in, far_out), _copy(far_in, near_out))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """One direction; an end, and an error, of either side ends both."""
    with contextlib.suppress(OSError):
        while data := await source.read(_READ_BYTES):
            target.write(data)
            await target.drain()
    target.close()


# ---- delay


def _delay(device: str, delay_s: float) -> None:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    _say_ready()
    waiting: deque[tuple[float, bytes]] = deque()
    poll = select.poll()
    poll.register(tun, select.POLLIN)
    poll.register(sys.stdin.fileno(), select.POLLIN)
    while True:
        wait_ms = None if not waiting else max(0.0, waiting[0][0] - time.monotonic()) * 1000 + 1
        if any(fd == sys.stdin.fileno() for fd, _ in poll.poll(wait_ms)):
            return
        with contextlib.suppress(OSError):  # Nothing more is there, or the device is not up yet.
            while True:
                waiting.append((time.monotonic() + delay_s, os.read(tun, _PACKET_BYTES)))
        while waiting and waiting[0][0] <= time.monotonic():
            with contextlib.suppress(OSError):
                os.write(tun, waiting.popleft()[1])


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


# ---- up


def _up(path: Path, namespaces: dict[str, str]) -> int:
    # Here, because the others are small processes that begin at once.
    from brokerha.cli.machine.supervising import Up
    from brokerha.cli.machine.up import node_command
    from brokerha.nodes.config.cluster import load_config

    # Else it would start nodes again and again in namespaces that somebody removed after this test was killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def command_of(node: str) -> list[str]:
        return ["ip", "netns", "exec", namespaces[node], *node_command(path, node)]

    return Up(load_config(path, os.environ), command_of, restart=True, stop_timeout_s=15.0).run()


def main(words: Sequence[str]) -> int:
    """One of the three; returns the exit code."""
    match list(words):
        case ["doors", *numbers]:
            asyncio.run(_serve_doors([(int(fd), int(port)) for fd, port in zip(numbers[::2], numbers[1::2], strict=True)]))
        case ["delay", device, delay_ms]:
            _delay(device, float(delay_ms) / 1000)
        case ["up", path, *places]:
            return _up(Path(path), dict(place.split("=", 1) for place in places))
        case _:
            return 64
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
