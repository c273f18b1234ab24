"""The state row of a store: every commit writes it together with its data.

    StoreState(lsn, fingerprint, items, repositories)      name -> RepositoryState(directory, ...)

This row records what each repository has durably, because an engine that lost its last writes in a power failure looks exactly
like one that never had them.
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
    """State of one repository."""

    directory: str
    """Name of its directory; never used twice, so that a recreated repository begins empty."""
    flushed_position: Lsn
    """Position of its engine when it was last made durable; it is never lower than this again."""
    base_lsn: Lsn
    """All its changes up to this LSN are durable in its engine; never below `flushed_position`."""
    items: int
    """Number of quads."""
    digest: bytes = b""
    """XOR of the digests of its quads, so that all can be removed in one step; empty in a state of an older version."""


class StoreState(NamedTuple):
    """The state at the applied LSN."""

    lsn: Lsn
    fingerprint: int
    items: int
    """Number of quads, keys and messages."""
    repositories: dict[str, RepositoryState]
    suite: Suite = EMPTY
    """The control suite; it has its own rows (control/suite.py)."""


def write_state(transaction: WriteTransaction, meta: Any, state: StoreState) -> None:
    """Write the state within a commit."""
    fingerprint = state.fingerprint.to_bytes(16, "big")
    body = msgpack.packb((state.lsn, fingerprint, state.items, state.repositories))
    transaction.put(_KEY, crc32(body).to_bytes(4, "big") + body, db=meta)


def write_lineage(transaction: WriteTransaction, meta: Any, lineage: int) -> None:
    """Write the lineage of the store, in its own row: it changes only after a split."""
    body = msgpack.packb(lineage)
    transaction.put(_LINEAGE_KEY, crc32(body).to_bytes(4, "big") + body, db=meta)


def read_lineage(transaction: Any, meta: Any) -> int:
    """Return the lineage of the store; 0 when none was set. Raises StoreDamaged."""
    row = transaction.get(_LINEAGE_KEY, db=meta)
    if row is None:
        return 0
    if len(row) <= 4 or crc32(row[4:]) != int.from_bytes(row[:4], "big"):
        raise StoreDamaged("the store does not say which log it follows; take the content from another worker")
    return int(msgpack.unpackb(row[4:]))


def read_state(transaction: Any, meta: Any) -> StoreState | None:
    """Return the state of the last commit, without its suite; None in a new store. Raises StoreDamaged for a wrong checksum."""
    row = transaction.get(_KEY, db=meta)
    if row is None:
        return None
    # The checksum of no bytes is 0, so a row that the disk zeroed would pass.
    if len(row) <= 4 or crc32(row[4:]) != int.from_bytes(row[:4], "big"):
        raise StoreDamaged("the state row of the store is damaged; take the content from another worker")
    lsn, fingerprint, items, repositories = msgpack.unpackb(row[4:])
    held = {name: RepositoryState(*fields) for name, fields in repositories.items()}
    return StoreState(lsn, int.from_bytes(fingerprint, "big"), items, held)
