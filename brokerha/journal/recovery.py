"""What a journal knows when it is opened, read back from its file: it costs the tail, never the length of the log.

1. `meta` says whose journal this is, and in which state the last commit left it.
2. The newest records are verified. LMDB commits a turn whole or not at all, so a bad record at the end is no turn that
   was cut short by a crash: it is damage, and refused (FORMAT.md, section 5).
3. Bodies without an LSN: the rows of `waiting`, then the records from `first_needed` on.
4. The unused ends of the streams, and the ids whose rows are not written yet.

Must never: repair, cut or skip anything. What is damaged here is whole on the peers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import msgpack

from brokerha.journal.beginning import Beginning
from brokerha.journal.current import Current, unpack
from brokerha.journal.database import Database, Table, Tables, translated
from brokerha.journal.decisions import Decisions
from brokerha.journal.directory import damaged, sync_directory
from brokerha.journal.known_ids import KnownIds
from brokerha.journal.limits import READ_AT_ONCE, VERIFIED_AT_OPEN
from brokerha.journal.rows import (
    FORMAT,
    PARKED,
    UPGRADED_FORMAT,
    BadRow,
    body_key,
    checked,
    id_partition,
    id_rows,
    keyed_row,
    number_key,
    number_of,
    read_checked,
    read_keyed_row,
    read_waiting_row,
)
from brokerha.journal.tail import Tail
from brokerha.model.codec import decode_record
from brokerha.model.errors import JournalError, JournalForeign, ProtocolError
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered
from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, EpochInstalled, Record, TxDecided

ENTRIES_AT_ONCE = 1_000

BEGINNING_ROW_BYTES = 400
"""Most bytes that the id of one transaction or its rejection takes in a new journal, about."""

IDENTITY = b"identity"
STATE = b"state"
HISTORY = b"history"


class State(NamedTuple):
    """The row `state` of `meta`: rewritten in every commit."""

    next_number: int
    """Number of the next record."""
    first_needed: int
    """First record that may hold a body without an LSN and without a row in `waiting`."""
    first_waiting: Lsn
    """First LSN whose id may have no row in `ids`."""
    current: Current

    def pack(self) -> bytes:
        """Return its bytes behind a checksum; the history of the current state has a row of its own."""
        return checked(msgpack.packb((self.next_number, self.first_needed, self.first_waiting, self.current.pack())))


def create(database: Database, cluster: str, node: NodeId, begin_at: Beginning | None = None) -> None:
    """Write who owns a new journal, its random name, and what it begins with: all of it, or nothing after a crash."""
    tables = database.tables
    identity = {"format": FORMAT, "cluster": cluster, "node": node, "journal": secrets.token_hex(16)}
    with translated(database.path), database.env.begin(write=True) as txn:
        txn.put(IDENTITY, checked(msgpack.packb(identity)), db=tables.meta)
        current = Current() if begin_at is None else begin_at.current()
        txn.put(STATE, State(1, 1, current.first_lsn, current).pack(), db=tables.meta)
        if begin_at is not None:
            for table, rows in _beginning_rows(tables, begin_at):
                with txn.cursor(table) as cursor:
                    cursor.putmulti(sorted(rows))
    database.refresh()
    sync_directory(database.path.parent)


def _beginning_rows(tables: Tables, begin_at: Beginning) -> Iterator[tuple[Table, list[tuple[bytes, bytes]]]]:
    partitions: dict[int, dict[bytes, Lsn]] = {}
    for txid, lsn in begin_at.ids:
        key = txid.encode()
        partitions.setdefault(id_partition(key), {})[key] = lsn
    yield tables.ids, [row for partition, lsns in partitions.items() for row in id_rows(partition, lsns)]
    keyed = [(number_key(lsn), reason.encode()) for lsn, reason in begin_at.rejections]
    yield tables.rejected, [(key, keyed_row(key, reason)) for key, reason in keyed]
    mark = number_key(begin_at.lsn)
    yield tables.marks, [(mark, keyed_row(mark, number_key(begin_at.last[0])))]


def read_identity(database: Database) -> dict[str, Any] | None:
    """Return format, cluster, node and name of the journal, or None when it is new. Raises JournalDamaged."""
    row = database.get(IDENTITY, database.tables.meta)
    if row is None:
        if database.rows(database.tables.log, b"", 1):
            raise damaged(database.path, "the row that says whose journal it is is missing")
        return None
    return dict(_unpack(database, row))


def check_identity(database: Database, identity: dict[str, Any], cluster: str, node: NodeId) -> None:
    """Raise JournalForeign when the journal belongs to another cluster or node, JournalError for a newer format."""
    if not UPGRADED_FORMAT <= identity["format"] <= FORMAT:
        raise JournalError(
            f"the journal {database.path} has format {identity['format']}, this program reads {UPGRADED_FORMAT} to "
            f"{FORMAT}: use the program that wrote it, or a newer one"
        )
    if (identity["cluster"], identity["node"]) != (cluster, node):
        raise JournalForeign(
            f"the journal in {database.path.parent} belongs to node {identity['node']} of cluster "
            f"{identity['cluster']}, not to node {node} of cluster {cluster}: correct the data directory, the node id "
            "or the cluster's name"
        )


def upgrade(database: Database, identity: dict[str, Any]) -> None:
    """Make a journal of format 2 one of format 3, in one commit; one of format 3 stays as it is.

    What was trimmed so far is unknown: nobody may follow from a record that is there already.
    """
    if identity["format"] == FORMAT:
        return
    state = read_state(database)
    state.current.lacking_to = state.next_number - 1
    with translated(database.path), database.env.begin(write=True) as txn:
        txn.put(IDENTITY, checked(msgpack.packb({**identity, "format": FORMAT})), db=database.tables.meta)
        txn.put(STATE, state.pack(), db=database.tables.meta)
    database.refresh()


def read_state(database: Database) -> State:
    """Return the state that the last commit left. Raises JournalDamaged."""
    row = database.get(STATE, database.tables.meta)
    if row is None:
        raise damaged(database.path, "the row of the current state is missing")
    next_number, first_needed, first_waiting, current = _unpack(database, row)
    history = database.get(HISTORY, database.tables.meta)
    known = unpack(current) if history is None else unpack(current, _checked(database.path, history))
    return State(next_number, first_needed, first_waiting, known)


def next_number_in(environment: lmdb.Environment, path: Path) -> int:
    """Number of the next record of a journal that is not opened as one. Raises JournalDamaged."""
    meta = environment.open_db(b"meta", create=False)
    with environment.begin(db=meta) as transaction:
        return int(_unpacked(path, transaction.get(STATE, b""))[0])


def _unpack(database: Database, row: bytes) -> Any:
    return _unpacked(database.path, row)


def _unpacked(path: Path, row: bytes) -> Any:
    try:
        return msgpack.unpackb(_checked(path, row), use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise damaged(path, f"a row of meta is not what was written ({error})") from error


def _checked(path: Path, row: bytes) -> bytes:
    try:
        return read_checked(row)
    except BadRow as error:
        raise damaged(path, f"a row of meta is not what was written ({error})") from error


def verify_newest(database: Database, next_number: int) -> None:
    """Raise JournalDamaged unless the newest records are what was written: checksums only, nothing is unpacked."""
    start = max(1, next_number - VERIFIED_AT_OPEN)
    while rows := database.records(start, READ_AT_ONCE):
        for number, row in rows:
            database.check(number, row)
        start = rows[-1][0] + 1
    last = database.floor(number_key(2**64 - 1), database.tables.log)
    if last is not None and number_of(last[0]) >= next_number:
        raise damaged(database.path, f"record {number_of(last[0])} is behind the last one, {next_number - 1}")


def records(database: Database, start: int) -> Iterator[tuple[int, Record]]:
    """Return verified records from a number on, in steps, each from one snapshot. Raises JournalDamaged."""
    while True:
        rows = database.records(start, READ_AT_ONCE)
        for number, row in rows:
            yield number, database.unseal(number, row)
            start = number + 1
        if len(rows) < READ_AT_ONCE:
            return


def load_tail(database: Database, node: NodeId, first_needed: int) -> Tail:
    """Return bodies without an LSN and parked transactions; streams come with `load_streams`."""
    tail = Tail(node)
    start, limit = b"", READ_AT_ONCE
    while rows := database.rows(database.tables.waiting, start, limit):
        for key, row in rows:
            mark, origin, txid = read_waiting_row(row)
            tail.spilled[origin, txid] = number_of(key)
            if mark == PARKED:
                tail.parked[txid] = None
        start = rows[-1][0] + b"\0"
    for number, record in records(database, first_needed):
        if isinstance(record, (Accepted, BodiesHeld)):
            tail.hold(number, record)
        elif isinstance(record, Appended) and record.origin == node:
            tail.unpark(record)
        elif isinstance(record, Added):
            tail.settle(record)
        elif isinstance(record, EpochInstalled):
            tail.park(record.epoch)
    _forget_dropped(tail, database, node)
    # Reading back repeats what is already written: nothing of it is to be written again.
    tail.forget_rows()
    return tail


def _forget_dropped(tail: Tail, database: Database, node: NodeId) -> None:
    """Take out duplicates that were used up, or that an epoch left out: no entry of an `Added` record names them."""
    if not database.rows(database.tables.dropped, b"", 1):
        return
    for origin, places in tail.places.items():
        for txid in list(places):
            if database.get(body_key(origin, txid), database.tables.dropped) is not None:
                tail.forget(origin, txid)
                if origin == node:
                    tail.parked.pop(txid, None)


def load_streams(tail: Tail, current: Current, read: Callable[[NodeId, int, int], list[Entry]]) -> None:
    """Read the unused ends of all streams into the tail."""
    for origin, count in current.counts.items():
        used = current.used.get(origin, 0)
        tail.streams[origin] = read(origin, used, count - used)


def load_decisions(database: Database) -> Decisions:
    """Return what is prepared and which decisions are remembered. Raises JournalDamaged, BadRow."""
    decisions = Decisions()
    for number, data in _keyed_rows(database, database.tables.prepared):
        decisions.load_prepared(number, data.decode())
    for number, data in _keyed_rows(database, database.tables.decided):
        decisions.load_decided(number, read_decided(data))
    return decisions


def read_decided(data: bytes) -> TxDecided:
    """Return the decision in a row of `decided`. Raises BadRow."""
    try:
        record = decode_record(data)
    except ProtocolError as error:
        raise BadRow(str(error)) from None
    if not isinstance(record, TxDecided):
        message = f"it is a {type(record).__name__}"
        raise BadRow(message)
    return record


def _keyed_rows(database: Database, table: Table) -> Iterator[tuple[int, bytes]]:
    start = b""
    while rows := database.rows(table, start, READ_AT_ONCE):
        for key, row in rows:
            yield number_of(key), read_keyed_row(key, row)
        start = rows[-1][0] + b"\0"


def load_ids(read: Callable[[Lsn, int], list[Ordered]], first_waiting: Lsn, limit: int) -> KnownIds:
    """Return the ids whose rows may not be written yet."""
    ids = KnownIds(limit)
    ids.start(first_waiting)
    lsn = first_waiting
    while entries := read(lsn, ENTRIES_AT_ONCE):
        ids.add(lsn, tuple(entries))
        lsn += len(entries)
    return ids
