"""Free ports on loopback for servers that tests start.

They lie below the kernel's range for outgoing connections (32768 and up). A port of that range could be given to some
client as its own end while a restarted server is away; worse, a client that retries against the dead server may get
the server's port as its own end, and is then connected to itself.

    first = free_ports(3)     # first, first + 1, first + 2 are free at this moment

Tests run in several processes at once, and seconds pass before a server listens. So each process takes ports from blocks that are its own, by a lock on
a file that ends with it, and goes through them in turn. A server that was there before, of anybody, keeps its port.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path

_FIRST_PORT, _LAST_PORT = 15_000, 32_000
_BLOCK = 100
_BLOCKS_MOST = 4
"""Of one process, before its first one is gone through again."""
_TRIES = 200


class _OwnPorts:
    """The blocks of this process, and how far they are used."""

    def __init__(self) -> None:
        self._process = 0
        self._locks: list[int] = []
        self._blocks: list[int] = []
        self._turn = 0
        self._used = _BLOCK

    def next(self, count: int) -> int:
        """The first of the ports in a row that come next. Raises OSError when every block is somebody else's."""
        if self._process != os.getpid():
            # After a fork the locks are the parent's, and so are its ports.
            self._process, self._locks, self._blocks, self._turn = os.getpid(), [], [], 0
            self._used = _BLOCK
        if self._used + count > _BLOCK:
            if len(self._blocks) < _BLOCKS_MOST:
                self._blocks.append(self._take())
                self._turn = len(self._blocks) - 1
            else:
                self._turn = (self._turn + 1) % len(self._blocks)
            self._used = 0
        first = self._blocks[self._turn] + self._used
        self._used += count
        return first

    def _take(self) -> int:
        folder = Path(tempfile.gettempdir()) / f"brokerha-test-ports-{os.getuid()}"
        folder.mkdir(exist_ok=True)
        firsts = list(range(_FIRST_PORT, _LAST_PORT - _BLOCK + 1, _BLOCK))
        start = secrets.randbelow(len(firsts))
        for first in firsts[start:] + firsts[:start]:
            lock = os.open(folder / str(first), os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                continue
            self._locks.append(lock)
            return first
        raise OSError(f"all ports between {_FIRST_PORT} and {_LAST_PORT} belong to other test runs")


_OWN = _OwnPorts()


def free_ports(count: int = 1) -> int:
    """The first of ``count`` ports in a row that nobody listens on at this moment. Raises OSError if there are none."""
    for _ in range(_TRIES):
        first = _OWN.next(count)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise OSError(f"no {count} free ports in a row between {_FIRST_PORT} and {_LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
