"""The control suite on disk: one row for each check, in its own LMDB table, written by the commit of its transaction.

    key    name of the check
    row    digest, 16 bytes | msgpack [kind, target, text, expected]      the digest is the check's part of the fingerprint

As with keys (tables/key_value.py), the digest finds a row that the disk changed. A copy of a store includes these rows.
"""

from __future__ import annotations

from typing import Any

import msgpack

from brokerha.model.control import Check
from brokerha.model.errors import StoreDamaged
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.operations import ControlAdd, OnControl
from brokerha.stores.comparing.fingerprint import control_digest
from brokerha.stores.control.suite import Suite
from brokerha.stores.files.environment import WriteTransaction


def read_suite(transaction: Any, table: Any) -> Suite:
    """Return the checks of the last commit. Raises StoreDamaged when a digest does not match."""
    with transaction.cursor(table) as cursor:
        return Suite(_read(key, row) for key, row in cursor)


def keep(transaction: WriteTransaction, table: Any, before: Suite, change: OnControl) -> tuple[Suite, int]:
    """Write a change of an effect; return the suite after it and the change of the fingerprint."""
    name = change.name
    old = before.checks.get(name)
    difference = 0 if old is None else control_digest(old)
    if isinstance(change, ControlAdd):
        digest = control_digest(Check(*change[1:]))
        difference ^= digest
        transaction.put(name.encode(), digest.to_bytes(DIGEST_BYTES, "big") + msgpack.packb(change[2:]), db=table)
    else:
        transaction.delete(name.encode(), db=table)
    return before.changed(change), difference


def _read(key: bytes, row: bytes) -> Check:
    damaged = StoreDamaged(f"check {key!r} of the control suite is damaged; take the content from another worker")
    try:
        kind, target, text, expected = msgpack.unpackb(row[DIGEST_BYTES:])
        check = Check(key.decode(), kind, target, text, expected)
        digest = control_digest(check)
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        raise damaged from None
    if digest.to_bytes(DIGEST_BYTES, "big") != row[:DIGEST_BYTES]:
        raise damaged
    return check
