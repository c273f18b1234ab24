"""One connection to RabbitMQ that is opened again after each loss: its owner serves it, and any doubt closes it.

    opened by its own thread ─> adopted ─> served repeatedly ─> lost ─> pause ─> opened …

Blocking work (the TCP connection, the handshake, the first declarations of a session) is done in a thread that ends with it. All
other work is done in `serve`, by the thread that owns the connection: a node's loop (loop_link.py), or a thread with no other work
(`ConnectionThread`, for the log stream). The session does the work of a turn (reader.py, writer.py, log_stream/stream.py). A
session lives exactly as long as its connection, so delivery tags, windows and consumers of an old channel never reach a new one.

Invariants: `serve` and `push` never block and never raise. Heartbeats are sent and checked in each `serve`. A lost connection is
retried at once, then after doubling pauses with jitter, so that a restarted broker does not meet all nodes at the same moment. A
short-lived connection does not reset the pauses.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import structlog
from amqp.exceptions import AMQPError
from kombu import Connection
from kombu.exceptions import KombuError

from brokerha.model.faults import fault_fields
from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes import Counters
from brokerha.transports.link import LinkState
from brokerha.transports.rabbitmq.addresses import Address
from brokerha.transports.rabbitmq.connecting import LedNowhere, explain, foreign, message_limit, open_connection
from brokerha.transports.rabbitmq.identity import Identity

log = structlog.get_logger(__name__)
FAR_S = 3600.0
_EXPECTED = (AMQPError, KombuError, OSError)
"""Normal ends of a connection; any other error is also counted as a fault."""
_HEARTBEATS_A_TICK = 5
_PARTING_S = 1.0
"""Longest wait for a clean close."""
_FILLS = 4
"""Most buffers read before other work."""


class Waker:
    """Ends the wait of a thread that waits for sockets, through a pipe that any other thread writes to.

    One waiting thread, any number of wakers; close it when the thread has ended.

    Nothing is written while the thread is awake, and nothing twice. A waker first sets `_is_called` and then checks whether the
    thread waits. The thread first sets `_is_waiting` and then checks whether it was called. So one of the two sees the other.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._is_closed = False
        self._is_called = False
        self._is_waiting = False
        self._poll = select.poll()
        self._polled: list[tuple[int, bool]] | None = None
        """Descriptors of the sockets in `_poll`, and whether also for room."""

    def wake(self) -> None:
        """End the present wait, or the next one. Harmless after `close`."""
        if self._is_called:
            return
        self._is_called = True
        # A full pipe wakes as well as one more byte.
        with contextlib.suppress(BlockingIOError):
            if self._is_waiting and not self._is_closed:
                os.write(self._write, b"\0")

    def wait(self, timeout_s: float, watched: Any = None, *, for_room: bool = False) -> None:
        """Sleep until woken, until ``watched`` (a socket) is readable, or writable ``for_room``, or until the timeout."""
        self.wait_for(timeout_s, [(watched.fileno(), for_room)] if watched is not None else [])

    def wait_for(self, timeout_s: float, watched: Sequence[tuple[int, bool]]) -> list[int]:
        """Wait as `wait`, for several sockets by their descriptors; return the ready ones."""
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
        # In this order, and before the wishes are read: a call that comes now is for the next wait.
        self._is_waiting = self._is_called = False
        return ready

    def close(self) -> None:
        """Release the pipe, once no thread waits."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._read)
            os.close(self._write)


class Session(Protocol):
    """The work on one connection."""

    def turn(self, now_s: float) -> float:
        """Do the work that is due; return the latest monotonic time of the next turn.

        Raises any error that makes the connection useless.
        """

    def is_idle(self) -> bool:
        """Tell whether a clean close would lose nothing."""

    def end(self) -> None:
        """Save what must be repeated, after the connection is gone."""


class KeptConnection:
    """See the head of the module. All but `ask_to_end` belongs to the thread that owns it."""

    def __init__(
        self,
        identity: Identity,
        direction: str,
        addresses: Sequence[Address],
        start_session: Callable[[Connection], Session],
        wake: Callable[[], None],
        state: LinkState,
        config: TransportConfig,
        counters: Counters,
    ) -> None:
        """``identity`` is shown in the dashboard; ``start_session`` runs on a fresh connection, in the opening thread.

        ``wake`` makes the owner serve; the opening thread calls it.
        """
        self.due_s = 0.0
        """Latest monotonic time of the next `serve`."""
        self._identity = identity
        self._direction = direction
        self._addresses = list(addresses)
        self._start_session = start_session
        self._wake = wake
        self._state = state
        self._config = config
        self._counters = counters
        self._jitter = random.Random()
        self._attempts = 0
        self._pause_ms = 0
        self._up_s = 0.0
        self._left = 0
        """Number of addresses chosen by `leave`."""
        self._was_up = False
        self._last_reason = ""
        self._lock = threading.Lock()
        """Guards the three fields below, which the opening thread leaves for the owner."""
        self._is_opening = False
        self._is_wanted = True
        self._opened: _Opened | Exception | None = None
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._wire: Any = None
        self._frames: Any = None
        self._next_tick_s = 0.0

    @property
    def watched(self) -> Any:
        """The socket to wait for; None while there is none."""
        return self._frames.sock if self._frames is not None else None

    @property
    def wants_room(self) -> bool:
        """Whether it waits until the socket takes more."""
        return self._frames is not None and self._frames.unsent_bytes > 0

    def wants_service(self, now_s: float, ready: Collection[int]) -> bool:
        """Tell whether `serve` has something to do, if these descriptors are ready."""
        frames = self._frames
        return frames is None or now_s >= self.due_s or frames.may_have_more or frames.sock.fileno() in ready

    def is_idle(self) -> bool:
        """Tell whether a close now would lose nothing that this connection could still do."""
        return self._session is not None and self._session.is_idle()

    def serve(self, now_s: float) -> bool:
        """Read available frames, let the session work, write; return whether there is possibly more to read."""
        if self._session is None and not self._adopt(now_s):
            return False
        try:
            self._read()
            if now_s >= self._next_tick_s:
                self._wire.heartbeat_tick(rate=2)
                self._next_tick_s = now_s + self._config.heartbeat_s / _HEARTBEATS_A_TICK
            self._turn(now_s)
        except Exception as error:  # noqa: BLE001  # Whatever the error: this is the node's only connection to the broker.
            self._lose(error)
            return False
        return self._frames is not None and self._frames.may_have_more

    def push(self, now_s: float) -> None:
        """Let the session write its new work."""
        if self._session is not None:
            try:
                self._turn(now_s)
            except Exception as error:  # noqa: BLE001  # As in `serve`.
                self._lose(error)

    def leave(self) -> None:
        """Give up a live connection that leads nowhere, for another address; do nothing when there is only one.

        All nodes try the addresses in the same order, so that they meet at one broker node, which does not need the others.
        """
        if self._session is None or len(self._addresses) < 2:
            return
        self._counters.add("left_broker_nodes")
        here, together = self._address(), sorted(self._addresses, key=str)
        aim = together[self._left % len(together)]
        if aim == here:
            self._left += 1
            aim = together[self._left % len(together)]
        self._left += 1
        self._lose(LedNowhere())
        self._attempts = self._addresses.index(aim)

    def end(self) -> None:
        """Close, and open no other connection. Idempotent."""
        with self._lock:
            self._is_wanted = False
            opened, self._opened = self._opened, None
        if isinstance(opened, _Opened):
            _release(*opened)
        if self._session is not None:
            # The broker can be gone or busy: then it learns of the end from the closed socket.
            with contextlib.suppress(*_EXPECTED):
                self._wire.transport.answer_timeout_s = _PARTING_S
                self._wire.close()
            self._drop()

    def _read(self) -> None:
        frames, dispatch = self._frames, self._wire.on_inbound_frame
        for _ in range(_FILLS):
            frames.fill()
            while (frame := frames.next_frame()) is not None:
                dispatch(frame)
            if not frames.may_have_more:
                return

    def _turn(self, now_s: float) -> None:
        if self._session is not None:
            self.due_s = min(self._session.turn(now_s), self._next_tick_s)
            self._frames.flush()

    def _adopt(self, now_s: float) -> bool:
        """Take over an opened connection, or start to open one when it is time; return whether there is a connection."""
        with self._lock:
            opened, self._opened = self._opened, None
            may_open = self._is_wanted and not self._is_opening and opened is None and now_s >= self.due_s
            self._is_opening = self._is_opening or may_open
        if may_open:
            self.due_s = now_s + FAR_S
            threading.Thread(target=self._open, name=f"{self._identity.name} opens", daemon=True).start()
        if isinstance(opened, Exception):
            self._lose(opened)
        if not isinstance(opened, _Opened):
            return False
        self._connection, self._wire, self._session = opened
        self._frames = self._wire.transport
        self._next_tick_s = 0.0
        self._up_s, self._last_reason = now_s, ""
        if self._was_up:
            self._counters.add("reconnects")
        self._was_up = True
        self._state.most_bytes = message_limit(self._wire.server_properties)
        self._state.up(self._direction)
        log.info("broker connected", connection=self._identity.name, address=str(self._address()))
        return True

    def _address(self) -> Address:
        return self._addresses[self._attempts % len(self._addresses)]

    def _open(self) -> None:
        """Open a connection; the body of the opening thread."""
        opened: _Opened | Exception
        try:
            connection = open_connection(
                self._address(),
                self._identity,
                self._config,
                on_blocked=partial(self._state.block, self._direction),
                on_unblocked=partial(self._state.unblock, self._direction),
            )
            wire = connection.connection
            try:
                opened = _Opened(connection, wire, self._start_session(connection))
            except Exception:
                _release(connection, wire, None)
                raise
        except Exception as error:  # noqa: BLE001  # The owner handles it: see `_lose`.
            opened = error
        with self._lock:
            self._is_opening = False
            if self._is_wanted:
                self._opened, opened = opened, None  # type: ignore[assignment]
        if isinstance(opened, _Opened):
            _release(*opened)
        self._wake()

    def _lose(self, error: Exception) -> None:
        problem = explain(error, self._address())
        if not isinstance(error, _EXPECTED):
            self._counters.add("faults")
            log.error("unexpected end of a connection", connection=self._identity.name, **fault_fields(error))
        elif problem.reason != self._last_reason:
            log.warning("broker lost", connection=self._identity.name, reason=problem.reason)
        self._last_reason = problem.reason
        if not self._was_up:
            # A node that was connected waits: another cluster took its virtual host while its broker was away.
            self._state.foreign = self._state.foreign or foreign(error, self._address())
        if self._session is not None and time.monotonic() - self._up_s >= self._config.retry_most_ms / 1000:
            self._pause_ms = 0
        self._attempts += 1
        self._state.down(self._direction, problem)
        self._drop()
        self.due_s = time.monotonic() + self._jitter.uniform(0.5, 1.0) * self._pause_ms / 1000
        first_ms, most_ms = self._config.retry_first_ms, self._config.retry_most_ms
        self._pause_ms = min(most_ms, max(first_ms, self._pause_ms * 2))

    def _drop(self) -> None:
        connection, wire, session = self._connection, self._wire, self._session
        self._connection = self._session = self._wire = self._frames = None
        if connection is not None:
            _release(connection, wire, session)


class _Opened(NamedTuple):
    """The result of the opening thread for the owner."""

    connection: Connection
    wire: Any
    """py-amqp's connection. Kombu must not be asked for it again: it would replace a closed one at once."""
    session: Session


def _release(connection: Connection, wire: Any, session: Session | None) -> None:
    """Close the socket without a farewell, and let the session save what must be repeated."""
    try:
        if session is not None:
            session.end()
    finally:
        wire.collect()
        connection.release()


class ConnectionThread:
    """A thread that only serves one connection, until it is asked to end."""

    def __init__(self, name: str, kept: Callable[[Callable[[], None]], KeptConnection]) -> None:
        """``kept`` makes the connection; its argument wakes the serving thread."""
        self.waker = Waker()
        self._kept = kept(self.waker.wake)
        self._end_by_s: float | None = None
        """Set when the thread was asked to end; monotonic."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; return at once."""
        self._thread.start()

    def ask_to_end(self, deadline_s: float) -> None:
        """Let the thread close when it is idle, or at this monotonic time at the latest. Any thread can call it."""
        self._end_by_s = deadline_s
        self.waker.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        self._thread.join(max(0.0, timeout_s))
        if self._thread.is_alive():
            return False
        self.waker.close()
        return True

    def _run(self) -> None:
        kept = self._kept
        while not self._may_end():
            if not kept.serve(time.monotonic()):
                until_s = kept.due_s if self._end_by_s is None else min(kept.due_s, self._end_by_s)
                self.waker.wait(until_s - time.monotonic(), kept.watched, for_room=kept.wants_room)
        kept.end()

    def _may_end(self) -> bool:
        if self._end_by_s is None:
            return False
        return self._kept.is_idle() or self._kept.watched is None or time.monotonic() >= self._end_by_s
