"""Messages that are longer than a transaction, over a real door with a real copy."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import msgpack
import pytest

from brokerha.http.data import queues
from brokerha.http.door import passing
from brokerha.http.door.answer import Answer
from brokerha.model.reserved.staging import TABLE

BODY = bytes(range(256)) * 40
LONG_BYTES = 16 << 20
LATEST = {"Brokerha-Min-Lsn": "latest"}
VIDEO = {"Content-Type": "video/mp4"}


@pytest.fixture
def http(on_site: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> httpx2.Client:
    monkeypatch.setattr(passing, "BODY_LIMIT_BYTES", 5_000)
    monkeypatch.setattr(queues, "PIECE_BYTES", 1_000)
    return on_site


def staged(http: httpx2.Client) -> int:
    return len(http.get(f"/kv/{TABLE}", headers={**LATEST, "Accept": "application/json"}).json())


def listed(http: httpx2.Client) -> list[dict[str, object]]:
    found: list[dict[str, object]] = http.get("/queues/inbox", headers={**LATEST, "Accept": "application/json"}).json()["messages"]
    return found


def publish(http: httpx2.Client, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.post("/queues/inbox", content=BODY, headers={**VIDEO, **named})


def test_a_long_body_is_one_message_which_can_be_had_again_as_it_is(http: httpx2.Client) -> None:
    answer = publish(http)
    assert answer.status_code == 201, answer.text
    message_id = answer.json()["id"]
    assert listed(http) == [{"id": message_id, "content_type": "video/mp4", "size": len(BODY)}]
    got = http.get(f"/queues/inbox/{message_id}", headers=LATEST)
    assert (got.status_code, got.content, got.headers["content-type"], int(got.headers["content-length"])) == (
        200,
        BODY,
        "video/mp4",
        len(BODY),
    )
    head = http.head(f"/queues/inbox/{message_id}")
    assert (head.status_code, head.content, int(head.headers["content-length"])) == (200, b"", len(BODY))
    piece = msgpack.unpackb(http.get(f"/queues/inbox/{message_id}?piece=10").content)
    assert piece == ["video/mp4", len(BODY), 11, BODY[10_000:]]


@pytest.mark.parametrize("count", [1, 40])
def test_a_body_in_chunks_whose_length_is_not_announced_is_taken_alike(http: httpx2.Client, count: int) -> None:
    answer = http.post("/queues/inbox", content=(BODY[:256] for _ in range(count)), headers=VIDEO)
    assert (answer.status_code, answer.json()["lsn"] > 10) == (201, count == 40), answer.text
    assert http.get(f"/queues/inbox/{answer.json()['id']}", headers=LATEST).content == BODY[:256] * count


def test_a_level_that_does_not_exist_is_refused_before_anything_is_staged(http: httpx2.Client) -> None:
    answer = publish(http, Brokerha_Ack="soon")
    assert (answer.status_code, staged(http)) == (400, 0)


def test_a_short_one_can_be_had_alike(http: httpx2.Client) -> None:
    message_id = http.post("/queues/inbox", content=b"short", headers={"Content-Type": "text/plain"}).json()["id"]
    got = http.get(f"/queues/inbox/{message_id}", headers=LATEST)
    assert (got.content, got.headers["content-type"]) == (b"short", "text/plain")
    # In a browser a page that somebody published does nothing in the name of who looks at it.
    assert (got.headers["content-security-policy"], got.headers["x-content-type-options"]) == ("sandbox", "nosniff")


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("nobody.1", 404, "message 'nobody.1' is not in queue 'inbox'"),
        ("nobody", 400, "a message id"),
        ("nobody.1?piece=-1", 400, "piece"),
    ],
)
def test_what_is_not_there_is_said(http: httpx2.Client, path: str, status: int, text: str) -> None:
    got = http.get(f"/queues/inbox/{path}")
    assert got.status_code == status
    assert text in got.text


def test_it_is_taken_in_a_transaction_only(http: httpx2.Client) -> None:
    message_id = publish(http).json()["id"]
    refused = http.post("/queues/inbox/accept?wait-s=5")
    assert refused.status_code == 409
    assert f"message '{message_id}' has {len(BODY)} bytes, more than one answer holds: take it in a transaction" in refused.text
    where = http.post("/tx").headers["location"]
    taken = http.post(f"{where}/accept?queue=inbox&wait-s=5", headers={"Accept": "application/json"}).json()["messages"]
    assert taken == [{"id": message_id, "content_type": "video/mp4", "size": len(BODY)}]
    assert http.get(f"/queues/inbox/{message_id}", headers={"Brokerha-Transaction": where.rsplit("/")[-1]}).content == BODY
    assert http.post(f"{where}/commit").status_code == 200
    assert http.get(f"/queues/inbox/{message_id}", headers=LATEST).status_code == 404
    assert (listed(http), staged(http)) == ([], 0)


def test_the_same_key_publishes_once(http: httpx2.Client) -> None:
    answers = [publish(http, Idempotency_Key="film-1") for _ in range(2)]
    assert [answer.json()["id"] for answer in answers] == ["film-1.1", "film-1.1"]
    assert len(listed(http)) == 1


def test_what_is_refused_leaves_nothing(http: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert publish(http, Content_Type="pieces:video/mp4").status_code == 400
    monkeypatch.setattr(queues, "SIZE_LIMIT_BYTES", 6_000)
    assert publish(http).status_code == 413
    assert (listed(http), staged(http)) == ([], 0)


def test_a_body_that_is_cut_off_leaves_nothing(http: httpx2.Client) -> None:
    def cut() -> Iterator[bytes]:
        yield BODY[:6_000]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        http.post("/queues/inbox", content=cut(), headers={**VIDEO, "Content-Length": str(len(BODY))})
    until_s = time.monotonic() + 30
    while staged(http) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert (listed(http), staged(http)) == ([], 0)


def begun(http: httpx2.Client, message_id: str) -> socket.socket:
    """A connection on which the head of an answer came, and of which nobody reads more."""
    connection = socket.create_connection((http.base_url.host, http.base_url.port), timeout=30)
    connection.sendall(f"GET /queues/inbox/{message_id} HTTP/1.1\r\nHost: x\r\nBrokerha-Min-Lsn: latest\r\n\r\n".encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def rest_of(connection: socket.socket) -> int:
    """How many bytes come until it is closed."""
    size = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            size += len(piece)
    connection.close()
    return size


@pytest.fixture
def long_id(http: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> str:
    """A message that no buffer of a connection holds."""
    monkeypatch.setattr(queues, "PIECE_BYTES", 1 << 20)
    answer = http.post("/queues/inbox", content=bytes(LONG_BYTES), headers=VIDEO)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_who_takes_nothing_of_a_message_is_cut_off(http: httpx2.Client, long_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Answer.send
    cut = threading.Event()

    async def impatient(self: Answer, sending: Any, _stall_s: float | None = None) -> None:
        try:
            await send(self, sending, 0.2)
        except TimeoutError:
            cut.set()
            raise

    monkeypatch.setattr(Answer, "send", impatient)
    connection = begun(http, long_id)
    assert cut.wait(30)
    assert rest_of(connection) < LONG_BYTES
    assert listed(http), "others are served"


def test_a_message_that_is_taken_while_it_is_read_ends_the_answer(http: httpx2.Client, long_id: str) -> None:
    connection = begun(http, long_id)
    answer = http.post("/tx", json=[["accept", "inbox", long_id]])
    assert answer.status_code == 201, answer.text
    assert rest_of(connection) < LONG_BYTES
