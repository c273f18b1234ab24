"""Reads of repositories on top of open operations, and of one moment: the same answers as after a commit, and nothing is held up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest, NotAcceptable, TimedOut, TooLarge
from brokerha.model.operations import Operation
from brokerha.stores.execution.worker_store import WorkerStore
from brokerha.stores.rdf import question as rdf_question
from brokerha.stores.sparql.tokens import in_full
from tests.contracts.store_contract import quads, read, run
from tests.contracts.store_pending_contract import opened, together, wanted
from tests.contracts.store_queue_contract import execute

BEGINNING = quads(
    '<urn:a> <urn:name> "A"',
    '<urn:a> <urn:age> "30"^^<http://www.w3.org/2001/XMLSchema#integer>',
    '<urn:b> <urn:name> "B\\t\\n"@en',
    "<urn:b> <urn:knows> _:x",
    '_:x <urn:name> "X"',
    "<urn:a> <urn:knows> <urn:b> <urn:g>",
    "<urn:b> <urn:knows> <urn:a> <urn:h>",
    "<urn:b> <urn:knows> <urn:a> _:graph",
)
P = "PREFIX : <urn:> "
OPERATIONS: list[Operation] = [
    ("add", "main", quads('<urn:c> <urn:name> "C"', "_:y <urn:name> _:x", "<urn:c> <urn:in> <urn:a> <urn:new>")),
    ("put", "t", b"k", b"v"),
    (
        "update",
        "main",
        f"{P} DELETE {{ ?s :age ?o }} INSERT {{ ?s :age ?n ; :was [ :age ?o ] }} WHERE {{ ?s :age ?o BIND(?o + 1 AS ?n) }}",
    ),
    ("update", "main", "INSERT DATA { <urn:d> <urn:name> 'D', 'd' }"),
    ("update", "main", "PREFIX y: <urn:> INSERT { ?s y:id ?id } WHERE { ?s y:name 'D' BIND(UUID() AS ?id) }"),
    ("remove", "main", quads("<urn:a> <urn:knows> <urn:b> <urn:g>")),
    ("update", "main", f"{P} COPY :h TO :copy ; PREFIX z: <urn:> DROP GRAPH z:h ; CREATE GRAPH <urn:later>"),
]
QUERIES = [
    f"{P} SELECT ?s ?n {{ ?s :name ?n }} ORDER BY ?s ?n",
    f"{P} SELECT * {{ ?s :age ?o OPTIONAL {{ ?s :nothing ?x }} }} ORDER BY ?s",
    f"{P} SELECT DISTINCT ?g {{ GRAPH ?g {{ ?s :knows|:in ?o }} }} ORDER BY str(?g)",
    f"{P} SELECT ?s ?o FROM :copy {{ ?s :knows ?o }}",
    f"{P} SELECT ?s ?o FROM NAMED :copy FROM NAMED :new {{ GRAPH ?g {{ ?s ?p ?o }} }} ORDER BY ?s",
    f"{P} SELECT ?s (COUNT(?n) AS ?c) {{ ?s :name ?n }} GROUP BY ?s HAVING (COUNT(?n) > 1)",
    f"{P} SELECT ?o {{ :d :id ?o }}",
    f"{P} SELECT (SUM(?o) AS ?sum) {{ ?s :age ?o }}",
    f"{P} SELECT ?x {{ ?x :name ?n }} ORDER BY DESC(?n) LIMIT 2 OFFSET 1 VALUES ?n {{ 'A' 'C' 'D' 'd' }}",
    "SELECT * { }",
    f"{P} ASK {{ :d :name 'd' }}",
    f"{P} ASK {{ GRAPH :h {{ ?s ?p ?o }} }}",
    f"{P} CONSTRUCT {{ ?s :called ?n . :all :has ?s }} WHERE {{ ?s :name ?n }}",
    f"{P} CONSTRUCT WHERE {{ ?s :name ?n ; :knows ?o }}",
    f"{P} CONSTRUCT {{ :is :there true }} WHERE {{ ?s :age ?o }}",
    f"{P} CONSTRUCT {{ ?s :has ?o }} FROM :copy WHERE {{ ?s :knows ?o }} LIMIT 1",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WorkerStore]:
    opened_store = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    run(opened_store, [("add", "main", BEGINNING)], [("create-repository", "r"), ("add", "r", BEGINNING)])
    yield opened_store
    opened_store.close()


def rows(body: bytes) -> object:
    """The result of a SELECT or ASK in comparable form; of a CONSTRUCT its lines."""
    if body.startswith(b"{"):
        found = json.loads(body)
        return found.get("boolean", (found["head"], found.get("results")))
    return sorted(body.decode().splitlines())


def inside_and_after(store: WorkerStore, *reads: tuple[str, dict[str, object]]) -> Iterator[tuple[bytes, bytes]]:
    """Answers on top of `OPERATIONS`, alone and together, and those after they were executed."""
    arguments = opened(*OPERATIONS)
    alone = [read(store, kind, "main", **more, **arguments) for kind, more in reads]
    packed = [wanted(kind, "main", **more) for kind, more in reads]
    at_once = [body for _, body in together(store, *packed, **arguments)]
    plain = [read(store, kind, "main", **more) for kind, more in reads]
    assert [rows(body) for _, body in together(store, *packed)] == [rows(body) for body in plain]
    assert store.recompute() == store.applied()
    assert execute(store, "open", *OPERATIONS).outcome == "applied"
    after = [read(store, kind, "main", **more) for kind, more in reads]
    assert [rows(body) for body in alone] == [rows(body) for body in at_once]
    return zip(alone, after, strict=True)


def test_queries_inside_a_transaction_answer_what_they_answer_after_it(store: WorkerStore) -> None:
    reads: list[tuple[str, dict[str, object]]] = [("query", {"query": text}) for text in QUERIES]
    for (_, arguments), (inside, after) in zip(reads, inside_and_after(store, *reads), strict=True):
        assert rows(inside) == rows(after), arguments["query"]


def test_triple_terms_inside_a_transaction_are_those_after_it(store: WorkerStore) -> None:
    run(store, [("add", "main", quads('<urn:t> <urn:says> <<( <urn:a> <urn:name> <<( _:x <urn:in> "A\\t" )>> )>>'))])
    text = f"{P} SELECT ?s ?none ?o {{ ?s ?p ?o OPTIONAL {{ ?s :none ?none }} }} ORDER BY ?s ?p ?o"
    accepts = ["text/tab-separated-values", "application/sparql-results+json"]
    reads: list[tuple[str, dict[str, object]]] = [("query", {"query": text, "accept": accept}) for accept in accepts]
    for inside, after in inside_and_after(store, *reads):
        assert inside == after


def test_every_format_is_that_of_a_plain_query(store: WorkerStore) -> None:
    texts = [f"{P} SELECT ?s ?o {{ ?s :name ?o }} ORDER BY ?s ?o", f"{P} ASK {{ :a :name 'A' }}"]
    accepts = ["text/csv", "text/tab-separated-values", "application/sparql-results+xml", "application/sparql-results+json"]
    reads: list[tuple[str, dict[str, object]]] = [
        ("query", {"query": text, "accept": accept})
        for text, some in ((texts[0], accepts), (texts[1], [*accepts[2:], "text/boolean"]))
        for accept in some
    ]
    reads += [("query", {"query": QUERIES[12], "accept": "application/n-triples"})]
    for inside, after in inside_and_after(store, *reads):
        assert sorted(inside.splitlines()) == sorted(after.splitlines())


def test_statements_sizes_and_contexts_inside_a_transaction_are_those_after_it(store: WorkerStore) -> None:
    reads: list[tuple[str, dict[str, object]]] = [
        ("statements", {}),
        ("statements", {"subj": "<urn:a>"}),
        ("statements", {"pred": "<urn:name>", "context": "null"}),
        ("statements", {"obj": '"30"^^<http://www.w3.org/2001/XMLSchema#integer>'}),
        ("statements", {"obj": '"31"^^<http://www.w3.org/2001/XMLSchema#integer>'}),
        ("statements", {"subj": "_:x"}),
        ("statements", {"obj": "_:x"}),
        ("statements", {"context": ("_:graph", "<urn:copy>", "null"), "pred": "<urn:knows>"}),
        ("statements", {"context": "<urn:h>", "accept": "text/turtle"}),
        ("size", {}),
        ("size", {"context": ("<urn:copy>", "null")}),
        ("contexts", {}),
    ]
    for (_, arguments), (inside, after) in zip(reads, inside_and_after(store, *reads), strict=True):
        assert sorted(inside.splitlines()) == sorted(after.splitlines()), arguments


def test_graphs_of_the_protocol_stand_in_place_of_those_of_the_query(store: WorkerStore) -> None:
    text = f"{P} SELECT ?s ?o FROM :nothing {{ ?s :knows ?o }}"
    more: dict[str, object] = {"query": text, "default-graph-uri": ["urn:copy", "urn:g"]}
    named: dict[str, object] = {"query": f"{P} SELECT ?g {{ GRAPH ?g {{ ?s ?p ?o }} }}", "named-graph-uri": "urn:copy"}
    for inside, after in inside_and_after(store, ("query", more), ("query", named)):
        assert rows(inside) == rows(after)
    with pytest.raises(InvalidRequest, match="brokerha's own"):
        read(store, "query", "main", query=text, **{"default-graph-uri": "urn:brokerha:system", **opened(*OPERATIONS)})
    with pytest.raises(InvalidRequest, match="takes no context: name graphs with FROM"):
        read(store, "query", "main", query=text, context="<urn:g>", **opened(*OPERATIONS))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DESCRIBE <urn:a>", "DESCRIBE cannot be evaluated within a transaction .* use CONSTRUCT"),
        ("BASE <urn:x> SELECT * { ?s ?p ?o }", "no BASE within a transaction"),
        ("SELECT * {", "MALFORMED QUERY"),
        ("SELECT * { SERVICE <urn:x> { } }", "SERVICE"),
    ],
)
def test_what_the_engine_cannot_do_inside_a_transaction_is_said(store: WorkerStore, text: str, words: str) -> None:
    for more in (opened(*OPERATIONS), opened(("create-repository", "new"), ("add", "main", ""))):
        with pytest.raises(InvalidRequest, match=words):
            read(store, "query", "main", query=text, **more)
    with pytest.raises(InvalidRequest, match=f"read 2: .*{words}"):
        together(store, wanted("queues"), wanted("query", "main", query=text))
    with pytest.raises(NotAcceptable):
        read(store, "query", "main", query=QUERIES[0], accept="image/png", **opened(*OPERATIONS))


def test_operations_that_cannot_be_evaluated_are_named(store: WorkerStore) -> None:
    bad: Operation = ("update", "main", "INSERT DATA { ")
    with pytest.raises(InvalidRequest, match="operation 2 of the transaction cannot be evaluated: MALFORMED"):
        read(store, "size", "main", **opened(OPERATIONS[0], bad))
    relative: Operation = ("update", "main", "BASE <http://x/> INSERT DATA { <a> <b> <c> . <a> <b> <<( <c> <d> <e> )>> }")
    with pytest.raises(InvalidRequest, match="operation 1 of the transaction cannot be evaluated"):
        read(store, "size", "main", **opened(relative, ("update", "main", "BASE <urn:x> DELETE { ?s ?p 1 } WHERE { ?s ?p 1 }")))


def test_results_are_bounded_in_size_and_time(store: WorkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"query": QUERIES[0], **opened(*OPERATIONS)}
    with pytest.raises(TimedOut):
        store.read("query", "main", arguments, lambda: False)
    monkeypatch.setattr(rdf_question, "ROWS_LIMIT", 2)
    with pytest.raises(TooLarge, match="2 rows"):
        store.read("query", "main", arguments)


def test_writers_go_on_while_reads_of_one_moment_are_evaluated_and_are_not_seen(store: WorkerStore) -> None:
    before = store.applied()
    written: list[object] = []

    def write() -> None:
        changes: list[Operation] = [("put", "t", b"new", b""), ("add", "main", quads("<urn:new> <urn:p> 1"))]
        written.append(run(store, [*changes, ("add", "r", quads("<urn:new> <urn:p> 1")), ("publish", "q", "", b"")]))

    def may_go_on() -> bool:
        # The engines are in the middle of the evaluation when this is asked.
        if not written:
            thread = threading.Thread(target=write, daemon=True)
            thread.start()
            thread.join(30)
        return True

    count = "SELECT (COUNT(*) AS ?n) { ?s <urn:p> ?o }"
    reads = [
        wanted("query", "main", query=QUERIES[0]),
        wanted("query", "main", query=count),
        wanted("query", "r", query=count),
        wanted("range", "t"),
        wanted("queues"),
        wanted("size", "r"),
        wanted("fingerprint"),
    ]
    answer = store.read("together", "", {"reads": reads}, may_go_on)
    bodies = [body for _, body in msgpack.unpackb(b"".join(answer.pieces))]
    assert len(written) == 1
    assert store.applied().lsn == before.lsn + 1
    assert answer.lsn == before.lsn
    assert [json.loads(body)["results"]["bindings"][0]["n"]["value"] for body in bodies[1:3]] == ["0", "0"]
    assert msgpack.unpackb(bodies[3]) == []
    assert json.loads(bodies[4]) == {}
    assert bodies[5] == b"8"
    assert json.loads(bodies[6])["fingerprint"] == before.fingerprint


def test_reads_of_one_moment_and_writes_never_mix(store: WorkerStore) -> None:
    """Each transaction moves the same number in all stores; every answer shows one number everywhere."""
    is_over = threading.Event()
    faults: list[BaseException] = []

    def move(number: int) -> list[Operation]:
        texts = [f"DELETE {{ ?s <urn:n> ?o }} INSERT {{ <urn:s> <urn:n> {number} }} WHERE {{ OPTIONAL {{ ?s <urn:n> ?o }} }}"]
        changes: list[Operation] = [("update", name, text) for name in ("main", "r") for text in texts]
        return [*changes, ("put", "t", b"n", b"%d" % number), ("publish", "q", "", b"%d" % number)]

    def look() -> None:
        query = "SELECT ?n { ?s <urn:n> ?n }"
        reads = [wanted("query", name, query=query) for name in ("main", "r")]
        reads += [wanted("get", "t", key=b"n"), wanted("queues")]
        try:
            while not is_over.is_set():
                bodies = [body for _, body in together(store, *reads)]
                found = [json.loads(body)["results"]["bindings"][0]["n"]["value"] for body in bodies[:2]]
                assert {*found, bodies[2].decode(), str(json.loads(bodies[3])["q"]["published"])} == {found[0]}
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    execute(store, "n1", *move(1))
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(2, 60):
            execute(store, f"n{number}", *move(number))
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)
    assert faults == []
    assert store.recompute() == store.applied()


def test_too_many_repositories_at_one_moment_are_refused(store: WorkerStore) -> None:
    reads = [wanted("size", f"r{number}") for number in range(17)]
    with pytest.raises(InvalidRequest, match="17 repositories; 16 is the limit"):
        together(store, *reads)
    for number in range(16):
        run(store, [("create-repository", f"r{number}")])
    assert {body for _, body in together(store, *reads[:16])} == {b"0"}


def test_names_in_full_mean_the_same() -> None:
    text = "PREFIX a: <urn:a:> PREFIX b: <urn:b#> SELECT ?x { ?x a:b\\-c/b: 'a:b'^^b:t # a:b\n . FILTER(?x<a:y) } # end"
    assert in_full(text).split() == (
        [
            "SELECT",
            "?x",
            "{",
            "?x",
            "<urn:a:b-c>",
            "/",
            "<urn:b#>",
            "'a:b'^^<urn:b#t>",
            "#",
            "a:b",
            ".",
            "FILTER(?x<",
            "<urn:a:y>",
            ")",
            "}",
        ]
    )
