"""A transaction over several stores, filled step by step: it takes place as a whole at one LSN, or not at all.

    with db.transaction() as tx:
        message = tx.accept("inbox")
        tx.put("prices", "sku-1", message.body)
        tx.publish("outbox", b"done")
    tx.committed                                     # Committed(txid, lsn)

A transaction lives at one master. Leaving the block commits; an exception rolls back. The client collects operations and hands them
over in groups: before a read, before `accept`, before the commit, and when there are many. So a later call, even the commit, can
raise the master's error about an operation. That operation is left out; the transaction can continue or be rolled back. Reads
inside show the state plus the transaction's own operations.

Every step can be sent again: operations are numbered, and a commit has its transaction id. When the connection breaks during a
commit, the client asks for the outcome until its timeout, and only then raises `OutcomeUnknown`.

With ``isolation`` the master remembers the result of each read and checks it with the next read and with the commit. `Conflict`
means that another transaction changed it meanwhile. `Session.run_transaction` then runs the transaction again.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, overload

from tenacity import RetryCallState, retry_if_exception, wait_random_exponential

from brokerha.client.arguments import checked
from brokerha.client.reads import Least, QueueMessage, Reads, as_bytes, message_of
from brokerha.model.errors import (
    Aborted,
    BrokerhaError,
    Closed,
    InvalidRequest,
    NotFound,
    NotReady,
    OutcomeUnknown,
    ReadOnly,
    Rejected,
    TimedOut,
    UnknownTransaction,
    Unreachable,
    WrongState,
    aborted,
    may_run_again,
    rejection,
)
from brokerha.model.ids import Lsn, NodeId, TxId, Xid
from brokerha.model.operations import REJECTED, Operation, check_operations
from brokerha.model.outside.isolation import READ_COMMITTED, checked_isolation
from brokerha.model.outside.levels import parse_ack
from brokerha.model.requests import ACCEPTED, LEVELS
from brokerha.ports.front import ReadOutcome

OCTETS: Final = "application/octet-stream"
GROUP_LIMIT: Final = 100
"""Most operations that are collected before they are handed over."""
GROUP_LIMIT_BYTES: Final = 256 * 1024
WAIT_SLICE_S: Final = 10.0
"""Longest wait for a message in one step. A longer wait has several steps, each of which keeps the transaction alive."""
PAUSE_S: Final = 0.2
"""Pause between two questions for an undecided outcome."""
PAUSE_MOST_S: Final = 1.0
"""Longest pause before a transaction is run again; one that fails this near to its deadline is not."""
ATTEMPTS: Final = 20
"""Most attempts of a transaction that is aborted each time."""
NEW, OPEN, PLACED, PREPARED, OVER = "new", "open", "placed", "prepared", "over"


class Connection(Protocol):
    """The parts of the client that a transaction uses (calls.py)."""

    timeout: float
    ack: str
    token: str
    transactions: set[Transaction]

    def ask(self, what: str, arguments: dict[str, Any], timeout: float | None = None) -> Any:
        """Ask a question of ports.Wire."""

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Least = None, timeout: float | None = None
    ) -> ReadOutcome:
        """Run one read of ports.Front."""

    def seconds(self, timeout: float | None) -> float:
        """Return the timeout of a call."""

    def note(self, lsn: Lsn) -> None:
        """Note the LSN of a write of this client."""


class Committed(NamedTuple):
    """A transaction that took place."""

    txid: TxId
    lsn: Lsn
    """0 when the commit did not wait for an LSN."""


@checked
class Transaction(Reads):
    """One transaction; for one thread at a time."""

    def __init__(
        self,
        calls: Connection,
        xid: Xid | None = None,
        timeout: float | None = None,
        ack: str = "",
        token: str = "",
        isolation: str = READ_COMMITTED,
    ) -> None:
        """``timeout``: seconds without any step after which the master ends it; None for the master's default."""
        self.isolation = checked_isolation(isolation)
        self.xid = xid
        self.txid: TxId = ""
        self.state = NEW
        self.committed: Committed | None = None
        """Set by the commit."""
        self._calls = calls
        self._idle_s = None if timeout is None else calls.seconds(timeout)
        self._ack = parse_ack(ack or calls.ack)
        self._token = token or calls.token
        self._node: NodeId = ""
        self._count = 0
        """Number of operations that the master has."""
        self._waiting: list[Operation] = []
        self._waiting_bytes = 0
        self._never = threading.Event()

    # ---- begin and end

    def __enter__(self) -> Self:
        return self if self.state == OPEN else self.begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.abandon()
        elif self.state != OVER:
            try:
                self.commit()
            finally:
                self.abandon()

    @property
    def node(self) -> NodeId:
        """The master of the transaction; empty before `begin`."""
        return self._node

    def begin(self, at: NodeId = "", *, timeout: float | None = None) -> Self:
        """Open it at a master, maybe ``at``. Raises InvalidRequest (xid in use, timeout too long), ReadOnly, NotReady, TimedOut."""
        self._expect(NEW)
        self._node = at
        arguments = {
            "xid": self.xid.text if self.xid else "",
            "timeout_ms": 0 if self._idle_s is None else max(1, round(self._idle_s * 1000)),
            "session": self._token,
            "isolation": self.isolation,
        }
        answer = self._step("begin", arguments, timeout)
        self.txid, self._node, self.state = answer["txid"], answer.get("node", ""), OPEN
        self._calls.transactions.add(self)
        return self

    def prepare(self, *, timeout: float | None = None) -> str:
        """Run the first phase of a transaction with an xid: ``prepared``, or ``read-only`` when there is nothing to do.

        Raises Aborted when the master cannot promise the commit.
        """
        self._expect(OPEN)
        self.flush(timeout=timeout)
        with self._watched(is_end=True):
            answer = self._step("prepare", {"session": self._token}, timeout)
        state = str(answer["state"])
        self.state = PREPARED
        if state != PREPARED:
            self._end()
        return state

    def commit(self, *, timeout: float | None = None) -> Committed:
        """Commit. Raises Rejected, Aborted (safe to run again), OutcomeUnknown (ask for `outcome` of ``txid``)."""
        self._expect(OPEN, PREPARED)
        self.flush(timeout=timeout)
        level, copies = self._ack
        arguments = {
            "one_phase": self.state == OPEN, "level": level, "copies": copies, "session": self._token,
        }  # fmt: skip
        seconds = self._calls.seconds(timeout)
        with self._watched(is_end=True):
            lsn = commit_safely(self._calls, self._node, self.txid, arguments, seconds, self._never)
        self._end()
        self.committed = Committed(self.txid, lsn)
        self._calls.note(lsn)
        return self.committed

    def rollback(self, *, timeout: float | None = None) -> None:
        """End the transaction without an effect; a second call does nothing."""
        if self.state == OVER:
            return
        if self.state != NEW:
            # An aborted transaction needs no rollback.
            with contextlib.suppress(Aborted):
                self._step("rollback", {"session": self._token}, timeout)
        self._end()

    def abandon(self) -> None:
        """Roll back if possible; leave a prepared transaction to its coordinator. Never raises."""
        if self.state == OPEN:
            # Without an answer, the master ends the transaction after its timeout.
            with contextlib.suppress(BrokerhaError):
                self.rollback(timeout=min(self._calls.timeout, WAIT_SLICE_S))
        if self.state != PREPARED:
            self._end()

    # ---- operations

    def write(self, operations: Sequence[Operation]) -> None:
        """Add operations (model/operations.py)."""
        self._expect(OPEN)
        listed = [tuple(operation) for operation in operations]
        check_operations(listed)
        self._waiting += listed
        self._waiting_bytes += sum(map(_size_bytes, listed))
        if len(self._waiting) >= GROUP_LIMIT or self._waiting_bytes >= GROUP_LIMIT_BYTES:
            self.flush()

    def flush(self, *, timeout: float | None = None) -> None:
        """Hand the collected operations over to the master.

        Raises InvalidRequest when the master refuses an operation. That operation is taken out; the others stay, and the
        transaction can continue or be rolled back.
        """
        if not self._waiting:
            return
        try:
            self._hand_over(len(self._waiting), timeout)
        except WrongState:
            raise
        except InvalidRequest:
            # The master took none of the group. Hand over one by one to find the wrong operation.
            while self._waiting:
                self._hand_over_next(timeout)

    def _hand_over_next(self, timeout: float | None) -> None:
        try:
            self._hand_over(1, timeout)
        except WrongState:
            raise
        except InvalidRequest as error:
            kind, *rest = self._waiting.pop(0)
            about = f" {rest[0]}" if rest and isinstance(rest[0], str) else ""
            error.args = (f"{error} (this {kind}{about} was taken out of the transaction)",)
            raise

    def _hand_over(self, count: int, timeout: float | None) -> None:
        """Hand over the first ``count`` operations."""
        self._step("operations", {"first": self._count, "operations": self._waiting[:count]}, timeout)
        self._count += count
        del self._waiting[:count]
        self._waiting_bytes = sum(map(_size_bytes, self._waiting))

    def update(self, repository: str, text: str) -> None:
        """Run a SPARQL 1.1 Update request."""
        self.write([("update", repository, text)])

    def add(self, repository: str, nquads: str) -> None:
        """Add quads, as N-Quads."""
        self.write([("add", repository, nquads)])

    def remove(self, repository: str, nquads: str) -> None:
        """Remove quads, as N-Quads."""
        self.write([("remove", repository, nquads)])

    def put(self, table: str, key_name: str | bytes, value: str | bytes) -> None:
        """Put a value; text is encoded as UTF-8."""
        self.write([("put", table, as_bytes(key_name), as_bytes(value))])

    def delete(self, table: str, key_name: str | bytes) -> None:
        """Delete a key; a missing key is no error."""
        self.write([("delete", table, as_bytes(key_name))])

    def publish(self, queue: str, body: str | bytes, content_type: str = OCTETS) -> None:
        """Append a message to a queue; it is invisible before the commit."""
        self.write([("publish", queue, content_type, as_bytes(body))])

    def expect_key(self, table: str, key_name: str | bytes, etag: str) -> None:
        """Take place only if the key then has the value of this ETag; with ``""`` only if the key is missing."""
        self.write([("expect-key", table, as_bytes(key_name), etag)])

    def expect_unchanged(self, kind: str, name: str, since: Lsn) -> None:
        """Take place only if a ``graph`` (repository), ``table`` or ``queue`` has not changed since an LSN."""
        self.write([("expect-since", kind, name, since)])

    def expect_fingerprint(self, fingerprint: str) -> None:
        """Take place only if the whole content before it has this fingerprint."""
        self.write([("expect-fingerprint", fingerprint)])

    @overload
    def accept(self, queue: str, *, wait: float = 0.0, bodies: bool = True) -> QueueMessage | None: ...

    @overload
    def accept(self, queue: str, count: int, *, wait: float = 0.0, bodies: bool = True) -> list[QueueMessage]: ...

    def accept(
        self, queue: str, count: int | None = None, *, wait: float = 0.0, bodies: bool = True
    ) -> QueueMessage | list[QueueMessage] | None:
        """Take the first message of a queue that no other transaction has taken; None when none comes in ``wait`` seconds.

        A message that is longer than a transaction, up to 512 MiB, comes with its body. With ``bodies=False`` it comes without, and
        `message_body` reads the body in pieces until the commit.

        With ``count``, return a list of at most that many. They are locked until the end: a rollback puts them back in their place.
        """
        self._expect(OPEN)
        if count is not None and count < 1:
            raise InvalidRequest(f"count is a number from 1 on, not {count}")
        checked_wait(wait)
        self.flush()
        deadline_s = time.monotonic() + wait
        while True:
            slice_s = max(0.0, min(WAIT_SLICE_S, deadline_s - time.monotonic()))
            arguments = {
                "first": self._count, "queue": queue, "count": count or 1, "wait_ms": round(slice_s * 1000),
            }  # fmt: skip
            answer = self._step("accept", arguments, self._calls.timeout + slice_s)
            messages = [self._whole(queue, message_of(row)) if bodies else message_of(row) for row in answer["messages"]]
            if messages or time.monotonic() >= deadline_s:
                self._count += len(messages)
                return messages if count is not None else messages[0] if messages else None

    # ---- reads

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Least = None, timeout: float | None = None
    ) -> ReadOutcome:
        """Read the state with this transaction's own operations on top."""
        self._expect(OPEN)
        self.flush(timeout=timeout)
        inside = {**arguments, "tx": self.txid, "node": self._node}
        # Not NotFound, which means a missing key.
        with self._watched(UnknownTransaction):
            return self._calls.read(kind, name, inside, min_lsn, timeout)

    def ping(self) -> None:
        """Keep the transaction open without another step."""
        self._expect(OPEN, PREPARED)
        self._step("ping", {}, None)

    # ---- inside

    def _whole(self, queue: str, message: QueueMessage) -> QueueMessage:
        """Return the message with its body."""
        if message.size is None:
            return message
        body = b"".join(self.message_body(queue, message.id))
        return QueueMessage(message.id, message.content_type, body)

    def _step(self, action: str, arguments: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        with self._watched():
            return step(self._calls, self._node, action, self.txid, arguments, timeout)

    def _expect(self, *states: str) -> None:
        if self.state not in states:
            raise WrongState(f"transaction {self.txid or '(new)'} is {self.state}; this needs one that is {states[0]}")

    @contextlib.contextmanager
    def _watched(self, unknown: type[NotFound] = NotFound, *, is_end: bool = False) -> Iterator[None]:
        """Wrap a call to the master: note an end of the transaction. Raises Aborted when the master does not have it any more.

        ``is_end``: Rejected and OutcomeUnknown also count as an end.
        """
        try:
            yield
        except unknown as error:
            self._end()
            raise Aborted(f"transaction {self.txid} is not open any more: {error}") from None
        except (Aborted, Rejected, OutcomeUnknown) as error:
            if is_end or isinstance(error, Aborted):
                self._end()
            raise

    def _end(self) -> None:
        self.state = OVER
        self._calls.transactions.discard(self)


def checked_wait(seconds: float) -> None:
    """Raise InvalidRequest for a negative wait for messages, which does not mean for ever."""
    if not seconds >= 0:
        raise InvalidRequest(f"wait is a number of seconds from 0 on, not {seconds!r}; consume without it waits for ever")


def retries(attempts: int, seconds: float) -> dict[str, Any]:
    """Return the retry policy of a transaction without an effect, for tenacity: a short random pause that grows."""
    aborts = itertools.count(1)

    def is_enough(state: RetryCallState) -> bool:
        error = state.outcome and state.outcome.exception()
        return (
            next(aborts) >= attempts if isinstance(error, Aborted) else (state.seconds_since_start or 0.0) >= seconds - PAUSE_MOST_S
        )

    return {
        "retry": retry_if_exception(may_run_again),
        "stop": is_enough,
        "wait": wait_random_exponential(multiplier=0.01, max=PAUSE_MOST_S),
        "reraise": True,
    }


def step(
    calls: Connection, node: NodeId, action: str, txid: TxId, arguments: dict[str, Any], timeout: float | None
) -> dict[str, Any]:
    """Run one step of a transaction at its master."""
    asked = {"node": node, "action": action, "txid": txid, "arguments": arguments}
    answer: dict[str, Any] = calls.ask("transact", asked, timeout)
    return answer


def commit_safely(
    calls: Connection, node: NodeId, txid: TxId, arguments: dict[str, Any], seconds: float, pause: threading.Event
) -> Lsn:
    """Commit. After a lost answer ask for the outcome, and commit again while it is undecided. Return the LSN.

    Raises Rejected, Aborted, OutcomeUnknown (after the timeout), and the error with which the master refuses.
    """
    deadline_s = time.monotonic() + seconds
    is_first = True
    refused: NotReady | None = None
    """Set while every attempt was refused, so the transaction has not taken place."""
    while True:
        left_s = max(0.05, deadline_s - time.monotonic())
        try:
            if not is_first:
                lsn = _decided(calls, node, txid, str(arguments["level"]), left_s)
                if lsn is not None:
                    return lsn
            answer = step(calls, node, "commit", txid, arguments, left_s)
            return int(answer.get("lsn") or 0)
        except Closed:
            if is_first:
                raise
            deadline_s = 0.0
        except (Unreachable, TimedOut, OutcomeUnknown):
            is_first, refused = False, None
        except (NotFound, ReadOnly):
            # After the first attempt, this error says nothing about that attempt.
            if is_first:
                raise
        except NotReady as error:
            # Between two primaries, for instance.
            refused = error if is_first or refused else None
            is_first = False
        if time.monotonic() + PAUSE_S >= deadline_s:
            raise refused or OutcomeUnknown(
                txid, f"outcome unknown: ask later what became of transaction {txid}, and do not run it again before that"
            )
        pause.wait(PAUSE_S)


def _decided(calls: Connection, node: NodeId, txid: TxId, level: str, seconds: float) -> Lsn | None:
    """Return the LSN of a transaction that reached this level, or None while it is undecided. Raises Rejected, Aborted."""
    outcome = calls.ask("outcome", {"txid": txid, "node": node}, seconds)
    if outcome is None:
        return None
    if outcome.get("outcome") == REJECTED:
        raise rejection(str(outcome.get("reason")), txid, int(outcome.get("lsn") or 0))
    if outcome["state"] == "aborted":
        raise aborted(str(outcome.get("reason") or f"transaction {txid} was rolled back"))
    if outcome["state"] == "committed":
        return int(outcome.get("lsn") or 0)
    if outcome["state"] not in LEVELS or LEVELS.index(outcome["state"]) < LEVELS.index(level):
        return None
    return 0 if level == ACCEPTED else int(outcome.get("lsn") or 0)


def _size_bytes(operation: Operation) -> int:
    return sum(len(item) for item in operation if isinstance(item, (str, bytes)))
