"""Queues of transactions on one connection, with channels that only write down what they were asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from amqp.exceptions import RecoverableConnectionError, ResourceError

from brokerha.transports.config import LaneLimit, TransportConfig
from brokerha.transports.lanes import PUBLICATION_LANES, TX_LANE, Arrival, Counters, Inbox, Outbox, Publication
from brokerha.transports.rabbitmq.reader import TxReader
from brokerha.transports.rabbitmq.reader_wishes import Followed
from brokerha.transports.rabbitmq.writer import TxWriter


class FakeChannel:
    """A quiet channel whose answers the test gives."""

    def __init__(self, on_answer: Callable[[str], None], on_closed: Callable[[str], None]) -> None:
        self.answer = on_answer
        self.close = on_closed
        self.calls: list[Any] = []
        self.events: dict[str, set[Callable[..., None]]] = defaultdict(set)
        self.readers: dict[str, tuple[Callable[[Any], None], Callable[[str], None]]] = {}

    def declare(self, queue: str, arguments: dict[str, Any]) -> None:
        assert arguments["x-expires"] > 0
        self.calls.append(("declare", queue))

    def confirm_select(self, nowait: bool) -> None:
        assert nowait

    def basic_publish(self, message: Any, exchange: str, routing_key: str, mandatory: bool) -> None:
        assert mandatory
        self.calls.append(("publish", exchange, routing_key, message.body.decode()))

    def consume(self, queue: str, tag: str, callback: Any, on_cancel: Any, prefetch: int) -> None:
        assert prefetch > 0
        assert self.calls.pop() == ("declare", queue), "what went with the last connection is made again"
        self.readers[queue] = (callback, on_cancel)
        self.calls.append(("consume", queue, tag))

    def leave(self) -> None:
        self.calls.append(("leave",))

    def basic_ack(self, tag: int, multiple: bool) -> None:
        assert multiple
        self.calls.append(("ack", tag))

    def tell(self, event: str, *facts: Any) -> None:
        for callback in self.events[event]:
            callback(*facts)


class Channels:
    """Makes fake channels and keeps them."""

    def __init__(self) -> None:
        self.made: list[FakeChannel] = []
        self.most = 1000

    def __call__(self, on_answer: Callable[[str], None], on_closed: Callable[[str], None]) -> Any:
        if len(self.made) == self.most:
            raise ResourceError("No free channel ids")
        self.made.append(FakeChannel(on_answer, on_closed))
        return self.made[-1]


def opening(queue: str) -> Publication:
    return Publication(TX_LANE, "", queue, b"", tx_queue=queue, opens=True)


def event(text: str, queue: str) -> Publication:
    return Publication(TX_LANE, "", queue, text.encode(), tx_queue=queue)


class Writing:
    """The part for queues of transactions of a writer session."""

    def __init__(self, **limits: Any) -> None:
        self.config = TransportConfig(**{"tx_channels": 1, **limits})
        self.outbox = Outbox(dict.fromkeys(PUBLICATION_LANES, LaneLimit(1000, 10_000)))
        self.counters = Counters()
        self.channels = Channels()
        self.tx = self.connect()

    def connect(self) -> TxWriter:
        return TxWriter(self.channels, self.outbox, self.config, self.counters)

    @property
    def channel(self) -> FakeChannel:
        return self.channels.made[-1]

    def turn(self, *publications: Publication, now_s: float = 0.0) -> float:
        self.outbox.put(publications)
        return self.tx.turn(now_s)


class TestWriting:
    def test_without_transactions_no_channel_is_opened(self):
        writing = Writing()
        assert writing.turn() > 1000
        assert writing.channels.made == []

    def test_what_concerns_a_queue_stays_in_its_order(self):
        writing = Writing()
        writing.turn(opening("q"), event("a", "q"), event("b", "q"))
        assert writing.channel.calls == [("declare", "q"), ("publish", "", "q", "a"), ("publish", "", "q", "b")]

    def test_queues_share_the_channels_and_each_keeps_to_one(self):
        writing = Writing(tx_channels=4)
        for _ in range(2):
            writing.turn(*(event("x", f"q{n}") for n in range(50)))
        assert len(writing.channels.made) == 4
        for channel in writing.channels.made:
            queues = [call[2] for call in channel.calls]
            assert all(queues.count(queue) == 2 for queue in queues)

    def test_it_is_idle_when_everything_is_answered(self):
        writing = Writing()
        writing.turn(opening("q"), event("a", "q"))
        assert not writing.tx.is_idle()
        writing.channel.answer("q")
        assert not writing.tx.is_idle()
        writing.channel.tell("basic_ack", 1, False)
        assert writing.tx.is_idle()
        assert writing.counters.read() == {"sent": 1, "tx_queues_opened": 1}

    def test_no_more_than_the_window_is_without_an_answer(self):
        writing = Writing(window_tx_messages=3)
        writing.turn(*(opening(f"q{n}") for n in range(5)))
        assert len(writing.channel.calls) == 3
        writing.channel.answer("q")
        writing.turn()
        assert len(writing.channel.calls) == 4

    def test_refused_events_are_counted_and_not_repeated(self):
        writing = Writing()
        writing.turn(event("a", "q"), event("b", "q"))
        writing.channel.tell("basic_nack", 2, True)
        writing.channel.tell("basic_return", Exception(), "", "q", None)
        writing.turn()
        assert len(writing.channel.calls) == 2
        counters = writing.counters.read()
        assert (counters["nacked"], counters["returned"]) == (2, 1)

    def test_silence_ends_the_session_unless_the_broker_is_blocked(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("brokerha.transports.rabbitmq.writer.time.monotonic", lambda: 50.0)
        writing = Writing(confirm_timeout_s=30.0)
        assert writing.turn(opening("q"), opening("r"), now_s=10.0) == 40.0
        writing.tx.pause(35.0)
        assert writing.turn(now_s=40.0) == 65.0
        writing.channel.answer("q")
        assert writing.turn(now_s=65.0) == 80.0
        with pytest.raises(RecoverableConnectionError):
            writing.turn(now_s=80.0)

    def test_a_refused_queue_costs_its_channel_and_what_was_behind_it(self):
        writing = Writing()
        writing.turn(opening("refused"), event("lost", "other"), opening("other"))
        refused = writing.channel
        refused.close("not with these arguments")
        assert writing.tx.is_idle()
        writing.turn(opening("next"))
        assert writing.channel is not refused
        assert writing.channel.calls == [("declare", "next")]
        counters = writing.counters.read()
        assert (counters["tx_queues_refused"], counters["unconfirmed"]) == (1, 2)

    def test_nothing_is_repeated_on_the_next_connection_as_the_protocol_does_that(self):
        writing = Writing()
        writing.turn(opening("a"), event("x", "a"), opening("b"))
        writing.channel.answer("a")
        writing.tx.end()
        writing.tx = writing.connect()
        assert writing.turn() > 1000
        assert len(writing.channels.made) == 1
        assert writing.counters.read()["unconfirmed"] == 2


class Reading:
    """The part for queues of transactions of a reader session."""

    def __init__(self, followed: Followed | None = None, most: int = 10, most_events: int = 100) -> None:
        self.followed = followed or Followed(most)
        self.arrived: list[Arrival] = []
        self.inbox = Inbox({TX_LANE: LaneLimit(most_events, 10_000)})
        self.counters = Counters()
        self.channels = Channels()
        self.tx = TxReader(self.channels, "m1b", self.followed, self.inbox, self.arrived, TransportConfig(), self.counters)

    def follow(self, *queues: str) -> None:
        for queue in queues:
            assert self.followed.follow(queue)
        self.tx.turn()

    def deliver(self, channel: FakeChannel, queue: str, tag: int) -> None:
        info = {"delivery_tag": tag, "exchange": "", "redelivered": False}
        channel.readers[queue][0](SimpleNamespace(body=b"x", properties={}, delivery_info=info))

    def gone(self) -> int:
        return self.counters.read().get("tx_queues_gone", 0)


class TestReading:
    def test_each_queue_has_a_channel_that_is_closed_when_it_is_left(self):
        reading = Reading()
        reading.follow("q1", "q2")
        reading.followed.leave("q1")
        reading.tx.turn()
        assert [channel.calls for channel in reading.channels.made] == [
            [("consume", "q1", "m1b reads q1"), ("leave",)],
            [("consume", "q2", "m1b reads q2")],
        ]

    def test_one_that_is_followed_again_is_read_over_a_new_channel(self):
        reading = Reading()
        reading.follow("q")
        reading.followed.leave("q")
        reading.tx.turn()
        reading.follow("q")
        left, again = reading.channels.made
        assert (left.calls[-1], again.calls) == (("leave",), [("consume", "q", "m1b reads q")])
        # What is said of the old one is no news
        left.close("NOT_FOUND")
        left.readers["q"][1]("")
        reading.tx.turn()
        assert (reading.gone(), len(reading.channels.made)) == (0, 2)

    def test_a_queue_that_was_deleted_is_left(self):
        reading = Reading()
        reading.follow("q")
        reading.channels.made[0].readers["q"][1]("")
        reading.tx.turn()
        assert reading.channels.made[0].calls[-1] == ("leave",)
        assert (reading.gone(), len(reading.channels.made)) == (1, 1)

    def test_events_are_acknowledged_together_once_they_are_in_the_inbox(self):
        reading = Reading()
        reading.follow("q")
        (channel,) = reading.channels.made
        for tag in (1, 2, 3):
            reading.deliver(channel, "q", tag)
        reading.tx.turn()
        reading.tx.turn()
        assert channel.calls[1:] == [("ack", 3)]
        assert [arrival.lane for arrival in reading.arrived] == [TX_LANE] * 3

    def test_what_is_left_is_not_acknowledged(self):
        reading = Reading()
        reading.follow("q")
        (channel,) = reading.channels.made
        reading.deliver(channel, "q", 1)
        reading.followed.leave("q")
        reading.tx.turn()
        assert channel.calls[1:] == [("leave",)]

    def test_a_full_inbox_withholds_acknowledgements(self):
        reading = Reading(most_events=1)
        reading.follow("q")
        (channel,) = reading.channels.made
        reading.deliver(channel, "q", 1)
        reading.inbox.put(reading.arrived)
        reading.tx.turn()
        assert channel.calls[1:] == []
        reading.inbox.take(10)
        reading.tx.turn()
        assert channel.calls[1:] == [("ack", 1)]

    def test_a_queue_that_cannot_be_read_is_tried_again_only_when_it_is_wanted_anew(self):
        reading = Reading()
        reading.follow("down", "up")
        reading.channels.made[0].close("NOT_FOUND")
        reading.tx.turn()
        assert (reading.gone(), len(reading.channels.made)) == (1, 2)
        assert reading.channels.made[1].calls == [("consume", "up", "m1b reads up")]
        reading.follow("down")
        assert len(reading.channels.made) == 3

    def test_a_wish_that_was_renewed_while_the_queue_was_missing_is_tried_again(self):
        reading = Reading()
        reading.follow("q")
        assert reading.followed.follow("q")
        reading.channels.made[0].close("NOT_FOUND")
        reading.tx.turn()
        assert len(reading.channels.made) == 2

    def test_what_the_broker_has_no_channel_for_is_left(self):
        reading = Reading()
        reading.channels.most = 1
        reading.follow("q1", "q2")
        assert [channel.calls[0][1] for channel in reading.channels.made] == ["q1"]
        assert reading.counters.read()["tx_queues_too_many"] == 1
        reading.channels.most = 2
        reading.follow("q2")
        assert reading.channels.made[1].calls == [("consume", "q2", "m1b reads q2")]

    def test_another_connection_reads_what_is_wanted_then(self):
        followed = Followed(10)
        reading = Reading(followed)
        reading.follow("q1", "q2", "q3")
        followed.leave("q2")
        again = Reading(followed)
        again.tx.turn()
        assert [channel.calls[0][1] for channel in again.channels.made] == ["q1", "q3"]

    def test_no_more_queues_are_wanted_than_the_limit(self):
        followed = Followed(2)
        assert [followed.follow(queue) for queue in ("a", "b", "a", "c")] == [True, True, True, False]
        followed.leave("a")
        assert followed.follow("c")
