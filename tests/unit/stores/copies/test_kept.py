"""The copy that a worker keeps, in files: whole or not there after a kill at any step, and never changed by what follows."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.stores.copies.lives import LIFE
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.contracts.copy_contract import content, filled
from tests.contracts.store_contract import lines, quads, rows, run
from tests.unit.stores.killed_copies import Killed, opened


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    process = Killed()
    yield process
    process.close()


def names(directory: Path) -> list[str]:
    """What is in a directory, beside the note that a process has it."""
    return sorted(path.name for path in directory.iterdir() if path.name != LIFE)


def sums(directory: Path) -> dict[str, str]:
    """All files below a directory."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def keeping(home: Path) -> tuple[object, object]:
    """Make a copy that keeps its content and goes on; returns both contents."""
    copy = opened(home)
    filled(copy)
    copy.keep(1)
    then = content(copy)
    run(copy, [("add", "main", quads("<urn:a> <urn:b> <urn:later>")), ("put", "t", b"k", b"later")])
    now = content(copy)
    copy.close()
    return then, now


@pytest.mark.parametrize(
    ("place", "number", "is_new"),
    [
        ("keep: engines backed up", 1, False),
        ("keep: tables written", 1, False),
        ("keep: files written", 1, False),
        ("keep: files durable", 1, False),
        ("keep: kept", 2, True),
    ],
)
def test_a_worker_killed_while_it_keeps_a_copy_has_the_old_or_the_new_one(
    tmp_path: Path, killed: Killed, place: str, number: int, is_new: bool
) -> None:
    home = tmp_path / "w1"
    then, now = keeping(home)
    assert killed("keep", place, 1, home) == signal.SIGKILL
    copy = opened(home)
    # Then one copy is kept, whole, and nothing of another one is left
    assert copy.kept is not None
    assert copy.kept.number == number
    assert len([name for name in names(home) if name.startswith("kept.")]) == 1
    assert content(copy) == now
    copy.restore_kept()
    assert content(copy) == (now if is_new else then)
    assert copy.recompute() == copy.applied()
    copy.close()


@pytest.mark.parametrize(
    ("place", "hits", "is_restored"),
    [
        ("restore: files durable", 1, False),
        # The first opening is that of the old copy.
        ("opening marked", 2, False),
        ("restore: identity written", 1, False),
        ("restore: opened", 1, False),
        ("restore: pointer replaced", 1, True),
    ],
)
def test_a_worker_killed_while_it_restores_has_the_old_or_the_restored_content(
    tmp_path: Path, killed: Killed, place: str, hits: int, is_restored: bool
) -> None:
    home = tmp_path / "w1"
    then, now = keeping(home)
    before = sums(home / "kept.1")
    assert killed("restore", place, hits, home) == signal.SIGKILL
    copy = opened(home)
    assert copy.trouble == ""
    assert content(copy) == (then if is_restored else now)
    assert copy.recompute() == copy.applied()
    # Then it is still kept, unchanged, and can be restored again
    assert sums(home / "kept.1") == before
    copy.restore_kept()
    assert content(copy) == then
    copy.close()
    assert len([name for name in names(home) if name.startswith("copy.")]) == 1


def test_a_worker_killed_while_it_drops_keeps_nothing(tmp_path: Path, killed: Killed) -> None:
    home = tmp_path / "w1"
    _, now = keeping(home)
    assert killed("drop", "drop: forgotten", 1, home) == signal.SIGKILL
    assert "kept.1" in names(home)
    copy = opened(home)
    assert copy.kept is None
    assert content(copy) == now
    copy.close()
    assert names(home) == ["copy.1", "lock", "present"]


def test_what_is_kept_is_not_changed_by_what_becomes_of_the_copies(tmp_path: Path) -> None:
    home = tmp_path / "w1"
    then, _ = keeping(home)
    before = sums(home / "kept.1")
    copy = opened(home)
    copy.restore_kept()
    for number in range(30):
        run(copy, [("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>")), ("put", "t", b"k", b"%d" % number)])
    copy.make_snapshot("n")
    run(copy, [("remove-repository", "s")])
    assert sums(home / "kept.1") == before
    copy.close()
    copy = opened(home)
    copy.restore_kept()
    assert content(copy) == then
    copy.close()


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[: len(data) // 2] = bytes(len(data) // 2)
    path.write_bytes(data)


def test_what_was_kept_and_is_damaged_is_not_restored_and_not_kept_any_longer(tmp_path: Path) -> None:
    home = tmp_path / "w1"
    _, now = keeping(home)
    damaged(home / "kept.1/data/data.mdb")
    copy = opened(home)
    name = copy.journal
    with pytest.raises(StoreDamaged):
        copy.restore_kept()
    assert copy.kept is None
    assert (content(copy), copy.journal) == (now, name)
    run(copy, [("put", "t", b"more", b"")])
    copy.close()
    assert names(home) == ["copy.1", "lock", "present"]


@pytest.mark.parametrize("content_of_it", [b"", b"00000000 {}\n", b"nonsense"])
def test_a_record_of_what_is_kept_that_cannot_be_read_keeps_nothing(tmp_path: Path, content_of_it: bytes) -> None:
    home = tmp_path / "w1"
    keeping(home)
    (home / "kept").write_bytes(content_of_it)
    copy = opened(home)
    assert copy.kept is None
    assert "kept.1" not in names(home)
    assert copy.keep(2).number == 2
    copy.close()


def test_a_damaged_copy_is_moved_aside_and_what_is_kept_stays(tmp_path: Path) -> None:
    home = tmp_path / "w1"
    then, _ = keeping(home)
    (home / "copy.1/data/data.mdb").write_bytes(b"\xff" * 100_000)
    copy = opened(home)
    assert copy.trouble
    assert copy.applied().lsn == 0
    copy.restore_kept()
    assert content(copy) == then
    assert copy.trouble == ""
    copy.close()


def test_reads_that_began_before_a_restore_finish_on_the_old_content(tmp_path: Path) -> None:
    copy = opened(tmp_path / "w1")
    copy.keep(1)
    run(copy, [("add", "main", quads(*[f'<urn:s> <urn:p> "{number:01000}"' for number in range(2500)]))])
    statements = copy.read("statements", "main", {"accept": "application/n-quads"})
    first = next(statements.pieces)
    copy.restore_kept()
    assert lines(copy) == []
    assert len((first + b"".join(statements.pieces)).splitlines()) == 2500
    copy.close()


def test_writes_go_on_while_a_copy_is_kept_and_are_not_in_it(tmp_path: Path) -> None:
    copy: WorkerCopy | None = None

    def write(place: str) -> None:
        if copy is not None and place in {"keep: engines backed up", "keep: tables written"}:
            run(copy, [("put", "t", place.encode(), b"")])

    copy = opened(tmp_path / "w1", write)
    run(copy, [("put", "t", b"k", b"")])
    kept = copy.keep(1, lambda: write("keep: tables written"))
    assert kept.lsn == 1
    assert copy.applied().lsn == 4
    copy.restore_kept()
    assert rows(copy, "t") == [(b"k", b"")]
    copy.close()


def test_a_copy_that_is_closed_keeps_nothing(tmp_path: Path) -> None:
    copy = opened(tmp_path / "w1")
    copy.close()
    with pytest.raises(StoreError):
        copy.keep(1)
    assert names(tmp_path / "w1") == ["copy.1", "lock", "present"]
