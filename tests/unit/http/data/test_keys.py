"""Keys over HTTP: any bytes as keys and values, ranges, groups, tags."""

from __future__ import annotations

import base64

import msgpack
import pytest

from tests.unit.http.asking import JSON, MSGPACK, TURTLE, UPDATE, Node


def test_a_value_is_put_got_and_deleted(node: Node) -> None:
    put = node.ask("PUT", "/kv/prices/sku-1", b"\x00\xff9.90")
    got = node.get("/kv/prices/sku-1")
    deleted = node.ask("DELETE", "/kv/prices/sku-1")

    assert (put.status, got.status, deleted.status) == (204, 200, 204)
    assert (got.body, got.headers["content-type"]) == (b"\x00\xff9.90", "application/octet-stream")
    assert got.headers["brokerha-lsn"] == "1"
    assert node.get("/kv/prices/sku-1").status == 404


def test_tables_are_listed_while_they_have_keys(node: Node) -> None:
    assert node.get("/kv").json == []
    node.ask("PUT", "/kv/stock/sku-1", b"7")
    node.ask("PUT", "/kv/prices/sku-1", b"9.90")
    answer = node.get("/kv")
    assert (answer.json, answer.headers["brokerha-lsn"]) == (["prices", "stock"], "2")
    assert node.ask("PUT", "/kv", b"").status == 405


def test_an_empty_value_is_a_value(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"")

    assert (node.get("/kv/t/k").status, node.get("/kv/t/k").body) == (200, b"")


def test_deleting_what_is_not_there_is_no_error(node: Node) -> None:
    assert node.ask("DELETE", "/kv/t/nothing").status == 204


@pytest.mark.parametrize(
    ("target", "table", "key"),
    [
        ("/kv/t/a%2Fb", "t", b"a/b"),
        ("/kv/t/a/b", "t", b"a/b"),
        ("/kv/t/a//b/", "t", b"a//b/"),
        ("/kv/t%2Fa/b", "t/a", b"b"),
        ("/kv/t/%FF%00", "t", b"\xff\x00"),
        ("/kv/t/100%2525", "t", b"100%25"),
        ("/kv/t/a+b%20c", "t", b"a+b c"),
        ("/kv/t/%2E%2E", "t", b".."),
        ("/kv/%C3%A4/%C3%A4", "ä", "ä".encode()),
    ],
)
def test_percent_encoding_is_taken_off_once(node: Node, target, table, key) -> None:
    assert node.ask("PUT", target, b"v").status == 204

    assert list(node.front.keys) == [(table, key)]
    assert node.get(target).body == b"v"


def test_a_tag_names_a_value_and_saves_sending_it(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"one")
    tag = node.get("/kv/t/k").headers["etag"]

    unchanged = node.get("/kv/t/k", If_None_Match=tag)
    node.ask("PUT", "/kv/t/k", b"two")
    changed = node.get("/kv/t/k", If_None_Match=tag)

    assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, b"", tag)
    assert (changed.status, changed.body) == (200, b"two")


def test_head_answers_like_get(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"value")

    assert node.ask("HEAD", "/kv/t/k").headers["content-length"] == "5"


def test_a_range_is_json_with_text_where_bytes_are_text(node: Node) -> None:
    for key, value in [("a", b"1"), ("b", b"\xff"), ("%FF", b"3")]:
        node.ask("PUT", f"/kv/t/{key}", value)

    assert node.get("/kv/t").json == [
        {"key": "a", "value": "1"},
        {"key": "b", "value_base64": base64.b64encode(b"\xff").decode()},
        {"key_base64": base64.b64encode(b"\xff").decode(), "value": "3"},
    ]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", ["a1", "a2", "b1", "b2"]),
        ("?prefix=a", ["a1", "a2"]),
        ("?from=a2&to=b2", ["a2", "b1"]),
        ("?limit=1", ["a1"]),
        ("?reverse=true&limit=2", ["b2", "b1"]),
        ("?reverse", ["b2", "b1", "a2", "a1"]),
        ("?reverse=false", ["a1", "a2", "b1", "b2"]),
        ("?prefix=%FF", []),
    ],
)
def test_a_range_has_bounds(node: Node, query, keys) -> None:
    for key in ("b2", "a1", "b1", "a2"):
        node.ask("PUT", f"/kv/t/{key}", b"v")
    node.ask("PUT", "/kv/other/a1", b"v")

    assert [row["key"] for row in node.get(f"/kv/t{query}").json] == keys


def test_a_range_may_be_had_as_msgpack(node: Node) -> None:
    node.ask("PUT", "/kv/t/%FF", b"v")

    answer = node.get("/kv/t", Accept="application/x-msgpack")

    assert answer.headers["content-type"] == "application/x-msgpack"
    assert msgpack.unpackb(answer.body) == [[b"\xff", b"v"]]


def test_a_range_without_a_limit_says_that_there_is_more(node: Node) -> None:
    for count, more in [(1000, None), (1001, "true")]:
        group = [["put", b"%04d" % number, b"v"] for number in range(count)]
        assert node.ask("POST", "/kv/t", msgpack.packb(group), MSGPACK).status == 204
        for accept in ("application/json", "application/x-msgpack"):
            answer = node.get("/kv/t", Accept=accept)
            rows = answer.json if accept.endswith("json") else msgpack.unpackb(answer.body)
            assert (len(rows), answer.headers.get("brokerha-more")) == (1000, more)
    answer = node.get("/kv/t?limit=1001")
    assert (len(answer.json), answer.headers.get("brokerha-more")) == (1001, None)


def test_a_group_is_one_transaction_in_json_or_msgpack(node: Node) -> None:
    group = b'[{"op": "put", "key": "a", "value": "1"}, {"op": "put", "key_base64": "/w==", "value_base64": "AA=="}]'
    packed = msgpack.packb([["put", b"c", b"3"], ["delete", b"a"]])

    in_json = node.ask("POST", "/kv/t", group, JSON)
    in_msgpack = node.ask("POST", "/kv/t", packed, MSGPACK)

    assert [in_json.status, in_msgpack.status] == [204, 204]
    assert [in_json.headers["brokerha-lsn"], in_msgpack.headers["brokerha-lsn"]] == ["1", "2"]
    assert node.front.keys == {("t", b"\xff"): b"\0", ("t", b"c"): b"3"}


def test_what_a_range_gives_can_be_sent_back_as_a_group(node: Node) -> None:
    node.ask("PUT", "/kv/t/%FF", b"v")
    node.ask("PUT", "/kv/t/text", b"\xfe")
    import json

    group = json.dumps([{"op": "put", **row} for row in node.get("/kv/t").json])

    assert node.ask("POST", "/kv/copy", group, JSON).status == 204
    assert node.get("/kv/copy").json == node.get("/kv/t").json


# ---- conditions


def test_if_match_lets_only_the_writer_win_who_saw_the_present_value(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"one")
    tag = node.get("/kv/t/k").headers["etag"]

    first = node.ask("PUT", "/kv/t/k", b"two", If_Match=tag)
    second = node.ask("PUT", "/kv/t/k", b"three", If_Match=tag)
    deleted = node.ask("DELETE", "/kv/t/k", If_Match=tag)

    assert (first.status, second.status, deleted.status) == (204, 412, 412)
    assert (second.headers["brokerha-error"], second.headers["brokerha-lsn"]) == ("Conflict", "3")
    assert node.get("/kv/t/k").body == b"two"


def test_if_none_match_writes_only_a_new_key(node: Node) -> None:
    first = node.ask("PUT", "/kv/t/k", b"one", If_None_Match="*")
    second = node.ask("PUT", "/kv/t/k", b"two", If_None_Match="*")

    assert (first.status, second.status) == (204, 412)
    assert node.get("/kv/t/k").body == b"one"


def test_a_group_may_expect_something_of_its_keys(node: Node) -> None:
    group = '[{"op": "expect", "key": "a", "etag": ""}, {"op": "put", "key": "a", "value": "1"}]'
    packed = msgpack.packb([["expect", b"a", ""], ["put", b"b", b"1"]])

    first = node.ask("POST", "/kv/t", group, JSON)
    second = node.ask("POST", "/kv/t", packed, MSGPACK)

    assert (first.status, second.status) == (204, 412)
    assert list(node.front.keys) == [("t", b"a")]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"If-Match": "*"}, "with its quotes"),
        ({"If-Match": 'W/"532f4bd209979d816d52ecfb3b2d26df"'}, "with its quotes"),
        ({"If-None-Match": '"532f4bd209979d816d52ecfb3b2d26df"'}, "only if there is no such key"),
        ({"If-None-Match": "*", "If-Match": '"x"'}, "give one of them"),
    ],
)
def test_conditions_that_cannot_be_demanded_are_refused(node: Node, headers, text) -> None:
    answer = node.ask("PUT", "/kv/t/k", b"v", headers)

    assert answer.status == 400
    assert text in answer.text
    assert not node.front.keys


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("PUT", "/repositories/main/gsp?graph=urn:g", "<urn:a> <urn:b> 1 .", TURTLE),
        ("DELETE", "/repositories/main/gsp?default", "", {}),
        ("PUT", "/repositories/main/rdf-graphs/service?graph=urn:g", "<urn:a> <urn:b> 1 .", TURTLE),
        ("PUT", "/repositories/main/statements", "<urn:a> <urn:b> 1 .", TURTLE),
        ("POST", "/repositories/main/sparql", "INSERT DATA { <urn:a> <urn:b> 1 }", UPDATE),
        ("PUT", "/repositories/main/namespaces/p", "urn:p", {}),
        ("PUT", "/repositories/new", "", {}),
        ("POST", "/tx", '[["put", "t", "k", "v"]]', JSON),
        ("POST", "/queues/q", "m", {}),
    ],
)
def test_a_condition_that_nobody_would_look_at_is_refused(node: Node, method, path, body, headers) -> None:
    for condition in ({"If-Match": '"x"'}, {"If-None-Match": '"x"'}):
        answer = node.ask(method, path, body, {**headers, **condition})

        assert (answer.status, answer.headers["brokerha-error"]) == (400, "InvalidRequest")
        assert next(iter(condition)) in answer.text
    assert not node.front.submitted


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [("PUT", "/kv/t/k", "v", {}), ("DELETE", "/kv/t/k", "", {}), ("POST", "/kv/t", '[{"op": "delete", "key": "k"}]', JSON)],
)
def test_nothing_is_written_into_a_snapshot(node: Node, method, path, body, headers) -> None:
    answer = node.ask(method, f"{path}?snapshot=monday", body, headers)

    assert (answer.status, answer.headers["brokerha-error"]) == (400, "InvalidRequest")
    assert not node.front.submitted
