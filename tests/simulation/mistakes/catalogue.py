"""Planted mistakes: each switches off one rule of the protocol in the shipped code, and the simulator has to notice.

A simulator that finds nothing proves nothing until it is known what it would find. Each mistake here replaces a method or two
for the time of one run; tests/simulation/test_mistakes.py shows after how many seeds each is caught.

    with planted("no counter check"):
        simulate(7)         # its report names a violation
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from brokerha.following.line import piece
from brokerha.log.history import LogHistory
from brokerha.model.errors import JournalError
from brokerha.model.ids import Instant, NodeId, Ordered
from brokerha.model.ready import Ready
from brokerha.model.records import Added, BodiesHeld, MasterState, Outcomes, PeerJournal
from brokerha.model.wire.epoch_messages import Row
from brokerha.model.wire.messages import Execute, Executed, Outgoing
from brokerha.nodes.master.runner import MasterRunner
from brokerha.replication.site.config import WorkerFeed
from brokerha.replication.site.feed import Feed
from brokerha.replication.worker.core import WorkerCore
from brokerha.sync import identity as identity_module
from brokerha.sync.bodies import BodyExchange
from brokerha.sync.core import Posting, SyncCore
from brokerha.sync.epochs import proposing as proposing_module
from brokerha.sync.peers import Peer, PeerTable
from brokerha.sync.round import RoundResult
from brokerha.sync.state import HybridClock, SyncState
from brokerha.sync.streams import Incoming, IncomingQueue, Stream
from tests.simulation.mistakes.backups import BACKUP_MISTAKES
from tests.simulation.mistakes.epochs import EPOCH_MISTAKES, MEMBER_MISTAKES
from tests.simulation.mistakes.forgetting import FORGETTING_MISTAKES
from tests.simulation.mistakes.log import DEFERRING_MISTAKES, LOG_MISTAKES
from tests.simulation.mistakes.modes import CHOOSING_MISTAKES, MODE_MISTAKES
from tests.simulation.mistakes.patches import Patch, always, nothing
from tests.simulation.mistakes.transactions import ISOLATION_MISTAKES, LARGE_MISTAKES, PREPARE_MISTAKES
from tests.simulation.mistakes.workers import STORE_MISTAKES, WORKER_MISTAKES

# The replacements below take ``self`` of classes whose insides they must touch.


def _promise_all(self: PeerTable) -> int | None:
    return 2**62 if self.peers else None


def _qualify_unseen(self: PeerTable, streams: dict[NodeId, Stream]) -> None:
    for peer in self.peers.values():
        peer.promise = max(peer.promise, streams[peer.node].last, peer.row.promise if peer.row else 0)


def _promise_without_moving(self: HybridClock, wall_us: int) -> int:
    return max(self.last, wall_us)


def _saw_nothing(_self: HybridClock, _timestamp: int) -> None:
    return


def _forgotten_clock(self: HybridClock, high_water: int, reserve_us: int) -> None:
    self.last, self.high_water, self._reserve_us = 0, high_water, reserve_us


def _wall_ticks(self: HybridClock, wall_us: int, count: int) -> list[int]:
    self.last = wall_us
    return [wall_us] * count


def _send_then_write(self: MasterRunner, now: Instant) -> None:
    while ready := self.core.take_ready(now):
        self.transport.send(ready.messages)
        if not self._write(ready, now):
            return
        for reply in ready.replies:
            self._answer(reply)


def _answer_then_write(self: MasterRunner, now: Instant) -> None:
    while ready := self.core.take_ready(now):
        for reply in ready.replies:
            self._answer(reply)
        if not self._write(ready, now):
            return
        self.transport.send(ready.messages)


def _go_on_when_full(self: MasterRunner, ready: Ready, _now: Instant) -> bool:
    try:
        self.journal.append(ready.records)
    except JournalError:
        return True
    return True


def _tell_then_write(self: MasterRunner, ready: Ready, now: Instant) -> bool:
    bodies = {(o, t): b for record in ready.records if isinstance(record, BodiesHeld) for o, t, b in record.items}
    for record in ready.records:
        if isinstance(record, Added) and record.entries:
            held = [bodies.get((o, t)) or self.journal.body(o, t) or b"" for _, t, o in record.entries]
            items = tuple((t, ts, body) for (ts, t, _), body in zip(record.entries, held, strict=True))
            told = Execute(record.first_lsn, items[:1])
            self.transport.send([Outgoing(worker, told) for worker in self.config.feed.workers])
    return _write(self, ready, now)


_write = MasterRunner._write


def _held_here(_self: PeerTable, streams: dict[NodeId, Stream], _mono_ms: int) -> dict[NodeId, int]:
    return {origin: stream.count for origin, stream in streams.items()}


def _acquire_all(_self: BodyExchange, stream: Stream) -> int:
    return len(stream.waiting)


def _once_in_a_batch(_self: SyncCore, prefix: list[Incoming], _result: RoundResult) -> list[Ordered]:
    return [(timestamp, txid, origin) for timestamp, txid, origin, _ in {entry[1]: entry for entry in prefix}.values()]


def _take_journal(self: PeerTable, row: Row) -> bool:
    if self.journals.get(row.node) != row.journal:
        self.journals[row.node] = row.journal
        self.new_journals.append(PeerJournal(row.node, row.journal))
    return True


def _take_with_gap(self: Feed, sender: NodeId, report: Executed, mono_ms: int) -> Outcomes | None:
    first = min(report.first_lsn, self.executed + 1)
    moved = replace(report, first_lsn=first)
    return _on_executed(self, sender, moved, mono_ms)


_on_executed = Feed.on_executed


def _execute_again(self: WorkerCore, is_execute: bool, first: int, items: tuple[Any, ...], view: int, now: Instant) -> None:
    if is_execute and items and first <= self.applied:
        self._line.pieces.append(piece(first, items, kind=True))
    else:
        _on_items(self, is_execute, first, items, view, now)


_on_items = WorkerCore._on_items


def _never_again(self: Feed, worker: WorkerFeed, mono_ms: int, linger_due_ms: int | None) -> list[Outgoing]:
    worker.moved_ms = mono_ms
    worker.sent, sent = max(worker.sent, getattr(self, "most", {}).get(worker.node, 0)), worker.sent
    outgoing = _messages_for(self, worker, mono_ms, linger_due_ms)
    self.__dict__.setdefault("most", {})[worker.node] = max(worker.sent, sent)
    return outgoing


_messages_for = Feed._messages_for


def _own_only(_self: Posting, sync: SyncState, _peer: Peer, origin: NodeId, _stuck_ms: int) -> bool:
    return origin == sync.node


def _no_rows(_self: Posting, _sync: SyncState, _peer: Peer) -> tuple[Row, ...]:
    return ()


def _overtaking(self: IncomingQueue, up_to: int, held: dict[NodeId, int]) -> list[Incoming]:
    ready = [entry for entry in self._queue if entry[0] <= up_to and entry[3] < held.get(entry[2], 0)]
    rest = [entry for entry in self._queue if entry not in ready]
    self._queue.clear()
    self._queue.update([(0, "", "", number) for number in range(len(ready))] + rest)
    return ready


def _nobody(*_arguments: object) -> list[NodeId]:
    return []


def _never_stuck(_self: Peer, _origin: NodeId, _mono_ms: int) -> int:
    return 0


def _forget_parked(self: LogHistory) -> MasterState:
    state = _state(self)
    state.parked = []
    return state


_state = LogHistory.state

MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "no counter check": lambda: [(PeerTable, "least_promise", _promise_all)],
    "promises not qualified": lambda: [(PeerTable, "qualify", _qualify_unseen)],
    "clock not moved by own promises": lambda: [(HybridClock, "promise", _promise_without_moving)],
    "clock not moved by entries seen": lambda: [(HybridClock, "saw", _saw_nothing)],
    "clock follows the wall": lambda: [(HybridClock, "ticks", _wall_ticks)],
    "high-water mark forgotten": lambda: [(HybridClock, "__init__", _forgotten_clock)],
    "posted before it is durable": lambda: [(MasterRunner, "_carry_out", _send_then_write)],
    "answered before it is durable": lambda: [(MasterRunner, "_carry_out", _answer_then_write)],
    "workers told before it is durable": lambda: [(MasterRunner, "_write", _tell_then_write)],
    "full disk ignored": lambda: [(MasterRunner, "_write", _go_on_when_full)],
    "acknowledgements not awaited": lambda: [(PeerTable, "held_by_required", _held_here)],
    "minority may add": lambda: [(PeerTable, "majority", property(lambda _self: 1)), (PeerTable, "is_active", always)],
    "entries listed without bodies": lambda: [(BodyExchange, "acquire", _acquire_all)],
    "bodies never asked for": lambda: [(BodyExchange, "fetches", nothing)],
    "ids compared within a batch only": lambda: [(SyncCore, "_without_known", _once_in_a_batch)],
    "entries overtake each other": lambda: [(IncomingQueue, "common_prefix", _overtaking)],
    "emptied disk accepted": lambda: [
        (PeerTable, "is_known_journal", _take_journal),
        (identity_module, "check_own_state", nothing),
        (identity_module, "is_known", always),
    ],
    "emptied disk stamps at once": lambda: [(identity_module, "is_known", always)],
    "entries not sent again": lambda: [(Peer, "stuck_ms", _never_stuck)],
    "one beyond the log is not missed": lambda: [(proposing_module, "beyond_the_log", _nobody)],
    "nothing relayed": lambda: [(Posting, "_is_relayed", _own_only), (Posting, "_relayed", _no_rows)],
    "parked forgotten at a restart": lambda: [(LogHistory, "state", _forget_parked)],
    "results taken with a gap": lambda: [(Feed, "on_executed", _take_with_gap)],
    "workers not sent again": lambda: [(Feed, "_messages_for", _never_again)],
    "worker executes again": lambda: [(WorkerCore, "_on_items", _execute_again)],
    **LOG_MISTAKES,
    **FORGETTING_MISTAKES,
    **DEFERRING_MISTAKES,
    **WORKER_MISTAKES,
    **STORE_MISTAKES,
    **BACKUP_MISTAKES,
    **EPOCH_MISTAKES,
    **MEMBER_MISTAKES,
    **MODE_MISTAKES,
    **CHOOSING_MISTAKES,
    **PREPARE_MISTAKES,
    **ISOLATION_MISTAKES,
    **LARGE_MISTAKES,
}
"""Every mistake, by what goes wrong."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Make a mistake for a while. Raises KeyError for an unknown one."""
    patches = MISTAKES[name]()
    before = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in patches]
    try:
        for owner, attribute, instead in patches:
            setattr(owner, attribute, instead)
        yield
    finally:
        for owner, attribute, original in before:
            setattr(owner, attribute, original)
