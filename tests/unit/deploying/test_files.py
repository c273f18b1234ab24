"""Files are compared, written once, and never overwritten without being told to."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from brokerha.deploying.files import DIFFERS, NEW, SAME, File, Plan, compare, write
from brokerha.model.errors import ConfigurationError

PLAN = Plan((File(Path("a.conf"), "one\n"), File(Path("secrets/b.url"), "two\n", is_secret=True)), (Path("log"),))


def words(plan: Plan, folder: Path) -> list[str]:
    return [each.status for each in compare(plan, folder)]


def test_what_is_new_is_written_and_then_up_to_date(tmp_path: Path):
    assert words(PLAN, tmp_path / "x") == [NEW, NEW]
    write(PLAN, tmp_path / "x", force=False)
    assert words(PLAN, tmp_path / "x") == [SAME, SAME]
    assert (tmp_path / "x" / "a.conf").read_text() == "one\n"
    assert sorted(path.name for path in (tmp_path / "x").rglob("*")) == ["a.conf", "b.url", "log", "secrets"]


def test_secrets_and_folders_of_programs_are_private(tmp_path: Path):
    write(PLAN, tmp_path, force=False)
    assert stat.S_IMODE((tmp_path / "secrets" / "b.url").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700


def test_one_file_that_differs_keeps_all_from_being_written(tmp_path: Path):
    (tmp_path / "a.conf").write_text("mine\n")
    with pytest.raises(ConfigurationError, match=r"a\.conf; --force overwrites"):
        write(PLAN, tmp_path, force=False)
    assert (tmp_path / "a.conf").read_text() == "mine\n"
    assert not (tmp_path / "secrets").exists()
    write(PLAN, tmp_path, force=True)
    assert words(PLAN, tmp_path) == [SAME, SAME]


def test_a_secret_that_others_may_read_differs_and_is_mended(tmp_path: Path):
    write(PLAN, tmp_path, force=False)
    (tmp_path / "secrets" / "b.url").chmod(0o644)
    assert words(PLAN, tmp_path) == [SAME, DIFFERS]
    write(PLAN, tmp_path, force=True)
    assert words(PLAN, tmp_path) == [SAME, SAME]


def test_a_folder_that_cannot_be_written_is_a_reason_and_no_traceback(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file"):
        write(PLAN, tmp_path / "file", force=False)
