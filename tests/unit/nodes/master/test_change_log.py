"""What is made from a journal for followers: batches of its log, changes, and their keys."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from brokerha.model.fingerprints import packed
from brokerha.model.ids import Ordered
from brokerha.model.operations import Result
from brokerha.nodes.master import journal_lines
from brokerha.nodes.master.journal_lines import BATCH_BYTES, BATCH_LSNS, ChangeLog, changes_of, routing_key, split

ALL = 1 << 40
AFTER = packed(4711)


class HeldLog:
    """As much of a journal as is asked for: results and order from one LSN on."""

    def __init__(self, results: list[Result], first_lsn: int = 1, extra_ordered: int = 0) -> None:
        self.held = results
        self.first = self.with_results_from = first_lsn
        self.pages: list[int] = []
        self.order: list[Ordered] = [(1000 + n, f"t{n}", "m1") for n in range(len(results) + extra_ordered)]

    def state(self) -> Any:
        return type("State", (), {"journal": "name-of-journal"})

    def first_lsn(self) -> int:
        return self.first

    def epochs(self, first_lsn: int, limit: int) -> list[int]:
        return [7] * limit

    def splits(self) -> list[Any]:
        return []

    def results_from(self) -> int:
        return self.with_results_from

    def results(self, first_lsn: int, limit: int) -> list[Result]:
        self.pages.append(limit)
        start = first_lsn - self.first
        return self.held[start : start + limit] if start >= 0 else []

    def ordered(self, first_lsn: int, limit: int) -> list[Ordered]:
        start = first_lsn - self.first
        return self.order[start : start + limit] if start >= 0 else []


def applied(*changes: tuple[Any, ...]) -> Result:
    return Result("applied", "", msgpack.packb(changes), AFTER)


def put(value: bytes) -> Result:
    return applied(("put", "t", b"k", value))


def log_of(held: HeldLog, *, with_changes: bool = False) -> ChangeLog:
    journal: Any = held
    return ChangeLog(journal, with_changes=with_changes)


def rows_in(parts: tuple[bytes, ...]) -> list[list[Any]]:
    return list(msgpack.unpackb(b"".join(parts)))


def test_a_batch_holds_what_the_journal_holds_from_an_lsn_on_and_nothing_without_a_result():
    rejected = Result("rejected", "no such repository", b"", AFTER)
    batch = log_of(HeldLog([put(b"1"), rejected, put(b"3")], extra_ordered=2)).batch(2, ALL)
    assert batch is not None
    assert (batch.first_lsn, batch.last_lsn, batch.is_full, batch.changes) == (2, 3, False, ())
    assert rows_in(batch.parts) == [
        [2, "t1", "m1", 1001, "rejected", "no such repository", b"", AFTER, 7],
        [3, "t2", "m1", 1002, "applied", "", put(b"3").effect, AFTER, 7],
    ]


def test_nothing_is_in_a_batch_that_backups_may_not_hold_yet():
    log = log_of(HeldLog([put(b"v")] * 40))
    batch = log.batch(3, 21)
    assert batch is not None
    assert (batch.first_lsn, batch.last_lsn, batch.is_full) == (3, 21, False)
    assert log.batch(22, 21) is None
    assert log.batch(1, 0) is None


def test_there_is_no_batch_beyond_the_last_result_nor_before_the_first():
    log = log_of(HeldLog([put(b"1")], first_lsn=5))
    assert log.batch(6, ALL) is None
    assert log.batch(4, ALL) is None
    assert log.first_lsn() == 5
    assert log.journal == "name-of-journal"


def test_a_journal_without_its_first_results_is_told_from_where_they_begin():
    held = HeldLog([put(b"1")], first_lsn=5)
    held.with_results_from = 9
    assert log_of(held).first_lsn() == 9


def test_small_results_are_batched_up_to_the_number_of_lsns():
    log = log_of(HeldLog([put(b"v")] * (BATCH_LSNS + 500)))
    first = log.batch(1, ALL)
    second = log.batch(BATCH_LSNS + 1, ALL)
    assert first is not None
    assert second is not None
    assert (first.last_lsn, first.is_full, len(first.parts)) == (BATCH_LSNS, True, 1)
    assert (second.first_lsn, second.last_lsn, second.is_full) == (BATCH_LSNS + 1, BATCH_LSNS + 500, False)
    assert [row[0] for row in rows_in(first.parts) + rows_in(second.parts)] == list(range(1, BATCH_LSNS + 501))


def test_a_batch_closes_with_the_row_that_reaches_the_size():
    batch = log_of(HeldLog([put(b"v" * (BATCH_BYTES // 4))] * 10)).batch(1, ALL)
    assert batch is not None
    assert (batch.last_lsn, batch.is_full) == (4, True)


def test_large_effects_are_not_read_all_at_once():
    held = HeldLog([put(b"v" * BATCH_BYTES)] * 1000)
    assert log_of(held).batch(1, ALL) is not None
    assert held.pages == [16]


def test_a_transaction_that_no_message_takes_comes_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal_lines, "PART_BYTES", 1000)
    result = put(b"v" * 2500)
    batch = log_of(HeldLog([result])).batch(1, ALL)
    assert batch is not None
    assert [len(part) <= 1000 for part in batch.parts] == [True, True, True]
    assert rows_in(batch.parts)[0][6] == result.effect
    assert changes_of(1, "t", result.effect)[0].body == b""


def test_a_small_body_is_one_part():
    assert split(b"x") == (b"x",)


def test_a_journal_that_is_trimmed_while_it_is_read_gives_no_row_without_its_place():
    held = HeldLog([put(b"1"), put(b"2")])
    held.order = held.order[:1]
    batch = log_of(held).batch(1, ALL)
    assert batch is not None
    assert batch.last_lsn == 1


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("quads", "main", [], ["<a> <b> <c>"]), "graph.main.changed"),
        (("put", "prices", b"k", b"v"), "table.prices.put"),
        (("delete", "prices", b"k"), "table.prices.deleted"),
        (("publish", "orders.eu", "tx.1", "text/plain", b""), "queue.orders_eu.published"),
        (("accept", "orders", "tx.1"), "queue.orders.accepted"),
        (("create-repository", "new-1_a"), "repository.new-1_a.created"),
        (("remove-repository", "old"), "repository.old.removed"),
        (("control-add", "no-orphans", "ask", "main", "ASK { }", "true"), "control.no-orphans.added"),
        (("control-remove", "a.b"), "control.a_b.removed"),
        (("put", "a.b #*ü", b"k", b"v"), "table.a_b____.put"),
        (("of a newer version", "x"), "other.x.changed"),
    ],
)
def test_the_key_of_a_change_has_three_words(change: tuple[Any, ...], key: str):
    assert routing_key(change) == key
    assert key.count(".") == 2


def test_only_applied_transactions_have_changes_and_each_change_is_one_message():
    results = [
        applied(("put", "t", b"k", b"v"), ("delete", "t", b"l")),
        Result("rejected", "no", b"", AFTER),
        applied(),
        applied(("quads", "main", ["old"], ["new"])),
    ]
    batch = log_of(HeldLog(results), with_changes=True).batch(1, ALL)
    assert batch is not None
    assert [(c.lsn, c.txid, c.key, msgpack.unpackb(c.body)) for c in batch.changes] == [
        (1, "t0", "table.t.put", ["put", "t", b"k", b"v"]),
        (1, "t0", "table.t.deleted", ["delete", "t", b"l"]),
        (4, "t3", "graph.main.changed", ["quads", "main", ["old"], ["new"]]),
    ]
