"""Deferring: which turns need no flush of their own (rule R18 of sync).

    Added, Outcomes alone     no flush: they are read from memory, and durable with the next turn that is written
    other records             written at once, in one commit with the deferred ones before them

Deferred records are bounded in number, in bytes and in time, so that a quiet master soon has all records durable and a restart has
little to work out again. Where no majority is needed nothing is deferred (R13, R14): a lost place could come back elsewhere.

Must never: defer a record on which a message of this master rests, except messages to its own workers and clients.
"""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.master.config import DeferConfig
from brokerha.model.ids import Instant, Lsn
from brokerha.model.records import Added, Outcomes, Record
from brokerha.sync.core import SyncCore
from brokerha.sync.round import is_derived
from brokerha.sync.waiting import reach_of

ENTRY_BYTES = 100
"""Approximate size of a line of the order."""


class Deferring:
    """The deferred records of one master; callers tell it the time."""

    def __init__(self, config: DeferConfig, sync: SyncCore) -> None:
        self.config = config
        self._sync = sync
        self._lsns = self._bytes = 0
        self._due_ms: int | None = None

    def begin(self) -> None:
        """Begin a turn; all actions of the turns before are carried out."""
        if self._due_ms is None:
            self._sync.durable_lsn = self._sync.lsn if self._is_on() else None

    def _is_on(self) -> bool:
        return not self._sync.keeps_sides and self.config.age_ms > 0

    def decide(self, records: Sequence[Record], now: Instant) -> tuple[bool, bool]:
        """Return (whether to defer these records, whether to write the deferred ones now although there are no others)."""
        is_due = self._due_ms is not None and now.mono_ms >= self._due_ms
        if not records and not is_due:
            return False, False
        may_wait = self._is_on() and not is_due and all(map(is_derived, records))
        if may_wait and self._is_room_for(records):
            if self._due_ms is None:
                self._due_ms = now.mono_ms + self.config.age_ms
            return True, False
        self._lsns = self._bytes = 0
        self._due_ms = None
        return False, not records

    def _is_room_for(self, records: Sequence[Record]) -> bool:
        for record in records:
            if isinstance(record, Added):
                self._lsns += len(record.entries)
                self._bytes += ENTRY_BYTES * len(record.entries)
            elif isinstance(record, Outcomes):
                self._lsns += len(record.results)
                self._bytes += sum(ENTRY_BYTES + len(effect) for _, _, effect, _ in record.results)
        return self._lsns <= self.config.lsns and self._bytes <= self.config.size_bytes

    def reach(self) -> Lsn:
        """Return how far the order can come by itself: a copy of this site may be there already, and waits for it."""
        return reach_of(self._sync) if self._sync.needs_majority else self._sync.lsn

    def deadline_ms(self) -> int | None:
        """Return when deferred records are to be written; None when there are none."""
        return self._due_ms
