"""A cluster for tests of loading: knows ids, keeps bodies, and refuses, rejects or is silent as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokerha.client import Client
from brokerha.model.operations import unpack_operations
from brokerha.model.requests import REFUSED, Reply
from brokerha.ports.front import ReadOutcome
from tests.unit.client.fake_wire import FakeWire


class LoadCluster:
    """Answers each write once by ``faults``, if one is there for it, and else takes it."""

    def __init__(self, name: str = "orders") -> None:
        self.name = name
        self.bodies: dict[str, bytes] = {}
        """Taken in, by id, in order."""
        self.sent: list[str] = []
        self.faults: list[Reply | Exception | None] = []
        """For the next writes, in turn; None takes it."""
        self.before: Callable[[str], None] = lambda _txid: None
        self.connections = 0

    def connect(self, _address: str = "") -> Client:
        self.connections += 1
        return Client(_Wire(self))

    def answer(self, txid: str, body: bytes) -> Reply | Exception:
        self.before(txid)
        self.sent.append(txid)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            return fault
        if self.bodies.setdefault(txid, body) != body:
            return Reply(0, txid, REFUSED, 0, "KeyReused", "other operations")
        return Reply(0, txid, "applied", list(self.bodies).index(txid) + 1)

    def operations(self) -> list[tuple[Any, ...]]:
        """All that was taken in, in order."""
        return [operation for body in self.bodies.values() for operation in unpack_operations(body)]

    def lines(self) -> list[str]:
        """All statements."""
        return [line for operation in self.operations() for line in operation[2].splitlines()]


class _Wire(FakeWire):
    def __init__(self, cluster: LoadCluster) -> None:
        super().__init__(cluster.answer)
        self._cluster = cluster
        self.read_answer = ReadOutcome("application/json", 0, b'["main"]')

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        return {"cluster": self._cluster.name}
