"""One transaction at its coordinator: its operations so far, and the clients that wait for it.

Operations are packed one by one as they come. The body is their concatenation after the head of a msgpack list, byte for byte that
of `model.operations.pack_operations`. So an event carries an operation unchanged, and a participant with all events has the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgpack

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.ids import NodeId, TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, OPERATIONS_LIMIT, TOO_LARGE, Operation
from brokerha.model.outside.authors import packed_by
from brokerha.transactions.read_set import ReadSet
from brokerha.transactions.states import Phase
from brokerha.transactions.tx_feed import TxFeed

HEAD_BYTES = 5
"""Longest head of a msgpack list."""


def packed_each(operations: Iterable[Operation]) -> list[bytes]:
    """Return operations as the pieces of a body."""
    return [msgpack.packb(operation) for operation in operations]


def body_of(pieces: list[bytes]) -> bytes:
    """Return the body with these operations."""
    head: bytes = msgpack.Packer().pack_array_header(len(pieces))
    return head + b"".join(pieces)


def digest_of(body: bytes) -> bytes:
    """Return the SHA-256 of a body, for a prepare event."""
    return hashlib.sha256(body).digest()


class Ask(NamedTuple):
    """A client that waits for the end of a step."""

    ticket: int
    action: str
    """``prepare`` or ``commit``."""
    level: str
    copies: int
    deadline_ms: int


@dataclass(slots=True)
class Transaction:
    """A transaction that is open, prepared, or decided by hand and not forgotten."""

    txid: TxId
    xid: str
    session: str
    timeout_ms: int
    """Idle time after which it is rolled back while it is open."""
    touched_ms: int
    phase: Phase = Phase.OPEN
    pieces: list[bytes] = field(default_factory=list)
    """Its operations, packed, until it is closed."""
    size: int = 0
    """Size of all operations together, in bytes."""
    count: int = 0
    body: bytes = b""
    """Set from its closing until it is decided or in the order."""
    reads: ReadSet | None = None
    """Findings of its reads; None under read-committed."""
    user: str = ""
    """The user who began it, named by its last operation; empty where the door does not know."""
    takes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Result of each ``take``, by the number of its first operation: a repeated call gets the same."""
    feed: TxFeed | None = None
    """None until the first operation, and for one without participants."""
    asks: list[Ask] = field(default_factory=list)
    is_recorded: bool = False
    """Whether there is a `TxPrepared` of it, so that its end needs a record too."""
    is_two_phase: bool = False
    """Whether an outside coordinator decides after the prepare; then prepare, commit and rollback have places in the order."""
    closed_ms: int = 0
    prepared_us: int = 0
    participants: tuple[NodeId, ...] = ()
    is_committed: bool = False
    """The end of a transaction that was decided by hand, or overruled."""
    reason: str = ""
    """Reason of that end."""

    def check_room(self, pieces: list[bytes]) -> None:
        """Raise TooLarge when these operations would make it larger than the limit."""
        count, size = self.count + len(pieces), self.size + sum(map(len, pieces))
        if self.reads is not None:
            count, size = count + len(self.reads), size + self.reads.size
        if self.user:
            count, size = count + 1, size + len(packed_by(self.user))
        if count > OPERATIONS_LIMIT:
            raise TooLarge(f"the transaction would have {count} operations; the limit is {OPERATIONS_LIMIT}: {TOO_LARGE}")
        if size + HEAD_BYTES > BODY_LIMIT_BYTES:
            raise TooLarge(f"the transaction would have {size} bytes; the limit is {BODY_LIMIT_BYTES}: {TOO_LARGE}")

    def add(self, pieces: list[bytes]) -> None:
        """Append operations."""
        self.pieces += pieces
        self.count += len(pieces)
        self.size += sum(map(len, pieces))

    def fresh(self, first: int, pieces: list[bytes]) -> list[bytes]:
        """Return the operations of a call that are new. Raises InvalidRequest for a gap, and for others under old numbers."""
        if not 0 <= first <= self.count:
            raise InvalidRequest(f"operation {first} comes too early: the transaction has {self.count}, send from there on")
        known = self.pieces[first : first + len(pieces)]
        if known != pieces[: len(known)]:
            raise InvalidRequest(f"operations from {first} on were other ones when they came first")
        return pieces[len(known) :]

    def close(self, mono_ms: int, wall_us: int) -> None:
        """Close it: no more operations, the body is final."""
        self.body = body_of(self.pieces)
        self.pieces, self.takes = [], {}
        self.closed_ms, self.prepared_us = mono_ms, wall_us
        self.participants = self.feed.backups if self.feed is not None else ()

    def due_ms(self, prepare_ms: int) -> int | None:
        """Return when time alone changes something for it, its feed aside; None when it never does."""
        due = [ask.deadline_ms for ask in self.asks]
        if self.phase is Phase.OPEN:
            due.append(self.touched_ms + self.timeout_ms)
        elif self.phase is Phase.PREPARING:
            due.append(self.closed_ms + prepare_ms)
        return min(due, default=None)
