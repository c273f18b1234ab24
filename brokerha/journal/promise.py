"""The promise of a process: the highest view that it has promised to, in a small file beside the journal.

It belongs to the process and not to its journal: another journal may take the journal's place, and a snapshot that is given away
must not carry it. Whoever forgets a promise may vote twice, so it is durable before `keep_promise` returns, and a file that is
not what was written is damage.

    promise        CRC-32 of the rest, msgpack list: view
    promise.new    only while it is written
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgpack

from brokerha.journal.directory import damaged, sync_directory
from brokerha.journal.rows import BadRow, checked, read_checked
from brokerha.model.errors import JournalError, JournalFull

PROMISE = "promise"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def read_promise(directory: Path) -> int:
    """The view that was promised, 0 for none. Raises JournalDamaged, JournalError."""
    path = directory / PROMISE
    try:
        (view,) = msgpack.unpackb(read_checked(path.read_bytes()))
        return int(view)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from error
    except (BadRow, ValueError, TypeError, msgpack.UnpackException) as error:
        raise damaged(path, f"the promise of this process is not what was written ({error})") from error


def keep_promise(directory: Path, view: int) -> None:
    """Make a promise durable. Raises JournalFull, JournalError; then the one before stands, or this one."""
    path = directory / PROMISE
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            file.write(checked(msgpack.packb([view])))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_directory(directory)
    except OSError as error:
        kind = JournalFull if error.errno in _FULL else JournalError
        raise kind(f"the promise of this process cannot be written to {path}: {error.strerror}") from error
