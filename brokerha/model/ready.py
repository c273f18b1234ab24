"""Ready: what a core asks of the world, in the order in which it must happen.

    1. records     written and fsynced together, in one commit
    2. messages    sent after 1, so they may reveal what the records say
    3. decisions   work for the stores, after 1
    4. replies     answers to clients, after 1

The runner carries a whole Ready out before it steps the core again. When 1 fails nothing else of it is done, and the
core is thrown away and built again from the journal: what it believed and what is durable are never apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.messages import Outgoing
from brokerha.model.records import Record
from brokerha.model.requests import Reply


@dataclass(frozen=True, slots=True)
class ExecuteBatch:
    """Decision: execute these transactions in order and report a result for each."""

    first_lsn: Lsn
    items: tuple[tuple[TxId, Timestamp, bytes], ...]


@dataclass(frozen=True, slots=True)
class ApplyBatch:
    """Decision: apply these effects in order."""

    first_lsn: Lsn
    results: tuple[tuple[str, str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ResendResults:
    """Decision: read results ``first_lsn`` to ``last_lsn`` from the store's effects log and report them again."""

    first_lsn: Lsn
    last_lsn: Lsn


Decision = ExecuteBatch | ApplyBatch | ResendResults


@dataclass(frozen=True, slots=True)
class StoreDone:
    """Input to a worker's core: a decision was carried out and is durable."""

    first_lsn: Lsn
    applied_lsn: Lsn
    results: tuple[tuple[str, str, bytes], ...]
    """Of an `ExecuteBatch` or `ResendResults`; empty for an `ApplyBatch`."""
    fingerprint: str
    items: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Input to a worker's core: a decision could not be carried out; nothing of it was kept."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ready:
    """One batch of consequences."""

    records: tuple[Record, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    decisions: tuple[Decision, ...] = ()
    replies: tuple[Reply, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.records or self.messages or self.decisions or self.replies)
