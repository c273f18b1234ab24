"""Admission of writes, and the clients that wait for their levels (architecture, section 3, step 2).

A write with a known transaction id is attached to that transaction, never taken in twice (R1): a client without an answer sends the
write again, to any master, and gets the outcome of the first. The same id with other operations is refused. When more transactions
wait than the limit, new writes are refused with a clear word instead of growing a queue.

Each ticket gets exactly one reply: the level that it asked for, a refusal, a rejection, or *unknown* when its time is over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from brokerha.model.errors import rejection
from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.operations import REJECTED, ResultRow
from brokerha.model.outside.authors import is_same_work
from brokerha.model.records import History
from brokerha.model.requests import ACCEPTED, APPLIED_LEVEL, REFUSED, REJECTED_STATUS, SYNCHRONISED, UNKNOWN, Reply, Submit


@dataclass(slots=True)
class Waiting:
    """A ticket without a reply."""

    ticket: int
    txid: TxId
    level: str
    copies: int
    lsn: Lsn = 0
    rejection: str | None = None


class Waiters:
    """All tickets that wait for an answer."""

    def __init__(self, node: NodeId) -> None:
        """Take the own node: transactions that came in through it are the requested ones."""
        self._node = node
        self._open: dict[int, Waiting] = {}
        self._by_txid: dict[TxId, list[Waiting]] = {}
        self._by_lsn: dict[Lsn, list[Waiting]] = {}
        self._to_apply: dict[int, list[tuple[Lsn, int]]] = {}
        """By number of copies: a heap of (LSN, ticket)."""
        self.awaited_lsn: Lsn = 0
        """Highest LSN whose application a client waited for."""
        self._deadlines: list[tuple[int, int]] = []
        self.replies: list[Reply] = []
        """Replies that hold once this turn's records are durable."""
        self.ready_replies: list[Reply] = []
        """Replies that hold now: refusals, applied and elsewhere durable transactions, timeouts."""

    def __len__(self) -> int:
        return len(self._open)

    def refuse(self, submit: Submit, error: str, reason: str) -> None:
        """Reply that the write was not taken in."""
        if submit.ticket:
            self.ready_replies.append(Reply(submit.ticket, submit.txid, REFUSED, 0, error, reason))

    def unknown(self, submit: Submit, reason: str) -> None:
        """Reply that this master will learn nothing more about the write."""
        if submit.ticket:
            self.ready_replies.append(Reply(submit.ticket, submit.txid, UNKNOWN, 0, "OutcomeUnknown", reason))

    def give_up(self, reason: Callable[[TxId], str]) -> None:
        """Reply *unknown* to all tickets whose transaction has no LSN here: none will come."""
        for waiting in [each for each in self._open.values() if not each.lsn]:
            self._answer(waiting, UNKNOWN, reason(waiting.txid))

    def add(self, submit: Submit, mono_ms: int, lsn: Lsn, result: ResultRow | None) -> None:
        """Let a ticket wait; ``lsn`` and ``result`` are those of a synchronised transaction, else 0 and None."""
        if not submit.ticket:
            return
        if submit.level == ACCEPTED or (lsn and submit.level == SYNCHRONISED):
            self.replies.append(Reply(submit.ticket, submit.txid, submit.level, lsn))
            return
        waiting = Waiting(submit.ticket, submit.txid, submit.level, submit.copies, lsn)
        self._open[submit.ticket] = waiting
        heapq.heappush(self._deadlines, (mono_ms + submit.timeout_ms, submit.ticket))
        if not lsn:
            self._by_txid.setdefault(submit.txid, []).append(waiting)
            return
        if result is not None and result[0] == REJECTED:
            waiting.rejection = result[1]
        self._await_application(waiting)

    def _await_application(self, waiting: Waiting) -> None:
        if waiting.rejection is None:
            self._by_lsn.setdefault(waiting.lsn, []).append(waiting)
        heapq.heappush(self._to_apply.setdefault(waiting.copies, []), (waiting.lsn, waiting.ticket))
        self.awaited_lsn = max(self.awaited_lsn, waiting.lsn)

    def on_added(self, first_lsn: Lsn, added: tuple[Ordered, ...], is_other: Callable[[NodeId, TxId], bool]) -> None:
        """Note that transactions got their LSNs. ``is_other`` tells whether an added one is another one with the same id."""
        if not self._by_txid:
            return
        for lsn, (_, txid, origin) in enumerate(added, first_lsn):
            for waiting in self._by_txid.pop(txid, ()):
                if waiting.ticket not in self._open:
                    continue
                waiting.lsn = lsn
                if origin != self._node and is_other(origin, txid):
                    self._answer(waiting, REFUSED)
                elif waiting.level == SYNCHRONISED:
                    self._answer(waiting, SYNCHRONISED)
                else:
                    self._await_application(waiting)

    def on_results(self, first_lsn: Lsn, results: tuple[ResultRow, ...]) -> None:
        """Note that outcomes became known."""
        if not self._by_lsn:
            return
        for lsn, (outcome, reason, *_) in enumerate(results, first_lsn):
            for waiting in self._by_lsn.pop(lsn, ()):
                if outcome == REJECTED:
                    waiting.rejection = reason

    def on_state(self, lsn: Lsn, known: Mapping[TxId, Lsn], rejection: Callable[[Lsn], str | None]) -> None:
        """Note that another master's state was taken over: these got their LSNs with it, and every LSN up to ``lsn`` its result."""
        for txid, at in known.items():
            self.on_added(at, ((0, txid, ""),), lambda _origin, _txid: False)
        for at in [at for at in self._by_lsn if at <= lsn]:
            for waiting in self._by_lsn.pop(at):
                waiting.rejection = rejection(at)

    def on_applied(self, copies: int, lsn: Lsn) -> None:
        """Note that ``copies`` workers have applied all transactions up to ``lsn``."""
        heap = self._to_apply.get(copies)
        while heap and heap[0][0] <= lsn:
            waiting = self._open.get(heapq.heappop(heap)[1])
            if waiting is not None:
                self._answer(waiting, REJECTED_STATUS if waiting.rejection is not None else APPLIED_LEVEL)

    def go_back(self, lsn: Lsn) -> None:
        """Forget LSNs above this one: they are void, and clients wait for the next ones."""
        for heap in self._to_apply.values():
            heap[:] = [item for item in heap if item[0] <= lsn]
            heapq.heapify(heap)
        self._by_lsn = {at: waiting for at, waiting in self._by_lsn.items() if at <= lsn}
        for waiting in self._open.values():
            if waiting.lsn > lsn:
                waiting.lsn, waiting.rejection = 0, None
                self._by_txid.setdefault(waiting.txid, []).append(waiting)

    def settle(self, applied_by: Callable[[int], Lsn]) -> None:
        """Reply to the clients whose transactions enough copies have applied."""
        for copies, heap in self._to_apply.items():
            if heap:
                self.on_applied(copies, applied_by(copies))

    def expire(self, mono_ms: int) -> None:
        """Reply *unknown* to all tickets whose time is over."""
        while self._deadlines and self._deadlines[0][0] <= mono_ms:
            waiting = self._open.get(heapq.heappop(self._deadlines)[1])
            if waiting is not None:
                self._answer(waiting, UNKNOWN)

    def _answer(self, waiting: Waiting, status: str, reason: str = "") -> None:
        del self._open[waiting.ticket]
        error = ""
        if status == REJECTED_STATUS:
            reason = waiting.rejection or ""
            error = type(rejection(reason)).__name__
        elif status == REFUSED:
            error, reason = "KeyReused", f"another transaction with the id {waiting.txid} came first: use a new key"
        elif status == UNKNOWN:
            error = "OutcomeUnknown"
            reached = f"synchronised at LSN {waiting.lsn}" if waiting.lsn else "accepted"
            reason = reason or f"deadline passed; the transaction is {reached} and goes on by itself"
            self._forget(waiting)
        replies = self.replies if status == SYNCHRONISED else self.ready_replies
        replies.append(Reply(waiting.ticket, waiting.txid, status, waiting.lsn, error, reason))

    def _forget(self, waiting: Waiting) -> None:
        if waiting.lsn:
            _drop(self._by_lsn, waiting.lsn, waiting)
        else:
            _drop(self._by_txid, waiting.txid, waiting)

    def deadline_ms(self) -> int | None:
        """Return when the next ticket's time is over; None when none waits."""
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None


def _drop(index: dict[Any, list[Waiting]], name: Lsn | TxId, waiting: Waiting) -> None:
    others = [other for other in index.get(name, ()) if other is not waiting]
    if others:
        index[name] = others
    else:
        index.pop(name, None)


def is_other_body(bodies: Mapping[str, bytes], history: History, node: NodeId, submit: Submit, lsn: Lsn) -> bool:
    """Tell whether the id is known with other operations; a trimmed body cannot be compared. LSN 0: it has none yet.

    ``bodies``: those accepted at this ``node`` that its journal does not hold yet.
    """
    if not lsn:
        body = bodies.get(submit.txid) or history.body(node, submit.txid)
    else:
        ordered = history.ordered(lsn, 1)
        body = history.body(ordered[0][2], submit.txid) if ordered else None
    return body is not None and not is_same_work(body, submit.body)


def is_other_origin(history: History, node: NodeId, origin: NodeId, txid: TxId) -> bool:
    """Tell whether the transaction of another master under this id differs from the one that came in here, if one did.

    None did where a client waits for that of the other master, which lost its LSN in a split.
    """
    if origin == node or (own := history.body(node, txid)) is None:
        return False
    theirs = history.body(origin, txid)
    return theirs != own and (theirs is None or not is_same_work(theirs, own))
