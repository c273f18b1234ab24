"""Participant: transactions at a backup, from the invitation to the end (transactions, sections 2 to 5).

    TxJoin ------> FollowTxQueue
    TxEvents ----> in order; missing ones are requested
    prepare -----> are all events here, with the digest of the primary?       refused
    the journal -> on_record_durable                                          prepared
    the end -----> LeaveTxQueue, done, nothing is kept

    bodies(txid)             the journal of this backup fills its references from here
    on_record_durable(txid)  its prepare record is durable here
    on_decided(txid)         its decision is in the journal here
    on_new_view(view)        another primary acts: all transactions of the old one are dropped
    leave_off()              this process is paused: the same, until a view begins for it

A participant decides nothing and makes nothing durable: prepared transactions are in the journal, in full, and survive this process
and the primary. So it can drop all its memory at any moment, and a new primary needs nothing of it.

Invariants: P1 ``prepared`` is said only of transactions that are durable here, in full; P2 events of another view change nothing;
P3 an event counts once, in its place; P4 an ended transaction leaves neither queue nor memory behind.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from brokerha.model.ids import Instant, NodeId, TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, OPERATIONS_LIMIT
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, Ready, TxQueueDecision
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import TxAnswer, TxEvents, TxJoin
from brokerha.transactions.config import ParticipantConfig
from brokerha.transactions.states import Part, Seen, after_seen
from brokerha.transactions.transaction import body_of, digest_of
from brokerha.transactions.tx_feed import ENDS, OPERATION, PREPARE

PATIENCE_STEPS = 8
NEEDS_ITS_PRIMARY = frozenset({Part.COLLECTING, Part.CLOSED, Part.REFUSED})
"""States in which the primary, not the journal, tells the end; or the journal told it before they were joined, in a loaded one."""


@dataclass(slots=True)
class Joined:
    """A transaction in which this backup takes part."""

    txid: TxId
    primary: NodeId
    queue: str
    part: Part = Part.COLLECTING
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    next: int = 0
    """Number of the first event that is not here."""
    body: bytes = b""
    """Set from its prepare on."""
    reason: str = ""
    heard_ms: int = 0
    asked_ms: int = 0
    """When its primary was last asked whether it is still open."""
    tries: int = 0
    ask_at_ms: int | None = None
    """When to ask for missing events; None when none are known to be missing."""


class Participant:
    """All transactions of one backup."""

    def __init__(self, config: ParticipantConfig, view: int = 1) -> None:
        self.config = config
        self.view = view
        self.joined: dict[TxId, Joined] = {}
        self.counts: Counter[str] = Counter()
        """Counts since the start: joined, refused, and ignored messages."""
        self._ended: OrderedDict[TxId, None] = OrderedDict()
        self._durable: OrderedDict[TxId, None] = OrderedDict()
        """Transactions with prepare records that are durable here, and without a decision."""
        self._bytes = 0
        self._messages: list[Outgoing] = []
        self._queues: list[TxQueueDecision] = []

    # ---- inputs

    def step(self, envelope: Envelope, now: Instant) -> None:
        """Take in a message of the primary: `TxJoin` or `TxEvents`."""
        message = envelope.message
        if not isinstance(message, TxJoin | TxEvents):
            self.counts["not_for_a_participant"] += 1
        elif message.view != self.view:
            self.counts["other_view"] += 1
        elif message.txid in self._ended:
            # A primary that asks again did not hear that this backup has left.
            if isinstance(message, TxJoin) or (message.events[-1:] and message.events[-1][0] in ENDS):
                self._send(envelope.process or envelope.sender, message.txid, "done", 0)
        elif isinstance(message, TxJoin):
            self._on_join(envelope.process or envelope.sender, message, now)
        else:
            self._on_events(message, now)

    def _on_join(self, primary: NodeId, message: TxJoin, now: Instant) -> None:
        joined = self.joined.get(message.txid)
        if joined is None:
            if len(self.joined) >= self.config.open_limit:
                self._send(primary, message.txid, "refused", 0, f"{self.config.open_limit} transactions are open here")
                self.counts["refused"] += 1
                return
            joined = self.joined[message.txid] = Joined(message.txid, primary, message.queue)
            self.counts["joined"] += 1
        joined.heard_ms = now.mono_ms
        if joined.queue != message.queue:
            self._queues.append(LeaveTxQueue(joined.queue))
            joined.queue = message.queue
        # Also when invited again: the queue may have been lost and made anew.
        self._queues.append(FollowTxQueue(message.queue))
        if joined.part is Part.REFUSED:
            self._send(primary, joined.txid, "refused", joined.next, joined.reason)

    def _on_events(self, message: TxEvents, now: Instant) -> None:
        joined = self.joined.get(message.txid)
        if joined is None:
            # The invitation comes by another way and may be late; it is repeated, and so are these.
            self.counts["not_joined"] += 1
            return
        joined.heard_ms = now.mono_ms
        last = message.events[-1][0] if message.events else ""
        if last in ENDS:
            self._end(joined)
            return
        if message.first > joined.next and joined.part is Part.COLLECTING:
            if joined.ask_at_ms is None:
                joined.ask_at_ms = now.mono_ms
            return
        fresh = message.events[max(0, joined.next - message.first) :]
        for kind, data in fresh if joined.part is Part.COLLECTING else ():
            self._on_event(joined, kind, data)
        if fresh:
            joined.tries, joined.ask_at_ms = 0, None
        if last == PREPARE and not fresh:
            # The primary asks again.
            self._tell(joined)

    def _on_event(self, joined: Joined, kind: str, data: bytes) -> None:
        if joined.part is not Part.COLLECTING:
            return
        joined.next += 1
        if kind == OPERATION:
            self._on_operation(joined, data)
        elif kind == PREPARE:
            joined.body = body_of(joined.pieces)
            if digest_of(joined.body) != data:
                self._refuse(joined, "the events here are not those of the primary: another digest")
                return
            joined.pieces = []
            joined.part = after_seen(joined.part, Seen.PREPARE)
            if joined.txid in self._durable:
                self._on_durable(joined)

    def _on_operation(self, joined: Joined, data: bytes) -> None:
        joined.pieces.append(data)
        joined.size += len(data)
        self._bytes += len(data)
        if joined.size > BODY_LIMIT_BYTES or len(joined.pieces) > OPERATIONS_LIMIT:
            self._refuse(joined, f"the transaction has {joined.size} bytes in {len(joined.pieces)} operations: too many")
        elif self._bytes > self.config.bytes_limit:
            self._refuse(joined, f"transactions here would hold more than {self.config.bytes_limit} bytes together")

    def on_record_durable(self, txid: TxId) -> None:
        """Note that the prepare record of a transaction is durable in the journal here, with its body."""
        self._durable[txid] = None
        while len(self._durable) > self.config.remembered_limit:
            self._durable.popitem(last=False)
        joined = self.joined.get(txid)
        if joined is not None:
            self._on_durable(joined)

    def _on_durable(self, joined: Joined) -> None:
        if joined.part is Part.CLOSED:
            joined.part = after_seen(joined.part, Seen.DURABLE)
            self._tell(joined)

    def on_decided(self, txid: TxId) -> None:
        """Note that the decision about a transaction is in the journal here: nothing of it is needed any more."""
        self._durable.pop(txid, None)
        joined = self.joined.get(txid)
        if joined is not None:
            self._end(joined)

    def on_new_view(self, view: int) -> None:
        """Drop transactions of the old primary: another one acts."""
        if view == self.view:
            return
        self.view = view
        for joined in self.joined.values():
            joined.part = after_seen(joined.part, Seen.NEW_VIEW)
            self._queues.append(LeaveTxQueue(joined.queue))
        self._forget()

    def leave_off(self) -> None:
        """Take part in nothing until `on_new_view`; the primary goes on without this process."""
        self.view = 0
        self._queues += [LeaveTxQueue(joined.queue) for joined in self.joined.values()]
        self._forget()

    def _forget(self) -> None:
        self.joined.clear()
        self._ended.clear()
        self._durable.clear()
        self._messages.clear()
        self._bytes = 0

    # ---- ends and refusals

    def _end(self, joined: Joined) -> None:
        joined.part = after_seen(joined.part, Seen.ENDED)
        self._queues.append(LeaveTxQueue(joined.queue))
        self._send(joined.primary, joined.txid, "done", joined.next)
        self._bytes -= joined.size
        del self.joined[joined.txid]
        self._durable.pop(joined.txid, None)
        self._ended[joined.txid] = None
        while len(self._ended) > self.config.remembered_limit:
            self._ended.popitem(last=False)

    def _refuse(self, joined: Joined, reason: str) -> None:
        joined.part, joined.reason = after_seen(joined.part, Seen.UNFIT), reason
        self._bytes -= joined.size
        joined.pieces, joined.body, joined.size, joined.ask_at_ms = [], b"", 0, None
        self.counts["refused"] += 1
        self._tell(joined)

    def _tell(self, joined: Joined) -> None:
        """Repeat the state, as far as the primary waits for it."""
        if joined.part in (Part.PREPARED, Part.REFUSED):
            self._send(joined.primary, joined.txid, joined.part.value, joined.next, joined.reason)

    def _send(self, primary: NodeId, txid: TxId, answer: str, number: int, reason: str = "") -> None:
        self._messages.append(Outgoing(primary, TxAnswer(txid, self.view, answer, number, reason)))

    # ---- time and output

    def wake(self, now: Instant) -> None:
        """Request missing events; drop transactions that the primary has forgotten."""
        for joined in list(self.joined.values()):
            if joined.ask_at_ms is not None and joined.ask_at_ms <= now.mono_ms:
                joined.tries += 1
                if joined.tries > self.config.ask_tries:
                    self._refuse(joined, f"events from number {joined.next} on never came")
                    continue
                self._send(joined.primary, joined.txid, "missing", joined.next)
                joined.ask_at_ms = now.mono_ms + self.config.retry_ms * min(PATIENCE_STEPS, joined.tries)
            if joined.part not in NEEDS_ITS_PRIMARY:
                continue
            if now.mono_ms - joined.heard_ms >= self.config.idle_ms:
                self.counts["dropped_idle"] += 1
                self._end(joined)
            elif now.mono_ms >= self._ask_whether_open_ms(joined):
                # Its end may have been lost with its queue.
                joined.asked_ms = now.mono_ms
                answer = "refused" if joined.part is Part.REFUSED else "missing"
                self._send(joined.primary, joined.txid, answer, joined.next, joined.reason)

    def _ask_whether_open_ms(self, joined: Joined) -> int:
        return max(joined.heard_ms, joined.asked_ms) + self.config.still_ms

    def deadline_ms(self) -> int | None:
        """Return when it needs to be woken, in monotonic milliseconds."""
        due = [joined.ask_at_ms for joined in self.joined.values() if joined.ask_at_ms is not None]
        due += [
            min(self._ask_whether_open_ms(joined), joined.heard_ms + self.config.idle_ms)
            for joined in self.joined.values()
            if joined.part in NEEDS_ITS_PRIMARY
        ]
        return min(due, default=None)

    def take_ready(self) -> Ready:
        """Return messages to send, and queues to follow or leave; nothing here waits for a record."""
        messages, self._messages = tuple(self._messages), []
        queues, self._queues = tuple(self._queues), []
        return Ready(messages=messages, tx_queues=queues)

    def bodies(self, txid: TxId) -> bytes | None:
        """Return the body of a transaction that is closed and whole here, for a record that came without it; else None."""
        joined = self.joined.get(txid)
        return joined.body if joined is not None and joined.part in (Part.CLOSED, Part.PREPARED) else None
