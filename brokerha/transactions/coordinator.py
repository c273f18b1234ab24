"""Coordinator: transactions at the primary, from their begin to their decision (transactions, sections 1 to 4, 6, 7).

| action | arguments | answer |
|---|---|---|
| begin | xid (text, empty for a transaction of one client), timeout_ms (0 for the default), session, isolation (model/outside/isolation.py), user (the writer; empty where the door does not know) | txid, timeout_ms |
| operations | first (number of the first of these, from 0), operations | count (so far) |
| take | first, queue, candidates (message ids in order), count | taken (ids, in order) |
| pending | | body (packed operations so far, empty for none), count; of an isolated one seen (its findings, in the same form) and lsn (of its last read) |
| saw | found (the findings of a read of an isolated one, as expectations), lsn | |
| prepare | session | state: ``prepared``, or ``read-only``: nothing to do, it is over |
| commit | one_phase, level, copies, session, by_hand | state ``committed``, lsn (0 below synchronised), reason when it was heuristic |
| rollback | session, by_hand | state ``aborted`` |
| ping | | timeout_ms |
| forget | | state ``forgotten`` |

Errors are names of model/errors.py: InvalidRequest (wrong arguments, xid in use), TooLarge, KeyReused, UnknownTransaction (never
begun, or long over), WrongState (the step is not allowed now), Aborted (nothing happened, nothing will), OutcomeUnknown (the
deadline passed), NotReady, ReadOnly.

    step, on_answer, set_backups, wake      inputs; decisions are taken at once
    on_added, on_results                    results of commits in the log
    collect(now)                            output; `book` then holds records, messages, queues and replies

Invariants: T1 a body is accepted in the turn that records its decision, or needs no record; T2 after a participant was asked to
prepare, none joins and no operation is added; T3 a rollback is only decided before a commit; T4 a transaction that is over leaves
no lock, no queue and no event; T5 a transaction that the log knows, or could know, is not called rolled back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import Instant, NodeId, TxId
from brokerha.model.records import MasterState, TxDecided
from brokerha.model.requests import TxCommand
from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import TxAnswer, TxEvents
from brokerha.transactions.book import ABORTED, COMMITTED, OPEN, PREPARED, Book, Log
from brokerha.transactions.collecting import Collecting, join
from brokerha.transactions.config import TxConfig
from brokerha.transactions.deciding import Deciding
from brokerha.transactions.locks import accepted_in_body
from brokerha.transactions.states import Phase
from brokerha.transactions.transaction import Transaction
from brokerha.transactions.tx_feed import ROLLBACK

PRIMARY_LOST = "its primary was lost before it was decided"
_WORDS = {Phase.OPEN: OPEN, Phase.PREPARING: OPEN, Phase.PLACED: OPEN, Phase.PREPARED: PREPARED}


class Coordinator:
    """All transactions of one primary. ``state`` is that of its journal, with the incarnation and view that begin now."""

    def __init__(self, config: TxConfig, node: NodeId, state: MasterState, log: Log) -> None:
        self.book = Book(config, node, state, log)
        self.deciding = Deciding(self.book)
        collecting = Collecting(self.book)
        self._actions: dict[str, Callable[[TxCommand, Instant], None]] = {
            "begin": collecting.begin,
            "operations": collecting.operations,
            "take": collecting.take,
            "pending": collecting.pending,
            "saw": collecting.saw,
            "ping": collecting.ping,
            "prepare": self.deciding.prepare,
            "commit": self.deciding.commit,
            "rollback": self.deciding.rollback,
            "forget": self.deciding.forget,
        }
        self._timers: list[tuple[int, TxId]] = []
        self._timed: dict[TxId, int] = {}
        self._recover(state)

    def _recover(self, state: MasterState) -> None:
        """Recover from the journal: keep prepared transactions with an xid and their locks; roll back those of one client."""
        book = self.book
        for prepared in state.prepared.values():
            if not prepared.xid:
                book.records.append(TxDecided(prepared.txid, False, PRIMARY_LOST))
                book.finished.add(prepared.txid, ABORTED, PRIMARY_LOST)
                continue
            # The log knows whether its prepare was judged; `look` asks.
            kept = Transaction(prepared.txid, prepared.xid, "", 0, 0, Phase.PLACED, size=len(prepared.body))
            kept.body, kept.participants, kept.prepared_us = prepared.body, prepared.participants, prepared.prepared_us
            kept.is_recorded = kept.is_two_phase = True
            kept.count = _count_of(prepared.body)
            book.add(kept)
            book.placed[kept.txid] = kept
            book.locks.lock(prepared.txid, accepted_in_body(prepared.body))
        for decided in state.decided.values():
            if decided.is_heuristic:
                by_hand = Transaction(decided.txid, decided.xid, "", 0, 0, Phase.HEURISTIC)
                by_hand.is_committed, by_hand.reason = decided.is_commit, decided.reason
                by_hand.is_recorded = by_hand.is_two_phase = True
                book.add(by_hand)
            elif not decided.is_commit:
                book.finished.add(decided.txid, ABORTED, decided.reason)

    # ---- inputs

    def step(self, command: TxCommand, now: Instant) -> None:
        """Take one step of a transaction for its client. Each ticket is answered once, now or later."""
        action = self._actions.get(command.action)
        try:
            if action is None:
                known = ", ".join(self._actions)
                self.book.refuse(
                    command.ticket, command.txid, "InvalidRequest", f"unknown action {command.action!r}; known are {known}"
                )
            else:
                action(command, now)
        except BrokerhaError as error:
            self.book.refuse(command.ticket, command.txid, type(error).__name__, str(error))
        self.book.dirty[command.txid] = None

    def on_answer(self, backup: NodeId, answer: TxAnswer, now: Instant) -> None:
        """Take in an answer of a participant."""
        book = self.book
        feed = book.feed_of(answer.txid)
        if feed is None and answer.answer in ("missing", "refused") and answer.view == book.view and answer.txid not in book.table:
            # It takes part in a transaction that was rolled back long ago: the end was lost with the queue.
            over = TxEvents(answer.txid, book.view, answer.next, ((ROLLBACK, b"it is over"),))
            book.messages.append(Outgoing(backup, over))
            return
        if answer.view != book.view or feed is None or backup not in feed.backups:
            book.counts["answers_ignored"] += 1
            return
        book.dirty[answer.txid] = None
        transaction = book.table.get(answer.txid)
        if answer.answer == "missing":
            feed.on_missing(backup, answer.next)
        elif feed.has_ended or transaction is None:
            if answer.answer == "done":
                feed.lose(backup)
        elif answer.answer == "prepared":
            feed.on_prepared(backup)
            self.deciding.count_votes(transaction, now)
        elif answer.answer == "refused" and transaction.phase in (Phase.OPEN, Phase.PREPARING):
            self.deciding.abort(transaction, f"backup {backup} refused: {answer.reason}")
        elif answer.answer == "done":
            feed.leave(backup)
            self.deciding.lose(transaction, backup, "it left the transaction", now)

    def set_backups(self, ready: Iterable[NodeId], view: int, now: Instant) -> None:
        """Set the backups that are ready in this view. Lost ones leave all transactions; new ones join those that are open."""
        book = self.book
        book.backups, book.view = tuple(ready), view
        for transaction in list(book.table.values()):
            for backup in transaction.feed.backups if transaction.feed is not None else ():
                if backup not in book.backups:
                    self.deciding.lose(transaction, backup, "it is not ready any more", now)
            if transaction.phase is Phase.OPEN and transaction.count:
                join(book, transaction)
            self.deciding.count_votes(transaction, now)
        for txid, feed in book.ending.items():
            for backup in feed.backups:
                if backup not in book.backups:
                    feed.lose(backup)
                    book.dirty[txid] = None

    def wake(self, now: Instant) -> None:
        """Act on expired deadlines."""
        while self._timers and self._timers[0][0] <= now.mono_ms:
            due_ms, txid = heapq.heappop(self._timers)
            if self._timed.get(txid) == due_ms:
                del self._timed[txid]
                self._serve(txid, now)

    def _serve(self, txid: TxId, now: Instant) -> None:
        book, transaction = self.book, self.book.table.get(txid)
        book.dirty[txid] = None
        if transaction is None:
            return
        expired = [ask for ask in transaction.asks if ask.deadline_ms <= now.mono_ms]
        transaction.asks = [ask for ask in transaction.asks if ask.deadline_ms > now.mono_ms]
        for ask in expired:
            reason = f"deadline passed while the transaction is {transaction.phase.value}; it goes on by itself"
            book.refuse(ask.ticket, txid, "OutcomeUnknown", reason)
        idle_ms = now.mono_ms - transaction.touched_ms
        if transaction.phase is Phase.OPEN and idle_ms >= transaction.timeout_ms:
            book.counts["timed_out"] += 1
            self.deciding.abort(transaction, f"nothing happened in it for {transaction.timeout_ms} ms: rolled back")
        elif transaction.phase is Phase.PREPARING and now.mono_ms - transaction.closed_ms >= book.config.prepare_ms:
            self.deciding.give_up_waiting(transaction, now)

    # ---- output

    def collect(self, now: Instant) -> None:
        """Put due messages into the book, and compute the next deadlines."""
        book = self.book
        for txid in book.dirty:
            feed, transaction = book.feed_of(txid), book.table.get(txid)
            due_ms = None
            if feed is not None:
                book.messages += feed.messages(now.mono_ms)
                book.queues += feed.queues
                feed.queues = []
                due_ms = feed.due_ms()
                if txid in book.ending and not feed.backups:
                    del book.ending[txid]
            if transaction is not None:
                own_ms = transaction.due_ms(book.config.prepare_ms)
                due_ms = min((ms for ms in (own_ms, due_ms) if ms is not None), default=None)
            self._time(txid, due_ms)
        book.dirty = {}

    def _time(self, txid: TxId, due_ms: int | None) -> None:
        timed_ms = self._timed.get(txid)
        if due_ms is None:
            self._timed.pop(txid, None)
        elif timed_ms is None or due_ms < timed_ms:
            # A later deadline is computed anew at this moment, so that the heap stays short.
            self._timed[txid] = due_ms
            heapq.heappush(self._timers, (due_ms, txid))

    def deadline_ms(self) -> int | None:
        """Return when it needs to be woken, in monotonic milliseconds."""
        while self._timers and self._timed.get(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    # ---- questions

    def outcome(self, txid: TxId, now: Instant) -> dict[str, Any] | None:
        """Return the outcome of a transaction that the log does not know, as ``Front.outcome`` tells it, or None."""
        answer = {"txid": txid, "state": "", "lsn": None, "outcome": None, "reason": ""}
        transaction = self.book.table.get(txid)
        if transaction is not None:
            heuristic = COMMITTED if transaction.is_committed else ABORTED
            return {**answer, "state": _WORDS.get(transaction.phase, heuristic), "reason": transaction.reason}
        end = self.book.end_of(txid, now)
        return {**answer, "state": end.state, "reason": end.reason} if end is not None else None

    def rows(self, now: Instant) -> list[dict[str, Any]]:
        """Return all transactions that are not over, for lists and for recovery by transaction managers, oldest first."""
        return [
            {
                "txid": each.txid,
                "xid": each.xid,
                "state": each.phase.value,
                "outcome": (COMMITTED if each.is_committed else ABORTED) if each.phase is Phase.HEURISTIC else None,
                "operations": each.count,
                "bytes": len(each.body) or each.size,
                "participants": list(each.feed.backups if each.feed is not None else each.participants),
                "prepared_us": each.prepared_us or None,
                "idle_s": (now.mono_ms - each.touched_ms) / 1000 if each.phase is Phase.OPEN else None,
                "reason": each.reason,
            }
            for each in self.book.table.values()
        ]


def _count_of(body: bytes) -> int:
    """Return how many operations a packed body has."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(body[:5])
    return int(unpacker.read_array_header())
