"""Settings of one master. They load without its core: a command reads the cluster file, and runs no master."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.invariants import invariant
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from brokerha.transactions.config import TxConfig

HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class DeferConfig:
    """Limits of deferred records."""

    lsns: int = 1_000
    """Places in the order, and results. Workers must keep the results of so many transactions beyond a window."""
    size_bytes: int = 1024 * 1024
    age_ms: int = 100
    """Deferred records are written after this long even when no other records are."""


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """How much of the log is kept. Transactions, unless the name says otherwise."""

    max_size: int = 100_000
    max_depth_us: int = 168 * HOUR_US
    hard_limit: int = 0
    """Limit of transactions that pins can hold; 0 stands for four times `max_size`."""
    known_ids: int = 1_000_000
    """Ids of so many of the newest transactions stay known, however old."""
    ids_at_once: int = 10_000
    """Ids are forgotten by an entry of the queue when at least so many, and an eighth of all, can be."""
    slack: int = 0
    """Forgetting begins when at least so many can go; 0 stands for a twentieth of `max_size`."""

    def __post_init__(self) -> None:
        invariant(self.max_size >= 1 and self.max_depth_us >= 1, "something is kept", max_size=self.max_size)
        invariant(self.ids_at_once > 1, "an entry that forgets ids forgets more than itself", ids_at_once=self.ids_at_once)
        invariant(self.most >= self.max_size, "pins may hold more than is kept without", hard_limit=self.hard_limit)

    @property
    def most(self) -> int:
        """Return the limit of transactions that pins can hold."""
        return self.hard_limit or 4 * self.max_size

    @property
    def least(self) -> int:
        """Return the number of transactions from which forgetting begins."""
        return self.slack or max(1, self.max_size // 20)


@dataclass(frozen=True, slots=True)
class MasterConfig:
    """Settings of one master."""

    sync: SyncConfig
    feed: FeedConfig = field(default_factory=FeedConfig)
    accept_limit: int = 100_000
    """Limit of accepted transactions that wait to be synchronised; more are refused until there is room."""
    apply_limit: int = 1_000_000
    """Limit of synchronised transactions that wait for the workers of this site; beyond it, writes of its clients are refused."""
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    tx: TxConfig = field(default_factory=TxConfig)
    defer: DeferConfig = field(default_factory=DeferConfig)
    outcomes_wait_ms: int = 20
    """Results that no other worker waits for are written with the next records, after this long at the latest."""
