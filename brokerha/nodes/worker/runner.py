"""One turn of a worker: receive, step, send, pass decisions to the store; master/runner.py has the rules, and a master's turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from brokerha.model.errors import StoreDamaged, StoreDiffers, StoreError, StoreFull
from brokerha.model.operations import ResultRow
from brokerha.model.ready import (
    ApplyBatch,
    BeginLineage,
    Decision,
    ExecuteBatch,
    StoreAnswer,
    StoreDecision,
    StoreDone,
    StoreFailed,
)
from brokerha.model.wire.epoch_messages import Leave
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.nodes.master.runner import IDLE_MS, TURN_LIMIT, NodeHandler
from brokerha.ports.clock import Clock
from brokerha.ports.store import Store
from brokerha.ports.transport import Transport
from brokerha.replication.worker.config import WorkerConfig
from brokerha.replication.worker.core import WorkerCore


class StoreDoor(Protocol):
    """Passes decisions to the copy and returns its answers; at most one decision that writes the store is under way."""

    def begin(self, decision: Decision) -> None:
        """Start to carry out a decision; never blocks."""

    def finished(self) -> list[StoreAnswer]:
        """Return the answers since the last call."""


class WorkerRunner:
    """One worker: core, store and transport, a turn at a time."""

    def __init__(self, config: WorkerConfig, core: WorkerCore, door: StoreDoor, transport: Transport, clock: Clock) -> None:
        self.config = config
        self.core = core
        self.door = door
        self.transport = transport
        self.clock = clock
        self.turns = 0
        self.on_node: NodeHandler = lambda _envelope, _now: False

    def wait_ms(self) -> int:
        """Return how long the next turn can wait for a message."""
        due = self.core.deadline_ms()
        return 0 if due is None else max(0, min(IDLE_MS, due - self.clock.now().mono_ms))

    def turn(self, wait_ms: int = 0) -> int:
        """Take the inputs and carry out the consequences; return the number of inputs."""
        items = self.transport.receive(TURN_LIMIT, wait_ms)
        now = self.clock.now()
        self.turns += 1
        answers = self.door.finished()
        for answer in answers:
            self.core.step(answer, now)
        for item in items:
            if isinstance(item, Envelope) and not self.on_node(item, now):
                self.core.step(item, now)
        self.core.wake(now)
        ready = self.core.take_ready(now)
        self.transport.send(ready.messages)
        for decision in ready.decisions:
            self.door.begin(decision)
        return len(items) + len(answers)

    def leave(self) -> None:
        """Tell the master that this process ends, so that another worker executes; called after the last turn."""
        self.transport.send([Outgoing(self.config.master, Leave())])


def carry_out(store: Store, decision: StoreDecision) -> StoreDone | StoreFailed:
    """Carry out a decision, in the thread that writes the store; the answer tells the durable LSN."""
    results: Sequence[ResultRow] = ()
    try:
        if isinstance(decision, ExecuteBatch):
            results = store.execute(decision.first_lsn, decision.items)
        elif isinstance(decision, ApplyBatch):
            store.apply(decision.first_lsn, decision.items)
        elif isinstance(decision, BeginLineage):
            store.begin_lineage(decision.lineage, decision.lsn)
        else:
            results = [line[2:] for line in store.logged(decision.first_lsn, decision.last_lsn)]
    except StoreDiffers as error:
        return StoreFailed(str(error), is_damage=True, lsn=error.lsn, fingerprint=error.fingerprint)
    except StoreError as error:
        return StoreFailed(str(error), isinstance(error, StoreDamaged), is_disk_full=isinstance(error, StoreFull))
    applied = store.applied()
    first_lsn = applied.lsn + 1 if isinstance(decision, BeginLineage) else decision.first_lsn
    return StoreDone(first_lsn, applied.lsn, tuple(results), applied.fingerprint, applied.items)
