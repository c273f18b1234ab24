"""Who may say what: the user that published a message between nodes has to be that of the node which it names."""

from __future__ import annotations

import msgpack
import pytest
from structlog.testing import capture_logs

from brokerha.model.wire.client_wire import decode_answer
from brokerha.model.wire.codec import WIRE_VERSION, encode_envelope
from brokerha.model.wire.messages import Progress
from brokerha.ports.transport import ClientReply, Problem
from brokerha.transports import kombu_transport
from brokerha.transports.kombu_transport import KombuTransport
from brokerha.transports.lanes import SYNC_LANE, Arrival, ClientTag, Publication
from brokerha.transports.rights import (
    FOREIGN_USER,
    NO_USER,
    TOLD_AGAIN_S,
    TOLD_LIMIT,
    Foreigners,
    Senders,
    of_another_user,
    of_another_version,
)

PROCESSES = {"m1": ("m1", "m1s"), "m2": ("m2",), "w1": ("w1",)}
NAMED = Senders("orders", "m1", "orders.m1", PROCESSES)


@pytest.mark.parametrize(
    ("sender", "user", "process", "word"),
    [
        ("m2", "orders.m2", "", None),
        ("w1", "orders.w1", "", None),
        # A process speaks for its master
        ("m1", "orders.m1s", "m1s", None),
        ("m2", "", "", NO_USER),
        ("m2", "orders.app", "", FOREIGN_USER),
        ("m2", "orders.m3", "", FOREIGN_USER),
        ("m2", "m2", "", FOREIGN_USER),
        ("m2", "stock.m2", "", FOREIGN_USER),
        # But nobody else does, whoever it says that it is
        ("m2", "orders.w1", "w1", FOREIGN_USER),
        ("m1", "orders.m1", "m1s", FOREIGN_USER),
        ("m1", "", "m1s", NO_USER),
        # Of a master that was added at run time the processes are not known here
        ("m4", "orders.m4s", "m4s", None),
        ("m4", "orders.m4", "m4s", FOREIGN_USER),
        # But others are
        ("m4", "orders.w1", "w1", FOREIGN_USER),
        ("m4", "orders.m1s", "m1s", FOREIGN_USER),
    ],
)
def test_a_message_is_of_the_node_whose_user_published_it(sender: str, user: str, process: str, word: str | None) -> None:
    problem = NAMED.problem(sender, user, process)
    assert (problem and problem[0]) == word


def test_where_nodes_have_no_users_of_their_own_nothing_can_be_told_apart() -> None:
    shared = Senders("orders", "m1", "guest", PROCESSES)
    assert not shared.is_checked
    assert shared.problem("m2", "") is shared.problem("m2", "guest") is shared.problem("m2", "orders.app", "w1") is None


def test_the_reason_names_the_user_that_it_should_have_been() -> None:
    problem = NAMED.problem("m2", "orders.app")
    assert problem is not None
    assert problem[1] == "it says that it is of m2, and user orders.app published it, not orders.m2"


class Link:
    """Has what arrives, and takes what is published."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.published: list[Publication] = []

    def take(self, _limit: int, _timeout_s: float) -> list[Arrival]:
        taken, self.arrivals = self.arrivals, []
        return taken

    def publish(self, publications: list[Publication]) -> None:
        self.published += publications

    def most_bytes(self) -> int:
        return 100

    def hear(self, _node: str) -> None: ...

    def state(self) -> tuple[str, Problem]:
        return "connected", Problem("", "")

    def waiting(self) -> int:
        return 0


def test_a_worker_that_comes_with_the_user_of_another_node_is_named_in_log_and_status(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link()
    monkeypatch.setattr(kombu_transport, "LoopLink", lambda *_: link)
    wire = KombuTransport("amqp://orders.m1:secret@127.0.0.1:1/", "orders", "m1", 1, "master", None, "", PROCESSES)

    def hear(user: str) -> int:
        body = encode_envelope("orders", "w9", 1, Progress("j", 0, "f", 0, "on"))
        link.arrivals.append(Arrival(SYNC_LANE, ClientTag(1, 1), body, {"user_id": user}, "brokerha.sync", False))
        return len(wire.receive(10, 0))

    # Given a worker that was started with the address of another one: what it says is of no use
    with capture_logs() as lines:
        assert [hear("orders.w1") for _ in range(100)] == [0] * 100
    # Then the log says it once, with both users, and what to do
    (line,) = lines
    reason = "it says that it is of w9, and user orders.w1 published it, not orders.w9"
    assert (line["event"], line["log_level"], line["node"], line["sender"]) == ("messages set aside", "warning", "m1", "w9")
    assert line["reason"] == reason
    assert line["action"].startswith("start w9 with its own user of the broker")
    assert wire.status().set_aside == {"w9": of_another_user("w9", reason)}
    # And nothing of it any more once it comes with its own
    assert hear("orders.w9") == 1
    assert wire.status().set_aside == {}


def test_an_answer_that_the_broker_would_not_take_is_refused_and_the_others_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link()
    monkeypatch.setattr(kombu_transport, "LoopLink", lambda *_: link)
    wire = KombuTransport("amqp://127.0.0.1:1/", "orders", "m1", 1, "master")
    wire.reply([ClientReply("app", "1", b"a" * 101, "answer"), ClientReply("app", "2", b"b" * 100, "answer")])
    refused, sent = link.published
    answer = decode_answer(refused.body)
    assert answer["error"] == "TooLarge"
    assert answer["reason"] == "the answer has 101 bytes, and this broker takes messages of 100: ask for less, or over HTTP"
    assert sent.body == b"b" * 100


def test_a_node_of_another_version_is_named_in_log_and_status(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link()
    monkeypatch.setattr(kombu_transport, "LoopLink", lambda *_: link)
    wire = KombuTransport("amqp://orders.m1:secret@127.0.0.1:1/", "orders", "m1", 1, "master", None, "", PROCESSES)

    def hear(version: int, cluster: str = "orders") -> int:
        values = msgpack.unpackb(encode_envelope(cluster, "w1", 1, Progress("j", 0, "f", 0, "on")))
        body = msgpack.packb([version, *values[1:]])
        link.arrivals.append(Arrival(SYNC_LANE, ClientTag(1, 1), body, {"user_id": "orders.w1"}, "brokerha.sync", False))
        return len(wire.receive(10, 0))

    # Given a worker that speaks a later version, and one of another cluster that does
    with capture_logs() as lines:
        assert [hear(WIRE_VERSION + 1), hear(WIRE_VERSION + 1), hear(WIRE_VERSION + 1, "shop")] == [0, 0, 0]
    # Then log and status name the one that is of this cluster, what its version is, and what to do
    (line,) = lines
    reason = f"'w1' runs another version of brokerha: its messages have version {WIRE_VERSION + 1}, here {WIRE_VERSION}"
    assert (line["event"], line["sender"], line["reason"]) == ("messages set aside", "w1", reason)
    assert line["action"] == "start all nodes with the same version of brokerha"
    assert wire.status().set_aside == {"w1": of_another_version(reason)}
    # And nothing of it any more once it runs the version of this node
    assert hear(WIRE_VERSION) == 1
    assert wire.status().set_aside == {}


def test_it_is_told_again_after_a_while_and_never_of_more_nodes_than_a_log_can_bear() -> None:
    foreigners = Foreigners("m1")
    with capture_logs() as lines:
        for now_s in (0.0, 1.0, TOLD_AGAIN_S, TOLD_AGAIN_S + 1):
            for number in range(2 * TOLD_LIMIT):
                foreigners.note(f"w{number}", Problem("why", "what"), now_s)
    assert len(lines) == 2 * TOLD_LIMIT
    assert len(foreigners.reasons()) == TOLD_LIMIT
    # And when it came right between, and wrong again, it is told no sooner
    foreigners.hear("w1")
    with capture_logs() as lines:
        foreigners.note("w1", Problem("why", "what"), TOLD_AGAIN_S + 2)
    assert not lines
    assert foreigners.reasons()["w1"] == Problem("why", "what")
