"""Guards the machine and the site against growing memory, and against reads and writes that never end: no thread can stop them.

The engine cannot be stopped while it evaluates. Over a damaged table it can evaluate for ever, and take hundreds of MB a second
(stores/rdf/errors.py). Only the end of the process ends that, and a supervisor starts it again. The guard checks once a second:

    memory over half of the limit         a warning in the log
    memory over the limit                 reads are refused, and the process must be left at once
    reads that began before damage was found go on `grace_s` later              the process must be started again
    a decision is with the store for longer than `store_patience_s`, while the copy is damaged, memory is over
    half of its limit, or the thread only waits (a flush over damaged tables)   the process must be started again

A node alone in its process ends the process (serving.py). A cluster in one process does not end its host: it logs, and refuses
reads until the memory is free again. Memory of mapped files does not count: the system takes it back by itself.

This module has no thread and no clock: the loop of the worker calls it with its observations.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from brokerha.nodes.worker.limits import GuardLimits

log = structlog.get_logger()

MIB: Final = 1024 * 1024
LOOK_EVERY_S: Final = 1.0


class Seen(NamedTuple):
    """Observations of a worker about itself."""

    is_damaged: bool
    store_busy_s: float
    """Time that the store has spent on its present decision; 0 when it has none."""
    idle_s: float
    """The same if the thread hardly computed meanwhile; work beside the store counts too."""
    reads_left: int
    """Number of running reads that began before the damage was found."""


def own_memory_bytes() -> int:
    """Return the private memory of this process, including swap, without mapped files; 0 when the system does not tell."""
    found = 0
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(("RssAnon:", "VmSwap:")):
                found += int(line.split()[1]) * 1024
    return found


def machine_memory_bytes() -> int:
    """Return the memory of this machine, or the share of this process (cgroup 2); 0 when the system does not tell."""
    found = 0
    with suppress(OSError, ValueError, AttributeError):
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return max(found, 0)


class Guard:
    """Guard of one worker."""

    def __init__(self, limits: GuardLimits, name: str, memory: Callable[[], int] = own_memory_bytes) -> None:
        self.limits = limits
        self.memory_bytes = 0
        """As of the last look."""
        self.over_memory = ""
        """Why no more reads can be evaluated; empty while there is memory."""
        self._name = name
        self._memory = memory
        self._endless = ""
        self._is_warned = self._is_slow = False
        self._left_since_s: float | None = None
        self._next_s = 0.0

    @property
    def must_restart(self) -> str:
        """Return why this process must be restarted; empty while all is well."""
        return self.over_memory or self._endless

    def is_due(self, now_s: float) -> bool:
        """Tell whether the next look is due."""
        return now_s >= self._next_s

    def look(self, now_s: float, seen: Seen) -> None:
        """Look once; ``now_s`` is from a monotonic clock."""
        self._next_s = now_s + LOOK_EVERY_S
        before = self._endless
        self._mind_memory()
        self._mind_reads(now_s, seen)
        self._mind_store(seen)
        if self._endless and not before:
            log.error("something never ends", node=self._name, reason=self._endless)

    def _mind_memory(self) -> None:
        # The limit can be lifted at run time.
        self.memory_bytes = self._memory() if self.limits.memory_bytes else 0
        said = f"{self.memory_bytes // MIB:,} MiB of {self.limits.memory_bytes // MIB:,} MiB (memory-limit-mb)"
        is_over = 0 < self.limits.memory_bytes < self.memory_bytes
        if is_over and not self.over_memory:
            log.error("the process takes too much memory", node=self._name, memory=said)
        elif self._is_half and not self._is_warned:
            log.warning("the process takes more than half of its memory", node=self._name, memory=said)
        self.over_memory = f"the process takes {said}" if is_over else ""
        self._is_warned = self._is_half

    @property
    def _is_half(self) -> bool:
        return 0 < self.limits.memory_bytes < 2 * self.memory_bytes

    def _mind_reads(self, now_s: float, seen: Seen) -> None:
        if not seen.reads_left:
            self._left_since_s = None
            return
        if self._left_since_s is None:
            self._left_since_s = now_s
        if now_s - self._left_since_s >= self.limits.grace_s:
            self._endless = (
                f"{seen.reads_left} reads go on although damage was found {self.limits.grace_s:g} s ago: they may never end"
            )

    def _mind_store(self, seen: Seen) -> None:
        is_slow = seen.store_busy_s > self.limits.store_patience_s
        said = f"the store has not come back for {max(seen.store_busy_s, seen.idle_s):.0f} s"
        if seen.idle_s > self.limits.store_patience_s:
            self._endless = f"{said}, and does nothing"
        elif is_slow and (seen.is_damaged or self._is_half):
            self._endless = f"{said}, and the copy is damaged" if seen.is_damaged else f"{said}, and takes more and more memory"
        elif is_slow and not self._is_slow:
            log.warning("a write goes on and on", node=self._name, reason=said)
        self._is_slow = is_slow
