"""Reads of a master as messages and futures: what goes out, what comes back, what the caller gets."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from brokerha.model import errors
from brokerha.model.wire.messages import Outgoing, Read, ReadResult
from brokerha.nodes.reads.reading import Reads
from brokerha.nodes.reads.worker_order import WorkerFacts
from brokerha.ports.front import ReadOutcome


class Master:
    """Reads over two workers that are always heard."""

    def __init__(self) -> None:
        self.reads = Reads("m1.3")
        self.facts = [WorkerFacts("w1", 10, 0, 0), WorkerFacts("w2", 10, 0, 0)]

    def ask(self, mono_ms: int = 0, future: Future[ReadOutcome] | None = None) -> tuple[Future[ReadOutcome], str, str]:
        """A new read: its future, its worker, the request that was sent."""
        future = future or Future()
        read = Read("", "get", "t", {"key": b"k"}, 4, 5000)
        worker, request = sent(self.reads.ask(read, self.facts, mono_ms, future))
        return future, worker, request

    def tick(self, mono_ms: int) -> list[Outgoing]:
        return self.reads.tick(self.facts, mono_ms)


def sent(outgoing: list[Outgoing]) -> tuple[str, str]:
    ((worker, message),) = [(each.to, each.message) for each in outgoing]
    assert isinstance(message, Read)
    return worker, message.request


def piece(request: str, part: int, body: bytes, *, more: bool = False) -> ReadResult:
    return ReadResult(request, part, more, "", "text/plain", body, 10 + part)


def error(request: str, name: str, text: str) -> ReadResult:
    return ReadResult(request, 0, False, name, "", text.encode(), 0)


@pytest.fixture
def master() -> Master:
    return Master()


def test_a_read_goes_out_with_what_was_asked_and_its_whole_time(master: Master) -> None:
    future: Future[ReadOutcome] = Future()
    (outgoing,) = master.reads.ask(Read("", "get", "t", {"key": b"k"}, 4, 5000), master.facts, 0, future)
    assert (outgoing.to, outgoing.message) == ("w1", Read("m1.3.2", "get", "t", {"key": b"k"}, 4, 5000))


def test_pieces_are_put_together_in_order(master: Master) -> None:
    future, _, request = master.ask()
    for part, more in ((2, False), (0, True), (1, True)):
        assert not future.done()
        assert master.reads.on_result(piece(request, part, str(part).encode(), more=more), 5) == []
    assert future.result(0) == ReadOutcome("text/plain", 12, b"012")
    assert len(master.reads) == 0


def test_answers_of_two_workers_do_not_mix(master: Master) -> None:
    future, first, request = master.ask()
    master.reads.on_result(piece(request, 0, b"old ", more=True), 5)
    second, again = sent(master.tick(505))
    assert {first, second} == {"w1", "w2"}
    master.reads.on_result(piece(again, 0, b"new ", more=True), 510)
    master.reads.on_result(piece(request, 1, b"old"), 511)
    assert future.result(0).body == b"old old"
    # What comes now is late, and only counted.
    assert master.reads.on_result(piece(again, 1, b"new"), 512) == []
    assert master.reads.metrics()["reads_late_total"] == 1


def test_an_error_of_the_worker_goes_to_the_next_one_and_a_wrong_request_to_the_caller(master: Master) -> None:
    future, first, request = master.ask()
    second, again = sent(master.reads.on_result(error(request, "StoreDamaged", "row 7"), 5))
    assert first != second
    assert master.reads.on_result(error(again, "UnknownRepository", "no such repository"), 6) == []
    with pytest.raises(errors.UnknownRepository, match="no such repository"):
        future.result(0)


def test_when_no_worker_is_left_the_caller_learns_what_each_said(master: Master) -> None:
    future, _, request = master.ask()
    _, again = sent(master.reads.on_result(error(request, "StoreError", "the store is closed"), 5))
    master.reads.on_result(error(again, "NotReady", "256 reads are under way already: try again"), 6)
    with pytest.raises(errors.NotReady, match="w1: the store is closed; w2: 256 reads") as raised:
        future.result(0)
    assert type(raised.value) is errors.NotReady


def test_a_read_that_nobody_answers_times_out(master: Master) -> None:
    future, *_ = master.ask()
    master.tick(5999)
    assert not future.done()
    master.tick(6000)
    with pytest.raises(errors.TimedOut, match="w1 did not answer"):
        future.result(0)
    master.tick(60_000)
    assert master.reads.due_ms() is None


def test_answers_to_an_earlier_start_of_the_master_mean_nothing(master: Master) -> None:
    future, *_ = master.ask()
    for request in ("m1.2.2", "m1.3.x", "m1.3.99", ""):
        assert master.reads.on_result(piece(request, 0, b"x"), 5) == []
        assert master.reads.on_result(error(request, "NotReady", "x"), 5) == []
    assert not future.done()


class Leaving(Future[ReadOutcome]):
    """Its caller goes in the moment in which it is to be completed."""

    def set_result(self, result: ReadOutcome) -> None:
        self.cancel()
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        self.cancel()
        super().set_exception(exception)


@pytest.mark.parametrize("is_good", [True, False])
def test_a_caller_that_goes_disturbs_nobody(master: Master, is_good: bool) -> None:
    future, _, request = master.ask()
    future.cancel()
    master.reads.on_result(piece(request, 0, b"v"), 5)
    leaving, _, request = master.ask(future=Leaving())
    master.reads.on_result(piece(request, 0, b"v") if is_good else error(request, "InvalidRequest", "no"), 5)
    assert leaving.cancelled()
    assert len(master.reads) == 0


def test_a_master_that_stops_fails_its_reads(master: Master) -> None:
    future, *_ = master.ask()
    master.reads.close("the master is stopping")
    with pytest.raises(errors.NotReady, match="stopping"):
        future.result(0)
