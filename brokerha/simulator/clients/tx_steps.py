"""What clients of transactions remember: one run each, from begin to the day on which they know how it ended."""

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
"""Of the transactions, in turn."""
USERS = ("", "anna", "bert")
"""Who writes, as the door says."""


@dataclass(slots=True)
class Run:
    """One transaction of one client."""

    number: int
    master: NodeId
    chunks: list[list[Operation]]
    """Operations of each call."""
    end: str
    """`COMMIT`, `ROLLBACK` or `ABANDON`: what the client has in mind."""
    xid: str = ""
    """Named by a coordinator, which prepares it first; empty for a transaction of one client."""
    level: str = APPLIED_LEVEL
    isolation: str = READ_COMMITTED
    looks: int = 0
    """Reads that it still wants to do before it commits; isolated ones only."""
    found: list[Operation] = field(default_factory=list)
    """What its reads found, as expectations, as far as the transaction knows of it."""
    read_lsn: Lsn = 0
    """Of its last read: what all reads found was so there."""
    session: str = ""
    timeout_ms: int = 0
    txid: TxId = ""
    """Of the last attempt to begin."""
    at: NodeId = ""
    """The process that it talks to."""
    sent: int = 0
    """Calls that were answered."""
    is_two_phase: bool = False
    is_done: bool = False
    is_asking: bool = False
    """Whether the client does not know what became of it, and asks."""
    questions: int = 0
    tries: int = 0

    # What was said and asked, for the checks.
    asked_commit: bool = False
    asked_rollback: bool = False
    by_hand: bool = False
    told_prepared: bool = False
    told_committed: str = ""
    """The level that it was told to have reached; empty when it was never told so."""
    told_aborted: bool = False

    @property
    def operations(self) -> list[Operation]:
        """All operations, in order."""
        return [operation for chunk in self.chunks for operation in chunk]

    def is_body(self, body: bytes) -> bool:
        """Whether this is what it would do as a whole: its operations, what of its reads has to hold, and who it is."""
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
        """Who begins it."""
        return USERS[self.number % len(USERS)]


@dataclass(slots=True)
class Step:
    """One step that has no answer yet."""

    node: NodeId
    action: str
    run: Run
    txid: TxId
    is_late: bool = False
    """Whether the client does not wait for it any more."""
    level: str = field(default="")
    found: list[Operation] = field(default_factory=list)
    """Of `saw`: what the read found, at this LSN."""
    lsn: Lsn = 0
