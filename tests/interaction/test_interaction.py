"""Each scenario does what its file says, to the letter (runner.py)."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.interaction.runner import FOLDER, played

FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_scenario_happens_as_it_is_written(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    difference = "\n".join(unified_diff(written.splitlines(), played(written).splitlines(), "written", "now", lineterm=""))
    assert not difference, f"{difference}\nif that is meant: python -m tests.interaction.runner --rewrite"
