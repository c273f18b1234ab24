"""Content negotiation by quality and by how exactly a range names an offer."""

from __future__ import annotations

import pytest

from brokerha.http.door.call import preferred, wants_json

OFFERS = ["application/json", "text/csv", "text/plain"]


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/csv", "text/csv"),
        ("TEXT/CSV", "text/csv"),
        ("text/*", "text/csv"),
        ("text/*, text/csv;q=0", "text/plain"),
        ("text/csv;q=0.5, text/plain;q=0.6", "text/plain"),
        ("text/csv; q=0.5, */*; q=0.1", "text/csv"),
        ("image/png, */*;q=0.1", "application/json"),
        ("application/json;q=nonsense", None),
        ("image/png", None),
        ("*/*;q=0", None),
        (",,;", None),
    ],
)
def test_the_best_offer_is_chosen(header, chosen) -> None:
    assert preferred(header, OFFERS) == chosen


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        ("application/json", True),
        ("application/json, text/plain;q=0.5", True),
        ("text/plain, application/json;q=0.5", False),
        ("*/*", False),
        ("application/sparql-results+json", False),
        ("", False),
    ],
)
def test_errors_are_json_only_for_who_prefers_it(header, answer) -> None:
    assert wants_json(header) is answer
