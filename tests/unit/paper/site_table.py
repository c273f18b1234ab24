"""A master and its workers on a table, with real contents: what one sends lies in a list until it is delivered.

Workers keep their data in `MemoryCopy`, whose snapshots are bytes in chunks of 64. Everything of one turn happens in one
instant: the master's turn, each worker's turn, its store at once.

    table = SiteTable("w1", "w2")
    table.write(10)
    table.settle()
    assert table.lsns() == {"w1": 10, "w2": 10}
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.operations import pack_operations
from brokerha.model.ready import Ready, StoreDecision
from brokerha.model.requests import Reply, Submit
from brokerha.model.wire.messages import Envelope, Message, Outgoing
from brokerha.nodes.worker.runner import carry_out, carry_out_copy, state_of
from brokerha.replication.site.config import FeedConfig, WorkerFeed
from brokerha.replication.worker.config import WorkerConfig
from brokerha.replication.worker.core import WorkerCore, progress_of
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_log
from tests.support.memory_store.worker_copy import MemoryCopy

Choice = Callable[[str, Outgoing], bool]


def everything(_sender: str, _out: Outgoing) -> bool:
    """Nothing is lost."""
    return True


class SiteTable:
    """Master m1, its workers, and what is under way between them."""

    def __init__(self, *workers: NodeId, worker: dict[str, Any] | None = None, **feed: Any) -> None:
        self.ms = 10_000
        self._names = count(1)
        self._worker_settings = worker or {}
        self.config = MasterConfig(SyncConfig("m1", ("m1",)), FeedConfig(workers, **{"linger_ms": 0, **feed}), outcomes_wait_ms=0)
        self.journal = memory_log("m1", "journal-of-m1")
        self.core = MasterCore(self.config, self.journal.state(), self.journal)
        self.copies: dict[NodeId, MemoryCopy] = {}
        self.workers: dict[NodeId, WorkerCore] = {}
        self.mail: list[tuple[NodeId, Outgoing]] = []
        self.sent: list[tuple[NodeId, Outgoing]] = []
        self.replies: list[Reply] = []
        self._written = 0
        for node in workers:
            self.start(node)

    # ---- processes

    def start(self, node: NodeId) -> None:
        """Start a worker with the copy that it has, or with an empty one."""
        if node not in self.copies:
            self.copies[node] = MemoryCopy(lambda: f"copy-{next(self._names)}")
        copy = self.copies[node]
        state = state_of(copy)
        self.workers[node] = WorkerCore(WorkerConfig(node, "m1", **self._worker_settings), state)

    def crash(self, node: NodeId) -> None:
        """Stop a worker at once; its copy keeps what is durable, and what was under way to it is lost."""
        del self.workers[node]
        self.copies[node] = self.copies[node].restarted()
        self.mail = [letter for letter in self.mail if letter[1].to != node]

    def wipe(self, node: NodeId) -> None:
        """Lose the whole data directory of a worker."""
        self.crash(node)
        del self.copies[node]

    # ---- clients

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def write(self, writes: int = 1, **terms: Any) -> None:
        """Hand in so many transactions, each with a key of its own."""
        for _ in range(writes):
            self._written += 1
            self.submit(("put", "t", b"k%d" % self._written, b"v"), **terms)

    def submit(self, *operations: tuple[Any, ...], ticket: int = 0, **terms: Any) -> None:
        """Hand in one transaction."""
        body = pack_operations(list(operations))
        self.core.step(Submit(ticket, f"t{next(self._names)}", body, **terms), self.now())

    # ---- time

    def turn(self, choice: Choice = everything, step_ms: int = 10) -> None:
        """One turn of everybody; what is not chosen is lost."""
        letters, self.mail = self.mail, []
        for sender, out in letters:
            if choice(sender, out):
                self.deliver(sender, out)
        self.core.wake(self.now())
        while ready := self.core.take_ready(self.now()):
            if ready.records:
                self.journal.append(ready.records)
            self.replies += ready.replies
            self._post("m1", ready)
        for node in list(self.workers):
            self._turn_of(node)
        self.ms += step_ms

    def deliver(self, sender: NodeId, out: Outgoing) -> None:
        """Hand a message to whom it is for."""
        core = self.core if out.to == "m1" else self.workers.get(out.to)
        if core is not None:
            core.step(Envelope("c", sender, 1, out.message), self.now())

    def _turn_of(self, node: NodeId) -> None:
        core, copy = self.workers[node], self.copies[node]
        core.wake(self.now())
        while ready := core.take_ready(self.now()):
            self._post(node, ready)
            for decision in ready.decisions:
                if isinstance(decision, StoreDecision):
                    core.step(carry_out(copy, decision), self.now())
                elif (answer := carry_out_copy(copy, decision, lambda early: core.step(early, self.now()))) is not None:
                    core.step(answer, self.now())

    def _post(self, sender: NodeId, ready: Ready) -> None:
        letters = [(sender, out) for out in ready.messages]
        self.mail += letters
        self.sent += letters

    def settle(self, turns: int = 60, choice: Choice = everything, step_ms: int = 10) -> None:
        """So many turns, without anything new."""
        for _ in range(turns):
            self.turn(choice, step_ms)

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass in which everybody who lives is heard."""
        self.settle(milliseconds // 500 + 1, step_ms=500)

    # ---- questions

    def feed(self, node: NodeId) -> WorkerFeed:
        """What the master knows of a worker."""
        return self.core.site.workers[node]

    def follows(self, node: NodeId) -> str:
        """State of a follower's machine."""
        return progress_of(self.workers[node]).follows

    def lsns(self) -> dict[NodeId, Lsn]:
        """Where each copy stands."""
        return {node: copy.applied().lsn for node, copy in self.copies.items()}

    def are_equal(self) -> bool:
        """Whether all copies hold the same, by their data and not by what was added up."""
        return len({copy.recompute() for copy in self.copies.values()}) == 1

    def sent_to(self, node: NodeId, *kinds: type) -> list[Message]:
        """Messages of these classes that were sent to somebody."""
        return [out.message for _, out in self.sent if out.to == node and isinstance(out.message, kinds)]

    def sent_by(self, node: NodeId, *kinds: type) -> list[Message]:
        """Messages of these classes that somebody sent."""
        return [out.message for sender, out in self.sent if sender == node and isinstance(out.message, kinds)]

    def refusal(self) -> str:
        """Why writes are refused; empty when they are taken."""
        return self.core.site.read_only_reason(self.ms)
