"""Named scenarios of the strategies smart, simple and none, as given / when / then on the shipped code in a scripted world: two
countries lose each other, both go on, and come together again. What the paper says of it stands in the docstrings.

The checkers of the simulator watch every step, and at the end: one queue with everything in it once, and in smart and simple every
copy with what this queue makes. A scenario states what is special about it: who goes back, what each site holds, what the books say.
"""

from __future__ import annotations

import pytest

from brokerha.model import states
from brokerha.model.etags import etag_of
from brokerha.model.ready import KeepCopy, OpenLoad, RestoreKept
from tests.simulation.mistakes.catalogue import planted
from tests.simulation.mode_scene import MODES, UK, US, ModeScene
from tests.simulation.split_scene import LAG_MS

US_OF_TWO = "m3 m4"


def sold(mode: str, us: str = US) -> ModeScene:
    """A shop with two masters in London (m1, m2) and the others in New York: book-1 is sold, and the cable between them is cut. Both
    sides say what a book costs, and both sell the only seat of a reading; London sells one book more."""
    scene = ModeScene(mode, len(f"{UK} {us}".split()))
    scene.put("m1", "book-1", b"price", b"10")
    scene.agree()
    scene.part(UK, us)
    for side, master in (("uk", "m1"), ("us", "m3")):
        scene.put(master, f"{side}-price", b"price", side.encode())
        scene.claim(master, f"{side}-seat", b"seat", side.encode())
    scene.put("m2", "uk-book", b"book", b"sold")
    # What nobody waits for lingers
    scene.run(100)
    return scene


UK_SALES, US_SALES = ["uk-price", "uk-seat", "uk-book"], ["us-price", "us-seat"]


class TestAnOldLog:
    """A cluster that nobody wrote to for longer than its log is kept: no entry is held any more."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("writes", [[], ["m1"], ["m3"], ["m1", "m3"]])
    def test_sides_that_lose_each_other_come_together_again(self, mode: str, writes: list[str]) -> None:
        scene = ModeScene(mode)
        scene.put("m1", "a", b"key", b"1")
        scene.put("m3", "b", b"key", b"2")
        scene.agree()
        for node in scene.names:
            scene.master(node).journal.trim(3)
        assert [scene.master(node).journal.first_lsn() for node in scene.names] == [3, 3, 3]
        # When one side, or each, goes on
        scene.part(UK, US)
        for node in writes:
            scene.put(node, f"t-{node}", b"key", node.encode())
        # Then they agree on the same queue after what nobody holds
        scene.come_together()
        assert [scene.lsn(node) for node in scene.names] == [2 + len(writes)] * 3


class TestTheTimeOut:
    """The masters become disconnected, and wait in the hope that the connection will become available."""

    @pytest.mark.parametrize("mode", MODES)
    def test_one_broken_adapter_changes_nothing(self, mode: str) -> None:
        """In case only one connection between the parts is lost the system continues to function."""
        scene = ModeScene(mode)
        scene.cut("m1", "m3")
        scene.run(3 * LAG_MS)
        # Then nobody parts, and writes are a hop slower
        write = scene.write("m1", "t1")
        assert scene.until(lambda: write.is_done) < 100
        assert scene.nobody_was_left_out()
        scene.come_together()
        assert [scene.gave_up(node) for node in scene.names] == [[], [], []]

    @pytest.mark.parametrize("mode", ["smart", "simple"])
    def test_updates_are_collected_and_go_on_after_the_time_out(self, mode: str) -> None:
        """They continue to collect updates, but do not execute them; after the timeout is reached both parts do a backup of the
        database using one of the workers, and continue to execute updates."""
        scene = ModeScene(mode, workers=2)
        scene.split(UK, US)
        writes = [scene.write("m1", "a"), scene.write("m3", "c")]
        # When the time is not over, then nothing is executed, and one worker of each site has made a copy already
        scene.run(LAG_MS - 1_300)
        assert not any(write.is_done for write in writes)
        assert {scene.lsn(node) for node in scene.names} == {0}
        assert [node[:2] for node in scene.kept()] == ["m1", "m2", "m3"]
        # When it is, then both parts go on
        scene.all_done(writes)
        assert (scene.order("m1"), scene.order("m2"), scene.order("m3")) == (["a"], ["a"], ["c"])
        assert {scene.state(node)[0] for node in scene.names} == {states.SPLIT}
        scene.come_together()
        assert scene.kept() == []

    def test_with_none_updates_are_not_delayed(self) -> None:
        """No action: no backup will be taken upon split detection; updates will not be delayed upon split."""
        scene = ModeScene("none", max_peer_lag_ms=5 * LAG_MS)
        scene.split(UK, US)
        writes = [scene.write("m1", "a"), scene.write("m3", "c")]
        # Then both parts go on in a fifth of a second, long before news of the others could have come round
        assert scene.until(lambda: all(write.is_done for write in writes), 5 * LAG_MS) < 300
        scene.come_together()
        assert scene.who_began(KeepCopy) == []

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("us", [US, US_OF_TWO])
    def test_a_client_of_one_country_sees_other_results_than_one_of_the_other(self, mode: str, us: str) -> None:
        """Both databases are inconsistent for the time being."""
        scene = sold(mode, us)
        both = len(us.split())
        assert scene.values(b"price") == [b"uk"] * 2 + [b"us"] * both
        assert scene.values(b"seat") == [b"uk"] * 2 + [b"us"] * both
        assert [scene.outcome(node, "us-seat")[0] for node in us.split()] == ["applied"] * both
        scene.come_together()


class TestSmart:
    """Same as Simple, except that after re-joining the cluster one master's state will be deemed correct."""

    def test_two_in_the_uk_and_one_in_the_us(self) -> None:
        """The majority vote decides that the UK part is "correct". The US cluster restores its database, negotiates its updates as new
        updates, and catches up with the UK cluster; both UK data centers continue executing updates."""
        scene = sold("smart")
        correct = scene.order("m1")
        scene.come_together()
        # Then the log of London is as it was, and what New York sold comes after it
        assert scene.order("m3") == [*correct, *US_SALES] == ["book-1", *UK_SALES, *US_SALES]
        # And New York alone has restored
        assert scene.who_began(RestoreKept) == ["m3w1"]
        assert scene.who_began(OpenLoad) == []
        # And the price is what was said last in that order, and the seat is London's
        assert scene.values(b"price") == [b"us"] * 3
        assert scene.values(b"seat") == [b"uk"] * 3
        # And the report says who moved, and that one of them is not what its client was told
        assert [scene.gave_up(node) for node in scene.names] == [[(4, 0)], [(4, 0)], [(1, 2)]]
        assert scene.book("m3") == [
            (2, "us-price", "applied", 5, "applied", "executed again"),
            (3, "us-seat", "applied", 6, "rejected", "rejected now"),
        ]
        assert {scene.outcome(node, "us-seat") for node in scene.names} == {("rejected", 6)}

    def test_the_side_with_more_masters_stays_however_much_the_other_one_did(self) -> None:
        scene = ModeScene("smart")
        scene.part(UK, US)
        scene.put_many("m3", "c", 30)
        scene.put("m1", "a", b"key", b"uk")
        scene.come_together()
        assert scene.order("m1") == ["a", *(f"c{number}" for number in range(30))]
        assert scene.effects("m3") == {"executed again": 30}

    @pytest.mark.parametrize(
        ("uk", "us", "stays"),
        [(3, 1, "m1"), (1, 3, "m3"), (2, 2, "m3"), (0, 0, "m3")],
        ids=["the uk is longer", "the us is longer", "as long", "nobody wrote"],
    )
    def test_two_in_the_uk_and_two_in_the_us(self, uk: int, us: int, stays: str) -> None:
        """Where there is no majority one of both is deemed correct: the longer one, then by the name of who decided its epoch."""
        scene = ModeScene("smart", 4)
        scene.put("m1", "before", b"key", b"before")
        scene.agree()
        scene.part(UK, US_OF_TWO)
        scene.put_many("m1", "a", uk)
        scene.put_many("m3", "c", us)
        if uk == us:
            assert scene.epoch_id("m1") < scene.epoch_id("m3")
        correct, goes = scene.order(stays), (US_OF_TWO if stays == "m1" else UK).split()
        scene.come_together()
        assert scene.order("m1")[: len(correct)] == correct
        assert scene.who_began(RestoreKept) == [f"{node}w1" for node in goes if uk and us]
        # All masters name the same winner
        moved = [(1, uk if stays == "m3" else us)]
        assert {node: scene.gave_up(node) for node in goes} == dict.fromkeys(goes, moved)
        assert [total for node in scene.names if node not in goes for _, total in scene.gave_up(node)] == [0, 0]


class TestSimple:
    """Resync and replay from last known good state."""

    @pytest.mark.parametrize("us", [US, US_OF_TWO])
    def test_all_workers_go_back_and_execute_what_is_synchronised_again(self, us: str) -> None:
        """All workers will be restored to the last known good state before the split; transactions after the split will be re-synced
        across the cluster and re-executed."""
        scene = sold("simple", us)
        scene.come_together()
        # Then every site has restored, and every master has given up what its side had done
        assert scene.who_began(RestoreKept) == [f"{node}w1" for node in scene.names]
        assert [scene.gave_up(node) for node in scene.names] == [[(1, 3)]] * 2 + [[(1, 2)]] * len(us.split())
        # And all of it is there again, each side's in its own order
        order = scene.order("m1")
        assert sorted(order) == sorted(["book-1", *UK_SALES, *US_SALES])
        assert [txid for txid in order if txid in US_SALES] == US_SALES
        assert [txid for txid in order if txid in ("uk-price", "uk-seat")] == ["uk-price", "uk-seat"]
        # And the book of each master says the same of now as the log
        for node in scene.names:
            for old, txid, before, lsn, now, effect in scene.book(node):
                assert (before, lsn, (now, lsn)) == ("applied", 1 + order.index(txid), scene.outcome("m1", txid))
                changed = "rejected now" if now == "rejected" else "executed again"
                assert effect == (changed if now == "rejected" or lsn != old else "same place")
        # And the seat is sold once
        first, second = sorted(("uk-seat", "us-seat"), key=order.index)
        assert (scene.outcome("m3", first)[0], scene.outcome("m3", second)[0]) == ("applied", "rejected")
        assert scene.values(b"seat") == [first[:2].encode()] * len(scene.names)

    def test_what_is_ordered_anew_is_ordered_by_time_and_not_by_side(self) -> None:
        # Given that m3 has a clock far behind, and goes on alone
        scene = ModeScene("simple")
        scene.part(UK, US)
        scene["m3"].clock.jump(-500_000)
        scene.put_many("m1", "a", 3)
        scene.put_many("m3", "c", 3)
        scene.come_together()
        # Then neither side is preferred, and both have given up what they had
        order = scene.order("m1")
        assert sorted(order) == ["a0", "a1", "a2", "c0", "c1", "c2"]
        stamps = [stamp for stamp, _, _ in scene.master("m1").journal.ordered(1, 10)]
        assert stamps == sorted(stamps)
        assert [scene.gave_up(node) for node in scene.names] == [[(0, 3)]] * 3


class TestNone:
    """No action: no workers will be restored from backup upon re-joining the cluster."""

    @pytest.mark.parametrize("us", [US, US_OF_TWO])
    def test_every_site_keeps_what_it_did_and_executes_what_it_lacks(self, us: str) -> None:
        scene = sold("none", us)
        in_the_us = us.split()
        scene.come_together()
        # Then the log is one, and nobody has restored anything
        assert scene.order("m3") == ["book-1", *UK_SALES, *US_SALES]
        assert scene.who_began(RestoreKept) == scene.who_began(OpenLoad) == []
        # And each site has first what it did, then what the other one did, so that each ends with the other one's price
        assert scene.values(b"price") == [b"us"] * 2 + [b"uk"] * len(in_the_us)
        # And both have sold the seat
        assert scene.values(b"seat") == [b"uk"] * 2 + [b"us"] * len(in_the_us)
        # And each side tells its clients what it had told them
        assert {scene.outcome(node, "us-seat") for node in in_the_us} == {("applied", 6)}
        assert {scene.outcome(node, "uk-seat") for node in in_the_us} == {("rejected", 3)}
        assert {scene.outcome(node, "us-seat") for node in UK.split()} == {("rejected", 6)}
        # And the book says that New York did it once
        for node in in_the_us:
            assert scene.book(node) == [
                (2, "us-price", "applied", 5, "applied", "not executed again"),
                (3, "us-seat", "applied", 6, "applied", "not executed again"),
            ]
            assert scene.splits(node)[0]["keeps_content"]
        # And status names the sites that differ
        assert {scene.state(node)[0] for node in scene.names} == {states.DIFFERS}

    def test_a_message_is_taken_in_once_at_each_site(self) -> None:
        """What adds to what it finds would show if it were executed twice."""
        scene = ModeScene("none")
        scene.part(UK, US)
        for number in range(3):
            write = scene.hand_in("m3", f"c{number}", ("publish", "orders", "text/plain", b"%d" % number))
            scene.all_done([write, scene.hand_in("m1", f"a{number}", ("publish", "orders", "text/plain", b"%d" % number))])
        scene.come_together()
        assert [scene.messages(f"{node}w1", "orders") for node in scene.names] == [6, 6, 6]

    def test_sides_that_write_keys_of_their_own_end_alike(self) -> None:
        scene = ModeScene("none")
        scene.part(UK, US)
        scene.put_many("m1", "a", 5)
        scene.put_many("m3", "c", 5)
        scene.come_together()
        scene.run(3_000)
        assert scene.content("m3w1") == scene.content("m1w1")
        assert len(scene.content("m3w1")) == 10
        assert {scene.state(node)[0] for node in scene.names} == {states.OK}


class TestTheReport:
    """After every recovery each master tells which transactions lost their place, and what became of them."""

    def test_every_effect_of_smart(self) -> None:
        # Given a seat that is free, and one that is taken
        scene = ModeScene("smart")
        scene.put("m1", "before", b"taken", b"uk")
        scene.agree()
        scene.part(UK, US)
        # And in the US: a price, a sale of the free seat, of the taken one, and one that asks for what only the UK has written
        scene.put("m3", "price", b"price", b"us")
        scene.claim("m3", "free", b"free", b"us")
        scene.claim("m3", "taken", b"taken", b"us")
        expects = [("expect-key", "table", b"news", etag_of(b"uk")), ("put", "table", b"reader", b"us")]
        scene.all_done([scene.hand_in("m3", "reader", *expects)])
        # And in the UK: the free seat, and the news
        scene.claim("m2", "uk-free", b"free", b"uk")
        scene.put("m1", "uk-news", b"news", b"uk")
        scene.come_together()
        # Then the book of the US has them all, with what their clients were told and what is so now
        assert scene.book("m3") == [
            (2, "price", "applied", 4, "applied", "executed again"),
            (3, "free", "applied", 5, "rejected", "rejected now"),
            (4, "taken", "rejected", 6, "rejected", "re-ordered"),
            (5, "reader", "rejected", 7, "applied", "applied now"),
        ]
        assert scene.effects("m3") == {"executed again": 1, "rejected now": 1, "re-ordered": 1, "applied now": 1}
        # And the head of it says where it went back, and when the last of them was written
        (split,) = scene.splits("m3")
        assert (split["lsn"], split["total"], split["held"], split["counted"]) == (1, 4, 4, 4)
        assert (split["epoch"], split["lineage"], split["keeps_content"]) == (2, scene.epoch_id("m1")[0], False)
        # And the UK has it in its list, with nothing in it, and not as another lineage
        for node in UK.split():
            (other,) = scene.splits(node)
            assert (other["lsn"], other["total"], other["last_write"], other["lineage"]) == (3, 0, None, split["lineage"])

    def test_what_none_had_not_applied_is_executed(self) -> None:
        scene = ModeScene("none")
        scene.part(UK, US)
        expects = [("expect-key", "table", b"news", etag_of(b"uk")), ("put", "table", b"reader", b"us")]
        scene.all_done([scene.hand_in("m3", "reader", *expects)])
        scene.put("m3", "price", b"price", b"us")
        scene.put("m1", "news", b"news", b"uk")
        scene.come_together()
        assert scene.book("m3") == [
            (1, "reader", "rejected", 2, "applied", "applied now"),
            (2, "price", "applied", 3, "applied", "not executed again"),
        ]
        assert scene.values(b"reader") == [b"us"] * 3

    def test_it_waits_until_it_is_executed_again(self) -> None:
        # Given that the only worker of the US is away when the sides come together
        scene = ModeScene("smart")
        scene.part(UK, US)
        scene.put("m3", "c", b"key", b"us")
        scene.put("m1", "a", b"key", b"uk")
        scene.kill("m3w1")
        scene.heal()
        scene.until_members(*scene.names)
        scene.run(2_000)
        assert scene.book("m3") == [(1, "c", "applied", 2, None, "waits")]
        # When it is back
        scene.start("m3w1")
        scene.come_together()
        assert scene.book("m3") == [(1, "c", "applied", 2, "applied", "executed again")]

    @pytest.mark.parametrize("mode", MODES)
    def test_each_split_has_its_own_entry_over_restarts(self, mode: str) -> None:
        scene = ModeScene(mode)
        for place in range(3):
            scene.part(UK, US)
            scene.put("m1", f"a{place}", b"a", b"a")
            scene.put("m3", f"c{place}", b"c", b"c")
            scene.come_together()
        before = {node: scene.splits(node) for node in scene.names}
        assert scene.gave_up("m3") == [(0, 1), (2, 1), (4, 1)]
        assert scene.gave_up("m1") == ([(0, 1), (2, 1), (4, 1)] if mode == "simple" else [(1, 0), (3, 0), (5, 0)])
        assert [split["lineage"] for split in before["m1"]] == [split["lineage"] for split in before["m3"]]
        scene.kill(*scene.names)
        scene.start(*scene.names)
        scene.come_together()
        assert {node: scene.splits(node) for node in scene.names} == before


def test_a_planted_mistake_about_who_stays_is_seen() -> None:
    def order() -> list[str]:
        scene = ModeScene("smart")
        scene.part(UK, US)
        scene.put("m1", "uk", b"key", b"uk")
        scene.put("m3", "us", b"key", b"us")
        scene.come_together()
        return scene.order("m1")

    # The side with more masters stays as it is
    assert order() == ["uk", "us"]
    with planted("second head stays"):
        assert order() == ["us", "uk"]
