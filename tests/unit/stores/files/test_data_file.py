"""A cut-off LMDB file is found before LMDB can be killed by it, and a whole one that is merely short is not accused."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.stores.files.environment import check_data_file

PAGE_BYTES = 4096
FREE_ROOT_AT = 80
"""Where a head of LMDB says which page its list of free pages begins with."""
READ_ALL = """
import sys, lmdb
with lmdb.Environment(sys.argv[1], subdir=False, map_size=1 << 28, max_dbs=4, readonly=True, lock=False) as environment:
    table = environment.open_db(b"t", create=False)
    with environment.begin() as reading:
        print(sum(len(value) for _, value in reading.cursor(table)))
"""


def delete_first(cursor: lmdb.Cursor, count: int) -> None:
    cursor.first()
    while count and cursor.delete():
        count -= 1


def churned(directory: Path, seed: int) -> tuple[Path, int, int]:
    """A file after many puts and deletes: (path, bytes of values in it, times it was shorter than its last page)."""
    chance = random.Random(seed)
    times_short = 0
    file = directory / "data.mdb"
    with lmdb.Environment(str(directory), map_size=1 << 28, max_dbs=4, sync=False) as environment:
        table = environment.open_db(b"t")
        for _ in range(120):
            with environment.begin(write=True, db=table) as writing:
                for _ in range(chance.choice([1, 5, 50, 300])):
                    key = b"%d" % chance.randrange(1500)
                    what = chance.random()
                    if what < 0.5:
                        writing.put(key, bytes(chance.choice([10, 100, 1000, 5000, 60000])))
                    elif what < 0.97:
                        writing.delete(key)
                    else:
                        delete_first(writing.cursor(), chance.randrange(500))
            last_page = environment.info()["last_pgno"]
            times_short += file.stat().st_size < (last_page + 1) * environment.stat()["psize"]
            check_data_file(file)
        with environment.begin(db=table) as reading:
            size = sum(len(value) for _, value in reading.cursor())
    return file, size, times_short


def test_a_whole_file_passes_even_when_its_last_pages_were_never_written(tmp_path: Path) -> None:
    times_short = 0
    for seed in range(3):
        (tmp_path / str(seed)).mkdir()
        times_short += churned(tmp_path / str(seed), seed)[2]
    assert times_short > 0, "the case that this test is about must occur"


def test_a_cut_that_takes_content_is_found_wherever_it_is(tmp_path: Path) -> None:
    file, size, _ = churned(tmp_path, 5)
    whole = file.stat().st_size
    chance = random.Random(1)
    refused = passed = 0
    for cut in [1, 100, 4096, 8192, 12288, whole - 1, whole - 4096, *(chance.randrange(whole) for _ in range(40))]:
        copy = tmp_path / "copy.mdb"
        shutil.copy(file, copy)
        os.truncate(copy, cut)
        try:
            check_data_file(copy)
        except StoreError:
            refused += 1
            continue
        # Only pages that hold nothing were cut off, so everything can still be read.
        passed += 1
        reader = subprocess.run([sys.executable, "-c", READ_ALL, str(copy)], capture_output=True, text=True, check=False)
        assert reader.returncode == 0, reader.stderr
        assert int(reader.stdout) == size
    assert refused > 10
    assert passed < refused


@pytest.mark.parametrize("content", [b"x", b"x" * 10_000, bytes(10_000)])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "data.mdb"
    file.write_bytes(content)
    with pytest.raises(StoreError, match="damaged or cut off"):
        check_data_file(file)


def test_a_list_of_free_pages_that_is_nowhere_is_damage(tmp_path: Path) -> None:
    with lmdb.Environment(str(tmp_path)) as environment:
        for change in (lambda writing: writing.put(b"k", bytes(50_000)), lambda writing: writing.delete(b"k")):
            with environment.begin(write=True) as writing:
                change(writing)
    file = tmp_path / "data.mdb"
    raw = bytearray(file.read_bytes()[: 2 * PAGE_BYTES])
    for head in (0, PAGE_BYTES):
        struct.pack_into("=Q", raw, head + FREE_ROOT_AT, 1 << 60)
    file.write_bytes(raw)
    with pytest.raises(StoreDamaged, match="damaged or cut off"):
        check_data_file(file)


def test_no_file_and_an_empty_file_pass(tmp_path: Path) -> None:
    check_data_file(tmp_path / "data.mdb")
    (tmp_path / "data.mdb").touch()
    check_data_file(tmp_path / "data.mdb")
