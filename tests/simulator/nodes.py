"""Masters of one process, and workers: the shipped runners, each in a process that can die at any moment.

Masters of several processes are in backups.py.

    SimMaster   a MasterRunner over a simulated journal
    SimWorker   a WorkerRunner over the store of workers (copies.py); SimDoor runs its decisions
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from brokerha.master.config import MasterConfig
from brokerha.master.site_commands import SiteCommands
from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import NodeId
from brokerha.model.operations import Put
from brokerha.model.ready import (
    BeginLoad,
    CopyAnswer,
    CopyDecision,
    Damaged,
    Decision,
    KeepChunk,
    LoadFailed,
    LoadOpened,
    MakeSnapshot,
    OpenLoad,
    SnapshotMade,
    StoreAnswer,
    StoreDecision,
    StoreFailed,
)
from brokerha.model.requests import Reply, Submit, TxCommand, TxReply
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.worker.runner import WorkerRunner, carry_out, carry_out_copy, state_of
from brokerha.replication.worker.config import WorkerConfig
from brokerha.replication.worker.core import WorkerCore
from tests.simulator.copies import Home, SimCopy, empty, spoil
from tests.simulator.disk import SimJournal, sim_journal
from tests.simulator.processes import Crashed, Process, SimClock, Surroundings


class MasterProcess(Process):
    """A process that can act for a master: it takes the steps of clients, and answers them."""

    def __init__(self, world: Surroundings, node: NodeId, clock: SimClock) -> None:
        super().__init__(world, node, clock)
        self._submits: list[Submit | TxCommand] = []

    def submit(self, submit: Submit | TxCommand) -> None:
        """Take a write or a transaction step from a client; the process must act for the master."""
        self._submits.append(submit)
        self.wake()

    def told(self, runner: MasterRunner, name: str, arguments: dict[str, object]) -> dict[str, object] | None:
        """Run an operator's command at the master; None when it is refused or cannot be taken now."""
        if runner.failure:
            return None
        self.world.trace.note(self.world.now_us, self.node, "is told", f"{name} {arguments}")
        try:
            answer = SiteCommands(runner.core, protect_single_worker=True).run(name, arguments, self.clock.now())
        except BrokerhaError as error:
            self.world.trace.note(self.world.now_us, self.node, "refuses", str(error))
            return None
        self.wake()
        return answer

    def _has_input(self) -> bool:
        return bool(self.transport.inbox or self._submits)

    def _taken(self) -> list[Submit | TxCommand]:
        """Return the waiting steps of clients at the beginning of a turn."""
        submits, self._submits = self._submits, []
        self.world.trace.note(self.world.now_us, self.node, "takes", [*self.transport.inbox, *submits])
        return submits

    def _on_reply(self, reply: Reply) -> None:
        self.world.trace.note(self.world.now_us, self.node, "answers", reply)
        self.world.checkers.on_reply(self.world.owner[self.node], reply)
        self.world.clients.on_reply(self.node, reply)

    def _on_tx_reply(self, reply: TxReply) -> None:
        self.world.trace.note(self.world.now_us, self.node, "answers", reply)
        self.world.tx_clients.on_reply(self.node, reply)

    def die(self) -> None:
        """Kill the process; connections of waiting clients break."""
        super().die()
        self._submits = []
        self._lose()
        self.world.clients.on_death(self.node)
        self.world.tx_clients.on_death(self.node)

    def _lose(self) -> None:
        """Lose the part of the journal that is not durable."""
        raise NotImplementedError


class SimMaster(MasterProcess):
    """One master: a MasterRunner over a simulated journal."""

    runner: MasterRunner

    def __init__(self, world: Surroundings, config: MasterConfig, clock: SimClock, journal: SimJournal) -> None:
        super().__init__(world, config.sync.node, clock)
        self.config = config
        self.journal = journal
        self.is_wiped = False
        """Whether its data directory was lost once."""

    @property
    def processes(self) -> list[SimMaster]:
        """Its only process: itself."""
        return [self]

    @property
    def acting(self) -> list[SimMaster]:
        """Itself while it is up."""
        return [self] if self.is_up else []

    @property
    def master(self) -> MasterRunner:
        """The runner of the master."""
        return self.runner

    def command(self, name: str, **arguments: object) -> dict[str, object] | None:
        """Run an operator's command; None when it is refused or the master cannot take it now."""
        return self.told(self.runner, name, arguments) if self.is_up else None

    def _open(self) -> None:
        self.journal.process = self
        self.world.checkers.on_start(self.node, self.journal)
        self.runner = MasterRunner(self.config, self.journal, self.wire(), self.clock, self._on_reply, self._crash_point)
        self.runner.on_tx_reply = self._on_tx_reply
        self.incarnation = self.runner.core.sync.incarnation

    def _take_turn(self) -> int:
        submits = self._taken()
        taken, had_failed = self.transport.inbox, bool(self.runner.failure)
        if not had_failed:
            self.world.checkers.on_taken(self.node, taken)
        self.runner.turn(submits)
        if had_failed and not self.runner.failure:
            self.world.checkers.on_taken(self.node, taken)
        self.incarnation = self.runner.core.sync.incarnation
        self.world.checkers.after_turn(self)
        return self.runner.wait_ms()

    def _crash_point(self, point: str) -> None:
        if self.aim is not None:
            self.reach(point, self.journal.last_turn)

    def _lose(self) -> None:
        self.journal = self.journal.survivor()
        self.world.checkers.on_lost(self)

    def stop(self) -> None:
        """Stop in order, or die while stopping."""
        with suppress(Crashed):
            self.runner.leave()
        self.die()

    def mend(self) -> None:
        """Repair its disk."""
        self.journal.disk.sync_fails = 0.0

    def wipe(self) -> None:
        """Lose the data directory of the stopped process."""
        self.is_wiped = True
        self.journal = sim_journal(
            self.node, f"{self.node}-again-{self.life}", str(self.world.options.seed), self.world.options.disk.sync_fails
        )
        self.world.checkers.on_wipe(self.node)


class SimWorker(Process):
    """One worker: a WorkerRunner over the store of workers."""

    runner: WorkerRunner
    door: SimDoor

    def __init__(self, world: Surroundings, home: Home, config: WorkerConfig, clock: SimClock, keep_results: int) -> None:
        super().__init__(world, config.node, clock)
        self.config = config
        self._home = home
        self._copies = 0
        self._keep_results = keep_results
        self.copy = self._opened()
        self.is_damaged = False
        """Whether its data was changed without its knowledge."""

    def _new_journal(self) -> str:
        self._copies += 1
        return f"{self.node}-copy-{self._copies}"

    def _opened(self, before: SimCopy | None = None) -> SimCopy:
        home = self._home
        home.open[self.node] = SimCopy(
            home.path / self.node,
            self.node,
            self._new_journal,
            lambda: self.world.now_us / 1_000_000,
            chunk_bytes=self.world.options.disk.chunk_bytes,
            keep_results=self._keep_results,
            reach=self._crash_point,
            before=before,
        )
        return home.open[self.node]

    def _crash_point(self, _step: str) -> None:
        # Operators' actions on the files of a stopped process are no crash points.
        if self.aim is not None and self.is_up:
            self.reach("within the store", ())

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
        """Kill the process; the copy keeps its commits."""
        super().die()
        self.copy.crash()
        self.copy = self._opened(self.copy)

    def stop(self) -> None:
        """Stop in order, or die while stopping."""
        with suppress(Crashed):
            self.runner.leave()
        self.die()

    def empty(self) -> None:
        """Lose all data of the stopped process."""
        self.copy.crash()
        empty(self.copy.home)
        self.copy = self._opened()
        self.is_damaged = False
        self.world.checkers.on_emptied(self.node)

    def spoil(self) -> None:
        """Make the copy of the stopped process unreadable: it is moved aside."""
        self.copy.crash()
        spoil(self.copy.home)
        self.copy = self._opened()
        self.is_damaged = False
        self.world.checkers.on_emptied(self.node)

    def damage(self) -> None:
        """Change data without changing the fingerprint: insert a key that no client writes."""
        self.copy.damage(Put("put", "foreign", b"%d" % self.world.now_us, b"x"))
        self.is_damaged = True

    # ---- scrub

    def _plan_scrub(self) -> None:
        every_us = self.world.options.scrub_us
        if every_us:
            self.world.at(self.world.now_us + every_us, self._scrub, self.life)

    def scrub_soon(self) -> None:
        """Scrub a copy that was just loaded or given: its source can be damaged without knowing it."""
        self.world.at(self.world.now_us + self.write_us(), self._look, self.life)

    def _scrub(self, life: int) -> None:
        """Scrub all data at intervals, like the background scrub."""
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


def refused_by_full_disk(process: Process, decision: CopyDecision) -> CopyAnswer | None:
    """Return a full disk's answer to a decision that writes a copy; None for other decisions, or with free space."""
    if not process.is_disk_full:
        return None
    if isinstance(decision, MakeSnapshot):
        return SnapshotMade(decision.snapshot, 0, "", 0, 0, (), "the disk is full")
    return LoadFailed("the disk is full", is_disk_full=True) if isinstance(decision, BeginLoad | KeepChunk | OpenLoad) else None


class Door:
    """Work beside the loop of a simulated process, whose answers the loop takes later."""

    def __init__(self, process: Process) -> None:
        self._process: Any = process
        self._answers: list[Any] = []
        self._free_us = 0
        """Time at which the started work, except that on a store, is done."""

    def _finish(self, life: int, decision: Decision) -> None:
        if life == self._process.life:
            self._process.guarded(self._carry_out, decision)

    def _carry_out(self, decision: Any) -> None:
        raise NotImplementedError

    def finished(self) -> list[Any]:
        """Return the answers since the last call."""
        answers, self._answers = self._answers, []
        return answers


class SimDoor(Door):
    """`StoreDoor` of a simulated worker: runs one decision at a time that writes the store, and others concurrently in order."""

    def __init__(self, process: SimWorker, copy: SimCopy) -> None:
        super().__init__(process)
        self.copy = copy

    def begin(self, decision: Decision) -> None:
        """Start a decision."""
        process = self._process
        process.world.checkers.on_decision(process.node, decision)
        process.world.trace.note(process.world.now_us, process.node, "begins", type(decision).__name__)
        at_us = process.world.now_us + process.write_us()
        if not isinstance(decision, StoreDecision):
            at_us = self._free_us = max(at_us, self._free_us + 1)
        process.world.at(at_us, self._finish, process.life, decision)

    def _carry_out(self, decision: Decision) -> None:
        process = self._process
        if isinstance(decision, StoreDecision):
            self._answers.append(self._store(decision))
        else:
            answer = self._beside(decision)
            if answer is not None:
                self._answers.append(answer)
        process.world.trace.note(process.world.now_us, process.node, "finishes", type(decision).__name__)
        process.wake()

    def _store(self, decision: StoreDecision) -> StoreAnswer:
        process = self._process
        if process.is_disk_full:
            process.world.faults_seen["write refused by a full disk"] += 1
            return StoreFailed("the disk is full", is_disk_full=True)
        process.reach("store absent", ())
        answer = carry_out(self.copy, decision)
        process.world.checkers.on_store(process.node, self.copy, answer)
        process.reach("store there", ())
        return answer

    def _beside(self, decision: CopyDecision) -> StoreAnswer | None:
        process = self._process
        if (refused := refused_by_full_disk(process, decision)) is not None:
            process.world.faults_seen["write refused by a full disk"] += 1
            return refused
        process.reach("copy absent", (decision,))
        answer = carry_out_copy(self.copy, decision, self._answers.append)
        if isinstance(answer, LoadOpened):
            process.world.faults_seen["snapshot loaded"] += 1
            process.world.checkers.on_loaded(process, self.copy)
            process.scrub_soon()
        elif isinstance(answer, LoadFailed):
            process.world.faults_seen["load failed"] += 1
        if isinstance(answer, SnapshotMade):
            process.scrub_soon()
        process.world.checkers.on_copy(process.node, self.copy, decision)
        process.reach("copy there", (decision,))
        return answer
