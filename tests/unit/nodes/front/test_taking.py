"""Taking messages: what is claimed, given, renewed and given back; and that consumers at two masters never get the same message.

The world here is one queue and its row of claims, changed in one order, as every store changes them; each master has locks, as its core has.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgpack
import pytest

from brokerha.model import etags
from brokerha.model.claims import LEASE_MS, TABLE, claims_in
from brokerha.model.errors import BrokerhaError, NotReady, TimedOut
from brokerha.model.operations import unpack_operations
from brokerha.model.requests import APPLIED_LEVEL, REFUSED, REJECTED_STATUS, UNKNOWN, Reply, TxReply
from brokerha.nodes.front.taking import (
    ASKED_MS,
    IDLE_MS,
    PAUSE_MS,
    PORTION_LIMIT,
    RENEW_MS,
    SURELY_MS,
    Consumers,
    Taking,
    TakingHost,
)
from brokerha.ports.front import ReadOutcome
from brokerha.stores.reads.queues import QueueRange
from brokerha.stores.tables.queue_change import Message
from brokerha.transactions.locks import Locks


@dataclass
class World:
    """The order, as far as one queue needs it."""

    now_ms: int = 1000
    lsn: int = 10
    queue: list[str] = field(default_factory=list)
    prepared: set[str] = field(default_factory=set)
    row: bytes | None = None
    size: int = 1
    is_careless: bool = False
    """A mistake: the expectation of a claim is not judged."""

    def read(self, name: str, arguments: dict[str, Any]) -> ReadOutcome:
        found = QueueRange(name, arguments).claims(
            self.row,
            lambda after: iter([Message(each, "text/plain", each.encode().ljust(self.size)) for each in self.queue]),
            lambda: frozenset((name, each) for each in self.prepared),
            self.queue.__contains__,
        )
        return ReadOutcome("application/x-msgpack", self.lsn, msgpack.packb(found))

    def execute(self, body: bytes) -> Reply:
        self.lsn += 1
        expectation, change = unpack_operations(body)
        assert (expectation[0], expectation[1], change[1]) == ("expect-key", TABLE, TABLE)
        if not self.is_careless and expectation[3] != ("" if self.row is None else etags.etag_of(self.row)):
            return Reply(1, "claim", REJECTED_STATUS, self.lsn, "", "conflict: key 'q'")
        self.row = change[3] if change[0] == "put" else None
        return Reply(1, "claim", APPLIED_LEVEL, self.lsn)

    def claimed(self, master: str) -> tuple[str, ...]:
        """What a master has claimed, of what is there."""
        claims = {} if self.row is None else claims_in(self.row)
        return tuple(each for each in claims[master].ids if each in self.queue) if master in claims else ()


class Twice(Exception):
    """Two transactions hold the same message."""


class Master:
    """One master with consumers; what it asks is answered when it is told to, or at once."""

    def __init__(self, world: World, node: str = "m1", *, is_slow: bool = False) -> None:
        self.world = world
        self.node = node
        self.is_slow = is_slow
        self.locks = Locks()
        self.takes: dict[tuple[str, int], list[str]] = {}
        self.due: list[Any] = []
        self.reads: list[dict[str, Any]] = []
        self.claims = 0
        self.refusal: Reply | BrokerhaError | None = None
        self.read_error: BrokerhaError | None = None
        self.number = 0
        self.others: dict[str, Master] = {}
        """Masters that hear this one."""
        self.wanted: list[str] = []
        self.consumers = self.started()

    def started(self) -> Consumers:
        """Consumers of a new process: it remembers nothing."""
        return Consumers(
            TakingHost(
                self.node,
                lambda: self.world.now_ms,
                self.read,
                self.submit,
                lambda: self.world.lsn,
                lambda txid, first: self.takes.get((txid, first), ()),
                self.locks.free,
                self.locks.number_in,
                self.want,
                self.lock,
            )
        )

    def read(self, kind: str, name: str, arguments: dict[str, Any], lsn: int, timeout_ms: int, future: Future[ReadOutcome]) -> None:
        assert kind == "queue"
        assert timeout_ms > 0
        self.reads.append(arguments)

        def answer() -> None:
            if self.read_error is not None:
                future.set_exception(self.read_error)
            else:
                future.set_result(self.world.read(name, arguments))

        self._soon(answer)

    def submit(self, body: bytes, timeout_ms: int) -> Future[Reply]:
        assert timeout_ms > 0
        if isinstance(self.refusal, BrokerhaError):
            raise self.refusal
        future: Future[Reply] = Future()
        refusal = self.refusal

        def answer() -> None:
            self.claims += 1
            future.set_result(refusal if isinstance(refusal, Reply) else self.world.execute(body))

        self._soon(answer)
        return future

    def want(self, masters: Iterable[str], queue: str) -> None:
        for master in masters:
            assert master != self.node
            self.wanted.append(master)
            if master in self.others:
                self._soon(partial(self.others[master].consumers.give_back, queue))

    def lock(self, txid: str, arguments: dict[str, Any], timeout_ms: int, receiver: Any) -> None:
        def answer() -> None:
            taken = self.locks.take(txid, arguments["queue"], arguments["candidates"], arguments["count"], arguments["lsn"])
            if taken:
                self.takes[txid, arguments["first"]] = taken
            receiver(TxReply(1, txid, answer={"taken": taken}))

        self._soon(answer)

    def _soon(self, act: Any) -> None:
        if self.is_slow:
            self.due.append(act)
        else:
            act()

    def step(self) -> None:
        """One thing that was asked is answered."""
        if self.due:
            self.due.pop(0)()

    # ---- consumers

    def accept(self, count: int = 1, wait_ms: int = 0, txid: str = "", end_ms: int = 60_000) -> Taking:
        self.number += 1
        now_ms = self.world.now_ms
        taking = Taking(txid or f"{self.node}.{self.number}", 0, "q", count, Future(), now_ms + wait_ms, now_ms + end_ms)
        self.consumers.add(taking)
        return taking

    def commit(self, taking: Taking) -> None:
        self.world.lsn += 1
        self.world.queue = [each for each in self.world.queue if each not in taken(taking)]
        self.locks.release(taking.txid, self.world.lsn)

    def tick(self, later_ms: int) -> None:
        self.world.now_ms += later_ms
        self.consumers.tick(self.world.now_ms)


def taken(taking: Taking) -> list[str]:
    return [row[0] for row in taking.future.result(0)["messages"]]


def names(number: int) -> list[str]:
    return [f"t.{each}" for each in range(1, number + 1)]


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
        (Reply(1, "c", UNKNOWN, 0, "OutcomeUnknown", "no majority"), TimedOut, "did not agree in time who gives out messages of queue 'q'"),
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
    one.refusal = Reply(1, "c", REJECTED_STATUS, 0, "", "conflict: others were faster")
    one.tick(SURELY_MS)
    assert world.claimed("m1") == ("t.1",)
    one.refusal = None
    one.tick(SURELY_MS)
    assert world.claimed("m1") == ()


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


# ---- any number of masters


class Run:
    """Consumers at some masters, who ask, commit and roll back by chance."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.masters = [Master(world, f"m{number}", is_slow=True) for number in range(1, self.chance.randint(3, 5))]
        for master in self.masters:
            master.others = {other.node: other for other in self.masters if other is not master}
        self.asking: dict[Taking, Master] = {}
        self.held: dict[Taking, Master] = {}
        self.published = self.done = 0

    def step(self) -> None:
        """Some time goes by. Raises Twice."""
        if self.chance.random() < 0.2:
            self.published += 1
            self.world.queue.append(f"t.{self.published}")
            self.world.lsn += 1
        for master in self.masters:
            if not master.due and self.chance.random() < 0.1:
                master.consumers.tick(self.world.now_ms)
            if self.chance.random() < 0.5:
                master.step()
            if self.chance.random() < 0.1 and sum(each is master for each in self.asking.values()) < 3:
                self.asking[master.accept(self.chance.choice((1, 1, 3)), self.chance.choice((0, 500)))] = master
        self.take_in()
        for taking in [each for each in self.held if self.chance.random() < 0.05]:
            self.end(taking, is_committed=self.chance.random() < 0.8)
        self.world.now_ms += self.chance.choice((0, 1, 5, 60))

    def take_in(self) -> None:
        for taking in [each for each in self.asking if each.future.done()]:
            master = self.asking.pop(taking)
            if taken(taking):
                self.held[taking] = master
        messages = [message for taking in self.held for message in taken(taking)]
        if len(messages) != len(set(messages)):
            raise Twice

    def end(self, taking: Taking, *, is_committed: bool) -> None:
        master = self.held.pop(taking)
        if is_committed:
            assert set(taken(taking)) <= set(self.world.queue)
            self.done += len(taken(taking))
            master.commit(taking)
        else:
            master.locks.release(taking.txid)

    def finish(self) -> None:
        """Everybody goes on until nothing is left."""
        for _ in range(20_000):
            for master in self.masters:
                master.consumers.tick(self.world.now_ms)
                master.step()
                if not any(each is master for each in self.asking.values()):
                    self.asking[master.accept(3)] = master
            self.take_in()
            for taking in list(self.held):
                self.end(taking, is_committed=True)
            self.world.now_ms += 10
            if not self.world.queue:
                return


@pytest.mark.parametrize("seed", range(40))
def test_no_two_masters_ever_hold_the_same_message_and_all_are_done(world: World, seed: int) -> None:
    run = Run(world, seed)
    for _ in range(3000):
        run.step()
    run.finish()
    assert (world.queue, run.done) == ([], run.published)


def test_masters_that_claim_whatever_others_did_hold_the_same_message(world: World) -> None:
    world.is_careless = True
    run = Run(world, 1)

    def go() -> None:
        for _ in range(3000):
            run.step()

    with pytest.raises(Twice):
        go()
