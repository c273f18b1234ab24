"""The durable record of a master, as its runner sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from brokerha.model.ids import Lsn
from brokerha.model.records import History, MasterState, Record, Rest


class Journal(History, Protocol):
    """Append-only record of one process; used by one thread, reads (History) by any."""

    def append(self, records: Sequence[Record]) -> None:
        """Write all records of a turn in one commit and fsync it before returning.

        Raises JournalFull or JournalError; then none of them was written, and the journal stays usable for reading.
        """

    def defer(self, records: Sequence[Record]) -> None:
        """Take records that can be worked out again: read like others from now on, durable with the next `append` or `settle`.

        Forgetting and closing write them first; an earlier crash loses them. Raises like `append`; then all deferred ones are lost.
        """

    def settle(self) -> None:
        """Make deferred records durable; costs nothing when there are none. Raises like `append`; then they are lost."""

    def state(self) -> MasterState:
        """Return the state from which a restart begins. Costs the unsynchronised tail, not the length of the log."""

    def records(self, start: int = 0) -> Iterator[tuple[int, Record]]:
        """Return all held records with their numbers, from number ``start`` on, each verified. Raises JournalDamaged."""

    @property
    def last_number(self) -> int:
        """Return the number of the last record, deferred ones included; 0 when there is none."""

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[tuple[int, bytes]] | None:
        """Return encoded records ``first`` to ``last`` with their numbers: as many as ``limit_bytes`` allow, at least one.

        Records of results that a later `Rebased` made void are left out. None when ``first`` is before `numbered_from`.
        """

    def numbered_from(self) -> int:
        """Return the lowest number from which on no record was trimmed: a follower with all lower ones can follow from here."""

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records of another process under its numbers, which grow, in one commit, and fsync it.

        Raises JournalFull, JournalError.
        """

    def promise(self, view: int) -> None:
        """Remember durably that this process promised to a view. Raises JournalFull, JournalError."""

    def rest(self, rest: Rest) -> None:
        """Remember durably whether an operator paused this process. Raises JournalFull, JournalError."""

    def trim(self, below: Lsn) -> int:
        """Forget bodies, entries and results below an LSN, and ids that no longer count. Returns the number of LSNs dropped."""

    def keep(self, below: Lsn) -> bool:
        """Take one bounded step of forgetting: trim below an LSN, or give back disk space.

        Returns whether there is more to do at once; costs almost nothing when there is nothing. Raises JournalFull or JournalError;
        then nothing was forgotten.
        """

    def close(self) -> None:
        """Release the directory. Idempotent."""
