"""Keys of the section ``[cluster]`` about reads: how much a worker takes on, and how long a master waits for one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from brokerha.nodes.config.doors import DoorKeys
from brokerha.nodes.config.keys import Key
from brokerha.nodes.reads.book import MIB, ReadLimits
from brokerha.nodes.reads.routing import RoutingLimits

_POOL = ReadLimits()
_ROUTING = RoutingLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKeys(DoorKeys):
    """Part of `ClusterConfig`."""

    read_threads: Annotated[int, Key("Reads that a worker evaluates at once.", unit="threads", low=1, high=256)] = (
        _POOL.threads
    )
    read_queue: Annotated[
        int,
        Key("Reads that a worker holds, waiting or running; it refuses more.", unit="reads", low=1, high=100_000),
    ] = _POOL.queue
    read_limit_mb: Annotated[
        int, Key("Largest result of a read; a larger one is an error.", unit="MiB", low=1, high=1024)
    ] = _POOL.result_bytes // MIB
    read_stuck_limit: Annotated[
        int,
        Key(
            "Reads that go on after their time because nothing can stop them; with so many a worker ends, to be started again. "
            "0: twice read-threads. Each worker after the first of a site bears read-threads more, so that not all end at once.",
            unit="reads",
            low=0,
            high=1024,
        ),
    ] = _POOL.stuck
    read_patience_ms: Annotated[
        int,
        Key(
            "A worker that has not answered a read after this long, or after four times what such reads take, is not waited for "
            "alone: another one is asked too.",
            unit="milliseconds",
            low=10,
            high=600_000,
        ),
    ] = _ROUTING.patience_ms

    def read_limits(self, place: int) -> ReadLimits:
        """Bounds of the reads of a worker, by its place among those of its master.

        Reads are spread evenly, so the same bound would be reached by all workers of a site in the same moment.
        """
        stuck = self.read_stuck_limit or 2 * self.read_threads
        return ReadLimits(
            threads=self.read_threads,
            queue=self.read_queue,
            result_bytes=self.read_limit_mb * MIB,
            stuck=stuck + place * self.read_threads,
        )

    def routing_limits(self, dead_after_ms: int) -> RoutingLimits:
        """Bounds of a master's reads. A third of the time after which a worker is dead is more than a heartbeat."""
        return RoutingLimits(patience_ms=self.read_patience_ms, silent_ms=max(1, dead_after_ms // 3))
