"""Free space goes back to the disk: by a smaller copy of the file, which a crash at any moment leaves whole or not there."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from brokerha.journal import compaction, lmdb_journal
from brokerha.journal.database import Database
from brokerha.journal.directory import COPY, DATA
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.model.errors import JournalError
from brokerha.model.records import Started
from tests.unit.journal.turns import Author, body_of, everything, filled

IDS = [f"t{n}" for n in range(1, 500, 7)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def trimmed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbJournal]:
    """A journal of 500 transactions that holds the last 20: most of its file is free."""
    monkeypatch.setattr(compaction, "COMPACT_FREE_BYTES", 4096)
    journal = LmdbJournal(directory, "orders", "m1", ids_buffered=50)
    journal.append([Started(1)])
    filled(journal, turns=100, per_turn=5)
    while journal.trim(below=481) or journal.first_lsn() < 481:
        pass
    yield journal
    journal.close()


def answers(journal: LmdbJournal) -> dict[str, object]:
    return everything(journal, IDS, ["m1", "m2"])


def test_a_compacted_journal_is_smaller_and_gives_the_same_answers(directory: Path, trimmed: LmdbJournal) -> None:
    before, (old_bytes, used_bytes) = answers(trimmed), trimmed.size()
    assert old_bytes > 2 * used_bytes
    assert trimmed.compact()
    assert answers(trimmed) == before
    assert list(trimmed.verify()) == []
    new_bytes, _ = trimmed.size()
    assert new_bytes < old_bytes / 2
    assert (directory / DATA).stat().st_blocks * 512 < old_bytes / 2 + 4096
    # And it is not due again, and is kept longer than it needs to be, as any journal's file
    assert not trimmed.compact()
    assert (directory / DATA).stat().st_size > new_bytes + (16 << 20)


def test_turns_go_on_in_the_compacted_file(directory: Path, trimmed: LmdbJournal) -> None:
    assert trimmed.compact()
    author = Author("m1", "m2")
    author.lsn = author.executed = author.used["m1"] = 500
    author.streams["m1"] = [(0, "")] * 500
    author.clock = 5_000
    filled(trimmed, turns=3, per_turn=5, author=author)
    before = answers(trimmed)
    trimmed.close()
    opened = LmdbJournal(directory, "orders", "m1")
    assert answers(opened) == before
    assert opened.body("m1", "t515") == body_of("t515")
    assert list(opened.verify()) == []
    opened.close()


def test_a_crash_at_any_step_leaves_one_whole_journal(
    directory: Path, trimmed: LmdbJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(trimmed)
    shots: list[tuple[str, Path]] = []

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            shoot(f"before {name}")
            result = call(*args, **kwargs)
            shoot(f"after {name}")
            return result

        return step

    def shoot(moment: str) -> None:
        shots.append((moment, tmp_path / f"shot-{len(shots)}"))
        shutil.copytree(directory, shots[-1][1])

    # Given what the disk holds before and after each step of a compaction
    with monkeypatch.context() as patch:
        for holder, name in (
            (os, "ftruncate"),
            (os, "fsync"),
            (Path, "replace"),
            (Database, "close"),
            (Database, "_open"),
        ):
            patch.setattr(holder, name, watched(name, getattr(holder, name)))
        assert trimmed.compact()
    assert {"before ftruncate", "after replace", "after _open"} <= {name for name, _ in shots}
    assert any((shot / COPY).exists() for _, shot in shots)
    # And a copy of which only half was written
    half = tmp_path / "half"
    shutil.copytree(shots[0][1], half)
    os.truncate(half / COPY, 9_000)
    # When a node starts there, then it finds everything, and no copy
    for name, shot in [*shots, ("half a copy", half)]:
        opened = LmdbJournal(shot, "orders", "m1", ids_buffered=50)
        assert answers(opened) == before, name
        assert list(opened.verify()) == []
        assert not (shot / COPY).exists()
        opened.close()


def test_other_threads_read_while_the_file_is_exchanged(trimmed: LmdbJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "is_due", lambda *_: True)
    problems: list[str] = []
    done = threading.Event()
    reads = 0

    def read() -> None:
        nonlocal reads
        while not done.is_set():
            problems.extend(
                f"t{lsn}"
                for lsn in range(481, 501)
                if trimmed.lsn_of(f"t{lsn}") != lsn or trimmed.body("m1", f"t{lsn}") != body_of(f"t{lsn}")
            )
            if len(list(trimmed.records())) != 16:
                problems.append("records")
            reads += 1

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(20):
        assert trimmed.compact()
    done.set()
    thread.join(timeout=60)
    assert problems == []
    assert reads > 0


def test_a_large_journal_is_compacted_only_when_it_is_opened(
    directory: Path, trimmed: LmdbJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_journal, "COMPACT_AT_WORK_BYTES", 8_192)
    before, (old_bytes, _) = answers(trimmed), trimmed.size()
    assert not trimmed.compact()
    assert trimmed.size()[0] == old_bytes
    trimmed.close()
    opened = LmdbJournal(directory, "orders", "m1", ids_buffered=50)
    assert opened.size()[0] < old_bytes / 2
    assert answers(opened) == before
    opened.close()


def test_a_copy_for_which_there_is_no_space_is_given_up_for_a_while(
    directory: Path, trimmed: LmdbJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(trimmed)

    def no_space(_handle: int, _length: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", no_space)
        assert not trimmed.compact()
    assert not (directory / COPY).exists()
    assert answers(trimmed) == before
    # Not at once again, but after so much was written that things may have changed
    assert not trimmed.compact()
    monkeypatch.setattr(trimmed, "_written_bytes", 1 << 30)
    assert trimmed.compact()


def test_no_copy_is_begun_on_a_disk_that_is_nearly_full(trimmed: LmdbJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 1_000, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("a copy was begun"))
    assert not trimmed.compact()


def test_nothing_more_is_written_when_the_file_could_not_be_exchanged(
    directory: Path, trimmed: LmdbJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(trimmed)

    def broken(*_: object) -> None:
        raise lmdb.Error("Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "exchange", broken)
        with pytest.raises(JournalError, match="could not be exchanged"):
            trimmed.compact()
    with pytest.raises(JournalError, match="start the node again"):
        trimmed.append([Started(2)])
    trimmed.close()
    opened = LmdbJournal(directory, "orders", "m1", ids_buffered=50)
    assert answers(opened) == before
    opened.close()


def test_keeping_compacts_once_nothing_is_left_to_trim(directory: Path, trimmed: LmdbJournal) -> None:
    old_bytes = trimmed.size()[0]
    assert not trimmed.keep(below=481, ids_below=1)
    assert trimmed.size()[0] < old_bytes / 2
