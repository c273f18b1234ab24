"""One transaction at its coordinator: its operations so far, and the clients that wait for it.

Operations are packed one by one as they come. The body is their concatenation after the head of a msgpack list, byte for byte that
of `model.operations.pack_operations`. So an event carries an operation unchanged, and a participant with all events has the body.

The findings of an isolated transaction's reads, as expectations (stores/reads/observing.py), and which of them its commit needs.

    serializable    all of them
    snapshot        those about written data: a key that it puts or deletes, a range with such a key, a changed graph or table

All reads hold together at the LSN of the last one, because each read judges the earlier findings. So under ``snapshot`` each of two
transactions may read what the other writes (write skew), but none overwrites data that it has not seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgpack

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operation_checks import GRAPH, TABLE
from brokerha.model.operations import (
    BODY_LIMIT_BYTES,
    EXPECTATIONS,
    OPERATIONS_LIMIT,
    TOO_LARGE,
    Add,
    Clear,
    CreateRepository,
    Delete,
    Operation,
    Put,
    Remove,
    RemoveRepository,
    Update,
    check_operations,
    typed_operations,
)
from brokerha.model.outside.authors import packed_by
from brokerha.model.outside.isolation import SERIALIZABLE
from brokerha.transactions.states import Phase
from brokerha.transactions.tx_feed import TxFeed

READS_LIMIT: Final = 10_000
"""Limit of findings of one transaction."""
HEAD_BYTES = 5
"""Longest head of a msgpack list."""


class ReadSet:
    """Findings, each once: of two about the same thing the first stays, because the later one was judged by it."""

    __slots__ = ("_found", "level", "lsn", "size")

    def __init__(self, level: str) -> None:
        self.level = level
        self.lsn: Lsn = 0
        """LSN of the last read: the next one is at this LSN or a later one, whichever node answers it."""
        self.size = 0
        """Size of all findings, packed, in bytes."""
        self._found: dict[Operation, bytes] = {}

    def __len__(self) -> int:
        return len(self._found)

    def fresh(self, found: Sequence[Operation]) -> dict[Operation, bytes]:
        """Return the new ones of these findings, packed. Raises InvalidRequest if one is no expectation, TooLarge beyond `READS_LIMIT`."""
        if found:
            check_operations(list(found))
        fresh: dict[Operation, bytes] = {}
        for demand in typed_operations(found):
            if not isinstance(demand, EXPECTATIONS):
                raise InvalidRequest(f"a read demands nothing of the kind {demand.kind!r}")
            about = tuple(demand[:-1])
            if about not in self._found and about not in fresh:
                fresh[about] = msgpack.packb(demand)
        if len(self._found) + len(fresh) > READS_LIMIT:
            raise TooLarge(f"the transaction has read {READS_LIMIT} things; read ranges, or split it")
        return fresh

    def add(self, found: Sequence[Operation], lsn: Lsn = 0) -> None:
        """Add the findings of a read at an LSN. Raises as `fresh` does."""
        fresh = self.fresh(found)
        self._found |= fresh
        self.size += sum(map(len, fresh.values()))
        self.lsn = max(self.lsn, lsn)

    def pieces(self) -> list[bytes]:
        """Return all findings, packed."""
        return list(self._found.values())

    def demands(self, operations: Iterable[bytes]) -> list[bytes]:
        """Return the findings that must hold when these packed operations are executed."""
        if self.level == SERIALIZABLE:
            return self.pieces()
        keys: dict[str, set[bytes]] = {}
        repositories: set[str] = set()
        for operation in typed_operations(msgpack.unpackb(piece, use_list=False) for piece in operations):
            match operation:
                case Put() | Delete():
                    keys.setdefault(operation.table, set()).add(operation.key)
                case Update() | Add() | Remove() | Clear() | CreateRepository() | RemoveRepository():
                    repositories.add(operation.repository)
        return [piece for about, piece in self._found.items() if _is_written(about, keys, repositories)]


def _is_written(about: Operation, keys: dict[str, set[bytes]], repositories: set[str]) -> bool:
    kind, *rest = about
    if kind == "expect-key":
        return rest[1] in keys.get(rest[0], ())
    if kind == "expect-range":
        table, first, end = rest
        return any(first <= key and (not end or key < end) for key in keys.get(table, ()))
    if kind == "expect-since":
        return rest[1] in (repositories if rest[0] == GRAPH else keys if rest[0] == TABLE else ())
    return False


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
    """Findings of its reads until it is closed; None under read-committed."""
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
