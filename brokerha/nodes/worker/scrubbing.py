"""The background scrub of a worker: its times, its rate, and its reports (stores/comparing/scrub.py).

One thread waits, scrubs and reports. It scrubs only a trusted copy, and never disturbs other work: its rate is bounded, and a stop
ends it at once. It scrubs:

    every `every_s` seconds                                             silent damage
    soon after a copy was loaded, and after a snapshot was given away    a silently damaged source passes its damage on
    first, after a process that ended badly                              the data can be the cause (stores/copies/lives.py)
    ... before anything else, unpaced, after several bad ends            then nothing else can be the cause

The last one runs in the thread that starts the node, before the node follows or answers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from brokerha.model.errors import BrokerhaError, StoreError
from brokerha.ports.copies import WorkerCopy
from brokerha.stores.comparing.scrub import Finding, Scrub
from brokerha.stores.copies.lives import Lives

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ScrubLimits:
    """Pause and rate of the scrub."""

    every_s: float = 600.0
    """Pause between two scrubs of everything; 0 for never."""
    items_per_s: float = 20_000.0


def _nobody(_reason: str) -> None:
    """Ignore a report of damage."""


class Scrubbing:
    """Scrubs one copy at intervals and on demand."""

    def __init__(self, copy: WorkerCopy, name: str, limits: ScrubLimits, lives: Lives | None = None) -> None:
        """``lives`` tells how the processes before this one ended; None counts as well."""
        self.limits = limits
        self.looks = 0
        """Number of scrubs finished since the start."""
        self.damages = 0
        """Number of scrubs that found damage."""
        self.last: Finding | None = None
        self._copy = copy
        self._name = name
        self._lives = lives
        self._on_damage: Callable[[str], None] = _nobody
        self._may_look: Callable[[], bool] = lambda: False
        self._is_owed = lives is not None and lives.bad_ends > 0
        self._every_s = limits.every_s
        """Pause as of the last change of the limits."""
        self._is_changed = False
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._one = threading.Lock()
        self._thread: threading.Thread | None = None

    def look_first(self, on_damage: Callable[[str], None]) -> None:
        """Scrub everything in the calling thread, if the copy must not be used before; ``close`` ends it."""
        lives = self._lives
        if lives is None or not lives.must_look_first:
            return
        log.warning("looks at all data before anything else", node=self._name, bad_ends=lives.bad_ends)
        self._on_damage = on_damage
        try:
            finding = self.look(math.inf, lambda _items: lives.look_goes_on())
        except BrokerhaError as error:
            log.warning("the data cannot be looked at", node=self._name, reason=str(error))
        else:
            self._is_owed = finding is None
        finally:
            lives.look_ended()

    def start(self, on_damage: Callable[[str], None], may_look: Callable[[], bool]) -> None:
        """Start. ``on_damage`` gets the damage; ``may_look`` returns whether the copy is trusted now."""
        self._on_damage = on_damage
        self._may_look = may_look
        self._begin()

    def on_limits(self) -> None:
        """React to possibly changed limits: a new pause begins at once."""
        if self.limits.every_s != self._every_s:
            self._every_s = self.limits.every_s
            self._is_changed = True
            self._wake.set()
            self._begin()

    def _begin(self) -> None:
        if self._thread is None and self.limits.every_s > 0:
            self._thread = threading.Thread(target=self._run, name=f"{self._name} scrub", daemon=True)
            self._thread.start()

    def look_soon(self) -> None:
        """Scrub as soon as the copy is trusted, without the pause. Any thread can call this."""
        self._is_owed = True
        self._wake.set()

    def give_up(self) -> None:
        """Note that this process ends badly, so that the next one scrubs the data first."""
        if self._lives is not None:
            self._lives.counts_as_bad()

    def on_trusted(self) -> None:
        """Note that the copy is trusted from now on. Any thread can call this."""
        if self._is_owed:
            self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Stop at once. Idempotent."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def items(self) -> int:
        """Number of items to scrub."""
        return self._copy.applied().items

    def look(self, items_per_s: float, on_items: Callable[[int], None] = lambda _: None) -> Finding | None:
        """Scrub everything once, in the calling thread; return None when it was stopped. Raises StoreError.

        ``on_items`` gets the number of items scrubbed so far, at intervals; its exception ends the scrub.
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
        if finding is None:
            return None
        self.looks += 1
        self.last = finding
        if finding.damage:
            self.damages += 1
            self._on_damage(f"scrub: {finding.damage}")
        elif self._lives is not None and finding.is_compared:
            # When the disk cannot be written, the next start scrubs once more than needed.
            with suppress(StoreError):
                self._lives.found_whole()
        return finding

    def _run(self) -> None:
        while True:
            every_s = self.limits.every_s
            if every_s <= 0 or not (self._is_owed and self._may_look()):
                self._wake.wait(every_s or None)
                self._wake.clear()
            if self._stop.is_set():
                return
            is_changed, self._is_changed = self._is_changed, False
            if is_changed or every_s <= 0 or not self._may_look():
                continue
            self._is_owed = False
            try:
                self.look(self.limits.items_per_s)
            except BrokerhaError as error:
                # The copy was replaced or closed meanwhile: the next scrub reads the new one.
                log.info("scrub ended early", node=self._name, reason=str(error))
