"""Frames of the socket between a master's door and a worker: msgpack arrays, one after the other.

    worker -> door   (HELLO, VERSION, cluster, node)                              once, first
    door -> worker   (number, kind, name, arguments, min_lsn, timeout_ms)         a read; numbers are the door's own
                     (0,)                                                         are you there?
    worker -> door   (number, error, content type, LSN, body)                     the answer; of an error the body is its text
                     (0,)                                                         yes

Both sides run on one machine, as one user and, but for the moment of an update, in one version; another version is refused by the hello.
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
"""Systems take no longer path for a socket: 108 bytes on Linux, 104 elsewhere."""

pack: Final = msgpack.packb
PONG: Final[bytes] = pack((PING,))


def unpacker() -> Any:
    """What bytes are fed to and frames are taken from; raises ValueError and its kinds for what is no msgpack."""
    # As large as the largest result, which the worker limits.
    return msgpack.Unpacker(use_list=False, strict_map_key=True, max_ext_len=0, max_buffer_size=2**31 - 1)


@contextmanager
def address_of(folder: Path) -> Iterator[str]:
    """The address of the socket in a folder, while this is entered. Raises OSError where the path is too long for this system."""
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
