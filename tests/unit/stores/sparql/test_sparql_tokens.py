"""SPARQL is cut into tokens exactly where keywords could hide, and in linear time."""

from __future__ import annotations

import pytest

from brokerha.ingress.limits import DEPTH_LIMIT
from brokerha.model.errors import InvalidRequest
from brokerha.stores.sparql.tokens import tokenize


def cut(text: str) -> list[str]:
    tokens = tokenize(text)
    return [tokens.text_of(index) for index in range(len(tokens))]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("  # only a comment", []),
        ('SELECT * { ?s <urn:p> "}" }', ["SELECT", "*", "{", "?s", "<urn:p>", '"}"', "}"]),
        ("?s#comment\n?p", ["?s", "?p"]),
        ("<urn:a#b> #c", ["<urn:a#b>"]),
        ("\"a\\\"b\" 'c\\'d'", ['"a\\"b"', "'c\\'d'"]),
        ('"""a "quoted" b""" \'\'\'it\'s\'\'\'', ['"""a "quoted" b"""', "'''it's'''"]),
        ('""""a"""', ['""""a"""']),
        ('"" "x"@en-GB--ltr', ['""', '"x"', "@en-GB--ltr"]),
        ("e.x-y:a\\,b%41.c. :x y:", ["e.x-y:a\\,b%41.c", ".", ":x", "y:"]),
        ("_:a.b . 1.5e3 1. .5 5", ["_:a.b", ".", "1.5e3", "1", ".", ".5", "5"]),
        ("?a<=?b&&?c>?d", ["?a", "<=", "?b", "&&", "?c", ">", "?d"]),
        ("(?a < ?b)", ["(", "?a", "<", "?b", ")"]),
        ("<<( ?a ?b ?c )>> {| a [] |}", ["<<(", "?a", "?b", "?c", ")>>", "{|", "a", "[", "]", "|}"]),
        ("<p>?/^<q>", ["<p>", "?", "/", "^", "<q>"]),
        ("<urn:\\u0041>", ["<urn:\\u0041>"]),
        ("SELECTDISTINCT*FromNamed<g>{}", ["SELECT", "DISTINCT", "*", "From", "Named", "<g>", "{", "}"]),
        (
            "ASKFROMNAMED<g>WHERE{} ADDDEFAULTTO<g>",
            ["ASK", "FROM", "NAMED", "<g>", "WHERE", "{", "}", "ADD", "DEFAULT", "TO", "<g>"],
        ),
        ("INSERTDATA DELETEWHERE FROMAGE INTO ?FROMNAMED", ["INSERT", "DATA", "DELETE", "WHERE", "FROMAGE", "INTO", "?FROMNAMED"]),
    ],
)
def test_a_text_is_cut_into_tokens(text: str, tokens: list[str]) -> None:
    assert cut(text) == tokens


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ('SELECT "abc', "line 1, column 8", "unexpected '\"'"),
        ('{\n  """abc"" }', "line 2, column 3", "unexpected '\"'"),
        ("INS\\u0045RT DATA {}", "line 1, column 4", "unexpected '\\\\'"),
        ("FILTER(?a<?b&&?c>?d)", "line 1, column 10", "put a space after it"),
        ("true.OPTIONAL {}", "line 1, column 1", "no keyword and no prefixed name"),
        ("{" * (DEPTH_LIMIT + 1), f"line 1, column {DEPTH_LIMIT + 1}", f"nested more than {DEPTH_LIMIT} deep"),
    ],
)
def test_what_is_no_token_or_unclear_is_refused_at_its_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match="MALFORMED QUERY") as caught:
        tokenize(text)
    assert place in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "piece", ["a.", '"', '"""\\""', "'''\"", "x:..", "x:%41", "_:a.", "<", "<a", "a-", "1.", "?", "@a-", "é", "#", "x:\\,"]
)
def test_a_long_hostile_text_takes_linear_time(piece: str) -> None:
    # Each of these takes minutes or more with a pattern that goes back over what it has read; the suite's own limit,
    # not a clock in here, would show it.
    text = piece * 50_000
    try:
        tokens = cut(text)
    except InvalidRequest:
        tokens = []
    assert "".join(tokens) in {"", text}, "nothing is lost on the way"


def test_escapes_in_an_iri_are_decoded_where_names_are_compared() -> None:
    assert tokenize("<urn:\\u0041\\U00000042>").iri_of(0) == "urn:AB"
