"""docs/security.md: its commands run, its cluster file loads (test_docs.py), and each test that it names exists."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from brokerha.cli.main import main
from brokerha.http.users import ROLES
from tests.docs.pages import ROOT, table_under, the_block

PAGE = "docs/security.md"


def test_each_requirement_has_a_test_that_exists() -> None:
    rows = table_under(PAGE, "What holds, and the test of it")
    named = [re.findall(r"`(tests/[^`]+)`", row[1]) for row in rows]
    assert all(named)
    assert not [file for files in named for file in files if not (ROOT / file).is_file()]


def test_every_role_is_on_the_page() -> None:
    assert {row[0].strip("`") for row in table_under(PAGE, "Doors: users, roles, TLS")} >= {*ROLES}


def test_the_commands_about_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("a password of some length\n"))
    for line in the_block(PAGE, "sh", "brokerha user add").splitlines():
        assert main(shlex.split(line)[1:]) == 0, line
    assert "reader" in capsys.readouterr().out
    assert (tmp_path / "users.toml").stat().st_mode & 0o077 == 0
