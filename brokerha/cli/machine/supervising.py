"""The processes of ``brokerha up``: one for each node, watched until there is a reason to end.

    start masters, then workers  -->  all ready: one line with the URLs  -->  Ctrl-C: workers first, then masters

When a node ends before all are ready, the whole command ends and shows its last lines. Later, a node that ends is reported and the
others go on, as they would on separate machines. With ``--restart`` it is started again after a pause that doubles. A slow process
is never restarted: a node that waits for its broker is not ready, and says so.

Each process has its own process group, so that Ctrl-C in a terminal reaches only this command, which stops the nodes in order.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from brokerha.cli.common import exits
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.observing.probes import NO_WORKER_LINE

RESTART_FIRST_S = 0.5
RESTART_MOST_S = 30.0
STEADY_S = 60.0
"""A node that lived this long gets the shortest pause again."""
LAST_LINES = 12
"""Lines that are shown of a node that ended by itself."""
LINE_LIMIT_BYTES = 64 * 1024
"""Longer lines are cut, so that no node can fill this process's memory."""
COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""ANSI colours of node names, in turn."""


class Up:
    """One run of the command."""

    def __init__(
        self, cluster: ClusterConfig, command_of: Callable[[str], Sequence[str]], *, restart: bool, stop_timeout_s: float
    ) -> None:
        """``command_of`` returns the command of a node, by its id."""
        self._urls = cluster.http_urls()
        self._command_of = command_of
        self._restarts = restart
        self._stop_timeout_s = stop_timeout_s
        self._masters = [*(master.id for master in cluster.masters), *(backup.id for backup in cluster.backups)]
        self._workers = [worker.id for worker in cluster.workers]
        self._lines = Lines([*self._masters, *self._workers])
        self._running: dict[str, Process] = {}
        self._stopped = threading.Event()
        self._is_ready = False

    def run(self) -> int:
        """Start, watch and stop the nodes; return the exit code."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        self._reason: asyncio.Future[int] = loop.create_future()
        """The exit code, set when there is a reason to end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        nodes = [asyncio.create_task(self._attend(name)) for name in (*self._masters, *self._workers)]
        for node in nodes:
            node.add_done_callback(self._on_unattended)
        waiting = (self._urls, self._stopped, lambda: loop.call_soon_threadsafe(self._on_ready), say_missing)
        threading.Thread(target=wait_until_ready, args=waiting, name="readiness", daemon=True).start()
        try:
            return await self._reason
        finally:
            self._stopped.set()
            for group in (self._workers, self._masters):
                await self._stop(group)
            for node in nodes:
                node.cancel()

    def _on_signal(self, number: signal.Signals) -> None:
        exits.say(f"{signal.Signals(number).name}: stopping workers, then masters")
        self._end(exits.DONE)

    def _on_ready(self) -> None:
        self._is_ready = True
        say_ready(self._urls, self._masters)

    def _on_unattended(self, node: asyncio.Task[None]) -> None:
        if not node.cancelled() and (error := node.exception()) is not None and not self._reason.done():
            self._reason.set_exception(error)

    def _end(self, code: int) -> None:
        if not self._reason.done():
            self._reason.set_result(code)

    async def _attend(self, name: str) -> None:
        """Run a node until it must not be started again."""
        pause_s = 0.0
        while True:
            started_s, last = time.monotonic(), deque[str](maxlen=LAST_LINES)
            process = await asyncio.create_subprocess_exec(
                *self._command_of(name), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
            )
            self._running[name] = process
            if self._stopped.is_set():
                process.terminate()
            if process.stdout is not None:
                async for line in _lines_of(process.stdout):
                    last.append(line)
                    self._lines.write(name, line)
            code = await process.wait()
            del self._running[name]
            if self._stopped.is_set() or not self._goes_on(name, code, last):
                return
            pause_s = pause_s * 2 if time.monotonic() - started_s < STEADY_S else 0.0
            pause_s = min(max(pause_s, RESTART_FIRST_S), RESTART_MOST_S)
            await asyncio.sleep(pause_s)
            exits.say(f"starting {name} again")

    def _goes_on(self, name: str, code: int, last: Sequence[str]) -> bool:
        """Report how a node ended, and tell whether to restart it. When no node is left, end the command."""
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        told = "".join(f"\n    {line}" for line in last) or " none"
        exits.say(f"{name} ended with {how}; its last lines:{told}")
        if code == exits.CONFIGURATION:
            self._end(exits.CONFIGURATION)
        elif self._restarts:
            return True
        elif not self._is_ready:
            self._end(exits.FAILED)
        elif not self._running:
            exits.say("no node is left")
            self._end(exits.FAILED)
        return False

    async def _stop(self, names: Sequence[str]) -> None:
        """Stop nodes concurrently, in order; kill those that take too long."""
        processes = {name: self._running[name] for name in names if name in self._running}
        for process in processes.values():
            process.terminate()
        ended = [asyncio.create_task(process.wait(), name=name) for name, process in processes.items()]
        _, late = await asyncio.wait(ended, timeout=self._stop_timeout_s) if ended else ((), ())
        for waiting in late:
            name = waiting.get_name()
            processes[name].kill()
            await waiting
            exits.say(f"{name} did not stop within {self._stop_timeout_s:g} s and was killed; its data is safe")


async def _lines_of(output: asyncio.StreamReader) -> AsyncIterator[str]:
    rest = b""
    while chunk := await output.read(LINE_LIMIT_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) >= LINE_LIMIT_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace")


class Lines:
    """Prefixes the lines of each node with its name; coloured on a terminal, unless NO_COLOR is set."""

    def __init__(self, names: list[str]) -> None:
        width = max(map(len, names), default=0)
        is_coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._prefixes = {name: f"{name:<{width}} | " for name in names}
        if is_coloured:
            for place, name in enumerate(names):
                self._prefixes[name] = f"\x1b[{COLOURS[place % len(COLOURS)]}m{self._prefixes[name]}\x1b[0m"

    def write(self, name: str, line: str) -> None:
        """Write one whole line."""
        sys.stderr.write(f"{self._prefixes[name]}{line}\n")
        sys.stderr.flush()


# ---- readiness: ask all nodes over HTTP until they serve. A master without workers never does; it is not awaited.

POLL_S = 0.2
ANSWER_TIMEOUT_S = 3.0
TELL_EVERY_S = 10.0
"""Interval of messages about missing nodes."""


def missing(urls: Mapping[str, str]) -> dict[str, str]:
    """Return the nodes that are not ready, each with the reason."""
    reasons = {name: _reason(url) for name, url in urls.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(url: str) -> str:
    """Return why a node is not ready; empty when it is."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    if parts.scheme == "https":
        # Nothing secret is exchanged, and the certificate does not always name this machine's own address.
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
    urls: Mapping[str, str], stopped: threading.Event, on_ready: Callable[[], None], on_missing: Callable[[dict[str, str]], None]
) -> None:
    """Ask again until all are ready or ``stopped`` is set; runs in its own thread.

    A process cannot wait for another's listening socket, so this one polls.
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


def say_ready(urls: Mapping[str, str], masters: Iterable[str]) -> None:
    """Print one line on standard output: the nodes that are ready, and the masters that nobody could ask.

    A master is ready when one of its workers is.
    """
    told = ["ready: " + ", ".join(f"{name} {url}" for name, url in urls.items())] if urls else []
    if silent := [name for name in masters if name not in urls]:
        told.append(
            f"started: {', '.join(silent)}, without an http address: whether they are ready is not known; ask brokerha status"
        )
    print("; ".join(told), flush=True)


def say_missing(reasons: Mapping[str, str]) -> None:
    """Report the nodes that are not ready, with the reasons."""
    exits.say("not ready yet: " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
