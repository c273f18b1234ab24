"""Reads of a master that its workers answer: futures on one side, messages on the other, `Routing` in between.

    front door --> Reads (master) --Read--> ReadPool (worker) --> store, in a thread of the pool
                        ^                       |
                        +------ ReadResult -----+      pieces of at most 1 MiB, the last one is marked

`Routing` decides which worker is asked first, in addition, or next. This module turns its steps into messages, and pieces into
whole answers. Each attempt has its own pieces, so that the answers of two workers never mix.

Used only by the master's loop. Every future is completed, a grace after the deadline of its read at the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from brokerha.model.errors import BrokerhaError, Conflict, InvalidRequest, NotReady, TimedOut, error_named
from brokerha.model.numbers import Numbers
from brokerha.model.wire.messages import Outgoing, Read, ReadResult
from brokerha.nodes.loop import complete
from brokerha.nodes.reads.routing import PROBE, GiveUp, Routing, RoutingLimits, Send
from brokerha.nodes.reads.worker_order import WorkerFacts
from brokerha.ports.front import ReadOutcome

_PROBE_READ = Read("", "repositories", "", {}, 0, 0)
"""Small, answered from memory, and passes through the pool of the worker like every read."""


@dataclass(slots=True)
class _Parts:
    received: dict[int, ReadResult] = field(default_factory=dict)
    last: int | None = None

    def add(self, piece: ReadResult) -> ReadOutcome | None:
        """Take one piece; return the whole answer when it is complete."""
        self.received[piece.part] = piece
        if not piece.more:
            self.last = piece.part
        if self.last is None or len(self.received) <= self.last:
            return None
        pieces = [self.received[number] for number in range(self.last + 1)]
        return ReadOutcome(pieces[0].content_type, pieces[-1].applied_lsn, b"".join(piece.body for piece in pieces))


class Reads:
    """Reads under way from one master."""

    def __init__(self, name: str, limits: RoutingLimits | None = None) -> None:
        """``name`` differs from that of every earlier start of this master: answers to earlier starts are ignored."""
        self.routing = Routing(limits or RoutingLimits())
        self.due_ms = self.routing.due_ms
        """When `tick` is due next; None when no read, late answer or probe waits."""
        self.asked = 0
        """Number of reads since the start."""
        self._prefix = f"{name}."
        self._open: dict[int, tuple[Read, Future[ReadOutcome]]] = {}
        self._parts: dict[int, _Parts] = {}

    def ask(self, read: Read, workers: Sequence[WorkerFacts], mono_ms: int, future: Future[ReadOutcome]) -> list[Outgoing]:
        """Take a read; ``workers`` are the readable ones."""
        self.routing.update(workers, mono_ms)
        self.asked += 1
        number = self.routing.ask(read.kind, read.min_lsn, read.timeout_ms, mono_ms)
        self._open[number] = (read, future)
        return self._outgoing()

    def on_result(self, result: ReadResult, mono_ms: int) -> list[Outgoing]:
        """Take one piece of an answer, or an error."""
        attempt = self._attempt_of(result.request)
        if result.error:
            self._parts.pop(attempt, None)
            self._on_error(attempt, error_named(result.error, result.body.decode("utf-8", "replace")), mono_ms)
            return self._outgoing()
        is_open = self.routing.heard(attempt, mono_ms) is not None
        if not is_open:
            # A late answer, or one to a probe: only its end matters.
            self._parts.pop(attempt, None)
            if not result.more:
                self.routing.answered(attempt, mono_ms)
            return self._outgoing()
        outcome = self._parts.setdefault(attempt, _Parts()).add(result)
        if outcome is not None:
            del self._parts[attempt]
            number = self.routing.answered(attempt, mono_ms)
            if number is not None:
                complete(self._open.pop(number)[1], outcome)
        return self._outgoing()

    def tick(self, workers: Sequence[WorkerFacts], mono_ms: int) -> list[Outgoing]:
        """Serve what is due; called once in a turn while reads are under way."""
        self.routing.update(workers, mono_ms)
        self.routing.tick(mono_ms)
        for attempt in [number for number in self._parts if self.routing.is_over(number)]:
            del self._parts[attempt]
        return self._outgoing()

    def close(self, text: str) -> None:
        """Fail every read."""
        self.routing.close(text)
        self._outgoing()

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics."""
        counts = self.routing.counts
        numbers: Numbers = {f"reads_{name}_total": counts[name] for name in ("retried", "hedged", "hedges_won", "failed", "late")}
        return {**numbers, "reads_total": self.asked, "running_reads": len(self), "benched_workers": len(self.routing.benched())}

    def __len__(self) -> int:
        return len(self._open)

    def _on_error(self, attempt: int, error: BrokerhaError, mono_ms: int) -> None:
        if not isinstance(error, InvalidRequest | Conflict):
            self.routing.failed(attempt, type(error).__name__, str(error), mono_ms)
            return
        number = self.routing.answered(attempt, mono_ms, is_good=False)
        if number is not None:
            complete(self._open.pop(number)[1], error)

    def _outgoing(self) -> list[Outgoing]:
        """Turn the steps of the routing into messages and failed futures."""
        outgoing = []
        for step in self.routing.take():
            if isinstance(step, GiveUp):
                _, future = self._open.pop(step.read)
                complete(future, TimedOut(step.text) if step.is_timeout else NotReady(step.text))
                continue
            outgoing.append(Outgoing(step.worker, self._message(step)))
        return outgoing

    def _message(self, step: Send) -> Read:
        read = _PROBE_READ if step.read == PROBE else self._open[step.read][0]
        request = f"{self._prefix}{step.attempt}"
        return Read(request, read.kind, read.repository, read.arguments, read.min_lsn, step.timeout_ms)

    def _attempt_of(self, request: str) -> int:
        """Return the number of the attempt; -1 when the request is from an earlier start of this master."""
        number = request.removeprefix(self._prefix)
        return int(number) if number != request and number.isdecimal() else -1
