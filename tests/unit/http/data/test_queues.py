"""Queues over HTTP: publishing, looking, taking for good."""

from __future__ import annotations

import asyncio

import msgpack
import pytest

from brokerha.model.errors import Aborted, NotReady
from tests.unit.http.asking import Node
from tests.unit.http.fake_front import FakeFront

TEXT = {"Content-Type": "text/plain"}


def test_a_message_is_published_with_its_content_type_and_named_after_its_transaction(node: Node) -> None:
    answer = node.ask("POST", "/queues/inbox", b"\xff1", {**TEXT, "Idempotency-Key": "k1"})

    assert answer.status == 201
    assert answer.json == {"txid": "k1", "id": "k1.1", "lsn": 1}
    assert (answer.headers["brokerha-tx"], answer.headers["brokerha-lsn"]) == ("k1", "1")
    assert node.front.queues == {"inbox": [("k1.1", "text/plain", b"\xff1")]}


def test_publishing_again_with_the_same_key_publishes_once(node: Node) -> None:
    for _ in range(2):
        node.ask("POST", "/queues/inbox", b"1", {"Idempotency-Key": "k1"})

    assert len(node.front.queues["inbox"]) == 1


def test_looking_takes_nothing_and_goes_on_after_a_message(node: Node) -> None:
    for body in (b"a", b"b", b"\xff"):
        node.ask("POST", "/queues/q", body, TEXT)

    first = node.get("/queues/q?limit=2").json["messages"]
    rest = node.get(f"/queues/q?after={first[1]['id']}").json["messages"]

    assert [message["body"] for message in first] == ["a", "b"]
    assert [message.get("body_base64") for message in rest] == ["/w=="]
    assert node.get("/queues").json == {"q": {"depth": 3, "published": 3, "accepted": 0}}


def test_as_many_messages_are_seen_as_are_asked_for(node: Node) -> None:
    body = msgpack.packb([("publish", "q", "text/plain", b"m")] * 1001)
    assert node.ask("POST", "/tx", body, {"Content-Type": "application/x-msgpack"}).status == 201

    assert len(node.get("/queues/q").json["messages"]) == 100
    assert len(node.get("/queues/q?limit=1001").json["messages"]) == 1001


def test_messages_can_be_had_as_msgpack(node: Node) -> None:
    node.ask("POST", "/queues/q", b"a", TEXT)

    answer = node.get("/queues/q", Accept="application/x-msgpack")

    assert msgpack.unpackb(answer.body)["messages"] == [["m1.1.1", "text/plain", b"a"]]


def test_taking_is_a_committed_transaction_of_its_own(node: Node) -> None:
    for body in (b"a", b"b", b"c"):
        node.ask("POST", "/queues/q", body, TEXT)

    answer = node.ask("POST", "/queues/q/accept?count=2")

    assert [message["body"] for message in answer.json["messages"]] == ["a", "b"]
    assert answer.json["lsn"] == 4
    assert [row[2] for row in node.front.queues["q"]] == [b"c"]
    assert not node.front.transactions.open


def test_taking_from_an_empty_queue_gives_nothing_and_leaves_nothing(node: Node) -> None:
    answer = node.ask("POST", "/queues/q/accept")

    assert (answer.status, answer.json) == (200, {"messages": []})
    assert not node.front.transactions.open
    assert not node.front.results


def test_a_caller_who_has_left_while_it_waited_takes_nothing(node: Node) -> None:
    node.ask("POST", "/queues/q", b"a", TEXT)

    asyncio.run(node.asked("POST", "/queues/q/accept?wait-s=5", [b""], {}, leaves=True))

    assert [row[2] for row in node.front.queues["q"]] == [b"a"]
    assert not node.front.transactions.open


def test_how_long_to_wait_for_a_message_is_told_to_the_node(node: Node) -> None:
    node.ask("POST", "/queues/q/accept?wait-s=2.5")

    waits = [arguments["wait_ms"] for action, _, arguments in node.front.transactions.calls if action == "accept"]
    assert 2400 <= waits[0] <= 2500


def test_messages_that_somebody_else_took_a_moment_earlier_are_left_to_them(node: Node, monkeypatch) -> None:
    node.ask("POST", "/queues/q", b"a", TEXT)
    transactions, commits = node.front.transactions, []
    commit = transactions._commit

    def once_too_late(front, txid, tx, arguments):
        commits.append(txid)
        if len(commits) == 1:
            transactions._end(txid, "aborted", 0, "taken")
            raise Aborted("message m1.1.1 is not in queue 'q'")
        return commit(front, txid, tx, arguments)

    monkeypatch.setattr(transactions, "_commit", once_too_late)

    assert node.ask("POST", "/queues/q/accept").json["messages"][0]["body"] == "a"
    assert len(set(commits)) == 2


def test_a_failure_before_the_commit_gives_the_messages_back(node: Node, monkeypatch) -> None:
    node.ask("POST", "/queues/q", b"a", TEXT)
    transactions = node.front.transactions
    accept = transactions._accept

    def fails_afterwards(front, txid, tx, arguments):
        accept(front, txid, tx, arguments)
        raise NotReady("no worker answers")

    monkeypatch.setattr(transactions, "_accept", fails_afterwards)

    assert node.ask("POST", "/queues/q/accept").status == 503
    assert not transactions.open
    assert len(node.front.queues["q"]) == 1


@pytest.mark.parametrize(
    ("method", "target", "status", "text"),
    [
        ("POST", "/queues/q/accept?wait-s=soon", 400, "wait-s is a number"),
        ("POST", "/queues/q/accept?wait-s=3601", 400, "wait-s is a number"),
        ("POST", "/queues/q/accept?count=x", 400, "count"),
        ("GET", "/queues/q?limit=-1", 400, "limit"),
        ("GET", "/queues/q?limit=0", 400, "limit"),
        ("GET", "/queues/q?limit=1000001", 400, "limit"),
        ("GET", "/kv/q?limit=0", 400, "limit"),
        ("DELETE", "/queues/q", 405, "use GET, HEAD, POST"),
    ],
)
def test_bad_input_is_named(node: Node, method, target, status, text) -> None:
    answer = node.ask(method, target)

    assert answer.status == status
    assert text in answer.text


def test_a_format_that_messages_do_not_have_is_refused_before_any_is_taken(node: Node) -> None:
    node.ask("POST", "/queues/q", b"a", TEXT)

    assert node.ask("POST", "/queues/q/accept", Accept="text/csv").status == 406
    assert not node.front.transactions.calls


def test_a_level_that_does_not_exist_is_refused_before_any_is_taken(node: Node) -> None:
    node.ask("POST", "/queues/q", b"a", TEXT)

    assert node.ask("POST", "/queues/q/accept", Brokerha_Ack="soon").status == 400
    assert not node.front.transactions.open


def test_a_key_that_would_not_keep_a_second_accept_from_taking_more_is_refused(node: Node) -> None:
    node.ask("POST", "/queues/q", b"a", TEXT)

    answer = node.ask("POST", "/queues/q/accept", Idempotency_Key="mine")
    assert (answer.status, "takes no Idempotency-Key" in answer.text) == (400, True)
    assert not node.front.transactions.calls


def test_a_worker_shows_queues_and_takes_nothing() -> None:
    node = Node(FakeFront(role="worker", node_id="w1"))

    assert node.get("/queues/q").json == {"messages": []}
    assert {node.ask("POST", path).status for path in ("/queues/q", "/queues/q/accept")} == {503}
