"""Collecting: actions of a client in an open transaction, before the decision.

    begin, operations, take, pending, saw, ping

The front door checks operations before they come here. A repeated call, whose answer was lost, is recognised by the number of its
first operation and changes nothing. Nothing of an open transaction is durable.
"""

from __future__ import annotations

from typing import Any

from brokerha.model.errors import InvalidRequest, KeyReused, NotReady, WrongState, error_named
from brokerha.model.ids import Instant, is_tx_id
from brokerha.model.operations import Operation
from brokerha.model.outside.isolation import READ_COMMITTED, checked_isolation
from brokerha.model.requests import TxCommand
from brokerha.model.reserved.branches import BRANCH_ID_LIMIT
from brokerha.transactions.book import Book
from brokerha.transactions.locks import accepted_in
from brokerha.transactions.states import Phase
from brokerha.transactions.transaction import ReadSet, Transaction, body_of, packed_each
from brokerha.transactions.tx_feed import OPERATION, TxFeed


class Collecting:
    """The open half of the coordinator. Each action raises an error of model/errors.py, or answers."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def begin(self, command: TxCommand, now: Instant) -> None:
        """Begin a transaction, named by its id and perhaps by an xid."""
        book, config, txid = self._book, self._book.config, command.txid
        xid, session = text(command, "xid"), text(command, "session")
        timeout_ms = number(command, "timeout_ms", 0) or config.timeout_ms
        isolation = checked_isolation(text(command, "isolation"))
        if not is_tx_id(txid):
            raise InvalidRequest(f"{txid!r} is no transaction id: 1 to 128 visible ASCII characters")
        if not 1 <= timeout_ms <= config.timeout_max_ms:
            raise InvalidRequest(f"the time-out of a transaction is at most {config.timeout_max_ms} ms, not {timeout_ms}")
        if xid and len(txid) > BRANCH_ID_LIMIT:
            raise InvalidRequest(f"the id of a transaction with an xid has at most {BRANCH_ID_LIMIT} characters")
        known = book.table.get(txid)
        if known is not None:
            if known.phase is not Phase.OPEN or known.count or known.xid != xid:
                raise WrongState(f"transaction {txid} is {known.phase.value} already: take a new id")
            book.answer(command.ticket, txid, txid=txid, timeout_ms=known.timeout_ms)
            return
        if xid and xid in book.xids:
            phase = book.table[book.xids[xid]].phase.value
            raise InvalidRequest(f"xid {xid} is in use: transaction {book.xids[xid]} is {phase}")
        if book.log.is_known(txid):
            raise KeyReused(f"transaction id {txid} was used before: ask for its outcome, or use a new key")
        refusal = book.log.refusal(now)
        if refusal is not None:
            raise error_named(*refusal)
        if len(book.table) >= config.open_limit:
            raise NotReady(f"{config.open_limit} transactions are open: finish some, or try again later")
        reads = None if isolation == READ_COMMITTED else ReadSet(isolation)
        book.add(Transaction(txid, xid, session, timeout_ms, now.mono_ms, reads=reads, user=text(command, "user")))
        book.presumption.on_begin(txid)
        book.dirty[txid] = None
        book.counts["begun"] += 1
        book.answer(command.ticket, txid, txid=txid, timeout_ms=timeout_ms)

    def operations(self, command: TxCommand, now: Instant) -> None:
        """Add operations."""
        transaction = self._open(command, now)
        operations = command.arguments.get("operations")
        if not isinstance(operations, list | tuple) or not operations:
            raise InvalidRequest("operations: give a list of at least one operation")
        pieces = transaction.fresh(number(command, "first", transaction.count), packed_each(operations))
        fresh = operations[len(operations) - len(pieces) :]
        self._check_room(transaction, pieces)
        wanted = accepted_in(fresh)
        conflict = self._book.locks.conflict(transaction.txid, wanted)
        if conflict is not None:
            queue, message_id, holder = conflict
            raise NotReady(f"message {message_id} of queue {queue} is accepted in transaction {holder}: try another one")
        self._book.locks.lock(transaction.txid, wanted)
        add_pieces(self._book, transaction, pieces)
        self._book.answer(command.ticket, command.txid, count=transaction.count)

    def take(self, command: TxCommand, now: Instant) -> None:
        """Accept the first free ones of some messages of a queue."""
        transaction = self._open(command, now)
        queue, first = text(command, "queue"), number(command, "first", transaction.count)
        candidates = command.arguments.get("candidates", ())
        if not queue or not isinstance(candidates, list | tuple):
            raise InvalidRequest("take: name a queue, and a list of candidates")
        before = transaction.takes.get(first)
        if before is not None:
            self._book.answer(command.ticket, command.txid, taken=list(before))
            return
        if first != transaction.count:
            raise InvalidRequest(f"operation {first} does not follow: the transaction has {transaction.count}")
        longest = max(map(len, candidates), default=0)
        accepts: list[Operation] = [("accept", queue, "x" * longest)] * min(len(candidates), number(command, "count", 1))
        self._check_room(transaction, packed_each(accepts))
        lsn = number(command, "lsn", 0)
        taken = self._book.locks.take(transaction.txid, queue, map(str, candidates), len(accepts), lsn)
        if taken:
            transaction.takes[first] = tuple(taken)
            add_pieces(self._book, transaction, packed_each(("accept", queue, message_id) for message_id in taken))
        self._book.answer(command.ticket, command.txid, taken=taken)

    def pending(self, command: TxCommand, now: Instant) -> None:
        """Answer with the operations so far, for reads inside the transaction."""
        transaction = self._open(command, now)
        body = body_of(transaction.pieces) if transaction.pieces else b""
        reads = transaction.reads
        seen: dict[str, Any] = {}
        if reads is not None:
            seen = {"seen": body_of(reads.pieces()) if len(reads) else b"", "lsn": reads.lsn}
        self._book.answer(command.ticket, command.txid, body=body, count=transaction.count, **seen)

    def saw(self, command: TxCommand, now: Instant) -> None:
        """Take in the findings of a read inside an isolated transaction."""
        transaction = self._open(command, now)
        found = command.arguments.get("found", ())
        if transaction.reads is None or not isinstance(found, list | tuple):
            raise InvalidRequest("saw: give a list of expectations, in a transaction that is isolated")
        # First: what is refused here must not be in the body later, which could then not travel to the other masters.
        size = transaction.reads.size
        self._check_room(transaction, list(transaction.reads.fresh(found).values()))
        transaction.reads.add(found, number(command, "lsn", 0))
        self._book.open_bytes += transaction.reads.size - size
        self._book.answer(command.ticket, command.txid)

    def ping(self, command: TxCommand, now: Instant) -> None:
        """Keep an open transaction open; for a prepared one, only say that it is there."""
        transaction = self._book.find(command.txid, now)
        transaction.touched_ms = now.mono_ms
        self._book.answer(command.ticket, command.txid, timeout_ms=transaction.timeout_ms)

    def _open(self, command: TxCommand, now: Instant) -> Transaction:
        transaction = self._book.find(command.txid, now)
        if transaction.phase is not Phase.OPEN:
            raise WrongState(f"transaction {command.txid} is {transaction.phase.value}, not open")
        transaction.touched_ms = now.mono_ms
        return transaction

    def _check_room(self, transaction: Transaction, pieces: list[bytes]) -> None:
        transaction.check_room(pieces)
        limit = self._book.config.bytes_limit
        if self._book.open_bytes + sum(map(len, pieces)) > limit:
            raise NotReady(f"open transactions hold {limit} bytes together: finish some, or try again later")


def add_pieces(book: Book, transaction: Transaction, pieces: list[bytes]) -> None:
    """Add packed operations to an open transaction, and tell its participants."""
    if transaction.count == 0:
        join(book, transaction)
    size = transaction.size
    transaction.add(pieces)
    book.open_bytes += transaction.size - size
    if transaction.feed is not None and pieces:
        transaction.feed.add([(OPERATION, piece) for piece in pieces])
        book.dirty[transaction.txid] = None


def join(book: Book, transaction: Transaction) -> None:
    """Let ready backups take part in an open transaction, and give them its operations so far."""
    if not book.backups:
        return
    if transaction.feed is None:
        transaction.feed = TxFeed(book.config, book.node, book.view, transaction.txid, transaction.xid)
        transaction.feed.add([(OPERATION, piece) for piece in transaction.pieces])
    for backup in book.backups:
        if transaction.feed.join(backup):
            book.dirty[transaction.txid] = None


def text(command: TxCommand, name: str) -> str:
    """Return an argument that is a text; empty when it is not given. Raises InvalidRequest."""
    value: Any = command.arguments.get(name, "")
    if not isinstance(value, str):
        raise InvalidRequest(f"{command.action}: {name} is a text")
    return value


def number(command: TxCommand, name: str, default: int) -> int:
    """Return an argument that is a number from 0 on. Raises InvalidRequest."""
    value: Any = command.arguments.get(name, default)
    if type(value) is not int or value < 0:
        raise InvalidRequest(f"{command.action}: {name} is a number from 0 on")
    return value


def flag(command: TxCommand, name: str, default: bool) -> bool:
    """Return an argument that is true or false. Raises InvalidRequest."""
    value: Any = command.arguments.get(name, default)
    if type(value) is not bool:
        raise InvalidRequest(f"{command.action}: {name} is true or false")
    return value
