"""Completion in the real shells: what the tabulator offers comes from the commands themselves."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from brokerha.cli.main import app
from brokerha.cli.reference.completion import SHELLS, rows_of, script
from tests.unit.cli.conftest import Ran

WITHIN_S = 60


def offered(tmp_path: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words, by the function that `complete` names."""
    (tmp_path / "script").write_text(script("bash", get_command(app)))
    line = " ".join(map(shlex.quote, ("brokerha", *words)))
    asked = (
        f"set -u; source {tmp_path}/script; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        '[[ "$(complete -p brokerha)" == *"-F _brokerha "* ]] || exit 9; _brokerha brokerha; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, timeout=WITHIN_S, check=False, cwd=tmp_path
    )
    assert done.stderr == ""
    return [each for each in done.stdout.splitlines() if each]


def test_commands_and_groups_are_offered(tmp_path: Path):
    assert offered(tmp_path, "doc") == ["doctor"]
    assert {"status", "backup", "doctor", "completion"} <= set(offered(tmp_path, ""))
    group = get_command(app).commands["backup"]  # type: ignore[attr-defined]
    assert offered(tmp_path, "backup", "") == list(group.commands)


def test_options_of_the_command_are_offered_and_no_others(tmp_path: Path):
    found = offered(tmp_path, "status", "--")
    assert {"--config", "--url", "--watch", "--help"} <= set(found)
    assert "--deploy" not in found
    assert offered(tmp_path, "backup", "list", "--conf") == ["--config"]


def test_values_of_options_are_offered(tmp_path: Path):
    assert offered(tmp_path, "status", "-o", "") == ["table", "json", "yaml", "tsv"]
    assert offered(tmp_path, "status", "--watch", "--output", "js") == ["json"]
    assert offered(tmp_path, "status", "--output", "=", "js") == ["json"]
    assert offered(tmp_path, "completion", "") == list(SHELLS)
    assert offered(tmp_path, "status", "--timeout-s", "") == []


def test_files_are_offered_where_a_file_is_meant(tmp_path: Path):
    (tmp_path / "my cluster.toml").write_text("")
    assert offered(tmp_path, "status", "-c", "my") == ["my cluster.toml"]


def test_every_command_has_its_row():
    paths = {row.path for row in rows_of(get_command(app), "")}
    assert {"", "status", "backup", "backup list", "pipeline report"} <= paths


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_is_accepted_by_its_shell(run: Callable[..., Ran], tmp_path: Path, shell: str):
    done = run("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "doctor" in done.out
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(done.out)
    checked = subprocess.run(
        [program, "-n", str(tmp_path / "script")], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_fish_offers_the_same(tmp_path: Path):
    program = shutil.which("fish")
    if program is None:
        pytest.skip("no fish here")
    (tmp_path / "script").write_text(script("fish", get_command(app)))

    def asked(line: str) -> list[str]:
        command = f"source {tmp_path}/script; complete -C {shlex.quote(line)}"
        done = subprocess.run(
            [program, "--no-config", "-c", command], capture_output=True, text=True, timeout=WITHIN_S, check=True
        )
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    assert asked("brokerha doc") == ["doctor"]
    assert asked("brokerha status -o js") == ["json"]
    assert "list" in asked("brokerha backup ")


def test_zsh_offers_the_same(tmp_path: Path):
    program = shutil.which("zsh")
    if program is None:
        pytest.skip("no zsh here")
    (tmp_path / "script").write_text(script("zsh", get_command(app)))

    def asked(*words: str) -> list[str]:
        line = " ".join(map(shlex.quote, ("brokerha", *words)))
        # What takes the offers, in place of the line editor's.
        command = f"""compadd() {{ print -rl -- "${{@[2,-1]}}" }}; source {tmp_path}/script
            typeset -a words; words=({line}); CURRENT={len(words) + 1}; _brokerha"""
        done = subprocess.run(
            [program, "-f", "-c", command], capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert "doctor" in asked("doc")
    assert "list" in asked("backup", "")
    assert asked("status", "-o", "") == ["table", "json", "yaml", "tsv"]
    assert "--watch" in asked("status", "--")


def test_another_shell_is_a_mistake_of_the_command_line(run: Callable[..., Ran]):
    done = run("completion", "tcsh")
    assert done.code == 64
    assert "bash, zsh, fish" in done.err
