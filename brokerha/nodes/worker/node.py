"""One worker in one process: store, core, loop, the threads that work on the copy, and the reading half of a front.

loop thread    turns of the WorkerRunner; never waits for the store; checks guard and free space once a second
store thread   carries out one decision after another
copy thread    makes, reads and keeps snapshots and ranges of the log beside it
read threads   answer reads; their number is bounded
near reads     answers doors of this machine (local_reads/)
scrub thread   checks all data, repeatedly and slowly (tasks.py)
task thread    long work from the master, such as a backup; started with the first task (tasks.py)
"""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import structlog

from brokerha.local_reads.answering import AnsweringThread
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, ReadOnly
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.numbers import Numbers
from brokerha.model.operations import LoggedRow, Operation
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.ready import CopyDecision, Damaged, Decision, SnapshotMade, StoreAnswer, StoreDecision, StoreFailed
from brokerha.model.requests import APPLIED_LEVEL, WAIT, Reply
from brokerha.model.wire.messages import Apply, Envelope, Execute, Outgoing, Read, StatusReport, StatusRequest, Task
from brokerha.nodes.front.checking import check_read
from brokerha.nodes.loop import NodeLoop, complete, parting_ms
from brokerha.nodes.master.runner import IDLE_MS
from brokerha.nodes.observing.hearing import WorkerHearing, is_judged
from brokerha.nodes.observing.status import StatusGathering
from brokerha.nodes.observing.worker_view import LoadWatch, WorkerView
from brokerha.nodes.reads.book import ReadLimits
from brokerha.nodes.reads.pool import ReadAnswers, ReadPool
from brokerha.nodes.settings import NodeSettings, put_in_force, rows_of
from brokerha.nodes.worker.guarding import Guard, Seen
from brokerha.nodes.worker.limits import GuardLimits
from brokerha.nodes.worker.runner import WorkerRunner, WorkThread, carry_out, carry_out_copy, failed_answer, state_of
from brokerha.nodes.worker.tasks import Scrubbing, WorkerTasks
from brokerha.ports.clock import Clock
from brokerha.ports.copies import WorkerCopy
from brokerha.ports.front import Readers, ReadOutcome
from brokerha.ports.transport import Transport
from brokerha.replication.worker.config import WorkerConfig
from brokerha.replication.worker.core import WorkerCore

log = structlog.get_logger()
QUEUES_MEASURED = 100
"""Queues whose length /metrics has."""
READS_CLOSE_S = 5.0
"""Longest time that a stopping worker waits for running reads."""
SETTINGS_MS = 5000
"""Longest time of a look at the settings."""
HASTE_S = 0.5
"""Longest wait when it stops because of reads that do not end."""


def _nothing() -> None:
    """Do nothing."""


class CopyThreads:
    """`StoreDoor` of a worker.

    The threads that work on a worker's copy, so that its loop and its heartbeats go on meanwhile.

        store thread    executes and applies: the only thread that writes the store
        copy thread     snapshots, chunks, loads: in the order of the decisions

    Both pass their answers to the loop and wake it.
    """

    def __init__(self, copy: WorkerCopy, name: str, wake: Callable[[], None], on_given: Callable[[], None] = _nothing) -> None:
        """``on_given`` is called by the copy thread after it made a snapshot to give away."""
        self._copy = copy
        self._on_given = on_given
        self._wake = wake
        self._done: deque[StoreAnswer] = deque()
        self._store = WorkThread(f"{name} store", self._on_store)
        self._beside = WorkThread(f"{name} copy", self._on_copy)

    def begin(self, decision: Decision) -> None:
        """Start a decision."""
        if isinstance(decision, StoreDecision):
            self._store.put(decision)
        else:
            self._beside.put(decision)

    def finished(self) -> list[StoreAnswer]:
        """Return the answers since the last call."""
        answers = []
        while self._done:
            answers.append(self._done.popleft())
        return answers

    @property
    def store_busy_s(self) -> float:
        """Time that the store thread has spent on its present decision; 0 when it has none."""
        return self._store.busy_s

    @property
    def idle_s(self) -> float:
        """Time that either thread has spent on its present decision while it hardly computed; 0 otherwise."""
        return max(self._store.idle_s, self._beside.idle_s)

    def close(self, timeout_s: float) -> None:
        """Finish the work in hand and take no more."""
        self._store.close(timeout_s)
        self._beside.close(timeout_s)

    def _on_store(self, decision: StoreDecision) -> None:
        try:
            answer: StoreAnswer = carry_out(self._copy, decision)
        except Exception as error:  # noqa: BLE001  (a fault of the store halts this worker, with its reason)
            answer = StoreFailed(f"{type(error).__name__}: {error}")
        self._answer(answer)

    def _on_copy(self, decision: CopyDecision) -> None:
        try:
            answer = carry_out_copy(self._copy, decision, self._answer)
        except Exception as error:  # noqa: BLE001  (a fault here ends a load or an offer, not the worker)
            answer = failed_answer(decision, f"{type(error).__name__}: {error}")
        if answer is not None:
            self._answer(answer)
        if isinstance(answer, SnapshotMade) and answer.files:
            self._on_given()

    def _answer(self, answer: StoreAnswer) -> None:
        self._done.append(answer)
        self._wake()


class WorkerNode:
    """One worker; a Front that reads."""

    def __init__(
        self,
        config: WorkerConfig,
        cluster: str,
        store: WorkerCopy,
        transport: Transport,
        clock: Clock,
        masters: tuple[NodeId, ...],
        settings: NodeSettings,
        reads: ReadLimits | None = None,
        scrubbing: Scrubbing | None = None,
        tasks: WorkerTasks | None = None,
        guard: GuardLimits | None = None,
        folder: Path | None = None,
    ) -> None:
        """``settings``: the run-time settings. ``scrubbing``: checks the data in the background. ``tasks``: does long work. None
        for none. ``folder``: where doors of the same machine find this worker, or None.
        """
        self.config = config
        self.store = store
        self.transport = transport
        self.clock = clock
        on_given = scrubbing.look_soon if scrubbing is not None else _nothing
        self._threads = CopyThreads(store, config.node, transport.wake, on_given)
        core = WorkerCore(config, state_of(store))
        self.runner = WorkerRunner(config, core, self._threads, transport, clock)
        self.runner.on_node = self._on_node
        self.reads = ReadPool(store, config.node, reads, on_damage=self.on_damage)
        self._scrubbing = scrubbing
        self._tasks = tasks
        self._answers = ReadAnswers(self.reads, transport.wake)
        self._near = None if folder is None else AnsweringThread(folder, cluster, config.node, self, lambda: self.reads.opening)
        self._gathering = StatusGathering(config.node, masters)
        self.loop = NodeLoop(f"{config.node} loop", self._turn, transport.wake)
        self._reported = ("", "")
        self._load_watch = LoadWatch()
        self._hearing = WorkerHearing(clock.now().mono_ms)
        self._journal = store.journal
        self.guard = Guard(guard or GuardLimits(), config.node)
        self.view = WorkerView(
            cluster,
            self.runner,
            transport,
            self.loop,
            self._gathering,
            self.reads,
            self.guard,
            self._load_watch,
            scrubbing,
            settings.restart_for,
        )
        self._settings = settings
        self._asked_settings: Future[ReadOutcome] | None = None
        settings.on_change = self._on_settings
        self._distrusted_at = 0
        """Opening number of the reads' door when damage was last known."""

    def start(self) -> None:
        """Start the loop, after the first check of the data if one is due."""
        if self.store.trouble:
            log.error("the copy was moved aside and begins anew", node=self.config.node, reason=self.store.trouble)
        if self._scrubbing is not None and not self.store.condemned:
            self._scrubbing.look_first(self.on_damage)
        self.loop.start()
        if self._near is not None:
            self._near.start()
        if self._scrubbing is not None:
            self._scrubbing.start(self.on_damage, lambda: self.runner.core.may_be_read)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Finish the work in hand, close everything. Idempotent."""
        if self.must_restart and self._scrubbing is not None:
            self._scrubbing.give_up()
        # Reads first, so that masters still learn which of theirs must go elsewhere.
        self.reads.close(HASTE_S if self.must_restart else READS_CLOSE_S)
        if self._near is not None:
            self._near.close()
        is_over = self.loop.stop(timeout_s)
        self.transport.send(self._answers.take())
        if is_over:
            self.runner.leave()
        if self._scrubbing is not None:
            self._scrubbing.close(timeout_s)
        if self._tasks is not None:
            self._tasks.close(timeout_s)
        self._threads.close(timeout_s)
        self.transport.close(parting_ms(self.transport, timeout_s))
        self.store.close()

    def _turn(self) -> None:
        wait = 0 if self.loop.has_calls else self.runner.wait_ms()
        self.runner.turn(min(wait, IDLE_MS))
        self.loop.serve_calls()
        self._mind_the_door()
        self._mind_itself()
        self._report_state()
        self.runner.core.running_reads = self.reads.under_way
        self.reads.on_applied(self.runner.core.applied)
        self.transport.send(self._answers.take())
        if self._tasks is not None:
            self.transport.send(self._tasks.take())

    def _mind_the_door(self) -> None:
        """Allow reads only while the copy is trusted."""
        core = self.runner.core
        if not core.may_be_read:
            word, reason = core.word()
            self.reads.close_door(f"{self.config.node} is {word}" + (f": {reason}" if reason else ""))
        elif self.guard.over_memory:
            self.reads.close_door(f"{self.config.node} cannot evaluate more: {self.guard.over_memory}")
        elif self.reads.closed_reason:
            self.reads.open_door()
            if self._scrubbing is not None:
                self._scrubbing.on_trusted()

    def _mind_itself(self) -> None:
        """Check for endless work and free space once a second. Scrub a new copy soon."""
        core, now_s = self.runner.core, self.clock.now().mono_ms / 1000
        if core.trouble:
            self._distrusted_at = self.reads.opening
        if self.guard.is_due(now_s):
            self._listen()
            core.free_bytes = self.store.free_bytes()
            left = self.reads.running_before(self._distrusted_at)
            self.guard.look(now_s, Seen(bool(core.trouble), self._threads.store_busy_s, self._threads.idle_s, left))
            self._look_at_settings()
        if core.journal != self._journal:
            self._journal = core.journal
            if self._scrubbing is not None:
                self._scrubbing.look_soon()

    def _look_at_settings(self) -> None:
        """Read the settings, which are content of this copy, when it has applied anything since the last time."""
        settings, asked = self._settings, self._asked_settings
        if asked is not None and asked.done():
            self._asked_settings = None
            if asked.exception() is None:
                outcome = asked.result()
                settings.learn(outcome.lsn, rows_of(json.loads(outcome.body)))
        if self._asked_settings is None and settings.lsn != self.runner.core.applied and self.runner.core.may_be_read:
            self._asked_settings = self.reads.read("settings", "", {}, 0, SETTINGS_MS)

    def _on_settings(self) -> None:
        follow = self.runner.core.follower.config
        put_in_force(follow, dataclasses.replace(follow, heartbeat_ms=self.config.heartbeat_ms))
        if self._scrubbing is not None:
            self._scrubbing.on_limits()

    def _report_state(self) -> None:
        """Log each change of this worker's state in one line."""
        core, master = self.runner.core, self.config.master
        is_loaded = self._load_watch.note(core.replacing.loading, self.clock.now().mono_ms)
        if is_loaded and (load := self._load_watch.last) is not None:
            log.info("loaded", node=self.config.node, lsn=load.lsn, size_bytes=load.total_bytes, seconds=load.seconds)
        now = (core.state.value, core.trouble or core.idle_reason or core.failure)
        if now != self._reported:
            self._reported = now
            log.info("follows", node=self.config.node, state=now[0], reason=now[1], lsn=core.applied, view=core.view)

        if self._hearing.is_to_tell(self.clock.now().mono_ms):
            reason = f"{master} does not run, or has no such worker: brokerha status, brokerha worker add {self.config.node} --master {master}"
            log.warning("waits to be added", node=self.config.node, reason=reason)

    def on_damage(self, reason: str) -> None:
        """Stop reads and report damage of this copy to the core. Any thread can call this."""
        log.error("the copy is damaged", node=self.config.node, reason=reason)
        self.reads.shut(f"{self.config.node} is out of sync: {reason}")
        self.loop.call(lambda: self.runner.core.step(Damaged(reason), self.clock.now()))

    def _on_node(self, envelope: Envelope, now: Instant) -> bool:
        message = envelope.message
        if envelope.sender == self.config.master:
            self._hearing.heard_ms = now.mono_ms
        if isinstance(message, Apply | Execute):
            # The core gets it, too.
            self._hearing.is_known |= envelope.sender == self.config.master
            if (self._hearing.is_greeted or not message.items) and envelope.sender == self.config.master:
                self._on_lines(message, now)
            return False
        if isinstance(message, Read):
            future = self.reads.read(message.kind, message.repository, dict(message.arguments), message.min_lsn, message.timeout_ms)
            self._answers.when_done(envelope.sender, message.request, future)
            return True
        if isinstance(message, Task):
            if self._tasks is not None:
                self._tasks.on_task(envelope.sender, message)
            return True
        if isinstance(message, StatusRequest):
            report = StatusReport(message.request, (self.view.row(),))
            self.transport.send([Outgoing(envelope.sender, report)])
            return True
        if isinstance(message, StatusReport):
            self._gathering.on_report(envelope.sender, message)
            return True
        return False

    def _on_lines(self, message: Apply | Execute, now: Instant) -> None:
        directions = self._hearing.on_lines(now.mono_ms, is_greeting=not message.items)
        self._leave_broker_node(directions, f"{self.config.master} asks again and again where it stands")

    def _listen(self) -> None:
        now_ms = self.clock.now().mono_ms
        if not is_judged(self.transport):
            # Silence counts from the moment of the new connection.
            self._hearing.heard_ms = now_ms
            return
        if self._hearing.is_to_ask(now_ms):
            self.transport.send([Outgoing(self.config.master, StatusRequest(f"{self.config.node} listens"))])
        self._leave_broker_node(self._hearing.look(now_ms), f"nothing is heard of {self.config.master}")

    def _leave_broker_node(self, directions: tuple[str, ...], reason: str) -> None:
        """Connect to another broker node, over which master and worker can possibly hear each other."""
        if directions and is_judged(self.transport):
            log.warning("not heard", node=self.config.node, reason=reason, directions=" ".join(directions))
            self.transport.leave_broker_node(directions)

    # ---- Front

    @property
    def node_id(self) -> str:
        """Id of this node."""
        return self.config.node

    @property
    def role(self) -> str:
        """Role of this node."""
        return "worker"

    def new_txid(self) -> TxId:
        """Raise ReadOnly: workers take no writes."""
        raise ReadOnly(self._no_writes())

    def submit(
        self,
        operations: Sequence[Operation] | bytes,
        txid: TxId = "",
        level: str = APPLIED_LEVEL,
        copies: int = 1,
        timeout_ms: int = 30_000,
        apart: str = WAIT,
        user: str = "",
    ) -> Future[Reply]:
        """Raise ReadOnly: workers take no writes."""
        raise ReadOnly(self._no_writes())

    def _no_writes(self) -> str:
        return f"{self.config.node} is a worker and serves reads only: send writes to master {self.config.master}"

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn = 0, timeout_ms: int = 30_000
    ) -> Future[ReadOutcome]:
        """Answer from this copy."""
        refused: Future[ReadOutcome] = Future()
        try:
            check_read(kind, name, arguments, min_lsn, timeout_ms)
        except InvalidRequest as error:
            refused.set_exception(error)
            return refused
        if min_lsn == LATEST_LSN:
            refused.set_exception(NotReady(f"only a master knows what the latest LSN is: ask master {self.config.master}"))
            return refused
        return self.reads.read_here(kind, name, arguments, min_lsn, timeout_ms)

    def readers(self, min_lsn: Lsn) -> Readers:
        """Return no other reader."""
        return Readers((), min_lsn)

    def was_read(self) -> None:
        """Do nothing: the pool counts its reads."""

    def transact(self, action: str, txid: TxId, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """Refuse: transactions are at masters."""
        del action, arguments, timeout_ms
        refused: Future[dict[str, Any]] = Future()
        refused.set_exception(
            NotReady(f"{self.config.node} is a worker: ask master {self.config.master} about transaction {txid or 'steps'}")
        )
        return refused

    def outcome(self, txid: TxId) -> dict[str, Any] | None:
        """Raise NotReady: workers do not know transactions by id."""
        raise NotReady(f"ask master {self.config.master} for the outcome of transaction {txid}")

    def status(self, timeout_ms: int = 2000) -> dict[str, Any]:
        """Return the status of the whole cluster as seen from here."""
        return self.view.status(timeout_ms)

    def log(self, first_lsn: Lsn, last_lsn: Lsn) -> list[dict[str, Any]]:
        """Raise NotReady: workers keep no log of transactions."""
        raise NotReady(f"the log is kept by master {self.config.master}: ask it for LSN {first_lsn} to {last_lsn}")

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
        """Raise NotReady: the master keeps the log for as long as it is needed."""
        raise NotReady(f"the log is kept by master {self.config.master}: ask it for LSN {first_lsn} to {last_lsn}")

    def entries(self, first_lsn: Lsn, last_lsn: Lsn) -> dict[str, Any]:
        """Raise NotReady, as `logged`."""
        raise NotReady(f"the log is kept by master {self.config.master}: ask it for LSN {first_lsn} to {last_lsn}")

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """Refuse: masters carry out commands."""
        refused: Future[dict[str, Any]] = Future()
        refused.set_exception(NotReady(f"{self.config.node} is a worker: give the command {name} to master {self.config.master}"))
        return refused

    def writable(self) -> tuple[bool, str]:
        """Return False."""
        return False, self._no_writes()

    def ready(self, max_lag_entries: int | None = None, max_lag_s: float | None = None) -> tuple[bool, list[str]]:
        """Tell whether reads can be served."""
        return self.view.ready(max_lag_entries, max_lag_s)

    @property
    def must_restart(self) -> str:
        """Return why this process must be restarted; empty while all is well."""
        return self.view.must_restart

    @property
    def must_leave_at_once(self) -> bool:
        """Whether there is no time for an orderly stop."""
        return bool(self.guard.over_memory)

    def hurry(self) -> None:
        """End the first check that `start` possibly waits for; from any thread."""
        if self._scrubbing is not None:
            self._scrubbing.close(0)

    def wait_for(self, lsn: Lsn, workers: int | str, timeout_ms: int) -> Future[dict[str, Any]]:
        """Complete when this copy has applied ``lsn``."""
        answer: Future[dict[str, Any]] = Future()
        inner = self.reads.read("fingerprint", "", {}, lsn, timeout_ms)

        def finish(done: Future[ReadOutcome]) -> None:
            complete(answer, done.exception() or {"lsn": done.result().lsn, "workers": [self.config.node]})

        inner.add_done_callback(finish)
        return answer

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics."""
        return {**self.view.metrics(), **self._queue_metrics()}

    def _queue_metrics(self) -> Numbers:
        """Return the lengths of the longest queues; none while the copy cannot be read."""
        try:
            queues: dict[str, dict[str, int]] = json.loads(b"".join(self.store.read("queues", "", {}).pieces))
        except BrokerhaError:
            return {}
        longest = heapq.nlargest(QUEUES_MEASURED, ((counts["depth"], name) for name, counts in queues.items()))
        return {("queue_messages", name): depth for depth, name in longest}
