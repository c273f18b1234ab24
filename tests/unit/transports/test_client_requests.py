"""What a client program has asked: each future is completed once, with the right words."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from brokerha.model.errors import (
    BrokerhaError,
    InvalidRequest,
    NotReady,
    OutcomeUnknown,
    Rejected,
    TimedOut,
    UnknownRepository,
    Unreachable,
)
from brokerha.model.requests import Reply
from brokerha.model.wire import client_wire
from brokerha.ports.front import ReadOutcome
from brokerha.transports.client import wire as wire_module
from brokerha.transports.client.requests import Answered, Question, Writes, plain_answer, read_outcome
from brokerha.transports.client.wire import AmqpWire


def writes(*txids: str, attempts: int = 1) -> tuple[Writes, list[Future[Reply]]]:
    futures: list[Future[Reply]] = [Future() for _ in txids]
    request = Writes([(txid, txid.encode()) for txid in txids], futures, "applied", 1, deadline_s=10.0)
    request.attempts = attempts
    return request, futures


def replies(*txids: str) -> bytes:
    return client_wire.encode_replies([(txid, "applied", 7, "", "") for txid in txids])


class TestWrites:
    def test_answers_in_any_split_complete_their_futures_only(self):
        request, futures = writes("a", "b", "c")
        assert request.answer(replies("b")) is Answered.IN_PART
        assert [future.done() for future in futures] == [False, True, False]
        assert request.answer(replies("c", "a")) is Answered.WHOLLY
        assert futures[0].result(0) == Reply(0, "a", "applied", 7)

    @pytest.mark.parametrize(
        ("attempts", "error", "status"),
        [
            (1, "NotReady", "refused"),
            (2, "NotReady", "unknown"),
            (2, "InvalidRequest", "refused"),
            (2, "UnknownRepository", "refused"),
        ],
    )
    def test_what_was_published_twice_is_refused_for_sure_only_when_nobody_takes_it(self, attempts: int, error: str, status: str):
        # One master took it and its answer was lost; another one, that has its copy, has no room now.
        request, (future,) = writes("a", attempts=attempts)
        assert request.answer(client_wire.encode_replies([("a", "refused", 0, error, "no room")])) is Answered.WHOLLY
        reply = future.result(0)
        assert (reply.status, reply.error) == (status, error)
        assert reply.reason.startswith("no room")

    def test_what_is_published_again_is_only_what_was_not_answered(self):
        request, _ = writes("a", "b", "c")
        request.answer(replies("b"))
        assert client_wire.decode_writes(request.body()) == [("a", b"a"), ("c", b"c")]

    def test_an_answer_that_comes_twice_or_to_nothing_harms_nobody(self):
        request, futures = writes("a", "b")
        request.answer(replies("a"))
        assert request.answer(replies("a", "stranger")) is Answered.IN_PART
        assert futures[0].result(0).txid == "a"

    def test_the_same_id_twice_is_sent_once_and_answered_twice(self):
        request, futures = writes("a", "a")
        assert len(client_wire.decode_writes(request.body())) == 1
        assert request.answer(replies("a")) is Answered.WHOLLY
        assert [future.result(0).lsn for future in futures] == [7, 7]

    def test_after_the_deadline_the_outcome_is_unknown_if_it_may_have_been_taken(self):
        request, futures = writes("a", "b")
        request.answer(replies("a"))
        request.expire("silence")
        assert futures[0].result(0).status == "applied"
        with pytest.raises(OutcomeUnknown) as problem:
            futures[1].result(0)
        assert problem.value.txid == "b"

    def test_after_the_deadline_nobody_was_reached_if_nobody_can_have_taken_it(self):
        request, (future,) = writes("a", attempts=0)
        request.expire("nothing listens there", "start it")
        with pytest.raises(Unreachable, match="nothing listens there") as told:
            future.result(0)
        assert told.value.remedy == "start it"

    def test_the_time_that_is_left_travels_with_the_message(self):
        request, _ = writes("a")
        assert request.headers(now_s=7.5) == {"ack": "applied", "copies": 1, "timeout_ms": 2500}
        assert request.headers(now_s=11.0)["timeout_ms"] == 1

    def test_a_write_that_does_not_want_to_wait_says_so_and_is_of_no_use_after_its_deadline(self):
        request = Writes([("a", b"a")], [Future()], "applied", 1, deadline_s=10.0, apart="refuse")
        assert request.headers(now_s=7.5)["apart"] == "refuse"
        assert not request.may_wait
        assert writes("a")[0].may_wait

    def test_bytes_that_are_no_answer_complete_nothing(self):
        request, (future,) = writes("a")
        for garbage in (b"", b"\xc1", client_wire.encode_answer("", "", []), b"\x91\x91\x01"):
            with pytest.raises(InvalidRequest):
                request.answer(garbage)
        assert not future.done()


class TestQuestions:
    def ask(self, read_answer: Any = plain_answer, attempts: int = 1) -> tuple[Question, Future[Any]]:
        future: Future[Any] = Future()
        question = Question(b"?", future, read_answer, deadline_s=1.0)
        question.attempts = attempts
        return question, future

    def test_a_read_gets_its_outcome(self):
        question, future = self.ask(read_outcome)
        answer = client_wire.encode_read_answer("", "", "text/plain", 9, b"result")
        assert question.answer(answer) is Answered.WHOLLY
        assert future.result(0) == ReadOutcome("text/plain", 9, b"result")

    def test_a_question_gets_plain_data(self):
        question, future = self.ask()
        question.answer(client_wire.encode_answer("", "", {"nodes": [1, None, "x"]}))
        assert future.result(0) == {"nodes": [1, None, "x"]}

    @pytest.mark.parametrize(
        ("name", "kind"), [("UnknownRepository", UnknownRepository), ("Rejected", Rejected), ("TimedOut", TimedOut)]
    )
    def test_an_error_is_raised_as_its_class(self, name: str, kind: type[Exception]):
        question, future = self.ask(read_outcome)
        question.answer(client_wire.encode_read_answer(name, "because", "", 0, b""))
        with pytest.raises(kind, match="because"):
            future.result(0)

    @pytest.mark.parametrize("name", ["NotReady", "NotPrimary", "StoreError", "FromTheFuture"])
    def test_what_a_master_cannot_answer_now_stays_open_until_its_deadline(self, name: str):
        question, future = self.ask(read_outcome)
        refusal = client_wire.encode_read_answer(name, "no worker", "", 0, b"")
        assert question.answer(refusal) is Answered.REFUSED
        assert not future.done()
        question.expire("silence")
        with pytest.raises(BrokerhaError, match="no worker"):
            future.result(0)

    def test_another_master_may_answer_what_one_could_not(self):
        question, future = self.ask(read_outcome)
        question.answer(client_wire.encode_read_answer("NotReady", "no worker", "", 0, b""))
        question.answer(client_wire.encode_read_answer("", "", "text/plain", 9, b"result"))
        assert future.result(0).body == b"result"

    def test_the_refusal_of_a_command_is_told_at_once(self):
        future: Future[Any] = Future()
        question = Question(b"?", future, plain_answer, deadline_s=1.0, is_insistent=False)
        assert question.answer(client_wire.encode_answer("NotReady", "the last worker", None)) is Answered.WHOLLY
        with pytest.raises(NotReady, match="the last worker"):
            future.result(0)

    @pytest.mark.parametrize(("attempts", "kind"), [(1, TimedOut), (0, Unreachable)])
    def test_after_the_deadline_it_says_whether_somebody_was_reached(self, attempts: int, kind: type[Exception]):
        question, future = self.ask(attempts=attempts)
        question.expire("nothing listens there")
        with pytest.raises(kind):
            future.result(0)


class TestBatches:
    def test_a_batch_is_cut_by_count_and_by_size(self):
        small = [(str(n), b"x") for n in range(1100)]
        assert [len(batch) for batch in client_wire.cut(small)] == [512, 512, 76]
        big = [(str(n), b"x" * 400_000) for n in range(5)]
        assert [len(batch) for batch in client_wire.cut(big)] == [2, 2, 1]

    def test_a_write_over_the_size_of_a_batch_travels_alone(self):
        mixed = [("a", b"x"), ("b", b"x" * 3_000_000), ("c", b"x")]
        assert [[txid for txid, _ in batch] for batch in client_wire.cut(mixed)] == [["a"], ["b"], ["c"]]

    def test_cutting_loses_nothing_and_keeps_the_order(self):
        given = [(str(n), b"x" * (n * 7919 % 300_000)) for n in range(200)]
        assert [write for batch in client_wire.cut(given) for write in batch] == given
        assert list(client_wire.cut([])) == []


def test_how_old_a_read_may_be_comes_with_its_answer():
    answer = client_wire.decode_answer(client_wire.encode_read_answer("", "", "text/plain", 7, b"v", "excluded", 1500))
    assert read_outcome(answer) == ReadOutcome("text/plain", 7, b"v", "excluded", 1500)
    answer = client_wire.decode_answer(client_wire.encode_read_answer("", "", "text/plain", 7, b"v"))
    assert set(answer) == {"error", "reason", "content_type", "lsn", "body"}
    assert read_outcome(answer) == ReadOutcome("text/plain", 7, b"v")


class NoThread:
    """In the place of `PikaThread`: what is to be called in the thread is called at once, and no time passes."""

    user = "guest"

    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def call(self, what: Callable[[], None]) -> None:
        what()

    def call_later(self, _delay_s: float, _what: Callable[[], None]) -> None:
        pass

    def forget(self, _timer: object) -> None:
        pass


class Masters:
    """In the place of a channel: masters that answer at once, each question by what it is and whom it has to reach."""

    def __init__(self, wire: AmqpWire, transactions: dict[str, Any]) -> None:
        self._wire = wire
        self._transactions = transactions

    def basic_publish(self, _exchange: str, to: str, body: bytes, properties: Any, *, mandatory: bool) -> None:
        nodes = [{"id": node, "role": "master", "seen_s": 0.0} for node in self._transactions]
        found = self._transactions.get(to, {"nodes": [*nodes, {"id": "m9", "role": "master", "seen_s": None}]})
        error = found if isinstance(found, str) else ""
        answer = {"transactions": found} if isinstance(found, list) else found
        self._wire.answered(properties.correlation_id, client_wire.encode_answer(error, "", answer))


def test_times_of_answered_requests_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "PikaThread", NoThread)
    monkeypatch.setattr(wire_module, "DUE_SPARE", 10)
    wire = AmqpWire("amqp://127.0.0.1:1/")
    wire.up(Masters(wire, {}))
    for _ in range(200):
        wire.ask("status", {}, 3_600_000)
    assert len(wire._due) <= 10


class TestTransactionsOfAllMasters:
    @pytest.fixture
    def listed(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
        monkeypatch.setattr(wire_module, "PikaThread", NoThread)

        def ask(**transactions: Any) -> list[Any]:
            wire = AmqpWire("amqp://127.0.0.1:1/")
            wire.up(Masters(wire, transactions))
            rows: list[Any] = wire.ask("transactions", {}, 1000)
            return rows

        return ask

    def test_those_of_every_master_are_listed(self, listed: Callable[..., list[Any]]):
        assert listed(m1=[{"txid": "a"}, {"txid": "b"}], m2=[], m3=[{"txid": "c"}]) == [{"txid": each} for each in "abc"]

    def test_a_master_that_does_not_answer_hides_none_of_the_others(self, listed: Callable[..., list[Any]]):
        assert listed(m1=[{"txid": "a"}], m2="TimedOut", m3=[{"txid": "c"}]) == [{"txid": each} for each in "ac"]

    def test_what_the_last_one_said_is_raised_when_none_answers(self, listed: Callable[..., list[Any]]):
        with pytest.raises(NotReady):
            listed(m1="TimedOut", m2="NotReady")
