"""An archive as its readers see it: what a job leaves behind, and what is said about what was changed behind its back."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError
from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.archive_files import Range, write_range
from brokerha.pipeline.archive_manifest import FIRST_CHAIN, next_chain, pack_manifest, read_manifest
from brokerha.pipeline.archive_writing import writing
from brokerha.pipeline.rows import SCHEMA
from brokerha.pipeline.sources import open_source
from tests.unit.pipeline.archive_place import Log, Place, sha_of_entries
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(5, 450)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "archive", Log(tmp_path / "log", ENTRIES))


def test_an_archive_holds_every_entry_once_in_files_that_follow_each_other(place: Place) -> None:
    place.run()
    place.check()
    state = place.state
    assert (state.cluster, state.first_lsn, state.last_lsn) == ("orders", 1, 450)
    assert [(file.first_lsn, file.last_lsn) for file in state.files] == [
        (1, 100),
        (101, 200),
        (201, 300),
        (301, 400),
        (401, 450),
    ]
    assert all(one.last_lsn + 1 == other.first_lsn for one, other in pairwise(state.files))
    assert state.files[-1].last_txid == "t450"
    assert state.files[-1].last_fingerprint == text_of(ENTRIES[-1].fingerprint)


def test_files_have_the_columns_of_the_log_sorted_and_say_so(place: Place) -> None:
    place.run()
    for file in place.state.files:
        with pyarrow.parquet.ParquetFile(place.archive.path(file)) as parquet:
            assert parquet.schema_arrow.equals(SCHEMA)
            group = parquet.metadata.row_group(0)
            assert [column.column_index for column in group.sorting_columns] == [0, 1, 2]
            assert group.column(0).compression == "ZSTD"
            assert (group.column(0).statistics.min, group.column(0).statistics.max) == (file.first_lsn, file.last_lsn)
        places = place.archive.table(file, ["lsn", "operation", "part"]).to_pylist()
        assert [tuple(each.values()) for each in places] == sorted(tuple(each.values()) for each in places)


def test_the_chain_binds_all_entry_hashes_in_order(place: Place) -> None:
    place.run()
    chain = FIRST_CHAIN
    for file in place.state.files:
        assert file.entries_sha256 == sha_of_entries(place.archive.table(file))
        chain = next_chain(chain, file.entries_sha256)
        assert file.chain == chain


def test_a_range_with_large_effects_becomes_several_files(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", ENTRIES)
    with open_source(log.spec) as source:
        staged = write_range(source, Range(1, 450), tmp_path, file_bytes=1)
    assert [(file.first_lsn, file.last_lsn) for file in staged] == [(1, 450)]
    huge = [entry._replace(lsn=entry.lsn + 450, effect=ENTRIES[0].effect) for entry in ENTRIES]
    log.add(huge)
    with open_source(log.spec) as source, pytest.MonkeyPatch.context() as patched:
        patched.setattr("brokerha.pipeline.archive_files.GROUP_ENTRIES", 200)
        staged = write_range(source, Range(1, 900), tmp_path, file_bytes=1)
    assert [(file.first_lsn, file.last_lsn) for file in staged] == [
        (1, 200),
        (201, 400),
        (401, 600),
        (601, 800),
        (801, 900),
    ]


def test_the_fingerprint_at_any_lsn_is_found(place: Place) -> None:
    place.run()
    assert place.archive.fingerprint_at(0) == EMPTY
    for lsn in (1, 100, 101, 333, 450):
        assert place.archive.fingerprint_at(lsn) == ENTRIES[lsn - 1].fingerprint
        assert place.archive.timestamp_at(lsn) == ENTRIES[lsn - 1].timestamp
    with pytest.raises(StoreError, match="does not hold LSN 451: it has 1 to 450"):
        place.archive.fingerprint_at(451)


def test_the_lsn_at_any_time_is_found(place: Place) -> None:
    place.run()
    assert place.archive.lsn_at(ENTRIES[0].timestamp - 1) == 0
    for lsn in (1, 100, 101, 333, 450):
        assert place.archive.lsn_at(ENTRIES[lsn - 1].timestamp) == lsn
        assert place.archive.lsn_at(ENTRIES[lsn - 1].timestamp + 1) == lsn
        assert place.archive.lsn_at(ENTRIES[lsn - 1].timestamp - 1) == lsn - 1


def test_a_folder_without_an_archive_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no archive in .*: make one with brokerha pipeline archive --into"):
        Archive(tmp_path).state()


@pytest.mark.parametrize("change", ["edited", "cut", "other format", "no JSON"])
def test_a_manifest_that_was_changed_is_refused_in_one_line(place: Place, change: str) -> None:
    place.run()
    path = place.path / "manifest.json"
    text = path.read_text()
    changed = {
        "edited": text.replace('"cluster": "orders"', '"cluster": "others"'),
        "cut": text[:-100],
        "other format": text.replace('"format": 1', '"format": 2'),
        "no JSON": "[]",
    }[change]
    path.write_text(changed)
    with pytest.raises(StoreError) as caught:
        place.archive.state()
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, StoreDamaged) == (change != "other format")


def test_a_manifest_with_a_gap_is_refused_although_its_checksum_is_right(place: Place) -> None:
    place.run()
    state = place.state
    for wrong, words in (
        (replace(state, files=state.files[1:]), "there is a gap: after LSN 0 comes log/101-200.parquet"),
        (replace(state, files=(state.files[0], state.files[2])), "there is a gap: after LSN 100 comes"),
        (replace(state, files=(replace(state.files[0], chain="00" * 32),)), "the hash chain is broken at log/1-100"),
        (replace(state, files=(replace(state.files[0], path="../1-100.parquet"),)), "is not the name of LSN 1 to 100"),
    ):
        with pytest.raises(StoreDamaged, match=words):
            read_manifest(pack_manifest(wrong), "it")


def test_verify_names_each_file_that_is_not_what_was_written(place: Place) -> None:
    place.run()
    files = [place.archive.path(file) for file in place.state.files]
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-1])
    data = bytearray(files[2].read_bytes())
    data[100] ^= 1
    files[2].write_bytes(data)
    found = list(place.archive.verify())
    assert [each.split(" ", 1)[0] for each in found] == [
        "log/1-100.parquet",
        "log/101-200.parquet",
        "log/201-300.parquet",
    ]
    assert "is missing: it held LSN 1 to 100" in found[0]
    assert "bytes instead of" in found[1]
    assert "SHA-256 differs" in found[2]


def test_a_missing_file_and_one_that_is_no_parquet_are_one_line_each(place: Place) -> None:
    place.run()
    first, second = place.state.files[:2]
    place.archive.path(first).unlink()
    place.archive.path(second).write_bytes(b"nothing")
    with pytest.raises(StoreDamaged, match=r"1-100.parquet is missing"):
        place.archive.table(first)
    with pytest.raises(StoreDamaged, match=r"101-200.parquet cannot be read"):
        place.archive.table(second)


def test_two_writers_never_have_one_archive(place: Place) -> None:
    with (
        writing(place.path, lambda: 1),
        pytest.raises(StoreError, match="another job is writing into the archive"),
        writing(place.path, lambda: 1),
    ):
        pass


def test_a_writer_that_begins_no_archive_leaves_nothing_that_was_not_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "new" / "archive", tmp_path / "there"):
        with pytest.raises(ZeroDivisionError), writing(folder, lambda: 1):
            raise ZeroDivisionError
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    (tmp_path / "there" / ".lock").touch()
    with pytest.raises(ZeroDivisionError), writing(tmp_path / "there", lambda: 1):
        raise ZeroDivisionError
    assert (tmp_path / "there" / ".lock").exists()


def test_a_lock_that_its_owner_deletes_lets_nobody_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a second writer that opened the lock just before the first one, which began no archive, deleted it
    flock = fcntl.flock

    def delete_then_lock(file: Any, how: int) -> None:
        (place.path / ".lock").unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", delete_then_lock)
    # Then it has no archive, because a third one would lock another file
    with pytest.raises(StoreError, match="another job is writing into the archive"), writing(place.path, lambda: 1):
        pass


def test_a_folder_with_other_things_in_it_is_not_made_an_archive(place: Place) -> None:
    place.path.mkdir()
    (place.path / "letters").mkdir()
    with pytest.raises(StoreError, match="is no archive and not empty"):
        place.run()


def test_files_without_their_manifest_are_never_deleted(place: Place) -> None:
    place.run()
    (place.path / "manifest.json").unlink()
    before = place.paths()
    with pytest.raises(StoreDamaged, match=r"has lost its manifest.json"):
        place.run()
    assert place.paths() == before


def test_the_log_of_another_cluster_and_another_history_are_refused(place: Place, tmp_path: Path) -> None:
    place.run()
    place.log = Log(tmp_path / "other", ENTRIES, cluster="others")
    with pytest.raises(InvalidRequest, match="is of cluster orders, the source is of others"):
        place.run()
    place.log = Log(tmp_path / "restored", random_entries(6, 500))
    with pytest.raises(StoreError, match="another history than the archive: at LSN 450"):
        place.run()
    place.log = Log(tmp_path / "shorter", random_entries(6, 120))
    with pytest.raises(StoreError, match="another history than the archive: at LSN 120"):
        place.run()


def test_the_manifest_is_for_people_too(place: Place) -> None:
    place.run()
    fields = json.loads((place.path / "manifest.json").read_text())
    assert fields["files"][0]["path"] == "log/1-100.parquet"
    assert list(fields)[-1] == "checksum"
