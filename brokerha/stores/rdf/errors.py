"""The meaning of the engine's errors: damaged files, a disk that is full or faulty, or a request that cannot be evaluated.

Found by flipping, cutting and deleting bytes in its files:

    file changed or cut off        RuntimeError     Corruption: block checksum mismatch ... in 000040.sst
    file missing when it opens     RuntimeError     Corruption: ... No such file or directory, FileNotFoundError
    file missing later             FileNotFoundError  IO error: No such file or directory ... 000040.sst
    end of its own log damaged     none: it opens with the writes before it; its position shows that (execution/effects_log.py)
    lock, full disk                OSError          IO error: While lock file ..., IO error: No space left on device ...
    CURRENT not readable           RuntimeError     Invalid argument: Found options incompatible ... Permission denied

After a failed write the engine raises the same error for each later one, even when there is room again; reads still work. Opened
again, it has the earlier writes and accepts new ones.

Two cases are worse than an error. Some evaluations never return from a damaged table: counts, groups, sorts, MINUS, a path with +
or *, and an ASK that has to search. The engine asks for the next quad again and again, and uses more memory each time. And a
flush waits for ever after a failed compaction of damaged tables. Only the end of the process stops them. So a plain read
(`recompute`) must find the damage, and a worker whose reads or writes do not end must end (nodes/worker/guarding.py).

A request must fail in the same way on every site; damage concerns one copy alone. So an error that a request can cause must never
look like damage, whatever the text of the request.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from brokerha.model.errors import StoreDamaged, StoreError, StoreStuck

CANNOT_READ = "the repository cannot be read"
_NO_DAMAGE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
"""Errors of a disk or a process that leave the files as they are."""


def is_of_files(error: Exception) -> bool:
    """Tell whether an error of an evaluation is about the engine's files, not the request."""
    return isinstance(error, OSError) or str(error).startswith("Corruption:")


def store_error(error: Exception, doing: str) -> StoreError:
    """Return the error to raise for an error of the engine's files."""
    # The engine tells some errors of the disk as wrong options.
    is_of_disk = any(f": {os.strerror(code)}" in str(error) for code in _NO_DAMAGE)
    if is_of_disk or (isinstance(error, OSError) and not isinstance(error, FileNotFoundError)):
        return StoreError(f"{doing}: {error}")
    return StoreDamaged(f"{doing}: {error}; take the content from another worker")


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Convert errors of engine calls that contain no text of a request. Raises StoreDamaged, StoreError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # Subclasses of RuntimeError come from Python and mean a bug.
        if type(error) is not RuntimeError and not isinstance(error, OSError):
            raise
        raise store_error(error, doing) from error


@contextmanager
def writing_errors(doing: str) -> Iterator[None]:
    """Convert errors of a write, as `engine_errors` does. Raises StoreDamaged, StoreStuck."""
    try:
        with engine_errors(doing):
            yield
    except StoreDamaged:
        raise
    except StoreError as error:
        raise StoreStuck(f"{error}; the store is opened anew") from error.__cause__
