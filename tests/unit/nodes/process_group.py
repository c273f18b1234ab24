"""The processes of one master over journals in memory and a network that a test holds in its hand: no thread, no clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brokerha.log.copies import LogCopy
from brokerha.log.log import Log
from brokerha.master.config import MasterConfig
from brokerha.model.ids import Instant, NodeId
from brokerha.model.operations import pack_operations
from brokerha.model.ready import CopyAnswer, CopyDecision, TxQueueDecision
from brokerha.model.requests import ACCEPTED, Reply, Submit, TxCommand, TxReply
from brokerha.model.wire.messages import BETWEEN_PROCESSES, Envelope, Message, Outgoing
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.nodes.master.process_runner import ProcessConfig, ProcessRunner, carry_out_journal
from brokerha.nodes.master.runner import MasterRunner
from brokerha.replication.role.config import RoleConfig
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_copy, reopened_copy

FAIL_OVER_MS = 1000
SYNC_TIMEOUT_MS = 2000
BODY = pack_operations([("put", "t", b"k", b"v")])


class Wire:
    """Notes what is sent, with what was durable at that moment; gives what the group delivers."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.arrived: list[Envelope] = []
        self.log: list[tuple[Outgoing, int, int]] = []
        """(message, view promised, last number) at the moment of sending."""
        self.outbox: list[Outgoing] = []
        self.queues: list[TxQueueDecision] = []

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        state = Log.state(self.process.copy.journal)
        self.log += [(each, state.promised_view, state.last_number) for each in outgoing]
        self.outbox += outgoing

    def receive(self, _limit: int, _timeout_ms: int) -> list[Envelope]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def look(self, masters: Sequence[str]) -> None:
        """Nobody is there to be asked."""

    has_other_nodes = False

    def leave_broker_node(self, directions: Sequence[str]) -> None:
        """There is no broker."""

    def tx_queue(self, decision: TxQueueDecision) -> None:
        self.queues.append(decision)


class Door:
    """Carries out at once what is decided about a copy, and tells of it in the next turn."""

    def __init__(self, copy: LogCopy) -> None:
        self._copy = copy
        self._answers: list[CopyAnswer] = []
        self.begun: list[CopyDecision] = []

    def begin(self, decision: CopyDecision) -> None:
        self.begun.append(decision)
        answer = carry_out_journal(self._copy, decision)
        if answer is not None:
            self._answers.append(answer)

    def finished(self) -> list[CopyAnswer]:
        answers, self._answers = self._answers, []
        return answers


class Process:
    """One process; `start` begins it (again) on its journal."""

    def __init__(self, group: Group, name: NodeId) -> None:
        self.group = group
        self.name = name
        self.copy = memory_copy("m1", f"journal-of-{name}")
        self.replies: list[Reply] = []
        self.tx_replies: list[TxReply] = []
        self.changes: list[tuple[str, int, bool]] = []
        self.points: list[str] = []
        self.start()

    def start(self) -> None:
        group = self.group
        self.copy = reopened_copy(self.copy)
        self.wire = Wire(self)
        self.door = Door(self.copy)
        wire: Any = self.wire
        self.runner = ProcessRunner(
            ProcessConfig(
                group.config,
                RoleConfig(self.name, "m1", group.names, group.sync_n, FAIL_OVER_MS, is_automatic=group.is_automatic),
                SYNC_TIMEOUT_MS,
                goes_idle=group.goes_idle,
            ),
            self.copy,
            AddressedTransport(wire, AddressBook(["m1", "m2"], {"m1": group.names})),
            group,
            self.door,
            on_change=self._on_change,
            on_reply=self.replies.append,
            on_tx_reply=self.tx_replies.append,
            crash_point=self.points.append,
        )
        self.is_up = True

    def _on_change(self, role: str, view: int, runner: MasterRunner | None) -> None:
        self.changes.append((role, view, runner is not None))

    @property
    def journal(self) -> Log:
        return self.copy.journal

    @property
    def master(self) -> MasterRunner:
        assert self.runner.master is not None
        return self.runner.master

    def acts(self) -> bool:
        return self.runner.master is not None

    def told(self) -> list[Message]:
        """What it sent to anybody who is no process of its master."""
        return [each.message for each, _, _ in self.wire.log if type(each.message) not in BETWEEN_PROCESSES]

    def sent(self, kind: type[Message]) -> list[tuple[Any, int, int]]:
        """Messages of one kind, with what was durable when they were sent."""
        return [(each.message, view, number) for each, view, number in self.wire.log if type(each.message) is kind]


class Group:
    """Processes m1 and its backups, connected as long as a test does not cut them off."""

    def __init__(
        self,
        backups: int = 1,
        *,
        sync_n: int = 1,
        goes_idle: bool = False,
        is_automatic: bool = True,
        config: MasterConfig | None = None,
    ) -> None:
        """``config``: of the master; without it it has a peer m2, which nobody plays, and no worker."""
        self.ms = 10_000
        self.config = config or MasterConfig(SyncConfig("m1", ("m1", "m2")))
        self.names = ("m1", *(f"b{number}" for number in range(1, backups + 1)))
        self.sync_n = sync_n
        self.goes_idle = goes_idle
        self.is_automatic = is_automatic
        self.cut: set[NodeId] = set()
        """Nothing reaches them, and nothing that they send reaches anybody."""
        self.lost: set[type[Message]] = set()
        """Messages of these kinds are lost."""
        self.processes = {name: Process(self, name) for name in self.names}

    def now(self) -> Instant:
        """It is the clock of its processes too."""
        return Instant(self.ms, self.ms * 1_000)

    def __getitem__(self, name: NodeId) -> Process:
        return self.processes[name]

    @property
    def primary(self) -> Process:
        acting = [each for each in self.processes.values() if each.is_up and each.acts()]
        return max(acting, key=lambda each: each.runner.role.view)

    def turn(self, step_ms: int = 1, **submits: Sequence[Submit | TxCommand]) -> None:
        """Each process takes a turn, then everything that was sent arrives."""
        self.ms += step_ms
        for process in self.processes.values():
            if process.is_up:
                process.runner.turn(submits.get(process.name, ()))
        for process in self.processes.values():
            outbox, process.wire.outbox = process.wire.outbox, []
            for each in outbox:
                self._deliver(process.name, each)

    def _deliver(self, sender: NodeId, out: Outgoing) -> None:
        receiver = self.processes.get(out.to)
        is_lost = {sender, out.to} & self.cut or type(out.message) in self.lost
        if receiver is not None and receiver.is_up and not is_lost and out.to != sender:
            receiver.wire.arrived.append(Envelope("orders", out.sender or sender, out.incarnation, out.message, sender))

    def run(self, ms: int = 500, step_ms: int = 20) -> None:
        """So much time passes."""
        for _ in range(ms // step_ms):
            self.turn(step_ms)

    def elected(self) -> Group:
        """Run until one is primary and its backups are ready."""
        for _ in range(400):
            self.turn(20)
            acting = [each for each in self.processes.values() if each.is_up and each.runner.master is not None]
            up = sum(each.is_up and each.name not in self.cut for each in self.processes.values())
            if acting and acting[0].runner.master is not None:
                primary = acting[0].runner.master.primary
                assert primary is not None
                if len(primary.feed.ready()) == up - 1:
                    return self
        raise AssertionError("nobody was elected")

    def write(self, ticket: int, process: Process | None = None) -> None:
        """A client's write comes in at the primary."""
        target = process or self.primary
        self.turn(1, **{target.name: [Submit(ticket, f"t{ticket}", BODY, ACCEPTED)]})
