"""Which of several nodes is asked over HTTP, and what its answers mean.

One node is asked as long as it serves; when it fails the next one is, and so on round the list. Only what another node, or
the same one a little later, may do better is tried again: a node that is away, restarting or full. Everything else is
the answer.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping, Sequence

from brokerha.model.errors import (
    BrokerhaError,
    ConfigurationError,
    JournalError,
    NotPrimary,
    NotReady,
    StoreError,
    Unreachable,
    error_named,
)

PAUSE_FIRST_S = 0.05
PAUSE_MOST_S = 1.0
_GATEWAY_STATUSES = frozenset({502, 503, 504})


class HttpNodes:
    """Base URLs in turn; callable from any thread."""

    def __init__(self, urls: Sequence[str], draw: Callable[[], float] = random.random) -> None:
        self.urls = tuple(dict.fromkeys(url.strip().rstrip("/") for url in urls if url.strip()))
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise ConfigurationError(
                f"{', '.join(urls) or 'nothing'!r} is no address: write http://host:port, several with commas"
            )
        self._draw = draw
        self._lock = threading.Lock()
        self._place = 0
        self._failures = 0

    @property
    def current(self) -> str:
        """The node that is asked now."""
        return self.urls[self._place % len(self.urls)]

    def on_served(self, url: str) -> None:
        """A node did what was asked of it."""
        if self._failures and url == self.current:
            self._failures = 0

    def on_failed(self, url: str) -> float:
        """A node failed: ask the next one. Returns how long to wait before that, in seconds."""
        with self._lock:
            # Several threads may have failed at the same node; only the first one moves on.
            if url == self.current:
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
        # Whoever asks for JSON gets errors in it too; what is shown to people is the sentence.
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


def may_pass(error: BrokerhaError) -> bool:
    """Whether the same request may succeed at another node, or here a little later."""
    return type(error) in {NotReady, NotPrimary} or isinstance(error, (StoreError, JournalError))
