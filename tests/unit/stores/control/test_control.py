"""The control suite in a worker's store: queries judged on what is pending, in order, without a trace, and at little cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import lmdb
import msgpack
import pytest

from brokerha.model.control import Check
from brokerha.model.errors import StoreDamaged
from brokerha.model.operations import APPLIED, REJECTED, ControlAdd, ControlRemove, Operation
from brokerha.stores.control.judge import problem_of
from brokerha.stores.control.suite import Suite
from brokerha.stores.execution import evaluation
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from brokerha.stores.rdf.repository import RdfRepository
from tests.contracts.store_contract import A, B, C, effect, lines, logged, quads, run
from tests.contracts.store_control_contract import names, put, reason, stock
from tests.support.memory_store.quads import NO_SPARQL
from tests.support.memory_store.store import MemoryStore

NO_ORPHANS = "PREFIX x: <urn:x:> ASK { FILTER NOT EXISTS { ?s x:parent ?p FILTER NOT EXISTS { ?p a x:Person } } }"
PERSON = "<urn:b> a <urn:x:Person>"
PARENT = "<urn:a> <urn:x:parent> <urn:b>"


def ask(text: str = NO_ORPHANS, expected: str = "true", repository: str = "main", name: str = "c") -> Operation:
    return ("control-add", name, "ask", repository, text, expected)


def at_most(count: int, repository: str = "main") -> Operation:
    limit = f"ASK {{ {{ SELECT (COUNT(*) AS ?n) {{ ?s ?p ?o }} }} FILTER(?n <= {count}) }}"
    return ask(limit, "true", repository, "few")


def insert(text: str) -> Operation:
    return ("update", "main", f"INSERT DATA {{ {text} }}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WorkerStore]:
    store = opened(tmp_path)
    yield store
    store.close()


def opened(home: Path, name: str = "w1") -> WorkerStore:
    options = StoreOptions(map_size_bytes=64 * 1024 * 1024)
    return WorkerStore(home / name, cluster="orders", node=name, options=options)


def test_an_update_after_which_a_query_has_another_answer_is_rejected(store: WorkerStore) -> None:
    run(store, [ask()])
    assert reason(store, insert(PARENT)) == "check 'c' failed: expected true, found false (ASK in repository 'main')"
    assert len(effect(store, insert(f"{PARENT} . {PERSON}"))) == 1
    assert "found false" in reason(store, ("update", "main", "DELETE WHERE { ?p a <urn:x:Person> }"))
    assert "found false" in reason(store, ("remove", "main", quads(lines(store)[1])))


def test_a_query_sees_what_waits_for_the_commit_and_the_whole_transaction(store: WorkerStore) -> None:
    results = run(
        store,
        [ask()],
        [insert(PERSON)],
        [insert(PARENT)],
        [("update", "main", f"DELETE DATA {{ {PERSON} }}")],
        [("update", "main", f"DELETE DATA {{ {PERSON} }}"), ("update", "main", "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }")],
        [insert(PARENT)],
    )
    assert [result.outcome for result in results] == [APPLIED, APPLIED, APPLIED, REJECTED, APPLIED, REJECTED]
    assert store.recompute() == store.applied()
    assert lines(store) == []


def test_the_batch_in_which_a_transaction_comes_does_not_matter(store: WorkerStore, tmp_path: Path) -> None:
    other = opened(tmp_path, "w2")
    transactions = [
        [ask(), at_most(3), ("control-add", "g", "ask", "main", "ASK { GRAPH ?g { } }", "false")],
        [insert(f"{PERSON} . {PARENT}")],
        [insert("GRAPH <urn:g> { <urn:a> <urn:b> 1 }")],
        [("add", "main", "<urn:c> <urn:x:parent> <urn:b> .\n")],
        [("add", "main", "<urn:d> <urn:x:parent> <urn:b> .\n")],
        [("update", "main", "CLEAR ALL")],
        [insert(PARENT)],
    ]
    together = run(store, *transactions)
    assert [run(other, each)[0] for each in transactions] == together
    assert [result.outcome == APPLIED for result in together] == [True, True, False, True, False, True, False]
    other.close()


def test_a_graph_named_by_a_blank_node_that_waits_empty_is_committed_first(store: WorkerStore) -> None:
    line = "<urn:a> <urn:p> <urn:b> _:g .\n"
    run(store, [("add", "main", line)])
    asked = ask("ASK { GRAPH ?g { } }", "false", name="no-graphs")
    results = run(store, [("remove", "main", line)], [asked], [insert(PERSON)])
    assert [result.reason for result in results] == ["", "", ""]
    run(store, [("control-remove", "no-graphs"), ("add", "main", line)], [ask("ASK { GRAPH ?g { } }")])
    assert "empties a graph named by a blank node" in reason(store, ("remove", "main", line))


def test_a_select_is_compared_row_by_row(store: WorkerStore) -> None:
    rows = '[["<urn:a>", null], ["<urn:b>", "\\"x\\""]]'
    query = "SELECT ?s ?o { ?s a <urn:T> OPTIONAL { ?s <urn:p> ?o } }"
    check = ("control-add", "s", "select", "main", query, rows)
    assert "expected 2 rows, found 0" in reason(store, check)
    run(store, [insert("<urn:a> a <urn:T> . <urn:b> a <urn:T> ; <urn:p> 'x'"), check])
    assert names(store) == ["s"]
    assert "expected 2 rows, found more" in reason(store, insert("<urn:c> a <urn:T>"))
    assert reason(store, insert("<urn:a> <urn:p> 'y'")) == (
        "check 's' failed: expected row [<urn:a>, unbound], found [<urn:a>, \"y\"] (SELECT in repository 'main')"
    )


def test_checks_of_several_repositories_and_keys_are_judged_together_and_the_first_name_is_told(store: WorkerStore) -> None:
    run(store, [("create-repository", "r"), at_most(1), ask("ASK { ?s ?p ?o }", "false", "r", "empty"), stock("absent", "a")])
    bad = (("add", "main", quads(A, B)), ("add", "r", quads(A)))
    assert reason(store, *bad, put(b"1")).startswith("check 'a' failed: expected absent, found 1")
    assert reason(store, *bad).startswith("check 'empty' failed")
    assert reason(store, bad[0]).startswith("check 'few' failed")


def test_a_repository_that_a_check_names_stays(store: WorkerStore) -> None:
    assert "repository 'r' does not exist" in reason(store, at_most(1, "r"))
    assert len(effect(store, ("create-repository", "r"), at_most(1, "r"))) == 2
    assert reason(store, ("remove-repository", "r")) == (
        "check 'few' failed: repository 'r' does not exist (ASK in repository 'r')"
    )
    # Made again within the transaction it is the same repository with other content.
    assert "found false" in reason(store, ("remove-repository", "r"), ("create-repository", "r"), ("add", "r", quads(A, B)))
    assert len(effect(store, ("remove-repository", "r"), ("control-remove", "few"))) == 2


def test_a_rejected_transaction_leaves_no_directory(store: WorkerStore, tmp_path: Path) -> None:
    before = sorted(path.name for path in (tmp_path / "w1" / "repositories").iterdir())
    assert "found false" in reason(store, ("create-repository", "r"), ("add", "r", quads(A, B)), at_most(1, "r"))
    assert sorted(path.name for path in (tmp_path / "w1" / "repositories").iterdir()) == before


def test_writes_about_other_things_are_not_judged(store: WorkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, [("create-repository", "r"), at_most(1), stock("absent")])

    def never(*_: object) -> dict[str, str]:
        raise AssertionError

    monkeypatch.setattr(RdfRepository, "problems", never)
    monkeypatch.setattr("brokerha.stores.control.judge.problem_of", never)
    assert len(effect(store, put(b"1", b"other"), ("add", "r", quads(A, B)), ("put", "u", b"k", b"1"))) == 3
    # Nor are those that change nothing in it.
    assert effect(store, ("remove", "main", quads(A))) == []


def test_much_that_waits_is_committed_before_it_is_put_under_queries(store: WorkerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LINES_BEFORE_COMMIT", 5)
    commits: list[int] = []
    commit = RdfRepository.commit

    def counted(engine: RdfRepository, removed: Iterable[str], added: Iterable[str], lsn: int) -> None:
        commits.append(lsn)
        commit(engine, removed, added, lsn)

    monkeypatch.setattr(RdfRepository, "commit", counted)
    run(store, [at_most(3)])
    results = run(store, *[[("add", "main", quads(line))] for line in (A, B, C, f"{A} <urn:g>", f"{B} <urn:h>")])
    assert [result.outcome for result in results] == [APPLIED] * 5
    assert len(commits) > 1
    assert store.recompute() == store.applied()


def test_checks_of_queries_are_refused_where_there_is_no_sparql() -> None:
    model = MemoryStore()
    assert reason(model, ask()) == NO_SPARQL


def test_a_follower_applies_checks_without_judging(store: WorkerStore, tmp_path: Path) -> None:
    other = opened(tmp_path, "w2")
    results = run(store, [ask()], [insert(PARENT)], [insert(PERSON)])
    other.apply(1, logged(results))
    assert other.applied() == other.recompute() == store.applied()
    assert "found false" in reason(other, ("remove", "main", quads(lines(other)[0])), insert(PARENT))
    other.close()


def test_a_check_that_admission_would_refuse_is_rejected_with_its_fault(store: WorkerStore) -> None:
    assert "name the variables" in reason(store, ("control-add", "c", "select", "main", "SELECT * { ?s ?p ?o }", "[]"))
    assert "no NOW" in reason(store, ask("ASK { FILTER(NOW() > 1) }"))


@pytest.mark.parametrize("damage", [b"", b"\x00" * 30, b"short"])
def test_a_check_that_the_disk_changed_is_found(tmp_path: Path, damage: bytes) -> None:
    store = opened(tmp_path)
    run(store, [stock("absent")])
    store.close()
    with lmdb.Environment(str(tmp_path / "w1" / "data"), max_dbs=8) as found:
        table = found.open_db(b"control")
        with found.begin(write=True, db=table) as transaction:
            row = transaction.get(b"stock") or b""
            assert msgpack.unpackb(row[16:]) == ["key", "t", "k", "absent"]
            transaction.put(b"stock", damage or row.replace(b"absent", b"absend"))
    with pytest.raises(StoreDamaged, match="check b'stock' of the control suite is damaged"):
        opened(tmp_path)


# ---- parts


@pytest.mark.parametrize(
    ("expected", "value", "problem"),
    [
        ("present", b"", ""),
        ("present", None, "expected present, found no such key"),
        ("absent", None, ""),
        ("absent", b"", "expected absent, found an empty value"),
        ("= a", b"a", ""),
        ("= a", b"b", "expected = a, found b"),
        ("= ", b"", ""),
        ("!= a", b"b", ""),
        ("!= a", None, ""),
        ("!= a", b"a", "expected != a, found a"),
        (">= 1.5", b"1.50", ""),
        (">= 1.5", b"1.49999999999999999999999", "expected >= 1.5, found 1.49999999999999999999999"),
        ("<= -1", b"-1.0", ""),
        ("<= 1", b"+2", "expected <= 1, found +2"),
        ("<= 1", b"1e-5", "expected <= 1, found 1e-5"),
        ("<= 1", b" 1", "expected <= 1, found  1"),
        ("<= 1", b"\xff", "expected <= 1, found 1 bytes that are no printable text"),
        ("<= 1", b"a\nb", "expected <= 1, found 3 bytes that are no printable text"),
        ("<= 1", None, "expected <= 1, found no such key"),
    ],
)
def test_conditions_of_keys(expected: str, value: bytes | None, problem: str) -> None:
    assert problem_of(expected, value) == problem


def test_a_suite_does_not_depend_on_the_order_in_which_it_came() -> None:
    one, two = Check("a", "key", "t", "k", "present"), Check("b", "ask", "main", "ASK { }", "true")
    first, second = Suite([one, two]), Suite([two, one])
    assert (first.report(), first.fingerprint()) == (second.report(), second.fingerprint())
    # Fields do not run into each other.
    assert Suite([one]).fingerprint() != Suite([one._replace(target="tk", text="")]).fingerprint()
    assert not Suite()


def test_a_change_of_a_suite_twice_is_the_same_as_once() -> None:
    added = ControlAdd("control-add", "a", "key", "t", "k", "present")
    gone = ControlRemove("control-remove", "a")
    once = Suite().changed(added)
    assert once.changed(added).checks == once.checks
    assert once.changed(gone).changed(gone).checks == {}
