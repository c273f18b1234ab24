"""Which of several nodes is asked over HTTP, and what its answers mean.

One node is asked as long as it serves; when it fails the next one is, and so on round the list. Only what another node, or
the same one a little later, may do better is tried again: a node that is away, restarting or full. Everything else is
the answer.

Writes divide themselves: whenever none is under way, the next may go anywhere without losing its place after the one before, so
`choose` takes any of the nodes that answer writes about as fast as the fastest: a near one, one with little load. What is known of a node
fades, so that one that was slow is tried again. No write is spent to find out about a node: before the first one all are asked whether they
take writes and are not alone (`greet`), the first to say so gets it, and nobody gets any before it has said so. One that failed is asked the
same, beside the writes, before it gets any again.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from brokerha.model.errors import (
    BrokerhaError,
    ConfigurationError,
    NotReady,
    Unreachable,
    error_named,
)

PAUSE_FIRST_S = 0.05
PAUSE_MOST_S = 1.0
ALIKE = 1.5
"""Nodes that are at most so many times slower than the fastest get as many writes."""
FADING_S = 5.0
"""Half of what is known of the time of a node that gets no writes is forgotten in this time."""
SMOOTHING = 0.3
GREETING_S = 1.0
"""Longest time that the first write waits for a node that says that it takes writes; then the first of the list gets it."""
TROUBLE_FIRST_S = 1.0
TROUBLE_MOST_S = 30.0
"""Time until a node that failed is asked whether it takes writes, from the first time to many times."""
_GATEWAY_STATUSES = frozenset({502, 503, 504})


class _Standing:
    """What is known of one node."""

    __slots__ = ("ask_at_s", "failures", "noted_s", "seconds")

    def __init__(self) -> None:
        self.seconds: float | None = None
        """What a write takes there; 0 after the first one, which had to connect, and None before it."""
        self.noted_s = 0.0
        self.failures = 0
        self.ask_at_s: float | None = 0.0
        """When it is to be asked whether it takes writes; None once it has said that it does."""

    def expected_s(self, now_s: float) -> float:
        return float((self.seconds or 0.0) * self._kept(now_s))

    def note(self, seconds: float, now_s: float) -> None:
        known = (1 - SMOOTHING) * self._kept(now_s) if self.seconds else 0.0
        self.seconds = 0.0 if self.seconds is None else known * self.seconds + (1 - known) * seconds
        self.noted_s = now_s

    def _kept(self, now_s: float) -> float:
        """How much of what is known still counts."""
        return float(0.5 ** ((now_s - self.noted_s) / FADING_S))

    def fail(self, now_s: float) -> None:
        self.failures += 1
        self.ask_at_s = now_s + min(TROUBLE_MOST_S, TROUBLE_FIRST_S * 2 ** min(self.failures - 1, 10))


class HttpNodes:
    """Base URLs in turn; callable from any thread."""

    def __init__(
        self,
        urls: Sequence[str],
        draw: Callable[[], float] = random.random,
        is_writable: Callable[[str], bool] = lambda _url: True,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``is_writable`` asks a node whether it takes writes, in a thread of its own; it must end."""
        self.urls = tuple(dict.fromkeys(url.strip().rstrip("/") for url in urls if url.strip()))
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise ConfigurationError(
                f"{', '.join(urls) or 'nothing'!r} is no address: write http://host:port, several with commas"
            )
        self._draw = draw
        self._is_writable = is_writable
        self._clock_s = clock_s
        self._standing = {url: _Standing() for url in self.urls}
        self._is_greeted = len(self.urls) == 1
        self._found = threading.Event()
        """Set once a node has said that it takes writes, or all that they do not."""
        self._lock = threading.Lock()
        self._place = 0
        self._failures = 0

    @property
    def current(self) -> str:
        """The node that is asked now."""
        return self.urls[self._place % len(self.urls)]

    def greet(self) -> None:
        """Ask all nodes whether they take writes, once, and begin with the first that does. By the thread that sends."""
        if not self._is_greeted:
            self._is_greeted = True
            with self._lock:
                self._ask_due()
            self._found.wait(GREETING_S)
            with self._lock:
                # A node that answers later is chosen when no write is under way.
                well = [place for place, url in enumerate(self.urls) if self._standing[url].ask_at_s is None]
                self._place = well[0] if well else self._place

    def choose(self) -> str:
        """The node for the next write, when none is under way: `current` from now on."""
        if len(self.urls) == 1:
            return self.urls[0]
        with self._lock:
            now_s = self._ask_due()
            expected_s = {url: each.expected_s(now_s) for url, each in self._standing.items() if each.ask_at_s is None}
            if expected_s:
                most_s = ALIKE * min(expected_s.values())
                alike = [url for url, seconds in expected_s.items() if seconds <= most_s]
                self._place = self.urls.index(alike[int(self._draw() * len(alike)) % len(alike)])
            return self.current

    def _ask_due(self) -> float:
        """Begin to ask those that are to be asked; returns the time."""
        now_s = self._clock_s()
        for url, standing in self._standing.items():
            if standing.ask_at_s is not None and standing.ask_at_s <= now_s:
                standing.ask_at_s = now_s + TROUBLE_MOST_S
                threading.Thread(target=self._ask, args=(url,), name="brokerha writable", daemon=True).start()
        return now_s

    def _ask(self, url: str) -> None:
        """Whether a node that is not known, or failed, takes writes."""
        is_well = self._is_writable(url)
        with self._lock:
            if is_well:
                self._standing[url] = _Standing()
                self._standing[url].ask_at_s = None
            else:
                self._standing[url].fail(self._clock_s())
            if is_well or all(each.failures for each in self._standing.values()):
                self._found.set()

    def on_written(self, url: str, seconds: float) -> None:
        """A node answered a write after so many seconds."""
        with self._lock:
            self._standing[url].note(seconds, self._clock_s())

    def on_served(self, url: str) -> None:
        """A node did what was asked of it."""
        if self._failures and url == self.current:
            self._failures = 0

    def on_failed(self, url: str) -> float:
        """A node failed: ask the next one. Returns how long to wait before that, in seconds."""
        with self._lock:
            # Several threads may have failed at the same node; only the first one moves on.
            if url == self.current:
                self._standing[url].fail(self._clock_s())
                self._place += 1
                self._failures += 1
            rounds = self._failures // len(self.urls)
        if self._failures % len(self.urls) and len(self.urls) > 1:
            return 0.0
        # Jitter, because all clients of a node that restarts have failed at the same moment.
        return float(min(PAUSE_MOST_S, PAUSE_FIRST_S * 2 ** min(rounds, 10)) * (0.5 + self._draw() / 2))


def error_of_answer(url: str, status: int, headers: Mapping[str, str], body: bytes) -> BrokerhaError | None:
    """The error that an HTTP answer tells; None when it is no error."""
    if status < 400:
        return None
    text = body.decode("utf-8", "replace").strip()
    name = headers.get("brokerha-error", "")
    if name and headers.get("content-type", "").startswith("application/json"):
        # A client that asks for JSON gets errors in it too; what is shown to people is the sentence.
        text = str(json.loads(body).get("text", text))
    if name:
        lsn = headers.get("brokerha-lsn", "0")
        return error_named(name, text, headers.get("brokerha-tx", ""), int(lsn) if lsn.isdecimal() else 0)
    if status in _GATEWAY_STATUSES:
        return NotReady(f"{url} answers {status}: the node behind it is not there")
    if status >= 500:
        return BrokerhaError(f"{url} answers {status}: {text[:200]}")
    return Unreachable(f"{url} answers {status}, so it is no brokerha node, or one of another version: {text[:200]}")


def unreachable(url: str, error: Exception) -> Unreachable:
    """What a failed exchange with a node is to the caller."""
    return Unreachable(f"{url}: {str(error) or type(error).__name__}")
