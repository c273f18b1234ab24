"""A directory for one store, opened and opened again by a test; time stands still unless the test moves it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brokerha.model.operations import Operation
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from tests.unit.stores.line_engine import Engines

COUNT: Operation = ("update", "main", "COUNT")
"""An operation that reads everything (line_engine.py)."""


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Place:
    """The directory, its engines, and what happened in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.engines = Engines()
        self.now_s = 0.0
        self.places: list[str] = []
        self.stores: list[WorkerStore] = []

    def open(self, node: str = "w1", cluster: str = "orders", **options: float) -> WorkerStore:
        store = WorkerStore(
            self.directory,
            cluster=cluster,
            node=node,
            options=StoreOptions(**{"map_size_bytes": 64 * 1024 * 1024, "flush_after_s": 1e9, **options}),  # type: ignore[arg-type]
            open_engine=self.engines,
            clock=lambda: self.now_s,
            crash_point=self.places.append,
        )
        self.stores.append(store)
        return store

    def lines(self) -> list[str]:
        return sorted(self.engines.main.held)
