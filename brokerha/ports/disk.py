"""The files of one directory, as a log sees them: written at a place, synced, renamed; a write is durable once its sync returns.

    create, write        the file has the bytes for every reader at once; after a power cut any part of them may be missing
    sync                 earlier writes to this file are durable; after an error, a caller must not believe a later success
    rename, remove, create   the names are durable after `sync_names`

Names are ``file`` or ``folder/file``. All methods raise OSError, with ENOSPC or EDQUOT when there is no space.
"""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """One directory, which one process has open. One thread writes, any thread reads."""

    @property
    def place(self) -> str:
        """Return the place of the directory, for messages to people."""

    def names(self) -> list[str]:
        """Return all files, sorted."""

    def size(self, name: str) -> int:
        """Return the bytes of a file, reserved ones included. Raises FileNotFoundError."""

    def create(self, name: str, reserve_bytes: int = 0) -> None:
        """Make an empty file, replacing one of that name; reserved space reads as zeros."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from an offset on; fewer at the end of the file. Any thread."""

    def write(self, name: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all data at an offset."""

    def sync(self, name: str) -> None:
        """Make written data of a file durable, with its length."""

    def sync_names(self, folder: str = "") -> None:
        """Make the names in the directory durable, and those in a folder of it."""

    def cut(self, name: str, size: int) -> None:
        """Make a file shorter."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing one of the new name; a power cut leaves one or the other."""

    def remove(self, name: str) -> None:
        """Remove a file. Idempotent."""

    def free_bytes(self) -> int:
        """Return the free space."""

    def close(self) -> None:
        """Let others open the directory. Idempotent."""
