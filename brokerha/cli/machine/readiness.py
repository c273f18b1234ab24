"""Asks nodes over HTTP whether they serve, until all of them do. A master without workers serves no reads, ever, and is not waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from brokerha.cli.common import exits
from brokerha.nodes.observing.check_lines import NO_WORKER_LINE

POLL_S = 0.2
ANSWER_TIMEOUT_S = 3.0
TELL_EVERY_S = 10.0
"""How often the nodes that are missing are named."""


def missing(urls: Mapping[str, str]) -> dict[str, str]:
    """Nodes that are not ready, each with the reason."""
    reasons = {name: _reason(url) for name, url in urls.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(url: str) -> str:
    """Why a node is not ready; empty when it is."""
    import http.client  # brings ssl and email with it
    import ssl

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    if parts.scheme == "https":
        # Nothing secret is said or learned, and a certificate need not name the address that this machine has for itself.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_TIMEOUT_S, context=context)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(4096).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return ""
    bad = [line.strip() for line in text.splitlines() if line.startswith("[-]")]
    if bad == [NO_WORKER_LINE]:
        return ""
    return ", ".join(bad) or f"HTTP {answer.status}"


def wait_until_ready(
    urls: Mapping[str, str],
    stopped: threading.Event,
    on_ready: Callable[[], None],
    on_missing: Callable[[dict[str, str]], None],
) -> None:
    """Ask again until all are ready or ``stopped`` is set; runs in a thread of its own.

    A listening socket cannot be waited for from outside, so this one asks in turns.
    """
    left = dict(urls)
    told_at_s = time.monotonic()
    while left:
        reasons = missing(left)
        left = {name: url for name, url in left.items() if name in reasons}
        if left and time.monotonic() - told_at_s >= TELL_EVERY_S:
            told_at_s = time.monotonic()
            on_missing(reasons)
        if left and stopped.wait(POLL_S):
            return
    on_ready()


def say_ready(urls: Mapping[str, str]) -> None:
    """One line on standard output."""
    listed = ", ".join(f"{name} {url}" for name, url in urls.items())
    print(f"ready: {listed or 'all nodes are started; none has an http address'}", flush=True)


def say_missing(reasons: Mapping[str, str]) -> None:
    """Who is not ready, and why."""
    exits.say("not ready yet: " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
