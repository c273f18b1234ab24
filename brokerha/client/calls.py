"""The common path of every call of a client: its timeout, transaction id and wire; writes, transactions and queues.

accept     takes messages in a transaction of its own: at most once, because a later failure does not bring them back
consume    yields each message inside a transaction that commits when the body of the loop ends: at least once; without ``wait`` and
           ``count`` it waits for the next message for ever

for message in db.consume("inbox"):
    message.transaction.put("seen", message.id, b"")        # commits together with taking the message
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeout
from typing import Any, Final, NamedTuple, TypeVar, overload

from tenacity import Retrying

from brokerha.client.arguments import checked
from brokerha.client.outcomes import Written, written
from brokerha.client.reads import Least, QueueMessage, Reads, as_bytes, in_utf8
from brokerha.client.transactions import (
    ATTEMPTS,
    NEW,
    OCTETS,
    PAUSE_MOST_S,
    PAUSE_S,
    WAIT_SLICE_S,
    Transaction,
    checked_wait,
    retries,
)
from brokerha.model.errors import (
    Aborted,
    BrokerhaError,
    InvalidRequest,
    NotReady,
    OutcomeUnknown,
    ReadOnly,
    TimedOut,
    Unreachable,
    WrongState,
    may_run_again,
)
from brokerha.model.ids import Lsn, NodeId, TxId, is_tx_id
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.outside.isolation import READ_COMMITTED, SERIALIZABLE
from brokerha.model.outside.levels import parse_ack, parse_apart, parse_min_lsn
from brokerha.model.requests import WAIT, Reply
from brokerha.ports.front import ReadOutcome
from brokerha.ports.wire import Wire

GRACE_S = 5.0
"""Extra time that a call waits for the wire beyond its deadline; a healthy wire answers earlier."""
TIMEOUT_MOST_S: Final = 30 * 86_400
"""RabbitMQ closes the connection over a message with an expiration of more than 49 days."""
Result = TypeVar("Result")
TAKEN_AT_S: Final = 2.0
"""Time in which the master of the last messages must answer before another one is asked."""
ABORTS_LIMIT: Final = 5
"""Most lost races for the same message in a row before the caller gets the error."""


class Consumed(NamedTuple):
    """A message in the body of a `consume` loop."""

    id: str
    content_type: str
    body: bytes
    transaction: Transaction
    """Commits when the body ends."""


@checked
class Calls(Reads):
    """One program's connection: its timeout, ids and wire; the path of all reads, writes, transactions and queues."""

    branch: Transaction | None = None
    """The current two-phase transaction, to which calls belong (`Client.tpc_begin`)."""
    is_prepare_refused = False
    """True when the last two-phase transaction ended in its prepare, so its coordinator can still roll it back."""

    def __init__(self, wire: Wire, timeout: float = 30.0, ack: str = "applied", apart: str = WAIT) -> None:
        parse_ack(ack)
        self._wire = wire
        self._process = os.getpid()
        self.timeout = self.seconds(timeout)
        """Default timeout of a call, in seconds."""
        self.ack = ack
        """Default level of a write."""
        self.apart = parse_apart(apart)
        """Default of writes for a master that is apart: ``wait`` or ``refuse``."""
        self.token = secrets.token_hex(8)
        """Name of this connection for the masters: a transaction that is in use belongs to it."""
        self.transactions: set[Transaction] = set()
        """Open transactions of this connection; `close` rolls them back."""
        self._numbers = itertools.count(1)
        self._taken_at: NodeId = ""
        """The master that gave the last messages."""

    @property
    def wire(self) -> Wire:
        """The connection to the cluster."""
        self._check_process()
        return self._wire

    def close(self) -> None:
        """Roll back open transactions, then disconnect. Idempotent; does nothing in a forked process."""
        if os.getpid() != self._process:
            return
        for transaction in list(self.transactions):
            transaction.abandon()
        self.wire.close()

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Least = None, timeout: float | None = None
    ) -> ReadOutcome:
        """Run one read of ports.Front and return its outcome unchanged."""
        seconds = self.seconds(timeout)
        least = self.least_lsn() if min_lsn is None else parse_min_lsn(str(min_lsn), "min_lsn")
        with in_utf8():
            future = self.wire.read(kind, name, arguments, least, milliseconds(seconds))
        try:
            return future.result(seconds + GRACE_S)
        except WaitTimeout:
            raise TimedOut(f"the read was not answered in {seconds:g} seconds: try again") from None

    def ask(self, what: str, arguments: dict[str, Any], timeout: float | None = None) -> Any:
        """Ask a question of ports.Wire."""
        with in_utf8():
            return self.wire.ask(what, arguments, milliseconds(self.seconds(timeout)))

    def new_txid(self) -> TxId:
        """Return a new, unique transaction id."""
        self._check_process()
        return f"{self.token}-{next(self._numbers)}"

    def txid(self, key: TxId) -> TxId:
        """Return the id of a write: the caller's key, or a new id. Raises InvalidRequest for an invalid key."""
        self._check_process()
        if key and not is_tx_id(key):
            raise InvalidRequest("an idempotency key has 1 to 128 visible ASCII characters and no space")
        return key or self.new_txid()

    def seconds(self, timeout: float | None) -> float:
        """Return the timeout of a call. Raises InvalidRequest when it is not above 0, or more than `TIMEOUT_MOST_S`."""
        seconds = self.timeout if timeout is None else timeout
        if not 0 < seconds <= TIMEOUT_MOST_S:
            raise InvalidRequest(f"timeout is a number of seconds above 0 and up to {TIMEOUT_MOST_S}, not {seconds!r}")
        return seconds

    def _check_process(self) -> None:
        """Raise WrongState in a forked process: threads are not copied, and both processes would share sockets and ids."""
        if os.getpid() != self._process:
            raise WrongState("this client belongs to the process that this one was forked from: connect after the fork")

    def note(self, lsn: Lsn) -> None:
        """Note the LSN of a write of this client."""

    def least_lsn(self) -> Lsn:
        """Return the default ``min_lsn`` of reads."""
        return 0

    # ---- writes, transactions, queues

    def write(
        self,
        operations: Sequence[Operation],
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        apart: str | None = None,
    ) -> Written:
        """Run operations of any kind (model/operations.py) as one transaction, all or nothing.

        In a two-phase transaction (transactions.py) they become a part of it; the level is ``open`` until it commits.
        """
        if self.branch is not None:
            self.branch.write(operations)
            return Written(self.branch.txid, 0, self.branch.state)
        done = written(_reply(*self.handed_in(operations, ack, timeout, key, apart)))
        self.note(done.lsn)
        return done

    def handed_in(
        self, operations: Sequence[Operation], ack: str | None, timeout: float | None, key: TxId, apart: str | None
    ) -> tuple[Future[Reply], TxId, float]:
        """Hand one transaction to the wire; return the future of its reply, its id, and its timeout in seconds."""
        txid, body = self.txid(key), pack_operations(list(operations))
        level, copies = parse_ack(ack or self.ack)
        seconds = self.seconds(timeout)
        wanted = parse_apart(apart or self.apart)
        [future] = self.wire.submit([(txid, body)], level, copies, milliseconds(seconds), wanted)
        return future, txid, seconds

    def transaction(
        self, *, timeout: float | None = None, ack: str | None = None, session: str = "", isolation: str = READ_COMMITTED
    ) -> Transaction:
        """Return a transaction over several stores, for ``with``; see transactions.py.

        ``isolation``: ``read-committed``, ``snapshot`` or ``serializable`` (model/outside/isolation.py); the latter two can end in
        Conflict. ``timeout``: seconds without a step after which the master ends it (60 by default, at most 3600). ``session``: its
        user, by default this connection; while the transaction is in use, only this user can end it.
        """
        if self.branch is not None:
            raise WrongState(f"the two-phase transaction {self.branch.txid} is under way on this connection: end it first")
        return Transaction(self, None, timeout, ack or self.ack, session, isolation)

    def run_transaction(
        self, work: Callable[[Transaction], Result], *, isolation: str = SERIALIZABLE, attempts: int = ATTEMPTS
    ) -> Result:
        """Run ``work`` in a transaction, commit, and return its result; again from the start when it had no effect but can have one.

        That is: at most ``attempts`` times after Aborted (Conflict is one), and after NotReady and Unreachable until the timeout of
        this connection. Rejected and OutcomeUnknown are raised at once. Side effects of ``work`` outside the transaction can happen
        several times.
        """
        for attempt in Retrying(**retries(attempts, self.timeout)):
            with attempt, self.transaction(isolation=isolation) as transaction:
                return work(transaction)
        raise AssertionError("unreachable")

    def publish(
        self,
        queue: str,
        body: str | bytes,
        content_type: str = OCTETS,
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        apart: str | None = None,
    ) -> Written:
        """Append a message to a queue; the first message creates the queue."""
        operation = ("publish", queue, content_type, as_bytes(body))
        return self.write([operation], ack=ack, timeout=timeout, key=key, apart=apart)

    @overload
    def accept(self, queue: str, *, wait: float = 0.0, timeout: float | None = None) -> QueueMessage | None: ...

    @overload
    def accept(self, queue: str, count: int, *, wait: float = 0.0, timeout: float | None = None) -> list[QueueMessage]: ...

    def accept(
        self, queue: str, count: int | None = None, *, wait: float = 0.0, timeout: float | None = None
    ) -> QueueMessage | list[QueueMessage] | None:
        """Take the first message of a queue for good: at most once. None when none comes within ``wait`` seconds.

        With ``count``, return a list of at most that many. Raises OutcomeUnknown after a broken connection: they can be taken.
        """
        most = 1 if count is None else count
        found = self.branch.accept(queue, most, wait=wait) if self.branch is not None else self.take(queue, most, wait, timeout)
        return found if count is not None else found[0] if found else None

    def take(
        self, queue: str, count: int, wait: float, timeout: float | None, unwanted: threading.Event | None = None
    ) -> list[QueueMessage]:
        """Take up to ``count`` messages for good; none once ``unwanted`` is set: a message that arrives then keeps its place."""
        checked_wait(wait)
        unwanted = unwanted or threading.Event()
        deadline_s = time.monotonic() + wait
        patience = _Patience(self.seconds(timeout))
        while True:
            left_s = deadline_s - time.monotonic()
            transaction = None
            try:
                transaction = self._begin_to_take()
                messages = transaction.accept(queue, count, wait=max(0.0, min(WAIT_SLICE_S, left_s)))
                patience.renew()
                if messages and not unwanted.is_set():
                    transaction.commit(timeout=timeout)
                    return messages
            except BrokerhaError as error:
                # Maybe another master gave the same messages to another client a moment earlier.
                patience.bear(error, unwanted)
                continue
            finally:
                if transaction is not None:
                    transaction.abandon()
            if unwanted.is_set() or time.monotonic() >= deadline_s:
                return []

    def _begin_to_take(self) -> Transaction:
        """Begin at the master of the last messages, which has claimed the next ones; else at any master."""
        at, self._taken_at = self._taken_at, ""
        transaction = self.transaction()
        if at:
            with contextlib.suppress(Unreachable, NotReady, ReadOnly, TimedOut):
                transaction.begin(at, timeout=TAKEN_AT_S)
        if transaction.state == NEW:
            transaction = self.transaction().begin()
        self._taken_at = transaction.node
        return transaction

    def consume(
        self, queue: str, *, count: int | None = None, wait: float | None = None, timeout: float | None = None
    ) -> Iterator[Consumed]:
        """Yield messages of a queue, each inside a transaction that commits when the loop asks for the next: at least once.

        Ends after ``count`` messages, or when none comes for ``wait`` seconds (0: when the queue is empty); without both never. An error or ``break`` in the body puts
        the message back in its place. Waits for nodes that are away, as long as ``timeout``. Raises Rejected when a commit is rejected
        because of its content, and Aborted when several in a row were aborted.
        """
        if count is not None and count < 1:
            raise InvalidRequest(f"count is a number from 1 on, not {count}")
        checked_wait(wait or 0.0)
        done, patience = 0, _Patience(self.seconds(timeout))
        idle_s = time.monotonic() + (wait or 0.0)
        while count is None or done < count:
            transaction = None
            try:
                transaction = self._begin_to_take()
                left_s = WAIT_SLICE_S if wait is None else idle_s - time.monotonic()
                message = transaction.accept(queue, wait=max(0.0, min(WAIT_SLICE_S, left_s)))
                patience.renew()
                if message is not None:
                    yield Consumed(*message[:3], transaction)
                    if transaction.committed is None:
                        transaction.commit(timeout=timeout)
                    patience.aborts = 0
                    done, idle_s = done + 1, time.monotonic() + (wait or 0.0)
                elif wait is not None and time.monotonic() >= idle_s:
                    return
            except BrokerhaError as error:
                patience.bear(error)
            finally:
                if transaction is not None:
                    transaction.abandon()


class _Patience:
    """How long messages are taken anew: after a few lost races in a row, and for some seconds while nobody answers."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.aborts = 0
        self.renew()

    def renew(self) -> None:
        """Begin the time anew: a master has answered."""
        self._until_s = time.monotonic() + self._seconds - PAUSE_MOST_S

    def bear(self, error: BrokerhaError, end: threading.Event | None = None) -> None:
        """Return, after a pause that ``end`` ends, if nothing was taken and can be now; else raise the error."""
        self.aborts += isinstance(error, Aborted)
        is_over = self.aborts >= ABORTS_LIMIT if isinstance(error, Aborted) else time.monotonic() >= self._until_s
        if is_over or not may_run_again(error):
            raise error
        if not isinstance(error, Aborted):
            (end or threading.Event()).wait(PAUSE_S)


def milliseconds(seconds: float) -> int:
    """Convert a time for the wire."""
    return max(1, round(seconds * 1000))


def _reply(future: Future[Reply], txid: TxId, seconds: float) -> Reply:
    try:
        return future.result(seconds + GRACE_S)
    except WaitTimeout:
        raise OutcomeUnknown(txid) from None
