"""The LSN of the last change of each store: rows beside the data, written in the same commit.

    key    kind, NUL, name of the store          kind: graph (a repository), table, queue
    row    CRC-32 of key and LSN, 4 bytes | LSN, 8 bytes big-endian

The LSN is that of the last transaction with an effect on the store, executed or applied. A deleted store keeps its row; a store
that never existed has LSN 0. The row ``before`` is in copies that an older version began: a store without a row counts as changed
at that LSN. These rows are history, not content: they are no part of the fingerprint.

Expectations: demands of a transaction on the state before it, judged before its other operations.

All of them are about the state before the transaction, so their place among its operations does not matter. The first that fails,
in the order of the operations, is the reason of the rejection. Depends on the content, the LSNs of the last changes and the
operations alone, so that every site gives the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from brokerha.model.control import shortened
from brokerha.model.errors import CONFLICT, Rejected, StoreDamaged
from brokerha.model.etags import etag_of
from brokerha.model.fingerprints import from_text, text_of
from brokerha.model.ids import Lsn
from brokerha.model.operation_checks import GRAPH, QUEUE, RANGE_DIGEST_BYTES, TABLE
from brokerha.model.operations import Change, Checked, ExpectFingerprint, ExpectKey, ExpectRange, ExpectSince
from brokerha.stores.files.environment import WriteTransaction
from brokerha.stores.tables.key_range import row_key_of, rows_between

STORE_OF: Final = {
    "put": TABLE,
    "delete": TABLE,
    "quads": GRAPH,
    "clear": GRAPH,
    "create-repository": GRAPH,
    "remove-repository": GRAPH,
    "publish": QUEUE,
    "accept": QUEUE,
}
"""Kind of change -> kind of store."""
_BEFORE: Final = b"before"

Store = tuple[str | None, str]
"""Kind and name; None stands for the control suite, which is not a store."""


class LastChanges:
    """The rows of the table, and the changes since the last commit."""

    __slots__ = ("_now", "_table")

    def __init__(self, table: Any) -> None:
        self._table = table
        self._now: dict[Store, Lsn] = {}

    def note(self, changes: Iterable[Change], lsn: Lsn) -> None:
        """Note that the transaction at this LSN has these changes."""
        kind = name = None
        for change in changes:
            # Changes are sorted, and mostly about one store.
            if change[1] != name or change[0] != kind:
                kind, name = change[0], change[1]
                self._now[STORE_OF.get(kind), name] = lsn

    def note_stores(self, stores: Iterable[Store], lsn: Lsn) -> None:
        """Note that the transaction at this LSN changes these stores."""
        self._now.update(dict.fromkeys(stores, lsn))

    def lsn_of(self, transaction: Any, kind: str, name: str) -> Lsn:
        """Return the LSN of the last change of a store; 0 for never. Raises StoreDamaged."""
        lsn = self._now.get((kind, name))
        if lsn is not None:
            return lsn
        for key in (_key(kind, name), _BEFORE):
            row = transaction.get(key, db=self._table)
            if row is not None:
                return checked_lsn(key, row)
        return 0

    def write(self, transaction: WriteTransaction) -> None:
        """Write the noted changes, within a commit."""
        write_rows(transaction, self._table, self._now)
        self._now = {}


def write_rows(transaction: WriteTransaction, table: Any, changes: Mapping[Store, Lsn]) -> None:
    """Write the LSNs of these stores, without the control suite."""
    for (kind, name), lsn in changes.items():
        if kind is not None:
            _put(transaction, table, _key(kind, name), lsn)


def begin_at(transaction: WriteTransaction, table: Any, lsn: Lsn) -> None:
    """Let stores without a row count as changed at this LSN."""
    _put(transaction, table, _BEFORE, lsn)


def lower_rows(transaction: WriteTransaction, table: Any, lsn: Lsn) -> None:
    """Lower LSNs above this one to it, as the store now stands there. Raises StoreDamaged."""
    with transaction.cursor(table) as cursor:
        keys = [bytes(key) for key, row in cursor if checked_lsn(bytes(key), bytes(row)) > lsn]
    for key in keys:
        _put(transaction, table, key, lsn)


def check_rows(transaction: Any, table: Any) -> None:
    """Raise StoreDamaged at the first damaged row."""
    with transaction.cursor(table) as cursor:
        for key, row in cursor:
            checked_lsn(key, row)


def checked_lsn(key: bytes, row: bytes) -> Lsn:
    """Return the LSN in a row. Raises StoreDamaged."""
    if len(row) != 12 or crc32(row[4:], crc32(key)) != int.from_bytes(row[:4], "big"):
        raise StoreDamaged(f"the last change of {key!r} is damaged; take the content from another worker")
    return int.from_bytes(row[4:], "big")


def _key(kind: str, name: str) -> bytes:
    return f"{kind}\0{name}".encode()


def _put(transaction: WriteTransaction, table: Any, key: bytes, lsn: Lsn) -> None:
    body = lsn.to_bytes(8, "big")
    transaction.put(key, crc32(body, crc32(key)).to_bytes(4, "big") + body, db=table)


class Before(NamedTuple):
    """The state before a transaction."""

    value_of: Callable[[bytes], bytes | None]
    """Row key -> value; None when there is no such key."""
    changed_lsn: Callable[[str, str], Lsn]
    """Kind and name of a store -> LSN of the last transaction that changed it; 0 for never."""
    fingerprint: bytes
    range_digest: Callable[[bytes, bytes], bytes]
    """First row key and the one after the last -> digest of the rows between (`range_digest`)."""


def judge_expectations(operations: Iterable[Checked], before: Before) -> None:
    """Raise Rejected with the first expectation that fails; ignore other operations."""
    for operation in operations:
        match operation:
            case ExpectKey():
                _judge_key(operation.table, operation.key, operation.etag, before)
            case ExpectSince():
                found = before.changed_lsn(operation.store, operation.name)
                if found > operation.lsn:
                    raise Rejected(
                        f"{CONFLICT}expected {operation.store} {operation.name!r} unchanged since LSN {operation.lsn}, "
                        f"it was changed at LSN {found}"
                    )
            case ExpectRange():
                rows = rows_between(operation.table, operation.first, operation.end)
                if before.range_digest(*rows) != operation.digest:
                    raise Rejected(
                        f"{CONFLICT}keys of table {operation.table!r} from {_named(operation.first)} on were changed: read them again"
                    )
            case ExpectFingerprint() if from_text(operation.fingerprint) != before.fingerprint:
                raise Rejected(f"{CONFLICT}expected fingerprint {operation.fingerprint}, found {text_of(before.fingerprint)}")


def range_digest(digests: Iterable[bytes]) -> bytes:
    """Return the digest of a range: the XOR of the digests of its rows, as in the fingerprint."""
    found = 0
    for digest in digests:
        found ^= int.from_bytes(digest, "big")
    return found.to_bytes(RANGE_DIGEST_BYTES, "big")


def _judge_key(table: str, key: bytes, etag: str, before: Before) -> None:
    value = before.value_of(row_key_of(table, key))
    found = "" if value is None else etag_of(value)
    if found != etag:
        raise Rejected(
            f"{CONFLICT}key {_named(key)} of table {table!r}: expected {_said(etag)}, found {_said(found)}: read it again"
        )


def _named(key: bytes) -> str:
    return repr(shortened(key.decode(errors="backslashreplace")))


def _said(etag: str) -> str:
    return f"ETag {etag}" if etag else "no such key"
