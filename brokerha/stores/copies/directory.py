"""The directory of a worker: which of the copies in it is the present one, and what a kill or damage left beside it.

    lock          held with flock while a process has the directory; holds its process id
    present       the pointer: checksum, then format, cluster, node, number of the present copy as JSON
    opening       how often each copy was begun to be opened and not finished; JSON, gone after a good opening
    copy.<n>/     the present copy (files/environment.py), and one that is being loaded (load.py)
    condemned     number of a copy that is not to be trusted, though it can be opened, and why; JSON
    aside.<n>/    the last copy that was damaged, to be looked at
    load          what is being loaded
    kept, kept.<n>/ the copy that is kept (kept.py)
    snapshots/    what is given to others (snapshots.py); deleted by a start
    room          is there for a moment, to see whether files can grow

A number is never used twice while anything of it is there. What neither the pointer nor `load` names is left over from a kill
and is deleted. Damage is told from mistakes: a copy that cannot be read is moved aside and the worker begins empty; a
directory that is in use, belongs to another node or to a later version, or has no space is an error, and nothing is changed.

A copy whose opening ends the process (LMDB and RocksDB abort on some damage) would do so for ever. So each opening is
written down before it begins, and one that began `OPENINGS_LIMIT` times without an end is taken for damaged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.stores.files.durable import delete_tree, fsync_path, replace_file
from brokerha.stores.files.environment import locked, store_errors

FORMAT: Final = 1
POINTER: Final = "present"
OPENING: Final = "opening"
CONDEMNED: Final = "condemned"
ROOM: Final = "room"
OF_A_MASTER: Final = "current"
"""Stands in the directory of a journal (log/FORMAT.md), and in none of a worker."""
ROOM_BYTES: Final = 1024 * 1024
OPENINGS_LIMIT: Final = 3
SPARE_BYTES: Final = 16 * 1024 * 1024
"""Space that a load leaves free: opening writes a little, and the present copy goes on."""

_COPY, _ASIDE = "copy", "aside"


class CopyDirectory:
    """The directory, locked for this process until `close`. Raises StoreError when another has it."""

    def __init__(self, home: Path, cluster: str, node: str, crash_point: Callable[[str], None]) -> None:
        self.home = home
        self.trouble = ""
        """Why the copy that was found could not be used; it is aside now."""
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
        """Number of the present copy."""
        return self._present

    @property
    def condemned(self) -> str:
        """Why the present copy is not to be trusted; empty when nobody said so, or of another copy."""
        try:
            number, reason = json.loads((self.home / CONDEMNED).read_bytes())
        except (OSError, ValueError, TypeError):
            return ""
        return str(reason) if number == self._present else ""

    def condemn(self, reason: str) -> None:
        """Remember why the present copy is not to be trusted; durable on return. Raises StoreError."""
        with store_errors(f"cannot write down in {self.home.name} that its copy is damaged"):
            replace_file(self.home / CONDEMNED, json.dumps([self._present, reason]).encode() + b"\n")

    def path(self, number: int) -> Path:
        """Where a copy lies."""
        return self.home / f"{_COPY}.{number}"

    def next_number(self) -> int:
        """A number that nothing has."""
        return 1 + max([self._present, *self._numbers(_COPY), *self._numbers(_ASIDE)])

    def find(self) -> None:
        """Find the present copy; in a new directory make an empty one. Raises StoreDamaged, StoreError."""
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
        """Put what is damaged out of the way, and begin an empty copy; ``loading`` is left where it is. Raises StoreError."""
        with store_errors(f"cannot move a damaged copy in {self.home.name} aside"):
            moved = []
            for number in self._numbers(_COPY):
                path = self.path(number)
                if number == loading:
                    continue
                # One that was not finished yet holds nothing that anybody could miss.
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
        """Around opening a copy. Raises StoreDamaged when that was begun too often without an end."""
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
            # An error is an end too: only a process that died leaves the mark behind.
            self._set_mark(self._marks(), number, 0)
        if number == self._present and self._is_new:
            self.point_to(number)

    def point_to(self, number: int) -> None:
        """Make a copy that was opened the present one; durable on return. Raises StoreError."""
        self._write_pointer(number, is_new=False)

    def delete_others(self, loading: int | None) -> None:
        """Delete what a kill left over, and all but the last of what was moved aside."""
        for number in self._numbers(_COPY):
            if number not in {self._present, loading}:
                delete_tree(self.path(number))
        for number in self._numbers(_ASIDE)[:-1]:
            delete_tree(self.home / f"{_ASIDE}.{number}")

    def delete_aside(self) -> bool:
        """Delete what was moved aside; returns whether there was anything."""
        numbers = self._numbers(_ASIDE)
        for number in numbers:
            delete_tree(self.home / f"{_ASIDE}.{number}")
        return bool(numbers)

    def check_space(self, what: str, missing_bytes: int, free_bytes: Callable[[Path], int]) -> None:
        """Raise StoreError when the disk has no room for what is missing; a damaged copy that lies aside makes room first."""
        needed_bytes = missing_bytes + SPARE_BYTES
        if free_bytes(self.home) < needed_bytes:
            self.delete_aside()
        free = free_bytes(self.home)
        if free < needed_bytes:
            raise StoreError(f"no space for {what}: it needs {needed_bytes:,} bytes beside the present copy, {free:,} are free")

    def check_room(self) -> None:
        """Raise StoreError when no file can grow here. What the system says of free space does not tell quotas and limits of a process."""
        room = self.home / ROOM
        with store_errors("there is no room"):
            try:
                with room.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
            finally:
                room.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the next process in. Idempotent."""
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
        """The pointer. Raises StoreDamaged when it is none, StoreError when it is not ours."""
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
        """How often the opening of each copy was begun; what cannot be read counts for nothing."""
        try:
            return {int(number): int(count) for number, count in json.loads((self.home / OPENING).read_bytes()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _set_mark(self, marks: dict[int, int], number: int, count: int) -> None:
        """Write the mark of one copy, and drop those of copies that are gone."""
        kept = {known: begun for known, begun in marks.items() if self.path(known).exists() and known != number}
        if count:
            kept[number] = count
        with store_errors(f"cannot open {_COPY}.{number}"):
            if kept:
                replace_file(self.home / OPENING, json.dumps(kept).encode() + b"\n")
            else:
                (self.home / OPENING).unlink(missing_ok=True)

    def _numbers(self, kind: str) -> list[int]:
        """Numbers of what is there of a kind, lowest first."""
        names = [path.name.partition(".") for path in self.home.glob(f"{kind}.*")]
        return sorted(int(number) for _, _, number in names if number.isdecimal())


def read_pointer(row: bytes) -> dict[str, Any]:
    """What a pointer file says; nothing when its checksum differs. Raises ValueError."""
    # A bit that flipped in the name of the node must not look like the directory of another node.
    checksum, _, body = row.rstrip(b"\n").partition(b" ")
    return dict(json.loads(body)) if checksum == b"%08x" % crc32(body) else {}
