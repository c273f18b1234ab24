"""Common parts of all simulated processes: a virtual clock, disk and wire, turns that take time, death and birth.

    deliver, submit ---> inbox ---> turn (MasterRunner.turn / WorkerRunner.turn) ---> next turn when the runner says

A turn takes virtual time: a write takes the time of the disk, and messages that arrive meanwhile wait for the next turn. A crash
loses everything outside the journal or the store; `start` rebuilds the process from them. The work of a turn is in nodes.py and
backups.py.

The monotonic clock of a process starts at a random value and runs true; the wall clock has a skew, a drift, and jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from brokerha.model.ids import Instant, NodeId
from brokerha.model.ready import TxQueueDecision
from brokerha.model.requests import Absence
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.ports.transport import Inbound, Transport, TransportStatus
from tests.simulator.events import Events
from tests.simulator.network import Network, TxQueues
from tests.simulator.options import Options

BEGIN_US = 1_700_000_000 * 1_000_000
"""Wall time at moment 0 of the world."""
RESTART_US = (1_000, 3_000_000)
"""How long a dead process stays away."""
LOOK_US = 2_000
"""Time from a question to the broker to its answer."""
TURN_US = 20
"""Least time of a turn: that of a quick, otherwise idle processor."""
MAIL_LIMIT = 1000
"""Messages that a broker's queue keeps for a dead node."""


class SimClock:
    """Both clocks of one node."""

    def __init__(self, true_us: Callable[[], int], skew_us: int, drift: float) -> None:
        self.mono_offset_ms = 0
        self.skew_us = skew_us
        self._true_us = true_us
        self._drift = drift

    def now(self) -> Instant:
        """Return the current instant, as this node sees it."""
        true_us = self._true_us()
        wall_us = BEGIN_US + true_us + self.skew_us + int(true_us * self._drift)
        return Instant(true_us // 1000 + self.mono_offset_ms, wall_us)

    def jump(self, by_us: int) -> None:
        """Set the wall clock by a jump."""
        self.skew_us += by_us


class Crashed(BaseException):
    """Kills the process at this point; raised through the shipped code, which must not catch it."""


@dataclass(slots=True)
class Aim:
    """Where a process must die: at the named point, with an object of this kind at hand, after ``countdown`` times."""

    point: str
    kind: type | None
    countdown: int


class Surroundings(Events):
    """The world as seen by a process: time, the wire, the other processes by name, and what happens to it.

    Checkers, faults and clients know all kinds of processes, so no process can name their classes.
    """

    checkers: Any
    """checks/checkers.py."""
    faults: Any
    """faults/timing.py."""
    clients: Any
    """clients/workload.py."""
    tx_clients: Any
    """clients/transactions.py."""

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
        """Restart a dead process after a while."""
        self.at(self.now_us + self.rng.randint(*RESTART_US), self._restart, process)

    def _restart(self, process: Process) -> None:
        if not process.is_up and process.node not in self.waiting:
            process.start()


class Process:
    """Common part of masters and workers."""

    def __init__(self, world: Surroundings, node: NodeId, clock: SimClock) -> None:
        self.world = world
        self.node = node
        self.clock = clock
        self.transport = SimTransport(self)
        self.is_up = False
        self.life = 0
        """Grows with each start and each death: events of an earlier life do not happen."""
        self.incarnation = 0
        self.aim: Aim | None = None
        self.is_disk_slow = False
        self.is_disk_full = False
        self.turn_us = TURN_US
        """Virtual time of each turn in addition to its writes."""
        self.spent_us = 0
        """Virtual time of the turn so far."""
        self.frozen_until_us = 0
        self._busy_until_us = 0
        self._turn_at_us: int | None = None
        self._mail: list[Envelope] = []

    # ---- input

    def deliver(self, envelope: Envelope) -> None:
        """Receive a message."""
        if self.is_up:
            self.transport.inbox.append(envelope)
            self.wake()
        elif self.world.options.wire.keeps_for_dead and len(self._mail) < MAIL_LIMIT:
            self._mail.append(envelope)

    def wake(self) -> None:
        """Plan a turn as soon as the last one is over."""
        self._plan(max(self.world.now_us, self._busy_until_us))

    def _plan(self, at_us: int) -> None:
        at_us = max(at_us, self.frozen_until_us)
        if self._turn_at_us is None or at_us < self._turn_at_us:
            self._turn_at_us = at_us
            self.world.at(at_us, self._turn, self.life, at_us)

    def freeze(self, for_us: int) -> None:
        """Stop it for a while, like a signal or a long pause of the machine."""
        self.frozen_until_us = self.world.now_us + for_us
        self._turn_at_us = None
        self._plan(self.frozen_until_us)

    def thaw(self) -> None:
        """Let it continue."""
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
            # The clock of a node counts whole milliseconds, so a deadline is at the beginning of one.
            due_us = (self.world.now_us // 1000 + wait_ms) * 1000
            self._plan(max(due_us, self._busy_until_us))

    def _take_turn(self) -> int:
        raise NotImplementedError

    def _has_input(self) -> bool:
        return bool(self.transport.inbox)

    def guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action in which the process can die."""
        try:
            action(*arguments)
        except Crashed as crash:
            self.world.trace.note(self.world.now_us, self.node, "dies", str(crash))
            self.die()
            self.world.plan_restart(self)

    # ---- death and birth

    def reach(self, point: str, at_hand: Sequence[object]) -> None:
        """Reach a possible crash point. Raises Crashed."""
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
        """Stop in order: the last messages are sent before it dies."""
        self.die()

    def mend(self) -> None:
        """Repair its disk."""

    def start_again(self, life: int) -> None:
        """Let the supervisor restart a process that cannot continue."""
        if life == self.life and self.is_up:
            self.world.trace.note(self.world.now_us, self.node, "dies", "its disk failed")
            self.die()
            self.world.plan_restart(self)

    def start(self) -> None:
        """Start again from the durable state."""
        self.is_up = True
        self.life += 1
        self.incarnation += 1
        self._busy_until_us = self.world.now_us
        self.frozen_until_us = 0
        # A restart can be a reboot, after which the monotonic clock starts at a random value.
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
        """Return the transport of its runner: it reaches the process that acts for a master, if there are several."""
        return self.addressed() if self.world.has_backups else self.transport

    def addressed(self) -> AddressedTransport:
        """Return its transport, with an empty address book."""
        processes: dict[NodeId, list[NodeId]] = {}
        for process, master in self.world.owner.items():
            processes.setdefault(master, []).append(process)
        return AddressedTransport(self.transport, AddressBook(processes, processes))

    # ---- the disk

    def write_us(self) -> int:
        """Draw the duration of one write."""
        disk = self.world.options.disk
        low, high = disk.slow_us if self.is_disk_slow else disk.write_us
        return low + int(self.world.rng.random() * (high - low))

    def spend_write(self) -> None:
        """Add the duration of a write to the turn."""
        self.spent_us += self.write_us()


class SimTransport:
    """`ports.Transport` of one simulated process."""

    def __init__(self, process: Process) -> None:
        self.inbox: list[Envelope] = []
        self._absences: list[Absence] = []
        self._process = process

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Hand messages to the network; the checkers compare each with the durable state of its sender."""
        process = self._process
        world = process.world
        for place, message in enumerate(outgoing):
            if process.aim is not None and place:
                process.reach("half sent", (message.message,))
            world.checkers.on_message(process, message)
            world.network.carry(process, message, process.spent_us)

    def look(self, masters: Sequence[NodeId]) -> None:
        """Ask the broker, which answers after a moment and knows dead processes at once, but no frozen processes or cut links."""
        world = self._process.world
        for master in masters:
            world.at(world.now_us + LOOK_US, self._answer, master)

    has_other_nodes = False

    def leave_broker_node(self, directions: Sequence[str]) -> None:
        """Do nothing: there is no broker, and cut ways stay cut."""

    def _answer(self, master: NodeId) -> None:
        process = self._process.world.processes.get(master)
        if self._process.transport is self and process is not None and not process.is_up:
            self._absences.append(Absence(master))
            self._process.wake()

    def receive(self, limit: int, timeout_ms: int) -> list[Inbound]:
        """Return the arrived messages, without waiting."""
        del timeout_ms
        items, self.inbox = self.inbox[:limit], self.inbox[limit:]
        absences, self._absences = self._absences, []
        return [*absences, *items]

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing: no call waits here, simulated clients use no messages, and there is nothing to release."""

    wake = reply = settle = serve_shared = serve_clients = reject = close = _ignore

    def tx_queue(self, decision: TxQueueDecision) -> None:
        """Tell the broker."""
        self._process.world.tx_queues.decide(self._process, decision)

    def status(self) -> TransportStatus:
        """Return "connected" always: a broken wire is one that loses messages."""
        return TransportStatus("connected", "", 0, {})
