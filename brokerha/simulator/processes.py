"""Simulated processes: the shipped runners, each with a virtual clock, disk and wire; they may die at any moment.

    deliver, submit ---> inbox ---> turn (MasterRunner.turn / WorkerRunner.turn) ---> next turn when the runner says

A turn takes virtual time: writing costs what the disk costs, and what comes in meanwhile is taken by the next turn. A crash
loses everything that is not in the journal or the store; `start` builds the process anew from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brokerha.master.core import MasterConfig
from brokerha.model.ids import NodeId
from brokerha.model.ready import Damaged
from brokerha.model.requests import Reply, Submit, TxCommand, TxReply
from brokerha.model.wire.messages import Envelope
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.worker.copying import state_of
from brokerha.nodes.worker.runner import WorkerRunner
from brokerha.ports.transport import Transport
from brokerha.replication.worker.config import WorkerConfig
from brokerha.replication.worker.core import WorkerCore
from brokerha.simulator.clients.operators import command
from brokerha.simulator.clocks import SimClock
from brokerha.simulator.disk import SimDoor, SimJournal, sim_journal
from brokerha.simulator.network import SimTransport
from brokerha.simulator.options import KEEP_RESULTS
from brokerha.stores.memory.worker_copy import MemoryCopy

if TYPE_CHECKING:
    from brokerha.simulator.world import World

TURN_US = 20
"""Least time that a turn takes."""
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


class Process:
    """What masters and workers have in common."""

    def __init__(self, world: World, node: NodeId, clock: SimClock) -> None:
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
        self.spent_us = TURN_US
        self.world.steps += 1
        self.guarded(self._run)
        self.world.look_in_full()

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

    def mend(self) -> None:
        """Its disk fails no more."""

    def start_again(self, life: int) -> None:
        """Whoever runs a process that cannot go on starts it again."""
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
        processes = {master.node: [process.node for process in master.processes] for master in self.world.masters}
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


class SimMaster(Process):
    """One master: a MasterRunner over a simulated journal."""

    runner: MasterRunner

    def __init__(self, world: World, config: MasterConfig, clock: SimClock, journal: SimJournal) -> None:
        super().__init__(world, config.sync.node, clock)
        self.config = config
        self.journal = journal
        self.is_wiped = False
        """Whether its data directory was lost once."""
        self._submits: list[Submit | TxCommand] = []

    @property
    def processes(self) -> list[SimMaster]:
        """Itself alone."""
        return [self]

    @property
    def acting(self) -> list[SimMaster]:
        """Itself while it lives."""
        return [self] if self.is_up else []

    @property
    def master(self) -> MasterRunner:
        """The runner of the master."""
        return self.runner

    def submit(self, submit: Submit | TxCommand) -> None:
        """A client hands in a write or a step of a transaction; the process has to be up."""
        self._submits.append(submit)
        self.wake()

    def command(self, name: str, **arguments: object) -> dict[str, object] | None:
        """An operator's command; None when it is refused or the master cannot take it now."""
        return command(self, self.runner, name, arguments) if self.is_up else None

    def _open(self) -> None:
        self.journal.process = self
        self.world.checkers.on_start(self.node, self.journal)
        self.runner = MasterRunner(
            self.config, self.journal, self.wire(), self.clock, self._on_reply, self._crash_point
        )
        self.runner.on_tx_reply = self._on_tx_reply
        self.incarnation = self.runner.core.sync.incarnation

    def _take_turn(self) -> int:
        submits, self._submits = self._submits, []
        trace = self.world.trace
        trace.note(self.world.now_us, self.node, "takes", [*self.transport.inbox, *submits])
        taken, had_failed = self.transport.inbox, bool(self.runner.failure)
        if not had_failed:
            self.world.checkers.on_taken(self.node, taken)
        self.runner.turn(submits)
        if had_failed and not self.runner.failure:
            self.world.checkers.on_taken(self.node, taken)
        self.incarnation = self.runner.core.sync.incarnation
        self.world.checkers.after_turn(self)
        return self.runner.wait_ms()

    def _has_input(self) -> bool:
        return bool(self.transport.inbox or self._submits)

    def _crash_point(self, point: str) -> None:
        if self.aim is not None:
            self.reach(point, self.journal.last_turn)

    def _on_reply(self, reply: Reply) -> None:
        self.world.trace.note(self.world.now_us, self.node, "answers", reply)
        self.world.checkers.on_reply(self.node, reply)
        self.world.clients.on_reply(self.node, reply)

    def _on_tx_reply(self, reply: TxReply) -> None:
        self.world.trace.note(self.world.now_us, self.node, "answers", reply)
        self.world.tx_clients.on_reply(self.node, reply)

    def die(self) -> None:
        """Lose the process; clients that waited for it see their connections break."""
        super().die()
        self._submits = []
        self.journal = self.journal.survivor()
        self.world.checkers.on_lost(self)
        self.world.clients.on_death(self.node)
        self.world.tx_clients.on_death(self.node)

    def mend(self) -> None:
        """Its disk fails no more."""
        self.journal.disk.sync_fails = 0.0

    def wipe(self) -> None:
        """Lose the data directory while the process is down."""
        self.is_wiped = True
        self.journal = sim_journal(self.node, f"{self.node}-again-{self.life}", str(self.world.options.seed), self.world.options.disk.sync_fails)
        self.world.checkers.on_wipe(self.node)


class SimWorker(Process):
    """One worker: a WorkerRunner over a copy in memory."""

    runner: WorkerRunner
    door: SimDoor

    def __init__(self, world: World, config: WorkerConfig, clock: SimClock) -> None:
        super().__init__(world, config.node, clock)
        self.config = config
        self._copies = 0
        disk = world.options.disk
        # Somebody has to have the results that a site lacks, however long that was without any copy.
        kept = disk.keep_results if world.workers else KEEP_RESULTS
        self._settings: dict[str, Any] = {"chunk_bytes": disk.chunk_bytes, "keep_results": kept}
        self.copy = MemoryCopy(self._new_journal, **self._settings)
        self.is_damaged = False
        """Whether its data was changed behind its back."""

    def _new_journal(self) -> str:
        self._copies += 1
        return f"{self.node}-copy-{self._copies}"

    def _open(self) -> None:
        copy = self.copy
        state = state_of(copy)
        core = WorkerCore(self.config, state)
        self.door = SimDoor(self, copy)
        self.runner = WorkerRunner(self.config, core, self.door, self.wire(), self.clock)
        self.world.checkers.on_worker_start(self.node, copy)
        self._plan_scrub()

    def _take_turn(self) -> int:
        taken = self.transport.inbox
        self.world.trace.note(self.world.now_us, self.node, "takes", list(taken))
        self.runner.turn()
        self.world.checkers.after_worker_turn(self, taken)
        return self.runner.wait_ms()

    def die(self) -> None:
        """Lose the process; the copy keeps what it committed."""
        super().die()
        self.copy = MemoryCopy.from_image(self.copy.image(), self._new_journal, **self._settings)

    def empty(self) -> None:
        """Lose all data while the process is down."""
        self.copy = MemoryCopy(self._new_journal, **self._settings)
        self.is_damaged = False
        self.world.checkers.on_emptied(self.node)

    def spoil(self) -> None:
        """Make the copy one that cannot be opened any more, while the process is down: it is moved aside."""
        self.copy = MemoryCopy.from_image(
            self.copy.image(), self._new_journal, trouble="its files are damaged", **self._settings
        )
        self.is_damaged = False
        self.world.checkers.on_emptied(self.node)

    def damage(self) -> None:
        """Change data behind the back of the fingerprint: something that no client ever writes."""
        self.copy.damage(("put", "foreign", b"%d" % self.world.now_us, b"x"))
        self.is_damaged = True

    # ---- scrub

    def _plan_scrub(self) -> None:
        every_us = self.world.options.scrub_us
        if every_us:
            self.world.at(self.world.now_us + every_us, self._scrub, self.life)

    def scrub_soon(self) -> None:
        """Look at a copy that was just loaded or given: its source may not know that it is damaged."""
        self.world.at(self.world.now_us + self.write_us(), self._look, self.life)

    def _scrub(self, life: int) -> None:
        """Look at all data now and then, as the background scrub does."""
        if life == self.life:
            self._plan_scrub()
            self._look(life)

    def _look(self, life: int) -> None:
        if life != self.life or self.world.now_us < self.frozen_until_us:
            return
        copy, core = self.copy, self.runner.core
        if core.may_be_read and not core.is_writing and copy.recompute() != copy.applied():
            self.world.faults_seen["damage found"] += 1
            self.world.checkers.on_detected(self.node)
            core.step(Damaged("scrub: the data has another fingerprint"), self.clock.now())
            self.wake()
