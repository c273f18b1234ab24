"""The page of the Python API is made from the code, and leaves nothing untold."""

from __future__ import annotations

import inspect

import brokerha
from tests.docs.pages import ROOT, text_of
from tests.support.api_page import INSIDE, PARTS, page, public

PAGE = "docs/reference/api.md"


def test_the_page_is_up_to_date():
    assert text_of(PAGE) == page(), f"run: python -m tests.support.api_page > {PAGE}"


def test_every_public_call_says_what_it_does():
    owners = [each for part in PARTS for each in part.types]
    silent = [f"{owner.__name__}.{name}" for owner in owners for name, member in public(owner) if not inspect.getdoc(inspect.unwrap(member))]
    assert not silent


def test_what_brokerha_exports_stands_there():
    text = text_of(PAGE)
    assert all(f"brokerha.{name}" in text for name in brokerha.__all__)


def test_what_is_called_inside_is_there():
    owners = [each for part in PARTS for each in part.types]
    assert not {name for name in INSIDE if not any(hasattr(owner, name) for owner in owners)}


def test_the_promise_stands_there_and_type_checkers_are_told():
    assert "**Stability.**" in text_of(PAGE)
    assert (ROOT / "brokerha/py.typed").is_file()
