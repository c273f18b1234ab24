"""Links between machines that are one machine: a TCP proxy for each, which a test can cut, slow down and heal.

    with Links() as links:
        link = links.add("m1>m2", "127.0.0.1", 5672)     # connect to 127.0.0.1:link.port instead
        link.cut()                                        # connections are reset, new ones refused
        link.cut(BLACK_HOLE)                              # nothing is said any more: neither a byte nor an end
        link.hold(BACKWARD)                               # one-way: what the target says is held back
        link.delay(40)                                    # each byte 40 ms later, as many in a second as before
        link.heal()                                       # all is well again; what was held is delivered first

What TCP itself would do is kept: bytes are never lost, doubled or reordered within a connection. A black hole is what a dead
line is to both ends: whoever connects is not refused, whoever sends is slowed down when the buffers are full, and a connection that
outlives the cut goes on. Only the handshake differs: this kernel answers it in the place of the target's.

Each link has one thread, which owns its sockets and its state; `cut` and the others return when it has done what they say.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, Self

from tests.support.free_ports import free_ports

RESET: Final = "reset"
BLACK_HOLE: Final = "black hole"
FORWARD: Final = "forward"
"""From whoever connected to the target."""
BACKWARD: Final = "backward"
_READ_BYTES = 64 * 1024
_WAITING_BYTES = 8 * 1024 * 1024
"""In one direction of one connection: above it nothing is read, as if the buffers on the way were full."""
_ANSWER_S = 10.0
_PORT_TRIES = 20
_TARGET_S = 5.0


class _Flow:
    """One direction of one connection."""

    def __init__(self, direction: str, source: socket.socket, target: socket.socket) -> None:
        self.direction = direction
        self.source = source
        self.target = target
        self.waiting: deque[tuple[float, bytes]] = deque()
        """(when it is due, bytes); no bytes are the end of the stream."""
        self.size_bytes = 0
        self.is_read = False
        """Whether the source has ended."""
        self.is_over = False
        """Whether the target was told so."""

    def wants_read(self) -> bool:
        return not self.is_read and self.size_bytes < _WAITING_BYTES

    def read(self, due_s: float) -> None:
        """Take what the source says. Raises OSError when it was reset."""
        try:
            data = self.source.recv(_READ_BYTES)
        except BlockingIOError:
            return
        self.is_read = not data
        self.size_bytes += len(data)
        self.waiting.append((due_s, data))

    def write(self, now_s: float) -> int:
        """Say to the target what is due; returns how many bytes it took. Raises OSError."""
        written = 0
        while self.waiting and self.waiting[0][0] <= now_s:
            due_s, data = self.waiting[0]
            if not data:
                self.target.shutdown(socket.SHUT_WR)
                self.is_over = True
                self.waiting.popleft()
                break
            try:
                count = self.target.send(data)
            except BlockingIOError:
                break
            written += count
            self.waiting.popleft()
            if count < len(data):
                self.waiting.appendleft((due_s, data[count:]))
                break
        self.size_bytes -= written
        return written


class _Connection:
    """Both ends and both directions."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.near, self.far = near, far
        self.flows = (_Flow(FORWARD, near, far), _Flow(BACKWARD, far, near))

    def reset(self) -> None:
        _reset(self.near)
        _reset(self.far)

    def close(self) -> None:
        self.near.close()
        self.far.close()


class Link:
    """One link; see the head of the module. All methods may be called from any thread."""

    def __init__(self, name: str, host: str, port: int) -> None:
        """Listens on a free loopback port, which it keeps while it is cut."""
        self.name = name
        self._carried = {FORWARD: 0, BACKWARD: 0}
        self.connections = 0
        """How many were taken so far."""
        self._target = (host, port)
        self._listener = _listen()
        self.port: int = self._listener.getsockname()[1]
        self._open: list[_Connection] = []
        self._held: set[str] = set()
        self._delay_s = 0.0
        self._cut = ""
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell, self._ear = socket.socketpair()
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name=f"link {name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"Link({self.name}: {self._cut or 'open'}, held {sorted(self._held)}, {self._delay_s * 1000:g} ms)"

    def carried(self) -> dict[str, int]:
        """Bytes that arrived, in each direction."""
        found: dict[str, int] = {}
        # Asked of the thread: it counts a byte only after it has sent it, and whoever received it may be here before.
        self._do(lambda: found.update(self._carried))
        return found

    def cut(self, how: str = RESET) -> None:
        """Nothing passes: connections are reset and new ones refused (`RESET`), or all is left hanging (`BLACK_HOLE`)."""

        def change() -> None:
            if how == RESET and self._cut != RESET:
                # The socket stays bound, so the port is still ours; it just does not listen.
                self._listener.shutdown(socket.SHUT_RDWR)
            elif how == BLACK_HOLE and self._cut == RESET:
                self._listener.listen()
            self._cut = how
            if how == RESET:
                for connection in self._open:
                    connection.reset()
                self._open.clear()

        self._do(change)

    def hold(self, direction: str) -> None:
        """Hold back the bytes of one direction; those of the other pass."""
        self._do(lambda: self._held.add(direction))

    def delay(self, delay_ms: float) -> None:
        """Deliver what comes from now on so much later, in each direction; 0 for at once."""

        def change() -> None:
            self._delay_s = delay_ms / 1000

        self._do(change)

    def heal(self) -> None:
        """End all of it."""

        def change() -> None:
            if self._cut == RESET:
                self._listener.listen()
            self._cut, self._delay_s = "", 0.0
            self._held.clear()

        self._do(change)

    def close(self) -> None:
        """Reset what is open and give the port back. Idempotent."""
        if self._is_ended:
            return

        def change() -> None:
            self._is_ended = True

        self._do(change)
        self._thread.join(_ANSWER_S)

    # ---- the thread

    def _do(self, order: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            order()
            done.set()

        self._orders.put(run)
        with contextlib.suppress(OSError):  # The last order may be done, and the thread over, before the bell rings.
            self._bell.send(b"!")
        assert done.wait(_ANSWER_S), f"{self!r} does not answer"

    def _run(self) -> None:
        try:
            while not self._is_ended:
                readable = self._wait()
                self._obey()
                self._accept(readable)
                for connection in list(self._open):
                    self._pass_on(connection, readable)
        finally:
            for connection in self._open:
                connection.reset()
            for end in (self._listener, self._bell, self._ear):
                end.close()

    def _wait(self) -> set[int]:
        """Sleep until something can be done; returns what can be read. A socket that nothing is wanted of is not watched."""
        now_s = time.monotonic()
        wanted: dict[int, int] = {self._ear.fileno(): select.POLLIN}
        if not self._cut:
            wanted[self._listener.fileno()] = select.POLLIN
        due_s = []
        for flow in self._flows():
            if flow.wants_read():
                wanted[flow.source.fileno()] = wanted.get(flow.source.fileno(), 0) | select.POLLIN
            if flow.waiting and self._passes(flow):
                if flow.waiting[0][0] <= now_s:
                    wanted[flow.target.fileno()] = wanted.get(flow.target.fileno(), 0) | select.POLLOUT
                else:
                    due_s.append(flow.waiting[0][0])
        poll = select.poll()
        for number, events in wanted.items():
            poll.register(number, events)
        timeout_ms = max(0.0, min(due_s) - now_s) * 1000 if due_s else None
        # Rounded up: a poll that ends before the time is due would be asked again at once.
        found = poll.poll(None if timeout_ms is None else int(timeout_ms) + 1)
        return {number for number, events in found if events & ~select.POLLOUT}

    def _obey(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096, socket.MSG_DONTWAIT)
        with contextlib.suppress(queue.Empty):
            while True:
                self._orders.get_nowait()()

    def _accept(self, readable: set[int]) -> None:
        if self._cut or self._listener.fileno() not in readable:
            return
        try:
            near, _ = self._listener.accept()
        except OSError:  # Gone again, or the link was cut a moment ago.
            return
        try:
            far = socket.create_connection(self._target, timeout=_TARGET_S)
        except OSError:
            _reset(near)
            return
        self.connections += 1
        self._open.append(_Connection(near, far))

    def _pass_on(self, connection: _Connection, readable: set[int]) -> None:
        now_s = time.monotonic()
        try:
            for flow in connection.flows:
                if flow.source.fileno() in readable and flow.wants_read():
                    flow.read(now_s + self._delay_s)
                if self._passes(flow):
                    self._carried[flow.direction] += flow.write(now_s)
        except OSError:  # One end is gone, and the other one is to know.
            connection.reset()
            self._open.remove(connection)
            return
        if all(flow.is_over for flow in connection.flows):
            connection.close()
            self._open.remove(connection)

    def _passes(self, flow: _Flow) -> bool:
        return not self._cut and flow.direction not in self._held

    def _flows(self) -> Iterator[_Flow]:
        for connection in self._open:
            yield from connection.flows


class AnyLink(Protocol):
    """What can be cut, whether it carries the bytes of connections (`Link`) or packets."""

    def cut(self, how: str = ...) -> None:
        """See `Link.cut`."""

    def hold(self, direction: str) -> None:
        """See `Link.hold`."""

    def delay(self, delay_ms: float) -> None:
        """See `Link.delay`."""

    def heal(self) -> None:
        """See `Link.heal`."""


class AnyLinks(Protocol):
    """Such links by name."""

    @property
    def of(self) -> Mapping[str, AnyLink]:
        """All of them."""

    def cut(self, *names: str, how: str = ...) -> None:
        """See `Links.cut`."""

    def heal(self) -> None:
        """See `Links.heal`."""


class Links:
    """Links by name, closed together."""

    def __init__(self) -> None:
        self.of: dict[str, Link] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for link in self.of.values():
            link.close()

    def add(self, name: str, host: str, port: int) -> Link:
        """A new link to this target."""
        assert name not in self.of, name
        self.of[name] = Link(name, host, port)
        return self.of[name]

    def cut(self, *names: str, how: str = RESET) -> None:
        """Cut these, all others stay as they are."""
        for name in names:
            self.of[name].cut(how)

    def heal(self) -> None:
        """Heal all."""
        for link in self.of.values():
            link.heal()


def _listen() -> socket.socket:
    for _ in range(_PORT_TRIES):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", free_ports()))
        except OSError:  # Somebody was faster.
            listener.close()
            continue
        listener.listen()
        listener.setblocking(False)
        return listener
    raise OSError("no free port for a link")


def _reset(end: socket.socket) -> None:
    """Close so that the other side gets a reset, and not an end of the stream."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
