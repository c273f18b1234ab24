"""Settings of a worker towards its master, and what it finds when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.following.asking import AskConfig
from brokerha.following.loading import LoadConfig
from brokerha.following.offering import OfferConfig
from brokerha.model.ids import Lsn, NodeId
from brokerha.replication.worker.kept_here import NOTHING, KeptState


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How one worker takes part."""

    node: NodeId
    master: NodeId
    heartbeat_ms: int = 1000
    backlog: int = 8000
    """Transactions that may wait for the store, and as many after a gap; what comes beyond is dropped and asked for again."""
    backlog_bytes: int = 64 * 1024 * 1024
    """Of their bodies or effects, likewise."""
    decision_items: int = 1000
    decision_bytes: int = 4 * 1024 * 1024
    retry_ms: int = 2000
    """After a failure of the store the decision is tried again after this long."""
    ask: AskConfig = field(default_factory=AskConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    offer: OfferConfig = field(default_factory=OfferConfig)


@dataclass(frozen=True, slots=True)
class CopyState:
    """What a worker finds when it starts."""

    journal: str
    applied: Lsn
    fingerprint: str
    items: int
    note: str = ""
    """What happened to the copy that was here before; empty when this is it."""
    pending_load: str = ""
    """Name of a snapshot whose load was begun before the process started; empty when there is none."""
    condemned: str = ""
    """Why this copy is not to be trusted, as was found out before the process started; empty when it may be."""
    lineage: int = 0
    kept: KeptState = NOTHING
