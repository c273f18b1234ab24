"""What is staged of large transactions, as the reserved table holds it (model/reserved/staging.py): the rules that every store must share to the word.

    stage      the part becomes a row; parts may come in any order, each once
    commit     needs parts 1 to n, under the name of the transaction as its id, by the user who staged them
    drop       the rows go; so do those of transactions that are too old, with the next part of any other one

Depends on the content and the transaction alone, so that every site rejects with the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from brokerha.model.errors import Rejected
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operation_checks import GRAPH
from brokerha.model.operation_checks import TABLE as TABLE_KIND
from brokerha.model.operations import (
    ON_KEYS,
    Add,
    By,
    Change,
    Checked,
    CommitStaged,
    Delete,
    DropStaged,
    OnKey,
    Published,
    Put,
    Remove,
    Stage,
    Staged,
)
from brokerha.model.reserved.staging import (
    AGE_LIMIT_S,
    COUNT_LIMIT,
    ITEMS_LIMIT,
    SIZE_LIMIT_BYTES,
    TABLE,
    Part,
    packed_part,
    part_in,
    part_key,
    part_of,
)
from brokerha.model.unfolding import changes_in, operations_of, text_of
from brokerha.stores.control.suite import Suite
from brokerha.stores.execution.last_changes import STORE_OF
from brokerha.stores.execution.prepared import Prepared
from brokerha.stores.rdf.change import read_nquads
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.snapshots import Snapshots

BEGINNING: Final = row_key_of(TABLE, b"")
"""What the row keys of all parts begin with."""
_ROW_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""Of one part: it travels as one line of the log, in one message (model/wire/codec.py)."""
_MESSAGES_LIMIT: Final = 999_999
"""Of one transaction, by the ids of messages."""


Stored = Callable[[bytes], bytes | None]


class _Known(NamedTuple):
    """A part, without what is in it."""

    lsn: Lsn
    timestamp: Timestamp
    items: int
    user: str
    size_bytes: int


class _Large:
    """What is staged of one large transaction; its sums are carried along, as it may have many parts."""

    __slots__ = ("items", "last", "parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: dict[int, _Known] = {}
        self.size_bytes = 0
        self.items = 0
        self.last: Timestamp = 0
        """When the youngest part was stamped."""

    def note(self, number: int, part: _Known | None) -> None:
        """A part came, or went."""
        old = self.parts.pop(number, None)
        if old is not None:
            self.size_bytes -= old.size_bytes
            self.items -= old.items
        if part is not None:
            self.parts[number] = part
            self.size_bytes += part.size_bytes
            self.items += part.items
            self.last = max(self.last, part.timestamp)


_NOTHING: Final = _Large()


class Parts:
    """All that is staged in one store, in step with its reserved table."""

    __slots__ = ("_large",)

    def __init__(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """``rows`` are the row keys of the reserved table with their values."""
        self._large: dict[TxId, _Large] = {}
        for row_key, value in rows:
            self.note(Put("put", TABLE, row_key[len(BEGINNING) :], value))

    def note(self, change: OnKey) -> None:
        """A change of the reserved table was made."""
        name, number = part_of(change.key)
        part = _Known(*part_in(change.value)[:4], len(change.value)) if isinstance(change, Put) else None
        large = self._large.setdefault(name, _Large())
        large.note(number, part)
        if not large.parts:
            del self._large[name]

    @property
    def names(self) -> Collection[TxId]:
        """Transactions of which anything is staged."""
        return self._large.keys()

    def changes_of(self, operations: Sequence[Checked], lsn: Lsn, timestamp: Timestamp, by: list[By]) -> list[Change]:
        """What becomes of the reserved table by a part, or by dropping a transaction. Raises InvalidRequest, Rejected."""
        first = operations[0]
        if isinstance(first, Stage):
            return self._stage(first, operations[1:], lsn, timestamp, by[0].user if by else "")
        invariant(isinstance(first, DropStaged), "the shape of a transaction was checked", operation=first[0])
        return self.deletes(first[1])

    def deletes(self, name: TxId) -> list[Change]:
        """The rows of a transaction, as they go."""
        return [Delete("delete", TABLE, part_key(name, number)) for number in sorted(self._of(name).parts)]

    def committed(self, operation: CommitStaged, txid: TxId, by: list[By]) -> list[Lsn]:
        """LSNs of the parts that a commit is about, in order. Raises Rejected."""
        name, parts = operation.name, self._of(operation.name).parts
        if txid != name:
            raise Rejected(f"large transaction {name} is committed under its own name: use it as the idempotency key")
        if lacking := next((number for number in range(1, operation.parts + 1) if number not in parts), 0):
            raise Rejected(f"part {lacking} of large transaction {name} is not staged")
        if len(parts) > operation.parts:
            raise Rejected(f"{len(parts)} parts of large transaction {name} are staged, and {operation.parts} are to be committed")
        user = by[0].user if by else ""
        if any(part.user != user for part in parts.values()):
            raise Rejected(f"large transaction {name} was staged by somebody else")
        return [parts[number].lsn for number in range(1, operation.parts + 1)]

    def _stage(
        self, stage: Stage, operations: Sequence[Checked], lsn: Lsn, timestamp: Timestamp, user: str
    ) -> list[Change]:
        name = stage.name
        kept = [_canonical(operation) for operation in operations]
        items = sum(operation[2].count("\n") if isinstance(operation, (Add, Remove)) else 1 for operation in kept)
        value = packed_part(Part(lsn, timestamp, items, user, tuple(map(tuple, kept))))
        since = timestamp - AGE_LIMIT_S * 1_000_000
        old = [other for other, large in self._large.items() if other != name and large.last < since]
        known = self._of(name)
        if stage.part in known.parts:
            raise Rejected(f"part {stage.part} of large transaction {name} is staged already")
        if len(value) > _ROW_LIMIT_BYTES:
            raise Rejected(f"a part has {len(value)} bytes when quads are written out; the limit is {_ROW_LIMIT_BYTES}: make parts smaller")
        size_bytes = len(value) + known.size_bytes
        items += known.items
        if size_bytes > SIZE_LIMIT_BYTES or items > ITEMS_LIMIT:
            raise Rejected(
                f"large transaction {name} would have {size_bytes} bytes and {items} items; the limits are {SIZE_LIMIT_BYTES} "
                f"and {ITEMS_LIMIT}: load the data instead (brokerha load, brokerha pipeline load)"
            )
        if not known.parts and len(self._large) - len(old) >= COUNT_LIMIT:
            raise Rejected(f"{COUNT_LIMIT} large transactions are staged, which is the limit: commit or drop one ({', '.join(sorted(self._large))})")
        gone = [change for other in sorted(old) for change in self.deletes(other)]
        return [*gone, Put("put", TABLE, part_key(name, stage.part), value)]

    def _of(self, name: TxId) -> _Large:
        return self._large.get(name, _NOTHING)


def part_rows(stored: Stored, name: TxId, parts: int) -> Iterator[bytes]:
    """The rows of the first parts of a transaction. ``stored`` gives the value of a row key."""
    for number in range(1, parts + 1):
        row = stored(row_key_of(TABLE, part_key(name, number)))
        invariant(row is not None, "what is known of parts is in the reserved table", name=name, number=number)
        yield row or b""


def parts_of(stored: Stored, name: TxId) -> Callable[[int], list[Checked] | None]:
    """Operations of a transaction by the number of their part; None for one that is not staged."""

    def part(number: int) -> list[Checked] | None:
        row = stored(row_key_of(TABLE, part_key(name, number)))
        return None if row is None else operations_of(row)

    return part


def changes_of_parts(staged: Staged, rows: Iterable[bytes], *, with_quads: bool = True) -> Iterator[Change]:
    """What a large transaction changes, in order, by the rows of its parts (model/unfolding.py)."""
    for row, (_, published) in zip(rows, staged.parts, strict=True):
        yield from changes_in(staged.name, row, published, with_quads=with_quads)


class Judged(NamedTuple):
    """A large transaction that nothing speaks against."""

    change: Staged
    keys: dict[bytes, OnKey]
    """Its last operation on each key that a check looks at, by row key."""

    def named(self, kind: str) -> set[str]:
        """The stores of a kind that it may change."""
        return {name for each, name in self.change.stores if each == kind}


def judged(
    name: TxId,
    lsns: Sequence[Lsn],
    rows: Iterable[bytes],
    prepared: Prepared,
    suite: Suite,
    snapshots: Snapshots,
    listed: Container[str],
) -> Judged:
    """A large transaction of these parts. Raises Rejected when anything speaks against it, but for queues and checks.

    ``listed`` are the repositories that there are.
    """
    parts: list[tuple[Lsn, int]] = []
    stores: set[tuple[str, str]] = set()
    keys: dict[bytes, OnKey] = {}
    published = 0
    is_held = bool(prepared.branches)
    for lsn, row in zip(lsns, rows, strict=True):
        parts.append((lsn, published))
        for change in changes_in(name, row, published, with_quads=is_held):
            stores.add((STORE_OF[change[0]], change[1]))
            published += isinstance(change, Published)
            if isinstance(change, ON_KEYS) and (row_key := row_key_of(change.table, change.key)) in suite.row_keys:
                keys[row_key] = change
            if is_held:
                prepared.judge([change])
    for kind, store in sorted(stores):
        if kind == GRAPH and store not in listed:
            raise Rejected(f"repository {store!r} does not exist")
        if kind == TABLE_KIND and snapshots.chain(store):
            raise Rejected(f"a snapshot shows table {store!r}: drop it, or write the table by smaller transactions")
    if published > _MESSAGES_LIMIT:
        raise Rejected(f"a transaction publishes at most {_MESSAGES_LIMIT} messages, and not {published}")
    return Judged(Staged("staged", name, tuple(parts), tuple(sorted(stores))), keys)


def _canonical(operation: Checked) -> Checked:
    """The operation as it is kept. Raises InvalidRequest."""
    if isinstance(operation, (Add, Remove)):
        return operation._replace(text=text_of(read_nquads(operation.text)))
    return operation
