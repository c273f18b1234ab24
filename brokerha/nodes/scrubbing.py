"""The background scrub of a worker: when it looks at all of its data, how fast, and whom it tells (stores/scrub.py).

A thread of its own that waits, looks, and tells. It waits `every_s` seconds between two looks, looks only at a copy that is
trusted, and is never in the way: its rate is bounded, and stopping ends it at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from brokerha.model.errors import BrokerhaError
from brokerha.ports.copies import WorkerCopy
from brokerha.stores.scrub import Finding, Scrub

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ScrubLimits:
    """How often and how fast."""

    every_s: float = 600.0
    """Pause between two looks at everything; 0 for never."""
    items_per_s: float = 20_000.0


class Scrubbing:
    """Scrubs one copy now and then, and on demand."""

    def __init__(self, copy: WorkerCopy, name: str, limits: ScrubLimits) -> None:
        self.limits = limits
        self.looks = 0
        """Finished since the start."""
        self.damages = 0
        """Looks that found damage."""
        self.last: Finding | None = None
        self._copy = copy
        self._name = name
        self._stop = threading.Event()
        self._one = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, on_damage: Callable[[str], None], may_look: Callable[[], bool]) -> None:
        """Begin. ``on_damage`` is told what is wrong; ``may_look`` says whether the copy is trusted now."""
        self._on_damage = on_damage
        self._may_look = may_look
        if self.limits.every_s > 0:
            self._thread = threading.Thread(target=self._run, name=f"{self._name} scrub", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End it at once. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def items(self) -> int:
        """Items that there are to look at."""
        return self._copy.applied().items

    def look(self, items_per_s: float, on_items: Callable[[int], None] = lambda _: None) -> Finding | None:
        """Look at everything once, in the calling thread; None when it was stopped. Raises StoreError.

        ``on_items`` is told now and then how many items were looked at; what it raises ends the look.
        """
        with self._one:
            scrub = Scrub(
                self._copy,
                items_per_s=items_per_s,
                clock=time.monotonic,
                stopped_within=self._stop.wait,
                on_items=on_items,
            )
            finding = scrub.run()
        if finding is not None:
            self.looks += 1
            self.last = finding
            if finding.damage:
                self.damages += 1
                self._on_damage(f"scrub: {finding.damage}")
        return finding

    def _run(self) -> None:
        while not self._stop.wait(self.limits.every_s):
            if not self._may_look():
                continue
            try:
                self.look(self.limits.items_per_s)
            except BrokerhaError as error:
                # The copy was replaced or closed meanwhile: the next look is at the new one.
                log.info("scrub ended early", node=self._name, reason=str(error))
