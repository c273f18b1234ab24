"""TxFeed: the events of one transaction on their way to its participants, each through its own queue.

    begin 0 | operation 1 | operation 2 | … | prepare n | commit or rollback n + 1

Events are kept until the end: a later participant gets all of them. They go out once, in order. A participant requests missing
events by number. Unanswered events are repeated, from the second time on with an invitation to another queue: queue and participant
may have been lost together, and a queue on a broker node that is down cannot be made anew before the node is back. A queue goes
with its participant, which alone reads and deletes it.

Invariants: no backup joins after the prepare or the end; an answer counts once; a participant that left does not come back.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.ids import NodeId, TxId
from brokerha.model.invariants import invariant
from brokerha.model.ready import OpenTxQueue, TxQueueDecision
from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import TxEvents, TxJoin
from brokerha.model.wire.tx_queues import tx_queue_name
from brokerha.transactions.config import TxConfig

BEGIN = "begin"
OPERATION = "operation"
PREPARE = "prepare"
COMMIT = "commit"
ROLLBACK = "rollback"
ENDS = frozenset({COMMIT, ROLLBACK})

PATIENCE_STEPS = 16


@dataclass(slots=True)
class Lane:
    """The way to one participant."""

    queue: str
    sent: int = 0
    """Number of sent events, which is the number of the next one."""
    is_invited: bool = False
    invitations: int = 0
    """Number of invitations, each through another queue."""
    has_prepared: bool = False
    tries: int = 0
    again_at_ms: int | None = None
    """When to repeat the last event; None when no answer is needed."""


class TxFeed:
    """The events of one transaction."""

    def __init__(self, config: TxConfig, master: NodeId, view: int, txid: TxId, xid: str) -> None:
        """Begin without participants."""
        self._config = config
        self._master = master
        self._view = view
        self._txid = txid
        self._lanes: dict[NodeId, Lane] = {}
        self._left: set[NodeId] = set()
        self._events: list[tuple[str, bytes]] = [(BEGIN, xid.encode())]
        self._asked_from: int | None = None
        """Number of the event that needs an answer: a prepare, later the end."""
        self.queues: list[TxQueueDecision] = []
        """Actions on queues that are due."""

    def __len__(self) -> int:
        return len(self._events)

    @property
    def backups(self) -> tuple[NodeId, ...]:
        """Return the participants that are still there."""
        return tuple(self._lanes)

    @property
    def unprepared(self) -> tuple[NodeId, ...]:
        """Return participants that have not said that they are prepared."""
        return tuple(backup for backup, lane in self._lanes.items() if not lane.has_prepared)

    @property
    def has_ended(self) -> bool:
        """Tell whether the end is among the events."""
        return self._events[-1][0] in ENDS

    def join(self, backup: NodeId) -> bool:
        """Add a backup, which gets all events from the first one on; return whether it is new here."""
        invariant(self._asked_from is None, "T2 nobody joins what is closed", txid=self._txid, backup=backup)
        if backup in self._lanes or backup in self._left:
            return False
        self._lanes[backup] = Lane(tx_queue_name(self._master, self._txid, backup))
        return True

    def add(self, events: list[tuple[str, bytes]]) -> None:
        """Append events; the last one may be a prepare or the end, which need an answer."""
        self._events += events
        if events and events[-1][0] in ENDS | {PREPARE}:
            self._asked_from = len(self._events) - 1
            for lane in self._lanes.values():
                lane.tries, lane.again_at_ms = 0, None

    def on_prepared(self, backup: NodeId) -> None:
        """Note that a participant has all events durably."""
        lane = self._lanes.get(backup)
        if lane is not None:
            lane.has_prepared = True
            if not self.has_ended:
                lane.again_at_ms = None

    def on_missing(self, backup: NodeId, number: int) -> None:
        """Note that a participant lacks the events from a number on."""
        lane = self._lanes.get(backup)
        if lane is not None and 0 <= number < lane.sent:
            lane.sent = number

    def leave(self, backup: NodeId) -> None:
        """Note that a participant leaves the transaction: it is not asked again."""
        self._left.add(backup)

    def lose(self, backup: NodeId) -> bool:
        """Remove a participant that is gone, or has left. Returns whether it took part."""
        return self._lanes.pop(backup, None) is not None

    def end(self, kind: str, reason: str) -> None:
        """Add the end. Participants that never heard of the transaction need not hear of its end."""
        for backup, lane in list(self._lanes.items()):
            if not lane.is_invited:
                self.lose(backup)
        self.add([(kind, reason.encode())])

    def messages(self, mono_ms: int) -> list[Outgoing]:
        """Return the messages that are due, also repeated ones."""
        outgoing: list[Outgoing] = []
        for backup, lane in list(self._lanes.items()):
            if self._is_repeated(backup, lane, mono_ms):
                continue
            if lane.is_invited and lane.sent == len(self._events):
                continue
            if not lane.is_invited:
                if lane.invitations:
                    lane.queue = tx_queue_name(self._master, self._txid, backup, lane.invitations)
                lane.invitations += 1
                self.queues.append(OpenTxQueue(lane.queue))
                outgoing.append(Outgoing(backup, TxJoin(self._txid, self._view, lane.queue)))
                lane.is_invited = True
            outgoing += [Outgoing(backup, message, lane.queue) for message in self._parts(lane.sent)]
            lane.sent = len(self._events)
            wants_answer = self._asked_from is not None and (self.has_ended or not lane.has_prepared)
            if wants_answer:
                steps = min(PATIENCE_STEPS, max(1, 2 * lane.tries - 2))
                lane.again_at_ms = mono_ms + self._config.retry_ms * steps
        return outgoing

    def _is_repeated(self, backup: NodeId, lane: Lane, mono_ms: int) -> bool:
        """Prepare to repeat the last event when it is due; return whether the participant was given up instead."""
        if lane.again_at_ms is None or mono_ms < lane.again_at_ms or self._asked_from is None:
            return False
        lane.tries += 1
        if self.has_ended and lane.tries > self._config.end_tries:
            self.lose(backup)
            return True
        lane.sent = min(lane.sent, self._asked_from)
        # First only the event: a backup that lost its queue has made it anew. Later also an invitation: this queue may be gone.
        lane.is_invited = lane.tries < 2
        return False

    def _parts(self, first: int) -> list[TxEvents]:
        """Return events from a number on, in messages of bounded size."""
        parts: list[TxEvents] = []
        begin, size = first, 0
        for number in range(first, len(self._events)):
            size += len(self._events[number][1])
            if size >= self._config.event_bytes or number == len(self._events) - 1:
                parts.append(TxEvents(self._txid, self._view, begin, tuple(self._events[begin : number + 1])))
                begin, size = number + 1, 0
        return parts

    def due_ms(self) -> int | None:
        """Return when an event is to be repeated."""
        due = [lane.again_at_ms for lane in self._lanes.values() if lane.again_at_ms is not None]
        return min(due, default=None)
