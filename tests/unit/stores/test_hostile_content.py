"""What a store is given by others than its own master's admission: the log of an older node, a peer, a reader. Nothing of it ends the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.model.errors import InvalidRequest, StoreDamaged
from brokerha.model.operations import REJECTED, Logged, QuadsChanged, pack_effect, pack_operations
from brokerha.stores.backup.building import CopyBuilder
from brokerha.stores.sparql import modify as sparql_modify
from tests.contracts.store_contract import lines, quads, read, run, transaction
from tests.unit.stores.built_copies import opened

DEEP = "<urn:s> <urn:p> " + "<<( <urn:a\u2028> <urn:b> " * 20_000 + "<urn:c>" + " )>>" * 20_000
TERM = DEEP.removeprefix("<urn:s> <urn:p> ")
GOOD = "<urn:s> <urn:p> <urn:o>"


@pytest.mark.parametrize(
    "operation",
    [("add", "main", quads(DEEP)), ("remove", "main", quads(DEEP)), ("update", "main", f"INSERT DATA {{ {DEEP} }}")],
    ids=lambda operation: operation[0],
)
def test_poison_in_the_order_is_rejected_at_its_place_and_the_rest_goes_on(tmp_path: Path, operation) -> None:
    store = opened(tmp_path)
    poisoned, good = store.execute(1, [transaction(operation), transaction(("add", "main", quads(GOOD)))])
    assert (poisoned.outcome, poisoned.effect) == (REJECTED, b"")
    assert "nested more than" in poisoned.reason
    assert good.outcome != REJECTED
    assert lines(store) == [GOOD]
    store.close()


def test_an_effect_that_no_node_makes_is_damage(tmp_path: Path) -> None:
    store = opened(tmp_path)
    effect = pack_effect([QuadsChanged("quads", "main", (), (DEEP,))])
    with pytest.raises(StoreDamaged, match="no quad of the log"):
        store.apply(1, [Logged("tx", 1, "applied", "", effect, b"")])
    store.close()


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("statements", {"obj": TERM, "accept": "application/n-quads"}),
        ("statements", {"subj": TERM, "accept": "application/n-quads"}),
        ("statements", {"context": [TERM], "accept": "application/n-quads"}),
        ("size", {"context": [TERM]}),
        ("query", {"query": f"SELECT * {{ ?s ?p {TERM} }}", "accept": ""}),
        ("query", {"query": "ASK {}", "accept": "", "pending": pack_operations([("add", "main", quads(DEEP))])}),
        ("statements", {"accept": "", "pending": pack_operations([("add", "main", quads(DEEP))])}),
    ],
)
def test_a_hostile_read_is_refused_and_the_store_reads_on(tmp_path: Path, kind: str, arguments) -> None:
    store = opened(tmp_path)
    run(store, [("add", "main", quads(GOOD))])
    with pytest.raises(InvalidRequest):
        read(store, kind, "main", **arguments)
    assert lines(store) == [GOOD]
    store.close()


def test_a_backup_or_an_archive_with_content_that_no_node_makes_builds_no_copy(tmp_path: Path) -> None:
    builder = CopyBuilder(tmp_path / "copy", cluster="orders", node="w1", lsn=1, map_size_bytes=1 << 24)
    with pytest.raises(StoreDamaged, match="nested more than"):
        builder.repository("main", [GOOD, DEEP])
    builder.close()


def cross_product(template: str) -> tuple[str, str, str]:
    """An update whose clause has 10**12 solutions over a hundred quads."""
    patterns = " ".join(f"?s{number} ?p{number} ?o{number} ." for number in range(6))
    return ("update", "main", f"INSERT {{ {template} }} WHERE {{ {patterns} }}")


def hundred_quads() -> tuple[str, str, str]:
    return ("add", "main", quads(*(f"<urn:s> <urn:p> <urn:o{number}>" for number in range(100))))


@pytest.mark.parametrize(("template", "changes"), [("", False), ("<urn:a> <urn:b> <urn:c>", True)])
def test_a_clause_is_left_after_the_solution_that_decides(tmp_path: Path, template: str, changes: bool) -> None:
    store = opened(tmp_path)
    run(store, [hundred_quads()])
    (result,) = run(store, [cross_product(template)])
    assert result.outcome == "applied"
    assert ("<urn:a> <urn:b> <urn:c>" in lines(store)) == changes
    assert len(lines(store)) == 100 + changes
    store.close()


def test_too_many_solutions_are_refused_and_the_store_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparql_modify, "SOLUTIONS_LIMIT", 1000)
    store = opened(tmp_path)
    run(store, [hundred_quads()])
    (result,) = run(store, [cross_product("?s0 <urn:same> ?s1")])
    assert (result.outcome, result.effect) == (REJECTED, b"")
    assert "more than 1000 solutions" in result.reason
    (result,) = run(store, [("update", "main", "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }")])
    assert result.outcome == "applied"
    assert lines(store) == []
    store.close()
