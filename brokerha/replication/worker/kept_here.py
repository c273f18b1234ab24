"""The copy that a worker keeps by order of its master: the worker's half of keeping and restoring (replication, section 5).

    Keep (wanted)      -> KeepCopy    ... CopyFrozen, CopyKept -> Progress tells LSN, lineage and number of the order
    Keep (not wanted)  -> DropKept
    Restore            -> RestoreKept ... LoadOpened    the kept copy is the present one; it stays kept
                                      ... LoadFailed    the old one still is; the kept copy no longer counts

Orders are repeated until they are followed, and an older one may come late. Of two orders to keep, the higher number counts. An
order to restore counts only for a copy that is beyond its LSN. Invariants: the disk has one order at a time; later entries are
written when the copy is frozen, or after `FREEZE_MS`; the worker tells of a kept copy only when it is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokerha.model.ids import Instant, Lsn
from brokerha.model.ready import CopyDecision, CopyFrozen, CopyKept, DropKept, KeepCopy, RestoreKept
from brokerha.model.wire.messages import Keep, Restore


@dataclass(frozen=True, slots=True)
class KeptState:
    """The kept copy of a worker."""

    number: int = 0
    """Number of the order to keep it."""
    lsn: Lsn = -1
    """-1 when there is no kept copy."""
    lineage: int = 0


NOTHING = KeptState()
FREEZE_MS: Final = 10_000
"""Longest wait of writing for a freeze, which other work on the store may delay; then the copy is kept as it is by then."""


class KeptHere:
    """The kept copy of one worker."""

    def __init__(self, found: KeptState) -> None:
        self.state = found
        self.reason = ""
        """Why the last order to keep could not be followed; empty when it could."""
        self.is_restoring = False
        self._ordered = found.number
        """Highest number of an order to keep, or to drop."""
        self._making = 0
        """Number of the order whose copy is being made now; 0 when none is."""
        self.freezes_until_ms: int | None = None
        """Until when writing waits for the freeze, at most; None when it does not wait."""
        self._decisions: list[CopyDecision] = []

    def is_freezing(self, now: Instant) -> bool:
        """Tell whether writing waits, because the kept copy must have the content at the moment of the order."""
        return self.freezes_until_ms is not None and now.mono_ms < self.freezes_until_ms

    def on_keep(self, order: Keep, refusal: str, now: Instant) -> None:
        """Follow an order to keep a copy, or none; ``refusal`` says why this content is not worth keeping, or is empty."""
        if order.number < self._ordered:
            return
        self._ordered = order.number
        if not order.is_wanted:
            self.reason = ""
            if self.state.lsn >= 0 or self._making:
                self.state = NOTHING
                self._end()
                self._decisions.append(DropKept())
        elif order.number != self.state.number and not self._making:
            self.reason = refusal
            if not refusal:
                self._making, self.freezes_until_ms = order.number, now.mono_ms + FREEZE_MS
                self._decisions.append(KeepCopy(order.number))

    def _end(self) -> None:
        self._making, self.freezes_until_ms = 0, None

    def on_frozen(self, answer: CopyFrozen) -> None:
        """Let writing continue: the disk has frozen the copy."""
        if answer.number == self._making:
            self.freezes_until_ms = None

    def on_kept(self, answer: CopyKept) -> None:
        """Take in the answer of the disk."""
        if answer.number != self._making:
            # Dropped meanwhile.
            return
        self._end()
        self.reason = answer.reason
        if not answer.reason:
            self.state = KeptState(answer.number, answer.lsn, answer.lineage)

    def on_damaged(self, reason: str) -> None:
        """Stop keeping: the content is damaged."""
        if self._making:
            self._end()
            self.reason = reason

    def begin_restore(self, order: Restore, lineage: int, applied: Lsn) -> bool:
        """Begin a restore if the order concerns this lineage at ``applied`` and can be followed; return whether it began."""
        is_void = lineage < order.lineage and applied > order.agreed_lsn
        if not self.is_restoring and is_void and self.state.lsn >= 0 and self.state.number == order.number:
            self.is_restoring = True
            self._decisions.append(RestoreKept())
            return True
        return False

    def on_failed(self) -> None:
        """Note that the kept copy could not be restored: it will not be tried again."""
        self.stop()
        self.state = NOTHING

    def stop(self) -> None:
        """End a restore: it is done, or its order no longer counts."""
        self.is_restoring = False
        self._decisions = [each for each in self._decisions if not isinstance(each, RestoreKept)]

    def take(self, *, may_restore: bool) -> list[CopyDecision]:
        """Return the actions that are due; restoring waits until nothing else changes the copy."""
        due = [each for each in self._decisions if may_restore or not isinstance(each, RestoreKept)]
        self._decisions = [each for each in self._decisions if each not in due]
        return due
