"""Another program answers in place of a node: a proxy, a login page, a server of JSON. Every call tells so in one sentence."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import brokerha
from brokerha.model import errors

HTML = b"<html><body>Welcome</body></html>"


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of something that gives each request this answer, and ends the connection."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while (line := self.rfile.readline()) not in {b"\r\n", b""}:
                length = int(line.split()[1]) if line.lower().startswith(b"content-length:") else length
            self.rfile.read(length)
            self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def answer_of(status: str, media_type: str, body: bytes, *more: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = (f"HTTP/1.1 {status}", f"Content-Type: {media_type}", f"Content-Length: {size}", "Connection: close", *more, "", "")
    return "\r\n".join(head).encode() + body


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answer_of("302 Found", "text/html", HTML, "Location: /login"), "answers 302 and sends to /login: give the address"),
        (answer_of("502 Bad Gateway", "text/html", HTML), "answers 502: the node behind it is not there"),
        (answer_of("200 OK", "text/html", HTML), "no brokerha node|no replies"),
        (answer_of("200 OK", "application/json", b""), "answers with nothing, so it is no brokerha node|no replies"),
        (answer_of("200 OK", "application/json", b'{"a":'), "no brokerha node|no replies"),
        (answer_of("200 OK", "application/json", b"{", length=9), "its answer was cut off"),
        (answer_of("503 Busy", "application/json", b'{"te', "Brokerha-Error: NotReady"), '{"te'),
        (b"220 mail\r\n", "does not speak HTTP: '220 mail'"),
    ],
)
def test_an_answer_that_no_node_gives_is_told_in_one_sentence(answer: bytes, words: str) -> None:
    with answering(answer) as url:
        for ask in (
            lambda db: db.status(),
            lambda db: db.get("t", "k"),
            lambda db: list(db.range("t")),
            lambda db: db.size("main"),
            lambda db: db.repositories(),
            lambda db: db.logged(1, 2),
            lambda db: db.outcome("t"),
            lambda db: db.transaction().begin(),
            lambda db: db.open_transactions(),
            lambda db: db.put("t", "k", "v"),
        ):
            with brokerha.connect(url, timeout=0.1) as db, pytest.raises(errors.BrokerhaError, match=words):
                ask(db)


JSON_OF_STRANGERS = (
    b"{}", b"[]", b"null", b"[null]", b"[[null]]", b"[5]", b'"x"', b"true",
    b'{"txid": null, "state": 5, "changed": null, "checks": null, "nodes": null, "messages": null, "transactions": null}',
    b'{"txid": 5, "node": 5, "checks": [null], "nodes": [null], "messages": [[null]], "transactions": [{"txid": 5}]}',
)  # fmt: skip


@pytest.mark.parametrize("body", JSON_OF_STRANGERS)
def test_json_that_no_node_gives_is_told_in_one_sentence(body: bytes) -> None:
    with answering(answer_of("200 OK", "application/json", body, "Brokerha-Lsn: 5")) as url:
        for ask in (
            lambda db: db.status(),
            lambda db: list(db.range("t")),
            lambda db: db.size("main"),
            lambda db: db.repositories(),
            lambda db: db.control_list(),
            lambda db: list(db.queue("q")),
            lambda db: db.digests(),
            lambda db: db.together([("get", "t", {"key": b"k"})]),
            lambda db: list(db.export("t").rows),
            lambda db: db.logged(1, 2),
            lambda db: db.entries(1, 2),
            lambda db: db.log(),
            lambda db: db.outcome("t"),
            lambda db: db.unpin("p"),
            lambda db: db.transaction().begin(),
            lambda db: db.tpc_recover(),
            lambda db: db.put("t", "k", "v"),
        ):
            with brokerha.connect(url, timeout=0.1) as db:
                told, found = "", list[object]()
                try:
                    found = ask(db)
                except errors.BrokerhaError as error:
                    told = str(error)
            # An empty list can be right.
            assert found == []
            assert not told or "no brokerha node" in told or "no replies" in told
