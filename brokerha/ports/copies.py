"""A worker's copy as a whole: giving it away as a snapshot, and replacing it by one.

Source and follower are two workers (or a worker and a directory of a backup). A snapshot is a set of files that, opened
together, are a store at one LSN. It is cut into chunks of `chunk_bytes`, numbered over all files in their order: a file of
2.5 chunks takes three numbers, the last chunk of a file may be short, an empty file takes none.

    source      make_snapshot -> read_chunk ... read_chunk -> drop_snapshot
    follower    begin_load -> keep_chunk ... keep_chunk -> open_load

The present copy stays untouched, open and readable until `open_load` has opened the new one; a kill at any moment leaves
either the old or the new one, whole. What was loaded before a kill is found again by the next `begin_load` of the same
snapshot.

A worker may also keep a copy of its own, at most one, and put it in the place of the present one later:

    keep -> restore_kept ... -> drop_kept
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from brokerha.model.ids import Lsn
from brokerha.ports.journal import Journal
from brokerha.ports.store import Store

CHUNK_BYTES = 1024 * 1024
"""Default size of a chunk."""


class Snapshot(NamedTuple):
    """The contents of a snapshot."""

    lsn: Lsn
    fingerprint: str
    items: int
    chunk_bytes: int
    files: tuple[tuple[str, int, bytes], ...]
    """(path relative to the snapshot, with ``/``; size in bytes; SHA-256 of each chunk, 32 bytes each, one after the other)"""


class Kept(NamedTuple):
    """A copy that is kept beside the present one."""

    number: int
    """Number of the order to keep it."""
    lsn: Lsn
    lineage: int
    fingerprint: str
    items: int
    size_bytes: int = 0
    """Size on disk, if no other copy shared its files."""


class Snapshots(Protocol):
    """A copy that can be given away as a snapshot, and replaced by one; see `WorkerCopy` and `JournalCopy`."""

    def make_snapshot(self, name: str) -> Snapshot:
        """Make a snapshot; writers only wait for a moment. Any thread.

        The same name again returns the same snapshot. Snapshots do not survive the process.
        """

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """Return one chunk; None when there is no such snapshot (any more) or number. Any thread."""

    def drop_snapshot(self, name: str) -> None:
        """Delete a snapshot. Idempotent."""

    def begin_load(self, name: str, snapshot: Snapshot) -> set[int]:
        """Make room beside the present copy; return numbers of right chunks that are there already.

        Another load that was begun before is deleted. Fails for want of space for all of it, and for paths that lead out of the
        directory.
        """

    def keep_chunk(self, number: int, data: bytes) -> bool:
        """Write a chunk to its place; return False when its SHA-256 is wrong."""

    def open_load(self) -> None:
        """Check that all chunks are there, make them durable, open them in place of the present copy, delete the old one.

        When it fails the old one is open as before.
        """

    def abandon_load(self) -> None:
        """Delete the chunks loaded so far. Idempotent."""


class WorkerCopy(Store, Snapshots, Protocol):
    """The store of one worker with the place where it lives. `Store` is always that of the present copy."""

    @property
    def journal(self) -> str:
        """Return the random name of the present copy; a loaded one has another."""

    @property
    def trouble(self) -> str:
        """Return why the copy found at the start could not be used (it was moved aside, the present one is empty); else empty."""

    @property
    def condemned(self) -> str:
        """Return why the present copy must not be trusted, as passed to `condemn`; else empty. A loaded copy begins without."""

    @property
    def pending_load(self) -> str:
        """Return the name of the snapshot whose load has begun and is not open yet; empty when there is none."""

    @property
    def kept(self) -> Kept | None:
        """Return the kept copy; None when there is none. Any thread."""

    def keep(self, number: int, frozen: Callable[[], None] = ...) -> Kept:
        """Keep the present content under a number; durable on return, over restarts. Writers only wait until ``frozen`` is called.

        A copy with that number stays as it is. Another one goes when the new one is whole. Raises StoreError: no space, damage.
        """

    def drop_kept(self) -> None:
        """Delete the kept copy. Idempotent. Raises StoreError."""

    def restore_kept(self) -> None:
        """Replace the present copy by the kept one, under a new name; it stays kept. A load that was begun is given up.

        Reads under way end on their first content. Raises StoreError: there is none, no space, or it is damaged and then no longer
        kept; the old copy is the present one then, as before.
        """

    def free_bytes(self) -> int:
        """Return the space for a snapshot beside the present copy; 0 when it is unknown. Any thread, and quick."""

    def condemn(self, reason: str) -> None:
        """Remember over restarts that the present copy must not be trusted. Raises StoreError."""


class JournalCopy(Snapshots, Protocol):
    """The journal of one process of a master with the place where it lives: given away as a snapshot, replaced by one.

    A snapshot of a journal is one at a record's number, in the place of a worker's LSN; fingerprint and items are empty and 0. All
    methods raise JournalError. The loaded journal keeps the name of its source, and the promise of this process.
    """

    @property
    def journal(self) -> Journal:
        """Return the present journal; another object after `open_load`."""

    @property
    def pending_load(self) -> str:
        """Return the name of the snapshot whose load has begun and is not open yet; empty when there is none."""

    def free_bytes(self) -> int:
        """Return the space beside the present journal; 0 when it is unknown. Any thread, and quick."""

    def close(self) -> None:
        """Release the directory. Idempotent."""
