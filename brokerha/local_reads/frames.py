"""Frames of the socket between a master's door and a worker: msgpack arrays, one after another.

    worker -> door   (HELLO, VERSION, cluster, node)                              once, first
    door -> worker   (number, kind, name, arguments, min_lsn, timeout_ms)         a read; numbers are the door's own
                     (0,)                                                         ping
    worker -> door   (number, error, content type, LSN, body)                     the answer; the body of an error is its text
                     (0,)                                                         answer to the ping

Both sides run on one machine, as one user and, except during an update, in one version; the hello refuses another version.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgpack

HELLO: Final = "brokerha reads"
VERSION: Final = 1
PING: Final = 0
SOCKET: Final = "reads.sock"
"""Name of the socket in a worker's folder."""
_ADDRESS_BYTES: Final = 100
"""Longest path of a socket that systems take: 108 bytes on Linux, 104 elsewhere."""

pack: Final = msgpack.packb
PONG: Final[bytes] = pack((PING,))


def unpacker() -> Any:
    """Return an unpacker of frames; it raises ValueError and its kinds for input that is no msgpack."""
    # As large as the largest result, which the worker limits.
    return msgpack.Unpacker(use_list=False, strict_map_key=True, max_ext_len=0, max_buffer_size=2**31 - 1)


@contextmanager
def address_of(folder: Path) -> Iterator[str]:
    """Yield the address of the socket in a folder. Raises OSError when the path is too long for this system."""
    path = folder.absolute() / SOCKET
    if len(os.fsencode(path)) <= _ADDRESS_BYTES:
        yield str(path)
        return
    if sys.platform != "linux":
        raise OSError(f"{path}: longer than this system lets the path of a socket be")
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{held}/{SOCKET}"
    finally:
        os.close(held)
