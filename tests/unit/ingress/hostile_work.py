"""What a hostile body makes a parser do, for tests of parser processes."""

from __future__ import annotations

import os
import time


def end_by(number: int) -> None:
    """The process is ended by a signal."""
    os.kill(os.getpid(), number)


def spin() -> None:
    """It computes for ever."""
    while True:
        pass


def spin_for(cpu_s: float) -> int:
    """It computes for some time."""
    until = time.process_time() + cpu_s
    while time.process_time() < until:
        pass
    return os.getpid()


def fill(size: int) -> int:
    """It takes memory."""
    return len(b"x" * size)


def pid() -> int:
    """Which process does it."""
    return os.getpid()


def environment(name: str) -> str | None:
    """What it knows of the node's environment."""
    return os.environ.get(name)
