"""The contract of journals as a whole, in memory and on a disk, and what only a disk can do: be full, and be left by a kill."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerha.journal import loading, memory_journal_copy
from brokerha.journal.journal_copy import LmdbJournalCopy
from brokerha.journal.memory_journal import MemoryJournal
from brokerha.journal.memory_journal_copy import MemoryJournalCopy
from brokerha.model.errors import JournalError, JournalFull, JournalInUse
from brokerha.model.ids import NodeId
from brokerha.model.records import Started
from tests.contracts.journal_contract import flag_set
from tests.contracts.journal_copy_contract import JournalCopyContract, carry, content, give, numbers, used
from tests.unit.journal.turns import filled

CHUNK_BYTES = 4_000
MAP_BYTES = 1 << 30

OpenFiles = Callable[..., LmdbJournalCopy]


class TestMemoryJournalCopy(JournalCopyContract):
    @pytest.fixture
    def opened(self) -> Callable[..., MemoryJournalCopy]:
        def open_one(process: str, node: NodeId = "m1") -> MemoryJournalCopy:
            return MemoryJournalCopy(MemoryJournal(node, f"journal-of-{process}"), chunk_bytes=200)

        return open_one

    @pytest.fixture
    def reopened(self) -> Callable[[MemoryJournalCopy], MemoryJournalCopy]:
        return lambda copy: MemoryJournalCopy.from_image(copy.image(), chunk_bytes=200)

    def test_a_full_disk_is_said_and_the_load_goes_on_later(self, opened: Callable[..., MemoryJournalCopy]) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = source.make_snapshot("n")
        with flag_set(follower.journal, "is_full"), pytest.raises(JournalFull):
            follower.begin_load("n", snapshot)
        carry(source, follower)
        with flag_set(follower.journal, "is_full"), pytest.raises(JournalFull):
            follower.open_load()
        follower.open_load()
        assert content(follower) == content(source)

    def test_equal_journals_have_equal_bytes(self, opened: Callable[..., MemoryJournalCopy]) -> None:
        snapshots = []
        for _ in range(2):
            copy = opened("a")
            used(copy)
            snapshots.append(copy.make_snapshot("n"))
        assert snapshots[0] == snapshots[1]
        assert snapshots[0].files[0][0] == memory_journal_copy.FILE


class InFiles:
    """Copies in directories."""

    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[OpenFiles]:
        copies = []

        def open_one(process: str, node: NodeId = "m1") -> LmdbJournalCopy:
            copy = LmdbJournalCopy(
                tmp_path / process, "orders", node, chunk_bytes=CHUNK_BYTES, map_size_bytes=MAP_BYTES
            )
            copies.append(copy)
            return copy

        yield open_one
        for copy in copies:
            problems = [] if copy.journal._is_closed else list(copy.journal.verify())
            copy.close()
            assert problems == []

    @pytest.fixture
    def reopened(self, opened: OpenFiles) -> Callable[[LmdbJournalCopy], LmdbJournalCopy]:
        def reopen(copy: LmdbJournalCopy) -> LmdbJournalCopy:
            copy.journal.close()
            return opened(copy._home.name)

        return reopen


class TestLmdbJournalCopy(InFiles, JournalCopyContract):
    def test_nothing_is_left_beside_a_loaded_journal(self, opened: OpenFiles) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        follower.journal.promise(1)
        before = sorted(follower._home.iterdir())
        carry(source, follower)
        follower.open_load()
        assert sorted(follower._home.iterdir()) == before
        source.drop_snapshot("n")
        assert list((source._home / "snapshots").iterdir()) == []

    def test_a_snapshot_is_as_short_as_what_is_held(self, opened: OpenFiles) -> None:
        source = opened("a")
        filled(source.journal, turns=200, per_turn=20)
        long = source.make_snapshot("long").files[0][1]
        while source.journal.trim(below=4_000):
            pass
        assert source.make_snapshot("short").files[0][1] < long / 2

    def test_appending_goes_on_while_snapshots_are_made(self, opened: OpenFiles) -> None:
        # Given a journal that is written all the time
        source, follower = opened("a"), opened("b")
        author = filled(source.journal, turns=20)
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                filled(source.journal, turns=1, author=author)
                source.journal.keep(below=author.lsn - 40, ids_below=1)

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

    def test_compaction_does_not_wait_for_a_snapshot(self, opened: OpenFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        journal = opened("a").journal
        with journal._compacting:
            assert not journal.compact()

    def test_a_load_for_which_there_is_no_space_is_refused(
        self, opened: OpenFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source, follower = opened("a"), opened("b")
        snapshot = source.make_snapshot("n")
        with monkeypatch.context() as patch:
            patch.setattr(loading, "free_bytes", lambda _: 1_000)
            with pytest.raises(JournalFull, match="no space for a snapshot of the journal: it needs"):
                follower.begin_load("n", snapshot)
        assert follower.pending_load == ""
        carry(source, follower)
        follower.open_load()

    def test_a_directory_that_is_open_is_not_opened_again(self, opened: OpenFiles) -> None:
        source, follower = opened("a"), opened("b")
        carry(source, follower)
        follower.open_load()
        with pytest.raises(JournalInUse):
            opened("b")

    def test_chunks_that_a_power_cut_spoiled_are_asked_for_again(self, opened: OpenFiles, tmp_path: Path) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        snapshot = carry(source, follower)
        follower.close()
        with (tmp_path / "b" / "loading" / "data.mdb").open("r+b") as file:
            file.seek(CHUNK_BYTES + 5)
            file.write(b"\0spoiled\0")
        follower = opened("b")
        assert follower.begin_load("n", snapshot) == set(numbers(snapshot)) - {1}
        give(source, follower, "n", [1])
        follower.open_load()
        assert content(follower) == content(source)

    def test_the_old_journal_is_back_when_the_new_one_cannot_be_opened(
        self, opened: OpenFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source, follower = opened("a"), opened("b")
        used(source)
        follower.journal.append([Started(7)])
        carry(source, follower)
        # Given a disk that cannot make it last that the new file has its name
        real = follower._opened
        calls = []

        def failing(directory: Path) -> object:
            calls.append(directory.name)
            if len(calls) == 2:
                raise JournalError("simulated")
            return real(directory)

        monkeypatch.setattr(follower, "_opened", failing)
        with pytest.raises(JournalError, match="simulated"):
            follower.open_load()
        monkeypatch.undo()
        # Then the old one is as it was, and the load begins anew
        assert calls == ["loading", "b", "b"]
        follower.journal.append([Started(8)])
        carry(source, follower)
        follower.open_load()
        assert content(follower) == content(source)


KILLED = """
import json, os, pathlib, shutil, sys
from brokerha.journal.journal_copy import LmdbJournalCopy
from tests.contracts.journal_copy_contract import carry, used
from brokerha.model.records import Started

root = pathlib.Path(sys.argv[1])
EVENTS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}

def opened(name):
    return LmdbJournalCopy(root / name, "orders", "m1", chunk_bytes=8000, map_size_bytes=1 << 28)

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
    assert not (root / "b" / "replaced.mdb").exists()
    # What was begun goes on, or begins anew
    if found == "old":
        carry(source, copy)
        copy.open_load()
        assert copy.journal.state() == wanted
    copy.close()
    assert sorted(p.name for p in (root / "b").iterdir()) == ["data.mdb", "lock.mdb", "owner", "promise"]
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
