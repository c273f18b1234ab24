"""RDF4J statements: RDF in every syntax, contexts, blank nodes, replacing, deleting by pattern."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from brokerha.ingress.rdf_bodies import contexts_of, nquads_of
from tests.unit.http.asking import NQUADS, TURTLE, Node

STATEMENTS = "/repositories/main/statements"
TRIPLE = "<urn:a> <urn:b> <urn:c> ."
SYNTAXES = {
    "application/n-triples": TRIPLE,
    "text/plain": TRIPLE,
    "application/n-quads": TRIPLE,
    "text/x-nquads": TRIPLE,
    "text/turtle": "@prefix : <urn:> . :a :b :c .",
    "application/x-turtle": "@prefix : <urn:> . :a :b :c .",
    "application/trig": "@prefix : <urn:> . { :a :b :c }",
    "application/x-trig": "@prefix : <urn:> . { :a :b :c }",
    "application/rdf+xml": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:">'
    '<rdf:Description rdf:about="urn:a"><u:b rdf:resource="urn:c"/></rdf:Description></rdf:RDF>',
    "application/ld+json": '{"@id": "urn:a", "urn:b": {"@id": "urn:c"}}',
}


def lines(node: Node, target: str = STATEMENTS) -> list[str]:
    return sorted(node.get(target, Accept="application/n-quads").text.splitlines())


def quads(*texts: str) -> bytes:
    return "".join(f"{text} .\n" for text in texts).encode()


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "with a byte order mark"])
@pytest.mark.parametrize("media_type", SYNTAXES)
def test_rdf_of_each_syntax_becomes_the_same_statement(node: Node, media_type, mark) -> None:
    answer = node.ask("POST", STATEMENTS, mark + SYNTAXES[media_type], {"Content-Type": media_type})

    assert (answer.status, answer.headers["brokerha-lsn"]) == (204, "1")
    assert lines(node) == [TRIPLE]


def test_graphs_of_the_data_are_kept(node: Node) -> None:
    trig = "@prefix : <urn:> . :a :b 1 . :g { :a :b 2 }"

    node.ask("POST", STATEMENTS, trig, {"Content-Type": "application/trig"})

    assert lines(node, f"{STATEMENTS}?context=%3Curn:g%3E")[0].endswith("<urn:g> .")
    assert len(lines(node, f"{STATEMENTS}?context=null")) == 1
    assert len(lines(node)) == 2


@pytest.mark.parametrize("joined", [True, False], ids=["joined by a comma", "repeated"])
def test_contexts_go_before_the_graphs_of_the_data(node: Node, joined) -> None:
    contexts = ["%3Curn:g1,x%3E", "null"]
    query = f"context={','.join(contexts)}" if joined else "&".join(f"context={one}" for one in contexts)

    node.ask("POST", f"{STATEMENTS}?{query}", quads("<urn:a> <urn:b> <urn:c> <urn:g9>"), NQUADS)

    assert lines(node) == sorted(["<urn:a> <urn:b> <urn:c> .", "<urn:a> <urn:b> <urn:c> <urn:g1,x> ."])


def test_relative_iris_are_resolved_against_the_base_with_or_without_brackets(node: Node) -> None:
    for base in ("http://x/y/", "%3Chttp://x/y/%3E"):
        node.ask("POST", f"{STATEMENTS}?baseURI={base}", "<a> <b> <c> .", TURTLE)

    assert lines(node) == ["<http://x/y/a> <http://x/y/b> <http://x/y/c> ."]


def test_blank_nodes_of_two_requests_are_two_and_of_one_request_one(node: Node) -> None:
    body = quads("_:x <urn:p> _:y", "_:y <urn:p> _:x")

    for _ in range(2):
        node.ask("POST", STATEMENTS, body, NQUADS)

    assert len({line.split()[0] for line in lines(node)}) == 4


@pytest.mark.parametrize("media_type", ["text/turtle", "application/ld+json", "application/rdf+xml"])
def test_the_same_body_sent_again_with_its_key_is_the_same_transaction_even_with_nameless_nodes(node: Node, media_type) -> None:
    nameless = {
        "text/turtle": "<urn:a> <urn:b> [ <urn:c> [] ] .",
        "application/ld+json": '{"@id": "urn:a", "urn:b": [{"urn:c": 1}, {"urn:c": 2}]}',
        "application/rdf+xml": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:">'
        "<rdf:Description><u:b>x</u:b></rdf:Description></rdf:RDF>",
    }
    headers = {"Content-Type": media_type, "Idempotency-Key": "order-1"}

    answers = [node.ask("POST", STATEMENTS, nameless[media_type], headers) for _ in range(2)]

    assert [answer.status for answer in answers] == [204, 204]
    assert len(node.front.results) == 1


def test_labels_are_kept_when_the_caller_asks_for_it(node: Node) -> None:
    node.ask("POST", f"{STATEMENTS}?preserveNodeId=true", quads("_:mine <urn:p> <urn:o>"), NQUADS)

    assert lines(node) == ["_:mine <urn:p> <urn:o> ."]


def test_putting_replaces_everything_or_only_the_contexts_in_one_transaction(node: Node) -> None:
    node.ask("POST", STATEMENTS, quads('<urn:a> <urn:b> "old"', '<urn:a> <urn:b> "old" <urn:g>'), NQUADS)

    node.ask("PUT", f"{STATEMENTS}?context=%3Curn:g%3E", quads('<urn:a> <urn:b> "new"'), NQUADS)
    assert lines(node) == ['<urn:a> <urn:b> "new" <urn:g> .', '<urn:a> <urn:b> "old" .']

    node.ask("PUT", STATEMENTS, quads('<urn:a> <urn:b> "only"'), NQUADS)
    assert lines(node) == ['<urn:a> <urn:b> "only" .']

    node.ask("PUT", STATEMENTS, b"", NQUADS)
    assert lines(node) == []
    assert len(node.front.results) == 4


ONE = quote('"1"^^<http://www.w3.org/2001/XMLSchema#integer>')
CONTENT = ("<urn:a> <urn:p> 1", "<urn:a> <urn:q> 1 <urn:g>", "<urn:b> <urn:p> 1 <urn:g>", "<urn:b> <urn:p> 2 <urn:h>")


def test_an_update_is_posted_and_not_put(node: Node) -> None:
    asked = node.ask("PUT", "/repositories/main/statements", "CLEAR ALL", {"Content-Type": "application/sparql-update"})

    assert (asked.status, "application/sparql-update" in asked.text.partition("send one of")[2]) == (415, False)


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", []),
        ("?subj=%3Curn:a%3E", [2, 3]),
        ("?pred=%3Curn:p%3E", [1]),
        (f"?obj={ONE}", [3]),
        ("?context=%3Curn:g%3E", [0, 3]),
        ("?context=null", [1, 2, 3]),
        ("?context=null,%3Curn:g%3E", [3]),
        ("?subj=%3Curn:a%3E&context=null", [1, 2, 3]),
        ("?subj=%3Curn:b%3E&context=%3Curn:g%3E&context=%3Curn:h%3E", [0, 1]),
        ("?subj=%3Curn:nobody%3E", [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_deleting_removes_what_matches_and_nothing_else(node: Node, query, left) -> None:
    node.ask("POST", STATEMENTS, "\n".join(f"{text} ." for text in CONTENT[:1]), TURTLE)
    node.ask("PUT", STATEMENTS, _quads_of(CONTENT), NQUADS)
    before = _quads_of(CONTENT).decode().splitlines()

    answer = node.ask("DELETE", f"{STATEMENTS}{query}")

    assert answer.status == 204
    assert lines(node) == sorted(before[number] for number in left)


def _quads_of(texts: tuple[str, ...]) -> bytes:
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    typed = [text.replace(" 1", f' "1"{integer}').replace(" 2", f' "2"{integer}') for text in texts]
    return quads(*typed)


def test_a_statement_with_a_blank_node_is_deleted_when_it_is_given_in_full(node: Node) -> None:
    node.ask("POST", f"{STATEMENTS}?preserveNodeId=true", quads("_:x <urn:p> <urn:o>", "_:y <urn:p> <urn:o>"), NQUADS)

    node.ask("DELETE", f"{STATEMENTS}?subj=_:x&pred=%3Curn:p%3E&obj=%3Curn:o%3E&context=null")

    assert lines(node) == ["_:y <urn:p> <urn:o> ."]


def test_statements_are_read_by_pattern(node: Node) -> None:
    node.ask("PUT", STATEMENTS, _quads_of(CONTENT), NQUADS)

    assert len(lines(node, f"{STATEMENTS}?subj=%3Curn:b%3E")) == 2
    assert len(lines(node, f"{STATEMENTS}?subj=%3Curn:b%3E&context=%3Curn:g%3E")) == 1
    answer = node.get(STATEMENTS, Accept="text/turtle, */*;q=0.1")
    assert answer.headers["content-type"] == "text/turtle; charset=utf-8"


def test_a_large_body_is_parsed_in_a_thread_with_the_same_result(node: Node) -> None:
    body = quads(*[f"<urn:s> <urn:p> <urn:o:{number}>" for number in range(2000)])

    assert node.ask("POST", STATEMENTS, body, NQUADS).status == 204
    assert len(lines(node)) == 2000


def test_renamed_blank_nodes_reach_into_triple_terms() -> None:
    quad = b"<urn:s> <urn:p> <<( _:a <urn:p> _:b )>> ."

    [line] = nquads_of(quad, "application/n-quads", txid="t").splitlines()

    labels = [word for word in line.split() if word.startswith("_:")]
    assert [label[-2:] for label in labels] == ["b1", "b2"]


def test_contexts_are_split_at_commas_between_them_only() -> None:
    assert [str(graph) for graph in contexts_of(["<urn:a,b>,null,_:x", "<urn:c>"])] == ["<urn:a,b>", "DEFAULT", "_:x", "<urn:c>"]
