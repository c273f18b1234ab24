"""Planted mistakes about what may wait for a flush (rule R18 of sync); for `catalogue.py`, which makes them.

Each lets something wait that must not, loses what has to come again, or waits too long; the simulator has to notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokerha.log.log import Log
from brokerha.master import deferring as deferring_module
from brokerha.master.deferring import Deferring
from brokerha.model.ids import Instant, Lsn
from brokerha.model.records import Accepted, Appended, BodiesHeld, ClockReserved, EpochInstalled, EpochPromised, Record
from brokerha.simulator.disk import SimJournal
from brokerha.sync.round import is_derived
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.workers import Patch

# The replacements below take ``self`` of classes whose insides they must touch.


def _also(*kinds: type[Record]) -> Callable[[], list[Patch]]:
    def waits(record: Record) -> bool:
        return isinstance(record, kinds) or is_derived(record)

    return lambda: [(deferring_module, "is_derived", waits)]


def _whole_queue(sync: SyncState) -> Lsn:
    return sync.lsn


def _never_due(self: Deferring, records: Sequence[Record], now: Instant) -> tuple[bool, bool]:
    return _decide(self, records, now if records else now._replace(mono_ms=-(10**12)))


_decide = Deferring.decide


def _never(_self: Deferring) -> None:
    return


def _always_room(_self: Deferring, _records: Sequence[Record]) -> bool:
    return True


def _drop_what_waits(self: Log, records: Sequence[Record]) -> None:
    if self._segments.pending:
        self._segments.take_back()
        self._load((self._segments.active.place, self._segments.active.length))
    _append(self, records)


_append = Log.append


def _counted_as_used(self: SimJournal) -> SimJournal:
    used = dict(self._content.current.used)
    journal = _survivor(self)
    journal._content.current.used = used
    return journal


_survivor = SimJournal.survivor


def _no_further(self: Deferring) -> Lsn:
    return self._sync.lsn


DEFERRING_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "what was accepted waits": _also(Accepted, Appended, ClockReserved),
    "what is held waits": _also(BodiesHeld, Appended),
    "the clock waits": _also(ClockReserved),
    "the promise of an epoch waits": _also(EpochPromised),
    "an epoch waits": _also(EpochInstalled),
    "rows tell of what waits": lambda: [(SyncState, "_durable_lsn", _whole_queue)],
    "what waits is never written": lambda: [(Deferring, "decide", _never_due), (Deferring, "deadline_ms", _never)],
    "what waits has no bound": lambda: [(Deferring, "_is_room_for", _always_room)],
    "what waited is not written": lambda: [(Log, "append", _drop_what_waits)],
    "places are not found again": lambda: [(SimJournal, "survivor", _counted_as_used)],
    "a copy ahead of the log is condemned": lambda: [(Deferring, "reach", _no_further)],
}
"""Every mistake about what may wait, by what goes wrong."""
