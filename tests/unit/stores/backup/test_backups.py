"""Backups as files: whole or not there, verified after writing, extended only where the log goes on, refused when damaged."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError
from brokerha.model.fingerprints import packed, text_of
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.manifest import MANIFEST, check_name, pack_manifest, read_manifest
from brokerha.stores.backup.writing import extend_backup, write_backup
from tests.unit.stores.backup_place import NOW_US, Backups, PlainCopy, killed_at


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    made = Backups(tmp_path / "backups")
    made.copy.add(30)
    return made


# ---- writing


def test_a_backup_says_what_it_holds_and_holds_it(backups: Backups):
    backups.write()
    manifest = backups.folder.backup("monday").manifest()
    assert (manifest.cluster, manifest.node, manifest.masters, manifest.made_us) == ("orders", "w1", ("m1", "m2"), NOW_US)
    assert (manifest.lsn, manifest.txid, manifest.timestamp, manifest.items) == (30, "t30", 30_000, 7)
    assert manifest.fingerprint == text_of(packed(30))
    copy = {file.path: backups.folder.backup("monday").copy_file(file.path).read_bytes() for file in manifest.files}
    assert copy == backups.copy.files
    assert backups.problems() == []
    assert (backups.left_behind(), backups.copy.snapshots) == ([], set())


def test_all_lines_before_the_copy_are_kept_when_the_worker_has_them(backups: Backups):
    manifest = backups.write()
    backup = backups.folder.backup("monday")
    assert (manifest.least_lsn, manifest.last_lsn) == (0, 30)
    assert [lsn for lsn, _ in backup.lines(manifest, 1, 99)] == list(range(1, 31))
    assert [row for _, row in backup.lines(manifest, 29, 30)] == backups.copy.lines[28:]


def test_without_the_first_line_none_before_the_copy_is_kept(tmp_path: Path):
    backups = Backups(tmp_path / "backups")
    backups.copy = PlainCopy(first_lsn=5)
    backups.copy.add(10)
    manifest = backups.write()
    assert (manifest.least_lsn, manifest.last_lsn, manifest.segments) == (14, 14, ())


def test_progress_ends_with_everything_written_and_read_again(backups: Backups):
    backups.copy.first_lsn = 2
    backups.write()
    done, total = backups.steps[-1]
    assert (done, total) == (2 * 2510, 2 * 2510)
    assert backups.steps[0] == (1000, total)


def test_a_name_that_exists_is_refused_unless_it_is_replaced(backups: Backups):
    backups.write()
    backups.copy.add(1)
    with pytest.raises(StoreError, match="monday already"):
        backups.write()
    assert backups.folder.backup("monday").manifest().lsn == 30
    backups.write(replace=True)
    assert backups.folder.backup("monday").manifest().lsn == 31
    assert backups.left_behind() == []


def test_the_same_request_again_finds_its_work_done(backups: Backups):
    first = backups.write(request="r1")
    backups.copy.add(1)
    assert backups.write(request="r1") == first
    assert backups.extend(request="r2") == backups.extend(request="r2")
    with pytest.raises(StoreError, match="already"):
        backups.write(request="r3")


def test_a_chunk_that_is_not_what_it_was_ends_the_backup(backups: Backups):
    backups.copy.is_lying = True
    with pytest.raises(StoreDamaged, match="chunk 0 of the snapshot"):
        backups.write()
    assert (backups.folder.names(), backups.left_behind(), backups.copy.snapshots) == ([], [], set())


def test_a_disk_that_does_not_keep_what_is_written_is_found_before_the_backup_has_its_name(backups: Backups):
    def spoil(place: str) -> None:
        if place == "written":
            path = backups.folder.partial("monday") / "copy" / "data" / "data.mdb"
            path.write_bytes(b"d" * 2499 + b"e")

    with pytest.raises(StoreDamaged, match="not what was written"):
        write_backup(backups.folder, "monday", backups.copy, backups.work(crash_point=spoil))
    assert (backups.folder.names(), backups.left_behind()) == ([], [])


def test_one_writer_at_a_time(backups: Backups):
    backups.write()
    with (backups.folder.path / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another backup is being written"):
            backups.write("tuesday")


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "list", "verify", "make", "x" * 65, "ä", "a b"])
def test_a_name_cannot_lead_anywhere_else(name: str):
    with pytest.raises(InvalidRequest):
        check_name(name)


# ---- lines that are added


def test_lines_are_added_by_any_worker_of_the_same_history(backups: Backups):
    backups.write()
    backups.copy.add(2500)
    manifest = backups.extend(node="w2")
    backups.copy.add(1, effect_bytes=3_000_000)
    manifest = backups.extend()
    assert [(s.first_lsn, s.last_lsn, s.node) for s in manifest.segments] == [
        (1, 30, "w1"), (31, 2530, "w2"), (2531, 2531, "w1"),
    ]  # fmt: skip
    assert (manifest.last_txid, manifest.last_fingerprint) == ("t2531", text_of(packed(2531)))
    backup = backups.folder.backup("monday")
    assert [row for _, row in backup.lines(manifest, 1, 9999)] == backups.copy.lines
    assert backups.problems() == []


def test_nothing_new_adds_nothing(backups: Backups):
    manifest = backups.write()
    assert backups.extend() == manifest


def test_a_log_that_does_not_reach_back_needs_a_full_backup(backups: Backups):
    backups.write()
    later = PlainCopy(first_lsn=31)
    later.add(5)
    backups.copy = later
    with pytest.raises(StoreError, match="begins at LSN 31, the backup monday ends at 30: make a full backup"):
        backups.extend()


def test_a_worker_of_another_history_adds_nothing(backups: Backups):
    backups.write()
    backups.copy.lines[29] = ("t30", 30_000, "applied", "", b"", packed(99))
    backups.copy.add(1)
    with pytest.raises(StoreDamaged, match="differ at LSN 30"):
        backups.extend()
    assert backups.folder.backup("monday").manifest().last_lsn == 30


def test_a_worker_that_is_behind_or_of_another_cluster_adds_nothing(backups: Backups):
    backups.write()
    del backups.copy.lines[20:]
    with pytest.raises(StoreError, match="is at LSN 20, the backup monday reaches to 30"):
        backups.extend()
    with pytest.raises(StoreError, match="there is no backup tuesday"):
        backups.extend("tuesday")


def test_a_backup_of_a_log_that_went_back_says_its_lineage_and_one_that_did_not_says_nothing(backups: Backups):
    backups.write()
    assert "lineage" not in json.loads((backups.folder.backup("monday").path / "manifest.json").read_bytes())
    backups.copy.go_back(30, 5)
    backups.copy.add(1)
    assert (backups.extend().lineage, backups.folder.backup("monday").manifest().lineage) == (5, 5)
    assert backups.write("tuesday").lineage == 5
    assert backups.problems("monday") == backups.problems("tuesday") == []


@pytest.mark.parametrize("more", [0, 5, 20])
def test_a_backup_behind_the_place_to_which_the_log_went_back_needs_a_full_one(backups: Backups, more: int):
    backups.write()
    backups.copy.go_back(25, 5)
    for lsn in range(26, 26 + more):
        backups.copy.lines.append((f"other{lsn}", 1000 * lsn, "applied", "", b"", packed(1000 + lsn)))
    with pytest.raises(
        StoreError, match=r"30 of the log of lineage 0, w1 follows lineage 5, .* went back .* make a full backup"
    ) as told:
        backups.extend()
    assert not isinstance(told.value, StoreDamaged)
    assert backups.folder.backup("monday").manifest().last_lsn == 30
    assert backups.write(replace=True).lineage == 5


# ---- kills


@pytest.mark.parametrize(
    ("place", "lsn"),
    [("file written", None), ("segment written", None), ("history written", None), ("written", None), ("placed", 30)],
)
def test_a_kill_leaves_no_backup_or_a_whole_one(backups: Backups, place: str, lsn: int | None):
    killed_at(place, lambda crash: write_backup(backups.folder, "monday", backups.copy, backups.work(crash_point=crash)))
    assert backups.folder.names() == ([] if lsn is None else ["monday"])
    if lsn is not None:
        assert backups.problems() == []
    # The next writer cleans up.
    backups.write("tuesday")
    assert backups.left_behind() == []


@pytest.mark.parametrize(("place", "lsn"), [("file written", 30), ("written", 30), ("old one aside", 30), ("placed", 31)])
def test_a_kill_while_a_backup_is_replaced_leaves_one_of_the_two(backups: Backups, place: str, lsn: int):
    backups.write()
    backups.copy.add(1)
    killed_at(
        place, lambda crash: write_backup(backups.folder, "monday", backups.copy, backups.work(crash_point=crash), replace=True)
    )
    backups.write("tuesday")
    assert backups.folder.backup("monday").manifest().lsn == lsn
    assert (backups.problems(), backups.left_behind()) == ([], [])


@pytest.mark.parametrize(("place", "lsn"), [("segment written", 30), ("segment placed", 30), ("manifest placed", 40)])
def test_a_kill_while_lines_are_added_leaves_all_of_them_or_none(backups: Backups, place: str, lsn: int):
    backups.write()
    backups.copy.add(10)
    killed_at(place, lambda crash: extend_backup(backups.folder, "monday", backups.copy, backups.work(crash_point=crash)))
    assert backups.folder.backup("monday").manifest().last_lsn == lsn
    assert backups.problems() == []
    backups.copy.add(1)
    assert backups.extend().last_lsn == 41
    log = backups.folder.backup("monday").path / "log"
    assert len(list(log.iterdir())) == len(backups.folder.backup("monday").manifest().segments)


# ---- damage


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", [0, 5, 17, 30, 40, 200, -1])
def test_a_wrong_byte_in_a_segment_is_found(backups: Backups, place: int):
    path = backups.folder.path / "monday" / backups.write().segments[0].path
    flip(path, place)
    assert len(backups.problems()) == 1


def test_what_is_missing_or_wrong_in_the_copy_is_named(backups: Backups):
    backups.write()
    copy = backups.folder.path / "monday" / "copy"
    flip(copy / "data" / "data.mdb", 1234)
    (copy / "repositories" / "main.0" / "A").unlink()
    (copy / "repositories" / "main.0" / "B").write_bytes(b"b" * 9)
    problems = backups.problems()
    assert [problem.split(": ")[0].rpartition("/")[2] for problem in problems] == ["data.mdb", "A", "B"]
    assert "9 bytes instead of 10" in problems[2]


def test_a_segment_that_was_cut_between_two_blocks_is_no_shorter_log(backups: Backups):
    backups.copy.add(1000)
    path = backups.folder.path / "monday" / backups.write().segments[0].path
    whole = path.read_bytes()
    size_bytes = 17 + 20 + int.from_bytes(whole[29:33], "big")
    path.write_bytes(whole[:size_bytes])
    assert "ends with LSN 1000, not with 1030" in backups.problems()[0]


def test_a_manifest_that_was_edited_is_refused(backups: Backups):
    manifest = backups.write()
    assert read_manifest(pack_manifest(manifest), "here") == manifest
    fields = json.loads(pack_manifest(manifest))
    wrongs: tuple[object, ...] = ({**fields, "lsn": 31}, {**fields, "checksum": ""}, {"lsn": 1}, [])
    for wrong in wrongs:
        with pytest.raises(StoreDamaged):
            read_manifest(json.dumps(wrong).encode(), "here")
    with pytest.raises(StoreError, match="has format 9"):
        read_manifest(json.dumps({**fields, "format": 9}).encode(), "here")


def test_what_a_disk_or_a_person_puts_beside_backups_stays_and_stops_none(backups: Backups):
    backups.write()
    log = backups.folder.path / "monday" / "log"
    for folder in (backups.folder.path / "lost+found", log / "@eaDir"):
        folder.mkdir()
    for name in ("notes.txt", "31-40.partial", "41-50.lines"):
        (log / name).touch()
    backups.copy.add(1)
    backups.extend()
    assert {each.name for each in log.iterdir()} == {"1-30.lines", "31-31.lines", "@eaDir", "notes.txt"}
    assert backups.folder.names() == ["monday"]


def test_a_directory_without_a_manifest_is_listed_and_no_backup(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    folder = BackupFolder(tmp_path)
    assert folder.names() == ["empty"]
    assert list(folder.backup("empty").verify()) == [f"{tmp_path / 'empty'} is no backup: it has no {MANIFEST}"]
