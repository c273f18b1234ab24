"""The contract of journals as a whole, in memory and on a disk, and what only a disk can do: be full, and be left by a kill."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerha.log.copies import LogCopy
from brokerha.log.disks import FileDisk, MemoryDisk
from brokerha.model.errors import JournalError, JournalFull, JournalInUse
from brokerha.model.ids import NodeId
from brokerha.model.records import Started
from tests.contracts.journal_contract import flag_set
from tests.contracts.journal_copy_contract import JournalCopyContract, carry, content, give, numbers, used
from tests.unit.log.turns import filled

CHUNK_BYTES = 1_000

Open = Callable[..., LogCopy]


class TestLogCopyInMemory(JournalCopyContract):
    @pytest.fixture
    def opened(self) -> Open:
        def open_one(process: str, node: NodeId = "m1") -> LogCopy:
            return LogCopy(MemoryDisk(), "orders", node, name=f"journal-of-{process}", chunk_bytes=200)

        return open_one

    @pytest.fixture
    def reopened(self) -> Callable[[LogCopy], LogCopy]:
        return lambda copy: LogCopy(copy.disk.copy(), "orders", "m1", chunk_bytes=200)  # type: ignore[attr-defined]

    def test_a_full_disk_is_said_and_the_load_goes_on_later(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = source.make_snapshot("n")
        with flag_set(follower.disk, "is_full"), pytest.raises(JournalFull):
            follower.begin_load("n", snapshot)
        carry(source, follower)
        old = follower.journal.state()
        with flag_set(follower.disk, "is_full"), pytest.raises(JournalFull):
            follower.open_load()
        assert follower.journal.state() == old
        follower.open_load()
        assert content(follower) == content(source)

    def test_equal_journals_have_equal_bytes(self, opened: Open) -> None:
        snapshots = []
        for _ in range(2):
            copy = opened("a")
            used(copy)
            snapshots.append(copy.make_snapshot("n"))
        assert snapshots[0] == snapshots[1]


class TestLogCopyOfManySegments(JournalCopyContract):
    """With segments so short that each part of a snapshot is there several times."""

    @pytest.fixture
    def opened(self) -> Open:
        def open_one(process: str, node: NodeId = "m1") -> LogCopy:
            name = f"journal-of-{process}"
            return LogCopy(MemoryDisk(), "orders", node, name=name, chunk_bytes=200, segment_bytes=500, ids_held=3)

        return open_one

    @pytest.fixture
    def reopened(self) -> Callable[[LogCopy], LogCopy]:
        return lambda copy: LogCopy(copy.disk.copy(), "orders", "m1", chunk_bytes=200, segment_bytes=500, ids_held=3)  # type: ignore[attr-defined]


class InFiles:
    """Copies in directories."""

    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Open]:
        copies = []

        def open_one(process: str, node: NodeId = "m1") -> LogCopy:
            copy = LogCopy(FileDisk(tmp_path / process), "orders", node, chunk_bytes=CHUNK_BYTES)
            copies.append(copy)
            return copy

        yield open_one
        for copy in copies:
            problems = [] if copy.journal._is_closed else list(copy.journal.verify())
            copy.close()
            assert problems == []

    @pytest.fixture
    def reopened(self, opened: Open) -> Callable[[LogCopy], LogCopy]:
        def reopen(copy: LogCopy) -> LogCopy:
            copy.journal.close()
            return opened(Path(copy.disk.place).name)

        return reopen


class TestLogCopy(InFiles, JournalCopyContract):
    def test_nothing_is_left_beside_a_loaded_journal(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        follower.journal.promise(1)
        carry(source, follower)
        follower.open_load()
        assert follower.disk.names() == ["2/00000000.log", "2/checkpoint", "current", "promise"]

    def test_what_is_given_away_stays_until_it_is_dropped(self, opened: Open) -> None:
        source = opened("a")
        author = filled(source.journal, turns=3)
        snapshot = source.make_snapshot("n")
        source.journal._segments.roll_at = 1
        filled(source.journal, turns=3, author=author)
        source.journal.trim(below=6)
        source.journal._segments.roll_at = 1
        source.journal.append([Started(9)])
        assert "1/00000000.log" in source.disk.names()
        follower = opened("b")
        assert carry(source, follower) == snapshot
        source.drop_snapshot("n")
        source.journal._segments.roll_at = 1
        source.journal.append([Started(10)])
        assert "1/00000000.log" not in source.disk.names()

    def test_what_is_given_away_stays_when_a_write_fails_meanwhile(self, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        source, follower = opened("a"), opened("b")
        author = filled(source.journal, turns=3)
        snapshot = source.make_snapshot("n")

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(source.disk, "write", refuse)
            with pytest.raises(JournalFull):
                source.journal.append([Started(8)])
        source.journal._segments.roll_at = 1
        filled(source.journal, turns=3, author=author)
        source.journal.trim(below=6)
        source.journal._segments.roll_at = 1
        source.journal.append([Started(9)])
        assert carry(source, follower) == snapshot
        follower.open_load()

    def test_appending_goes_on_while_snapshots_are_made(self, opened: Open) -> None:
        # Given a journal that is written all the time
        source, follower = opened("a"), opened("b")
        author = filled(source.journal, turns=20)
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                filled(source.journal, turns=1, author=author)
                source.journal.keep(below=author.lsn - 40)

        writer = threading.Thread(target=write)
        writer.start()
        # When snapshots are made meanwhile
        try:
            for name in "abc":
                snapshot = carry(source, follower, name)
                # Then each is a whole journal at one number
                follower.open_load()
                assert follower.journal.last_number == snapshot.lsn
                assert list(follower.journal.verify()) == []
                source.drop_snapshot(name)
        finally:
            done.set()
            writer.join()

    def test_a_load_for_which_there_is_no_space_is_refused(self, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        source, follower = opened("a"), opened("b")
        snapshot = source.make_snapshot("n")
        with monkeypatch.context() as patch:
            patch.setattr(follower.disk, "free_bytes", lambda: 1_000)
            with pytest.raises(JournalFull, match="no space for a snapshot of the journal: it needs"):
                follower.begin_load("n", snapshot)
        assert follower.pending_load == ""
        carry(source, follower)
        follower.open_load()

    def test_a_directory_that_is_open_is_not_opened_again(self, opened: Open) -> None:
        source, follower = opened("a"), opened("b")
        carry(source, follower)
        follower.open_load()
        with pytest.raises(JournalInUse):
            opened("b")

    def test_a_load_that_cannot_be_opened_does_not_let_others_open_the_directory(self, opened: Open) -> None:
        source, follower = opened("a", "m2"), opened("b")
        carry(source, follower)
        with pytest.raises(JournalError, match="belongs to node m2"):
            follower.open_load()
        with pytest.raises(JournalInUse):
            opened("b")

    def test_chunks_that_a_power_cut_spoiled_are_asked_for_again(self, opened: Open, tmp_path: Path) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = carry(source, follower)
        follower.close()
        spoiled = len(numbers(snapshot)) - 1
        with (tmp_path / "b" / "2" / "00000000.log").open("r+b") as file:
            file.seek(-9, 2)
            file.write(b"\0spoiled\0")
        follower = opened("b")
        assert follower.begin_load("n", snapshot) == set(numbers(snapshot)) - {spoiled}
        give(source, follower, "n", [spoiled])
        follower.open_load()
        assert content(follower) == content(source)

    def test_the_old_journal_is_back_when_the_new_one_cannot_be_opened(self, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        follower.journal.append([Started(7)])
        carry(source, follower)
        # Given a disk that cannot make it last that the new file has its name
        real = follower._opened
        calls = []

        def failing(**options: Any) -> object:
            calls.append(options.get("folder", ""))
            if len(calls) == 2:
                raise JournalError("simulated")
            return real(**options)

        monkeypatch.setattr(follower, "_opened", failing)
        with pytest.raises(JournalError, match="simulated"):
            follower.open_load()
        monkeypatch.undo()
        # Then the old one is as it was, and the load begins anew
        assert calls == ["2", "", ""]
        follower.journal.append([Started(8)])
        carry(source, follower)
        follower.open_load()
        assert content(follower) == content(source)


KILLED = """
import json, os, pathlib, shutil, sys
from brokerha.log.copies import LogCopy
from brokerha.log.disks import FileDisk
from tests.contracts.journal_copy_contract import carry, used
from brokerha.model.records import Started

root = pathlib.Path(sys.argv[1])
EVENTS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}

def opened(name):
    return LogCopy(FileDisk(root / name), "orders", "m1", chunk_bytes=8000, segment_bytes=1500)

source = opened("a")
used(source)
follower = opened("template")
follower.journal.append([Started(77)])
follower.journal.promise(12)
follower.close()
wanted = source.journal.state()
wanted.promised_view = 12

def load_and_die(at):
    count = 0
    def on_event(event, arguments):
        nonlocal count
        if event in EVENTS and str(arguments[0]).startswith(str(root / "b")):
            count += 1
            if count == at:
                os._exit(9)
    follower = opened("b")
    sys.addaudithook(on_event)
    carry(source, follower)
    follower.open_load()
    os._exit(0)

story = []
source.make_snapshot("n")
while not story or story[-1] != "done":
    shutil.copytree(root / "template", root / "b")
    child = os.fork()
    if child == 0:
        load_and_die(len(story) + 1)
    _, status = os.waitpid(child, 0)
    copy = opened("b")
    state = copy.journal.state()
    problems = list(copy.journal.verify())
    assert problems == [], problems
    assert state.promised_view == 12
    if state == wanted:
        found = "new"
    else:
        assert (state.incarnation, state.last_number) == (77, 1), state
        found = "old"
    # What was begun goes on, or begins anew
    if found == "old":
        carry(source, copy)
        copy.open_load()
        assert copy.journal.state() == wanted
    copy.close()
    assert sorted(p.name for p in (root / "b").iterdir()) == ["2", "current", "owner", "promise"]
    shutil.rmtree(root / "b")
    story.append(found if os.waitstatus_to_exitcode(status) == 9 else "done")
print(json.dumps(story))
"""


def test_a_kill_at_any_moment_of_a_load_leaves_the_old_journal_or_the_new_one_whole(tmp_path: Path) -> None:
    # Given a process that is killed before the first file that it touches in a load, then before the second, and so on
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 0, done.stderr
    story = json.loads(done.stdout)
    # Then there is one moment at which the new journal takes the place of the old one
    assert story[-1] == "done"
    moment = story.index("new")
    assert set(story[:moment]) == {"old"}
    assert set(story[moment:-1]) == {"new"}
    assert moment > 20
    assert len(story) - moment > 5
