"""What is written and read on one connection, with a channel that only writes down what it was asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from amqp.exceptions import ConsumerCancelled, RecoverableConnectionError

from brokerha.transports.config import LaneLimit, TransportConfig
from brokerha.transports.lanes import (
    BULK_LANE,
    DATA_LANE,
    FIRM_LANE,
    PUBLICATION_LANES,
    REPLY_LANE,
    SYNC_LANE,
    ClientTag,
    Counters,
    Inbox,
    Outbox,
    Publication,
)
from brokerha.transports.link import LinkState
from brokerha.transports.rabbitmq import reader as reader_module
from brokerha.transports.rabbitmq.reader import LOOKS_S, ReaderSession
from brokerha.transports.rabbitmq.reader_wishes import Doors, Followed, Sightings
from brokerha.transports.rabbitmq.writer import WriterSession
from brokerha.transports.topology import topology_of


class Looks:
    """What is asked of the broker beside all else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.on_counted: Callable[[str, int], None] = lambda _queue, _readers: None
        monkeypatch.setattr(reader_module, "QuietChannel", self._opened)

    def _opened(self, _wire: Any, _on_answer: Any, _on_closed: Any, on_counted: Any = None) -> Looks:
        self.on_counted = on_counted
        return self

    def look(self, queue: str) -> None:
        self.asked.append(queue)


class FakeChannel:
    """Keeps calls as (name, positional arguments, named arguments)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.events: dict[str, set[Callable[..., None]]] = defaultdict(set)
        self.consumers: dict[str, dict[str, Any]] = {}

    def basic_consume(self, queue: str, **options: Any) -> None:
        self.consumers[queue] = options

    def publish_to_nodes(self, publication: Publication) -> None:
        self.calls.append(("basic_publish", (publication.body, publication.exchange, publication.routing_key), {}))

    def basic_publish(self, message: Any, exchange: str, routing_key: str, **options: Any) -> None:
        if message.properties.get("correlation_id") == "unsendable":
            raise ValueError("not an AMQP value")
        self.calls.append(("basic_publish", (message.body, exchange, routing_key), options))

    def tell(self, event: str, *facts: Any) -> None:
        for callback in self.events[event]:
            callback(*facts)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.calls.append((name, given, named))

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        return [given for called, given, _ in self.calls if called == name]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [named for called, _, named in self.calls if called == name]


class FakeConnection:
    """Gives channels and remembers them."""

    def __init__(self) -> None:
        self.channels: list[FakeChannel] = []
        self.connection = SimpleNamespace(transport=SimpleNamespace(unsent_bytes=0))

    def channel(self) -> FakeChannel:
        self.channels.append(FakeChannel())
        return self.channels[-1]


def publication(text: str, lane: str = SYNC_LANE, exchange: str = "brokerha.sync", **more: Any) -> Publication:
    return Publication(lane, exchange, "m2", text.encode(), queued_s=1e12, **more)


def firm(text: str, **more: Any) -> Publication:
    return publication(text, FIRM_LANE, **more)


class Writing:
    """A writer session on a fake connection."""

    def __init__(self, **limits: Any) -> None:
        self.config = TransportConfig(**limits)
        self.outbox = Outbox(dict.fromkeys(PUBLICATION_LANES, LaneLimit(100, 10_000)))
        self.state = LinkState(["out"])
        self.settled: list[ClientTag] = []
        self.counters = Counters()
        self.connection = FakeConnection()
        self.session = self.connect()

    def connect(self) -> WriterSession:
        connection: Any = self.connection
        topology = topology_of("m1", "master")
        return WriterSession(
            connection, topology, self.outbox, self.state, self.settled.extend, self.config, self.counters, is_first=True
        )

    @property
    def channel(self) -> FakeChannel:
        """The one that confirms."""
        return self.connection.channels[-2]

    @property
    def plain(self) -> FakeChannel:
        return self.connection.channels[-1]

    def published(self) -> list[str]:
        return [given[0].decode() for given in self.channel.asked("basic_publish")]

    def told(self) -> list[str]:
        return [given[0].decode() for given in self.plain.asked("basic_publish")]

    def prove(self) -> None:
        """Open the window: publish one message and confirm it."""
        self.outbox.put([firm("first")])
        self.session.turn(0.0)
        self.channel.tell("basic_ack", 1, False)


class TestWriting:
    def test_one_message_goes_out_first_and_the_rest_after_its_confirmation(self):
        writing = Writing()
        writing.outbox.put([firm(text) for text in "abc"])
        writing.session.turn(0.0)
        assert writing.published() == ["a"]
        writing.channel.tell("basic_ack", 1, False)
        writing.session.turn(0.0)
        assert writing.published() == ["a", "b", "c"]
        assert not writing.session.is_idle()
        writing.channel.tell("basic_ack", 3, True)
        assert writing.session.is_idle()

    def test_no_more_than_the_window_is_under_way(self):
        writing = Writing(window_messages=2)
        writing.prove()
        writing.outbox.put([firm(text) for text in "abc"])
        writing.session.turn(0.0)
        assert writing.published() == ["first", "a", "b"]

    def test_a_channel_that_is_used_and_does_not_answer_is_an_end_but_not_while_the_broker_takes_nothing(self):
        writing = Writing(answer_within_s=2.0)
        assert writing.plain.asked("ask") == []
        writing.outbox.put([publication("a")])
        assert writing.session.turn(10.0) == 12.0
        (question,) = writing.plain.asked("ask")
        question[0]()
        assert writing.session.turn(12.0) > 1_000
        writing.outbox.put([publication("b")])
        writing.session.turn(12.0)
        writing.state.block("out", "memory")
        writing.session.turn(13.0)
        writing.state.unblock("out")
        writing.connection.connection.transport.unsent_bytes = 1
        writing.session.turn(14.5)
        writing.connection.connection.transport.unsent_bytes = 0
        assert writing.session.turn(16.0) == 16.5
        with pytest.raises(RecoverableConnectionError, match="does not answer on a channel"):
            writing.session.turn(16.5)

    def test_messages_of_nodes_and_answers_wait_for_no_confirmation(self):
        writing = Writing(window_messages=2)
        writing.outbox.put(
            [publication("data", DATA_LANE), publication("answer", REPLY_LANE, ""), publication("a"), publication("b")]
        )
        writing.session.turn(0.0)
        assert writing.told() == ["a", "b"]
        assert writing.session.turn(1.0) > 1.0
        assert writing.told() == ["a", "b", "answer", "data"]
        assert writing.session.is_idle()

    def test_what_the_socket_has_not_taken_is_not_sent_yet(self):
        writing = Writing()
        writing.outbox.put([publication("a")])
        writing.session.turn(0.0)
        writing.connection.connection.transport.unsent_bytes = 1
        assert not writing.session.is_idle()

    def test_nothing_is_published_while_the_broker_is_blocked_or_the_socket_is_full(self):
        writing = Writing()
        writing.outbox.put([publication("a")])
        writing.state.block("out", "no memory")
        writing.session.turn(0.0)
        writing.state.unblock("out")
        writing.connection.connection.transport.unsent_bytes = 1
        writing.session.turn(0.0)
        assert writing.told() == []

    def test_silence_after_a_publication_ends_the_session_but_not_while_blocked(self):
        writing = Writing(confirm_timeout_s=30.0)
        writing.outbox.put([firm("a")])
        writing.session.turn(0.0)
        writing.state.block("out", "no memory")
        writing.session.turn(100.0)
        writing.state.unblock("out")
        assert writing.session.turn(129.0) == 130.0
        with pytest.raises(RecoverableConnectionError, match="does not confirm"):
            writing.session.turn(130.0)

    def test_a_refused_firm_message_is_published_again_a_second_later_and_others_are_counted(self, monkeypatch):
        monkeypatch.setattr("brokerha.transports.rabbitmq.writer.time.monotonic", lambda: 10.0)
        writing = Writing()
        writing.prove()
        writing.outbox.put([publication("firm", FIRM_LANE, "brokerha.rejected"), publication("bulk", BULK_LANE)])
        writing.session.turn(10.0)
        writing.session.turn(10.0)
        writing.channel.tell("basic_nack", 3, True)
        assert writing.session.turn(10.5) == 11.0
        assert writing.published() == ["first", "firm", "bulk"]
        writing.session.turn(11.0)
        assert writing.published() == ["first", "firm", "bulk", "firm"]
        assert writing.counters.read()["nacked"] == 2

    def test_firm_messages_survive_the_connection_and_others_do_not(self):
        writing = Writing()
        writing.prove()
        writing.outbox.put([publication(f"firm-{n}", FIRM_LANE) for n in range(2)])
        writing.session.turn(0.0)
        writing.outbox.put([publication("bulk", BULK_LANE), publication("reply", REPLY_LANE, "")])
        writing.session.turn(0.0)
        writing.session.end()
        writing.session = writing.connect()
        writing.prove()
        writing.session.turn(0.0)
        assert writing.published() == ["firm-0", "firm-1", "first"]
        counters = writing.counters.read()
        assert (counters["repeated"], counters["unconfirmed"]) == (2, 1)

    def test_what_a_firm_message_settles_is_settled_when_it_is_confirmed_and_not_before(self):
        writing = Writing()
        writing.outbox.put([publication("firm", FIRM_LANE, settles=ClientTag(1, 5))])
        writing.session.turn(0.0)
        assert writing.settled == []
        writing.channel.tell("basic_ack", 1, False)
        assert writing.settled == [ClientTag(1, 5)]

    def test_a_returned_rejected_message_ends_the_session_before_its_confirmation_counts(self):
        writing = Writing()
        writing.outbox.put([publication("firm", FIRM_LANE, "brokerha.rejected")])
        writing.session.turn(0.0)
        with pytest.raises(RecoverableConnectionError):
            writing.channel.tell("basic_return", Exception(), "brokerha.rejected", "", None)
        writing.session.end()
        assert len(writing.outbox) == 1

    def test_what_has_no_queue_behind_it_is_not_asked_back(self):
        writing = Writing()
        keys = ("answers", "amq.rabbitmq.reply-to.g1h2AA5")
        writing.channel.tell("basic_ack", 0, True)
        writing.outbox.put([Publication(REPLY_LANE, "", key, b"done", queued_s=1e12) for key in keys])
        writing.session.turn(0.0)
        asked = {given[2]: named["mandatory"] for name, given, named in writing.plain.calls if name == "basic_publish"}
        assert asked == {"answers": True, "amq.rabbitmq.reply-to.g1h2AA5": False}

    def test_answers_that_nobody_reads_are_counted(self):
        writing = Writing()
        writing.plain.tell("basic_return", Exception(), "", "gone", None)
        assert writing.counters.read() == {"returned_replies": 1}

    def test_messages_to_nodes_that_waited_too_long_for_a_connection_are_dropped(self):
        writing = Writing()
        writing.outbox.put([Publication(lane, "x", "k", b"", queued_s=-1e9) for lane in (SYNC_LANE, DATA_LANE, REPLY_LANE)])
        writing.connect()
        assert len(writing.outbox) == 1
        assert writing.counters.read()["stale"] == 2

    def test_a_message_that_amqp_cannot_carry_is_dropped_and_counted(self):
        writing = Writing()
        writing.prove()
        bad = publication("bad", REPLY_LANE, "", properties={"correlation_id": "unsendable"})
        writing.outbox.put([bad, publication("good", REPLY_LANE, "")])
        writing.session.turn(0.0)
        assert writing.told() == ["good"]
        assert writing.counters.read()["unsendable"] == 1


class Reading:
    """A reader session on a fake connection; its channels are control, sync, data, clients."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_first: bool = True, **limits: Any) -> None:
        monkeypatch.setattr("brokerha.transports.rabbitmq.reader.time.monotonic", lambda: 0.0)
        config = TransportConfig(**limits)
        self.inbox = Inbox({SYNC_LANE: config.inbox_sync, DATA_LANE: config.inbox_data})
        self.settled: list[ClientTag] = []
        self.counters = Counters()
        connection: Any = FakeConnection()
        topology = topology_of("m1", "master")
        self.doors = Doors(is_serving=True)
        self.connection = connection
        generations = iter(range(3, 100))
        self.session = ReaderSession(
            connection,
            lambda: next(generations),
            "m1",
            topology,
            self.inbox,
            self.settled,
            self.doors,
            Followed(10),
            config,
            self.counters,
            set(),
            Sightings(),
            is_first=is_first,
        )
        self.control, self.sync, self.data, self.clients = connection.channels

    def deliver(self, channel: FakeChannel, queue: str, tag: int, body: bytes = b"x") -> None:
        info = {"delivery_tag": tag, "exchange": "e", "redelivered": False}
        channel.consumers[queue]["callback"](SimpleNamespace(body=body, properties={}, delivery_info=info))


class TestReading:
    @pytest.mark.parametrize("is_first", [True, False])
    def test_a_connection_after_the_first_hears_nodes_before_queues_of_apps_are_answered_for(self, monkeypatch, is_first):
        reading = Reading(monkeypatch, is_first=is_first)
        declared = [named["queue"] for named in reading.control.named("queue_declare")]
        assert ("brokerha.writes.any" in declared) is is_first
        assert {"brokerha.m1.sync", "brokerha.m1.data"} <= set(declared)
        on_the_way = [named for named in reading.clients.named("queue_declare") if named["nowait"]]
        assert ("brokerha.writes.any" in [named["queue"] for named in on_the_way]) is not is_first
        assert {consumer["nowait"] for consumer in reading.clients.consumers.values()} == {not is_first}

    def test_shared_writes_are_consumed_only_while_their_door_is_open(self, monkeypatch):
        reading = Reading(monkeypatch)
        assert "brokerha.writes.any" in reading.clients.consumers
        reading.doors.is_sharing = False
        reading.session.turn(0.0)
        reading.session.turn(0.0)
        assert len(reading.clients.asked("basic_cancel")) == 1
        del reading.clients.consumers["brokerha.writes.any"]
        reading.doors.is_sharing = True
        reading.session.turn(0.0)
        assert "brokerha.writes.any" in reading.clients.consumers

    def test_closing_the_door_gives_back_what_was_not_settled_and_forgets_what_was_not_looked_at(self, monkeypatch):
        reading = Reading(monkeypatch)
        for tag in (1, 2):
            reading.deliver(reading.clients, "brokerha.m1.writes", tag)
        reading.session.turn(0.0)
        reading.deliver(reading.clients, "brokerha.m1.writes", 3)
        # Closed and opened again before the thread looks: what came before goes back all the same, unless it was settled
        reading.settled.extend([ClientTag(3, 2)])
        reading.doors.serve(False)
        reading.doors.serve(True)
        reading.session.turn(0.0)
        assert [call[:2] for call in reading.clients.calls[-2:]] == [("basic_ack", (2,)), ("leave", ())]
        assert reading.inbox.take(10) == []
        # The next messages come through another channel, and old tags mean nothing there
        channel = reading.connection.channels[-1]
        assert set(channel.consumers) == set(reading.clients.consumers)
        reading.deliver(channel, "brokerha.m1.writes", 1)
        reading.settled.extend([ClientTag(3, 1)])
        reading.session.turn(0.0)
        assert channel.asked("basic_ack") == []
        (arrival,) = reading.inbox.take(10)
        reading.settled.extend([arrival.tag])
        reading.session.turn(0.0)
        assert channel.asked("basic_ack") == [(1,)]

    def test_behind_a_closed_door_nothing_of_apps_is_consumed(self, monkeypatch):
        reading = Reading(monkeypatch)
        reading.doors.serve(False)
        reading.session.turn(0.0)
        channel = reading.connection.channels[-1]
        assert channel.consumers == {}
        reading.doors.serve(True)
        reading.session.turn(0.0)
        assert set(channel.consumers) == {"brokerha.writes.any", "brokerha.m1.writes", "brokerha.reads.any", "brokerha.m1.reads"}

    def test_whoever_began_last_is_served_first_where_a_queue_is_of_one_master(self, monkeypatch):
        reading = Reading(monkeypatch)
        own, shared = (reading.clients.consumers[name]["arguments"] for name in ("brokerha.m1.writes", "brokerha.writes.any"))
        assert own["x-priority"] > 0
        assert shared == {}

    def test_messages_of_nodes_are_acknowledged_together_after_a_while(self, monkeypatch):
        reading = Reading(monkeypatch)
        for tag in (1, 2, 3):
            reading.deliver(reading.sync, "brokerha.m1.sync", tag)
        due_s = reading.session.turn(0.0)
        assert len(reading.inbox.take(10)) == 3
        assert reading.sync.asked("basic_ack") == []
        assert due_s <= 1.0, "it asks to be served, though nothing comes"
        reading.session.turn(1.0)
        assert reading.sync.calls[-1] == ("basic_ack", (3,), {"multiple": True})
        reading.session.turn(3.0)
        assert len(reading.sync.asked("basic_ack")) == 1

    def test_messages_of_nodes_are_acknowledged_at_once_when_they_are_many_or_large(self, monkeypatch):
        reading = Reading(monkeypatch, prefetch_sync=80)
        for tag in range(1, 10):
            reading.deliver(reading.sync, "brokerha.m1.sync", tag)
        reading.session.turn(0.0)
        assert reading.sync.asked("basic_ack") == []
        reading.deliver(reading.sync, "brokerha.m1.sync", 10)
        reading.deliver(reading.data, "brokerha.m1.data", 1, b"x" * 1024 * 1024)
        reading.session.turn(0.0)
        assert (reading.sync.asked("basic_ack"), reading.data.asked("basic_ack")) == ([(10,)], [(1,)])

    def test_a_full_inbox_withholds_acknowledgements_of_its_lane_only(self, monkeypatch):
        reading = Reading(monkeypatch, inbox_data=LaneLimit(2, 1000), prefetch_data=8, prefetch_sync=8)
        for tag in (1, 2):
            reading.deliver(reading.data, "brokerha.m1.data", tag)
        reading.deliver(reading.sync, "brokerha.m1.sync", 1)
        reading.session.turn(0.0)
        assert (reading.data.asked("basic_ack"), reading.sync.asked("basic_ack")) == ([], [(1,)])
        reading.inbox.take(10)
        reading.session.turn(0.0)
        assert reading.data.asked("basic_ack") == [(2,)]

    def test_messages_of_apps_are_acknowledged_when_they_are_settled_and_only_on_their_connection(self, monkeypatch):
        reading = Reading(monkeypatch)
        for tag in (1, 2):
            reading.deliver(reading.clients, "brokerha.writes.any", tag)
        reading.session.turn(0.0)
        reading.settled.extend([ClientTag(2, 1), ClientTag(2, 2)])
        reading.session.turn(0.0)
        assert reading.clients.asked("basic_ack") == []
        reading.settled.extend([ClientTag(3, 1)])
        assert not reading.session.is_idle()
        reading.session.turn(0.0)
        assert reading.clients.asked("basic_ack") == [(1,)]
        assert reading.session.is_idle()

    def test_a_cancelled_consumer_ends_the_session(self, monkeypatch):
        reading = Reading(monkeypatch)
        with pytest.raises(ConsumerCancelled):
            reading.sync.consumers["brokerha.m1.sync"]["on_cancel"]("m1 reads brokerha.m1.sync")
        assert reading.counters.read() == {"cancelled": 1}

    def test_silence_and_time_are_reasons_to_declare_again(self, monkeypatch):
        reading = Reading(monkeypatch, redeclare_quiet_ms=1500, redeclare_every_ms=5000)
        before = len(reading.control.calls)
        # A silent inbox
        assert reading.session.turn(1.0) == 1.5
        assert len(reading.control.calls) == before
        reading.session.turn(1.5)
        assert len(reading.control.calls) > before
        # An inbox that hears something every second is declared again after five
        before = len(reading.control.calls)
        for second in (2, 3, 4, 5, 6):
            reading.deliver(reading.sync, "brokerha.m1.sync", second)
            reading.session.turn(float(second))
        assert len(reading.control.calls) == before
        reading.deliver(reading.sync, "brokerha.m1.sync", 7)
        reading.session.turn(6.5)
        assert len(reading.control.calls) > before
        assert all(call[2].get("nowait") for call in reading.control.calls[before:])

    def test_a_queue_of_apps_that_nobody_reads_by_two_looks_ends_the_session(self, monkeypatch):
        looks = Looks(monkeypatch)
        reading = Reading(monkeypatch, is_first=False, redeclare_quiet_ms=60_000, redeclare_every_ms=60_000)
        for look_s in LOOKS_S:
            reading.session.turn(look_s)
        # The first looks are at inboxes alone: a queue whose leader is down is read only after a while.
        assert looks.asked == sorted(reading.clients.consumers) * 4
        assert "brokerha.m1.writes" in looks.asked
        looks.on_counted("brokerha.m1.writes", 0)
        looks.on_counted("brokerha.m1.writes", 1)
        looks.on_counted("brokerha.m1.reads", 0)
        looks.on_counted("brokerha.m1.writes", 0)
        looks.on_counted("brokerha.tx.1", 0)
        with pytest.raises(ConsumerCancelled, match="writes"):
            looks.on_counted("brokerha.m1.writes", 0)

    def test_a_connection_after_the_first_looks_whether_its_inboxes_are_there_still(self, monkeypatch):
        Looks(monkeypatch)
        reading = Reading(monkeypatch, is_first=False, redeclare_quiet_ms=60_000, redeclare_every_ms=60_000)
        before = len(reading.control.calls)
        assert reading.session.turn(0.0) == LOOKS_S[0]
        for look_s in LOOKS_S:
            reading.session.turn(look_s)
        assert reading.session.turn(LOOKS_S[-1] + 1) > LOOKS_S[-1] + 1
        looked = reading.control.calls[before:]
        assert [call[2]["queue"] for call in looked] == ["brokerha.m1.sync", "brokerha.m1.data"] * len(LOOKS_S)
        assert all(call[2]["passive"] and call[2]["nowait"] for call in looked), (
            "it is asked, not made: a queue without its name ends in a crash"
        )

    def test_a_silent_inbox_is_a_reason_to_ask_whether_its_channel_is_served(self, monkeypatch):
        reading = Reading(monkeypatch, redeclare_quiet_ms=1500, answer_within_s=2.0)
        reading.session.turn(1.5)
        assert len(reading.sync.asked("ask")) == 1
        with pytest.raises(RecoverableConnectionError, match="does not answer on a channel"):
            reading.session.turn(3.5)
