"""Any state of an archive becomes a backup or a worker's directory that has the fingerprint of the log, or nothing becomes of it."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import re
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from brokerha.model.errors import ConfigurationError, InvalidRequest, StoreDiffers, StoreError
from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.pipeline import rebuilding
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.rebuilding import RebuildOptions, RebuildReport, staging_folder
from brokerha.pipeline.rebuilding_content import line_of
from brokerha.stores.backup_directory import BackupFolder
from brokerha.stores.restore_target import choose_target
from brokerha.stores.restoring import Restore, check_backup
from brokerha.stores.worker_copy import WorkerCopy
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import BEGIN_US, random_entries
from tests.unit.pipeline.staged_here import stage_here

COUNT = 400
ENTRIES = random_entries(11, COUNT)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return archive_of(tmp_path_factory.mktemp("archive") / "a", ENTRIES, 90)


def no_spark(*_: Any) -> Any:
    raise AssertionError("a small archive needs no Spark")


def rebuilt(archive: Archive, *, is_staged: bool = False, **options: Any) -> RebuildReport:
    here_rows = 0 if is_staged else 1_000_000
    wanted = RebuildOptions(archive=archive.directory, here_rows=here_rows, **options)
    return rebuilding.run(wanted, stage_here if is_staged else no_spark, lambda _done, _total: None, lambda: 7)


def follow(directory: Path, lsn: int, node: str = "w9", cluster: str = "orders") -> None:
    """A worker starts from a directory at an LSN, and follows the log to its end without a difference."""
    copy = WorkerCopy(directory, cluster=cluster, node=node)
    expected = ENTRIES[lsn - 1].fingerprint if lsn else EMPTY
    assert (copy.trouble, copy.applied().lsn, copy.applied().fingerprint) == ("", lsn, text_of(expected))
    copy.apply(lsn + 1, [line_of(entry) for entry in ENTRIES[lsn:]])
    assert copy.applied() == copy.recompute()
    assert copy.applied().fingerprint == text_of(ENTRIES[-1].fingerprint)
    copy.close()


@pytest.mark.parametrize(("lsn", "is_staged"), [(0, False), (1, True), (137, True), (137, False), (COUNT, True)])
def test_a_worker_starts_from_any_state_and_follows_the_log(
    archive: Archive, tmp_path: Path, lsn: int, is_staged: bool
) -> None:
    report = rebuilt(archive, into=tmp_path / "w9", to_lsn=lsn, is_staged=is_staged)
    assert (report.lsn, report.node, report.is_on_spark) == (lsn, "w9", is_staged)
    follow(tmp_path / "w9", lsn)
    assert not list((archive.directory / rebuilding.STAGING).glob("*"))


@pytest.mark.parametrize("has_lines", [False, True])
def test_a_rebuilt_backup_verifies_and_is_restored_like_any_other(
    archive: Archive, tmp_path: Path, has_lines: bool
) -> None:
    folder = BackupFolder(tmp_path / "backups")
    report = rebuilt(archive, backup="r", backups=folder.path, to_lsn=300, has_lines=has_lines, is_staged=True)
    backup = folder.backup("r")
    manifest = backup.manifest()
    assert list(backup.verify()) == []
    assert (manifest.lsn, manifest.txid, manifest.fingerprint) == (300, ENTRIES[299].txid, report.fingerprint)
    assert (manifest.cluster, manifest.node, manifest.items) == ("orders", "archive", report.items)
    assert manifest.least_lsn == (0 if has_lines else 300)
    target = choose_target(backup, manifest, 120 if has_lines else 300)
    restore = Restore(backup, manifest, target, tmp_path / "w9", cluster="elsewhere", node="w9")
    restore.prepare(check_backup(backup, manifest))
    restore.placing.place()
    restore.placing.finish()
    follow(tmp_path / "w9", target.lsn, cluster="elsewhere")


@pytest.mark.parametrize(
    ("time_us", "lsn"),
    [(BEGIN_US, 0), (BEGIN_US + 1_000, 1), (BEGIN_US + 137_999, 137), (BEGIN_US + 10**9, COUNT)],
)
def test_a_time_means_the_last_transaction_at_or_before_it(
    archive: Archive, tmp_path: Path, time_us: int, lsn: int
) -> None:
    report = rebuilt(archive, into=tmp_path / "w9", to_time_us=time_us, is_dry_run=True)
    assert report.lsn == lsn
    assert report.fingerprint == text_of(ENTRIES[lsn - 1].fingerprint if lsn else EMPTY)


def test_a_dry_run_says_what_would_be_made_and_what_is_in_the_way_and_writes_nothing(
    archive: Archive, tmp_path: Path
) -> None:
    report = rebuilt(archive, into=tmp_path / "w9", cluster="other", node="w4", is_dry_run=True)
    assert dataclasses.asdict(report) | {"rows": 0} == dataclasses.asdict(
        RebuildReport(
            archive=str(archive.directory), cluster="other", lsn=COUNT, txid=ENTRIES[-1].txid, timestamp=ENTRIES[-1].timestamp,
            fingerprint=text_of(ENTRIES[-1].fingerprint), target=str(tmp_path / "w9"), node="w4", is_dry_run=True,
        )
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "w9").mkdir()
    (tmp_path / "w9" / "mine").touch()
    found = rebuilt(archive, into=tmp_path / "w9", cluster="other", is_dry_run=True)
    assert found.in_the_way.endswith("holds data: mine; take another directory, or replace it with --force other")


def test_nothing_is_replaced_that_nobody_said_to_replace(archive: Archive, tmp_path: Path) -> None:
    rebuilt(archive, into=tmp_path / "w9", to_lsn=10)
    with pytest.raises(StoreError, match=r"holds data: .*; take another directory, or replace it with --force orders$"):
        rebuilt(archive, into=tmp_path / "w9", to_lsn=20)
    rebuilt(archive, into=tmp_path / "w9", to_lsn=20, is_replaced=True)
    follow(tmp_path / "w9", 20)
    rebuilt(archive, backup="r", backups=tmp_path / "b", to_lsn=10)
    with pytest.raises(StoreError, match="there is a backup r already"):
        rebuilt(archive, backup="r", backups=tmp_path / "b", to_lsn=20)


def test_an_archive_that_was_changed_leads_to_no_worker(tmp_path: Path) -> None:
    changed = archive_of(tmp_path / "a", ENTRIES, 200)
    path = changed.path(changed.state().files[0])
    table = pq.read_table(path)
    values = table["value"].to_pylist()
    rows = zip(table["lsn"].to_pylist(), table["kind"].to_pylist(), strict=True)
    place = next(number for number, (lsn, kind) in enumerate(rows) if kind == "publish" and lsn > 150)
    values[place] = b"somebody else wrote this"
    column = table.schema.get_field_index("value")
    pq.write_table(table.set_column(column, table.schema.field(column), [values]), path)
    what_to_do = f"the archive in {changed.directory} is not what was archived: use a copy of it; brokerha pipeline audit --archive"
    with pytest.raises(StoreDiffers, match=f"leads to 1:.*: {re.escape(what_to_do)}"):
        rebuilt(changed, into=tmp_path / "w9")
    with pytest.raises(StoreDiffers, match=re.escape(what_to_do)):
        rebuilt(changed, into=tmp_path / "w9", is_staged=True)
    assert not (tmp_path / "w9").exists()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"into": Path("w9"), "to_lsn": COUNT + 1}, InvalidRequest, "holds the states up to LSN 400, not 401"),
        ({"into": Path("w9"), "to_lsn": 1, "to_time_us": 1}, InvalidRequest, "give one of them"),
        ({"into": Path("w9"), "backup": "b"}, InvalidRequest, "what is to be made"),
        ({}, InvalidRequest, "what is to be made"),
        ({"into": Path("Not a name")}, InvalidRequest, "no name of a node"),
        ({"into": Path("w9"), "cluster": "No"}, InvalidRequest, "no name of a cluster"),
        ({"backup": "list", "backups": Path("b")}, InvalidRequest, "no name for a backup"),
        ({"backup": "b"}, ConfigurationError, "no folder of backups"),
    ],
)
def test_what_cannot_be_rebuilt_is_said_before_anything_is_read(
    archive: Archive, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        rebuilt(archive, **options)


def test_an_archive_that_begins_later_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"begins with LSN 101: no state can be rebuilt .* restore a backup"):
        rebuilt(archive_of(tmp_path / "a", ENTRIES[100:]), into=tmp_path / "w9")


def test_an_archive_of_an_unnamed_cluster_needs_a_name(tmp_path: Path) -> None:
    unnamed = archive_of(tmp_path / "a", ENTRIES[:10], cluster="")
    with pytest.raises(ConfigurationError, match="does not say which cluster"):
        rebuilt(unnamed, into=tmp_path / "w9")
    rebuilt(unnamed, into=tmp_path / "w9", cluster="orders")
    follow(tmp_path / "w9", 10)


def _die_while_staging(archive: Path) -> None:
    with staging_folder(archive):
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_run_left_is_cleared_and_what_another_one_uses_is_not(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with staging_folder(tmp_path) as used:
        child = context.Process(target=_die_while_staging, args=(tmp_path,))
        child.start()
        child.join()
        left = [each for each in used.parent.iterdir() if each != used]
        assert len(left) == 1
        with staging_folder(tmp_path) as fresh:
            assert sorted(used.parent.iterdir()) == sorted([used, fresh])
    assert list((tmp_path / rebuilding.STAGING).iterdir()) == []
