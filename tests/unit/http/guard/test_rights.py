"""Roles in single repositories, tables and queues, and what a transaction over many stores needs of each of them."""

from __future__ import annotations

import json

import msgpack
import pytest
import structlog

from brokerha.http.app import PATHS
from brokerha.http.guard import OPEN, Guard, Place, place_of
from brokerha.http.users import NONE, ROLES, STORES, Users, hash_token, parse_users
from brokerha.model.errors import ConfigurationError, NotReady
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.reserved import about
from brokerha.model.wire.client_wire import WRITES_TYPE, encode_writes
from tests.unit.http.asking import JSON, MSGPACK, Asked, Node


def in_each(role: str) -> str:
    """A role in each store that a path of `target` names."""
    return f'repositories = {{ id = "{role}" }}\ntables = {{ table = "{role}" }}\nqueues = {{ name = "{role}" }}'


TEXT = "".join(
    f'[users.{name}]\nrole = "{role}"\n{stores}\ntokens = [{{ sha256 = "{hash_token(name)}", expires = 100 }}]\n'
    for name, role, stores in [
        *((f"{kind}-{role}", of_all, in_each(role)) for role in ROLES for kind, of_all in (("only", NONE), ("not", "admin"))),
        (
            "reader",
            "read",
            'repositories = { books = "write", drafts = "none" }\ntables = { t2 = "write", t3 = "none" }\nqueues = { q2 = "write", q3 = "none" }',
        ),
        ("writer", "write", ""),
        ("admin", "admin", ""),
    ]
)
ROWS = [(path, method) for path, methods in PATHS.items() for method in methods]
REFUSED = {401, 403}


def node() -> Node:
    users = Users(parse_users(TEXT, "users.toml"))
    return Node(guard=Guard(lambda: users, lambda: 50.0))


def bearer(name: str) -> str:
    return f"Bearer {name}"


def target(path: str) -> str:
    return path.replace("{", "").replace("}", "").replace(":path", "")


@pytest.mark.parametrize(("path", "method"), ROWS)
def test_a_role_in_one_store_counts_there_and_nowhere_else(path: str, method: str) -> None:
    door, needed, place = node(), PATHS[path][method][0], place_of(path)
    if needed == OPEN:
        return
    is_let_in = {
        name: door.ask(method, target(path), Authorization=bearer(name)).status not in REFUSED
        for role in ROLES
        for name in (f"only-{role}", f"not-{role}")
    }
    if place is Place.ALL:
        expected = {f"{kind}-{role}": kind == "not" for role in ROLES for kind in ("only", "not")}
    else:
        has = {role: ROLES.index(role) >= ROLES.index(needed) for role in ROLES}
        expected = {f"{kind}-{role}": has[role] for role in ROLES for kind in ("only", "not")}
        if place is Place.NAMED:
            # Who may it anywhere comes in; neither the list of all open transactions nor a snapshot of all tables names a store.
            is_of_all = (path, method) == ("/tx", "GET") or path == "/snapshots/{name}"
            expected = {name: name.startswith("not") or (may and not is_of_all) for name, may in expected.items()}
    assert is_let_in == expected


def test_metrics_show_the_queues_that_the_caller_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    door = node()
    monkeypatch.setattr(door.front, "metrics", lambda: {("queue_messages", "q1"): 1, ("queue_messages", "q3"): 2})
    for name, shown in (("reader", {"q1"}), ("writer", {"q1", "q3"})):
        text = door.ask("GET", "/metrics", Authorization=bearer(name)).text
        assert {queue for queue in ("q1", "q3") if f'brokerha_queue_messages{{queue="{queue}"}}' in text} == shown


OPERATIONS: list[tuple[Operation, set[str]]] = [
    (("update", "books", "CLEAR ALL"), {"reader", "writer", "admin"}),
    (("add", "books", "<urn:a> <urn:b> <urn:c> ."), {"reader", "writer", "admin"}),
    (("update", "main", "CLEAR ALL"), {"writer", "admin"}),
    (("remove", "drafts", "<urn:a> <urn:b> <urn:c> ."), {"writer", "admin"}),
    (("put", "t", b"k", b"v"), {"writer", "admin"}),
    (("delete", "t", b"k"), {"writer", "admin"}),
    (("publish", "q", "text/plain", b"v"), {"writer", "admin"}),
    (("put", "t2", b"k", b"v"), {"reader", "writer", "admin"}),
    (("delete", "t2", b"k"), {"reader", "writer", "admin"}),
    (("put", about.TABLE, about.namespace_key("books", "p"), b"urn:p"), {"reader", "writer", "admin"}),
    (("put", about.TABLE, about.namespace_key("drafts", "p"), b"urn:p"), {"writer", "admin"}),
    (("put", about.TABLE, about.setting_key("books", about.TITLE), b"Books"), {"admin"}),
    (("delete", about.TABLE, about.setting_key("books", about.TITLE)), {"admin"}),
    (("publish", "q2", "text/plain", b"v"), {"reader", "writer", "admin"}),
    (("accept", "q2", "tx.1"), {"reader", "writer", "admin"}),
    (("snapshot", "s"), {"writer", "admin"}),
    (("snapshot", "s", "t"), {"writer", "admin"}),
    (("snapshot", "s", "t2"), {"reader", "writer", "admin"}),
    (("snapshot", "s", "t2", "t3"), {"writer", "admin"}),
    (("drop-snapshot", "s"), {"writer", "admin"}),
    (("accept", "q", "tx.1"), {"writer", "admin"}),
    (("create-repository", "books"), {"admin"}),
    (("remove-repository", "main"), {"admin"}),
    (("control-add", "c", "ask", "main", "ASK {}", "true"), {"admin"}),
    (("control-remove", "c"), {"admin"}),
    (("expect-since", "graph", "drafts", 3), {"writer", "admin"}),
    (("expect-since", "graph", "books", 3), {"reader", "writer", "admin"}),
    (("expect-since", "table", "t", 3), {"reader", "writer", "admin"}),
    (("expect-since", "table", "t3", 3), {"writer", "admin"}),
    (("expect-since", "queue", "q3", 3), {"writer", "admin"}),
    (("expect-key", "t3", b"k", ""), {"writer", "admin"}),
    (("expect-key", "t", b"k", ""), {"reader", "writer", "admin"}),
    (("expect-fingerprint", "1:" + 32 * "0"), {"reader", "writer", "admin"}),
]
HARMLESS: Operation = ("add", "books", "<urn:a> <urn:b> <urn:c> .")


def as_json(operations: list[Operation]) -> str:
    return json.dumps([[each.decode() if isinstance(each, bytes) else each for each in operation] for operation in operations])


def ways(door: Node, operations: list[Operation], user: str) -> dict[str, Asked]:
    """The same transaction by every path that takes one."""
    packed, let_in = pack_operations(operations), {"Authorization": bearer(user)}
    return {
        "json": door.ask("POST", "/tx", as_json(operations), JSON | let_in),
        "msgpack": door.ask("POST", "/tx", packed, MSGPACK | let_in),
        "batch": door.ask("POST", "/tx/batch", encode_writes([("t-1", packed)]), {"Content-Type": WRITES_TYPE} | let_in),
        "step, json": door.ask("POST", "/tx/t-1/operations", as_json(operations), JSON | let_in),
        "step, msgpack": door.ask("POST", "/tx/t-1/operations", packed, MSGPACK | let_in),
    }


@pytest.mark.parametrize(("operation", "able"), OPERATIONS, ids=lambda value: value[0] if isinstance(value, tuple) else "")
@pytest.mark.parametrize("user", ["reader", "writer", "admin"])
def test_each_operation_of_a_transaction_needs_its_own_role(operation: Operation, able: set[str], user: str) -> None:
    found = {way: asked.status in REFUSED for way, asked in ways(node(), [HARMLESS, operation], user).items()}

    assert found == dict.fromkeys(found, user not in able)


def test_only_who_may_write_everywhere_drops_a_large_transaction_and_each_part_needs_its_stores() -> None:
    def is_refused(user: str, *operations: Operation) -> set[bool]:
        return {asked.status in REFUSED for asked in ways(node(), list(operations), user).values()}

    assert is_refused("reader", ("drop-staged", "big")) == {True}
    assert is_refused("writer", ("drop-staged", "big")) == {False}
    assert is_refused("reader", ("stage", "big", 1), ("put", "t", b"k", b"v")) == {True}
    assert is_refused("reader", ("stage", "big", 1), ("put", "t2", b"k", b"v")) == {False}
    assert is_refused("reader", ("commit-staged", "big", 1)) == {False}


def test_who_is_refused_hears_which_role_it_takes_and_where() -> None:
    asked = ways(node(), [("update", "drafts", "CLEAR ALL")], "reader")["json"]

    assert (asked.status, asked.text.strip()) == (403, "this needs the role write in repository drafts: user reader has none")


def test_nothing_of_a_batch_is_handed_in_when_one_of_it_is_refused() -> None:
    door = node()
    batch = encode_writes([("t-1", pack_operations([HARMLESS])), ("t-2", pack_operations([("put", "t", b"k", b"v")]))])

    asked = door.ask("POST", "/tx/batch", batch, {"Content-Type": WRITES_TYPE, "Authorization": bearer("reader")})

    assert asked.status == 403
    assert not door.front.submitted


@pytest.mark.parametrize(
    ("wanted", "is_refused"),
    [
        ([["query", "books", {}], ["get", "t", {}]], False),
        ([["query", "books", {}], ["query", "drafts", {}]], True),
        ([["statements", "drafts", {}]], True),
        ([["about", "", {}]], False),
        ([["get", "t", {}], ["range", "t2", {}], ["queue", "q", {}], ["tables", "", {}]], False),
        ([["get", "t3", {}]], True),
        ([["range", "t3", {}]], True),
        ([["queue", "q3", {}]], True),
    ],
)
def test_reads_of_one_moment_need_the_role_in_each_store(wanted: list[object], is_refused: bool) -> None:
    asked = node().ask("POST", "/together", msgpack.packb(wanted), MSGPACK | {"Authorization": bearer("reader")})

    assert (asked.status == 403) == is_refused


def test_the_node_is_told_who_writes_by_whichever_path_and_a_client_cannot_say_it() -> None:
    door, let_in = node(), {"Authorization": bearer("writer")}
    operations: list[Operation] = [("put", "t", b"k", b"v")]

    statuses = [
        door.ask("PUT", "/kv/t/k", b"v", let_in).status,
        door.ask("POST", "/queues/q", b"v", let_in).status,
        door.ask(
            "POST", "/repositories/main/statements", "CLEAR ALL", {"Content-Type": "application/sparql-update"} | let_in
        ).status,
        ways(door, operations, "writer")["json"].status,
    ]
    assert all(status < 300 for status in statuses)
    assert set(door.front.users) == {"writer"}
    assert len(door.front.users) == len(statuses) + 2
    door.ask("POST", "/tx", b"", let_in)
    assert door.front.transactions.calls[-1][2]["user"] == "writer"

    plain = Node()
    assert plain.ask("PUT", "/kv/t/k", b"v").status < 300
    assert plain.front.users == [""]
    for asked in ways(plain, [*operations, ("by", "admin")], "writer").values():
        assert b"who writes is said by the door" in asked.body
    assert plain.front.users == [""]


def test_who_has_a_node_do_what_is_in_its_log_and_what_came_of_it() -> None:
    door, boss = node(), {"Authorization": bearer("admin")}
    with structlog.testing.capture_logs() as told:
        door.ask("POST", "/cluster/backup", json.dumps({"name": "monday"}), JSON | boss)
        door.front.refusal = NotReady("no worker can be backed up now")
        door.ask("POST", "/cluster/backup", json.dumps({"name": "tuesday"}), JSON | boss)
        door.ask("GET", "/cluster/workers", b"", boss)
        door.ask("POST", "/cluster/backup", json.dumps({"name": "none"}), JSON | {"Authorization": bearer("writer")})

    lines = [line for line in told if line["event"] == "command"]
    assert [(line["command"], line["user"], line["arguments"]["name"], line.get("refused")) for line in lines] == [
        ("backup", "admin", "monday", None), ("backup", "admin", "tuesday", "NotReady: no worker can be backed up now"),
    ]  # fmt: skip


@pytest.mark.parametrize("step", ["commit?by-hand=true", "rollback?by-hand=true", "forget"])
def test_what_is_decided_by_hand_is_for_admins(step: str) -> None:
    statuses = {user: node().ask("POST", f"/tx/t-1/{step}", Authorization=bearer(user)).status for user in ("writer", "admin")}

    assert statuses["writer"] == 403
    assert statuses["admin"] != 403


@pytest.mark.parametrize("action", ["commit", "ROLLBACK", "add", "update", "prepare", "ping"])
def test_a_link_ends_no_transaction(action: str) -> None:
    for door, headers in ((Node(), {}), (node(), {"Authorization": bearer("admin")})):
        asked = door.ask("GET", f"/repositories/main/transactions/t-1/{action}", b"", headers)

        assert (asked.status, asked.headers["allow"]) == (405, "POST, PUT")
        assert not door.front.transactions.calls


def test_only_what_may_be_read_is_listed() -> None:
    door = node()
    names = {
        user: {row["id"]["value"] for row in door.get("/repositories", Authorization=bearer(user)).json["results"]["bindings"]}
        for user in ("reader", "only-read", "admin")
    }

    assert names["admin"] >= {"main"}
    assert "drafts" not in names["reader"]
    assert names["only-read"] <= {"id"}


@pytest.mark.parametrize("word", STORES)
@pytest.mark.parametrize("named", ['books = "owner"', f'"{"b/" * 40}" = "read"', "books = 3", '"" = "read"'])
def test_a_wrong_role_in_a_store_is_one_clear_error(word: str, named: str) -> None:
    text = f'[users.a]\nrole = "none"\n{word} = {{ {named} }}\n'

    with pytest.raises(ConfigurationError, match=f"{word} of user a are names with a role each"):
        parse_users(text, "users.toml")


@pytest.mark.parametrize(("path", "name"), [("/kv/t3/k", "table t3"), ("/kv/t3", "table t3"), ("/queues/q3", "queue q3")])
def test_who_may_read_all_tables_and_queues_but_one_may_not_read_that_one(path: str, name: str) -> None:
    door = node()
    asked = door.get(path, Authorization=bearer("reader"))

    assert (asked.status, asked.text.strip()) == (403, f"this needs the role read in {name}: user reader has none")
    assert door.get(path.replace("3", "1"), Authorization=bearer("reader")).status not in REFUSED


@pytest.mark.parametrize(("queue", "status"), [("q", 403), ("q2", None), ("q3", 403)])
def test_messages_are_taken_by_who_may_write_in_their_queue(queue: str, status: int | None) -> None:
    for path in (f"/tx/t-1/accept?queue={queue}", f"/queues/{queue}/accept"):
        asked = node().ask("POST", path, Authorization=bearer("reader"))

        assert asked.status == status if status else asked.status not in REFUSED


def test_tables_and_queues_that_one_may_not_read_are_not_listed() -> None:
    door = node()
    written = [("put", table, "k", "v") for table in ("t", "t2", "t3")] + [
        ("publish", queue, "text/plain", "v") for queue in ("q", "q3")
    ]
    assert door.ask("POST", "/tx", json.dumps(written), JSON | {"Authorization": bearer("admin")}).status == 201

    assert door.get("/kv", Authorization=bearer("reader")).json == ["t", "t2"]
    assert list(door.get("/queues", Authorization=bearer("reader")).json) == ["q"]
    assert door.get("/kv", Authorization=bearer("admin")).json == ["t", "t2", "t3"]
    assert list(door.get("/queues", Authorization=bearer("admin")).json) == ["q", "q3"]
