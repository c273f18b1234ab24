"""Names and numbers: node ids, transaction ids, LSNs, timestamps, entries.

- A **node id** is ``[a-z0-9-]{1,32}``, unique in the whole cluster, and is never used again with an old state.
- A **transaction id** is 1 to 128 visible ASCII characters: the client's idempotency key, or one that the master makes.
- An **LSN** is a position in the synchronised queue; the first transaction has LSN 1, and 0 means "nothing yet".
- A **timestamp** is an integer of microseconds of a hybrid clock: never below physical time when it is drawn, never
  drawn twice by one node, and never going back (rule R2 of the sync protocol).
- An **entry** is what masters agree on: ``(timestamp, txid)`` within the stream of its origin. The body is separate.
- An **instant** has both clocks of a turn: the monotonic one for timers, the wall clock for timestamps. A clock
  that is set back one hour must not stop a timer, and a suspended machine must not stamp in the past.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NodeId = str
TxId = str
Lsn = int
Timestamp = int

Entry = tuple[Timestamp, TxId]
"""One place in the stream of an origin: (timestamp, transaction id)."""

Ordered = tuple[Timestamp, TxId, NodeId]
"""One place in the synchronised queue: (timestamp, transaction id, origin whose body it is)."""

NODE_ID = re.compile(r"[a-z0-9-]{1,32}\Z")
REPOSITORY_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
TX_ID = re.compile(r"[!-~]{1,128}\Z")
TX_ID_LIMIT = 128
_XID = re.compile(r"([0-9]{1,10}):((?:[0-9A-Fa-f]{2})*):((?:[0-9A-Fa-f]{2})*)\Z")


BEGUN_MARK = ".t"
"""Suffix of the ids that a master makes for transactions begun with it, and of no others: they are never handed in elsewhere."""
MADE_PARTS = 3
"""Number of parts of a made id after the master's name: name of its journal, incarnation, number."""


def maker_of(txid: TxId) -> NodeId:
    """Return the master that made this id for a transaction begun with it; empty for every other id.

    >>> maker_of("m1.0a1b2c3d.2.1f.t"), maker_of("m1.0a1b2c3d.2.1f"), maker_of("order.t")
    ('m1', '', '')
    """
    node, *rest = txid.removesuffix(BEGUN_MARK).split(".")
    return node if txid.endswith(BEGUN_MARK) and len(rest) == MADE_PARTS and is_node_id(node) else ""


class Xid(NamedTuple):
    """Name of a transaction given by its coordinator (X/Open XA): format, global part, branch."""

    format_id: int
    gtrid: bytes
    """1 to 64 bytes."""
    bqual: bytes
    """0 to 64 bytes."""

    @property
    def text(self) -> str:
        """``format:gtrid in hex:bqual in hex``; never empty.

        >>> Xid(1, b"order", b"").text
        '1:6f72646572:'
        """
        return f"{self.format_id}:{self.gtrid.hex()}:{self.bqual.hex()}"

    @staticmethod
    def parse(text: str) -> Xid:
        """Return the xid of a text. Raises ValueError, which names the fault."""
        found = _XID.match(text)
        if found is None:
            message = f"{text!r} is no xid: write format:gtrid:bqual, the last two in hexadecimal"
            raise ValueError(message)
        return checked_xid(int(found[1]), bytes.fromhex(found[2]), bytes.fromhex(found[3]))


XID_PART_BYTES = 64


def checked_xid(format_id: int, gtrid: bytes, bqual: bytes) -> Xid:
    """Return the xid of these parts. Raises ValueError, which names the fault."""
    if not 0 <= format_id < 2**31:
        message = f"the format id of an xid is 0 to {2**31 - 1}, not {format_id}"
        raise ValueError(message)
    if not 1 <= len(gtrid) <= XID_PART_BYTES or len(bqual) > XID_PART_BYTES:
        message = f"the parts of an xid have at most {XID_PART_BYTES} bytes each, the first at least one"
        raise ValueError(message)
    return Xid(format_id, gtrid, bqual)


class Instant(NamedTuple):
    """The two clocks of one turn."""

    mono_ms: int
    """Milliseconds of a clock that never goes back; its zero is arbitrary."""
    wall_us: int
    """Microseconds since 1970 by the machine's wall clock, which can jump."""


def is_node_id(text: str) -> bool:
    """Tell whether ``text`` is a valid name of a node or a cluster."""
    return NODE_ID.match(text) is not None


def is_repository_id(text: str) -> bool:
    """Tell whether ``text`` is a valid name of a repository."""
    return REPOSITORY_ID.match(text) is not None


def is_tx_id(text: str) -> bool:
    """Tell whether ``text`` is a valid transaction id (and so an idempotency key)."""
    return TX_ID.match(text) is not None
