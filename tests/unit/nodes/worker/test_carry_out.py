"""Decisions as a store carries them out, and what the core is told of it."""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.model.errors import StoreDamaged, StoreError, StoreFull
from brokerha.model.fingerprints import EMPTY, from_text
from brokerha.model.operations import LoggedRow, Result, pack_operations
from brokerha.model.ready import ApplyBatch, ExecuteBatch, ResendResults, StoreDone, StoreFailed
from brokerha.nodes.worker.runner import carry_out
from tests.support.memory_store.store import MemoryStore

ITEMS = tuple((f"tx-{n}", n, pack_operations([("put", "t", b"%d" % n, b"v")])) for n in range(3))


def done(store: MemoryStore) -> StoreDone:
    answer = carry_out(store, ExecuteBatch(1, ITEMS))
    assert isinstance(answer, StoreDone)
    return answer


def lines() -> tuple[LoggedRow, ...]:
    results = done(MemoryStore()).results
    return tuple((txid, timestamp, *row) for (txid, timestamp, _), row in zip(ITEMS, results, strict=True))


def test_a_batch_that_was_executed_is_answered_with_the_content_after_each_transaction():
    store = MemoryStore()
    answer = done(store)
    assert (answer.first_lsn, answer.applied_lsn, answer.items) == (1, 3, 3)
    assert [row[0] for row in answer.results] == ["applied"] * 3
    assert from_text(answer.fingerprint) == answer.results[-1][3] != EMPTY


def test_results_that_were_lost_are_read_again_without_their_transactions():
    store = MemoryStore()
    answer = done(store)
    assert carry_out(store, ResendResults(2, 3)) == StoreDone(2, 3, answer.results[1:], answer.fingerprint, answer.items)


def test_lines_that_were_applied_are_answered_without_results():
    store, given = MemoryStore(), lines()
    answer = carry_out(store, ApplyBatch(1, given))
    assert isinstance(answer, StoreDone)
    assert (answer.applied_lsn, answer.results) == (3, ())
    assert carry_out(store, ResendResults(1, 3)) == StoreDone(
        1, 3, tuple(line[2:] for line in given), answer.fingerprint, answer.items
    )


def test_a_line_that_leads_elsewhere_names_its_lsn_and_what_this_copy_came_to():
    given = lines()
    wrong = (*given[1][:5], EMPTY)
    answer = carry_out(MemoryStore(), ApplyBatch(1, (given[0], wrong, given[2])))
    assert isinstance(answer, StoreFailed)
    assert (answer.is_damage, answer.lsn, answer.fingerprint) == (True, 2, given[1][5])


def test_damage_is_told_from_other_failures():
    class Failing(MemoryStore):
        error = StoreError("a fault")

        def execute(self, first_lsn: int, items: Sequence[tuple[str, int, bytes]]) -> list[Result]:
            raise self.error

    store = Failing()
    assert carry_out(store, ExecuteBatch(1, ITEMS)) == StoreFailed("a fault")
    store.error = StoreFull("no room")
    assert carry_out(store, ExecuteBatch(1, ITEMS)) == StoreFailed("no room", is_disk_full=True)
    store.error = StoreDamaged("a value is damaged")
    assert carry_out(store, ExecuteBatch(1, ITEMS)) == StoreFailed("a value is damaged", is_damage=True)
