"""An open transaction's operations on one repository as one text for the engine; reads of their result follow it.

Unlike in `update.py`, the engine itself changes its quads, in a transaction that always aborts: the text has all templates, and
graph operations as they are. Blank nodes and fresh values get the labels that they will have at the execution of the transaction,
but NOW() is the time of the read. Errors that would reject the transaction later (CREATE of a graph that exists) are silent here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyoxigraph import NamedNode

from brokerha.model.errors import InvalidRequest, Rejected
from brokerha.model.ids import Timestamp, TxId
from brokerha.model.operations import Clear, OnQuads
from brokerha.stores.rdf.change import change_text, read_nquads
from brokerha.stores.rdf.terms import Function, Graph
from brokerha.stores.sparql.functions import FreshFunctions, seed_of
from brokerha.stores.sparql.modify import Modify
from brokerha.stores.sparql.request import Part, Request, read_update
from brokerha.stores.sparql.template import read_iri, read_plain_data
from brokerha.stores.sparql.tokens import in_full
from brokerha.stores.sparql.update import data_step

_CLEARING: Final = frozenset({"CLEAR", "DROP"})


class ScratchText:
    """Updates and quads, each with its number in the transaction, as text for an engine."""

    def __init__(self, operations: Iterable[tuple[int, OnQuads]], txid: TxId, timestamp: Timestamp) -> None:
        """Raise InvalidRequest for an operation that can never be executed."""
        self.functions: dict[NamedNode, Function] = {}
        """Functions that the text calls."""
        self._txid = txid
        self._timestamp = timestamp
        self._modifies: list[Modify] = []
        self._pieces: list[str] = []
        self._depends_on_union = False
        self.graphs: set[Graph] = set()
        """Graphs that the text can create."""
        for number, operation in operations:
            try:
                self._add(number, operation)
            except InvalidRequest as error:
                raise InvalidRequest(f"operation {number} of the transaction cannot be evaluated: {error}") from None

    @property
    def text(self) -> str:
        """SPARQL operations, each ended by ``;``; empty when there are none."""
        return "".join(self._pieces)

    def check_union(self) -> None:
        """Raise InvalidRequest when the result would differ if the default graph is the union of all graphs."""
        if self._depends_on_union:
            raise InvalidRequest(
                "the default graph of this repository is the union of all: after an update with WHERE or a DELETE without "
                "GRAPH, a transaction is read when it is committed"
            )

    def check(self) -> None:
        """Raise InvalidRequest for errors in the text after its run."""
        for modify in self._modifies:
            try:
                modify.check()
            except Rejected as error:
                raise InvalidRequest(f"the operations of the transaction cannot be evaluated: {error}") from None

    def _add(self, number: int, operation: OnQuads) -> None:
        if isinstance(operation, Clear):
            self._pieces.append("CLEAR SILENT ALL;\n")
            return
        kind, text = operation.kind, operation.text
        if kind != "update":
            quads = read_nquads(text).values()
            self.graphs.update(quad.graph_name for quad in quads)
            self._pieces.append(change_text((), quads) if kind == "add" else change_text(quads, ()))
            return
        plain = read_plain_data(text)
        if plain is not None:
            quads = plain.quads.values()
            self.graphs.update(quad.graph_name for quad in quads)
            self._depends_on_union |= not plain.is_insert
            self._pieces.append(change_text((), quads) if plain.is_insert else change_text(quads, ()))
            return
        read_update(text)
        request = read_update(in_full(text))
        for index, part in enumerate(request.parts):
            self._part(request, part, seed_of(self._txid, number, index))

    def _part(self, request: Request, part: Part, seed: bytes) -> None:
        if part.kind == "MODIFY":
            modify = Modify(request, part, FreshFunctions(seed, self._timestamp), seed)
            self._depends_on_union = True
            self._pieces.append(modify.text(with_templates=True))
            self.functions.update(modify.functions())
            self._modifies.append(modify)
        elif part.kind in {"INSERT DATA", "DELETE DATA"}:
            step = data_step(request, part, seed)
            self._depends_on_union |= bool(step.removed)
            self.graphs.update(quad.graph_name for quad in step.added.values())
            self._pieces.append(change_text(step.removed.values(), step.added.values()))
        elif part.kind != "CREATE":
            self.graphs.update(read_iri(request, part, each) for each in part.graphs if not isinstance(each, str))
            graphs = [_graph_text(request, part, each) for each in part.graphs]
            between = "" if part.kind in _CLEARING else " TO "
            self._pieces.append(f"{part.kind} SILENT {between.join(graphs)};\n")


def _graph_text(request: Request, part: Part, graph: int | str) -> str:
    return graph if isinstance(graph, str) else f"GRAPH {read_iri(request, part, graph)}"
