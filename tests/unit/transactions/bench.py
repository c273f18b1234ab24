"""One master with its backups, at the level of cores: journals are copied record by record, messages travel over a lossy wire.

    bench = TxBench(backups=("b1", "b2"), sync_n=1, seed=7, loss=0.2)
    txid = bench.begin()
    bench.ask("operations", txid, operations=publish("q", "x"))
    bench.ask("commit", txid)            -> TxReply
    bench.fail_over()                    the primary dies; the backup with the longest journal takes over

What is sent to workers and clients waits until ``sync_n`` backups hold the record before it, as behind the real gate; events of
transactions wait for nothing. Bodies of prepared transactions reach participants by reference, as in the real feed.

`crash_at` kills the primary at its n-th crash point: before a record is written, after it, after its messages were sent.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any, NamedTuple

import msgpack

from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model.ids import Instant, NodeId, TxId
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, OpenTxQueue, Ready, TxQueueDecision
from brokerha.model.records import Record, TxDecided, TxPrepared, ViewStarted
from brokerha.model.requests import Reply, Submit, TxCommand, TxReply
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import TxAnswer, TxEvents, TxJoin
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from brokerha.transactions.book import ABORTED, COMMITTED
from brokerha.transactions.config import ParticipantConfig, TxConfig
from brokerha.transactions.participant import Participant
from tests.support.logs import memory_log, reopened
from tests.unit.transactions.queue_site import Queues, SmallWorker, contents

OF_TRANSACTIONS = (TxJoin, TxEvents, TxAnswer)
TICK_MS = 10
EXPIRES_MS = 10_000


def word_of(answer: dict[str, Any] | None) -> str:
    """The one word for what ``Front.outcome`` answers of a transaction.

    >>> word_of({"state": "applied", "outcome": "rejected"}), word_of({"state": "synchronised", "outcome": None}), word_of(None)
    ('aborted', 'committing', 'unknown')
    """
    if answer is None:
        return "unknown"
    state = str(answer["state"])
    if state == "applied":
        return COMMITTED if answer["outcome"] == "applied" else ABORTED
    return "committing" if state in ("accepted", "synchronised") else state


class Crash(Exception):
    """The primary dies here."""


class Flight(NamedTuple):
    """A message under way."""

    due_ms: int
    to: NodeId
    envelope: Envelope
    queue: str


class Backup:
    """A process of the master that is not primary."""

    def __init__(self, node: NodeId, config: ParticipantConfig, view: int) -> None:
        self.node = node
        self.journal = memory_log("m1", "journal-of-m1")
        self.participant = Participant(config, view)
        self.is_ready = True
        self.is_paused = False
        self.fetched = 0
        """Prepared bodies that did not come through the queue in time and were fetched."""

    @property
    def number(self) -> int:
        return self.journal.last_number

    def follow(self, records: list[Record]) -> None:
        """Take the next records of the primary's journal, those that name it as participant by reference."""
        for record in records:
            full = record
            if isinstance(record, TxPrepared) and self.node in record.participants:
                body = self.participant.bodies(record.txid)
                self.fetched += body is None
                full = record if body is None else TxPrepared(record.txid, record.xid, body, *_rest(record))
                assert full == record
            self.journal.append([full])
            if isinstance(record, TxPrepared):
                self.participant.on_record_durable(record.txid)
            elif isinstance(record, TxDecided):
                self.participant.on_decided(record.txid)


def _rest(record: TxPrepared) -> tuple[tuple[NodeId, ...], int]:
    return record.participants, record.prepared_us


class TxBench:
    """The master m1; its first primary is m1 itself."""

    def __init__(
        self, backups: tuple[NodeId, ...] = ("b1", "b2"), *, sync_n: int | None = None, seed: int = 0, loss: float = 0.0,
        part: ParticipantConfig | None = None, **settings: Any
    ) -> None:  # fmt: skip
        self.random = random.Random(seed)
        self.loss = loss
        self.sync_n = min(1, len(backups)) if sync_n is None else sync_n
        tx = TxConfig(sync_n=self.sync_n, **settings)
        self.config = MasterConfig(SyncConfig("m1", ("m1",)), FeedConfig(("w1",)), tx=tx)
        self.part = part or ParticipantConfig()
        self.primary: NodeId = "m1"
        self.journal = memory_log("m1", "journal-of-m1")
        self.ms = 1_000
        self.view = 1
        self.worker = SmallWorker()
        self.backups = {node: Backup(node, self.part, 1) for node in backups}
        self.tickets = itertools.count(1)
        self.numbers = itertools.count(1)
        self.replies: dict[int, TxReply | Reply] = {}
        self.held: deque[tuple[int, Ready]] = deque()
        self.flights: list[Flight] = []
        self.queues: dict[str, list[Envelope]] = {}
        self.down: set[str] = set()
        """Queues whose broker node is down: nothing comes of them, and they cannot be made anew."""
        self.followed: dict[str, NodeId] = {}
        self.used_ms: dict[str, int] = {}
        """When each queue was followed last; it expires some time after that, as its arguments say."""
        self.sent: list[Outgoing] = []
        self.crash_points = 0
        self.crash_at: int | None = None
        self.is_alive = True
        self.start()

    def start(self) -> None:
        """Build the core of the primary from its journal, and let it settle."""
        state = self.journal.state()
        self.prefix = f"m1.{state.journal[:8]}.{state.incarnation + 1:x}."
        self.core = MasterCore(self.config, state, self.journal)
        self.is_alive = True
        self.heard_ms = 0
        self.run(100)

    # ---- the world

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def has_died(self) -> bool:
        """Whether the primary died, perhaps just now."""
        return not self.is_alive

    def run(self, for_ms: int, tick_ms: int = TICK_MS) -> None:
        """Let time pass."""
        for _ in range(for_ms // tick_ms):
            self.ms += tick_ms
            self.tick()

    def settle(self) -> None:
        """Let everything that is under way come to its end, in longer steps once only what waits for a clock is left."""
        loss, self.loss = self.loss, 0.0
        self.run(500)
        self.run(19_500, 10 * TICK_MS)
        self.loss = loss

    def tick(self) -> None:
        self._deliver()
        for backup in self.backups.values():
            if not backup.is_paused:
                backup.participant.wake(self.now())
                self._carry_out_of(backup)
        if self.is_alive:
            try:
                # What was written in the turn before: it travels beside the events that were sent in that turn.
                self._replicate()
                self._turn()
            except Crash:
                self.is_alive = False
                self.held.clear()

    def _turn(self) -> None:
        if self.ms - self.heard_ms >= 500:
            self.heard_ms = self.ms
            self.core.step(Envelope("c", "w1", 1, self.worker.progress(self.core.view)), self.now())
        self.core.transacting.set_backups([b.node for b in self.backups.values() if b.is_ready], self.view)
        self.core.wake(self.now())
        while ready := self.core.take_ready(self.now()):
            self.crash_point()
            if ready.records:
                self.journal.append(ready.records)
                self.crash_point()
            for decision in ready.tx_queues:
                self._queue(decision, self.primary)
            for out in ready.messages:
                if isinstance(out.message, OF_TRANSACTIONS):
                    self._send(self.primary, out)
            self.crash_point()
            self.held.append((self.journal.last_number, ready))
        self._release()

    def crash_point(self) -> None:
        self.crash_points += 1
        if self.crash_points == self.crash_at:
            raise Crash

    def _replicate(self) -> None:
        last = self.journal.last_number
        for backup in self.backups.values():
            if backup.number < last and not backup.is_paused and self.random.random() >= self.loss:
                records = dict(self.journal.records(backup.number + 1))
                backup.follow([records[n] for n in range(backup.number + 1, last + 1)])
                self.crash_point()

    def _release(self) -> None:
        """The gate: what enough backups hold is told."""
        while self.held:
            number, ready = self.held[0]
            if sum(backup.number >= number for backup in self.backups.values()) < self.sync_n:
                return
            self.held.popleft()
            for out in ready.messages:
                answer = self.worker.take(out.message) if out.to == "w1" else None
                if answer is not None:
                    self.core.step(Envelope("c", "w1", 1, answer), self.now())
            self.crash_point()
            replies: list[Reply | TxReply] = [*ready.replies, *ready.tx_replies]
            for reply in replies:
                assert reply.ticket not in self.replies, "each ticket gets one reply"
                self.replies[reply.ticket] = reply

    def _carry_out_of(self, backup: Backup) -> None:
        ready = backup.participant.take_ready()
        for decision in ready.tx_queues:
            self._queue(decision, backup.node)
        for out in ready.messages:
            self._send(backup.node, out)

    def _queue(self, decision: TxQueueDecision, node: NodeId) -> None:
        match decision:
            case OpenTxQueue(queue):
                if queue not in self.down:
                    self.queues.setdefault(queue, [])
            case FollowTxQueue(queue):
                if queue not in self.down:
                    self.queues.setdefault(queue, [])
                    self.followed[queue] = node
            case LeaveTxQueue(queue):
                if self.followed.pop(queue, None) is not None:
                    self.queues.pop(queue, None)

    def _send(self, sender: NodeId, out: Outgoing) -> None:
        self.sent.append(out)
        envelope = Envelope("c", sender, 1, out.message)
        for _ in range(2 if self.random.random() < self.loss / 2 else 1):
            if self.random.random() < self.loss:
                continue
            if out.queue:
                if out.queue in self.queues:
                    self.queues[out.queue].append(envelope)
            else:
                late_ms = TICK_MS * self.random.randint(1, 20) if self.loss else TICK_MS
                self.flights.append(Flight(self.ms + late_ms, out.to, envelope, out.queue))

    def _expire(self) -> None:
        for queue in list(self.queues):
            if queue in self.followed or queue not in self.used_ms:
                self.used_ms[queue] = self.ms
            elif self.ms - self.used_ms[queue] >= EXPIRES_MS:
                del self.queues[queue], self.used_ms[queue]

    def _deliver(self) -> None:
        self._expire()
        due = [flight for flight in self.flights if flight.due_ms <= self.ms]
        self.flights = [flight for flight in self.flights if flight.due_ms > self.ms]
        for flight in due:
            backup = self.backups.get(flight.to)
            if flight.to == self.primary and self.is_alive:
                self.core.step(flight.envelope, self.now())
            elif backup is not None and not backup.is_paused:
                backup.participant.step(flight.envelope, self.now())
        for queue, node in list(self.followed.items()):
            backup = self.backups.get(node)
            if backup is not None and not backup.is_paused:
                envelopes, self.queues[queue] = self.queues.get(queue, []), []
                for envelope in envelopes:
                    backup.participant.step(envelope, self.now())

    # ---- clients

    def do(self, action: str, txid: TxId, within_ms: int = 5_000, /, **arguments: Any) -> int:
        """Hand in one step of a transaction; returns its ticket."""
        ticket = next(self.tickets)
        if self.is_alive:
            self.core.step(TxCommand(ticket, action, txid, arguments, within_ms), self.now())
        return ticket

    def ask(self, action: str, txid: TxId, within_ms: int = 5_000, /, **arguments: Any) -> TxReply:
        """Hand in one step and wait for its answer."""
        ticket = self.do(action, txid, within_ms, **arguments)
        for _ in range(1500):
            reply = self.replies.get(ticket)
            if reply is not None or not self.is_alive:
                break
            self.run(TICK_MS)
        reply = self.replies.get(ticket)
        return reply if isinstance(reply, TxReply) else TxReply(ticket, txid, "OutcomeUnknown", "the primary died")

    def begin(self, **arguments: Any) -> TxId:
        """Begin a transaction; returns its id."""
        txid = f"{self.prefix}{next(self.numbers):x}.t"
        reply = self.ask("begin", txid, **arguments)
        assert not reply.error or not self.is_alive, reply
        return txid

    def begun(self, *operations: list[Any], **arguments: Any) -> TxId:
        """Begin a transaction and put operations into it, a call for each list."""
        txid = self.begin(**arguments)
        for some in operations:
            reply = self.ask("operations", txid, operations=some)
            assert not reply.error or not self.is_alive, reply
        return txid

    def submit(self, operations: list[Any], txid: TxId = "") -> Reply:
        """A plain write, waited for."""
        ticket, txid = next(self.tickets), txid or f"{self.prefix}{next(self.numbers):x}.t"
        self.core.step(Submit(ticket, txid, msgpack.packb(operations), timeout_ms=5_000), self.now())
        while ticket not in self.replies and self.is_alive:
            self.run(TICK_MS)
        reply = self.replies.get(ticket)
        assert isinstance(reply, Reply)
        return reply

    # ---- faults

    def kill(self) -> None:
        """The primary dies: nothing more comes from it."""
        self.is_alive = False
        self.held.clear()

    def fail_over(self) -> None:
        """The backup with the longest journal becomes primary; the former one comes back as a backup with its journal."""
        self.kill()
        candidates = [backup for backup in self.backups.values() if not backup.is_paused]
        chosen = max(candidates, key=lambda backup: backup.number)
        del self.backups[chosen.node]
        former = Backup(self.primary, self.part, self.view)
        self.view += 10
        self.primary, self.journal = chosen.node, chosen.journal
        chosen.participant.on_new_view(self.view)
        self._carry_out_of(chosen)
        assert not chosen.participant.joined
        self.backups[former.node] = former
        for backup in self.backups.values():
            # Whoever has a tail that the new primary lacks begins anew from it.
            backup.journal = reopened(chosen.journal)
            backup.participant.on_new_view(self.view)
        self.journal.append([ViewStarted(self.view, self.primary)])
        self.start()

    def restart(self) -> None:
        """All processes stop and start again."""
        self.kill()
        self.flights, self.queues, self.followed = [], {}, {}
        self.view += 10
        for backup in self.backups.values():
            backup.participant = Participant(self.part, self.view)
        self.journal.append([ViewStarted(self.view, self.primary)])
        self.start()

    def rejoin(self, node: NodeId) -> None:
        """A backup that was away follows again, and is ready when it has everything."""
        self.backups[node].is_paused = False
        self.run(5 * TICK_MS)
        self.backups[node].is_ready = True

    # ---- what is there

    @property
    def content(self) -> Queues:
        """What the primary's queues hold."""
        return contents(self.journal)

    def contents(self) -> list[Queues]:
        """What the queues of all processes hold, the primary's first."""
        return [contents(self.journal), *(contents(backup.journal) for backup in self.backups.values())]

    def outcome(self, txid: TxId) -> dict[str, Any] | None:
        """What the primary says became of a transaction."""
        return self.core.transacting.outcome(txid, self.now())

    def lose_broker_node(self) -> None:
        """The node of all queues that there are is down from now on."""
        self.down |= self.queues.keys()
        self.queues.clear()
        self.followed.clear()

    def check_clean(self) -> None:
        """Nothing is left: no open transaction, lock, queue, follower, or event in memory."""
        book = self.core.transacting.coordinator.book
        assert not book.table
        assert not book.xids
        assert not book.ending
        assert not book.executing
        assert not book.placed
        assert not self.worker.queues.prepared
        assert len(book.locks) == 0
        assert book.open_bytes == 0
        assert not self.queues
        assert not self.followed
        for backup in self.backups.values():
            assert not backup.participant.joined
            assert not backup.participant._durable
            assert backup.participant._bytes == 0
