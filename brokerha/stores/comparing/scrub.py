"""Scrub: look at all data of a copy in the background, slowly, and find what no write would ever notice.

The store adds the fingerprint up change by change; the scrub computes it from the data itself. Both must be the same at the
LSN of the data that was looked at, which is one state although writes go on:

    known before    the fingerprint at the LSN applied when the scrub begins
    first pace      ... and at those that were applied until the data was held, from the lines of the log
    at the end      recompute says LSN and fingerprint of what it looked at: equal to the known one, or damaged

Work is spread out: after so many items the scrub waits until its rate allows the next. Clock and waiting are given, and the
wait is that of an event, so that stopping ends it at once. Must never hold more than one fingerprint for each LSN that was
applied while it began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from brokerha.model import fingerprints
from brokerha.model.errors import StoreDamaged
from brokerha.model.ids import Lsn
from brokerha.model.operations import Logged
from brokerha.ports.store import Applied

_LINES_AT_ONCE: Final = 1000
_BETWEEN_LIMIT: Final = 100_000
"""Most LSNs that may be applied while a scrub begins; with more it has nothing to compare with."""


class Scrubbed(Protocol):
    """What a scrub needs of a store; see `ports.store.Store`."""

    def applied(self) -> Applied:
        """Where it stands."""

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Lines of the log."""

    def recompute(self, paced: Callable[[int], None]) -> Applied:
        """Fingerprint and count from the data itself."""


class Finding(NamedTuple):
    """What a scrub found."""

    lsn: Lsn
    """Of the data that was looked at; 0 when it could not be read."""
    items: int
    damage: str = ""
    """What is wrong with the copy, with both fingerprints and the LSN; empty when nothing is."""
    is_compared: bool = True
    """False when the fingerprint of that LSN was not known any more, so that equal says nothing."""


class _Stopped(Exception):
    """The scrub was told to stop."""


class Scrub:
    """One scrub after the other of one store, at a bounded rate. One thread."""

    def __init__(
        self,
        store: Scrubbed,
        *,
        items_per_s: float,
        clock: Callable[[], float],
        stopped_within: Callable[[float], bool],
        on_items: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``clock`` gives seconds; ``stopped_within`` waits so many seconds, and returns True at once when it is to stop.

        ``on_items`` is told now and then how many items were looked at; what it raises ends the scrub.
        """
        self._store = store
        self._items_per_s = items_per_s
        self._clock = clock
        self._stopped_within = stopped_within
        self._on_items = on_items

    def run(self) -> Finding | None:
        """Look at everything once; None when it was stopped. Raises StoreError when the store was closed or replaced."""
        run = _Run(self._store, self._pace)
        self._begun_s = self._clock()
        try:
            found = self._store.recompute(run.paced)
        except _Stopped:
            return None
        except StoreDamaged as damage:
            return Finding(0, 0, str(damage))
        expected = run.expected(found.lsn)
        if expected is None:
            return Finding(found.lsn, found.items, is_compared=False)
        if expected == found.fingerprint:
            return Finding(found.lsn, found.items)
        damage_text = (
            f"the data at LSN {found.lsn} has fingerprint {found.fingerprint} and {found.items} items, expected is "
            f"fingerprint {expected}: something was changed without a write, take the content from another worker"
        )
        return Finding(found.lsn, found.items, damage_text)

    def _pace(self, items: int) -> None:
        """Wait until the rate allows more than so many items. Raises _Stopped."""
        self._on_items(items)
        ahead_s = items / self._items_per_s - (self._clock() - self._begun_s)
        if self._stopped_within(max(ahead_s, 0.0)):
            raise _Stopped


class _Run:
    """What one run knows of the fingerprints that it may have to compare with."""

    def __init__(self, store: Scrubbed, pace: Callable[[int], None]) -> None:
        self._store = store
        self._pace = pace
        self._before = store.applied()
        self._known = {self._before.lsn: self._before.fingerprint}
        self._is_complete = False

    def paced(self, items: int) -> None:
        """To be called by `recompute`: the first call comes when the data is held already."""
        self._complete()
        self._pace(items)

    def expected(self, lsn: Lsn) -> str | None:
        """The fingerprint of the log at an LSN; None when nobody knows it."""
        self._complete()
        return self._known.get(lsn) or None

    def _complete(self) -> None:
        """Learn the fingerprints of what was applied since the beginning. Done once, so that later lines cost nothing."""
        if self._is_complete:
            return
        self._is_complete = True
        last_lsn = min(self._store.applied().lsn, self._before.lsn + _BETWEEN_LIMIT)
        next_lsn = self._before.lsn + 1
        while next_lsn <= last_lsn:
            lines = self._store.logged(next_lsn, min(next_lsn + _LINES_AT_ONCE - 1, last_lsn))
            if not lines:
                return
            for lsn, line in enumerate(lines, next_lsn):
                self._known[lsn] = fingerprints.text_of(line.fingerprint)
            next_lsn += len(lines)
