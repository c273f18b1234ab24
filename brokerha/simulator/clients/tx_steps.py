"""Memory of the clients of transactions: one run each, from begin to a known outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operations import Operation, unpack_operations
from brokerha.model.outside.authors import taken_author
from brokerha.model.outside.isolation import READ_COMMITTED, SERIALIZABLE, SNAPSHOT
from brokerha.model.requests import APPLIED_LEVEL

COMMIT = "commit"
ROLLBACK = "rollback"
ABANDON = "abandon"
ISOLATIONS = (READ_COMMITTED, SERIALIZABLE, READ_COMMITTED, SNAPSHOT)
"""Isolation levels of the transactions, in turn."""
USERS = ("", "anna", "bert")
"""Users for the writes, as the door names them."""


@dataclass(slots=True)
class Run:
    """One transaction of one client."""

    number: int
    master: NodeId
    chunks: list[list[Operation]]
    """Operations of each call."""
    end: str
    """`COMMIT`, `ROLLBACK` or `ABANDON`: the client's intention."""
    xid: str = ""
    """Name by a coordinator, which prepares it first; empty for a transaction of one client."""
    level: str = APPLIED_LEVEL
    isolation: str = READ_COMMITTED
    looks: int = 0
    """Remaining reads before the commit; only in isolated transactions."""
    found: list[Operation] = field(default_factory=list)
    """Findings of its reads, as expectations, that the transaction has been told."""
    read_lsn: Lsn = 0
    """LSN of its last read: all findings held there."""
    session: str = ""
    timeout_ms: int = 0
    txid: TxId = ""
    """Id of the last attempt to begin."""
    at: NodeId = ""
    """The process that the client uses."""
    sent: int = 0
    """Number of answered calls."""
    is_two_phase: bool = False
    is_done: bool = False
    is_asking: bool = False
    """Whether the client does not know the outcome, and asks for it."""
    questions: int = 0
    tries: int = 0

    # Answers and requests, for the checks.
    asked_commit: bool = False
    asked_rollback: bool = False
    by_hand: bool = False
    told_prepared: bool = False
    told_committed: str = ""
    """The level in the answer to its commit; empty without such an answer."""
    told_aborted: bool = False

    @property
    def operations(self) -> list[Operation]:
        """All operations, in order."""
        return [operation for chunk in self.chunks for operation in chunk]

    def is_body(self, body: bytes) -> bool:
        """Tell whether a body is that of the whole transaction: its operations, the findings of its reads, and its user."""
        operations = unpack_operations(body)
        by = [one.user for one in taken_author(operations)]
        own = len(self.operations)
        demands = [tuple(each) for each in operations[own:]]
        written = {each[1:3] for each in self.operations if each[0] in {"put", "delete"}}
        needed = [each for each in self.found if self.isolation == SERIALIZABLE or each[1:3] in written]
        is_own = [tuple(each) for each in operations[:own]] == self.operations and by == [self.user] * bool(self.user)
        return is_own and all(each in demands for each in needed) and all(each[0] == "expect-key" for each in demands)

    @property
    def user(self) -> str:
        """The user that begins it."""
        return USERS[self.number % len(USERS)]


@dataclass(slots=True)
class Step:
    """One step without an answer."""

    node: NodeId
    action: str
    run: Run
    txid: TxId
    is_late: bool = False
    """Whether the client does not wait for it any more."""
    level: str = field(default="")
    found: list[Operation] = field(default_factory=list)
    """In a step `saw`: the finding of the read, at this LSN."""
    lsn: Lsn = 0
