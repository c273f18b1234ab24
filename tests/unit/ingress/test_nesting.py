"""Depth of brackets: never counted too low, wherever a text hides them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.ingress.limits import (
    DEPTH_LIMIT,
    PLAIN_LIMIT_BYTES,
    Nesting,
    depth_of_json,
    depth_of_quads,
    depth_of_turtle,
    is_plain_data,
    is_plain_request,
    refuse_deep_json,
    refuse_deep_quads,
    refuse_deep_turtle,
)
from brokerha.model.errors import InvalidRequest


def nested(depth: int, between: str = "") -> str:
    """One statement with triple terms in each other."""
    return f"<urn:s> <urn:p> {f'<<( <urn:a{between}> <urn:b> ' * depth}<urn:c>{' )>>' * depth} .\n"


@pytest.mark.parametrize("between", ["", "\u2028", "\u0085", "\x0b", "\x1c", "(", ")>", "'", "\\u0022"])
def test_triple_terms_are_counted_whatever_stands_between_them(between: str) -> None:
    # U+2028 and its like end a line to Python's splitlines, and not to a parser of RDF.
    assert depth_of_quads(nested(DEPTH_LIMIT + 1, between)) == DEPTH_LIMIT + 1
    with pytest.raises(InvalidRequest, match=f"more than {DEPTH_LIMIT} deep"):
        refuse_deep_quads(nested(DEPTH_LIMIT + 1, between))
    refuse_deep_quads(nested(DEPTH_LIMIT, between))


@pytest.mark.parametrize(
    "hiding", ['"{}"', '"\\"{}"', '"""{}"""', "'''{}'''", "'{}'", "<urn:{}>", "# {}\n", '"""a"{}"""', '"{}"@en']
)
def test_brackets_in_strings_iris_and_comments_do_not_count_in_turtle(hiding: str) -> None:
    text = f"<urn:s> <urn:p> [ <urn:q> {hiding.replace('{}', '[[[((')} ] ."
    assert depth_of_turtle(text) == 1


@pytest.mark.parametrize("fooling", ["'", "'''", 'a:b\\"', "a:b\\'", "a:b\\#", '"""', "\\", '"unclosed', "'unclosed"])
def test_what_only_looks_like_the_beginning_of_a_string_hides_nothing(fooling: str) -> None:
    deep = "<<( <urn:a> <urn:b> " * 200
    assert depth_of_quads(f"{fooling}\n{deep}") >= 200
    assert depth_of_turtle(f"{fooling}\n{deep}") >= 200


def test_many_flat_terms_are_not_deep() -> None:
    refuse_deep_quads(nested(3) * 1000)
    refuse_deep_turtle("<urn:s> <urn:p> [ <urn:q> ( 1 2 ) ] .\n" * 1000)


def test_a_collection_may_be_long_but_not_deep() -> None:
    refuse_deep_turtle(f"<urn:s> <urn:p> ( {'1 ' * 100_000}) .")
    with pytest.raises(InvalidRequest, match="nested more than"):
        refuse_deep_turtle(f"<urn:s> <urn:p> {'( ' * 101}{') ' * 101} .")


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_depth_of_json_is_that_of_the_value(value: object) -> None:
    def depth(of: object) -> int:
        if isinstance(of, dict):
            return 1 + max(map(depth, of.values()), default=0)
        return 1 + max(map(depth, of), default=0) if isinstance(of, list) else 0

    assert depth_of_json(json.dumps(value)) == depth(value)


def test_deep_json_is_refused() -> None:
    refuse_deep_json("[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT)
    with pytest.raises(InvalidRequest, match="JSON is nested"):
        refuse_deep_json("[" * 100_000)


def test_plain_is_short_and_flat() -> None:
    assert is_plain_data('<urn:a> <urn:b> "x" .\n')
    assert is_plain_request("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } }")
    assert not is_plain_data("x" * (PLAIN_LIMIT_BYTES + 1))
    assert not is_plain_data(nested(17))
    assert not is_plain_request("SELECT * { ?s ?p " + "(" * 17)


@given(st.integers(1, 60))
def test_pieces_are_counted_as_the_whole_is(size: int) -> None:
    text = nested(DEPTH_LIMIT + 1).encode()
    with pytest.raises(InvalidRequest):
        feed(text, size)
    feed(nested(DEPTH_LIMIT).encode() * 3, size)


def feed(text: bytes, size: int) -> None:
    nesting = Nesting()
    for at in range(0, len(text), size):
        nesting.feed(text[at : at + size])
