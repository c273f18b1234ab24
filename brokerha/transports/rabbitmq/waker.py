"""Ends the wait of a thread that waits for sockets: a pipe that is written to from any other thread.

Nothing is written while the thread is awake, and nothing twice: the flags say that somebody has come since it last looked around. Who wakes
first sets `_is_called` and then looks whether the thread waits; the thread first says that it waits and then looks whether it was called; so one
of the two sees the other.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence
from typing import Any


class Waker:
    """One waiting thread, any number of wakers; close it when the thread has ended."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._is_closed = False
        self._is_called = False
        self._is_waiting = False
        self._poll = select.poll()
        self._polled: list[tuple[int, bool]] | None = None
        """Descriptors of sockets that `_poll` is about, and whether also for room."""

    def wake(self) -> None:
        """End the wait that goes on, or the next one. Harmless after `close`."""
        if self._is_called:
            return
        self._is_called = True
        # A full pipe is as good as one more byte in it.
        with contextlib.suppress(BlockingIOError):
            if self._is_waiting and not self._is_closed:
                os.write(self._write, b"\0")

    def wait(self, timeout_s: float, watched: Any = None, *, for_room: bool = False) -> None:
        """Sleep until woken, until ``watched`` (a socket) can be read, or written ``for_room``, or time is over."""
        self.wait_for(timeout_s, [(watched.fileno(), for_room)] if watched is not None else [])

    def wait_for(self, timeout_s: float, watched: Sequence[tuple[int, bool]]) -> list[int]:
        """As `wait`, for several sockets by their descriptors; which of them are ready."""
        if watched != self._polled:
            self._polled = list(watched)
            self._poll = select.poll()
            self._poll.register(self._read, select.POLLIN)
            for descriptor, for_room in watched:
                self._poll.register(descriptor, select.POLLIN | select.POLLOUT if for_room else select.POLLIN)
        self._is_waiting = True
        ready = [found for found, _ in self._poll.poll(0 if self._is_called else max(0.0, timeout_s) * 1000)]
        if self._read in ready:
            os.read(self._read, 4096)
        # In this order, and before what is wanted is looked at: a call that comes now is for the next wait.
        self._is_waiting = self._is_called = False
        return ready

    def close(self) -> None:
        """Release the pipe; only when nobody waits any more."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._read)
            os.close(self._write)
