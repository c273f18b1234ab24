"""The graphs that an operation or a query names; what a door makes of them is in tests/unit/http/guard/test_graph_rights.py."""

from __future__ import annotations

import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.stores.sparql.targets import dataset_of, is_name, targets_of

P = "PREFIX x: <urn:> "


@pytest.mark.parametrize(
    ("text", "read", "changed"),
    [
        ("INSERT DATA { <urn:s> <urn:p> 1 }", [], ["default"]),
        (P + "INSERT DATA { x:s x:p 1 GRAPH x:a { x:s x:p [] } GRAPH <urn:\\u0062> { x:s x:p 1 } }", [], ["default", "urn:a", "urn:b"]),
        ("DELETE DATA { GRAPH <urn:a> { <urn:s> <urn:p> 1 } }", [], ["urn:a"]),
        ("WITH <urn:a> DELETE { ?s ?p ?o } INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }", ["urn:a"], ["urn:a"]),
        ("INSERT { ?s ?p ?o } USING <urn:a> USING NAMED <urn:b> WHERE { GRAPH ?g { ?s ?p ?o } }", ["urn:a", "urn:b"], ["default"]),
        (P + "INSERT { GRAPH x:a { ?s ?p ?o } } WHERE { GRAPH x:b { ?s ?p ?o } . GRAPH x:c { GRAPH x:d { } } }", ["urn:b", "urn:c", "urn:d"], ["urn:a"]),
        ("DELETE WHERE { GRAPH <urn:a> { ?s ?p ?o } GRAPH <urn:b> { } }", ["urn:a", "urn:b"], ["urn:a"]),
        ("CLEAR GRAPH <urn:a> ; DROP DEFAULT ; CREATE GRAPH <urn:b>", [], ["default", "urn:a", "urn:b"]),
        ("COPY DEFAULT TO <urn:a> ; ADD <urn:b> TO <urn:c> ; MOVE <urn:d> TO <urn:e>", ["default", "urn:b"], ["urn:a", "urn:c", "urn:d", "urn:e"]),
        ("BASE <urn:x/> INSERT DATA { GRAPH <y> { <s> <p> 1 } } ; BASE <urn:z/> CLEAR GRAPH <y>", [], ["urn:x/y", "urn:z/y"]),
        ("PREFIX graph: <urn:> WITH graph:a INSERT { ?s ?p ?o } WHERE { ?s graph:p ?o ; ?graph 'GRAPH ?g' }", ["urn:a"], ["urn:a"]),
        ("", [], []),
    ],
)  # fmt: skip
def test_an_update_names_all_graphs_that_it_reads_and_changes(text: str, read: list[str], changed: list[str]) -> None:
    assert targets_of("update", text) == (read, changed, "", "")


@pytest.mark.parametrize(
    ("text", "reads", "changes"),
    [
        ("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }", "GRAPH ?g in WHERE can read any", "GRAPH ?g can change any"),
        ("DELETE DATA { <urn:s> <urn:p> 1 }", "", "DELETE without GRAPH or WITH"),
        (P + "DELETE { x:s x:p ?o } USING x:a WHERE { x:s x:p ?o }", "", "DELETE without GRAPH or WITH"),
        ("CLEAR ALL", "", "CLEAR ALL can change any"),
        ("DROP NAMED ; CLEAR GRAPH <urn:a>", "", "DROP NAMED can change any"),
        ("INSERT { GRAPH <urn:a> { ?s ?p ?o } } WHERE { ?s ?p ?o }", "WHERE reads the default graph", ""),
        ("INSERT { GRAPH <urn:a> { ?s ?p ?o } } WHERE { { GRAPH <urn:a> { ?s ?p ?o } } }", "WHERE reads the default graph", ""),
        (P + "PREFIX GRAPHx: <urn:> WITH x:a INSERT { ?s ?p ?o } WHERE { GRAPHx:b { ?s ?p ?o } }", "GRAPHx:b { in WHERE can read any", ""),
    ],
)  # fmt: skip
def test_an_update_that_could_reach_others_says_why(text: str, reads: str, changes: str) -> None:
    found = targets_of("update", text)
    assert (bool(found.reads_any), bool(found.changes_any)) == (bool(reads), bool(changes))
    assert found.reads_any.startswith(reads)
    assert found.changes_any.startswith(changes)


def test_quads_change_the_graphs_of_their_lines() -> None:
    lines = "<urn:s> <urn:p> <urn:g> .\n<urn:s> <urn:p> 'x' <urn:a> .\n<urn:s> <urn:p> 'x' _:b .\n".replace("'", '"')
    for kind in ("add", "remove"):
        assert targets_of(kind, lines) == ([], ["_:b", "default", "urn:a"], "", "")
    with pytest.raises(InvalidRequest):
        targets_of("add", "no quad")


def test_a_dataset_is_read_as_the_engine_reads_it() -> None:
    text = P + "BASE <urn:x/> SELECT * # FROM <urn:n>\n from x:a FROM<b> FROM NAMED <urn:\\u0063> { ?s ?p 'FROM <urn:n>' }"
    assert dataset_of(text) == (("urn:a", "urn:x/b"), ("urn:c",))
    assert dataset_of("SELECT * { ?s ?p ?o }") == ((), ())
    for wrong in (
        "SELECT * FROM { ?s ?p ?o }",
        "SELECT * FROM ?g { ?s ?p ?o }",
        "SELECT * FROM y:a { ?s ?p ?o }",
        "SELECT * FROM <a> { }",
    ):
        with pytest.raises(InvalidRequest, match="MALFORMED QUERY"):
            dataset_of(wrong)


def test_a_graph_that_can_be_given_has_an_absolute_iri_or_is_the_default_graph() -> None:
    assert all(map(is_name, ("default", "urn:a", "http://example.org/?a=b:c#d")))
    assert not any(map(is_name, ("", "a", "Default", "null", "_:b", "<urn:a>", "urn:a b", "urn:brokerha:x", "/a")))
