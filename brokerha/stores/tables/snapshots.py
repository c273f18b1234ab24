"""Snapshots of tables by name: the rules that must be identical in every store (rows: model/reserved/table_snapshots.py).

    make     one row; nothing is copied
    write    the first change of a key copies its old value to the youngest snapshot of its table, in the same transaction
    read     the snapshot's own copy of the key, else that of the next younger one, else the present value
    drop     the row is deleted at once; copies that an older snapshot still reads move to it, the others are deleted

The drop itself clears up to `DROP_ROWS` copies; later writes that change keys clear up to `WRITE_ROWS` each. Older snapshots read
the remaining copies meanwhile. Depends on the content and the operations alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import Final, NamedTuple

from brokerha.model.errors import NotFound, Rejected, UnknownSnapshot
from brokerha.model.ids import Lsn
from brokerha.model.operations import ON_KEYS, ON_SNAPSHOTS, Change, Checked, Delete, MakeSnapshot, OnKey, Put
from brokerha.model.reserved import table_snapshots as rows
from brokerha.model.reserved.table_snapshots import TABLE
from brokerha.stores.tables.key_range import OWN_TABLES, KeyRange, row_key_of

BEGINNING: Final = row_key_of(TABLE, b"")
DIRECTORY: Final = tuple(row_key_of(TABLE, kind) for kind in (rows.SNAPSHOT, rows.GONE))
"""Prefixes of the row keys of snapshots, without those of copies."""
DROP_ROWS: Final = 10_000
WRITE_ROWS: Final = 64
CLEAR_BYTES: Final = 256 * 1024
"""Limit of bytes that one transaction moves to an older snapshot; a single larger copy still moves."""
SIZE_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""Limit of bytes of the keys that a transaction changes, with its copies: they travel in one message (wire/codec.py)."""

ValueOf = Callable[[bytes], bytes | None]
"""Row key -> value; None when there is no such key."""


class Snapshot(NamedTuple):
    """One snapshot."""

    lsn: Lsn
    """LSN of the last transaction that the snapshot shows."""
    numbers: dict[str, int]
    """Number for each of its tables, by name."""


class Content(NamedTuple):
    """Content of a store before a transaction."""

    value_of: ValueOf
    rows_from: Callable[[bytes], Iterable[tuple[bytes, bytes]]]
    """All rows whose row keys have this beginning, in order."""
    tables: Callable[[], Iterable[str]]
    """Names of all tables that have a key."""


class Snapshots:
    """All snapshots of one store, in step with its reserved table; false when there are none, dropped ones included."""

    __slots__ = ("_chains", "gone", "named")

    def __init__(self, found: Iterable[tuple[bytes, bytes]]) -> None:
        """``found`` are the rows of `DIRECTORY`."""
        self.named: dict[str, Snapshot] = {}
        self.gone: dict[int, str] = {}
        """Dropped snapshots that are not yet cleared: number -> table."""
        self._chains: dict[str, list[int]] | None = None
        for row_key, value in found:
            self._put(row_key[len(BEGINNING) :], value)

    def __bool__(self) -> bool:
        """Tell whether there are any rows of snapshots."""
        return bool(self.named or self.gone)

    def copy(self) -> Snapshots:
        """Return an independent copy."""
        copied = Snapshots(())
        copied.named, copied.gone = dict(self.named), dict(self.gone)
        return copied

    def note(self, change: OnKey) -> None:
        """Take note of a change of the reserved table."""
        key = change.key
        if isinstance(change, Put):
            self._put(key, change.value)
        elif key.startswith(rows.SNAPSHOT):
            self.named.pop(key[1:].decode(), None)
            self._chains = None
        elif key.startswith(rows.GONE):
            self.gone.pop(rows.number_in(key), None)
            self._chains = None

    def chain(self, table: str) -> list[int]:
        """Return the numbers for a table, oldest first, including those that are not yet cleared."""
        if self._chains is None:
            self._chains = {}
            numbers = [pair for snapshot in self.named.values() for pair in snapshot.numbers.items()]
            for name, number in (*numbers, *((table, number) for number, table in self.gone.items())):
                self._chains.setdefault(name, []).append(number)
            for found in self._chains.values():
                found.sort()
        return self._chains.get(table, [])

    def from_on(self, name: str, table: str) -> list[int]:
        """Return the numbers to search for a table of a snapshot, first to last. Raises UnknownSnapshot."""
        snapshot = self.named.get(name)
        if snapshot is None:
            raise UnknownSnapshot(f"there is no snapshot {name!r}; db.snapshots() and GET /snapshots list them")
        number = snapshot.numbers.get(table)
        if number is None:
            raise UnknownSnapshot(f"snapshot {name!r} has no table {table!r}")
        return [each for each in self.chain(table) if each >= number]

    def report(self) -> bytes:
        """Return all snapshots by name, as JSON."""
        return json.dumps(
            [{"name": name, "tables": sorted(found.numbers), "lsn": found.lsn} for name, found in sorted(self.named.items())]
        ).encode()

    def _put(self, key: bytes, value: bytes) -> None:
        if key.startswith(rows.SNAPSHOT):
            self.named[key[1:].decode()] = Snapshot(*rows.snapshot_in(value))
            self._chains = None
        elif key.startswith(rows.GONE):
            self.gone[rows.number_in(key)] = value.decode()
            self._chains = None


def changes_of(
    before: Snapshots, operations: Iterable[Checked], keys: Mapping[bytes, OnKey], lsn: Lsn, content: Content
) -> list[OnKey]:
    """Return a transaction's changes of the reserved table, beside its last operation on each key. Raises Rejected.

    ``lsn`` is its own. Only operations on snapshots are ordered among themselves: a snapshot shows all writes of its transaction.
    """
    wanted = [operation for operation in operations if isinstance(operation, ON_SNAPSHOTS)]
    change = _SnapshotChange(before, content, DROP_ROWS if wanted else WRITE_ROWS)
    change.keep(keys)
    for operation in wanted:
        if isinstance(operation, MakeSnapshot):
            change.make(operation.name, operation.tables, keys, lsn)
        else:
            change.drop(operation.name)
            change.clear()
    if change.is_any:
        change.clear()
    return change.changes()


def copies_of(before: Snapshots, changes: Iterable[Change], value_of: ValueOf) -> list[OnKey]:
    """Return what the commit of a prepared transaction adds to the reserved table. Its prepare has checked the limits."""
    change = _SnapshotChange(before, Content(value_of, lambda _: (), lambda: ()))
    change.keep({row_key_of(each.table, each.key): each for each in changes if isinstance(each, ON_KEYS)}, is_limited=False)
    return change.changes()


def named_in(operations: Iterable[Checked], changes: Iterable[OnKey]) -> tuple[list[str], list[OnKey]]:
    """Return (tables of snapshots that are made, changes of the list of snapshots), for conflicts with prepared transactions."""
    directory = [each for each in changes if each.key.startswith(rows.SNAPSHOT)]
    if not any(isinstance(operation, MakeSnapshot) for operation in operations):
        return [], directory
    made = [table for each in directory if isinstance(each, Put) for table in rows.snapshot_in(each.value)[1]]
    return made, directory


def past_value(numbers: Iterable[int], table: str, key: bytes, value_of: ValueOf) -> bytes:
    """Return the past value of a key. Raises NotFound."""
    for number in numbers:
        copy = value_of(row_key_of(TABLE, rows.copies_key(number) + key))
        if copy is not None:
            value = rows.value_in(copy)
            break
    else:
        value = value_of(row_key_of(table, key))
    if value is None:
        raise NotFound("there is no such key")
    return value


def past_rows(
    numbers: Iterable[int], wanted: KeyRange, rows_of: Callable[[KeyRange], Iterable[tuple[bytes, bytes]]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield past keys and values of a range, in order and within its limit; ``rows_of`` gives all rows of a range, as row keys."""

    def found(place: KeyRange, *, is_copy: bool) -> Iterator[tuple[bytes, bytes | None]]:
        for row_key, value in rows_of(place):
            yield row_key[place.skip :], rows.value_in(value) if is_copy else value

    copies = [found(wanted.within(TABLE, rows.copies_key(number)), is_copy=True) for number in numbers]
    last: bytes | None = None
    left = wanted.limit
    # merge() is stable: for equal keys, the earlier source comes first.
    for key, value in merge(*copies, found(wanted, is_copy=False), key=itemgetter(0), reverse=wanted.is_reverse):
        if key == last:
            continue
        last = key
        if value is not None:
            yield key, value
            left -= 1
            if left == 0:
                return


class _SnapshotChange:
    """The changes of one transaction to the reserved table."""

    def __init__(self, before: Snapshots, content: Content, left_rows: int = 0) -> None:
        """``left_rows`` is the number of copies that can be cleared."""
        self._before = self._after = before
        self._content = content
        self._rows: dict[bytes, bytes | None] = {}
        """Changed keys of the reserved table with their values; None for a deleted one."""
        self.is_any = False
        """Whether the transaction changes any key."""
        self._left_rows, self._left_bytes, self._moved_bytes = left_rows, SIZE_LIMIT_BYTES, 0

    def keep(self, keys: Mapping[bytes, OnKey], *, is_limited: bool = True) -> None:
        """Copy the old values of the changed keys. Raises Rejected."""
        size_bytes = copied_bytes = 0
        for row_key, operation in keys.items():
            table, key = operation.table, operation.key
            after = operation.after
            value = self._content.value_of(row_key)
            if value == after:
                continue
            self.is_any = True
            size_bytes += len(key) + len(after or b"")
            numbers = self._youngest(table)
            if numbers and all(self._row(rows.copies_key(number) + key) is None for number in numbers):
                self._rows[rows.copies_key(numbers[0]) + key] = copy = rows.packed_copy(value)
                copied_bytes += len(key) + len(copy)
        if is_limited and copied_bytes and size_bytes + copied_bytes > SIZE_LIMIT_BYTES:
            raise Rejected(
                f"the transaction changes {size_bytes} bytes of keys and would keep {copied_bytes} bytes for snapshots; "
                f"the limit of both is {SIZE_LIMIT_BYTES}: split it, or drop the snapshots"
            )
        self._left_bytes -= size_bytes + copied_bytes

    def make(self, name: str, tables: tuple[str, ...], keys: Mapping[bytes, OnKey], lsn: Lsn) -> None:
        """Make a snapshot of these tables, or of all tables that have a key. Raises Rejected."""
        after = self._after
        if name in after.named:
            raise Rejected(f"there is a snapshot {name!r} already: drop it, or take another name")
        if not tables:
            held = {*self._content.tables(), *(operation.table for operation in keys.values() if isinstance(operation, Put))}
            tables = tuple(sorted(held - OWN_TABLES))
        if not tables:
            raise Rejected("there is no table to make a snapshot of")
        if len(tables) > rows.TABLES_LIMIT:
            raise Rejected(f"{len(tables)} tables; a snapshot has at most {rows.TABLES_LIMIT}: name those that matter")
        if len(after.named) >= rows.COUNT_LIMIT:
            raise Rejected(f"there are {rows.COUNT_LIMIT} snapshots, which is the limit: drop some")
        for table in tables:
            if len(after.chain(table)) >= rows.A_TABLE_LIMIT:
                raise Rejected(
                    f"table {table!r} has {rows.A_TABLE_LIMIT} snapshots, which is the limit "
                    "(dropped ones count until they are cleared away): drop some"
                )
        last = max((*after.gone, *(number for each in after.named.values() for number in each.numbers.values())), default=0)
        self._put(
            rows.snapshot_key(name), rows.packed_snapshot(lsn, {table: last + place for place, table in enumerate(tables, 1)})
        )

    def drop(self, name: str) -> None:
        """Drop a snapshot. Raises Rejected."""
        found = self._after.named.get(name)
        if found is None:
            raise Rejected(f"there is no snapshot {name!r}")
        self._put(rows.snapshot_key(name), None)
        for table, number in found.numbers.items():
            self._put(rows.gone_key(number), table.encode())

    def clear(self) -> None:
        """Clear dropped snapshots, oldest first, within the limits."""
        for number, table in sorted(self._after.gone.items()):
            older = [each for each in self._after.chain(table) if each < number and each not in self._after.gone]
            beginning = rows.copies_key(number)
            for key, copy in self._copies(beginning):
                kept = rows.copies_key(older[-1]) + key[len(beginning) :] if older else b""
                is_moved = bool(older) and self._row(kept) is None
                size_bytes = len(kept) + len(copy) if is_moved else 0
                is_full = self._moved_bytes > 0 and self._moved_bytes + size_bytes > CLEAR_BYTES
                if self._left_rows == 0 or is_full or len(key) + size_bytes > self._left_bytes:
                    return
                self._left_rows -= 1
                self._left_bytes -= len(key) + size_bytes
                self._moved_bytes += size_bytes
                if is_moved:
                    self._rows[kept] = copy
                self._rows[key] = None
            self._put(rows.gone_key(number), None)

    def changes(self) -> list[OnKey]:
        """Return the changes."""
        changes: list[OnKey] = []
        for key, value in sorted(self._rows.items()):
            before = self._content.value_of(row_key_of(TABLE, key))
            if value != before:
                changes.append(_change(key, value))
        return changes

    def _youngest(self, table: str) -> list[int]:
        """Return the number of the youngest live snapshot of a table and later ones that are not yet cleared; empty if none."""
        numbers = self._after.chain(table)
        for place in range(len(numbers) - 1, -1, -1):
            if numbers[place] not in self._after.gone:
                return numbers[place:]
        return []

    def _row(self, key: bytes) -> bytes | None:
        return self._rows[key] if key in self._rows else self._content.value_of(row_key_of(TABLE, key))

    def _put(self, key: bytes, value: bytes | None) -> None:
        if self._after is self._before:
            self._after = self._before.copy()
        self._rows[key] = value
        self._after.note(_change(key, value))

    def _copies(self, beginning: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys of the reserved table with this beginning, with their values."""
        own = [(key, value) for key, value in self._rows.items() if key.startswith(beginning) and value is not None]
        for row_key, value in self._content.rows_from(row_key_of(TABLE, beginning)):
            key = row_key[len(BEGINNING) :]
            if key not in self._rows:
                yield key, value
        yield from own


def _change(key: bytes, value: bytes | None) -> OnKey:
    return Delete("delete", TABLE, key) if value is None else Put("put", TABLE, key, value)
