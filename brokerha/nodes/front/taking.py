"""Taking messages: what consumers at one master are given, so that no other master gives it to somebody else.

    who asks ──> what is read here and free? ── yes ──> locked by the core, given
                        │ no
                        v
                      look: a worker tells what this master has claimed, and what nobody has
                        v
                      claim: a transaction that expects the row of claims unchanged ── others were faster ──> look
                        v
                      locked by the core, given; nothing to claim: who has the rest is asked to give back what nobody takes there,
                      and who asks waits until the queue may have changed

A master claims as many messages as its consumers take in about a second (model/reserved/claims.py), so most of them are given without asking anybody.
While somebody takes or holds messages the claim is renewed; a second after the last one it is given back.

A queue is looked at again when the applied LSN has moved, at most ten times a second; and once a second, because a rollback
gives messages back without any LSN. Belongs to the loop. Every future is completed, at the latest when its step ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgpack

from brokerha.client.outcomes import error_of_reply, is_conflict
from brokerha.model import etags
from brokerha.model.errors import BrokerhaError, NotReady, TimedOut, error_named
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.requests import UNKNOWN, Reply, TxReply
from brokerha.model.reserved.claims import CLAIM_LIMIT, EMPTY, LEASE_MS, TABLE, Claims, claimed, claims_in, packed
from brokerha.nodes.loop import complete
from brokerha.ports.front import ReadOutcome
from brokerha.transactions.locks import Locks

PAUSE_MS: Final = 100
SURELY_MS: Final = 1000
IDLE_MS: Final = 1000
"""So long after the last consumer a claim is given back."""
RENEW_MS: Final = LEASE_MS // 3
FRESH_MS: Final = 2 * LEASE_MS // 3
"""So long after a claim its messages are given out without a look."""
UPKEEP_MS: Final = 5000
"""How long a look and a claim may take for which nobody waits."""
ASKED_MS: Final = 200
"""So long whoever asks waits at least for what other masters may give back."""
SOON_MS: Final = 10
"""Least time between two looks meanwhile."""
PORTION_LIMIT: Final = 256
"""Messages that are claimed beyond what is asked for now."""
CANDIDATES_MORE: Final = 64
"""Messages that the core is offered beyond what is asked for: others may be given the first of them in the same turn."""

Row = tuple[str, str, bytes]
"""(message id, content type, body)"""
Found = tuple[str, str, bytes, bool]
"""The same, and whether this master has claimed it."""
Answer = dict[str, Any]


class Host(NamedTuple):
    """What a master lends; all of it is used in the loop's thread only, but `new_txid`."""

    node: NodeId
    new_txid: Callable[[], TxId]
    ask_read: Callable[[str, str, dict[str, Any], Lsn, int, Future[ReadOutcome]], None]
    """(kind, name, arguments, least LSN, time-out in ms, future): pass a read on to a worker."""
    applied_lsn: Callable[[], Lsn]
    rows: Callable[[], list[Answer]]
    """Transactions that are not over."""
    submit: Callable[[bytes, int], Future[Reply]]
    """Hand in a transaction, with the time in ms within which it has to be applied here. Raises NotReady."""
    locks: Callable[[], Locks]
    """Messages that transactions of this master have."""
    taken: Callable[[TxId, int], Sequence[str]]
    """(transaction, number of the operation): what a repeated call has got before."""
    want: Callable[[Iterable[NodeId], str], None]
    """(masters, queue): ask them to give back what they have claimed and nobody takes there."""


@dataclass(slots=True, eq=False)
class Taking:
    """One ``accept`` that is under way."""

    txid: TxId
    first: int
    queue: str
    count: int
    future: Future[Answer]
    wait_until_ms: int
    end_ms: int
    """When the step has to have an answer."""
    taken: tuple[str, ...] = ()
    """What the core gave."""
    lsn: Lsn = 0
    """What was seen the last time."""
    looked_ms: int = 0
    asked_ms: int | None = None
    """When other masters were first asked to give something back."""

    def due_ms(self, applied: Lsn) -> int:
        """When the queue is worth another look, as far as known now."""
        pause_ms = SURELY_MS if applied <= self.lsn else PAUSE_MS
        if applied > self.lsn and self.asked_ms is not None and self.looked_ms < self.asked_ms + ASKED_MS:
            pause_ms = SOON_MS
        return min(self.wait_until_ms, self.looked_ms + pause_ms)


@dataclass(slots=True, eq=False)
class _Queue:
    """What this master knows and has of one queue."""

    name: str
    used_ms: int
    """When somebody took from it last."""
    rows: dict[str, Row] = field(default_factory=dict)
    """Messages that may be given out here, in order, as of `lsn`."""
    given: set[str] = field(default_factory=set)
    """Those of `rows` that were given once: before they are given again they are looked for."""
    lsn: Lsn = 0
    waiting: list[Taking] = field(default_factory=list)
    """They need a look, or a claim."""
    is_busy: bool = False
    """Whether a look or a claim is under way."""
    row: bytes | None = None
    """The row of claims, as of `lsn`."""
    ids: tuple[str, ...] = ()
    """What is claimed here, as far as it is still there."""
    claimed_ms: int | None = None
    """When it was claimed last; None for nothing claimed by this process."""
    locking: int = 0
    """Those for whom the core is locking messages right now."""
    kept_up_ms: int = -SURELY_MS
    """When it was last seen to that its claim is renewed or given back."""
    is_wanted: bool = False
    """Whether another master has asked for what nobody takes here."""
    asked_ms: int = -SURELY_MS
    """When others were asked last."""
    portion: int = 1
    """How many messages were claimed the last time, at most `PORTION_LIMIT`."""
    portion_ms: int = -SURELY_MS
    """When that was."""


class Consumers:
    """All who take messages at one master."""

    def __init__(
        self, host: Host, now_ms: Callable[[], int], lock: Callable[[TxId, Answer, int, Callable[[TxReply], None]], None]
    ) -> None:
        """``lock`` has the core lock messages: (transaction, arguments, time-out in ms, receiver)."""
        self._host = host
        self._now_ms = now_ms
        self._core_lock = lock
        self._queues: dict[str, _Queue] = {}
        self._parked: list[Taking] = []
        """Nothing is left that they could take now."""
        self._beats: dict[str, dict[NodeId, tuple[int, int]]] = {}
        """By queue, of other masters that have claimed some of it: their beat, and since when it is the same. Kept while nobody asks here: then, too, the
        claims of one that is gone have to end."""

    def __len__(self) -> int:
        return len(self._parked) + sum(len(queue.waiting) for queue in self._queues.values())

    def add(self, taking: Taking) -> None:
        """Serve somebody whose transaction is open."""
        now_ms = self._now_ms()
        queue = self._queues.get(taking.queue)
        if queue is None:
            queue = self._queues[taking.queue] = _Queue(taking.queue, now_ms)
        queue.used_ms = now_ms
        taking.taken = tuple(self._host.taken(taking.txid, taking.first))
        free = self._free(queue) if self._is_fresh(queue, now_ms) and not taking.taken else []
        if len(free) >= taking.count and queue.given.isdisjoint(free[: taking.count]):
            self._lock(queue, taking, free)
        else:
            queue.waiting.append(taking)
            self._go_on(queue)

    def give_back(self, name: str) -> None:
        """Another master has nothing for those who take from this queue there."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue(name, self._now_ms())
        queue.is_wanted = True

    def tick(self, now_ms: int) -> None:
        """Do what is due; called once in a turn."""
        if self._parked:
            applied = self._host.applied_lsn()
            parked, self._parked = self._parked, []
            for taking in parked:
                if now_ms >= taking.due_ms(applied):
                    self.add(taking)
                else:
                    self._parked.append(taking)
        for queue in list(self._queues.values()):
            # They wait together, each no longer than its own time.
            for taking in [each for each in queue.waiting if now_ms >= each.end_ms]:
                queue.waiting.remove(taking)
                complete(taking.future, TimedOut(f"queue {queue.name!r} was not read in time, or not agreed on: try again"))
            if not queue.is_busy and now_ms >= self._upkeep_ms(queue):
                self._keep_up(queue, now_ms)

    def due_ms(self) -> int | None:
        """When `tick` wants to be called; None when nothing waits and nothing is claimed."""
        if not self._parked and not self._queues:
            return None
        applied = self._host.applied_lsn() if self._parked else 0
        dues = [taking.due_ms(applied) for taking in self._parked]
        for queue in self._queues.values():
            dues += [taking.end_ms for taking in queue.waiting]
            if not queue.is_busy:
                dues.append(self._upkeep_ms(queue))
        return min(dues, default=None)

    def close(self, error: BrokerhaError) -> None:
        """Answer everybody who waits."""
        takings = [*self._parked, *(each for queue in self._queues.values() for each in queue.waiting)]
        self._parked.clear()
        self._queues.clear()
        for taking in takings:
            complete(taking.future, error)

    # ---- what is read here

    def _is_fresh(self, queue: _Queue, now_ms: int) -> bool:
        # An LSN that is not applied: the order went back.
        is_there = queue.lsn <= self._host.applied_lsn()
        return is_there and queue.claimed_ms is not None and now_ms < queue.claimed_ms + FRESH_MS

    def _free(self, queue: _Queue) -> list[str]:
        return list(self._host.locks().free(queue.name, queue.rows, queue.lsn))

    # ---- look

    def _go_on(self, queue: _Queue) -> None:
        queue.waiting = [each for each in queue.waiting if not each.future.done()]
        if queue.waiting and not queue.is_busy:
            self._look(queue, partial(self._serve, queue))

    def _look(self, queue: _Queue, then: Callable[[Sequence[Found], Sequence[NodeId]], None]) -> None:
        """Learn how the queue is; ``then`` gets the messages that are or may be claimed here, and who else has some."""
        now_ms = self._now_ms()
        wanted = sum(each.count for each in queue.waiting)
        arguments = {
            "limit": max(wanted, self._portion(queue, now_ms)), "holder": self._host.node, "expired": self._expired(queue, now_ms),
        }  # fmt: skip
        found: Future[ReadOutcome] = Future()
        queue.is_busy = True
        found.add_done_callback(partial(self._on_found, queue, then))
        self._host.ask_read("queue", queue.name, arguments, LATEST_LSN, self._left_ms(queue, now_ms), found)

    @staticmethod
    def _left_ms(queue: _Queue, now_ms: int) -> int:
        """How long those who wait have time."""
        return max(1, max([each.end_ms - now_ms for each in queue.waiting], default=UPKEEP_MS))

    def _on_found(
        self, queue: _Queue, then: Callable[[Sequence[Found], Sequence[NodeId]], None], found: Future[ReadOutcome]
    ) -> None:
        """In the loop's thread, as all answers to reads are."""
        queue.is_busy = False
        error = found.exception()
        if error is not None:
            self._give_up(queue, error)
            return
        now_ms, queue.lsn = self._now_ms(), found.result().lsn
        queue.row, queue.ids, messages, others = msgpack.unpackb(found.result().body, use_list=False)
        queue.rows = {each[0]: each[:3] for each in messages if each[3]}
        queue.given = set(queue.rows).difference(self._free(queue))
        self._note_beats(queue, now_ms)
        if queue.ids and queue.claimed_ms is None:
            # By another process of this master, or before it was given up.
            queue.claimed_ms = now_ms - RENEW_MS
        then(messages, others)

    def _claims(self, queue: _Queue) -> Claims:
        return EMPTY if queue.row is None else claims_in(queue.row)

    def _note_beats(self, queue: _Queue, now_ms: int) -> None:
        before, now = self._beats.pop(queue.name, {}), {}
        for master, claim in self._claims(queue).items():
            beat, since_ms = before.get(master, (None, now_ms))
            if master != self._host.node:
                now[master] = (claim.beat, since_ms if beat == claim.beat else now_ms)
        if now:
            self._beats[queue.name] = now

    def _expired(self, queue: _Queue, now_ms: int) -> list[NodeId]:
        """Masters whose claims nobody has renewed in all the time."""
        beats = self._beats.get(queue.name, {})
        return sorted(master for master, (_, since_ms) in beats.items() if now_ms >= since_ms + LEASE_MS)

    def _give_up(self, queue: _Queue, error: BaseException) -> None:
        """Nobody who waits can be served; the rest is tried again."""
        queue.rows, queue.claimed_ms = {}, self._now_ms() if queue.ids else None
        waiting, queue.waiting = queue.waiting, []
        for taking in waiting:
            complete(taking.future, error)

    # ---- serve

    def _serve(self, queue: _Queue, found: Sequence[Found], others: Sequence[NodeId]) -> None:
        """Those who wait, from what was just read; then claim for those for whom it is not enough."""
        is_all = all(each[3] for each in found)
        waiting, queue.waiting = queue.waiting, []
        free, promised = self._free(queue), 0
        short: list[Taking] = []
        for taking in waiting:
            taking.lsn, taking.looked_ms = queue.lsn, self._now_ms()
            left = len(free) - promised
            if taking.taken:
                self._finish_repeated(queue, taking)
            elif left >= taking.count or (left > 0 and is_all):
                promised += taking.count
                self._lock(queue, taking, free)
            else:
                short.append(taking)
        if short and not is_all:
            queue.waiting = short
            self._claim(queue, found, sum(each.count for each in short) - max(0, len(free) - promised))
            return
        now_ms = self._now_ms()
        if short and others and now_ms >= queue.asked_ms + PAUSE_MS:
            queue.asked_ms = now_ms
            self._host.want(others, queue.name)
        for taking in short:
            if others and taking.asked_ms is None:
                taking.asked_ms = now_ms
                taking.wait_until_ms = max(taking.wait_until_ms, now_ms + ASKED_MS)
            self._park(taking)

    def _park(self, taking: Taking) -> None:
        """No message is left that could be taken now."""
        if taking.future.done():
            return
        if self._now_ms() >= taking.wait_until_ms:
            _finish(taking, [])
        else:
            self._parked.append(taking)

    def _lock(self, queue: _Queue, taking: Taking, free: Sequence[str]) -> None:
        arguments = {
            "first": taking.first, "queue": taking.queue, "candidates": free[: taking.count + CANDIDATES_MORE], "count": taking.count, "lsn": queue.lsn,
        }  # fmt: skip
        left_ms = max(1, taking.end_ms - self._now_ms())
        queue.locking += 1
        self._core_lock(taking.txid, arguments, left_ms, partial(self._on_locked, queue, taking, queue.rows))

    def _on_locked(self, queue: _Queue, taking: Taking, rows: Mapping[str, Row], reply: TxReply) -> None:
        queue.locking -= 1
        if taking.future.done():
            return
        if reply.error:
            complete(taking.future, error_named(reply.error, reply.reason, reply.txid))
            return
        taking.taken = tuple(map(str, reply.answer["taken"]))
        queue.used_ms = self._now_ms()
        if taking.taken and all(each in rows for each in taking.taken):
            queue.given.update(taking.taken)
            _finish(taking, [rows[each] for each in taking.taken])
        elif self._now_ms() >= taking.end_ms:
            complete(taking.future, NotReady(f"others take what is in queue {queue.name!r} all the time: try again"))
        else:
            # Others were faster, or the call is a repeated one, and what it got stands elsewhere.
            queue.waiting.append(taking)
            self._go_on(queue)

    def _finish_repeated(self, queue: _Queue, taking: Taking) -> None:
        if all(each in queue.rows for each in taking.taken):
            _finish(taking, [queue.rows[each] for each in taking.taken])
        else:
            complete(taking.future, NotReady(f"messages of queue {queue.name!r} that were taken are gone meanwhile: roll back"))

    # ---- claim

    def _portion(self, queue: _Queue, now_ms: int) -> int:
        """How many messages to claim beside what is asked for: twice as many as the last time if these were gone within a second."""
        is_quick = now_ms < queue.portion_ms + SURELY_MS
        return min(2 * queue.portion, PORTION_LIMIT) if is_quick else max(1, queue.portion // 2)

    def _claim(self, queue: _Queue, found: Sequence[Found], wanted: int) -> None:
        now_ms = self._now_ms()
        nobodys = [each[0] for each in found if not each[3]]
        limit = max(wanted, self._portion(queue, now_ms))
        if len(nobodys) < limit:
            # The last messages are left to others too.
            limit = max(wanted, (len(nobodys) + 1) // 2)
        more = nobodys[: max(1, min(limit, CLAIM_LIMIT - len(queue.ids)))]
        queue.portion, queue.portion_ms = min(limit, PORTION_LIMIT), now_ms
        ids = (*queue.ids, *more)[-CLAIM_LIMIT:]
        self._change(queue, ids, {each[0]: each[:3] for each in found if each[3] or each[0] in more})

    def _change(self, queue: _Queue, ids: Sequence[str], rows: dict[str, Row]) -> None:
        """Claim these messages instead of those before; with it ``rows`` may be given out."""
        now_ms = self._now_ms()
        row = packed(claimed(self._claims(queue), self._host.node, ids, queue.lsn, self._expired(queue, now_ms)))
        key = queue.name.encode()
        operations: list[Operation] = [
            ("expect-key", TABLE, key, "" if queue.row is None else etags.etag_of(queue.row)),
            ("delete", TABLE, key) if row is None else ("put", TABLE, key, row),
        ]
        try:
            reply = self._host.submit(pack_operations(operations), self._left_ms(queue, now_ms))
        except BrokerhaError as error:
            self._give_up(queue, error)
            return
        queue.is_busy = True
        reply.add_done_callback(partial(self._on_changed, queue, tuple(ids), rows, now_ms))

    def _on_changed(self, queue: _Queue, ids: tuple[str, ...], rows: dict[str, Row], at_ms: int, done: Future[Reply]) -> None:
        queue.is_busy = False
        reply = done.result()
        is_late = is_conflict(reply)
        if reply.status == UNKNOWN:
            self._give_up(
                queue, TimedOut(f"the masters did not agree in time who gives out messages of queue {queue.name!r}: try again")
            )
            return
        if not is_late and (error := error_of_reply(reply)):
            self._give_up(queue, error)
            return
        if is_late:
            queue.claimed_ms = at_ms if queue.ids else None
        else:
            # What was read before it was claimed may be given out now.
            queue.ids, queue.rows, queue.claimed_ms = ids, rows, at_ms if ids else None
            if free := self._free(queue):
                waiting, queue.waiting = queue.waiting, []
                for taking in waiting:
                    self._lock(queue, taking, free)
        self._go_on(queue)

    # ---- keep

    def _upkeep_ms(self, queue: _Queue) -> int:
        """When a queue that is not busy wants `_keep_up`."""
        if queue.is_wanted:
            return queue.kept_up_ms + PAUSE_MS
        idle_ms = queue.used_ms + IDLE_MS
        if queue.claimed_ms is None:
            return idle_ms
        renew_ms = queue.claimed_ms + RENEW_MS
        due_ms = renew_ms if queue.locking or self._host.locks().number_in(queue.name) else min(idle_ms, renew_ms)
        return max(due_ms, queue.kept_up_ms + SURELY_MS)

    def _keep_up(self, queue: _Queue, now_ms: int) -> None:
        is_wanted, queue.is_wanted = queue.is_wanted, False
        if queue.claimed_ms is not None and queue.rows and not (self._is_used(queue) or self._free(queue)):
            # All of it was taken. Ids of what is gone mean nothing.
            queue.claimed_ms = None
        queue.kept_up_ms = now_ms
        if queue.claimed_ms is not None or is_wanted:
            self._look(queue, partial(self._renew, queue, is_wanted))
        elif queue.waiting or queue.locking or any(taking.queue == queue.name for taking in self._parked):
            queue.used_ms = now_ms
        else:
            del self._queues[queue.name]

    def _is_used(self, queue: _Queue) -> bool:
        return bool(self._now_ms() < queue.used_ms + IDLE_MS or queue.locking or self._host.locks().number_in(queue.name))

    def _renew(self, queue: _Queue, is_wanted: bool, found: Sequence[Found], others: Sequence[NodeId]) -> None:
        """Keep what is claimed while somebody needs it, else give it back."""
        if queue.waiting:
            self._serve(queue, found, others)
        elif not queue.ids:
            queue.claimed_ms = None
        elif self._is_used(queue) and (queue.locking or not is_wanted):
            queue.is_wanted = is_wanted
            self._change(queue, queue.ids, queue.rows)
        else:
            free = set(self._host.locks().free(queue.name, queue.ids, queue.lsn))
            ids = [each for each in queue.ids if each not in free]
            if len(ids) < len(queue.ids):
                # From now on nothing else of it is given out.
                queue.rows = {each: row for each, row in queue.rows.items() if each not in free}
                queue.portion, queue.claimed_ms = 1, queue.claimed_ms if ids else None
                self._change(queue, ids, queue.rows)


def _finish(taking: Taking, messages: list[Row]) -> None:
    complete(taking.future, {"messages": messages, "count": taking.first + len(messages), "txid": taking.txid})
