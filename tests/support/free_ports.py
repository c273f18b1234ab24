"""Free ports on loopback for servers that tests start.

They lie below the kernel's range for outgoing connections (32768 and up). A port of that range could be given to some
client as its own end while a restarted server is away; worse, a client that retries against the dead server may get
the server's port as its own end, and is then connected to itself.

    first = free_ports(3)     # first, first + 1, first + 2 are free at this moment

Nothing is reserved: whoever starts a server tries again with other ports if somebody was faster.
"""

from __future__ import annotations

import secrets
import socket

_FIRST_PORT, _LAST_PORT = 15_000, 32_000
_TRIES = 200


def free_ports(count: int = 1) -> int:
    """The first of ``count`` ports in a row that nobody listens on at this moment. Raises OSError if there are none."""
    for _ in range(_TRIES):
        first = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT - count)
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
