"""What the tasks of a rebuild write is the content that the lines lead to, however the work is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.model.fingerprints import text_of
from brokerha.pipeline import rebuilding
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.rebuilding import RebuildOptions
from brokerha.pipeline.rebuilding_columns import stage_here
from brokerha.pipeline.rebuilding_content import Content, folded, staged
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(35, 500)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return archive_of(tmp_path_factory.mktemp("archive"), ENTRIES, 90)


def staged_here(archive: Archive, lsn: int, groups: int, staging: Path) -> Content:
    return staged(staging, stage_here(archive, archive.state(), lsn, staging, groups))


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("lsn", [0, 1, 89, 90, 91, 333, 500])
def test_the_content_is_that_of_a_fold(archive, tmp_path, lsn, groups):
    found, expected = staged_here(archive, lsn, groups, tmp_path), folded(archive, archive.state(), lsn)
    assert found.repositories == expected.repositories
    for name in expected.repositories:
        assert sorted(found.quads(name)) == sorted(expected.quads(name))
    assert list(found.keys()) == list(expected.keys())
    assert list(found.messages()) == list(expected.messages())
    assert sorted(found.checks) == sorted(expected.checks)
    assert (dict(found.counts), found.items) == (dict(expected.counts), expected.items)
    assert {place: lsn for place, lsn in found.changes.items() if place[0]} == {
        place: lsn for place, lsn in expected.changes.items() if place[0]
    }


def test_all_kinds_of_items_live_at_the_end(archive):
    content = folded(archive, archive.state(), 500)
    assert list(content.keys())
    assert list(content.messages())
    assert content.checks
    assert any(list(content.quads(name)) for name in content.repositories)


def test_a_task_that_runs_twice_writes_the_same_once(archive, tmp_path):
    first = staged_here(archive, 300, 2, tmp_path)
    again = staged_here(archive, 300, 2, tmp_path)
    assert list(first.keys()) == list(again.keys())
    assert first.items == again.items
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".parquet"]


def test_a_middling_archive_is_rebuilt_by_columns_without_spark(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(rebuilding, "FOLD_ROWS", 10)

    def no_spark(*_):
        raise AssertionError

    options = RebuildOptions(archive=archive.directory, into=tmp_path / "w9", cluster="orders", to_lsn=400)
    report = rebuilding.run(options, no_spark, lambda _done, _total: None)
    assert (report.fingerprint, report.is_on_spark) == (text_of(ENTRIES[399].fingerprint), False)
    assert list((archive.directory / rebuilding.STAGING).iterdir()) == []
