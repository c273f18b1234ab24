"""JSON of others: judged by size and depth before it is made, and free of what is no value."""

from __future__ import annotations

import json

import pytest

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.outside.foreign_json import DEPTH_LIMIT, parse_foreign_json


@pytest.mark.parametrize("value", [None, 1.5, 'a\\"[{,', ["[" * 99, {"}": "\\"}], {"a": [1, "\U0001f600"]}, "\\ud800", [[[{}]]]])
def test_what_is_json_is_read_as_it_is(value: object):
    assert parse_foreign_json(json.dumps(value)) == value
    assert parse_foreign_json(json.dumps(value, ensure_ascii=False)) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, f"deeper than {DEPTH_LIMIT}"),
        ('{"a":' * 100_000, f"deeper than {DEPTH_LIMIT}"),
        ("[" * (DEPTH_LIMIT + 1) + "]" * (DEPTH_LIMIT + 1), "deeper"),
        ("[NaN]", "NaN is no number"),
        ("-Infinity", "-Infinity is no number"),
        ("1e999999", "too large for a number"),
        ("9" * 5000, "not JSON"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ('"\\ud83d\\ud83d\\ude00"', "surrogate"),
        ('"a', "not JSON"),
        ('"a\\', "not JSON"),
        ("", "not JSON"),
    ],
)
def test_what_is_no_value_or_too_deep_is_refused_with_its_reason(text: str, words: str):
    with pytest.raises(InvalidRequest, match=words):
        parse_foreign_json(text)


@pytest.mark.parametrize("text", ["[" + "1," * 100 + "1]", "[" + "[]," * 60 + "1]", '{"a":"b"' + ',"a":"b"' * 100 + "}", '"' * 500])
def test_more_items_than_allowed_are_refused_before_they_are_made(text: str):
    with pytest.raises(TooLarge, match="more than 100 items"):
        parse_foreign_json(text, 100)


def test_as_many_items_and_levels_as_allowed_are_read():
    assert len(parse_foreign_json("[" + "1," * 99 + "1]", 100)) == 100
    assert parse_foreign_json("[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT)
    assert len(parse_foreign_json("[" + '"[[,{{,",' * 50 + "1]", 100)) == 51
