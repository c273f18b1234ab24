"""The durable record of a master, as its runner sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from brokerha.model.ids import Lsn
from brokerha.model.records import History, MasterState, Record


class Journal(History, Protocol):
    """Append-only record of one process; used by one thread, reads (History) by any."""

    def append(self, records: Sequence[Record]) -> None:
        """Write all records of a turn in one commit and fsync it before returning.

        Raises JournalFull or JournalError; then nothing of it was written, and the journal stays usable for reading.
        """

    def state(self) -> MasterState:
        """What a restart begins from. Costs the un-synchronised tail, not the length of the log."""

    def records(self, start: int = 0) -> Iterator[tuple[int, Record]]:
        """All held records with their numbers, from number ``start`` on, each verified. Raises JournalDamaged."""

    def trim(self, below: Lsn) -> int:
        """Forget bodies, entries and results below an LSN; transaction ids stay known. Returns the number of LSNs dropped."""

    def forget_ids(self, below: Lsn) -> bool:
        """Forget transaction ids that were synchronised below an LSN, a bounded number; True when there are more."""

    def keep(self, below: Lsn, ids_below: Lsn) -> bool:
        """Take one bounded step of forgetting: trim below an LSN, or forget ids below another, or give back disk space.

        Returns whether there is more to do at once; costs next to nothing when there is nothing. An id below
        ``ids_below`` may stay known for longer. Raises JournalFull or JournalError; then nothing was forgotten.
        """

    def close(self) -> None:
        """Release the directory. Idempotent."""
