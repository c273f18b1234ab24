"""The journal contract: the log in a directory, and in memory, with bounds so small that each of them is reached."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from brokerha.log.current import Beginning
from brokerha.log.disks import FileDisk, MemoryDisk
from brokerha.log.log import Log
from tests.contracts.beginning_contract import BeginningContract
from tests.contracts.defer_contract import DeferContract
from tests.contracts.epoch_contract import EpochContract
from tests.contracts.follow_contract import DecisionsContract, FollowContract
from tests.contracts.journal_contract import JournalContract, flag_set
from tests.contracts.rebase_contract import RebaseContract
from tests.contracts.rewind_contract import RewindContract
from tests.contracts.state_contract import StateContract
from tests.contracts.trim_contract import TrimContract

SMALL: dict[str, Any] = {"cache_bytes": 1, "ids_held": 2, "segment_bytes": 300}
NAME = "journal-of-m1"


class InMemory:
    def __init__(self, bounds: dict[str, Any], begin_at: Beginning | None = None) -> None:
        self.bounds = bounds
        self.disk = MemoryDisk()
        self.journal = Log(self.disk, "orders", "m1", name=NAME, begin_at=begin_at, **bounds)
        self.other: InMemory | None = None

    def begun(self, beginning: Beginning) -> InMemory:
        """Make the journal anew."""
        self.__init__(self.bounds, beginning)  # type: ignore[misc]
        return self

    def twin(self) -> InMemory:
        self.other = InMemory(self.bounds)
        return self.other

    def close(self) -> list[str]:
        """Close the journal, and that of the twin; returns problems of both."""
        problems = [] if self.journal._is_closed else list(self.journal.verify())
        self.journal.close()
        return problems if self.other is None else problems + self.other.close()

    def restart(self) -> Log:
        self.journal.close()
        self.journal = Log(self.disk, "orders", "m1", **self.bounds)
        return self.journal

    def crash(self) -> Log:
        """Open what is on the disk at this moment."""
        self.disk = self.disk.copy()
        self.journal = Log(self.disk, "orders", "m1", **self.bounds)
        return self.journal

    def full(self) -> AbstractContextManager[None]:
        return flag_set(self.disk, "is_full")


class InFiles:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any]) -> None:
        self.directory = directory
        self.bounds = bounds
        self._monkeypatch = monkeypatch
        self.other: InFiles | None = None
        self.journal = Log(FileDisk(directory), "orders", "m1", name=NAME, **bounds)

    def begun(self, beginning: Beginning) -> InFiles:
        """Make the journal anew."""
        self.journal.close()
        shutil.rmtree(self.directory)
        self.journal = Log(FileDisk(self.directory), "orders", "m1", begin_at=beginning, **self.bounds)
        return self

    def twin(self) -> InFiles:
        self.other = InFiles(self.directory.parent / "twin", self._monkeypatch, self.bounds)
        return self.other

    def close(self) -> list[str]:
        """Close the journal, and that of the twin; returns problems of both."""
        problems = [] if self.journal._is_closed else list(self.journal.verify())
        self.journal.close()
        return problems if self.other is None else problems + self.other.close()

    def restart(self) -> Log:
        self.journal.close()
        self.journal = Log(FileDisk(self.directory), "orders", "m1", **self.bounds)
        return self.journal

    def crash(self) -> Log:
        """Open what is in the files at this moment."""
        found = self.directory.with_name(f"{self.directory.name}-crashed")
        shutil.copytree(self.directory, found)
        self.journal.close()
        self.directory = found
        self.journal = Log(FileDisk(found), "orders", "m1", **self.bounds)
        return self.journal

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fail where a full disk does: after a part of the turn was written."""
        disk = self.journal.disk
        write = disk.write

        def write_half(name: str, offset: int, data: bytes) -> None:
            write(name, offset, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "simulated")

        with self._monkeypatch.context() as patch:
            patch.setattr(disk, "write", write_half)
            yield


class Contract(
    JournalContract,
    DecisionsContract,
    DeferContract,
    EpochContract,
    FollowContract,
    RebaseContract,
    RewindContract,
    StateContract,
    TrimContract,
    BeginningContract,
):
    """All of it; subclasses give the fixture ``disk``."""

    bounds: ClassVar[dict[str, Any]] = {}


class TestLogInMemory(Contract):
    @pytest.fixture
    def disk(self) -> Iterator[InMemory]:
        disk = InMemory(self.bounds)
        yield disk
        assert disk.close() == []

    @pytest.fixture
    def new_disk(self, disk: InMemory) -> InMemory:
        return disk


class TestLogInMemoryWithSmallBounds(TestLogInMemory):
    bounds = SMALL


class TestLogInFiles(Contract):
    @pytest.fixture
    def disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InFiles]:
        disk = InFiles(tmp_path / "journal", monkeypatch, self.bounds)
        yield disk
        assert disk.close() == []

    @pytest.fixture
    def new_disk(self, disk: InFiles) -> InFiles:
        return disk
