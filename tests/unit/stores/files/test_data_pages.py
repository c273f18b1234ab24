"""Pages that would end the process, or hide keys, are found before LMDB comes by; a file that is right is never accused."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.stores.files.data_pages import HeldPages, check_pages
from tests.unit.stores.files.test_data_file import churned

PAGE_BYTES = 4096
BRANCH, LEAF, LONG = 1, 2, 4
READ_ALL = """
import hashlib, sys, lmdb
found = hashlib.sha256()
with lmdb.Environment(sys.argv[1], subdir=False, map_size=1 << 28, max_dbs=4, readonly=True, lock=False) as environment:
    table = environment.open_db(b"t", create=False)
    with environment.begin(db=table) as reading:
        for key, value in reading.cursor():
            found.update(key)
            assert reading.get(key) == value
print(found.hexdigest())
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a table of three levels, and long values."""
    directory = tmp_path_factory.mktemp("filled")
    with lmdb.Environment(str(directory), map_size=1 << 28, max_dbs=4, sync=False) as environment:
        table = environment.open_db(b"t")
        with environment.begin(write=True, db=table) as writing:
            for number in range(20_000):
                writing.put(b"key %06d of a certain length" % number, b"v" * (6000 if number % 500 == 0 else 50))
    return directory / "data.mdb"


def pages_of(file: Path, kind: int) -> list[int]:
    """Numbers of the pages of a kind in a table that was written at once; the one free page is the first."""
    content = file.read_bytes()
    starts = range(3 * PAGE_BYTES, len(content), PAGE_BYTES)
    return [
        start // PAGE_BYTES
        for start in starts
        if int.from_bytes(content[start : start + 8], sys.byteorder) == start // PAGE_BYTES
        and int.from_bytes(content[start + 10 : start + 12], sys.byteorder) == kind
    ]


def page(file: Path, number: int) -> bytes:
    return file.read_bytes()[number * PAGE_BYTES : (number + 1) * PAGE_BYTES]


def written(file: Path, number: int, content: bytes, target: Path) -> Path:
    """A copy of a file with other bytes from a page on."""
    shutil.copy(file, target)
    with target.open("r+b") as copy:
        copy.seek(number * PAGE_BYTES)
        copy.write(content)
    return target


@pytest.mark.parametrize("kind", [BRANCH, LEAF, LONG])
def test_a_page_that_was_emptied_is_found_in_each_place(filled: Path, tmp_path: Path, kind: int) -> None:
    pages = pages_of(filled, kind)
    assert len(pages) >= 3
    for number in {pages[0], pages[len(pages) // 2], pages[-1]}:
        with pytest.raises(StoreDamaged, match=f"page {number} .*take the content from another worker"):
            check_pages(written(filled, number, bytes(PAGE_BYTES), tmp_path / "data.mdb"))


def test_a_page_that_was_written_to_the_place_of_another_is_found(filled: Path, tmp_path: Path) -> None:
    leaves = pages_of(filled, LEAF)
    with pytest.raises(StoreDamaged, match=f"page {leaves[3]} says that it is page {leaves[8]}"):
        check_pages(written(filled, leaves[3], page(filled, leaves[8]), tmp_path / "data.mdb"))


def test_keys_that_are_not_where_one_would_look_for_them_are_found(filled: Path, tmp_path: Path) -> None:
    number = pages_of(filled, LEAF)[5]
    content = bytearray(page(filled, number))
    node = int.from_bytes(content[16:18], sys.byteorder)
    assert content[node + 8 : node + 12] == b"key "
    content[node + 12] ^= 0x08
    with pytest.raises(StoreDamaged, match=f"page {number} "):
        check_pages(written(filled, number, bytes(content), tmp_path / "data.mdb"))


def test_a_branch_that_leads_round_in_a_circle_is_found(filled: Path, tmp_path: Path) -> None:
    branches = pages_of(filled, BRANCH)
    content = bytearray(page(filled, branches[0]))
    lower = int.from_bytes(content[12:14], sys.byteorder)
    node = int.from_bytes(content[lower - 2 : lower], sys.byteorder)
    content[node : node + 4] = branches[0].to_bytes(4, sys.byteorder)
    with pytest.raises(StoreDamaged, match=r"in use twice|of kind"):
        check_pages(written(filled, branches[0], bytes(content), tmp_path / "data.mdb"))


def test_whatever_page_is_spoilt_what_passes_can_be_read_to_its_last_key(filled: Path, tmp_path: Path) -> None:
    def read(path: Path) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-c", READ_ALL, str(path)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    whole = read(filled)
    assert whole[0] == 0
    chance = random.Random(7)
    pages = filled.stat().st_size // PAGE_BYTES
    found = 0
    for _ in range(12):
        number, place = chance.randrange(2, pages), chance.choice([0, 10, 12, 20, 100, 2000, 4000])
        content = bytearray(page(filled, number))
        content[place : place + 8] = chance.randbytes(8)
        copy = written(filled, number, bytes(content), tmp_path / "data.mdb")
        try:
            check_pages(copy)
        except StoreDamaged:
            found += 1
            continue
        # Values have checksums of their own, and what is between nodes is nothing.
        assert read(copy)[0] == 0
    assert found >= 3


def test_a_file_that_is_right_passes_after_any_history(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / str(seed)).mkdir()
        check_pages(churned(tmp_path / str(seed), seed)[0])


def test_a_state_that_is_being_read_is_whole_while_others_write(tmp_path: Path) -> None:
    file = tmp_path / "data.mdb"
    chance = random.Random(3)
    with lmdb.Environment(str(tmp_path), map_size=1 << 28, max_dbs=4, sync=False) as environment:
        table = environment.open_db(b"t")
        for number in range(60):
            with environment.begin(write=True, db=table) as writing:
                for _ in range(200):
                    writing.put(b"%d" % chance.randrange(3000), bytes(chance.choice([10, 200, 9000])))
                    writing.delete(b"%d" % chance.randrange(3000))
            with environment.begin() as reading:
                held = HeldPages(file, reading.id())
                with environment.begin(write=True, db=table) as writing:
                    writing.put(b"another %d" % number, bytes(3000))
                held.check(lambda: None)


def test_who_asked_for_it_may_end_it(filled: Path) -> None:
    def no_longer() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        HeldPages(filled).check(no_longer)


def test_no_file_and_an_empty_file_pass(tmp_path: Path) -> None:
    check_pages(tmp_path / "data.mdb")
    (tmp_path / "data.mdb").touch()
    check_pages(tmp_path / "data.mdb")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(bytes(10_000))
    with pytest.raises(StoreDamaged):
        check_pages(tmp_path / "data.mdb")


def test_a_file_that_cannot_be_read_is_no_damage_and_no_fault_of_brokerha(tmp_path: Path) -> None:
    """A worker that was killed reads it at its next start, perhaps as another user."""
    with pytest.raises(StoreError, match=f"cannot check {tmp_path}: Is a directory") as found:
        check_pages(tmp_path)
    assert not isinstance(found.value, StoreDamaged)
