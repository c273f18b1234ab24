"""The program of a parser process: it calls functions that parse foreign input, and can die of it.

    stdin    length, msgpack [module:function, arguments, named arguments, seconds of processor time, bytes of memory]
    stdout   length, msgpack [error class, text, result]      the class is empty when there is none

It ends with its stdin, and so with the node, however that ends. The kernel enforces its limits: SIGXCPU ends it when a body takes
too much processor time, an allocation beyond the memory fails, the stack is that of any thread. A request names a function of
brokerha, which is looked up once.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack

from brokerha.ingress.parsers import LENGTH, PRELOADED
from brokerha.model.errors import BrokerhaError, TooLarge

_STATM: Final = Path("/proc/self/statm")
NICE: Final = 10
"""A large body waits a little longer, so that the node's own loop never does."""
_KEPT_BYTES: Final = 256 * 1024 * 1024
"""A larger process ends after its answer: a fresh one is smaller."""


def main() -> None:
    """Serve until stdin ends."""
    # Ctrl-C is for the node, which ends this process by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        os.nice(NICE)
    for name in PRELOADED:
        _found(name)
    gc.freeze()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Output of a library must not get between the answers.
    os.dup2(2, 1)
    while (request := _read(requests)) is not None:
        name, arguments, named, cpu_s, memory_bytes = msgpack.unpackb(request, strict_map_key=False)
        answer = _answer(name, arguments, named, cpu_s, memory_bytes)
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()
        if _memory_bytes()[1] > _KEPT_BYTES:
            return


def _answer(name: str, arguments: list[Any], named: dict[str, Any], cpu_s: int, memory_bytes: int) -> bytes:
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + cpu_s + 1, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (_memory_bytes()[0] + memory_bytes, resource.RLIM_INFINITY))
    try:
        result = _found(name)(*arguments, **named)
        packed: bytes = msgpack.packb(["", "", result])
    except BrokerhaError as error:
        packed = msgpack.packb([type(error).__name__, str(error), None])
    except MemoryError:
        text = f"MALFORMED DATA: the body needs more than {memory_bytes >> 20} MiB when it is parsed: split it"
        packed = msgpack.packb([TooLarge.__name__, text, None])
    except Exception as error:  # noqa: BLE001  A fault of brokerha, which the node reports as one.
        packed = msgpack.packb(["Exception", f"{type(error).__name__}: {error}"[:300], None])
    return packed


@functools.cache
def _found(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    [length] = LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def _memory_bytes() -> tuple[int, int]:
    """Return the bytes of the address space, and those in memory."""
    pages = _STATM.read_text(encoding="ascii").split()
    return int(pages[0]) * resource.getpagesize(), int(pages[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
