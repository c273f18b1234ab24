"""Repositories whose default graph is the union of all graphs: what updates, queries and open transactions see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import APPLIED, Operation, pack_operations
from brokerha.model.reserved.about import TABLE, TRUE, UNION, setting_key
from brokerha.stores.execution.worker_store import WorkerStore
from tests.contracts.store_contract import logged, read, run
from tests.unit.stores.rdf_site import short

ON: Operation = ("put", TABLE, setting_key("main", UNION), TRUE)
OFF: Operation = ("delete", TABLE, setting_key("main", UNION))
DATA = "<urn:a> <urn:p> <urn:b> .\n<urn:a> <urn:p> <urn:b> <urn:g> .\n<urn:c> <urn:p> <urn:d> <urn:h> .\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WorkerStore]:
    found = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    run(found, [ON, ("add", "main", DATA)])
    yield found
    found.close()


def update(store: WorkerStore, *texts: str) -> list[str]:
    """The content after these updates as one transaction; another store that applies their effect has the same."""
    (result,) = run(store, [("update", "main", text) for text in texts])
    assert result.outcome == APPLIED, result
    assert store.recompute() == store.applied()
    return content(store)


def content(store: WorkerStore) -> list[str]:
    lines = read(store, "statements", "main", accept="application/n-quads").decode().splitlines()
    return short([line.removesuffix(" .") for line in lines])


def rows(store: WorkerStore, text: str, **arguments: object) -> list[str]:
    return sorted(read(store, "query", "main", query=text, accept="text/csv", **arguments).decode().split()[1:])


def test_a_query_sees_all_graphs_as_one_until_the_setting_goes(store: WorkerStore) -> None:
    text = "SELECT DISTINCT ?s { ?s <urn:p> ?o }"
    assert rows(store, text) == ["urn:a", "urn:c"]
    assert rows(store, "SELECT ?g { GRAPH ?g { ?s <urn:p> ?o } }") == ["urn:g", "urn:h"]
    assert rows(store, "SELECT ?s FROM <urn:h> { ?s ?p ?o }") == ["urn:c"]
    assert rows(store, text, **{"default-graph-uri": ["urn:g"]}) == ["urn:a"]
    run(store, [OFF])
    assert rows(store, text) == ["urn:a"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("DELETE WHERE { <urn:a> ?p ?o }", ["c p d h"]),
        ("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?o = <urn:d>) }", ["a p b", "a p b g"]),
        ("DELETE DATA { <urn:a> <urn:p> <urn:b> }", ["c p d h"]),
        ("DELETE DATA { GRAPH <urn:g> { <urn:a> <urn:p> <urn:b> } }", ["a p b", "c p d h"]),
        ("DELETE { GRAPH <urn:g> { ?s ?p ?o } } WHERE { ?s ?p ?o }", ["a p b", "c p d h"]),
        ("INSERT { ?o <urn:of> ?s } WHERE { ?s ?p ?o }", ["a p b", "a p b g", "b of a", "c p d h", "d of c"]),
        (
            "INSERT { GRAPH ?g { <urn:d> <urn:of> ?s } } WHERE { GRAPH ?g { ?s ?p <urn:d> } }",
            ["a p b", "a p b g", "c p d h", "d of c h"],
        ),
        ("DELETE { ?s ?p ?o } USING <urn:h> WHERE { ?s ?p ?o }", ["a p b", "a p b g"]),
        ("WITH <urn:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", ["a p b", "c p d h"]),
        ("CLEAR DEFAULT", ["a p b g", "c p d h"]),
        (
            "PREFIX : <urn:> DELETE { ?s :p ?o } INSERT { ?s :q ?o } WHERE { ?s :p ?o FILTER(?s = :c) }",
            ["a p b", "a p b g", "c q d"],
        ),
    ],
)
def test_an_update_sees_and_removes_from_all_graphs(store: WorkerStore, text: str, wanted: list[str]) -> None:
    assert update(store, text) == wanted


@pytest.mark.parametrize("graph", ["", "<urn:g>"])
def test_operations_of_one_transaction_see_those_before_them(store: WorkerStore, graph: str) -> None:
    # The union is made in another way when most is in the default graph than when most is in the others.
    run(store, [("add", "main", "".join(f"<urn:pad{n}> <urn:is> <urn:pad> {graph} .\n" for n in range(9)))])
    found = update(
        store,
        "INSERT DATA { GRAPH <urn:new> { <urn:x> <urn:p> <urn:y> } }",
        "DELETE WHERE { <urn:a> ?p ?o }",
        "INSERT { ?s <urn:seen> ?o } WHERE { ?s <urn:p> ?o }",
        "DELETE DATA { <urn:x> <urn:p> <urn:y> }",
    )
    assert [line for line in found if "pad" not in line] == ["c p d h", "c seen d", "x seen y"]
    assert len(found) == 12


def test_updates_of_one_batch_see_the_setting_and_each_other(tmp_path: Path) -> None:
    store = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    other = WorkerStore(tmp_path / "w2", cluster="orders", node="w2")
    copy: Operation = ("update", "main", "INSERT { ?s <urn:seen> ?o } WHERE { ?s <urn:p> ?o }")
    delete: Operation = ("update", "main", "DELETE WHERE { ?s <urn:seen> ?o }")
    results = run(store, [("add", "main", DATA)], [copy], [delete], [ON], [copy], [delete], [OFF], [copy])
    counts = [result.effect.count(b"urn:seen") for result in results]
    assert counts == [0, 1, 1, 0, 2, 2, 0, 1]
    other.apply(1, logged(results))
    assert other.applied() == store.applied() == other.recompute()
    store.close()
    other.close()


def test_a_fresh_blank_node_of_an_insert_is_the_same_for_both_ways(store: WorkerStore) -> None:
    text = "INSERT { _:n <urn:of> ?s } WHERE { ?s <urn:p> <urn:d> }"
    at_once = [line for line in update(store, text) if "of" in line]
    run(store, [("update", "main", "DELETE WHERE { ?n <urn:of> ?s }")])
    changed_before = ("INSERT DATA { <urn:x> <urn:y> 1 }", text)
    assert [line for line in update(store, *changed_before) if "of" in line] != []
    assert len(at_once) == 1


@pytest.mark.parametrize("more", ["", "<urn:a> <urn:q> 1, 2, 3, 4, 5"])
def test_an_open_transaction_reads_what_it_has_so_far(store: WorkerStore, more: str) -> None:
    run(store, [("update", "main", f"INSERT DATA {{ {more} }}")])
    size = store.applied().items - 1

    def inside(*operations: Operation) -> dict[str, object]:
        return {"pending": pack_operations(list(operations)), "txid": "t"}

    add: Operation = ("add", "main", "<urn:x> <urn:p> <urn:y> <urn:new> .\n")
    text = "SELECT DISTINCT ?s { ?s <urn:p> ?o }"
    assert rows(store, text, **inside(add)) == ["urn:a", "urn:c", "urn:x"]
    assert read(store, "size", "main", **inside(add)) == str(size + 1).encode()
    remove: Operation = ("remove", "main", "<urn:c> <urn:p> <urn:d> <urn:h> .\n")
    assert rows(store, text, **inside(add, remove)) == ["urn:a", "urn:x"]
    for change in (
        "DELETE WHERE { ?s ?p ?o }",
        "DELETE DATA { <urn:a> <urn:p> <urn:b> }",
        "INSERT { ?s <urn:q> 1 } WHERE { ?s ?p ?o }",
    ):
        with pytest.raises(InvalidRequest, match="when it is committed"):
            rows(store, text, **inside(("update", "main", change)))
    # Nobody else sees anything of it.
    assert len(content(store)) == size


def test_reads_of_one_moment_tell_the_union_from_the_graphs(store: WorkerStore) -> None:
    query = "SELECT (COUNT(DISTINCT ?s) AS ?n) { ?s ?p ?o }"
    wanted = [
        ("query", "main", {"query": query, "accept": "text/csv"}),
        ("size", "main", {"context": ["null"]}),
        ("contexts", "main", {}),
        ("statements", "main", {"context": ["null"], "accept": "application/n-quads"}),
    ]
    found = msgpack.unpackb(read(store, "together", "", reads=[msgpack.packb(each) for each in wanted]))
    bodies = [body for _, body in found]
    assert bodies[0].split() == [b"n", b"2"]
    assert bodies[1] == b"1"
    assert json.loads(bodies[2]) == ["<urn:g>", "<urn:h>"]
    assert bodies[3] == b"<urn:a> <urn:p> <urn:b> .\n"
