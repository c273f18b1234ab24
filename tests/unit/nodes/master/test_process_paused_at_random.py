"""Operators that pause, coin, continue and promote at random, while processes die, are cut off and come back (replication, P1, P2, P8).

Three processes with sync-N 1. After each turn: a paused process has the journal that it had, and does not act. In the end all are coined and
continue, one is primary, everybody has its journal, and every write that was acknowledged is in it.
"""

from __future__ import annotations

import random
from collections import Counter

from brokerha.model.errors import NotReady, WrongState
from brokerha.model.records import Accepted, Rest
from brokerha.model.requests import ACCEPTED
from brokerha.nodes.master.process_runner import position_of
from brokerha.replication.role.resting import COIN, CONTINUE, PAUSE
from tests.unit.nodes.process_group import FAIL_OVER_MS, Group

STEPS = 150
ORDERS = (PAUSE, COIN, CONTINUE)


class Drawn:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.group = Group(2).elected()
        self.places: dict[str, int] = {}
        """Record at which each paused process stands."""
        self.tickets = 0
        self.acknowledged: set[int] = set()
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        """Something happens, then time passes."""
        name = self.random.choice(self.group.names)
        process = self.group[name]
        match self.random.choice(
            ("write", "write", "order", "order", "go on", "go on", "restart", "down", "up", "cut", "promote", "time")
        ):
            case "write":
                self.write()
            case "order" if process.is_up:
                self.order(name, self.random.choice(ORDERS))
            case "go on" if process.is_up:
                for command in (COIN, CONTINUE)[self.random.choice((0, 0, 1)) :]:
                    self.order(name, command)
            case "restart" | "up":
                process.start()
            case "down" if sum(each.is_up for each in self.group.processes.values()) > 2:
                process.is_up = False
            case "cut":
                self.group.cut = {name} if self.random.random() < 0.5 else set()
            case "promote" if process.is_up and self.random.random() < 0.3:
                self.promote(name)
            case _:
                pass
        for _ in range(self.random.choice((1, 5, 40))):
            self.group.turn(self.random.choice((1, 20, 100)))
            self.check()

    def order(self, name: str, command: str) -> None:
        """An operator's order; refused where the state does not allow it."""
        process = self.group[name]
        last, was_on = process.journal.last_number, process.journal.state().rest.is_on
        try:
            process.runner.order(command, is_forced=False)
        except (NotReady, WrongState) as error:
            self.seen["stale" if "is primary in view" in str(error) else "refused"] += 1
            return
        is_on = process.journal.state().rest.is_on
        assert is_on is (command == PAUSE or (command == COIN and was_on))
        self.seen[command] += was_on is not is_on or command == COIN
        if not is_on:
            self.places.pop(name, None)
        elif not was_on:
            self.places[name] = last

    def promote(self, name: str) -> None:
        try:
            self.group[name].runner.promote(name, is_forced=False)
        except NotReady:
            return
        self.seen["promoted while paused"] += self.places.pop(name, None) is not None

    def write(self) -> None:
        acting = [each for each in self.group.processes.values() if each.is_up and each.acts()]
        if acting:
            self.tickets += 1
            self.group.write(self.tickets, self.random.choice(acting))

    def check(self) -> None:
        """What a paused process must not do."""
        for name, place in self.places.items():
            process = self.group[name]
            assert process.journal.last_number == place, f"{name} is paused"
            assert not (process.is_up and process.acts()), f"{name} is paused"
            self.seen["held"] += process.is_up
        for process in self.group.processes.values():
            self.acknowledged |= {reply.ticket for reply in process.replies if reply.status == ACCEPTED}

    def end(self) -> None:
        """All is mended, and whoever is paused goes on."""
        group = self.group
        group.cut = set()
        for process in group.processes.values():
            if not process.is_up:
                process.start()
        for round_ in range(60):
            group.run(FAIL_OVER_MS, 20)
            if round_ % 10 == 9 and not any(process.acts() for process in group.processes.values()):
                # All who could be elected are paused: somebody continues as primary.
                best = max(group.processes.values(), key=lambda process: position_of(process.journal.state()))
                self.promote(best.name)
                self.seen["promoted in the end"] += 1
            for name, process in group.processes.items():
                if process.journal.state().rest.is_on:
                    self.order(name, COIN)
                    self.order(name, CONTINUE)
            lasts = {process.journal.last_number for process in group.processes.values()}
            if not self.places and len(lasts) == 1 and sum(process.acts() for process in group.processes.values()) == 1:
                break
        self.check()
        assert not self.places
        for process in group.processes.values():
            assert process.journal.state().rest == Rest()
            accepted = [record for _, record in process.journal.records() if isinstance(record, Accepted)]
            held = {txid for record in accepted for txid, _ in record.items}
            assert {f"t{ticket}" for ticket in self.acknowledged} <= held
        assert len({process.journal.last_number for process in group.processes.values()}) == 1
        assert sum(process.acts() for process in group.processes.values()) == 1


def test_a_paused_process_stands_still_and_nothing_acknowledged_is_lost() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100, 112):
        drawn = Drawn(seed)
        try:
            for _ in range(STEPS):
                drawn.step()
            seen += drawn.seen
            drawn.end()
            assert drawn.acknowledged
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    # These histories have what they are for
    assert {*ORDERS, "held", "stale", "promoted while paused", "refused"} <= set(seen), seen
