"""What every transport must do, whatever is behind it: the promises of ports/transport.py, one test each.

A test class derives from `TransportContract` and gives a `world` fixture; test_transports.py has one for each adapter.
Nothing here asserts how long something takes: each wait ends when what it waits for is there, or fails after
`PATIENCE_S`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from brokerha.model.requests import Absence
from brokerha.model.wire.codec import encode_envelope
from brokerha.model.wire.messages import Bodies, Envelope, Fetch, Outgoing
from brokerha.ports.transport import ClientMessage, ClientReply, Inbound, Transport
from brokerha.transports.kombu_transport import SMALL_BYTES

PATIENCE_S = 20.0


def settle_all(closed: Transport, opened: Transport, world: World) -> None:
    """Wait until shared writes come to ``opened`` only: several in a row."""
    deadline, in_a_row = time.monotonic() + PATIENCE_S, 0
    while in_a_row < 4:
        assert time.monotonic() < deadline, "shared writes still come to a master that takes none"
        world.publish("brokerha.writes", "any", b"probe")
        found = opened.receive(10, 200)
        in_a_row = in_a_row + 1 if found else 0
        opened.settle([message for message in found if isinstance(message, ClientMessage)])
        closed.settle([message for message in closed.receive(10, 0) if isinstance(message, ClientMessage)])


class World(Protocol):
    """One broker, however it is made, with nodes on it and an app beside them."""

    def node(self, name: str, role: str = "master", master: str = "", **limits: Any) -> Transport:
        """Connect a node of the cluster ``orders``, and wait until it is connected; it is closed after the test."""

    def refusal(self, name: str, cluster: str) -> str:
        """Why a node of another cluster does not start."""

    def tx_queues(self) -> list[str]:
        """Queues of transactions that are there now."""

    def publish(self, exchange: str, key: str, body: bytes, **properties: Any) -> bool:
        """Publish as an app does; whether the message found a queue."""

    def make_queue(self, name: str) -> None:
        """A queue of the app's own."""

    def get(self, queue: str) -> tuple[bytes, dict[str, Any]] | None:
        """The oldest message of a queue with its properties, waiting for it; None when none comes."""


def fetch(text: str) -> Fetch:
    """A small message of the sync channel."""
    return Fetch((("m1", text),))


def bodies(text: str, body: bytes = b"") -> Bodies:
    """A message of the data channel."""
    return Bodies((("m1", text, body),))


def text_of(message: Inbound) -> str:
    """What `fetch` or `bodies` was made with."""
    assert isinstance(message, Envelope)
    inner = message.message
    if isinstance(inner, Fetch):
        return inner.wanted[0][1]
    assert isinstance(inner, Bodies)
    return inner.items[0][1]


def take(transport: Transport, count: int, limit: int = 100) -> list[Any]:
    """Receive until ``count`` messages are there."""
    taken: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(taken) < count and time.monotonic() < deadline:
        taken += transport.receive(limit, 200)
    assert len(taken) == count, f"{len(taken)} of {count} messages came: {transport.status()}"
    return taken


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Look again and again until something is so; the transports have no event for what a status says."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        threading.Event().wait(0.01)


def count_of(transport: Transport, counter: str) -> int:
    """One counter."""
    return transport.status().counters.get(counter, 0)


class TransportContract:
    """The promises that hold for every adapter."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError

    def test_a_message_arrives_with_its_cluster_sender_and_incarnation(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        sender.send([Outgoing("m2", fetch("t-1"))])
        assert take(receiver, 1) == [Envelope("orders", "m1", 7, fetch("t-1"))]

    def test_messages_of_one_sender_and_channel_keep_their_order(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        for n in range(0, 2000, 50):
            sender.send([Outgoing("m2", fetch(str(i))) for i in range(n, n + 50)])
        assert [text_of(message) for message in take(receiver, 2000)] == [str(i) for i in range(2000)]

    def test_sync_messages_are_handed_out_before_data_messages_that_came_earlier(self, world: World):
        # Given much data that was not taken, of which few come at a time, and then a sync message
        sender, receiver = world.node("m1"), world.node("m2", prefetch_data=4)
        sender.send([Outgoing("m2", bodies(f"data-{n}", bytes(SMALL_BYTES))) for n in range(100)])
        sender.send([Outgoing("m2", fetch("sync"))])
        wait_until(lambda: sender.status().outbox == 0, "everything is published")
        # When one message after the other is taken, then sync waits for at most what was taken before it arrived
        texts = [text_of(message) for message in take(receiver, 101, limit=1)]
        assert set(texts) == {"sync", *(f"data-{n}" for n in range(100))}
        assert texts.index("sync") < 100

    def test_small_bodies_arrive_in_front_of_the_post_that_was_sent_after_them(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        for n in range(50):
            sender.send([Outgoing("m2", bodies(f"body-{n}")), Outgoing("m2", fetch(f"post-{n}"))])
        texts = [text_of(message) for message in take(receiver, 100)]
        assert texts == [text for n in range(50) for text in (f"body-{n}", f"post-{n}")]

    def test_a_large_message_arrives_whole(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        body = bytes(range(256)) * 12_000
        sender.send([Outgoing("m2", bodies("large", body))])
        (message,) = take(receiver, 1)
        assert message.message.items[0][2] == body

    def test_receive_returns_nothing_when_its_time_is_over(self, world: World):
        assert world.node("m1").receive(10, 1) == []

    def test_receive_returns_at_most_what_was_asked_for(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        sender.send([Outgoing("m2", fetch(str(n))) for n in range(5)])
        wait_until(lambda: sender.status().outbox == 0, "everything is published")
        rounds: list[int] = []
        while sum(rounds) < 5:
            rounds.append(len(receiver.receive(2, 200)))
        assert max(rounds) <= 2

    def test_wake_from_another_thread_ends_a_receive_that_waits(self, world: World):
        transport = world.node("m1")
        began, ended = threading.Event(), threading.Event()

        def wait() -> None:
            began.set()
            transport.receive(10, int(PATIENCE_S * 1000))
            ended.set()

        thread = threading.Thread(target=wait, daemon=True)
        started_s = time.monotonic()
        thread.start()
        began.wait(PATIENCE_S)
        transport.wake()
        assert ended.wait(PATIENCE_S)
        assert time.monotonic() - started_s < PATIENCE_S / 2, "it was the time-out that ended it"

    def test_a_wake_before_receive_is_not_lost(self, world: World):
        transport = world.node("m1")
        transport.wake()
        started_s = time.monotonic()
        transport.receive(10, int(PATIENCE_S * 1000))
        assert time.monotonic() - started_s < PATIENCE_S / 2

    def test_a_message_to_a_node_that_does_not_exist_disturbs_nobody(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        sender.send([Outgoing("nobody", fetch("lost")), Outgoing("m2", fetch("t-1"))])
        assert text_of(take(receiver, 1)[0]) == "t-1"

    def test_what_goes_to_several_nodes_is_published_once_and_each_gets_it_in_its_order(self, world: World):
        sender, receivers = world.node("m1"), [world.node("m2"), world.node("m3")]
        both, before = fetch("both"), fetch("before")
        # m3 gets another message first, so it has to wait for a publication after that one.
        outgoing = [
            Outgoing("m2", both),
            Outgoing("m3", before),
            Outgoing("m3", both),
            Outgoing("nobody", both),
            Outgoing("m2", both),
        ]
        others = [fetch(str(n)) for n in range(100)]
        sender.send(outgoing)
        for each in others:
            sender.send([Outgoing(to, each) for to in ("m3", "nobody", "m2")])
        texts = [str(n) for n in range(100)]
        assert [text_of(each) for each in take(receivers[0], 102)] == ["both", "both", *texts]
        assert [text_of(each) for each in take(receivers[1], 102)] == ["before", "both", *texts]
        wait_until(lambda: sender.status().outbox == 0, "everything is published")
        assert count_of(sender, "sent") == 3 + 100

    def test_an_inbox_that_was_there_and_is_gone_says_that_its_master_is_gone(self, world: World):
        asking, gone, there = world.node("m1"), world.node("m2"), world.node("m3")
        # Whose message came is looked for by the way: nobody asks while all is well.
        for each in (gone, there):
            each.send([Outgoing("m1", fetch("here"))])
        take(asking, 2)
        assert asking.receive(10, 300) == []
        gone.close(1000)
        asking.look(["m2", "m3"])
        assert take(asking, 1) == [Absence("m2")]
        assert asking.receive(10, 200) == []

    def test_an_inbox_that_is_not_there_says_nothing_and_others_are_asked_again(self, world: World):
        asking, gone = world.node("m1"), world.node("m2")
        asking.look(["m2"])
        assert asking.receive(10, 300) == []
        gone.close(1000)
        asking.look(["nobody"])
        assert asking.receive(10, 200) == []
        asking.look(["m2"])
        assert take(asking, 1) == [Absence("m2")]

    def test_messages_of_another_cluster_are_counted_and_left_out(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        assert world.publish("brokerha.sync", "m2", encode_envelope("other", "m9", 1, fetch("foreign")))
        sender.send([Outgoing("m2", fetch("ours"))])
        assert [text_of(message) for message in take(receiver, 1)] == ["ours"]
        assert count_of(receiver, "foreign_cluster") == 1

    def test_a_node_of_another_cluster_is_refused_and_leaves_nothing_behind(self, world: World):
        ours = world.node("m1")
        told = world.refusal("m9", cluster="other")
        assert "belongs to the cluster orders, and this is other" in told
        for exchange in ("brokerha.sync", "brokerha.data", "brokerha.writes", "brokerha.reads"):
            assert not world.publish(exchange, "m9", b"")
        for n in range(3):
            assert world.publish("brokerha.writes", "any", str(n).encode())
        assert [message.body for message in take(ours, 3)] == [b"0", b"1", b"2"]

    @pytest.mark.parametrize("body", [b"", b"hello", b"\xc1", b"\x95\x01\xa6orders\xa2m1\x07\x63", b"\xdd\xff\xff\xff\xff"])
    def test_bytes_that_are_no_message_are_counted_and_left_out(self, world: World, body: bytes):
        sender, receiver = world.node("m1"), world.node("m2")
        assert world.publish("brokerha.sync", "m2", body)
        sender.send([Outgoing("m2", fetch("ours"))])
        assert [text_of(message) for message in take(receiver, 1)] == ["ours"]
        assert count_of(receiver, "undecodable") == 1

    def test_a_message_of_an_app_keeps_all_that_it_came_with(self, world: World):
        master = world.node("m1")
        assert world.publish(
            "brokerha.writes",
            "any",
            b"INSERT",
            content_type="application/sparql-update",
            message_id="order-1",
            correlation_id="c-1",
            reply_to="answers",
            application_headers={"repository": "main", "number": 5},
        )
        (message,) = take(master, 1)
        assert isinstance(message, ClientMessage)
        assert (message.body, message.content_type) == (b"INSERT", "application/sparql-update")
        assert (message.message_id, message.correlation_id, message.reply_to) == ("order-1", "c-1", "answers")
        assert (message.exchange, message.redelivered) == ("brokerha.writes", False)
        assert message.headers == {"repository": "main", "number": 5}

    def test_messages_of_apps_that_were_not_settled_come_again_in_their_order_and_marked(self, world: World):
        # Given three writes, of which the second was settled
        master = world.node("m1")
        for name in (b"first", b"second", b"third"):
            world.publish("brokerha.writes", "m1", name)
        messages = {message.body: message for message in take(master, 3)}
        master.settle([messages[b"second"]])
        # When the node goes away and comes back
        master.close()
        again = take(world.node("m1"), 2)
        # Then the other two are there
        assert [(message.body, message.redelivered) for message in again] == [(b"first", True), (b"third", True)]

    def test_settling_twice_or_late_harms_nobody(self, world: World):
        master = world.node("m1")
        world.publish("brokerha.writes", "m1", b"one")
        (message,) = take(master, 1)
        master.settle([message, message])
        master.settle([message])
        world.publish("brokerha.writes", "m1", b"two")
        assert take(master, 1)[0].body == b"two"

    def test_writes_for_any_master_reach_one_master_each(self, world: World):
        masters = [world.node("m1"), world.node("m2")]
        for n in range(20):
            assert world.publish("brokerha.writes", "any", str(n).encode())
        bodies_taken: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(bodies_taken) < 20 and time.monotonic() < deadline:
            for master in masters:
                messages = master.receive(5, 50)
                bodies_taken += [message.body for message in messages if isinstance(message, ClientMessage)]
        assert sorted(map(int, bodies_taken)) == list(range(20))

    def test_a_master_that_takes_no_shared_writes_leaves_them_to_the_others_and_still_takes_its_own(self, world: World):
        one, other = world.node("m1"), world.node("m2")
        one.serve_shared(is_open=False)
        # What was on its way is still received; then nothing of it comes any more.
        settle_all(one, other, world)
        for number in range(10):
            world.publish("brokerha.writes", "any", b"%d" % number)
        other.settle(take(other, 10))
        world.publish("brokerha.writes", "m1", b"own")
        assert [message.body for message in take(one, 1)] == [b"own"]
        one.serve_shared(is_open=True)
        other.serve_shared(is_open=False)
        settle_all(other, one, world)
        world.publish("brokerha.writes", "any", b"again")
        assert [message.body for message in take(one, 1)] == [b"again"]

    def test_workers_take_no_writes(self, world: World):
        world.node("w1", role="worker")
        assert not world.publish("brokerha.writes", "w1", b"lost")

    def test_reads_of_apps_arrive_with_their_exchange(self, world: World):
        master = world.node("m1")
        world.publish("brokerha.reads", "any", b"ask")
        assert take(master, 1)[0].exchange == "brokerha.reads"

    def test_a_rejected_message_is_kept_with_its_reason_and_does_not_come_again(self, world: World):
        master = world.node("m1")
        world.publish("brokerha.writes", "m1", b"poison", message_id="p-1", content_type="text/plain")
        master.reject(take(master, 1)[0], "not understood")
        kept = world.get("brokerha.rejected")
        assert kept is not None
        body, properties = kept
        assert (body, properties["message_id"], properties["content_type"]) == (b"poison", "p-1", "text/plain")
        assert properties["application_headers"]["brokerha-reason"] == "not understood"
        wait_until(lambda: master.status().outbox == 0, "it is published")
        master.close()
        assert world.node("m1").receive(10, 300) == []

    def test_a_reply_reaches_the_queue_that_the_app_named(self, world: World):
        world.make_queue("answers")
        master = world.node("m1")
        master.reply([ClientReply("answers", "c-1", b"done", "application/x-msgpack", {"lsn": 7})])
        reply = world.get("answers")
        assert reply is not None
        body, properties = reply
        assert (body, properties["correlation_id"], properties["content_type"]) == (b"done", "c-1", "application/x-msgpack")
        assert properties["application_headers"] == {"lsn": 7}

    def test_a_reply_to_an_app_that_is_gone_is_counted(self, world: World):
        master = world.node("m1")
        master.reply([ClientReply("nobody", "c-1", b"done", "text/plain"), ClientReply("", "", b"", "")])
        wait_until(lambda: count_of(master, "returned_replies") == 1, "the reply is returned")

    def test_close_can_be_called_again(self, world: World):
        transport = world.node("m1")
        transport.close()
        transport.close()

    def test_close_publishes_what_waits(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        sender.send([Outgoing("m2", fetch(str(n))) for n in range(500)])
        sender.close()
        assert len(take(receiver, 500)) == 500
