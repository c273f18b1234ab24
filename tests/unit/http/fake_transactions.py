"""Open transactions and queues of the fake front: what the coordinator of a real master would answer, without any durability."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from brokerha.model.errors import Aborted, InvalidRequest, UnknownTransaction, WrongState, rejection
from brokerha.model.operations import Operation
from brokerha.nodes.front.checking import checked_body

Message = tuple[str, str, bytes]


@dataclass
class OpenTx:
    """One transaction that is not over, or was decided by hand."""

    xid: str
    session: str
    timeout_ms: int
    state: str = "open"
    operations: list[Operation] = field(default_factory=list)


class FakeTransactions:
    """The table of actions of /issue 4/: begin, operations, accept, prepare, commit, rollback, ping, forget, list."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.open: dict[str, OpenTx] = {}
        self.over: dict[str, tuple[str, int, str]] = {}
        """Transaction id -> (committed or aborted, LSN, reason)."""
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self._numbers = itertools.count(1)

    def pending(self, txid: str) -> list[Operation]:
        """The operations so far."""
        return list(self._of(txid).operations)

    def _of(self, txid: str) -> OpenTx:
        if txid in self.open:
            return self.open[txid]
        raise UnknownTransaction(f"transaction {txid} is not open at {self.node_id}")

    def act(self, front: Any, action: str, txid: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One step."""
        self.calls.append((action, txid, arguments))
        if action == "list":
            rows = [{"txid": name, "xid": tx.xid, "state": tx.state, "node": self.node_id} for name, tx in self.open.items()]
            return {"transactions": rows}
        if action == "begin":
            return self._begin(txid, arguments)
        if action in {"commit", "rollback"} and txid not in self.open and txid in self.over:
            state, lsn, reason = self.over[txid]
            if state == "aborted" and action == "commit":
                raise Aborted(reason)
            return {"state": state, "lsn": lsn}
        transaction = self._of(txid)
        return {
            "operations": self._operations, "accept": self._accept, "prepare": self._prepare,
            "commit": self._commit, "rollback": self._rollback, "ping": self._ping, "forget": self._forget,
        }[action](front, txid, transaction, arguments)  # fmt: skip

    def _begin(self, txid: str, arguments: dict[str, Any]) -> dict[str, Any]:
        xid = arguments["xid"]
        if xid and any(each.xid == xid for each in self.open.values()):
            raise InvalidRequest(f"xid {xid} is in use")
        timeout_ms = arguments["timeout_ms"] or 60_000
        if timeout_ms > 3_600_000:
            raise InvalidRequest("the time-out of a transaction is at most 3600 seconds")
        txid = txid or f"{self.node_id}.tx.{next(self._numbers)}"
        self.open[txid] = OpenTx(xid, arguments["session"], timeout_ms)
        return {"txid": txid, "timeout_ms": timeout_ms, "node": self.node_id}

    def _number(self, transaction: OpenTx, first: int | None, operations: list[Operation]) -> int:
        if transaction.state != "open":
            raise WrongState(f"the transaction is {transaction.state}: operations need one that is open")
        count = len(transaction.operations)
        first = count if first is None else first
        if first > count:
            raise InvalidRequest(f"operation {first} comes after operation {count}: send those between first")
        transaction.operations[first:] = operations
        return len(transaction.operations)

    def _operations(self, front: Any, txid: str, tx: OpenTx, arguments: dict[str, Any]) -> dict[str, Any]:
        operations = [tuple(operation) for operation in arguments["operations"]]
        checked_body(operations)
        return {"count": self._number(tx, arguments["first"], operations)}

    def _accept(self, front: Any, txid: str, tx: OpenTx, arguments: dict[str, Any]) -> dict[str, Any]:
        first = len(tx.operations) if arguments["first"] is None else arguments["first"]
        del tx.operations[first:]
        locked = {each[2] for other in self.open.values() for each in other.operations if each[0] == "accept"}
        queue = arguments["queue"]
        free = [message for message in front.queues.get(queue, []) if message[0] not in locked]
        taken = free[: arguments["count"]]
        count = self._number(tx, first, [("accept", queue, message[0]) for message in taken])
        return {"messages": taken, "count": count, "txid": txid}

    def _prepare(self, front: Any, txid: str, tx: OpenTx, arguments: dict[str, Any]) -> dict[str, Any]:
        if not tx.operations:
            self._end(txid, "committed", 0, "")
            return {"state": "read-only"}
        tx.state = "prepared"
        return {"state": "prepared"}

    def _commit(self, front: Any, txid: str, tx: OpenTx, arguments: dict[str, Any]) -> dict[str, Any]:
        one_phase = arguments["one_phase"]
        if one_phase is not None and one_phase != (tx.state == "open"):
            raise WrongState(f"the transaction is {tx.state}: commit it with one_phase={tx.state == 'open'}")
        lsn, reason = front.apply_transaction(txid, tx.operations) if tx.operations else (0, "")
        self._end(txid, "aborted" if reason else "committed", lsn, reason)
        if reason:
            raise rejection(reason, txid, lsn)
        return {"state": "committed", "lsn": lsn}

    def _rollback(self, front: Any, txid: str, tx: OpenTx, arguments: dict[str, Any]) -> dict[str, Any]:
        self._end(txid, "aborted", 0, "rolled back")
        return {"state": "aborted"}

    def _ping(self, front: Any, txid: str, tx: OpenTx, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"timeout_ms": tx.timeout_ms}

    def _forget(self, front: Any, txid: str, tx: OpenTx, arguments: dict[str, Any]) -> dict[str, Any]:
        if tx.state != "heuristic":
            raise WrongState(f"the transaction is {tx.state}: only what was decided by hand is forgotten")
        del self.open[txid]
        return {"state": "forgotten"}

    def _end(self, txid: str, state: str, lsn: int, reason: str) -> None:
        del self.open[txid]
        self.over[txid] = (state, lsn, reason)
