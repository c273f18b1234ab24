"""The pages of the documentation, the blocks in them, and a way to run what a page tells to run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """What stands between two fences."""

    place: str
    """Page and line, as one names it in a message."""
    language: str
    text: str


def pages() -> list[str]:
    """All pages, relative to the repository."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "brokerha").rglob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def text_of(page: str) -> str:
    """The whole page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str, language: str) -> Iterator[Block]:
    """The blocks of a page that are in this language."""
    text = text_of(page)
    for found in _FENCE.finditer(text):
        if found[1] == language:
            yield Block(f"{page}:{text[: found.start()].count(chr(10)) + 1}", found[1], found[2])


def blocks(language: str) -> list[Block]:
    """The blocks of all pages that are in this language."""
    return [block for page in pages() for block in blocks_of(page, language)]


def rows_of(page: str) -> Iterator[list[str]]:
    """The rows of all tables of a page, heads included, cell by cell."""
    for line in text_of(page).splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            yield [cell.strip() for cell in cells]


def table_under(page: str, heading: str) -> list[list[str]]:
    """The rows of the tables between a heading and the next one of any level, without their heads."""
    part = re.split(rf"^#+ {re.escape(heading)}\n", text_of(page), maxsplit=1, flags=re.MULTILINE)[1]
    part = re.split(r"^#+ ", part, maxsplit=1, flags=re.MULTILINE)[0]
    rows: list[list[str]] = []
    is_body = False
    for line in part.splitlines():
        if re.fullmatch(r"\|[|\s:-]+", line):
            is_body = True
        elif not line.startswith("|"):
            is_body = False
        elif is_body:
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))])
    return rows


def the_block(page: str, language: str, text: str) -> str:
    """The one block of a page that holds this text."""
    found = [block.text for block in blocks_of(page, language) if text in block.text]
    assert len(found) == 1, f"{len(found)} blocks of {page} hold {text!r}"
    return found[0]


def shell_of(folder: Path, programs: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The environment of a shell that finds `brokerha`, which is the one here, and these scripts before all others."""
    place = folder / "bin"
    place.mkdir()
    ours = {"brokerha": f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m brokerha "$@"\n'}
    for name, text in (ours | {**programs}).items():
        (place / name).write_text(text, encoding="utf-8")
        (place / name).chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("BROKERHA_URL", None)
    return environment


def output_of(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What a command says on both outputs; it must end well."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
