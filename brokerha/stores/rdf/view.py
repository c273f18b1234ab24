"""The quads of a repository as a transaction sees them: the engine, pending changes, and its own changes so far.

    engine            committed quads, on disk
      + base          changes of earlier transactions that are not committed yet
        + own         changes of the transaction under evaluation

The engine's content stays unchanged. `own` stays net at each step: a quad that is removed and added again leaves nothing. For an
evaluation on such a state, the engine runs one text whose end fails, so that it never commits (`undone`, sparql/update.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, cast

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad, QuerySolutions, Store, Triple

from brokerha.stores.rdf.change import PendingQuads, QuadChange, change_text, parse_lines
from brokerha.stores.rdf.errors import CANNOT_READ, is_of_files, store_error
from brokerha.stores.rdf.terms import SYSTEM_GRAPH, Function, Graph

HIDE: Final = f"DROP SILENT GRAPH {SYSTEM_GRAPH};\n"
"""Hides brokerha's own graph from GRAPH ?g."""
Pattern = tuple[NamedNode | BlankNode | None, NamedNode | None, NamedNode | BlankNode | Literal | Triple | None]
"""Subject, predicate and object of quads; None for any."""
ANY: Final[Pattern] = (None, None, None)
_END: Final = f"CREATE SILENT GRAPH {SYSTEM_GRAPH};\nCREATE GRAPH {SYSTEM_GRAPH}"


class QuadView:
    """Three layers of quads; the top one grows."""

    __slots__ = ("_base", "_engine", "_own")

    def __init__(self, engine: Store, base: PendingQuads) -> None:
        self._engine = engine
        self._base = base
        self._own = PendingQuads()

    def apply(self, removed: dict[str, Quad], added: dict[str, Quad]) -> None:
        """Remove quads, then add quads, as SPARQL does: a quad in both exists afterwards."""
        own = self._own
        for line, quad in removed.items():
            if self.holds(line, quad):
                if line in own.added:
                    own.added.remove(line)
                else:
                    own.removed.add(line)
        for line, quad in added.items():
            if not self.holds(line, quad):
                if line in own.removed:
                    own.removed.remove(line)
                else:
                    own.added.add(line)

    def holds(self, line: str, quad: Quad) -> bool:
        """Tell whether this quad exists now."""
        for layer in (self._own, self._base):
            if line in layer.added:
                return True
            if line in layer.removed:
                return False
        return quad in self._engine

    def remove(self, held: Iterable[str]) -> None:
        """Remove quads that are there now."""
        own = self._own
        for line in held:
            if line in own.added:
                own.added.remove(line)
            else:
                own.removed.add(line)

    @property
    def adds(self) -> int:
        """Return the number of quads that the transaction itself has added."""
        return len(self._own.added)

    def is_new(self, line: str) -> bool:
        """Tell whether the transaction itself added this quad, so that its removal is no change."""
        return line in self._own.added

    def adds_each_to(self, graph: Graph) -> bool:
        """Tell whether each quad that comes into this graph is a change: it is empty, and the transaction itself emptied nothing."""
        return not self._own.removed and self.is_empty(graph)

    def change(self) -> QuadChange:
        """Return the transaction's own net change so far."""
        return self._own.change()

    def over_engine(self) -> tuple[list[Quad], list[Quad]]:
        """Return the quads to remove from the engine, and to add to it, so that it shows this view."""
        base, own = self._base, self._own
        if not base and not own:
            return [], []
        both = base.copy()
        both.include(QuadChange(tuple(own.removed), tuple(own.added)))
        return parse_lines(sorted(both.removed)), parse_lines(sorted(both.added))

    def quads_in(self, graph: Graph | None, like: Pattern = ANY) -> Iterator[tuple[str, Quad]]:
        """Yield the quads of one graph, or of all, that match a pattern, with their lines, unordered."""
        yield from self._quads(graph, like)

    def sure(self, graph: Graph, like: Pattern, most: int) -> int:
        """Return a lower bound of the number of matching quads, at most ``most``: the engine counts 20 times as fast as it reads.

        The limit in the text also lets the engine return from a damaged table (errors.py).
        """
        hidden = len(self._base.removed) + len(self._own.removed)
        terms = " ".join(f"?v{place}" if term is None else str(term) for place, term in enumerate(like))
        text = f"SELECT (COUNT(*) AS ?n) {{ SELECT * {{ {terms} }} LIMIT {most + hidden} }}"
        ((count,),) = cast("QuerySolutions", self._engine.query(text, default_graph=[graph]))
        return max(0, int(cast("Literal", count).value) - hidden)

    def quads_in_named_graphs(self, like: Pattern = ANY) -> Iterator[tuple[str, Quad]]:
        """Yield the quads of all graphs except the default graph."""
        for line, quad in self._quads(None, like):
            if not isinstance(quad.graph_name, DefaultGraph):
                yield line, quad

    def holds_beside(self, graph: Graph) -> bool:
        """Tell whether another graph than this one has quads; stops at the first one."""
        waiting = (quad.graph_name for quad in parse_lines({*self._base.added, *self._own.added}))
        names = chain([DefaultGraph()], self._engine.named_graphs(), waiting)
        return any(name not in {graph, SYSTEM_GRAPH} and not self.is_empty(name) for name in names)

    def is_empty(self, graph: Graph) -> bool:
        """Tell whether a graph has no quads, which is the same as not existing."""
        return next(self._quads(graph), None) is None

    def in_all_graphs(self, triples: Iterable[Triple]) -> Iterator[Quad]:
        """Yield the existing quads with one of these triples, in any graph."""
        waiting: dict[Triple, list[Quad]] = {}
        for each in parse_lines({*self._base.added, *self._own.added}):
            waiting.setdefault(each.triple, []).append(each)
        for triple in triples:
            found = self._engine.quads_for_pattern(triple.subject, triple.predicate, triple.object, None)
            for each in (*found, *waiting.get(triple, ())):
                if each.graph_name != SYSTEM_GRAPH and self.holds(str(each), each):
                    yield each

    def _quads(self, graph: Graph | None, like: Pattern = ANY) -> Iterator[tuple[str, Quad]]:
        removed, added = self._base.removed, self._base.added
        own = self._own
        for quad in self._engine.quads_for_pattern(*like, graph):
            line = str(quad)
            if quad.graph_name != SYSTEM_GRAPH and line not in own.removed and (line not in removed or line in own.added):
                yield line, quad
        waiting = [line for line in added if line not in own.removed]
        waiting += [line for line in own.added if line not in removed]
        wanted = (*like, graph)
        for quad in parse_lines(waiting):
            if all(want is None or want == term for want, term in zip(wanted, tuple(quad), strict=True)):
                yield str(quad), quad


def undone(engine: Store, text: str, functions: dict[NamedNode, Function], refused: Callable[[Exception], Exception]) -> None:
    """Let the engine run operations, each ended by ``;``, and undo them. Raises StoreError, and what ``refused`` returns."""
    try:
        engine.update(text + _END, custom_functions=functions)
    except (SyntaxError, OSError, RuntimeError) as error:
        if is_of_files(error):
            raise store_error(error, CANNOT_READ) from error
        if str(error) != f"The graph {SYSTEM_GRAPH} already exists":
            raise refused(error) from None


def state_text(engine: Store, removed: list[Quad], added: list[Quad], *, names_graphs: bool) -> str:
    """Return operations that let the engine show a state; ``names_graphs``: also for reads of the names of graphs."""
    text = change_text(removed, added)
    if names_graphs:
        text += HIDE + "".join(f"DROP SILENT GRAPH {name};\n" for name in _emptied(engine, removed, added))
    return text


def _emptied(engine: Store, removed: list[Quad], added: list[Quad]) -> list[NamedNode]:
    """Return named graphs that these changes leave empty, without graphs named by blank nodes."""
    gone = {str(quad) for quad in removed}
    names = {quad.graph_name for quad in removed} - {quad.graph_name for quad in added}
    return [
        name
        for name in sorted(names, key=str)
        if isinstance(name, NamedNode) and all(str(quad) in gone for quad in engine.quads_for_pattern(None, None, None, name))
    ]
