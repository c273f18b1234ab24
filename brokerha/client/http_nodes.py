"""Which of several nodes to ask over HTTP, or all of them, and the meaning of their answers.

One node is asked as long as it serves. When it fails, the next one in the list is asked, round and round. A request is repeated
only when another node, or the same one later, can succeed: after a node was away, restarting or full. Every other error is the
answer.

Writes spread: whenever none is open, the next one can go to another node and still keep its order. Then `choose` picks one of the
nodes that are about as fast as the fastest: near, or with little load. Measurements fade, so that a slow node is tried again. No
write is spent on testing a node. Before the first write, all nodes are asked whether they take writes and are not alone (`greet`);
the first that agrees gets the write. Others get writes only after they agree, and a failed node is asked again the same way.

A question that only some nodes can answer goes to several:

    ask_everywhere       all at once: the answers of those that answered; a frozen node does not delay the others
    ask_until_known      one after the other: the outcome of a transaction, from the first node that knows it

| answer about a transaction | meaning |
|---|---|
| the outcome | the answer |
| NotFound | unknown there; the master that began it can know that it was rolled back |
| NotReady, NotPrimary | the node speaks for no master now |
| none (Unreachable, TimedOut) | the node can be the one that knows: ask again while there is time |

Must never: call a transaction unknown before every node that can know it was heard.
"""

from __future__ import annotations

import contextlib
import http.client
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
"""Nodes that are at most this many times slower than the fastest get equally many writes."""
FADING_S = 5.0
"""Half-life of the measured time of a node that gets no writes."""
SMOOTHING = 0.3
GREETING_S = 1.0
"""Longest wait of the first write for a node that takes writes; then the first node of the list gets it."""
TROUBLE_FIRST_S = 1.0
TROUBLE_MOST_S = 30.0
"""Time until a failed node is asked again whether it takes writes, after the first failure and after many."""
SILENT_S: Final = 4.0
"""Time that one of several nodes has to answer a question to all."""
ROUND_PAUSE_S: Final = 0.2
"""Pause before all nodes are asked again."""
_GATEWAY_STATUSES = frozenset({502, 503, 504})

T = TypeVar("T")


class _Standing:
    """Knowledge about one node."""

    __slots__ = ("ask_at_s", "failures", "noted_s", "seconds")

    def __init__(self) -> None:
        self.seconds: float | None = None
        """Measured time of a write; 0 after the first one, which had to connect, and None before it."""
        self.noted_s = 0.0
        self.failures = 0
        self.ask_at_s: float | None = 0.0
        """Time of the next question whether the node takes writes; None once it has agreed."""

    def expected_s(self, now_s: float) -> float:
        return float((self.seconds or 0.0) * self._kept(now_s))

    def note(self, seconds: float, now_s: float) -> None:
        known = (1 - SMOOTHING) * self._kept(now_s) if self.seconds else 0.0
        self.seconds = 0.0 if self.seconds is None else known * self.seconds + (1 - known) * seconds
        self.noted_s = now_s

    def _kept(self, now_s: float) -> float:
        """Return the weight of the earlier measurement."""
        return float(0.5 ** ((now_s - self.noted_s) / FADING_S))

    def fail(self, now_s: float) -> None:
        self.failures += 1
        self.ask_at_s = now_s + min(TROUBLE_MOST_S, TROUBLE_FIRST_S * 2 ** min(self.failures - 1, 10))


class HttpNodes:
    """Base URLs in turn; all methods can be called from any thread."""

    def __init__(
        self,
        urls: Sequence[str],
        draw: Callable[[], float] = random.random,
        is_writable: Callable[[str], bool] = lambda _url: True,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``is_writable`` asks a node whether it takes writes, in a separate thread; it must end."""
        self.urls = tuple(dict.fromkeys(url.strip().rstrip("/") for url in urls if url.strip()))
        if not self.urls or not all(map(_is_address, self.urls)):
            raise ConfigurationError(f"{', '.join(urls) or 'nothing'!r} is no address: write http://host:port, several with commas")
        self._draw = draw
        self._is_writable = is_writable
        self._clock_s = clock_s
        self._standing = {url: _Standing() for url in self.urls}
        self._is_greeted = len(self.urls) == 1
        self._found = threading.Event()
        """Set when one node takes writes, or when all do not."""
        self._lock = threading.Lock()
        self._place = 0
        self._failures = 0

    @property
    def current(self) -> str:
        """The node to ask now."""
        return self.urls[self._place % len(self.urls)]

    def greet(self) -> None:
        """Ask all nodes once whether they take writes, and begin with the first that does. Called by the sending thread."""
        if not self._is_greeted:
            self._is_greeted = True
            with self._lock:
                self._ask_due()
            self._found.wait(GREETING_S)
            with self._lock:
                # A node that answers later is chosen when no write is open.
                well = [place for place, url in enumerate(self.urls) if self._standing[url].ask_at_s is None]
                self._place = well[0] if well else self._place

    def choose(self) -> str:
        """Choose the node for the next write, when no write is open; it becomes `current`."""
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
        """Start to ask the nodes whose time has come; return the time."""
        now_s = self._clock_s()
        for url, standing in self._standing.items():
            if standing.ask_at_s is not None and standing.ask_at_s <= now_s:
                standing.ask_at_s = now_s + TROUBLE_MOST_S
                threading.Thread(target=self._ask, args=(url,), name="brokerha writable", daemon=True).start()
        return now_s

    def _ask(self, url: str) -> None:
        """Ask whether a new or failed node takes writes."""
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
        """Note the time in which a node answered a write."""
        with self._lock:
            self._standing[url].note(seconds, self._clock_s())

    def on_served(self, url: str) -> None:
        """Note that a node did what was asked of it."""
        if self._failures and url == self.current:
            self._failures = 0

    def on_failed(self, url: str) -> float:
        """Note that a node failed, and move to the next one. Return how many seconds to wait before it is asked."""
        with self._lock:
            # Several threads can fail at the same node; only the first one moves on.
            if url == self.current:
                self._standing[url].fail(self._clock_s())
                self._place += 1
                self._failures += 1
            rounds = self._failures // len(self.urls)
        if self._failures % len(self.urls) and len(self.urls) > 1:
            return 0.0
        # Jitter, because all clients of a restarting node fail at the same moment.
        return float(min(PAUSE_MOST_S, PAUSE_FIRST_S * 2 ** min(rounds, 10)) * (0.5 + self._draw() / 2))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # Port not a number up to 65535, or a broken IPv6 address.
        return False


def error_of_answer(url: str, status: int, headers: Mapping[str, str], body: bytes) -> BrokerhaError | None:
    """Return the error of an HTTP answer; None for success."""
    if status < 300:
        return None
    if status < 400:
        where = headers.get("location") or "nowhere"
        return Unreachable(f"{url} answers {status} and sends to {where}: give the address of the node itself", None)
    text = body.decode("utf-8", "replace").strip()
    name = headers.get("brokerha-error", "")
    if name and headers.get("content-type", "").startswith("application/json"):
        # A client that asks for JSON gets errors as JSON too; people see only the sentence.
        with contextlib.suppress(ValueError, AttributeError):
            text = str(json.loads(body).get("text", text))
    if name:
        lsn = headers.get("brokerha-lsn", "0")
        return error_named(name, text, headers.get("brokerha-tx", ""), int(lsn) if lsn.isdecimal() else 0)
    if status in _GATEWAY_STATUSES:
        return NotReady(f"{url} answers {status}: the node behind it is not there")
    if status >= 500:
        return BrokerhaError(f"{url} answers {status}: {text[:200]}")
    return Unreachable(f"{url} answers {status}, so it is no brokerha node, or one of another version: {text[:200]}")


def strange(url: str, headers: Mapping[str, str], body: bytes) -> Unreachable:
    """Return the caller's error for a successful answer that no node gives."""
    what = f"{len(body)} bytes of {headers.get('content-type') or 'no content type'}" if body else "nothing"
    return Unreachable(f"{url} answers with {what}, so it is no brokerha node, or a proxy answers in its place")


def unreachable(url: str, error: Exception) -> Unreachable:
    """Return the caller's error for a failed exchange with a node."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, http.client.IncompleteRead):
        text = "its answer was cut off"
    elif isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        text = f"what answers there does not speak HTTP: {text[:100]!r}"
    return Unreachable(f"{url}: {text}", getattr(error, "remedy", ""))


def of_all(problems: Mapping[str, BrokerhaError]) -> BrokerhaError:
    """Return the error to raise when every node failed: that of the last node that answered, or one that names all nodes.

    >>> of_all({"a": Unreachable("a: refused"), "b": Unreachable("b: no route")})
    Unreachable('a: refused; b: no route')
    >>> from brokerha.model.errors import NotPrimary
    >>> of_all({"a": NotPrimary("a is a backup"), "b": Unreachable("b: no route")})
    NotPrimary('a is a backup')
    """
    if answered := [each for each in problems.values() if not isinstance(each, Unreachable)]:
        return answered[-1]
    remedies = {getattr(each, "remedy", "") for each in problems.values()}
    return Unreachable("; ".join(dict.fromkeys(map(str, problems.values()))), remedies.pop() if len(remedies) == 1 else "")


def ask_everywhere(urls: Sequence[str], ask: Callable[[str], T]) -> dict[str, T]:
    """Return the answer of each node, without failed ones. Raises the error of `of_all` when all fail.

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
    """Return the node that knows, and its answer; None when every reachable node says unknown. Raises an unheard node's error.

    ``ask`` gets a node and its deadline; ``closing`` ends a pause, and the rounds.
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
    problems: dict[str, BrokerhaError] = {}
    refused: BrokerhaError = Unreachable("no node was asked")
    for url in urls:
        now_s = time.monotonic()
        try:
            return url, ask(url, now_s + max(0.001, deadline_s - now_s) / len(urls))
        except NotFound:
            is_unknown = True
        except TimedOut as error:
            problems[url] = error
        except NotReady as error:
            refused = error
        except BrokerhaError as error:
            problems[url] = error
    if not problems and is_unknown:
        return None
    raise of_all(problems) if problems else refused
