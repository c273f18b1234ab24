"""Compressed bodies: what is known is decoded within the limits of the decoded size, everything else is refused and never stored."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib

import pytest

from brokerha.http import HttpLimits
from brokerha.ingress.content_codings import MEMBERS_LIMIT, inflater_of
from brokerha.model.errors import InvalidRequest
from tests.unit.http.asking import JSON, UPDATE, Node

VALUE = b"many words, " * 20_000
LIMIT = 100_000


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def raw(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(data) + engine.flush()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", packed(VALUE)),
        ("X-GZIP", packed(VALUE)),
        ("gzip", packed(VALUE[:100]) + packed(b"") + packed(VALUE[100:])),
        ("deflate", zlib.compress(VALUE)),
        ("deflate", raw(VALUE)),
        ("identity", VALUE),
        ("identity, gzip", packed(VALUE)),
        ("", VALUE),
    ],
)
@pytest.mark.parametrize("size", [1_000_000, 7, 1])
def test_a_body_is_decoded_however_it_is_cut_into_pieces(node: Node, coding: str, body: bytes, size: int) -> None:
    if size == 1 and len(body) > 10_000:
        size = 1000
    pieces = [body[start : start + size] for start in range(0, len(body), size)]

    answer = asyncio.run(node.asked("PUT", "/kv/t/k", pieces, {"Content-Encoding": coding}))

    assert answer.status == 204, answer.text
    assert node.get("/kv/t/k").body == VALUE


def test_an_update_and_json_are_decoded_before_they_are_read(node: Node) -> None:
    update = packed(b"INSERT DATA { <urn:a> <urn:b> 1 }")
    operations = packed(b'[["put", "t", "k", "v"]]')

    assert node.ask("POST", "/repositories/main/statements", update, UPDATE, Content_Encoding="gzip").status == 204
    assert node.ask("POST", "/tx", operations, JSON, Content_Encoding="gzip").status == 201
    assert node.get("/repositories/main/size").text.strip() == "1"


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "rubbish", "gzip, br", "gzip, gzip", "br, gzip"])
def test_another_coding_is_refused_with_those_that_are_read(node: Node, coding: str) -> None:
    answer = node.ask("PUT", "/kv/t/k", b"x", Content_Encoding=coding)

    assert (answer.status, answer.headers["accept-encoding"]) == (415, "gzip, deflate")
    assert answer.headers["brokerha-error"] == "UnsupportedType"
    assert not node.front.keys


@pytest.mark.parametrize(
    ("coding", "body", "words"),
    [
        ("gzip", packed(VALUE)[:-1], "cut off"),
        ("gzip", packed(VALUE)[:9], "cut off"),
        ("gzip", b"", "cut off"),
        ("gzip", b"not gzip at all", "is not gzip"),
        ("gzip", packed(VALUE) + b"rubbish", "is not gzip"),
        ("gzip", packed(b"x")[:-8] + b"\0" * 8, "is not gzip"),
        ("gzip", packed(b"") * (MEMBERS_LIMIT + 1), f"more than {MEMBERS_LIMIT}"),
        ("deflate", zlib.compress(VALUE)[:-1], "cut off"),
        ("deflate", b"x", "cut off"),
        ("deflate", zlib.compress(VALUE) + b"x", "goes on after the end"),
        ("deflate", raw(VALUE)[:-1], "cut off"),
        ("deflate", b"\xff\xff", "is not deflate"),
    ],
)
def test_a_broken_stream_is_refused_and_nothing_of_it_is_stored(node: Node, coding: str, body: bytes, words: str) -> None:
    answer = node.ask("PUT", "/kv/t/k", body, Content_Encoding=coding)

    assert answer.status == 400, answer.text
    assert words in answer.text
    assert not node.front.keys
    assert node.app.door.bodies_bytes == 0


def test_the_decoded_size_counts_and_no_more_of_it_is_ever_held() -> None:
    node = Node(limits=HttpLimits(body_limit_bytes=LIMIT))
    bomb = packed(b"\0" * 200_000_000)
    tracemalloc.start()

    answer = node.ask("PUT", "/kv/t/k", bomb[:90_000], Content_Encoding="gzip")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert most < 10_000_000
    assert node.ask("PUT", "/kv/t/k", packed(b"\0" * LIMIT), Content_Encoding="gzip").status == 204
    assert node.ask("PUT", "/kv/t/k", packed(b"\0" * (LIMIT + 1)), Content_Encoding="gzip").status == 413


def test_what_comes_out_of_nothing_but_headers_is_bounded_too() -> None:
    node = Node(limits=HttpLimits(body_limit_bytes=LIMIT))
    endless = [b"\0\0\0\xff\xff" * 5000] * 20  # Blocks of deflate without content

    answer = asyncio.run(node.asked("PUT", "/kv/t/k", endless, {"Content-Encoding": "deflate"}, announce=False))

    assert answer.status == 413
    assert answer.pieces_read < 20


def test_a_step_gives_no_more_than_was_asked_for() -> None:
    inflater = inflater_of("gzip")
    assert inflater is not None
    inflater.feed(packed(b"\0" * 1_000_000))

    sizes = []
    while piece := inflater.step(4096):
        sizes.append(len(piece))
    inflater.finish()

    assert (max(sizes), sum(sizes)) == (4096, 1_000_000)


def test_a_stream_without_an_end_is_found_when_it_is_over() -> None:
    inflater = inflater_of("deflate")
    assert inflater is not None

    with pytest.raises(InvalidRequest, match="cut off"):
        inflater.finish()
