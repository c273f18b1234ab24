"""Ctrl-C while Spark starts or works: one clean end, without Spark's own words and without a Java process that stays behind.

| Spark by itself | here |
|---|---|
| takes over SIGINT for good, and asks the JVM something in the middle of another question | the handler that there was stays |
| forgets the JVM that it has started when it is interrupted before the JVM has said its port | it is ended |
| tells in full, through the root logger, that a question was cut off | not told |

Must never end a process that was there before the block.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

_MODULES_OF_PY4J = frozenset({"java_gateway", "clientserver"})


@contextlib.contextmanager
def start_is_clean() -> Iterator[None]:
    """Around the start of Spark. Processes that this one has started in the block end when the block fails."""
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    before = children()
    try:
        yield
    except BaseException:
        for child in children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        # None: a handler that is not of Python, which Python cannot put back.
        if is_main and handler is not None:
            signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def cut_off_questions_untold() -> Iterator[None]:
    """For as long as the block runs, what py4j says through the root logger itself is dropped; it also comes as an error."""
    logging.root.addFilter(_is_of_others)
    try:
        yield
    finally:
        logging.root.removeFilter(_is_of_others)


def children() -> set[int]:
    """Ids of the processes that this one has started and that have not been waited for."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            found.update(map(int, task.read_text(encoding="ascii").split()))
    return found


def _is_of_others(record: logging.LogRecord) -> bool:
    return record.module not in _MODULES_OF_PY4J
