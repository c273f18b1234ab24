"""A copy that is killed at any step of a load, of a snapshot or of a start is afterwards the old or the new one, whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.model.errors import StoreDamaged
from brokerha.stores.copies.lives import LIFE
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.contracts.copy_contract import content, filled
from tests.contracts.store_contract import rows, run
from tests.unit.stores.killed_copies import Killed, load, opened, packed_snapshot


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    process = Killed()
    yield process
    process.close()


def names(directory: Path) -> list[str]:
    """What is in a directory, beside the note that a process has it."""
    return sorted(path.name for path in directory.iterdir() if path.name != LIFE)


def made(directory: Path, value: bytes) -> tuple[object, str]:
    """Make a copy and leave it closed; its content and its name."""
    copy = opened(directory)
    run(copy, [("put", "t", b"old", value)])
    found = content(copy), copy.journal
    copy.close()
    return found


def given(directory: Path) -> tuple[object, Path]:
    """The content of a source, and a snapshot of it in a file."""
    source = opened(directory / "w1")
    filled(source)
    found = content(source), packed_snapshot(source, directory / "snapshot")
    source.close()
    return found


def state(copy: WorkerCopy) -> tuple[object, str]:
    return content(copy), copy.journal


@pytest.mark.parametrize(
    ("place", "hits", "kept", "is_new"),
    [
        ("load: begun", 1, 0, False),
        ("load: chunk kept", 9, 9, False),
        ("load: files durable", 1, 40, False),
        # The first opening is that of the old copy.
        ("opening marked", 2, 40, False),
        ("load: identity written", 1, 30, False),
        ("load: opened", 1, 20, False),
        ("load: pointer replaced", 1, 0, True),
        ("load: forgotten", 1, 0, True),
    ],
)
def test_a_follower_killed_in_a_load_has_the_old_or_the_new_copy_and_goes_on(
    tmp_path: Path, killed: Killed, place: str, hits: int, kept: int, is_new: bool
) -> None:
    wanted, snapshot = given(tmp_path)
    old = made(tmp_path / "w2", b"1")
    assert killed("load", place, hits, tmp_path / "w2", snapshot) == signal.SIGKILL
    follower = opened(tmp_path / "w2")
    assert follower.trouble == ""
    if is_new:
        assert content(follower) == wanted
        assert follower.journal != old[1]
        assert names(tmp_path / "w2") == ["copy.2", "lock", "present"]
    else:
        assert state(follower) == old
    assert follower.recompute() == follower.applied()
    there = load(follower, snapshot)
    # Opening changes some files, those of the data hardly; they need not come again.
    assert len(there) >= kept
    assert content(follower) == wanted
    name = follower.journal
    follower.close()
    again = opened(tmp_path / "w2")
    assert state(again) == (wanted, name)
    assert names(tmp_path / "w2") == [f"copy.{3 if is_new else 2}", "lock", "present"]
    again.close()


@pytest.mark.parametrize("place", ["snapshot: engines backed up", "snapshot: tables written"])
def test_a_source_killed_while_it_made_a_snapshot_is_as_it_was(tmp_path: Path, killed: Killed, place: str) -> None:
    before = made(tmp_path / "w1", b"1")
    assert killed("snapshot", place, 1, tmp_path / "w1") == signal.SIGKILL
    assert "snapshots" in names(tmp_path / "w1")
    copy = opened(tmp_path / "w1")
    assert state(copy) == before
    assert names(tmp_path / "w1") == ["copy.1", "lock", "present"]
    copy.close()


@pytest.mark.parametrize("place", ["start: directory made", "opening marked"])
def test_a_copy_killed_while_it_was_made_is_made_again(tmp_path: Path, killed: Killed, place: str) -> None:
    home = tmp_path / "w1"
    # Killed at that place any number of times, it never counts as damaged: there is nothing in it.
    for _ in range(5):
        assert killed("open", place, 1, home) == signal.SIGKILL
    copy = opened(home)
    assert (copy.applied().lsn, copy.trouble) == (0, "")
    assert not [name for name in names(home) if name.startswith("aside")]
    copy.close()


@pytest.mark.parametrize(
    ("place", "hits"),
    [("start: moved aside", 1), ("start: directory made", 1), ("start: empty copy begun", 1), ("opening marked", 2)],
)
def test_a_copy_killed_while_damage_was_moved_aside_begins_empty(tmp_path: Path, killed: Killed, place: str, hits: int) -> None:
    home = tmp_path / "w1"
    _, name = made(home, b"1")
    file = home / "copy.1/data/data.mdb"
    file.write_bytes(b"\xff" * 100_000)
    assert killed("open", place, hits, home) == signal.SIGKILL
    copy = opened(home)
    assert copy.applied().lsn == 0
    assert copy.journal != name
    assert (home / "aside.1/data/data.mdb").read_bytes() == b"\xff" * 100_000
    run(copy, [("put", "t", b"k", b"2")])
    copy.close()
    copy = opened(home)
    assert rows(copy, "t") == [(b"k", b"2")]
    assert copy.trouble == ""
    copy.close()


def test_a_copy_whose_opening_ends_the_process_is_given_up_after_three_times(tmp_path: Path, killed: Killed) -> None:
    home = tmp_path / "w1"
    before = made(home, b"1")
    for _ in range(2):
        assert killed("open", "opening marked", 1, home) == signal.SIGKILL
    # An opening with an end forgets those before it.
    copy = opened(home)
    assert state(copy) == before
    copy.close()
    for _ in range(3):
        assert killed("open", "opening marked", 1, home) == signal.SIGKILL
    copy = opened(home)
    assert "ended the process 3 times in a row" in copy.trouble
    assert copy.applied().lsn == 0
    assert names(home) == ["aside.1", "copy.2", "lock", "present"]
    copy.close()


def test_a_snapshot_whose_opening_ends_the_process_is_given_up_after_three_times(tmp_path: Path, killed: Killed) -> None:
    wanted, snapshot = given(tmp_path)
    old = made(tmp_path / "w2", b"1")
    for _ in range(3):
        assert killed("load", "load: identity written", 1, tmp_path / "w2", snapshot) == signal.SIGKILL
    follower = opened(tmp_path / "w2")
    with pytest.raises(StoreDamaged, match="ended the process 3 times in a row"):
        load(follower, snapshot)
    assert state(follower) == old
    load(follower, snapshot)
    assert content(follower) == wanted
    follower.close()
