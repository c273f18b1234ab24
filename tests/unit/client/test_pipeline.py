"""Pipelines: bounded, in order, batched by what waits, and no failure unseen."""

from __future__ import annotations

import threading

import pytest

from brokerha.client import Client, Session
from brokerha.model import errors
from brokerha.model.operations import unpack_operations
from brokerha.model.requests import REJECTED_STATUS, Reply
from tests.unit.client.fake_wire import FakeWire
from tests.unit.client.serving import Served, wait_until


def applied(txid: str, _: bytes) -> Reply:
    return Reply(0, txid, "applied", 1)


def test_never_more_than_the_window_is_under_way() -> None:
    wire = FakeWire()
    with Client(wire).pipeline(window=3) as pipeline:
        for _ in range(3):
            pipeline.put("t", "k", "v")
        waiting = threading.Thread(target=lambda: pipeline.put("t", "k", "v"))
        waiting.start()
        wire.wait_for_open(3)

        wire.reply()
        waiting.join(5)
        wire.wait_for_open(3)

        assert wire.most_open == 3
        for _ in range(3):
            wire.reply()


def test_a_window_that_stays_full_is_an_error_and_not_a_hang() -> None:
    wire = FakeWire()
    pipeline = Client(wire).pipeline(window=1, timeout=0.02)
    pipeline.put("t", "k", "v")

    with pytest.raises(errors.NotReady, match="1 writes are under way"):
        pipeline.put("t", "k", "v")
    with pytest.raises(errors.NotReady, match="no answer"):
        pipeline.close()


def test_futures_tell_what_was_written_and_the_session_remembers_it() -> None:
    wire = FakeWire()
    session = Session(wire)
    with session.pipeline(window=10) as pipeline:
        first, second = pipeline.put("t", "a", "1"), pipeline.delete("t", "b", key="mine")
        wire.wait_for_open(2)
        wire.reply(lsn=5)
        wire.reply(lsn=6)
        assert (first.result(5).lsn, second.result(5).txid) == (5, "mine")

    assert session.least_lsn() == 6


def test_writes_are_handed_over_in_the_order_of_the_calls_and_in_batches() -> None:
    wire = FakeWire(applied)

    with Client(wire).pipeline(window=1000) as pipeline:
        for number in range(5000):
            pipeline.put("t", str(number), b"v", key=f"t{number}")

    assert [txid for batch in wire.batches for txid, _ in batch] == [f"t{number}" for number in range(5000)]
    assert len(wire.batches) < 5000


def test_terms_hold_for_every_write_of_a_pipeline() -> None:
    wire = FakeWire(applied)

    with Client(wire).pipeline(ack="applied=2", timeout=3) as pipeline:
        pipeline.update("main", "CLEAR ALL")

    assert wire.terms == [("applied", 2, 3000)]


def test_messages_can_be_published() -> None:
    wire = FakeWire(applied)

    with Client(wire).pipeline() as pipeline:
        pipeline.publish("q", "a", "text/plain", key="mine")
        pipeline.publish("q", b"b")

    written = [unpack_operations(body) for batch in wire.batches for _, body in batch]
    assert written == [[("publish", "q", "text/plain", b"a")], [("publish", "q", "application/octet-stream", b"b")]]


def test_leaving_the_block_raises_the_first_failure_after_all_have_ended() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, REJECTED_STATUS, 3, "Rejected", f"{txid} failed"))

    with pytest.raises(errors.Rejected, match="t1 failed"), Client(wire).pipeline() as pipeline:
        futures = [pipeline.put("t", "k", "v", key=key) for key in ("t1", "t2")]

    assert [type(future.exception()) for future in futures] == [errors.Rejected] * 2


def test_a_caller_hears_at_the_next_call_that_no_node_was_reached_and_may_go_on_all_the_same() -> None:
    wire = FakeWire(lambda _txid, _body: errors.Unreachable("http://127.0.0.1:1: connection refused"))
    handed_over = 0

    def write_much() -> None:
        nonlocal handed_over
        with Client(wire).pipeline(window=10) as pipeline:
            for number in range(10_000):
                pipeline.put("t", str(number), "v")
                handed_over += 1

    with pytest.raises(errors.Unreachable, match="refused"):
        write_much()
    assert handed_over <= 10

    pipeline = Client(wire).pipeline()
    with pytest.raises(errors.Unreachable):
        pipeline.put("t", "k", "v").result(5)
    with pytest.raises(errors.Unreachable):
        pipeline.put("t", "k", "v")
    wire.answer = applied
    assert pipeline.put("t", "k", "v").result(5).lsn == 1
    assert pipeline.put("t", "k", "v").result(5).lsn == 1
    pipeline.close()


def test_an_error_of_the_block_itself_goes_before() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, REJECTED_STATUS, 3, "Rejected", "failed"))

    def fail_inside() -> None:
        with Client(wire).pipeline() as pipeline:
            pipeline.put("t", "k", "v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()


def test_a_wire_that_refuses_a_batch_fails_its_writes_and_the_pipeline_goes_on() -> None:
    wire = FakeWire(applied)
    original, calls = wire.submit, []

    def submit(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise errors.NotReady("too much is open")
        return original(*arguments)

    wire.submit = submit  # type: ignore[method-assign]
    pipeline = Client(wire).pipeline()
    with pytest.raises(errors.NotReady):
        pipeline.put("t", "k", "v").result(5)
    assert pipeline.put("t", "k", "v").result(5).lsn == 1
    pipeline.close()


def test_what_can_never_succeed_is_refused_at_the_call() -> None:
    with Client(FakeWire(applied)).pipeline() as pipeline, pytest.raises(errors.InvalidRequest, match="400 bytes"):
        pipeline.put("t", b"k" * 500, b"v")
    with pytest.raises(errors.InvalidRequest, match="closed"):
        pipeline.put("t", "k", "v")
    with pytest.raises(errors.InvalidRequest, match="window"):
        Client(FakeWire()).pipeline(window=0)


def test_flushing_waits_and_the_pipeline_may_be_used_on() -> None:
    wire = FakeWire()
    with Client(wire).pipeline() as pipeline:
        pipeline.put("t", "k", "v")
        wire.wait_for_open(1)
        threading.Thread(target=wire.reply).start()
        pipeline.flush()
        future = pipeline.put("t", "k", "v")
        wire.wait_for_open(1)
        wire.reply()
        assert future.result(5).level == "applied"


def test_a_future_that_its_caller_gave_up_hurts_nobody() -> None:
    wire = FakeWire()
    with Client(wire).pipeline(window=1) as pipeline:
        assert pipeline.put("t", "k", "v").cancel()
        wire.wait_for_open(1)
        wire.reply()
        second = pipeline.put("t", "k", "v")
        wire.wait_for_open(1)
        wire.reply()
        assert second.result(5).lsn == 1


def test_thousands_of_writes_over_http_arrive_once_each_and_in_order(db: Session, served: Served) -> None:
    with db.pipeline(window=200) as pipeline:
        futures = [pipeline.put("t", f"{number % 10}", str(number)) for number in range(3000)]

    assert [future.result().lsn for future in futures] == list(range(1, 3001))
    assert [served.front.keys["t", str(digit).encode()] for digit in range(10)] == [str(2990 + n).encode() for n in range(10)]
    wait_until(lambda: served.network.batches < 2000)
