"""SPARQL that empties a large repository: the same content as by naming each quad, in one step."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyoxigraph import Quad, Store

from brokerha.model.operations import APPLIED, REJECTED, Operation
from brokerha.model.reserved import about
from brokerha.stores.execution import evaluation
from brokerha.stores.execution.state import write_state
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from brokerha.stores.rdf.view import QuadView
from brokerha.stores.sparql import update as sparql_update
from tests.contracts.store_contract import IN_GRAPH, A, B, C, effect, lines, logged, quads, run

ABOVE = 2
NAMED = ("add", "main", quads(IN_GRAPH, "<urn:s> <urn:p> <urn:b> <urn:g>", "<urn:s> <urn:p> <urn:c> <urn:g>"))
LONG = f"<urn:s> <urn:p> <urn:{'long' * 9}> <urn:g>"
DEFAULT = ("add", "main", quads(A, B, C))


def sparql(text: str) -> Operation:
    return ("update", "main", text)


def opened(directory: Path, name: str, clear_above: int = ABOVE) -> WorkerStore:
    return WorkerStore(directory / name, cluster="orders", node=name, options=StoreOptions(clear_above_quads=clear_above))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (NAMED, "CLEAR ALL"),
        (DEFAULT, "DROP ALL"),
        (NAMED, "CLEAR GRAPH <urn:g>"),
        (NAMED, "DROP NAMED"),
        (DEFAULT, "CLEAR SILENT DEFAULT"),
    ],
)
def test_what_leaves_nothing_is_one_change(tmp_path: Path, content: Operation, text: str) -> None:
    store = opened(tmp_path, "w1")
    run(store, [content])
    assert effect(store, sparql(text)) == [["clear", "main", 3]]
    assert lines(store) == []
    assert store.recompute() == store.applied()
    store.close()


@pytest.mark.parametrize("text", ["CLEAR DEFAULT", "CLEAR GRAPH <urn:g>", "CLEAR NAMED"])
def test_what_leaves_something_names_what_goes(tmp_path: Path, text: str) -> None:
    store = opened(tmp_path, "w1")
    run(store, [NAMED, ("add", "main", quads(A))])
    (change,) = effect(store, sparql(text))
    assert isinstance(change, list)
    assert (change[0], len(change[2])) == ("quads", 1 if text == "CLEAR DEFAULT" else 3)
    store.close()


GRAPH_AND_MORE = [NAMED, ("add", "main", quads(A))]
REMOVING = [
    "CLEAR GRAPH <urn:g>",
    "DELETE WHERE { GRAPH <urn:g> { ?s ?p ?o } }",
    "WITH <urn:g> DELETE { ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o }",
]


@pytest.mark.parametrize("text", REMOVING)
@pytest.mark.parametrize("more", ["", " ; DELETE DATA { <urn:s> <urn:p> 9 }"])
def test_too_large_a_graph_beside_others_is_refused_without_reading_it(
    text: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path, "w1")
    run(store, GRAPH_AND_MORE)
    taken: list[str] = []
    is_new = QuadView.is_new

    def noted(view: QuadView, line: str) -> bool:
        taken.append(line)
        return is_new(view, line)

    monkeypatch.setattr(QuadView, "is_new", noted)
    # Three such quads are more than that, however short they are.
    monkeypatch.setattr(sparql_update, "EFFECT_LIMIT_BYTES", 59)
    (result,) = run(store, [sparql(text + more)])
    assert (result.outcome, result.effect) == (REJECTED, b"")
    assert "more than 59 bytes" in result.reason
    assert "SELECT ... LIMIT 50000" in result.reason
    assert len(taken) == 1
    assert run(store, [sparql("CLEAR ALL")])[0].outcome == APPLIED
    store.close()


@pytest.mark.parametrize("text", REMOVING)
@pytest.mark.parametrize(
    "more", [" ; CLEAR ALL", " ; ADD DEFAULT TO <urn:h>", " ; INSERT { GRAPH <urn:g> { ?s ?p <urn:b> } } WHERE { ?s ?p ?o }"]
)
def test_what_may_come_back_is_not_counted_as_removed(
    text: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path, "w1")
    run(store, GRAPH_AND_MORE)
    monkeypatch.setattr(sparql_update, "EFFECT_LIMIT_BYTES", 59)
    assert run(store, [sparql(text + more)])[0].outcome == APPLIED
    run(store, [NAMED])
    assert run(store, [sparql(text), NAMED])[0].outcome == APPLIED
    assert run(store, [sparql(text), ("remove-repository", "main")])[0].outcome == APPLIED
    store.close()


@pytest.mark.parametrize("text", REMOVING)
def test_what_the_transaction_itself_has_added_goes_at_no_price(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path, "w1")
    run(store, [("add", "main", quads(A))])
    monkeypatch.setattr(sparql_update, "EFFECT_LIMIT_BYTES", 0)
    assert effect(store, NAMED, sparql(text)) == []
    store.close()


TRANSFERS = ["COPY <urn:g> TO <urn:h>", "MOVE <urn:g> TO <urn:h>", "ADD <urn:g> TO <urn:h>"]


@pytest.mark.parametrize("text", TRANSFERS)
def test_too_large_a_graph_is_not_transferred_and_hardly_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path, "w1")
    run(store, GRAPH_AND_MORE)
    read: list[str] = []
    quads_in = QuadView.quads_in

    def noted(*arguments: object) -> Iterator[tuple[str, Quad]]:
        for line, quad in quads_in(*arguments):  # type: ignore[arg-type]
            read.append(line)
            yield line, quad

    monkeypatch.setattr(QuadView, "quads_in", noted)
    monkeypatch.setattr(sparql_update, "EFFECT_LIMIT_BYTES", 59)
    (result,) = run(store, [sparql(text)])
    assert (result.outcome, result.effect) == (REJECTED, b"")
    assert "<urn:g> does not fit into one transaction" in result.reason
    assert len(read) == 1
    store.close()


@pytest.mark.parametrize("text", TRANSFERS)
def test_what_need_not_be_a_change_is_transferred_whatever_its_size(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path, "w1")
    run(store, [*GRAPH_AND_MORE, sparql("COPY <urn:g> TO <urn:h>")])
    monkeypatch.setattr(sparql_update, "EFFECT_LIMIT_BYTES", 0)
    # It is there already, it comes back to where it was, or it goes away again.
    assert effect(store, sparql(text.replace("MOVE", "COPY"))) == []
    assert effect(store, sparql(f"CLEAR GRAPH <urn:h> ; {text.replace('MOVE', 'COPY')}")) == []
    assert effect(store, sparql(f"{text.replace('MOVE', 'COPY').replace(':h', ':i')} ; CLEAR GRAPH <urn:i>")) == []
    store.close()


def test_a_copy_that_an_older_version_wrote_learns_the_digests_of_its_repositories(tmp_path: Path) -> None:
    store = opened(tmp_path, "w1")
    run(store, [NAMED])
    # As the state was before: without them.
    state = store._state
    store._state = state._replace(repositories={name: each._replace(digest=b"") for name, each in state.repositories.items()})
    with store._environment.lmdb.begin(write=True) as transaction:
        write_state(transaction, store._environment.meta, store._state)
        transaction.put(b"format", b"3", db=store._environment.meta)
    store.close()
    again = opened(tmp_path, "w1")
    run(again, [sparql("CLEAR ALL")])
    assert again.recompute() == again.applied()
    again.close()


def test_who_reads_a_repository_that_goes_reads_all_of_it(tmp_path: Path) -> None:
    store = opened(tmp_path, "w1")
    run(store, [("create-repository", "r"), ("add", "r", quads(A, B, C))])
    engine = store._view.repositories["r"].engine
    (directory,) = (tmp_path / "w1" / "repositories").glob("r.*")
    run(store, [("remove-repository", "r")])
    assert sorted(engine.lines()) == [A, B, C]
    assert directory.exists()
    del engine
    assert not directory.exists()
    store.close()


def test_files_are_deleted_when_the_engine_has_let_go_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[str] = []

    def rmtree(path: Path, *, ignore_errors: bool) -> None:
        # An engine that is open has it locked.
        Store(str(path))
        deleted.append(f"{path.name} {ignore_errors}")

    store = opened(tmp_path, "w1")
    run(store, [NAMED])
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    run(store, [sparql("CLEAR ALL")])
    assert deleted == ["main.0 True"]
    store.close()


def test_a_directory_that_the_power_took_away_is_not_given_to_the_next_repository(tmp_path: Path) -> None:
    store = opened(tmp_path, "w1")
    run(store, [NAMED])
    store.close()
    shutil.rmtree(tmp_path / "w1" / "repositories" / "main.0")
    again = opened(tmp_path, "w1")
    assert run(again, [sparql("CLEAR ALL")])[0].outcome == APPLIED
    assert again.recompute() == again.applied()
    again.close()


TEXTS = st.sampled_from([
    "CLEAR ALL",
    "CLEAR DEFAULT",
    "DROP SILENT GRAPH <urn:g>",
    "CLEAR NAMED",
    "DELETE WHERE { ?s <urn:p> ?o }",
    "DELETE WHERE { GRAPH ?g { ?s ?p <urn:a> } }",
    "INSERT DATA { <urn:s> <urn:p> <urn:a>, <urn:b> . GRAPH <urn:g> { <urn:s> <urn:p> <urn:a>, <urn:c> } GRAPH <urn:h> { <urn:s> <urn:p> 1 } }",
    "INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }",
    "INSERT { GRAPH <urn:h> { ?s ?p ?g } } WHERE { GRAPH ?g { ?s ?p ?o } }",
    "DELETE { ?s ?p ?o } INSERT { ?s ?p [] } WHERE { ?s ?p ?o FILTER(?o != <urn:a>) }",
    "COPY GRAPH <urn:g> TO DEFAULT",
    "DELETE DATA { <urn:s> <urn:p> <urn:a> }",
])  # fmt: skip
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=3).map(lambda texts: sparql(" ; ".join(texts))),
    st.just(DEFAULT),
    st.just(NAMED),
    st.sampled_from([("remove-repository", "main"), ("create-repository", "main")]),
    st.just(("control-add", "c", "ask", "main", "ASK { { ?s ?p 1 } UNION { GRAPH ?g { ?s ?p 1 } } }", "false")),
)


@given(content=st.sets(st.sampled_from([A, B, IN_GRAPH, LONG]), min_size=1), data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_early_refusal_is_that_of_the_whole_effect(
    content: set[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    operations = data.draw(st.lists(OPERATIONS, min_size=1, max_size=4))
    outcomes = []
    for early in (100, 10**9):
        store = opened(tmp_path_factory.mktemp("early"), "w1", 10**9)
        run(store, [("add", "main", quads(*sorted(content)))])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evaluation, "EFFECT_LIMIT_BYTES", 100)
            patch.setattr(sparql_update, "EFFECT_LIMIT_BYTES", early)
            outcomes.append(run(store, operations)[0]._replace(reason=""))
        store.close()
    assert outcomes[0] == outcomes[1]


@given(history=st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), min_size=1, max_size=6), union=st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_naming_quads_and_not_naming_them_leads_to_the_same(
    history: list[list[Operation]], union: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("clearing")
    stores = [opened(directory, "w1", 1), opened(directory, "w2", 1_000_000)]
    follower = opened(directory, "w3", 1)
    try:
        setting: Operation = ("put", about.TABLE, about.setting_key("main", about.UNION), about.TRUE)
        for operations in itertools.chain([[setting]] if union else [], history):
            results = [run(store, operations)[0] for store in stores]
            assert results[0]._replace(effect=b"") == results[1]._replace(effect=b"")
            follower.apply(follower.applied().lsn + 1, logged(results[:1]))
            assert stores[0].applied() == stores[0].recompute() == stores[1].applied() == follower.recompute()
    finally:
        for store in (*stores, follower):
            store.close()
