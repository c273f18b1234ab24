"""The journal contract, on LMDB and in memory, and on LMDB with bounds so small that each of them is reached."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import lmdb
import pytest

from brokerha.journal import writing
from brokerha.journal.beginning import Beginning
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.memory_journal import MemoryJournal
from brokerha.model.errors import JournalFull
from tests.contracts.beginning_contract import BeginningContract
from tests.contracts.defer_contract import DeferContract
from tests.contracts.epoch_contract import EpochContract
from tests.contracts.follow_contract import DecisionsContract, FollowContract
from tests.contracts.journal_contract import JournalContract, flag_set
from tests.contracts.rebase_contract import RebaseContract
from tests.contracts.rewind_contract import RewindContract
from tests.contracts.state_contract import StateContract
from tests.contracts.trim_contract import TrimContract

SMALL: dict[str, Any] = {"cache_bytes": 1, "ids_buffered": 2, "tail_records": 2}


class MemoryDisk:
    def __init__(self, begin_at: Beginning | None = None) -> None:
        self.journal = MemoryJournal("m1", "journal-of-m1", begin_at)

    def begun(self, beginning: Beginning) -> MemoryDisk:
        return MemoryDisk(beginning)

    def twin(self) -> MemoryDisk:
        return MemoryDisk()

    def restart(self) -> MemoryJournal:
        self.journal = MemoryJournal.from_image(self.journal.image())
        return self.journal

    def crash(self) -> MemoryJournal:
        return self.restart()

    def full(self) -> AbstractContextManager[None]:
        return flag_set(self.journal, "is_full")


class LmdbDisk:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **bounds: Any) -> None:
        self.directory = directory
        self.bounds = bounds
        self._monkeypatch = monkeypatch
        self.other: LmdbDisk | None = None
        self.journal = LmdbJournal(directory, "orders", "m1", **bounds)

    def begun(self, beginning: Beginning) -> LmdbDisk:
        """Make the journal anew."""
        self.journal.close()
        shutil.rmtree(self.directory)
        self.journal = LmdbJournal(self.directory, "orders", "m1", begin_at=beginning, **self.bounds)
        return self

    def twin(self) -> LmdbDisk:
        name = self.journal.state().journal
        with self._monkeypatch.context() as patch:
            patch.setattr(secrets, "token_hex", lambda _: name)
            self.other = LmdbDisk(self.directory.parent / "twin", self._monkeypatch, **self.bounds)
        return self.other

    def close(self) -> list[str]:
        """Close the journal, and that of the twin; returns problems of both."""
        problems = [] if self.journal._is_closed else list(self.journal.verify())
        self.journal.close()
        return problems if self.other is None else problems + self.other.close()

    def restart(self) -> LmdbJournal:
        self.journal.close()
        self.journal = LmdbJournal(self.directory, "orders", "m1", **self.bounds)
        return self.journal

    def crash(self) -> LmdbJournal:
        """Open what is in the file at this moment."""
        found = self.directory.with_name(f"{self.directory.name}-crashed")
        shutil.copytree(self.directory, found)
        self.journal.close()
        self.directory = found
        self.journal = LmdbJournal(found, "orders", "m1", **self.bounds)
        return self.journal

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fail where a full map does: after rows of the turn were handed to LMDB."""

        def put_state(*_: object) -> None:
            raise lmdb.MapFullError("simulated")

        def no_promise(*_: object) -> None:
            raise JournalFull("simulated")

        with self._monkeypatch.context() as patch:
            patch.setattr(self.journal, "_put_state", put_state)
            patch.setattr(writing, "keep_promise", no_promise)
            yield


class TestMemoryJournal(
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
    @pytest.fixture
    def disk(self) -> MemoryDisk:
        return MemoryDisk()

    @pytest.fixture
    def new_disk(self, disk: MemoryDisk) -> MemoryDisk:
        return disk


class TestLmdbJournal(
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
    bounds: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbDisk]:
        disk = LmdbDisk(tmp_path / "journal", monkeypatch, **self.bounds)
        yield disk
        assert disk.close() == []

    @pytest.fixture
    def new_disk(self, disk: LmdbDisk) -> LmdbDisk:
        return disk


class TestLmdbJournalWithSmallBounds(TestLmdbJournal):
    bounds = SMALL
