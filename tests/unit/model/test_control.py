"""Checks as values: which shapes are taken, and how what is not is named."""

from __future__ import annotations

import json

import pytest

from brokerha.model import control
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import check_operations, pack_operations, unpack_operations

ASK = ("control-add", "no-orphans", "ask", "main", "ASK { ?s ?p ?o }", "true")
SELECT = ("control-add", "n.1_a", "select", "main", "SELECT ?s { ?s ?p ?o }", '[["<urn:a>"], [null]]')
KEY = ("control-add", "stock", "key", "a table", "schl\u00fcssel", ">= -0.5")
REMOVE = ("control-remove", "no-orphans")


def test_control_operations_come_back_equal() -> None:
    listed = [ASK, SELECT, KEY, REMOVE]
    assert unpack_operations(pack_operations(listed)) == listed


@pytest.mark.parametrize("condition", ["present", "absent", "= ", "= a b", "!= x", ">= 0", "<= +12.50"])
def test_conditions(condition: str) -> None:
    check_operations([(*KEY[:5], condition)])


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (ASK[:5], "control-add takes"),
        ((*ASK[:5], True), "control-add takes"),
        (("control-add", "", *ASK[2:]), "no name of a check"),
        (("control-add", "a b", *ASK[2:]), "no name of a check"),
        (("control-add", "a" * 65, *ASK[2:]), "no name of a check"),
        (("control-add", "a\n", *ASK[2:]), "no name of a check"),
        (("control-remove", "a/b"), "no name of a check"),
        ((*ASK[:2], "construct", *ASK[3:]), "unknown kind of check 'construct'; known are ask, select, key"),
        ((*ASK[:3], "no/repository", *ASK[4:]), "no repository id"),
        ((*ASK[:5], "yes"), "expects true or false"),
        ((*ASK[:4], "x" * (control.TEXT_LIMIT_BYTES + 1), "true"), "text of a check is UTF-8 text of at most"),
        ((*ASK[:4], "\ud800", "true"), "text of a check is UTF-8 text"),
        ((*SELECT[:5], "x" * (control.EXPECTED_LIMIT_BYTES + 1)), "expectation of a check is UTF-8 text of at most"),
        ((*SELECT[:5], "nothing"), "a JSON list of rows"),
        ((*SELECT[:5], '["<urn:a>"]'), "a JSON list of rows"),
        ((*SELECT[:5], "[[1]]"), "a JSON list of rows"),
        ((*SELECT[:5], "[" * 60_000), "a JSON list of rows"),
        ((*SELECT[:5], json.dumps([[]] * 1001)), "at most 1000 rows, not 1001"),
        ((*KEY[:3], "", *KEY[4:]), "table name"),
        ((*KEY[:3], "\ud800", *KEY[4:]), "table name"),
        ((*KEY[:4], "", "present"), "a key has 1 to 400 bytes"),
        ((*KEY[:4], "\u00fc" * 201, "present"), "this one has 402"),
        ((*KEY[:5], "> 0"), "'> 0' is no condition: write present, absent"),
        ((*KEY[:5], ">= 1e3"), "no condition"),
        ((*KEY[:5], ">= NaN"), "no condition"),
        ((*KEY[:5], "=1"), "no condition"),
        ((*KEY[:5], ""), "no condition"),
    ],
)
def test_what_is_no_check_is_named(operation: tuple[object, ...], words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"operation 1: .*{words}"):
        check_operations([operation])


def test_numbers_are_exact() -> None:
    large = control.number_of("9" * 40 + ".1")
    assert large is not None
    assert large > (control.number_of("9" * 40) or 0)
    assert control.number_of("9" * 41) is None
    assert control.number_of("\u0661") is None


def test_long_texts_are_shortened_in_messages() -> None:
    assert control.shortened("x" * 81) == "x" * 80 + "..."
    assert control.Check(*ASK[1:]).about() == "ASK in repository 'main'"
