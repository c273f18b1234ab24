"""Cluster files of tests that run their nodes in this process, as values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry


def config_of(name: str, broker: str, data: Path, workers: Mapping[str, str], **settings: Any) -> ClusterConfig:
    """``workers`` of each master by name, as ``{"m1": "w1 w2", "m2": "w3"}``; ``settings`` are further fields."""
    return ClusterConfig(
        name=name,
        broker=broker,
        data=data,
        masters=tuple(map(MasterEntry, workers)),
        workers=tuple(WorkerEntry(worker, master) for master, names in workers.items() for worker in names.split()),
        **settings,
    )
