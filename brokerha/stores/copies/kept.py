"""The copy that a worker keeps of its content at one LSN, beside the present one, until it gets the order to drop it.

    kept            checksum, then number of the order, directory, LSN, lineage, fingerprint, items and size as JSON
    kept.<n>/       the files, as of a snapshot (frozen.py)

    files written -> fsync -> `kept` -> the previous kept copy is deleted

Only the directory that `kept` names is a kept copy; a start deletes any other one, which a killed process left. At most one is
kept, and it is deleted only when the next one is complete. A kept copy is never opened: a restore takes its files to a directory
of their own. An engine never changes its finished files, so they are hard-linked; other files are copied.

Must never change a file of the kept copy.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final
from zlib import crc32

from brokerha.model.errors import StoreDamaged
from brokerha.ports.copies import Kept
from brokerha.stores.copies.directory import read_pointer
from brokerha.stores.files.durable import delete_tree, fsync_path, fsync_tree, replace_file
from brokerha.stores.files.environment import store_errors

POINTER: Final = "kept"
FINISHED: Final = ".sst"
"""Suffix of the files that an engine never changes."""


class KeptFiles:
    """The kept copy of one worker. One thread, except for `present`."""

    def __init__(self, home: Path, crash_point: Callable[[str], None]) -> None:
        """Find the kept copy; delete the leftovers of a kill. Raises StoreError."""
        self._home = home
        self._crash_point = crash_point
        self._number = 0
        """Number of the directory."""
        with store_errors(f"cannot look what {home.name} keeps"):
            self.present = self._found()
        self._delete_others()

    def keep(self, number: int, write: Callable[[Path], Kept]) -> Kept:
        """Keep the files that ``write`` writes; durable on return. On StoreError the previous copy stays."""
        directory = 1 + max([self._number, *self._numbers()])
        path = self._path(directory)
        try:
            made = write(path)._replace(number=number)
            with store_errors("cannot keep a copy"):
                self._crash_point("keep: files written")
                fsync_tree(path)
                fsync_path(self._home)
                made = made._replace(size_bytes=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()))
                self._crash_point("keep: files durable")
                body = json.dumps({"directory": directory, "kept": list(made)}).encode()
                replace_file(self._home / POINTER, b"%08x %s\n" % (crc32(body), body))
        except BaseException:
            delete_tree(path)
            raise
        self._number, self.present = directory, made
        self._crash_point("keep: kept")
        self._delete_others()
        return made

    def drop(self) -> None:
        """Delete the kept copy. Idempotent. Raises StoreError."""
        with store_errors("cannot drop the copy that is kept"):
            (self._home / POINTER).unlink(missing_ok=True)
            fsync_path(self._home)
        self._number, self.present = 0, None
        self._crash_point("drop: forgotten")
        self._delete_others()

    def own_bytes(self) -> int:
        """Return the number of bytes that `copy_to` writes."""
        path = self._path(self._number)
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and file.suffix != FINISHED)

    def copy_to(self, directory: Path) -> None:
        """Put its files into a new directory; durable on return. Raises StoreDamaged, StoreError."""
        source = self._path(self._number)
        if self.present is None or not source.is_dir():
            raise StoreDamaged("the copy that was kept is not there any more")
        with store_errors("cannot restore the copy that is kept"):
            shutil.copytree(source, directory, copy_function=_linked_or_copied)
            fsync_tree(directory)
            fsync_path(directory.parent)

    def _found(self) -> Kept | None:
        try:
            row = read_pointer((self._home / POINTER).read_bytes())
            number, kept = int(row["directory"]), Kept(*row["kept"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None
        if not (self._path(number) / "data" / "data.mdb").exists():
            return None
        self._number = number
        return kept

    def _delete_others(self) -> None:
        for number in self._numbers():
            if number != self._number:
                delete_tree(self._path(number))

    def _path(self, number: int) -> Path:
        return self._home / f"{POINTER}.{number}"

    def _numbers(self) -> list[int]:
        names = [path.name.partition(".") for path in self._home.glob(f"{POINTER}.*")]
        return sorted(int(number) for _, _, number in names if number.isdecimal())


def _linked_or_copied(source: str, target: str) -> None:
    if source.endswith(FINISHED):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)
