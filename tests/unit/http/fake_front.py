"""A front that keeps a small real model in memory: what a door test sees is what a node would answer.

Everything is applied at once, in the calling thread or in one of its own; knobs make it slow, silent, read-only or full. It is
a model and no node: one copy, no order to agree on, no durability.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from pyoxigraph import Store

from brokerha.model import states
from brokerha.model.errors import (
    BrokerhaError,
    InvalidRequest,
    KeyReused,
    NotFound,
    OutcomeUnknown,
    ReadOnly,
    Rejected,
    TimedOut,
)
from brokerha.model.fingerprints import packed
from brokerha.model.numbers import Numbers
from brokerha.model.operations import (
    ON_QUEUES,
    LoggedRow,
    Operation,
    pack_operations,
    unpack_operations,
)
from brokerha.model.requests import APPLIED_LEVEL, READS_INSIDE, REFUSED, REJECTED_STATUS, UNKNOWN, WAIT, Reply
from brokerha.ports.front import Readers, ReadOutcome
from tests.unit.http.fake_data import Data
from tests.unit.http.fake_rdf import check
from tests.unit.http.fake_transactions import FakeTransactions


class FakeFront:
    """One node with all data in dictionaries."""

    def __init__(self, role: str = "master", node_id: str = "m1", *, threaded: bool = False) -> None:
        self.role = role
        self.node_id = node_id
        self.data = Data()
        self.transactions = FakeTransactions(node_id)
        self.results: list[tuple[str, str, str]] = []
        self.rewinds: list[list[int]] = []
        """(txid, outcome, reason) by LSN - 1."""
        self.bodies: dict[str, tuple[int, bytes]] = {}
        self.submitted: list[tuple[str, str, int, int]] = []
        """(txid, level, copies, timeout_ms) of every submit that was taken in."""
        self.apart: list[str] = []
        """What each of them wants at a master that is apart."""
        self.commands: list[tuple[str, dict[str, Any], int]] = []
        self.reads: list[tuple[str, str, dict[str, Any], int, int]] = []
        self.is_silent = False
        """Takes writes and reads in and never answers; a write's deadline is answered at once, as if it had passed."""
        self.is_dead = False
        """Takes in and never answers at all."""
        self.refusal: BrokerhaError | None = None
        """Every write is answered with it."""
        self.read_error: BrokerhaError | None = None
        self.fault: Exception | None = None
        """Raised by every call, as a bug would."""
        self.lag_entries = 0
        self.loop_is_alive = True
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threaded = threaded
        if threaded:
            threading.Thread(target=self._run, daemon=True).start()

    @property
    def repositories(self) -> dict[str, Store]:
        return self.data.repositories

    @property
    def keys(self) -> dict[tuple[str, bytes], bytes]:
        return self.data.keys

    @property
    def checks(self) -> dict[str, dict[str, str]]:
        return self.data.checks

    def _run(self) -> None:
        while True:
            self._work.get()()

    def _do(self, work: Callable[[], None]) -> None:
        if self._threaded:
            self._work.put(work)
        else:
            work()

    def readers(self, min_lsn: int) -> Readers:
        return Readers((), min_lsn)

    def was_read(self) -> None:
        """It counts nothing."""

    # ---- writes

    def new_txid(self) -> str:
        if self.fault:
            raise self.fault
        return f"{self.node_id}.{next(self._numbers)}"

    def submit(
        self,
        operations: Sequence[Operation] | bytes,
        txid: str = "",
        level: str = APPLIED_LEVEL,
        copies: int = 1,
        timeout_ms: int = 30_000,
        apart: str = WAIT,
    ) -> Future[Reply]:
        if self.role == "worker":
            raise ReadOnly(self.writable()[1])
        body = operations if isinstance(operations, bytes) else pack_operations(list(operations))
        listed = unpack_operations(body)
        for operation in listed:
            check(operation)
        txid = txid or self.new_txid()
        # What it is when it takes the write in counts, whatever a test makes of it afterwards.
        is_dead = self.is_dead
        self.submitted.append((txid, level, copies, timeout_ms))
        self.apart.append(apart)
        future: Future[Reply] = Future()

        def answer() -> None:
            if is_dead:
                return
            if self.is_silent:
                reason = "deadline passed; the transaction is accepted and goes on by itself"
                future.set_result(Reply(1, txid, UNKNOWN, 0, "OutcomeUnknown", reason))
            elif self.refusal is not None:
                future.set_result(Reply(1, txid, REFUSED, 0, type(self.refusal).__name__, str(self.refusal)))
            else:
                future.set_result(self._apply(txid, body, listed, level))

        self._do(answer)
        return future

    def _apply(self, txid: str, body: bytes, operations: list[Operation], level: str) -> Reply:
        with self._lock:
            if txid in self.bodies:
                lsn, known = self.bodies[txid]
                if known != body:
                    reused = KeyReused(f"another transaction with the id {txid} came first: use a new key")
                    return Reply(1, txid, REFUSED, 0, "KeyReused", str(reused))
            else:
                lsn = len(self.results) + 1
                self.bodies[txid] = (lsn, body)
                has_queues = any(operation[0] in ON_QUEUES for operation in operations)
                before = self.data.copied() if has_queues else self.data
                try:
                    self.data.execute(txid, operations)
                    self.results.append((txid, "applied", ""))
                except Rejected as error:
                    self.data = before
                    self.results.append((txid, "rejected", str(error)))
        _, outcome, reason = self.results[lsn - 1]
        if outcome == "rejected":
            return Reply(1, txid, REJECTED_STATUS, lsn, "Rejected", reason)
        return Reply(1, txid, level, 0 if level == "accepted" else lsn)

    # ---- transactions

    def transact(
        self, action: str, txid: str, arguments: dict[str, Any], timeout_ms: int = 30_000
    ) -> Future[dict[str, Any]]:
        """Steps are carried out as they come; a silent node does them and does not say so."""
        if self.fault:
            raise self.fault
        future: Future[dict[str, Any]] = Future()

        def answer() -> None:
            if self.is_dead:
                return
            try:
                if self.refusal is not None:
                    raise self.refusal
                done = self.transactions.act(self, action, txid, arguments)
            except BrokerhaError as error:
                future.set_exception(error)
            else:
                if not self.is_silent:
                    future.set_result(done)
                else:
                    future.set_exception(OutcomeUnknown(txid))

        if action == "operations":
            self.check([tuple(operation) for operation in arguments["operations"]])
        self._do(answer)
        return future

    def check(self, operations: list[Operation]) -> None:
        for operation in unpack_operations(pack_operations(operations)):
            check(operation)

    def apply_transaction(self, txid: str, operations: list[Operation]) -> tuple[int, str]:
        reply = self._apply(txid, pack_operations(operations), operations, APPLIED_LEVEL)
        return reply.lsn, reply.reason

    # ---- reads

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: int = 0, timeout_ms: int = 30_000
    ) -> Future[ReadOutcome]:
        if self.fault:
            raise self.fault
        self.reads.append((kind, name, arguments, min_lsn, timeout_ms))
        future: Future[ReadOutcome] = Future()

        def answer() -> None:
            if self.is_dead:
                return
            try:
                if self.read_error is not None:
                    raise self.read_error
                if min_lsn > len(self.results):
                    raise TimedOut(f"LSN {min_lsn} was not applied in time; this copy is at {len(self.results)}")
                content_type, body = self._read_inside(kind, name, dict(arguments))
                future.set_result(ReadOutcome(content_type, len(self.results), body))
            except BrokerhaError as error:
                future.set_exception(error)

        self._do(answer)
        return future

    def _read_inside(self, kind: str, name: str, arguments: dict[str, Any]) -> tuple[str, bytes]:
        """A read that names a transaction sees its operations, on a copy that is thrown away."""
        txid = arguments.pop("tx", None)
        if txid is None:
            return self.data.read(kind, name, arguments, len(self.results))
        if kind not in READS_INSIDE:
            raise InvalidRequest(f"{kind} shows no transaction")
        before, self.data = self.data, self.data.copied()
        try:
            self.data.execute(txid, self.transactions.pending(txid))
            return self.data.read(kind, name, arguments, len(self.results))
        finally:
            self.data = before

    # ---- questions

    def outcome(self, txid: str) -> dict[str, Any] | None:
        if txid in self.transactions.open:
            state = self.transactions.open[txid].state
            return {"txid": txid, "state": state, "lsn": None, "outcome": None, "reason": ""}
        if txid not in self.bodies:
            if self.transactions.over.get(txid, ("",))[0] == "aborted":
                reason = self.transactions.over[txid][2]
                return {"txid": txid, "state": "aborted", "lsn": None, "outcome": None, "reason": reason}
            return None
        lsn = self.bodies[txid][0]
        _, outcome, reason = self.results[lsn - 1]
        return {"txid": txid, "state": "applied", "lsn": lsn, "outcome": outcome, "reason": reason}

    def status(self, timeout_ms: int = 2000) -> dict[str, Any]:
        lsn = len(self.results)
        row = {
            "id": self.node_id, "role": self.role, **states.describe("ok"), "master": "m1", "received_lsn": lsn,
            "applied_lsn": lsn, "lag_entries": 0, "lag_s": 0.0, "stale_s": 0.0, "fingerprint": self.data.fingerprint(),
            "items": len(self.keys), "incoming": 0, "in_doubt": 0, "seen_s": 0.0,
        }  # fmt: skip
        return {"cluster": "orders", "epoch": 1, "state": "ok", "nodes": [row]}

    def log(self, first_lsn: int, last_lsn: int) -> list[dict[str, Any]]:
        rows = enumerate(self.results, 1)
        return [
            {"lsn": lsn, "txid": txid, "outcome": outcome}
            for lsn, (txid, outcome, _) in rows
            if first_lsn <= lsn and (lsn <= last_lsn or not last_lsn)
        ]

    def logged(self, first_lsn: int, last_lsn: int) -> list[LoggedRow]:
        rows = enumerate(self.results, 1)
        return [
            (txid, 1000 + lsn, outcome, reason, b"", packed(lsn))
            for lsn, (txid, outcome, reason) in rows
            if first_lsn <= lsn <= last_lsn
        ]

    def entries(self, first_lsn: int, last_lsn: int) -> dict[str, Any]:
        rows = [
            (lsn, txid, "m1", 1000 + lsn, 1, outcome, reason, b"", packed(lsn))
            for lsn, (txid, outcome, reason) in enumerate(self.results, 1)
            if first_lsn <= lsn <= last_lsn
        ]
        return {"cluster": "orders", "first_lsn": 1, "last_lsn": len(self.results), "rewinds": self.rewinds, "entries": rows}

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """A backup begins at once and is done when somebody asks for the second time."""
        self.commands.append((name, arguments, timeout_ms))
        future: Future[dict[str, Any]] = Future()
        if self.is_dead:
            return future
        known = [known["name"] for command, known, _ in self.commands if command == "backup"]
        if self.refusal is not None:
            future.set_exception(self.refusal)
        elif name not in {"backup", "task"}:
            future.set_exception(InvalidRequest(f"unknown command {name!r}"))
        elif name == "task" and arguments["request"] not in known:
            future.set_exception(NotFound(f"there is no task {arguments['request']!r}"))
        else:
            asked = sum(command == "task" for command, _, _ in self.commands)
            future.set_result(self._task(arguments.get("name") or arguments["request"], is_done=asked > 1))
        return future

    def _task(self, request: str, *, is_done: bool) -> dict[str, Any]:
        answer = {"path": f"backups/{request}", "lsn": len(self.results)} if is_done else {}
        return {
            "request": request, "kind": "backup", "worker": "w1", "state": "done" if is_done else "running",
            "done": 100 if is_done else 40, "total": 100, "per_s": 20.0, "left_s": None if is_done else 3.0, "reason": "", "answer": answer,
        }  # fmt: skip

    def writable(self) -> tuple[bool, str]:
        if self.role == "worker":
            return False, f"{self.node_id} is a worker and serves reads only: send writes to master m1"
        return self.refusal is None, str(self.refusal or "")

    def ready(self, max_lag_entries: int | None = None, max_lag_s: float | None = None) -> tuple[bool, list[str]]:
        is_near = max_lag_entries is None or self.lag_entries <= max_lag_entries
        lines = [f"[{'+' if self.loop_is_alive else '-'}]loop", "[+]journal ok", f"[{'+' if is_near else '-'}]lag"]
        return is_near and self.loop_is_alive, lines

    def applied_lsn(self) -> int:
        return len(self.results)

    def wait_for(self, lsn: int, workers: int | str, timeout_ms: int) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        if lsn <= len(self.results):
            future.set_result({"lsn": len(self.results), "workers": ["w1"]})
        else:
            future.set_exception(TimedOut(f"LSN {lsn} is not applied on {workers} workers yet"))
        return future

    def metrics(self) -> Numbers:
        return {"applied_lsn": len(self.results), ("state_info", "ok"): 1, "turns_total": 2.5}
