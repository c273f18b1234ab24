"""What the engine's errors mean: damage of its files, a disk that does not take more, or a request that cannot be evaluated.

Found by flipping, cutting and deleting in its files:

    file changed or cut off        RuntimeError     Corruption: block checksum mismatch ... in 000040.sst
    file missing when it opens     RuntimeError     Corruption: ... No such file or directory, FileNotFoundError
    file missing later             FileNotFoundError  IO error: No such file or directory ... 000040.sst
    end of its own log damaged     none: it opens with what was before it; its position tells (execution/recovery.py)
    lock, full disk                OSError          IO error: While lock file ..., IO error: No space left on device ...

After a write that failed the engine says the same of each later one, also when there is room again; it goes on reading. Opened anew it
holds what was written before, and takes more.

Two things are worse than an error. A query or an update that counts, groups, sorts or subtracts, a path with + or *, and an ASK
that has to search never come back from a damaged table, because the engine asks it for the next quad again and again, and
takes memory with each. And a flush waits for ever when putting damaged tables together has failed behind it. Nothing can stop
them but the end of the process. So damage has to be found by who reads plainly (`recompute`), and a worker whose reads or
writes do not end must end (nodes/worker/guarding.py).

A request must fail in the same way on every site, damage is the matter of one copy alone: so what a request can bring about must
never look like damage, whatever words stand in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from brokerha.model.errors import StoreDamaged, StoreError, StoreStuck

CANNOT_READ = "the repository cannot be read"


def is_of_files(error: Exception) -> bool:
    """Whether an error of an evaluation tells of the engine's files, not of the request."""
    return isinstance(error, OSError) or str(error).startswith("Corruption:")


def store_error(error: Exception, doing: str) -> StoreError:
    """The error to raise for one of the engine's files."""
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return StoreError(f"{doing}: {error}")
    return StoreDamaged(f"{doing}: {error}; take the content from another worker")


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Around calls of the engine that no request has words in. Raises StoreDamaged, StoreError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # Subclasses of RuntimeError are Python's own and tell of a fault.
        if type(error) is not RuntimeError and not isinstance(error, OSError):
            raise
        raise store_error(error, doing) from error


@contextmanager
def writing_errors(doing: str) -> Iterator[None]:
    """As `engine_errors`, around a write. Raises StoreDamaged, StoreStuck."""
    try:
        with engine_errors(doing):
            yield
    except StoreDamaged:
        raise
    except StoreError as error:
        raise StoreStuck(f"{error}; the store is opened anew") from error.__cause__
