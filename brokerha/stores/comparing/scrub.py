"""Scrub: read all data of a copy slowly in the background, and find damage that no write would notice.

The store updates the fingerprint with each change; the scrub computes it from the data itself. Both must be equal at the LSN of
the data that was read. That data is one state although writes go on:

    at the start    learn the fingerprint at the LSN applied when the scrub begins
    first pace      learn those of the LSNs applied until the data was held, from the lines of the log
    at the end      recompute returns LSN and fingerprint of the data: equal to the known one, or damaged

The scrub is throttled: after some items it waits until its rate allows the next. The clock and the wait are given; the wait is on
an event, so that stopping ends it at once. Must never hold more than one fingerprint for each LSN that was applied while it
began.
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
"""Limit of LSNs applied while a scrub begins; above it there is no fingerprint to compare with."""


class Scrubbed(Protocol):
    """The part of a store that a scrub needs; see `ports.store.Store`."""

    def applied(self) -> Applied:
        """Return the applied LSN with its fingerprint."""

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Return lines of the log."""

    def recompute(self, paced: Callable[[int], None]) -> Applied:
        """Compute fingerprint and count from the data itself."""


class Finding(NamedTuple):
    """Result of a scrub."""

    lsn: Lsn
    """LSN of the data; 0 when it could not be read."""
    items: int
    damage: str = ""
    """The damage, with both fingerprints and the LSN; empty when there is none."""
    is_compared: bool = True
    """False when the fingerprint of that LSN was no longer known, so nothing was compared."""


class _Stopped(Exception):
    """The scrub was stopped."""


class Scrub:
    """Scrubs of one store, one after the other, at a bounded rate. One thread."""

    def __init__(
        self,
        store: Scrubbed,
        *,
        items_per_s: float,
        clock: Callable[[], float],
        stopped_within: Callable[[float], bool],
        on_items: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``clock`` gives seconds. ``stopped_within`` waits that many seconds; it returns True at once when the scrub must stop.

        ``on_items`` is called with the number of items so far; an exception that it raises ends the scrub.
        """
        self._store = store
        self._items_per_s = items_per_s
        self._clock = clock
        self._stopped_within = stopped_within
        self._on_items = on_items

    def run(self) -> Finding | None:
        """Scrub once; return None when it was stopped. Raises StoreError when the store was closed or replaced."""
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
        """Wait until the rate allows more than this number of items. Raises _Stopped."""
        self._on_items(items)
        ahead_s = items / self._items_per_s - (self._clock() - self._begun_s)
        if self._stopped_within(max(ahead_s, 0.0)):
            raise _Stopped


class _Run:
    """The fingerprints that one run can need for its comparison."""

    def __init__(self, store: Scrubbed, pace: Callable[[int], None]) -> None:
        self._store = store
        self._pace = pace
        self._before = store.applied()
        self._known = {self._before.lsn: self._before.fingerprint}
        self._is_complete = False

    def paced(self, items: int) -> None:
        """Callback for `recompute`: at its first call the data is already held."""
        self._complete()
        self._pace(items)

    def expected(self, lsn: Lsn) -> str | None:
        """Return the fingerprint of the log at an LSN; None when it is not known."""
        self._complete()
        return self._known.get(lsn) or None

    def _complete(self) -> None:
        """Learn the fingerprints of the LSNs applied since the beginning. Runs once, so that later calls cost nothing."""
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
