"""SPARQL requests as text: the operations of an update, and the kind of a query.

The engine itself checks the syntax. It parses a whole request before it evaluates: after a first operation that fails on an empty
store, it parses the rest without running it. This module reads a part of the syntax (where an operation begins, its templates,
its WHERE). It is never less strict than the engine, so it understands a request or refuses it. `refusals.py` has what is refused
in any request.

    PREFIX x: <urn:x>  INSERT DATA { x:a x:b 1 } ;  DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }
    |-- prologue ---|  |---- insert data -----|     |---------------- modify -----------|
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pyoxigraph import NamedNode, Store

from brokerha.model.errors import InvalidRequest
from brokerha.stores.sparql.refusals import refuse
from brokerha.stores.sparql.tokens import (
    BLANK,
    CONSTANTS,
    IRI,
    MESSAGE_LIMIT,
    PREFIXED,
    STRING,
    VARIABLE,
    Tokens,
    malformed,
    tokenize,
)
from brokerha.stores.sparql.unknown import unknown_functions

Span = tuple[int, int]
"""First token, and the token after the last one."""

GRAPH_WORDS: Final = frozenset({"CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"})
_QUERY_WORDS: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})
CLAUSE_LIMIT_TOKENS: Final = 2000
"""Limit of tokens of a WHERE clause or query, without constants in VALUES and IN. Like the limit of nesting it keeps the engine's
recursion from overflowing the stack, which was seen from about 6000 on."""
_CACHED_QUERY_CHARS: Final = 4096

_NEVER_RUN: Final = "CREATE GRAPH <urn:x>; CREATE GRAPH <urn:x>; "
"""Prefix of operations that stops the engine between parsing and running them."""
_NOT_LINE_END: Final = re.compile(r"[^\r\n]")
_POSITION: Final = re.compile(r"error at (\d+):(\d+): (.*)", re.DOTALL)
_SENTENCE: Final = re.compile(r"[A-Za-z]\w*\.?(?: [A-Za-z]\w*\.?){2,}")
"""The words of an engine's message, among the expected signs."""


@dataclass(frozen=True, slots=True)
class Part:
    """One operation of an update request; the span of an absent clause is empty."""

    kind: str
    """``INSERT DATA``, ``DELETE DATA``, ``MODIFY`` (templates and WHERE), or one of `GRAPH_WORDS`."""
    span: Span
    """The whole operation, without prologue and final semicolon."""
    prologue: str
    """All declarations at this operation, also earlier ones; the same object while there are no new ones."""
    delete: Span = (0, 0)
    """The inside of the braces, as for `insert` and `where`."""
    insert: Span = (0, 0)
    where: Span = (0, 0)
    with_graph: int | None = None
    """Token of the IRI after WITH."""
    using: Span = (0, 0)
    silent: bool = False
    graphs: tuple[int | str, ...] = ()
    """For a graph operation: token of an IRI, or ``DEFAULT``, ``NAMED``, ``ALL``; source before target."""


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed update request."""

    tokens: Tokens
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """Facts of a query text, read before its evaluation."""

    kind: str
    """``SELECT``, ``ASK``, ``CONSTRUCT`` or ``DESCRIBE``."""
    may_name_any_graph: bool
    """A graph can be bound to a variable, or named in a way that only the engine understands (relative to BASE)."""
    has_dataset: bool
    """There is a FROM clause."""
    unknown: tuple[NamedNode, ...]
    """Called functions that the engine does not have (unknown.py)."""


def read_update(text: str) -> Request:
    """Parse an update request. Raises InvalidRequest."""
    tokens = tokenize(text)
    refuse(tokens)
    request = _Reader(tokens).request()
    _check_syntax(request)
    return request


def _check_syntax(request: Request) -> None:
    """Let the engine parse all operations.

    Operations with other declarations are parsed separately, because the engine accepts a prologue only at the beginning.
    """
    tokens, parts = request.tokens, request.parts
    text = tokens.text
    first = 0
    while first < len(parts):
        last = first + 1
        while last < len(parts) and parts[last].prologue is parts[first].prologue:
            last += 1
        start = tokens.starts[parts[first].span[0]]
        head = (text[:start] if first == 0 else parts[first].prologue) + _NEVER_RUN
        parsed = head + _operations(tokens, parts[first:last])
        try:
            Store().update(parsed)
        except SyntaxError as error:
            for index in (each for part in parts[first:last] for each in range(*part.delete)):
                # The engine's message names another expected sign, not the blank node.
                if tokens.kind_of(index) == BLANK or tokens.text_of(index) in {"[", "("}:
                    raise tokens.malformed(index, "blank nodes are not allowed where quads are deleted") from None
            raise syntax_error(error, text, parsed, place_of_start=start - len(head)) from None
        except RuntimeError:
            pass  # The text was parsed; the CREATE before it failed as intended.
        first = last


def _operations(tokens: Tokens, parts: Sequence[Part]) -> str:
    """Return the text of these operations; declarations between them become blanks, so that places stay the same."""
    pieces: list[str] = []
    end = 0
    for part in parts:
        start = tokens.starts[part.span[0]]
        if pieces:
            pieces.append(";" + _NOT_LINE_END.sub(" ", tokens.text[end + 1 : start]))
        end = tokens.ends[part.span[1] - 1]
        pieces.append(tokens.text[start:end])
    return "".join(pieces)


def syntax_error(error: SyntaxError, text: str, parsed: str, *, place_of_start: int = 0) -> InvalidRequest:
    """Convert the engine's syntax error, with its line and column.

    `parsed` is the engine's text; its character n is character n + `place_of_start` of `text`.
    """
    found = _POSITION.match(str(error))
    if found is None:
        return InvalidRequest(f"MALFORMED QUERY: {error}"[:MESSAGE_LIMIT])
    lines = parsed.split("\n")
    line, column = int(found[1]), int(found[2])
    place = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1 + place_of_start
    problem = " ".join(found[3].split())
    said = _SENTENCE.search(problem.removeprefix("expected ").removeprefix("one of "))
    return malformed(text, min(max(place, 0), len(text)), said[0] if said else problem)


def read_query(text: str) -> QueryFacts:
    """Read the facts of a query that brokerha needs, without checking its syntax. Raises InvalidRequest."""
    return _read_short_query(text) if len(text) <= _CACHED_QUERY_CHARS else _read_query(text)


@lru_cache(maxsize=256)
def _read_short_query(text: str) -> QueryFacts:
    return _read_query(text)


def _read_query(text: str) -> QueryFacts:
    tokens = tokenize(text)
    refuse(tokens)
    first = prologue_end(tokens, 0)
    kind = tokens.word_of(first)
    if kind not in _QUERY_WORDS:
        raise tokens.malformed(first, "expected SELECT, ASK, CONSTRUCT or DESCRIBE")
    _check_size(tokens, (0, len(tokens)))
    any_graph = has_dataset = False
    for index in range(len(tokens)):
        word = tokens.word_of(index)
        if word == "BASE" or (word.endswith("GRAPH") and tokens.kind_of(index + 1) == VARIABLE):
            any_graph = True
        elif word == "FROM":
            has_dataset = True
    unknown = unknown_functions(tokens, (first, len(tokens)), tokens.slice(0, first))
    return QueryFacts(kind, any_graph, has_dataset, unknown)


def _check_size(tokens: Tokens, span: Span) -> None:
    """Raise InvalidRequest for a clause that is too large for the engine."""
    first, last = span
    if last - first <= CLAUSE_LIMIT_TOKENS:
        return
    counted = depth = list_depth = 0
    index = first
    while index < last:
        sign, word = tokens.text_of(index), tokens.word_of(index)
        depth += (sign == "(") - (sign == ")")
        if list_depth and depth < list_depth:
            list_depth = 0
        elif word == "IN" and tokens.text_of(index + 1) == "(" and not list_depth:
            list_depth = depth + 1
        if not list_depth or (tokens.kind_of(index) not in CONSTANTS and sign not in {",", "^^"}):
            counted += 1
        if word == "VALUES":
            while index < last and tokens.text_of(index) != "}":
                index += 1
        index += 1
    if counted > CLAUSE_LIMIT_TOKENS:
        raise tokens.malformed(first, f"the clause has more than {CLAUSE_LIMIT_TOKENS} words and signs: split the request")


def prologue_end(tokens: Tokens, index: int) -> int:
    """Return the first token from this one on that is not part of a prologue."""
    while True:
        word = tokens.word_of(index)
        if word == "PREFIX" and tokens.kind_of(index + 1) == PREFIXED and tokens.kind_of(index + 2) == IRI:
            index += 3
        elif (word == "BASE" and tokens.kind_of(index + 1) == IRI) or (word == "VERSION" and tokens.kind_of(index + 1) == STRING):
            index += 2
        else:
            return index


class _Declarations:
    """The declarations in the prologues of a request so far.

    Kept by name, because requests joined from many repeat the same prefixes.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._by_name: dict[tuple[int, str], str] = {}
        self._bases = 0
        self.prologue = ""

    def add(self, first: int, last: int) -> None:
        """Add the declarations of these tokens."""
        before = dict(self._by_name)
        while first < last:
            word = self._tokens.word_of(first)
            following = first + (3 if word == "PREFIX" else 2)
            name = self._tokens.text_of(first + 1) if word == "PREFIX" else word
            declaration = self._tokens.slice(first, following)
            # A declaration after a BASE can be relative to it, so it does not replace an earlier one.
            if word == "BASE" and self._by_name.get((self._bases, name)) != declaration:
                self._bases += 1
            self._by_name[self._bases, name] = declaration
            first = following
        if self._by_name != before:
            self.prologue = "".join(f"{declaration}\n" for declaration in self._by_name.values())


class _Reader:
    """A reader of the operations of an update request, token by token."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._index = 0
        self._declarations = _Declarations(tokens)

    def request(self) -> Request:
        parts = []
        while True:
            start = self._index
            self._index = prologue_end(self._tokens, start)
            if self._index == len(self._tokens):
                break
            self._declarations.add(start, self._index)
            parts.append(self._part())
            if self._index < len(self._tokens):
                self._expect(";")
        return Request(self._tokens, tuple(parts))

    def _part(self) -> Part:
        start = self._index
        word = self._take_word()
        following = self._tokens.word_of(self._index)
        if (word, following) == ("INSERT", "DATA"):
            self._index += 1
            insert = self._braces()
            return self._done(start, "INSERT DATA", insert=insert)
        if (word, following) == ("DELETE", "DATA"):
            self._index += 1
            delete = self._braces()
            return self._done(start, "DELETE DATA", delete=delete)
        if (word, following) == ("DELETE", "WHERE"):
            self._index += 1
            where = self._braces()
            _check_size(self._tokens, where)
            return self._done(start, "MODIFY", delete=where, where=where)
        if word in {"WITH", "INSERT", "DELETE"}:
            return self._modify(start, word)
        if word in GRAPH_WORDS:
            return self._graph_operation(start, word)
        raise self._tokens.malformed(start, "expected an update operation, such as INSERT DATA")

    def _modify(self, start: int, word: str) -> Part:
        with_graph = None
        if word == "WITH":
            with_graph = self._take_iri()
            word = self._take_word("DELETE", "INSERT")
        delete = insert = (0, 0)
        if word == "DELETE":
            delete = self._braces()
            if self._tokens.word_of(self._index) == "INSERT":
                word = self._take_word()
        if word == "INSERT":
            insert = self._braces()
        using = self._index
        while self._tokens.word_of(self._index) == "USING":
            self._index += 1
            if self._tokens.word_of(self._index) == "NAMED":
                self._index += 1
            self._take_iri()
        using_span = (using, self._index)
        self._take_word("WHERE")
        where = self._braces()
        _check_size(self._tokens, where)
        return self._done(start, "MODIFY", delete=delete, insert=insert, where=where, with_graph=with_graph, using=using_span)

    def _graph_operation(self, start: int, word: str) -> Part:
        silent = self._tokens.word_of(self._index) == "SILENT"
        self._index += silent
        graphs = [self._graph()]
        if word in {"ADD", "MOVE", "COPY"}:
            self._take_word("TO")
            graphs.append(self._graph())
        return self._done(start, word, silent=silent, graphs=tuple(graphs))

    def _done(self, start: int, kind: str, **clauses: Any) -> Part:
        return Part(kind, (start, self._index), self._declarations.prologue, **clauses)

    def _graph(self) -> int | str:
        word = self._tokens.word_of(self._index)
        if word in {"DEFAULT", "NAMED", "ALL"}:
            self._index += 1
            return word
        if word == "GRAPH":
            self._index += 1
        return self._take_iri()

    def _take_word(self, *allowed: str) -> str:
        """Return the next keyword, which must be in `allowed` if given."""
        word = self._tokens.word_of(self._index)
        if not word or (allowed and word not in allowed):
            wanted = " or ".join(allowed) or "an update operation, such as INSERT DATA"
            raise self._tokens.malformed(self._index, f"expected {wanted}")
        self._index += 1
        return word

    def _take_iri(self) -> int:
        if self._tokens.kind_of(self._index) not in {IRI, PREFIXED}:
            raise self._tokens.malformed(self._index, "expected an IRI")
        self._index += 1
        return self._index - 1

    def _expect(self, sign: str) -> None:
        if self._tokens.text_of(self._index) != sign:
            raise self._tokens.malformed(self._index, f"expected {sign}")
        self._index += 1

    def _braces(self) -> Span:
        self._expect("{")
        start, depth = self._index, 1
        while depth:
            sign = self._tokens.text_of(self._index)
            if not sign:
                raise malformed(self._tokens.text, len(self._tokens.text), "a brace is not closed")
            depth += (sign == "{") - (sign == "}")
            self._index += 1
        return start, self._index - 1
