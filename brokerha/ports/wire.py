"""How a client program reaches a cluster: one wire for AMQP, one for HTTP, one for an embedded cluster.

`brokerha.connect` picks the wire by the address and hands it to `brokerha.client.Client`, which knows none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from brokerha.model.ids import Lsn, TxId
from brokerha.model.requests import WAIT, Reply
from brokerha.ports.front import ReadOutcome


class Wire(Protocol):
    """A connection of one client program; callable from any thread."""

    def submit(
        self, writes: Sequence[tuple[TxId, bytes]], level: str, copies: int, timeout_ms: int, apart: str = WAIT
    ) -> list[Future[Reply]]:
        """Send writes (transaction id, body) together, in order; each future gets its reply, or Unreachable/OutcomeUnknown.

        The wire repeats unanswered writes, with the same ids, until the deadline.
        """

    def read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """Request a read (see Front.read). The argument ``node`` names the master that has the transaction of ``tx``."""

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        """Ask for ``status``, ``log``, ``logged``, ``entries``, ``outcome``, ``wait``; return plain data. Raises Unreachable.

        ``outcome`` with a ``node`` asks the master that has the transaction; without one any master, which may not know it.

        ``command`` with {"name", "arguments"} is an operator's (see Front.command). ``transact`` with {"node", "action", "txid",
        "arguments"} is a step of a transaction at that master (any, when it is empty; see Front.transact). ``transactions`` lists
        those that are not over, of all masters that answer.
        """

    def close(self) -> None:
        """Settle writes under way as far as possible and disconnect. Idempotent."""
