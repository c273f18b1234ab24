"""Restores with real stores: any state that a backup holds, somewhere else, whole or not at all, and never over what somebody uses."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreDiffers, StoreError
from brokerha.model.fingerprints import EMPTY, packed, text_of
from brokerha.model.operations import Operation, pack_operations
from brokerha.ports.store import Applied
from brokerha.stores.backup.directory import BackupDirectory, BackupFolder
from brokerha.stores.backup.lines import LinesMissing
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.backup.restore_target import choose_target, obstacle_in, owner_of
from brokerha.stores.backup.restoring import Restore, check_backup, replay
from brokerha.stores.backup.writing import About, Work, extend_backup, write_backup
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.execution.worker_store import StoreOptions
from tests.unit.stores.killed_restores import killed_restore

OPTIONS = StoreOptions(map_size_bytes=256 * 1024 * 1024)


class Site:
    """A worker that is written to, and a folder of its backups."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.copy = WorkerCopy(home / "w1", cluster="orders", node="w1", options=OPTIONS, chunk_bytes=64 * 1024)
        self.folder = BackupFolder(home / "backups")
        self.lsn = 0
        self.states: dict[int, str] = {0: text_of(EMPTY)}
        """Fingerprint after each batch."""

    def write(self, count: int, quads: int = 1) -> None:
        """So many transactions in one batch; timestamps are a thousand times their LSN."""
        items = []
        for lsn in range(self.lsn + 1, self.lsn + count + 1):
            text = "".join(f"<urn:s{lsn}> <urn:p{n}> <urn:o{lsn % 7}> .\n" for n in range(quads))
            operations: list[Operation] = [("add", "main", text), ("put", "t", b"k%d" % (lsn % 50), b"v%d" % lsn)]
            operations.append(("publish", "q", "text/plain", b"m%d" % lsn))
            if lsn > 5:
                operations.append(("accept", "q", f"t{lsn - 5}.3"))
            items.append((f"t{lsn}", 1000 * lsn, pack_operations(operations)))
        self.copy.execute(self.lsn + 1, items)
        self.lsn += count
        self.states[self.lsn] = self.copy.applied().fingerprint

    def back_up(self) -> BackupDirectory:
        write_backup(self.folder, "monday", self.copy, Work(About("orders", "w1"), 1))
        return self.folder.backup("monday")

    def extend(self) -> None:
        extend_backup(self.folder, "monday", self.copy, Work(About("orders", "w1"), 2))

    def restore(self, into: str, to_lsn: int | None = None, *, is_forced: bool = False) -> Applied:
        """Restore everything, and say what a node finds there."""
        backup = self.folder.backup("monday")
        manifest = backup.manifest()
        work = prepared(backup, manifest, self.home / into, to_lsn)
        work.prepare(check_backup(backup, manifest))
        work.placing.place(is_forced=is_forced)
        work.placing.finish()
        return found(self.home / into)


def prepared(backup: BackupDirectory, manifest: Manifest, into: Path, to_lsn: int | None = None) -> Restore:
    target = choose_target(backup, manifest, to_lsn)
    return Restore(backup, manifest, target, into, cluster="elsewhere", node="w9")


def found(directory: Path) -> Applied:
    copy = WorkerCopy(directory, cluster="elsewhere", node="w9", options=OPTIONS)
    try:
        assert not copy.trouble
        assert copy.recompute() == copy.applied()
        return copy.applied()
    finally:
        copy.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.copy.close()


@pytest.fixture
def backup(site: Site) -> BackupDirectory:
    """A copy at LSN 20, all lines before it, and those up to 30."""
    site.write(10)
    site.write(10)
    made = site.back_up()
    site.write(5)
    site.write(5)
    site.extend()
    return made


def test_what_is_restored_begins_in_a_log_that_never_went_back(site: Site):
    site.write(10)
    site.copy.begin_lineage(5)
    site.back_up()
    site.write(5)
    site.extend()
    site.restore("there")
    copy = WorkerCopy(site.home / "there", cluster="elsewhere", node="w9", options=OPTIONS)
    assert (copy.lineage, copy.applied().lsn) == (0, 15)
    copy.close()


# ---- which state


def test_a_store_that_is_written_meanwhile_is_restored_to_its_lsn_an_earlier_and_a_later_one(site: Site):
    # Given 20,000 quads, and a writer that does not stop
    while site.lsn * 10 < 20_000:
        site.write(100, quads=9)
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            site.write(10, quads=9)

    writer = threading.Thread(target=go_on)
    writer.start()
    # When a backup is made and extended
    backup = site.back_up()
    stop.set()
    writer.join()
    site.write(10)
    site.extend()
    manifest = backup.manifest()
    assert manifest.lsn < manifest.last_lsn == site.lsn
    # Then each of its states can be restored
    earlier = max(lsn for lsn in site.states if lsn < manifest.lsn)
    later = min(lsn for lsn in site.states if lsn > manifest.lsn)
    assert site.restore("same", manifest.lsn)[:2] == (manifest.lsn, site.states[manifest.lsn])
    assert site.restore("earlier", earlier)[:2] == (earlier, site.states[earlier])
    assert site.restore("later", later)[:2] == (later, site.states[later])
    assert site.restore("newest") == site.copy.applied()


def test_the_empty_state_can_be_restored_when_all_lines_are_there(site: Site, backup: BackupDirectory):
    assert site.restore("empty", 0) == Applied(0, text_of(EMPTY), 0)


@pytest.mark.parametrize(("time_us", "lsn"), [(0, 0), (999, 0), (1000, 1), (20_000, 20), (20_999, 20), (25_500, 25), (10**15, 30)])
def test_a_time_means_the_last_transaction_at_or_before_it(backup: BackupDirectory, time_us: int, lsn: int):
    target = choose_target(backup, backup.manifest(), to_time_us=time_us)
    assert (target.lsn, target.txid) == (lsn, f"t{lsn}" if lsn else "")


def test_a_state_that_the_backup_does_not_hold_is_refused(backup: BackupDirectory):
    manifest = backup.manifest()
    with pytest.raises(InvalidRequest, match="from LSN 0 to 30, not 31"):
        choose_target(backup, manifest, 31)
    with pytest.raises(InvalidRequest, match="two ways"):
        choose_target(backup, manifest, 3, 3)


def test_each_target_knows_transaction_time_and_fingerprint(site: Site, backup: BackupDirectory):
    for lsn in (10, 20, 25, 30):
        target = choose_target(backup, backup.manifest(), lsn)
        assert (target.txid, target.timestamp, text_of(target.fingerprint)) == (f"t{lsn}", 1000 * lsn, site.states[lsn])
        assert target.base_lsn == (20 if lsn >= 20 else 0)


# ---- what is in the way


def test_data_in_the_way_is_left_alone_unless_forced(site: Site, backup: BackupDirectory):
    before = site.restore("w9", 10)
    with pytest.raises(StoreError, match="holds data"):
        site.restore("w9", 20)
    assert found(site.home / "w9") == before
    assert site.restore("w9", 20, is_forced=True).lsn == 20
    assert sorted(path.name for path in site.home.iterdir()) == ["backups", "w1", "w9"]


def test_a_directory_that_is_open_is_never_touched(site: Site, backup: BackupDirectory):
    before = site.copy.applied()
    with pytest.raises(StoreError, match=r"has .*/w1 open"):
        site.restore("w1", 10, is_forced=True)
    assert site.copy.applied() == before
    assert obstacle_in(site.home / "w1").is_locked


def test_an_empty_directory_is_no_obstacle(site: Site, backup: BackupDirectory):
    (site.home / "w9").mkdir()
    assert site.restore("w9").lsn == 30
    assert owner_of(site.home / "w9") == ("elsewhere", "w9")


# ---- kills and damage


@pytest.mark.parametrize("place", ["chunk kept", "loaded", "batch applied", "lines applied"])
def test_a_restore_that_was_killed_leaves_nothing_to_open_and_goes_on(site: Site, backup: BackupDirectory, place: str):
    assert killed_restore(backup.path, site.home / "w9", place) == -signal.SIGKILL
    assert not (site.home / "w9").exists()
    manifest = backup.manifest()
    again: list[int] = []
    work = prepared(backup, manifest, site.home / "w9")
    work.prepare(check_backup(backup, manifest), note_lines=again.append)
    work.placing.place()
    assert found(site.home / "w9").fingerprint == site.states[30]
    assert sum(again) == (0 if place in {"batch applied", "lines applied"} else 10)


@pytest.mark.parametrize("place", ["old one aside", "placed"])
def test_a_kill_while_the_directory_is_replaced_is_made_good_by_the_next_run(site: Site, backup: BackupDirectory, place: str):
    site.restore("w9", 10)
    assert killed_restore(backup.path, site.home / "w9", place) == -signal.SIGKILL
    manifest = backup.manifest()
    again = prepared(backup, manifest, site.home / "w9")
    assert again.placing.is_placed == (place == "placed")
    if not again.placing.is_placed:
        again.prepare(check_backup(backup, manifest))
        again.placing.place()
    again.placing.finish()
    assert found(site.home / "w9").fingerprint == site.states[30]


def test_a_restore_to_another_state_begins_anew(site: Site, backup: BackupDirectory):
    manifest = backup.manifest()
    snapshot = check_backup(backup, manifest)
    prepared(backup, manifest, site.home / "w9", 30).prepare(snapshot)
    assert site.restore("w9", 25)[:2] == (25, site.states[25])


def test_a_damaged_backup_changes_nothing(site: Site, backup: BackupDirectory):
    path = backup.copy_file(backup.manifest().files[0].path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreDamaged, match="is damaged"):
        site.restore("w9")
    assert sorted(path.name for path in site.home.iterdir()) == ["backups", "w1"]


# ---- replay


def lines_of(site: Site, first_lsn: int, last_lsn: int) -> list[tuple[int, tuple[str, int, str, str, bytes, bytes]]]:
    return [(lsn, tuple(line)) for lsn, line in enumerate(site.copy.logged(first_lsn, last_lsn), first_lsn)]  # type: ignore[misc]


def test_lines_are_applied_once_and_those_that_are_there_are_compared(site: Site, backup: BackupDirectory, tmp_path: Path):
    copy = WorkerCopy(tmp_path / "w9", cluster="orders", node="w9", options=OPTIONS)
    assert replay(copy, lines_of(site, 1, 25), 1, 20) == 20
    assert replay(copy, lines_of(site, 15, 30), 15, 30) == 10
    assert replay(copy, lines_of(site, 1, 30), 1, 30) == 0
    assert copy.applied() == site.copy.applied()
    copy.close()


def test_gaps_and_other_histories_are_refused(site: Site, backup: BackupDirectory, tmp_path: Path):
    copy = WorkerCopy(tmp_path / "w9", cluster="orders", node="w9", options=OPTIONS)
    with pytest.raises(InvalidRequest, match="lines from 1 on come next, not 2"):
        replay(copy, lines_of(site, 2, 5), 2, 5)
    with pytest.raises(LinesMissing, match="LSN 1 is missing: the next line that there is has LSN 3"):
        replay(copy, lines_of(site, 3, 5), 1, 5)
    with pytest.raises(LinesMissing, match="end with LSN 5, before 6"):
        replay(copy, lines_of(site, 1, 5), 1, 6)
    assert copy.applied().lsn == 5
    lsn, row = lines_of(site, 5, 5)[0]
    with pytest.raises(StoreDiffers, match="not of one history"):
        replay(copy, [(lsn, (*row[:5], packed(7))), *lines_of(site, 6, 6)], 5, 6)
    lsn, row = lines_of(site, 6, 6)[0]
    with pytest.raises(StoreDiffers):
        replay(copy, [(lsn, (*row[:5], packed(7)))], 6, 6)
    assert copy.applied().lsn == 5
    copy.close()
