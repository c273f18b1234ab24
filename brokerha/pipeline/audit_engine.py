"""What an audit asks of whoever computes it from the archive (audit_pieces.py), and the forms of the answers.

    Engine
      check          every file                                       audit_files.py
      summary        the content at an LSN, bucket by bucket
      items          the items of some buckets at an LSN
      transactions   at which LSNs given transaction ids are

LSNs may lie behind the archive, as far as the entries reach that are given as its tail.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgpack

from brokerha.model.ids import Lsn, TxId
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.audit_files import Problem
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.state import Bucket, Place
from brokerha.stores.items import CONTROL
from brokerha.stores.queue_change import Counts

SHOWN_BYTES: Final = 256
"""Of a value; as a worker shows it (stores/digests.py)."""
TEXT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Summary:
    """The content at an LSN."""

    lsn: Lsn
    fingerprint: bytes
    """Computed from the items."""
    buckets: dict[Place, Bucket]
    counters: dict[str, Counts]
    repositories: tuple[str, ...]


class ItemRow(NamedTuple):
    """One item, as a worker tells it, and the LSN of its last change."""

    store: str
    name: str
    bucket: int
    item: bytes
    digest: bytes
    text: bytes
    """Line of a quad, key, message id, name of a check."""
    value: bytes
    """The beginning of what belongs to it."""
    lsn: Lsn


class Found(NamedTuple):
    """One transaction id in the log."""

    txid: TxId
    lsn: Lsn
    is_applied: bool


class Engine(Protocol):
    """See the head of the module. Each call raises StoreError and its kinds for what cannot be read."""

    archive: Archive
    state: ArchiveState
    """What the archive held when the audit began: it may grow meanwhile."""
    name: str
    """``here`` or ``spark``."""

    def check(self, *, is_deep: bool) -> Iterator[list[Problem]]:
        """What is wrong with each file, file by file."""

    def summary(self, lsn: Lsn, bits: int, tail: Sequence[LogEntry]) -> Summary:
        """The content at an LSN; `tail` are the entries behind the archive up to it or further."""

    def items(
        self, lsn: Lsn, bits: int, places: Collection[Place], limit: int, tail: Sequence[LogEntry]
    ) -> list[ItemRow]:
        """Items of some buckets, sorted; of more than the limit one more than it."""

    def transactions(self, wanted: Collection[TxId], tail: Sequence[LogEntry]) -> list[Found]:
        """Where these are in archive and tail, in order of LSNs."""


def item_row(place: Place, item: bytes, digest: bytes, text: bytes, value: bytes, lsn: Lsn) -> ItemRow:
    """An item with text and value cut, and the fields of a check spelled, as a worker does."""
    store, name, bucket = place
    if store == CONTROL and value:
        value = json.dumps(msgpack.unpackb(value)).encode()
    return ItemRow(store, name, bucket, item, digest, text[:TEXT_BYTES], value[:SHOWN_BYTES], lsn)
