"""Prepared branches and what they block: the rules that must be identical in every store.

    prepare     the changes, judged as in any transaction, become one value in a reserved table (model/reserved/branches.py)
    meanwhile   a write that would spoil them is rejected, with the name of the branch that holds what it needs
    commit      the stored changes are made

A value is msgpack [changes, holds]: an effect, and marks that must stay unchanged although the effect does not change them.
**Marks** describe in small pieces what a transaction does and what a branch holds; two without a common mark do not conflict:

    key table key       message queue id       quad repository line       one item
    table name          queue name             graph repository           anything in that store
    exists repository   about repository       made                       its existence; its settings; the number of repositories
    key-check table key                        graph-check repository     a check about it is added
    suite                                                                 the control suite is changed

Depends on the content alone, so that every site rejects with the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgpack

from brokerha.model.control import KEY, Check, shortened
from brokerha.model.errors import CONFLICT, Rejected
from brokerha.model.ids import TxId
from brokerha.model.operation_checks import GRAPH, QUEUE
from brokerha.model.operation_checks import TABLE as TABLE_KIND
from brokerha.model.operations import (
    ON_KEYS,
    Accept,
    Add,
    Change,
    Checked,
    Clear,
    Cleared,
    CommitStaged,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    DropSnapshot,
    DropStaged,
    ExpectFingerprint,
    ExpectKey,
    ExpectRange,
    ExpectSince,
    MakeSnapshot,
    OnKey,
    Piece,
    Published,
    PublishPieces,
    Put,
    QuadsChanged,
    Remove,
    RemoveRepository,
    Stage,
    Update,
    typed_changes,
)
from brokerha.model.reserved import about, table_snapshots
from brokerha.model.reserved.branches import COUNT_LIMIT, SIZE_LIMIT_BYTES, SUM_LIMIT_BYTES, TABLE
from brokerha.stores.control.suite import Suite
from brokerha.stores.tables.key_range import row_key_of

Mark = tuple[Any, ...]

BEGINNING: Final = row_key_of(TABLE, b"")
"""Prefix of the row keys of all prepared branches."""


class Branch(NamedTuple):
    """A prepared branch."""

    size_bytes: int
    does: frozenset[Mark]
    holds: frozenset[Mark]


class Prepared:
    """All prepared branches of one store, in step with its reserved table."""

    __slots__ = ("_does", "_holds", "_size_bytes", "branches")

    def __init__(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """``rows`` are the row keys of the reserved table with their values."""
        self.branches: dict[TxId, Branch] = {}
        """Branches by txid; a write needs no check when it is empty."""
        self._does: dict[Mark, set[TxId]] = {}
        self._holds: dict[Mark, set[TxId]] = {}
        self._size_bytes = 0
        for row_key, value in rows:
            self.note(Put("put", TABLE, row_key[len(BEGINNING) :], value))

    def __contains__(self, txid: TxId) -> bool:
        """Tell whether this branch is prepared."""
        return txid in self.branches

    def note(self, change: OnKey) -> None:
        """Take note of a change of the reserved table."""
        txid = change.key.decode()
        old = self.branches.pop(txid, None)
        if old is not None:
            self._size_bytes -= old.size_bytes
            _take_out(self._does, old.does, txid)
            _take_out(self._holds, old.holds, txid)
        if isinstance(change, Put):
            branch = _branch_of(change.value)
            self.branches[txid] = branch
            self._size_bytes += branch.size_bytes
            for marks, table in ((branch.does, self._does), (branch.holds, self._holds)):
                for mark in marks:
                    table.setdefault(mark, set()).add(txid)

    def judge(self, changes: Iterable[Change]) -> None:
        """Raise Rejected when these changes conflict with a prepared branch."""
        self._refuse(self._holds, done_by(changes))

    def judge_snapshot(self, tables: Iterable[str]) -> None:
        """Raise Rejected when a branch writes one of these tables: its copies for a snapshot were not judged."""
        self._refuse(self._does, [(TABLE_KIND, table) for table in tables])

    def judge_branch(self, txid: TxId, value: bytes) -> None:
        """Raise Rejected when there is no room for a branch, or a prepared one changes what it relies on."""
        branch = _branch_of(value)
        self._refuse(self._does, branch.holds)
        if branch.size_bytes > SIZE_LIMIT_BYTES:
            raise Rejected(
                f"transaction {txid} would keep {branch.size_bytes} bytes while it is prepared; "
                f"the limit is {SIZE_LIMIT_BYTES}: split it"
            )
        if len(self.branches) >= COUNT_LIMIT:
            raise Rejected(f"{COUNT_LIMIT} transactions are prepared, which is the limit: finish some")
        if self._size_bytes + branch.size_bytes > SUM_LIMIT_BYTES:
            raise Rejected(f"prepared transactions keep {self._size_bytes} bytes, and {SUM_LIMIT_BYTES} is the limit: finish some")

    @staticmethod
    def _refuse(held: Mapping[Mark, set[TxId]], marks: Iterable[Mark]) -> None:
        met = [(min(held[mark]), mark) for mark in marks if mark in held]
        if met:
            txid, mark = min(met)
            raise Rejected(f"{CONFLICT}{_named(mark)} is held by prepared transaction {txid}: try again when that is over")


def value_of(operations: Iterable[Checked], changes: list[Change], after: Suite, lines_of: Callable[[str], Iterable[str]]) -> bytes:
    """Return the value of a branch whose operations lead to these changes and this control suite. Raises Rejected.

    ``lines_of`` parses the quads of a text.
    """
    holds: set[Mark] = set()
    for operation in operations:
        holds.update(_relied_upon(operation, lines_of))
    row_keys = {row_key_of(change.table, change.key) for change in changes if isinstance(change, ON_KEYS)}
    repositories = {mark[1] for mark in done_by(changes) if mark[0] == GRAPH}
    for name in after.touched(row_keys, repositories):
        if after.checks[name].kind != KEY:
            holds.add((GRAPH, after.checks[name].target))
    holds -= frozenset(held_by(changes))
    value: bytes = msgpack.packb((changes, sorted(holds)))
    return value


def changes_in(value: bytes) -> list[Change]:
    """Return the changes that a branch keeps."""
    return typed_changes(msgpack.unpackb(value, use_list=False)[0])


def messages_in(value: bytes) -> frozenset[tuple[str, str]]:
    """Return the messages that a branch takes, as (queue, id)."""
    return frozenset((change.queue, change.message_id) for change in changes_in(value) if isinstance(change, Accept))


def done_by(changes: Iterable[Change]) -> Iterator[Mark]:
    """Yield the marks that changes set. Operations on keys can stand for their changes."""
    for change in changes:
        match change:
            case Put() | Delete():
                yield "key", change.table, change.key
                yield TABLE_KIND, change.table
                if change.table == about.TABLE:
                    yield "about", about.repository_of(change.key)
            case QuadsChanged():
                yield GRAPH, change.repository
                for line in (*change.removed, *change.added):
                    yield "quad", change.repository, line
            case Published():
                yield QUEUE, change.queue
            case Accept():
                yield QUEUE, change.queue
                yield "message", change.queue, change.message_id
            case ControlAdd():
                yield ("suite",)
                key_check = "key-check", change.target, change.text.encode()
                yield key_check if change.of == KEY else ("graph-check", change.target)
            case ControlRemove():
                yield ("suite",)
            case CreateRepository() | RemoveRepository() | Cleared():
                yield GRAPH, change.repository
                # An operation that relies on any quad of a repository relies on its existence.
                yield "exists", change.repository
                if isinstance(change, CreateRepository):
                    yield ("made",)


def held_by(changes: Iterable[Change]) -> Iterator[Mark]:
    """Yield the marks that must stay unchanged until these changes are made."""
    for change in changes:
        match change:
            case Put() | Delete():
                yield "key", change.table, change.key
                yield "key-check", change.table, change.key
                if change.table == about.TABLE:
                    yield "exists", about.repository_of(change.key)
            case QuadsChanged():
                yield "exists", change.repository
                yield "graph-check", change.repository
                for line in (*change.removed, *change.added):
                    yield "quad", change.repository, line
            case Accept():
                yield "message", change.queue, change.message_id
            case ControlAdd():
                yield ("suite",)
                yield from _held_by_check(Check(*change[1:]))
            case ControlRemove():
                yield ("suite",)
            case CreateRepository():
                yield "exists", change.repository
                yield "graph-check", change.repository
                yield ("made",)
            case RemoveRepository() | Cleared():
                yield "exists", change.repository
                yield "graph-check", change.repository
                yield GRAPH, change.repository
                if isinstance(change, RemoveRepository):
                    yield "about", change.repository


def _held_by_check(check: Check) -> Iterator[Mark]:
    """Yield the marks that a new check of a branch reads."""
    if check.kind == KEY:
        yield "key", check.target, check.text.encode()
    else:
        yield GRAPH, check.target
        yield "exists", check.target


def _relied_upon(operation: Checked, lines_of: Callable[[str], Iterable[str]]) -> Iterator[Mark]:
    """Yield the marks that an operation relies on, whether it changes anything or not. Raises Rejected."""
    match operation:
        case MakeSnapshot() | DropSnapshot():
            raise Rejected(
                "a transaction that makes or drops a snapshot cannot be prepared, as a snapshot shows one place in the order: make it by itself"
            )
        case Stage() | CommitStaged() | DropStaged() | Piece() | PublishPieces():
            raise Rejected("a large transaction cannot be prepared: it takes place by one commit alone")
        case Put() | Delete() | ExpectKey():
            yield "key", operation.table, operation.key
            if operation.table == about.TABLE and not isinstance(operation, ExpectKey):
                yield "exists", about.repository_of(operation.key)
        case Add() | Remove():
            yield "exists", operation.repository
            for line in lines_of(operation.text):
                yield "quad", operation.repository, line
        case Update() | Clear():
            yield "exists", operation.repository
        case ExpectRange():
            yield TABLE_KIND, operation.table
        case ExpectSince():
            yield operation.store, operation.name
        case ExpectFingerprint():
            raise Rejected(
                "a transaction that expects a fingerprint cannot be prepared, as the content goes on until it is committed: "
                "expect keys, or stores that did not change"
            )


def _branch_of(value: bytes) -> Branch:
    rows, more = msgpack.unpackb(value, use_list=False)
    changes = typed_changes(rows)
    return Branch(len(value), frozenset(done_by(changes)), frozenset((*held_by(changes), *more)))


def _take_out(table: dict[Mark, set[TxId]], marks: Iterable[Mark], txid: TxId) -> None:
    for mark in marks:
        table[mark].discard(txid)
        if not table[mark]:
            del table[mark]


def _named(mark: Mark) -> str:
    """Return a mark in words."""
    kind, *names = mark
    shown = [shortened(each.decode(errors="backslashreplace") if isinstance(each, bytes) else each) for each in names]
    match kind:
        case "key" if names[0] == table_snapshots.TABLE:
            return f"snapshot {shown[1][1:]!r}"
        case "key" | "key-check":
            return f"key {shown[1]!r} of table {shown[0]!r}"
        case "message":
            return f"message {shown[1]!r} of queue {shown[0]!r}"
        case "quad":
            return f"quad {shown[1]} of repository {shown[0]!r}"
        case "table" | "queue":
            return f"{kind} {shown[0]!r}"
        case "suite":
            return "the control suite"
        case "made":
            return "the number of repositories"
        case _:
            return f"repository {shown[0]!r}"
