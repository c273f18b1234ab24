"""Claims: the messages of a queue that each master can give to its consumers, as rows of one reserved table.

    key     the queue
    value   msgpack {master: [beat, [message id, ...]]}, masters in order

A master with consumers claims messages before it gives them out, so that consumers at two masters never get the same one. Ordinary
transactions change the row, and expect it unchanged since it was read: if two masters want the same messages, the first in the
order gets them. ``beat`` is the LSN at which its master read the row that it changed, so no two are the same. One that another
master sees unchanged for `LEASE_MS` belongs to a master that is gone, and its claims count no more. No clocks are compared. Ids of
messages that have left the queue are ignored, and the next change removes them.

>>> row = claimed(EMPTY, "m1", ["t.1", "t.2"], lsn=7)
>>> claimed(row, "m2", ["t.3"], lsn=9, expired=["m1"])
{'m2': Claim(beat=9, ids=('t.3',))}
>>> claims_in(packed(row)) == row, packed(claimed(row, "m1", [], lsn=9))
(True, None)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgpack

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign

TABLE: Final = "urn:brokerha:claims"
CLAIM_LIMIT: Final = 1000
"""Limit of messages of one queue that one master claims."""
LEASE_MS: Final = 6000


class Claim(NamedTuple):
    """Claims of one master on one queue."""

    beat: int
    ids: tuple[str, ...]


Claims = Mapping[NodeId, Claim]
EMPTY: Final[Claims] = {}


def claims_in(value: bytes) -> Claims:
    """Return the claims in a row. Raises InvalidRequest."""
    try:
        found = unpack_foreign(value)
        claims = {master: Claim(beat, tuple(ids)) for master, (beat, ids) in found.items()}
    except (*BROKEN, AttributeError, TypeError):
        raise InvalidRequest(f"a row of table {TABLE} is a map of masters to beat and message ids") from None
    for master, claim in claims.items():
        if (
            type(master) is not str
            or type(claim.beat) is not int
            or len(claim.ids) > CLAIM_LIMIT
            or not all(type(each) is str for each in claim.ids)
        ):
            raise InvalidRequest(f"a row of table {TABLE} has a beat and at most {CLAIM_LIMIT} message ids for each master")
    return claims


def packed(claims: Claims) -> bytes | None:
    """Return a row; None when there are no claims."""
    kept = {master: (claim.beat, claim.ids) for master, claim in sorted(claims.items()) if claim.ids}
    value: bytes | None = msgpack.packb(kept) if kept else None
    return value


def claimed(before: Claims, master: NodeId, ids: Iterable[str], lsn: Lsn, expired: Collection[NodeId] = ()) -> Claims:
    """Return a row, read at an LSN, after a master's claims became exactly these; drops claims of ``expired`` masters."""
    kept = {each: claim for each, claim in before.items() if each != master and each not in expired}
    return {**kept, master: Claim(lsn, tuple(ids))}


def problem_of(key: bytes, value: bytes | None) -> str:
    """Return the problem with a key of the table and its value (None: it is deleted), or an empty string."""
    try:
        key.decode()
        if value is not None:
            claims_in(value)
    except UnicodeDecodeError:
        return f"a key of table {TABLE} is the name of a queue"
    except InvalidRequest as error:
        return str(error)
    return ""
