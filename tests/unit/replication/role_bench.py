"""A small simulated master: processes with a role, a gate and a list as journal, and a network that loses, delays and doubles.

    world = World(seed=7, processes=3, sync_n=1)
    world.run(30_000)          # with faults
    world.calm()               # without; afterwards exactly one primary, and everybody holds the same

The checks are made at the moment at which something would go wrong: a view that starts twice, a primary without a record that was
shown before. `Crash` keeps the journal and the promise, as a disk does; `Mistakes` are planted to see whether the checks find them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from brokerha.model.ids import Instant
from brokerha.model.requests import Reply
from brokerha.model.wire.messages import Message, Outgoing
from brokerha.model.wire.process_messages import Candidate, Confirmed, Replicate, Vote
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.role.gate import Gate, GateConfig
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState

STEP_MS = 20
HEARTBEAT_MS = 200
FAIL_OVER_MS = 1000


class Violated(AssertionError):
    """Something happened that must never happen."""


@dataclass(frozen=True)
class Mistakes:
    """Faults of the program, planted on purpose."""

    forgets_promise: bool = False
    votes_too_few: int = 0
    obeys_anybody: bool = False


class FewerVotes(RoleConfig):
    """Settings with one of the mistakes."""

    @property
    def votes_needed(self) -> int:
        """One too few."""
        return len(self.processes) - self.sync_n - 1


@dataclass
class Disk:
    """What survives a crash."""

    journal: str
    promised: int = 0
    records: list[tuple[int, str]] = field(default_factory=list)
    """(view, text) by number, from 1."""

    def last(self, number: int | None = None) -> tuple[int, int]:
        """(view, number) of a record, of the last one by default."""
        number = len(self.records) if number is None else number
        return (self.records[number - 1][0], number) if number else (0, 0)


class Process:
    """One process of the master: everything but its disk is gone after a crash."""

    def __init__(self, world: World, name: str, now: Instant) -> None:
        self.world = world
        self.name = name
        self.disk = world.disks[name]
        kind = FewerVotes if world.mistakes.votes_too_few else RoleConfig
        config = kind(name, world.names[0], world.names, world.sync_n, FAIL_OVER_MS)
        self.role = Role(config, self.disk.journal, self.disk.promised, self.disk.last(), now)
        self.gate: Gate | None = None
        self.next: dict[str, int] = {}
        self.beat_at_ms = 0

    # ---- input

    def receive(self, sender: str, message: Message, now: Instant) -> list[Outgoing]:
        """Take in a message; returns answers that need no promise."""
        if isinstance(message, Candidate):
            self.role.on_candidate(sender, message, now)
        elif isinstance(message, Vote):
            self.role.on_vote(sender, message, now)
        elif isinstance(message, Confirmed):
            self.role.on_confirmed(sender, message.view, now)
            self._on_confirmed(sender, message)
        elif isinstance(message, Replicate):
            self.role.heard(sender, message.view, now)
            if self.role.obeys(message.view) or (self.world.mistakes.obeys_anybody and self.gate is None):
                return [Outgoing(sender, self._follow(message))]
        return []

    def _follow(self, message: Replicate) -> Confirmed:
        number = message.previous[1]
        has_it = number == 0 or (len(self.disk.records) >= number and self.disk.last(number) == message.previous)
        if has_it:
            for place, body in message.items:
                view, text = body.decode().split(" ", 1)
                record = (int(view), text)
                if len(self.disk.records) >= place and self.disk.records[place - 1] != record:
                    del self.disk.records[place - 1 :]
                if len(self.disk.records) < place:
                    self.disk.records.append(record)
            self.disk.journal = message.journal
            self.role.moved(self.disk.last(), message.journal)
        word = "basic" if has_it else "request"
        return Confirmed(message.view, self.disk.journal, self.disk.last(), word)

    def _on_confirmed(self, sender: str, message: Confirmed) -> None:
        if self.gate is None or message.view != self.gate.config.view:
            return
        number = message.last[1]
        if message.follows == "basic" and number <= len(self.disk.records) and self.disk.last(number) == message.last:
            self.gate.confirm(sender, message.view, number)
            self.next[sender] = max(self.next[sender], number + 1)
        else:
            self.next[sender] = 1

    def write(self, text: str, now: Instant) -> None:
        """A turn of a primary that writes one record and owes one reply."""
        # It may have stepped down in this very turn, and follow already.
        if self.gate is None or self.role.state is not RoleState.PRIMARY:
            return
        self.disk.records.append((self.gate.config.view, text))
        self.role.moved(self.disk.last())
        number = len(self.disk.records)
        self.gate.hold(number, (), (Reply(number, text, "accepted"),), (), now)

    # ---- output

    def turn(self, now: Instant) -> list[Outgoing]:
        """Carry out what the role asks for, in its order; returns what is to be sent."""
        ready = self.role.take(now)
        if ready.promise and not self.world.mistakes.forgets_promise:
            self.disk.promised = ready.promise
        if self.world.mistakes.forgets_promise:
            self.role.promised = self.disk.last()[0]
        if ready.change is not None:
            self.gate = None
            if ready.change.state is RoleState.PRIMARY:
                self._begin(ready.change.view, now)
        out = list(ready.messages)
        if self.gate is not None:
            self.gate.expire(now)
            for reply in self.gate.release().replies:
                self.world.on_shown(self.gate.config.view, reply.ticket, self.disk.records[reply.ticket - 1])
            if now.mono_ms >= self.beat_at_ms:
                self.beat_at_ms = now.mono_ms + HEARTBEAT_MS
                out += [Outgoing(name, self._replicate(name)) for name in self.role.config.others]
        return out

    def _begin(self, view: int, now: Instant) -> None:
        self.world.on_primary(self.name, view, self.disk)
        self.gate = Gate(GateConfig(view, self.role.config.sync_n, 600, 50, 50, self.role.config.others))
        self.next = dict.fromkeys(self.role.config.others, len(self.disk.records) + 1)
        self.beat_at_ms = 0
        self.write(f"view {view}", now)

    def _replicate(self, name: str) -> Replicate:
        assert self.gate is not None
        first = self.next[name]
        items = tuple(
            (number, f"{view} {text}".encode())
            for number, (view, text) in enumerate(self.disk.records[first - 1 :], start=first)
        )
        last = len(self.disk.records)
        return Replicate(self.gate.config.view, self.disk.last(first - 1), items, last, self.disk.journal)


class World:
    """All processes, the network between them, and what must hold."""

    def __init__(self, seed: int, processes: int, sync_n: int, mistakes: Mistakes | None = None) -> None:
        self.random = random.Random(f"{seed} {processes} {sync_n}")
        self.mistakes = mistakes or Mistakes()
        self.sync_n = sync_n
        self.names = ("m1", *(f"b{place}" for place in range(1, processes)))
        self.disks = {name: Disk(f"journal-of-{name}") for name in self.names}
        self.ms = 0
        self.running: dict[str, Process] = {}
        self.stopped_until: dict[str, int] = {}
        """Frozen or crashed processes: the former are running, too."""
        self.mail: list[tuple[int, str, str, Message]] = []
        self.has_faults = True
        self.lost_share = 0.0
        self.unrest = self.random.choice((0.01, 0.05))
        self.cut: set[tuple[str, str]] = set()
        """(sender, receiver): one way is often cut while the other one is not."""
        self.views: dict[int, tuple[str, tuple[tuple[int, str], ...]]] = {}
        """view -> (process, its journal when the view began)"""
        self.shown: list[tuple[int, int, tuple[int, str]]] = []
        """(view, number, record) in the order in which they were shown"""
        self.writes = 0
        for name in self.names:
            self.start(name)

    @property
    def now(self) -> Instant:
        """Both clocks."""
        return Instant(self.ms, self.ms * 1000)

    # ---- what must hold

    def on_primary(self, name: str, view: int, disk: Disk) -> None:
        """A view begins: for the first time, and with all that was shown in earlier ones."""
        if view in self.views:
            raise Violated(f"view {view} of {self.views[view][0]} begins again at {name}")
        self.views[view] = (name, tuple(disk.records))
        for shown_view, number, record in self.shown:
            if shown_view < view:
                self._check(view, number, record)

    def on_shown(self, view: int, number: int, record: tuple[int, str]) -> None:
        """A primary shows a record: everybody who began a later view, even before now, must have had it."""
        self.shown.append((view, number, record))
        for later in self.views:
            if later > view:
                self._check(later, number, record)

    def _check(self, view: int, number: int, record: tuple[int, str]) -> None:
        name, records = self.views[view]
        if len(records) < number or records[number - 1] != record:
            raise Violated(f"{name} began view {view} without record {number} {record}, which was shown")

    # ---- what happens

    def start(self, name: str) -> None:
        """Start a process from its disk."""
        self.running[name] = Process(self, name, self.now)

    def crash(self, name: str) -> None:
        """End a process between two turns."""
        self.running.pop(name, None)

    def primaries(self) -> list[str]:
        """Processes that act, as far as they know."""
        return [name for name, process in self.running.items() if process.gate is not None]

    def send(self, sender: str, outgoing: list[Outgoing]) -> None:
        """Put messages on their way: some are lost, some come twice, some late."""
        for out in outgoing:
            if self.has_faults and (self.random.random() < self.lost_share or (sender, out.to) in self.cut):
                continue
            for _ in range(2 if self.has_faults and self.random.random() < 0.05 else 1):
                delay_ms = self.random.choice((5, 20, 60, 150))
                if self.has_faults and self.random.random() < 0.05:
                    delay_ms = self.random.randint(200, 3000)
                self.mail.append((self.ms + delay_ms, sender, out.to, out.message))

    def step(self) -> None:
        """Let time pass once."""
        self.ms += STEP_MS
        if self.has_faults:
            self._disturb()
        due = [letter for letter in self.mail if letter[0] <= self.ms and letter[2] not in self.stopped_until]
        self.mail = [letter for letter in self.mail if letter not in due]
        for _, sender, to, message in due:
            if to in self.running:
                self.send(to, self.running[to].receive(sender, message, self.now))
        for name, process in list(self.running.items()):
            if name in self.stopped_until:
                continue
            if self.random.random() < 0.05:
                self.writes += 1
                process.write(f"w{self.writes}", self.now)
            self.send(name, process.turn(self.now))

    def _disturb(self) -> None:
        for name, until_ms in list(self.stopped_until.items()):
            if self.ms >= until_ms:
                del self.stopped_until[name]
                if name not in self.running:
                    self.start(name)
        chance = self.random.random
        for name in self.names:
            if name not in self.stopped_until and chance() < 0.004:
                if chance() < 0.6:
                    self.crash(name)
                self.stopped_until[name] = self.ms + self.random.randint(100, 3000)
        for name, process in self.running.items():
            if name not in self.stopped_until and chance() < 0.004:
                process.role.promoted_by_hand(self.now)
            if name not in self.stopped_until and chance() < 0.0005:
                process.role.pause("by an operator", until_declared=chance() < 0.5)
            if chance() < 0.01:
                process.role.resume(self.now)
        if chance() < self.unrest:
            self.lost_share = self.random.choice((0.0, 0.0, 0.1, 0.4))
            share = self.random.choice((0.0, 0.2, 0.4))
            self.cut = {(a, b) for a in self.names for b in self.names if chance() < share}

    def run(self, milliseconds: int) -> None:
        """With faults."""
        for _ in range(milliseconds // STEP_MS):
            self.step()

    def calm(self, within_ms: int = 20 * FAIL_OVER_MS) -> int:
        """No more faults; returns after how many milliseconds everybody agreed, at most ``within_ms``."""
        self.has_faults = False
        self.stopped_until.clear()
        for name in self.names:
            if name not in self.running:
                self.start(name)
            self.running[name].role.resume(self.now)
        return self.until(self.is_settled, within_ms)

    def is_settled(self) -> bool:
        """One primary, confirmed by enough, and nothing of older views under way."""
        primaries = self.primaries()
        if len(primaries) != 1 or not (gate := self.running[primaries[0]].gate):
            return False
        views = {process.role.view for process in self.running.values()}
        first_own = len(self.views[gate.config.view][1]) + 1
        return views == {gate.config.view} and gate.is_through(first_own)

    def until(self, holds: Callable[[], bool], within_ms: int) -> int:
        """Let time pass until something holds; raises Violated when it does not come about in time."""
        since_ms = self.ms
        while not holds():
            if self.ms - since_ms > within_ms:
                raise Violated(f"not within {within_ms} ms: {self.story()}")
            self.step()
        return self.ms - since_ms

    def story(self) -> str:
        """How all processes stand."""
        return "; ".join(
            f"{name} {process.role.state.value} view {process.role.view} promised {process.role.promised} "
            f"last {process.role.last}: {process.role.explain(self.now)}"
            for name, process in self.running.items()
        )
