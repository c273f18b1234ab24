"""Writes, reads and questions that apps publish over AMQP (docs/amqp.md).

    brokerha.writes   application/x-msgpack, application/sparql-update, application/n-quads: one transaction a message;
                      application/vnd.brokerha.writes+msgpack: many transactions in one message (the Python client)
    brokerha.reads    application/vnd.brokerha.read+msgpack: a read, a question, or a step of a transaction

A write's message stays with the broker until the write is durable, here and at as many backups as there have to be, or was
answered; a node that dies before that, or is not primary any more, lets the message come again, to another one. A write
without ``reply_to`` that cannot be taken in now (the master is busy, its disk is full) is held and tried again. A message
that can never succeed goes to ``brokerha.rejected`` with the reason, and is answered; it is never dropped and never loops.
Answers of one turn to one message travel together.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from brokerha.model import client_wire
from brokerha.model.errors import BrokerhaError, InvalidRequest, UnsupportedType
from brokerha.model.ids import Instant, TxId
from brokerha.model.requests import ACCEPTED, REFUSED, WAIT, Reply, Submit
from brokerha.nodes.checking import check_terms, checked_body
from brokerha.nodes.tickets import Tickets
from brokerha.ports.front import Front, ReadOutcome
from brokerha.ports.transport import ClientMessage, ClientReply, Transport

if TYPE_CHECKING:
    from brokerha.model.operations import Operation

RETRY_MS = 500
"""Pause before writes that nobody waits for, and that could not be taken in, are tried again."""
TEMPORARY = frozenset({"NotReady", "ReadOnly", "OutcomeUnknown"})
"""Refusals that pass. The transport's own window bounds how many such messages are held; the broker keeps the rest."""
PERMANENT = ("InvalidRequest", "KeyReused", "TooLarge", "UnknownRepository", "UnsupportedType")
"""Those that never pass. They are told from the start: what is first seen as 1 has not increased, for Prometheus."""


class _Batch:
    """The answers to one client message."""

    __slots__ = ("answers", "message", "open", "txid")

    def __init__(self, message: ClientMessage, txid: TxId = "") -> None:
        self.message = message
        self.txid = txid
        """Of a message that is one transaction: the same one when it is tried again."""
        self.answers: list[Reply] = []
        self.open = 0
        """Writes without an answer."""


class AmqpFront:
    """Client messages of one master; everything but the questions' threads runs in the loop's thread."""

    def __init__(
        self,
        front: Front,
        transport: Transport,
        tickets: Tickets,
        when_safe: Callable[[Callable[[], None]], None] = lambda show: show(),
        in_loop: Callable[[Callable[[], None]], object] = lambda act: act(),
    ) -> None:
        """``when_safe`` runs what it is given once enough backups hold what is durable now, ``in_loop`` in the loop's thread."""
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
        self._questions = ThreadPoolExecutor(4, thread_name_prefix=f"{front.node_id} questions")

    def on_client(self, messages: list[ClientMessage], now: Instant) -> list[Submit]:
        """Turn messages into writes; reads and questions go their own way."""
        submits: list[Submit] = []
        for message in messages:
            try:
                if message.content_type == client_wire.READ_TYPE:
                    self._on_read(message)
                    self._transport.settle([message])
                else:
                    submits.extend(self._writes(message))
            except BrokerhaError as error:
                self._refuse(message, error)
        return submits

    def retry(self, now: Instant) -> list[Submit]:
        """Writes that nobody waits for and that could not be taken in before; asked for in every turn."""
        if not self._held or now.mono_ms < self._retry_at_ms:
            return []
        self._retry_at_ms = now.mono_ms + RETRY_MS
        held, self._held = self._held, {}
        return [submit for batch in held.values() for submit in self._writes(batch.message, batch.txid)]

    def _refuse(self, message: ClientMessage, error: BrokerhaError) -> None:
        if message.reply_to:
            reply = Reply(0, message.message_id, REFUSED, 0, type(error).__name__, str(error))
            self._send(message, [reply])
        self._reject(message, type(error).__name__, str(error))

    def _writes(self, message: ClientMessage, txid: TxId = "") -> list[Submit]:
        level, copies, timeout_ms = client_wire.terms(message.headers)
        apart = client_wire.apart_of(message.headers)
        items: list[tuple[str, bytes]] = []
        batch = _Batch(message, txid or message.message_id)
        if message.content_type == client_wire.WRITES_TYPE:
            for each, body in client_wire.decode_writes(message.body):
                try:
                    check_terms(each, level, copies, timeout_ms)
                    items.append((each, checked_body(body)))
                except InvalidRequest as error:
                    if not message.reply_to:
                        raise
                    batch.answers.append(Reply(0, each, REFUSED, 0, type(error).__name__, str(error)))
        else:
            batch.txid = batch.txid or self._front.new_txid()
            check_terms(batch.txid, level, copies, timeout_ms)
            items.append((batch.txid, checked_body(single_operations(message))))
        batch.open = len(items)
        self._unsettled[id(message)] = message
        self._fresh.append(message)
        if batch.answers:
            self._answered[id(batch)] = batch
        if not message.reply_to:
            # Nobody could be told of a refusal; what nobody waits for may as well wait here.
            level, copies, apart = ACCEPTED, 1, WAIT
        receiver = functools.partial(self._on_reply if message.reply_to else self._on_silent_reply, batch)
        return [
            Submit(self._tickets.open(txid, receiver), txid, body, level, copies, timeout_ms, apart)
            for txid, body in items
        ]

    def _on_reply(self, batch: _Batch, reply: Reply) -> None:
        batch.answers.append(reply)
        batch.open -= 1
        self._answered[id(batch)] = batch

    def _on_silent_reply(self, batch: _Batch, reply: Reply) -> None:
        """Nobody waits for this answer: what was not taken in is tried again, what never can be is kept aside."""
        if reply.status == ACCEPTED:
            return
        message = batch.message
        self._unsettled.pop(id(message), None)
        if reply.error in TEMPORARY:
            self._held.setdefault(id(message), batch)
        else:
            self._reject(message, reply.error, reply.reason)

    def _reject(self, message: ClientMessage, error: str, reason: str) -> None:
        self._rejected[error] += 1
        self._transport.reject(message, f"{error}: {reason}")

    def metrics(self) -> dict[str, float]:
        """Numbers for /metrics: messages that were moved to ``brokerha.rejected``, by the name of the error."""
        counts = {**dict.fromkeys(PERMANENT, 0), **self._rejected}
        return {f'rejected_messages_total{{reason="{error}"}}': count for error, count in counts.items()}

    def after_turn(self) -> None:
        """Settle what is safe now or was answered, send what was answered in this turn."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._when_safe(functools.partial(self._settle, fresh))
        for batch in self._answered.values():
            self._send(batch.message, batch.answers)
            batch.answers = []
        self._settle([batch.message for batch in self._answered.values() if not batch.open])
        self._answered = {}
        self._flush()

    def _settle(self, messages: list[ClientMessage]) -> None:
        """Those that are not settled, held or rejected yet."""
        settled = [message for message in messages if self._unsettled.pop(id(message), None) is not None]
        if settled:
            self._transport.settle(settled)

    def _flush(self) -> None:
        if self._outbox:
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
            future: Future[Any] = self._questions.submit(self._answer_question, request["ask"], request["arguments"])
            future.add_done_callback(lambda done: self._reply_later(message, _plain(done)))
            return
        read = self._front.read(
            request["kind"], request["name"], request["arguments"], request["min_lsn"], request["timeout_ms"]
        )
        read.add_done_callback(lambda done: self._reply_later(message, _read_answer(done)))

    def _on_step(self, message: ClientMessage, asked: dict[str, Any]) -> None:
        """One step of a transaction: {action, txid, arguments, timeout_ms}. It takes no thread, however long it waits."""
        arguments, timeout_ms = asked.get("arguments", {}), asked.get("timeout_ms", client_wire.DEFAULT_TIMEOUT_MS)
        if type(arguments) is not dict or type(timeout_ms) is not int:
            raise InvalidRequest("a step is {action, txid, arguments (a map), timeout_ms (a number)}")
        try:
            step = self._front.transact(str(asked.get("action", "")), str(asked.get("txid", "")), arguments, timeout_ms)
        except BrokerhaError as error:
            # What is wrong with a step is its answer, so that the transaction can go on without it.
            self._reply_later(message, client_wire.encode_answer(type(error).__name__, str(error), None))
            return
        step.add_done_callback(lambda done: self._reply_later(message, _plain(done)))

    def _reply_later(self, message: ClientMessage, body: bytes) -> None:
        """Called from any thread; the loop sends what is there after its turn."""
        self._outbox.append(ClientReply(message.reply_to, message.correlation_id, body, client_wire.READ_ANSWER_TYPE))
        if self._is_closed:
            self._in_loop(self._flush)
        else:
            self._transport.wake()

    def _answer_question(self, what: str, arguments: dict[str, Any]) -> Any:
        timeout_ms = int(arguments.get("timeout_ms", 5000))
        questions: dict[str, Callable[[], Any]] = {
            "status": lambda: self._front.status(timeout_ms),
            "log": lambda: self._front.log(int(arguments["first_lsn"]), int(arguments["last_lsn"])),
            "logged": lambda: self._front.logged(int(arguments["first_lsn"]), int(arguments["last_lsn"])),
            "entries": lambda: self._front.entries(int(arguments["first_lsn"]), int(arguments["last_lsn"])),
            "outcome": lambda: self._front.outcome(str(arguments["txid"])),
            "command": lambda: self._front.command(str(arguments["name"]), arguments["arguments"], timeout_ms).result(
                timeout_ms / 1000 + 5
            ),
            "wait": lambda: self._front.wait_for(int(arguments["lsn"]), arguments["workers"], timeout_ms).result(
                timeout_ms / 1000 + 5
            ),
        }
        if what not in questions:
            message = f"unknown question {what!r}; known are {', '.join(sorted(questions))}"
            raise InvalidRequest(message)
        return questions[what]()

    def close(self) -> None:
        """Answer whoever can be answered, and end the questions' threads.

        What the broker still has is left to whoever gets it next; so nobody is told that its outcome is unknown.
        """
        self._is_closed = True
        for batch in self._answered.values():
            if id(batch.message) not in self._unsettled:
                self._send(batch.message, batch.answers)
        self._answered = {}
        self._flush()
        self._questions.shutdown(wait=False, cancel_futures=True)


def single_operations(message: ClientMessage) -> bytes | list[Operation]:
    """The operations of a message that is one transaction. Raises InvalidRequest, UnsupportedType."""
    kind = message.content_type.split(";")[0].strip().lower()
    repository = str(message.headers.get("repository", "main"))
    if kind == "application/x-msgpack":
        return message.body
    if kind not in ("application/sparql-update", "application/n-quads"):
        text = (
            f"content type {message.content_type!r}: send application/sparql-update, application/n-quads or "
            "application/x-msgpack (a list of operations)"
        )
        raise UnsupportedType(text)
    try:
        text = message.body.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"the body is not UTF-8: byte {error.start}"
        raise InvalidRequest(reason) from None
    return [("update" if kind == "application/sparql-update" else "add", repository, text)]


def _plain(done: Future[Any]) -> bytes:
    if done.cancelled():
        return client_wire.encode_answer("NotReady", "the master is stopping, or not primary any more: ask again", None)
    error = done.exception()
    if error is not None:
        return client_wire.encode_answer(type(error).__name__, str(error), None)
    return client_wire.encode_answer("", "", done.result())


def _read_answer(done: Future[ReadOutcome]) -> bytes:
    error = done.exception()
    if error is not None:
        age = (error.apart, error.stale_ms) if isinstance(error, BrokerhaError) else ()
        return client_wire.encode_read_answer(type(error).__name__, str(error), "", 0, b"", *age)
    outcome = done.result()
    return client_wire.encode_read_answer("", "", *outcome)
