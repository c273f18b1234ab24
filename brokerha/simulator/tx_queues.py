"""Queues of transactions in the simulated broker: declared and filled by a primary, followed by one backup, deleted afterwards.

    OpenTxQueue -> events arrive -> FollowTxQueue: waiting and new events are delivered -> LeaveTxQueue

An event for a missing queue is lost, as with the default exchange; a follower creates its queue if necessary. A queue disappears
with its follower; one without a follower and without new events expires. So a queue that remains at the quiet end still has a user.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from brokerha.model.ids import NodeId
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, OpenTxQueue, TxQueueDecision
from brokerha.model.wire.messages import Envelope
from brokerha.simulator.events import Events

EXPIRES_US = 3_000_000
"""Idle time after which an unused queue is deleted; far longer in production."""
QUEUE_LIMIT = 1000


class Node(Protocol):
    """A process as the wire and the broker see it."""

    node: NodeId
    incarnation: int
    is_up: bool
    life: int

    def deliver(self, envelope: Envelope) -> None:
        """Receive a message."""


@dataclass(slots=True)
class _Queue:
    waiting: list[Envelope] = field(default_factory=list)
    follower: Node | None = None
    life: int = 0
    """Life of the follower: after a restart it follows only when it says so again."""
    used_us: int = 0


class TxQueues:
    """All queues of transactions of one world."""

    def __init__(self, world: Events) -> None:
        self._world = world
        self._queues: dict[str, _Queue] = {}

    @property
    def names(self) -> list[str]:
        """Existing queues in use."""
        self._expire()
        return list(self._queues)

    def decide(self, process: Node, decision: TxQueueDecision) -> None:
        """Let a process open, follow or leave a queue."""
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
        """Deliver an event to its queue."""
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
        """Lose all waiting events; return their number."""
        count = sum(len(queue.waiting) for queue in self._queues.values())
        for queue in self._queues.values():
            queue.waiting.clear()
        return count

    def delete(self, name: str) -> None:
        """Delete one queue, in use or not."""
        self._queues.pop(name, None)

    def restart(self) -> int:
        """Restart the broker, which deletes all queues; return their number."""
        count = len(self._queues)
        self._queues.clear()
        return count
