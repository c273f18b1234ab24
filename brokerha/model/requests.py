"""Requests of clients to a node through a front door, and the answers.

A front door (HTTP, AMQP, embedded) makes a `Submit` with its own `ticket` and gets one `Reply` with the same ticket. Levels of
acknowledgement, in the order in which a write reaches them:

    accepted        durable at the master that accepted it
    synchronised    it has an LSN; every live master holds it
    applied         ``copies`` workers of the master's site have applied it (or it was rejected)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from brokerha.model.errors import InvalidRequest, error_named
from brokerha.model.ids import Lsn, NodeId, TxId

ACCEPTED = "accepted"
SYNCHRONISED = "synchronised"
APPLIED_LEVEL = "applied"
LEVELS = (ACCEPTED, SYNCHRONISED, APPLIED_LEVEL)

WAIT = "wait"
REFUSE = "refuse"
APART = (WAIT, REFUSE)
"""Choices for a write at a master that is apart: that cannot agree with the others now (master/state_words.py)."""

READS_INSIDE = frozenset({"query", "statements", "size", "contexts", "get", "range", "queue", "message", "queues"})
"""Kinds of reads that can show the operations of an open transaction on top of the state."""
RANGE_ROWS = 1000
"""Most keys of a range without a limit; who asks for it asks for one more, to know whether there are more."""


@dataclass(frozen=True, slots=True)
class Absence:
    """The broker's report that the inbox of a master is gone: its process has ended, or has lost its connection."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Submit:
    """A write. ``ticket`` 0 means that no client waits for the answer."""

    ticket: int
    txid: TxId
    body: bytes
    level: str = APPLIED_LEVEL
    copies: int = 1
    """Number of workers that must have applied it, for level ``applied``."""
    timeout_ms: int = 30_000
    """Time after which the reply says that the outcome is unknown."""
    apart: str = WAIT
    """At a master that is apart: ``wait`` until it agrees, or ``refuse`` the write. Checked once, at arrival."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a `Submit`, exactly one for each ticket.

    ``status`` is the level reached, ``rejected`` (ordered, failed, changed nothing), ``refused`` (never accepted) or ``unknown``
    (deadline passed).
    """

    ticket: int
    txid: TxId
    status: str
    lsn: Lsn = 0
    error: str = ""
    """Name of the class in errors.py for ``rejected``, ``refused`` and ``unknown``."""
    reason: str = ""
    is_parting: bool = False
    """For ``unknown``: the process stops, or is not primary any more, so that another one knows the outcome."""


REJECTED_STATUS = "rejected"
REFUSED = "refused"
UNKNOWN = "unknown"


def doubtful(reply: Reply) -> Reply:
    """Return the known status of a write that was sent several times: one refusal says nothing about other deliveries.

    Only a write that no master would ever accept is certainly refused.
    """
    if reply.status != REFUSED or isinstance(error_named(reply.error, ""), InvalidRequest):
        return reply
    return replace(reply, status=UNKNOWN, reason=f"{reply.reason}; it was handed in before, and may have been taken in")


@dataclass(frozen=True, slots=True)
class TxCommand:
    """One step of a transaction by its client (transactions/coordinator.py lists actions and arguments)."""

    ticket: int
    action: str
    """``begin``, ``operations``, ``take``, ``prepare``, ``commit``, ``rollback``, ``ping``, ``pending`` or ``forget``."""
    txid: TxId
    arguments: dict[str, Any] = field(default_factory=dict)
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class TxReply:
    """The answer to a `TxCommand`, exactly one for each ticket."""

    ticket: int
    txid: TxId
    error: str = ""
    """Name of the class in errors.py; empty for success."""
    reason: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
