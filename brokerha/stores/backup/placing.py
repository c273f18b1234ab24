"""A directory of a node that is made beside its place and put there complete: used by a restore of workers and masters.

    <dir>.restoring/claim      locked by the process that makes it
    <dir>.restoring/purpose    its purpose: a run with another one starts again, a run with the same one continues
    <dir>.restoring/inside/    the future <dir>
    <dir>.replaced             the old <dir>, between two renames; then deleted

A node opens only ``<dir>``, so that it never finds an incomplete directory. Must never touch ``<dir>`` while a process has it
open, forced or not.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from brokerha.model.errors import StoreError
from brokerha.stores.backup.restore_target import LOCKS, obstacle_in
from brokerha.stores.files.durable import delete_tree, fsync_path, fsync_tree, no_crash, replace_file
from brokerha.stores.files.environment import store_errors

RESTORING: Final = ".restoring"
REPLACED: Final = ".replaced"
_CLAIM: Final = "claim"
_PURPOSE: Final = "purpose"


class Placing:
    """One directory: `claimed` while it is made, `place`, `finish`. Several are all made before the first is placed."""

    def __init__(self, directory: Path, purpose: bytes, crash_point: Callable[[str], None] = no_crash) -> None:
        self.directory = directory
        self._purpose = purpose
        self._crash_point = crash_point
        self._making = directory.with_name(f"{directory.name}{RESTORING}")
        self._replaced = directory.with_name(f"{directory.name}{REPLACED}")

    @property
    def inside(self) -> Path:
        """The path where it is made."""
        return self._making / "inside"

    @property
    def is_placed(self) -> bool:
        """Tell whether an unfinished run with the same purpose has placed it."""
        return self._is_same_purpose() and not self.inside.exists() and bool(obstacle_in(self.directory).text)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the turn of one process; clear work for another purpose. Raises StoreError."""
        with store_errors(f"cannot make {self._making}"):
            self._making.mkdir(parents=True, exist_ok=True)
            with (self._making / _CLAIM).open("a+", encoding="ascii") as claim:
                try:
                    fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreError(f"another process restores into {self.directory}: wait for its end") from None
                if not self._is_same_purpose():
                    delete_tree(self.inside)
                    replace_file(self._making / _PURPOSE, self._purpose)
                yield

    def make_durable(self) -> None:
        """Make the finished work durable. Raises StoreError."""
        with store_errors(f"cannot make {self._making} durable"):
            fsync_tree(self._making)

    def place(self, *, is_forced: bool = False) -> None:
        """Put the finished directory into its place. Raises StoreError for an obstacle, and then changes nothing."""
        with self.claimed(), store_errors(f"cannot put what was restored into {self.directory}"):
            if self.directory.exists():
                # A leftover of a finished run; without ``directory`` it would be the only data.
                delete_tree(self._replaced)
            obstacle = obstacle_in(self.directory)
            if obstacle.is_locked or (obstacle.text and not is_forced):
                raise StoreError(f"{obstacle.text}; nothing was changed there")
            if obstacle.text:
                self.directory.rename(self._replaced)
                self._crash_point("old one aside")
            elif self.directory.exists():
                for name in LOCKS:
                    (self.directory / name).unlink(missing_ok=True)
            self.inside.rename(self.directory)
            fsync_path(self.directory.parent)
            self._crash_point("placed")
            delete_tree(self._replaced)

    def finish(self) -> None:
        """Forget the purpose: a later run is another restore."""
        delete_tree(self._making)

    def _is_same_purpose(self) -> bool:
        known = self._making / _PURPOSE
        return known.exists() and known.read_bytes() == self._purpose
