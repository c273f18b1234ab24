"""A front over a worker's own store: what a door test sees is what a node would answer.

Everything is applied at once, in the calling thread or in one of its own; knobs make it slow, silent, read-only or full. It is
no node: one copy, and no order to agree on.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgpack

from brokerha.model import states
from brokerha.model.errors import BrokerhaError, InvalidRequest, KeyReused, NotFound, OutcomeUnknown, ReadOnly, TimedOut, rejection
from brokerha.model.fingerprints import packed
from brokerha.model.numbers import Numbers
from brokerha.model.operations import LoggedRow, Operation, pack_operations
from brokerha.model.requests import APPLIED_LEVEL, READS_INSIDE, REFUSED, REJECTED_STATUS, UNKNOWN, WAIT, Reply
from brokerha.nodes.front.checking import checked_body
from brokerha.ports.front import Readers, ReadOutcome
from brokerha.stores.execution.worker_store import WorkerStore
from tests.unit.http.fake_transactions import FakeTransactions

IN_MEMORY = Path("/dev/shm")
"""Where a store costs no time of a disk."""


def _work_off(work: queue.SimpleQueue[Callable[[], None]]) -> None:
    """What a thread of a front does; it does not keep the front."""
    while True:
        work.get()()


def _close(store: WorkerStore, directory: TemporaryDirectory[str]) -> None:
    store.close()
    directory.cleanup()


class FakeFront:
    """One node with one copy of all data."""

    def __init__(self, role: str = "master", node_id: str = "m1", *, threaded: bool = False) -> None:
        self.role = role
        self.node_id = node_id
        self._store: WorkerStore | None = None
        self.transactions = FakeTransactions(node_id)
        self.results: list[tuple[str, str, str]] = []
        """(txid, outcome, reason) by LSN - 1."""
        self.rewinds: list[list[int]] = []
        self.bodies: dict[str, tuple[int, bytes]] = {}
        self.submitted: list[tuple[str, str, int, int]] = []
        """(txid, level, copies, timeout_ms) of every submit that was taken in."""
        self.apart: list[str] = []
        """What each of them wants at a master that is apart."""
        self.users: list[str] = []
        """Of each write, as the door named it."""
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
            threading.Thread(target=_work_off, args=(self._work,), daemon=True).start()

    # ---- its content

    @property
    def store(self) -> WorkerStore:
        """Its copy; opened when it is first needed."""
        if self._store is None:
            directory = TemporaryDirectory(prefix="brokerha-front-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
            self._store = WorkerStore(Path(directory.name), cluster="orders", node=self.node_id)
            weakref.finalize(self, _close, self._store, directory)
        return self._store

    def found(self, kind: str, name: str = "", **arguments: Any) -> tuple[str, bytes]:
        """Content type and body of one read of the copy."""
        answer = self.store.read(kind, name, arguments)
        return answer.content_type, b"".join(answer.pieces)

    @property
    def repositories(self) -> dict[str, list[str]]:
        """The quads of each, as lines of N-Quads."""
        names = json.loads(self.found("repositories")[1])
        return {
            name: self.found("statements", name, accept="application/n-quads", context=[])[1].decode().splitlines()
            for name in names
        }

    @property
    def keys(self) -> dict[tuple[str, bytes], bytes]:
        """Values by table and key."""
        tables = json.loads(self.found("tables")[1])
        return {(table, key): value for table in tables for key, value in msgpack.unpackb(self.found("range", table)[1])}

    @property
    def checks(self) -> dict[str, dict[str, str]]:
        """The control suite, by name."""
        return {check["name"]: check for check in json.loads(self.found("control")[1])["checks"]}

    @property
    def queues(self) -> dict[str, list[tuple[str, str, bytes]]]:
        """The messages of each queue."""
        names = json.loads(self.found("queues")[1])
        return {name: [tuple(row) for row in msgpack.unpackb(self.found("queue", name)[1])] for name in names}

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Have a value, by a transaction that nobody counts."""
        lsn = self.store.applied().lsn + 1
        self.store.execute(lsn, [(f"given-{lsn}", lsn, pack_operations([("put", table, key, value)]))])

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
        user: str = "",
    ) -> Future[Reply]:
        if self.role == "worker":
            raise ReadOnly(self.writable()[1])
        body = checked_body(operations, user)
        self.users.append(user)
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
                future.set_result(self._apply(txid, body, level))

        self._do(answer)
        return future

    def _apply(self, txid: str, body: bytes, level: str) -> Reply:
        with self._lock:
            if txid in self.bodies:
                lsn, known = self.bodies[txid]
                if known != body:
                    reused = KeyReused(f"another transaction with the id {txid} came first: use a new key")
                    return Reply(1, txid, REFUSED, 0, "KeyReused", str(reused))
            else:
                lsn = len(self.results) + 1
                self.bodies[txid] = (lsn, body)
                (result,) = self.store.execute(self.store.applied().lsn + 1, [(txid, lsn, body)])
                self.results.append((txid, result.outcome, result.reason))
        _, outcome, reason = self.results[lsn - 1]
        if outcome == "rejected":
            return Reply(1, txid, REJECTED_STATUS, lsn, type(rejection(reason)).__name__, reason)
        return Reply(1, txid, level, 0 if level == "accepted" else lsn)

    # ---- transactions

    def transact(self, action: str, txid: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
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
            checked_body(arguments["operations"])
        self._do(answer)
        return future

    def apply_transaction(self, txid: str, operations: list[Operation]) -> tuple[int, str]:
        reply = self._apply(txid, pack_operations(operations), APPLIED_LEVEL)
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
        """A read that names a transaction sees its operations too."""
        txid = arguments.pop("tx", None)
        if txid is not None:
            if kind not in READS_INSIDE:
                raise InvalidRequest(f"{kind} shows no transaction")
            arguments |= {"pending": pack_operations(self.transactions.pending(txid)), "txid": txid}
        return self.found(kind, name, **arguments)

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
            "applied_lsn": lsn, "lag_entries": 0, "lag_s": 0.0, "stale_s": 0.0, "fingerprint": self.store.applied().fingerprint,
            "items": self.store.applied().items, "incoming": 0, "in_doubt": 0, "seen_s": 0.0,
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
