"""The page of situations names tests that exist."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, rows_of


def test_each_test_that_the_page_names_exists() -> None:
    rows = [row for row in rows_of("docs/scenarios.md") if len(row) == 3 and row[1].endswith(".py`")]
    assert len(rows) >= 27
    missing = []
    for situation, file, names in rows:
        text = (ROOT / "tests" / file.strip("`")).read_text(encoding="utf-8")
        named = re.findall(r"`(test_\w+)`", names)
        assert named, situation
        missing += [f"{file}: {name}" for name in named if f"def {name}(" not in text]
    assert not missing
