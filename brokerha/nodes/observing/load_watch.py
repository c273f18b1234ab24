"""How long each part of a load took: looked at once in each turn of a worker's loop, told when the load is open.

    asking ── the source makes its snapshot ──> making room ──> fetching ── chunks ──> opening ──> told

It only looks: the load is the core's, the clock is the shell's.

>>> from brokerha.model.ids import Instant
>>> from brokerha.following.loading import LoadConfig, Loading
>>> watch, loading = LoadWatch(), Loading(LoadConfig(), ("w2",), "w1-7", Instant(0, 0))
>>> watch.note(loading, 100), watch.note(None, 600), watch.last
(False, False, None)
"""

from __future__ import annotations

from typing import NamedTuple

from brokerha.following.loading import Loading, Phase
from brokerha.model.numbers import Numbers


class LoadTimes(NamedTuple):
    """A load that was opened."""

    lsn: int
    total_bytes: int
    seconds: dict[str, float]
    """By the name of the phase."""


class LoadWatch:
    """Follows the phases of one worker's loads."""

    def __init__(self) -> None:
        self.count = 0
        """Loads that were opened since the start."""
        self.last: LoadTimes | None = None
        self._loading: Loading | None = None
        self._phase = Phase.FAILED
        self._since_ms = 0
        self._seconds: dict[str, float] = {}

    def note(self, loading: Loading | None, mono_ms: int) -> bool:
        """Look at the load that is under way, None for none; returns whether one was opened since the last look."""
        is_opened = False
        if loading is not self._loading:
            is_opened = self._finish(mono_ms)
            self._loading, self._seconds = loading, {}
            if loading is not None:
                self._phase, self._since_ms = loading.phase, mono_ms
        elif loading is not None and loading.phase is not self._phase:
            self._add(mono_ms)
            self._phase = loading.phase
        return is_opened

    def _add(self, mono_ms: int) -> None:
        passed_s = (mono_ms - self._since_ms) / 1000
        self._seconds[self._phase.value] = self._seconds.get(self._phase.value, 0.0) + passed_s
        self._since_ms = mono_ms

    def _finish(self, mono_ms: int) -> bool:
        """The core let go of a load: it is open when everything of it was there."""
        loading = self._loading
        if loading is None or loading.phase is not Phase.OPENING:
            return False
        self._add(mono_ms)
        self.count += 1
        self.last = LoadTimes(loading.lsn, loading.total_bytes, self._seconds)
        return True

    def metrics(self) -> Numbers:
        """Numbers for /metrics."""
        numbers: Numbers = {"loads_total": self.count}
        if self.last is not None:
            numbers["load_last_bytes"] = self.last.total_bytes
            numbers.update({("load_last_seconds", name): s for name, s in self.last.seconds.items()})
        return numbers
