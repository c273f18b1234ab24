"""A site that keeps its content behind a split: its copies count anew, and execute what they have not executed yet."""

from __future__ import annotations

import random

import pytest

from brokerha.model.log_lineages import Rewinds
from brokerha.model.ready import BeginLineage, StoreDone
from brokerha.model.wire.messages import Coin, LoadFrom
from brokerha.replication.site.config import Standing
from tests.unit.replication.benches import WorkerBench, lines, text
from tests.unit.replication.rewind_table import RewindTable
from tests.unit.replication.site.test_keeping_workers import of

WORKERS = ("w1", "w2", "w3")


def parted(*values: str) -> RewindTable:
    """A site with ten transactions of before a split, and these behind them."""
    table = RewindTable(*WORKERS)
    table.write(*[f"a{number}" for number in range(10)], *values)
    table.until(lambda: table.are_in_sync(*WORKERS))
    said(table, *WORKERS)
    return table


def said(table: RewindTable, *workers: str) -> None:
    """Wait until these have said that they have executed everything, as a master does before it goes back."""
    end = len(table.bodies)
    table.until(lambda: all((each := table.feed_of(w).progress) and each.applied_lsn == end for w in workers))


def test_copies_count_anew_with_what_they_hold_and_nothing_is_executed_twice() -> None:
    # Given a site that executed b0 b1 b2 on its side of a split
    table = parted("b0", "b1", "b2")
    names = {node: copy.journal for node, copy in table.copies.items()}
    before = table.copies["w1"].applied()
    # When its queue goes back, and goes on with what the other side had, and then with its own again
    table.go_back_and_keep_content(10, 5)
    assert {each.standing for each in table.site.workers.values()} == {Standing.OUT_OF_SYNC}
    table.write("c0")
    table.again("b2", "b0", "b1")
    table.until(lambda: table.are_followed(*WORKERS))
    # Then they hold what they held, and c0 on top of it
    assert {copy.journal for copy in table.copies.values()} == set(names.values())
    assert not any(table.sent_to(node, LoadFrom) for node in WORKERS)
    assert {copy.applied().lsn for copy in table.copies.values()} == {14}
    assert len({copy.applied().fingerprint for copy in table.copies.values()}) == 1
    assert table.copies["w1"].applied().items == before.items
    # And the log has a line for each, without effect for those that were executed before
    effects = [len(result.effect) for result in table.journal.results(11, 4)]
    assert effects[0] > 1
    assert set(effects[1:]) == {0}


def test_one_that_was_away_is_healed_by_the_others() -> None:
    table = parted("b0")
    table.crash("w3")
    table.write("b1")
    table.until(lambda: table.are_in_sync("w1", "w2"))
    said(table, "w1", "w2")
    table.go_back_and_keep_content(10, 5)
    table.again("b0", "b1")
    table.until(lambda: table.are_followed("w1", "w2"))
    # w3 stands at 11 of a log that is void, without b1
    table.start("w3")
    table.until(lambda: table.are_followed(*WORKERS))
    assert table.sent_to("w3", LoadFrom)
    assert len({copy.applied() for copy in table.copies.values()}) == 1


def test_a_master_that_starts_anew_gives_the_order_again() -> None:
    table = parted("b0", "b1")
    table.is_held = lambda way: way[0] == "m1"
    table.go_back_and_keep_content(10, 5)
    table.settle(10)
    table.mail.clear()
    table.is_held = lambda _way: False
    rewinds: Rewinds = ((5, 10),)
    table.start_master(rewinds)
    table.until(lambda: table.are_followed(*WORKERS))
    assert not any(table.sent_to(node, LoadFrom) for node in WORKERS)


def test_one_that_hears_of_it_only_after_the_next_lineage_began_stands_there_all_the_same() -> None:
    # Given that all is void from the first transaction on, and that w3 does not hear of it
    table = parted("b0")
    table.is_held = lambda way: "w3" in way
    table.go_back_and_keep_content(0, 5)
    table.again(*(f"a{number}" for number in range(10)), "b0")
    table.until(lambda: table.are_followed("w1", "w2"))
    # When sides come together once more, with nothing to give up
    table.go_back(11, 7)
    table.is_held = lambda _way: False
    # Then it counts anew as the others did, and takes nobody's copy
    table.until(lambda: table.are_followed(*WORKERS))
    assert not table.sent_to("w3", LoadFrom)
    assert len({copy.applied() for copy in table.copies.values()}) == 1


@pytest.mark.parametrize("seed", range(12))
def test_whatever_dies_on_the_way_the_copies_end_equal_and_complete(seed: int) -> None:
    luck = random.Random(seed)
    table = parted(*[f"b{number}" for number in range(luck.randint(1, 6))])
    count = len(table.bodies) - 10
    table.go_back_and_keep_content(10, 5)
    order = [f"b{number}" for number in range(count)]
    luck.shuffle(order)
    for value in order:
        if luck.random() < 0.5:
            table.write(f"c{value}")
        table.again(value)
        for _ in range(luck.randint(0, 5)):
            table.turn()
        if luck.random() < 0.6:
            node = luck.choice([each for each in WORKERS if each in table.workers])
            table.crash(node)
            table.turn()
            table.start(node)
    table.until(lambda: table.are_followed(*WORKERS))
    assert len({copy.applied() for copy in table.copies.values()}) == 1


# ---- the worker's half


def test_a_copy_with_the_content_of_there_goes_over_and_stands_there() -> None:
    bench = WorkerBench(applied=8)
    ready = bench.take(Coin(1, lineage=5, agreed_lsn=4, fingerprint=text(8)), of(5, lines(5, 6)))
    assert ready.decisions == (BeginLineage(5, 4),)
    said = bench.progress()
    assert (said.applied_lsn, said.lineage, said.fingerprint, said.journal) == (4, 5, text(8), "journal")
    ready = bench.answer(StoreDone(5, 4, (), text(8), 8))
    assert [type(each).__name__ for each in ready.decisions] == ["ApplyBatch"]


def test_one_with_another_content_stays_where_it_is() -> None:
    bench = WorkerBench(applied=8)
    assert bench.take(Coin(1, lineage=5, agreed_lsn=4, fingerprint=text(7))).decisions == ()
    assert bench.progress().applied_lsn == 8


def test_one_whose_store_is_at_work_waits_for_the_next_order() -> None:
    bench = WorkerBench(applied=7)
    bench.take(lines(8, 8))
    order = Coin(1, lineage=5, agreed_lsn=4, fingerprint=text(8))
    assert bench.take(order).decisions == ()
    bench.done(8, 8)
    assert bench.take(order).decisions == (BeginLineage(5, 4),)


def test_a_second_split_before_the_first_is_written_down() -> None:
    bench = WorkerBench(applied=8)
    bench.take(Coin(1, lineage=5, agreed_lsn=4, fingerprint=text(8)))
    bench.take(Coin(1, lineage=6, agreed_lsn=4))
    # The place is written down with the lineage of then
    ready = bench.answer(StoreDone(5, 4, (), text(8), 8))
    assert ready.decisions == (BeginLineage(6, 4),)
