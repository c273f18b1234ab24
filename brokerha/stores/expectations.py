"""Expectations: what a transaction demands of the state before it, judged before anything else of it is looked at.

All of them are about the state that the transaction finds, whatever its own operations do, so that their place among these does
not matter. The first that fails, in the order of the operations, is the reason of the rejection. Depends on the content, on the LSNs
of the last changes and on the operations alone, so that every site gives the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from brokerha.model.control import shortened
from brokerha.model.errors import Rejected
from brokerha.model.etags import etag_of
from brokerha.model.fingerprints import from_text, text_of
from brokerha.model.ids import Lsn
from brokerha.model.operations import Operation
from brokerha.stores.key_range import row_key_of


class Before(NamedTuple):
    """The state before a transaction."""

    value_of: Callable[[bytes], bytes | None]
    """Row key -> value; None when there is no such key."""
    changed_lsn: Callable[[str, str], Lsn]
    """Kind and name of a store -> LSN of the last transaction that changed it; 0 for never."""
    fingerprint: bytes


def judge_expectations(operations: Iterable[Operation], before: Before) -> None:
    """Raise Rejected with the first expectation that does not hold; other operations are left out."""
    for operation in operations:
        kind = operation[0]
        if kind == "expect-key":
            _judge_key(operation[1], operation[2], operation[3], before)
        elif kind == "expect-since":
            found = before.changed_lsn(operation[1], operation[2])
            if found > operation[3]:
                raise Rejected(
                    f"expected {operation[1]} {operation[2]!r} unchanged since LSN {operation[3]}, "
                    f"it was changed at LSN {found}"
                )
        elif kind == "expect-fingerprint" and from_text(operation[1]) != before.fingerprint:
            raise Rejected(f"expected fingerprint {operation[1]}, found {text_of(before.fingerprint)}")


def _judge_key(table: str, key: bytes, etag: str, before: Before) -> None:
    value = before.value_of(row_key_of(table, key))
    found = "" if value is None else etag_of(value)
    if found != etag:
        name = shortened(key.decode(errors="backslashreplace"))
        raise Rejected(f"key {name!r} of table {table!r}: expected {_said(etag)}, found {_said(found)}: read it again")


def _said(etag: str) -> str:
    return f"ETag {etag}" if etag else "no such key"
