"""Admission of SPARQL, and parameters of protocols that are written into its text: base, bindings, slices, the dataset of an
update.

    bindings        {"o": "7"}       SELECT ?s { VALUES (?o) { (7) } ?s ?p ?o }
    slice           limit 2          SELECT ?s WHERE { { SELECT ?s { ?s ?p ?o } } } LIMIT 2
    using graphs    <urn:g>          DELETE { ?s ?p ?o } USING <urn:g> WHERE { ?s ?p ?o }

A binding holds in the outermost group of the WHERE clause, and joins with its content; a subquery does not see it. Templates of
an update see it too. An invalid text stays as it is: its evaluation reports the fault with line and column of the caller's text.

Admission checks a request before it is accepted into the log. The execution can still reject an admitted update (CREATE of a
graph that exists). But an admitted update is well formed and understood in each part, and touches only the repository's own data.
The execution parses it again, so that nothing depends on the version that admitted it.

    check_update("INSERT DATA { <urn:a> <urn:p> 1 }")        passes
    check_update("INSERT DATA { <urn:a> <urn:p> ?x }")       InvalidRequest: MALFORMED QUERY: line 1, column 38: ...
    check_query("SELECT * { SERVICE <http://x/> {} }")       InvalidRequest: ... SERVICE is refused ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urljoin

from pyoxigraph import DefaultGraph, QuerySolutions, Store

from brokerha.model.errors import InvalidRequest
from brokerha.stores.rdf.change import check_not_reserved
from brokerha.stores.rdf.query import graph_of
from brokerha.stores.sparql.refusals import refuse
from brokerha.stores.sparql.request import Part, Request, read_query, read_update, syntax_error
from brokerha.stores.sparql.template import read_iri, read_plain_data, read_templates
from brokerha.stores.sparql.tokens import BLANK, IRI, VARIABLE, Tokens, tokenize
from brokerha.stores.sparql.unknown import failing

_RELATIVE: Final = re.compile(r"<(?![A-Za-z][A-Za-z0-9+.-]*:)(?!=)[^<>\"{}|^`\s]*>")
_GRAPH_FORMS: Final = frozenset({"CONSTRUCT", "DESCRIBE"})


def with_base(text: str, base: str) -> str:
    """Return the text with absolute IRIs, unless it has its own BASE, and without a byte order mark. Raises InvalidRequest."""
    text = text.removeprefix("\ufeff")
    if _RELATIVE.search(text) is None:
        return text
    tokens = tokenize(text)
    if any(tokens.word_of(at) == "BASE" for at in range(len(tokens))):
        return text
    edits = [
        # Use the written form: a decoded escape could end the IRI.
        (at, f"<{_joined(base, tokens.text_of(at)[1:-1])}>")
        for at in range(len(tokens))
        if tokens.kind_of(at) == IRI and _RELATIVE.match(tokens.text_of(at))
    ]
    if not edits:
        return text
    return text[: tokens.starts[0]] + tokens.slice(0, len(tokens), edits) + text[tokens.ends[-1] :]


def _joined(base: str, relative: str) -> str:
    """Return an absolute IRI; Python drops an empty fragment, which would be another IRI."""
    found = urljoin(base, relative)
    return f"{found}#" if relative.endswith("#") and not found.endswith("#") else found


def with_bindings(text: str, bindings: Mapping[str, str]) -> str:
    """Return a query in which variables have these terms (N-Triples; no blank nodes). Raises InvalidRequest."""
    if not bindings:
        return text
    check_query(text)
    tokens = tokenize(text)
    first = _first_group(tokens)
    values = _values(bindings)
    if first is None:
        # DESCRIBE without a WHERE clause.
        has_variables = any(tokens.kind_of(at) == VARIABLE for at in range(len(tokens)))
        return f"{text}\nWHERE {{ {values} }}" if has_variables else text
    start = tokens.ends[first]
    if _is_short_construct(tokens, first):
        last = closing(tokens, first)
        template = tokens.slice(first + 1, last)
        where = first if tokens.word_of(first - 1) != "WHERE" else first - 1
        head, tail = text[: tokens.starts[where]], text[tokens.ends[last] :]
        # A dataset clause can be between the template and WHERE.
        construct = next(at for at in range(len(tokens)) if tokens.word_of(at) == "CONSTRUCT")
        dataset = text[tokens.ends[construct] : tokens.starts[where]]
        return f"{head[: tokens.ends[construct]]} {{ {template} }} {dataset} WHERE {{ {values} {template} }}{tail}"
    return f"{text[:start]} {values} {text[start:]}"


def sliced(text: str, limit: int | None, offset: int, *, distinct: bool) -> str:
    """Return a SELECT limited to some of its rows; every other query unchanged. Raises InvalidRequest."""
    facts = read_query(text)
    if (limit is None and not offset and not distinct) or facts.kind != "SELECT":
        return text
    check_query(text)
    tokens = tokenize(text)
    found = Store().query(text, custom_functions=failing(facts.unknown))
    names = " ".join(str(each) for each in found.variables) if isinstance(found, QuerySolutions) else ""
    select = next(at for at in range(len(tokens)) if tokens.word_of(at) == "SELECT")
    edits: list[tuple[int, str]] = []
    dataset = ""
    first = _first_group(tokens)
    for at in range(select, first or len(tokens)):
        if tokens.word_of(at) == "FROM":
            last = at + 1 + (tokens.word_of(at + 1) == "NAMED")
            dataset += tokens.slice(at, last + 1) + "\n"
            edits += [(each, "") for each in range(at, last + 1)]
    head = text[: tokens.starts[select]]
    inner = tokens.slice(select, len(tokens), edits)
    tail = (f" OFFSET {offset}" if offset else "") + ("" if limit is None else f" LIMIT {limit}")
    return f"{head}SELECT {'DISTINCT ' if distinct else ''}{names or '*'} {dataset}WHERE {{ {{ {inner}\n}} }}{tail}"


def is_graph_query(text: str) -> bool:
    """Tell whether a query returns triples. Raises InvalidRequest."""
    return read_query(text).kind in _GRAPH_FORMS


def update_with(text: str, bindings: Mapping[str, str], using: Sequence[str] = (), using_named: Sequence[str] = ()) -> str:
    """Return an update with bindings, and with the dataset of all its WHERE clauses (IRIs). Raises InvalidRequest."""
    if not (bindings or using or using_named):
        return text
    request = read_update(text)
    if not request.parts:
        return text
    clauses = "".join(f"USING {graph_of(iri)} " for iri in using)
    clauses += "".join(f"USING NAMED {graph_of(iri)} " for iri in using_named)
    edits: list[tuple[int, str]] = []
    for part in request.parts:
        if part.kind == "MODIFY":
            edits += _modified(request, part, bindings, clauses)
    return request.tokens.text[: request.tokens.starts[0]] + request.tokens.slice(0, len(request.tokens), edits)


def with_template_graphs(text: str, insert: str | None, remove: Sequence[str]) -> str:
    """Return an update whose quads without GRAPH belong to these graphs (IRIs); WITH in the text wins. Raises InvalidRequest."""
    request = read_update(text) if insert or remove else None
    if request is None or not request.parts:
        return text
    tokens = request.tokens
    inserting = [str(graph_of(insert))] if insert else []
    removing = [str(graph_of(iri)) for iri in remove]
    edits: list[tuple[int, str]] = []
    for part in request.parts:
        if part.with_graph is not None:
            continue
        if part.delete == part.where and part.delete[0] < part.delete[1] and removing:
            pattern = tokens.slice(*part.where)
            whole = f"DELETE {{ {_in_graphs(tokens, part.delete, removing)} }} WHERE {{ {pattern} }}"
            edits += _instead(part.span, whole)
            continue
        for span, graphs in ((part.delete, removing), (part.insert, inserting)):
            if graphs and span[0] < span[1]:
                edits += _instead(span, _in_graphs(tokens, span, graphs))
    return tokens.text[: tokens.starts[0]] + tokens.slice(0, len(tokens), edits)


def _instead(span: tuple[int, int], text: str) -> list[tuple[int, str]]:
    return [(span[0], text), *((at, "") for at in range(span[0] + 1, span[1]))]


def _in_graphs(tokens: Tokens, span: tuple[int, int], graphs: Sequence[str]) -> str:
    """Return the quads of a template, with those outside GRAPH put into each of these graphs."""
    pieces: list[str] = []
    at = start = span[0]

    def close(end: int) -> None:
        first = start
        while first < end and tokens.text_of(first) == ".":
            first += 1
        if first < end:
            pieces.extend(f"GRAPH {graph} {{ {tokens.slice(first, end)} }}" for graph in graphs)

    while at < span[1]:
        if tokens.word_of(at) == "GRAPH":
            close(at)
            brace = next(each for each in range(at, span[1]) if tokens.text_of(each) == "{")
            start = closing(tokens, brace) + 1
            pieces.append(tokens.slice(at, start))
            at = start
        else:
            at += 1
    close(span[1])
    return " ".join(pieces)


def _modified(request: Request, part: Part, terms: Mapping[str, str], clauses: str) -> list[tuple[int, str]]:
    tokens = request.tokens
    if clauses and (part.with_graph is not None or part.using[0] != part.using[1]):
        raise InvalidRequest(
            "MALFORMED QUERY: the dataset of the update is given twice: by using-graph-uri or using-named-graph-uri, "
            "and by USING or WITH in its text"
        )
    edits: dict[int, str] = {}
    is_short = part.delete == part.where
    if terms and is_short:
        edits = _replaced(tokens, part.delete, terms)
    elif terms:
        edits[part.where[0] - 1] = f"{{ {_values(terms)} "
    if clauses:
        if is_short:
            pattern = tokens.slice(*part.delete, sorted(edits.items()))
            edits = dict.fromkeys(range(part.span[0] + 1, part.span[1]), "")
            edits[part.span[0]] = f"DELETE {{ {pattern} }} {clauses}WHERE {{ {pattern} }}"
        else:
            where = part.where[0] - 2
            edits[where] = f"{clauses}{tokens.text_of(where)}"
    return sorted(edits.items())


def _replaced(tokens: Tokens, span: tuple[int, int], terms: Mapping[str, str]) -> dict[int, str]:
    return {
        at: f" {terms[tokens.text_of(at)[1:]]} "
        for at in range(*span)
        if tokens.kind_of(at) == VARIABLE and tokens.text_of(at)[1:] in terms
    }


def _values(bindings: Mapping[str, str]) -> str:
    names = " ".join(f"?{name}" for name in bindings)
    return f"VALUES ({names}) {{ ({' '.join(bindings.values())}) }}"


def check_binding(name: str, term: str) -> None:
    """Raise InvalidRequest for an invalid name of a variable, and for a term that a text cannot contain."""
    found = tokenize(f"?{name}")
    if len(found) != 1 or found.kind_of(0) != VARIABLE or name.startswith("brokerha_"):
        raise InvalidRequest(f"${name} is no name of a variable")
    words = tokenize(term)
    if any(words.kind_of(at) == BLANK for at in range(len(words))):
        raise InvalidRequest(f"${name} is a blank node, which a text cannot name: {term}")
    refuse(words)


def _first_group(tokens: Tokens) -> int | None:
    """Return the brace that opens the WHERE clause of a query; None when it has none."""
    depth = 0
    opened = None
    for at in range(len(tokens)):
        sign = tokens.text_of(at)
        depth += (sign == "(") - (sign == ")")
        if sign == "{" and not depth:
            opened = at
            break
    if opened is None or tokens.word_of(opened - 1) != "CONSTRUCT":
        return opened
    after = closing(tokens, opened) + 1
    return next((at for at in range(after, len(tokens)) if tokens.text_of(at) == "{"), None)


def _is_short_construct(tokens: Tokens, first: int) -> bool:
    """Tell whether one group is pattern and template: CONSTRUCT WHERE { … }."""
    words = [tokens.word_of(at) for at in range(first)]
    if "CONSTRUCT" not in words:
        return False
    return tokens.text_of(words.index("CONSTRUCT") + 1) != "{"


def closing(tokens: Tokens, opened: int) -> int:
    """Return the brace that closes this one. Raises InvalidRequest."""
    depth = 0
    for at in range(opened, len(tokens)):
        sign = tokens.text_of(at)
        depth += (sign == "{") - (sign == "}")
        if not depth:
            return at
    raise tokens.malformed(opened, "a brace is not closed")


def check_update(text: str) -> None:
    """Check an update request at admission. Raises InvalidRequest (``MALFORMED QUERY: ...``), LOAD, SERVICE, reserved IRIs."""
    if read_plain_data(text) is None:
        request = read_update(text)
        for part in request.parts:
            templates = read_templates(request, part)
            constant = [each.quad for each in (*templates.delete, *templates.insert) if not any(each.variables())]
            check_not_reserved({str(quad): quad for quad in constant})
            for graph in (*part.graphs, part.with_graph):
                if isinstance(graph, int):
                    read_iri(request, part, graph)


def check_query(text: str) -> None:
    """Check a query at admission. Raises InvalidRequest (``MALFORMED QUERY: ...``), SERVICE, reserved IRIs."""
    read_query(text)
    try:
        # The engine refuses these two arguments together, after it has parsed the text and before it evaluates.
        Store().query(text, use_default_graph_as_union=True, default_graph=[DefaultGraph()])
    except SyntaxError as error:
        raise syntax_error(error, text, text) from None
    except ValueError:
        return
