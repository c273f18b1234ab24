"""Child processes of ``brokerha up``: one for each node, their lines, their ends.

    child ---- output ----> reader thread ---+
    child ---- end -------> reader thread ---+--> one queue of events --> the loop of up.py
    signals, readiness ----------------------+

Each child has a process group of its own, so that Ctrl-C in a terminal reaches us alone and the nodes are stopped in
order. The last lines of a child are kept: they say why it ended. Nothing here knows what a node does.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

LAST_LINES = 12
"""Lines that are shown of a child that ended by itself."""
LINE_LIMIT_BYTES = 64 * 1024
"""Longer lines are cut: no child can fill our memory."""


class Ended(NamedTuple):
    """A child is gone."""

    name: str
    code: int
    """Exit code; negative for the signal that ended it."""


class Ready(NamedTuple):
    """All nodes answer."""


class Stop(NamedTuple):
    """A signal asked us to stop."""

    signal_name: str


Event = Ended | Ready | Stop


class Child:
    """One node as a process, and the thread that reads what it says."""

    def __init__(self, name: str, command: Sequence[str], on_line: Callable[[str, str], None]) -> None:
        self.name = name
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.started_at_s = time.monotonic()
        self._on_line = on_line
        self.process = subprocess.Popen(  # noqa: S603  (our own program)
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
        )

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process.poll() is None

    def read(self, events: queue.SimpleQueue[Event]) -> None:
        """Pass all lines on until the process ends; then tell it. Runs in a thread of its own."""
        output = self.process.stdout
        if output is not None:
            with output:
                for raw in iter(lambda: output.readline(LINE_LIMIT_BYTES), b""):
                    line = raw.decode("utf-8", "replace").rstrip("\r\n")
                    self.last.append(line)
                    self._on_line(self.name, line)
        events.put(Ended(self.name, self.process.wait()))

    def ask_to_stop(self) -> None:
        """SIGTERM; nothing happens when it is gone."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)


class Children:
    """All children, by name."""

    def __init__(self, events: queue.SimpleQueue[Event], on_line: Callable[[str, str], None]) -> None:
        self._events = events
        self._on_line = on_line
        self._children: dict[str, Child] = {}

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a child, or start it again."""
        child = Child(name, command, self._on_line)
        self._children[name] = child
        threading.Thread(target=child.read, args=(self._events,), name=f"{name} output", daemon=True).start()

    def __getitem__(self, name: str) -> Child:
        """The child of this name."""
        return self._children[name]

    @property
    def running(self) -> list[str]:
        """Names of those that live."""
        return [name for name, child in self._children.items() if child.is_running]

    def stop(self, groups: Iterable[Sequence[str]], timeout_s: float) -> list[str]:
        """Stop group after group, in the order given; returns those that had to be killed.

        Each group has ``timeout_s`` to end by itself.
        """
        killed: list[str] = []
        for group in groups:
            members = [self._children[name] for name in group if name in self._children]
            for child in members:
                child.ask_to_stop()
            deadline = time.monotonic() + timeout_s
            for child in members:
                try:
                    child.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    child.process.kill()
                    child.process.wait()
                    killed.append(child.name)
        return killed
