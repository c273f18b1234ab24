"""A site that is to keep a copy over a split: who keeps it, and who does when that one cannot."""

from __future__ import annotations

from brokerha.model.wire.messages import Keep
from tests.unit.replication.site.test_rewinding_sites import begun, kept


def test_one_worker_keeps_a_copy_and_it_is_not_the_probe() -> None:
    table = begun()
    node = kept(table)
    assert table.site.kept() == {node: 10}
    assert node != table.feed.probe
    table.settle()
    assert sum(table.copies[each].kept is not None for each in table.config.workers) == 1
    assert table.sent_to(node, Keep) == 1


def test_nothing_is_kept_and_nothing_dropped_before_somebody_says_so() -> None:
    table = begun()
    table.copies["w1"].keep(5)
    table.crash("w1")
    table.start("w1")
    table.settle(100)
    assert table.copies["w1"].kept is not None
    assert not any(table.sent_to(node, Keep) for node in table.config.workers)


def test_a_copy_that_was_kept_before_the_master_started_counts() -> None:
    table = begun()
    node = kept(table)
    table.write("b")
    table.start_master()
    table.until(lambda: table.are_in_sync(*table.config.workers))
    table.site.splits.keeping.keep(table.now())
    table.settle()
    assert table.site.kept() == {node: 10}
    assert sum(table.copies[each].kept is not None for each in table.config.workers) == 1


def test_another_worker_keeps_a_copy_when_the_first_one_dies() -> None:
    table = begun()
    node = kept(table)
    table.crash(node)
    table.write("b")
    table.until(lambda: any(each != node and lsn == 11 for each, lsn in table.site.kept().items()))
    # And when the first one is back, and the split over, both drop theirs
    table.start(node)
    table.until(lambda: len(table.site.kept()) == 2)
    table.site.splits.keeping.drop(table.now())
    table.until(lambda: not any(copy.kept for copy in table.copies.values()))
    assert table.site.kept() == {}


def test_the_next_one_keeps_a_copy_when_one_cannot() -> None:
    table = begun()
    table.site.splits.keeping.keep(table.now())
    full = {"w2": 0}
    for node in ("w1", "w2", "w3"):
        table.copies[node]._free_bytes = lambda node=node: full.get(node, 1 << 40)
    table.until(lambda: bool(table.site.kept()))
    assert "w2" not in table.site.kept()


def test_a_single_worker_that_cannot_is_asked_again_at_the_pace_of_orders() -> None:
    table = begun("w1")
    free = [0]
    table.copies["w1"]._free_bytes = lambda: free[0]
    table.site.splits.keeping.keep(table.now())
    began_ms = table.ms
    table.settle(200)
    asked = table.sent_to("w1", Keep)
    assert 2 <= asked <= 1 + (table.ms - began_ms) // table.config.order_ms
    assert table.feed_of("w1").said.kept_reason.startswith("no space")
    free[0] = 1 << 40
    table.until(lambda: table.site.kept() == {"w1": 10})


def test_a_copy_of_the_last_split_does_not_count_for_the_next_one() -> None:
    table = begun()
    node = kept(table)
    # Given that the order to drop does not arrive
    table.is_held = lambda way: way[1] == node and way[2] == Keep.CHANNEL
    table.site.splits.keeping.drop(table.now())
    table.settle(3)
    before = table.feed_of(node).said.kept_number
    table.site.splits.keeping.keep(table.now())
    assert table.site.kept() == {}
    table.is_held = lambda _way: False
    table.until(lambda: bool(table.site.kept()))
    (other,) = table.site.kept()
    assert table.feed_of(other).said.kept_number > before
