"""The journal contract, on LMDB and in memory, and on LMDB with bounds so small that each of them is reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.memory_journal import MemoryJournal
from tests.contracts.journal_contract import JournalContract, flag_set
from tests.contracts.rebase_contract import RebaseContract
from tests.contracts.trim_contract import TrimContract

SMALL: dict[str, Any] = {"cache_bytes": 1, "ids_buffered": 2, "tail_records": 2}


class MemoryDisk:
    def __init__(self) -> None:
        self.journal = MemoryJournal("m1", "journal-of-m1")

    def restart(self) -> MemoryJournal:
        self.journal = MemoryJournal.from_image(self.journal.image())
        return self.journal

    def full(self) -> AbstractContextManager[None]:
        return flag_set(self.journal, "is_full")


class LmdbDisk:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **bounds: Any) -> None:
        self.directory = directory
        self.bounds = bounds
        self._monkeypatch = monkeypatch
        self.journal = LmdbJournal(directory, "orders", "m1", **bounds)

    def restart(self) -> LmdbJournal:
        self.journal.close()
        self.journal = LmdbJournal(self.directory, "orders", "m1", **self.bounds)
        return self.journal

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fail where a full map does: after rows of the turn were handed to LMDB."""

        def put_state(*_: object) -> None:
            raise lmdb.MapFullError("simulated")

        with self._monkeypatch.context() as patch:
            patch.setattr(self.journal, "_put_state", put_state)
            yield


class TestMemoryJournal(JournalContract, RebaseContract, TrimContract):
    @pytest.fixture
    def disk(self) -> MemoryDisk:
        return MemoryDisk()


class TestLmdbJournal(JournalContract, RebaseContract, TrimContract):
    @pytest.fixture
    def disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbDisk]:
        disk = LmdbDisk(tmp_path / "journal", monkeypatch)
        yield disk
        disk.journal.close()


class TestLmdbJournalWithSmallBounds(JournalContract, RebaseContract, TrimContract):
    @pytest.fixture
    def disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbDisk]:
        disk = LmdbDisk(tmp_path / "journal", monkeypatch, **SMALL)
        yield disk
        problems = [] if disk.journal._is_closed else list(disk.journal.verify())
        disk.journal.close()
        assert problems == []
