"""Expectations: demands of a transaction on the state before it, judged before its other operations.

All of them are about the state before the transaction, so their place among its operations does not matter. The first that fails,
in the order of the operations, is the reason of the rejection. Depends on the content, the LSNs of the last changes and the
operations alone, so that every site gives the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from brokerha.model.control import shortened
from brokerha.model.errors import CONFLICT, Rejected
from brokerha.model.etags import etag_of
from brokerha.model.fingerprints import from_text, text_of
from brokerha.model.ids import Lsn
from brokerha.model.operation_checks import RANGE_DIGEST_BYTES
from brokerha.model.operations import Checked, ExpectFingerprint, ExpectKey, ExpectRange, ExpectSince
from brokerha.stores.tables.key_range import row_key_of, rows_between


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
