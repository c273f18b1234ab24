"""AmqpFront: when an app's message is left to the broker, and who is answered when its master is not primary any more."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgpack
import pytest

from brokerha.ingress.suspects import TIMES, Suspects
from brokerha.model.errors import NotFound, NotReady, TimedOut
from brokerha.model.ids import Instant
from brokerha.model.numbers import Numbers
from brokerha.model.operations import pack_operations, unpack_operations
from brokerha.model.outside.authors import author_in
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.requests import REFUSED, UNKNOWN, Reply, Submit
from brokerha.model.wire import client_wire
from brokerha.model.wire.client_wire import WRITES_TYPE, decode_replies, encode_writes
from brokerha.model.wire.messages import Read
from brokerha.nodes.front import amqp_front, room
from brokerha.nodes.front.amqp_front import RETRY_MS, AmqpFront
from brokerha.nodes.master.tickets import Tickets
from brokerha.ports.front import Readers, ReadOutcome
from brokerha.ports.transport import ClientMessage, ClientReply

BODY = pack_operations([("put", "t", b"k", b"v")])


class Wire:
    """Notes what is settled, rejected and answered."""

    def __init__(self) -> None:
        self.settled: list[str] = []
        self.rejected: list[str] = []
        self.replies: list[ClientReply] = []
        self.woken = threading.Event()

    def settle(self, messages: Sequence[ClientMessage]) -> None:
        self.settled += [message.tag for message in messages]

    def reject(self, message: ClientMessage, reason: str) -> None:
        self.rejected.append(f"{message.tag}: {reason}")

    def reply(self, replies: Sequence[ClientReply]) -> None:
        self.replies += replies

    def wake(self) -> None:
        self.woken.set()


class Bench:
    """A front whose runner, loop and backups are the test."""

    node_id = "m1"

    def __init__(self, suspects: Suspects | None = None) -> None:
        self.wire = Wire()
        self.tickets = Tickets()
        self.unsafe: list[Callable[[], None]] = []
        self.calls: list[Callable[[], None]] = []
        self.steps: list[Future[dict[str, Any]]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.numbers = 0
        front: Any = self
        wire: Any = self.wire
        self.front = AmqpFront(front, wire, self.tickets, self.unsafe.append, self.calls.append, suspects)

    def new_txid(self) -> str:
        self.numbers += 1
        return f"m1.{self.numbers}"

    def transact(self, *asked: Any) -> Future[dict[str, Any]]:
        self.asked.append(asked)
        self.steps.append(Future())
        return self.steps[-1]

    def take(self, tag: str, ms: int = 0, **fields: Any) -> list[Submit]:
        """A message comes, and its turn ends."""
        values = {"message_id": "", "reply_to": "", "correlation_id": "", "exchange": "x", **fields}
        message = ClientMessage(tag, values.pop("body", BODY), values.pop("content_type", "application/x-msgpack"), **values)
        submits = self.front.on_client([message], Instant(ms, ms))
        self.front.after_turn()
        return submits

    def answer(self, submit: Submit, status: str, error: str = "") -> None:
        self.tickets.on_reply(Reply(submit.ticket, submit.txid, status, 0, error))

    def are_safe(self) -> None:
        """Backups confirm."""
        for show in self.unsafe:
            show()
        self.unsafe.clear()


def test_a_message_stays_with_the_broker_until_backups_hold_its_write() -> None:
    bench = Bench()
    bench.take("a")
    bench.take("b", reply_to="me")
    assert bench.wire.settled == []
    bench.are_safe()
    assert bench.wire.settled == ["a", "b"]


def test_a_message_that_was_answered_does_not_wait_for_backups() -> None:
    bench = Bench()
    (submit,) = bench.take("a", reply_to="me")
    bench.answer(submit, REFUSED, "ReadOnly")
    bench.front.after_turn()
    assert bench.wire.settled == ["a"]
    assert len(bench.wire.replies) == 1
    bench.are_safe()
    assert bench.wire.settled == ["a"]


@pytest.mark.parametrize(
    ("redelivered", "error", "status"),
    [(False, "NotReady", REFUSED), (True, "NotReady", UNKNOWN), (True, "InvalidRequest", REFUSED)],
)
def test_what_another_master_had_before_is_refused_for_sure_only_when_nobody_takes_it(
    redelivered: bool, error: str, status: str
) -> None:
    bench = Bench()
    (submit,) = bench.take("a", reply_to="me", redelivered=redelivered)
    bench.answer(submit, REFUSED, error)
    bench.front.after_turn()
    ((_, told, _, name, _),) = decode_replies(bench.wire.replies[0].body)
    assert (told, name) == (status, error)


@pytest.mark.parametrize(
    ("errors", "rejected", "tried_again"),
    [
        (("KeyReused", "KeyReused"), ["a: KeyReused: "], 0),
        (("KeyReused", "NotReady"), ["a: KeyReused: "], 0),
        (("NotReady", "KeyReused"), [], 2),
        (("NotReady", "NotReady"), [], 2),
    ],
)
def test_a_message_of_several_writes_that_nobody_waits_for_has_one_end(
    errors: tuple[str, str], rejected: list[str], tried_again: int
) -> None:
    bench = Bench()
    submits = bench.take("a", content_type=WRITES_TYPE, body=encode_writes([("t1", BODY), ("t2", BODY)]))
    for submit, error in zip(submits, errors, strict=True):
        bench.answer(submit, REFUSED, error)
    assert bench.wire.rejected == rejected
    assert len(bench.front.retry(Instant(RETRY_MS, 0))) == tried_again
    bench.front.after_turn()
    bench.are_safe()
    assert bench.wire.settled == ["a"] * bool(tried_again)


def test_what_nobody_waits_for_is_tried_again_as_the_same_transaction_and_settled_once() -> None:
    bench = Bench()
    (submit,) = bench.take("a")
    bench.answer(submit, UNKNOWN, "OutcomeUnknown")
    bench.are_safe()
    assert bench.wire.settled == []
    (again,) = bench.front.retry(Instant(RETRY_MS, 0))
    assert (again.txid, again.body) == (submit.txid, submit.body)
    assert bench.front.retry(Instant(2 * RETRY_MS, 0)) == []
    bench.front.after_turn()
    bench.answer(again, "accepted")
    bench.are_safe()
    assert bench.wire.settled == ["a"]
    assert bench.wire.rejected == []


def test_what_no_backup_holds_goes_back_to_the_broker_and_nobody_is_told_that_it_is_unknown() -> None:
    bench = Bench()
    bench.take("silent")
    bench.take("asked", reply_to="me")
    bench.tickets.close("not primary any more")
    bench.front.close()
    assert (bench.wire.settled, bench.wire.rejected, bench.wire.replies) == ([], [], [])


def test_who_waits_for_a_write_that_the_broker_does_not_have_any_more_is_told_when_it_ends() -> None:
    bench = Bench()
    (submit,) = bench.take("asked", reply_to="me")
    bench.are_safe()
    bench.tickets.close("not primary any more")
    bench.front.close()
    ((txid, status, _, error, reason),) = client_wire.decode_replies(bench.wire.replies[0].body)
    assert (txid, status, error, reason) == (submit.txid, UNKNOWN, "OutcomeUnknown", "not primary any more")


def test_a_step_that_is_answered_after_the_end_reaches_its_app_all_the_same() -> None:
    bench = Bench()
    body = client_wire.encode_question("transact", {"action": "begin", "txid": "", "arguments": {}, "timeout_ms": 1000})
    bench.take("step", reply_to="me", content_type=client_wire.READ_TYPE, body=body)
    bench.front.close()
    bench.steps[0].set_result({"txid": "m1.1"})
    assert bench.wire.replies == []
    (flush,) = bench.calls
    flush()
    assert len(bench.wire.replies) == 1


def test_a_question_that_was_never_looked_at_is_answered_too() -> None:
    bench = Bench()
    gate: Future[None] = Future()
    busy: Any = bench
    busy.status = lambda _timeout_ms: gate.result(20)
    body = client_wire.encode_question("status", {"timeout_ms": 1000})
    for number in range(6):
        bench.take(f"q{number}", reply_to="me", content_type=client_wire.READ_TYPE, body=body)
    bench.front.close()
    gate.set_result(None)
    bench.front._questions.shutdown(wait=True)
    for flush in bench.calls:
        flush()
    answers = [client_wire.decode_answer(reply.body) for reply in bench.wire.replies]
    assert len(answers) == 6
    assert {answer["error"] for answer in answers} == {"", "NotReady"}


def test_apps_that_wait_for_an_lsn_do_not_hold_up_the_questions_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, waits = Bench(), list[Future[dict[str, Any]]]()
    node: Any = bench

    def wait_for(*_: object) -> Future[dict[str, Any]]:
        waits.append(Future())
        return waits[-1]

    node.wait_for, node.status = wait_for, lambda _timeout_ms: {"cluster": "c"}
    wait = client_wire.encode_question("wait", {"lsn": 9, "workers": 1, "timeout_ms": 60_000})
    for number in range(10):
        bench.take(str(number), reply_to="me", content_type=client_wire.READ_TYPE, body=wait)
    status = client_wire.encode_question("status", {})
    bench.take("status", reply_to="me", correlation_id="status", content_type=client_wire.READ_TYPE, body=status)
    assert bench.wire.woken.wait(20)
    bench.front.after_turn()
    assert [reply.correlation_id for reply in bench.wire.replies] == ["status"]
    # They are bounded themselves
    monkeypatch.setattr(amqp_front, "WAITS_LIMIT", 10)
    bench.take("one more", reply_to="me", content_type=client_wire.READ_TYPE, body=wait)
    assert client_wire.decode_answer(bench.wire.replies[-1].body)["error"] == "NotReady"
    for each in waits:
        each.set_result({"lsn": 9, "workers": ["w1"]})
    bench.take("and one", reply_to="me", content_type=client_wire.READ_TYPE, body=wait)
    assert (len(waits), len(bench.wire.replies)) == (11, 12)


@pytest.mark.parametrize(("name", "is_given"), [("backup", False), ("workers", True)])
def test_a_command_that_a_node_had_before_it_ended_is_not_carried_out_again(name: str, is_given: bool) -> None:
    bench, given = Bench(), list[str]()
    node: Any = bench

    def command(name: str, *_: object) -> dict[str, str]:
        given.append(name)
        return {}

    node.command = command
    given_arguments = {"name": "monday"} if name == "backup" else {}
    body = client_wire.encode_question("command", {"name": name, "arguments": given_arguments})
    bench.take("1", reply_to="me", content_type=client_wire.READ_TYPE, body=body, redelivered=True)
    bench.front._questions.shutdown(wait=True)
    bench.front.after_turn()
    answer = client_wire.decode_answer(bench.wire.replies[-1].body)
    assert given == [name] * is_given
    assert answer["error"] == ("" if is_given else "OutcomeUnknown")
    assert is_given or "look with `brokerha backup list`" in answer["reason"]


def test_questions_that_wait_for_a_thread_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ROOM_COUNT", 6)
    bench, gate, waits = Bench(), Future[dict[str, str]](), list[int]()
    node: Any = bench

    def status(timeout_ms: int) -> dict[str, str]:
        waits.append(timeout_ms)
        return gate.result(20)

    node.status = status
    body = client_wire.encode_question("status", {"timeout_ms": 3_600_000})
    for number in range(7):
        bench.take(str(number), reply_to="me", correlation_id=str(number), content_type=client_wire.READ_TYPE, body=body)
    [told] = bench.wire.replies
    answer = client_wire.decode_answer(told.body)
    assert (told.correlation_id, answer["error"]) == ("6", "NotReady")
    assert "6 questions of apps, 0 MiB, wait at m1 already" in answer["reason"]
    # Once they are answered, there is room again
    gate.set_result({"cluster": "c"})
    bench.front._questions.shutdown(wait=True)
    bench.front.after_turn()
    assert len(bench.wire.replies) == 7
    bench.front._question_room.enter(1)
    # A status waits for silent masters as long as over HTTP, whatever is asked for: it holds a thread
    assert waits == [2000] * 6


def test_steps_that_wait_for_a_thread_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, gate = Bench(), Future[None]()
    node: Any = bench
    transact = bench.transact

    def parsed(*asked: Any) -> Future[dict[str, Any]]:
        gate.result(20)
        return transact(*asked)

    node.transact = parsed
    asked = {"action": "operations", "txid": "m1.1", "arguments": {"operations": [["add", "main", DEEP]]}}
    body = client_wire.encode_question("transact", asked)
    monkeypatch.setattr(room, "ROOM_BYTES", 3 * len(body))
    for number in range(4):
        bench.take(str(number), reply_to="me", correlation_id=str(number), content_type=client_wire.READ_TYPE, body=body)
    [told] = bench.wire.replies
    answer = client_wire.decode_answer(told.body)
    assert (told.correlation_id, answer["error"]) == ("3", "NotReady")
    assert "3 steps of transactions of apps" in answer["reason"]
    gate.set_result(None)
    while bench.front._lanes._lanes:
        assert bench.wire.woken.wait(20)
        bench.front.retry(Instant(0, 0))
    # Once they are parsed, there is room again
    assert len(bench.steps) == 3
    bench.front._step_room.enter(3 * len(body))


def test_what_a_write_wants_at_a_master_that_is_apart_is_in_its_headers() -> None:
    bench = Bench()
    wanted = [bench.take(tag, reply_to="me", headers=headers)[0].apart for tag, headers in
              (("a", {}), ("b", {"apart": "refuse"}), ("c", {"apart": "wait"}))]  # fmt: skip
    assert wanted == ["wait", "refuse", "wait"]
    assert bench.take("d", reply_to="me", headers={"apart": "later"}) == []
    assert bench.wire.rejected == ["d: InvalidRequest: at a master that is apart a write can wait or refuse, not 'later'"]


def test_what_nobody_waits_for_waits_at_a_master_that_is_apart() -> None:
    # Nobody could be told of a refusal, and the message would be lost.
    (submit,) = Bench().take("a", headers={"apart": "refuse"})
    assert submit.apart == "wait"


@pytest.mark.parametrize("content_type", ["application/x-msgpack", WRITES_TYPE])
def test_who_published_it_is_the_last_operation_of_a_write(content_type: str) -> None:
    bench, body = Bench(), BODY if content_type == "application/x-msgpack" else encode_writes([("t-1", BODY)])
    (named,) = bench.take("a", body=body, content_type=content_type, user="orders.shop")
    (unnamed,) = bench.take("b", body=body, content_type=content_type)

    assert author_in(unpack_operations(named.body)) == "orders.shop"
    assert unnamed.body == BODY


def test_an_app_does_not_say_itself_who_begins_a_transaction() -> None:
    bench = Bench()
    step = client_wire.encode_question(
        "transact", {"action": "begin", "txid": "", "arguments": {"user": "anna"}, "timeout_ms": 1000}
    )
    bench.take("a", body=step, content_type=client_wire.READ_TYPE, reply_to="me", user="orders.shop")
    bench.take("b", body=step, content_type=client_wire.READ_TYPE, reply_to="me")

    assert [asked[2]["user"] for asked in bench.asked] == ["orders.shop", ""]


def test_messages_that_can_never_succeed_are_counted_by_reason() -> None:
    bench = Bench()

    def counts() -> Numbers:
        return {name: count for name, count in bench.front.metrics().items() if count}

    assert counts() == {}
    bench.take("a", content_type="text/plain")
    bench.take("b", body=b"\xc1")
    bench.take("c", body=b"\xc1", reply_to="me")
    # One that passes, and one that was taken in, are not rejected
    bench.answer(bench.take("d")[0], REFUSED, "NotReady")
    bench.take("e")
    bench.answer(bench.take("f")[0], REFUSED, "KeyReused")

    assert counts() == {
        ("rejected_messages_total", "UnsupportedType"): 1,
        ("rejected_messages_total", "InvalidRequest"): 2,
        ("rejected_messages_total", "KeyReused"): 1,
    }
    assert len(bench.wire.rejected) == 4


def test_who_sends_another_content_type_learns_that_of_writes_and_of_reads() -> None:
    bench = Bench()
    bench.take("a", content_type="application/json", reply_to="me", exchange="brokerha.reads")
    ((_, _, _, error, reason),) = decode_replies(bench.wire.replies[0].body)
    assert error == "UnsupportedType"
    for known in ("application/sparql-update", "application/n-quads", "application/x-msgpack", WRITES_TYPE, client_wire.READ_TYPE):
        assert known in reason


DEEP = "<urn:s> <urn:p> " + "<<( <urn:a\u2028> <urn:b> " * 20_000 + "<urn:c>" + " )>>" * 20_000 + " ."


def settle(bench: Bench, count: int) -> list[Submit]:
    """Turns until so many writes have been taken in or answered."""
    found: list[Submit] = []
    while len(found) + len(bench.wire.replies) < count:
        bench.wire.woken.wait(30)
        bench.wire.woken.clear()
        found += bench.front.retry(Instant(1, 1))
        bench.front.after_turn()
    return found


@pytest.mark.parametrize("content_type", ["application/n-quads", "application/x-msgpack", WRITES_TYPE])
def test_poison_is_parsed_in_another_process_and_answered(content_type: str) -> None:
    bench = Bench()
    operations = msgpack.packb([["add", "main", DEEP]])
    body = {"application/n-quads": DEEP.encode(), "application/x-msgpack": operations}.get(content_type)
    assert bench.take("a", body=body or encode_writes([("t", operations)]), content_type=content_type, reply_to="me") == []
    assert settle(bench, 1) == []
    [(_, status, _, error, reason)] = decode_replies(bench.wire.replies[0].body)
    assert (status, error) == (REFUSED, "InvalidRequest")
    assert "nested more than" in reason
    # A batch is answered write by write; what is one write is put aside as well.
    assert len(bench.wire.rejected) == (content_type != WRITES_TYPE)


def test_each_write_of_a_batch_that_ended_the_node_is_refused(tmp_path: Path) -> None:
    body = encode_writes([("t1", BODY), ("t2", BODY)])
    for _ in range(TIMES):
        Suspects(tmp_path).take_in_hand([body])
    bench = Bench(Suspects(tmp_path))
    assert bench.take("a", body=body, content_type=WRITES_TYPE, reply_to="me") == []
    assert [row[:4:3] for row in decode_replies(bench.wire.replies[0].body)] == [("t1", "EndedTheNode"), ("t2", "EndedTheNode")]
    assert len(bench.wire.rejected) == 1


@pytest.mark.parametrize("is_again", [False, True])
@pytest.mark.parametrize("content_type", ["application/x-msgpack", WRITES_TYPE])
def test_what_cannot_be_parsed_just_now_is_answered_and_not_put_aside(
    monkeypatch: pytest.MonkeyPatch, content_type: str, is_again: bool
) -> None:
    def busy(_operations: object) -> None:
        raise NotReady("all parser processes are busy")

    monkeypatch.setattr(amqp_front, "check_texts", busy)
    bench = Bench()
    body = BODY if content_type != WRITES_TYPE else encode_writes([("t1", BODY), ("t2", BODY)])
    assert bench.take("a", body=body, content_type=content_type, reply_to="me", message_id="t1", redelivered=is_again) == []
    told = decode_replies(bench.wire.replies[0].body)
    assert [txid for txid, *_ in told] == ["t1", "t2"][: len(told)]
    # The master that had the message before may have taken it in.
    assert {(status, error) for _, status, _, error, _ in told} == {(UNKNOWN if is_again else REFUSED, "NotReady")}
    assert len(told) == (2 if content_type == WRITES_TYPE else 1)
    assert (bench.wire.settled, bench.wire.rejected) == (["a"], [])


def test_a_byte_order_mark_before_a_text_is_no_part_of_it() -> None:
    bench = Bench()
    bodies = [
        bench.take("a", body=mark + b"<urn:s> <urn:p> <urn:o> .\n", content_type="application/n-quads")[0].body
        for mark in (b"", b"\xef\xbb\xbf")
    ]
    assert bodies[0] == bodies[1]


def test_a_message_that_is_parsed_elsewhere_keeps_its_place_among_those_of_its_sender() -> None:
    bench = Bench()
    long = ("<urn:s> <urn:p> 1 .\n" * 3000).replace("1", '"1"').encode()
    nquads = "application/n-quads"
    assert bench.take("a", body=long, content_type=nquads, reply_to="me", message_id="first") == []
    # What comes after it from the same sender waits; what others send does not.
    assert bench.take("b", body=b"", content_type=nquads, reply_to="me", message_id="second") == []
    assert [submit.txid for submit in bench.take("c", reply_to="you", message_id="third")] == ["third"]
    assert [submit.txid for submit in settle(bench, 2)] == ["first", "second"]
    assert [submit.txid for submit in bench.take("d", reply_to="me", message_id="fourth")] == ["fourth"]


# ---- reads that workers of this machine answer


class Near:
    """In place of the near workers: the test completes what it gave."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], Read]] = []
        self.given: list[Future[ReadOutcome | None]] = []

    def read(self, workers: tuple[str, ...], wanted: Read) -> Future[ReadOutcome | None]:
        self.asked.append((workers, wanted))
        self.given.append(Future())
        return self.given[-1]

    def close(self) -> None:
        """Nothing is open."""


class Reading(Bench):
    """A master that is apart if the test says so, with two workers; what it is asked itself stays open."""

    def __init__(self) -> None:
        super().__init__()
        self.near = Near()
        self.told: tuple[str, int | None] = ("", 0)
        self.far: list[tuple[Any, ...]] = []
        front: Any = self
        wire: Any = self.wire
        near: Any = self.near
        self.front = AmqpFront(front, wire, self.tickets, self.unsafe.append, self.calls.append, near=near)

    def readers(self, min_lsn: int) -> Readers:
        return Readers(("w1", "w2"), 7 if min_lsn == LATEST_LSN else min_lsn, *self.told)

    def read(self, *asked: Any) -> Future[ReadOutcome]:
        self.far.append(asked)
        return Future()

    def ask(self, kind: str = "get", arguments: Any = None, min_lsn: int = 0) -> None:
        wanted = arguments or {"key": b"k"}
        body = client_wire.encode_read(kind, "t", wanted, min_lsn, 5000)
        self.take("1", body=body, content_type=client_wire.READ_TYPE, reply_to="app")

    def answers(self) -> list[Any]:
        self.front.after_turn()
        return [client_wire.decode_answer(reply.body) for reply in self.wire.replies]


def test_a_near_worker_answers_a_read_and_the_master_is_not_asked() -> None:
    bench = Reading()
    bench.ask(min_lsn=LATEST_LSN)
    assert bench.near.asked == [(("w1", "w2"), Read("", "get", "t", {"key": b"k"}, 7, 5000))]
    bench.near.given[0].set_result(ReadOutcome("text/plain", 9, b"near"))
    [answer] = bench.answers()
    assert (answer["body"], answer["lsn"], answer["error"]) == (b"near", 9, "")
    assert not answer.get("apart")
    assert (bench.front.read_near, bench.far, bench.wire.settled) == (1, [], ["1"])


@pytest.mark.parametrize("error", [None, NotReady("closed")])
def test_what_no_near_worker_answers_goes_over_the_broker(error: Exception | None) -> None:
    bench = Reading()
    bench.ask()
    if error is None:
        bench.near.given[0].set_result(None)
    else:
        bench.near.given[0].set_exception(error)
    assert not bench.far, "in the loop's thread only"
    for call in bench.calls:
        call()
    assert bench.far == [("get", "t", {"key": b"k"}, 0, 5000)]
    assert bench.front.read_near == 0


def test_a_read_that_is_wrong_or_inside_of_a_transaction_is_the_masters_affair() -> None:
    bench = Reading()
    bench.ask("get", {"key": b"k", "tx": "m1.1"})
    bench.ask("get", {"nothing": b"k"})
    bench.ask("dance")
    assert not bench.near.asked
    assert len(bench.far) == 3


def test_a_read_whose_time_is_over_at_a_near_worker_is_not_begun_again_elsewhere() -> None:
    bench = Reading()
    bench.ask()
    bench.near.given[0].set_exception(TimedOut("the read did not finish in its time"))
    [answer] = bench.answers()
    assert (answer["error"], bench.far, bench.calls) == ("TimedOut", [], [])


@pytest.mark.parametrize("end", [ReadOutcome("text/plain", 9, b"near"), NotFound("there is no such key")])
def test_a_master_that_is_apart_says_how_old_a_near_answer_may_be(end: Any) -> None:
    bench = Reading()
    bench.told = "minority", 4200
    bench.ask()
    if isinstance(end, Exception):
        bench.near.given[0].set_exception(end)
    else:
        bench.near.given[0].set_result(end)
    [answer] = bench.answers()
    assert (answer["apart"], answer["stale_ms"]) == ("minority", 4200)
    assert answer["error"] == ("NotFound" if isinstance(end, Exception) else "")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"content_encoding": "gzip"}, "gzip"),
        ({"content_encoding": "utf-8", "headers": {"compression": "application/x-gzip"}}, "application/x-gzip"),
        ({"content_encoding": "UTF-8"}, ""),
    ],
)
@pytest.mark.parametrize("kind", ["application/sparql-update", "application/x-msgpack", WRITES_TYPE])
def test_a_refused_body_that_is_compressed_is_called_so(kind: str, fields: dict[str, Any], named: str) -> None:
    bench = Bench()
    bench.take("a", reply_to="app", content_type=kind, body=gzip.compress(BODY), **fields)
    ((_, status, _, error, reason),) = decode_replies(bench.wire.replies[0].body)
    assert (status, error) == (REFUSED, "InvalidRequest")
    assert (f"the message says that its body is encoded with '{named}': send it without" in reason) is bool(named)
