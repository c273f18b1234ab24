"""Clients of the simulated cluster: they write through any master, give up, ask again, and remember the answers.

A write is done when one of its tickets has a definite answer (reached its level, rejected, or its id belongs to another write).
Until then it is handed in again under the same id, to any running master: after *unknown*, after a temporary refusal, and after a
broken connection. Some writes go to two masters at once, and some ids are used for two different writes, of which exactly one can
take effect.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from brokerha.model.ids import NodeId, TxId
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.outside.authors import signed
from brokerha.model.requests import ACCEPTED, APPLIED_LEVEL, REFUSED, SYNCHRONISED, UNKNOWN, Reply, Submit
from tests.simulator.backups import SimGroup, SimProcess
from tests.simulator.cluster import Cluster
from tests.simulator.nodes import SimMaster

USERS = ("", "anna", "bert")
"""Users for the writes, as the door names them."""
RETRY_US = (20_000, 300_000)
"""Pause before a write is handed in again."""
AGAIN_US = (200_000, 6_000_000)
"""Time until a write is handed in once more, whatever became of it."""

PATIENCE_MS = 2_000
"""Least patience of clients after healing, when frequent repetition is useless."""


@dataclass(slots=True)
class Write:
    """One write of one client."""

    txid: TxId
    body: bytes
    level: str
    copies: int
    is_done: bool = False
    acknowledged: str = ""
    """Status of its definite answer."""


@dataclass(slots=True)
class Ticket:
    """One attempt at one master."""

    node: NodeId
    txid: TxId
    body: bytes
    copies: int
    write: Write


@dataclass(slots=True)
class Clients:
    """All clients of a world."""

    world: Cluster
    writes: list[Write] = field(default_factory=list)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    """Open tickets."""
    acknowledged: int = 0
    undone: int = 0
    """Writes without a definite answer."""
    refused: Counter[str] = field(default_factory=Counter)
    _next_ticket: int = 1
    _bodies: dict[TxId, list[bytes]] = field(default_factory=dict)
    _live: Counter[tuple[TxId, bytes]] = field(default_factory=Counter)
    """Number of attempts that were not refused."""

    @property
    def open_count(self) -> int:
        """Open tickets."""
        return len(self.tickets)

    # ---- actions

    def begin(self) -> None:
        """Plan all writes of the run."""
        load, rng, world = self.world.options.load, self.world.rng, self.world
        at_us = world.now_us
        for number in range(load.writes):
            if number % load.burst == 0:
                at_us += int(rng.expovariate(1 / load.gap_us)) if load.gap_us else 0
            txid = f"t{number}"
            write = self._new_write(txid, number)
            world.at(at_us, self.hand_in, write, None)
            if rng.random() < load.twice:
                world.at(at_us + rng.randint(0, 50_000), self.hand_in, write, None)
            if rng.random() < load.conflict:
                world.at(at_us + rng.randint(0, 50_000), self.hand_in, self._new_write(txid, -number - 1), None)
            elif load.again and rng.random() < load.again:
                again = self._kept(replace(write))
                world.at(at_us + rng.randint(*AGAIN_US), self.hand_in, again, None)

        span_us = max(1, at_us - world.now_us)
        for number in range(load.large):
            for after_us, write in self._large(f"large{number}", number):
                world.at(world.now_us + int(after_us * span_us), self.hand_in, write, None)

    def _large(self, name: TxId, number: int) -> list[tuple[float, Write]]:
        """Return a large transaction: its parts and its end, each with its time from 0 to 1; the end can come before the parts."""
        rng = self.world.rng
        parts, user = rng.randint(1, 3), USERS[number % len(USERS)]
        begin = rng.random()
        planned: list[tuple[float, TxId, list[Operation]]] = []
        for part in range(1, parts + 1):
            operations: list[Operation] = [("stage", name, part)]
            if part == 1 and number % 3 == 0:
                operations.append(("clear", "main"))
            for _ in range(rng.randint(1, 3)):
                value = b"%s.%d" % (name.encode(), rng.randrange(5))
                operations.append(
                    rng.choice(
                        [
                            ("put", "each", value, b"x" * rng.choice((1, 100))),
                            ("put", "last", b"k%d" % rng.randrange(self.world.options.load.keys), value),
                            ("delete", "last", b"k%d" % rng.randrange(self.world.options.load.keys)),
                            ("add", "main", f'<urn:s> <urn:p> "{rng.randrange(9)}" .\n'),
                            ("publish", "large", "text/plain", value),
                        ]
                    )
                )
            planned.append((begin + rng.random() * 0.2, f"{name}.{part}", operations))
        if rng.random() < 0.5:
            # A message in pieces, which a client takes sooner or later.
            sizes = [rng.randint(1, 50) for _ in range(rng.randint(1, 2))]
            pieces: list[Operation] = [("piece", b"x" * size) for size in sizes]
            message = ("publish-pieces", "large", "text/plain", parts + 1, parts + len(sizes), sum(sizes))
            for part, operation in enumerate([*pieces, message], parts + 1):
                planned.append((begin + 0.1 * (part - parts), f"{name}.{part}", [("stage", name, part), operation]))
            parts += len(sizes) + 1
        planned.append((begin + rng.random() * 0.4, name, [("commit-staged", name, parts)]))
        planned += [
            (begin + at, f"{name}.taken{at}", [("accept", "large", f"{name}.{rng.randint(1, 4)}")]) for at in (0.5, 0.8, 1.2)
        ]
        if rng.random() < 0.2:
            planned.append((begin + rng.random() * 0.4, f"{name}.drop", [("drop-staged", name)]))
        return [
            (at, self._kept(Write(txid, signed(pack_operations(operations), user), APPLIED_LEVEL, 1)))
            for at, txid, operations in planned
        ]

    def _new_write(self, txid: TxId, number: int) -> Write:
        rng = self.world.rng
        most = max(self.world.options.workers)
        level = rng.choice((ACCEPTED, SYNCHRONISED, APPLIED_LEVEL, APPLIED_LEVEL))
        return self._kept(Write(txid, self._body(number), level, rng.randint(1, max(1, most))))

    def _kept(self, write: Write) -> Write:
        self.writes.append(write)
        self.undone += 1
        self._bodies.setdefault(write.txid, []).append(write.body)
        return write

    def _body(self, number: int) -> bytes:
        rng = self.world.rng
        value = b"%d" % number
        key = b"k%d" % rng.randrange(self.world.options.load.keys)
        operations: list[Operation] = [("put", "last", key, value)]
        luck = rng.random()
        if luck < 0.1:
            operations = [("delete", "last", key)]
        elif luck < 0.2:
            quad = f'<urn:s> <urn:p> "{rng.randrange(9)}" .\n'
            operations = [("add", "main", quad) if number % 4 else ("update", "main", "CLEAR ALL")]
        elif luck < 0.3:
            operations.append(("add", "nowhere", '<urn:s> <urn:p> "1" .\n'))
        elif luck < 0.5:
            operations.append(("put", "each", value, b"x" * rng.choice((1, 1, 100, 1000))))
        return signed(pack_operations(operations), USERS[number % len(USERS)])

    def new_write(self, txid: TxId, operations: list[Operation], level: str = APPLIED_LEVEL, copies: int = 1) -> Write:
        """Make a write of a scenario; submit it with `hand_in`."""
        return self._kept(Write(txid, pack_operations(operations), level, copies))

    def hand_in(self, write: Write, node: NodeId | None) -> None:
        """Hand a write to a running master, by default to any; without one, try later."""
        masters = [p for m in self.world.masters if node in {None, m.node} for p in m.acting]
        if write.is_done:
            return
        if not masters:
            self._try_later(write)
            return
        master = self.world.rng.choice(masters)
        self.submit(master, write)

    def submit(self, master: SimMaster | SimProcess | SimGroup, write: Write) -> int:
        """Open a ticket at one process that acts for a master."""
        master = master.acting[0] if isinstance(master, SimGroup) else master
        options, rng = self.world.options, self.world.rng
        level, copies = write.level, write.copies
        most = len(self.world.master(self.world.owner[master.node]).config.feed.workers)
        if level == APPLIED_LEVEL and not most:
            level = SYNCHRONISED
        copies = min(copies, max(1, most))
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self.tickets[ticket] = Ticket(master.node, write.txid, write.body, copies, write)
        self._live[write.txid, write.body] += 1
        timeout_ms = rng.randint(*options.load.timeout_ms)
        if self.world.is_calm:
            timeout_ms = max(timeout_ms, PATIENCE_MS)
        master.submit(Submit(ticket, write.txid, write.body, level, copies, timeout_ms))
        return ticket

    def _try_later(self, write: Write) -> None:
        rng = self.world.rng
        self.world.at(self.world.now_us + rng.randint(*RETRY_US), self.hand_in, write, None)

    # ---- answers

    def on_reply(self, node: NodeId, reply: Reply) -> None:
        """Handle an answer, which has been checked already."""
        del node
        ticket = self.tickets.pop(reply.ticket)
        write = ticket.write
        if reply.status == UNKNOWN or (reply.status == REFUSED and reply.error != "KeyReused"):
            self.refused[reply.error] += 1
            if not write.is_done:
                self._try_later(write)
            return
        if reply.status != REFUSED and not write.acknowledged:
            self.acknowledged += 1
            write.acknowledged = reply.status
        self.undone -= not write.is_done
        write.is_done = True

    def on_death(self, node: NodeId) -> None:
        """Break the connections of a dead master's clients."""
        for number in [number for number, ticket in self.tickets.items() if ticket.node == node]:
            ticket = self.tickets.pop(number)
            if not ticket.write.is_done:
                self._try_later(ticket.write)

    # ---- questions of the checkers

    def bodies_of(self, txid: TxId) -> list[bytes]:
        """Return all bodies that were handed in under an id."""
        return self._bodies.get(txid, [])

    def on_refusal(self, txid: TxId, body: bytes) -> None:
        """Note the refusal of an attempt."""
        self._live[txid, body] -= 1

    def is_live(self, txid: TxId, body: bytes) -> bool:
        """Tell whether an attempt was not refused, so that the write can take effect."""
        return self._live[txid, body] > 0

    def open_tickets(self, lost: set[NodeId]) -> list[int]:
        """Return unanswered tickets, except at masters that lost their disk."""
        return [number for number, ticket in self.tickets.items() if ticket.node not in lost]
