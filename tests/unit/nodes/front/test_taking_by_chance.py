"""Consumers at any number of masters, by chance: no two ever hold the same message, and all messages are done."""

from __future__ import annotations

import random

import pytest

from brokerha.nodes.front.taking import Taking
from tests.unit.nodes.front.taking_world import Master, Twice, World, taken


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
def test_no_two_masters_ever_hold_the_same_message_and_all_are_done(seed: int) -> None:
    world = World()
    run = Run(world, seed)
    for _ in range(3000):
        run.step()
    run.finish()
    assert (world.queue, run.done) == ([], run.published)


def test_masters_that_claim_whatever_others_did_hold_the_same_message() -> None:
    world = World(is_careless=True)
    run = Run(world, 1)

    def go() -> None:
        for _ in range(3000):
            run.step()

    with pytest.raises(Twice):
        go()
