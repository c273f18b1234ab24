"""The directory of a journal: who may open it, and whether its file has the length that it must have.

    <directory>/owner        locked by the one process that has the journal open, or by all that only read it; holds a process id
    <directory>/data.mdb     everything (LMDB)
    <directory>/lock.mdb     LMDB's own table of readers; made anew at each opening
    <directory>/compacted.mdb  a smaller copy that is being made (compaction.py)

LMDB maps the file into memory, so a page behind the end of a file that was cut short is no error that one could catch:
the process dies of SIGBUS. Therefore the length is checked before LMDB sees the file. LMDB itself lets the file be
shorter than its last page number says (pages that were freed before they were ever written), so the file is kept a
good piece longer than it needs to be, as a hole that takes no space: a file that is too short was cut.

Must never: remove or rewrite a file that it did not just make, but for a copy that a crash left half made.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from brokerha.journal.limits import AHEAD_BYTES
from brokerha.model.errors import JournalDamaged, JournalError, JournalInUse

OWNER = "owner"
DATA = "data.mdb"
COPY = "compacted.mdb"

_MAGIC = 0xBEEFC0DE
_META_OFFSET = 16
_META = struct.Struct("=II8xQ48x48xQQ")
"""magic, version, map size, last page, transaction id: the start of an LMDB 0.9 meta page behind its page header."""
_PAGE_SIZE_OFFSET = 24
"""Where the page size stands behind the start of the meta: first field of the first of the two table heads."""

WHAT_TO_DO = (
    "this node's copy is damaged, its peers hold the same data: stop the node, move the directory away, and either "
    "keep the directory as it is; an older copy must not be put in its place (docs/operating.md)"
)


def damaged(path: Path, what: str) -> JournalDamaged:
    """Return the error that names the damage, the file, and what to do."""
    return JournalDamaged(f"{what} in {path}: {WHAT_TO_DO}")


class Directory:
    """An open directory of a journal; only one object in one process has it at a time.

    Raises JournalInUse, JournalError when it cannot be made or opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / DATA
        self.copy = path / COPY
        self._length_bytes = 0
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._owner = os.open(path / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"the directory {path} of the journal cannot be used: {error.strerror}") from error
        try:
            self._lock()
            self.copy.unlink(missing_ok=True)
        except BaseException:
            os.close(self._owner)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                raise JournalError(f"{self.path / OWNER} cannot be locked: {error.strerror}") from error
            raise in_use(self.path, self._owner) from None
        os.ftruncate(self._owner, 0)
        os.pwrite(self._owner, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let others open it. Idempotent."""
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1

    def keep_ahead(self, last_page: int, page_bytes: int, map_size_bytes: int, turn_bytes: int) -> None:
        """Make the file longer (with a hole) before a turn of about ``turn_bytes`` may need it."""
        # Rows of indexes and copies of inner pages come on top of the records; a fourfold is far more than measured.
        needed = min((last_page + 1) * page_bytes + 4 * turn_bytes + AHEAD_BYTES // 2, map_size_bytes)
        if needed > self._length_bytes:
            self._length_bytes = min(needed + AHEAD_BYTES // 2, map_size_bytes)
            if self._length_bytes > self.data.stat().st_size:
                os.truncate(self.data, self._length_bytes)

    def measure_anew(self) -> None:
        """Forget how long the file is: another one took its place."""
        self._length_bytes = 0


@contextmanager
def held_for_reading(path: Path) -> Iterator[None]:
    """Keep writers out of the directory of a journal; others may read it at the same time.

    Writes nothing where it may not. Raises JournalInUse, JournalError when there is no journal.
    """
    if not (path / DATA).exists():
        raise JournalError(f"there is no journal in {path}")
    owner = _opened_owner(path)
    try:
        try:
            fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise in_use(path, owner) from None
        with suppress(OSError):
            os.pwrite(owner, f"{os.getpid()} (which reads it)\n".encode(), 0)
        yield
    finally:
        os.close(owner)


def _opened_owner(path: Path) -> int:
    """The file that is locked; a directory that may not be written has it, or nobody can write there at all."""
    try:
        return os.open(path / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        try:
            there = path / OWNER if (path / OWNER).exists() else path / DATA
            return os.open(there, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise JournalError(f"the directory {path} of the journal cannot be used: {error.strerror}") from error


def in_use(path: Path, owner: int) -> JournalInUse:
    """The error that names who has the journal."""
    holder = os.pread(owner, 40, 0).decode("ascii", "replace").partition("\n")[0].strip() or "unknown"
    return JournalInUse(
        f"process {holder} has the journal in {path} open: stop it first, or give this node its own node id and directory"
    )


def ahead_bytes(used_bytes: int, map_size_bytes: int) -> int:
    """Length that a file needs whose pages up to ``used_bytes`` are written."""
    return max(used_bytes, min(used_bytes + AHEAD_BYTES, map_size_bytes))


def sync_directory(path: Path) -> None:
    """Make a new directory and its files last: their names are not part of what an fsync of a file writes."""
    for directory in (path, path.parent):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_file(path: Path) -> None:
    """Raise JournalDamaged when the data file is shorter than its newest state needs, or its state is not the newest.

    LMDB writes its two meta pages in turn, transaction n into page n mod 2, so that their numbers follow on each other.
    When they do not, one of them is damaged, and LMDB might quietly take an older state for the newest.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    size_bytes = path.stat().st_size
    metas = _read_metas(path)
    if len(metas) < 2:
        raise damaged(path, "a meta page is not what was written")
    (even, even_last, page_bytes), (odd, odd_last, _) = metas
    is_new = even == odd == 0
    if not is_new and (even % 2, odd % 2, abs(even - odd)) != (0, 1, 1):
        raise damaged(path, f"the meta pages of transactions {even} and {odd} do not follow on each other")
    needed_bytes = (1 + (even_last if even > odd else odd_last)) * page_bytes
    if size_bytes < needed_bytes:
        raise damaged(path, f"only {size_bytes} of at least {needed_bytes} bytes are left")


def _read_metas(path: Path) -> list[tuple[int, int, int]]:
    """Return (transaction id, last page, page size) of each meta page that has the mark of one."""
    metas = []
    with path.open("rb") as file:
        page_bytes = 0
        for page in (0, 1):
            file.seek(page * page_bytes + _META_OFFSET)
            meta = file.read(_META.size)
            if len(meta) == _META.size and _META.unpack(meta)[0] == _MAGIC:
                _, _, _, last_page, transaction = _META.unpack(meta)
                page_bytes = struct.unpack_from("=I", meta, _PAGE_SIZE_OFFSET)[0]
                metas.append((transaction, last_page, page_bytes))
    return metas
