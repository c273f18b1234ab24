"""A thread that keeps one connection to RabbitMQ: connects, serves, and on any doubt tears it down and begins again.

    connect ─> session starts (declares, consumes) ─> turns … ─> lost ─> session ends ─> pause ─> connect …

The same loop serves both directions; what a turn does is the session's business (reader.py, writer.py). A session
lives exactly as long as its connection, so nothing of an old channel can reach a new one: delivery tags, windows and
consumers are made anew with it.

Invariants: the thread ends only when it was asked to; every wait has a deadline; heartbeats go out and are watched
in every state; an idle thread wakes up a few times in ten seconds; a lost connection is tried again at once, then
after pauses that double, with jitter, so that a broker that comes back does not meet all nodes at the same moment.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from traceback import format_exception
from typing import Any, Protocol

import structlog
from amqp.exceptions import AMQPError
from kombu import Connection
from kombu.exceptions import KombuError

from brokerha.transports.addresses import Address
from brokerha.transports.config import TransportConfig
from brokerha.transports.identity import Identity
from brokerha.transports.link import LinkState
from brokerha.transports.parcels import Counters
from brokerha.transports.rabbitmq import explain, open_connection
from brokerha.transports.waker import Waker

log = structlog.get_logger(__name__)

_EXPECTED = (AMQPError, KombuError, OSError)
"""How a connection ends in the normal course of things; anything else is counted as a fault besides."""
_HEARTBEATS_A_TICK = 5
_PARTING_S = 1.0
"""How long a clean goodbye may take."""


class Session(Protocol):
    """What lives on one connection."""

    def turn(self, now_s: float) -> float:
        """Do what there is to do; return the monotonic time at which it wants the next turn at the latest.

        Raises any error that makes the connection worthless.
        """

    def is_idle(self) -> bool:
        """Whether a clean goodbye would lose nothing."""

    def end(self) -> None:
        """The connection is gone: save what must be repeated."""


class ConnectionThread:
    """See the head of the module."""

    def __init__(
        self,
        identity: Identity,
        direction: str,
        addresses: Sequence[Address],
        start_session: Callable[[Connection], Session],
        is_needed: Callable[[], bool],
        state: LinkState,
        config: TransportConfig,
        counters: Counters,
    ) -> None:
        """``identity`` shows in the dashboard; ``start_session`` runs in the thread, on a fresh connection.

        ``is_needed`` says whether a connection is still wanted after `ask_to_end`: whether something waits for it.
        """
        self.waker = Waker()
        self._identity = identity
        self._direction = direction
        self._addresses = list(addresses)
        self._start_session = start_session
        self._is_needed = is_needed
        self._was_up = False
        self._last_reason = ""
        self._state = state
        self._config = config
        self._counters = counters
        self._jitter = random.Random()
        self._pause_ms = 0
        self._end_by_s: float | None = None
        """Set when the thread was asked to end; monotonic."""
        self._thread = threading.Thread(target=self._run, name=identity.name, daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def ask_to_end(self, deadline_s: float) -> None:
        """Let the thread say goodbye when it is idle, at the latest at this monotonic time. Callable from any thread."""
        self._end_by_s = deadline_s
        self.waker.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; whether it has ended. It is left behind if a connection attempt hangs."""
        self._thread.join(max(0.0, timeout_s))
        if self._thread.is_alive():
            return False
        self.waker.close()
        return True

    def _run(self) -> None:
        attempt = 0
        while not self._is_over():
            address = self._addresses[attempt % len(self._addresses)]
            attempt += 1
            try:
                self._keep(address)
            except Exception as error:  # noqa: BLE001  # Whatever it was: this thread is the node's only way to the broker.
                self._lost(error, address)

    def _keep(self, address: Address) -> None:
        """One connection from its beginning to its end."""
        connection = open_connection(
            address,
            self._identity,
            self._config,
            on_blocked=partial(self._state.block, self._direction),
            on_unblocked=partial(self._state.unblock, self._direction),
        )
        wire: Any = connection.connection
        try:
            session = self._start_session(connection)
            try:
                self._state.up(self._direction)
                self._pause_ms = 0
                if self._was_up:
                    self._counters.add("reconnects")
                self._was_up = True
                self._last_reason = ""
                log.info("broker connected", connection=self._identity.name, address=str(address))
                self._serve(wire, session)
                self._part(wire)
            finally:
                session.end()
        finally:
            wire.collect()
            connection.release()

    def _serve(self, wire: Any, session: Session) -> None:
        frames = wire.transport
        dispatch = wire.on_inbound_frame
        tick_s = self._config.heartbeat_s / _HEARTBEATS_A_TICK
        next_tick_s = 0.0
        while not self._may_end(session):
            has_read = frames.fill()
            while (frame := frames.next_frame()) is not None:
                dispatch(frame)
            now_s = time.monotonic()
            if now_s >= next_tick_s:
                wire.heartbeat_tick(rate=2)
                next_tick_s = now_s + tick_s
            next_turn_s = session.turn(now_s)
            is_flushed = frames.flush()
            if not has_read:
                until_s = min(next_turn_s, next_tick_s, self._end_by_s or next_tick_s)
                self.waker.wait(until_s - time.monotonic(), frames.sock, for_room=not is_flushed)

    def _may_end(self, session: Session) -> bool:
        return self._end_by_s is not None and (session.is_idle() or time.monotonic() >= self._end_by_s)

    @staticmethod
    def _part(wire: Any) -> None:
        # The broker may be gone or busy: then it learns of our end from the closed socket.
        with contextlib.suppress(*_EXPECTED):
            wire.transport.answer_timeout_s = _PARTING_S
            wire.close()

    def _is_over(self) -> bool:
        return self._end_by_s is not None and (not self._is_needed() or time.monotonic() >= self._end_by_s)

    def _lost(self, error: Exception, address: Address) -> None:
        reason = explain(error, address)
        if not isinstance(error, _EXPECTED):
            self._counters.add("faults")
            # As text: local variables on the way hold the password.
            log.error("unexpected end of a connection", connection=self._identity.name, trace="".join(format_exception(error)))
        elif reason != self._last_reason:
            log.warning("broker lost", connection=self._identity.name, reason=reason)
        self._last_reason = reason
        self._state.down(self._direction, reason)
        end_s = time.monotonic() + self._jitter.uniform(0.5, 1.0) * self._pause_ms / 1000
        while not self._is_over() and (left_s := end_s - time.monotonic()) > 0:
            self.waker.wait(left_s)
        first_ms, most_ms = self._config.retry_first_ms, self._config.retry_most_ms
        self._pause_ms = min(most_ms, max(first_ms, self._pause_ms * 2))
