"""A client program over AMQP: what it sends is answered, sent again when it must be, and given up in time.

The masters here are transports whose loop answers as the test says; the real ones stand behind the same messages.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import pytest

from brokerha.model.errors import ConfigurationError, NotReady, OutcomeUnknown, TimedOut, UnknownRepository, Unreachable, WentBack
from brokerha.model.wire import client_wire
from brokerha.ports.transport import ClientMessage, ClientReply
from brokerha.transports.client.wire import AmqpWire
from brokerha.transports.config import TransportConfig
from brokerha.transports.kombu_transport import KombuTransport
from tests.contracts.transport_contract import PATIENCE_S, wait_until
from tests.support.private_broker import PrivateBroker
from tests.support.served import Served

_TIMEOUT_MS = int(PATIENCE_S * 1000)

Answer = Callable[[ClientMessage], list[ClientReply]]


class Master:
    """Receives messages of apps in a thread of its own, keeps what it took, and answers with what ``answer`` makes."""

    def __init__(self, url: str, name: str, answer: Answer) -> None:
        self.taken: list[ClientMessage] = []
        self.answer = answer
        self._transport = Served(KombuTransport(url, "orders", name, 1, "master"))
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        wait_until(lambda: self._transport.status().state == "connected", f"{name} is connected")
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            for message in self._transport.receive(100, 1000):
                assert isinstance(message, ClientMessage)
                self.taken.append(message)
                self._transport.reply(self.answer(message))
                self._transport.settle([message])

    def counters(self) -> Mapping[str, int]:
        """What its transport has counted."""
        counters: Mapping[str, int] = self._transport.status().counters
        return counters

    def close(self) -> None:
        """Stop; what is in the queues stays there."""
        self._is_closed = True
        self._transport.wake()
        self._thread.join()
        self._transport.close()


def reply_to(message: ClientMessage, body: bytes) -> ClientReply:
    return ClientReply(message.reply_to, message.correlation_id, body, client_wire.REPLIES_TYPE)


def apply_all(message: ClientMessage) -> list[ClientReply]:
    """Each write gets its body as LSN."""
    rows = client_wire.decode_writes(message.body)
    return [reply_to(message, client_wire.encode_replies([(txid, "applied", int(body), "", "") for txid, body in rows]))]


def keep_silent(_message: ClientMessage) -> list[ClientReply]:
    return []


@pytest.fixture
def wires() -> Iterator[Callable[..., AmqpWire]]:
    """Makes wires that are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(url: str, **options: Any) -> AmqpWire:
            wire = AmqpWire(url, **options)
            stack.callback(wire.close, 0)
            return wire

        yield make


@pytest.fixture
def masters(vhost_url: str) -> Iterator[Callable[[Answer, str], Master]]:
    """Makes masters that are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(answer: Answer, name: str = "m1") -> Master:
            master = Master(vhost_url, name, answer)
            stack.callback(master.close)
            return master

        yield make


def write(wire: AmqpWire, *numbers: int, timeout_ms: int = _TIMEOUT_MS) -> list[Future[Any]]:
    return wire.submit([(f"t-{n}", str(n).encode()) for n in numbers], "applied", 1, timeout_ms)


def test_an_answer_that_came_is_not_sent_back_to_the_master_as_well(vhost_url: str, wires, masters):
    # RabbitMQ knows no queue for direct replies, and returns each one that is mandatory, body and all.
    master = masters(apply_all)
    wire = wires(vhost_url)
    futures = [future for n in range(20) for future in write(wire, n)]
    assert [future.result(PATIENCE_S).lsn for future in futures] == list(range(20))
    # A return comes before the confirmation, and all are confirmed before a transport is closed.
    master.close()
    assert master.counters().get("returned_replies", 0) == 0


def test_every_write_of_a_large_submit_gets_its_own_reply(vhost_url: str, wires, masters, monkeypatch):
    # Nothing is published again because a busy machine is silent for long
    for name in ("RESEND_LEAST_S", "RESEND_WRITES_S"):
        monkeypatch.setattr(f"brokerha.transports.client.wire.{name}", PATIENCE_S)
    master = masters(apply_all)
    futures = write(wires(vhost_url), *range(2000))
    assert [future.result(PATIENCE_S).lsn for future in futures] == list(range(2000))
    # A busy broker may bring one twice, for a connection that it lost
    batches = [client_wire.decode_writes(message.body) for message in master.taken]
    assert len({txid for batch in batches for txid, *_ in batch}) == 2000
    assert max(map(len, batches)) <= client_wire.BATCH_LIMIT


def test_submitting_nothing_is_answered_with_nothing(vhost_url: str, wires):
    assert write(wires(vhost_url)) == []


def test_the_terms_travel_in_the_headers(vhost_url: str, wires, masters):
    master = masters(apply_all)
    wires(vhost_url).submit([("t-1", b"1")], "synchronised", 3, 5000)[0].result(PATIENCE_S)
    level, copies, timeout_ms = client_wire.terms(master.taken[0].headers)
    assert (level, copies) == ("synchronised", 3)
    assert 0 < timeout_ms <= 5000
    assert client_wire.apart_of(master.taken[0].headers) == "wait"
    wires(vhost_url).submit([("t-2", b"2")], "synchronised", 3, 5000, "refuse")[0].result(PATIENCE_S)
    assert client_wire.apart_of(master.taken[1].headers) == "refuse"


def test_what_should_not_wait_is_not_done_after_its_deadline(vhost_url: str, wires, masters):
    # Given queues that no master takes from, and a write in them that says so, another that does not
    masters(apply_all).close()
    wire = wires(vhost_url)
    (waiting,) = wire.submit([("t-1", b"1")], "applied", 1, 300)
    (hasty,) = wire.submit([("t-2", b"2")], "applied", 1, 300, "refuse")
    for future in (waiting, hasty):
        with pytest.raises(OutcomeUnknown):
            future.result(PATIENCE_S)
    # When a master comes after the deadline, then it gets the one that waits
    master = masters(apply_all, "m2")
    write(wire, 3)[0].result(PATIENCE_S)
    assert {txid for message in master.taken for txid, _ in client_wire.decode_writes(message.body)} == {"t-1", "t-3"}


def test_many_threads_can_write_at_once(vhost_url: str, wires, masters):
    masters(apply_all)
    wire = wires(vhost_url)
    results: dict[int, int] = {}

    def work(first: int) -> None:
        for n in range(first, first + 50):
            results[n] = write(wire, n)[0].result(PATIENCE_S).lsn

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: n for n in range(400)}


def test_a_wire_to_one_master_reaches_that_one(vhost_url: str, wires, masters):
    one, other = masters(apply_all, "m1"), masters(apply_all, "m2")
    wire = wires(vhost_url, to="m2")
    for n in range(5):
        write(wire, n)[0].result(PATIENCE_S)
    assert (len(one.taken), len(other.taken)) == (0, 5)


def test_a_write_waits_for_a_master_to_start(vhost_url: str, wires, masters):
    (future,) = write(wires(vhost_url), 5)
    masters(apply_all)
    assert future.result(PATIENCE_S).lsn == 5


def test_a_write_that_nobody_answers_is_sent_again_with_the_same_id(vhost_url: str, wires, masters, monkeypatch):
    monkeypatch.setattr("brokerha.transports.client.wire.RESEND_WRITES_S", 0.05)
    master = masters(keep_silent)
    (future,) = write(wires(vhost_url), 5)
    wait_until(lambda: len(master.taken) >= 3, "it is sent again")
    master.answer = apply_all
    assert future.result(PATIENCE_S).lsn == 5
    assert {client_wire.decode_writes(message.body)[0][0] for message in master.taken} == {"t-5"}


def test_a_client_that_is_answered_fast_asks_again_soon(vhost_url: str, wires, masters, monkeypatch):
    # Given one that would wait for long before anything was answered, and was answered
    monkeypatch.setattr("brokerha.transports.client.wire.RESEND_WRITES_S", 10 * PATIENCE_S)
    master = masters(apply_all)
    wire = wires(vhost_url)
    write(wire, 1)[0].result(PATIENCE_S)
    # When an answer is lost
    master.answer = keep_silent
    (future,) = write(wire, 2)
    wait_until(lambda: len(master.taken) >= 3, "it is sent again")
    master.answer = apply_all
    assert future.result(PATIENCE_S).lsn == 2


def test_a_write_that_may_have_been_taken_ends_as_outcome_unknown(vhost_url: str, wires, masters):
    master = masters(keep_silent)
    (future,) = write(wires(vhost_url), 5, timeout_ms=1500)
    wait_until(lambda: master.taken, "it has arrived")
    with pytest.raises(OutcomeUnknown) as problem:
        future.result(PATIENCE_S)
    assert problem.value.txid == "t-5"


def test_without_a_broker_nobody_is_reached_and_the_reason_is_said(wires):
    wire = wires("amqp://guest:guest@127.0.0.1:1/")
    (future,) = write(wire, 1, timeout_ms=300)
    with pytest.raises(Unreachable, match=r"nothing listens at 127\.0\.0\.1:1") as told:
        future.result(PATIENCE_S)
    assert told.value.remedy == "start the broker, or correct its address"
    with pytest.raises(Unreachable):
        wire.ask("status", {}, 100)


def test_a_password_that_the_broker_refuses_is_told_as_such(vhost_url: str, wires):
    parts = urlsplit(vhost_url)
    wire = wires(parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}").geturl())
    (future,) = write(wire, 1, timeout_ms=3000)
    with pytest.raises(Unreachable, match=r"the broker refuses .*ACCESS_REFUSED") as told:
        future.result(PATIENCE_S)
    assert (told.value.remedy or "").startswith("correct the user, the password or the virtual host")


def test_without_a_master_nobody_is_reached(vhost_url: str, wires):
    (future,) = write(wires(vhost_url), 1, timeout_ms=600)
    with pytest.raises(Unreachable, match=r"no exchange 'brokerha\.writes'"):
        future.result(PATIENCE_S)


def test_without_a_queue_nobody_is_reached(vhost_url: str, wires, masters):
    masters(apply_all)
    (future,) = write(wires(vhost_url, to="m9"), 1, timeout_ms=600)
    with pytest.raises(Unreachable, match="no master"):
        future.result(PATIENCE_S)


def test_a_read_gets_its_result_or_its_error(vhost_url: str, wires, masters):
    def answer(message: ClientMessage) -> list[ClientReply]:
        request = client_wire.decode_read(message.body)
        if request["name"] == "main":
            age = ("no-majority", 1500)
            body = client_wire.encode_read_answer("", "", "text/csv", request["min_lsn"], b"x" * 300_000, *age)
        else:
            body = client_wire.encode_read_answer("UnknownRepository", "no repository 'other'", "", 0, b"")
        return [reply_to(message, body)]

    masters(answer)
    wire = wires(vhost_url)
    assert wire.read("query", "main", {"sparql": "ASK {}"}, 4, _TIMEOUT_MS).result(PATIENCE_S) == (
        "text/csv",
        4,
        b"x" * 300_000,
        "no-majority",
        1500,
    )
    with pytest.raises(UnknownRepository, match="other"):
        wire.read("query", "other", {}, 0, _TIMEOUT_MS).result(PATIENCE_S)


def test_a_question_gets_plain_data_or_its_error(vhost_url: str, wires, masters):
    def answer(message: ClientMessage) -> list[ClientReply]:
        request = client_wire.decode_read(message.body)
        if request["ask"] == "status":
            return [reply_to(message, client_wire.encode_answer("", "", {"asked": request["arguments"]}))]
        return [reply_to(message, client_wire.encode_answer("WentBack", "LSN 7 is void", None))]

    masters(answer)
    wire = wires(vhost_url)
    assert wire.ask("status", {"deep": True}, _TIMEOUT_MS) == {"asked": {"deep": True}}
    with pytest.raises(WentBack, match="LSN 7"):
        wire.ask("log", {}, _TIMEOUT_MS)


def test_what_one_master_cannot_answer_now_another_one_does(vhost_url: str, wires, masters):
    def refuse(message: ClientMessage) -> list[ClientReply]:
        return [reply_to(message, client_wire.encode_read_answer("NotReady", "no worker", "", 0, b""))]

    def serve(message: ClientMessage) -> list[ClientReply]:
        return [reply_to(message, client_wire.encode_read_answer("", "", "text/csv", 4, b"x"))]

    starting = masters(refuse)
    wire = wires(vhost_url)
    reading = wire.read("get", "t", {}, 0, _TIMEOUT_MS)
    wait_until(lambda: len(starting.taken) > 1, "the master is asked twice")
    with pytest.raises(NotReady, match="no worker"):
        wire.read("get", "t", {}, 0, 300).result(PATIENCE_S)
    with pytest.raises(NotReady, match="no worker"):
        wire.ask("command", {"name": "worker-off", "arguments": {}}, _TIMEOUT_MS)
    masters(serve, "m2")
    assert reading.result(PATIENCE_S).body == b"x"


def test_a_read_that_nobody_answers_times_out(vhost_url: str, wires, masters):
    master = masters(keep_silent)
    future = wires(vhost_url).read("get", "t", {}, 0, 1500)
    wait_until(lambda: master.taken, "it has arrived")
    with pytest.raises(TimedOut):
        future.result(PATIENCE_S)


def test_answers_that_make_no_sense_are_as_good_as_none(vhost_url: str, wires, masters):
    def answer(message: ClientMessage) -> list[ClientReply]:
        stranger = ClientReply(message.reply_to, "stranger", b"", "text/plain")
        return [stranger, reply_to(message, b"\xc1"), *apply_all(message)]

    masters(answer)
    assert write(wires(vhost_url), 3)[0].result(PATIENCE_S).lsn == 3


def test_close_waits_for_what_is_open_and_refuses_what_comes_later(vhost_url: str, wires, masters):
    masters(apply_all)
    wire = wires(vhost_url)
    futures = write(wire, *range(100))
    wire.close()
    wire.close()
    assert [future.result(0).lsn for future in futures] == list(range(100))
    with pytest.raises(Unreachable, match="closed"):
        write(wire, 1)[0].result(0)


def test_close_leaves_no_future_open(vhost_url: str, wires, masters):
    master = masters(keep_silent)
    wire = wires(vhost_url)
    (future,) = write(wire, 1)
    wait_until(lambda: master.taken, "it has arrived")
    wire.close(timeout_ms=50)
    with pytest.raises(OutcomeUnknown):
        future.result(PATIENCE_S)


def test_too_many_open_requests_are_refused(vhost_url: str, wires, monkeypatch):
    monkeypatch.setattr("brokerha.transports.client.wire.OPEN_LIMIT", 10)
    wire = wires(vhost_url)
    write(wire, *range(10))
    with pytest.raises(NotReady, match="wait for some"):
        write(wire, 11)[0].result(0)


def test_a_bad_address_is_refused_at_once():
    with pytest.raises(ConfigurationError):
        AmqpWire("http://h")


def test_an_idle_wire_runs_nothing(vhost_url: str, wires, masters):
    masters(apply_all)
    wire = wires(vhost_url)
    write(wire, 1)[0].result(PATIENCE_S)
    thread = next(each for each in threading.enumerate() if each.name == "brokerha client")
    clock = time.pthread_getcpuclockid(thread.ident or 0)
    before_s = time.clock_gettime(clock)
    threading.Event().wait(2)
    assert time.clock_gettime(clock) - before_s < 0.5


class TestFaults:
    @pytest.fixture
    def pair(self, private_broker: PrivateBroker, wires) -> Iterator[tuple[AmqpWire, Master, PrivateBroker]]:
        private_broker.create_vhost("pika-faults")
        url = private_broker.url_of("pika-faults")
        master = Master(url, "m1", apply_all)
        wire = wires(url, config=TransportConfig(retry_most_ms=500))
        assert write(wire, 1)[0].result(PATIENCE_S).lsn == 1
        yield wire, master, private_broker
        if not private_broker.is_running:
            private_broker.restart()
        master.close()
        private_broker.delete_vhost("pika-faults")

    def test_writes_under_way_survive_the_death_of_the_broker(self, pair):
        wire, _master, broker = pair
        broker.kill()
        futures = write(wire, *range(50), timeout_ms=60_000)
        broker.restart()
        assert [future.result(60).lsn for future in futures] == list(range(50))

    def test_writes_go_on_after_every_queue_was_deleted(self, pair):
        wire, _master, broker = pair
        broker.delete_queues("pika-faults")
        assert write(wire, 7)[0].result(PATIENCE_S).lsn == 7

    def test_writes_go_on_after_the_broker_closed_every_connection(self, pair):
        wire, _master, broker = pair
        broker.close_all_connections()
        assert write(wire, 7)[0].result(PATIENCE_S).lsn == 7

    def test_deadlines_hold_while_the_broker_takes_nothing(self, pair):
        wire, _master, broker = pair
        broker.ctl("set_vm_memory_high_watermark", "0")
        try:
            futures = write(wire, *range(20), timeout_ms=1000)
            problems = [future.exception(PATIENCE_S) for future in futures]
            assert all(isinstance(problem, (OutcomeUnknown, Unreachable)) for problem in problems)
        finally:
            broker.ctl("set_vm_memory_high_watermark", "absolute", "2GB")
        assert write(wire, 7)[0].result(PATIENCE_S).lsn == 7


# ---- writes that wait for each other


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was answered together is awaited for long."""
    for name in ("PER_CALLER_S", "MOST_S", "CLOSE_S"):
        monkeypatch.setattr(f"brokerha.model.gathering.{name}", 60.0)


def test_writers_that_were_answered_together_write_together_again(patient: None, vhost_url: str, wires, masters):
    master = masters(apply_all)
    wire = wires(vhost_url)
    for future in write(wire, 1, 2):
        future.result(PATIENCE_S)
    futures = [*write(wire, 3), *write(wire, 4)]
    assert [future.result(PATIENCE_S).lsn for future in futures] == [3, 4]
    assert len(master.taken) == 2


def test_a_read_waits_for_nobody_and_takes_with_it_what_waits(patient: None, vhost_url: str, wires, masters):
    def answer(message: ClientMessage) -> list[ClientReply]:
        if message.content_type == client_wire.READ_TYPE:
            return [reply_to(message, client_wire.encode_read_answer("", "", "text/plain", 7, b"read"))]
        return apply_all(message)

    masters(answer)
    wire = wires(vhost_url)
    for future in write(wire, 1, 2):
        future.result(PATIENCE_S)
    [held] = write(wire, 3)
    assert wire.read("get", "t", {"key": b"k"}, 0, _TIMEOUT_MS).result(PATIENCE_S).body == b"read"
    assert held.result(PATIENCE_S).lsn == 3


def test_a_write_that_waits_for_others_ends_with_its_connection(patient: None, vhost_url: str, wires, masters):
    masters(apply_all)
    wire = wires(vhost_url)
    for future in write(wire, 1, 2):
        future.result(PATIENCE_S)
    [held] = write(wire, 3)
    wire.close(0)
    assert isinstance(held.exception(PATIENCE_S), (Unreachable, OutcomeUnknown))
