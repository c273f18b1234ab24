"""Pages of other sites (CORS), and the prefix that clients of RDF4J are given."""

from __future__ import annotations

import pytest

from brokerha.http.app import PATHS
from brokerha.http.guard import Guard
from brokerha.http.users import Users, hash_token, parse_users
from tests.unit.http.asking import NQUADS, Node

PAGE = "https://page.example"
WANTS = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type,idempotency-key"}


def words(text: str) -> set[str]:
    return {word.strip() for word in text.lower().split(",")}


def guarded() -> Node:
    text = f'[users.a]\nrole = "admin"\ntokens = [{{ sha256 = "{hash_token("secret")}", expires = 100 }}]\n'
    users = Users(parse_users(text, "users.toml"))
    return Node(guard=Guard(lambda: users, lambda: 50.0), origins=frozenset({PAGE}))


@pytest.mark.parametrize("path", PATHS)
def test_an_allowed_page_hears_on_every_path_what_it_may_send(path: str) -> None:
    for node in (Node(origins=frozenset({PAGE})), guarded()):
        answer = node.ask("OPTIONS", path.replace("{", "").replace("}", ""), b"", {"Origin": PAGE, **WANTS})

        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, PAGE)
        assert set(PATHS[path]) <= {method.upper() for method in words(answer.headers["access-control-allow-methods"])}
        assert {"authorization", "content-type", "idempotency-key", "brokerha-min-lsn"} <= words(
            answer.headers["access-control-allow-headers"]
        )
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://page.example", "http://["])
def test_any_other_page_hears_nothing(origin: str) -> None:
    for node in (Node(origins=frozenset({PAGE})), Node()):
        asked = node.ask("OPTIONS", "/kv/t/k", b"", {"Origin": origin, **WANTS})
        read = node.get("/protocol", Origin=origin)

        assert asked.status in {403, 405}
        assert read.status == 200
        assert not [name for name in (*asked.headers, *read.headers) if name.startswith("access-control")]


def test_an_allowed_page_may_read_answers_and_errors_with_their_headers() -> None:
    node = Node(origins=frozenset({PAGE}))

    written = node.ask("PUT", "/kv/t/k", b"v", Origin=PAGE)
    missing = node.get("/kv/t/none", Origin=PAGE)
    nothing = node.get("/nothing", Origin=PAGE)

    assert (written.status, missing.status, nothing.status) == (204, 404, 404)
    for answer in (written, missing, nothing):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert {"brokerha-lsn", "brokerha-tx", "etag", "location"} <= words(answer.headers["access-control-expose-headers"])
    assert node.get("/protocol").headers["vary"] == "Origin"
    assert "vary" not in Node().get("/protocol").headers


def test_options_without_a_page_names_the_methods_that_exist() -> None:
    answer = Node(origins=frozenset({PAGE})).ask("OPTIONS", "/protocol")

    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_everything_is_below_the_prefix_too_and_addresses_keep_it() -> None:
    node = Node(prefix="/rdf4j-server")

    begun = node.ask("POST", "/rdf4j-server/repositories/main/transactions")
    address = begun.headers["location"]
    assert address.startswith("http://node/rdf4j-server/repositories/main/transactions/")
    path = address.removeprefix("http://node")
    assert node.ask("PUT", f"{path}?action=ADD", b"<urn:a> <urn:b> <urn:c> .", NQUADS).status == 200
    assert node.ask("PUT", f"{path}?action=COMMIT").status == 200
    assert node.get("/rdf4j-server/repositories/main/size").text.strip() == "1"
    assert node.get("/repositories/main/size").text.strip() == "1"
    assert "http://node/rdf4j-server/repositories/main" in node.get("/rdf4j-server/repositories", Accept="text/csv").text
    assert "http://node/repositories/main" in node.get("/repositories", Accept="text/csv").text
    assert node.ask("POST", "/rdf4j-server/tx").headers["location"].startswith("/rdf4j-server/tx/")
    assert node.ask("PUT", "/rdf4j-server/kv/t/a%2Fb", b"v").status == 204
    assert node.get("/kv/t/a%2Fb").body == b"v"
    assert node.get("/rdf4j-serverx/protocol").status == 404
    assert node.get("/rdf4j-server/rdf4j-server/protocol").status == 404


def test_without_a_prefix_there_is_none(node: Node) -> None:
    assert node.get("/rdf4j-server/protocol").status == 404


def test_below_the_prefix_roles_count_as_ever() -> None:
    text = f'[users.a]\nrole = "read"\ntokens = [{{ sha256 = "{hash_token("secret")}", expires = 100 }}]\n'
    users = Users(parse_users(text, "users.toml"))
    node = Node(guard=Guard(lambda: users, lambda: 50.0), prefix="/x")

    assert node.get("/x/protocol").status == 401
    assert node.get("/x/protocol", Authorization="Bearer secret").status == 200
    assert node.ask("PUT", "/x/repositories/new", Authorization="Bearer secret").status == 403
