"""``brokerha up``: a whole cluster on this machine, one process for each node, until Ctrl-C.

    start masters, then workers  -->  all ready: one line with the URLs  -->  Ctrl-C: workers first, then masters

A node that ends before all are ready ends the whole: its last lines say why. Later, one that ends is named and the others go
on, as they would on machines of their own; ``--restart`` starts it again after a pause that doubles. A process is never
restarted for being slow: a node that waits for its broker is not ready, and says so.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits, logs
from brokerha.cli.common.options import DEFAULT_CONFIG, ClusterFileOption
from brokerha.cli.machine.children import Children, Ended, Event, Ready, Stop
from brokerha.cli.machine.readiness import wait_until_ready

if TYPE_CHECKING:
    from types import FrameType

    from brokerha.nodes.config.cluster import ClusterConfig

RESTART_FIRST_S = 0.5
RESTART_MOST_S = 30.0
STEADY_S = 60.0
"""A child that lived this long begins with the shortest pause again."""
COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""ANSI colours of the names, one node after the other."""


def up(
    config: ClusterFileOption = DEFAULT_CONFIG,
    restart: Annotated[bool, typer.Option("--restart", help="Start a node that ended again, after a pause.")] = False,
    stop_timeout_s: Annotated[
        float,
        typer.Option("--stop-timeout-s", metavar="SECONDS", min=0.1, help="How long nodes have to stop by themselves."),
    ] = 15.0,
) -> int:
    """Start every node of a cluster file on this machine.

    One process each; each line begins with its name; Ctrl-C stops them in order.

    With broker = "embedded://" all nodes run in this one process.
    """
    from brokerha.nodes.config.cluster import load_config

    cluster = load_config(config, os.environ)
    if cluster.is_embedded:
        return _serve_embedded(cluster)
    return Up(cluster, partial(node_command, config), restart=restart, stop_timeout_s=stop_timeout_s).run()


def node_command(path: Path, node_id: str) -> list[str]:
    """The command that runs one node, with the Python that runs us."""
    return [sys.executable, "-m", "brokerha", "node", node_id, "-c", str(path)]


def _serve_embedded(cluster: ClusterConfig) -> int:
    from brokerha.embedded import serve

    logs.to_stderr(logs.NODE)
    stopped = threading.Event()
    waiting = threading.Thread(
        target=wait_until_ready,
        args=(cluster.http_urls(), stopped, lambda: _say_ready(cluster), _say_missing),
        daemon=True,
    )
    waiting.start()
    try:
        return serve(cluster)
    finally:
        stopped.set()


class Up:
    """One run of the command: children, events, and what is to be restarted when."""

    def __init__(
        self,
        cluster: ClusterConfig,
        command_of: Callable[[str], Sequence[str]],
        *,
        restart: bool,
        stop_timeout_s: float,
    ) -> None:
        self._cluster = cluster
        self._command_of = command_of
        """What runs a node, by its id."""
        self._restarts = restart
        self._stop_timeout_s = stop_timeout_s
        processes = [*(master.id for master in cluster.masters), *(backup.id for backup in cluster.backups)]
        self._groups = ([worker.id for worker in cluster.workers], processes)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._children = Children(self._events, Lines([*self._groups[1], *self._groups[0]]).write)
        self._stopped = threading.Event()
        self._is_ready = False
        self._pauses: dict[str, float] = {}
        self._due: dict[str, float] = {}
        """When which child is started again, by the monotonic clock."""

    def run(self) -> int:
        """Start, watch, stop; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        code = exits.FAILED
        try:
            for name in (*self._groups[1], *self._groups[0]):
                self._start(name)
            waiting = (self._cluster.http_urls(), self._stopped, lambda: self._events.put(Ready()), _say_missing)
            threading.Thread(target=wait_until_ready, args=waiting, name="readiness", daemon=True).start()
            code = self._watch()
        finally:
            self._stopped.set()
            killed = self._children.stop(self._groups, self._stop_timeout_s)
            for name in killed:
                exits.say(f"{name} did not stop within {self._stop_timeout_s:g} s and was killed; its data is safe")
        return code

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._events.put(Stop(signal.Signals(number).name))

    def _start(self, name: str) -> None:
        self._children.start(name, self._command_of(name))

    def _watch(self) -> int:
        """Serve events until there is a reason to end."""
        while True:
            event = self._next_event()
            if isinstance(event, Stop):
                exits.say(f"{event.signal_name}: stopping workers, then masters")
                return exits.DONE
            if isinstance(event, Ready):
                self._is_ready = True
                _say_ready(self._cluster)
            elif isinstance(event, Ended) and (code := self._on_ended(event)) is not None:
                return code

    def _next_event(self) -> Event | None:
        """The next event; starts what is due for a restart while it waits."""
        wait_s = max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None
        try:
            return self._events.get(timeout=wait_s)
        except queue.Empty:
            for name in [name for name, at in self._due.items() if at <= time.monotonic()]:
                del self._due[name]
                exits.say(f"starting {name} again")
                self._start(name)
            return None

    def _on_ended(self, ended: Ended) -> int | None:
        """What follows from the end of a child: an exit code, or None to go on."""
        child = self._children[ended.name]
        how = f"signal {signal.Signals(-ended.code).name}" if ended.code < 0 else f"exit code {ended.code}"
        last = "".join(f"\n    {line}" for line in child.last)
        exits.say(f"{ended.name} ended with {how}; its last lines:{last or ' none'}")
        if ended.code == exits.CONFIGURATION or (not self._is_ready and not self._restarts):
            return exits.CONFIGURATION if ended.code == exits.CONFIGURATION else exits.FAILED
        if self._restarts:
            lived_s = time.monotonic() - child.started_at_s
            pause = self._pauses.get(ended.name, 0.0) * 2 if lived_s < STEADY_S else 0.0
            self._pauses[ended.name] = min(max(pause, RESTART_FIRST_S), RESTART_MOST_S)
            self._due[ended.name] = time.monotonic() + self._pauses[ended.name]
            return None
        if not self._children.running:
            exits.say("no node is left")
            return exits.FAILED
        return None


class Lines:
    """Prefixes the lines of each node with its name; coloured on a terminal, unless NO_COLOR is set."""

    def __init__(self, names: list[str]) -> None:
        self._lock = threading.Lock()
        width = max(map(len, names), default=0)
        is_coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._prefixes = {name: f"{name:<{width}} | " for name in names}
        if is_coloured:
            for place, name in enumerate(names):
                self._prefixes[name] = f"\x1b[{COLOURS[place % len(COLOURS)]}m{self._prefixes[name]}\x1b[0m"

    def write(self, name: str, line: str) -> None:
        """One whole line; callable from any thread."""
        with self._lock:
            sys.stderr.write(f"{self._prefixes[name]}{line}\n")
            sys.stderr.flush()


def _say_ready(cluster: ClusterConfig) -> None:
    urls = ", ".join(f"{name} {url}" for name, url in cluster.http_urls().items())
    print(f"ready: {urls or 'all nodes are started; none has an http address'}", flush=True)


def _say_missing(reasons: dict[str, str]) -> None:
    exits.say("not ready yet: " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
