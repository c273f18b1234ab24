"""What clients of transactions remember: one run each, from begin to the day on which they know how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.ids import NodeId, TxId
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.outside.authors import signed
from brokerha.model.requests import APPLIED_LEVEL

COMMIT = "commit"
ROLLBACK = "rollback"
ABANDON = "abandon"
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
    has_begun: bool = False
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

    @property
    def body(self) -> bytes:
        """What it would do as a whole."""
        return signed(pack_operations(self.operations), self.user)

    @property
    def user(self) -> str:
        """Who begins it."""
        return USERS[self.number % len(USERS)]


@dataclass(slots=True)
class Step:
    """One step that has no answer yet."""

    ticket: int
    node: NodeId
    action: str
    run: Run
    txid: TxId
    is_late: bool = False
    """Whether the client does not wait for it any more."""
    level: str = field(default="")
