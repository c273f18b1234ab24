"""Every store keeps the contract, and the store in files does what the model in memory does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokerha.model.etags import etag_of
from brokerha.model.operations import APPLIED, Operation
from brokerha.model.reserved import branches
from brokerha.ports.store import Store
from brokerha.stores.comparing.fingerprint import key_digest
from brokerha.stores.control import judge as control_keys
from brokerha.stores.execution.evaluation import CLEAR_ABOVE_QUADS
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from tests.contracts.store_about_contract import StoreAboutContract, namespace
from tests.contracts.store_author_contract import StoreAuthorContract
from tests.contracts.store_claims_contract import StoreClaimsContract
from tests.contracts.store_clear_contract import ABOVE, StoreClearContract
from tests.contracts.store_contract import StoreContract, lines, logged, quads, rows, run
from tests.contracts.store_control_contract import StoreControlContract
from tests.contracts.store_digests_contract import StoreDigestsContract
from tests.contracts.store_log_contract import StoreLogContract
from tests.contracts.store_observing_contract import StoreObservingContract
from tests.contracts.store_pending_contract import StorePendingContract
from tests.contracts.store_pieces_contract import StorePiecesContract
from tests.contracts.store_prepared_contract import StorePreparedContract, step
from tests.contracts.store_queue_contract import StoreExpectationContract, StoreQueueContract, counters, queue
from tests.contracts.store_settings_contract import StoreSettingsContract
from tests.contracts.store_snapshots_contract import StoreSnapshotsContract
from tests.contracts.store_staged_contract import StoreStagedContract
from tests.support.memory_store.store import MemoryStore


class OfMemory:
    """The model."""

    clear_above = CLEAR_ABOVE_QUADS

    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(self.clear_above)

    @pytest.fixture
    def other(self) -> Store:
        return MemoryStore(self.clear_above)

    @pytest.fixture
    def reopened(self) -> Callable[[MemoryStore], Store]:
        return MemoryStore.restarted


class OfFiles:
    """The store in files."""

    clear_above = CLEAR_ABOVE_QUADS

    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Callable[[str], WorkerStore]]:
        stores: list[WorkerStore] = []

        def open_one(name: str) -> WorkerStore:
            options = StoreOptions(clear_above_quads=self.clear_above)
            stores.append(WorkerStore(tmp_path / name, cluster="orders", node=name, options=options))
            return stores[-1]

        yield open_one
        for store in stores:
            store.close()

    @pytest.fixture
    def store(self, opened: Callable[[str], WorkerStore]) -> Store:
        return opened("w1")

    @pytest.fixture
    def other(self, opened: Callable[[str], WorkerStore]) -> Store:
        return opened("w2")

    @pytest.fixture
    def reopened(self, opened: Callable[[str], WorkerStore]) -> Callable[[Store], Store]:
        def reopen(store: Store) -> Store:
            store.close()
            return opened("w1")

        return reopen


class Everything(
    StoreContract,
    StoreLogContract,
    StoreControlContract,
    StoreQueueContract,
    StoreExpectationContract,
    StoreDigestsContract,
    StoreAboutContract,
    StorePreparedContract,
    StorePiecesContract,
    StoreStagedContract,
    StoreSettingsContract,
    StoreClaimsContract,
    StoreAuthorContract,
):
    """What begins with an empty store."""


class TestMemoryStore(OfMemory, Everything):
    """The model does everything."""


class TestWorkerStore(OfFiles, Everything):
    """The store in files does everything."""


class TestClearingOfMemoryStore(OfMemory, StoreClearContract):
    """Repositories that are too large for their quads to be named, in the model, ..."""

    clear_above = ABOVE


class TestClearingOfWorkerStore(OfFiles, StoreClearContract):
    """... and in files."""

    clear_above = ABOVE


class TestReadsOfMemoryStore(OfMemory, StorePendingContract):
    """Reads of the model that begin with some content."""


class TestIsolatedReadsOfMemoryStore(OfMemory, StoreObservingContract):
    """Reads of isolated transactions, in memory."""


class TestIsolatedReadsOfWorkerStore(OfFiles, StoreObservingContract):
    """... and in files."""


class TestReadsOfWorkerStore(OfFiles, StorePendingContract):
    """Reads of the store in files that begin with some content."""


class TestSnapshotsOfMemoryStore(OfMemory, StoreSnapshotsContract):
    """Snapshots of tables in the model, ..."""


class TestSnapshotsOfWorkerStore(OfFiles, StoreSnapshotsContract):
    """... and in files."""


REPOSITORIES = st.sampled_from(["main", "r", "s"])
KEYS = st.sampled_from([b"a", b"b", b"\x00", b"\xff", b"\xff\xff"])
TABLES = st.sampled_from(["t", "u"])
QUEUES = st.sampled_from(["p", "q"])
LINES = st.lists(st.sampled_from([f"<urn:s> <urn:p> <urn:{name}>" for name in "abcde"]), max_size=4)
CHECKS = st.sampled_from(["c", "d"])
SNAPSHOTS = st.sampled_from(["x", "y", "z"])
CONDITIONS = ["present", "absent", "= 1", "!= 1", ">= 2", "<= 1.5"]
ONE = key_digest(b"t\0a", b"1")
"""Digest of the range that holds this key alone."""
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("put"), TABLES, KEYS, st.sampled_from([b"", b"1", b"2"])),
    st.tuples(st.just("delete"), TABLES, KEYS),
    st.builds(namespace, REPOSITORIES, st.sampled_from(["", "a"]), st.sampled_from([b"urn:1:", b"urn:2:"])),
    st.tuples(st.just("add"), REPOSITORIES, LINES.map(lambda found: quads(*found))),
    st.tuples(st.just("remove"), REPOSITORIES, LINES.map(lambda found: quads(*found))),
    st.tuples(st.just("create-repository"), REPOSITORIES),
    st.tuples(st.just("remove-repository"), REPOSITORIES),
    st.tuples(st.just("control-add"), CHECKS, st.just("key"), TABLES, st.sampled_from("ab"), st.sampled_from(CONDITIONS)),
    st.tuples(st.just("control-remove"), CHECKS),
    st.tuples(st.just("publish"), QUEUES, st.just("text/plain"), st.sampled_from([b"", b"1"])),
    st.tuples(st.just("accept"), QUEUES, st.sampled_from([f"tx.{number}" for number in range(1, 5)])),
    st.tuples(st.just("snapshot"), SNAPSHOTS, TABLES),
    st.tuples(st.just("snapshot"), SNAPSHOTS),
    st.tuples(st.just("drop-snapshot"), SNAPSHOTS),
    st.tuples(st.just("expect-key"), TABLES, KEYS, st.sampled_from(["", etag_of(b"1")])),
    st.tuples(st.just("expect-range"), TABLES, KEYS, st.one_of(st.just(b""), KEYS), st.sampled_from([bytes(16), ONE])),
    st.tuples(st.just("expect-since"), st.just("queue"), QUEUES, st.integers(0, 6)),
    st.tuples(st.just("expect-since"), st.just("graph"), REPOSITORIES, st.integers(0, 6)),
    st.tuples(st.just("expect-since"), st.just("table"), TABLES, st.integers(0, 6)),
)
BATCHES = st.lists(st.lists(st.lists(OPERATIONS, min_size=1, max_size=5), min_size=1, max_size=4), min_size=1, max_size=5)


@given(batches=BATCHES, clear_above=st.sampled_from([1, 2, CLEAR_ABOVE_QUADS]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_and_model_agree_on_any_history(
    batches: list[list[list[Operation]]], clear_above: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("agree")
    options = StoreOptions(clear_above_quads=clear_above)
    executing = WorkerStore(directory / "w1", cluster="orders", node="w1", options=options)
    applying = WorkerStore(directory / "w2", cluster="orders", node="w2", options=options)
    model, applied_model = MemoryStore(clear_above), MemoryStore(clear_above)
    try:
        for batch in batches:
            first = model.applied().lsn + 1
            results = run(model, *batch)
            assert run(executing, *batch) == results
            for store in (applying, applied_model):
                store.apply(first, logged(results))
            for store in (executing, applying, applied_model):
                assert store.applied() == store.recompute() == model.applied()
                assert store.logged(first, first + 9) == model.logged(first, first + 9) == logged(results)
        for store in (executing, applying, applied_model):
            for table in ("t", "u"):
                assert rows(store, table) == rows(model, table)
            for name in ("p", "q"):
                assert queue(store, name) == queue(model, name)
            assert counters(store) == counters(model)
            assert store.read("repositories", "", {}).lsn == model.applied().lsn
            assert lines(store) == lines(model) if has_main(model) else not has_main(store)
    finally:
        executing.close()
        applying.close()


def has_main(store: Store) -> bool:
    return b'"main"' in b"".join(store.read("repositories", "", {}).pieces)


@given(batches=BATCHES)
@settings(max_examples=100, deadline=None)
def test_the_model_counts_what_it_holds(batches: list[list[list[Operation]]]) -> None:
    model = MemoryStore()
    for batch in batches:
        run(model, *batch)
        assert model.applied() == model.recompute()


STEPS = st.lists(
    st.tuples(
        st.sampled_from([branches.PREPARE, branches.PREPARE, branches.COMMIT, branches.ROLLBACK, "write", "write"]),
        st.sampled_from(["b", "c", "d"]),
        st.lists(OPERATIONS, min_size=1, max_size=4),
    ),
    min_size=4,
    max_size=25,
)


@given(history=STEPS)
@settings(max_examples=150, deadline=None)
def test_what_is_prepared_is_committed_whatever_others_do(history: list[tuple[str, str, list[Operation]]]) -> None:
    run_history(history, [MemoryStore(clear_above=1)])


@given(history=STEPS, clear_above=st.sampled_from([1, CLEAR_ABOVE_QUADS]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_and_model_agree_on_what_is_prepared(
    history: list[tuple[str, str, list[Operation]]], clear_above: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = StoreOptions(clear_above_quads=clear_above)
    executing = WorkerStore(tmp_path_factory.mktemp("prepared") / "w1", cluster="orders", node="w1", options=options)
    try:
        run_history(history, [MemoryStore(clear_above), executing])
    finally:
        executing.close()


def run_history(history: list[tuple[str, str, list[Operation]]], stores: list[Store]) -> None:
    """Run a history at all stores; a branch that was prepared and is not over is committed, if that comes, and every check holds."""
    applied, waiting = MemoryStore(), set[str]()
    for kind, name, operations in history:
        if kind == branches.PREPARE and name in waiting:
            continue
        results = [
            run(store, operations)[0] if kind == "write" else step(store, kind, name, *operations * (kind == branches.PREPARE))
            for store in stores
        ]
        assert all(result == results[0] for result in results)
        outcome = results[0].outcome
        if kind == branches.PREPARE and outcome == APPLIED:
            waiting.add(name)
        elif kind == branches.COMMIT:
            assert (outcome == APPLIED) is (name in waiting), results[0]
        if kind in (branches.COMMIT, branches.ROLLBACK):
            waiting.discard(name)
        applied.apply(applied.applied().lsn + 1, logged(results[:1]))
        for store in (*stores, applied):
            assert store.applied() == store.recompute() == stores[0].applied()
        assert broken_checks(stores[0]) == []


def broken_checks(store: Store) -> list[str]:
    """The checks of the suite that do not hold now."""
    checks = json.loads(b"".join(store.read("control", "", {}).pieces))["checks"]
    held = {name: dict(rows(store, name)) for name in ("t", "u")}
    return [
        check["name"]
        for check in checks
        if control_keys.problem_of(check["expected"], held[check["target"]].get(check["text"].encode()))
    ]


ON_TABLES: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("put"), st.just("t"), st.sampled_from([b"a", b"b"]), st.sampled_from([b"", b"1", b"2", b"3"])),
    st.tuples(st.just("put"), TABLES, KEYS, st.sampled_from([b"", b"1", b"2"])),
    st.tuples(st.just("delete"), TABLES, KEYS),
    st.tuples(st.just("snapshot"), SNAPSHOTS, st.just("t")),
    st.tuples(st.just("drop-snapshot"), SNAPSHOTS),
)
STEPS_ON_TABLES = st.lists(
    st.tuples(
        st.sampled_from([branches.PREPARE, branches.COMMIT, *["write"] * 6]),
        st.sampled_from(["b", "c"]),
        st.lists(ON_TABLES, min_size=1, max_size=2),
    ),
    min_size=20,
    max_size=60,
)


@given(history=STEPS_ON_TABLES)
@settings(max_examples=200, deadline=None)
def test_snapshots_show_what_copies_of_the_tables_would(history: list[tuple[str, str, list[Operation]]]) -> None:
    model = MemoryStore()
    copies: dict[str, dict[str, list[tuple[bytes, bytes]]]] = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("brokerha.stores.tables.snapshots.DROP_ROWS", 0)
        monkeypatch.setattr("brokerha.stores.tables.snapshots.WRITE_ROWS", 1)
        for kind, name, operations in history:
            before = {each["name"]: each for each in listed_snapshots(model)}
            if kind == "write":
                run(model, operations)
            else:
                step(model, kind, name, *operations * (kind == branches.PREPARE))
            now = {each["name"]: each for each in listed_snapshots(model)}
            for each, found in now.items():
                if before.get(each) != found:
                    copies[each] = {table: rows(model, table) for table in found["tables"]}
            for each, found in now.items():
                assert {table: rows(model, table, snapshot=each) for table in found["tables"]} == copies[each]


@given(history=STEPS_ON_TABLES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_and_model_agree_on_snapshots(
    history: list[tuple[str, str, list[Operation]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    executing, model = WorkerStore(tmp_path_factory.mktemp("past") / "w1", cluster="orders", node="w1"), MemoryStore()
    try:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr("brokerha.stores.tables.snapshots.DROP_ROWS", 1)
            monkeypatch.setattr("brokerha.stores.tables.snapshots.WRITE_ROWS", 1)
            run_history(history, [model, executing])
        assert listed_snapshots(executing) == listed_snapshots(model)
        for found in listed_snapshots(model):
            for arguments in ({}, {"reverse": True}, {"limit": 1}, {"from": b"b"}):
                named = {"snapshot": found["name"], **arguments}
                assert rows(executing, "t", **named) == rows(model, "t", **named)
    finally:
        executing.close()


def listed_snapshots(store: Store) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(b"".join(store.read("snapshots", "", {}).pieces))
    return found
