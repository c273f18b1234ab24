"""ports.Wire over HTTP: how a client program reaches a cluster.

    submit    http_lane.py: batches to /tx/batch, in threads
    read      the node's public paths, in the calling thread: the future is complete on return
    ask       in the calling thread

Several base URLs, separated by commas, are alternatives. Writes are divided among them (http_nodes.py), and
reads follow the writes. Reads and questions change nothing, so a failed one goes to another node; a command that changes
something only if it surely did not arrive. With n nodes left to ask, each gets 1/n of the remaining time, so that a node that
hangs does not use all of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgpack

from brokerha.client.http_connections import FAULTS, Connections, NotConnected, identity_headers, trusted, without_user
from brokerha.client.http_lane import HttpLane
from brokerha.client.http_nodes import (
    SILENT_S,
    HttpNodes,
    ask_everywhere,
    ask_until_known,
    error_of_answer,
    of_all,
    strange,
    unreachable,
)
from brokerha.client.http_requests import (
    COLUMNS,
    JSON,
    MSGPACK,
    Request,
    answer_of,
    column,
    command_of,
    question_of,
    read_of,
    step_of,
)
from brokerha.client.http_shapes import MESSAGES, OF_COMMANDS, OF_QUESTIONS, OF_READS, OF_STEPS, PACKED, TRANSACTIONS, Shape, shaped
from brokerha.model.errors import BrokerhaError, Closed, NotFound, NotPrimary, NotReady, ReadOnly, TimedOut, Unreachable, may_pass
from brokerha.model.ids import Lsn, TxId
from brokerha.model.outside.commands import outcome_unknown
from brokerha.model.outside.levels import min_lsn_text
from brokerha.model.requests import WAIT, Reply
from brokerha.ports.front import ReadOutcome

T = TypeVar("T")
CONNECT_S = 3.0
MARGIN_S = 1.0
"""Extra time that a request waits beyond the timeout that it gave the node."""
LAG_MOST_S = 10.0
"""A master that lags by more than this is in trouble."""
PARTING_S = 5.0
ONLY_PAUSE_S = 0.2
"""Pause before the only node that can answer is asked again."""
_STRANGE: Final = (ValueError, LookupError, TypeError, AttributeError, msgpack.UnpackException)
"""Errors of decoding an answer that no node gives."""
OWNERS_LIMIT = 10_000
"""Most transactions whose node is remembered."""


class HttpAnswer(NamedTuple):
    """A successful answer."""

    headers: Mapping[str, str]
    content: bytes


def _json(shape: Shape, answer: HttpAnswer) -> Any:
    return shaped(shape, json.loads(answer.content))


def _packed(shape: Shape, answer: HttpAnswer) -> Any:
    return shaped(shape, msgpack.unpackb(answer.content, strict_map_key=False))


def _facts(action: str, answer: HttpAnswer) -> dict[str, Any]:
    facts: dict[str, Any] = shaped(OF_STEPS.get(action, dict), answer_of(answer.content, answer.headers.get("content-type", "")))
    return facts


def _rows(answer: HttpAnswer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _json(TRANSACTIONS, answer)["transactions"]
    return rows


def _begun(answer: HttpAnswer) -> tuple[TxId, dict[str, Any]]:
    facts = _facts("begin", answer)
    return facts["txid"], facts


def _outcome_of(kind: str, answer: HttpAnswer) -> ReadOutcome:
    """Return the outcome of a read."""
    body, content_type = answer.content, answer.headers.get("content-type", "").partition(";")[0]
    if kind in PACKED and content_type != MSGPACK:
        raise ValueError(content_type)
    if kind in OF_READS:
        shaped(OF_READS[kind], json.loads(body))
    if kind == "queue":
        body = msgpack.packb(shaped(MESSAGES, answer_of(body, content_type))["messages"])
    if kind in COLUMNS:
        body, content_type = column(body, COLUMNS[kind]), JSON
    stale_ms = answer.headers.get("brokerha-stale-ms")
    return ReadOutcome(
        content_type,
        # Each node sends it, and nothing else does: any bytes could be a value.
        int(answer.headers["brokerha-lsn"]),
        body,
        answer.headers.get("brokerha-apart", ""),
        None if stale_ms is None else int(stale_ms),
    )


def _is_answer(error: BrokerhaError) -> bool:
    """Tell whether an error is final for a question: another node would answer the same."""
    return not isinstance(error, Unreachable) and not may_pass(error) and type(error) is not TimedOut


def _is_refusal(error: BrokerhaError) -> bool:
    """Tell whether an error is final for a command: every refusal of a master, temporary or not, is raised at once."""
    return not isinstance(error, (Unreachable, NotPrimary))


def _is_lost(error: BrokerhaError) -> bool:
    """Treat every error as final, a lost connection too: the caller knows what to ask next."""
    del error
    return True


class HttpWire:
    """One program's connection over HTTP; callable from any thread."""

    def __init__(self, urls: str | Sequence[str], token: str = "") -> None:
        given = [url.strip().rstrip("/") for url in (urls.split(",") if isinstance(urls, str) else urls)]
        self._nodes = HttpNodes([without_user(url) for url in given], is_writable=self._is_writable)
        # Loading certificates takes a while, and only https needs them.
        context = trusted(os.environ) if any(url.startswith("https") for url in self._nodes.urls) else None
        environ = {**os.environ, "BROKERHA_TOKEN": token} if token else os.environ
        self._connections = Connections(identity_headers(environ, given), context)
        for url in given:
            if without_user(url) != url:
                self._connections.log_in(url)
        self._lane = HttpLane(self._connections, self._nodes)
        self._closing = threading.Event()
        self._owners: dict[TxId, str] = {}
        """Nodes where transactions were begun, the latest last."""
        self._urls_of: dict[str, str] = {}
        """Addresses of the masters that have told their id."""

    def submit(
        self, writes: Sequence[tuple[TxId, bytes]], level: str, copies: int, timeout_ms: int, apart: str = WAIT
    ) -> list[Future[Reply]]:
        """Send writes together, in order."""
        return self._lane.submit(writes, level, copies, timeout_ms, apart)

    def read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """Run a read and wait for it: a hop to another thread would cost half as much as the read itself."""
        future: Future[ReadOutcome] = Future()
        try:
            future.set_result(self._read(kind, name, arguments, min_lsn, time.monotonic() + timeout_ms / 1000))
        except BrokerhaError as error:
            future.set_exception(error)
        return future

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        """Ask the cluster: ``status``, ``log``, ``logged``, ``entries``, ``outcome``, ``wait``, ``command``, transaction steps."""
        deadline_s = time.monotonic() + timeout_ms / 1000
        if what == "transact":
            return self._step(arguments, deadline_s)
        if what == "transactions":
            return self._transactions(deadline_s)
        if what == "command":
            request = command_of(arguments["name"], arguments["arguments"])
            return self._exchange(request, deadline_s, partial(_json, OF_COMMANDS.get(arguments["name"], dict)), _is_refusal)
        request = question_of(what, arguments)
        if what == "outcome" and (arguments["txid"] in self._owners or arguments.get("node")):
            return self._outcome(arguments["txid"], arguments.get("node", ""), request, deadline_s)
        decode = _packed if request.headers["Accept"] == MSGPACK else _json
        try:
            return self._exchange(request, deadline_s, partial(decode, OF_QUESTIONS.get(what, dict)))
        except NotFound:
            return None

    def close(self) -> None:
        """Wait a moment for open writes, then disconnect. Idempotent."""
        self._lane.close(PARTING_S)
        self._closing.set()
        self._connections.close()
        self._lane.end()

    def _read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, deadline_s: float) -> ReadOutcome:
        inside = str(arguments.get("tx", ""))
        known = {k: v for k, v in arguments.items() if v is not None and k not in {"tx", "node"}}
        request = read_of(kind, name, known)
        if inside:
            request.headers["Brokerha-Transaction"] = inside
        if min_lsn:
            request.headers["Brokerha-Min-Lsn"] = min_lsn_text(min_lsn)
        return self._inside(inside, self._url_of(inside), request, deadline_s, partial(_outcome_of, kind), _is_answer)

    def _step(self, asked: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """Run one step of a transaction at its node; `_begin` remembers that node."""
        action, txid = asked["action"], asked["txid"]
        step = step_of(action, txid, asked["arguments"])
        if action == "begin":
            # One with an xid that was begun, and whose answer was lost, would be in its own way.
            return self._begin(step, deadline_s, is_repeated=not asked["arguments"].get("xid"))
        url = self._url_of(txid, asked.get("node", ""))
        if action == "commit":
            # After a lost commit the caller asks for the outcome (client/transactions.py). Other steps are sent again.
            return self._exchange(step, deadline_s, partial(_facts, action), _is_lost, only=url)
        return self._inside(txid, url, step, deadline_s, partial(_facts, action), _is_refusal)

    def _url_of(self, txid: TxId, node: str = "") -> str:
        """Return the node that has a transaction: the known one, else the one that the caller names; empty without either."""
        return self._owners.get(txid) or self._urls_of.get(node, "")

    def _inside(
        self,
        txid: TxId,
        url: str,
        request: Request,
        deadline_s: float,
        decode: Callable[[HttpAnswer], T],
        is_final: Callable[[BrokerhaError], bool],
    ) -> T:
        """Ask the node that has a transaction; after a fail-over, the node that knows its outcome now."""
        if not url or len(self._nodes.urls) == 1:
            return self._exchange(request, deadline_s, decode, is_final, only=url)
        question = question_of("outcome", {"txid": txid})
        while True:
            try:
                # After these errors another process can have the transactions of the node that was asked.
                return self._exchange(
                    request,
                    deadline_s,
                    decode,
                    lambda error: is_final(error) or isinstance(error, (Unreachable, NotPrimary)),
                    only=url,
                )
            except Closed:
                raise
            except (Unreachable, NotPrimary):
                if time.monotonic() + ONLY_PAUSE_S >= deadline_s or self._closing.wait(ONLY_PAUSE_S):
                    raise
                with contextlib.suppress(BrokerhaError):
                    url = (self._located(txid, url, question, deadline_s) or (url,))[0]

    def _begin(self, step: Request, deadline_s: float, *, is_repeated: bool) -> dict[str, Any]:
        """Begin at the first node that accepts; ask again until then, or only during a fail-over. Raises the error of `of_all`."""
        problems: dict[str, BrokerhaError] = {}
        asked = 0
        while True:
            url = self._nodes.current
            try:
                txid, done = self._exchange(step, deadline_s, _begun, _is_lost, only=url)
            except Closed:
                raise
            except (Unreachable, NotReady) as error:
                problems.pop(url, None)
                problems[url] = error
                pause_s, asked = self._nodes.on_failed(url), asked + 1
                is_failing_over = any(isinstance(each, NotPrimary) for each in problems.values())
                is_again = is_failing_over or (is_repeated and not all(isinstance(each, ReadOnly) for each in problems.values()))
                if asked >= len(self._nodes.urls) and (not is_again or time.monotonic() + pause_s >= deadline_s):
                    raise of_all(problems) from None
                if is_again and self._closing.wait(pause_s):
                    raise Closed from None
                continue
            self._owners[txid] = url
            self._urls_of[str(done.get("node", ""))] = url
            while len(self._owners) > OWNERS_LIMIT:
                self._owners.pop(next(iter(self._owners)))
            return done

    def _outcome(self, txid: TxId, node: str, request: Request, deadline_s: float) -> Any:
        """Return what became of a transaction; None when all nodes say unknown."""
        found = self._located(txid, self._url_of(txid, node) or self._nodes.current, request, deadline_s)
        return found and found[1]

    def _located(self, txid: TxId, first: str, request: Request, deadline_s: float) -> tuple[str, Any] | None:
        """Ask the transaction's node, then the others, which can speak for its master now; return who knows, and the answer."""

        def ask(url: str, until_s: float) -> Any:
            return self._exchange(request, until_s, partial(_json, OF_QUESTIONS["outcome"]), _is_lost, only=url)

        found = ask_until_known(list(dict.fromkeys((first, *self._nodes.urls))), ask, deadline_s, self._closing)
        if found is not None and txid in self._owners:
            self._owners[txid] = found[0]
        return found

    def _transactions(self, deadline_s: float) -> list[dict[str, Any]]:
        """Return the transactions of all nodes that answer. Raises the error of `of_all` when all fail."""
        if len(self._nodes.urls) > 1:
            deadline_s = min(deadline_s, time.monotonic() + SILENT_S)

        def ask(url: str) -> list[dict[str, Any]]:
            return self._exchange(Request("GET", "/tx", {"Accept": JSON}), deadline_s, _rows, _is_lost, only=url)

        rows: dict[str, dict[str, Any]] = {}
        for url, answer in ask_everywhere(self._nodes.urls, ask).items():
            for row in answer:
                rows[row["txid"]] = row
                if row["txid"] in self._owners:
                    self._owners[row["txid"]] = url
                self._urls_of[row["node"]] = url
        return list(rows.values())

    def _exchange(
        self,
        request: Request,
        deadline_s: float,
        decode: Callable[[HttpAnswer], T],
        is_final: Callable[[BrokerhaError], bool] = _is_answer,
        only: str = "",
    ) -> T:
        """Ask one node after the other until one serves or the time is over; ``is_final`` tells which errors end the search.

        An answer that ``decode`` cannot read is of something that is no node. ``only`` names the single node that can answer.
        """
        if self._closing.is_set():
            raise Closed
        asked = 0
        problems: dict[str, BrokerhaError] = {}
        while True:
            url = only or self._nodes.current
            remaining_s = deadline_s - time.monotonic()
            share_s = max(0.001, remaining_s) / max(1, 1 if only else len(self._nodes.urls) - asked)
            problem = self._attempt(url, request, share_s)
            if isinstance(problem, HttpAnswer):
                try:
                    done = decode(problem)
                except _STRANGE:
                    problem = strange(url, problem.headers, problem.content)
                else:
                    self._nodes.on_served(url)
                    return done
            if is_final(problem):
                raise problem
            asked += 1
            problems.pop(url, None)
            problems[url] = problem
            pause_s = ONLY_PAUSE_S if only else self._nodes.on_failed(url)
            if time.monotonic() + pause_s >= deadline_s:
                raise of_all(problems)
            if self._closing.wait(pause_s):
                raise Closed

    def _is_writable(self, url: str) -> bool:
        """Tell whether a node takes writes and is not alone, far behind or without workers: else writes wait or are refused."""
        for path in (f"/readyz?max-lag-s={LAG_MOST_S:g}", "/writable"):
            if not isinstance(self._attempt(url, Request("GET", path, {}), CONNECT_S), HttpAnswer):
                return False
        return True

    def _attempt(self, url: str, request: Request, seconds: float) -> HttpAnswer | BrokerhaError:
        until_s = time.monotonic() + seconds + MARGIN_S
        method, path, headers, content, once = request
        all_headers = {**headers, "Brokerha-Timeout-Ms": str(max(1, round(seconds * 1000)))}
        try:
            exchange = self._connections.send(method, url, path, all_headers, content, min(seconds, CONNECT_S), seconds + MARGIN_S)
            answer = HttpAnswer(exchange.headers, exchange.content(until_s))
        except FAULTS as error:
            told: BrokerhaError = unreachable(url, error)
            if isinstance(error, TimeoutError):
                told = TimedOut(f"{url} did not answer in {seconds:.1f} seconds")
            # When there was no connection, nothing arrived.
            return outcome_unknown(once, str(told)) if once and not isinstance(error, NotConnected) else told
        return error_of_answer(url, exchange.status, answer.headers, answer.content) or answer
