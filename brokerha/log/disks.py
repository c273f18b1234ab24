"""Disks: `FileDisk` is a directory of the machine, `MemoryDisk` the same in memory.

    <directory>/owner     locked by the process that has the directory open, or by all that only read it; holds a process id
    <directory>/<n>/…     files of a log; folders without a number as name are foreign and stay untouched

A file is written by one `pwrite` and made durable by one `fdatasync`. Space that was reserved before makes the sync cheaper,
because the length of the file does not change. The last `HANDLES` descriptors stay open.

Must never let two processes write to one directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock

from brokerha.model.errors import JournalError, JournalInUse

OWNER = "owner"
HANDLES = 64
"""Limit of open descriptors."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
CROWDED = frozenset({errno.EMFILE, errno.ENFILE})
"""No descriptor is left: a file was not opened, so nothing was written or synced. (Syncing can fail with ENOMEM, too.)"""


class FileDisk:
    """`ports.disk.Disk` of a directory. Raises JournalInUse, and JournalError when it cannot be used."""

    def __init__(self, path: Path, *, is_read_only: bool = False) -> None:
        self.path = path
        self._is_read_only = is_read_only
        self._handles: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()
        self._owner = -1
        self._written = ""
        try:
            if not is_read_only:
                path.mkdir(parents=True, exist_ok=True)
            self._owner = self._opened_owner()
            self._hold()
            if not is_read_only:
                self._remove_empty()
        except OSError as error:
            self.close()
            raise JournalError(f"the directory {path} of the journal cannot be used: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def _remove_empty(self) -> None:
        """Remove folders that a crash left empty."""
        for folder in self._folders():
            if not list(folder.iterdir()):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        """Return folders of logs; other folders (lost+found) are foreign, and can be unreadable."""
        return [entry for entry in self.path.iterdir() if entry.name.isdecimal() and entry.is_dir()]

    def _opened_owner(self) -> int:
        try:
            return os.open(self.path / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            if not self._is_read_only:
                raise
            # A process without write permission opens the existing file; without a file, no process can write here.
            there = self.path / OWNER
            return os.open(there if there.exists() else self.path, os.O_RDONLY | os.O_CLOEXEC)

    def _hold(self) -> None:
        try:
            fcntl.flock(self._owner, (fcntl.LOCK_SH if self._is_read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._owner, 40, 0).decode("ascii", "replace").partition("\n")[0].strip() or "unknown"
            raise JournalInUse(
                f"process {holder} has the journal in {self.path} open: stop it first, or give this node its own node id and directory"
            ) from None
        with suppress(OSError):
            if not self._is_read_only:
                os.ftruncate(self._owner, 0)
            os.pwrite(self._owner, f"{os.getpid()}{' (which reads it)' if self._is_read_only else ''}\n".encode(), 0)

    @property
    def place(self) -> str:
        """The path, for messages to people."""
        return str(self.path)

    def names(self) -> list[str]:
        """Return all files except the lock and those in foreign folders, sorted."""
        found = [entry.name for entry in self.path.iterdir() if entry.name != OWNER and not entry.is_dir()]
        for folder in self._folders():
            found += [f"{folder.name}/{inner.name}" for inner in folder.iterdir() if inner.is_file()]
        return sorted(found)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return (self.path / name).stat().st_size

    def create(self, name: str, reserve_bytes: int = 0) -> None:
        """Make an empty file, with reserved space if the file system supports that."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        self._forget(name)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if reserve_bytes:
            try:
                os.posix_fallocate(handle, 0, reserve_bytes)
            except OSError as error:
                if error.errno in FULL:
                    os.close(handle)
                    raise
        self._keep(name, handle)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from an offset on."""
        with self._lock:
            # Another thread can close an unused descriptor, so it is used under the lock.
            return os.pread(self._handle(name), size, offset)

    def write(self, name: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of it at an offset, with one call unless the kernel accepts less."""
        handle = self._used(name)
        done = os.pwrite(handle, data, offset)
        while done < len(data):
            done += os.pwrite(handle, memoryview(data)[done:], offset + done)

    def sync(self, name: str) -> None:
        """Make a file durable."""
        os.fdatasync(self._used(name))

    def sync_names(self, folder: str = "") -> None:
        """Make names durable."""
        for path in dict.fromkeys((self.path / folder, self.path, self.path.parent)):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def cut(self, name: str, size: int) -> None:
        """Make a file shorter."""
        os.ftruncate(self._used(name), size)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._forget(old)
        self._forget(new)
        (self.path / old).replace(self.path / new)

    def remove(self, name: str) -> None:
        """Remove a file; with its last file, the folder too. Idempotent."""
        self._forget(name)
        path = self.path / name
        path.unlink(missing_ok=True)
        if path.parent != self.path:
            with suppress(OSError):
                path.parent.rmdir()

    def free_bytes(self) -> int:
        """Return the free space of the file system."""
        usage: int = shutil.disk_usage(self.path).free
        return usage

    def close(self) -> None:
        """Release the directory. Idempotent."""
        with self._lock:
            for handle in self._handles.values():
                os.close(handle)
            self._handles.clear()
            if self._owner >= 0:
                os.close(self._owner)
                self._owner = -1

    def _handle(self, name: str) -> int:
        handle = self._handles.get(name)
        if handle is None:
            handle = os.open(self.path / name, (os.O_RDONLY if self._is_read_only else os.O_RDWR) | os.O_CLOEXEC)
            self._add(name, handle)
        else:
            self._handles.move_to_end(name)
        return handle

    def _used(self, name: str) -> int:
        """Return the descriptor of the next file to write; no reader closes it meanwhile."""
        with self._lock:
            self._written = name
            return self._handle(name)

    def _keep(self, name: str, handle: int) -> None:
        with self._lock:
            self._add(name, handle)

    def _add(self, name: str, handle: int) -> None:
        self._handles[name] = handle
        while len(self._handles) > HANDLES:
            oldest = next(found for found in self._handles if found != self._written)
            os.close(self._handles.pop(oldest))

    def _forget(self, name: str) -> None:
        with self._lock:
            handle = self._handles.pop(name, -1)
            if handle >= 0:
                os.close(handle)


class MemoryDisk:
    """A disk in memory; `is_full` makes it refuse to write. Written data survives a crash of the simulated process."""

    def __init__(self, place: str = "memory") -> None:
        self.files: dict[str, bytearray] = {}
        self.is_full = False
        self._place = place

    def copy(self) -> MemoryDisk:
        """Return an independent disk with the same files: the state that a process finds after this one was killed."""
        copy = MemoryDisk(self._place)
        copy.files = {name: bytearray(data) for name, data in self.files.items()}
        return copy

    @property
    def place(self) -> str:
        """The name, for messages to people."""
        return self._place

    def names(self) -> list[str]:
        """Return all files, sorted."""
        return sorted(self.files)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return len(self._file(name))

    def create(self, name: str, reserve_bytes: int = 0) -> None:
        """Make an empty file; space is not reserved."""
        self._check()
        self.files[name] = bytearray()

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from an offset on."""
        return bytes(self._file(name)[offset : offset + size])

    def write(self, name: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of it at an offset."""
        file = self._file(name)
        if offset + len(data) > len(file):
            self._check()
        if offset > len(file):
            file += bytes(offset - len(file))
        file[offset : offset + len(data)] = data

    def sync(self, name: str) -> None:
        """Make a file durable."""
        self._file(name)

    def sync_names(self, folder: str = "") -> None:
        """Make names durable."""

    def cut(self, name: str, size: int) -> None:
        """Make a file shorter."""
        del self._file(name)[size:]

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self.files[new] = self._file(old)
        if new != old:
            del self.files[old]

    def remove(self, name: str) -> None:
        """Remove a file. Idempotent."""
        self.files.pop(name, None)

    def free_bytes(self) -> int:
        """Return the free space."""
        return 0 if self.is_full else 1 << 40

    def close(self) -> None:
        """Release the disk."""

    def _file(self, name: str) -> bytearray:
        try:
            return self.files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", name) from None

    def _check(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device")
