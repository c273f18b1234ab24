"""RecordsAsking: the question of a backup for exactly the records that it lacks (replication, section 2).

`Asking` with the messages of journals, and one rule more: a process other than the primary that stays silent for `patience_ms`
counts as one that does not hold them. The primary is asked for as long as it takes, as it is what the backup follows.
"""

from __future__ import annotations

from brokerha.model.ids import Instant, NodeId
from brokerha.model.messages import Outgoing, RangeMissing
from brokerha.model.process_messages import RecordsWanted
from brokerha.replication.asking import AskConfig, Asking


class RecordsAsking:
    """One range of records at a time."""

    def __init__(self, config: AskConfig, patience_ms: int) -> None:
        self._asking = Asking(config)
        self._patience_ms = patience_ms
        self._primary: NodeId = ""
        self._range: tuple[int, int] | None = None
        self._source: NodeId = ""
        self._heard_ms = 0

    def want(self, missing: tuple[int, int], sources: tuple[NodeId, ...], now: Instant) -> None:
        """These records are missing now, both ends included; the first source is the primary."""
        if missing != self._range:
            self._heard_ms = now.mono_ms
        self._primary = sources[0]
        self._range = missing
        self._asking.want(missing, sources, now)

    def stop(self) -> None:
        """Nothing is missing any more."""
        self._range = None
        self._asking.stop()

    def is_asked(self, sender: NodeId, number: int) -> bool:
        """Whether this process was asked for this record."""
        return self._asking.is_asked(sender, number)

    def on_missing(self, sender: NodeId, now: Instant) -> bool:
        """A process does not hold them, or not as they should be. Returns whether nobody is left who may."""
        if self._range is None:
            return False
        return self._asking.on_missing(sender, RangeMissing(*self._range, 0), now)

    @property
    def first(self) -> int:
        """First record that is asked for; 0 when none is."""
        return self._range[0] if self._range is not None else 0

    def range_text(self) -> str:
        """The range, for a reason."""
        return self._asking.range_text()

    def take(self, view: int, now: Instant) -> tuple[list[Outgoing], bool]:
        """The question that is due, and whether nobody is left who may hold what is missing."""
        if self._asking.source != self._source:
            self._source, self._heard_ms = self._asking.source, now.mono_ms
        is_silent = self._source not in ("", self._primary) and now.mono_ms - self._heard_ms >= self._patience_ms
        if is_silent and self.on_missing(self._source, now):
            return [], True
        questions = self._asking.take(now)
        return [Outgoing(to, RecordsWanted(view, asked.first_lsn, asked.last_lsn)) for to, asked in questions], False

    def deadline_ms(self) -> int | None:
        """When the next question is due."""
        return self._asking.deadline_ms()
