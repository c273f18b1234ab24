"""The thread of a node: turns, and calls from other threads.

Other threads never touch a core. They submit a call, which runs between two turns, and get a future. So a front door sees the
whole node at one moment, and a core needs no lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

import structlog

from brokerha.model.errors import ConfigurationError, NotReady
from brokerha.model.faults import fault_fields
from brokerha.ports.transport import Transport

log = structlog.get_logger()
AWAY_MS = 200
Answer = TypeVar("Answer")


def parting_ms(transport: Transport, timeout_s: float) -> int:
    """Return how long a stopping node lets its transport send waiting messages: only briefly when no broker is connected."""
    is_connected = transport.status().state == "connected"
    return int(timeout_s * 1000) if is_connected else AWAY_MS


def complete(future: Future[Answer], end: Answer | BaseException) -> None:
    """Complete a future with a result or an error. Do nothing when it is complete already, or cancelled meanwhile."""
    try:
        if isinstance(end, BaseException):
            future.set_exception(end)
        else:
            future.set_result(end)
    except InvalidStateError:
        pass


class NodeLoop:
    """One thread that runs turns until it is stopped."""

    def __init__(self, name: str, turn: Callable[[], None], wake: Callable[[], None]) -> None:
        self._turn = turn
        self._wake = wake
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._has_ended = False
        self.fault: BaseException | None = None
        """What ended the loop without a `stop`: a fault of brokerha, or a ConfigurationError."""

    def start(self) -> None:
        """Start the turns."""
        self._thread.start()

    def call(self, action: Callable[[], Answer]) -> Future[Answer]:
        """Run ``action`` between two turns; the future is completed with its result."""
        future: Future[Answer] = Future()
        if self._stopping.is_set() or self.fault is not None:
            future.set_exception(NotReady("the node is stopping"))
            return future
        self._calls.append((action, future))
        if self._has_ended:
            # The loop ended after the check above, so it will not run this call.
            self._refuse_calls()
        self._wake()
        return future

    def call_for(self, future: Future[Any], action: Callable[[], object]) -> None:
        """Run ``action`` between two turns. It completes ``future``, at once or later; its exception completes it too."""

        def fail(done: Future[Any]) -> None:
            if error := done.exception():
                complete(future, error)

        self.call(action).add_done_callback(fail)

    def serve_calls(self) -> None:
        """Run the submitted calls; only the loop itself calls this."""
        while self._calls:
            action, future = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(action())
            except Exception as error:  # noqa: BLE001  (the fault belongs to the caller, not to the loop)
                future.set_exception(error)

    @property
    def has_calls(self) -> bool:
        """Whether a call is waiting."""
        return bool(self._calls)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except ConfigurationError as error:
            self.fault = error
            log.error("the node cannot start", thread=self._thread.name, reason=str(error))
        except BaseException as error:  # noqa: BLE001  (the loop must not die silently)
            self.fault = error
            log.error("node stopped by a fault", thread=self._thread.name, **fault_fields(error))
        finally:
            self._stopping.set()
            self._has_ended = True
            self._refuse_calls()

    def _refuse_calls(self) -> None:
        while self._calls:
            try:
                _, future = self._calls.popleft()
            except IndexError:
                return
            if future.set_running_or_notify_cancel():
                future.set_exception(NotReady("the node has stopped"))

    def stop(self, timeout_s: float) -> bool:
        """Stop after the current turn; return whether it stopped in time. Idempotent."""
        self._stopping.set()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        """Whether the loop still takes turns."""
        return self._thread.is_alive() and self.fault is None
