"""Taking messages: which messages consumers at one master get, so that no other master gives out the same ones.

    accept ──> messages that are read here and free? ── yes ──> locked by the core, given
                        │ no
                        v
                      look: a worker reports the messages that this master has claimed, and the unclaimed ones
                        v
                      claim: a transaction that expects the row of claims unchanged ── another one was faster ──> look
                        v
                      locked by the core, given; with nothing to claim, other holders are asked to give back unused messages,
                      and the consumer waits until the queue has possibly changed

A master claims about as many messages as its consumers take in a second (model/reserved/claims.py), so it gives out most of them
without a look. While a consumer takes or holds messages, the claim is renewed; a second after the last one it is given back.

A queue is looked at again when the applied LSN has moved, at most ten times a second; and also once a second, because a rollback
frees messages without an LSN. Belongs to the loop. Every future is completed, at the end of its step at the latest.
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
"""Time after the last consumer when a claim is given back."""
RENEW_MS: Final = LEASE_MS // 3
FRESH_MS: Final = 2 * LEASE_MS // 3
"""Time after a claim during which its messages are given out without a look."""
UPKEEP_MS: Final = 5000
"""Longest time of a look or a claim that no consumer waits for."""
ASKED_MS: Final = 200
"""Least time that a consumer waits for messages that other masters can give back."""
SOON_MS: Final = 10
"""Least time between two looks meanwhile."""
PORTION_LIMIT: Final = 256
"""Most messages that are claimed beyond the present demand."""
CANDIDATES_MORE: Final = 64
"""Messages offered to the core beyond the demand: the first ones can be given to others in the same turn."""

Row = tuple[str, str, bytes]
"""(message id, content type, body)"""
Found = tuple[str, str, bytes, bool]
"""The same, and whether this master has claimed it."""
Answer = dict[str, Any]


class Host(NamedTuple):
    """What a master provides; used only in the loop's thread, except `new_txid`."""

    node: NodeId
    new_txid: Callable[[], TxId]
    ask_read: Callable[[str, str, dict[str, Any], Lsn, int, Future[ReadOutcome]], None]
    """(kind, name, arguments, least LSN, timeout in ms, future): pass a read on to a worker."""
    applied_lsn: Callable[[], Lsn]
    rows: Callable[[], list[Answer]]
    """Transactions that are not over."""
    submit: Callable[[bytes, int], Future[Reply]]
    """Submit a transaction, with the time in ms until it must be applied here. Raises NotReady."""
    locks: Callable[[], Locks]
    """Messages held by transactions of this master."""
    taken: Callable[[TxId, int], Sequence[str]]
    """(transaction, number of the operation): messages that a repeated call got before."""
    want: Callable[[Iterable[NodeId], str], None]
    """(masters, queue): ask them to give back claimed messages that no consumer takes there."""


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
    """Deadline of the step's answer."""
    taken: tuple[str, ...] = ()
    """Messages that the core gave."""
    lsn: Lsn = 0
    """LSN of the last look."""
    looked_ms: int = 0
    asked_ms: int | None = None
    """When other masters were first asked to give messages back."""

    def due_ms(self, applied: Lsn) -> int:
        """Return when the queue is worth another look, as far as known now."""
        pause_ms = SURELY_MS if applied <= self.lsn else PAUSE_MS
        if applied > self.lsn and self.asked_ms is not None and self.looked_ms < self.asked_ms + ASKED_MS:
            pause_ms = SOON_MS
        return min(self.wait_until_ms, self.looked_ms + pause_ms)


@dataclass(slots=True, eq=False)
class _Queue:
    """What this master knows and holds of one queue."""

    name: str
    used_ms: int
    """When a consumer last took from it."""
    rows: dict[str, Row] = field(default_factory=dict)
    """Messages that can be given out here, in order, as of `lsn`."""
    given: set[str] = field(default_factory=set)
    """Those of `rows` that were given once: they need a look before they are given again."""
    lsn: Lsn = 0
    waiting: list[Taking] = field(default_factory=list)
    """Consumers that need a look or a claim."""
    is_busy: bool = False
    """Whether a look or a claim is under way."""
    row: bytes | None = None
    """The row of claims, as of `lsn`."""
    ids: tuple[str, ...] = ()
    """Messages claimed here that still exist."""
    claimed_ms: int | None = None
    """Time of the last claim; None when this process has claimed nothing."""
    locking: int = 0
    """Number of consumers for whom the core is locking messages now."""
    kept_up_ms: int = -SURELY_MS
    """Time of the last upkeep: renew the claim, or give it back."""
    is_wanted: bool = False
    """Whether another master has asked for unused messages."""
    asked_ms: int = -SURELY_MS
    """When other masters were last asked."""
    portion: int = 1
    """Number of messages of the last claim, at most `PORTION_LIMIT`."""
    portion_ms: int = -SURELY_MS
    """Time of that claim."""


class Consumers:
    """All consumers at one master."""

    def __init__(
        self, host: Host, now_ms: Callable[[], int], lock: Callable[[TxId, Answer, int, Callable[[TxReply], None]], None]
    ) -> None:
        """``lock`` has the core lock messages: (transaction, arguments, timeout in ms, receiver)."""
        self._host = host
        self._now_ms = now_ms
        self._core_lock = lock
        self._queues: dict[str, _Queue] = {}
        self._parked: list[Taking] = []
        """Consumers for whom no message is left now."""
        self._beats: dict[str, dict[NodeId, tuple[int, int]]] = {}
        """By queue and other master with claims: its beat, and since when that is unchanged. Kept without consumers here as well,
        because claims of a master that is gone must end."""

    def __len__(self) -> int:
        return len(self._parked) + sum(len(queue.waiting) for queue in self._queues.values())

    def add(self, taking: Taking) -> None:
        """Serve a consumer whose transaction is open."""
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
        """Note that another master has no messages for its consumers of this queue."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue(name, self._now_ms())
        queue.is_wanted = True

    def tick(self, now_ms: int) -> None:
        """Serve what is due; called once in a turn."""
        if self._parked:
            applied = self._host.applied_lsn()
            parked, self._parked = self._parked, []
            for taking in parked:
                if now_ms >= taking.due_ms(applied):
                    self.add(taking)
                else:
                    self._parked.append(taking)
        for queue in list(self._queues.values()):
            # They wait together, each until its own deadline.
            for taking in [each for each in queue.waiting if now_ms >= each.end_ms]:
                queue.waiting.remove(taking)
                complete(taking.future, TimedOut(f"queue {queue.name!r} was not read in time, or not agreed on: try again"))
            if not queue.is_busy and now_ms >= self._upkeep_ms(queue):
                self._keep_up(queue, now_ms)

    def due_ms(self) -> int | None:
        """Return when `tick` is due next; None when nothing waits and nothing is claimed."""
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
        """Answer all waiting consumers."""
        takings = [*self._parked, *(each for queue in self._queues.values() for each in queue.waiting)]
        self._parked.clear()
        self._queues.clear()
        for taking in takings:
            complete(taking.future, error)

    # ---- state of the last look

    def _is_fresh(self, queue: _Queue, now_ms: int) -> bool:
        # The LSN is not applied here: the order went back.
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
        """Read the queue; ``then`` gets the messages that are or can be claimed here, and the other masters with claims."""
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
        """Return the longest remaining time of the waiting consumers."""
        return max(1, max([each.end_ms - now_ms for each in queue.waiting], default=UPKEEP_MS))

    def _on_found(
        self, queue: _Queue, then: Callable[[Sequence[Found], Sequence[NodeId]], None], found: Future[ReadOutcome]
    ) -> None:
        """Take a read's answer; called in the loop's thread, like all answers to reads."""
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
            # Another process of this master claimed them, or this one did before it gave up.
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
        """Return the masters whose claims were not renewed for the whole lease."""
        beats = self._beats.get(queue.name, {})
        return sorted(master for master, (_, since_ms) in beats.items() if now_ms >= since_ms + LEASE_MS)

    def _give_up(self, queue: _Queue, error: BaseException) -> None:
        """Fail the waiting consumers; the rest is retried."""
        queue.rows, queue.claimed_ms = {}, self._now_ms() if queue.ids else None
        waiting, queue.waiting = queue.waiting, []
        for taking in waiting:
            complete(taking.future, error)

    # ---- serve

    def _serve(self, queue: _Queue, found: Sequence[Found], others: Sequence[NodeId]) -> None:
        """Serve the waiting consumers from the last look; then claim messages for those that need more."""
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
        """Let a consumer wait: no message is left for it now."""
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
            # Other consumers were faster; or the call is a repeated one, and its messages are elsewhere in the queue.
            queue.waiting.append(taking)
            self._go_on(queue)

    def _finish_repeated(self, queue: _Queue, taking: Taking) -> None:
        if all(each in queue.rows for each in taking.taken):
            _finish(taking, [queue.rows[each] for each in taking.taken])
        else:
            complete(taking.future, NotReady(f"messages of queue {queue.name!r} that were taken are gone meanwhile: roll back"))

    # ---- claim

    def _portion(self, queue: _Queue, now_ms: int) -> int:
        """Return how many messages to claim beyond the demand: twice the last number if those were gone within a second."""
        is_quick = now_ms < queue.portion_ms + SURELY_MS
        return min(2 * queue.portion, PORTION_LIMIT) if is_quick else max(1, queue.portion // 2)

    def _claim(self, queue: _Queue, found: Sequence[Found], wanted: int) -> None:
        now_ms = self._now_ms()
        nobodys = [each[0] for each in found if not each[3]]
        limit = max(wanted, self._portion(queue, now_ms))
        if len(nobodys) < limit:
            # Leave a part of the last messages to other masters.
            limit = max(wanted, (len(nobodys) + 1) // 2)
        more = nobodys[: max(1, min(limit, CLAIM_LIMIT - len(queue.ids)))]
        queue.portion, queue.portion_ms = min(limit, PORTION_LIMIT), now_ms
        ids = (*queue.ids, *more)[-CLAIM_LIMIT:]
        self._change(queue, ids, {each[0]: each[:3] for each in found if each[3] or each[0] in more})

    def _change(self, queue: _Queue, ids: Sequence[str], rows: dict[str, Row]) -> None:
        """Claim these messages instead of the former ones; after that ``rows`` can be given out."""
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
            # The messages were read before the claim, and can be given out now.
            queue.ids, queue.rows, queue.claimed_ms = ids, rows, at_ms if ids else None
            if free := self._free(queue):
                waiting, queue.waiting = queue.waiting, []
                for taking in waiting:
                    self._lock(queue, taking, free)
        self._go_on(queue)

    # ---- keep

    def _upkeep_ms(self, queue: _Queue) -> int:
        """Return when a queue that is not busy needs `_keep_up`."""
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
            # All messages were taken; the ids of gone messages mean nothing.
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
        """Renew the claim while a consumer needs it, or give it back."""
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
                # From now on no other message of it is given out.
                queue.rows = {each: row for each, row in queue.rows.items() if each not in free}
                queue.portion, queue.claimed_ms = 1, queue.claimed_ms if ids else None
                self._change(queue, ids, queue.rows)


def _finish(taking: Taking, messages: list[Row]) -> None:
    complete(taking.future, {"messages": messages, "count": taking.first + len(messages), "txid": taking.txid})
