"""What a worker keeps of its content, by order of its master: the worker's half of keeping and restoring (replication, section 5).

    Keep (wanted)      -> KeepCopy    ... CopyFrozen, CopyKept -> Progress tells LSN, lineage and number of the order
    Keep (not wanted)  -> DropKept
    Restore            -> RestoreKept ... LoadOpened    the kept copy is the present one; it stays kept
                                      ... LoadFailed    the old one still is; nothing is kept that could be restored

Orders are given again until they are followed, and an older one may come late: of two orders to keep the one with the higher number
counts, and one to restore counts only for a copy that is beyond what it says. Invariants: one order at a time is with the disk; what comes
after the order is written when the copy is frozen, or after `FREEZE_MS`; what is kept is told only when it is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokerha.model.ids import Instant, Lsn
from brokerha.model.ready import CopyDecision, CopyFrozen, CopyKept, DropKept, KeepCopy, RestoreKept
from brokerha.model.wire.messages import Keep, Restore


@dataclass(frozen=True, slots=True)
class KeptState:
    """What a worker keeps."""

    number: int = 0
    """Of the order by which it keeps it."""
    lsn: Lsn = -1
    """-1 when it keeps nothing."""
    lineage: int = 0


NOTHING = KeptState()
FREEZE_MS: Final = 10_000
"""What is under way beside the store may keep a copy from being frozen for so long; then the copy is kept as it is by then, and says its LSN."""


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
        """Number under which a copy is being kept now; 0 when none is."""
        self.freezes_until_ms: int | None = None
        """Until when writing waits for the copy to be frozen, at most; None when it does not."""
        self._decisions: list[CopyDecision] = []

    def is_freezing(self, now: Instant) -> bool:
        """Whether writing waits, as what is kept is to be the content at the moment of the order."""
        return self.freezes_until_ms is not None and now.mono_ms < self.freezes_until_ms

    def on_keep(self, order: Keep, refusal: str, now: Instant) -> None:
        """The master wants a copy kept, or none; ``refusal`` says why this content is not worth it, or is empty."""
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
        """The disk goes on with what there was."""
        if answer.number == self._making:
            self.freezes_until_ms = None

    def on_kept(self, answer: CopyKept) -> None:
        """The disk answers."""
        if answer.number != self._making:
            # Dropped meanwhile.
            return
        self._end()
        self.reason = answer.reason
        if not answer.reason:
            self.state = KeptState(answer.number, answer.lsn, answer.lineage)

    def on_damaged(self, reason: str) -> None:
        """The content is not worth to be kept."""
        if self._making:
            self._end()
            self.reason = reason

    def begin_restore(self, order: Restore, lineage: int, applied: Lsn) -> bool:
        """Whether this order means a copy of this lineage that stands at ``applied``, and can be followed."""
        is_void = lineage < order.lineage and applied > order.agreed_lsn
        if not self.is_restoring and is_void and self.state.lsn >= 0 and self.state.number == order.number:
            self.is_restoring = True
            self._decisions.append(RestoreKept())
            return True
        return False

    def on_failed(self) -> None:
        """What was kept could not be restored: it will not be tried again."""
        self.stop()
        self.state = NOTHING

    def stop(self) -> None:
        """It is restored, or the order counts no more."""
        self.is_restoring = False
        self._decisions = [each for each in self._decisions if not isinstance(each, RestoreKept)]

    def take(self, *, may_restore: bool) -> list[CopyDecision]:
        """What is to be done now; restoring waits until nothing else changes the copy."""
        due = [each for each in self._decisions if may_restore or not isinstance(each, RestoreKept)]
        self._decisions = [each for each in self._decisions if each not in due]
        return due
