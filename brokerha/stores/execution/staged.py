"""Staged large transactions in the reserved table (model/reserved/staging.py): the rules that must be identical in every store.

    stage      the part becomes a row; parts come in any order, each once
    commit     needs parts 1 to n, with the name of the transaction as its id, by the user who staged them
    drop       its rows are deleted; the next part of any other transaction deletes those that are too old

Depends on the content and the transaction alone, so that every site rejects with the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from brokerha.model.errors import Rejected
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operation_checks import GRAPH
from brokerha.model.operation_checks import TABLE as TABLE_KIND
from brokerha.model.operations import (
    ON_KEYS,
    Accept,
    Add,
    By,
    Change,
    Checked,
    Cleared,
    CommitStaged,
    Delete,
    DropStaged,
    OnKey,
    Published,
    PublishPieces,
    Put,
    Remove,
    Stage,
    Staged,
)
from brokerha.model.reserved.pieces import PIECE, Body, bodies_in, packed_bodies, pieces_of
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
"""Prefix of the row keys of all parts."""
_ROW_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""Limit of one part: it travels as one line of the log, in one message (model/wire/codec.py)."""
_MESSAGES_LIMIT: Final = 999_999
"""Limit of one transaction, from the ids of messages."""


Stored = Callable[[bytes], bytes | None]


class _Known(NamedTuple):
    """A part without its content."""

    lsn: Lsn
    timestamp: Timestamp
    items: int
    user: str
    size_bytes: int
    piece_bytes: int
    """Size of its piece of a message body; 0 if it has none."""


class _Large:
    """The parts of one large transaction; its sums are updated with each part, as there can be many."""

    __slots__ = ("items", "last", "parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: dict[int, _Known] = {}
        self.size_bytes = 0
        self.items = 0
        self.last: Timestamp = 0
        """Timestamp of the youngest part."""

    def note(self, number: int, part: _Known | None) -> None:
        """Take note of a part that was staged or deleted."""
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
    """All parts staged in one store, in step with its reserved table."""

    __slots__ = ("_kept", "_large", "bodies")

    def __init__(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """``rows`` are the row keys of the reserved table with their values."""
        self._large: dict[TxId, _Large] = {}
        self._kept: dict[TxId, list[Body]] = {}
        """Committed transactions whose parts stay as bodies of messages."""
        self.bodies: dict[tuple[str, str], TxId] = {}
        """Messages, as (queue, id) -> transaction that holds the body."""
        for row_key, value in rows:
            self.note(Put("put", TABLE, row_key[len(BEGINNING) :], value))

    def note(self, change: OnKey) -> None:
        """Take note of a change of the reserved table."""
        name, number = part_of(change.key)
        if number == 0:
            self._note_bodies(name, bodies_in(change.value) if isinstance(change, Put) else [])
            return
        part = _known(change.value) if isinstance(change, Put) else None
        large = self._large.setdefault(name, _Large())
        large.note(number, part)
        if not large.parts:
            del self._large[name]

    @property
    def names(self) -> Collection[TxId]:
        """Transactions with staged parts that are not committed."""
        return self._large.keys() - self._kept.keys()

    def report(self) -> bytes:
        """Return all staged transactions, oldest last part first, as JSON."""
        known = sorted(((self._large[name], name) for name in self.names), key=lambda each: (each[0].last, each[1]))
        rows = [
            {
                "txid": name,
                "parts": len(large.parts),
                "bytes": large.size_bytes,
                "items": large.items,
                "user": next(iter(large.parts.values())).user,
                "last_us": large.last,
            }
            for large, name in known
        ]
        return json.dumps(rows).encode()

    def changes_of(self, operations: Sequence[Checked], lsn: Lsn, timestamp: Timestamp, by: list[By]) -> list[Change]:
        """Return the changes of the reserved table by a part, or by a drop. Raises InvalidRequest, Rejected."""
        first = operations[0]
        if isinstance(first, Stage):
            return self._stage(first, operations[1:], lsn, timestamp, by[0].user if by else "")
        invariant(isinstance(first, DropStaged), "the shape of a transaction was checked", operation=first[0])
        return [] if (name := str(first[1])) in self._kept else self.deletes(name)

    def deletes(self, name: TxId, bodies: Sequence[Body] = ()) -> list[Change]:
        """Return the deletes of a transaction's rows; those of message ``bodies`` stay."""
        stays = {number for body in bodies for number in range(body.first, body.last + 1)}
        gone: list[Change] = [_deleted(name, number) for number in sorted(self._of(name).parts) if number not in stays]
        return [Put("put", TABLE, part_key(name, 0), packed_bodies(bodies)), *gone] if bodies else gone

    def left_by(self, changes: Iterable[Change]) -> list[Change]:
        """Return the deletes of the bodies of accepted messages."""
        taken = [change for change in changes if isinstance(change, Accept)] if self.bodies else []
        gone: dict[TxId, set[int]] = {}
        for change in taken:
            place = change.queue, change.message_id
            if (name := self.bodies.get(place)) is not None:
                body = next(each for each in self._kept[name] if each[:2] == place)
                gone.setdefault(name, set()).update(range(body.first, body.last + 1))
        for name, numbers in gone.items():
            if self._of(name).parts.keys() <= numbers:
                numbers.add(0)
        return [_deleted(name, number) for name in sorted(gone) for number in sorted(gone[name])]

    def committed(self, operation: CommitStaged, txid: TxId, by: list[By]) -> list[Lsn]:
        """Return the LSNs of the parts of a commit, in order. Raises Rejected."""
        name, parts = operation.name, self._of(operation.name).parts
        if txid != name:
            raise Rejected(f"large transaction {name} is committed under its own name: use it as the idempotency key")
        if name in self._kept:
            raise Rejected(f"large transaction {name} took place already")
        if lacking := next((number for number in range(1, operation.parts + 1) if number not in parts), 0):
            raise Rejected(f"part {lacking} of large transaction {name} is not staged")
        if len(parts) > operation.parts:
            raise Rejected(f"{len(parts)} parts of large transaction {name} are staged, and {operation.parts} are to be committed")
        user = by[0].user if by else ""
        if any(part.user != user for part in parts.values()):
            raise Rejected(f"large transaction {name} was staged by somebody else")
        return [parts[number].lsn for number in range(1, operation.parts + 1)]

    def _stage(self, stage: Stage, operations: Sequence[Checked], lsn: Lsn, timestamp: Timestamp, user: str) -> list[Change]:
        name = stage.name
        kept = [_canonical(operation) for operation in operations]
        items = sum(operation[2].count("\n") if isinstance(operation, (Add, Remove)) else 1 for operation in kept)
        value = packed_part(Part(lsn, timestamp, items, user, tuple(map(tuple, kept))))
        since = timestamp - AGE_LIMIT_S * 1_000_000
        old = [other for other in self.names if other != name and self._large[other].last < since]
        known = self._of(name)
        if name in self._kept:
            raise Rejected(f"large transaction {name} took place already: another one needs another name")
        if stage.part in known.parts:
            raise Rejected(f"part {stage.part} of large transaction {name} is staged already")
        if len(value) > _ROW_LIMIT_BYTES:
            raise Rejected(
                f"a part has {len(value)} bytes when quads are written out; the limit is {_ROW_LIMIT_BYTES}: make parts smaller"
            )
        size_bytes = len(value) + known.size_bytes
        items += known.items
        if size_bytes > SIZE_LIMIT_BYTES or items > ITEMS_LIMIT:
            raise Rejected(
                f"large transaction {name} would have {size_bytes} bytes and {items} items; the limits are {SIZE_LIMIT_BYTES} "
                f"and {ITEMS_LIMIT}: load the data instead (brokerha load, brokerha pipeline load)"
            )
        if not known.parts and len(self.names) - len(old) >= COUNT_LIMIT:
            raise Rejected(
                f"{COUNT_LIMIT} large transactions are staged, which is the limit: commit or drop one ({', '.join(sorted(self.names))})"
            )
        for operation in kept:
            if isinstance(operation, PublishPieces):
                _check_pieces(operation, known)
        gone = [change for other in sorted(old) for change in self.deletes(other)]
        return [*gone, Put("put", TABLE, part_key(name, stage.part), value)]

    def _note_bodies(self, name: TxId, bodies: list[Body]) -> None:
        for body in self._kept.pop(name, ()):
            self.bodies.pop((body.queue, body.message_id), None)
        if bodies:
            self._kept[name] = bodies
            self.bodies.update({(body.queue, body.message_id): name for body in bodies})

    def _of(self, name: TxId) -> _Large:
        return self._large.get(name, _NOTHING)


def part_rows(stored: Stored, name: TxId, parts: int) -> Iterator[bytes]:
    """Yield the rows of the first parts of a transaction. ``stored`` gives the value of a row key."""
    for number in range(1, parts + 1):
        row = stored(row_key_of(TABLE, part_key(name, number)))
        invariant(row is not None, "what is known of parts is in the reserved table", name=name, number=number)
        yield row or b""


def parts_of(stored: Stored, name: TxId) -> Callable[[int], list[Checked] | None]:
    """Return a function from the number of a part to its operations; None for a part that is not staged."""

    def part(number: int) -> list[Checked] | None:
        row = stored(row_key_of(TABLE, part_key(name, number)))
        return None if row is None else operations_of(row)

    return part


def changes_of_parts(staged: Staged, rows: Iterable[bytes], *, with_quads: bool = True) -> Iterator[Change]:
    """Yield the changes of a large transaction, in order, from the rows of its parts (model/unfolding.py)."""
    for row, (_, published) in zip(rows, staged.parts, strict=True):
        yield from changes_in(staged.name, row, published, with_quads=with_quads)


class Judged(NamedTuple):
    """An accepted large transaction."""

    change: Staged
    keys: dict[bytes, OnKey]
    """Its last operation on each key that a check is about, by row key."""
    bodies: list[Body]
    """Parts that stay as bodies of messages."""

    def named(self, kind: str) -> set[str]:
        """Return the stores of a kind that it can change."""
        return {store[1] for store in self.change.stores if store[0] == kind}


def judged(
    name: TxId,
    lsns: Sequence[Lsn],
    rows: Iterable[bytes],
    prepared: Prepared,
    suite: Suite,
    snapshots: Snapshots,
    held: Mapping[str, int],
) -> Judged:
    """Judge a large transaction of these parts, except for queues and checks. Raises Rejected.

    ``held`` is the number of quads in each repository now.
    """
    parts: list[tuple[Lsn, int]] = []
    stores: dict[tuple[str, str], bool] = {}
    """Whether it empties the store first."""
    keys: dict[bytes, OnKey] = {}
    bodies: list[Body] = []
    published = 0
    is_held = bool(prepared.branches)
    for lsn, row in zip(lsns, rows, strict=True):
        parts.append((lsn, published))
        for change in changes_in(name, row, published, with_quads=is_held):
            stores.setdefault((STORE_OF[change[0]], change[1]), isinstance(change, Cleared))
            if isinstance(change, Published):
                published += 1
                if pieces := pieces_of(change.content_type, change.body):
                    bodies.append(Body(change.queue, change.message_id, pieces.first, pieces.last))
            if isinstance(change, ON_KEYS) and (row_key := row_key_of(change.table, change.key)) in suite.row_keys:
                keys[row_key] = change
            if is_held:
                prepared.judge([change])
    for kind, store in sorted(stores):
        if kind == GRAPH and store not in held:
            raise Rejected(f"repository {store!r} does not exist")
        if kind == TABLE_KIND and snapshots.chain(store):
            raise Rejected(f"a snapshot shows table {store!r}: drop it, or write the table by smaller transactions")
    if published > _MESSAGES_LIMIT:
        raise Rejected(f"a transaction publishes at most {_MESSAGES_LIMIT} messages, and not {published}")
    ranges = sorted((body.first, body.last) for body in bodies)
    if any(last >= first for (_, last), (first, _) in pairwise(ranges)):
        raise Rejected("two messages have the same pieces: stage the pieces of each for itself")
    named = tuple((*store, held[store[1]]) if is_cleared else store for store, is_cleared in sorted(stores.items()))
    return Judged(Staged("staged", name, tuple(parts), named), keys, bodies)


def _known(value: bytes) -> _Known:
    part = part_in(value)
    first = part.operations[0]
    return _Known(*part[:4], len(value), len(first[1]) if first[0] == PIECE else 0)


def _deleted(name: TxId, number: int) -> Delete:
    return Delete("delete", TABLE, part_key(name, number))


def _check_pieces(message: PublishPieces, known: _Large) -> None:
    """Raise Rejected when the pieces that a message names are not staged."""
    found = [known.parts.get(number) for number in range(message.first, message.last + 1)]
    sizes = [0 if part is None else part.piece_bytes for part in found]
    if not all(sizes) or sum(sizes) != message.size_bytes:
        raise Rejected(
            f"parts {message.first} to {message.last} are no pieces of {message.size_bytes} bytes that are staged: stage all pieces first"
        )


def _canonical(operation: Checked) -> Checked:
    """Return the operation in the form that is kept. Raises InvalidRequest."""
    if isinstance(operation, (Add, Remove)):
        return operation._replace(text=text_of(read_nquads(operation.text)))
    return operation
