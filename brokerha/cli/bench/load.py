"""The load of a bench: a constant number of concurrent writes, and when each of them ended."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Self

from brokerha.model.errors import NotReady
from brokerha.model.operations import Operation, pack_operations

if TYPE_CHECKING:
    from brokerha.model.requests import Reply
    from brokerha.ports.wire import Wire

Make = Callable[[int], Operation]
"""Makes the write with a number."""
VALUE = b"v" * 100
TIMEOUT_MS = 120_000
REPEAT_AFTER_S = 0.01


def put(number: int) -> Operation:
    """Return a key-value write of 100 bytes."""
    return ("put", "bench", b"key-%012d" % number, VALUE)


def insert(number: int) -> Operation:
    """Return a small SPARQL INSERT DATA."""
    return ("update", "main", f'INSERT DATA {{ <urn:bench:{number}> <urn:bench:value> "{number}" }}')


KINDS: tuple[tuple[str, Make], ...] = (("key-value put", put), ("INSERT DATA", insert))


class Done(NamedTuple):
    """A completed write; times are of the performance counter."""

    at_s: float
    latency_s: float


class Load:
    """Writes until the block ends, in a separate thread; then waits for all open ones."""

    def __init__(
        self, wire: Wire, make: Make, window: int, first: int = 0, *, level: str = "applied", name: str = "bench",
        repeats: bool = False, timeout_ms: int = TIMEOUT_MS,
    ) -> None:  # fmt: skip
        """``repeats``: a failed write is sent again under its id, and does not end the load."""
        self._wire = wire
        self._make = make
        self._window = window
        self._level = level
        self._name = name
        self._repeats = repeats
        self._timeout_ms = timeout_ms
        self._ended: SimpleQueue[tuple[int, Done, Future[Reply]]] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writes of {name}", daemon=True)
        self.next = first
        """Number of the next write."""
        self.done: list[Done] = []
        self.repeated = 0
        self.fault: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(self._timeout_ms / 1000 + 20)
        self.check()

    def check(self) -> None:
        """Raise the error that ended the load, so that a caller does not wait for more writes for ever."""
        if self.fault is not None:
            raise self.fault

    def rate(self, since_s: float, until_s: float) -> float:
        """Return the writes per second in a span of time."""
        return len(self._between(since_s, until_s)) / max(until_s - since_s, 1e-9)

    def p99_ms(self, since_s: float, until_s: float) -> float:
        """Return the p99 latency of the writes that ended in a span of time."""
        return share_ms(self._between(since_s, until_s), 0.99)

    def _between(self, since_s: float, until_s: float) -> list[float]:
        return [each.latency_s for each in list(self.done) if since_s <= each.at_s < until_s]

    def _run(self) -> None:
        under_way = 0
        try:
            while under_way or not self._stopping.is_set():
                if under_way < self._window and not self._stopping.is_set():
                    self._send(range(self.next, self.next + self._window - under_way))
                    self.next += self._window - under_way
                    under_way = self._window
                under_way -= self._take()
        except BaseException as fault:  # noqa: BLE001  (told when the block ends)
            self.fault = fault

    def _send(self, numbers: Sequence[int]) -> None:
        writes = [(f"{self._name}-{number}", pack_operations([self._make(number)])) for number in numbers]
        sent_s = time.perf_counter()
        for number, future in zip(numbers, self._wire.submit(writes, self._level, 1, self._timeout_ms), strict=True):
            future.add_done_callback(functools.partial(self._note, number, sent_s))

    def _note(self, number: int, sent_s: float, future: Future[Reply]) -> None:
        now_s = time.perf_counter()
        self._ended.put((number, Done(now_s, now_s - sent_s), future))

    def _take(self) -> int:
        """Wait for a write to end, and take all completed ones; return how many are no longer open."""
        ended = [self._ended.get(timeout=self._timeout_ms / 1000 + 10)]
        while not self._ended.empty():
            ended.append(self._ended.get())
        lost = [number for number, done, future in ended if not self._has_reached(done, future.result())]
        if not lost or self._stopping.is_set():
            return len(ended)
        time.sleep(REPEAT_AFTER_S)
        self._send(lost)
        self.repeated += len(lost)
        return len(ended) - len(lost)

    def _has_reached(self, done: Done, reply: Reply) -> bool:
        if reply.status == self._level:
            self.done.append(done)
        elif not self._repeats:
            raise NotReady(f"a write of the bench was {reply.status}: {reply.reason}")
        return reply.status == self._level


def share_ms(latencies_s: Iterable[float], share: float) -> float:
    """Return the latency in milliseconds below which this share of the writes lies; 0 without any.

    >>> share_ms([0.004, 0.001, 0.003, 0.002], 0.5)
    3.0
    """
    ordered = sorted(latencies_s)
    return ordered[int(len(ordered) * share)] * 1000 if ordered else 0.0


class Figure(NamedTuple):
    """Result of a window of writes."""

    writes: int
    """All writes, including those that ended after the time."""
    per_s: float
    p50_ms: float
    p99_ms: float


def measure(wire: Wire, make: Make, window: int, seconds: float, first: int, level: str = "applied") -> Figure:
    """Keep ``window`` writes open for ``seconds``. Raises NotReady when one fails."""
    with Load(wire, make, window, first, level=level) as load:
        end_s = time.perf_counter() + seconds
        while (left_s := end_s - time.perf_counter()) > 0:
            load.check()
            time.sleep(min(left_s, 0.1))
    latencies = [each.latency_s for each in load.done]
    in_time = sum(each.at_s < end_s for each in load.done)
    return Figure(len(latencies), in_time / seconds, share_ms(latencies, 0.5), share_ms(latencies, 0.99))
