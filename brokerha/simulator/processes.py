"""What all simulated processes have in common: a virtual clock, disk and wire, turns that take time, death and birth.

    deliver, submit ---> inbox ---> turn (MasterRunner.turn / WorkerRunner.turn) ---> next turn when the runner says

A turn takes virtual time: writing costs what the disk costs, and what comes in meanwhile is taken by the next turn. A crash
loses everything that is not in the journal or the store; `start` builds the process anew from them. What a process does with its
turns is said in nodes.py and backups.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from brokerha.model.ids import NodeId
from brokerha.model.ready import TxQueueDecision
from brokerha.model.records import Record
from brokerha.model.requests import Absence
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.ports.transport import ClientMessage, ClientReply, Inbound, Transport, TransportStatus
from brokerha.simulator.clocks import SimClock
from brokerha.simulator.events import Events
from brokerha.simulator.network import Network
from brokerha.simulator.options import Options
from brokerha.simulator.tx_queues import TxQueues

RESTART_US = (1_000, 3_000_000)
"""How long a dead process stays away."""
LOOK_US = 2_000
"""From a question to the broker to its answer."""
TURN_US = 20
"""Least time that a turn takes: that of a quick processor, which has nothing else to do."""
MAIL_LIMIT = 1000
"""Messages that a broker's queue keeps for a dead node."""


class Crashed(BaseException):
    """The process dies here; raised through the shipped code, which must not catch it."""


@dataclass(slots=True)
class Aim:
    """Where a process is to die: at the named point, when something of this kind is at hand, after so many times."""

    point: str
    kind: type | None
    countdown: int


class Watcher(Protocol):
    """Who checks what processes do."""

    def look_in_full(self, steps: int) -> None:
        """So many turns were taken in this world."""

    def on_message(self, process: Process, outgoing: Outgoing) -> None:
        """A message leaves its sender."""

    def on_durable(self, process: Process, records: Sequence[Record], numbers: Sequence[int]) -> None:
        """These records are durable now; with ``numbers`` they are those of another process."""

    def on_deferred(self, process: Process, records: Sequence[Record]) -> None:
        """These records are read from now on, and may be lost."""

    def on_lost(self, process: Process) -> None:
        """What waited is lost."""

    def on_promise(self, process: Process, view: int) -> None:
        """A process promised to a view."""


class Fate(Protocol):
    """Who decides what goes wrong."""

    def on_deferred(self, process: Process) -> None:
        """A process has something that only its memory holds."""


class Surroundings(Events):
    """The world as a process knows it: time, the wire, the others by their names, and who looks on."""

    checkers: Watcher
    faults: Fate

    def __init__(self, options: Options, out: TextIO | None = None) -> None:
        super().__init__(options, out)
        self.processes: dict[NodeId, Process] = {}
        self.owner: dict[NodeId, NodeId] = {}
        """Master of each process of a master."""
        self.waiting: set[NodeId] = set()
        """Processes that are not started yet."""
        self.has_backups = any(options.backups)
        self.tx_queues = TxQueues(self)
        self.network = Network(self, self.tx_queues, self.processes)

    def plan_restart(self, process: Process) -> None:
        """Let a dead process come back after a while."""
        self.at(self.now_us + self.rng.randint(*RESTART_US), self._restart, process)

    def _restart(self, process: Process) -> None:
        if not process.is_up and process.node not in self.waiting:
            process.start()


class Process:
    """What masters and workers have in common."""

    def __init__(self, world: Surroundings, node: NodeId, clock: SimClock) -> None:
        self.world = world
        self.node = node
        self.clock = clock
        self.transport = SimTransport(self)
        self.is_up = False
        self.life = 0
        """Grows with each start and each death: what was meant for an earlier life does not happen."""
        self.incarnation = 0
        self.aim: Aim | None = None
        self.is_disk_slow = False
        self.is_disk_full = False
        self.turn_us = TURN_US
        """Virtual time that each turn takes beside what it writes."""
        self.spent_us = 0
        """Virtual time that the turn has taken so far."""
        self.frozen_until_us = 0
        self._busy_until_us = 0
        self._turn_at_us: int | None = None
        self._mail: list[Envelope] = []

    # ---- what comes in

    def deliver(self, envelope: Envelope) -> None:
        """A message arrives."""
        if self.is_up:
            self.transport.inbox.append(envelope)
            self.wake()
        elif self.world.options.wire.keeps_for_dead and len(self._mail) < MAIL_LIMIT:
            self._mail.append(envelope)

    def wake(self) -> None:
        """Have a turn as soon as the last one is over."""
        self._plan(max(self.world.now_us, self._busy_until_us))

    def _plan(self, at_us: int) -> None:
        at_us = max(at_us, self.frozen_until_us)
        if self._turn_at_us is None or at_us < self._turn_at_us:
            self._turn_at_us = at_us
            self.world.at(at_us, self._turn, self.life, at_us)

    def freeze(self, for_us: int) -> None:
        """Stop it for a while, as a signal or a long pause of the machine does."""
        self.frozen_until_us = self.world.now_us + for_us
        self._turn_at_us = None
        self._plan(self.frozen_until_us)

    def thaw(self) -> None:
        """Let it go on."""
        was_frozen, self.frozen_until_us = self.frozen_until_us, 0
        if self.is_up and was_frozen:
            self.wake()

    # ---- one turn

    def _turn(self, life: int, at_us: int) -> None:
        if life != self.life or at_us != self._turn_at_us:
            return
        self._turn_at_us = None
        self.spent_us = self.turn_us
        self.world.steps += 1
        self.guarded(self._run)
        self.world.checkers.look_in_full(self.world.steps)

    def _run(self) -> None:
        wait_ms = self._take_turn()
        self._busy_until_us = self.world.now_us + self.spent_us
        if self._has_input():
            self._plan(self._busy_until_us)
        else:
            # The clock of a node counts whole milliseconds, so its time has come at the beginning of one.
            due_us = (self.world.now_us // 1000 + wait_ms) * 1000
            self._plan(max(due_us, self._busy_until_us))

    def _take_turn(self) -> int:
        raise NotImplementedError

    def _has_input(self) -> bool:
        return bool(self.transport.inbox)

    def guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do something in which the process may die."""
        try:
            action(*arguments)
        except Crashed as crash:
            self.world.trace.note(self.world.now_us, self.node, "dies", str(crash))
            self.die()
            self.world.plan_restart(self)

    # ---- death and birth

    def reach(self, point: str, at_hand: Sequence[object]) -> None:
        """A point where the process may be aimed at. Raises Crashed."""
        aim = self.aim
        if aim is None or aim.point != point or (aim.kind is not None and aim.kind not in map(type, at_hand)):
            return
        aim.countdown -= 1
        if aim.countdown <= 0:
            self.aim = None
            self.world.faults_seen["aimed crash"] += 1
            raise Crashed(point)

    def die(self) -> None:
        """Lose everything that is not durable."""
        self.is_up = False
        self.life += 1
        self.aim = None
        self._turn_at_us = None
        self.transport = SimTransport(self)

    def stop(self) -> None:
        """End in order: the last that it says is on its way when it dies."""
        self.die()

    def mend(self) -> None:
        """Its disk fails no more."""

    def start_again(self, life: int) -> None:
        """The supervisor starts a process that cannot go on again."""
        if life == self.life and self.is_up:
            self.world.trace.note(self.world.now_us, self.node, "dies", "its disk failed")
            self.die()
            self.world.plan_restart(self)

    def start(self) -> None:
        """Begin again from what is durable."""
        self.is_up = True
        self.life += 1
        self.incarnation += 1
        self._busy_until_us = self.world.now_us
        self.frozen_until_us = 0
        # A restart may come with a new boot: the monotonic clock then starts anywhere.
        self.clock.mono_offset_ms = self.world.rng.randint(0, 1_000_000)
        self.world.trace.note(self.world.now_us, self.node, "starts")
        self.guarded(self._open)
        if self.is_up:
            self.transport.inbox.extend(self._mail)
            self.wake()
        self._mail = []

    def _open(self) -> None:
        raise NotImplementedError

    def wire(self) -> Transport:
        """What its runner sends and receives through: reaches whichever process acts for a master, if there are several."""
        return self.addressed() if self.world.has_backups else self.transport

    def addressed(self) -> AddressedTransport:
        """Its transport, with an address book that knows nothing yet."""
        processes: dict[NodeId, list[NodeId]] = {}
        for process, master in self.world.owner.items():
            processes.setdefault(master, []).append(process)
        return AddressedTransport(self.transport, AddressBook(processes, processes))

    # ---- the disk

    def write_us(self) -> int:
        """How long one write takes now."""
        disk = self.world.options.disk
        low, high = disk.slow_us if self.is_disk_slow else disk.write_us
        return low + int(self.world.rng.random() * (high - low))

    def spend_write(self) -> None:
        """Let the turn take as long as a write takes."""
        self.spent_us += self.write_us()


class SimTransport:
    """`ports.Transport` of one simulated process."""

    def __init__(self, process: Process) -> None:
        self.inbox: list[Envelope] = []
        self._absences: list[Absence] = []
        self._process = process

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Hand messages to the network, each checked against what its sender holds durably."""
        process = self._process
        world = process.world
        for place, message in enumerate(outgoing):
            if process.aim is not None and place:
                process.reach("half sent", (message.message,))
            world.checkers.on_message(process, message)
            world.network.carry(process, message, process.spent_us)

    def look(self, masters: Sequence[NodeId]) -> None:
        """The broker answers after a moment, and knows at once who has died; frozen processes and cut links are no matter of its."""
        world = self._process.world
        for master in masters:
            world.at(world.now_us + LOOK_US, self._answer, master)

    has_other_nodes = False

    def leave_broker_node(self, directions: Sequence[str]) -> None:
        """There is no broker, and ways lead nowhere as long as they are cut."""

    def _answer(self, master: NodeId) -> None:
        process = self._process.world.processes.get(master)
        if self._process.transport is self and process is not None and not process.is_up:
            self._absences.append(Absence(master))
            self._process.wake()

    def receive(self, limit: int, timeout_ms: int) -> list[Inbound]:
        """What has arrived; never waits."""
        del timeout_ms
        items, self.inbox = self.inbox[:limit], self.inbox[limit:]
        absences, self._absences = self._absences, []
        return [*absences, *items]

    def wake(self) -> None:
        """Nothing waits here."""

    def reply(self, replies: Sequence[ClientReply]) -> None:
        """Simulated clients use no messages."""

    def settle(self, messages: Sequence[ClientMessage]) -> None:
        """Simulated clients use no messages."""

    def serve_shared(self, is_open: bool) -> None:
        """Simulated clients use no messages."""

    def serve_clients(self, is_open: bool) -> None:
        """Simulated clients use no messages."""

    def tx_queue(self, decision: TxQueueDecision) -> None:
        """Tell the broker."""
        self._process.world.tx_queues.decide(self._process, decision)

    def reject(self, message: ClientMessage, reason: str) -> None:
        """Simulated clients use no messages."""

    def status(self) -> TransportStatus:
        """Always connected: a broken wire is one that loses messages."""
        return TransportStatus("connected", "", 0, {})

    def close(self, timeout_ms: int = 5000) -> None:
        """Nothing to release."""
