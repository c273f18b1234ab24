"""Whatever apps send over AMQP: each argument of each question, step and command in every wrong shape, and messages that are broken.

What comes out is an answer, an error of model/errors.py, or a message in quarantine; a master goes on.
"""

from __future__ import annotations

import itertools
import time
from typing import Any, Final

import msgpack
import pytest

from brokerha.master.command_arguments import COMMANDS
from brokerha.model import errors
from brokerha.model.operations import pack_operations
from brokerha.model.wire import client_wire
from brokerha.nodes.front import questions
from brokerha.nodes.front.questions import QUESTIONS, check_question
from brokerha.nodes.front.transacting import _SHAPES, checked_step
from brokerha.transports.in_process import local_broker
from tests.support.waiting import until
from tests.support.wrong_values import NAN, WRONG, without_each
from tests.unit.master.one_master import OneMaster
from tests.unit.nodes.test_running_nodes import Site

WAIT_S: Final = 30.0
_numbers = itertools.count()
PUT: Final = [["put", "t", b"k", b"v"]]
RIGHT_QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "status": {"timeout_ms": 1000},
    "log": {"first_lsn": 1, "last_lsn": 9},
    "logged": {"first_lsn": 1, "last_lsn": 9},
    "entries": {"first_lsn": 1, "last_lsn": 9},
    "outcome": {"txid": "t"},
    "command": {"name": "pin", "arguments": {"name": "a", "lsn": 1, "for_s": 1}},
    "wait": {"lsn": 1, "workers": 1},
}
RIGHT_STEPS: Final[dict[str, dict[str, Any]]] = {
    "begin": {"xid": "", "timeout_ms": 1000, "session": "s"},
    "operations": {"operations": PUT, "first": 0},
    "accept": {"queue": "q", "count": 1, "wait_ms": 0},
    "commit": {"one_phase": True, "level": "applied", "copies": 1, "by_hand": True},
}
RIGHT_COMMANDS: Final[dict[str, dict[str, Any]]] = {
    "worker-add": {"worker": "w1"},
    "worker-repair": {"from": ["w9"]},
    "backup": {"name": "b"},
    "task": {"request": "r"},
    "pin": {"name": "a", "lsn": 1, "for_s": 1},
    "unpin": {"name": "a"},
    "peer-add": {"node": "m9"},
    "split": {"number": 1},
}


@pytest.mark.parametrize("what", QUESTIONS)
def test_what_is_wrong_with_a_question_is_known_before_a_thread_is_taken(what: str) -> None:
    right = RIGHT_QUESTIONS[what]
    check_question(what, right)
    for argument in (*QUESTIONS[what].shapes, "timeout_ms", "node", "unheard-of"):
        for wrong in ({"of": "no shape"}, (5,), NAN, 2**70, -5, "\ud800", b"x"):
            if argument == "arguments" and isinstance(wrong, dict):
                continue
            with pytest.raises(errors.InvalidRequest, match=argument):
                check_question(what, {**right, argument: wrong})
    for argument, shape in QUESTIONS[what].shapes.items():
        if shape.is_needed:
            with pytest.raises(errors.InvalidRequest, match=f"needs the argument '{argument}'"):
                check_question(what, {**right, argument: None})


def test_an_unknown_question_is_told_of_all_that_are_known() -> None:
    with pytest.raises(errors.InvalidRequest, match=r"known are command, entries, log, logged, outcome, status, transact, wait"):
        check_question("transactions", {})


@pytest.mark.parametrize("what", ["log", "logged", "entries"])
def test_lines_that_end_before_they_begin_are_refused_as_over_http(what: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"from \(5\) is above to \(2\)"):
        check_question(what, {"first_lsn": 5, "last_lsn": 2})
    # None at all of the entries, and all of the log
    check_question("entries" if what == "logged" else what, {"first_lsn": 0, "last_lsn": 0})
    check_question("log", {"first_lsn": 5, "last_lsn": 0})


def test_no_argument_of_any_step_breaks_it() -> None:
    for action in _SHAPES:
        right = RIGHT_STEPS.get(action, {})
        checked_step(action, "t", right, 1000)
        for argument, value in itertools.product((*_SHAPES[action], "unheard-of", b"x"), WRONG):
            _swallowed(checked_step, action, "t", {**right, argument: value}, 1000)
        for arguments in without_each(right):
            _swallowed(checked_step, action, "t", arguments, 1000)
        for value in WRONG:
            _swallowed(checked_step, action, value, right, 1000)
            _swallowed(checked_step, action, "t", right, value)
            _swallowed(checked_step, action, "t", {**right, "operations": [["put", "t", value, b""]]}, 1000)


def test_no_argument_of_any_command_breaks_a_master() -> None:
    master = OneMaster()
    for name in set(COMMANDS) - {"rates"}:
        right = RIGHT_COMMANDS.get(name, {"worker": "w1"} if "worker" in COMMANDS[name] else {})
        for argument, value in itertools.product((*COMMANDS[name], "unheard-of", b"x"), WRONG):
            _swallowed(lambda asked, at=name: master.commands.run(at, asked, master.now()), {**right, argument: value})


def _swallowed(act: Any, *arguments: Any) -> None:
    """Anything but an error that brokerha raises on purpose goes through, and fails the test."""
    try:
        act(*arguments)
    except errors.BrokerhaError as error:
        assert len(str(error)) < 1000  # noqa: PT017  (most calls raise nothing)


# ---- whole messages


class App:
    """Publishes to one master and takes its answers, over the broker of this process."""

    def __init__(self, url: str) -> None:
        self._broker = local_broker.enter(url.removeprefix("embedded://"))
        self._broker.declare_queue("answers", {})
        self._answers: dict[str, tuple[str, Any]] = {}

    def publish(self, exchange: str, body: bytes, content_type: str, headers: Any = None, **properties: Any) -> str:
        name = f"c{next(_numbers)}"
        properties = {"reply_to": "answers", "correlation_id": name, "content_type": content_type, **properties}
        if headers is not None:
            properties["application_headers"] = headers
        self._broker.publish(exchange, "m1", body, properties)
        return name

    def answer(self, name: str) -> tuple[str, Any]:
        """Content type and body of the answer to a message."""
        deadline = time.monotonic() + WAIT_S
        while name not in self._answers:
            assert time.monotonic() < deadline, f"no answer to {name}"
            if (message := self._broker.take("answers")) is None:
                time.sleep(0.001)
                continue
            properties = message.properties
            self._answers[properties["correlation_id"]] = properties["content_type"], msgpack.unpackb(message.body)
        return self._answers.pop(name)


@pytest.fixture(scope="module")
def site() -> Any:
    running = Site(f"apps-{next(_numbers)}", ("m1",))
    until(lambda: running.masters["m1"].ready()[0])
    yield running
    running.stop()


def test_wrong_arguments_of_a_read_are_answered_at_once_by_the_master(site: Site) -> None:
    app = App(site.url)
    for asked in (
        {"kind": "together", "arguments": {"reads": [5]}},
        {"kind": "together", "arguments": {"reads": [b"\x93"]}},
        {"kind": "get", "name": "t", "arguments": {}},
        {"kind": "range", "name": "t", "arguments": {"limit": 2**64 - 1}},
        {"kind": "range", "name": "t", "arguments": {"limit": -1}},
        {"kind": "items", "arguments": {"buckets": [{}]}},
        {"kind": "size", "name": "main", "min_lsn": 2**64 - 1},
        {"kind": "size", "name": "main", "timeout_ms": -1},
        {"kind": "size", "name": "main", "timeout_ms": NAN},
        {"kind": "size", "name": "main", "arguments": {"tx": [1]}},
        {"kind": ["size"], "name": "main"},
        {"name": "main"},
        {"ask": "log", "arguments": {"first_lsn": "x", "last_lsn": 5}},
        {"ask": "log", "arguments": {"first_lsn": 1}},
        {"ask": "log", "arguments": [1]},
        {"ask": "outcome", "arguments": {"txid": {}}},
        {"ask": "wait", "arguments": {"lsn": 1, "workers": "some"}},
        {"ask": "command", "arguments": {"name": "worker-repair", "arguments": {"from": 5}}},
        {"ask": "command", "arguments": {"name": "rates", "arguments": {"before": 5}}},
        {"ask": "command", "arguments": {"name": "promote", "arguments": {"node": "b1"}}},
        {"ask": "dance"},
        {"ask": 5},
        {"ask": "transact", "arguments": {"action": "operations", "txid": "t", "arguments": {"operations": [5]}}},
        {"ask": "transact", "arguments": {"action": ["begin"]}},
        {"ask": "transact", "arguments": {"action": "begin", "timeout_ms": NAN}},
        {"ask": "transact", "arguments": {"action": "commit", "txid": "t", "arguments": {"level": ["applied"]}}},
        {"ask": "transact"},
    ):
        name = app.publish("brokerha.reads", msgpack.packb(asked), client_wire.READ_TYPE)
        content_type, answer = app.answer(name)
        assert content_type == client_wire.READ_ANSWER_TYPE, asked
        assert (answer["error"], bool(answer["reason"])) == ("InvalidRequest", True), (asked, answer)


def test_no_message_breaks_a_master(site: Site) -> None:
    app, master = App(site.url), site.masters["m1"]
    put, ask = pack_operations([("put", "t", b"k", b"v")]), msgpack.packb({"kind": "repositories"})
    broken = (
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        msgpack.packb(NAN),
        msgpack.packb([[1, 2]]),
        b"\xff\xfe",
        put,
    )
    types = (
        "application/x-msgpack", "application/sparql-update", "application/n-quads", client_wire.WRITES_TYPE,
        client_wire.READ_TYPE, "", "x", "\ud800", "text/html; charset=\ud800",
    )  # fmt: skip
    answers: list[str] = []
    for exchange, content_type, body in itertools.product(("brokerha.writes", "brokerha.reads"), types, broken):
        answers.append(app.publish(exchange, body, content_type))
    for header, value in itertools.product(("ack", "copies", "timeout_ms", "apart", "repository"), WRONG):
        for kind, body in (("application/x-msgpack", put), ("application/n-quads", b"")):
            answers.append(app.publish("brokerha.writes", body, kind, {header: value}))
        app.publish("brokerha.writes", put, "application/x-msgpack", {header: value}, reply_to="")
    for odd in ("\ud800", "x" * 300, "a b", "\0"):
        answers.append(app.publish("brokerha.writes", put, "application/x-msgpack", message_id=odd))
        app.publish("brokerha.reads", ask, client_wire.READ_TYPE, reply_to=odd)
        app.publish("brokerha.writes", put, "application/x-msgpack", correlation_id=odd)
    for name in answers:
        content_type, answer = app.answer(name)
        told = [answer["error"]] if content_type == client_wire.READ_ANSWER_TYPE else [row[3] for row in answer]
        assert all(error == "" or issubclass(getattr(errors, error), errors.BrokerhaError) for error in told)
    _, answer = app.answer(app.publish("brokerha.reads", ask, client_wire.READ_TYPE))
    assert answer["error"] == ""
    assert master.loop.is_running
    assert not master.runner.failure


def test_a_question_that_fails_is_told_with_an_error_that_apps_know(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise KeyError("k")

    monkeypatch.setitem(QUESTIONS, "status", questions._Question({}, gone))
    app = App(site.url)
    _, answer = app.answer(app.publish("brokerha.reads", client_wire.encode_question("status", {}), client_wire.READ_TYPE))
    assert (answer["error"], answer["reason"]) == ("NotReady", "the answer failed: KeyError: 'k'")
