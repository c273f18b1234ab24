"""One site with one repository: executes operations as a worker does, one commit for each transaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from brokerha.model.operations import Add, OnQuads, Operation, Remove, Update, typed_operations
from brokerha.stores.rdf.change import PendingQuads, QuadChange
from brokerha.stores.rdf.repository import RdfRepository

TIMESTAMP_US = 1_700_000_000_123_456
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"


def on_quads(kind: str, text: str) -> OnQuads:
    """An ``update``, ``add`` or ``remove`` of repository main."""
    (operation,) = typed_operations([(kind, "main", text)])
    assert isinstance(operation, (Update, Add, Remove))
    return operation


class Site:
    """A repository and the LSN of its next transaction."""

    def __init__(self, directory: Path | None = None) -> None:
        self.repository = RdfRepository(directory)

    def change(self, *operations: Operation | str, txid: str = "tx") -> QuadChange:
        """What the operations would change; a plain text is an update."""
        numbered = [
            (number, on_quads("update", operation) if isinstance(operation, str) else on_quads(*operation[::2]))
            for number, operation in enumerate(operations)
        ]
        return self.repository.change_of(numbered, txid, TIMESTAMP_US, PendingQuads())

    def run(self, *operations: Operation | str, txid: str = "tx") -> QuadChange:
        """Execute the operations as one transaction."""
        change = self.change(*operations, txid=txid)
        self.apply(change)
        return change

    def apply(self, change: QuadChange) -> None:
        """Apply an effect as the next transaction."""
        self.repository.commit(change.removed, change.added, self.repository.position + 1)

    def lines(self) -> list[str]:
        """The content, sorted."""
        return sorted(self.repository.lines())


def short(lines: Sequence[str]) -> list[str]:
    """Lines for reading: ``urn:a p 1`` for ``<urn:a> <urn:p> "1"^^xsd:integer``."""
    replaced = [line.replace(INTEGER, "").replace("<urn:", "").replace(">", "").replace('"', "") for line in lines]
    return sorted(replaced)
