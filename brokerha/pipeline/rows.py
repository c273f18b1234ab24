"""Rows: one for each change of each entry; the columns of the source ``brokerha`` and of the archive.

    entry ──> effect ──> changes 1, 2, … ──> rows       an entry without a change has one row with operation 0

| column | Arrow type | meaning |
|---|---|---|
| `lsn` | int64 | position in the log |
| `operation` | int32 | number of the change within the entry, from 1; 0: the entry changed nothing |
| `part` | int32 | position within a change of several quads, from 0: first removed ones, then added ones |
| `txid` | string | transaction id |
| `origin` | string | master that stamped it; null when the source does not know it |
| `timestamp` | timestamp(us, UTC) | time of the stamp |
| `epoch` | int32 | null when the source does not know it |
| `outcome`, `reason` | string | `applied` or `rejected`, and the reason |
| `user` | string | writer; null when the door did not know it |
| `store` | string | `graph`, `table`, `queue`, `control`, `staged`; null for operation 0 |
| `name` | string | repository, table, queue, check, large transaction |
| `kind` | string | `add`, `remove` (a quad), `put`, `delete`, `publish`, `accept`, `create`, `drop`, `clear` (a repository), `check`, `uncheck`, `staged` |
| `key` | binary | key of a table, or message id; else null |
| `subject` `predicate` `object` `graph` | string | terms of a quad in N-Quads notation; `graph` null for the default graph |
| `value` | binary | value put, body published, or fields of a check or of a large transaction (msgpack list); for `clear` the number of removed quads, in digits; else null |
| `content_type` | string | of a published message; `clear` for a large transaction that empties a repository first |
| `tombstone` | bool | whether the change removes something: `remove`, `delete`, `accept`, `drop`, `clear`, `uncheck` |
| `item_high`, `item_low` | int64 | 128 bits that identify the changed item (below), as two signed numbers |
| `digest_high`, `digest_low` | int64 | the item's part of the fingerprint if the row alone determines it (quads, keys put, checks, repositories); else 0 |
| `fingerprint` | binary | fingerprint of the whole content after the entry |
| `entry_hash` | binary | `entries.entry_hash` |

**Items.** The state at an LSN consists of the last row of each item up to that LSN, by (lsn, operation, part), without items whose
last row is a tombstone. A quad is identified by its digest (stores/comparing/fingerprint.py), a key, message or check by blake2b of
its name (`key_item`, `message_item`, ...), a repository by its digest. Before an entry drops a repository, it has rows that remove
its quads, or one row `clear`, which removes all quads of earlier LSNs. So every removal has a row.
**Large transactions** have one row of kind `staged` at the LSN of their commit, which names rows of earlier LSNs
(model/unfolding.py); `unfolded` makes the rows of their changes.
**Buckets.** The bucket of an item is given by the upper bits of `item_high`; the sign bit is the uppermost.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa

from brokerha.model.control import Check
from brokerha.model.errors import ProtocolError
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.operations import Cleared, Published
from brokerha.model.outside.authors import author_apart
from brokerha.model.reserved.staging import TABLE as STAGED_TABLE
from brokerha.model.reserved.staging import part_of
from brokerha.model.unfolding import changes_in
from brokerha.pipeline.entries import UNKNOWN_EPOCH, UNKNOWN_ORIGIN, LogEntry
from brokerha.stores.comparing.fingerprint import control_digest, repository_digest
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE, check_item
from brokerha.stores.tables.key_range import in_batches

SCHEMA: Final[pa.Schema] = pa.schema([
    ("lsn", pa.int64()),
    ("operation", pa.int32()),
    ("part", pa.int32()),
    ("txid", pa.string()),
    ("origin", pa.string()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("epoch", pa.int32()),
    ("outcome", pa.string()),
    ("reason", pa.string()),
    ("user", pa.string()),
    ("store", pa.string()),
    ("name", pa.string()),
    ("kind", pa.string()),
    ("key", pa.binary()),
    ("subject", pa.string()),
    ("predicate", pa.string()),
    ("object", pa.string()),
    ("graph", pa.string()),
    ("value", pa.binary()),
    ("content_type", pa.string()),
    ("tombstone", pa.bool_()),
    ("item_high", pa.int64()),
    ("item_low", pa.int64()),
    ("digest_high", pa.int64()),
    ("digest_low", pa.int64()),
    ("fingerprint", pa.binary()),
    ("entry_hash", pa.binary()),
])  # fmt: skip
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of effects in a batch, which ends with the entry that reaches it, so memory holds few large values."""

ADD, REMOVE, PUT, DELETE, PUBLISH, ACCEPT = "add", "remove", "put", "delete", "publish", "accept"
CREATE, DROP, CLEAR, CHECK, UNCHECK = "create", "drop", "clear", "check", "uncheck"
STAGED = "staged"

_NO_ITEM: Final = bytes(DIGEST_BYTES)
_OF_CHANGE: Final = (
    "operation", "part", "store", "name", "kind", "key", "subject", "predicate", "object", "graph", "value", "content_type",
    "tombstone", "item", "digest",
)  # fmt: skip
"""Columns that differ between the rows of one entry, in the order of `_Row`; item and digest become two columns each."""
_OF_ENTRY: Final = frozenset(SCHEMA.names) - {*_OF_CHANGE, "item_high", "item_low", "digest_high", "digest_low"}
_Row = tuple[Any, ...]
_Change = tuple[Any, ...]
"""A change in an effect, as stored there."""
_Maker = Callable[[list[_Row], int, _Change, dict[str, Any]], None]
_NOTHING: Final[_Row] = (0, 0, None, None, None, None, None, None, None, None, None, None, False, _NO_ITEM, _NO_ITEM)


def table_of(entries: Iterable[LogEntry], columns: Sequence[str] = SCHEMA.names, stores: frozenset[str] | None = None) -> pa.Table:
    """Return all rows of some entries, in order; with ``stores`` only those of changes to these, and those of large transactions.

    Raises ProtocolError for an effect that no brokerha node makes.
    """
    kept = list(entries)
    with collector_at_rest():
        return _assembled(kept, *_rows_of(kept, "entry_hash" in columns, stores), columns)


def _rows_of(
    kept: list[LogEntry], is_hashed: bool, stores: frozenset[str] | None
) -> tuple[list[int], list[bytes], list[str | None], list[_Row]]:
    """Return the number of rows of each entry, the hash of each entry, its user, and the rows."""
    rows: list[_Row] = []
    counts: list[int] = []
    hashes: list[bytes] = []
    users: list[str | None] = []
    pack = msgpack.Packer().pack if is_hashed else None
    makers = _makers(stores)
    beginnings: dict[str, Any] = {}
    for lsn, txid, _, timestamp, _, outcome, reason, effect, fingerprint in kept:
        if pack is not None:
            hashes.append(sha256(pack((lsn, txid, timestamp, outcome, reason, effect, fingerprint))).digest())
        before = len(rows)
        try:
            changes, user = author_apart(msgpack.unpackb(effect, use_list=False) if effect else ())
            users.append(user or None)
            if not changes and (user or not effect):
                makers[""](rows, 0, (), beginnings)
            for operation, change in enumerate(changes, 1):
                makers[change[0]](rows, operation, change, beginnings)
        except (ValueError, KeyError, IndexError, TypeError, msgpack.UnpackException) as error:
            raise ProtocolError(
                f"the effect of LSN {lsn} is not one that this version knows ({type(error).__name__}: {error})"
            ) from None
        if len(rows) == before and stores is None:
            raise ProtocolError(f"the effect of LSN {lsn} holds no change")
        counts.append(len(rows) - before)
    return counts, hashes, users, rows


@contextlib.contextmanager
def collector_at_rest() -> Iterator[None]:
    """Pause the garbage collector: a quarter of the time went into scanning rows, which have no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def batches_of(
    entries: Iterable[LogEntry], rows: int = BATCH_ROWS, columns: Sequence[str] = SCHEMA.names, stores: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of about ``rows`` rows; an entry is never split."""
    # Only the effect tells the number of rows of an entry, at least one; its size bounds their memory.
    for kept in in_batches(entries, lambda entry: len(entry.effect), rows, BATCH_BYTES):
        yield from table_of(kept, columns, stores).combine_chunks().to_batches()


def _assembled(
    entries: list[LogEntry],
    counts: list[int],
    hashes: list[bytes],
    users: list[str | None],
    rows: list[_Row],
    columns: Sequence[str],
) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    if not rows:
        return schema.empty_table()
    of_entry: dict[str, Sequence[Any]] = dict(zip(LogEntry._fields, zip(*entries, strict=True), strict=True))
    of_entry |= {"origin": [name or None for name in of_entry["origin"]], "epoch": [n or None for n in of_entry["epoch"]]}
    of_entry |= {"entry_hash": hashes, "user": users}
    of_row = dict(zip(_OF_CHANGE, zip(*rows, strict=True), strict=True))
    # Most entries have one row, so no value needs to be repeated.
    places = None if counts.count(1) == len(counts) else pa.array(np.repeat(np.arange(len(counts)), counts))
    found = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name in of_entry:
            column = pa.array(of_entry[name], pa.int64()).cast(kind) if name == "timestamp" else pa.array(of_entry[name], kind)
            found.append(column if places is None else column.take(places))
        else:
            found.append(_of_row(name, kind, of_row))
    return pa.Table.from_arrays(found, schema=schema)


def _of_row(name: str, kind: pa.DataType, of_row: Mapping[str, Sequence[Any]]) -> pa.Array:
    """Return a column that differs between the rows of one entry."""
    if name in of_row:
        return pa.array(of_row[name], kind)
    of_what, _, half = name.partition("_")
    return pa.array(np.frombuffer(b"".join(of_row[of_what]), ">i8").astype("i8").reshape(-1, 2)[:, int(half == "low")])


# ---- one function for each kind of change, which appends its rows


def _quads(rows: list[_Row], operation: int, change: _Change, beginnings: dict[str, Any]) -> None:
    _, repository, removed, added = change
    beginning = beginnings.get(repository)
    if beginning is None:
        # As in stores/comparing/fingerprint.py: the common beginning is hashed once.
        beginning = beginnings[repository] = blake2b(b"q" + repository.encode() + b"\0", digest_size=DIGEST_BYTES)
    part = 0
    for lines, kind, is_gone in ((removed, REMOVE, True), (added, ADD, False)):
        for line in lines:
            subject, predicate, rest = line.split(" ", 2)
            graph = None
            cut = rest.rfind(" ")
            # IRIs and labels of blank nodes contain no quote; each literal ends with one, or with a type after one.
            if cut > 0 and rest[cut + 1] in "<_" and '"' not in (last := rest[cut + 1 :]):
                rest, graph = rest[:cut], last
            state = beginning.copy()
            state.update(line.encode())
            digest = state.digest()
            rows.append((
                operation, part, GRAPH, repository, kind, None, subject, predicate, rest, graph, None, None, is_gone, digest,
                digest,
            ))  # fmt: skip
            part += 1


def _put(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
    _, table, key, value = change
    row_key = table.encode() + b"\0" + key
    item = blake2b(b"K" + row_key, digest_size=DIGEST_BYTES).digest()
    digest = blake2b(b"k" + len(row_key).to_bytes(2, "big") + row_key + value, digest_size=DIGEST_BYTES).digest()
    rows.append((operation, 0, TABLE, table, PUT, key, None, None, None, None, value, None, False, item, digest))


def _publish(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
    _, queue, message_id, content_type, body = change
    key = message_id.encode()
    item = blake2b(b"M" + queue.encode() + b"\0" + key, digest_size=DIGEST_BYTES).digest()
    rows.append((
        operation, 0, QUEUE, queue, PUBLISH, key, None, None, None, None, body, content_type, False, item, _NO_ITEM,
    ))  # fmt: skip


def _taken(letter: bytes, store: str, kind: str) -> _Maker:
    """Return the function for the removal of a key or a message."""

    def make(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
        _, name, called = change
        key = called.encode() if isinstance(called, str) else called
        item = blake2b(letter + name.encode() + b"\0" + key, digest_size=DIGEST_BYTES).digest()
        rows.append((operation, 0, store, name, kind, key, None, None, None, None, None, None, True, item, _NO_ITEM))

    return make


def _repository(kind: str) -> _Maker:
    """Return the function for creating or dropping a repository."""

    def make(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
        _, name = change
        digest = repository_digest(name).to_bytes(DIGEST_BYTES, "big")
        rows.append((
            operation, 0, GRAPH, name, kind, None, None, None, None, None, None, None, kind == DROP, digest, digest,
        ))  # fmt: skip

    return make


def _clear(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
    _, name, quads = change
    item = blake2b(b"E" + name.encode(), digest_size=DIGEST_BYTES).digest()
    rows.append((operation, 0, GRAPH, name, CLEAR, None, None, None, None, None, b"%d" % quads, None, True, item, _NO_ITEM))


def _check(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
    check = Check(*change[1:])
    value = msgpack.packb(tuple(check[1:]))
    digest = control_digest(check).to_bytes(DIGEST_BYTES, "big")
    rows.append((
        operation, 0, CONTROL, check.name, CHECK, None, None, None, None, None, value, None, False, check_item(check.name),
        digest,
    ))  # fmt: skip


def _uncheck(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
    _, name = change
    item = check_item(name)
    rows.append((operation, 0, CONTROL, name, UNCHECK, None, None, None, None, None, None, None, True, item, _NO_ITEM))


def _staged(rows: list[_Row], operation: int, change: _Change, _: dict[str, Any]) -> None:
    _, name, *fields = change
    item = blake2b(b"S" + name.encode(), digest_size=DIGEST_BYTES).digest()
    value = msgpack.packb(fields)
    # So that a reader who looks for it does not have to unpack each value.
    mark = CLEAR if any(len(store) > 2 for store in fields[1]) else None
    rows.append((operation, 0, STAGED, name, STAGED, None, None, None, None, None, value, mark, True, item, _NO_ITEM))


def _nothing(rows: list[_Row], _operation: int, _change: _Change, _beginnings: dict[str, Any]) -> None:
    rows.append(_NOTHING)


def _skip(_rows: list[_Row], _operation: int, _change: _Change, _beginnings: dict[str, Any]) -> None:
    """Make no rows: changes to this store are not wanted."""


_MAKERS: Final[dict[str, tuple[str, _Maker]]] = {
    "quads": (GRAPH, _quads),
    "put": (TABLE, _put),
    "delete": (TABLE, _taken(b"K", TABLE, DELETE)),
    "publish": (QUEUE, _publish),
    "accept": (QUEUE, _taken(b"M", QUEUE, ACCEPT)),
    "create-repository": (GRAPH, _repository(CREATE)),
    "remove-repository": (GRAPH, _repository(DROP)),
    "clear": (GRAPH, _clear),
    "control-add": (CONTROL, _check),
    "control-remove": (CONTROL, _uncheck),
    "staged": (STAGED, _staged),
    "": ("", _nothing),
}
"""Kind of a change -> its store, and the function that makes its rows; the empty kind is for an entry without a change."""


def _makers(stores: frozenset[str] | None) -> dict[str, _Maker]:
    if stores is None:
        return {kind: make for kind, (_, make) in _MAKERS.items()}
    # A large transaction can change any store, and says so only in its parts.
    makers = {kind: make if store in {*stores, STAGED} else _skip for kind, (store, make) in _MAKERS.items()}
    if TABLE not in stores:
        makers |= {kind: _of_parts(make) for kind, (store, make) in _MAKERS.items() if store == TABLE}
    return makers


def _of_parts(make: _Maker) -> _Maker:
    """Return the function that makes rows of the parts of large transactions only."""

    def made(rows: list[_Row], operation: int, change: _Change, beginnings: dict[str, Any]) -> None:
        if change[1] == STAGED_TABLE:
            make(rows, operation, change, beginnings)

    return made


def unfolded(commit: pa.RecordBatch, parts: pa.RecordBatch, columns: Sequence[str]) -> pa.Table:
    """Return the rows of large transactions: ``commit`` has their rows of kind `staged`, each beside the key and value of one part.

    `operation` is the number of the part, or of the message; `part` is the position within that part. Parts whose LSN differs from
    the one in the transaction are left out.
    """
    rows: list[_Row] = []
    counts: list[int] = []
    makers, beginnings = _makers(None), dict[str, Any]()
    columns_of = [*(commit[name] for name in ("name", "value")), *(parts[name] for name in ("lsn", "key", "value"))]
    for name, fields, lsn, key, value in zip(*(column.to_pylist() for column in columns_of), strict=True):
        number = part_of(key)[1]
        of_parts, stores = msgpack.unpackb(fields)
        if number > len(of_parts) or of_parts[number - 1][0] != lsn:
            counts.append(0)
            continue
        published, made = of_parts[number - 1][1], list[_Row]()
        for change in changes_in(name, value, published):
            if isinstance(change, Cleared):
                quads = next(store[2] for store in stores if store[:2] == [GRAPH, change.repository])
                _clear(made, number, change._replace(quads=quads), beginnings)
                continue
            published += isinstance(change, Published)
            makers[change[0]](made, published if isinstance(change, Published) else number, change, beginnings)
        rows += [(operation, part, *rest) for part, (operation, _, *rest) in enumerate(made)]
        counts.append(len(made))
    schema = pa.schema([SCHEMA.field(column) for column in columns])
    if not rows:
        # For example a piece of a message, which changes nothing by itself.
        return schema.empty_table()
    of_row = dict(zip(_OF_CHANGE, zip(*rows, strict=True), strict=True))
    places = pa.array(np.repeat(np.arange(len(counts)), counts))
    return pa.Table.from_arrays(
        [
            commit[field.name].take(places).cast(field.type) if field.name in _OF_ENTRY else _of_row(field.name, field.type, of_row)
            for field in schema
        ],
        schema=schema,
    )


# ---- back to entries


def entries_of(table: pa.Table) -> list[LogEntry]:
    """Return the entries of rows: the exact inverse of `table_of`, from the columns that describe the changes.

    So ``entry_hash(entry)`` differs from the column `entry_hash` when a row was altered. Raises ProtocolError for rows that belong
    to no entry.
    """
    names = ("lsn", "txid", "origin", "timestamp", "epoch", "outcome", "reason", "user", "fingerprint", *_OF_CHANGE[:-2])
    columns = [(table[name].cast(pa.int64()) if name == "timestamp" else table[name]).to_pylist() for name in names]
    found: list[LogEntry] = []
    changes: list[list[Any]] = []
    head: tuple[Any, ...] = ()
    for lsn, txid, origin, timestamp, epoch, outcome, reason, user, fingerprint, operation, *row in zip(*columns, strict=True):
        if not head or lsn != head[0]:
            if head:
                found.append(_entry(head, changes))
            head, changes = (lsn, txid, origin, timestamp, epoch, outcome, reason, user, fingerprint), []
        if operation:
            _take_back(changes, lsn, operation, row)
    if head:
        found.append(_entry(head, changes))
    return found


def entries_in(batches: Iterable[pa.RecordBatch]) -> Iterator[LogEntry]:
    """Yield the entries of batches in order; an entry can span several batches. Raises as `entries_of`."""
    for table in whole_entries(batches, BATCH_ROWS):
        yield from entries_of(table)


def whole_entries(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Cut batches in order into tables of about ``rows`` rows, between entries."""
    waiting: list[pa.RecordBatch] = []
    number = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            number += batch.num_rows
        if number < rows:
            continue
        table = pa.Table.from_batches(waiting)
        # More rows of the last entry can follow.
        whole = int(np.searchsorted(table["lsn"].to_numpy(), table["lsn"][-1].as_py()))
        if whole:
            yield table.slice(0, whole)
        waiting, number = table.slice(whole).to_batches(), number - whole
    if waiting:
        yield pa.Table.from_batches(waiting)


def _entry(head: tuple[Any, ...], changes: list[list[Any]]) -> LogEntry:
    lsn, txid, origin, timestamp, epoch, outcome, reason, user, fingerprint = head
    if user is not None:
        changes.append(["by", user])
    effect: bytes = msgpack.packb(changes) if changes else b""
    return LogEntry(lsn, txid, origin or UNKNOWN_ORIGIN, timestamp, epoch or UNKNOWN_EPOCH, outcome, reason, effect, fingerprint)


def _take_back(changes: list[list[Any]], lsn: int, operation: int, row: list[Any]) -> None:
    """Add a row to the changes of its entry; to the last change if both have the same operation."""
    _part, _store, name, kind, key, subject, predicate, object_, graph, value, content_type, _tombstone = row
    try:
        if kind in {ADD, REMOVE}:
            if operation == len(changes) + 1:
                changes.append(["quads", name, [], []])
            line = f"{subject} {predicate} {object_}" + (f" {graph}" if graph is not None else "")
            changes[operation - 1][3 if kind == ADD else 2].append(line)
            return
        if kind in _CHANGES and operation == len(changes) + 1:
            changes.append(_CHANGES[kind](name, key, value, content_type))
            return
        problem = f"{kind!r} as operation {operation} after {len(changes)}"
    except (ValueError, IndexError, TypeError, AttributeError, msgpack.UnpackException) as error:
        problem = f"{type(error).__name__}: {error}"
    raise ProtocolError(f"the rows of LSN {lsn} are not those of an entry ({problem})")


_CHANGES: Final[dict[str, Callable[[str, Any, Any, Any], list[Any]]]] = {
    PUT: lambda name, key, value, _: ["put", name, key, value],
    DELETE: lambda name, key, _, __: ["delete", name, key],
    PUBLISH: lambda name, key, value, content_type: ["publish", name, key.decode(), content_type, value],
    ACCEPT: lambda name, key, _, __: ["accept", name, key.decode()],
    CREATE: lambda name, *_: ["create-repository", name],
    DROP: lambda name, *_: ["remove-repository", name],
    CLEAR: lambda name, _, value, __: ["clear", name, int(value)],
    CHECK: lambda name, _, value, __: ["control-add", name, *msgpack.unpackb(value)],
    UNCHECK: lambda name, *_: ["control-remove", name],
    STAGED: lambda name, _, value, __: ["staged", name, *msgpack.unpackb(value)],
}
