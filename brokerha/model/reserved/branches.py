r"""Branches: the three steps of one transaction of a transaction manager, each a transaction in the order, and its prepared value.

    <txid>.p    prepare     judged like any transaction; its changes are kept as one value of a reserved table
    <txid>      commit      makes the kept changes and removes the value; nothing is judged again
    <txid>.r    rollback    removes the value

The body of each begins with a byte that msgpack never uses, so that no client can send one:

    0xC1, then msgpack [step, txid, body]     the body of a prepare has its operations; the others are empty

The value of a prepared branch, under its txid in `TABLE`, is content: the log, fingerprints, copies and backups include it.

>>> branch_of(packed(PREPARE, "t1", b"\x90")), branch_of(b"\x90")
(Branch(step='prepare', txid='t1', body=b'\x90'), None)
>>> prepare_id("t1"), rollback_id("t1"), branch_id("t1.p"), branch_id("t1")
('t1.p', 't1.r', 't1', 't1')
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgpack

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TX_ID_LIMIT, TxId
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign

TABLE: Final = "urn:brokerha:prepared"
PREPARE: Final = "prepare"
COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
PREPARE_MARK: Final = ".p"
ROLLBACK_MARK: Final = ".r"
BRANCH_ID_LIMIT: Final = TX_ID_LIMIT - len(PREPARE_MARK)
"""Limit of characters in the id of a transaction that can be prepared."""
SIZE_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""Limit of the value of one branch: it travels as one line of the log, in one message (wire/codec.py)."""
SUM_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""Limit of all values of branches in a cluster."""
COUNT_LIMIT: Final = 1000
"""Limit of branches prepared at the same time in a cluster."""

FIRST: Final = b"\xc1"
"""First byte of the bodies of the three steps."""


class Branch(NamedTuple):
    """One of the three steps."""

    step: str
    txid: TxId
    """Id of the branch, for every step."""
    body: bytes = b""


def prepare_id(txid: TxId) -> TxId:
    """Return the id of the prepare step."""
    return txid + PREPARE_MARK


def rollback_id(txid: TxId) -> TxId:
    """Return the id of the rollback step."""
    return txid + ROLLBACK_MARK


def named_ids(txid: TxId) -> dict[str, TxId]:
    """Return the id of each step of a branch."""
    return {PREPARE: prepare_id(txid), COMMIT: txid, ROLLBACK: rollback_id(txid)}


def branch_id(txid: TxId) -> TxId:
    """Return the id of the branch that this id belongs to if it is one of the three."""
    return txid.removesuffix(PREPARE_MARK).removesuffix(ROLLBACK_MARK)


def packed(step: str, txid: TxId, body: bytes = b"") -> bytes:
    """Return the body of one of the three."""
    fields: bytes = msgpack.packb((step, txid, body))
    return FIRST + fields


def branch_of(body: bytes) -> Branch | None:
    """Return the step in a body; None for an ordinary transaction. Raises InvalidRequest for a malformed one."""
    if not body.startswith(FIRST):
        return None
    try:
        fields = unpack_foreign(body[1:])
    except BROKEN:
        fields = None
    if not isinstance(fields, tuple) or tuple(map(type, fields)) != (str, str, bytes):
        raise InvalidRequest("the body begins like that of a branch and is none")
    if fields[0] not in {PREPARE, COMMIT, ROLLBACK}:
        raise InvalidRequest(f"a branch is prepared, committed or rolled back, and not {fields[0]!r}")
    return Branch(*fields)
