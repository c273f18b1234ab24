"""Ends the wait of a thread that waits for sockets: a pipe that is written to from any other thread."""

from __future__ import annotations

import contextlib
import os
import select
from typing import Any


class Waker:
    """One waiting thread, any number of wakers; close it when the thread has ended."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._is_closed = False

    def wake(self) -> None:
        """End the wait that goes on, or the next one. Harmless after `close`."""
        # A full pipe is as good as one more byte in it.
        with contextlib.suppress(BlockingIOError):
            if not self._is_closed:
                os.write(self._write, b"\0")

    def wait(self, timeout_s: float, watched: Any = None, *, for_room: bool = False) -> None:
        """Sleep until woken, until ``watched`` (a socket) can be read, or written ``for_room``, or time is over."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if watched is not None:
            poll.register(watched, select.POLLIN | select.POLLOUT if for_room else select.POLLIN)
        for descriptor, _event in poll.poll(max(0.0, timeout_s) * 1000):
            if descriptor == self._read:
                # One read takes all that was written: whoever woke us did so before what it wants is looked at.
                os.read(self._read, 4096)

    def close(self) -> None:
        """Release the pipe; only when nobody waits any more."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._read)
            os.close(self._write)
