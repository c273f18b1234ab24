"""Verification: reads a whole journal and names every problem, for `brokerha log verify`.

Three passes, none of which changes or repairs anything:

1. The pages of the file, by LMDB's own offline check: a walk over all tables that does not trust any page.
2. The log, from its first record to its last: checksum, decoding, that each record follows on the ones before it, and
   that the index rows of each record say what the record says.
3. The index rows, and that each points to a record that is there.

A problem is one sentence that names the record or row; the first pass may end the run, because a table whose pages are
bad cannot be read through LMDB. No turn may be appended meanwhile: use it on a journal that is closed, or one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from lmdb.verify import VerifyError
from lmdb.verify import verify as verify_pages

from brokerha.journal.database import Database, Table
from brokerha.journal.directory import DATA, Directory, check_file
from brokerha.journal.limits import MAP_SIZE_BYTES, READ_AT_ONCE, UNPACKED_BYTES
from brokerha.journal.promise import read_promise
from brokerha.journal.recent import Unpacked
from brokerha.journal.recovery import State, read_decided, read_identity, read_state
from brokerha.journal.rewinding import is_given
from brokerha.journal.rows import (
    ID_PREFIXES,
    ITEM_BITS,
    ITEMS_LIMIT,
    BadRow,
    added_key,
    counted_row,
    id_partition,
    keyed_row,
    number_key,
    number_of,
    read_added_key,
    read_added_row,
    read_counted_row,
    read_id_row,
    read_keyed_row,
    stream_key,
)
from brokerha.journal.split_book import check_row
from brokerha.model.codec import encode_record
from brokerha.model.epochs import FIRST
from brokerha.model.errors import JournalError
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operations import REJECTED
from brokerha.model.records import (
    VIEWS_KEPT,
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    EpochInstalled,
    Outcomes,
    Rebased,
    Record,
    Rewound,
    StateTaken,
    TxDecided,
    TxPrepared,
    ViewStarted,
)


def verify_directory(path: Path) -> Iterator[str]:
    """Yield every problem of the journal in a directory that no process has open; nothing for a sound one.

    Raises JournalInUse, and JournalError when there is no journal.
    """
    if not (path / DATA).exists():
        raise JournalError(f"there is no journal in {path}")
    directory = Directory(path)
    try:
        problems = _pages(directory.data)
        yield from problems
        if problems:
            return
        database = Database(directory.data, MAP_SIZE_BYTES)
        try:
            yield from _contents(database)
        finally:
            database.close()
    finally:
        directory.close()


def verify(database: Database) -> Iterator[str]:
    """Yield every problem of an open journal as a sentence; nothing for a sound one."""
    problems = _pages(database.path)
    yield from problems or _contents(database)


def _pages(path: Path) -> list[str]:
    """Return the problems of the file below its tables, without LMDB, which might not survive them."""
    try:
        check_file(path)
        return [f"pages: {problem}" for problem in verify_pages(str(path), False)]  # type: ignore[no-untyped-call]
    except (JournalError, VerifyError) as error:
        return [str(error)]


def _contents(database: Database) -> Iterator[str]:
    try:
        identity = read_identity(database)
        if identity is None:
            yield f"the journal {database.path} is empty"
            return
        database.name(identity["journal"])
        yield from _LogCheck(database, identity["node"], read_state(database)).problems()
        yield from _rows_without_records(database)
        yield from _bad_ids(database)
        yield from _bad_keyed_rows(database)
        yield from _bad_splits(database)
        read_promise(database.path.parent)
    except (JournalError, BadRow) as error:
        yield str(error)


class _LogCheck:
    """The second pass."""

    def __init__(self, database: Database, node: NodeId, state: State) -> None:
        self._database = database
        self._node = node
        self._state = state
        self._unpacked = Unpacked(UNPACKED_BYTES)
        self._next_lsn: Lsn = state.current.first_lsn
        self._next_result: Lsn = 0
        self._counts: dict[NodeId, int] = {}
        self._prepared: dict[TxId, int] = {}
        self._views: list[tuple[int, int]] = []
        self._installed = (FIRST, 0)
        """Id of the last epoch, and number of its record."""
        self._rewound = self._given_up = 0
        """Numbers of the last `Rewound`, and of the last record that was given up."""
        self._gone_back = {state.current.lsn} if state.current.rewound_by else set[Lsn]()
        self._shorter: dict[Lsn, int] = {}
        """Where records end whose rows are shorter than they are, with their numbers."""

    def problems(self) -> Iterator[str]:
        """Yield the problems of all records, then of the current state."""
        start = 0
        while rows := self._database.records(start, READ_AT_ONCE):
            for number, row in rows:
                start = number + 1
                try:
                    yield from self._check(number, self._database.unseal(number, row))
                except JournalError as error:
                    yield str(error)
                except BadRow as error:
                    yield f"an index row of record {number}: {error}"
        current = self._state.current
        if self._next_lsn != current.lsn + 1:
            yield f"the log ends with LSN {self._next_lsn - 1}, the current state says {current.lsn}"
        if self._next_result not in {0, current.executed_lsn + 1}:
            yield f"results end with LSN {self._next_result - 1}, the current state says {current.executed_lsn}"
        for origin, count in self._counts.items():
            if count != current.counts.get(origin, 0):
                yield f"the stream of {origin} ends with {count} entries, the current state says otherwise"
        if self._views != list(current.views)[len(current.views) - len(self._views) :]:
            yield f"the log ends with the views {self._views}, the current state says {current.views}"
        if self._installed != (current.installed, current.installed_by):
            yield (
                f"the log ends with the epoch {self._installed[0]} of record {self._installed[1]}, the current state says "
                f"{current.installed} of record {current.installed_by}"
            )
        yield from self._check_prepared()
        yield from self._check_back()

    def _check_back(self) -> Iterator[str]:
        if self._given_up > self._rewound:
            yield f"record {self._given_up} is marked as given up, and nothing says so"
        for lsn, number in self._shorter.items():
            if lsn not in self._gone_back:
                yield f"the index row of record {number} ends with LSN {lsn}, and the record does not"

    def _check_prepared(self) -> Iterator[str]:
        for key, row in _all(self._database, self._database.tables.prepared):
            number, txid = number_of(key), read_keyed_row(key, row).decode("ascii", "replace")
            if self._prepared.pop(txid, 0) != number:
                yield f"transaction {txid} is prepared by record {number}, and the log does not say so"
        for txid, number in self._prepared.items():
            yield f"transaction {txid} of record {number} is prepared and not decided, and has no row in prepared"

    def _check(self, number: int, record: Record) -> Iterator[str]:
        if number >= self._state.next_number:
            yield f"record {number} is behind the last one"
        if not self._is_given_up(number, record):
            yield from self._check_record(number, record)

    def _check_record(self, number: int, record: Record) -> Iterator[str]:
        if isinstance(record, Added):
            yield from self._check_added(number, record)
        elif isinstance(record, Appended) and record.entries:
            expected = self._counts.get(record.origin, record.start)
            if record.start != expected:
                yield f"record {number} continues the stream of {record.origin} at {record.start}, not {expected}"
            self._counts[record.origin] = record.start + len(record.entries)
            key = stream_key(record.origin, record.start)
            yield from self._points_here(self._database.tables.stream, key, number, len(record.entries))
        elif isinstance(record, (Rebased, StateTaken)):
            yield from self._check_rebased(number, record)
        elif isinstance(record, EpochInstalled):
            yield from self._check_installed(number, record)
        elif isinstance(record, ViewStarted):
            self._views = [*self._views, (record.view, number)][-VIEWS_KEPT:]
        elif isinstance(record, TxPrepared):
            self._prepared[record.txid] = number
        elif isinstance(record, TxDecided):
            self._prepared.pop(record.txid, None)
            yield from self._check_decided(number, record)
        elif isinstance(record, Outcomes) and record.results:
            if self._next_result not in {0, record.first_lsn}:
                yield f"record {number} has results from LSN {record.first_lsn}, not {self._next_result}"
            key = number_key(record.first_lsn)
            row = self._database.get(key, self._database.tables.outcomes)
            count = self._count(number, record.first_lsn, len(record.results), read_counted_row(row)[1] if row else 0)
            self._next_result = record.first_lsn + count
            yield from self._points_here(self._database.tables.outcomes, key, number, count)
            yield from self._check_rejections(record, count)

    def _is_given_up(self, number: int, record: Record) -> bool:
        """Whether a record of the queue or of results was given up; it has no index row then."""
        if isinstance(record, Rewound):
            self._rewound = number
            self._gone_back.add(record.lsn)
        if isinstance(record, (Added, Outcomes)) and is_given(self._database, number):
            self._given_up = number
            return True
        return False

    def _check_installed(self, number: int, record: EpochInstalled) -> Iterator[str]:
        epoch = record.epoch
        self._installed = (epoch.id, number)
        data = self._database.get(added_key(epoch.base_lsn + 1, number), self._database.tables.added)
        if data is None:
            # The last epoch stays when what was added before it is trimmed.
            if is_given(self._database, number):
                # How much of the streams behind it is trimmed is not known here.
                self._counts = {origin: count for origin, count in self._counts.items() if origin not in epoch.starts}
            elif epoch.base_lsn >= self._state.current.first_lsn:
                yield f"record {number} has no index row"
            return
        if epoch.base_lsn + 1 != self._next_lsn:
            yield f"record {number} begins an epoch behind LSN {epoch.base_lsn}, not {self._next_lsn - 1}"
        row = read_added_row(data)
        if row.places or row.used != epoch.starts:
            yield f"the index row of record {number} is not what the record says"
        self._counts.update(epoch.starts)

    def _count(self, number: int, first_lsn: Lsn, whole: int, count: int) -> int:
        """How many LSNs of a record its row has, which may be fewer when the queue went back to the last of them."""
        if not 0 < count < whole:
            return whole
        self._shorter[first_lsn + count - 1] = number
        return count

    def _check_rejections(self, record: Outcomes, count: int) -> Iterator[str]:
        for lsn, (outcome, reason, _, _) in enumerate(record.results[:count], record.first_lsn):
            if lsn < self._state.current.first_lsn:
                continue  # It may be forgotten while its record stays for the results behind it.
            key = number_key(lsn)
            row = self._database.get(key, self._database.tables.rejected)
            expected = keyed_row(key, reason.encode()) if outcome == REJECTED else None
            if row != expected:
                yield f"whether LSN {lsn} was rejected, and why, is not what its result says"

    def _check_rebased(self, number: int, record: Rebased | StateTaken) -> Iterator[str]:
        if isinstance(record, StateTaken):
            yield from self._check_taken(number, record)
        if self._next_result:
            yield f"record {number} makes all results before it void, and some are still there"
        self._next_result = 0

    def _check_taken(self, number: int, record: StateTaken) -> Iterator[str]:
        """It stays as long as nothing behind it is trimmed, and nothing of the queue stays that was before it."""
        current = self._state.current
        if (current.first_lsn, self._next_lsn) != (record.lsn + 1, record.lsn + 1):
            yield f"record {number} makes the queue go on behind LSN {record.lsn}, and the log does not"

    def _check_decided(self, number: int, record: TxDecided) -> Iterator[str]:
        """A decision that is not remembered may be forgotten; one that is remembered is that of the record."""
        key = number_key(number)
        row = self._database.get(key, self._database.tables.decided)
        if row is not None and row != keyed_row(key, encode_record(record)):
            yield f"the decision about {record.txid} is not what record {number} says"

    def _points_here(self, table: Table, key: bytes, number: int, count: int) -> Iterator[str]:
        if self._database.get(key, table) != counted_row(number, count):
            yield f"the index row of record {number} is not what the record says"

    def _check_added(self, number: int, record: Added) -> Iterator[str]:
        if record.first_lsn != self._next_lsn:
            yield f"record {number} adds from LSN {record.first_lsn}, not {self._next_lsn}"
        data = self._database.get(added_key(record.first_lsn, number), self._database.tables.added)
        self._next_lsn = record.first_lsn + len(record.entries)
        if data is None:
            yield f"record {number} has no index row"
            return
        row = read_added_row(data)
        count = self._count(number, record.first_lsn, len(record.entries), len(row.places))
        self._next_lsn = record.first_lsn + count
        if len(row.places) != count or row.used != record.used:
            yield f"the index row of record {number} is not what the record says"
            return
        for lsn, (place, entry) in enumerate(zip(row.places, record.entries, strict=False), record.first_lsn):
            yield from self._check_entry(lsn, place, entry[2], entry[1])

    def _check_entry(self, lsn: Lsn, place: int, origin: NodeId, txid: TxId) -> Iterator[str]:
        if place and self._body_at(place) != (origin, txid):
            yield f"LSN {lsn} has the body of another transaction than {txid} of {origin}"
        key = txid.encode()
        row = self._database.get_id(ID_PREFIXES[id_partition(key)] + key)
        if row is None:
            if lsn < self._state.first_waiting:
                yield f"transaction {txid} of LSN {lsn} has no row in ids"
        elif read_id_row(key, row) != lsn:
            yield f"transaction {txid} has LSN {lsn} in the log and another one in ids"

    def _body_at(self, place: int) -> tuple[NodeId, TxId] | None:
        number, index = place >> ITEM_BITS, place & (ITEMS_LIMIT - 1)
        record = self._unpacked.get(number)
        if record is None:
            try:
                record, size_bytes = self._database.record(number)
            except JournalError:
                return None
            self._unpacked.add(number, record, size_bytes)
        if isinstance(record, Accepted) and index < len(record.items):
            return self._node, record.items[index][0]
        if isinstance(record, BodiesHeld) and index < len(record.items):
            return record.items[index][:2]
        return None


def _rows_without_records(database: Database) -> Iterator[str]:
    """Yield the index rows whose record is not there."""
    tables = database.tables
    numbers: tuple[tuple[str, Table, Callable[[bytes, bytes], int]], ...] = (
        ("added", tables.added, lambda key, _: read_added_key(key)[1]),
        ("outcomes", tables.outcomes, lambda _, row: read_counted_row(row)[0]),
        ("stream", tables.stream, lambda _, row: read_counted_row(row)[0]),
        ("dropped", tables.dropped, lambda _, row: number_of(row) >> ITEM_BITS),
        ("waiting", tables.waiting, lambda key, _: number_of(key) >> ITEM_BITS),
        ("trimmed", tables.trimmed, lambda key, _: number_of(key)),
        ("prepared", tables.prepared, lambda key, _: number_of(key)),
        ("given", tables.given, lambda key, _: number_of(key)),
    )
    for name, table, number_in in numbers:
        for key, row in _all(database, table):
            number = number_in(key, row)
            if database.get(number_key(number), tables.log) is None:
                yield f"row {key.hex()} of {name} points to record {number}, which is missing"


def _bad_ids(database: Database) -> Iterator[str]:
    for key, row in _all(database, database.tables.ids):
        txid = key[2:]
        try:
            read_id_row(txid, row)
        except BadRow as error:
            yield f"transaction {txid.decode('ascii', 'replace')}: {error}"
        if key[:2] != ID_PREFIXES[id_partition(txid)]:
            yield f"transaction {txid.decode('ascii', 'replace')} lies in the wrong partition of ids"


def _bad_keyed_rows(database: Database) -> Iterator[str]:
    tables = database.tables
    for name, table in (("rejected", tables.rejected), ("marks", tables.marks), ("decided", tables.decided)):
        for key, row in _all(database, table):
            try:
                data = read_keyed_row(key, row)
                if table is tables.decided:
                    read_decided(data)
            except BadRow as error:
                yield f"row {key.hex()} of {name}: {error}"


def _bad_splits(database: Database) -> Iterator[str]:
    for key, row in _all(database, database.tables.splits):
        try:
            check_row(key, row)
        except BadRow as error:
            yield f"row {key.hex()} of splits: {error}"


def _all(database: Database, table: Table) -> Iterator[tuple[bytes, bytes]]:
    start = b""
    while rows := database.rows(table, start, READ_AT_ONCE):
        yield from rows
        start = rows[-1][0] + b"\0"
