"""Transactions of an external coordinator: the two-phase extension of PEP 249.

    xid = db.xid(1, "order-4711", "stock")
    db.tpc_begin(xid)
    db.put("stock", "sku-1", b"7")              # belongs to the transaction, as every write and read of this connection now
    db.tpc_prepare()                            # from here on it outlives this program
    db.tpc_commit()

Without `tpc_prepare` the commit is one phase. Who comes back after a crash finds what is prepared with `tpc_recover` and ends it
with ``tpc_commit(xid)`` or ``tpc_rollback(xid)``. `commit` and `rollback` are not allowed between `tpc_begin` and its end; outside
they have nothing to do, because every other write is a transaction of its own.

Source: PEP 249, "Optional Two-Phase Commit Extensions".
"""

from __future__ import annotations

import threading
from typing import Any

from brokerha.client.queues import Queues
from brokerha.client.transactions import PLACED, PREPARED, Committed, Transaction, commit_safely, step
from brokerha.model.errors import InvalidRequest, NotFound, WrongState
from brokerha.model.ids import NodeId, TxId, Xid, checked_xid
from brokerha.model.outside.isolation import READ_COMMITTED
from brokerha.model.outside.levels import parse_ack


class TwoPhase(Queues):
    """The calls of PEP 249."""

    def xid(self, format_id: int, global_transaction_id: str | bytes, branch_qualifier: str | bytes = b"") -> Xid:
        """The name of a transaction: a number, and two parts of at most 64 bytes. Raises InvalidRequest."""
        parts = [part.encode() if isinstance(part, str) else part for part in (global_transaction_id, branch_qualifier)]
        try:
            return checked_xid(format_id, *parts)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None

    def tpc_begin(self, xid: Xid, *, timeout: float | None = None, isolation: str = READ_COMMITTED) -> None:
        """Begin a transaction with this name; from now on the calls of this connection belong to it.

        ``timeout``: the master ends it after so many seconds without a step before it is prepared.
        """
        if self.branch is not None:
            raise WrongState(
                f"the two-phase transaction {self.branch.txid} is under way on this connection: end it first"
            )
        self.branch = Transaction(self, xid, timeout, isolation=isolation).begin()

    def tpc_prepare(self, *, timeout: float | None = None) -> None:
        """First phase: promise that it can be committed. Raises Aborted when it cannot; then it is rolled back."""
        branch = self._under_way()
        try:
            state = branch.prepare(timeout=timeout)
        except BaseException:
            self._let_go()
            raise
        if state != PREPARED:
            # Nothing to do, so it is over already; the second phase is still to be called, and does nothing.
            branch.committed = Committed(branch.txid, 0)

    def tpc_commit(self, xid: Xid | None = None, *, timeout: float | None = None) -> Committed:
        """Commit what is under way; in one phase if it is not prepared. With ``xid``: commit one that was recovered."""
        if xid is not None:
            self._outside()
            row = self._recovered(xid, timeout)
            level, copies = parse_ack(self.ack)
            arguments = {"one_phase": False, "level": level, "copies": copies, "session": self.token}
            pause = threading.Event()
            lsn = commit_safely(self, row["node"], row["txid"], arguments, self.seconds(timeout), pause)
            self.note(lsn)
            return Committed(row["txid"], lsn)
        branch = self._under_way()
        try:
            return branch.committed or branch.commit(timeout=timeout)
        finally:
            self._let_go()

    def tpc_rollback(self, xid: Xid | None = None, *, timeout: float | None = None) -> None:
        """Roll back what is under way. With ``xid``: roll back one that was recovered."""
        if xid is not None:
            self._outside()
            row = self._recovered(xid, timeout)
            step(self, row["node"], "rollback", row["txid"], {"session": self.token}, timeout)
            return
        branch = self._under_way()
        try:
            branch.rollback(timeout=timeout)
        finally:
            self._let_go()

    def tpc_recover(self, *, timeout: float | None = None) -> list[Xid]:
        """The names of all transactions that are prepared and not ended, at the masters that can be reached.

        Also of those whose master has just started and does not know yet whether they are: their commit waits until it does.
        """
        rows = self.open_transactions(timeout=timeout)
        return [Xid.parse(row["xid"]) for row in rows if row["xid"] and row["state"] in (PLACED, PREPARED)]

    def commit(self) -> None:
        """Nothing to do: writes outside of a two-phase transaction are committed one by one. Raises WrongState in one."""
        self._outside()

    def rollback(self) -> None:
        """Nothing to do, as for `commit`. Raises WrongState in a two-phase transaction."""
        self._outside()

    def open_transactions(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Transactions that are open, prepared, or were ended by hand: ``{"txid", "xid", "state", "node", …}`` of each."""
        rows: list[dict[str, Any]] = self.ask("transactions", {}, timeout)
        return rows

    def end_transaction(
        self, action: str, node: NodeId, txid: TxId, *, by_hand: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """``commit``, ``rollback`` or ``forget`` a transaction of `open_transactions`, whoever began it.

        ``by_hand`` decides a prepared one in place of its coordinator: that is kept and reported until it is forgotten.
        """
        level, copies = parse_ack(self.ack)
        arguments: dict[str, Any] = {"by_hand": True} if by_hand else {}
        if action == "commit":
            arguments |= {"one_phase": None, "level": level, "copies": copies}
        return step(self, node, action, txid, arguments, timeout)

    # ---- inside

    def _under_way(self) -> Transaction:
        if self.branch is None:
            raise WrongState("no two-phase transaction is under way on this connection: call tpc_begin first")
        return self.branch

    def _outside(self) -> None:
        if self.branch is not None:
            raise WrongState(
                f"the two-phase transaction {self.branch.txid} is {self.branch.state} on this connection: end it with"
                " tpc_commit() or tpc_rollback()"
            )

    def _let_go(self) -> None:
        """Forget the one under way unless it still needs an end."""
        if self.branch is not None and self.branch.state not in {"open", PREPARED}:
            self.branch = None

    def _recovered(self, xid: Xid, timeout: float | None) -> dict[str, Any]:
        for row in self.open_transactions(timeout=timeout):
            if row["xid"] == xid.text and row["state"] in (PLACED, PREPARED):
                return row
        raise NotFound(f"no transaction {xid.text} is prepared at the masters that can be reached")
