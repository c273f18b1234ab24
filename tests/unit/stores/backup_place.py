"""A folder of backups and a copy that is nothing but a list of lines and a few files: fast, and safe to fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from brokerha.model.fingerprints import EMPTY, packed, text_of
from brokerha.model.operations import LoggedRow
from brokerha.ports.copies import Snapshot
from brokerha.ports.store import Applied
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.backup.writing import About, Work, extend_backup, write_backup

CHUNK_BYTES = 1000
NOW_US = 1_795_234_542_116_798


class PlainCopy:
    """As much of a WorkerCopy as a backup asks for."""

    def __init__(self, first_lsn: int = 1) -> None:
        self.lines: list[LoggedRow] = []
        self.first_lsn = first_lsn
        self.files = {"data/data.mdb": b"d" * 2500, "repositories/main.0/A": b"", "repositories/main.0/B": b"b" * 10}
        self.snapshots: set[str] = set()
        self.lineage = 0
        self.is_lying = False
        """Whether chunks are not what the snapshot says."""

    def add(self, count: int, effect_bytes: int = 20) -> None:
        """Lines with fingerprints of their own."""
        for _ in range(count):
            lsn = self.first_lsn + len(self.lines)
            self.lines.append((f"t{lsn}", 1000 * lsn, "applied", "", bytes(effect_bytes), packed(lsn)))

    def go_back(self, lsn: int, lineage: int) -> None:
        """What was after an LSN is void; what comes there is something else."""
        del self.lines[lsn - self.first_lsn + 1 :]
        self.lineage = lineage

    def applied(self) -> Applied:
        lsn = self.first_lsn + len(self.lines) - 1
        return Applied(lsn, text_of(self.lines[-1][5] if self.lines else EMPTY), 7)

    def logged(self, first_lsn: int, last_lsn: int) -> list[LoggedRow]:
        start = first_lsn - self.first_lsn
        return self.lines[start : last_lsn - self.first_lsn + 1] if start >= 0 else []

    def logged_from(self) -> int:
        return self.first_lsn

    def make_snapshot(self, name: str) -> Snapshot:
        self.snapshots.add(name)
        files = [(path, len(data), b"".join(sha256(c).digest() for c in _cut(data))) for path, data in self.files.items()]
        return Snapshot(*self.applied(), CHUNK_BYTES, tuple(files))

    def read_chunk(self, name: str, number: int) -> bytes | None:
        chunks = [chunk for data in self.files.values() for chunk in _cut(data)]
        if name not in self.snapshots:
            return None
        return b"x" if self.is_lying else chunks[number]

    def drop_snapshot(self, name: str) -> None:
        self.snapshots.discard(name)


def _cut(data: bytes) -> list[bytes]:
    return [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]


class Backups:
    """The folder, and how a test writes into it."""

    def __init__(self, path: Path) -> None:
        self.folder = BackupFolder(path)
        self.copy: Any = PlainCopy()
        self.steps: list[tuple[int, int]] = []
        self.places: list[str] = []

    def work(self, request: str = "", node: str = "w1", crash_point: Callable[[str], None] | None = None) -> Work:
        about = About("orders", node, ("m1", "m2"))
        meter = lambda done, total: self.steps.append((done, total))  # noqa: E731
        return Work(about, NOW_US, request, meter, crash_point or self.places.append)

    def write(self, name: str = "monday", *, replace: bool = False, request: str = "") -> Manifest:
        return write_backup(self.folder, name, self.copy, self.work(request), replace=replace)

    def extend(self, name: str = "monday", request: str = "", node: str = "w1") -> Manifest:
        return extend_backup(self.folder, name, self.copy, self.work(request, node))

    def problems(self, name: str = "monday") -> list[str]:
        return list(self.folder.backup(name).verify())

    def left_behind(self) -> list[str]:
        """What lies in the folder and is no backup."""
        return sorted(path.name for path in self.folder.path.iterdir() if path.name.startswith(".") and path.name != ".lock")


def killed_at(place: str, act: Callable[[Callable[[str], None]], object]) -> None:
    """Do something in a child that dies at a place, without any chance to tidy up."""

    def crash_point(where: str) -> None:
        if where == place:
            os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            act(crash_point)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, f"never came to {place!r}"
