"""Who may come through the door: the whole table of paths, methods and roles, and what those hear who may not."""

from __future__ import annotations

import base64
import re

import pytest

from brokerha.http.app import PATHS
from brokerha.http.guard import OPEN, Guard, parse_origins
from brokerha.http.users import FAILURES_LIMIT, FAILURES_WINDOW_S, ROLES, Users, hash_password, hash_token, parse_users
from tests.unit.http.asking import Node

TEXT = "".join(
    f'[users.{role}]\nrole = "{role}"\ntokens = [{{ sha256 = "{hash_token(role)}", expires = 100 }}]\n' for role in ROLES
)
PASSWORD = f'[users.basic]\nrole = "read"\npassword = "{hash_password("right", b"s" * 16)}"\n'
ROWS = [(path, method) for path, methods in PATHS.items() for method in methods]


class Wall:
    """A clock that is set by hand."""

    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def guarded(wall: Wall | None = None, mono: Wall | None = None) -> Node:
    users = Users(parse_users(TEXT + PASSWORD, "users.toml"))
    return Node(guard=Guard(lambda: users, wall or Wall(), mono or Wall()))


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"basic:{password}".encode()).decode()


def target(path: str) -> str:
    return path.replace("{", "").replace("}", "").replace(":path", "")


@pytest.mark.parametrize(("path", "method"), ROWS)
def test_each_method_of_each_path_lets_in_exactly_who_has_its_role(path: str, method: str) -> None:
    node, needed = guarded(), PATHS[path][method][0]

    nobody = node.ask(method, target(path)).status
    statuses = {role: node.ask(method, target(path), Authorization=f"Bearer {role}").status for role in ROLES}

    assert (nobody == 401) == (needed != OPEN)
    refused = [role for role, status in statuses.items() if status in {401, 403}]
    assert refused == ([] if needed == OPEN else list(ROLES[: ROLES.index(needed)]))


def test_a_query_is_read_and_an_update_is_written_on_the_same_path() -> None:
    node = guarded()
    form = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": "Bearer read"}
    direct = {"Content-Type": "application/sparql-update", "Authorization": "Bearer read"}

    as_form = node.ask("POST", "/repositories/r/sparql", "update=CLEAR+ALL", form)
    as_body = node.ask("POST", "/repositories/r/sparql", "CLEAR ALL", direct)
    query = node.ask("POST", "/repositories/r/sparql", "query=ASK+%7B%7D", form)

    assert (as_form.status, as_body.status) == (403, 403)
    assert "needs the role write" in as_form.text
    assert query.status != 403


def test_who_is_unknown_hears_how_to_log_in() -> None:
    asked = guarded().get("/cluster/status")

    assert asked.status == 401
    assert "Basic" in asked.headers["www-authenticate"]
    assert "Bearer" in asked.headers["www-authenticate"]


def test_a_password_lets_in_and_a_wrong_one_does_not() -> None:
    node = guarded()

    assert node.get("/kv/t", Authorization=basic("wrong")).status == 401
    assert node.get("/kv/t", Authorization=basic("right")).status not in {401, 403, 429}
    assert node.get("/kv/t", Authorization="Basic %%%").status == 401


def test_a_token_that_expired_lets_nobody_in() -> None:
    wall = Wall()
    node = guarded(wall)

    wall.now_s = 100.0

    assert node.get("/kv/t", Authorization="Bearer admin").status == 401


def test_who_guesses_waits_while_who_is_known_does_not() -> None:
    mono = Wall()
    node = guarded(mono=mono)
    for _ in range(FAILURES_LIMIT):
        assert node.get("/kv/t", Authorization="Bearer guess").status == 401

    refused = node.get("/kv/t", Authorization="Bearer guess")

    assert refused.status == 429
    assert int(refused.headers["retry-after"]) > 0
    assert node.get("/kv/t", Authorization="Bearer read").status not in {401, 403, 429}
    mono.now_s += FAILURES_WINDOW_S
    assert node.get("/kv/t", Authorization="Bearer guess").status == 401


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_wall_clock_that_jumps_changes_no_waiting_time(jump_s: float) -> None:
    wall, mono = Wall(), Wall()
    node = guarded(wall, mono)
    for _ in range(FAILURES_LIMIT):
        node.get("/kv/t", Authorization="Bearer guess")
    # When the wall clock is set back or forward: then who guesses waits as long as before
    wall.now_s += jump_s
    refused = node.get("/kv/t", Authorization="Bearer guess")
    assert (refused.status, int(refused.headers["retry-after"])) == (429, FAILURES_WINDOW_S)
    mono.now_s += FAILURES_WINDOW_S
    assert node.get("/kv/t", Authorization="Bearer guess").status == 401


def test_a_door_that_is_too_busy_to_check_a_password_counts_no_failure() -> None:
    node = guarded()
    node.app.door._calls = node.app.door.limits.thread_calls_limit
    for _ in range(FAILURES_LIMIT):
        assert node.get("/kv/t", Authorization=basic("right")).status == 503
    node.app.door._calls = 0

    assert node.get("/kv/t", Authorization=basic("right")).status == 200


@pytest.mark.parametrize("origin", ["http://elsewhere", "null", "http://node:1"])
def test_a_page_of_another_site_changes_nothing_with_users_or_without(origin: str) -> None:
    for node in (Node(), guarded()):
        assert node.ask("PUT", "/kv/t/a", b"x", Origin=origin, Authorization="Bearer admin").status == 403
    assert Node().get("/kv/t", Origin=origin).status != 403
    assert Node().ask("PUT", "/kv/t/a", b"x", Origin="http://node").status != 403


def test_a_page_behind_a_proxy_changes_something_where_the_file_says_so() -> None:
    origins = parse_origins("https://brokerha.example.org, http://10.0.0.1:8080")
    node = Node(origins=origins)

    for origin in ("https://brokerha.example.org", "HTTP://10.0.0.1:8080", "http://node"):
        assert node.ask("PUT", "/kv/t/a", b"x", Origin=origin).status != 403
    refused = node.ask("PUT", "/kv/t/a", b"x", Origin="http://brokerha.example.org")
    assert refused.status == 403
    assert (
        "it is from http://brokerha.example.org, and this door is node; for a proxy in between write http-origins" in refused.text
    )


def test_a_request_to_another_name_says_what_to_do() -> None:
    refused = Node(hosts=frozenset({"m1.example.org"})).get("/kv/t", Host="evil.example:7201", Accept="application/json")
    assert refused.status == 403
    assert refused.json["text"] == (
        "this door has no users, so it answers only to its own names, and evil.example:7201 is none: write http-users, "
        "or that name into http-origins"
    )
    assert Node(hosts=frozenset({"m1.example.org"})).get("/kv/t", Host="").status == 200


@pytest.mark.parametrize("text", ["brokerha.example.org", "https://", "ftp://a", "https://a/path", "https://u:p@a", "*", "null"])
def test_what_is_no_origin_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_origins(f"https://good.example,{text}")
