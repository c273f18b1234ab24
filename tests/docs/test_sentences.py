"""The page of the papers' sentences is made from the tests, and every test there says its sentence."""

from __future__ import annotations

from tests.support.sentences import ROOT, page, untold

PAGE = ROOT / "docs/reference/sentences.md"


def test_the_page_is_up_to_date() -> None:
    found = PAGE.read_text(encoding="utf-8")
    assert found == page(), "run: python -m tests.support.sentences > docs/reference/sentences.md"


def test_every_test_of_the_papers_says_its_sentence() -> None:
    assert untold() == []
