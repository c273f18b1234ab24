"""A repository engine made of lines, for tests of what is around it: slow disks, full disks, power losses.

It takes ``add`` and ``remove`` as they are; the update ``COUNT`` stands for operations that read everything: it replaces
the one quad ``<urn:all> <urn:count> "n"`` by one with the present number of lines. What is not flushed is in a
file of its own, so that a test can lose it (`lose_power`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from brokerha.model.errors import Rejected, StoreError
from brokerha.model.operations import Operation
from brokerha.stores.rdf.change import PendingQuads, QuadChange
from brokerha.stores.rdf.repository import RdfRepository


class LineEngine:
    """The part of RdfRepository that a worker's store uses for writing, and `lines`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.refuses: Callable[[], bool] = lambda: False
        """Whether the next commit finds the disk full."""
        self.commits: list[int] = []
        self.flushes = 0
        newest = directory / "written"
        if not newest.exists():
            newest = directory / "flushed"
        self.position, held = json.loads(newest.read_text()) if newest.exists() else (0, [])
        self.held: set[str] = set(held)

    def commit(self, removed: Iterable[str], added: Iterable[str], lsn: int) -> None:
        if self.refuses():
            raise StoreError("the disk is full")
        self.held = (self.held - set(removed)) | set(added)
        self.position = lsn
        self.commits.append(lsn)
        self._write("written")

    def move_to(self, lsn: int) -> None:
        self.position = lsn
        self._write("written")

    def flush(self) -> None:
        self.flushes += 1
        self._write("flushed")

    def close(self) -> None:
        pass

    def lines(self) -> Iterator[str]:
        return iter(sorted(self.held))

    def needs_engine(self, operation: Operation) -> bool:
        return bool(operation[0] == "update")

    def change_of(
        self,
        operations: Sequence[tuple[int, Operation]],
        _txid: str,
        _timestamp: int,
        pending: PendingQuads,
        *,
        union: bool = False,
        clear: object = None,
        is_last: bool = True,
    ) -> QuadChange:
        seen, own = pending.copy(), PendingQuads()
        for _, operation in operations:
            change = self._change_of(operation, seen)
            seen.include(change)
            own.include(change)
        return own.change()

    def _change_of(self, operation: Operation, pending: PendingQuads) -> QuadChange:
        now = (self.held - pending.removed) | pending.added
        if operation[0] == "update":
            if operation[2] != "COUNT":
                raise Rejected(f"MALFORMED: {operation[2]}")
            old = {line for line in now if line.startswith("<urn:all> ")}
            new = {f'<urn:all> <urn:count> "{len(now - old)}"'}
            return QuadChange(tuple(sorted(old - new)), tuple(sorted(new - old)))
        lines = {line.removesuffix(".").rstrip() for line in operation[2].splitlines()}
        if operation[0] == "add":
            return QuadChange((), tuple(sorted(lines - now)))
        return QuadChange(tuple(sorted(lines & now)), ())

    def _write(self, name: str) -> None:
        waiting = self.directory / "waiting"
        waiting.write_text(json.dumps([self.position, sorted(self.held)]))
        waiting.replace(self.directory / name)
        if name == "flushed":
            (self.directory / "written").unlink(missing_ok=True)


class Engines:
    """Opens line engines and remembers them by the name of their directory."""

    def __init__(self) -> None:
        self.opened: dict[str, LineEngine] = {}

    def __call__(self, directory: Path) -> RdfRepository:
        self.opened[directory.name] = LineEngine(directory)
        return cast("RdfRepository", self.opened[directory.name])

    @property
    def main(self) -> LineEngine:
        return self.opened["main.0"]


def lose_power(store_directory: Path) -> None:
    """Take away whatever engines have not flushed. LMDB loses nothing, because it waits for the disk."""
    for directory in (store_directory / "repositories").iterdir():
        (directory / "written").unlink(missing_ok=True)
