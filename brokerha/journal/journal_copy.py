"""LmdbJournalCopy: the journal in a directory as a whole: given away as a snapshot, replaced by the snapshot of another process.

    copy = LmdbJournalCopy(Path("data/m1"), cluster="orders", node="m1")
    copy.journal.append([...])                                    # the present journal

    source:    make_snapshot -> read_chunk ... -> drop_snapshot                          (snapshot_files.py)
    follower:  begin_load -> keep_chunk ... -> open_load                                 (loading.py)

How a loaded file takes the place of the present one; a kill or a power cut at any moment leaves the old one or the new one, whole:

    1. loading/data.mdb     all chunks there, fsync
    2. loading/data.mdb     opened as a journal of this cluster and node, whose last record is that of the snapshot; closed
    3. data.mdb             its second name is replaced.mdb from here on
    4. loading/data.mdb     renamed to data.mdb, directory fsynced; this is the moment
    5. data.mdb             opened; only then replaced.mdb and loading/ are removed

What fails in 3 to 5 puts the old file back in its place. The promise of this process lies beside the file and stays.

Must never: change the present journal before step 4, or remove it before the new one is open.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from brokerha.journal import loading
from brokerha.journal.directory import DATA, Directory, sync_directory
from brokerha.journal.limits import CACHE_BYTES, IDS_BUFFERED, MAP_SIZE_BYTES, TAIL_RECORDS
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.loading import Loading, disk_errors, found_loading
from brokerha.journal.snapshot_files import SnapshotFiles
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.ids import NodeId
from brokerha.ports.copies import CHUNK_BYTES, Snapshot

REPLACED = "replaced.mdb"


class LmdbJournalCopy:
    """Fulfils `ports.copies.JournalCopy` for one process of node ``node``.

    ``chunk_bytes`` is the size of the chunks that are given away; the other bounds are those of `LmdbJournal`. Loads, appending and
    opening in one thread, snapshots in any. Raises JournalInUse, JournalForeign, JournalDamaged, JournalError.
    """

    def __init__(
        self,
        directory: Path,
        cluster: str,
        node: NodeId,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        map_size_bytes: int = MAP_SIZE_BYTES,
        cache_bytes: int = CACHE_BYTES,
        ids_buffered: int = IDS_BUFFERED,
        tail_records: int = TAIL_RECORDS,
    ) -> None:
        self._home = directory
        self._opened = partial(
            LmdbJournal,
            cluster=cluster,
            node=node,
            map_size_bytes=map_size_bytes,
            cache_bytes=cache_bytes,
            ids_buffered=ids_buffered,
            tail_records=tail_records,
        )
        self._journal = self._opened(directory)
        try:
            # The journal is open, so nothing else is needed any more of an exchange that a crash ended.
            with disk_errors(f"{directory} cannot be tidied"):
                (directory / REPLACED).unlink(missing_ok=True)
            self._snapshots = SnapshotFiles(directory, chunk_bytes)
            self._load = found_loading(directory / loading.FOLDER)
            if self._load is None:
                self.abandon_load()
        except BaseException:
            self._journal.close()
            raise

    @property
    def journal(self) -> LmdbJournal:
        """The present journal; another object after `open_load`."""
        return self._journal

    @property
    def pending_load(self) -> str:
        """Name of the snapshot whose load has begun and is not open yet; empty when there is none."""
        return self._load.name if self._load is not None else ""

    def make_snapshot(self, name: str) -> Snapshot:
        """Make a snapshot; appending goes on. The same name again answers the same one. Raises JournalFull, JournalError."""
        return self._snapshots.make(name, self._journal)

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """One chunk; None when there is no such snapshot or number. Any thread. Raises JournalError."""
        return self._snapshots.read_chunk(name, number)

    def drop_snapshot(self, name: str) -> None:
        """Delete a snapshot. Idempotent."""
        self._snapshots.drop(name)

    def begin_load(self, name: str, snapshot: Snapshot) -> set[int]:
        """Make room beside the present journal, or go on with the same load; returns chunks that are there already.

        Another load that was begun before is deleted. Raises JournalFull, and JournalError for a list that contradicts itself.
        """
        begun = self._load
        if begun is not None and (begun.name, begun.snapshot) == (name, snapshot):
            begun.resume()
            begun.check_space()
            return set(begun.kept)
        self.abandon_load()
        load = Loading(self._home / loading.FOLDER, name, snapshot)
        load.begin()
        self._load = load
        return set()

    def keep_chunk(self, number: int, data: bytes) -> bool:
        """Write a chunk to its place; False when it is not what its SHA-256 says. Raises JournalFull, JournalError."""
        return self._begun_load().keep(number, data)

    def open_load(self) -> None:
        """Exchange the present journal for the loaded one.

        Raises JournalError: then the old journal is open as before. A loaded file that is no journal of this node is deleted.
        """
        load = self._begun_load()
        load.finish()
        try:
            self._check(load)
        except JournalFull:
            raise
        except JournalError as error:
            self.abandon_load()
            raise JournalError(f"the snapshot that was loaded cannot be opened: {error}") from error
        self._journal.close()
        try:
            self._exchange(load)
            self._journal = self._opened(self._home)
        except BaseException:
            self._put_back()
            raise
        self._load = None
        self._tidy()

    def _check(self, load: Loading) -> None:
        journal = self._opened(load.folder)
        found = journal.last_number
        journal.close()
        if found != load.snapshot.lsn:
            raise JournalError(f"it ends with record {found}, and its snapshot says {load.snapshot.lsn}")
        load.finish()

    def _exchange(self, load: Loading) -> None:
        present, replaced = self._home / DATA, self._home / REPLACED
        directory = Directory(self._home)
        try:
            with disk_errors(f"the journal in {self._home} cannot be exchanged"):
                replaced.unlink(missing_ok=True)
                os.link(present, replaced)
                load.data.replace(present)
                sync_directory(self._home)
        finally:
            directory.close()

    def _put_back(self) -> None:
        """Open the old journal again, whichever file has its name now."""
        replaced = self._home / REPLACED
        with disk_errors(f"the old journal in {self._home} cannot be put back"):
            if replaced.exists():
                replaced.replace(self._home / DATA)
                sync_directory(self._home)
        self._journal = self._opened(self._home)
        if self._load is not None and not self._load.data.exists():
            self.abandon_load()

    def _tidy(self) -> None:
        try:
            (self._home / REPLACED).unlink(missing_ok=True)
            loading.remove(self._home / loading.FOLDER)
        except OSError:
            # It only takes space until the next start, which says so when it cannot do it either.
            return

    def abandon_load(self) -> None:
        """Delete what was loaded so far. Idempotent. Raises JournalError."""
        self._load = None
        folder = self._home / loading.FOLDER
        with disk_errors(f"what was loaded into {folder} cannot be removed"):
            loading.remove(folder)

    def close(self) -> None:
        """Release the directory, and delete the snapshots. Idempotent."""
        self._journal.close()
        self._snapshots.clear()

    def _begun_load(self) -> Loading:
        if self._load is None:
            raise JournalError("no snapshot of a journal is being loaded")
        return self._load
