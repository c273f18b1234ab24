"""What a master tells followers outside of its log, as both sides of that door see it.

    journal ── CommittedLog ──> batches, in LSN order ──> LogPublisher ──> stream, topic exchange

Followers are a convenience: the journal is the place of record, and what is published can be made from it again. So a
publisher may be slow, be away, or begin anew; the loop of the master never waits for it.
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
    """The packed change; empty when it is too large for a message (it stands in the stream)."""
    user: str = ""
    """Who wrote the transaction; empty where the door did not know."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive results from ``first_lsn`` to ``last_lsn``, packed."""

    first_lsn: Lsn
    last_lsn: Lsn
    parts: tuple[bytes, ...]
    """One body; several when a single transaction is too large for one message. Joined they are the body."""
    changes: tuple[PublishedChange, ...] = ()
    is_full: bool = False
    """Whether more is likely to follow."""
    rewinds: Rewinds = ()
    """How often the log had gone back when these were its lines."""


class CommittedLog(Protocol):
    """What is in the journal and may be told; callable from any thread."""

    @property
    def journal(self) -> str:
        """Name of the journal: another one is another history."""

    def rewinds(self) -> Rewinds:
        """How often the log has gone back after splits: what was published after such a place is void."""

    def first_lsn(self) -> Lsn:
        """Lowest LSN that is held; one more than the last when the log is empty."""

    def batch(self, first_lsn: Lsn, last_lsn: Lsn) -> LogBatch | None:
        """What follows from ``first_lsn`` on, as much as one message takes and nothing after ``last_lsn``; None when there is nothing yet."""


class LogPublisher(Protocol):
    """Publishes a CommittedLog, with threads and connections of its own."""

    def start(self) -> None:
        """Begin; waits for no broker."""

    def note(self, shown_lsn: Lsn) -> None:
        """Results up to here may be published: they are known, and enough backups hold them. Costs next to nothing; called after each turn."""

    def published_lsn(self) -> Lsn:
        """Up to where the broker has confirmed everything; 0 when that is not known."""

    def close(self, timeout_s: float) -> None:
        """End; what is not published is published after the next start. Idempotent."""
