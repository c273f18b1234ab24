"""The directory of a worker: which copy is the present one, and the handling of damage at a start.

    lock          locked with flock while a process has the directory; holds its process id
    present       the pointer: checksum, then format, cluster, node, number of the present copy as JSON
    opening       number of unfinished openings of each copy, as JSON; deleted after a good opening
    copy.<n>/     the present copy (files/environment.py), and one that is being loaded (snapshots.py)
    condemned     number of a copy that can be opened but is not trusted, and the reason; JSON
    aside.<n>/    the last damaged copy, for inspection
    load          the present load
    kept, kept.<n>/ the kept copy (kept.py)
    snapshots/    snapshots for others (snapshots.py); a start deletes them
    room          exists for a moment, to test whether files can grow

A number is not reused while any file of it exists. A start deletes copies that neither the pointer nor `load` names: a killed
process left them. Damage differs from mistakes. An unreadable copy is moved aside and the worker begins empty. A directory that
is in use, belongs to another node or to a later version, or has no space is an error, and nothing is changed.

On some damage LMDB and RocksDB abort the process during the opening of a copy, again at each start. So each opening is recorded
before it begins; a copy with `OPENINGS_LIMIT` unfinished openings counts as damaged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from brokerha.model.errors import StoreDamaged, StoreError, StoreFull
from brokerha.stores.files.durable import delete_tree, fsync_path, replace_file
from brokerha.stores.files.environment import locked, store_errors

FORMAT: Final = 1
POINTER: Final = "present"
OPENING: Final = "opening"
CONDEMNED: Final = "condemned"
ROOM: Final = "room"
OF_A_MASTER: Final = "current"
"""A file in the directory of every journal (log/FORMAT.md), and of no worker."""
ROOM_BYTES: Final = 1024 * 1024
OPENINGS_LIMIT: Final = 3
SPARE_BYTES: Final = 16 * 1024 * 1024
"""Space that a load leaves free: opening writes a little, and the present copy grows meanwhile."""

_COPY, _ASIDE = "copy", "aside"


class CopyDirectory:
    """The directory, locked for this process until `close`. Raises StoreError when another process has it."""

    def __init__(self, home: Path, cluster: str, node: str, crash_point: Callable[[str], None]) -> None:
        self.home = home
        self.trouble = ""
        """Why the copy found at the start could not be used; it was moved aside."""
        self._cluster = cluster
        self._node = node
        self._crash_point = crash_point
        self._present = 0
        self._is_new = False
        with store_errors(f"cannot open the directory {home.name}"):
            home.mkdir(parents=True, exist_ok=True)
            self._lock = locked(home)

    @property
    def present(self) -> int:
        """The number of the present copy."""
        return self._present

    @property
    def condemned(self) -> str:
        """The reason why the present copy is not trusted; empty when it is."""
        try:
            number, reason = json.loads((self.home / CONDEMNED).read_bytes())
        except (OSError, ValueError, TypeError):
            return ""
        return str(reason) if number == self._present else ""

    def condemn(self, reason: str) -> None:
        """Record why the present copy is not trusted; durable on return. Raises StoreError."""
        with store_errors(f"cannot write down in {self.home.name} that its copy is damaged"):
            replace_file(self.home / CONDEMNED, json.dumps([self._present, reason]).encode() + b"\n")

    def path(self, number: int) -> Path:
        """Return the path of a copy."""
        return self.home / f"{_COPY}.{number}"

    def next_number(self) -> int:
        """Return an unused number."""
        return 1 + max([self._present, *self._numbers(_COPY), *self._numbers(_ASIDE)])

    def find(self) -> None:
        """Find the present copy; make an empty one in a new directory. Raises StoreDamaged, StoreError."""
        with store_errors(f"cannot open the directory {self.home.name}"):
            try:
                row = (self.home / POINTER).read_bytes()
            except FileNotFoundError:
                self._begin_in_new_directory()
                return
            pointer = self._understood(row)
            self._present, self._is_new = int(pointer["copy"]), bool(pointer["new"])
            copy = self.path(self._present)
            data = copy / "data" / "data.mdb"
            if not copy.is_dir():
                raise StoreDamaged(f"{copy.name}, which should be the present copy, is not there")
            if not self._is_new and (not data.exists() or data.stat().st_size == 0):
                raise StoreDamaged(f"{copy.name} has lost its tables")

    def move_aside(self, reason: str, loading: int | None) -> None:
        """Move damaged copies aside and begin an empty one; ``loading`` stays in place. Raises StoreError."""
        with store_errors(f"cannot move a damaged copy in {self.home.name} aside"):
            moved = []
            for number in self._numbers(_COPY):
                path = self.path(number)
                if number == loading:
                    continue
                # A copy that was not finished holds no data to inspect.
                if (self._is_new and number == self._present) or not any(path.iterdir()):
                    delete_tree(path)
                    continue
                aside = self.home / f"{_ASIDE}.{number}"
                delete_tree(aside)
                path.rename(aside)
                moved.append(aside.name)
            fsync_path(self.home)
            self._crash_point("start: moved aside")
            if not self._is_new or moved:
                self.trouble = f"{reason} (moved to {', '.join(moved)})" if moved else reason
            self._begin_empty()
            self._crash_point("start: empty copy begun")

    @contextmanager
    def opening(self, number: int) -> Iterator[None]:
        """Record the opening of a copy while it runs. Raises StoreDamaged after too many unfinished openings."""
        marks = self._marks()
        begun = marks.get(number, 0)
        if begun >= OPENINGS_LIMIT:
            self._set_mark(marks, number, 0)
            raise StoreDamaged(f"opening {_COPY}.{number} ended the process {begun} times in a row")
        self._set_mark(marks, number, begun + 1)
        self._crash_point("opening marked")
        try:
            yield
        finally:
            # An error ends the opening too; only a process that died leaves the mark.
            self._set_mark(self._marks(), number, 0)
        if number == self._present and self._is_new:
            self.point_to(number)

    def point_to(self, number: int) -> None:
        """Make an opened copy the present one; durable on return. Raises StoreError."""
        self._write_pointer(number, is_new=False)

    def delete_others(self, loading: int | None) -> None:
        """Delete the leftovers of a kill, and all but the last of the copies moved aside."""
        for number in self._numbers(_COPY):
            if number not in {self._present, loading}:
                delete_tree(self.path(number))
        for number in self._numbers(_ASIDE)[:-1]:
            delete_tree(self.home / f"{_ASIDE}.{number}")

    def delete_aside(self) -> bool:
        """Delete the copies moved aside; return whether there were any."""
        numbers = self._numbers(_ASIDE)
        for number in numbers:
            delete_tree(self.home / f"{_ASIDE}.{number}")
        return bool(numbers)

    def check_space(self, what: str, missing_bytes: int, free_bytes: Callable[[Path], int]) -> None:
        """Raise StoreFull when the disk lacks room for the missing bytes. Deletes a damaged copy moved aside if needed."""
        needed_bytes = missing_bytes + SPARE_BYTES
        if free_bytes(self.home) < needed_bytes:
            self.delete_aside()
        free = free_bytes(self.home)
        if free < needed_bytes:
            raise StoreFull(f"no space for {what}: it needs {needed_bytes:,} bytes beside the present copy, {free:,} are free")

    def check_room(self) -> None:
        """Raise StoreFull when no file can grow here: quotas and process limits do not show in the free space of the system."""
        room = self.home / ROOM
        with store_errors("there is no room"):
            try:
                with room.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
            finally:
                room.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock. Idempotent."""
        self._lock.close()

    def _begin_in_new_directory(self) -> None:
        if (self.home / "data").exists():
            raise StoreError(
                f"{self.home.name} holds the data of an earlier version of brokerha, or of another program: give the worker "
                "an empty directory, it takes the content from another worker"
            )
        if (self.home / OF_A_MASTER).exists():
            raise StoreError(f"{self.home.name} holds the journal of a master or a backup: give the worker a directory of its own")
        if any(any(self.path(number).iterdir()) for number in self._numbers(_COPY)):
            raise StoreDamaged(f"{self.home.name} does not say which of its copies is the present one")
        self._begin_empty()

    def _begin_empty(self) -> None:
        number = self.next_number()
        self.path(number).mkdir()
        fsync_path(self.home)
        self._crash_point("start: directory made")
        self._write_pointer(number, is_new=True)

    def _write_pointer(self, number: int, *, is_new: bool) -> None:
        pointer = {"format": FORMAT, "cluster": self._cluster, "node": self._node, "copy": number, "new": is_new}
        with store_errors(f"cannot change the present copy in {self.home.name}"):
            body = json.dumps(pointer).encode()
            replace_file(self.home / POINTER, b"%08x %s\n" % (crc32(body), body))
        self._present, self._is_new = number, is_new

    def _understood(self, row: bytes) -> dict[str, Any]:
        """Return the pointer. Raises StoreDamaged when it is malformed, StoreError when it belongs to another owner or version."""
        try:
            pointer = read_pointer(row)
            known, cluster, node = int(pointer["format"]), pointer["cluster"], pointer["node"]
            if known == FORMAT:
                int(pointer["copy"]), bool(pointer["new"])
        except (ValueError, TypeError, KeyError):
            raise StoreDamaged(f"{self.home.name} does not say which of its copies is the present one") from None
        if known != FORMAT:
            raise StoreError(
                f"the directory {self.home.name} has format {known}, this program knows {FORMAT}: use a later brokerha"
            )
        if (cluster, node) != (self._cluster, self._node):
            raise StoreError(
                f"the store belongs to node {node} of cluster {cluster}, not to {self._node} of {self._cluster}: "
                "wrong directory, or a wrong name in the cluster file"
            )
        return dict(pointer)

    def _marks(self) -> dict[int, int]:
        """Return the number of unfinished openings of each copy; an unreadable file counts as none."""
        try:
            return {int(number): int(count) for number, count in json.loads((self.home / OPENING).read_bytes()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _set_mark(self, marks: dict[int, int], number: int, count: int) -> None:
        """Write the mark of one copy, and drop the marks of deleted copies."""
        kept = {known: begun for known, begun in marks.items() if self.path(known).exists() and known != number}
        if count:
            kept[number] = count
        with store_errors(f"cannot open {_COPY}.{number}"):
            if kept:
                replace_file(self.home / OPENING, json.dumps(kept).encode() + b"\n")
            else:
                (self.home / OPENING).unlink(missing_ok=True)

    def _numbers(self, kind: str) -> list[int]:
        """Return the numbers of the entries of a kind, lowest first."""
        names = [path.name.partition(".") for path in self.home.glob(f"{kind}.*")]
        return sorted(int(number) for _, _, number in names if number.isdecimal())


def read_pointer(row: bytes) -> dict[str, Any]:
    """Return the content of a pointer file; empty when its checksum differs. Raises ValueError."""
    # A flipped bit in the name of the node must not look like the directory of another node.
    checksum, _, body = row.rstrip(b"\n").partition(b" ")
    return dict(json.loads(body)) if checksum == b"%08x" % crc32(body) else {}
