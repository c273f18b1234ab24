"""A thread that does one piece of work after another, and tells the duration of the present one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Work = TypeVar("Work")

ASK_AFTER_S = 1.0
"""Shorter work never counts as idle."""
IDLE_SHARE = 0.01
"""A thread that computes for less than this share of its time counts as waiting."""


class WorkThread(Generic[Work]):
    """One thread that does one piece of work after another."""

    def __init__(self, name: str, do: Callable[[Work], None]) -> None:
        self._do = do
        self._since_s: float | None = None
        """Begin of the present work."""
        self._begun_at_s = 0.0
        """Processor time of the thread at that moment."""
        self._todo: deque[Work | None] = deque()
        self._signal = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Work | None) -> None:
        """Queue work; None ends the thread after the work before it."""
        self._todo.append(work)
        self._signal.release()

    def _run(self) -> None:
        while True:
            self._signal.acquire()
            work = self._todo.popleft()
            if work is None:
                return
            self._begun_at_s = time.thread_time()
            self._since_s = time.monotonic()
            try:
                self._do(work)
            finally:
                self._since_s = None

    @property
    def busy_s(self) -> float:
        """Time spent on the present work; 0 when it has none."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    @property
    def idle_s(self) -> float:
        """Time spent on the present work while the thread hardly computed; 0 otherwise."""
        busy_s, thread = self.busy_s, self._thread.ident
        # Only a living thread can be asked, and a thread in the middle of its work is alive.
        if not busy_s or busy_s < ASK_AFTER_S or thread is None or not hasattr(time, "pthread_getcpuclockid"):
            return 0.0
        computed_s = time.clock_gettime(time.pthread_getcpuclockid(thread)) - self._begun_at_s
        return 0.0 if computed_s > busy_s * IDLE_SHARE else busy_s

    def close(self, timeout_s: float) -> None:
        """Finish the queued work and take no more."""
        self.put(None)
        self._thread.join(timeout_s)
