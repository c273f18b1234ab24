"""The connection of a client program to a cluster over AMQP: ports.Wire, with pika.

    submit ─┐                                      ┌─> brokerha.writes ─> a master
    read   ─┼─> table of open requests ── thread ──┤
    ask    ─┘              ^                       └─> brokerha.reads  ─> a master
                           └────────── answers through direct reply-to ──────┘

Requests that come in while the thread is busy travel together: writes on the same terms share a message, up to 512 of them or 1
MiB. The reply is the confirmation. A write is published again, with the same transaction id, until its deadline: after a lost
connection, when no queue took it, and after a silence. Masters remember ids, so a write is applied once. They do not remember
commands, so one that changes something is published again only when no queue took it.

Invariants: every future is completed, a little after its deadline at the latest, whatever the broker does. Only `ask` and `close`
wait. The number of open requests is bounded.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any

import pika

from brokerha.model.errors import BrokerhaError, Closed, InvalidRequest, NotReady, Unreachable
from brokerha.model.gathering import Gathering
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.outside.commands import is_change
from brokerha.model.requests import WAIT, Reply
from brokerha.model.wire import client_wire
from brokerha.ports.front import ReadOutcome
from brokerha.transports.client.requests import Answered, Question, Request, Writes, plain_answer, read_outcome
from brokerha.transports.client.thread import PikaThread
from brokerha.transports.config import TransportConfig
from brokerha.transports.rabbitmq.addresses import NOBODY, parse_addresses
from brokerha.transports.topology import ANY_MASTER, REPLY_ADDRESS

OPEN_LIMIT = 100_000
OPEN_LIMIT_BYTES = 512 * 1024 * 1024
"""Limits of open requests; more are refused with NotReady."""
DUE_SPARE = 1000
"""Times of answered requests that are kept beside those of open ones."""
RESEND_LEAST_S = 0.5
RESEND_WRITES_S = 1.5
"""Shortest and longest silence before writes are published again (`Patience`); it doubles each time. An answer is lost with its
sending process, so this is a part of a client's pause at a fail-over."""
PATIENCE_TIMES = 4
FORGETS = 0.9
RESEND_FIRST_S = 5.0
"""The same for reads and questions, where a second answer can cost much more."""
RESEND_MOST_S = 30.0
RETURNED_PAUSE_S = 0.2
"""Pause before a message that no queue took is published again: masters declare their queues at their start."""
REFUSED_FIRST_S = 0.05
REFUSED_MOST_S = 1.0
"""First and longest pause before a question that a master could not answer is repeated; it doubles each time."""
_ASK_MARGIN_S = 5.0
_SILENT_MS = 4_000
"""Longest wait for one of several masters to list its transactions."""
_PARTING_S = 2.0


class _Waiting:
    """A submitted write that is in no message yet."""

    __slots__ = ("body", "deadline_s", "future", "terms", "txid")

    def __init__(self, txid: TxId, body: bytes, terms: tuple[str, int, int, str], deadline_s: float) -> None:
        self.txid = txid
        self.body = body
        self.terms = terms
        self.deadline_s = deadline_s
        self.future: Future[Reply] = Future()


class Patience:
    """The wait before writes are published again: several times the slowest of the recent answers.

    >>> patience = Patience()
    >>> patience.first_s
    1.5
    >>> patience.note(0.01)
    >>> patience.first_s
    0.5
    >>> patience.note(0.3)
    >>> patience.first_s
    1.2
    """

    def __init__(self) -> None:
        self._slow_s: float | None = None

    def note(self, seconds: float) -> None:
        """Note the time until an answer to a message of writes."""
        self._slow_s = max(seconds, FORGETS * (self._slow_s or 0.0))

    @property
    def first_s(self) -> float:
        """First wait; `RESEND_WRITES_S` before the first answer."""
        if self._slow_s is None:
            return RESEND_WRITES_S
        return min(RESEND_WRITES_S, max(RESEND_LEAST_S, PATIENCE_TIMES * self._slow_s))


class AmqpWire:
    """See the head of the module; any thread can use it."""

    def __init__(
        self, url: str, name: str = "brokerha client", to: NodeId = ANY_MASTER, config: TransportConfig | None = None
    ) -> None:
        """Start to connect; ``to`` is the wanted master. Raises ConfigurationError; does not wait for a broker."""
        self._to = to
        self._lock = threading.Lock()
        self._handed_in: list[_Waiting | Request] = []
        self._enough = 0
        """Number of submitted requests that ends the wait for others; 0 without a wait."""
        self._open_count = 0
        self._open_bytes = 0
        self._is_closed = False
        self._idle = threading.Condition(self._lock)
        # From here on used only in the thread.
        self._channel: Any = None
        self._has_answered = False
        """Whether anything was answered over this connection, including a return."""
        self._silent = 0
        """Number of connections in a row without any answer."""
        self._is_blocked = False
        self._reason = "not connected yet"
        self._remedy = ""
        self._numbers = itertools.count(1)
        self._open: dict[str, Request] = {}
        """By correlation id."""
        self._due: list[tuple[float, str]] = []
        """Heap of (monotonic time, correlation id): deadlines and resend times. Can name closed requests."""
        self._resend_s: dict[str, float] = {}
        """Time of the next publication of each open request."""
        self._gathering = Gathering()
        self._patience = Patience()
        self._held: Any = None
        """Timer of the writes that wait for others."""
        self._timer: Any = None
        self._timer_s = 0.0
        self._thread = PikaThread(parse_addresses(url), name, config or TransportConfig(), self)
        self._thread.start()

    # ------------------------------------------------------------------------------- ports.Wire, from any thread

    def submit(
        self, writes: Sequence[tuple[TxId, bytes]], level: str, copies: int, timeout_ms: int, apart: str = WAIT
    ) -> list[Future[Reply]]:
        """Send writes together, in order; see ports.Wire."""
        if not writes:
            return []
        deadline_s = time.monotonic() + timeout_ms / 1000
        waiting = [_Waiting(txid, body, (level, copies, timeout_ms, apart), deadline_s) for txid, body in writes]
        futures = [each.future for each in waiting]
        self._hand_in(waiting, futures, [len(body) for _, body in writes])
        return futures

    def read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """Ask for a read; see ports.Wire."""
        arguments = dict(arguments)
        to = str(arguments.pop("node", ""))
        body = client_wire.encode_read(kind, name, arguments, min_lsn, timeout_ms)
        return self._question(body, read_outcome, timeout_ms, to)

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        """Ask and wait for the answer; see ports.Wire. A question with a ``node`` goes to that master."""
        if what == "transactions":
            return self._transactions(timeout_ms)
        return _awaited(self._asked(what, arguments, timeout_ms), timeout_ms)

    def _asked(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Future[Any]:
        # A node decides how long it waits for others, but a step can be told to wait.
        more = {"timeout_ms": timeout_ms} if what == "transact" else {}
        body = client_wire.encode_question(what, {**arguments, **more})
        is_insistent = what not in {"transact", "command"}
        name, given = str(arguments.get("name", "")), arguments.get("arguments") or {}
        once = name if what == "command" and is_change(name, given) else ""
        return self._question(body, plain_answer, timeout_ms, str(arguments.get("node", "")), is_insistent=is_insistent, once=once)

    def _transactions(self, timeout_ms: int) -> list[Any]:
        """Return the transactions of all masters that answer. Raises the last error when none does."""
        nodes = self.ask("status", {}, timeout_ms)["nodes"]
        masters = [node["id"] for node in nodes if node["role"] == "master" and node["seen_s"] is not None]
        if len(masters) > 1:
            timeout_ms = min(timeout_ms, _SILENT_MS)
        step = {"action": "list", "txid": "", "arguments": {}}
        asked = [self._asked("transact", {**step, "node": master}, timeout_ms) for master in masters]
        answers: list[Any] = []
        problem: BrokerhaError | None = None
        for future in asked:
            try:
                answers.append(_awaited(future, timeout_ms))
            except BrokerhaError as error:
                problem = error
        if not answers and problem is not None:
            raise problem
        return [row for answer in answers for row in answer["transactions"]]

    def close(self, timeout_ms: int = 5000) -> None:
        """Wait for open requests as far as time allows, complete the rest, disconnect. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._idle.wait_for(lambda: self._open_count == 0, timeout_ms / 1000)
        self._thread.call(self._expire_all)
        self._thread.close(_PARTING_S)

    def _question(
        self,
        body: bytes,
        read_answer: Callable[[Mapping[str, Any]], Any],
        timeout_ms: int,
        to: NodeId = "",
        *,
        is_insistent: bool = True,
        once: str = "",
    ) -> Future[Any]:
        future: Future[Any] = Future()
        deadline_s = time.monotonic() + timeout_ms / 1000
        question = Question(body, future, read_answer, deadline_s, to, is_insistent=is_insistent, once=once)
        self._hand_in([question], [future], [len(body)])
        return future

    def _hand_in(self, items: Sequence[_Waiting | Request], futures: Sequence[Future[Any]], sizes_bytes: Sequence[int]) -> None:
        for future in futures:
            # A running future cannot be cancelled: a sent request cannot be recalled.
            future.set_running_or_notify_cancel()
        with self._lock:
            refusal = self._refusal(len(futures), sum(sizes_bytes))
            had = len(self._handed_in)
            if refusal is None:
                self._open_count += len(futures)
                self._open_bytes += sum(sizes_bytes)
                self._handed_in.extend(items)
            is_enough = had < self._enough <= len(self._handed_in)
            must_wake = refusal is None and (not had or is_enough or not isinstance(items[0], _Waiting))
        if refusal is not None:
            for future in futures:
                future.set_exception(refusal)
            return
        for future, size_bytes in zip(futures, sizes_bytes, strict=True):
            future.add_done_callback(partial(self._is_answered, size_bytes))
        if must_wake:
            self._thread.call(self._pump)

    def _refusal(self, count: int, size_bytes: int) -> Exception | None:
        if self._is_closed:
            return Closed()
        if self._open_count + count > OPEN_LIMIT or self._open_bytes + size_bytes > OPEN_LIMIT_BYTES:
            return NotReady(f"{self._open_count} requests are not answered yet: wait for some of them")
        return None

    def _is_answered(self, size_bytes: int, _done: Future[Any]) -> None:
        with self._lock:
            self._open_count -= 1
            self._open_bytes -= size_bytes
            if self._open_count == 0:
                self._idle.notify_all()

    # ---------------------------------------------------------------------------- thread.Owner, in the thread

    def up(self, channel: Any) -> None:
        """Publish all open requests: answers to the old connection are lost."""
        self._channel, self._remedy = channel, ""
        self._has_answered = False
        self._pump()
        for correlation_id in list(self._open):
            self._publish(correlation_id)
        self._set_timer()

    def lost(self, reason: str, remedy: str = "") -> None:
        """Note that nothing can be published until `up`. Published commands end: their answers are lost."""
        self._channel = None
        self._reason, self._remedy = reason, remedy
        for correlation_id, request in list(self._open.items()):
            if request.once and request.attempts:
                self._forget(correlation_id)
                request.expire(reason)

    def blocked(self, is_blocked: bool) -> None:
        """Pause publishing, but not deadlines."""
        was_blocked, self._is_blocked = self._is_blocked, is_blocked
        if is_blocked:
            self._reason = "the broker is out of memory or disk space"
        elif was_blocked and self._channel is not None:
            self.up(self._channel)

    def answered(self, correlation_id: str, body: bytes) -> None:
        """Complete the answered requests."""
        self._has_answered, self._silent = True, 0
        request = self._open.get(correlation_id)
        before = len(request) if isinstance(request, Writes) else 0
        try:
            answered = Answered.IN_PART if request is None else request.answer(body)
            if answered is Answered.WHOLLY:
                self._forget(correlation_id)
            elif answered is Answered.REFUSED:
                self._ask_again(correlation_id)
            if isinstance(request, Writes):
                now_s = time.monotonic()
                self._gathering.answered(before - len(request), now_s)
                self._patience.note(now_s - request.published_s)
        except InvalidRequest:
            # No master sends such bytes: treat them as no answer.
            return

    def returned(self, correlation_id: str) -> None:
        """Retry a message that no queue took in a moment: no master has started yet, or its queue was deleted."""
        self._has_answered = True
        request = self._open.get(correlation_id)
        if request is not None:
            request.attempts -= 1
            self._reason = "no master takes messages there"
            self._resend_at(correlation_id, time.monotonic() + RETURNED_PAUSE_S)
            self._set_timer()

    # ----------------------------------------------------------------------------------------------- in the thread

    def _ask_again(self, correlation_id: str) -> None:
        """Repeat a question later, because a master could not answer; the broker gives it to the first free one."""
        pause_s = min(REFUSED_MOST_S, REFUSED_FIRST_S * 2 ** min(self._open[correlation_id].attempts - 1, 10))
        self._resend_at(correlation_id, time.monotonic() + pause_s)
        self._set_timer()

    def _pump(self) -> None:
        """Publish the submitted requests; writes can wait a moment for others."""
        if self._held is not None:
            self._thread.forget(self._held)
            self._held = None
        with self._lock:
            hold_s = self._gathering.hold_s(len(self._handed_in), time.monotonic()) if self._handed_in else 0.0
            if hold_s and all(isinstance(item, _Waiting) for item in self._handed_in):
                self._enough = self._gathering.awaited
                self._held = self._thread.call_later(hold_s, self._pump)
                return
        self._publish_waiting()

    def _publish_waiting(self) -> None:
        """Make messages of the submitted requests, and publish them."""
        with self._lock:
            self._enough = 0
            handed_in, self._handed_in = self._handed_in, []
        self._gathering.left(len(handed_in))
        for is_write, group in itertools.groupby(handed_in, key=lambda item: isinstance(item, _Waiting)):
            items: list[Any] = list(group)
            requests: list[Request] = _batches(items) if is_write else items
            for request in requests:
                correlation_id = str(next(self._numbers))
                self._open[correlation_id] = request
                heapq.heappush(self._due, (request.deadline_s, correlation_id))
                self._publish(correlation_id)
        self._set_timer()

    def _publish(self, correlation_id: str) -> None:
        if self._channel is None or self._is_blocked:
            return
        request = self._open[correlation_id]
        if request.once and request.attempts:
            return
        now_s = time.monotonic()
        properties = pika.BasicProperties(
            content_type=request.content_type,
            delivery_mode=2 if request.is_persistent else 1,
            correlation_id=correlation_id,
            reply_to=REPLY_ADDRESS,
            user_id=None if self._thread.user == NOBODY else self._thread.user,
            headers=request.headers(now_s),
            # No client waits for a read's answer after its deadline, nor wants a late write that must not wait.
            expiration=None if request.may_wait else str(max(1, int((request.deadline_s - now_s) * 1000))),
        )
        self._channel.basic_publish(request.exchange, request.to or self._to, request.body(), properties, mandatory=True)
        first_s = self._patience.first_s if request.is_persistent else RESEND_FIRST_S if self._has_answered else RESEND_WRITES_S
        times = request.attempts if self._has_answered else self._silent
        pause_s = min(RESEND_MOST_S, first_s * 2 ** min(times, 10))
        request.attempts += 1
        request.published_s = request.published_s or now_s
        if not request.once:
            self._resend_at(correlation_id, now_s + pause_s)

    def _resend_at(self, correlation_id: str, when_s: float) -> None:
        self._resend_s[correlation_id] = when_s
        heapq.heappush(self._due, (when_s, correlation_id))

    def _on_timer(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            _, correlation_id = heapq.heappop(self._due)
            request = self._open.get(correlation_id)
            if request is None:
                continue
            if now_s >= request.deadline_s:
                self._forget(correlation_id)
                request.expire(self._reason, self._remedy)
            elif now_s >= self._resend_s.get(correlation_id, now_s + 1):
                if self._channel is not None and not self._has_answered:
                    # In a cluster of brokers a message can be stuck for ever, if its connection was opened while a replicated queue
                    # moved to another node; over the next connection it is published again.
                    self._silent += 1
                    self._resend_at(correlation_id, now_s + RESEND_MOST_S)
                    self._thread.renew("nothing was answered over this connection")
                else:
                    self._publish(correlation_id)
        self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer for the earliest due time."""
        while self._due and self._due[0][1] not in self._open:
            heapq.heappop(self._due)
        if not self._due:
            return
        first_s = self._due[0][0]
        if self._timer is not None:
            if self._timer_s <= first_s:
                return
            self._thread.forget(self._timer)
        self._timer_s = first_s
        self._timer = self._thread.call_later(first_s - time.monotonic(), self._on_timer)

    def _forget(self, correlation_id: str) -> None:
        del self._open[correlation_id]
        self._resend_s.pop(correlation_id, None)
        if len(self._due) > 4 * len(self._open) + DUE_SPARE:
            # Times of answered requests, which can have deadlines of days, would stay until then.
            self._due = [(request.deadline_s, open_id) for open_id, request in self._open.items()]
            self._due += [(when_s, open_id) for open_id, when_s in self._resend_s.items()]
            heapq.heapify(self._due)

    def _expire_all(self) -> None:
        self._publish_waiting()
        for request in self._open.values():
            request.expire("the connection was closed by this program")
        self._open.clear()


def _awaited(future: Future[Any], timeout_ms: int) -> Any:
    """Wait for the answer to a question, which comes a little after its deadline at the latest."""
    try:
        return future.result(timeout_ms / 1000 + _ASK_MARGIN_S)
    except FutureTimeoutError:
        raise Unreachable("the connection does not react") from None


def _batches(items: Sequence[_Waiting]) -> list[Request]:
    """Make messages of writes: adjacent writes with the same terms share one."""
    requests: list[Request] = []
    for terms, group in itertools.groupby(items, key=lambda item: item.terms):
        same = list(group)
        level, copies, _, apart = terms
        start = 0
        for writes in client_wire.cut([(item.txid, item.body) for item in same]):
            part = same[start : start + len(writes)]
            start += len(writes)
            futures = [item.future for item in part]
            requests.append(Writes(writes, futures, level, copies, part[0].deadline_s, apart))
    return requests
