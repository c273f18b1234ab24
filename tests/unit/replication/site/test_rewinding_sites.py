"""A site whose log goes back: who keeps a copy, who restores it, who is healed, and what of before counts for nothing."""

from __future__ import annotations

import random

import pytest

from brokerha.model.wire.messages import Apply, Coin, Execute, Executed, LoadFrom, Restore
from brokerha.replication.site.config import Standing
from tests.unit.replication.rewind_table import RewindTable


def begun(*workers: str, **settings: object) -> RewindTable:
    """A site with ten transactions, all in sync."""
    table = RewindTable(*(workers or ("w1", "w2", "w3")), **settings)
    table.write(*[f"a{number}" for number in range(10)])
    table.until(lambda: table.are_in_sync(*table.config.workers))
    return table


def kept(table: RewindTable) -> str:
    """Have a copy kept; returns who keeps it."""
    table.site.splits.keeping.keep(table.now())
    table.until(lambda: bool(table.site.kept()))
    (node,) = table.site.kept()
    return node


# ---- going back


def test_who_keeps_a_copy_restores_it_and_heals_the_others() -> None:
    table = begun()
    node = kept(table)
    table.write("b0", "b1", "b2", "b3")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    names = {each: copy.journal for each, copy in table.copies.items()}
    # When the log goes back, and on with others in another order
    table.go_back(11, 5)
    assert {each.standing for each in table.site.workers.values()} == {Standing.OUT_OF_SYNC}
    assert table.site.readable(table.ms) == []
    table.write("c0", "b3", "c1", "b2", "b1")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    # Then one was restored, and the others loaded from it
    assert table.sent_to(node, Restore) == 1
    assert table.sent_to(node, LoadFrom) == 0
    assert all(table.sent_to(each, LoadFrom) and not table.sent_to(each, Restore) for each in names if each != node)
    assert all(copy.journal != names[each] for each, copy in table.copies.items())
    assert {copy.lineage for copy in table.copies.values()} == {5}
    # And what is kept stays until it is dropped
    assert table.site.kept() == {node: 10}
    table.site.splits.keeping.drop(table.now())
    table.until(lambda: table.copies[node].kept is None)


def test_workers_that_are_not_beyond_just_go_on() -> None:
    table = begun()
    names = {each: copy.journal for each, copy in table.copies.items()}
    table.go_back(10, 5)
    table.write("c0", "c1")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    assert {each: copy.journal for each, copy in table.copies.items()} == names
    assert {copy.lineage for copy in table.copies.values()} == {5}


def test_where_nothing_is_lost_everybody_stays_in_sync() -> None:
    table = begun()
    table.go_back(10, 5)
    assert [each.node for each in table.site.in_sync(table.ms)] == ["w1", "w2", "w3"]
    for number in range(10):
        table.write(f"c{number}")
        table.turn()
        assert len(table.site.in_sync(table.ms)) == 3
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))


def test_one_that_was_behind_heals_those_that_are_beyond_without_any_kept_copy() -> None:
    table = begun()
    table.is_held = lambda way: way[1] == "w3"
    table.write("b0", "b1")
    table.until(lambda: table.copies["w1"].applied().lsn == table.copies["w2"].applied().lsn == 12)
    # Given that what was on its way is lost; else it would take those lines before it hears that they are void
    table.mail = {way: letters for way, letters in table.mail.items() if way[1] != "w3"}
    table.is_held = lambda _way: False
    table.go_back(10, 5)
    table.write("c0")
    name = table.copies["w3"].journal
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    assert table.copies["w3"].journal == name
    assert table.sent_to("w1", LoadFrom)
    assert table.sent_to("w2", LoadFrom)


def test_a_site_without_any_usable_copy_takes_one_from_another_site() -> None:
    table = begun(others=("x1",))
    table.write("b0", "b1")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    kept(table)
    # What was kept is beyond as well
    table.go_back(10, 5)
    assert table.site.kept() == {}
    table.write("c0", "c1", "c2")
    table.foreign("x1", lineage=5)
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    assert not any(table.sent_to(node, Restore) for node in ("w1", "w2", "w3"))


def test_a_site_that_can_restore_does_not_take_anything_from_another_one() -> None:
    table = begun(others=("x1",))
    kept(table)
    table.write("b0", "b1")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    table.go_back(10, 5)
    table.write("c0")
    table.foreign("x1", lineage=5)
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    assert not table.sent_to("x1", object)


def test_what_is_kept_and_damaged_leads_to_a_load() -> None:
    table = begun(others=("x1",))
    node = kept(table)
    table.write("b0")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    table.copies[node].drop_kept()
    table.go_back(10, 5)
    table.write("c0", "c1")
    table.foreign("x1", lineage=5)
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    assert table.sent_to(node, Restore) == 1
    assert table.sent_to(node, LoadFrom)


def test_going_back_again_while_a_copy_is_restored_and_behind_it_afterwards() -> None:
    table = begun()
    node = kept(table)
    table.write("b0", "b1", "b2", "b3")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    table.go_back(12, 5)
    table.write("c0", "c1")
    table.settle(4)
    table.go_back(11, 7)
    table.write("d0", "d1", "d2")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    assert {copy.lineage for copy in table.copies.values()} == {7}
    # And once more behind what is kept: nobody of this site can come back by itself
    table.go_back(9, 9)
    assert table.site.kept() == {}
    table.settle(50)
    assert table.site.in_sync(table.ms) == []
    assert table.feed_of(node).condemned


def test_going_back_twice_by_the_same_number_changes_nothing() -> None:
    table = begun()
    table.go_back(10, 5)
    table.write("c0")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    table.feed.rewind(9, 5, table.ms)
    assert table.feed.executed == 11
    assert len(table.site.in_sync(table.ms)) == 3


# ---- what comes late


def test_a_report_of_before_brings_nobody_back_in_sync() -> None:
    table = begun("w1", "w2")
    table.write("b0", "b1")
    table.settle()
    said = table.feed_of("w1").progress
    assert said is not None
    assert said.applied_lsn == 12
    table.go_back(10, 5)
    # The log has these places again, and no results there yet to compare it with
    table.write("c0", "c1", "c2")
    table.deliver("w1", "m1", said)
    assert table.feed_of("w1").standing is not Standing.ON
    assert table.feed_of("w1").condemned


def test_a_report_of_before_that_was_not_beyond_brings_nobody_back_in_sync() -> None:
    table = begun("w1", "w2")
    said = table.feed_of("w1").progress
    assert said is not None
    table.write("b0", "b1")
    table.until(lambda: table.are_in_sync("w1", "w2"))
    table.start_master()
    table.go_back(11, 5)
    table.deliver("w1", "m1", said)
    # It may have gone on since, as this one has
    assert table.feed_of("w1").standing is Standing.OUT_OF_SYNC
    table.settle()
    assert table.feed_of("w1").condemned


def test_results_of_before_are_not_those_of_what_is_at_their_places_now() -> None:
    table = begun("w1")
    reports = [out.message for sender, out in table.sent if isinstance(out.message, Executed)]
    node = kept(table)
    table.write("b0", "b1")
    table.until(lambda: table.are_in_sync("w1"))
    reports += [out.message for _, out in table.sent if isinstance(out.message, Executed) and out.message.first_lsn > 10]
    table.go_back(10, 5)
    table.write("c0", "c1")
    for report in reports:
        table.deliver("w1", "m1", report)
    assert table.feed.executed == 10
    table.until(lambda: table.are_in_sync("w1"))
    assert table.sent_to(node, Restore) == 1


def test_lines_of_before_that_come_late_are_not_applied() -> None:
    table = begun("w1", "w2")
    kept(table)
    # Given that what goes to w2 is held up
    table.is_held = lambda way: way[1] == "w2"
    table.write("b0", "b1", "b2")
    table.until(lambda: table.copies["w1"].applied().lsn == 13)
    table.go_back(10, 5)
    table.write("c0", "c1", "c2", "c3")
    table.settle(20)
    # When all of it comes at once: the lines of before, the order to go over, the lines of now
    table.is_held = lambda _way: False
    table.until(lambda: table.are_in_sync("w1", "w2"))
    table.settle()
    assert table.are_in_sync("w1", "w2")


def test_lines_that_come_again_after_the_restore_are_not_applied() -> None:
    table = begun("w1", "w2")
    node = kept(table)
    table.write("b0", "b1", "b2")
    table.until(lambda: table.are_in_sync("w1", "w2"))
    again = [out.message for _, out in table.sent if out.to == node and isinstance(out.message, Apply | Execute)]
    assert any(message.first_lsn == 11 for message in again)
    table.go_back(10, 5)
    table.until(lambda: table.copies[node].lineage == 5)
    for message in again:
        table.deliver("m1", node, message)
    table.settle()
    assert table.copies[node].applied().lsn == 10
    table.write("c0", "c1", "c2", "c3")
    table.until(lambda: table.are_in_sync("w1", "w2"))


def test_a_worker_that_was_away_comes_back_by_what_it_kept() -> None:
    table = begun()
    node = kept(table)
    table.write("b0", "b1", "b2")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    table.crash(node)
    table.go_back(11, 5)
    table.write("c0")
    table.settle(400)
    assert table.site.in_sync(table.ms) == []
    table.start(node)
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    assert table.sent_to(node, Restore) >= 1


def test_a_master_that_starts_again_knows_what_is_void() -> None:
    table = begun()
    kept(table)
    table.write("b0", "b1", "b2")
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))
    table.go_back(11, 5)
    table.write("c0", "c1", "c2")
    table.start_master(table.site.lineages.rewinds)
    table.until(lambda: table.are_in_sync("w1", "w2", "w3"))


def test_an_order_to_go_over_is_given_again_until_it_is_followed() -> None:
    table = begun("w1")
    before = table.sent_to("w1", Coin)
    table.go_back(10, 5)
    table.feed.messages(table.ms)
    # Given that the first one is lost
    assert table.site.take_orders(table.ms) == []
    table.until(lambda: table.copies["w1"].lineage == 5)
    assert table.sent_to("w1", Coin) == before + 1


# ---- everything at once


def disturb(table: RewindTable, rng: random.Random) -> None:
    """Something happens to processes or messages."""
    nodes, event = set(table.config.workers), rng.random()
    if event < 0.12 and (alive := sorted(table.workers.keys() & nodes)):
        table.crash(rng.choice(alive))
    elif event < 0.30 and (dead := sorted(nodes - table.workers.keys())):
        table.start(rng.choice(dead))
    elif event < 0.38:
        table.start_master(table.site.lineages.rewinds)
    elif event < 0.55:
        held = {way for way in table.mail if rng.random() < 0.4}
        table.is_held = held.__contains__
    elif event < 0.65:
        for way in table.mail:
            if rng.random() < 0.3:
                table.mail[way].clear()
    elif event < 0.8 and table.sent:
        # A connection was lost: what had come, and was not confirmed yet, comes again.
        sender, out = table.sent[-rng.randrange(1, min(len(table.sent), 100) + 1)]
        table.deliver(sender, out.to, out.message)
    else:
        table.is_held = lambda _way: False


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_all_come_to_what_the_log_says(seed: int) -> None:
    rng = random.Random(seed)
    nodes = ("w1", "w2", "w3")[: rng.choice((1, 2, 3, 3))]
    table = RewindTable(*nodes, others=("x1",), window=rng.choice((3, 4000)))
    lineage, values = 0, iter(range(10_000))
    for _ in range(rng.randrange(30, 120)):
        event = rng.random()
        if event < 0.35:
            table.write(*[str(next(values)) for _ in range(rng.randrange(1, 5))])
        elif event < 0.42:
            table.site.splits.keeping.keep(table.now())
        elif event < 0.46:
            table.site.splits.keeping.drop(table.now())
        elif event < 0.54:
            lineage += rng.randrange(1, 3)
            table.go_back(max(0, table.lsn - rng.choice((0, 0, 1, 3, 10))), lineage)
        else:
            disturb(table, rng)
        table.settle(rng.randrange(1, 8), step_ms=rng.choice((5, 20, 300)))
    # When peace comes, and another site has all of it
    table.is_held = lambda _way: False
    for node in sorted(set(nodes) - table.workers.keys()):
        table.start(node)
    table.foreign("x1", lineage)
    table.until(lambda: table.are_in_sync(*nodes), turns=3000)
    table.write("last")
    table.until(lambda: table.are_in_sync(*nodes), turns=3000)
    table.until(lambda: table.feed.executed == table.lsn)
