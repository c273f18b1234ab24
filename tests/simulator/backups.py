"""Masters with backups: several processes of one master, each a shipped `ProcessRunner` over a simulated journal.

    SimProcess     one process: standing by, or acting for the master
    SimGroup       the master as clients, operators and checkers see it: the process that acts

A crash loses everything except the journal, its promise, and the loaded part of another journal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from brokerha.master.config import MasterConfig
from brokerha.master.standby import Standby
from brokerha.model.errors import NotReady
from brokerha.model.ids import NodeId
from brokerha.model.ready import CopyDecision, LoadOpened, OpenLoad
from brokerha.model.requests import Reply, Submit, TxCommand, TxReply
from brokerha.nodes.master.process_runner import ProcessConfig, ProcessRunner, carry_out_journal
from brokerha.nodes.master.runner import MasterRunner
from tests.simulator.disk import SimJournal, SimJournalCopy, sim_copy
from tests.simulator.nodes import Door, MasterProcess, refused_by_full_disk
from tests.simulator.processes import SimClock, Surroundings


class SimProcess(MasterProcess):
    """One process of a master with backups."""

    runner: ProcessRunner
    door: SimJournalDoor

    def __init__(self, world: Surroundings, config: ProcessConfig, clock: SimClock) -> None:
        super().__init__(world, config.process, clock)
        self.config = config
        self.group: SimGroup
        self._empties = 0
        self.copy = self._new_copy()
        self._standby: Standby | None = None
        """The standby with the settings of this world."""

    def _new_copy(self) -> SimJournalCopy:
        name = f"{self.node}-journal" if not self._empties else f"{self.node}-again-{self._empties}"
        # The journals of all processes belong to the master.
        options = self.world.options
        disk = options.disk
        copy = sim_copy(self.config.role.master, name, disk.journal_chunk_bytes, str(options.seed), disk.sync_fails)
        copy.journal.process = self
        return copy

    @property
    def journal(self) -> SimJournal:
        """The current journal."""
        return self.copy.journal

    @property
    def master(self) -> MasterRunner | None:
        """The runner of the master, while this process believes that it is primary."""
        return self.runner.master if self.is_up else None

    @property
    def view(self) -> int:
        """View in which it acts; 0 when it does not act."""
        return self.runner.role.view if self.master is not None else 0

    def promote(self, node: NodeId) -> bool:
        """Take an operator's wish for a primary; return whether this process will see to it."""
        self.world.trace.note(self.world.now_us, self.node, "is told", f"promote {node}")
        try:
            self.runner.promote(node, is_forced=False)
        except NotReady as error:
            self.world.trace.note(self.world.now_us, self.node, "refuses", str(error))
            return False
        self.wake()
        return True

    # ---- life

    def _open(self) -> None:
        self.journal.process = self
        self.world.checkers.on_process_start(self)
        self.door = SimJournalDoor(self)
        self.runner = ProcessRunner(
            self.config,
            self.copy,
            self.addressed(),
            self.clock,
            self.door,
            on_change=self._on_change,
            on_reply=self._on_reply,
            on_tx_reply=self._on_tx_reply,
            crash_point=self._crash_point,
        )

    def _take_turn(self) -> int:
        submits = self._taken()
        if self.runner.master is None and submits:
            self._refuse(submits)
            submits = []
        if self.runner.master is None and self.runner.standby is not self._standby:
            self._standby = self.runner.standby
            follower = self._standby.follower
            follower.config = replace(follower.config, **self.world.options.journal_follower)
        self.runner.turn(submits)
        self.world.checkers.after_process_turn(self)
        return self.runner.wait_ms()

    def _refuse(self, submits: list[Submit | TxCommand]) -> None:
        """Refuse everything: the process is a standby."""
        for submit in submits:
            if isinstance(submit, TxCommand):
                self._on_tx_reply(TxReply(submit.ticket, submit.txid, "NotReady", "no primary"))
            else:
                self._on_reply(Reply(submit.ticket, submit.txid, "refused", 0, "NotReady", "no primary"))

    def _crash_point(self, point: str) -> None:
        if self.aim is not None:
            self.reach(point, self.journal.last_turn)

    def _on_change(self, role: str, view: int, runner: MasterRunner | None) -> None:
        self.world.trace.note(self.world.now_us, self.node, "becomes", f"{role} in view {view}")
        self.world.checkers.on_role(self, view, is_primary=runner is not None)
        if runner is not None and runner.primary is not None:
            feed = runner.primary.feed
            feed.config = replace(feed.config, **self.world.options.journal_feed)

    def _lose(self) -> None:
        self.copy = self.copy.survivor()
        self.journal.process = self

    def mend(self) -> None:
        """Repair its disk."""
        self.copy.disk.sync_fails = 0.0

    def empty(self) -> None:
        """Lose the directory of the stopped process."""
        self._empties += 1
        self.copy = self._new_copy()
        self.world.checkers.on_process_emptied(self)


class SimJournalDoor(Door):
    """`JournalDoor` of a simulated process: one decision after the other; the loop opens a load at once."""

    def begin(self, decision: CopyDecision) -> None:
        """Start a decision."""
        process = self._process
        world = process.world
        world.trace.note(world.now_us, process.node, "begins", type(decision).__name__)
        if isinstance(decision, OpenLoad):
            self._carry_out(decision)
            return
        self._free_us = max(world.now_us + process.write_us(), self._free_us + 1)
        world.at(self._free_us, self._finish, process.life, decision)

    def _carry_out(self, decision: CopyDecision) -> None:
        process = self._process
        process.reach("copy absent", (decision,))
        answer = refused_by_full_disk(process, decision) or carry_out_journal(process.copy, decision)
        if isinstance(answer, LoadOpened):
            process.world.faults_seen["journal loaded"] += 1
            process.world.checkers.on_journal_loaded(process)
        process.reach("copy there", (decision,))
        if answer is not None:
            self._answers.append(answer)
        process.wake()


class SimGroup:
    """A master with backups: its processes, one of which acts."""

    is_wiped = False

    def __init__(self, config: MasterConfig, processes: list[SimProcess]) -> None:
        self.config = config
        self.node: NodeId = config.sync.node
        self.processes = processes
        for process in processes:
            process.group = self

    @property
    def acting(self) -> list[SimProcess]:
        """Processes that believe that they are primary, the highest view first."""
        acting = [process for process in self.processes if process.is_up and process.master is not None]
        return sorted(acting, key=lambda process: -process.view)

    @property
    def is_up(self) -> bool:
        """Whether a process acts."""
        return bool(self.acting)

    @property
    def incarnation(self) -> int:
        """Incarnation of the acting process."""
        return self.runner.core.sync.incarnation

    @property
    def runner(self) -> MasterRunner:
        """The runner of the acting process, which must exist."""
        runner = self.acting[0].master
        assert runner is not None
        return runner

    @property
    def journal(self) -> SimJournal:
        """Journal of the acting process; without one, the longest."""
        acting = self.acting
        return acting[0].journal if acting else max((p.journal for p in self.processes), key=lambda j: j.last_number)

    @property
    def clock(self) -> SimClock:
        """Clock of the acting process, which must exist."""
        return self.acting[0].clock

    @property
    def sync_n(self) -> int:
        """Number of backups that must hold a write before it is told."""
        return self.processes[0].config.role.sync_n

    def command(self, name: str, **arguments: object) -> dict[str, Any] | None:
        """Give an operator's command to the acting process; None when it is refused or no process acts."""
        acting = self.acting
        return acting[0].told(self.runner, name, arguments) if acting else None
