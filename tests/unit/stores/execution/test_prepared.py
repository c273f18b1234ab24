"""Prepared branches over SPARQL, with the real engine: queries of the control suite, updates, fresh nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.model.operations import APPLIED, Operation
from brokerha.stores.execution.worker_store import WorkerStore
from tests.contracts.store_contract import fingerprint, lines, run
from tests.contracts.store_prepared_contract import commit, held, prepare, prepared, refused, rollback

AT_MOST_TWO: Operation = ("control-add", "few", "ask", "main", "ASK { ?a <urn:p> ?n FILTER(?n > 2) }", "false")


def insert(text: str, repository: str = "main") -> Operation:
    return ("update", repository, f"INSERT DATA {{ {text} }}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WorkerStore]:
    opened = WorkerStore(tmp_path / "w1", cluster="orders", node="w1")
    yield opened
    opened.close()


def test_a_branch_that_breaks_a_query_is_not_prepared(store: WorkerStore) -> None:
    run(store, [AT_MOST_TWO])
    before = fingerprint(store)
    assert prepare(store, insert("<urn:a> <urn:p> 3")).reason.startswith("check 'few' failed")
    assert fingerprint(store) == before
    prepared(store, insert("<urn:a> <urn:p> 2"))


def test_a_repository_that_its_queries_are_about_stays_as_it_is(store: WorkerStore) -> None:
    run(store, [AT_MOST_TWO, ("create-repository", "r")])
    prepared(store, insert("<urn:a> <urn:p> 2"))
    assert refused(store, insert("<urn:b> <urn:q> 1")) == held("repository 'main'")
    assert prepare(store, insert("<urn:b> <urn:q> 1"), txid="c").reason == held("repository 'main'")
    assert run(store, [insert("<urn:b> <urn:q> 1", "r")])[0].outcome == APPLIED
    assert commit(store).outcome == APPLIED
    assert run(store, [insert("<urn:b> <urn:q> 1")])[0].outcome == APPLIED


def test_a_query_comes_to_no_repository_that_a_branch_changes(store: WorkerStore) -> None:
    prepared(store, insert("<urn:a> <urn:p> 3"))
    assert refused(store, AT_MOST_TWO) == held("repository 'main'")
    assert rollback(store).outcome == APPLIED
    assert run(store, [AT_MOST_TWO])[0].outcome == APPLIED


def test_a_query_that_comes_with_a_branch_finds_what_it_found(store: WorkerStore) -> None:
    prepared(store, AT_MOST_TWO)
    assert refused(store, insert("<urn:a> <urn:p> 3")) == held("repository 'main'")
    assert commit(store).outcome == APPLIED
    assert refused(store, insert("<urn:a> <urn:p> 3")).startswith("check 'few' failed")


def test_a_branch_keeps_what_an_update_found_when_it_was_prepared(store: WorkerStore) -> None:
    run(store, [insert("<urn:a> <urn:p> 1")])
    prepared(store, ("update", "main", "INSERT { ?a <urn:q> [] } WHERE { ?a <urn:p> ?n }"))
    run(store, [insert("<urn:b> <urn:p> 1")])
    assert commit(store).outcome == APPLIED
    assert [line.split()[0] for line in lines(store) if "<urn:q>" in line] == ["<urn:a>"]
    assert store.recompute() == store.applied()


def test_a_repository_of_a_branch_leaves_no_directory_behind(store: WorkerStore, tmp_path: Path) -> None:
    before = {each.name for each in (tmp_path / "w1" / "repositories").iterdir()}
    prepared(store, ("create-repository", "r"), insert("<urn:a> <urn:p> 1", "r"))
    assert {each.name for each in (tmp_path / "w1" / "repositories").iterdir()} == before
    assert commit(store).outcome == APPLIED
    assert len(lines(store, "r")) == 1
