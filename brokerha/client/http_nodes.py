"""Which of several nodes is asked over HTTP, or all of them, and what their answers mean.

One node is asked as long as it serves; when it fails the next one is, and so on round the list. Only what another node, or
the same one a little later, may do better is tried again: a node that is away, restarting or full. Everything else is
the answer.

Writes divide themselves: whenever none is under way, the next may go anywhere without losing its place after the one before, so
`choose` takes any of the nodes that answer writes about as fast as the fastest: a near one, one with little load. What is known of a node
fades, so that one that was slow is tried again. No write is spent to find out about a node: before the first one all are asked whether they
take writes and are not alone (`greet`), the first to say so gets it, and nobody gets any before it has said so. One that failed is asked the
same, beside the writes, before it gets any again.

A question about what one of them may know goes to several:

    ask_everywhere       to all at once: what those said that answered; a node that is frozen costs the others no time
    ask_until_known      one after the other: what became of a transaction, from the first that knows it

| a node says of a transaction | means |
|---|---|
| what became of it | the answer |
| NotFound | unknown there; another master, the one that began it, may know that it was rolled back |
| NotReady, NotPrimary | it speaks for no master now |
| nothing (Unreachable, TimedOut) | it may be the one that knows: ask again while there is time |

Must never: call a transaction unknown while a node that may know it was not heard.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from urllib.parse import urlsplit

from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_before_delay, stop_when_event_set, wait_fixed

from brokerha.model.errors import (
    BrokerhaError,
    ConfigurationError,
    NotFound,
    NotReady,
    TimedOut,
    Unreachable,
    error_named,
    may_pass,
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
SILENT_S: Final = 4.0
"""How long one of several nodes may take to answer a question to all."""
ROUND_PAUSE_S: Final = 0.2
"""Before all of them are asked again."""
_GATEWAY_STATUSES = frozenset({502, 503, 504})

T = TypeVar("T")


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
        if not self.urls or not all(map(_is_address, self.urls)):
            raise ConfigurationError(f"{', '.join(urls) or 'nothing'!r} is no address: write http://host:port, several with commas")
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


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # Of a port that is no number up to 65535, or of half an IPv6 address.
        return False


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
    told = Unreachable(f"{url}: {str(error) or type(error).__name__}")
    told.remedy = getattr(error, "remedy", "")
    return told


def of_all(problems: Mapping[str, BrokerhaError]) -> BrokerhaError:
    """What is told when every node failed, the latest last: that one, or all of them where none was reached: who reads it may take one for the only one.

    >>> of_all({"a": Unreachable("a: refused"), "b": Unreachable("b: no route")})
    Unreachable('a: refused; b: no route')
    """
    *_, last = problems.values()
    if not all(isinstance(each, Unreachable) for each in problems.values()):
        return last
    told = Unreachable("; ".join(dict.fromkeys(map(str, problems.values()))))
    remedies = {getattr(each, "remedy", "") for each in problems.values()}
    told.remedy = remedies.pop() if len(remedies) == 1 else ""
    return told


def ask_everywhere(urls: Sequence[str], ask: Callable[[str], T]) -> dict[str, T]:
    """What each node answers, without those that fail. Raises what `of_all` tells when all do.

    >>> ask_everywhere(["a", "b"], str.upper)
    {'a': 'A', 'b': 'B'}
    """
    answers: dict[str, T] = {}
    problems: dict[str, BrokerhaError] = {}
    with ThreadPoolExecutor(len(urls), thread_name_prefix="brokerha everywhere") as threads:
        asked = {url: threads.submit(ask, url) for url in urls}
        for url, future in asked.items():
            try:
                answers[url] = future.result()
            except BrokerhaError as error:
                problems[url] = error
    if not answers and problems:
        raise of_all(problems)
    return answers


def ask_until_known(
    urls: Sequence[str], ask: Callable[[str, float], T], deadline_s: float, closing: threading.Event
) -> tuple[str, T] | None:
    """Who knows it, and the answer; None when all that could be asked do not know it. Raises what a node said that was not heard.

    ``ask`` gets a node and the moment until which it may take; ``closing`` ends a pause, and the rounds.
    """
    rounds = Retrying(
        retry=retry_if_exception(_may_pass),
        wait=wait_fixed(ROUND_PAUSE_S),
        stop=stop_before_delay(deadline_s - time.monotonic()) | stop_when_event_set(closing),
        sleep=sleep_using_event(closing),
        reraise=True,
    )
    return rounds(_one_round, urls, ask, deadline_s)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, (Unreachable, TimedOut)) or (isinstance(error, BrokerhaError) and may_pass(error))


def _one_round(urls: Sequence[str], ask: Callable[[str, float], T], deadline_s: float) -> tuple[str, T] | None:
    is_unknown = False
    problem: BrokerhaError | None = None
    refused: BrokerhaError = Unreachable("no node was asked")
    for url in urls:
        now_s = time.monotonic()
        try:
            return url, ask(url, now_s + max(0.001, deadline_s - now_s) / len(urls))
        except NotFound:
            is_unknown = True
        except TimedOut as error:
            problem = error
        except NotReady as error:
            refused = error
        except BrokerhaError as error:
            problem = error
    if problem is None and is_unknown:
        return None
    raise problem or refused
