"""The log as it is published to followers outside of it, for both sides of that door.

    journal ── CommittedLog ──> batches, in LSN order ──> LogPublisher ──> stream, topic exchange

Followers are a convenience: the journal is the place of record, and published data can be made from it again. So a publisher can be
slow, be away, or begin anew; the loop of the master never waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from brokerha.model.ids import Lsn, TxId
from brokerha.model.log_lineages import Rewinds


@dataclass(frozen=True, slots=True)
class PublishedChange:
    """One change of one applied transaction."""

    lsn: Lsn
    txid: TxId
    key: str
    """``<store>.<name>.<kind>``, for topic bindings."""
    body: bytes
    """The packed change; empty when it is too large for a message (it is in the stream)."""
    user: str = ""
    """The writer of the transaction; empty where the door did not know it."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive results from ``first_lsn`` to ``last_lsn``, packed."""

    first_lsn: Lsn
    last_lsn: Lsn
    parts: tuple[bytes, ...]
    """One body; several parts when a single transaction is too large for one message. Joined they are the body."""
    changes: tuple[PublishedChange, ...] = ()
    is_full: bool = False
    """Whether more batches are likely to follow."""
    rewinds: Rewinds = ()
    """Rewinds of the log when these were its lines."""


class CommittedLog(Protocol):
    """The publishable part of the journal; callable from any thread."""

    @property
    def journal(self) -> str:
        """Return the name of the journal: another name means another history."""

    def rewinds(self) -> Rewinds:
        """Return the rewinds of the log after splits: lines published after such an LSN are void."""

    def first_lsn(self) -> Lsn:
        """Return the lowest held LSN; one more than the last when the log is empty."""

    def batch(self, first_lsn: Lsn, last_lsn: Lsn) -> LogBatch | None:
        """Return results from ``first_lsn`` up to ``last_lsn``, as many as one message takes; None when there are none yet."""


class LogPublisher(Protocol):
    """Publishes a CommittedLog, with its own threads and connections."""

    def start(self) -> None:
        """Begin; do not wait for a broker."""

    def note(self, shown_lsn: Lsn) -> None:
        """Allow to publish results up to here: they are known, and enough backups hold them. Cheap; called after each turn."""

    def published_lsn(self) -> Lsn:
        """Return the LSN up to which the broker has confirmed all results; 0 when that is not known."""

    def close(self, timeout_s: float) -> None:
        """End; unpublished results are published after the next start. Idempotent."""
