"""N-Triples and N-Quads: lines that are no statements are found here, with the reason, and never sent.

All statements of a batch are parsed together, which is three times as fast as one by one. Only when that fails, or when something is in
them that the cluster looks at more closely, each is judged alone. What is sent is the text of the file, with its blank nodes relabelled.

>>> fault("<urn:s> <urn:p> .", "nt")
'column 17: The object of a triple must be an IRI, a blank node or a literal'
>>> fault("<urn:s> <urn:p> 'x' .", "nq") != ""
True
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyoxigraph import RdfFormat, parse

from brokerha.client.rdf_lines import in_graph, relabelled
from brokerha.model.errors import InvalidRequest
from brokerha.pipeline.loading import LINE_LIMIT_BYTES, NT, TEXT_LIMIT, Batch, Reject
from brokerha.pipeline.loading_lines import Lines
from brokerha.stores.rdf_change import read_nquads
from brokerha.stores.sparql_tokens import RESERVED

_FORMATS = {"nt": RdfFormat.N_TRIPLES, "nq": RdfFormat.N_QUADS}
_LINE = re.compile(r"^Parser error at line \d+ | \(line \d+\)$")
_COLUMNS = re.compile(r"^between columns (\d+) and (\d+)")
_WHITE = " \t\r\n"


def batch_of(lines: Lines, number: int, file: str, syntax: str, repository: str, graph: str, prefix: str) -> Batch:
    """One batch of statements. Blank nodes get ``prefix``; triples go into ``graph``, if one is given."""
    numbered, rejects = decoded(lines, file)
    numbered = [(line, text) for line, text in numbered if text and text[0] != "#"]
    bad = faults([text for _, text in numbered], syntax)
    good = []
    for place, (line, text) in enumerate(numbered):
        if place in bad:
            rejects.append(Reject(file, line, line, bad[place], text[:TEXT_LIMIT]))
            continue
        labelled = relabelled(text, prefix)
        good.append(in_graph(labelled, graph) if graph else labelled)
    rejects.sort(key=lambda reject: reject.line)
    operations = [("add", repository, "\n".join(good) + "\n")] if good else []
    last = lines.first_line + len(lines.lines) - 1
    return Batch(number, lines.first_line, last, list(operations), len(good), rejects, lines.position)


def decoded(lines: Lines, file: str, white: str = _WHITE) -> tuple[list[tuple[int, str]], list[Reject]]:
    """Each line with its number, without ``white`` around it; and those that are too long or no UTF-8."""
    numbered: list[tuple[int, str]] = []
    rejects: list[Reject] = []
    for line, raw in enumerate(lines.lines, lines.first_line):
        if len(raw) > LINE_LIMIT_BYTES:
            reason = f"longer than {LINE_LIMIT_BYTES} bytes"
        else:
            try:
                numbered.append((line, raw.decode().strip(white)))
                continue
            except UnicodeDecodeError as error:
                reason = f"not UTF-8 at byte {error.start + 1}"
        rejects.append(
            Reject(file, line, line, reason, raw[:TEXT_LIMIT].decode("utf-8", "backslashreplace").strip(white))
        )
    return numbered, rejects


def faults(statements: Sequence[str], syntax: str) -> dict[int, str]:
    """Which of these are no statements, by place, and why."""
    text = "\n".join(statements)
    # The cluster refuses names of its own, which an escape may hide, and triple terms that are nested too deep.
    if not (RESERVED in text or "<<(" in text or "\\u" in text or "\\U" in text):
        try:
            if sum(1 for _ in parse(text.encode(), format=_FORMATS[syntax])) == len(statements):
                return {}
        except (SyntaxError, ValueError):
            pass
    found = ((place, fault(statement, syntax)) for place, statement in enumerate(statements))
    return {place: reason for place, reason in found if reason}


def fault(statement: str, syntax: str) -> str:
    """Why this is no statement that the cluster takes; empty when it is one."""
    if "<<(" in statement or RESERVED in statement or "\\u" in statement or "\\U" in statement:
        try:
            read_nquads(statement)
        except InvalidRequest as error:
            return _reason(str(error).removeprefix("MALFORMED DATA: "))
    try:
        count = sum(1 for _ in parse(statement.encode(), format=_FORMATS[syntax]))
    except (SyntaxError, ValueError) as error:
        text = _reason(str(error))
        return f"{text}; the syntax is N-Triples, and this may be a quad" if _is_quad(statement, syntax) else text
    return "" if count == 1 else f"{count} statements on one line"


def _is_quad(statement: str, syntax: str) -> bool:
    return syntax == NT and not fault(statement, "nq")


def _reason(text: str) -> str:
    """What the parser says, without the number of a line that it counts in its own way."""
    return _COLUMNS.sub(r"columns \1 to \2", _LINE.sub("", text.splitlines()[0]))
