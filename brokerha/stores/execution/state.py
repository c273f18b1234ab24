"""Where a store stands: the one row that every commit writes beside the data that it is about.

    StoreState(lsn, fingerprint, items, repositories)      name -> RepositoryState(directory, ...)

What a repository has durably is known here and not only there, because an engine that lost its last writes with the power looks
exactly like one that never had them.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

import msgpack

from brokerha.model.errors import StoreDamaged
from brokerha.model.ids import Lsn
from brokerha.stores.control.suite import EMPTY, Suite
from brokerha.stores.files.environment import WriteTransaction

_KEY, _LINEAGE_KEY = b"state", b"lineage"


class RepositoryState(NamedTuple):
    """What the store knows of one repository."""

    directory: str
    """Name of its directory; never used twice, so that a repository made again begins empty."""
    flushed_position: Lsn
    """Position that its engine had when it was last made durable; it can never be found below it again."""
    base_lsn: Lsn
    """Everything that changed it up to this LSN is durable in its engine; never below `flushed_position`."""
    items: int
    """Quads held."""
    digest: bytes = b""
    """XOR of their digests, so that all of them can go in one step; empty where an older version wrote the state."""


class StoreState(NamedTuple):
    """Everything that moves with the applied LSN."""

    lsn: Lsn
    fingerprint: int
    items: int
    """Quads, keys and messages."""
    repositories: dict[str, RepositoryState]
    suite: Suite = EMPTY
    """The control suite; it has rows of its own (control/table.py)."""


def write_state(transaction: WriteTransaction, meta: Any, state: StoreState) -> None:
    """Write the state within a commit."""
    fingerprint = state.fingerprint.to_bytes(16, "big")
    body = msgpack.packb((state.lsn, fingerprint, state.items, state.repositories))
    transaction.put(_KEY, crc32(body).to_bytes(4, "big") + body, db=meta)


def write_lineage(transaction: WriteTransaction, meta: Any, lineage: int) -> None:
    """Write which log the store follows, in a row of its own: it changes after a split only."""
    body = msgpack.packb(lineage)
    transaction.put(_LINEAGE_KEY, crc32(body).to_bytes(4, "big") + body, db=meta)


def read_lineage(transaction: Any, meta: Any) -> int:
    """Which log the store follows; 0 when it was never told. Raises StoreDamaged."""
    row = transaction.get(_LINEAGE_KEY, db=meta)
    if row is None:
        return 0
    if len(row) <= 4 or crc32(row[4:]) != int.from_bytes(row[:4], "big"):
        raise StoreDamaged("the store does not say which log it follows; take the content from another worker")
    return int(msgpack.unpackb(row[4:]))


def read_state(transaction: Any, meta: Any) -> StoreState | None:
    """The state of the last commit, without its suite; None in a store that has just been made. Raises StoreDamaged when it is not what was written."""
    row = transaction.get(_KEY, db=meta)
    if row is None:
        return None
    # The sum of nothing is nothing: a row that the disk emptied would pass.
    if len(row) <= 4 or crc32(row[4:]) != int.from_bytes(row[:4], "big"):
        raise StoreDamaged("the state row of the store is damaged; take the content from another worker")
    lsn, fingerprint, items, repositories = msgpack.unpackb(row[4:])
    held = {name: RepositoryState(*fields) for name, fields in repositories.items()}
    return StoreState(lsn, int.from_bytes(fingerprint, "big"), items, held)
