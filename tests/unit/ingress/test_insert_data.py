"""A long INSERT DATA, cut into documents, says what the engine makes of the whole text; and what is none is refused with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import RdfFormat, Store, parse

from brokerha.ingress import insert_data
from brokerha.ingress.insert_data import documents
from brokerha.model.errors import InvalidRequest

HEAD = "# INSERT DATA { of a comment\nPREFIX : <urn:x/>\nprefix ex: <http://e/> BASE <http://b/>\ninsert\tData{"
TERMS = (
    ":a", "ex:a.b", "<urn:i#f>", "'x. } {'", '"""l " "" .\n} # {"""', "'''a'b''c'''", '""', "''", "1.5", "12", '"a\\"b."@en', '"é"^^ex:t',
    "[ :p 'q . } ' ; ex:q ( 1 '2.' ) ]", "( :a [] '} .' )", "<rel>", "_:b1", "_:b2.c", "true", "ex:\\#x",
)  # fmt: skip
term = st.sampled_from(TERMS)
subject = st.sampled_from((":s", "ex:s.t", "<urn:s>", "_:b1", "[]"))
predicate = st.sampled_from(("a", "ex:p", "<urn:p>"))
more = st.one_of(term.map(lambda each: f", {each}"), term.map(lambda each: f" ; :q {each}"))
statement = st.builds(
    lambda s, p, o, rest, end: f"{s} {p} {o}{''.join(rest)}{end}",
    subject,
    predicate,
    term,
    st.lists(more, max_size=2),
    st.sampled_from(("", " ;")),
)
between = st.sampled_from((" . ", ".\n", " .# co . } \n"))
last = st.sampled_from((" .", "", "\n.\n"))


@st.composite
def block(draw: st.DrawFn, least: int = 0) -> str:
    """Statements, the last one with its dot or without."""
    statements = draw(st.lists(statement, min_size=least, max_size=4))
    return "".join(
        text + draw(between if left else last) for left, text in zip(range(len(statements) - 1, -1, -1), statements, strict=True)
    )


graph = st.builds(
    lambda word, name, text, end: f"{word}{name}{{{text} }}{end}",
    st.sampled_from(("GRAPH ", "graph\n", "GRAPH# {\n # :c {\n")), st.sampled_from((":g ", "<urn:g>", "<urn:g#a> # }\n", "ex:g\n", ":g# <\n")), block(), st.sampled_from(("", ". ", " .", " # x\n")),
)  # fmt: skip
quads = st.builds(
    lambda pairs, end: "".join(f" {text} {each}" for text, each in pairs) + end,
    st.lists(st.tuples(block(), graph), max_size=4),
    block(),
)
tail = st.sampled_from(("", " ;", "\n# end", "  \n"))


@pytest.fixture(autouse=True)
def _short_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert_data, "DOCUMENT_BYTES", 60)


def shape(store: Store) -> set[str]:
    """The quads of a store, whatever its blank nodes are called."""
    return {re.sub(r"_:\S+", "_:", str(quad)) for quad in store}


def cut(text: str, sizes: list[int]) -> list[bytes]:
    data, pieces, at = text.encode(), [], 0
    for size in [*sizes, len(data)]:
        pieces.append(data[at : at + size])
        at += size
    return pieces


@given(quads, tail, st.lists(st.integers(1, 90), max_size=20))
def test_the_documents_say_what_the_text_says(text: str, end: str, sizes: list[int]) -> None:
    text = f"{HEAD}{text} }}{end}"
    whole, parts = Store(), Store()
    whole.update(text)
    for _, document in documents(cut(text, sizes)):
        parts.extend(parse(document, format=RdfFormat.TRIG))
    assert shape(parts) == shape(whole)


def test_a_document_is_no_longer_than_a_statement_more() -> None:
    text = HEAD + "GRAPH :g {" + "".join(f" :s{number} :p '{'x' * 20}' .\n" for number in range(100)) + "} }"
    found = list(documents(cut(text, [17] * 500)))
    assert len(found) > 30
    assert max(len(document) for _, document in found) < 260
    lines = text.split("\n")
    for line, document in found[1:]:
        first = document.partition(b"{")[2].strip().partition(b"\n")[0].decode()
        assert first in {"", "}"} or first in {lines[line - 1].strip(), lines[line].strip()}


def test_a_comment_can_stand_wherever_space_can() -> None:
    text = "PREFIX # a\n : # b\n <urn:> BASE # c\n <urn:b> INSERT # d {\n DATA # e }\n { GRAPH # f\n :g # g {\n { :a :b :c } } # h"
    for size in range(1, len(text)):
        ((_, document),) = documents(cut(text, [size]))
        assert [str(quad) for quad in parse(document, format=RdfFormat.TRIG)] == ["<urn:a> <urn:b> <urn:c> <urn:g>"]


def test_a_byte_order_mark_before_the_text_is_no_part_of_it() -> None:
    text = "\ufeffPREFIX : <urn:> INSERT DATA { :a :b :c }"
    assert list(documents([text.encode()])) == list(documents([text[1:].encode()]))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }", "one INSERT DATA alone"),
        ("DELETE DATA { <urn:a> <urn:b> <urn:c> }", "one INSERT DATA alone"),
        ("", "one INSERT DATA alone"),
        ("INSERT DATA { <urn:a> <urn:b> <urn:c> } ; CLEAR ALL", "line 1: after the closing brace comes 'CLEAR ALL"),
        ("INSERT DATA {\n<urn:a> <urn:b> <urn:c> ", "ends before its closing brace"),
        ("INSERT DATA {\n<urn:a> <urn:b> 'c } ", "ends before its closing brace, or in a string"),
        ("INSERT DATA {\n{ <urn:a> <urn:b> 'c' } }   ", "line 2: a brace opens no graph"),
        ("INSERT DATA { GRAPH <urn:g> {\n GRAPH <urn:h> { } } }", "line 2: GRAPH stands inside"),
        ("# " + "x" * 100_000, "one INSERT DATA alone"),
        (f"PREFIX : <urn:{'x' * 70_000}> INSERT DATA {{ }}", "one INSERT DATA alone"),
    ],
)
def test_what_is_no_insert_data_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(problem)):
        list(documents(cut(text, [1000] * 100)))


def test_a_string_without_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert_data, "BODY_LIMIT_BYTES", 5_000)
    taken = []

    def pieces() -> Iterator[bytes]:
        yield b"INSERT DATA {\n\n <urn:a> <urn:b> '''"
        while True:
            taken.append(1)
            yield b"x" * 100

    with pytest.raises(InvalidRequest, match="line 3: a statement is longer than 5000 bytes"):
        list(documents(pieces()))
    assert len(taken) < 60
