"""A thread that does one piece of work after the other, and says how long it has been at the present one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Work = TypeVar("Work")

ASK_AFTER_S = 1.0
"""Work that has taken less is never called idle."""
IDLE_SHARE = 0.01
"""A thread that computes for less than this part of its time does nothing but wait."""


class WorkThread(Generic[Work]):
    """One thread that does one piece of work after the other."""

    def __init__(self, name: str, do: Callable[[Work], None]) -> None:
        self._do = do
        self._since_s: float | None = None
        """When the present work began."""
        self._begun_at_s = 0.0
        """What the thread had computed by then."""
        self._todo: deque[Work | None] = deque()
        self._signal = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Work | None) -> None:
        """Hand work over; None ends the thread after what was handed over before."""
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
        """How long it has been at its present work; 0 when it has none."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    @property
    def idle_s(self) -> float:
        """How long it has been at its present work if it hardly computed meanwhile; 0 if it did, or has none."""
        busy_s, thread = self.busy_s, self._thread.ident
        # Only a thread that lives may be asked, and one in the middle of its work does.
        if not busy_s or busy_s < ASK_AFTER_S or thread is None or not hasattr(time, "pthread_getcpuclockid"):
            return 0.0
        computed_s = time.clock_gettime(time.pthread_getcpuclockid(thread)) - self._begun_at_s
        return 0.0 if computed_s > busy_s * IDLE_SHARE else busy_s

    def close(self, timeout_s: float) -> None:
        """Finish what was handed over, take no more."""
        self.put(None)
        self._thread.join(timeout_s)
