"""Completion in a real bash: what the tabulator offers comes from the commands themselves."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

WITHIN_S = 60


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The command, as it is installed."""
    path = tmp_path / "bin" / "brokerha"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m brokerha "$@"\n')
    path.chmod(0o755)
    return path


def offered(program: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words, by what `--show-completion` prints."""
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def bash(asked: str) -> str:
        done = subprocess.run(
            ["bash", "--norc", "-c", asked], capture_output=True, text=True, timeout=WITHIN_S, check=False, env=environment
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return done.stdout

    line = " ".join(map(shlex.quote, ("brokerha", *words)))
    # Typer asks which shell its parent is: bash must not make way for the only command.
    script = bash("brokerha --show-completion; true")
    found = bash(
        f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        '[[ "$(complete -p brokerha)" == *"-o default -F _brokerha_completion "* ]] || exit 9; _brokerha_completion brokerha; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return found.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("doc",), ["doctor"]),
        (("backup", "l"), ["list"]),
        (("backup", "list", "--conf"), ["--config"]),
        (("status", "-o", "js"), ["json"]),
        (("load", "--format", "n"), ["nt", "nq"]),
        (("status", "--timeout-s", ""), []),
    ],
)
def test_commands_options_and_their_words_are_offered(program: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(program, *words) == expected
