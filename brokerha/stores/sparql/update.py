"""SPARQL updates as exact, deterministic effects, without a trace in the engine.

The engine evaluates an operation with a WHERE clause inside a transaction that cannot commit: the text ends with a CREATE that
fails. The text begins with the state that the operation sees. Each WHERE clause calls a function of this package, which receives
every solution:

    DELETE DATA { ... } ; INSERT DATA { ... } ;                           pending changes, which readers must not see
    DELETE { } INSERT { } WHERE { { the clause }
        BIND(<solution>(0, ?s, ?o) AS ?t) }                               receives each solution, and fills the templates
    CREATE SILENT GRAPH <x> ; CREATE GRAPH <x>                            fails: all of the above is undone

Several operations of a request go into one such text, in order. All but the last keep their templates, so that the engine has
applied them when it evaluates the next one. Blank nodes get the same labels in the engine and here, because the text calls a
function for them.

Data operations need only their quads, graph operations only the quads of a graph: both use the `QuadView` alone. Must not read a
clock or draw a random number: all fresh values come from the seed (`functions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pyoxigraph import DefaultGraph, NamedNode, Quad, Store

from brokerha.model.errors import TOO_MUCH, InvalidRequest, Rejected
from brokerha.model.ids import Timestamp, TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, EFFECT_LIMIT_BYTES, Add, Clear, OnQuads, Remove, Update
from brokerha.stores.rdf.change import AS_BLANK_FUNCTIONS, PendingQuads, canonical, change_text, check_not_reserved, read_nquads
from brokerha.stores.rdf.terms import Function, Graph
from brokerha.stores.rdf.view import ANY, Pattern, QuadView, state_text, undone
from brokerha.stores.sparql.functions import FreshFunctions, label_of, seed_of
from brokerha.stores.sparql.modify import EFFECT_LIMIT_QUADS, Modify
from brokerha.stores.sparql.request import Part, Request, read_update
from brokerha.stores.sparql.template import read_iri, read_plain_data, read_templates
from brokerha.stores.sparql.union import evaluate_on_union, everywhere, not_evaluated

CLEARED_LIMIT_BYTES: Final = EFFECT_LIMIT_BYTES + BODY_LIMIT_BYTES
"""Limit of bytes of named quads that a graph operation removes; with more, the effect would be too large in any case."""
_SHORTEST: Final = ("_:a", "<a:>", '""')
"""The shortest terms of a quad."""
_ADDS_FOR_PLAIN: Final = 100
"""Limit of quads added by the same transaction: with more, matching them here can take longer than the engine does."""


@dataclass(slots=True)
class DataStep:
    """Quads to remove and to add, whether they exist or not."""

    removed: dict[str, Quad] = field(default_factory=dict)
    added: dict[str, Quad] = field(default_factory=dict)


class UpdateRun:
    """An evaluation of operations on one repository, in order, on top of its pending changes."""

    def __init__(
        self,
        engine: Store,
        pending: PendingQuads,
        union: Iterable[Graph] | None = None,
        clear: Callable[[], Store | None] = lambda: None,
    ) -> None:
        """``union``: the named graphs of the engine, if the default graph is the union of all (union.py).

        ``clear`` replaces a large repository by an empty one and returns its engine.
        """
        self.view = QuadView(engine, pending)
        self._engine = engine
        self._union = union
        self._clear_all = clear
        self._waiting: list[DataStep | Modify] = []
        self._prologue = ""

    def add(self, operation: OnQuads, txid: TxId, timestamp: Timestamp, number: int, *, is_last: bool = False) -> None:
        """Take in an operation, the last one of the transaction on this repository or not. Raises Rejected, StoreError."""
        try:
            match operation:
                case Add():
                    self._data(DataStep(added=read_nquads(operation.text)))
                case Remove():
                    self._data(DataStep(removed=read_nquads(operation.text)))
                case Clear():
                    self.finish()
                    self._clear("ALL", is_last=is_last)
                case Update():
                    self._update(operation.text, txid, timestamp, number, is_last=is_last)
        except InvalidRequest as error:
            raise Rejected(str(error)) from None

    def finish(self) -> None:
        """Evaluate the waiting operations; the view then has all changes. Raises Rejected, StoreError."""
        steps, self._waiting = self._waiting, []
        if any(isinstance(step, Modify) for step in steps):
            self._evaluate(steps)
        for step in steps:
            if isinstance(step, Modify):
                try:
                    self.view.apply(*step.quads())
                except InvalidRequest as error:
                    raise Rejected(str(error)) from None
            else:
                self.view.apply(step.removed, step.added)

    def _update(self, text: str, txid: TxId, timestamp: Timestamp, number: int, *, is_last: bool) -> None:
        plain = read_plain_data(text)
        if plain is not None:
            step = DataStep(added=plain.quads) if plain.is_insert else DataStep(removed=plain.quads)
            self._data_of_update(step)
            return
        request = read_update(text)
        for index, part in enumerate(request.parts):
            none_brings_back = is_last and not any(map(_may_bring_back, request.parts[index + 1 :]))
            seed = seed_of(txid, number, index)
            if part.kind == "MODIFY":
                modify = Modify(request, part, FreshFunctions(seed, timestamp), seed)
                may_be_plain = self._union is None and not self._waiting and self.view.adds <= _ADDS_FOR_PLAIN
                if may_be_plain and (like := modify.plain()):
                    self._remove(*like, is_last=none_brings_back)
                elif modify.may_change:
                    self._modify(modify)
            elif part.kind in {"INSERT DATA", "DELETE DATA"}:
                self._data_of_update(data_step(request, part, seed))
            else:
                self.finish()
                self._graph_operation(request, part, is_last=none_brings_back)

    def _data(self, step: DataStep) -> None:
        if self._waiting:
            self._waiting.append(step)
        else:
            self.view.apply(step.removed, step.added)

    def _data_of_update(self, step: DataStep) -> None:
        if self._union is not None and step.removed:
            self.finish()
            step.removed = everywhere(self.view, step.removed.values())
        self._data(step)

    def _modify(self, modify: Modify) -> None:
        if self._union is not None and not modify.has_with:
            self.finish()
            if modify.has_using:
                self._prologue = modify.prologue
                self._evaluate([modify])
            else:
                evaluate_on_union(self._engine, self._union, self.view, modify)
            removed, added = modify.quads()
            self.view.apply(everywhere(self.view, removed.values()), added)
            return
        # A text has one prologue. And GRAPH ?g would still find a graph that was emptied in the same text.
        if self._waiting and (modify.prologue != self._prologue or (modify.names_graphs and self._removes())):
            self.finish()
        self._prologue = modify.prologue
        self._waiting.append(modify)

    def _removes(self) -> bool:
        return any(step.may_remove if isinstance(step, Modify) else step.removed for step in self._waiting)

    def _evaluate(self, steps: list[DataStep | Modify]) -> None:
        """Let the engine report the solutions of all steps, in one text that never commits."""
        removed, added = self.view.over_engine()
        functions: dict[NamedNode, Function] = dict(AS_BLANK_FUNCTIONS)
        modifies = [step for step in steps if isinstance(step, Modify)]
        names_graphs = any(modify.names_graphs for modify in modifies)
        pieces = [self._prologue, state_text(self._engine, removed, added, names_graphs=names_graphs)]
        for step in steps:
            if isinstance(step, Modify):
                pieces.append(step.text(with_templates=step is not modifies[-1]))
                functions.update(step.functions())
                if step is modifies[-1]:
                    break
            else:
                pieces.append(change_text(step.removed.values(), step.added.values()))
        undone(self._engine, "".join(pieces), functions, not_evaluated)
        for modify in modifies:
            modify.check()

    def _graph_operation(self, request: Request, part: Part, *, is_last: bool) -> None:
        graphs = [g if isinstance(g, str) else read_iri(request, part, g) for g in part.graphs]
        if part.kind in {"CLEAR", "DROP"}:
            self._clear(graphs[0], is_last=is_last)
        elif part.kind == "CREATE":
            graph = _graph(graphs[0])
            if not part.silent and not self.view.is_empty(graph):
                raise Rejected(f"the graph {graph} already exists")
        else:
            source, target = map(_graph, graphs)
            is_end = is_last and part is request.parts[-1]
            self._transfer(part.kind, source, target, silent=part.silent, is_last=is_end)

    def _clear(self, which: NamedNode | str, *, is_last: bool) -> None:
        if self._goes_whole(which) and (empty := self._clear_all()) is not None:
            self._engine, self.view = empty, QuadView(empty, PendingQuads())
            self._union = None if self._union is None else ()
            return
        self._remove(which, is_last=is_last)

    def _remove(self, which: Graph | str, like: Pattern = ANY, *, is_last: bool) -> None:
        """Remove the quads of a graph, ``NAMED`` or ``ALL`` that match a pattern; raise Rejected once they are certainly too many.

        ``is_last``: no later operation can add a quad again that this one removes. The limit depends only on the quads, never on the
        moment of the check.
        """
        limit_bytes = EFFECT_LIMIT_BYTES if is_last else CLEARED_LIMIT_BYTES
        sure = smallest = 0
        if which == "NAMED":
            quads = self.view.quads_in_named_graphs(like)
        elif which == "ALL":
            quads = self.view.quads_in(None)
        else:
            graph = _graph(which)
            quads = self.view.quads_in(graph, like)
            smallest = _smallest(graph, like)
            sure = self.view.sure(graph, like, limit_bytes // smallest + 1)
        removed, size_bytes = list[str](), 0
        for line, _ in quads:
            removed.append(line)
            sure -= 1
            if not self.view.is_new(line):
                size_bytes += len(line.encode())
            if size_bytes + max(sure, 0) * smallest > limit_bytes:
                raise Rejected(
                    f"{TOO_MUCH}an operation removes more than {limit_bytes} bytes of quads: split it, for instance by "
                    "DELETE WHERE over SELECT ... LIMIT 50000; only all of a repository goes in one step"
                )
        self.view.remove(removed)

    def _goes_whole(self, which: NamedNode | str) -> bool:
        """Tell whether the repository is empty after this graph is emptied."""
        if which == "NAMED":
            return self.view.is_empty(DefaultGraph())
        return which == "ALL" or not self.view.holds_beside(_graph(which))

    def _transfer(self, kind: str, source: Graph, target: Graph, *, silent: bool, is_last: bool) -> None:
        """Do ADD, COPY or MOVE. A missing source raises Rejected; with SILENT it does nothing."""
        if source == target:
            return
        # If nothing can be there already, and nothing takes it away again, each quad counts.
        limit_bytes = EFFECT_LIMIT_BYTES if is_last and self.view.adds_each_to(target) else None
        held, moved = self._moved(source, target, limit_bytes)
        if not moved and not isinstance(source, DefaultGraph):
            if silent:
                return
            raise Rejected(f"the graph {source} does not exist")
        removed = {} if kind == "ADD" else _limited(self.view.quads_in(target))
        if kind == "MOVE":
            removed.update(held)
        self.view.apply(removed, moved)

    def _moved(self, source: Graph, target: Graph, limit_bytes: int | None) -> tuple[dict[str, Quad], dict[str, Quad]]:
        """Return the quads of a graph, and the same as quads of another; raise Rejected once they are certainly too many."""
        smallest = _smallest(target)
        sure = 0 if limit_bytes is None else self.view.sure(source, ANY, limit_bytes // smallest + 1)
        held, moved, size_bytes = dict[str, Quad](), dict[str, Quad](), 0
        for held_line, quad in self.view.quads_in(source):
            held[held_line] = quad
            as_moved = Quad(quad.subject, quad.predicate, quad.object, target)
            line = str(as_moved)
            moved[line] = as_moved
            size_bytes += len(line.encode())
            least_bytes = size_bytes + max(sure - len(moved), 0) * smallest
            if len(moved) > EFFECT_LIMIT_QUADS or (limit_bytes is not None and least_bytes > limit_bytes):
                raise Rejected(
                    f"{TOO_MUCH}{source} does not fit into one transaction: INSERT it in parts, WHERE over SELECT ... LIMIT 50000"
                )
        return held, moved


def data_step(request: Request, part: Part, seed: bytes) -> DataStep:
    """Return the quads of INSERT DATA or DELETE DATA. Raises InvalidRequest."""
    templates = read_templates(request, part)

    def label(name: str) -> str:
        return label_of(seed, "data", name)

    step = DataStep(
        {str(template.quad): template.quad for template in templates.delete},
        canonical(template.named(label) for template in templates.insert),
    )
    check_not_reserved(step.removed)
    check_not_reserved(step.added)
    return step


def _smallest(graph: Graph, like: Pattern = ANY) -> int:
    """Return the size in bytes of the smallest line of a quad of this graph and pattern."""
    terms = [short if term is None else str(term) for term, short in zip(like, _SHORTEST, strict=True)]
    return len(" ".join(terms if isinstance(graph, DefaultGraph) else [*terms, str(graph)]).encode())


def _graph(which: Graph | str) -> Graph:
    return DefaultGraph() if isinstance(which, str) else which


def _may_bring_back(part: Part) -> bool:
    """Tell whether an operation can add removed quads again, or empty the whole repository in one step."""
    return part.kind != "DELETE DATA" and not (part.kind == "MODIFY" and part.insert[0] >= part.insert[1])


def _limited(quads: Iterable[tuple[str, Quad]]) -> dict[str, Quad]:
    found = dict(islice(quads, EFFECT_LIMIT_QUADS + 1))
    if len(found) > EFFECT_LIMIT_QUADS:
        raise Rejected(f"the operation changes more than {EFFECT_LIMIT_QUADS} quads: split it")
    return found
