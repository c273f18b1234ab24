"""Writes, reads and questions that apps publish over AMQP (docs/amqp.md).

    brokerha.writes   application/x-msgpack, application/sparql-update, application/n-quads: one transaction a message;
                      application/vnd.brokerha.writes+msgpack: many transactions in one message (the Python client)
    brokerha.reads    application/vnd.brokerha.read+msgpack: a read, a question, or a step of a transaction

A write's message stays with the broker until the write is durable here or was answered; a node that dies before that lets
the message come again, to another master. A write without ``reply_to`` that cannot be taken in now (the master is busy, its
disk is full) is held and tried again. A message that can never succeed goes to ``brokerha.rejected`` with the reason, and is
answered; it is never dropped and never loops. Answers of one turn to one message travel together.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from brokerha.model import client_wire
from brokerha.model.errors import BrokerhaError, InvalidRequest, UnsupportedType
from brokerha.model.ids import Instant
from brokerha.model.requests import ACCEPTED, REFUSED, Reply, Submit
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


class _Batch:
    """The answers to one client message."""

    __slots__ = ("answers", "message")

    def __init__(self, message: ClientMessage) -> None:
        self.message = message
        self.answers: list[Reply] = []


class AmqpFront:
    """Client messages of one master; everything but the questions' threads runs in the loop's thread."""

    def __init__(self, front: Front, transport: Transport, tickets: Tickets) -> None:
        self._front = front
        self._transport = transport
        self._tickets = tickets
        self._answered: dict[int, _Batch] = {}
        self._unsettled: dict[int, ClientMessage] = {}
        self._held: list[ClientMessage] = []
        self._retry_at_ms = 0
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
                    self._unsettled[id(message)] = message
            except BrokerhaError as error:
                self._refuse(message, error)
        return submits

    def retry(self, now: Instant) -> list[Submit]:
        """Writes that nobody waits for and that could not be taken in before; asked for in every turn."""
        if not self._held or now.mono_ms < self._retry_at_ms:
            return []
        self._retry_at_ms = now.mono_ms + RETRY_MS
        held, self._held = self._held, []
        return self.on_client(held, now)

    def _refuse(self, message: ClientMessage, error: BrokerhaError) -> None:
        if message.reply_to:
            reply = Reply(0, message.message_id, REFUSED, 0, type(error).__name__, str(error))
            self._send(message, [reply])
        self._transport.reject(message, f"{type(error).__name__}: {error}")

    def _writes(self, message: ClientMessage) -> list[Submit]:
        level, copies, timeout_ms = client_wire.terms(message.headers)
        items: list[tuple[str, bytes]] = []
        batch = _Batch(message)
        if message.content_type == client_wire.WRITES_TYPE:
            for txid, body in client_wire.decode_writes(message.body):
                try:
                    check_terms(txid, level, copies, timeout_ms)
                    items.append((txid, checked_body(body)))
                except InvalidRequest as error:
                    if not message.reply_to:
                        raise
                    batch.answers.append(Reply(0, txid, REFUSED, 0, type(error).__name__, str(error)))
        else:
            txid = message.message_id or self._front.new_txid()
            check_terms(txid, level, copies, timeout_ms)
            items.append((txid, checked_body(single_operations(message))))
        if batch.answers:
            self._answered[id(batch)] = batch
        if not message.reply_to:
            level, copies = ACCEPTED, 1
        receiver = functools.partial(self._on_reply if message.reply_to else self._on_silent_reply, batch)
        return [
            Submit(self._tickets.open(txid, receiver), txid, body, level, copies, timeout_ms) for txid, body in items
        ]

    def _on_reply(self, batch: _Batch, reply: Reply) -> None:
        batch.answers.append(reply)
        self._answered[id(batch)] = batch

    def _on_silent_reply(self, batch: _Batch, reply: Reply) -> None:
        """Nobody waits for this answer: what was not taken in is tried again, what never can be is kept aside."""
        if reply.status == ACCEPTED:
            return
        message = batch.message
        self._unsettled.pop(id(message), None)
        if reply.error in TEMPORARY:
            if message not in self._held:
                self._held.append(message)
        else:
            self._transport.reject(message, f"{reply.error}: {reply.reason}")

    def after_turn(self) -> None:
        """Settle what is durable now or was answered, send what was answered in this turn."""
        if self._unsettled:
            self._transport.settle(list(self._unsettled.values()))
            self._unsettled = {}
        for batch in self._answered.values():
            self._send(batch.message, batch.answers)
            batch.answers = []
        self._answered = {}
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
        self._transport.wake()

    def _answer_question(self, what: str, arguments: dict[str, Any]) -> Any:
        timeout_ms = int(arguments.get("timeout_ms", 5000))
        questions: dict[str, Callable[[], Any]] = {
            "status": lambda: self._front.status(timeout_ms),
            "log": lambda: self._front.log(int(arguments["first_lsn"]), int(arguments["last_lsn"])),
            "logged": lambda: self._front.logged(int(arguments["first_lsn"]), int(arguments["last_lsn"])),
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
        """End the questions' threads."""
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
    error = done.exception()
    if error is not None:
        return client_wire.encode_answer(type(error).__name__, str(error), None)
    return client_wire.encode_answer("", "", done.result())


def _read_answer(done: Future[ReadOutcome]) -> bytes:
    error = done.exception()
    if error is not None:
        return client_wire.encode_read_answer(type(error).__name__, str(error), "", 0, b"")
    outcome = done.result()
    return client_wire.encode_read_answer("", "", outcome.content_type, outcome.lsn, outcome.body)
