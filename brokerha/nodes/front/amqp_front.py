"""Writes, reads and questions of apps over AMQP (docs/amqp.md).

    brokerha.writes   application/x-msgpack, application/sparql-update, application/n-quads: one transaction a message;
                      application/vnd.brokerha.writes+msgpack: many transactions in one message (the Python client)
    brokerha.reads    application/vnd.brokerha.read+msgpack: a read, a question, or a step of a transaction

The message of a write stays with the broker until the write was answered, or is durable here and at enough backups. When the node
dies before, or is no longer primary, the message goes to another node. A write without ``reply_to`` that cannot be taken now (the
master is busy, its disk is full) is held and retried. A message that can never succeed goes to ``brokerha.rejected`` with the
reason, and is answered; it is never dropped and never loops. Answers of one turn to one message are sent together.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple

from brokerha.ingress.suspects import EndedTheNode, Suspects
from brokerha.local_reads.asking import AskingThread
from brokerha.master.command_arguments import NAME_LIMIT, NAMED_BY_DOORS
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, TimedOut, UnsupportedType
from brokerha.model.ids import Instant, TxId
from brokerha.model.numbers import Numbers
from brokerha.model.operations import Checked, Operation, pack_operations, typed_operations, unpack_operations
from brokerha.model.outside.authors import signed
from brokerha.model.outside.commands import is_change, outcome_unknown
from brokerha.model.outside.shapes import MAP, TEXT, TIMEOUT, Shapes, check_shapes, needed
from brokerha.model.requests import ACCEPTED, REFUSED, WAIT, Reply, Submit, doubtful
from brokerha.model.wire import client_wire
from brokerha.model.wire.messages import Read
from brokerha.nodes.front import questions
from brokerha.nodes.front.checking import check_read, check_terms, check_texts, is_plain
from brokerha.nodes.front.room import Room
from brokerha.nodes.master.tickets import Tickets
from brokerha.ports.front import Front, Readers, ReadOutcome
from brokerha.ports.transport import ClientMessage, ClientReply, Transport

RETRY_MS = 500
"""Interval of retries of held writes, for which no app waits."""
TOLD_MS = 3_600_000
THREADS: Final = 4
WAITS_LIMIT: Final = 1000
"""Most apps that can wait for an LSN at one time."""
TEMPORARY = frozenset({"NotReady", "ReadOnly", "OutcomeUnknown"})
"""Temporary refusals. The transport's window bounds the number of held messages; the broker keeps the rest."""
PERMANENT = ("EndedTheNode", "InvalidRequest", "KeyReused", "TooLarge", "UnknownRepository", "UnsupportedType")
"""Permanent refusals. They are reported from the start: for Prometheus, a counter that first appears as 1 has not increased."""
_STEP: Final[Shapes] = {
    "action": needed(TEXT), "txid": TEXT, "arguments": MAP, "timeout_ms": TIMEOUT, "node": TEXT,
}  # fmt: skip


class _Work(NamedTuple):
    is_plain: bool
    work: Callable[[], Any]
    then: Callable[[Future[Any]], None]


class Lanes:
    """Work on messages that must stay in order, when some takes too long for the loop; `wake` makes the loop turn, from any thread.

        take(key, is_plain, work, then)      in the loop: `work` now, or in a thread; `then(future)` in the loop, in order of a key
        turn()                               in the loop, once each turn: takes the work that threads have finished

    Messages with another key are not blocked. The reader of messages from the broker bounds the waiting writes by its window.
    """

    def __init__(self, name: str, wake: Callable[[], object]) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        self._wake = wake
        self._lanes: dict[Hashable, deque[_Work]] = {}
        self._finished: deque[tuple[Hashable, Future[Any]]] = deque()

    def take(self, key: Hashable, is_plain: bool, work: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Do `work`: now, if it is plain and nothing waits under its key."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.append(_Work(is_plain, work, then))
        elif is_plain:
            then(_done(work))
        else:
            self._lanes[key] = deque([_Work(is_plain, work, then)])
            self._start(key)

    def turn(self) -> None:
        """Continue the lanes whose first work is done."""
        while self._finished:
            key, future = self._finished.popleft()
            lane = self._lanes[key]
            lane.popleft().then(future)
            while lane and lane[0].is_plain:
                _, work, then = lane.popleft()
                then(_done(work))
            if lane:
                self._start(key)
            else:
                del self._lanes[key]

    def close(self) -> None:
        """Start no more work; do not wait for running work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: Hashable) -> None:
        self._threads.submit(self._lanes[key][0].work).add_done_callback(lambda done: self._finish(key, done))

    def _finish(self, key: Hashable, future: Future[Any]) -> None:
        self._finished.append((key, future))
        self._wake()


def _done(work: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001  The caller judges it, as that of a thread.
        future.set_exception(error)
    return future


class _Batch:
    """The answers to one message of an app."""

    __slots__ = ("answers", "message", "open", "txid")

    def __init__(self, message: ClientMessage, txid: TxId = "") -> None:
        self.message = message
        self.txid = txid
        """Id of a message with one transaction: the same when it is retried."""
        self.answers: list[Reply] = []
        self.open = 0
        """Number of writes without an answer."""

    def refuse(self, txid: TxId, error: BrokerhaError) -> None:
        """Refuse one of its writes. Raises the error when it is the only write, or when no app waits: then the message ends."""
        if self.message.content_type != client_wire.WRITES_TYPE or not self.message.reply_to:
            raise error
        self.answers.append(self.judged(Reply(0, txid, REFUSED, 0, type(error).__name__, str(error))))

    def judged(self, reply: Reply) -> Reply:
        """Return the writer's answer: after a redelivery the former master possibly took the write, and ended before its answer."""
        return doubtful(reply) if self.message.redelivered else reply


def _ids(message: ClientMessage) -> list[TxId]:
    """Return the ids of the writes of a message; its own id for a single write, or for an unreadable message."""
    if message.content_type == client_wire.WRITES_TYPE:
        with suppress(InvalidRequest):
            return [txid for txid, _ in client_wire.decode_writes(message.body)]
    return [message.message_id]


class _Terms(NamedTuple):
    """Level and limits that the writer of a message asks for."""

    level: str
    copies: int
    timeout_ms: int
    apart: str


_Item = tuple[TxId, bytes, list[Checked]]
"""A write: its id, its body, and its operations."""


class AmqpFront:
    """Client messages of one master; all but the questions' threads runs in the loop's thread."""

    def __init__(
        self,
        front: Front,
        transport: Transport,
        tickets: Tickets,
        when_safe: Callable[[Callable[[], None]], None] = lambda show: show(),
        in_loop: Callable[[Callable[[], None]], object] = lambda act: act(),
        suspects: Suspects | None = None,
        near: AskingThread | None = None,
    ) -> None:
        """``when_safe`` runs its argument once enough backups hold all that is durable now, ``in_loop`` runs it in the loop's
        thread. ``near``: asks workers of this machine without the broker; None for no such worker.
        """
        self._when_safe = when_safe
        self._in_loop = in_loop
        self._is_closed = False
        self._front = front
        self._transport = transport
        self._tickets = tickets
        self._answered: dict[int, _Batch] = {}
        self._unsettled: dict[int, ClientMessage] = {}
        self._fresh: list[ClientMessage] = []
        """Messages of this turn."""
        self._held: dict[int, _Batch] = {}
        self._retry_at_ms = 0
        self._rejected: Counter[str] = Counter()
        self._outbox: deque[ClientReply] = deque()
        self._lanes = Lanes(f"{front.node_id} parsing", transport.wake)
        self._submits: list[Submit] = []
        """Writes for this turn."""
        self._suspects = suspects or Suspects(None)
        self._near = near
        self.read_near = 0
        """Number of reads that workers of this machine answered."""
        self._waits = 0
        """Number of apps that wait for an LSN."""
        self._question_room = Room(front.node_id, "questions")
        self._step_room = Room(front.node_id, "steps of transactions")
        self._attention = "", 0
        """The text to report, and the time until which."""
        self._questions = ThreadPoolExecutor(4, thread_name_prefix=f"{front.node_id} questions")

    def on_client(self, messages: list[ClientMessage], now: Instant) -> list[Submit]:
        """Turn messages into writes; handle reads and questions apart."""
        digests = self._suspects.take_in_hand([message.body for message in messages])
        for message, digest in zip(messages, digests, strict=True):
            try:
                self._check_suspect(digest, now)
                if message.content_type == client_wire.READ_TYPE:
                    self._on_read(message)
                    self._transport.settle([message])
                else:
                    self._on_write(message)
            except BrokerhaError as error:
                self._refuse(message, error)
        self._suspects.put_down()
        return self._taken()

    def retry(self, now: Instant) -> list[Submit]:
        """Return writes that were parsed meanwhile, and held writes that can be retried; called in every turn."""
        self._lanes.turn()
        if self._attention[0] and now.mono_ms >= self._attention[1]:
            self._attention = "", 0
        if self._held and now.mono_ms >= self._retry_at_ms:
            self._retry_at_ms = now.mono_ms + RETRY_MS
            held, self._held = self._held, {}
            for batch in held.values():
                self._on_write(batch.message, batch.txid)
        return self._taken()

    def _check_suspect(self, digest: bytes, now: Instant) -> None:
        try:
            self._suspects.check(digest)
        except EndedTheNode:
            number = self._rejected[EndedTheNode.__name__] + 1
            text = f"{number} messages ended this node twice and were put aside: brokerha quarantine list"
            self._attention = text, now.mono_ms + TOLD_MS
            raise

    def _taken(self) -> list[Submit]:
        submits, self._submits = self._submits, []
        return submits

    def _refuse(self, message: ClientMessage, error: BrokerhaError) -> None:
        if type(error) is InvalidRequest and (encoding := _encoding_of(message)):
            error = InvalidRequest(
                f"{error}; the message says that its body is encoded with {encoding!r}: send it without, as UTF-8 or msgpack"
            )
        if message.reply_to and message.content_type == client_wire.READ_TYPE:
            self._reply_later(message, client_wire.encode_answer(type(error).__name__, str(error), None))
        elif message.reply_to:
            batch = _Batch(message)
            replies = (Reply(0, txid, REFUSED, 0, type(error).__name__, str(error)) for txid in _ids(message))
            self._send(message, [batch.judged(reply) for reply in replies])
        if type(error).__name__ in TEMPORARY:
            # It can be taken when it is published again.
            self._transport.settle([message])
        else:
            self._reject(message, type(error).__name__, str(error))

    def _on_write(self, message: ClientMessage, txid: TxId = "") -> None:
        """Check a write at once as far as possible. One that must be parsed continues later, in order with others of its sender."""
        terms = _Terms(*client_wire.terms(message.headers), client_wire.apart_of(message.headers))
        batch = _Batch(message, txid or message.message_id)
        items: list[_Item] = []
        if message.content_type == client_wire.WRITES_TYPE:
            for each, body in client_wire.decode_writes(message.body):
                try:
                    check_terms(each, terms.level, terms.copies, terms.timeout_ms)
                    items.append((each, body, unpack_operations(body)))
                except InvalidRequest as error:
                    batch.refuse(each, error)
        else:
            batch.txid = batch.txid or self._front.new_txid()
            check_terms(batch.txid, terms.level, terms.copies, terms.timeout_ms)
            operations = single_operations(message)
            body = operations if isinstance(operations, bytes) else pack_operations(operations)
            listed = unpack_operations(body) if isinstance(operations, bytes) else typed_operations(operations)
            items.append((batch.txid, body, listed))
        self._lanes.take(
            message.reply_to,
            all(is_plain(listed) for _, _, listed in items),
            functools.partial(_checked, batch, items),
            functools.partial(self._on_checked, batch, terms),
        )

    def _on_checked(self, batch: _Batch, terms: _Terms, checked: Future[list[_Item]]) -> None:
        message = batch.message
        error = checked.exception()
        if isinstance(error, BrokerhaError) and type(error).__name__ in TEMPORARY and not message.reply_to:
            self._held.setdefault(id(message), batch)
            return
        if isinstance(error, BrokerhaError):
            self._refuse(message, error)
            return
        items = checked.result()
        batch.open = len(items)
        self._unsettled[id(message)] = message
        self._fresh.append(message)
        if batch.answers:
            self._answered[id(batch)] = batch
        if not message.reply_to:
            # A refusal could not be delivered, and as no app waits, this write can wait here.
            terms = _Terms(ACCEPTED, 1, terms.timeout_ms, WAIT)
        receiver = functools.partial(self._on_reply if message.reply_to else self._on_silent_reply, batch)
        self._submits += [Submit(self._tickets.open(txid, receiver), txid, body, *terms) for txid, body, _ in items]

    def _on_reply(self, batch: _Batch, reply: Reply) -> None:
        batch.answers.append(batch.judged(reply))
        batch.open -= 1
        self._answered[id(batch)] = batch

    def _on_silent_reply(self, batch: _Batch, reply: Reply) -> None:
        """Handle a result that no app waits for: retry a temporary refusal, set a permanent one aside."""
        if reply.status == ACCEPTED:
            return
        message = batch.message
        if self._unsettled.pop(id(message), None) is None:
            # The whole message is retried, or was set aside, because of another of its writes.
            return
        if reply.error in TEMPORARY:
            self._held.setdefault(id(message), batch)
        else:
            self._reject(message, reply.error, reply.reason)

    def _reject(self, message: ClientMessage, error: str, reason: str) -> None:
        self._rejected[error] += 1
        self._transport.reject(message, f"{error}: {reason}")

    def attention(self) -> str:
        """Return the problem that needs a person's attention, or an empty string; kept for `TOLD_MS`."""
        return self._attention[0]

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics: messages moved to ``brokerha.rejected``, by the name of the error."""
        counts = {**dict.fromkeys(PERMANENT, 0), **self._rejected}
        return {("rejected_messages_total", error): count for error, count in counts.items()}

    def after_turn(self) -> None:
        """Settle messages that are safe now or were answered, and send the answers of this turn."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._when_safe(functools.partial(self._settle, fresh))
        if self._answered:
            for batch in self._answered.values():
                self._send(batch.message, batch.answers)
                batch.answers = []
            self._settle([batch.message for batch in self._answered.values() if not batch.open])
            self._answered = {}
        if self._outbox:
            self._flush()

    def _settle(self, messages: list[ClientMessage]) -> None:
        """Settle those that are not settled, held or rejected yet."""
        settled = [message for message in messages if self._unsettled.pop(id(message), None) is not None]
        if settled:
            self._transport.settle(settled)

    def _flush(self) -> None:
        self._transport.reply([self._outbox.popleft() for _ in range(len(self._outbox))])

    def _send(self, message: ClientMessage, answers: list[Reply]) -> None:
        body = client_wire.encode_replies([(a.txid, a.status, a.lsn, a.error, a.reason) for a in answers])
        self._outbox.append(ClientReply(message.reply_to, message.correlation_id, body, client_wire.REPLIES_TYPE))

    # ---- reads and questions

    def _on_read(self, message: ClientMessage) -> None:
        request = client_wire.decode_read(message.body)
        if request.get("ask") == "transact":
            self._on_step(message, request["arguments"])
            return
        if "ask" in request:
            future = self._asked(request["ask"], request["arguments"], message)
            future.add_done_callback(lambda done: self._reply_later(message, _plain(done)))
            return
        wanted = Read("", request["kind"], request["name"], request["arguments"], request["min_lsn"], request["timeout_ms"])
        if self._near is None or not _is_for_a_worker(wanted):
            self._read_far(message, wanted)
            return
        readers = self._front.readers(wanted.min_lsn)
        near = self._near.read(readers.workers, dataclasses.replace(wanted, min_lsn=readers.min_lsn))
        near.add_done_callback(lambda done: self._on_near(message, wanted, readers, done))

    def _read_far(self, message: ClientMessage, wanted: Read) -> None:
        """Read over the broker; the master chooses the worker."""
        read = self._front.read(wanted.kind, wanted.repository, wanted.arguments, wanted.min_lsn, wanted.timeout_ms)
        read.add_done_callback(lambda done: self._reply_later(message, _read_answer(done)))

    def _on_near(self, message: ClientMessage, wanted: Read, readers: Readers, done: Future[ReadOutcome | None]) -> None:
        """Answer from a near worker; called in the thread of the near workers."""
        error = done.exception()
        outcome = None if error is not None else done.result()
        if isinstance(error, InvalidRequest | TimedOut):
            body = _read_error(readers.aged_error(error))
        elif outcome is not None:
            body = client_wire.encode_read_answer("", "", *readers.aged(outcome))
        else:
            self._in_loop(lambda: self._read_far(message, wanted))
            return
        self.read_near += 1
        self._reply_later(message, body)

    def _on_step(self, message: ClientMessage, asked: dict[str, Any]) -> None:
        """Take a step {action, txid, arguments, timeout_ms}. Only parsing needs a thread, however long the step waits."""
        try:
            check_shapes("a step", _STEP, asked)
            self._step_room.enter(len(message.body))
        except (InvalidRequest, NotReady) as error:
            self._reply_later(message, client_wire.encode_answer(type(error).__name__, str(error), None))
            return
        txid, arguments = asked.get("txid") or "", asked.get("arguments") or {}
        timeout_ms = asked.get("timeout_ms") or client_wire.DEFAULT_TIMEOUT_MS
        if asked["action"] == "begin":
            arguments = {**arguments, "user": message.user}
        self._lanes.take(
            # Steps of one transaction stay in order.
            ("step", txid),
            is_plain(arguments.get("operations", ())),
            functools.partial(self._front.transact, asked["action"], txid, arguments, timeout_ms),
            functools.partial(self._on_begun_step, message),
        )

    def _on_begun_step(self, message: ClientMessage, begun: Future[Future[dict[str, Any]]]) -> None:
        self._step_room.leave(len(message.body))
        if begun.exception() is not None:
            # The error of a step is its answer, so that the transaction can go on without it.
            self._reply_later(message, _plain(begun))
        else:
            begun.result().add_done_callback(lambda done: self._reply_later(message, _plain(done)))

    def _reply_later(self, message: ClientMessage, body: bytes) -> None:
        """Queue an answer, from any thread; the loop sends it after its turn."""
        self._outbox.append(ClientReply(message.reply_to, message.correlation_id, body, client_wire.READ_ANSWER_TYPE))
        if self._is_closed:
            self._in_loop(self._flush)
        else:
            self._transport.wake()

    def _asked(self, what: str, arguments: dict[str, Any], message: ClientMessage) -> Future[Any]:
        """Return the answer to a question; at once when the question is wrong, or too many wait."""
        given, name = arguments.get("arguments"), arguments.get("name")
        user, size_bytes = message.user, len(message.body)
        if what == "command" and name in NAMED_BY_DOORS and isinstance(given, dict):
            arguments = {**arguments, "arguments": {**given, "by": user[:NAME_LIMIT], "from": "AMQP"}}
        try:
            questions.check_question(what, arguments)
            if message.redelivered and what == "command" and is_change(arguments["name"], arguments["arguments"]):
                # The node that had it has ended, possibly after it carried it out.
                raise outcome_unknown(arguments["name"], "the node that had it has ended")
            if what == "wait":
                return self._waited_for(arguments)
            self._question_room.enter(size_bytes)
        except BrokerhaError as error:
            refused: Future[Any] = Future()
            refused.set_exception(error)
            return refused
        answer: Future[Any] = self._questions.submit(questions.answer, self._front, what, arguments)
        answer.add_done_callback(lambda _: self._question_room.leave(size_bytes))
        if what == "command" and isinstance(name, str) and isinstance(given, dict):
            questions.note_command(answer, self._front.node_id, name, given, user, "AMQP")
        return answer

    def _waited_for(self, arguments: dict[str, Any]) -> Future[Any]:
        """Return when workers have applied an LSN, or at the deadline; it blocks no thread that other questions need."""
        if self._waits >= WAITS_LIMIT:
            raise NotReady(f"{self._waits} apps wait for an LSN at {self._front.node_id} already: try again")
        timeout_ms = arguments.get("timeout_ms") or questions.TIMEOUT_DEFAULT_MS
        future = self._front.wait_for(arguments["lsn"], arguments["workers"], timeout_ms)
        self._waits += 1

        def over(_: object) -> None:
            self._waits -= 1

        future.add_done_callback(over)
        return future

    def close(self) -> None:
        """Send the answers that are known, and end the questions' threads.

        Unsettled messages stay with the broker for the next process, so no app is told that its outcome is unknown.
        """
        self._is_closed = True
        for batch in self._answered.values():
            if id(batch.message) not in self._unsettled:
                self._send(batch.message, batch.answers)
        self._answered = {}
        self._flush()
        self._lanes.close()
        if self._near is not None:
            self._near.close()
        self._questions.shutdown(wait=False, cancel_futures=True)


def _checked(batch: _Batch, items: list[_Item]) -> list[_Item]:
    """Return the writes that can be executed. Raises InvalidRequest, NotReady for a single write or when no app waits."""
    found: list[_Item] = []
    for item in items:
        txid, body, operations = item
        try:
            check_texts(operations)
            found.append((txid, signed(body, batch.message.user), operations))
        except (InvalidRequest, NotReady) as error:
            batch.refuse(txid, error)
    return found


def single_operations(message: ClientMessage) -> bytes | list[Operation]:
    """Return the operations of a message that is one transaction. Raises InvalidRequest, UnsupportedType."""
    kind = message.content_type.split(";")[0].strip().lower()
    repository = client_wire.repository_of(message.headers)
    if kind == "application/x-msgpack":
        return message.body
    if kind not in ("application/sparql-update", "application/n-quads"):
        text = (
            f"content type {message.content_type!r}: send application/sparql-update, application/n-quads, application/x-msgpack "
            f"(a list of operations), {client_wire.WRITES_TYPE} (many writes) or {client_wire.READ_TYPE} (a read or question)"
        )
        raise UnsupportedType(text)
    try:
        text = message.body.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        reason = f"the body is not UTF-8: byte {error.start}"
        raise InvalidRequest(reason) from None
    return [("update" if kind == "application/sparql-update" else "add", repository, text)]


def _encoding_of(message: ClientMessage) -> str:
    """Return the encoding that a message declares and no node undoes; kombu names a compression in a header of its own."""
    declared = str(message.headers.get("compression") or message.content_encoding)
    return "" if declared.lower() in {"utf-8", "binary", "identity"} else declared


def _is_for_a_worker(wanted: Read) -> bool:
    """Tell whether a worker can be asked directly. The master handles wrong reads, and those in a transaction."""
    try:
        check_read(wanted.kind, wanted.repository, wanted.arguments, wanted.min_lsn, wanted.timeout_ms)
    except InvalidRequest:
        return False
    return "tx" not in wanted.arguments


def _plain(done: Future[Any]) -> bytes:
    if done.cancelled():
        return client_wire.encode_answer("NotReady", "the master is stopping, or not primary any more: ask again", None)
    error = done.exception()
    if error is not None:
        return client_wire.encode_answer(*_told(error), None)
    return client_wire.encode_answer("", "", done.result())


def _read_answer(done: Future[ReadOutcome]) -> bytes:
    error = done.exception()
    if error is not None:
        return _read_error(error)
    outcome = done.result()
    return client_wire.encode_read_answer("", "", *outcome)


def _read_error(error: BaseException) -> bytes:
    age = (error.apart, error.stale_ms) if isinstance(error, BrokerhaError) else ()
    return client_wire.encode_read_answer(*_told(error), "", 0, b"", *age)


def _told(error: BaseException) -> tuple[str, str]:
    """Return name and reason of any error, with a name that apps know."""
    if isinstance(error, BrokerhaError):
        return type(error).__name__, str(error)
    if isinstance(error, TimeoutError):
        return TimedOut.__name__, "there was no answer in its time: ask again"
    return NotReady.__name__, f"the answer failed: {type(error).__name__}: {error}"
