"""The journal of a master that is stopped, for reading only: several processes at once, and nothing in it is changed.

    with open_journal(Path("data/m1")) as journal:
        journal.results(journal.results_from(), 100)

The directory is locked against writers meanwhile: a node that is started on it is refused, and so is reading while a node has it
open. What only matters to a master that goes on (parked transactions, ids that are not written yet) is not read: `lsn_of` and
`body` may not know the newest.

Must never: write into the file, take an older format for the present one, or read a file whose newest records are damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brokerha.journal import recovery
from brokerha.journal.database import Database
from brokerha.journal.directory import DATA, check_file, held_for_reading
from brokerha.journal.history import LmdbHistory
from brokerha.journal.limits import MAP_SIZE_BYTES
from brokerha.model.errors import JournalError
from brokerha.model.ids import Lsn, NodeId


class StoppedJournal(LmdbHistory):
    """`History` of a journal that nobody writes; from `open_journal`."""

    def __init__(self, database: Database) -> None:
        identity = recovery.read_identity(database)
        if identity is None:
            raise JournalError(f"the journal {database.path} is empty: no master has written it yet")
        self.cluster = str(identity["cluster"])
        self.node: NodeId = str(identity["node"])
        recovery.check_identity(database, identity, self.cluster, self.node)
        super().__init__(self.node, database)
        database.name(str(identity["journal"]))
        state = recovery.read_state(database)
        recovery.verify_newest(database, state.next_number)
        self._current = state.current

    @property
    def executed_lsn(self) -> Lsn:
        """The last one with a result."""
        return self._current.executed_lsn


@contextmanager
def open_journal(directory: Path) -> Iterator[StoppedJournal]:
    """The journal in a directory, as long as the block runs. Raises JournalInUse, JournalDamaged, JournalError."""
    with held_for_reading(directory):
        check_file(directory / DATA)
        database = Database(directory / DATA, MAP_SIZE_BYTES, is_read_only=True)
        try:
            yield StoppedJournal(database)
        finally:
            database.close()
