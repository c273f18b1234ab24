"""Large transactions between writes of others, in any order, with restarts: the store in files does what the model in memory does."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokerha.model.operations import Operation, Result
from brokerha.ports.store import Store
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from brokerha.stores.rdf import drafts
from tests.contracts.store_clear_contract import ABOVE
from tests.contracts.store_contract import lines, logged, quads, rows, run
from tests.contracts.store_staged_contract import commit, drop, stage
from tests.contracts.test_stores import LINES, QUEUES, TABLES
from tests.support.memory_store.store import MemoryStore

REPOSITORIES = st.sampled_from(["main", "main", "r"])
ON_STORES: list[st.SearchStrategy[Operation]] = [
    st.tuples(st.just("add"), REPOSITORIES, LINES.map(lambda found: quads(*found))),
    st.tuples(st.just("remove"), REPOSITORIES, LINES.map(lambda found: quads(*found))),
    st.tuples(st.just("put"), TABLES, st.sampled_from([b"a", b"b"]), st.sampled_from([b"", b"1"])),
    st.tuples(st.just("delete"), TABLES, st.sampled_from([b"a", b"b"])),
    st.tuples(st.just("publish"), QUEUES, st.just("text/plain"), st.sampled_from([b"", b"1"])),
]
IN_PARTS = st.one_of(ON_STORES)
OTHERS = st.one_of(
    *ON_STORES,
    st.tuples(st.just("create-repository"), REPOSITORIES),
    st.tuples(st.just("remove-repository"), REPOSITORIES),
    st.tuples(st.just("clear"), REPOSITORIES),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [*["write"] * 6, *["stage"] * 6, *["commit"] * 3, "message", "message", "accept", "accept", "drop", "restart"]
        ),
        st.sampled_from(["x", "y"]),
        st.lists(IN_PARTS, min_size=1, max_size=4),
        st.lists(OTHERS, min_size=1, max_size=3),
        st.sampled_from([1, 1, 1, 2]),
        st.lists(st.tuples(st.just("clear"), REPOSITORIES), max_size=2),
    ),
    min_size=6,
    max_size=30,
)

History = tuple[str, str, list[Operation], list[Operation], int, list[Operation]]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts that take in what others changed with each part."""
    monkeypatch.setattr(drafts, "CATCH_UP_LSNS", 0)
    monkeypatch.setattr(drafts, "PARTS_AT_ONCE", 1)


@pytest.mark.usefixtures("eager")
@given(history=STEPS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_and_model_agree_when_drafts_take_in_what_others_change_at_once(
    history: list[History], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_history(history, tmp_path_factory)


@given(history=STEPS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_and_model_agree_on_large_transactions(history: list[History], tmp_path_factory: pytest.TempPathFactory) -> None:
    run_history(history, tmp_path_factory)


def run_history(history: list[History], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run it at both; a third applies the log, and keeps so little of it that its drafts have to be made anew now and then."""
    directory = tmp_path_factory.mktemp("staged")
    short = StoreOptions(keep_results=1, flush_after_lsns=2, clear_above_quads=ABOVE)
    options = StoreOptions(clear_above_quads=ABOVE)
    files = WorkerStore(directory / "w1", cluster="orders", node="w1", options=options)
    applying = WorkerStore(directory / "w2", cluster="orders", node="w2", options=short)
    model, applied_model = MemoryStore(ABOVE), MemoryStore(ABOVE)
    staged = {"x": 0, "y": 0}
    rounds = {"x": 0, "y": 0}
    try:
        for kind, letter, operations, others, step, clears in history:
            if kind == "restart":
                files.close()
                files = WorkerStore(directory / "w1", cluster="orders", node="w1", options=options)
                continue
            staged[letter] += step if kind == "stage" else kind == "message"
            first = clears if staged[letter] == 1 else []
            to_do = Step(kind, f"{letter}{rounds[letter] - (kind == 'accept')}", staged[letter], [*first, *operations], others)
            staged[letter] += kind == "message"
            first_lsn = model.applied().lsn + 1
            results = to_do.at(model)
            assert to_do.at(files) == results
            for store in (applying, applied_model):
                store.apply(first_lsn, logged(results))
            for store in (files, applying, applied_model):
                assert store.applied() == store.recompute() == model.applied()
            if kind in {"commit", "drop"}:
                staged[letter], rounds[letter] = 0, rounds[letter] + 1
        for store in (files, applying, applied_model):
            assert [rows(store, table) for table in "tu"] == [rows(model, table) for table in "tu"]
            if b'"main"' in b"".join(store.read("repositories", "", {}).pieces):
                assert lines(store) == lines(model)
    finally:
        files.close()
        applying.close()


class Step(NamedTuple):
    """One transaction, or the two that stage a message in pieces."""

    kind: str
    name: str
    part: int
    operations: list[Operation]
    others: list[Operation]

    def at(self, store: Store) -> list[Result]:
        match self.kind:
            case "write":
                return run(store, self.others)
            case "stage":
                return [stage(store, self.part, *self.operations, name=self.name)]
            case "message":
                message = ("publish-pieces", "q", "text/plain", self.part, self.part, 2)
                piece = stage(store, self.part, ("piece", b"12"), name=self.name)
                return [piece, stage(store, self.part + 1, message, name=self.name)]
            case "accept":
                return run(store, [("accept", "q", f"{self.name}.1")])
            case "commit":
                return [commit(store, max(self.part, 1), name=self.name)]
            case _:
                return [drop(store, self.name)]
