"""The wire between simulated nodes: delay, loss, duplication, overtaking, cuts in one or both directions, clogs.

    process.transport.send  ->  Network.carry  ->  (lost | delayed | twice | held back)  ->  process.deliver

A cut loses messages sent during it. A clog holds them back and delivers all at its end, like a stalled connection. Both are counted
for each direction, so that faults can overlap and end in any order.

Queues of transactions in the simulated broker: declared and filled by a primary, followed by one backup, deleted afterwards.

    OpenTxQueue -> events arrive -> FollowTxQueue: waiting and new events are delivered -> LeaveTxQueue

An event for a missing queue is lost, as with the default exchange; a follower creates its queue if necessary. A queue disappears
with its follower; one without a follower and without new events expires. So a queue that remains at the quiet end still has a user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from brokerha.model.ids import NodeId
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, OpenTxQueue, TxQueueDecision
from brokerha.model.wire.codec import decode_envelope, encode_envelope
from brokerha.model.wire.messages import Chunk, Envelope, Message, Outgoing
from tests.simulator.events import Events

EXPIRES_US = 3_000_000
"""Idle time after which an unused queue is deleted; far longer in production."""
QUEUE_LIMIT = 1000
CLUSTER = "simulated"
Direction = tuple[NodeId, NodeId]
"""(from, to)"""


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


class Network:
    """All links of a world."""

    def __init__(self, world: Events, tx_queues: TxQueues, nodes: Mapping[NodeId, Node]) -> None:
        self._world = world
        self._tx_queues = tx_queues
        self._nodes = nodes
        """All nodes that can be reached; complete when the first message is sent."""
        self._wire = world.options.wire
        self._is_calm = not (self._wire.loss or self._wire.duplication or self._wire.spike)
        self._cuts: Counter[Direction] = Counter()
        self._clogs: Counter[Direction] = Counter()
        self._held: dict[Direction, list[tuple[Envelope, str]]] = {}
        """Each with the transaction queue that it is for, or none."""
        self._arrival_us: dict[Direction, int] = {}
        self.sieve: Callable[[NodeId, Outgoing], bool] = lambda _sender, _outgoing: False
        """Messages that a scenario loses; by default none."""
        self._healed = 0
        """Grows with each general healing: earlier faults then end without effect."""

    def carry(self, sender: Node, outgoing: Outgoing, after_us: int) -> None:
        """Take a message over; it leaves its sender after ``after_us``."""
        world = self._world
        direction = (sender.node, outgoing.to)
        if self._cuts[direction] > 0 or self.sieve(sender.node, outgoing):
            world.faults_seen["message cut off"] += 1
            world.trace.note(world.now_us, sender.node, "cut off", outgoing)
            return
        envelope = self._enveloped(sender, outgoing, self._spoilt(outgoing.message))
        if self._clogs[direction] > 0:
            world.faults_seen["message held back"] += 1
            world.trace.note(world.now_us, sender.node, "held back", outgoing)
            self._held.setdefault(direction, []).append((envelope, outgoing.queue))
            return
        world.trace.note(world.now_us, sender.node, "sends", outgoing)
        self._fly(direction, envelope, after_us, outgoing.queue)

    def _spoilt(self, message: Message) -> Message:
        """Sometimes flip a bit of a chunk: the wire's own checks do not find every error."""
        world = self._world
        if not isinstance(message, Chunk) or not message.data or world.is_calm:
            return message
        if not self._wire.bad_chunk or world.rng.random() >= self._wire.bad_chunk:
            return message
        world.faults_seen["bad chunk"] += 1
        data = bytearray(message.data)
        data[world.rng.randrange(len(data))] ^= 1 << world.rng.randrange(8)
        return replace(message, data=bytes(data))

    def _enveloped(self, sender: Node, outgoing: Outgoing, message: Message) -> Envelope:
        """Wrap a message as a transport does: a process that speaks for a master names itself."""
        name, incarnation, process = sender.node, sender.incarnation, ""
        if outgoing.sender:
            name, incarnation, process = outgoing.sender, outgoing.incarnation, sender.node
        if not self._wire.is_encoded:
            return Envelope(CLUSTER, name, incarnation, message, process)
        return decode_envelope(encode_envelope(CLUSTER, name, incarnation, message, process))

    def _fly(self, direction: Direction, envelope: Envelope, after_us: int, queue: str) -> None:
        world, wire, rng = self._world, self._wire, self._world.rng
        low, high = wire.delay_us
        delay_us = after_us + low + int(rng.random() * (high - low))
        copies = 1
        if not (self._is_calm or world.is_calm):
            luck = rng.random()
            if luck < wire.loss:
                world.faults_seen["message lost"] += 1
                world.trace.note(world.now_us, direction[0], "lost", f"the message to {direction[1]}")
                return
            if luck < wire.loss + wire.duplication:
                world.faults_seen["message duplicated"] += 1
                copies = 2
            elif luck > 1 - wire.spike:
                world.faults_seen["message delayed"] += 1
                delay_us += int(rng.random() * wire.spike_us)
        at_us = world.now_us + delay_us
        if wire.is_ordered:
            at_us = max(at_us, self._arrival_us.get(direction, 0))
            self._arrival_us[direction] = at_us
        receiver = self._nodes.get(direction[1])
        if receiver is None:
            return  # No node of this name ever existed, so no queue takes it.
        for copy in range(copies):
            copy_us = at_us + copy * int(rng.random() * 4 * high)
            if queue:
                world.at(copy_us, self._tx_queues.arrive, queue, envelope)
            else:
                world.at(copy_us, receiver.deliver, envelope)

    # ---- faults

    def cut(self, directions: Sequence[Direction], for_us: int) -> None:
        """Lose all messages in these directions for a while."""
        self._cuts.update(directions)
        self._world.at(self._world.now_us + for_us, self._mend, self._healed, directions)

    def _mend(self, healed: int, directions: Sequence[Direction]) -> None:
        if healed == self._healed:
            self.mend(directions)

    def cut_for_ever(self, directions: Sequence[Direction]) -> None:
        """Lose all messages in these directions until `mend` or `heal`."""
        self._cuts.update(directions)

    def mend(self, directions: Sequence[Direction]) -> None:
        """End one cut of each of these directions."""
        self._cuts.subtract(directions)
        self._world.trace.note(self._world.now_us, "world", "mends", _names(directions))

    def clog(self, direction: Direction, for_us: int) -> None:
        """Hold back all messages in this direction for a while."""
        self._clogs[direction] += 1
        self._world.at(self._world.now_us + for_us, self._unclog, self._healed, direction)

    def _unclog(self, healed: int, direction: Direction) -> None:
        if healed == self._healed:
            self._clogs[direction] -= 1
            self._release(direction)

    def _release(self, direction: Direction) -> None:
        if self._clogs[direction] > 0:
            return
        self._world.trace.note(self._world.now_us, "world", "unclogs", _names([direction]))
        for envelope, queue in self._held.pop(direction, ()):
            self._fly(direction, envelope, 0, queue)

    def heal(self) -> None:
        """End all cuts and clogs."""
        self._healed += 1
        self._cuts.clear()
        self._clogs.clear()
        for direction in list(self._held):
            self._release(direction)


def both_ways(pairs: Iterable[Direction]) -> list[Direction]:
    """Return these directions and their opposites."""
    return [way for one, other in pairs for way in ((one, other), (other, one))]


def _names(directions: Sequence[Direction]) -> str:
    return " ".join(f"{sender}>{receiver}" for sender, receiver in directions)
