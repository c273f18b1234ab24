"""Everything that the fake front stores, what transactions do to it, and how it is read."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import msgpack
from pyoxigraph import Store, serialize

from brokerha.model import about
from brokerha.model.errors import NotFound, Rejected, UnknownRepository
from brokerha.model.etags import etag_of
from brokerha.model.operations import EXPECTATIONS, ON_QUEUES, Operation, message_id
from brokerha.stores.reads.kinds import about_answer, about_beginning
from tests.unit.http.fake_rdf import GRAPHS, change, chosen, matching, query

Message = tuple[str, str, bytes]


@dataclass
class Data:
    """Everything that is stored."""

    repositories: dict[str, Store] = field(default_factory=lambda: {"main": Store()})
    keys: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    queues: dict[str, list[Message]] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    checks: dict[str, dict[str, str]] = field(default_factory=dict)

    def copied(self) -> Data:
        """The same, apart."""
        stores = {}
        for name, store in self.repositories.items():
            stores[name] = Store()
            stores[name].extend(store)
        return Data(stores, dict(self.keys), copy.deepcopy(self.queues), dict(self.published), dict(self.checks))

    def beside(self, txid: str, operations: list[Operation]) -> None:
        """Queues and expectations of a transaction. Raises Rejected."""
        for kind, *arguments in operations:
            if kind == "expect-key":
                table, key, etag = arguments
                value = self.keys.get((table, key))
                if ("" if value is None else etag_of(value)) != etag:
                    raise Rejected(
                        f"conflict: key {key.decode()!r} of table {table!r}: expected {etag}, found another: read it again"
                    )
        for number, (kind, name, *arguments) in enumerate(operations, 1):
            if kind == "publish":
                self.queues.setdefault(name, []).append((message_id(txid, number), *arguments))
                self.published[name] = self.published.get(name, 0) + 1
            elif kind == "accept":
                rest = [message for message in self.queues.get(name, []) if message[0] != arguments[0]]
                if len(rest) == len(self.queues.get(name, [])):
                    raise Rejected(f"message {arguments[0]!r} is not in queue {name!r}")
                self.queues[name] = rest

    def execute(self, txid: str, operations: list[Operation]) -> None:
        """A whole transaction. Raises Rejected, half done."""
        self.beside(txid, operations)
        operations = [operation for operation in operations if operation[0] not in ON_QUEUES | EXPECTATIONS]
        self._check(operations)
        for kind, name, *arguments in operations:
            if kind == "put":
                self.keys[name, arguments[0]] = arguments[1]
            elif kind == "delete":
                self.keys.pop((name, arguments[0]), None)
            elif kind == "control-add":
                fields = zip(("kind", "target", "text", "expected"), arguments, strict=True)
                self.checks[name] = {"name": name, **dict(fields)}
            elif kind == "control-remove":
                del self.checks[name]
            elif kind == "create-repository":
                self.repositories[name] = Store()
            elif kind == "remove-repository":
                del self.repositories[name]
                beginning = about.beginning_of(name)
                self.keys = {
                    key: value
                    for key, value in self.keys.items()
                    if key[0] != about.TABLE or not key[1].startswith(beginning)
                }
            else:
                change(self.repositories[name], kind, arguments[0])

    def _check(self, operations: list[Operation]) -> None:
        made = {operation[1] for operation in operations if operation[0] == "create-repository"}
        for kind, name, *arguments in operations:
            if kind in {"put", "delete"} and name == about.TABLE:
                about_name = about.repository_of(arguments[0])
                if about_name not in self.repositories.keys() | made:
                    raise Rejected(f"repository {about_name!r} does not exist")
            if kind in {"update", "add", "remove", "remove-repository"} and name not in self.repositories:
                raise Rejected(f"repository {name!r} does not exist")
            if kind == "create-repository" and name in self.repositories:
                raise Rejected(f"repository {name!r} exists already")
            if kind == "control-remove" and name not in self.checks:
                raise Rejected(f"check {name!r} does not exist")

    def read(self, kind: str, name: str, arguments: dict[str, Any], lsn: int) -> tuple[str, bytes]:
        """Content type and body of one read."""
        if kind in {"tables", "queue", "queues", "together", "digests", "items"}:
            return self._read_several(kind, name, arguments, lsn)
        if kind == "get":
            return "application/octet-stream", self._get(name, arguments)
        if kind == "range":
            return "application/x-msgpack", msgpack.packb(self._range(name, arguments))
        if kind == "control":
            return "application/json", json.dumps({"checks": list(self.checks.values())}).encode()
        if kind == "about":
            return "application/json", self._about(name)
        if kind == "repositories":
            return "application/json", json.dumps(sorted(self.repositories)).encode()
        if kind == "fingerprint":
            return "application/json", json.dumps({"lsn": lsn, "fingerprint": self.fingerprint()}).encode()
        store = self.repositories.get(name)
        if store is None:
            raise UnknownRepository(f"repository {name!r} does not exist")
        if kind == "size":
            return "text/plain", str(len(matching(store, {}, arguments["context"]))).encode()
        if kind == "contexts":
            return "application/json", json.dumps(sorted(str(graph) for graph in store.named_graphs())).encode()
        if kind == "statements":
            media_type = chosen(arguments["accept"], GRAPHS)
            found = matching(store, arguments, arguments["context"])
            quads = found if media_type == "application/n-quads" else [quad.triple for quad in found]
            return media_type, serialize(quads, format=GRAPHS[media_type]) or b""
        return query(store, arguments)

    def _get(self, table: str, arguments: dict[str, Any]) -> bytes:
        value = self.keys.get((table, arguments["key"]))
        if value is None:
            raise NotFound(f"table {table!r} has no such key")
        return value

    def _about(self, name: str) -> bytes:
        beginning = about_beginning(name, self.repositories)
        rows = [(key, value) for (table, key), value in sorted(self.keys.items()) if table == about.TABLE]
        return about_answer(name, self.repositories, [row for row in rows if row[0].startswith(beginning)])

    def _range(self, table: str, arguments: dict[str, Any]) -> list[tuple[bytes, bytes]]:
        rows = [
            (key, value)
            for (name, key), value in sorted(self.keys.items())
            if name == table
            and key.startswith(arguments.get("prefix") or b"")
            and (arguments.get("from") is None or key >= arguments["from"])
            and (arguments.get("to") is None or key < arguments["to"])
        ]
        if arguments.get("reverse"):
            rows.reverse()
        return rows[: arguments.get("limit") or 1000]

    def _read_several(self, kind: str, name: str, arguments: dict[str, Any], lsn: int) -> tuple[str, bytes]:
        if kind in {"digests", "items"}:
            # As it was asked for: what is in an answer is the matter of the stores' own tests.
            return "application/x-msgpack", msgpack.packb({"lsn": lsn, "kind": kind, **arguments})
        if kind == "tables":
            return "application/json", json.dumps(sorted({table for table, _ in self.keys} - {about.TABLE})).encode()
        if kind == "together":
            wanted = [msgpack.unpackb(packed) for packed in arguments["reads"]]
            answers = [self.read(each, name, arguments, lsn) for each, name, arguments in wanted]
            return "application/x-msgpack", msgpack.packb(answers)
        if kind == "queue":
            rows = self.queues.get(name, [])
            ids = [row[0] for row in rows]
            start = ids.index(arguments["after"]) + 1 if arguments.get("after") in ids else 0
            return "application/x-msgpack", msgpack.packb(rows[start : start + (arguments.get("limit") or 100)])
        numbers = {
            queue: {
                "depth": len(rows),
                "published": self.published[queue],
                "accepted": self.published[queue] - len(rows),
            }
            for queue, rows in self.queues.items()
        }
        return "application/json", json.dumps(numbers).encode()

    def fingerprint(self) -> str:
        """Of everything."""
        content = [sorted(str(quad) for quad in store) for _, store in sorted(self.repositories.items())]
        return (
            "0:"
            + hashlib.sha256(
                repr((content, sorted(self.keys.items()), sorted(self.queues.items()))).encode()
            ).hexdigest()
        )
