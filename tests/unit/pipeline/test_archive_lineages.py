"""Archives, audits and sources of a log that goes back after a split: nothing of two lineages comes together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from brokerha.log.disks import FileDisk
from brokerha.log.log import Log as Journal
from brokerha.model.errors import NotReady, StoreError, WentBack
from brokerha.model.log_lineages import ANYWHERE
from brokerha.pipeline.sources import BackupSource, SourceSpec, open_source
from brokerha.stores.backup_directory import write_manifest
from tests.unit.log.turns import filled
from tests.unit.pipeline.archive_place import Log, Place
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(8, 250)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "archive", Log(tmp_path / "log", ENTRIES[:120]))


def test_an_archive_goes_on_with_a_log_that_went_back_behind_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run()
    assert b"lineage" not in (place.path / "manifest.json").read_bytes()
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ((5, 120),))
    place.log.add(ENTRIES[120:130])
    assert (place.run().last_lsn, place.state.lineage) == (130, 5)
    # What goes back later is told by the lineage that it has now.
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ((5, 120), (7, 125)))
    with pytest.raises(WentBack, match=r"went back to LSN 125 with lineage 7 .* go on from 126, with an archive in another folder"):
        place.run()
    assert (place.state.last_lsn, place.state.lineage) == (130, 5)
    place.check()


def test_a_source_of_an_older_lineage_adds_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ((5, 100),))
    place.run()
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ())
    assert place.run().added_entries == 0
    place.log.add(ENTRIES[120:130])
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ((4, 100),))
    with pytest.raises(StoreError, match="of lineage 4 of the log, the archive of 5"):
        place.run()


def test_what_was_read_while_the_log_went_back_is_not_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([(), ((5, 60),)])
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: next(told))
    monkeypatch.setattr(SourceSpec, "kind", "http")
    with pytest.raises(NotReady, match="went back after a split while it was read"):
        place.run()
    assert place.state.last_lsn == 0


def test_a_backup_as_source_says_its_lineage_and_makes_nothing_void(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", ENTRIES[:20])
    with open_source(log.spec) as source:
        assert source.rewinds() == ()
    archive = Place(tmp_path / "archive", log)
    assert archive.run().last_lsn == 20
    write_manifest(log.path, dataclasses.replace(log.manifest, lineage=5))
    with open_source(log.spec) as source:
        assert source.rewinds() == ((5, ANYWHERE),)
    assert (archive.run().last_lsn, archive.state.lineage) == (20, 5)


def test_a_stopped_master_as_source_says_where_its_log_went_back(tmp_path: Path) -> None:
    journal = Journal(FileDisk(tmp_path / "m1"), "orders", "m1")
    author = filled(journal, 8)
    journal.append([author.go_back(5, lineage=4)])
    journal.append([author.accept("a1"), author.stamp("a1"), author.add(9, epoch=4), author.execute(9)])
    journal.close()
    with open_source(SourceSpec(journal=str(tmp_path / "m1"))) as source:
        assert (source.rewinds(), source.last_lsn()) == (((4, 5),), journal_end := 6)
        assert [entry.epoch for entry in source.read(1, journal_end)] == [1] * 5 + [4]
