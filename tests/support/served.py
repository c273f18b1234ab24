"""A transport whose loop is a thread of the test's own: it serves the connections while the test does something else.

A node's loop serves its transport by waiting for messages. A test that sends at one node and looks at another has no loop at the
first one, and must not take from its inbox what it wants to look at later: so this waits for no message at all (a limit of 0).
"""

from __future__ import annotations

import threading
import time
from typing import Any


class Served:
    """Stands for a transport over RabbitMQ; everything but `wake` and `status` happens under one lock."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_woken = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._transport, name)
        if not callable(found) or name == "status":
            return found

        def locked(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                return found(*arguments, **named)

        return locked

    def wake(self) -> None:
        """Of the test's own `receive`, not of the thread's."""
        self._is_woken = True
        self._transport.wake()

    def receive(self, limit: int, timeout_ms: int) -> Any:
        """As the transport's."""
        with self._lock:
            found = self._transport.receive(limit, 0 if self._is_woken else timeout_ms)
            self._is_woken = False
            return found

    def close(self, timeout_ms: int = 5000) -> None:
        """End the thread, then close the transport."""
        self._is_closed = True
        self._thread.join(10)
        self._transport.close(timeout_ms)

    def _serve(self) -> None:
        while not self._is_closed:
            with self._lock:
                self._transport.receive(0, 2)
            # The lock is not fair: whoever waits for it gets a chance.
            time.sleep(0.001)
