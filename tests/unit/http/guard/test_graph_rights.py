"""Roles in single graphs of a repository: whoever tries to read or change another graph, by whichever path, sees and changes nothing.

The measure is a second repository that holds nothing but the graphs that the user can read: every answer must be as from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgpack
import pytest

from brokerha.http.app import PATHS
from brokerha.http.door.door import HttpLimits
from brokerha.http.guard.guard import Guard, store_of
from brokerha.http.guard.users import Users, hash_token, parse_users
from brokerha.model.errors import ConfigurationError
from brokerha.model.operation_checks import GRAPH
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.wire.client_wire import WRITES_TYPE, encode_writes
from tests.unit.http.asking import FORM, JSON, MSGPACK, NQUADS, QUERY, TURTLE, UPDATE, Asked, Node

GRAPHS = {
    "ann": '{ "urn:a" = "read", "urn:w" = "write" }',
    "dan": '{ "urn:a" = "read", "urn:w" = "write", default = "write" }',
    "eve": '{ "urn:nothing" = "write" }',
}
USERS = "".join(
    f'[users.{name}]\nrole = "none"\ngraphs = {{ books = {graphs}, union = {graphs}, id = {graphs} }}\n'
    f'tokens = [{{ sha256 = "{hash_token(name)}", expires = 100 }}]\n'
    for name, graphs in GRAPHS.items()
) + (
    f'[users.admin]\nrole = "admin"\ntokens = [{{ sha256 = "{hash_token("admin")}", expires = 100 }}]\n'
    f'[users.bob]\nrole = "read"\nrepositories = {{ union = "none" }}\ngraphs = {{ books = {{ "urn:w" = "write" }} }}\n'
    f'tokens = [{{ sha256 = "{hash_token("bob")}", expires = 100 }}]\n'
)
READABLE = (
    '<urn:x> <urn:p> "a" <urn:a> .\n<urn:x> <urn:p> <urn:y> <urn:a> .\n<urn:y> <urn:q> "two" <urn:a> .\n'
    '<urn:w> <urn:p> "w" <urn:w> .\n'
)
FOREIGN = (
    '<urn:y> <urn:p> "SECRET b" <urn:b> .\n<urn:x> <urn:p> "SECRET x" <urn:b> .\n<urn:b> <urn:names> <urn:b> <urn:b> .\n'
    '<urn:y> <urn:p> "SECRET c" <urn:a/b> .\n'
)
DEFAULT = '<urn:x> <urn:p> "SECRET default" .\n<urn:y> <urn:p> <urn:SECRET> .\n'
UNION = (
    TURTLE,
    '[] a <http://www.openrdf.org/config/repository#Repository> ; <http://www.openrdf.org/config/repository#repositoryID> "%s" ; <urn:brokerha:config#union-default-graph> true .',
)
PREFIX = "PREFIX x: <urn:> "


class Door(Node):
    """A node with the repositories ``books`` and ``union``, and what a user can read of each in ``books-only``, ``union-only``."""

    def __init__(self) -> None:
        users = Users(parse_users(USERS, "users.toml"))
        super().__init__(guard=Guard(lambda: users, lambda: 50.0), limits=HttpLimits(body_limit_bytes=20_000_000))
        for name in ("books", "union", "books-only", "union-only", "id"):
            headers, text = UNION
            is_union = name.startswith("union")
            assert (
                self.by(
                    "admin", "PUT", f"/repositories/{name}", text % name if is_union else "", headers if is_union else None
                ).status
                == 204
            )
        self.reset()

    def by(
        self, user: str, method: str, target: str, body: bytes | str = b"", headers: dict[str, str] | None = None, **more: str
    ) -> Asked:
        return self.ask(method, target, body, {**(headers or {}), **more, "Authorization": f"Bearer {user}"})

    def reset(self, only: str = READABLE) -> None:
        operations = []
        for name in ("books", "union", "books-only", "union-only", "id"):
            content = only if name.endswith("only") else READABLE + FOREIGN + DEFAULT
            operations += [["clear", name], ["add", name, content]]
        assert self.by("admin", "POST", "/tx", json.dumps(operations), JSON).status == 201

    def content(self, repository: str) -> set[str]:
        return set(self.front.repositories[repository])


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Iterator[Door]:
    yield shared
    shared.reset()


def rows(asked: Asked) -> Any:
    """An answer without its order."""
    assert asked.status in {200, 400}, asked.text
    if asked.status == 400:
        return asked.text
    if "json" not in asked.headers["content-type"]:
        return sorted(asked.text.splitlines())
    found = asked.json
    return found.get("boolean", sorted(json.dumps(row, sort_keys=True) for row in found.get("results", {}).get("bindings", [])))


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
    # The engine reads these two words as FROM NAMED.
    "SELECT * FROMNAMED <urn:b> { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * FROMNAMED<urn:b>{GRAPH?g{?s ?p ?o}}",
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


# ---- writes

ALLOWED = [
    "INSERT DATA { GRAPH <urn:w> { <urn:n> <urn:p> 1 } }",
    "INSERT DATA { GRAPH <urn:w> { <urn:n> <urn:p> [ <urn:q> 1 ] } }",
    "DELETE DATA { GRAPH <urn:w> { <urn:w> <urn:p> 'w' } }",
    PREFIX + "INSERT DATA { GRAPH x:w { x:n x:p 1 } } ; DELETE DATA { GRAPH <urn:\\u0077> { x:w x:p 'w' } }",
    "WITH <urn:w> DELETE { ?s ?p ?o } INSERT { ?s ?p 2 } WHERE { ?s ?p ?o }",
    "WITH <urn:w> INSERT { ?s ?p ?o } WHERE { GRAPH <urn:a> { ?s ?p ?o } }",
    "WITH <urn:w> INSERT { ?s ?p ?o } WHERE { ?a ?b ?c OPTIONAL { GRAPH <urn:a> { ?s ?p ?o FILTER EXISTS { ?s ?p ?z } } } }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { ?s ?p ?o } }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { ?s ?p ?o } . GRAPH <urn:w> { ?x ?y ?z } }",
    "INSERT { GRAPH <urn:w> { ?s <urn:path> ?o } } WHERE { GRAPH <urn:a> { ?s <urn:p>* ?o } }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { { SELECT * { ?s ?p ?o MINUS { ?s ?p 'a' } } } } }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:a> WHERE { ?s ?p ?o }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:a> USING NAMED <urn:w> WHERE { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:a> WHERE { GRAPH ?g { ?s ?p ?o } }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:a> WHERE { ?s ?p ?o FILTER EXISTS { GRAPH <urn:b> { ?x ?y ?z } } }",
    "INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:a> WHERE { ?s ?p ?o FILTER NOT EXISTS { GRAPH ?g { ?x ?y ?z } } }",
    "INSERT { GRAPH <urn:w> { ?s <urn:path> ?o } } USING <urn:a> WHERE { <urn:x> <urn:p>+ ?o BIND(<urn:x> AS ?s) }",
    "WITH <urn:w> INSERT { ?s ?p ?o } USING NAMED <urn:a> WHERE { GRAPH ?g { ?s ?p ?o } }",
    "WITH <urn:b> INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:a> WHERE { ?s ?p ?o }",
    "DELETE WHERE { GRAPH <urn:w> { ?s ?p ?o } }",
    "INSERT { GRAPH <urn:w> { <urn:n> <urn:p> 1 } } WHERE { }",
    "INSERT { GRAPH <urn:w> { ?s ?p 'GRAPH ?g' } } WHERE { GRAPH <urn:a> { ?s ?p ?graph } # GRAPH ?g\n }",
    "CLEAR GRAPH <urn:w>", "DROP SILENT GRAPH <urn:w>", "CREATE SILENT GRAPH <urn:w>",
    "COPY <urn:a> TO <urn:w>", "ADD GRAPH <urn:a> TO GRAPH <urn:w>",
]  # fmt: skip
REFUSED = {
    "GRAPH ?g can change any graph": [
        "DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH <urn:w> { ?s ?p ?o } BIND(<urn:b> AS ?g) }",
        "INSERT { GRAPH ?g { <urn:n> <urn:p> 1 } } USING <urn:a> WHERE { VALUES ?g { <urn:b> } }",
        "WITH <urn:w> INSERT { GRAPH ?g { <urn:n> <urn:p> 1 } } WHERE { BIND(<urn:w> AS ?g) }",
        "DELETE WHERE { GRAPH ?g { ?s ?p ?o } }",
    ],
    "DELETE without GRAPH or WITH changes all graphs": [
        "DELETE DATA { <urn:x> <urn:p> 'SECRET b' }", "DELETE DATA { <urn:x> <urn:p> 'SECRET b' . GRAPH <urn:w> { <urn:a> <urn:b> 1 } }",
        "DELETE { ?s ?p ?o } WHERE { GRAPH <urn:w> { ?s ?p ?o } }", "DELETE { ?s ?p ?o } USING <urn:w> WHERE { ?s ?p ?o }",
        "DELETE WHERE { ?s ?p ?o }",
    ],
    "can change any graph": ["CLEAR ALL", "DROP ALL", "CLEAR NAMED", "DROP SILENT NAMED", "CLEAR SILENT ALL ; CLEAR GRAPH <urn:w>"],
    "in WHERE can read any graph": [
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }",
        "WITH <urn:w> INSERT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }",
        "WITH <urn:w> INSERT { ?s ?p ?o } WHERE { GRAPH?g{ ?s ?p ?o } }",
        "WITH <urn:w> INSERT { ?a ?b 3 } WHERE { ?a ?b ?c FILTER EXISTS { GRAPH ?g { ?s ?p 'SECRET b' } } }",
        "WITH <urn:w> INSERT { ?s ?p ?o } WHERE { { SELECT * { GRAPH $g { ?s ?p ?o } } } }",
        "WITH <urn:w> INSERT { ?s ?p ?o } WHERE { VALUES ?g { <urn:a> } GRAPH ?g { ?s ?p ?o } }",
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { GRAPH ?g { ?s ?p ?o } } }",
        # The engine reads this as GRAPH x:b.
        PREFIX + "WITH <urn:w> INSERT { ?s ?p ?o } WHERE { GRAPHx:b { ?s ?p ?o } }",
        PREFIX + "PREFIX GRAPHx: <urn:w> WITH <urn:w> INSERT { ?s ?p ?o } WHERE { GRAPHx:b { ?s ?p ?o } }",
        PREFIX + "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { ?a ?b ?c . GRAPHx:b { ?s ?p ?o } } }",
    ],
    "WHERE reads the default graph": [
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { ?s ?p ?o }",
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { ?a ?b ?c } ?s ?p ?o }",
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { { GRAPH <urn:a> { ?a ?b ?c } } { ?s ?p ?o } }",
        "INSERT { GRAPH <urn:w> { <urn:n> <urn:p> 1 } } WHERE { GRAPH <urn:a> { ?a ?b ?c } FILTER EXISTS { ?s ?p 'SECRET default' } }",
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { { SELECT * { ?s ?p ?o } } }",
        "INSERT { GRAPH <urn:w> { <urn:n> <urn:p> ?o } } WHERE { <urn:x> <urn:p>+ ?o }",
    ],
    "the role read in graph urn:b of": [
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:b> { ?s ?p ?o } }",
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { GRAPH <urn:\\u0062> { ?s ?p ?o } } }",
        "WITH <urn:b> INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { ?s ?p ?o }",
        "WITH <urn:w> INSERT { <urn:n> <urn:p> 1 } WHERE { FILTER EXISTS { GRAPH <urn:b> { ?s ?p 'SECRET b' } } }",
        "WITH <urn:w> INSERT { <urn:n> <urn:p> 1 } WHERE { MINUS { GRAPH <urn:b> { } } }",
        "WITH <urn:w> INSERT { <urn:n> <urn:p> 1 } WHERE { { SELECT * { graph<urn:b>{ ?s ?p ?o } } } }",
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:b> WHERE { ?s ?p ?o }",
        "INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <urn:a> USING NAMED <urn:b> WHERE { GRAPH ?g { ?s ?p ?o } }",
        PREFIX + "WITH x:w INSERT { ?s ?p ?o } USING x:b WHERE { ?s ?p ?o }",
        PREFIX + "PREFIX y: <urn:a> INSERT DATA { GRAPH x:w { x:n x:p 1 } } ; PREFIX y: <urn:b> INSERT { GRAPH x:w { ?s ?p ?o } } USING y: WHERE { ?s ?p ?o }",
        "COPY <urn:b> TO <urn:w>", "ADD <urn:b> TO <urn:w>",
        # A group without a pattern tells whether a graph is there.
        "DELETE WHERE { GRAPH <urn:w> { ?s ?p ?o } GRAPH <urn:b> { } }",
    ],
    "the role read in graph urn:a/b of": [
        "BASE <urn:a/> INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <b> { ?s ?p ?o } }",
        "BASE <urn:a/> INSERT { GRAPH <urn:w> { ?s ?p ?o } } USING <./x/../b> WHERE { ?s ?p ?o }",
    ],
    "the role read in graph default of": ["COPY DEFAULT TO <urn:w>", "ADD DEFAULT TO <urn:w>"],
    "the role write in graph urn:b of": [
        "INSERT DATA { GRAPH <urn:b> { <urn:n> <urn:p> 1 } }", "DELETE DATA { GRAPH <urn:b> { <urn:y> <urn:p> 'SECRET b' } }",
        "INSERT DATA { GRAPH <urn:w> { <urn:n> <urn:p> 1 } GRAPH <urn:b> { <urn:n> <urn:p> 1 } }",
        "INSERT DATA { GRAPH <urn:w> { <urn:n> <urn:p> 1 } } ; DROP GRAPH <urn:b>",
        PREFIX + "INSERT DATA { GRAPH x:b { x:n x:p 1 } }", "INSERT DATA { GRAPH <urn:\\u0062> { <urn:n> <urn:p> [] } }",
        "INSERT DATA { # GRAPH <urn:w> {\n GRAPH <urn:b> { <urn:n> <urn:p> 1 } }",
        "WITH <urn:b> DELETE { ?s ?p ?o } USING <urn:a> WHERE { ?s ?p ?o }",
        "WITH <urn:w> DELETE { GRAPH <urn:b> { ?s ?p ?o } } WHERE { ?s ?p ?o }",
        "DELETE { GRAPH <urn:w> { ?s ?p ?o } } INSERT { GRAPH <urn:b> { ?s ?p ?o } } USING <urn:w> WHERE { ?s ?p ?o }",
        "DELETE WHERE { GRAPH <urn:b> { ?s ?p ?o } }", "CLEAR GRAPH <urn:b>", "DROP SILENT GRAPH <urn:b>", "CREATE GRAPH <urn:b>",
        "COPY <urn:a> TO <urn:b>", "MOVE <urn:b> TO <urn:w>", "ADD <urn:w> TO <urn:b>",
    ],
    "the role write in graph urn:a of": ["MOVE <urn:a> TO <urn:w>", "CLEAR GRAPH <urn:a>", "INSERT DATA { GRAPH <urn:a> { <urn:n> <urn:p> 1 } }"],
    "the role write in graph urn:a/b of": ["BASE <urn:a/> INSERT DATA { GRAPH <b> { <urn:n> <urn:p> 1 } }", "BASE <urn:a/> CLEAR GRAPH <b>"],
    "the role write in graph default of": [
        "INSERT DATA { <urn:n> <urn:p> 1 }", "INSERT { ?s ?p ?o } USING <urn:a> WHERE { ?s ?p ?o }", "CLEAR DEFAULT", "DROP DEFAULT",
        "COPY <urn:a> TO DEFAULT", "MOVE DEFAULT TO <urn:w>", "CREATE GRAPH <urn:w> ; INSERT DATA { <urn:n> <urn:p> [] }",
    ],
}  # fmt: skip


def ways(door: Door, user: str, repository: str, text: str) -> Iterator[Asked]:
    """The same update by every path that takes one."""
    operation: Operation = ("update", repository, text)
    packed = pack_operations([operation])
    yield door.by(user, "POST", f"/repositories/{repository}/sparql", text, UPDATE)
    yield door.by(user, "POST", f"/repositories/{repository}/sparql", f"update={quote(text, safe='')}", FORM)
    yield door.by(user, "POST", f"/repositories/{repository}/statements", text, UPDATE)
    yield door.by(user, "POST", f"/repositories/{repository}/statements", f"update={quote(text, safe='')}", FORM)
    yield door.by(user, "POST", "/tx", json.dumps([operation]), JSON)
    yield door.by(user, "POST", "/tx", packed, MSGPACK)
    yield door.by(
        user, "POST", "/tx/batch", encode_writes([(f"{user}-{door.front.new_txid()}", packed)]), {"Content-Type": WRITES_TYPE}
    )
    yield door.by(user, "POST", door.by(user, "POST", "/tx").headers["location"] + "/operations", json.dumps([operation]), JSON)
    yield door.by(user, "POST", "/tx", json.dumps([["stage", f"big-{door.front.new_txid()}", 1], operation]), JSON)


@pytest.mark.parametrize("repository", ["books", "union"])
@pytest.mark.parametrize("reason", REFUSED)
def test_an_update_that_could_touch_another_graph_is_refused_by_every_path(shared: Door, reason: str, repository: str) -> None:
    before = shared.content(repository)
    for text in REFUSED[reason]:
        for asked in ways(shared, "ann", repository, text):
            assert (asked.status, reason in asked.text, "user ann has none, and read in graph urn:a" in asked.text) == (
                403,
                True,
                True,
            ), text
    assert shared.content(repository) == before


@pytest.mark.parametrize("repository", ["books", "union"])
@pytest.mark.parametrize("text", ALLOWED)
def test_an_update_within_ones_graphs_does_what_it_would_do_if_there_were_no_others(door: Door, text: str, repository: str) -> None:
    headers = {**UPDATE, "Idempotency-Key": door.front.new_txid()}
    assert door.by("admin", "POST", f"/repositories/{repository}-only/sparql", text, headers).status == 204
    asked = door.by("ann", "POST", f"/repositories/{repository}/sparql", text, {**UPDATE, "Idempotency-Key": door.front.new_txid()})
    assert asked.status == 204, asked.text
    foreign = set((FOREIGN + DEFAULT).splitlines())
    mine = door.content(repository) - foreign
    blanks = "[" in text
    assert len(mine) == len(door.content(f"{repository}-only")) if blanks else mine == door.content(f"{repository}-only")
    assert foreign <= door.content(repository)


def test_the_default_graph_is_changed_by_whom_it_was_given_and_never_all_graphs_with_it(door: Door) -> None:
    target = "/repositories/union/sparql"
    assert door.by("dan", "POST", target, "INSERT DATA { <urn:n> <urn:p> 1 }", UPDATE).status == 204
    for text in (
        "DELETE DATA { <urn:x> <urn:p> 'a' }",
        "DELETE WHERE { ?s ?p ?o }",
        "DELETE { ?s ?p ?o } USING <urn:w> WHERE { ?s ?p ?o }",
    ):
        assert door.by("dan", "POST", target, text, UPDATE).status == 403
    removed = json.dumps([["remove", "union", '<urn:x> <urn:p> "SECRET default" .\n<urn:y> <urn:p> "SECRET b" .\n']])
    assert door.by("ann", "POST", "/tx", removed, JSON).status == 403
    assert door.by("dan", "POST", "/tx", removed, JSON).status == 201
    assert door.content("union") >= set((READABLE + FOREIGN).splitlines())
    for text in ("COPY DEFAULT TO <urn:w>", "CLEAR DEFAULT"):
        assert door.by("dan", "POST", target, text, UPDATE).status == 204
    expected = (set(READABLE.splitlines()) - {'<urn:w> <urn:p> "w" <urn:w> .'}) | set(FOREIGN.splitlines()) | {
        "<urn:y> <urn:p> <urn:SECRET> <urn:w> .", '<urn:n> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> <urn:w> .'
    }  # fmt: skip
    assert door.content("union") == expected


def test_quads_are_added_and_removed_in_ones_graphs_only(door: Door) -> None:
    def posted(*operations: object) -> int:
        return door.by("ann", "POST", "/tx", json.dumps(operations), JSON).status

    mine, foreign, default = '<urn:n> <urn:p> "n" <urn:w> .\n', '<urn:n> <urn:p> "n" <urn:b> .\n', '<urn:n> <urn:p> "n" .\n'
    for kind in ("add", "remove"):
        assert posted([kind, "books", mine]) == 201
        for text in (foreign, default, mine + foreign, '<urn:n> <urn:p> "n" _:w .\n', "<urn:n> <urn:p> <urn:w> <urn:\\u0062> .\n"):
            assert posted([kind, "books", text]) == 403, text
            assert posted([kind, "books", mine], [kind, "books", text]) == 403
            assert posted(["stage", "big", 1], [kind, "books", text]) == 403
    assert posted(["stage", "big", 1], ["add", "books", mine]) == 201
    for operation in (
        ["clear", "books"],
        ["create-repository", "books"],
        ["remove-repository", "books"],
        ["expect-since", "graph", "books", 1],
        ["update", "books", 7],
        ["add", "books"],
    ):
        assert posted(operation) == 403, operation
    batch = encode_writes(
        [("b-1", pack_operations([("add", "books", mine)])), ("b-2", pack_operations([("add", "books", foreign)]))]
    )
    assert door.by("ann", "POST", "/tx/batch", batch, {"Content-Type": WRITES_TYPE}).status == 403
    assert posted(["add", "books", "this is no quad"]) == posted(["update", "books", "SELECT * {}"]) == 400


def test_whole_graphs_and_statements_are_written_where_one_may(door: Door) -> None:
    for of in ("gsp", "rdf-graphs/service"):
        service = f"/repositories/books/{of}"
        assert door.by("ann", "GET", f"{service}?graph=urn:a").text.count("\n") == 3
        for method, body in (("PUT", "<urn:n> <urn:p> 1 ."), ("POST", "<urn:n> <urn:p> 2 ."), ("DELETE", "")):
            assert door.by("ann", method, f"{service}?graph=urn:w", body, TURTLE if body else None).status == 204
            for name in ("graph=urn:b", "graph=urn:a", "default", "graph=urn:new"):
                asked = door.by("ann", method, f"{service}?{name}", body, TURTLE if body else None)
                assert asked.status == 403, (method, name)
        for name in ("graph=urn:b", "default", "graph=urn:new"):
            assert door.by("ann", "GET", f"{service}?{name}").status == door.by("ann", "HEAD", f"{service}?{name}").status == 403
        assert door.by("dan", "PUT", f"{service}?default", "<urn:n> <urn:p> 1 .", TURTLE).status == 204
        door.reset()
    assert door.by("ann", "POST", "/repositories/books/gsp", "<urn:n> <urn:p> 1 .", TURTLE).status == 403
    statements = "/repositories/books/statements"
    for method, rest, body, status in (
        ("POST", "?context=%3Curn:w%3E", "<urn:n> <urn:p> 1 .", 204), ("PUT", "?context=%3Curn:w%3E", "<urn:n> <urn:p> 2 .", 204),
        ("DELETE", "?context=%3Curn:w%3E&subj=%3Curn:n%3E", "", 204), ("DELETE", "?context=%3Curn:w%3E", "", 204),
        ("POST", "", "<urn:n> <urn:p> 1 .", 403), ("PUT", "", "<urn:n> <urn:p> 1 .", 403), ("DELETE", "", "", 403),
        ("POST", "?context=%3Curn:b%3E", "<urn:n> <urn:p> 1 .", 403), ("DELETE", "?subj=%3Curn:y%3E", "", 403),
        ("DELETE", "?context=%3Curn:b%3E&subj=%3Curn:y%3E", "", 403), ("PUT", "?context=%3Curn:w%3E,null", "<urn:n> <urn:p> 1 .", 403),
        ("DELETE", "?context=null&subj=%3Curn:y%3E", "", 403),
    ):  # fmt: skip
        assert door.by("ann", method, statements + rest, body, TURTLE if body else None).status == status, (method, rest)
    for parameters, status in (
        ("insert-graph-uri=urn:w", 204), ("insert-graph-uri=urn:b", 403), ("insert-graph-uri=urn:w&using-graph-uri=urn:a", 204),
        ("insert-graph-uri=urn:w&using-graph-uri=urn:b", 403), ("insert-graph-uri=urn:w&using-named-graph-uri=urn:b", 403),
        ("remove-graph-uri=urn:w", 403),
    ):  # fmt: skip
        text = "INSERT { ?s ?p 5 } WHERE { ?s ?p ?o }" if "using" in parameters else "INSERT DATA { <urn:n> <urn:p> 1 }"
        assert door.by("ann", "POST", f"/repositories/books/sparql?{parameters}", text, UPDATE).status == status, parameters
    assert door.content("books") >= set((FOREIGN + DEFAULT).splitlines())


def test_a_body_that_is_longer_than_a_transaction_is_judged_part_by_part(door: Door) -> None:
    line = f'<urn:n> <urn:p> "{"x" * 4000}%d" <%s> .\n'
    mine = "".join(line % (number, "urn:w") for number in range(2200))
    target = "/repositories/books/statements"
    assert door.by("ann", "POST", target, mine + line % (0, "urn:b"), NQUADS).status == 403
    assert door.by("ann", "PUT", target, mine, NQUADS).status == 403
    assert door.content("books") == set((READABLE + FOREIGN + DEFAULT).splitlines())
    assert door.by("ann", "POST", target, mine, NQUADS).status == 204
    assert len(door.content("books")) == 2200 + len((READABLE + FOREIGN + DEFAULT).splitlines())


def test_a_text_that_a_parser_process_reads_is_judged_as_any_other(door: Door) -> None:
    many = " ".join("{ ?s ?p ?o }" for _ in range(20))
    target = "/repositories/books/sparql"
    assert b"SECRET" not in door.by("ann", "POST", target, f"SELECT * {{ GRAPH ?g {{ {many} }} }}", QUERY).body
    assert len(rows(door.by("ann", "POST", target, f"SELECT * FROM <urn:w> {{ {many} }}", QUERY))) == 1
    assert door.by("ann", "POST", target, f"SELECT * FROM <urn:b> {{ {many} }}", QUERY).status == 403
    assert door.by("ann", "POST", target, f"WITH <urn:w> INSERT {{ ?s ?p 1 }} WHERE {{ {many} }}", UPDATE).status == 204
    assert door.by("ann", "POST", target, f"WITH <urn:b> INSERT {{ ?s ?p 1 }} WHERE {{ {many} }}", UPDATE).status == 403
    assert door.by("ann", "POST", target, f"WITH <urn:b> INSERT {{ ?s ?p 1 WHERE {{ {many} }}", UPDATE).status == 400


@pytest.mark.parametrize(
    "graphs",
    ['"urn:a"', '{ "urn:a" = "read" }', '{ books = { "urn:a" = "admin" } }', '{ books = { "urn:a" = "none" } }', '{ books = { "a" = "read" } }',
     '{ "b/c" = { "urn:a" = "read" } }', '{ books = { "urn:a" = 3 } }', '{ books = "read" }', '{ books = { "urn:brokerha:a" = "read" } }'],
)  # fmt: skip
def test_a_wrong_right_in_a_graph_is_one_clear_error(graphs: str) -> None:
    with pytest.raises(ConfigurationError, match="graphs of user a are read or write, by repository and IRI"):
        parse_users(f'[users.a]\nrole = "none"\ngraphs = {graphs}\n', "users.toml")


def test_a_right_in_a_graph_adds_to_the_role_in_the_repository(door: Door) -> None:
    assert rows(door.by("bob", "GET", "/repositories/books/size")) == [str(len((READABLE + FOREIGN + DEFAULT).splitlines()))]
    update = "INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
    assert door.by("bob", "POST", "/repositories/books/sparql", update, UPDATE).status == 204
    for text in (
        "INSERT DATA { GRAPH <urn:b> { <urn:n> <urn:p> 1 } }",
        "CLEAR ALL",
        "DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }",
    ):
        asked = door.by("bob", "POST", "/repositories/books/sparql", text, UPDATE)
        assert (asked.status, "user bob has read, and write in graph urn:w" in asked.text) == (403, True)
    assert door.by("bob", "GET", "/repositories/union/size").status == 403
