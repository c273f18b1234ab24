"""A bundle is bounded, private, and never overwrites; logs are read from their end."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from brokerha.doctor.bundle import Bundle, Redactor, last_lines


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            each.name.split("/", 1)[1]: (archive.extractfile(each) or pytest.fail(each.name)).read().decode()
            for each in archive.getmembers()
        }


def test_all_members_together_are_bounded_and_cuts_are_told(tmp_path: Path):
    bundle = Bundle(Redactor(), limit_bytes=4_000, member_bytes=2_000)
    bundle.add("a.txt", "begin" + "x" * 5_000)
    bundle.add("b.log", "y" * 5_000 + "end", keep_end=True)
    bundle.add("c.txt", "z" * 10)
    bundle.write(tmp_path / "b.tar.gz", 0, {"cluster": "c"})
    found = members(tmp_path / "b.tar.gz")
    assert found["a.txt"].startswith("begin")
    assert len(found["a.txt"]) == 2_000
    assert found["b.log"].endswith("end")
    assert "c.txt" not in found
    rows = json.loads(found["manifest.json"])["files"]
    assert [(row["name"], row["cut"]) for row in rows] == [("a.txt", True), ("b.log", True), ("c.txt", True)]
    assert sum(map(len, found.values())) <= 4_000


def test_the_file_is_private_and_not_overwritten(tmp_path: Path):
    path = tmp_path / "b.tar.gz"
    Bundle(Redactor()).write(path, 0, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        Bundle(Redactor()).write(path, 0, {})


def test_secrets_do_not_come_in_by_the_manifest_either(tmp_path: Path):
    Bundle(Redactor({"canary77"})).write(tmp_path / "b.tar.gz", 0, {"x": "canary77"})
    assert "canary77" not in members(tmp_path / "b.tar.gz")["manifest.json"]


def test_last_lines_are_whole_lines(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"line {n}\n" for n in range(1_000)))
    assert last_lines(path, 2) == "line 998\nline 999\n"
    assert last_lines(path, 50, limit_bytes=22) == "line 998\nline 999\n"
    assert last_lines(path, 0) == ""
    assert last_lines(tmp_path / "none", 5) == "(cannot be read: No such file or directory)\n"
