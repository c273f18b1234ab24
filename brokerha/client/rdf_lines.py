"""N-Triples and N-Quads line by line, without a parser: fast enough for long input, and safe to cut anywhere.

Input that is split into transactions must keep its blank nodes together, and two loads must keep theirs apart: so each
label gets the same prefix throughout one load. Labels are found outside of strings, IRIs and comments.

>>> relabelled('_:a <urn:p> "_:b" .', "x")
'_:xa <urn:p> "_:b" .'
>>> in_graph('<urn:s> <urn:p> "1. 2" . # so', "urn:g")
'<urn:s> <urn:p> "1. 2" <urn:g> . # so'
"""

from __future__ import annotations

import re

from brokerha.model.errors import InvalidRequest

_OPAQUE = r'"(?:[^"\\]|\\.)*"|<[^<>"\s]*>|\#.*'
_NODE = r'_:([^\s<>"\#]*[^\s<>"\#.])'
_LABEL = re.compile(rf"({_OPAQUE})|{_NODE}")
_DOT = re.compile(rf"{_OPAQUE}|{_NODE}|(\.)")
_GRAPH = re.compile(r'[^\s<>"{}|^`\\]+\Z')


def relabelled(line: str, prefix: str, numbers: dict[str, int] | None = None) -> str:
    """The line with ``prefix`` before each blank node label.

    With ``numbers``, which fills up from line to line, labels become numbers in the order of their first appearance:
    the same input gives the same text even where a parser invents labels.
    """
    if "_:" not in line:
        return line

    def label(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        if numbers is None:
            return f"_:{prefix}{found[2]}"
        return f"_:{prefix}{numbers.setdefault(found[2], len(numbers) + 1)}"

    return _LABEL.sub(label, line)


def in_graph(line: str, graph: str) -> str:
    """The line of a triple as a quad of a graph. Raises InvalidRequest when it has no final dot, or the graph is no IRI."""
    if not _GRAPH.match(graph):
        raise InvalidRequest(f"the graph {graph!r} is no IRI")
    dots = [found.start() for found in _DOT.finditer(line) if found[2]]
    if not dots:
        raise InvalidRequest(f"no statement with a final dot: {line[:80]!r}")
    return f"{line[: dots[-1]].rstrip()} <{graph}> {line[dots[-1] :]}"


def is_statement(line: str) -> bool:
    """Whether there is anything but white space and a comment."""
    text = line.lstrip()
    return bool(text) and not text.startswith("#")
