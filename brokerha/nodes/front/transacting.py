"""Transactions step by step, between the front doors of a master and its core.

    any thread     transact, read           arguments are checked, the rest is handed to the loop; a future comes back
    loop thread    take_commands            what the core is to be told in this turn
                   on_reply                 what the core answered, by ticket
                   tick                     consumers that wait for a message; answers that never came

Beside the actions of the core (transactions/coordinator.py) there are two of this node. ``accept`` {first, queue, count, wait_ms} reads
the head of a queue and has the core lock what nobody else holds: {"messages": [(id, content type, body)], "count"}. ``list`` names
all transactions that are not over: {"transactions": [row]}. ``first`` may be None: after what there is. ``one_phase`` may be None:
as the state of the transaction demands.

Nothing here decides about a transaction. Every future is completed, at the latest a grace after its deadline.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgpack

from brokerha.model.errors import BrokerhaError, NotReady, OutcomeUnknown, TimedOut, error_named
from brokerha.model.ids import BEGUN_MARK, Lsn, NodeId, TxId
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.requests import TxCommand, TxReply
from brokerha.nodes.front.checking import check_read
from brokerha.nodes.front.transaction_arguments import LIST, TAKING, checked_step
from brokerha.nodes.loop import NodeLoop
from brokerha.ports.clock import Clock
from brokerha.ports.front import ReadOutcome

FIRST_READ: Final = "read 1: "
"""What errors of a read of kind ``together`` begin with; who asked for one read is not told a number."""
GRACE_MS: Final = 2000
"""How much longer than its time-out a step is waited for: the core answers by itself when it is healthy."""
OPEN_LIMIT: Final = 10_000
"""Steps under way, and consumers that wait; more are refused with NotReady."""
SWEEP_MS: Final = 500
"""So often it is looked for answers that never came."""

PAUSE_MS: Final = 100
SURELY_MS: Final = 1000
PAGE_FIRST: Final = 8
PAGE_MOST: Final = 256
PAGE_SHARED: Final = 64
"""Messages of the first page where a queue is shared with other masters."""
SHARED_MS: Final = 10_000
"""So long a master begins with its own share of a queue after consumers of two masters took the same message of it."""

Row = tuple[str, str, bytes]
"""(message id, content type, body)"""

Answer = dict[str, Any]
Receiver = Callable[[TxReply], None]
_MAY_HAVE_BEEN_DONE = frozenset({"commit", "prepare", "rollback"})


ALL: Final = (0, 1)
"""The share of a master alone: (place, masters)."""


class Taking:
    """One ``accept`` that is under way: a consumer's way along a queue, from its head, until the core lets it have messages.

    What a prepared transaction takes, at whichever master, is content and left out of the pages; what others have in open transactions
    of this master the core keeps from it.

        page -> rows -> candidates -> taken by the core -> done
          ^                              | all of them are locked by others
          +------- the page after -------+            at the end: wait until the queue may have changed, then from the head again

    A queue is looked at again when the applied LSN has moved, at most ten times a second; and once a second, because a rollback
    gives messages back without any LSN.

    Consumers at several masters would all begin with the same message, and all but one of them be aborted. Once one of them was, each
    master begins with its **share** for a while, the messages whose ids fall to it, and goes on with the others.
    """

    def __init__(
        self, txid: TxId, first: int, queue: str, count: int, future: Future[dict[str, Any]], wait_until_ms: int
    ) -> None:
        self.txid = txid
        self.first = first
        self.queue = queue
        self.count = count
        self.future = future
        self.wait_until_ms = wait_until_ms
        self.timeout_ms = 0
        self.lsn: Lsn = 0
        """What was seen the last time."""
        self.taken: list[str] = []
        """What the core gave."""
        self.share = ALL
        self._seen: dict[str, Row] = {}
        self._after: str | None = None
        self._limit = max(PAGE_FIRST, min(count, PAGE_MOST))
        self._looked_ms = 0

    def begin(self, now_ms: int) -> None:
        """From the head of the queue."""
        self._looked_ms = now_ms
        least = PAGE_FIRST if self.share == ALL else PAGE_SHARED
        self._after, self._limit = None, max(least, min(self.count, PAGE_MOST))

    def page(self) -> dict[str, Any]:
        """Arguments of the next read."""
        return {"after": self._after, "limit": self._limit, "free": True}

    def on_rows(self, rows: Sequence[Row]) -> bool:
        """Take in a page; whether all that was taken is there."""
        if not self.taken:
            self._seen = {}
        self._seen.update((row[0], row) for row in rows)
        self._after, self._limit = rows[-1][0], min(2 * self._limit, PAGE_MOST)
        return self._is_complete()

    def candidates(self, rows: Sequence[Row]) -> list[str]:
        """The messages of a page: those of the own share first, then the others from behind, as their masters come from the front."""
        place, masters = self.share
        ids = [row[0] for row in rows]
        own = [each for each in ids if crc32(each.encode()) % masters == place]
        return own + [each for each in reversed(ids) if crc32(each.encode()) % masters != place]

    def on_taken(self, taken: Sequence[str]) -> bool:
        """The core's answer; whether it is complete. The ids of a repeated call may stand on another page."""
        self.taken = list(taken)
        if not self.taken or self._is_complete():
            return bool(self.taken)
        self._after = None
        return False

    def messages(self) -> list[Row]:
        """What was taken."""
        return [self._seen[message] for message in self.taken]

    def _is_complete(self) -> bool:
        return bool(self.taken) and all(message in self._seen for message in self.taken)

    def is_due(self, applied: Lsn, now_ms: int) -> bool:
        """Whether the queue is worth another look."""
        return now_ms >= self.due_ms(applied)

    def due_ms(self, applied: Lsn) -> int:
        """When it is, as far as known now."""
        return min(self.wait_until_ms, self._looked_ms + (PAUSE_MS if applied > self.lsn else SURELY_MS))


def messages_of(outcome: ReadOutcome) -> list[Row]:
    """The rows of a read of a queue."""
    return list(msgpack.unpackb(outcome.body, use_list=False))


class Host(NamedTuple):
    """What a master lends; all of it is used in the loop's thread only, but `new_txid`."""

    node: NodeId
    new_txid: Callable[[], TxId]
    ask_read: Callable[[str, str, dict[str, Any], Lsn, int, Future[ReadOutcome]], None]
    """(kind, name, arguments, least LSN, time-out in ms, future): pass a read on to a worker."""
    applied_lsn: Callable[[], Lsn]
    rows: Callable[[], list[Answer]]
    """Transactions that are not over."""
    share: Callable[[], tuple[int, int]] = lambda: ALL
    """(place of this master among those that agree now, how many these are)"""
    met: Callable[[], set[str]] = set
    """Queues, as the log names them, from which two transactions took the same message since it was asked last."""


class _Open(NamedTuple):
    """A step that has no answer yet."""

    command: TxCommand
    end_ms: int
    receiver: Receiver


class Transacting:
    """Steps under way at one master."""

    def __init__(self, loop: NodeLoop, clock: Clock, host: Host) -> None:
        self._loop = loop
        self._clock = clock
        self._host = host
        self._tickets = itertools.count(1 << 40)
        """Far from those of writes, with which they share a table in the runner."""
        self._commands: deque[TxCommand] = deque()
        self._open: dict[int, _Open] = {}
        self._parked: list[Taking] = []
        self._shared_until_ms: dict[str, int] = {}
        """Queues from which consumers of several masters took the same message lately, as the log names them."""
        self._swept_ms = 0
        self._ended = ""
        """Why no step is taken any more; empty as long as they are."""

    # ---- from any thread

    def transact(self, action: str, txid: TxId, arguments: Answer, timeout_ms: int = 30_000) -> Future[Answer]:
        """One step (see ports.Front). Raises InvalidRequest and its kinds at once."""
        checked = checked_step(action, txid, arguments, timeout_ms)
        future: Future[Answer] = Future()
        self._in_loop(future, partial(self._start, action, txid, checked, timeout_ms, future))
        return future

    def read(self, kind: str, name: str, arguments: Answer, min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """A read inside of the transaction that the argument ``tx`` names; what is wrong is the answer."""
        future: Future[ReadOutcome] = Future()
        rest = {name: value for name, value in arguments.items() if name != "tx"}

        def receive(reply: TxReply) -> None:
            if _failed(future, reply):
                return
            body, seen = reply.answer["body"], reply.answer.get("seen")
            inside = {"pending": body, "txid": reply.txid} if body else {}
            if seen is None:
                self._host.ask_read(kind, name, {**rest, **inside}, min_lsn, timeout_ms, future)
                return
            reads = rest["reads"] if kind == "together" else (msgpack.packb((kind, name, rest)),)
            found: Future[ReadOutcome] = Future()
            found.add_done_callback(partial(self._on_found, kind, reply.txid, timeout_ms, future))
            inside |= {"reads": reads, "seen": seen}
            least = min_lsn if min_lsn == LATEST_LSN else max(min_lsn, reply.answer["lsn"])
            self._host.ask_read("together", "", inside, least, timeout_ms, found)

        def ask() -> None:
            check_read(kind, name, arguments, min_lsn, timeout_ms)
            self._send("pending", arguments["tx"], {}, timeout_ms, receive)

        self._in_loop(future, ask)
        return future

    def _on_found(
        self, kind: str, txid: TxId, timeout_ms: int, future: Future[ReadOutcome], found: Future[ReadOutcome]
    ) -> None:
        """In the loop's thread: the transaction has to know what was read before its client does."""
        if future.done():
            return
        error = found.exception()
        if error is not None:
            if kind != "together" and error.args:
                error.args = (str(error.args[0]).removeprefix(FIRST_READ), *error.args[1:])
            _fail(future, error)
            return
        outcome = found.result()
        name, text, answers, packed = msgpack.unpackb(outcome.body, use_list=False)

        def remembered(reply: TxReply) -> None:
            if _failed(future, reply):
                return
            if name:
                _fail(future, error_named(name, text if kind == "together" else text.removeprefix(FIRST_READ)))
            elif kind == "together":
                future.set_result(outcome._replace(body=msgpack.packb(answers)))
            else:
                future.set_result(outcome._replace(content_type=answers[0][0], body=answers[0][1]))

        arguments = {"found": msgpack.unpackb(packed, use_list=False), "lsn": outcome.lsn}
        self._send("saw", txid, arguments, timeout_ms, remembered)

    def _in_loop(self, future: Future[Any], act: Callable[[], None]) -> None:
        """Run it between two turns; what it raises is the answer."""

        def checked() -> None:
            if self._ended:
                raise NotReady(self._ended)
            if len(self._open) + len(self._parked) >= OPEN_LIMIT:
                raise NotReady(
                    f"{OPEN_LIMIT} steps of transactions are under way at {self._host.node} already: try again"
                )
            act()

        self._loop.call(checked).add_done_callback(
            lambda done: future.set_exception(error) if (error := done.exception()) and not future.done() else None
        )

    # ---- the loop

    def take_commands(self) -> list[TxCommand]:
        """What the core is to be told now."""
        return [self._commands.popleft() for _ in range(len(self._commands))]

    @property
    def has_commands(self) -> bool:
        """Whether the next turn has something to tell the core."""
        return bool(self._commands)

    def on_reply(self, reply: TxReply) -> None:
        """Hand an answer to the caller that waits for it; one that comes too late is nobody's."""
        waiting = self._open.pop(reply.ticket, None)
        if waiting is not None:
            waiting.receiver(reply)

    def tick(self, now_ms: int) -> None:
        """Do what is due; called once in a turn."""
        if self._parked:
            applied = self._host.applied_lsn()
            parked, self._parked = self._parked, []
            for taking in parked:
                if now_ms >= taking.wait_until_ms or taking.is_due(applied, now_ms):
                    self._look(taking)
                else:
                    self._parked.append(taking)
        if now_ms >= self._swept_ms + SWEEP_MS:
            self._swept_ms = now_ms
            self._shared_until_ms = {queue: at for queue, at in self._shared_until_ms.items() if at > now_ms}
            for ticket, waiting in list(self._open.items()):
                if now_ms >= waiting.end_ms:
                    self.on_reply(_lost(ticket, waiting.command, "the master did not answer in its time"))

    def due_ms(self) -> int | None:
        """When `tick` wants to be called; None when nothing waits."""
        if not self._parked:
            return None
        applied = self._host.applied_lsn()
        return min([taking.due_ms(applied) for taking in self._parked])

    def close(self, reason: str) -> None:
        """Answer everybody who waits: the node stops, or another process is primary now."""
        self._ended = reason
        parked, self._parked = self._parked, []
        for taking in parked:
            _fail(taking.future, NotReady(reason))
        for ticket, waiting in list(self._open.items()):
            self.on_reply(_lost(ticket, waiting.command, reason))
        self._commands.clear()

    def __len__(self) -> int:
        return len(self._open) + len(self._parked)

    # ---- steps

    def _start(self, action: str, txid: TxId, arguments: Answer, timeout_ms: int, future: Future[Answer]) -> None:
        if action == LIST:
            future.set_result({"transactions": [{**row, "node": self._host.node} for row in self._host.rows()]})
            return
        if action == "begin":
            txid = txid or self._host.new_txid() + BEGUN_MARK
        if arguments.get("first", 0) is None:
            self._send(
                "pending", txid, {}, timeout_ms, partial(self._numbered, action, txid, arguments, timeout_ms, future)
            )
        elif action == TAKING:
            self._send("ping", txid, {}, timeout_ms, partial(self._take, txid, arguments, timeout_ms, future))
        else:
            self._send(action, txid, arguments, timeout_ms, partial(self._done, future))

    def _numbered(
        self, action: str, txid: TxId, arguments: Answer, timeout_ms: int, future: Future[Answer], reply: TxReply
    ) -> None:
        """Now it is known how many operations there are."""
        if not _failed(future, reply):
            self._start(action, txid, {**arguments, "first": reply.answer["count"]}, timeout_ms, future)

    def _send(self, action: str, txid: TxId, arguments: Answer, timeout_ms: int, receiver: Receiver) -> None:
        ticket = next(self._tickets)
        command = TxCommand(ticket, action, txid, arguments, timeout_ms)
        self._open[ticket] = _Open(command, self._clock.now().mono_ms + timeout_ms + GRACE_MS, receiver)
        self._commands.append(command)

    def _done(self, future: Future[Answer], reply: TxReply) -> None:
        if not _failed(future, reply):
            future.set_result({"txid": reply.txid, **reply.answer, "node": self._host.node})

    # ---- accept

    def _take(self, txid: TxId, arguments: Answer, timeout_ms: int, future: Future[Answer], reply: TxReply) -> None:
        """The transaction is open: look at the head of the queue."""
        if not _failed(future, reply):
            now_ms = self._clock.now().mono_ms
            wait_ms = min(arguments["wait_ms"], timeout_ms)
            taking = Taking(txid, arguments["first"], arguments["queue"], arguments["count"], future, now_ms + wait_ms)
            taking.timeout_ms = timeout_ms
            self._look(taking)

    def _look(self, taking: Taking) -> None:
        now_ms = self._clock.now().mono_ms
        self._shared_until_ms.update(dict.fromkeys(self._host.met(), now_ms + SHARED_MS))
        is_shared = self._shared_until_ms.get(repr(taking.queue), 0) > now_ms
        taking.share = self._host.share() if is_shared else ALL
        taking.begin(now_ms)
        self._next_page(taking)

    def _next_page(self, taking: Taking) -> None:
        page: Future[ReadOutcome] = Future()
        page.add_done_callback(partial(self._on_page, taking))
        self._host.ask_read("queue", taking.queue, taking.page(), LATEST_LSN, taking.timeout_ms, page)

    def _on_page(self, taking: Taking, page: Future[ReadOutcome]) -> None:
        """In the loop's thread, as all answers to reads are."""
        if taking.future.done():
            return
        error = page.exception()
        if error is not None:
            _fail(taking.future, error)
            return
        rows = messages_of(page.result())
        if not rows:
            self._at_the_end(taking, page.result().lsn)
        elif taking.on_rows(rows):
            self._finish(taking)
        elif taking.taken:
            self._next_page(taking)
        else:
            arguments = {
                "first": taking.first, "queue": taking.queue, "candidates": taking.candidates(rows), "count": taking.count,
                "lsn": page.result().lsn,
            }  # fmt: skip
            self._send("take", taking.txid, arguments, taking.timeout_ms, partial(self._on_taken, taking))

    def _on_taken(self, taking: Taking, reply: TxReply) -> None:
        if _failed(taking.future, reply):
            return
        if taking.on_taken([str(message) for message in reply.answer["taken"]]):
            self._finish(taking)
        else:
            self._next_page(taking)

    def _at_the_end(self, taking: Taking, lsn: Lsn) -> None:
        """No message is left that could be taken now."""
        if taking.taken:
            _fail(
                taking.future,
                NotReady(f"messages of queue {taking.queue!r} that were taken are gone meanwhile: roll back"),
            )
        elif self._clock.now().mono_ms >= taking.wait_until_ms:
            self._finish(taking)
        else:
            taking.lsn = lsn
            self._parked.append(taking)

    def _finish(self, taking: Taking) -> None:
        if taking.future.set_running_or_notify_cancel():
            messages = taking.messages()
            taking.future.set_result({"messages": messages, "count": taking.first + len(messages), "txid": taking.txid})


def _failed(future: Future[Any], reply: TxReply) -> bool:
    """Whether the answer is an error, which then is the future's, or nobody waits any more."""
    if future.done():
        return True
    if not reply.error:
        return False
    _fail(future, error_named(reply.error, reply.reason, reply.txid))
    return True


def _fail(future: Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _lost(ticket: int, command: TxCommand, reason: str) -> TxReply:
    error: type[BrokerhaError] = TimedOut
    if command.action in _MAY_HAVE_BEEN_DONE:
        error = OutcomeUnknown
        reason = f"outcome unknown of transaction {command.txid}: {reason}"
    return TxReply(ticket, command.txid, error.__name__, reason)
