"""Queues and transactions of a client.

accept     takes messages in a transaction of its own: at most once, because what fails afterwards does not bring them back
consume    yields each message inside of a transaction that commits when the body of the loop ends: at least once

for message in db.consume("inbox"):
    message.transaction.put("seen", message.id, b"")        # takes place together with taking the message
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, overload

from tenacity import Retrying

from brokerha.client.calls import Calls
from brokerha.client.outcomes import Written
from brokerha.client.reads import QueueMessage, as_bytes
from brokerha.client.transactions import ATTEMPTS, OCTETS, WAIT_SLICE_S, Transaction, retries
from brokerha.model.errors import Aborted, InvalidRequest, WrongState
from brokerha.model.ids import TxId
from brokerha.model.outside.isolation import READ_COMMITTED, SERIALIZABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brokerha.model.operations import Operation

Result = TypeVar("Result")
ABORTS_LIMIT: Final = 5
"""So often in a row another one may take the same message before that is told to the caller."""


class Consumed(NamedTuple):
    """A message on its way through the body of a loop."""

    id: str
    content_type: str
    body: bytes
    transaction: Transaction
    """It commits when the body ends."""


class Queues(Calls):
    """What a client can do with queues, and transactions."""

    branch: Transaction | None = None
    """The two-phase transaction that calls belong to now (two_phase.py)."""

    def transaction(
        self,
        *,
        timeout: float | None = None,
        ack: str | None = None,
        session: str = "",
        isolation: str = READ_COMMITTED,
    ) -> Transaction:
        """A transaction over several stores, for ``with``; see transactions.py.

        ``isolation``: ``read-committed``, ``snapshot`` or ``serializable`` (model/outside/isolation.py); the latter two may end in Conflict.
        ``timeout``: the master ends it after so many seconds without a step (60 by default, at most 3600). ``session``: who uses
        it, this connection by default; while it is in use nobody else may end it.
        """
        if self.branch is not None:
            raise WrongState(
                f"the two-phase transaction {self.branch.txid} is under way on this connection: end it first"
            )
        return Transaction(self, None, timeout, ack or self.ack, session, isolation)

    def run_transaction(
        self, work: Callable[[Transaction], Result], *, isolation: str = SERIALIZABLE, attempts: int = ATTEMPTS
    ) -> Result:
        """Run ``work`` in a transaction and commit it; again from its beginning when it was aborted. Returns what it returned.

        What it does beside the transaction may happen several times. Raises Aborted after so many ``attempts``.
        """
        for attempt in Retrying(**retries(attempts)):
            with attempt, self.transaction(isolation=isolation) as transaction:
                return work(transaction)
        raise AssertionError("unreachable")

    def write(
        self,
        operations: Sequence[Operation],
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        apart: str | None = None,
    ) -> Written:
        """One transaction of any operations (model/operations.py): all of it or nothing."""
        raise NotImplementedError

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
        """Append a message to a queue, which comes into being with its first one."""
        operation = ("publish", queue, content_type, as_bytes(body))
        return self.write([operation], ack=ack, timeout=timeout, key=key, apart=apart)

    @overload
    def accept(self, queue: str, *, wait: float = 0.0, timeout: float | None = None) -> QueueMessage | None: ...

    @overload
    def accept(
        self, queue: str, count: int, *, wait: float = 0.0, timeout: float | None = None
    ) -> list[QueueMessage]: ...

    def accept(
        self, queue: str, count: int | None = None, *, wait: float = 0.0, timeout: float | None = None
    ) -> QueueMessage | list[QueueMessage] | None:
        """Take the first message of a queue for good: at most once. None when none comes within ``wait`` seconds.

        With ``count`` up to so many of them, as a list. Raises OutcomeUnknown when the connection broke: they may be taken.
        """
        if self.branch is not None:
            found = self.branch.accept(queue, count or 1, wait=wait)
        else:
            found = self._accept(queue, count or 1, wait, timeout)
        return found if count is not None else found[0] if found else None

    def _accept(self, queue: str, count: int, wait: float, timeout: float | None) -> list[QueueMessage]:
        deadline_s = time.monotonic() + wait
        aborts = 0
        while True:
            left_s = deadline_s - time.monotonic()
            transaction = self.transaction().begin()
            try:
                messages = transaction.accept(queue, count, wait=max(0.0, min(WAIT_SLICE_S, left_s)))
                if messages:
                    transaction.commit(timeout=timeout)
                    return messages
            except Aborted:
                # Another master gave the same messages to somebody else, a moment earlier.
                aborts += 1
                if aborts >= ABORTS_LIMIT:
                    raise
                continue
            finally:
                transaction.abandon()
            if time.monotonic() >= deadline_s:
                return []

    def consume(
        self, queue: str, *, count: int | None = None, wait: float | None = None, timeout: float | None = None
    ) -> Iterator[Consumed]:
        """Messages of a queue, each inside of a transaction that commits when the loop asks for the next: at least once.

        Ends after ``count`` messages, or when none comes for ``wait`` seconds; else it goes on for ever. Leaving the body by an
        error or by ``break`` puts its message back in its place. Raises Aborted after several commits in a row that were.
        """
        if count is not None and count < 1:
            raise InvalidRequest(f"count is a number from 1 on, not {count}")
        aborts = done = 0
        idle_s = time.monotonic() + (wait or 0.0)
        while count is None or done < count:
            transaction = self.transaction().begin()
            try:
                left_s = WAIT_SLICE_S if wait is None else idle_s - time.monotonic()
                message = transaction.accept(queue, wait=max(0.0, min(WAIT_SLICE_S, left_s)))
                if message is not None:
                    yield Consumed(*message, transaction)
                    if transaction.committed is None:
                        transaction.commit(timeout=timeout)
                    done, aborts, idle_s = done + 1, 0, time.monotonic() + (wait or 0.0)
                elif wait is not None and time.monotonic() >= idle_s:
                    return
            except Aborted:
                aborts += 1
                if aborts >= ABORTS_LIMIT:
                    raise
            finally:
                transaction.abandon()
