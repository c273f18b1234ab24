"""DELETE/INSERT WHERE: the text that makes the engine report solutions, and the quads from solutions and templates.

For each solution the engine calls `_report` with the values of the template variables. The returned number identifies the
solution when the same text later asks for its blank nodes.

    DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:p> [ <urn:q> ?o ] } WHERE { ... }
      solution(?o = 1, ?s = <urn:a>)  -> 0
        removed  <urn:a> <urn:p> 1
        added    <urn:a> <urn:p> _:b3f..   and   _:b3f.. <urn:q> 1       b3f.. = hash(seed, values, 0 equal before, n0)

Values alone identify a solution, so labels depend neither on the order of the solutions nor on the history of the store. Quads
that RDF forbids (a literal as subject, an unbound variable) are left out one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad, Triple

from brokerha.model.errors import Rejected
from brokerha.stores.rdf.change import canonical, check_not_reserved
from brokerha.stores.rdf.terms import UNBOUND, Function, Graph, Term, arguments_of
from brokerha.stores.rdf.view import Pattern
from brokerha.stores.sparql.functions import FreshFunctions, label_of
from brokerha.stores.sparql.request import Part, Request
from brokerha.stores.sparql.template import read_iri, read_templates, variable_of
from brokerha.stores.sparql.tokens import RESERVED, VARIABLE
from brokerha.stores.sparql.unknown import failing, unknown_functions

EFFECT_LIMIT_QUADS: Final = 1_000_000
"""Limit of quads that one operation removes or adds, to bound memory and messages."""
SOLUTIONS_LIMIT: Final = 4_000_000
"""Limit of solutions of one operation. Every copy goes through all of them, and later writes wait: 1 to 3 s for a million. Unlike
time, their number is the same at every copy, so all refuse the same operations."""


class Modify:
    """One DELETE/INSERT WHERE of a request: its text for the engine, and its result."""

    def __init__(self, request: Request, part: Part, fresh: FreshFunctions, seed: bytes) -> None:
        self.prologue = part.prologue
        tokens = request.tokens
        self.names_graphs = any(
            tokens.word_of(index).endswith("GRAPH") and tokens.kind_of(index + 1) == VARIABLE for index in range(*part.where)
        ) or ("BASE" in part.prologue.upper())
        """Whether the clause asks for the names of graphs, or can name one in a way that only the engine understands."""
        self._fresh = fresh
        self._unknown = unknown_functions(tokens, part.where, part.prologue)
        self._seed = seed
        self._templates = read_templates(request, part)
        self.may_remove = bool(self._templates.delete)
        self.may_change = bool(self._templates.delete or self._templates.insert)
        """Whether it has a template; without one, no solutions are needed."""
        self._where = fresh.rewrite(tokens, part.where)
        self._using = tokens.slice(*part.using)
        self._graph: Graph = DefaultGraph() if part.with_graph is None else read_iri(request, part, part.with_graph)
        signs = [[tokens.text_of(index) for index in range(*span)] for span in (part.delete, part.where)]
        self._is_plain = signs[0] == signs[1] and not self._templates.insert and not self._using
        """True if the template equals the WHERE clause."""
        self._equal: Counter[str] = Counter()
        self._solutions: list[_Solution] = []
        self._count = 0
        self._keeps_solutions = False
        self._labels: dict[str, BlankNode] = {}
        self._removed: set[Quad] = set()
        self._added: set[Quad] = set()
        self._fault: Exception | None = None
        self._name = f"{RESERVED}solution:{seed.hex()}"
        self._blank_name = f"{RESERVED}blank-of:{seed.hex()}"
        self._value_name = f"{RESERVED}value-of:{seed.hex()}"

    def functions(self) -> dict[NamedNode, Function]:
        """Return the functions that the text calls."""
        return {
            NamedNode(self._name): self._report,
            NamedNode(self._blank_name): self._blank_of,
            NamedNode(self._value_name): self._value_of,
            **self._fresh.functions,
            **failing(self._unknown),
        }

    def text(self, *, with_templates: bool, using: str = "") -> str:
        """Return the operation for the engine; with templates if a later operation has to see its result.

        ``using`` is the dataset if the clause names none itself.
        """
        self._keeps_solutions = with_templates
        binds = [self._bind()]
        delete = insert = ""
        if with_templates:
            names = {f"_:{name}": f"?brokerha_{name}" for name in self._templates.blanks}
            binds += [
                f'BIND(<{self._blank_name}>(?brokerha_solution, "{name}") AS ?brokerha_{name})' for name in self._templates.blanks
            ]
            if self._fresh.makes_blanks:
                names |= {name: f"?brokerha_value_{name}" for name in self._templates.variables}
                binds += [
                    f"BIND(<{self._value_name}>(?brokerha_solution, ?{name}) AS ?brokerha_value_{name})"
                    for name in self._templates.variables
                ]
            delete = "\n".join(quad.text(lambda name: names.get(name, f"?{name}")) for quad in self._templates.delete)
            insert = "\n".join(quad.text(lambda name: names.get(name, f"?{name}")) for quad in self._templates.insert)
        clause = f"{{ {self._limited()}\n{' '.join(binds)} }}"
        # Without templates WITH matters for the clause only; with them it also sets the graph of quads without GRAPH.
        head = "" if isinstance(self._graph, DefaultGraph) else f"WITH {self._graph} "
        return f"{head}DELETE {{ {delete} }} INSERT {{ {insert} }}\n{self._using or using}\nWHERE {clause};\n"

    def plain(self) -> tuple[Graph | str, Pattern] | None:
        """Return the graph, or ``NAMED``, and the pattern of an operation that removes all quads of one pattern; else None.

        None for a known subject as well: it matches few quads, and the engine is faster with several such operations at once.
        """
        if not self._is_plain or len(self._templates.delete) != 1:
            return None
        quad = self._templates.delete[0].quad
        terms = [None if (name := variable_of(term)) else term for term in quad]
        names = [name for term in quad if (name := variable_of(term))]
        if terms[0] is not None or len({*names}) != len(names) or any(isinstance(term, Triple) for term in terms):
            return None
        graph = self._graph if isinstance(quad.graph_name, DefaultGraph) else terms[3]
        return "NAMED" if graph is None else graph, (terms[0], terms[1], terms[2])

    @property
    def has_using(self) -> bool:
        """Tell whether the text has a USING clause."""
        return bool(self._using)

    @property
    def has_with(self) -> bool:
        """Tell whether the text names the graph that replaces the default graph."""
        return not isinstance(self._graph, DefaultGraph)

    def query(self) -> str:
        """Return the clause as a query that reports its solutions, for datasets that only a query can have."""
        self._keeps_solutions = False
        return f"{self.prologue}SELECT ?brokerha_solution {{ {self._limited()}\n{self._bind()} }}"

    def _bind(self) -> str:
        """Return the call that reports a solution."""
        return f"BIND(<{self._name}>({arguments_of(self._templates.variables)}) AS ?brokerha_solution)"

    def _limited(self) -> str:
        """Return the clause, limited to the needed solutions: one, if all make the same quads."""
        templates = self._templates
        decides = SOLUTIONS_LIMIT + 1 if templates.variables or templates.blanks else 1
        return f"{{ SELECT * {{\n{self._where}\n}} LIMIT {decides} }}"

    def check(self) -> None:
        """Raise the error of a function; the engine treats it as an unbound value."""
        if self._fault is not None:
            raise self._fault

    def quads(self) -> tuple[dict[str, Quad], dict[str, Quad]]:
        """Return quads to remove and to add, by line. Raises InvalidRequest when one holds a reserved IRI."""
        removed, added = canonical(self._removed), canonical(self._added)
        check_not_reserved(removed)
        check_not_reserved(added)
        return removed, added

    def _report(self, *terms: Term) -> Literal | None:
        if self._fault is not None:
            return None
        try:
            return Literal(self._solution(terms))
        except Exception as error:  # noqa: BLE001  No exception must be lost inside the engine; check() raises it.
            self._fault = error
            return None

    def _solution(self, terms: tuple[Term, ...]) -> int:
        self._count += 1
        if self._count > SOLUTIONS_LIMIT:
            raise Rejected(f"the operation has more than {SOLUTIONS_LIMIT} solutions: split it, or SELECT DISTINCT what it needs")
        names = self._templates.variables
        # The same as `terms.bound`, without a call: there can be millions.
        bound = [None if isinstance(term, Literal) and term.datatype == UNBOUND else term for term in terms]
        solution = self._labelled(dict(zip(names, bound, strict=True)))
        for template in self._templates.delete:
            quad = template.fill(solution.values, solution.blank, self._graph)
            if quad is not None:
                self._removed.add(quad)
        for template in self._templates.insert:
            quad = template.fill(solution.values, solution.blank, self._graph)
            if quad is not None:
                self._added.add(quad)
        if len(self._removed) > EFFECT_LIMIT_QUADS or len(self._added) > EFFECT_LIMIT_QUADS:
            raise Rejected(f"the operation changes more than {EFFECT_LIMIT_QUADS} quads: split it")
        if self._keeps_solutions:
            self._solutions.append(solution)
        return len(self._solutions) - 1

    def _labelled(self, values: dict[str, Term | None]) -> _Solution:
        """Return the solution with final labels instead of the placeholders of BNODE."""
        if not self._templates.blanks and not self._fresh.makes_blanks:
            return _Solution(self._seed, "", values)
        key = "\n".join(map(str, values.values()))
        replaced: dict[str, BlankNode] = {}
        if self._fresh.makes_blanks:
            key = "\n".join(str(self._neutral(value, replaced)) for value in values.values())
        key = f"{self._equal[key]}\n{key}"
        self._equal[key.partition("\n")[2]] += 1
        solution = _Solution(self._seed, key, values)
        if replaced:
            for placeholder, neutral in replaced.items():
                label = solution.blank(f"bnode {neutral.value}")
                replaced[placeholder] = label if self._fresh.is_keyed(placeholder) else self._labels.setdefault(placeholder, label)
            solution.values = {name: _replace(value, replaced) for name, value in values.items()}
            solution.replaced = replaced
        return solution

    def _neutral(self, value: Term | None, seen: dict[str, BlankNode]) -> Term | None:
        """Return the value with each placeholder named by its place in the solution, not by its call."""
        for placeholder in _blanks(value):
            if placeholder not in seen and self._fresh.is_placeholder(BlankNode(placeholder)):
                seen[placeholder] = self._labels.get(placeholder, BlankNode(f"new{len(seen)}"))
        return _replace(value, seen)

    def _blank_of(self, number: Literal, name: Literal) -> BlankNode:
        """Return the blank node that a template makes for a solution."""
        return self._solutions[int(number.value)].blank(name.value)

    def _value_of(self, number: Literal, value: Term) -> Term | None:
        """Return a value of a solution with final labels."""
        return _replace(value, self._solutions[int(number.value)].replaced)


class _Solution:
    """One solution with its blank nodes."""

    __slots__ = ("_key", "_seed", "replaced", "values")

    def __init__(self, seed: bytes, key: str, values: dict[str, Term | None]) -> None:
        self._seed = seed
        self._key = key
        self.values = values
        self.replaced: Mapping[str, BlankNode] = {}

    def blank(self, name: str) -> BlankNode:
        return BlankNode(label_of(self._seed, "solution", self._key, name))


def _blanks(term: object) -> list[str]:
    if isinstance(term, BlankNode):
        return [term.value]
    return [label for inner in term for label in _blanks(inner)] if isinstance(term, Triple) else []


def _replace(term: Term | None, replaced: Mapping[str, BlankNode]) -> Term | None:
    if isinstance(term, BlankNode):
        return replaced.get(term.value, term)
    if isinstance(term, Triple) and replaced:
        subject, predicate, value = (_replace(inner, replaced) for inner in term)
        return Triple(subject, predicate, value)  # type: ignore[arg-type]
    return term
