"""Settings of a worker towards its master, and its state at the start."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.following.asking import AskConfig
from brokerha.following.loading import LoadConfig
from brokerha.following.offering import OfferConfig
from brokerha.model.ids import Lsn, NodeId
from brokerha.replication.worker.kept_here import NOTHING, KeptState


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of one worker."""

    node: NodeId
    master: NodeId
    heartbeat_ms: int = 1000
    backlog: int = 8000
    """Limit of transactions that wait for the store, and of those after a gap; further ones are dropped and requested again."""
    backlog_bytes: int = 64 * 1024 * 1024
    """The same limit for the bytes of their bodies or effects."""
    decision_items: int = 1000
    decision_bytes: int = 4 * 1024 * 1024
    retry_ms: int = 2000
    """After a failure of the store the decision is repeated after this long."""
    ask: AskConfig = field(default_factory=AskConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    offer: OfferConfig = field(default_factory=OfferConfig)


@dataclass(frozen=True, slots=True)
class CopyState:
    """The copy that a worker finds when it starts."""

    journal: str
    applied: Lsn
    fingerprint: str
    items: int
    note: str = ""
    """The fate of the copy that was here before; empty when this is it."""
    pending_load: str = ""
    """Name of a snapshot whose load was begun before the process started; empty when there is none."""
    condemned: str = ""
    """Why this copy must not be trusted, as was known before the process started; empty when it can be."""
    lineage: int = 0
    kept: KeptState = NOTHING
