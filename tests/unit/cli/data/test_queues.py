"""`brokerha publish | consume`: what reaches the client, what is written, and what is left in the queue."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any, NamedTuple, Self

import pytest

from brokerha.cli.data import read_write
from brokerha.client.reads import QueueMessage
from brokerha.model.errors import TooLarge

URL = ("--url", "http://127.0.0.1:7201")
ONE = QueueMessage("t1.1", "text/plain", b"one")
TWO = QueueMessage("t2.1", "application/octet-stream", b"\x00\xff")


class Written(NamedTuple):
    txid: str = "t1"
    lsn: int = 7
    level: str = "applied"


def test_a_message_is_published_from_a_file_from_text_and_from_standard_input(run, cluster, tmp_path, monkeypatch):
    (tmp_path / "m.bin").write_bytes(b"\x00file")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"typed")))
    client = cluster(publish=Written())

    ran = run("publish", "inbox", "m.bin", "--content-type", "text/plain", *URL)
    run("publish", "inbox", "-", *URL)
    run("publish", "inbox", "--text", "said", *URL)

    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction t1\n")
    sent = [call[1:4] for call in client.calls if call[0] == "publish"]
    octets = "application/octet-stream"
    assert sent == [("inbox", b"\x00file", "text/plain"), ("inbox", b"typed", octets), ("inbox", b"said", octets)]


@pytest.mark.parametrize("given", ["m.bin", "-"])
def test_a_long_message_is_published_in_pieces(run, cluster, tmp_path, monkeypatch, given):
    monkeypatch.setattr(read_write, "WHOLE_BYTES", 1000)
    body = bytes(range(250)) * 10
    (tmp_path / "m.bin").write_bytes(body)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    read: list[bytes] = []

    class Large:
        written = Written()

        def publish(self, queue: str, content: Any, content_type: str) -> None:
            read.extend(iter(lambda: content.read(700), b""))

    cluster(large_transaction=lambda **_: contextlib.nullcontext(Large()))
    ran = run("publish", "inbox", given, *URL)
    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction t1\n")
    assert b"".join(read) == body


def test_a_body_in_place_of_its_file_is_told_the_option(run, cluster):
    ran = run("publish", "orders", "hello", *URL)
    assert ran.code == 64
    assert "hello cannot be read: No such file or directory; for the body itself write --text" in ran.err


def test_a_long_message_cannot_be_refused_at_once(run, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(read_write, "WHOLE_BYTES", 1000)
    (tmp_path / "m.bin").write_bytes(bytes(2000))
    cluster()
    ran = run("publish", "inbox", "m.bin", "--apart", "refuse", *URL)
    assert ran.code == 64
    assert "--apart refuse is for messages below 1000 bytes" in ran.err


def test_looking_at_a_long_message_shows_its_body(run, cluster):
    long = QueueMessage("t1.1", "video/mp4", b"", 6)
    cluster(queue=[[long]], message_body=lambda _queue, _id: iter([b"abc", b"def"]))
    assert run("consume", "inbox", "--peek", *URL).out == "abcdef"


@pytest.mark.parametrize("given", [(), ("m.bin", "--text", "said")])
def test_a_message_is_given_in_one_way(run, cluster, given):
    client = cluster(publish=Written())
    ran = run("publish", "inbox", *given, *URL)
    assert (ran.code, client.calls) == (64, [])
    assert "write FILE, - for standard input, or --text TEXT" in ran.err


def test_a_line_of_text_is_never_standard_input(run, cluster):
    client = cluster(publish=Written())
    run("publish", "inbox", "--text", "-", *URL)
    assert [call[2] for call in client.calls if call[0] == "publish"] == [b"-"]


def test_what_was_published_is_told_as_json(run, cluster):
    cluster(publish=Written(lsn=0, level="accepted"))

    assert json.loads(run("publish", "q", "--text", "x", "-o", "json", *URL).out) == {
        "txid": "t1",
        "lsn": None,
        "level": "accepted",
    }


def test_messages_are_consumed_as_they_are(run, cluster):
    client = cluster(consume=lambda _queue: iter([ONE, ONE]))

    ran = run("consume", "inbox", "--count", "2", "--wait", "1.5", *URL)

    assert (ran.code, ran.out) == (0, "oneone")
    assert ("consume", "inbox", {"count": 2, "wait": 1.5}) in client.calls


def test_json_has_one_object_for_each_message_and_base64_where_it_is_no_text(run, cluster):
    cluster(consume=lambda _queue: iter([ONE, TWO]))

    lines = [json.loads(line) for line in run("consume", "q", "--count", "2", "-o", "json", *URL).out.splitlines()]

    assert lines == [
        {"id": "t1.1", "content_type": "text/plain", "encoding": "utf-8", "body": "one"},
        {"id": "t2.1", "content_type": "application/octet-stream", "encoding": "base64", "body": "AP8="},
    ]


def test_tsv_has_one_head(run, cluster):
    cluster(consume=lambda _queue: iter([ONE, TWO]))

    out = run("consume", "q", "--count", "2", "-o", "tsv", *URL).out

    assert out.splitlines()[0] == "id\tcontent_type\tencoding\tbody"
    assert len(out.splitlines()) == 3


def test_peeking_takes_nothing(run, cluster):
    client = cluster(queue=[[ONE]])

    assert run("consume", "q", "--peek", "--count", "3", *URL).out == "one"
    assert [call[0] for call in client.calls] == ["connect", "queue", "close"]


@pytest.mark.parametrize("arguments", [(), ("--peek",)])
def test_an_empty_queue_is_exit_code_2(run, cluster, arguments):
    nothing: list[Any] = []
    cluster(consume=lambda _queue: iter(nothing), queue=[nothing])

    ran = run("consume", "q", *arguments, *URL)

    assert (ran.code, ran.out) == (2, "")
    assert "queue q" in ran.err


def test_queues_are_listed_with_their_lengths(run, cluster):
    cluster(queues={"orders": {"depth": 2, "published": 5, "accepted": 3}, "done": {"depth": 0, "published": 1, "accepted": 1}})

    assert json.loads(run("queue", "list", "-o", "json", *URL).out)["queues"][0] == {
        "queue": "done", "depth": 0, "published": 1, "accepted": 1,
    }  # fmt: skip
    assert run("queue", "list", "-o", "tsv", *URL).out.splitlines()[2] == "orders\t2\t5\t3"


class Taking:
    """Transactions on a queue of so many messages, of which one answer holds at most three."""

    def __init__(self, messages: int) -> None:
        self.messages, self.counts = messages, list[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def accept(self, _queue: str, count: int, *, bodies: bool) -> list[QueueMessage]:
        assert not bodies
        if count > 3:
            raise TooLarge("the answer is too large")
        self.counts.append(count)
        found = min(count, self.messages)
        self.messages -= found
        return [ONE] * found


@pytest.mark.parametrize(("there", "taken"), [(7, 7), (5, 5), (20, 7)])
def test_a_queue_is_cleared_of_what_is_in_it_now(run, cluster, there, taken):
    taking = Taking(there)
    cluster(queues={"q": {"depth": 7, "published": 7, "accepted": 0}}, transaction=lambda: taking)

    ran = run("queue", "clear", "q", "--yes", *URL)

    assert (ran.code, ran.out) == (0, f"queue q: {taken} messages taken\n")
    assert taking.messages == there - taken


def test_a_queue_without_messages_is_cleared_without_a_question(run, cluster):
    cluster(queues={})

    assert run("queue", "clear", "q", *URL).out == "queue q: 0 messages taken\n"
