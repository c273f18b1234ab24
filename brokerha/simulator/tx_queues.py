"""Queues of transactions in the simulated broker: declared by a primary, filled by it, followed by one backup, gone afterwards.

    OpenTxQueue -> events arrive -> FollowTxQueue: what waits is delivered, then whatever comes -> LeaveTxQueue

What arrives for a queue that is not there is lost, as with the default exchange; whoever follows one makes it if need be. A queue goes
with its follower; one that nobody ever followed, and nobody fills, expires. So what is left at the quiet end is left by somebody who
still uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from brokerha.model.ids import NodeId
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, OpenTxQueue, TxQueueDecision
from brokerha.model.wire.messages import Envelope
from brokerha.simulator.events import Events

EXPIRES_US = 3_000_000
"""A queue that nobody uses for so long is gone; far longer in production."""
QUEUE_LIMIT = 1000


class Node(Protocol):
    """What the wire and the broker know of a process."""

    node: NodeId
    incarnation: int
    is_up: bool
    life: int

    def deliver(self, envelope: Envelope) -> None:
        """A message arrives."""


@dataclass(slots=True)
class _Queue:
    waiting: list[Envelope] = field(default_factory=list)
    follower: Node | None = None
    life: int = 0
    """Of the follower: another life follows nothing before it says so."""
    used_us: int = 0


class TxQueues:
    """All queues of transactions of one world."""

    def __init__(self, world: Events) -> None:
        self._world = world
        self._queues: dict[str, _Queue] = {}

    @property
    def names(self) -> list[str]:
        """Queues that are there and used."""
        self._expire()
        return list(self._queues)

    def decide(self, process: Node, decision: TxQueueDecision) -> None:
        """A process opens, follows or leaves a queue."""
        world = self._world
        world.trace.note(world.now_us, process.node, "tx-queue", decision)
        self._expire()
        match decision:
            case OpenTxQueue():
                self._queues.setdefault(decision.queue, _Queue()).used_us = world.now_us
            case FollowTxQueue():
                self._follow(process, decision.queue)
            case LeaveTxQueue():
                queue = self._queues.get(decision.queue)
                if queue is not None and queue.follower is process:
                    del self._queues[decision.queue]

    def _follow(self, process: Node, name: str) -> None:
        queue = self._queues.setdefault(name, _Queue())
        queue.follower, queue.life, queue.used_us = process, process.life, self._world.now_us
        waiting, queue.waiting = queue.waiting, []
        for envelope in waiting:
            process.deliver(envelope)

    def arrive(self, name: str, envelope: Envelope) -> None:
        """An event comes to its queue."""
        self._expire()
        queue = self._queues.get(name)
        if queue is None:
            self._world.faults_seen["event without a queue"] += 1
            return
        queue.used_us = self._world.now_us
        if self._is_followed(queue) and queue.follower is not None:
            queue.follower.deliver(envelope)
        elif len(queue.waiting) < QUEUE_LIMIT:
            queue.waiting.append(envelope)

    def _is_followed(self, queue: _Queue) -> bool:
        follower = queue.follower
        return follower is not None and follower.is_up and follower.life == queue.life

    def _expire(self) -> None:
        before_us = self._world.now_us - EXPIRES_US
        for name, queue in list(self._queues.items()):
            if not self._is_followed(queue) and (queue.follower is not None or queue.used_us < before_us):
                del self._queues[name]

    # ---- faults

    def purge(self) -> int:
        """All events that wait are lost; returns how many."""
        count = sum(len(queue.waiting) for queue in self._queues.values())
        for queue in self._queues.values():
            queue.waiting.clear()
        return count

    def delete(self, name: str) -> None:
        """One queue is gone, in use or not."""
        self._queues.pop(name, None)

    def restart(self) -> int:
        """The broker begins anew: all queues are gone; returns how many."""
        count = len(self._queues)
        self._queues.clear()
        return count
