"""Beginning: where a new journal begins when its cluster is restored from a backup, instead of at LSN 1.

The backup holds the content at one LSN, so the journal knows nothing before it but what later answers need: the last
entry (the next ones are stamped above it), the fingerprint and size of the content, the ids of recent transactions (so
that a client who hands one in again is told its LSN) and which of them were rejected.

    beginning = Beginning(lsn=7, last=(10**15, "t-7", "m1"), fingerprint=b"...", items=3)
    journal = Log(FileDisk(Path("data/m1")), "orders", "m1", begin_at=beginning)
    journal.first_lsn()                 # 8: the synchronised queue, its bodies and results go on from there

Invariant: every master of the restored cluster begins with the same values, or they would never agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.log.current import Current
from brokerha.model.ids import Lsn, Ordered, TxId
from brokerha.model.invariants import invariant


@dataclass(frozen=True, slots=True)
class Beginning:
    """The last LSN before the first entry of a new journal, and what stays known up to it."""

    lsn: Lsn
    """Synchronised and executed up to here; at least 1."""
    last: Ordered
    """The entry at `lsn`."""
    fingerprint: bytes
    """Of the content at `lsn`."""
    items: int
    """Quads and keys at `lsn`."""
    ids: tuple[tuple[TxId, Lsn], ...] = ()
    """Recent transactions, none above `lsn`."""
    rejections: tuple[tuple[Lsn, str], ...] = ()
    """Which of them were rejected, and why."""

    def __post_init__(self) -> None:
        invariant(self.lsn >= 1, "a journal that begins at 1 needs no beginning", lsn=self.lsn)
        highest = max([lsn for _, lsn in self.ids] + [lsn for lsn, _ in self.rejections], default=1)
        invariant(highest <= self.lsn, "nothing after the beginning is known", highest=highest, lsn=self.lsn)

    def current(self) -> Current:
        """The current state of a journal that begins here."""
        return Current(
            high_water=self.last[0],
            lsn=self.lsn,
            first_lsn=self.lsn + 1,
            last=self.last,
            executed_lsn=self.lsn,
            fingerprint=self.fingerprint,
            items=self.items,
            results_from=self.lsn + 1,
            base=self.fingerprint,
        )
