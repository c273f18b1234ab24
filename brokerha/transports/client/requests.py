"""Open requests of a client program, without I/O and clock, so that every case can be tested.

A request is published, possibly returned, possibly published again with the same ids, and answered in one or more pieces:

    waiting ── sent ──> under way ── answer(s) ──> done
                 ^           │ returned, or connection lost, or silence, or a master that cannot answer now
                 └───────────┘                    └── deadline ──> OutcomeUnknown, TimedOut or Unreachable

Each future is completed exactly once, at the latest when `expire` is called after its deadline. A message that was handed to a
broker and not returned as unroutable was possibly taken: its outcome is unknown. Any other message reached no master.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from brokerha.model.errors import BrokerhaError, OutcomeUnknown, TimedOut, Unreachable, error_named, may_pass
from brokerha.model.ids import NodeId, TxId
from brokerha.model.outside.commands import outcome_unknown
from brokerha.model.requests import WAIT, Reply, doubtful
from brokerha.model.wire import client_wire
from brokerha.ports.front import ReadOutcome
from brokerha.transports.topology import READS_EXCHANGE, WRITES_EXCHANGE


class Answered(enum.Enum):
    """State of a request after an answer."""

    WHOLLY = enum.auto()
    IN_PART = enum.auto()
    REFUSED = enum.auto()
    """Another master, or the same one a little later, can possibly answer."""


class Request(Protocol):
    """One message to the masters, until everything in it is answered."""

    exchange: str
    content_type: str
    is_persistent: bool
    may_wait: bool
    """Whether a master can still use it after its deadline."""
    deadline_s: float
    """Monotonic."""
    attempts: int
    """Number of publications minus number of returns."""
    published_s: float
    """Monotonic time of the first publication, 0 before it."""
    to: NodeId
    """The master that it must reach; empty for that of the connection."""
    once: str
    """Name of a command that changes something: published twice, it is two. Empty for all else."""

    def body(self) -> bytes:
        """Return the message: only the unanswered part."""

    def headers(self, now_s: float) -> dict[str, Any]:
        """Return the headers of the message; timeouts count from now."""

    def answer(self, data: bytes) -> Answered:
        """Take an answer. Raises InvalidRequest for bytes that are no answer."""

    def expire(self, reason: str, remedy: str = "") -> None:
        """Complete the rest at the deadline."""


class Writes:
    """Writes on the same terms in one message."""

    exchange = WRITES_EXCHANGE
    content_type = client_wire.WRITES_TYPE
    is_persistent = True
    to = once = ""

    def __init__(
        self,
        writes: Sequence[tuple[TxId, bytes]],
        futures: Sequence[Future[Reply]],
        level: str,
        copies: int,
        deadline_s: float,
        apart: str = WAIT,
    ) -> None:
        self.may_wait = apart == WAIT
        self._apart = apart
        self.deadline_s = deadline_s
        self.attempts = 0
        self.published_s = 0.0
        self._level = level
        self._copies = copies
        self._open: dict[TxId, tuple[bytes, list[Future[Reply]]]] = {}
        for (txid, body), future in zip(writes, futures, strict=True):
            self._open.setdefault(txid, (body, []))[1].append(future)

    def __len__(self) -> int:
        """Return the number of unanswered transactions."""
        return len(self._open)

    def body(self) -> bytes:
        """Return the unanswered writes, in order."""
        return client_wire.encode_writes([(txid, body) for txid, (body, _) in self._open.items()])

    def headers(self, now_s: float) -> dict[str, Any]:
        """Return the terms, with the remaining time."""
        return client_wire.headers_of(self._level, self._copies, _left_ms(self.deadline_s, now_s), self._apart)

    def answer(self, data: bytes) -> Answered:
        """Complete the futures of the answered writes."""
        for txid, status, lsn, error, reason in client_wire.decode_replies(data):
            _, futures = self._open.pop(txid, (b"", []))
            reply = Reply(0, txid, status, lsn, error, reason)
            if self.attempts > 1:
                reply = doubtful(reply)
            for future in futures:
                future.set_result(reply)
        return Answered.IN_PART if self._open else Answered.WHOLLY

    def expire(self, reason: str, remedy: str = "") -> None:
        """Set OutcomeUnknown for each write that was possibly taken, otherwise Unreachable."""
        for txid, (_, futures) in self._open.items():
            problem = OutcomeUnknown(txid) if self.attempts else Unreachable(reason, remedy)
            for future in futures:
                future.set_exception(problem)
        self._open.clear()


class Question:
    """A read, or a question about the cluster."""

    exchange = READS_EXCHANGE
    content_type = client_wire.READ_TYPE
    is_persistent = False
    may_wait = False

    def __init__(
        self,
        body: bytes,
        future: Future[Any],
        read_answer: Callable[[Mapping[str, Any]], Any],
        deadline_s: float,
        to: NodeId = "",
        *,
        is_insistent: bool = True,
        once: str = "",
    ) -> None:
        """``read_answer`` turns the answer into the future's result, or raises its error.

        If ``is_insistent``, the question is repeated until its deadline when a master cannot answer now.
        """
        self.deadline_s = deadline_s
        self.attempts = 0
        self.published_s = 0.0
        self.to = to
        self._body = body
        self._future = future
        self._read_answer = read_answer
        self._is_insistent = is_insistent
        self.once = once
        self._refusal: BrokerhaError | None = None

    def body(self) -> bytes:
        """Return the body, which never changes."""
        return self._body

    def headers(self, now_s: float) -> dict[str, Any]:  # The protocol's signature.
        """Return no headers: everything is in the body."""
        return {}

    def answer(self, data: bytes) -> Answered:
        """Complete the future, unless another answer could be better."""
        answer = client_wire.decode_answer(data)
        try:
            self._future.set_result(self._read_answer(answer))
        except BrokerhaError as problem:
            if self._is_insistent and may_pass(problem):
                self._refusal = problem
                return Answered.REFUSED
            self._future.set_exception(problem)
        return Answered.WHOLLY

    def expire(self, reason: str, remedy: str = "") -> None:
        """Set the last refusal of a master, or that a master possibly works on it, or Unreachable."""
        problem = self._refusal or Unreachable(reason, remedy)
        if self.attempts and self._refusal is None:
            problem = outcome_unknown(self.once, "no answer came") if self.once else TimedOut("no answer within the deadline")
        self._future.set_exception(problem)


def read_outcome(answer: Mapping[str, Any]) -> ReadOutcome:
    """Return the result of a read. Raises the error in the answer."""
    _raise_error_of(answer)
    return ReadOutcome(
        str(answer.get("content_type", "")),
        int(answer.get("lsn", 0)),
        bytes(answer.get("body") or b""),
        str(answer.get("apart", "")),
        answer.get("stale_ms"),
    )


def plain_answer(answer: Mapping[str, Any]) -> Any:
    """Return the answer to a question. Raises the error in the answer."""
    _raise_error_of(answer)
    return answer.get("answer")


def _raise_error_of(answer: Mapping[str, Any]) -> None:
    if answer["error"]:
        raise error_named(answer["error"], str(answer.get("reason", "")))


def _left_ms(deadline_s: float, now_s: float) -> int:
    return max(1, int((deadline_s - now_s) * 1000))
