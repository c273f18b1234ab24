"""What is prepared, and what it keeps others from: the rules that every store must share to the word.

    prepare     its changes, judged like those of any transaction, become one value in the reserved table (model/branches.py)
    meanwhile   a write that would spoil them is rejected, with the name of the branch that holds what it needs
    commit      the changes are made, as they lie there

A value is msgpack [changes, holds]: an effect, and what has to stay as it is although the effect does not change it. **Marks** say in
small pieces what a transaction does and what a branch holds; two that have none in common do not disturb each other:

    key table key       message queue id       quad repository line       one item
    table name          queue name             graph repository           anything in that store
    exists repository   about repository       made                       whether it exists; its settings; how many there are
    key-check table key                        graph-check repository     a check about it is added
    suite                                                                 the control suite is changed

Depends on the content alone, so that every site rejects with the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgpack

from brokerha.model import about, table_snapshots
from brokerha.model.branches import COUNT_LIMIT, SIZE_LIMIT_BYTES, SUM_LIMIT_BYTES, TABLE
from brokerha.model.control import KEY, Check, shortened
from brokerha.model.errors import Rejected
from brokerha.model.ids import TxId
from brokerha.model.operations import GRAPH, ON_KEYS, ON_QUEUES, ON_SNAPSHOTS, QUEUE, Change, Operation
from brokerha.model.operations import TABLE as TABLE_KIND
from brokerha.stores.control.suite import ADD, ON_CONTROL, Suite
from brokerha.stores.tables.key_range import row_key_of

Mark = tuple[Any, ...]

BEGINNING: Final = row_key_of(TABLE, b"")
"""What the row keys of all prepared branches begin with."""
_QUADS: Final = {"add", "remove"}
_CREATE: Final = "create-repository"


class Branch(NamedTuple):
    """A prepared one."""

    size_bytes: int
    does: frozenset[Mark]
    holds: frozenset[Mark]


class Prepared:
    """All prepared branches of one store, in step with its reserved table."""

    __slots__ = ("_does", "_holds", "_size_bytes", "branches")

    def __init__(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """``rows`` are the row keys of the reserved table with their values."""
        self.branches: dict[TxId, Branch] = {}
        """By txid; empty when nothing is prepared, which is all that a write has to ask."""
        self._does: dict[Mark, set[TxId]] = {}
        self._holds: dict[Mark, set[TxId]] = {}
        self._size_bytes = 0
        for row_key, value in rows:
            self.note(("put", TABLE, row_key[len(BEGINNING) :], value))

    def __contains__(self, txid: TxId) -> bool:
        """Whether this branch is prepared."""
        return txid in self.branches

    def note(self, change: Change) -> None:
        """A change of the reserved table was made."""
        txid = change[2].decode()
        old = self.branches.pop(txid, None)
        if old is not None:
            self._size_bytes -= old.size_bytes
            _take_out(self._does, old.does, txid)
            _take_out(self._holds, old.holds, txid)
        if change[0] == "put":
            branch = _branch_of(change[3])
            self.branches[txid] = branch
            self._size_bytes += branch.size_bytes
            for marks, table in ((branch.does, self._does), (branch.holds, self._holds)):
                for mark in marks:
                    table.setdefault(mark, set()).add(txid)

    def judge(self, changes: Iterable[Change]) -> None:
        """Raise Rejected when these changes would spoil what is prepared."""
        self._refuse(self._holds, done_by(changes))

    def judge_snapshot(self, tables: Iterable[str]) -> None:
        """Raise Rejected when a branch writes one of these tables: what it would have to copy for a snapshot was not judged."""
        self._refuse(self._does, [(TABLE_KIND, table) for table in tables])

    def judge_branch(self, txid: TxId, value: bytes) -> None:
        """Raise Rejected when there is no room to keep a branch, or a prepared one would spoil what it relies upon."""
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
            raise Rejected(
                f"prepared transactions keep {self._size_bytes} bytes, and {SUM_LIMIT_BYTES} is the limit: finish some"
            )

    @staticmethod
    def _refuse(held: Mapping[Mark, set[TxId]], marks: Iterable[Mark]) -> None:
        met = [(min(held[mark]), mark) for mark in marks if mark in held]
        if met:
            txid, mark = min(met)
            raise Rejected(f"{_named(mark)} is held by prepared transaction {txid}: try again when that is over")


def value_of(
    operations: Iterable[Operation],
    changes: list[Change],
    after: Suite,
    lines_of: Callable[[str], Iterable[str]],
) -> bytes:
    """What is kept of a branch whose operations would lead to these changes, and to this control suite. Raises Rejected.

    ``lines_of`` reads the quads of a text.
    """
    holds: set[Mark] = set()
    for operation in operations:
        holds.update(_relied_upon(operation, lines_of))
    row_keys = {row_key_of(change[1], change[2]) for change in changes if change[0] in ON_KEYS}
    repositories = {mark[1] for mark in done_by(changes) if mark[0] == GRAPH}
    for name in after.touched(row_keys, repositories):
        if after.checks[name].kind != KEY:
            holds.add((GRAPH, after.checks[name].target))
    holds -= frozenset(held_by(changes))
    value: bytes = msgpack.packb((changes, sorted(holds)))
    return value


def changes_in(value: bytes) -> list[Change]:
    """The changes that a branch keeps."""
    return list(msgpack.unpackb(value, use_list=False)[0])


def messages_in(value: bytes) -> frozenset[tuple[str, str]]:
    """The messages that a branch takes, as (queue, id)."""
    return frozenset((change[1], change[2]) for change in changes_in(value) if change[0] == "accept")


def done_by(changes: Iterable[Change]) -> Iterator[Mark]:
    """What changes do. Operations on keys may stand for the changes that they lead to."""
    for change in changes:
        kind, name = change[0], change[1]
        if kind in ON_KEYS:
            yield "key", name, change[2]
            yield TABLE_KIND, name
            if name == about.TABLE:
                yield "about", about.repository_of(change[2])
        elif kind == "quads":
            yield GRAPH, name
            for line in (*change[2], *change[3]):
                yield "quad", name, line
        elif kind in ON_QUEUES:
            yield QUEUE, name
            if kind == "accept":
                yield "message", name, change[2]
        elif kind in ON_CONTROL:
            yield ("suite",)
            if kind == ADD:
                check = Check(*change[1:])
                is_key = check.kind == KEY
                yield ("key-check", check.target, check.text.encode()) if is_key else ("graph-check", check.target)
        else:
            yield GRAPH, name
            yield "exists", name
            if kind == _CREATE:
                yield ("made",)


def held_by(changes: Iterable[Change]) -> Iterator[Mark]:
    """What must be left as it is until these changes are made."""
    for change in changes:
        kind, name = change[0], change[1]
        if kind in ON_KEYS:
            yield "key", name, change[2]
            yield "key-check", name, change[2]
            if name == about.TABLE:
                yield "exists", about.repository_of(change[2])
        elif kind == "quads":
            yield "exists", name
            yield "graph-check", name
            for line in (*change[2], *change[3]):
                yield "quad", name, line
        elif kind == "accept":
            yield "message", name, change[2]
        elif kind in ON_CONTROL:
            yield ("suite",)
            if kind == ADD:
                yield from _held_by_check(Check(*change[1:]))
        elif kind != "publish":
            yield "exists", name
            yield "graph-check", name
            if kind == _CREATE:
                yield ("made",)
            else:
                yield GRAPH, name
                yield "about", name


def _held_by_check(check: Check) -> Iterator[Mark]:
    """What a check that comes with a branch looks at."""
    if check.kind == KEY:
        yield "key", check.target, check.text.encode()
    else:
        yield GRAPH, check.target
        yield "exists", check.target


def _relied_upon(operation: Operation, lines_of: Callable[[str], Iterable[str]]) -> Iterator[Mark]:
    """What an operation relies upon, whether it changes anything or not. Raises Rejected."""
    kind, name = operation[0], operation[1]
    if kind in ON_SNAPSHOTS:
        raise Rejected(
            "a transaction that makes or drops a snapshot cannot be prepared, as a snapshot shows one place in the order: make it by itself"
        )
    if kind in ON_KEYS or kind == "expect-key":
        yield "key", name, operation[2]
        if kind in ON_KEYS and name == about.TABLE:
            yield "exists", about.repository_of(operation[2])
    elif kind in _QUADS:
        yield "exists", name
        for line in lines_of(operation[2]):
            yield "quad", name, line
    elif kind == "update":
        yield "exists", name
    elif kind == "expect-range":
        yield TABLE_KIND, name
    elif kind == "expect-since":
        yield name, operation[2]
    elif kind == "expect-fingerprint":
        raise Rejected(
            "a transaction that expects a fingerprint cannot be prepared, as the content goes on until it is committed: "
            "expect keys, or stores that did not change"
        )


def _branch_of(value: bytes) -> Branch:
    changes, more = msgpack.unpackb(value, use_list=False)
    return Branch(len(value), frozenset(done_by(changes)), frozenset((*held_by(changes), *more)))


def _take_out(table: dict[Mark, set[TxId]], marks: Iterable[Mark], txid: TxId) -> None:
    for mark in marks:
        table[mark].discard(txid)
        if not table[mark]:
            del table[mark]


def _named(mark: Mark) -> str:
    """A mark in words."""
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
