"""A process whose queries never end: what its pool tells its callers, line by line, and exit code 2.

python -m tests.unit.nodes.runaway_queries DIRECTORY
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from brokerha.nodes.reads.book import ReadLimits
from brokerha.nodes.reads.pool import ReadPool
from brokerha.ports.store import ReadAnswer
from brokerha.stores.rdf.repository import RdfRepository
from tests.support.memory_store.store import MemoryStore

WAIT_S = 20.0
ENDLESS = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
QUADS = 2000


class OneRepository(MemoryStore):
    """Queries go to the real engine."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.repository = RdfRepository(directory)
        self.repository.commit([], [f'<urn:s{number}> <urn:p> "{number}"' for number in range(QUADS)], 1)

    def read(self, kind: str, name: str, arguments: dict[str, Any], may_go_on: Callable[[], bool] = lambda: True) -> ReadAnswer:
        content_type, pieces = self.repository.query(arguments["query"], None, (), (), may_go_on)
        return ReadAnswer(content_type, 1, pieces)


def main(directory: Path) -> None:
    """Two endless queries and a small one, with one thread and at most two that are stuck."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    pool = ReadPool(OneRepository(directory), "w1", ReadLimits(threads=1, stuck=2, grace_s=0.1, slow_s=0.1))

    def ask(query: str, timeout_ms: int) -> str:
        future = pool.read("query", "main", {"query": query}, 0, timeout_ms)
        error = future.exception(WAIT_S)
        return f"{type(error).__name__}: {error}" if error else future.result().body.decode()

    def until_stuck(count: int) -> None:
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.01)):
            if pool.stuck == count:
                break
            pause.wait(0.01)
        print(f"stuck: {pool.stuck}")

    print(ask(ENDLESS, 300))
    until_stuck(1)
    print("answered beside it:", str("true" in ask('ASK { ?s ?p "1999" }', 15_000)).lower())
    print(ask(ENDLESS, 300))
    until_stuck(2)
    print(ask("ASK {}", 15_000), flush=True)
    os._exit(2 if pool.must_restart else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
