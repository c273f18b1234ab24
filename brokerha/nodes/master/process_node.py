"""One process of a master that has backups: its own process, or a backup. The primary serves; the others stand by.

    loop thread      turns of the ProcessRunner: of the standby, or of the MasterRunner while it is primary
    journal thread   snapshots and chunks of journals (process_runner.py)

While this process is primary, it has a complete `MasterNode` that lives as long as the view: its front answers, and the queues of
clients are consumed. A standby answers questions about itself, and refuses the rest with the name of the primary.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog

from brokerha.model import states
from brokerha.model.errors import NotPrimary, NotReady
from brokerha.model.ids import Instant, NodeId
from brokerha.model.numbers import Numbers
from brokerha.model.wire.messages import Envelope, Outgoing, SettingsReport, SettingsRequest, StatusReport, StatusRequest
from brokerha.nodes.loop import NodeLoop, parting_ms
from brokerha.nodes.master.address_book import AddressedTransport
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.master.orders import Orders
from brokerha.nodes.master.process_runner import JournalThread, ProcessConfig, ProcessRunner
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.master.settings import told_by
from brokerha.nodes.observing.hearing import BackupHearing, is_judged
from brokerha.nodes.observing.probes import wire_metrics
from brokerha.nodes.observing.status import StatusGathering, summary
from brokerha.nodes.observing.watching import FailureLog
from brokerha.nodes.settings import NodeSettings, rows_of
from brokerha.ports.clock import Clock
from brokerha.ports.copies import JournalCopy
from brokerha.ports.journal import Journal

log = structlog.get_logger()

ASK_SETTINGS_MS = 5000
"""Interval at which a standby asks for the settings."""
HAND_OVER_S = 2.0
"""Longest time that a stopping primary waits for a backup to take its place."""
HOOK_S = 60.0
"""Longest run of the program of ``on-role-change``; then it is killed."""

P = ParamSpec("P")
T = TypeVar("T")
MakeMaster = Callable[[Journal, MasterRunner, NodeLoop, Orders], MasterNode]
"""Makes the master for the time that a process is primary."""


def _of_primary(method: Callable[Concatenate[MasterNode, P], T]) -> Callable[Concatenate[ProcessNode, P], T]:
    """Return the same method for a process. It raises NotPrimary unless this is the primary."""

    @wraps(method)
    def passed_on(process: ProcessNode, /, *args: P.args, **named: P.kwargs) -> T:
        done: T = getattr(process.front(), method.__name__)(*args, **named)
        return done

    return passed_on


class ProcessNode:
    """One process of a master; a Front."""

    def __init__(
        self,
        config: ProcessConfig,
        cluster: str,
        copy: JournalCopy,
        transport: AddressedTransport,
        clock: Clock,
        make_master: MakeMaster,
        settings: NodeSettings,
        on_role_change: str = "",
    ) -> None:
        """``make_master`` is called each time that this process becomes primary. ``settings``: the run-time settings.
        ``on_role_change``: the operator's program, empty for none.
        """
        self.config = config
        self.cluster = cluster
        self.copy = copy
        self.transport = transport
        self.clock = clock
        self.door = JournalThread(copy, config.process, transport.wake)
        self.runner = ProcessRunner(config, copy, transport, clock, self.door, on_change=self._on_change)
        self.runner.on_failure = FailureLog(config.process, clock).tell
        self.loop = NodeLoop(f"{config.process} loop", self._turn, transport.wake)
        self.master: MasterNode | None = None
        """Set while this process is primary."""
        self._make_master = make_master
        self._settings = settings
        self._on_role_change = on_role_change
        # The process with the master's own id asks the primary as well.
        installed = copy.journal.state().installed
        masters = installed.configuration.masters if installed is not None else ()
        self._gathering = StatusGathering("", masters or config.master.sync.members)
        self.orders = Orders(self.runner, self.loop, transport.wake)
        self.runner.on_node = self._on_node
        self._ask_settings_ms = 0
        self._hearing = BackupHearing()
        self._has_stood_down = threading.Event()
        """Set when this process stops being primary."""

    def start(self) -> None:
        """Start the loop."""
        self.loop.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let a backup take over, finish the turn, answer all waiting callers, close everything. Idempotent."""
        self._hand_over(min(HAND_OVER_S, timeout_s))
        self.loop.stop(timeout_s)
        if (master := self.master) is not None:
            master.retire("the master is stopping", timeout_s)
        self.door.close(timeout_s)
        self.transport.close(parting_ms(self.transport, timeout_s))
        self.copy.close()

    def _hand_over(self, timeout_s: float) -> None:
        """Let a ready backup take over at once, instead of after the time that it takes to miss this process."""
        try:
            if self.loop.call(self._begin_to_hand_over).result(timeout_s):
                self._has_stood_down.wait(timeout_s)
        except (NotReady, TimeoutError) as error:
            log.warning("nobody takes over", node=self.config.process, reason=str(error) or f"no turn for {timeout_s} s")

    def _begin_to_hand_over(self) -> bool:
        self._has_stood_down.clear()
        primary = self.master.runner.primary if self.master is not None else None
        if primary is None or not self.config.role.is_automatic or not (ready := primary.feed.ready()):
            return False
        self.orders.promote(ready[0], is_forced=False)
        return True

    def _turn(self) -> None:
        if self.master is not None:
            self.master.turn()
            self.runner.look()
        else:
            self.runner.turn(wait_ms=0 if self.loop.has_calls else self.runner.wait_ms())
            self.loop.serve_calls()
            self._ask_for_settings()
            self._listen()

    def _listen(self) -> None:
        """Leave a node of the broker over which no primary is heard."""

        def is_waiting() -> bool:
            return is_judged(self.transport) and self.runner.state()[0] == states.WAITING_FOR_PRIMARY

        if directions := self._hearing.look(is_waiting, self.clock.now().mono_ms):
            log.warning("not heard", node=self.config.process, reason="no primary is heard", directions=" ".join(directions))
            self.transport.leave_broker_node(directions)

    def _ask_for_settings(self) -> None:
        """Ask the primary for the settings while standing by, so that this process becomes primary with the settings in force."""
        now_ms = self.clock.now().mono_ms
        if now_ms >= self._ask_settings_ms:
            self._ask_settings_ms = now_ms + ASK_SETTINGS_MS
            self.transport.send([Outgoing(self.config.role.master, SettingsRequest())])

    def _on_settings(self, sender: NodeId, report: SettingsReport) -> None:
        if sender != self.config.role.master:
            return
        try:
            self._settings.learn(report.lsn, rows_of(told_by(report)))
        except ValueError as error:
            log.warning("settings cannot be read", node=self.config.process, error=str(error))

    def _on_node(self, envelope: Envelope, _now: Instant) -> bool:
        """Take questions and answers about the status while this process stands by."""
        message = envelope.message
        if isinstance(message, StatusReport):
            self._gathering.on_report(envelope.sender, message)
        elif isinstance(message, StatusRequest):
            report = StatusReport(message.request, tuple(self.runner.rows()))
            self.transport.send([Outgoing(envelope.process or envelope.sender, report)])
        elif isinstance(message, SettingsReport):
            self._on_settings(envelope.sender, message)
        elif not isinstance(message, SettingsRequest):
            return self.orders.on_node(envelope)
        return True

    def _on_change(self, role: str, view: int, runner: MasterRunner | None) -> None:
        """Start or stop being a MasterNode; called by the loop, between two turns."""
        if (before := self.master) is not None:
            self.master = None
            # With no wait for the thread of the log: this process is a backup from now on, and its primary waits for it.
            before.retire(f"{self.config.process} is not primary of {self.config.role.master} any more", 0)
            self._has_stood_down.set()
        if runner is not None:
            self.master = self._make_master(self.copy.journal, runner, self.loop, self.orders)
        self.transport.serve_clients(runner is not None)
        log.info("role", node=self.config.process, master=self.config.role.master, role=role, view=view)
        if self._on_role_change:
            arguments = [self._on_role_change, self.config.process, self.config.role.master, role, str(view)]
            threading.Thread(target=_run_hook, args=(arguments,), daemon=True).start()

    # ---- Front

    def front(self) -> MasterNode:
        """Return the master that this process is now. Raises NotPrimary with the name of the primary."""
        # The loop can change `master` at any moment, so every other thread reads it once.
        if (master := self.master) is not None:
            return master
        state, reason = self.runner.state()
        message = f"{self.node_id} is a backup of {self.config.role.master} ({state}{f': {reason}' if reason else ''})"
        if self.runner.primary:
            message += f"; {self.runner.primary} is primary"
        raise NotPrimary(message)

    @property
    def node_id(self) -> NodeId:
        """Id of this process."""
        return self.config.process

    @property
    def role(self) -> str:
        """``master`` while it is primary, else ``backup``."""
        return "master" if self.master is not None else "backup"

    new_txid = _of_primary(MasterNode.new_txid)
    submit = _of_primary(MasterNode.submit)
    read = _of_primary(MasterNode.read)
    readers = _of_primary(MasterNode.readers)
    was_read = _of_primary(MasterNode.was_read)
    transact = _of_primary(MasterNode.transact)
    outcome = _of_primary(MasterNode.outcome)
    log = _of_primary(MasterNode.log)
    logged = _of_primary(MasterNode.logged)
    entries = _of_primary(MasterNode.entries)
    wait_for = _of_primary(MasterNode.wait_for)

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """Carry out orders to single processes of this master (orders.py) here; pass every other command to the primary."""
        if self.orders.are(name, arguments):
            return self.orders.give(name, arguments)
        return self.front().command(name, arguments, timeout_ms)

    def status(self, timeout_ms: int = 2000) -> dict[str, Any]:
        """Return the status of the whole cluster as seen from here."""
        if (master := self.master) is not None:
            return master.status(timeout_ms)
        others = self._gathering.gather_all(self.loop, self.transport, timeout_ms)
        own = self.loop.call(self.runner.rows).result(10)
        known = {(row["id"], row["role"]) for row in others}
        return summary(self.cluster, 1, [*others, *(row for row in own if (row["id"], row["role"]) not in known)])

    def writable(self) -> tuple[bool, str]:
        """Tell whether this master takes writes now."""
        try:
            return self.front().writable()
        except NotReady as error:
            return False, str(error)

    def ready(self, max_lag_entries: int | None = None, max_lag_s: float | None = None) -> tuple[bool, list[str]]:
        """Tell whether a primary can serve reads, or whether a backup could take over."""
        if (master := self.master) is not None:
            return master.ready(max_lag_entries, max_lag_s)
        state, _ = self.runner.state()
        is_ready = self.loop.is_running and state == states.READY
        return is_ready, [f"[{'+' if is_ready else '-'}]backup {state}"]

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics."""
        master = self.master
        if master is not None:
            return {**master.metrics(), **self.runner.metrics()}
        state: Numbers = {("state_info", self.runner.state()[0]): 1}
        writes = self.runner.writes.numbers("fsync_duration_seconds")
        return {**state, **writes, **wire_metrics(self.runner.transport.status()), **self.runner.metrics()}


def _run_hook(arguments: list[str]) -> None:
    try:
        done = subprocess.run(arguments, timeout=HOOK_S, check=False, stdin=subprocess.DEVNULL)  # noqa: S603  (the operator's)
        log.info("on-role-change", program=arguments[0], code=done.returncode)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("on-role-change", program=arguments[0], error=str(error))
