"""Pages made from the code, and that of situations: each is what the code and the tests say, and leaves nothing out."""

from __future__ import annotations

import inspect
import re

import brokerha
from tests.docs.pages import ROOT, rows_of, text_of
from tests.reference import __main__ as reference
from tests.reference import sentences
from tests.reference.api import INSIDE, PARTS, public

API = "docs/reference/api.md"


def test_the_pages_are_up_to_date() -> None:
    assert list(reference.outdated()) == [], "run: python -m tests.reference"


def test_no_schema_is_left_of_what_is_gone() -> None:
    made = {name for name in reference.pages() if name.startswith("schemas/")}
    assert {f"schemas/{path.name}" for path in (reference.FOLDER / "schemas").iterdir()} == made


def test_every_test_of_the_papers_says_its_sentence() -> None:
    assert sentences.untold() == []


def test_each_test_that_the_page_of_situations_names_exists() -> None:
    rows = [row for row in rows_of("docs/scenarios.md") if len(row) == 3 and row[1].endswith(".py`")]
    assert len(rows) >= 27
    missing = []
    for situation, file, names in rows:
        text = (ROOT / "tests" / file.strip("`")).read_text(encoding="utf-8")
        named = re.findall(r"`(test_\w+)`", names)
        assert named, situation
        missing += [f"{file}: {name}" for name in named if f"def {name}(" not in text]
    assert not missing


def test_every_public_call_says_what_it_does():
    owners = [each for part in PARTS for each in part.types]
    silent = [
        f"{owner.__name__}.{name}"
        for owner in owners
        for name, member in public(owner)
        if not inspect.getdoc(inspect.unwrap(member))
    ]
    assert not silent


def test_what_brokerha_exports_stands_there():
    text = text_of(API)
    assert all(f"brokerha.{name}" in text for name in brokerha.__all__)


def test_what_is_called_inside_is_there():
    owners = [each for part in PARTS for each in part.types]
    assert not {name for name in INSIDE if not any(hasattr(owner, name) for owner in owners)}


def test_the_promise_stands_there_and_type_checkers_are_told():
    assert "**Stability.**" in text_of(API)
    assert (ROOT / "brokerha/py.typed").is_file()
