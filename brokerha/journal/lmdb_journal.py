"""LmdbJournal: the durable record of one master, in one LMDB environment (FORMAT.md).

A turn of the loop is one call of `append`: all its records, their index rows and the current state go into one LMDB
transaction, which is fsynced before `append` returns. After a crash all of a turn is there or nothing of it.

    journal = LmdbJournal(Path("data/m1"), cluster="orders", node="m1")
    state = journal.state()                            # what the core begins from
    journal.append([Started(state.incarnation + 1)])   # durable from here on

    journal.keep(below=state.lsn - 100_000, ids_below=1)   # one bounded step of forgetting, in the loop

How a turn is written is in writing.py; here is how a journal forgets: in steps that are short whatever it holds, each one
a commit of its own. One process holds the directory, one thread appends and forgets, any thread reads.

Invariants: what is not synchronised, and ids above the first LSN, are never forgotten; the fingerprint before the first
result stays known. Must never: leave the old file and the new one with different turns while it is exchanged.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from threading import Lock

import lmdb

from brokerha.journal import compaction, rewinding, trimming
from brokerha.journal.beginning import Beginning
from brokerha.journal.database import translated
from brokerha.journal.directory import damaged
from brokerha.journal.limits import (
    CACHE_BYTES,
    COMPACT_AT_WORK_BYTES,
    COMPACT_FREE_BYTES,
    FORGET_AT_ONCE,
    IDS_BUFFERED,
    MAP_SIZE_BYTES,
    MARK_LSNS,
    TAIL_RECORDS,
    TRIM_IDS,
)
from brokerha.journal.rows import BadRow, count_in_added_row, keyed_row, number_key
from brokerha.journal.trimming import Cut
from brokerha.journal.writing import LmdbWriter
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.ids import Lsn, NodeId, TxId


class LmdbJournal(LmdbWriter):
    """A `ports.Journal` in a directory, for one node of one cluster.

    ``cache_bytes`` bounds what was appended last and is kept in memory; ``ids_buffered`` and ``tail_records`` bound
    what a restart reads. ``begin_at`` makes a new journal that begins behind an LSN. Raises JournalInUse, JournalForeign,
    JournalDamaged, JournalError.
    """

    def __init__(
        self,
        directory: Path,
        cluster: str,
        node: NodeId,
        *,
        map_size_bytes: int = MAP_SIZE_BYTES,
        cache_bytes: int = CACHE_BYTES,
        ids_buffered: int = IDS_BUFFERED,
        tail_records: int = TAIL_RECORDS,
        begin_at: Beginning | None = None,
    ) -> None:
        self._forget_from = b""
        self._was_trimmed = False
        """Whether the last step of `keep` was a trim: then ids come first, so that neither waits for ever."""
        self._search_below: Lsn = 0
        """What the search for old ids that is under way looks for."""
        self._forgotten_below: Lsn = 0
        """Ids below were looked for and forgotten since the journal was opened."""
        self._compact_after_bytes = 0
        """Not before so much was written: a copy did not fit on the disk."""
        self._compacting = Lock()
        super().__init__(
            directory,
            cluster,
            node,
            map_size_bytes=map_size_bytes,
            cache_bytes=cache_bytes,
            ids_buffered=ids_buffered,
            tail_records=tail_records,
            begin_at=begin_at,
        )
        try:
            # Nobody waits for the loop yet, so it may be as large as it likes.
            self._compact(sys.maxsize)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the directory. Idempotent."""
        with self._compacting:
            super().close()

    def trim(self, below: Lsn) -> int:
        """Forget bodies, entries and results below an LSN, by whole records; ids stay known.

        Returns the number of LSNs dropped: at most `TRIM_LSNS` (or one record's), and fewer, or none, while ids are
        written first. Call it again in later turns. Raises JournalFull or JournalError; then nothing was dropped.
        """
        with self._lock:
            self._check_writable()
            self._settle()
            first_lsn = self._current.first_lsn
            try:
                self._trim(min(below, self._current.lsn + 1))
            except BaseException as error:
                self._recover_from(error)
                raise
            self._database.refresh()
            return self._current.first_lsn - first_lsn

    def _trim(self, below: Lsn) -> None:
        tables, path = self._database.tables, self._database.path
        if below < self._current.first_lsn:
            return
        self._make_room(0)
        with translated(path), self._database.env.begin(write=True, buffers=True) as txn:
            self._ids.write_below(below, txn, tables.ids, self._current.lsn + 1, TRIM_IDS)
            try:
                cut = trimming.plan(txn, tables, min(below, self._ids.first_waiting))
                if cut.rows:
                    cut = replace(cut, mark=self._mark(cut.first_lsn - 1))
                    self._move_base(cut.first_lsn)
                    self._spill_before(cut.rows[-1][1])
                    self._tail.write(txn, tables.waiting)
                    pinned = frozenset([*self._decisions.prepared.values(), self._current.installed_by])
                    cut = self._without_wanted(txn, cut)
                    self._swept_to = trimming.carry_out(txn, tables, self._current, cut, self._swept_to, pinned)
                    if self._current.rewound_by:
                        rewinding.trim_given(txn, tables, cut.rows[-1][1], pinned)
            except BadRow as error:
                raise damaged(path, f"an index row is not what was written ({error})") from error
            self._put_state(txn, self._next)
        if cut.rows:
            self._recent.forget_below(cut.rows[-1][1])
            self._unpacked.clear()
            self._forget_row()

    def _without_wanted(self, txn: lmdb.Transaction, cut: Cut) -> Cut:
        """Keep the bodies without an LSN that a `Rewound` left and that are still wanted; the others of them go with its row."""
        if not any(row.dropped for _, _, row in cut.rows):
            return cut
        number = self._current.installed_by
        recovered = {(origin, txid) for _, txid, origin in (self._installed(number).recovered if number else ())}

        def is_wanted(origin: NodeId, txid: TxId) -> bool:
            if (origin, txid) in recovered and self._ids.find(txid, self._database.get_id) is None:
                return True
            return self._tail.is_waiting(origin, txid)

        rows = rewinding.expired(txn, self._database.tables, cut, self._tail, is_wanted)
        if self._tail.waiting_deletes:
            # A record that brought one of them again must not be read by a restart.
            self._spill_before(self._next)
        self._tail.write(txn, self._database.tables.waiting)
        return replace(
            cut, rows=tuple((key, number, row) for (key, number, _), row in zip(cut.rows, rows, strict=True))
        )

    def _mark(self, lsn: Lsn) -> tuple[bytes, bytes] | None:
        """Return the mark that keeps the time of a trimmed LSN, when the last one is far enough behind it."""
        last_lsn, last_stamped = self._mark_at(lsn)
        if lsn - last_lsn < MARK_LSNS:
            return None
        stamped = max(last_stamped, self._read_ordered(lsn, 1)[0][0])
        return number_key(lsn), keyed_row(number_key(lsn), number_key(stamped))

    def _move_base(self, first_lsn: Lsn) -> None:
        """Keep the fingerprint before the first result that stays, while its record is still there."""
        results_from = self._current.results_after_trim(first_lsn)
        self._current.base = self._read_fingerprint(results_from - 1)
        self._current.results_from = results_from

    def forget_ids(self, below: Lsn) -> bool:
        """Forget which transactions had an LSN below ``below``, as far as they are trimmed.

        Looks at a bounded number of rows; returns whether there are more to look at: call it again in later turns.
        """
        with self._lock:
            self._check_writable()
            self._settle()
            below = min(below, self._current.first_lsn)
            with translated(self._database.path), self._database.env.begin(write=True) as txn:
                self._forget_from = trimming.forget_ids(txn, self._database.tables.ids, below, self._forget_from)
                more = trimming.forget_lsns(txn, self._database.tables, below)
            self._database.refresh()
            return more or bool(self._forget_from)

    def keep(self, below: Lsn, ids_below: Lsn) -> bool:
        """Take one bounded step of forgetting: trim below an LSN, or forget ids below another, or give back disk space.

        Returns whether there is more to do at once; costs next to nothing when there is nothing. An id below
        ``ids_below`` may stay known for longer. Raises JournalFull or JournalError, as `trim` does.
        """
        if self._can_trim(below) and not (self._was_trimmed and self._are_ids_due(ids_below)):
            self._was_trimmed = True
            before = (self._current.first_lsn, self._ids.progress)
            self.trim(below)
            # Ids come first, part by part: that nothing was dropped yet does not mean that there is nothing more to do.
            if before != (self._current.first_lsn, self._ids.progress):
                return True
        if self._are_ids_due(ids_below):
            self._was_trimmed = False
            if not self._forget_from:
                self._search_below = min(ids_below, self._current.first_lsn)
            if not self.forget_ids(self._search_below):
                self._forgotten_below = self._search_below
            return True
        self.compact()
        return False

    def _can_trim(self, below: Lsn) -> bool:
        with self._lock:
            first_lsn = self._current.first_lsn
            if not first_lsn < min(below, self._current.lsn + 1):
                return False
            (first, _), row = self._added_at(first_lsn)
            return first + count_in_added_row(row) <= below

    def _are_ids_due(self, below: Lsn) -> bool:
        if self._forget_from:
            return True
        old = min(below, self._current.first_lsn) - self._forgotten_below
        if old < FORGET_AT_ONCE:
            return False
        with self._lock:
            return 8 * old >= self._database.count_ids()

    def size(self) -> tuple[int, int]:
        """Bytes that the file takes on the disk, and how many of them hold something."""
        with self._lock:
            return self._database.size()

    def compact(self) -> bool:
        """Give free space of the file back to the disk when it is most of the file; returns whether it did.

        Not while so much is held that a copy of it takes longer than about a second: that waits for the next opening.
        Other threads may read meanwhile. Raises JournalDamaged, and JournalError when the file cannot be exchanged.
        """
        self._check_writable()
        return self._compact(COMPACT_AT_WORK_BYTES)

    def write_snapshot(self, path: Path) -> None:
        """Write the file as it is at one moment, free pages left out; appending goes on. Any thread.

        While it lasts, the file may grow (pages that come free are not used again) and is not compacted. Raises JournalFull;
        then there is no copy. Raises JournalError when the journal is closed.
        """
        with self._compacting:
            if self._is_closed:
                raise JournalError(f"the journal {self._database.path} is closed")
            compaction.write_snapshot(self._database, path, self.size()[1])

    def _compact(self, most_bytes: int) -> bool:
        # A snapshot of a large journal takes long, and the loop does not wait for it.
        if not self._compacting.acquire(blocking=False):
            return False
        try:
            file_bytes, used_bytes = self.size()
            if not compaction.is_due(file_bytes, used_bytes) or used_bytes > most_bytes:
                return False
            if self._written_bytes < self._compact_after_bytes:
                return False
            with self._lock:
                self._settle()
            try:
                compaction.write_copy(self._database, self._directory.copy, used_bytes)
            except JournalFull:
                self._compact_after_bytes = self._written_bytes + COMPACT_FREE_BYTES
                return False
            with self._lock:
                self._exchange()
            return True
        finally:
            self._compacting.release()

    def _exchange(self) -> None:
        try:
            self._database.exchange(self._directory.copy)
            self._directory.measure_anew()
            self._make_room(0)
        except (OSError, lmdb.Error, JournalError) as error:
            self._refusal = f"the file of the journal could not be exchanged ({error}): start the node again"
            raise JournalError(self._refusal) from error
