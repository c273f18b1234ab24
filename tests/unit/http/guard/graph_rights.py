"""A door whose users have rights in single graphs, and for each repository another one that holds only the graphs that they can read."""

from __future__ import annotations

import json
from typing import Any

from brokerha.http.door.door import HttpLimits
from brokerha.http.guard import Guard
from brokerha.http.users import Users, hash_token, parse_users
from tests.unit.http.asking import JSON, TURTLE, Asked, Node

GRAPHS = {
    "ann": '{ "urn:a" = "read", "urn:w" = "write" }',
    "dan": '{ "urn:a" = "read", "urn:w" = "write", default = "write" }',
    "eve": '{ "urn:nothing" = "write" }',
}
USERS = "".join(
    f'[users.{name}]\nrole = "none"\ngraphs = {{ books = {graphs}, union = {graphs}, id = {graphs} }}\n'
    f'tokens = [{{ sha256 = "{hash_token(name)}", expires = 100 }}]\n'
    for name, graphs in GRAPHS.items()
) + (
    f'[users.admin]\nrole = "admin"\ntokens = [{{ sha256 = "{hash_token("admin")}", expires = 100 }}]\n'
    f'[users.bob]\nrole = "read"\nrepositories = {{ union = "none" }}\ngraphs = {{ books = {{ "urn:w" = "write" }} }}\n'
    f'tokens = [{{ sha256 = "{hash_token("bob")}", expires = 100 }}]\n'
)
READABLE = (
    '<urn:x> <urn:p> "a" <urn:a> .\n<urn:x> <urn:p> <urn:y> <urn:a> .\n<urn:y> <urn:q> "two" <urn:a> .\n'
    '<urn:w> <urn:p> "w" <urn:w> .\n'
)
FOREIGN = (
    '<urn:y> <urn:p> "SECRET b" <urn:b> .\n<urn:x> <urn:p> "SECRET x" <urn:b> .\n<urn:b> <urn:names> <urn:b> <urn:b> .\n'
    '<urn:y> <urn:p> "SECRET c" <urn:a/b> .\n'
)
DEFAULT = '<urn:x> <urn:p> "SECRET default" .\n<urn:y> <urn:p> <urn:SECRET> .\n'
UNION = (
    TURTLE,
    '[] a <http://www.openrdf.org/config/repository#Repository> ; <http://www.openrdf.org/config/repository#repositoryID> "%s" ; <urn:brokerha:config#union-default-graph> true .',
)
PREFIX = "PREFIX x: <urn:> "


class Door(Node):
    """A node with the repositories ``books`` and ``union``, and what a user can read of each in ``books-only``, ``union-only``."""

    def __init__(self) -> None:
        users = Users(parse_users(USERS, "users.toml"))
        super().__init__(guard=Guard(lambda: users, lambda: 50.0), limits=HttpLimits(body_limit_bytes=20_000_000))
        for name in ("books", "union", "books-only", "union-only", "id"):
            headers, text = UNION
            is_union = name.startswith("union")
            assert (
                self.by(
                    "admin", "PUT", f"/repositories/{name}", text % name if is_union else "", headers if is_union else None
                ).status
                == 204
            )
        self.reset()

    def by(
        self, user: str, method: str, target: str, body: bytes | str = b"", headers: dict[str, str] | None = None, **more: str
    ) -> Asked:
        return self.ask(method, target, body, {**(headers or {}), **more, "Authorization": f"Bearer {user}"})

    def reset(self, only: str = READABLE) -> None:
        operations = []
        for name in ("books", "union", "books-only", "union-only", "id"):
            content = only if name.endswith("only") else READABLE + FOREIGN + DEFAULT
            operations += [["clear", name], ["add", name, content]]
        assert self.by("admin", "POST", "/tx", json.dumps(operations), JSON).status == 201

    def content(self, repository: str) -> set[str]:
        return set(self.front.repositories[repository])


def rows(asked: Asked) -> Any:
    """An answer without its order."""
    assert asked.status in {200, 400}, asked.text
    if asked.status == 400:
        return asked.text
    if "json" not in asked.headers["content-type"]:
        return sorted(asked.text.splitlines())
    found = asked.json
    return found.get("boolean", sorted(json.dumps(row, sort_keys=True) for row in found.get("results", {}).get("bindings", [])))
