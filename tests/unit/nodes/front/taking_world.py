"""A world for consumers: one queue and its row of claims, changed in one order, as every store changes them, and masters with locks, as their cores have.

Nothing else is there: no log, no wire. What a master asks is answered when it is told to, or at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgpack

from brokerha.model import etags
from brokerha.model.errors import BrokerhaError
from brokerha.model.operations import Delete, ExpectKey, Put, unpack_operations
from brokerha.model.requests import APPLIED_LEVEL, REJECTED_STATUS, Reply, TxReply
from brokerha.model.reserved.claims import TABLE, claims_in
from brokerha.nodes.front.taking import Consumers, Host, Taking
from brokerha.ports.front import ReadOutcome
from brokerha.stores.reads.tables import QueueRange
from brokerha.stores.tables.queue_change import Message
from brokerha.transactions.locks import Locks


@dataclass
class World:
    """The order, as far as one queue needs it."""

    now_ms: int = 1000
    lsn: int = 10
    queue: list[str] = field(default_factory=list)
    prepared: set[str] = field(default_factory=set)
    row: bytes | None = None
    size: int = 1
    is_careless: bool = False
    """A mistake: the expectation of a claim is not judged."""

    def read(self, name: str, arguments: dict[str, Any]) -> ReadOutcome:
        found = QueueRange(name, arguments).claims(
            self.row,
            lambda after: iter([Message(each, "text/plain", each.encode().ljust(self.size)) for each in self.queue]),
            lambda: frozenset((name, each) for each in self.prepared),
            self.queue.__contains__,
        )
        return ReadOutcome("application/x-msgpack", self.lsn, msgpack.packb(found))

    def execute(self, body: bytes) -> Reply:
        self.lsn += 1
        expectation, change = unpack_operations(body)
        assert isinstance(expectation, ExpectKey)
        assert isinstance(change, (Put, Delete))
        assert expectation.table == change.table == TABLE
        if not self.is_careless and expectation.etag != ("" if self.row is None else etags.etag_of(self.row)):
            return Reply(1, "claim", REJECTED_STATUS, self.lsn, "Conflict", "conflict: key 'q'")
        self.row = change.after
        return Reply(1, "claim", APPLIED_LEVEL, self.lsn)

    def claimed(self, master: str) -> tuple[str, ...]:
        """What a master has claimed, of what is there."""
        claims = {} if self.row is None else claims_in(self.row)
        return tuple(each for each in claims[master].ids if each in self.queue) if master in claims else ()


class Twice(Exception):
    """Two transactions hold the same message."""


class Master:
    """One master with consumers; what it asks is answered when it is told to, or at once."""

    def __init__(self, world: World, node: str = "m1", *, is_slow: bool = False) -> None:
        self.world = world
        self.node = node
        self.is_slow = is_slow
        self.locks = Locks()
        self.takes: dict[tuple[str, int], list[str]] = {}
        self.due: list[Any] = []
        self.reads: list[dict[str, Any]] = []
        self.claims = 0
        self.refusal: Reply | BrokerhaError | None = None
        self.read_error: BrokerhaError | None = None
        self.number = 0
        self.others: dict[str, Master] = {}
        """Masters that hear this one."""
        self.wanted: list[str] = []
        self.consumers = self.started()

    def started(self) -> Consumers:
        """Consumers of a new process: it remembers nothing."""
        host = Host(
            self.node,
            lambda: "unused",
            self.read,
            lambda: self.world.lsn,
            list,
            self.submit,
            lambda: self.locks,
            lambda txid, first: self.takes.get((txid, first), ()),
            self.want,
        )
        return Consumers(host, lambda: self.world.now_ms, self.lock)

    def read(self, kind: str, name: str, arguments: dict[str, Any], lsn: int, timeout_ms: int, future: Future[ReadOutcome]) -> None:
        assert kind == "queue"
        assert timeout_ms > 0
        self.reads.append(arguments)

        def answer() -> None:
            if self.read_error is not None:
                future.set_exception(self.read_error)
            else:
                future.set_result(self.world.read(name, arguments))

        self._soon(answer)

    def submit(self, body: bytes, timeout_ms: int) -> Future[Reply]:
        assert timeout_ms > 0
        if isinstance(self.refusal, BrokerhaError):
            raise self.refusal
        future: Future[Reply] = Future()
        refusal = self.refusal

        def answer() -> None:
            self.claims += 1
            future.set_result(refusal if isinstance(refusal, Reply) else self.world.execute(body))

        self._soon(answer)
        return future

    def want(self, masters: Iterable[str], queue: str) -> None:
        for master in masters:
            assert master != self.node
            self.wanted.append(master)
            if master in self.others:
                self._soon(partial(self.others[master].consumers.give_back, queue))

    def lock(self, txid: str, arguments: dict[str, Any], timeout_ms: int, receiver: Any) -> None:
        def answer() -> None:
            taken = self.locks.take(txid, arguments["queue"], arguments["candidates"], arguments["count"], arguments["lsn"])
            if taken:
                self.takes[txid, arguments["first"]] = taken
            receiver(TxReply(1, txid, answer={"taken": taken}))

        self._soon(answer)

    def _soon(self, act: Any) -> None:
        if self.is_slow:
            self.due.append(act)
        else:
            act()

    def step(self) -> None:
        """One thing that was asked is answered."""
        if self.due:
            self.due.pop(0)()

    # ---- consumers

    def accept(self, count: int = 1, wait_ms: int = 0, txid: str = "", end_ms: int = 60_000) -> Taking:
        self.number += 1
        now_ms = self.world.now_ms
        taking = Taking(txid or f"{self.node}.{self.number}", 0, "q", count, Future(), now_ms + wait_ms, now_ms + end_ms)
        self.consumers.add(taking)
        return taking

    def commit(self, taking: Taking) -> None:
        self.world.lsn += 1
        self.world.queue = [each for each in self.world.queue if each not in taken(taking)]
        self.locks.release(taking.txid, self.world.lsn)

    def tick(self, later_ms: int) -> None:
        self.world.now_ms += later_ms
        self.consumers.tick(self.world.now_ms)


def taken(taking: Taking) -> list[str]:
    return [row[0] for row in taking.future.result(0)["messages"]]


def names(number: int) -> list[str]:
    return [f"t.{each}" for each in range(1, number + 1)]
