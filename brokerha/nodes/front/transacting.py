"""Transactions step by step, between the front doors of a master and its core.

    any thread     transact, read           checks arguments, passes the rest to the loop, returns a future
    loop thread    take_commands            commands for the core in this turn
                   on_reply                 replies of the core, by ticket
                   tick                     consumers that wait for a message; answers that never came

Besides the actions of the core (transactions/coordinator.py) this node has two. ``accept`` {first, queue, count, wait_ms} takes
messages that no other consumer has (taking.py): {"messages": [(id, content type, body)], "count"}. ``list`` returns all
transactions that are not over: {"transactions": [row]}. ``first`` None means after the present operations. ``one_phase`` None means
as the state of the transaction demands.

This module decides nothing about a transaction. Every future is completed, a grace after its deadline at the latest.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

import msgpack

from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, OutcomeUnknown, TimedOut, error_named
from brokerha.model.ids import BEGUN_MARK, Lsn, TxId, Xid
from brokerha.model.operation_checks import QUEUE, USER_LIMIT_BYTES, name_problem
from brokerha.model.operations import OPERATIONS_LIMIT
from brokerha.model.outside.isolation import ISOLATIONS, READ_COMMITTED
from brokerha.model.outside.levels import COPIES_LIMIT, LATEST_LSN
from brokerha.model.outside.shapes import (
    FLAG,
    TIMEOUT,
    TXID,
    Shape,
    Shapes,
    check_shapes,
    is_text,
    listed,
    needed,
    number,
    one_of,
    shown,
    text,
)
from brokerha.model.requests import APPLIED_LEVEL, LEVELS, TxCommand, TxReply
from brokerha.nodes.front.checking import check_read, checked_body
from brokerha.nodes.front.taking import Consumers, Host, Taking
from brokerha.nodes.loop import NodeLoop, complete
from brokerha.ports.clock import Clock
from brokerha.ports.front import ReadOutcome

TAKING: Final = "accept"
LIST: Final = "list"
TX_TIMEOUT_LIMIT_MS: Final = 86_400_000
"""Highest possible tx-timeout-max-s; the coordinator knows the actual value."""
TAKE_LIMIT: Final = 1000
"""Most messages that one step takes."""
SESSION_LIMIT: Final = 128
XID_LIMIT: Final = 300

Arguments = dict[str, Any]
_STEP: Final[Shapes] = {"txid": TXID, "timeout_ms": TIMEOUT}
_STEP_OF_ONE: Final[Shapes] = {"txid": needed(TXID), "timeout_ms": TIMEOUT}
_SESSION: Final[Shapes] = {"session": text(SESSION_LIMIT)}
_END: Final[Shapes] = {**_SESSION, "by_hand": FLAG}
_FIRST: Final = number(0, OPERATIONS_LIMIT)
_LISTED: Final = Shape("a list", lambda value: isinstance(value, (tuple, list)))
_QUEUE: Final = Shape(f"the name of a {QUEUE}", lambda value: is_text(value) and not name_problem(QUEUE, value))
_SHAPES: Final[dict[str, Shapes]] = {
    "begin": {
        "xid": text(XID_LIMIT),
        "timeout_ms": number(0, TX_TIMEOUT_LIMIT_MS),
        "isolation": one_of(*ISOLATIONS),
        "user": text(USER_LIMIT_BYTES),
        **_SESSION,
    },
    "operations": {"first": _FIRST, "operations": needed(listed(_LISTED, 0, OPERATIONS_LIMIT))},
    TAKING: {"first": _FIRST, "queue": needed(_QUEUE), "count": number(1, TAKE_LIMIT), "wait_ms": number(0, TX_TIMEOUT_LIMIT_MS)},
    "prepare": _SESSION,
    "commit": {**_END, "one_phase": FLAG, "level": one_of(*LEVELS), "copies": number(1, COPIES_LIMIT)},
    "rollback": _END,
    "ping": {},
    "forget": {},
    LIST: {},
}
FIRST_READ: Final = "read 1: "
"""Prefix of errors of a read of kind ``together``; a client with a single read gets the error without it."""
GRACE_MS: Final = 2000
"""Extra time for a step: a healthy core answers by itself at the timeout."""
OPEN_LIMIT: Final = 10_000
"""Most steps under way and waiting consumers; more are refused with NotReady."""
SWEEP_MS: Final = 500
"""Interval of the search for answers that never came."""
Answer = dict[str, Any]
Receiver = Callable[[TxReply], None]
_MAY_HAVE_BEEN_DONE = frozenset({"commit", "prepare", "rollback"})


def checked_step(action: str, txid: str, arguments: Arguments, timeout_ms: int) -> Arguments:
    """Return the complete arguments of a step. ``txid`` is empty to begin one, or to mean all. Raises InvalidRequest and its kinds.

    These are the checks of a step before the loop gets it. Any problem is one InvalidRequest that names it.
    """
    shapes = _SHAPES.get(action)
    if shapes is None:
        raise InvalidRequest(f"there is no step {shown(action)} of a transaction; there are {', '.join(sorted(_SHAPES))}")
    about = {"txid": txid or None, "timeout_ms": timeout_ms}
    check_shapes(f"the step {action}", _STEP if action in {"begin", LIST} else _STEP_OF_ONE, about)
    check_shapes(f"the step {action}", shapes, arguments)
    given = {name: value for name, value in arguments.items() if value is not None}
    return _COMPLETE.get(action, dict)(given)


def _begin(given: Arguments) -> Arguments:
    xid = given.get("xid", "")
    if xid:
        try:
            xid = Xid.parse(xid).text
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
    return {
        "xid": xid,
        "timeout_ms": given.get("timeout_ms", 0),
        "session": given.get("session", ""),
        "isolation": given.get("isolation", READ_COMMITTED),
        "user": given.get("user", ""),
    }


def _operations(given: Arguments) -> Arguments:
    operations = [tuple(each) for each in given["operations"]]
    checked_body(operations)
    return {"first": given.get("first"), "operations": operations}


def _accept(given: Arguments) -> Arguments:
    return {"first": None, "count": 1, "wait_ms": 0, **given}


def _commit(given: Arguments) -> Arguments:
    return {"one_phase": None, "level": APPLIED_LEVEL, "copies": 1, **_end(given)}


def _end(given: Arguments) -> Arguments:
    rest = {name: value for name, value in given.items() if name != "by_hand" or value}
    return {"session": "", **rest}


_COMPLETE: Final[dict[str, Callable[[Arguments], Arguments]]] = {
    "begin": _begin,
    "operations": _operations,
    TAKING: _accept,
    "prepare": _end,
    "commit": _commit,
    "rollback": _end,
}
"""Defaults of missing arguments."""


class _Open(NamedTuple):
    """A step without an answer yet."""

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
        """Far from those of writes, which share a table with them in the runner."""
        self._commands: deque[TxCommand] = deque()
        self._open: dict[int, _Open] = {}
        self.consumers = Consumers(host, lambda: clock.now().mono_ms, self._lock)
        self.due_ms = self.consumers.due_ms
        """When `tick` is due next; None when nothing waits."""
        self._swept_ms = 0
        self._ended = ""
        """Why steps are refused; empty while they are not."""

    # ---- from any thread

    def transact(self, action: str, txid: TxId, arguments: Answer, timeout_ms: int = 30_000) -> Future[Answer]:
        """Take one step (see ports.Front). Raises InvalidRequest and its kinds at once."""
        checked = checked_step(action, txid, arguments, timeout_ms)
        future: Future[Answer] = Future()
        self._in_loop(future, partial(self._start, action, txid, checked, timeout_ms, future))
        return future

    def read(self, kind: str, name: str, arguments: Answer, min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """Read inside the transaction of the argument ``tx``; errors are the answer."""
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

    def _on_found(self, kind: str, txid: TxId, timeout_ms: int, future: Future[ReadOutcome], found: Future[ReadOutcome]) -> None:
        """Note a read in the transaction before its client gets the answer; called in the loop's thread."""
        if future.done():
            return
        error = found.exception()
        if error is not None:
            if kind != "together" and error.args:
                error.args = (str(error.args[0]).removeprefix(FIRST_READ), *error.args[1:])
            complete(future, error)
            return
        outcome = found.result()
        name, text, answers, packed = msgpack.unpackb(outcome.body, use_list=False)

        def remembered(reply: TxReply) -> None:
            if _failed(future, reply):
                return
            if name:
                complete(future, error_named(name, text if kind == "together" else text.removeprefix(FIRST_READ)))
            elif kind == "together":
                complete(future, outcome._replace(body=msgpack.packb(answers)))
            else:
                complete(future, outcome._replace(content_type=answers[0][0], body=answers[0][1]))

        arguments = {"found": msgpack.unpackb(packed, use_list=False), "lsn": outcome.lsn}
        self._send("saw", txid, arguments, timeout_ms, remembered)

    def _in_loop(self, future: Future[Any], act: Callable[[], None]) -> None:
        """Run ``act`` between two turns; its exception is the answer."""

        def checked() -> None:
            if self._ended:
                raise NotReady(self._ended)
            if len(self._open) + len(self.consumers) >= OPEN_LIMIT:
                raise NotReady(f"{OPEN_LIMIT} steps of transactions are under way at {self._host.node} already: try again")
            act()

        self._loop.call_for(future, checked)

    # ---- the loop

    def take_commands(self) -> list[TxCommand]:
        """Return the commands for the core."""
        return [self._commands.popleft() for _ in range(len(self._commands))]

    @property
    def has_commands(self) -> bool:
        """Whether the next turn has a command for the core."""
        return bool(self._commands)

    def on_reply(self, reply: TxReply) -> None:
        """Pass a reply to its waiting caller; ignore a late one."""
        waiting = self._open.pop(reply.ticket, None)
        if waiting is not None:
            waiting.receiver(reply)

    def tick(self, now_ms: int) -> None:
        """Serve what is due; called once in a turn."""
        self.consumers.tick(now_ms)
        if now_ms >= self._swept_ms + SWEEP_MS:
            self._swept_ms = now_ms
            for ticket, waiting in list(self._open.items()):
                if now_ms >= waiting.end_ms:
                    self.on_reply(_lost(ticket, waiting.command, "the master did not answer in its time"))

    def close(self, reason: str) -> None:
        """Answer all waiting callers: the node stops, or another process is primary now."""
        self._ended = reason
        self.consumers.close(NotReady(reason))
        for ticket, waiting in list(self._open.items()):
            self.on_reply(_lost(ticket, waiting.command, reason))
        self._commands.clear()

    def __len__(self) -> int:
        return len(self._open) + len(self.consumers)

    # ---- steps

    def _start(self, action: str, txid: TxId, arguments: Answer, timeout_ms: int, future: Future[Answer]) -> None:
        if action == LIST:
            complete(future, {"transactions": [{**row, "node": self._host.node} for row in self._host.rows()]})
            return
        if action == "begin":
            txid = txid or self._host.new_txid() + BEGUN_MARK
        if arguments.get("first", 0) is None:
            self._send("pending", txid, {}, timeout_ms, partial(self._numbered, action, txid, arguments, timeout_ms, future))
        elif action == TAKING:
            self._send("ping", txid, {}, timeout_ms, partial(self._take, txid, arguments, timeout_ms, future))
        else:
            self._send(action, txid, arguments, timeout_ms, partial(self._done, future))

    def _numbered(
        self, action: str, txid: TxId, arguments: Answer, timeout_ms: int, future: Future[Answer], reply: TxReply
    ) -> None:
        """Continue a step after the number of operations was asked for."""
        if not _failed(future, reply):
            self._start(action, txid, {**arguments, "first": reply.answer["count"]}, timeout_ms, future)

    def _send(self, action: str, txid: TxId, arguments: Answer, timeout_ms: int, receiver: Receiver) -> None:
        ticket = next(self._tickets)
        command = TxCommand(ticket, action, txid, arguments, timeout_ms)
        self._open[ticket] = _Open(command, self._clock.now().mono_ms + timeout_ms + GRACE_MS, receiver)
        self._commands.append(command)

    def _done(self, future: Future[Answer], reply: TxReply) -> None:
        if not _failed(future, reply):
            complete(future, {"txid": reply.txid, **reply.answer, "node": self._host.node})

    # ---- accept

    def _lock(self, txid: TxId, arguments: Answer, timeout_ms: int, receiver: Receiver) -> None:
        self._send("take", txid, arguments, timeout_ms, receiver)

    def _take(self, txid: TxId, arguments: Answer, timeout_ms: int, future: Future[Answer], reply: TxReply) -> None:
        """Add a consumer to the open transaction."""
        if not _failed(future, reply):
            now_ms = self._clock.now().mono_ms
            wait_until_ms = now_ms + min(arguments["wait_ms"], timeout_ms)
            first, queue, count = arguments["first"], arguments["queue"], arguments["count"]
            self.consumers.add(Taking(txid, first, queue, count, future, wait_until_ms, now_ms + timeout_ms))


def _failed(future: Future[Any], reply: TxReply) -> bool:
    """Complete the future with the error of a reply; return whether there was one, or no caller waits any more."""
    if future.done():
        return True
    if not reply.error:
        return False
    complete(future, error_named(reply.error, reply.reason, reply.txid))
    return True


def _lost(ticket: int, command: TxCommand, reason: str) -> TxReply:
    error: type[BrokerhaError] = TimedOut
    if command.action in _MAY_HAVE_BEEN_DONE:
        error = OutcomeUnknown
        reason = f"outcome unknown of transaction {command.txid}: {reason}"
    return TxReply(ticket, command.txid, error.__name__, reason)
