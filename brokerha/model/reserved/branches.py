r"""Branches: the three transactions that one of a transaction manager consists of in the order, and where it is kept in between.

    <txid>.p    prepare     judged like any transaction; what it would change is kept, as one value of a reserved table
    <txid>      commit      makes the kept changes and removes the value; nothing is judged again
    <txid>.r    rollback    removes the value

The body of each begins with a byte that no msgpack begins with, so that no client can send one:

    0xC1, then msgpack [step, txid, body]     the body of a prepare is that of its operations; the others have none

The value of a prepared branch, under its txid in `TABLE`, is content like any other: the log, fingerprints, copies and backups hold it.

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
"""Characters of the id of a transaction that can be prepared."""
SIZE_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""Of what one branch keeps: it travels as one line of the log, in one message (wire/codec.py)."""
SUM_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""Of what all branches of a cluster keep together."""
COUNT_LIMIT: Final = 1000
"""Branches of one cluster that are prepared at the same time."""

FIRST: Final = b"\xc1"
"""What the body of each of the three begins with."""


class Branch(NamedTuple):
    """One of the three."""

    step: str
    txid: TxId
    """Of the branch, whichever step it is."""
    body: bytes = b""


def prepare_id(txid: TxId) -> TxId:
    """The id under which a branch is prepared."""
    return txid + PREPARE_MARK


def rollback_id(txid: TxId) -> TxId:
    """The id under which a prepared branch is rolled back."""
    return txid + ROLLBACK_MARK


def named_ids(txid: TxId) -> dict[str, TxId]:
    """The id of each step of a branch."""
    return {PREPARE: prepare_id(txid), COMMIT: txid, ROLLBACK: rollback_id(txid)}


def branch_id(txid: TxId) -> TxId:
    """The id of the branch that an id would belong to, were it one of the three."""
    return txid.removesuffix(PREPARE_MARK).removesuffix(ROLLBACK_MARK)


def packed(step: str, txid: TxId, body: bytes = b"") -> bytes:
    """The body of one of the three."""
    fields: bytes = msgpack.packb((step, txid, body))
    return FIRST + fields


def branch_of(body: bytes) -> Branch | None:
    """What a body is of these; None for that of an ordinary transaction. Raises InvalidRequest for one that no node makes."""
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
