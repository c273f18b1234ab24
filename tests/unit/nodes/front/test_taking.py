"""Taking messages at one master and at two: what is claimed, given, renewed and given back."""

from __future__ import annotations

import pytest

from brokerha.model.errors import BrokerhaError, NotReady, TimedOut
from brokerha.model.requests import REFUSED, REJECTED_STATUS, UNKNOWN, Reply
from brokerha.model.reserved.claims import LEASE_MS, claims_in
from brokerha.nodes.front.taking import ASKED_MS, IDLE_MS, PAUSE_MS, PORTION_LIMIT, RENEW_MS, SURELY_MS
from brokerha.transactions.locks import Locks
from tests.unit.nodes.front.taking_world import Master, World, names, taken


@pytest.fixture
def world() -> World:
    return World()


# ---- one master


def test_the_first_messages_that_nobody_holds_are_given_in_order(world: World) -> None:
    world.queue, world.prepared = names(4), {"t.2"}
    one = Master(world)
    first = one.accept(2)
    assert taken(first) == ["t.1", "t.3"]
    assert first.future.result(0)["count"] == 2
    assert first.future.result(0)["messages"][0] == ("t.1", "text/plain", b"t.1")
    assert taken(one.accept(5)) == ["t.4"]


def test_what_a_rollback_gave_back_comes_first_again_and_what_is_gone_does_not(world: World) -> None:
    world.queue = names(10)
    one = Master(world)
    takings = [one.accept() for _ in range(4)]
    assert [taken(each) for each in takings] == [["t.1"], ["t.2"], ["t.3"], ["t.4"]]
    one.locks.release(takings[1].txid)
    # It was taken away by name meanwhile, which no lock of this master shows.
    one.locks.release(takings[2].txid)
    world.queue.remove("t.3")
    assert taken(one.accept(2)) == ["t.2", "t.5"]


def test_who_is_quick_is_served_from_what_was_claimed_before(world: World) -> None:
    world.queue = names(2000)
    one = Master(world)
    for number in range(1000):
        taking = one.accept()
        assert taken(taking) == [f"t.{number + 1}"]
        one.commit(taking)
        one.tick(1)
    assert one.claims <= 12
    assert len(one.reads) <= 12
    assert max(arguments["limit"] for arguments in one.reads) == PORTION_LIMIT


def test_who_is_slow_leaves_the_others_to_others(world: World) -> None:
    world.queue = names(100)
    one = Master(world)
    for _ in range(20):
        taking = one.accept()
        for _ in range(15):
            one.tick(100)
        one.commit(taking)
        one.tick(100)
    assert len(world.claimed("m1")) <= 1


def test_the_last_messages_are_not_claimed_by_one_master(world: World) -> None:
    one, two = Master(world), Master(world, "m2")
    world.queue = names(400)
    for _ in range(300):
        one.commit(one.accept())
    assert len(world.queue) == 100
    assert len(world.claimed("m1")) < 100
    assert len(taken(two.accept())) == 1


def test_a_repeated_call_gives_the_same_messages_wherever_they_stand(world: World) -> None:
    world.queue = names(8)
    one = Master(world)
    assert taken(one.accept(5)) == names(5)
    first = one.accept(2, txid="mine")
    again = one.accept(2, txid="mine")
    assert taken(first) == taken(again) == ["t.6", "t.7"]
    # Also when this process does not know the queue any more.
    one.consumers = one.started()
    assert taken(one.accept(2, txid="mine")) == ["t.6", "t.7"]
    world.queue.remove("t.7")
    one.consumers = one.started()
    assert isinstance(one.accept(2, txid="mine").future.exception(0), NotReady)


def test_an_empty_queue_gives_nothing_at_once_and_costs_no_claim(world: World) -> None:
    one = Master(world)
    assert taken(one.accept()) == []
    one.tick(IDLE_MS)
    assert (one.claims, one.consumers.due_ms(), len(one.consumers)) == (0, None, 0)


def test_who_waits_is_served_when_something_was_applied(world: World) -> None:
    one = Master(world)
    taking = one.accept(wait_ms=5000)
    assert one.consumers.due_ms() == 1000 + SURELY_MS
    world.queue, world.lsn = ["t.1"], world.lsn + 1
    assert one.consumers.due_ms() == 1000 + PAUSE_MS
    one.tick(PAUSE_MS - 1)
    assert not taking.future.done()
    one.tick(1)
    assert taken(taking) == ["t.1"]


def test_a_queue_is_looked_at_ten_times_a_second_at_most(world: World) -> None:
    one = Master(world)
    one.accept(wait_ms=5000)
    for _ in range(1000):
        world.lsn += 1
        one.tick(1)
    assert len(one.reads) <= 11


def test_a_message_that_comes_back_by_a_rollback_is_found_within_a_second(world: World) -> None:
    world.queue = ["t.1"]
    one = Master(world)
    first = one.accept()
    taking = one.accept(wait_ms=5000)
    one.locks.release(first.txid)
    one.tick(SURELY_MS)
    assert taken(taking) == ["t.1"]


def test_who_waits_in_vain_gets_nothing_when_the_time_is_over(world: World) -> None:
    one = Master(world)
    taking = one.accept(wait_ms=300)
    one.tick(299)
    assert not taking.future.done()
    one.tick(1)
    assert taken(taking) == []


def test_large_messages_are_claimed_in_small_portions(world: World) -> None:
    world.queue, world.size = names(40), 1024 * 1024
    one = Master(world)
    for number in range(40):
        taking = one.accept()
        assert taken(taking) == [f"t.{number + 1}"]
        assert len(world.claimed("m1")) <= 6
        one.commit(taking)


# ---- claims


def test_a_claim_is_renewed_while_a_message_is_held_and_given_back_after_that(world: World) -> None:
    world.queue = names(3)
    one = Master(world)
    taking = one.accept()
    beats = []
    for _ in range(10):
        one.tick(RENEW_MS)
        assert world.claimed("m1") == ("t.1",)
        assert world.row is not None
        beats.append(claims_in(world.row)["m1"].beat)
    assert beats == sorted(set(beats))
    one.locks.release(taking.txid)
    for _ in range(4):
        one.tick(IDLE_MS)
    assert (world.claimed("m1"), world.row, one.consumers.due_ms()) == ((), None, None)


def test_what_was_taken_to_the_last_is_not_given_back_by_a_transaction(world: World) -> None:
    world.queue = names(1)
    one = Master(world)
    one.commit(one.accept())
    for _ in range(4):
        one.tick(IDLE_MS)
    assert (one.claims, one.consumers.due_ms()) == (1, None)


def test_claims_of_a_master_that_is_gone_count_no_more_after_their_time(world: World) -> None:
    world.queue = names(1)
    one, two = Master(world), Master(world, "m2")
    one.accept()
    taking = two.accept(wait_ms=60_000)
    for _ in range(LEASE_MS // 100 - 1):
        two.tick(100)
        assert not taking.future.done()
    for _ in range(12):
        two.tick(100)
    assert taken(taking) == ["t.1"]
    assert (world.claimed("m1"), world.claimed("m2")) == ((), ("t.1",))


def test_who_asks_once_in_a_while_gets_what_a_master_that_is_gone_had_claimed(world: World) -> None:
    world.queue = names(1)
    one, two = Master(world), Master(world, "m2")
    one.accept()
    found = []
    for _ in range(2):
        taking = two.accept()
        for _ in range(600):
            two.tick(100)
        found.append(taken(taking))
    assert found == [[], ["t.1"]]


def test_claims_of_a_master_that_renews_them_count_however_long_it_takes(world: World) -> None:
    world.queue = names(1)
    one, two = Master(world), Master(world, "m2")
    one.accept()
    taking = two.accept(wait_ms=60_000)
    for _ in range(500):
        one.consumers.tick(world.now_ms)
        two.tick(100)
    assert not taking.future.done()


def test_a_process_goes_on_with_what_another_one_of_its_master_has_claimed(world: World) -> None:
    world.queue = names(2)
    one, two = Master(world), Master(world, "m2")
    one.accept(2)
    one.locks, one.takes = Locks(), {}
    one.consumers = one.started()
    assert taken(one.accept(1)) == ["t.1"]
    # It keeps them, too.
    for _ in range(100):
        one.consumers.tick(world.now_ms)
        two.tick(100)
        assert world.claimed("m1") == ("t.1", "t.2")


def test_what_nobody_takes_is_given_back_when_another_master_asks(world: World) -> None:
    world.queue = names(10)
    one, two = Master(world), Master(world, "m2")
    two.others = {"m1": one}
    held = one.accept(8)
    one.commit(one.accept())
    one.locks.release(one.accept().txid)
    assert world.claimed("m1") == (*names(8), "t.10")
    # Nobody asked m1 for t.10; who asks at m2 gets it well before m1 gives it back by itself, though he would not wait.
    taking = two.accept(2)
    for _ in range(30):
        one.consumers.tick(world.now_ms)
        two.tick(10)
    assert taken(taking) == ["t.10"]
    assert world.claimed("m1") == tuple(names(8))
    # What is held is never given back.
    empty = two.accept()
    for _ in range(30):
        one.consumers.tick(world.now_ms)
        two.tick(10)
    assert taken(empty) == []
    assert world.claimed("m1") == tuple(names(8))
    assert taken(held) == names(8)


def test_a_process_that_knows_nothing_of_a_queue_gives_back_what_one_before_it_claimed(world: World) -> None:
    world.queue = names(2)
    one, two = Master(world), Master(world, "m2")
    two.others = {"m1": one}
    one.accept(2)
    one.locks, one.takes = Locks(), {}
    one.consumers = one.started()
    taking = two.accept(2, wait_ms=1000)
    for _ in range(30):
        one.consumers.tick(world.now_ms)
        two.tick(10)
    assert taken(taking) == ["t.1", "t.2"]
    for _ in range(300):
        one.tick(10)
    assert one.consumers.due_ms() is None


def test_who_asks_in_vain_is_told_so_after_a_moment_and_asks_seldom(world: World) -> None:
    world.queue = names(1)
    one, two = Master(world), Master(world, "m2")
    one.accept()
    taking = two.accept()
    two.tick(ASKED_MS - 1)
    assert not taking.future.done()
    two.tick(1)
    assert taken(taking) == []
    assert len(two.wanted) <= 3


def test_of_two_that_claim_at_once_the_second_looks_again(world: World) -> None:
    world.queue = names(2)
    one, two = Master(world, is_slow=True), Master(world, "m2", is_slow=True)
    first, second = one.accept(), two.accept()
    for _ in range(10):
        one.step()
        two.step()
    assert [taken(first), taken(second)] == [["t.1"], ["t.2"]]
    assert (one.claims, two.claims) == (1, 2)


@pytest.mark.parametrize(
    ("refusal", "error", "text"),
    [
        (Reply(1, "c", REFUSED, 0, "ReadOnly", "too few backups"), BrokerhaError, "too few backups"),
        (
            Reply(1, "c", UNKNOWN, 0, "OutcomeUnknown", "no majority"),
            TimedOut,
            "did not agree in time who gives out messages of queue 'q'",
        ),
        (NotReady("the master is not running"), NotReady, "not running"),
    ],
)
def test_who_waits_is_told_when_nothing_can_be_claimed(world: World, refusal, error, text) -> None:
    world.queue = names(2)
    one = Master(world)
    one.refusal = refusal
    found = one.accept().future.exception(0)
    assert isinstance(found, error)
    assert text in str(found)
    one.refusal = None
    assert taken(one.accept()) == ["t.1"]


def test_who_waits_is_told_when_the_queue_cannot_be_read(world: World) -> None:
    one = Master(world)
    one.read_error = TimedOut("no worker")
    assert isinstance(one.accept().future.exception(0), TimedOut)


def test_a_claim_that_cannot_be_given_back_is_tried_again_once_a_second(world: World) -> None:
    world.queue = names(2)
    one = Master(world)
    one.locks.release(one.accept().txid)
    one.read_error = NotReady("no worker")
    before = len(one.reads)
    for _ in range(5000):
        one.tick(1)
    assert 3 <= len(one.reads) - before <= 6
    one.read_error = None
    one.refusal = Reply(1, "c", REJECTED_STATUS, 0, "Conflict", "conflict: others were faster")
    one.tick(SURELY_MS)
    assert world.claimed("m1") == ("t.1",)
    one.refusal = None
    one.tick(SURELY_MS)
    assert world.claimed("m1") == ()


def test_who_waits_with_others_waits_no_longer_than_his_own_time(world: World) -> None:
    world.queue = names(2)
    one = Master(world, is_slow=True)
    short, long = one.accept(end_ms=500), one.accept(end_ms=5000)
    one.tick(499)
    assert not short.future.done()
    assert one.consumers.due_ms() == world.now_ms + 1
    one.tick(1)
    assert isinstance(short.future.exception(0), TimedOut)
    while one.due:
        one.step()
    assert taken(long) == ["t.1"]


def test_when_the_order_went_back_nothing_is_given_without_a_look(world: World) -> None:
    world.queue = names(9)
    one = Master(world)
    one.accept(8)
    world.lsn -= 5
    reads = len(one.reads)
    assert taken(one.accept()) == ["t.9"]
    assert len(one.reads) == reads + 1


def test_a_master_that_ends_answers_everybody(world: World) -> None:
    world.queue = names(1)
    one = Master(world, is_slow=True)
    waiting = [one.accept(), one.accept(wait_ms=1000)]
    one.consumers.close(NotReady("over"))
    assert all(isinstance(each.future.exception(0), NotReady) for each in waiting)
    while one.due:
        one.step()
