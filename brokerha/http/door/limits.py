"""How much one HTTP door takes in at once; every number has a reaction when it is reached."""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.invariants import invariant
from brokerha.model.operations import BODY_LIMIT_BYTES

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one door. The defaults suit a node with a gigabyte of memory."""

    body_limit_bytes: int = 2 * BODY_LIMIT_BYTES
    """Largest request body, 413 beyond it. Above the limit of a transaction, because RDF/XML and base64 shrink when read."""
    body_stall_s: float = 30.0
    """How long nothing of a body may come, 400 beyond it."""
    answer_stall_s: float = 30.0
    """How long a reader may take nothing of an answer that comes in pieces, cut off beyond it."""
    all_bodies_limit_bytes: int = 256 * MIB
    """All bodies that are being read or handled, 503 beyond it."""
    requests_limit: int = 2048
    """Requests under way, 503 beyond it; each waiting writer is one."""
    inline_limit_bytes: int = 32 * 1024
    """Bodies up to this size are parsed in the event loop; a hop to a thread would cost more than they do."""
    threads: int = 4
    """Threads for what takes long: big bodies, the status of the cluster, pages of the log."""
    thread_calls_limit: int = 64
    """Calls that wait for a thread, 503 beyond it."""
    parsings_limit: int = 64
    """Bodies that wait for a parser process, 503 beyond it."""
    timeout_ms: int = 30_000
    """How long a request may take that does not say."""
    timeout_limit_ms: int = 3_600_000
    """Longest time that a request may ask for, 400 beyond it."""
    grace_ms: int = 5_000
    """How much longer than its deadline the door waits for the node, which answers by itself when it is healthy."""
    own_writes_s: float = 10.0
    """How long after a write RDF reads that ask for no LSN wait for a worker that has applied it."""
    batch_limit: int = 10_000
    """Transactions in one batch, 413 beyond it."""

    def check(self) -> None:
        """Stop at once when the numbers do not fit together."""
        invariant(0 < self.body_limit_bytes <= self.all_bodies_limit_bytes, "one body fits into the limit of all")
        invariant(0 < self.timeout_ms <= self.timeout_limit_ms, "the usual time is an allowed time")
        invariant(
            min(self.requests_limit, self.threads, self.thread_calls_limit, self.batch_limit) > 0, "limits let one in"
        )
