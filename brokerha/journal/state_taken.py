"""What goes with the turn in which a master takes over the state of another one (`StateTaken`), all of it in that turn's commit.

    log       all records, but those of bodies without an LSN, of the unused ends of streams, of what is prepared, and the last epoch
    added, outcomes, dropped     all rows: they are of the queue that is left behind
    stream    the rows of runs that are used up
    trimmed   counted anew for the records that stay: how many of their bodies are gone
    marks     one more, so that the age of what is remembered stays known

The tables are dropped and what stays is put back: that costs the pages of the old log and the un-synchronised tail, not each record.

Must never: touch `ids`, `rejected`, `waiting` or `decided`: what is known stays known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import lmdb

from brokerha.journal.database import Tables
from brokerha.journal.rows import (
    keyed_row,
    live_items,
    number_key,
    number_of,
    read_counted_row,
    read_stream_key,
)
from brokerha.model.ids import NodeId
from brokerha.model.records import StateTaken

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Cut:
    """What stays of everything before one `StateTaken`."""

    bodies: Counter[int]
    """How many bodies without an LSN are left of each record that has any."""
    used: dict[NodeId, int]
    """How much of each stream is used."""
    pinned: frozenset[int]
    """Numbers of records that are nowhere else."""

    def runs(self, rows: Iterable[Row]) -> list[Row]:
        """Those rows of `stream` whose run is not used up."""
        return [(key, row) for key, row in rows if self._is_unused(key, row)]

    def _is_unused(self, key: bytes, row: bytes) -> bool:
        origin, start = read_stream_key(key)
        return start + read_counted_row(row)[1] > self.used.get(origin, 0)

    def needed(self, runs: Iterable[Row]) -> set[int]:
        """Numbers of the records that stay."""
        return {*self.bodies, *self.pinned, *(read_counted_row(row)[0] for _, row in runs)}

    def gone(self, rows: Iterable[Row]) -> list[Row]:
        """Rows of `trimmed` of the records of bodies that stay."""
        lacking = [
            (key, live_items(row) - self.bodies[number_of(key)]) for key, row in rows if number_of(key) in self.bodies
        ]
        return [(key, number_key(count)) for key, count in lacking if count]

    def carry_out(self, txn: lmdb.Transaction, tables: Tables) -> None:
        """Take out of the tables what was written in earlier turns."""
        with txn.cursor(tables.stream) as cursor:
            runs = self.runs([(bytes(key), bytes(row)) for key, row in cursor])
        keys = [number_key(number) for number in sorted(self.needed(runs))]
        found = [(key, txn.get(key, db=tables.log)) for key in keys]
        log = [(key, bytes(row)) for key, row in found if row is not None]
        for table in (tables.log, tables.added, tables.outcomes, tables.dropped, tables.stream, tables.trimmed):
            txn.drop(table, delete=False)
        for table, rows in ((tables.log, log), (tables.stream, runs), (tables.trimmed, self.gone(log))):
            for key, row in rows:
                txn.put(key, row, db=table)


def mark(record: StateTaken) -> Row:
    """The row of `marks` that it brings."""
    key = number_key(record.lsn)
    return key, keyed_row(key, number_key(record.last[0]))
