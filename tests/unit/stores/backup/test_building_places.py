"""What is built from the log gets its name whole or not at all: as a backup that can be restored, as a worker's directory that opens."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from brokerha.model.errors import StoreDiffers, StoreError
from brokerha.model.fingerprints import text_of
from brokerha.stores.backup.building_places import build_backup, build_worker
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.restore_target import choose_target
from brokerha.stores.backup.restoring import Restore, check_backup
from brokerha.stores.backup.writing import About, Work
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.support.memory_store.image import MemoryImage
from tests.unit.stores.built_copies import OPTIONS, everything, opened, plan_of
from tests.unit.stores.killed_buildings import COUNT, LINES, build_a_backup, build_a_worker, killed_building


def reopened(directory: Path, cluster: str = "orders", node: str = "w9") -> WorkerCopy:
    return WorkerCopy(directory, cluster=cluster, node=node, options=OPTIONS)


def lost_a_key(image: MemoryImage) -> None:
    del image.keys[min(image.keys)]


@pytest.mark.parametrize("to_lsn", [30, COUNT])
def test_a_built_backup_is_whole_and_restores_each_state_up_to_its_lsn(tmp_path: Path, to_lsn: int) -> None:
    folder = BackupFolder(tmp_path / "backups")
    manifest = build_a_backup(tmp_path)
    backup = folder.backup("built")
    assert list(backup.verify()) == []
    assert (manifest.lsn, manifest.least_lsn, manifest.last_lsn) == (COUNT, 0, COUNT)
    assert manifest == backup.manifest()
    target = choose_target(backup, manifest, to_lsn)
    restore = Restore(backup, manifest, target, tmp_path / "w9", cluster="elsewhere", node="w9")
    restore.prepare(check_backup(backup, manifest))
    restore.placing.place()
    restore.placing.finish()
    copy = reopened(tmp_path / "w9", "elsewhere")
    copy.apply(to_lsn + 1, LINES[to_lsn:])
    assert copy.applied() == copy.recompute()
    assert copy.applied().fingerprint == text_of(LINES[-1].fingerprint)
    copy.close()


def test_a_built_backup_without_lines_holds_the_state_at_its_lsn(tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path / "backups")
    manifest = build_a_backup(tmp_path, history_too=False)
    assert list(folder.backup("built").verify()) == []
    assert (manifest.least_lsn, manifest.last_lsn, manifest.segments) == (COUNT, COUNT, ())
    assert manifest.last_txid == LINES[COUNT - 1].txid


def test_a_built_worker_holds_what_applying_leads_to_and_follows_the_log(tmp_path: Path) -> None:
    build_a_worker(tmp_path)
    applied = opened(tmp_path / "applied")
    applied.apply(1, LINES)
    copy = reopened(tmp_path / "w9")
    assert copy.trouble == ""
    assert copy.applied().fingerprint == text_of(LINES[COUNT - 1].fingerprint)
    copy.apply(COUNT + 1, LINES[COUNT:])
    assert copy.recompute() == copy.applied() == applied.applied()
    assert everything(copy._generation.store) == everything(applied)
    copy.close()
    applied.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["applied", "w9"]


def test_content_that_differs_leaves_neither_a_backup_nor_a_directory(tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path / "backups")
    plan = plan_of(LINES[:COUNT], spoil=lost_a_key)
    with pytest.raises(StoreDiffers):
        build_backup(folder, "built", plan, Work(About("orders", "archive"), 1))
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [".lock"]
    with pytest.raises(StoreDiffers):
        build_worker(tmp_path / "w9", plan, cluster="orders", node="w9")
    assert [path.name for path in tmp_path.iterdir()] == ["backups"]


def test_a_backup_is_replaced_and_a_directory_taken_only_when_that_is_said(tmp_path: Path) -> None:
    build_a_backup(tmp_path)
    with pytest.raises(StoreError, match="there is a backup built already"):
        build_a_backup(tmp_path)
    build_a_backup(tmp_path, replace=True)
    build_a_worker(tmp_path)
    with pytest.raises(StoreError, match=r"holds data: .*; nothing was changed"):
        build_a_worker(tmp_path)
    copy = reopened(tmp_path / "w9")
    copy.apply(COUNT + 1, LINES[COUNT:])
    with pytest.raises(StoreError, match="stop that node first; nothing was changed"):
        build_a_worker(tmp_path, is_forced=True)
    copy.close()
    build_a_worker(tmp_path, is_forced=True)
    copy = reopened(tmp_path / "w9")
    assert copy.applied().lsn == COUNT
    copy.close()


@pytest.mark.parametrize("place", ["segment written", "old one aside"])
def test_a_kill_while_a_backup_is_built_leaves_the_old_one_or_the_new_one(tmp_path: Path, place: str) -> None:
    folder = BackupFolder(tmp_path / "backups")
    build_a_backup(tmp_path, history_too=False)
    assert killed_building("backup", tmp_path, place) == -signal.SIGKILL
    again = build_a_backup(tmp_path, replace=True)
    assert list(folder.backup("built").verify()) == []
    assert folder.backup("built").manifest() == again
    assert folder.names() == ["built"]
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "built"]


@pytest.mark.parametrize("place", ["built", "placed"])
def test_a_kill_while_a_directory_is_built_leaves_the_old_one_or_the_new_one(tmp_path: Path, place: str) -> None:
    directory = tmp_path / "w9"
    reopened(directory).close()
    assert killed_building("worker", tmp_path, place) == -signal.SIGKILL
    if directory.exists():
        copy = reopened(directory)
        assert copy.applied().lsn == (COUNT if place == "placed" else 0)
        copy.close()
    build_a_worker(tmp_path, is_forced=True)
    copy = reopened(directory)
    assert copy.applied() == copy.recompute()
    assert copy.applied().lsn == COUNT
    copy.close()
    assert [path.name for path in tmp_path.iterdir()] == ["w9"]
