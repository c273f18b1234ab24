"""Transactions under way: bounded, sent again under their id until their end is known, told in their order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from brokerha.client import Client
from brokerha.model.errors import InvalidRequest, NotReady, OutcomeUnknown, Unreachable
from brokerha.model.requests import REFUSED, REJECTED_STATUS, UNKNOWN, Reply
from brokerha.pipeline.loading import Batch, Reject
from brokerha.pipeline.loading_publish import FIRST_PAUSE_S, LONGEST_PAUSE_S, Publisher
from tests.unit.client.fake_wire import FakeWire
from tests.unit.pipeline.loading_cluster import LoadCluster

BUSY = Reply(0, "", REFUSED, 0, "NotReady", "the journal is full")
SILENT = Reply(0, "", UNKNOWN, 0, "OutcomeUnknown", "no answer")


def batch(number: int, *, is_empty: bool = False) -> Batch:
    operations = [] if is_empty else [("put", "t", b"%d" % number, b"v")]
    return Batch(number, number, number, list(operations), 0 if is_empty else 1, [], number)


class Desk:
    """A publisher, what it told, and a clock that only its pauses move."""

    def __init__(self, client: Client, window: int = 4, patience_s: float = 60.0) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.pauses: list[float] = []
        self.publisher = Publisher(
            client, window, "applied", 5.0, patience_s,
            lambda one, lsn: self.told.append(("applied", one.number, lsn)),
            lambda one, error: self.told.append(("rejected", one.number, error.lsn)),
            self.pauses.append, lambda: sum(self.pauses),
        )  # fmt: skip

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.publisher.send(batch(number), f"k.{number}")


def test_batches_are_sent_under_their_ids_and_told_in_their_order():
    cluster = LoadCluster()
    desk = Desk(cluster.connect())
    desk.send(1, 2)
    desk.publisher.send(batch(3, is_empty=True), "k.3")
    desk.send(4)
    desk.publisher.drain()
    desk.publisher.close()
    assert list(cluster.bodies) == ["k.1", "k.2", "k.4"]
    assert desk.told == [("applied", 1, 1), ("applied", 2, 2), ("applied", 3, 0), ("applied", 4, 3)]


def test_no_more_than_the_window_are_under_way():
    wire = FakeWire()
    desk = Desk(Client(wire), window=2)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(desk.send, 1, 2, 3, 4, 5)
        for number in range(1, 6):
            wire.wait_for_open(min(2, 6 - number))
            wire.reply(lsn=number)
        sending.result(5)
        desk.publisher.drain()
    desk.publisher.close()
    assert wire.most_open == 2
    assert [lsn for _, _, lsn in desk.told] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", [BUSY, SILENT, Unreachable("gone"), NotReady("later"), OutcomeUnknown("k.1")])
def test_what_was_refused_or_not_answered_is_sent_again_under_its_id(fault):
    cluster = LoadCluster()
    cluster.faults = [fault, fault, None, fault]
    desk = Desk(cluster.connect(), window=1)
    desk.send(1, 2)
    desk.publisher.drain()
    desk.publisher.close()
    assert cluster.sent == ["k.1", "k.1", "k.1", "k.2", "k.2"]
    assert desk.told == [("applied", 1, 1), ("applied", 2, 2)]
    assert desk.pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, FIRST_PAUSE_S]


def test_patience_ends_with_the_last_error_and_pauses_grow_to_a_limit():
    cluster = LoadCluster()
    cluster.faults = [BUSY] * 1000
    desk = Desk(cluster.connect(), patience_s=60)
    desk.send(1)
    with pytest.raises(NotReady, match="the journal is full"):
        desk.publisher.drain()
    desk.publisher.close()
    assert max(desk.pauses) == LONGEST_PAUSE_S
    assert 50 < sum(desk.pauses) <= 60
    assert not desk.told


def test_a_rejected_transaction_is_told_and_those_behind_it_go_on():
    cluster = LoadCluster()
    cluster.faults = [None, Reply(0, "k.2", REJECTED_STATUS, 9, "Rejected", "check c fails")]
    desk = Desk(cluster.connect())
    desk.send(1, 2, 3)
    desk.publisher.drain()
    desk.publisher.close()
    assert desk.told == [("applied", 1, 1), ("rejected", 2, 9), ("applied", 3, 2)]


def test_what_can_never_succeed_is_raised_at_once():
    cluster = LoadCluster()
    cluster.bodies["k.1"] = b"another body"
    desk = Desk(cluster.connect())
    desk.send(1)
    with pytest.raises(InvalidRequest, match="other operations"):
        desk.publisher.drain()
    desk.publisher.close()
    assert not desk.pauses


def test_empty_batches_behind_a_slow_one_do_not_pile_up():
    wire = FakeWire()
    desk = Desk(Client(wire), window=1)

    def send() -> None:
        desk.send(1)
        for number in range(2, 200):
            desk.publisher.send(batch(number, is_empty=True)._replace(rejects=[Reject("f", 1, 1, "r", "t")]), "k")

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        wire.wait_for_open(1)
        assert not desk.told
        wire.reply()
        sending.result(5)
        desk.publisher.drain()
    desk.publisher.close()
    assert [number for _, number, _ in desk.told] == list(range(1, 200))
