"""Compaction: gives disk space back, which LMDB never does: a smaller copy of the file takes the place of the file.

Trimming frees pages inside the file, and later turns use them again. That bounds the file by the most that was ever held
at once; after a long outage of a peer that may be many times what is held now. When most of the file is free:

    1. data.mdb --(used pages only)--> compacted.mdb          readers and the file go on as they are
    2. compacted.mdb made as long as a journal's file has to be, fsync
    3. LMDB closed; compacted.mdb renamed to data.mdb; directory fsynced; LMDB opened again      readers wait

kill -9, or a power cut, leaves the old file or the new one, and both hold the same turns: no turn is written between 1 and
the end of 3. A copy that a crash left behind is removed when the journal is opened.

Must never: go on writing when step 3 failed, as it is unknown then which file a restart finds.
"""

from __future__ import annotations

import os
from pathlib import Path

from brokerha.journal.database import Database, translated
from brokerha.journal.directory import ahead_bytes, check_file
from brokerha.journal.limits import COMPACT_FREE_BYTES
from brokerha.model.errors import JournalFull


def is_due(file_bytes: int, used_bytes: int) -> bool:
    """Whether so much of a file is free that a copy is worth its time."""
    free_bytes = file_bytes - used_bytes
    return free_bytes > COMPACT_FREE_BYTES and 2 * free_bytes > file_bytes


def write_copy(database: Database, copy: Path, used_bytes: int) -> None:
    """Write a smaller copy of an open journal's file, about ``used_bytes`` long, and fsync it.

    Raises JournalFull; then there is no copy. Raises JournalDamaged for pages that LMDB does not take for its own.
    """
    _write(database, copy, used_bytes, takes_place=True)


def write_snapshot(database: Database, copy: Path, used_bytes: int) -> None:
    """Write a copy that is given away: as short as can be, and gone with the process. Raises as `write_copy` does."""
    _write(database, copy, used_bytes, takes_place=False)


def _write(database: Database, copy: Path, used_bytes: int, *, takes_place: bool) -> None:
    if not _has_room(database, used_bytes):
        raise JournalFull(f"there is no space for a smaller copy of the journal {database.path}")
    try:
        with copy.open("wb") as file:
            with translated(database.path):
                database.env.copyfd(file.fileno(), compact=True)
            if takes_place:
                os.ftruncate(file.fileno(), ahead_bytes(file.seek(0, os.SEEK_END), database.map_size_bytes))
                os.fsync(file.fileno())
        check_file(copy)
    except OSError as error:
        copy.unlink(missing_ok=True)
        message = f"there is no space for a smaller copy of the journal {database.path}: {error.strerror}"
        raise JournalFull(message) from error
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def _has_room(database: Database, used_bytes: int) -> bool:
    """Whether the disk has space for the copy beside the file, and for the turns of a while."""
    disk = os.statvfs(database.path.parent)
    return disk.f_bavail * disk.f_frsize > used_bytes + COMPACT_FREE_BYTES
