"""What a worker's copy does with the directory that it finds: damage is moved aside, mistakes are refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest

from brokerha.model.errors import StoreError, StoreFull
from brokerha.stores.copies.lives import LIFE
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.contracts.copy_contract import carry, content, filled
from tests.contracts.store_contract import rows, run
from tests.unit.stores.killed_copies import CHUNK_BYTES, OPTIONS

Open = Callable[..., WorkerCopy]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "w1"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    copies: list[WorkerCopy] = []

    def open_one(node: str = "w1", cluster: str = "orders", directory: str = "", free_bytes: int = 1 << 40) -> WorkerCopy:
        copy = WorkerCopy(
            tmp_path / (directory or node),
            cluster=cluster,
            node=node,
            options=OPTIONS,
            chunk_bytes=CHUNK_BYTES,
            free_bytes=lambda _directory: free_bytes,
        )
        copies.append(copy)
        return copy

    yield open_one
    for copy in copies:
        copy.close()


def left(opened: Open, value: bytes = b"1") -> str:
    """Leave a closed copy with one key; returns its name."""
    copy = opened()
    run(copy, [("put", "t", b"k", value)])
    copy.close()
    return copy.journal


def names(directory: Path) -> list[str]:
    """What is in a directory, beside the note that a process has it."""
    return sorted(path.name for path in directory.iterdir() if path.name != LIFE)


def change_pointer(home: Path, **fields: object) -> None:
    _, _, body = (home / "present").read_bytes().partition(b" ")
    body = json.dumps({**json.loads(body), **fields}).encode()
    (home / "present").write_bytes(b"%08x %s\n" % (crc32(body), body))


def cut_tables(home: Path) -> None:
    os.truncate(home / "copy.1/data/data.mdb", 20_000)


def delete_tables(home: Path) -> None:
    (home / "copy.1/data/data.mdb").unlink()


def delete_a_file_of_an_engine(home: Path) -> None:
    (home / "copy.1/repositories/main.0/CURRENT").write_bytes(b"MANIFEST-999999\n")


def empty_the_copy(home: Path) -> None:
    shutil.rmtree(home / "copy.1")
    (home / "copy.1").mkdir()


def delete_the_copy(home: Path) -> None:
    shutil.rmtree(home / "copy.1")


def delete_the_pointer(home: Path) -> None:
    (home / "present").unlink()


def spoil_the_pointer(home: Path) -> None:
    (home / "present").write_bytes(b"\0" * 80)


def flip_a_bit_of_the_name_in_the_pointer(home: Path) -> None:
    row = (home / "present").read_bytes()
    (home / "present").write_bytes(row.replace(b'"w1"', b'"w5"'))


def point_to_nothing(home: Path) -> None:
    change_pointer(home, copy=7)


@pytest.mark.parametrize(
    "damage",
    [
        cut_tables,
        delete_tables,
        delete_a_file_of_an_engine,
        empty_the_copy,
        delete_the_copy,
        delete_the_pointer,
        spoil_the_pointer,
        flip_a_bit_of_the_name_in_the_pointer,
        point_to_nothing,
    ],
)
def test_a_damaged_copy_is_moved_aside_and_an_empty_one_begins(opened: Open, home: Path, damage: Callable[[Path], None]) -> None:
    name = left(opened)
    damage(home)
    copy = opened()
    assert copy.trouble
    assert copy.applied().lsn == 0
    assert copy.journal != name
    is_something_left = damage not in {delete_the_copy, empty_the_copy}
    assert copy.trouble.endswith("(moved to aside.1)") is is_something_left
    assert (home / "aside.1").exists() is is_something_left
    run(copy, [("put", "t", b"k", b"2")])
    copy.close()
    copy = opened()
    assert (rows(copy, "t"), copy.trouble) == ([(b"k", b"2")], "")


def test_a_loaded_copy_that_lost_its_repositories_is_damaged(opened: Open, home: Path) -> None:
    source, copy = opened("w2"), opened()
    filled(source)
    carry(source, copy)
    copy.open_load()
    copy.close()
    shutil.rmtree(home / "copy.2/repositories")
    assert "take the content from another worker (moved to aside.2)" in opened().trouble


def test_only_the_last_copy_that_was_moved_aside_is_kept(opened: Open, home: Path) -> None:
    for number in range(1, 4):
        left(opened, b"%d" % number)
        (home / f"copy.{number}/data/data.mdb").unlink()
    copy = opened()
    assert names(home) == ["aside.3", "copy.4", "lock", "present"]
    copy.close()
    opened()
    assert names(home) == ["aside.3", "copy.4", "lock", "present"]


def test_what_was_being_loaded_survives_the_damage_of_the_present_copy(opened: Open, home: Path) -> None:
    source = opened("w2")
    filled(source)
    copy = opened()
    snapshot = carry(source, copy)
    copy.close()
    delete_tables(home)
    copy = opened()
    assert copy.trouble
    assert len(copy.begin_load("n", snapshot)) == sum(len(sums) // 32 for _, _, sums in snapshot.files)
    copy.open_load()
    assert (content(copy), copy.trouble) == (content(source), "")


def test_a_copy_that_lies_aside_makes_room_for_a_good_one(opened: Open, home: Path) -> None:
    source = opened("w2")
    filled(source)
    snapshot = source.make_snapshot("n")
    left(opened)
    delete_tables(home)
    copy = opened(free_bytes=1000)
    with pytest.raises(StoreError, match="no space for the snapshot"):
        copy.begin_load("n", snapshot)
    assert names(home) == ["copy.2", "lock", "present"]


@pytest.mark.parametrize(("cluster", "node"), [("orders", "w2"), ("other", "w1")])
def test_the_directory_of_another_node_or_cluster_is_refused_and_left_alone(
    opened: Open, home: Path, cluster: str, node: str
) -> None:
    left(opened)
    before = names(home)
    with pytest.raises(StoreError, match="belongs to node w1 of cluster orders"):
        opened(node, cluster, directory="w1")
    assert names(home) == before
    assert rows(opened(), "t") == [(b"k", b"1")]


def test_a_directory_of_a_later_version_is_refused_and_left_alone(opened: Open, home: Path) -> None:
    left(opened)
    change_pointer(home, format=2)
    with pytest.raises(StoreError, match="has format 2, this program knows 1: use a later brokerha"):
        opened()
    change_pointer(home, format=1)
    assert rows(opened(), "t") == [(b"k", b"1")]


def test_a_directory_of_an_earlier_version_is_refused_and_left_alone(opened: Open, home: Path) -> None:
    (home / "data").mkdir(parents=True)
    with pytest.raises(StoreError, match="an earlier version"):
        opened()
    assert names(home) == ["data", "lock"]


def test_a_second_process_is_told_who_has_the_directory(opened: Open, home: Path) -> None:
    copy = opened()
    run(copy, [("put", "t", b"k", b"1")])
    with pytest.raises(StoreError, match=f"is open in process {os.getpid()}"):
        opened()
    assert rows(copy, "t") == [(b"k", b"1")]
    assert names(home) == ["copy.1", "lock", "present"]


def test_a_disk_that_is_full_is_no_damage(opened: Open, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(opened)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreFull, match="the disk is full"):
            opened()
    copy = opened()
    assert (rows(copy, "t"), copy.trouble) == ([(b"k", b"1")], "")


def test_what_a_kill_left_over_is_deleted(opened: Open, home: Path) -> None:
    left(opened)
    for name in ("copy.9/data", "snapshots/3", "aside.4", "aside.5"):
        (home / name).mkdir(parents=True)
    (home / "load").write_bytes(b"no manifest")
    copy = opened()
    assert rows(copy, "t") == [(b"k", b"1")]
    assert names(home) == ["aside.5", "copy.1", "lock", "present"]


@pytest.mark.parametrize("note", [b"", b"[1]", b'{"1": "x"}', b'{"q": 1}'])
def test_a_note_of_openings_that_the_disk_changed_counts_for_nothing(opened: Open, home: Path, note: bytes) -> None:
    left(opened)
    (home / "opening").write_bytes(note)
    copy = opened()
    assert (rows(copy, "t"), copy.trouble) == ([(b"k", b"1")], "")
    assert names(home) == ["copy.1", "lock", "present"]


def test_a_snapshot_of_another_cluster_is_not_opened(opened: Open) -> None:
    source, copy = opened("w2", "other"), opened()
    run(copy, [("put", "t", b"k", b"1")])
    carry(source, copy)
    with pytest.raises(StoreError, match="belongs to cluster other"):
        copy.open_load()
    assert rows(copy, "t") == [(b"k", b"1")]
