"""Rights in single graphs: an update or a write that could touch another graph is refused by every path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from brokerha.http.users import parse_users
from brokerha.model.errors import ConfigurationError
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.wire.client_wire import WRITES_TYPE, encode_writes
from tests.unit.http.asking import FORM, JSON, MSGPACK, NQUADS, QUERY, TURTLE, UPDATE, Asked
from tests.unit.http.guard.graph_rights import DEFAULT, FOREIGN, PREFIX, READABLE, Door, rows

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
        PREFIX + "PREFIX GRAPHx: <urn:w> WITH <urn:w> INSERT { ?s ?p ?o } WHERE { GRAPHx:b { ?s ?p ?o } }",
        PREFIX + "PREFIX GRAPHx: <urn:w> INSERT { GRAPH <urn:w> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { ?a ?b ?c . GRAPHx:b { ?s ?p ?o } } }",
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
