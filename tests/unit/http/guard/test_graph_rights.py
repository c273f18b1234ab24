"""Roles in single graphs of a repository: whoever tries to read or change another graph, by whichever path, sees and changes nothing.

The measure is a second repository that holds nothing but the graphs that the user can read: every answer must be as from there.
"""

from __future__ import annotations

from urllib.parse import quote

import msgpack
import pytest

from brokerha.http.app import PATHS
from brokerha.http.guard import store_of
from brokerha.model.operation_checks import GRAPH
from tests.unit.http.asking import FORM, MSGPACK, NQUADS, QUERY, TURTLE, UPDATE, Asked
from tests.unit.http.guard.graph_rights import DEFAULT, FOREIGN, READABLE, Door, rows

# ---- queries

PEEKS = [
    "SELECT * { ?s ?p ?o }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH ?g { } }",
    "SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH <urn:b> { ?s ?p ?o } }",
    "SELECT * { GRAPH <urn:\\u0062> { ?s ?p ?o } }",
    "SELECT * { gRaPh<urn:b>{ ?s ?p ?o } }",
    "PREFIX x: <urn:> SELECT * { GRAPH x:b { ?s ?p ?o } }",
    "PREFIX x: <urn:> SELECT * { GRAPHx:b { ?s ?p ?o } }",
    "PREFIX x: <urn:> PREFIX GRAPHx: <urn:> SELECT * { GRAPHx:b { ?s ?p ?o } }",
    "PREFIX b: <urn:b> SELECT * { GRAPH b: { ?s ?p ?o } }",
    "BASE <urn:a/> SELECT * { GRAPH <b> { ?s ?p ?o } }",
    "SELECT * { # GRAPH <urn:a>\n GRAPH <urn:b> { ?s ?p ?o } }",
    "SELECT * { BIND(<urn:b> AS ?g) GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { VALUES ?g { <urn:b> <urn:a> } GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { BIND(IRI(CONCAT('urn:', 'b')) AS ?g) GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH <urn:a> { ?s ?p ?g } GRAPH ?g { ?a ?b ?c } }",
    "SELECT * { GRAPH <urn:a> { GRAPH <urn:b> { ?s ?p ?o } } }",
    "SELECT * { GRAPH ?g { GRAPH ?h { ?s ?p ?o } } }",
    "SELECT * { { SELECT * { GRAPH <urn:b> { ?s ?p ?o } } } }",
    "SELECT * { { SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } } }",
    "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
    "SELECT * { <urn:x> <urn:p>+ ?o }",
    "SELECT * { <urn:x> <urn:p>* ?o }",
    "SELECT * { ?s <urn:p>* ?o }",
    "SELECT * { ?s <urn:nothing>? ?o }",
    "SELECT * { <urn:x> (<urn:p>/<urn:p>) ?o }",
    "SELECT * { <urn:x> !<urn:nothing> ?o }",
    "SELECT * { ?o ^<urn:p> ?s }",
    "SELECT * { GRAPH <urn:b> { <urn:y> <urn:p>* ?o } }",
    "SELECT * { GRAPH ?g { ?s (<urn:p>|<urn:q>)+ ?o } }",
    "SELECT * { GRAPH <urn:a> { ?s ?p ?o } FILTER EXISTS { GRAPH <urn:b> { ?x ?y ?z } } }",
    "SELECT * { GRAPH <urn:a> { ?s ?p ?o FILTER NOT EXISTS { GRAPH ?g { ?s ?p 'SECRET x' } } } }",
    "SELECT * { GRAPH <urn:a> { ?s ?p ?o } MINUS { GRAPH <urn:b> { ?s ?p ?x } } }",
    "SELECT * { GRAPH <urn:a> { ?s ?p ?o } OPTIONAL { GRAPH <urn:b> { ?s ?p ?x } } }",
    "SELECT * { { GRAPH <urn:a> { ?s ?p ?o } } UNION { GRAPH <urn:b> { ?s ?p ?o } } }",
    "SELECT (EXISTS { GRAPH <urn:b> { ?s ?p ?o } } AS ?found) { }",
    "SELECT ?s (GROUP_CONCAT(?o) AS ?all) { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } } GROUP BY ?s",
    "SELECT * { GRAPH <urn:a> { ?s ?p ?o } } ORDER BY (EXISTS { GRAPH <urn:b> { ?s ?q ?x } }) ?o",
    "ASK { GRAPH <urn:b> { ?s ?p ?o } }",
    "ASK { GRAPH <urn:b> { } }",
    "ASK { ?s ?p 'SECRET default' }",
    "CONSTRUCT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }",
    "CONSTRUCT WHERE { ?s ?p ?o }",
    "CONSTRUCT { ?g <urn:is> <urn:graph> } WHERE { GRAPH ?g { } }",
    "DESCRIBE <urn:x>",
    "DESCRIBE <urn:y> <urn:b>",
    "DESCRIBE ?g { GRAPH ?g { ?s ?p ?o } }",
    "DESCRIBE * { GRAPH <urn:b> { ?s ?p ?o } }",
]
"""Queries that name no dataset: they run as if there were no other graphs."""


@pytest.mark.parametrize("repository", ["books", "union"])
def test_a_query_runs_as_if_the_repository_held_only_the_graphs_that_one_can_read(shared: Door, repository: str) -> None:
    for text in PEEKS:
        encoded = quote(text, safe="")
        ways = [
            shared.by("ann", "POST", f"/repositories/{repository}/sparql", text, QUERY),
            shared.by("ann", "GET", f"/repositories/{repository}/sparql?query={encoded}"),
            shared.by("ann", "POST", f"/repositories/{repository}", f"query={encoded}", FORM),
            shared.by(
                "ann", "POST", f"/repositories/{repository}/sparql?limit=1000&distinct=true&$unused=%3Curn:b%3E", text, QUERY
            ),
        ]
        expected = [rows(shared.by("admin", "POST", f"/repositories/{repository}-only/sparql", text, QUERY))] * 3
        way = "sparql?limit=1000&distinct=true&$unused=%3Curn:b%3E"
        expected.append(rows(shared.by("admin", "POST", f"/repositories/{repository}-only/{way}", text, QUERY)))
        assert [rows(asked) for asked in ways] == expected, text
        assert not any(b"SECRET" in asked.body for asked in ways), text


def test_the_default_graph_is_seen_by_whom_it_was_given(door: Door) -> None:
    door.reset(READABLE + DEFAULT)
    for repository in ("books", "union"):
        for text in PEEKS:
            found = rows(door.by("dan", "POST", f"/repositories/{repository}/sparql", text, QUERY))
            assert found == rows(door.by("admin", "POST", f"/repositories/{repository}-only/sparql", text, QUERY)), text


DATASETS = [
    ("SELECT * FROM <urn:a> { ?s ?p ?o }", None),
    ("SELECT * FROM <urn:a> FROM NAMED <urn:w> { ?s ?p ?o GRAPH ?g { ?a ?b ?c } }", None),
    ("SELECT * FROM NAMED <urn:a> { GRAPH ?g { ?s ?p ?o } }", None),
    ("SELECT * FROM <urn:a> { GRAPH ?g { ?s ?p ?o } }", None),
    ("SELECT * FROM <urn:b> { ?s ?p ?o }", "urn:b"),
    ("SELECT * from<urn:b>{ ?s ?p ?o }", "urn:b"),
    ("SELECT * FROM <urn:a> FROM <urn:b> { ?s ?p ?o }", "urn:b"),
    ("SELECT * FROM NAMED <urn:b> { GRAPH ?g { ?s ?p ?o } }", "urn:b"),
    ("SELECT * FROM <urn:\\u0062> { ?s ?p ?o }", "urn:b"),
    ("PREFIX x: <urn:> SELECT * FROM x:b { ?s ?p ?o }", "urn:b"),
    ("PREFIX a: <urn:a> PREFIX a: <urn:b> SELECT * FROM a: { ?s ?p ?o }", "urn:b"),
    ("BASE <urn:a/> SELECT * FROM <b> { ?s ?p ?o }", "urn:a/b"),
    ("BASE <urn:a/> SELECT * FROM <./c/../b> { ?s ?p ?o }", "urn:a/b"),
    ("SELECT * # FROM <urn:a>\n FROM # NAMED\n <urn:b> { ?s ?p ?o }", "urn:b"),
    ("CONSTRUCT FROM <urn:b> WHERE { ?s ?p ?o }", "urn:b"),
    ("CONSTRUCT { ?s ?p ?o } FROM <urn:b> WHERE { ?s ?p ?o }", "urn:b"),
    ("DESCRIBE <urn:x> FROM <urn:b>", "urn:b"),
    ("ASK FROM <urn:b> { ?s ?p ?o }", "urn:b"),
    ("SELECT*FROMNAMED<urn:a>{GRAPH?g{?s?p?o}}", None),
    ("SELECT*FROMNAMED<urn:b>{GRAPH?g{?s?p?o}}", "urn:b"),
    ("ASKFROM<urn:b>{?s?p?o}", "urn:b"),
    ("CONSTRUCTFROM<urn:b>WHERE{?s?p?o}", "urn:b"),
]


@pytest.mark.parametrize(("text", "foreign"), DATASETS)
def test_a_dataset_has_only_graphs_that_one_can_read(shared: Door, text: str, foreign: str | None) -> None:
    opened = shared.by("ann", "POST", "/repositories/books/transactions")
    inside = opened.headers["location"].partition("node")[2]
    assert shared.by("ann", "PUT", f"{inside}?action=DELETE&context=%3Curn:w%3E", "<urn:n> <urn:p> 1 .", TURTLE).status == 200
    asked = [
        shared.by("ann", "POST", "/repositories/books/sparql", text, QUERY),
        shared.by("ann", "POST", "/repositories/books/sparql?limit=5", text, QUERY),
        shared.by("ann", "PUT", f"{inside}?action=QUERY", text, QUERY),
        shared.by("ann", "POST", "/together", msgpack.packb([["query", "books", {"query": text}]]), MSGPACK),
    ]
    # Within a transaction and together there are no BASE and no DESCRIBE.
    asked = [each for each in asked if each.status != 400 or not any(word in text for word in ("BASE", "DESCRIBE"))]
    if foreign is None:
        found = rows(shared.by("admin", "POST", "/repositories/books-only/sparql", text, QUERY))
        assert [each.status for each in asked] == [200] * 4
        assert rows(asked[0]) == rows(asked[2]) == found
    else:
        assert [(each.status, f"the role read in graph {foreign} of repository books" in each.text) for each in asked] == [
            (403, True)
        ] * len(asked)
    assert not any(b"SECRET" in each.body for each in asked)


def test_a_dataset_of_the_protocol_has_only_graphs_that_one_can_read_and_replaces_that_of_the_text(shared: Door) -> None:
    target, text = "/repositories/books/sparql", "SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
    for name in ("default-graph-uri", "named-graph-uri"):
        assert shared.by("ann", "POST", f"{target}?{name}=urn:b", text, QUERY).status == 403
        assert shared.by("ann", "POST", f"{target}?{name}=urn:a&{name}=urn:b", text, QUERY).status == 403
        assert shared.by("ann", "GET", f"{target}?{name}=urn:b&query={quote(text)}").status == 403
        assert shared.by("ann", "POST", f"{target}?{name}=default", text, QUERY).status == 403
        # It is no IRI, and so no name of the default graph for who may read that.
        assert shared.by("dan", "POST", f"{target}?{name}=default", text, QUERY).status == 400
        found = shared.by("ann", "POST", f"{target}?{name}=urn:a", text, QUERY)
        assert (len(rows(found)), b"SECRET" in found.body) == (3, False)
        found = shared.by("ann", "POST", f"{target}?{name}=urn:a", "SELECT * FROM <urn:b> { ?s ?p ?o }", QUERY)
        assert (found.status, b"SECRET" in found.body) == (200, False)
        packed = msgpack.packb([["query", "books", {"query": text, name: "urn:b"}]])
        assert shared.by("ann", "POST", "/together", packed, MSGPACK).status == 403


# ---- other reads


def test_statements_sizes_and_contexts_are_those_of_the_graphs_that_one_can_read(shared: Door) -> None:
    def got(user: str, repository: str, rest: str) -> Asked:
        return shared.by(
            user, "GET", f"/repositories/{repository}/{rest}", Accept="application/n-quads, application/json, text/plain"
        )

    for rest in (
        "statements",
        "statements?subj=%3Curn:x%3E",
        "statements?context=%3Curn:a%3E",
        "size",
        "size?context=%3Curn:w%3E",
        "contexts",
        "rdf-graphs",
    ):
        for repository in ("books", "union"):
            assert rows(got("ann", repository, rest)) == rows(got("admin", f"{repository}-only", rest)), rest
    for rest in ("statements", "size"):
        for context in ("%3Curn:b%3E", "null", "_:b", "%3Curn:a%3E,%3Curn:b%3E", "%3Curn:a%3E&context=null", "%3Curn:a%3E,null"):
            asked = got("ann", "books", f"{rest}?context={context}")
            assert (asked.status, b"SECRET" in asked.body, "the role read in graph" in asked.text) == (403, False, True)
    assert (
        rows(got("dan", "books", "size?context=null")),
        got("dan", "books", "statements?context=null").text.count("SECRET"),
    ) == (["2"], 2)
    assert got("eve", "books", "statements").text == ""
    assert got("eve", "books", "size").text == "0"


def test_reads_of_one_moment_are_limited_in_the_same_way(shared: Door) -> None:
    def together(*wanted: object) -> Asked:
        return shared.by("ann", "POST", "/together", msgpack.packb(wanted), MSGPACK)

    (_, statements), (_, size) = msgpack.unpackb(
        together(["statements", "books", {"accept": "application/n-quads"}], ["size", "books", {}]).body
    )
    assert (set(statements.decode().splitlines()), size) == (set(READABLE.splitlines()), b"4")
    query = "SELECT * { GRAPH ?g { ?s ?p ?o } }"
    for wanted in (
        ["statements", "books", {"context": ["<urn:b>"]}], ["statements", "books", {"context": "null"}], ["size", "books", {"context": ["null"]}],
        ["contexts", "books", {}], ["about", "books", {}], ["query", "books", {"query": query}], ["statements", "main", {}],
        ["query", "books", {"query": query, "context": ["<urn:b>"]}], ["statements", "books"], ["get", "t", {"key": b"k"}],
        ["range", "t", {}], ["queue", "q", {}], ["about", "", {}], ["fingerprint", "", {}],
    ):  # fmt: skip
        asked = together(["size", "books", {}], wanted)
        assert (asked.status, b"SECRET" in asked.body) == (403, False), wanted
    asked = together(["query", "books", {"query": query}])
    assert asked.text.strip() == (
        "in a transaction or among several reads, name the graphs of a query with FROM; this needs the role read in repository books: "
        "user ann has none, and read in graph urn:a, write in graph urn:w"
    )
    asked = together(["query", "books", {"query": query, "default-graph-uri": "urn:a", "context": ["<urn:b>"]}])
    assert (asked.status, b"SECRET" in asked.body) == (200, False)
    for broken in ({"query": 7}, {"query": query, "named-graph-uri": [["urn:b"]]}, {"query": "SELECT * FROM { ?s ?p ?o }"}):
        assert together(["query", "books", broken]).status == 400


def test_reads_inside_a_transaction_are_limited_in_the_same_way(door: Door) -> None:
    inside = door.by("ann", "POST", "/repositories/books/transactions").headers["location"].partition("node")[2]
    assert door.by("ann", "PUT", f"{inside}?action=ADD&context=%3Curn:w%3E", "<urn:new> <urn:p> 1 .", TURTLE).status == 200
    asked = door.by("ann", "PUT", f"{inside}?action=GET", Accept="application/n-quads")
    assert (asked.status, len(asked.text.splitlines()), "SECRET" in asked.text) == (200, 5, False)
    assert door.by("ann", "PUT", f"{inside}?action=SIZE").text == "5"
    for action in ("GET&context=null", "GET&context=%3Curn:b%3E", "SIZE&context=%3Curn:b%3E"):
        assert door.by("ann", "PUT", f"{inside}?action={action}").status == 403
    asked = door.by("ann", "PUT", f"{inside}?action=QUERY", "SELECT * FROM NAMED <urn:w> { GRAPH ?g { ?s ?p ?o } }", QUERY)
    assert len(rows(asked)) == 2
    assert door.by("ann", "PUT", f"{inside}?action=QUERY", "SELECT * { GRAPH ?g { ?s ?p ?o } }", QUERY).status == 403
    header = {"Brokerha-Transaction": inside.rpartition("/")[2]}
    assert door.by("ann", "POST", "/repositories/books/sparql", "SELECT * { ?s ?p ?o }", {**QUERY, **header}).status == 403
    assert door.by("ann", "GET", "/repositories/books/statements", b"", header).text.count("\n") == 5
    assert door.by("ann", "PUT", f"{inside}?action=ADD&context=%3Curn:b%3E", "<urn:n> <urn:p> 1 .", TURTLE).status == 403
    assert door.by("ann", "PUT", f"{inside}?action=DELETE", '<urn:y> <urn:p> "SECRET b" <urn:b> .', NQUADS).status == 403
    assert door.by("ann", "PUT", f"{inside}?action=UPDATE", "CLEAR GRAPH <urn:b>", UPDATE).status == 403
    assert door.by("ann", "PUT", f"{inside}?action=COMMIT").status == 200
    assert door.content("books") - {'<urn:new> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> <urn:w> .'} == set(
        (READABLE + FOREIGN + DEFAULT).splitlines()
    )


def test_no_path_of_a_repository_shows_or_changes_a_graph_that_one_has_no_right_to(door: Door) -> None:
    before = {name: door.content(name) for name in ("id", "books", "union")}
    bodies: list[tuple[dict[str, str], str]] = [
        ({}, ""), (TURTLE, "<urn:s> <urn:p> 1 ."), (NQUADS, "<urn:s> <urn:p> <urn:o> <urn:b> ."), (UPDATE, "CLEAR ALL"),
        (QUERY, "SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"),
        (FORM, "update=DROP%20ALL"), (FORM, "query=SELECT%20*%20%7B%20GRAPH%20%3Fg%20%7B%20%3Fs%20%3Fp%20%3Fo%20%7D%20%7D"),
        ({"Content-Type": "application/x-rdftransaction"}, "<transaction><clear><contexts/></clear></transaction>"),
    ]  # fmt: skip
    refused = 0
    for path, methods in PATHS.items():
        if (store := store_of(path)) is None or store[0] != GRAPH:
            continue
        target = (
            path.replace("{id}", "id")
            .replace("{graph:path}", "urn:b")
            .replace("{prefix:path}", "p")
            .replace("{tx}", "t")
            .replace("{action}", "get")
        )
        for method in methods:
            for query in (
                "",
                "?graph=urn:b",
                "?default",
                "?query=DESCRIBE%20%3Curn:x%3E",
                "?context=null",
                "?context=%3Curn:b%3E",
                "?action=GET",
            ):
                for headers, body in bodies:
                    asked = door.by("eve", method, target + query, body, headers)
                    assert asked.status < 500
                    assert b"SECRET" not in asked.body, (method, target, query)
                    refused += asked.status == 403
    assert refused > 100
    assert {name: door.content(name) for name in before} == before
    assert door.by("ann", "GET", "/repositories/books/namespaces").status == 403
    assert door.by("ann", "PUT", "/repositories/books/namespaces/p", "urn:p").status == 403


def test_who_has_a_right_in_a_graph_sees_its_repository_in_the_list_and_nothing_of_others(shared: Door) -> None:
    found = shared.by("ann", "GET", "/repositories").json["results"]["bindings"]
    assert {(row["id"]["value"], row["writable"]["value"]) for row in found} == {
        ("books", "true"),
        ("union", "true"),
        ("id", "true"),
    }
    for path in (
        "/cluster/log",
        "/cluster/status",
        "/kv/t/k",
        "/queues/q",
        "/repositories/main/size",
        "/cluster/digests",
        "/page/live",
        "/metrics",
    ):
        assert shared.by("ann", "GET", path).status == 403, path
