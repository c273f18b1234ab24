r"""Rows of files as columns for the sink: by a mapping, or by a parser. Tasks of a load run this before the sink.

Both give Arrow batches; a row that cannot be loaded stays in them, with its reason in the column `reject`.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as Values
from contextlib import ExitStack
from decimal import Decimal
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from brokerha.client.loading import relabelled, statements
from brokerha.model.errors import BrokerhaError
from brokerha.model.operation_checks import KEY_LIMIT_BYTES
from brokerha.model.operations import Operation
from brokerha.pipeline.loading_mapping import ALL_COLUMNS, XSD, KeyForm, Mapping, Property, QuadForm, Template
from brokerha.pipeline.places import file_system, place
from brokerha.pipeline.publishing import ROWS_LIMIT, UNREAD

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
BLANK = "_:"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9]")
_LEXICAL = {
    "integer": re.compile(r"[+-]?\d+\Z", re.ASCII),
    "decimal": re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)\Z", re.ASCII),
    "double": re.compile(r"([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?INF|NaN)\Z", re.ASCII),
    "boolean": re.compile(r"(true|false|1|0)\Z"),
    "date": re.compile(r"-?\d{4,}-\d\d-\d\d(Z|[+-]\d\d:\d\d)?\Z", re.ASCII),
    "dateTime": re.compile(r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?\Z", re.ASCII),
}
_LEXICAL["float"] = _LEXICAL["double"]
_LEXICAL["int"] = _LEXICAL["long"] = _LEXICAL["integer"]
CORRUPT: Final = "__corrupt"
"""Spark's column for a row that it cannot read."""
SOURCE: Final = "__source"
HEAD: Final = "__head"
"""Column that marks the lines that are spelled as the head of their file; the first of them is the head."""
PART: Final = "__part"
"""These become `source` and `part`; a file can have columns of those names itself."""
OF_STATEMENTS: Final = "source string, part string, statement string, reject string, text string"
OF_KEYS: Final = "source string, part string, key binary, value binary, reject string, text string"
_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
_NO_UTF8: Final = "not UTF-8"
_BROKEN: Final = "a quotation in it does not end; if values have line breaks, say so in the mapping: [csv] line_breaks = true"
_ODD: Final = "it does not have the columns of its file, or is broken"


class RowRefused(Exception):
    """A row that cannot be loaded; the text gives the reason."""


class Unread(Exception):
    """Stands for a value that Python cannot hold; the text gives the reason. A row is refused when the mapping needs it."""


def statements_of(row: Values[str, Any], form: QuadForm) -> list[str]:
    r"""Return the statements of a row, as N-Quads with the final dot. Raises RowRefused.

    A mapping turns one row into RDF statements, or into a key with its value.

    | value | literal |
    |---|---|
    | text | plain, or with the datatype or language of its property |
    | whole number, number, truth value, date, time of Parquet | with its natural XSD datatype, unless the property names one |
    | null, empty text | none: the statement is left out; in a subject, a graph or a key the row is refused |

    A value that its datatype does not allow refuses the row, because queries that compute with it would miss the data.

    >>> from brokerha.pipeline.loading_mapping import read_mapping
    >>> mapping = read_mapping('[quads]\nsubject = "urn:p:{id}"\n[[quads.property]]\npredicate = "urn:name"\ncolumn = "name"', "m")
    >>> statements_of({"id": "a b", "name": 'so "it" is'}, mapping.quads)
    ['<urn:p:a%20b> <urn:name> "so \\"it\\" is" .']
    """
    subject = _node(form.subject, row, "the subject")
    graph = f" {_node(form.graph, row, 'the graph')}" if form.graph is not None else ""
    statements = [f"{subject} <{RDF_TYPE}> <{one}>{graph} ." for one in form.types]
    for one in form.properties:
        term = _object(one, row)
        if term:
            statements.append(f"{subject} <{one.predicate}> {term}{graph} .")
    return statements


def key_of(row: Values[str, Any], form: KeyForm) -> Operation:
    """Return the ``put`` of a row. Raises RowRefused."""
    key = _filled(form.key, row, "the key", _as_it_is).encode()
    if not 0 < len(key) <= KEY_LIMIT_BYTES:
        raise RowRefused(f"the key has {len(key)} bytes; a key has 1 to {KEY_LIMIT_BYTES}")
    if form.value:
        value = row[form.value]
        return ("put", form.table, key, value if isinstance(value, bytes) else (text_of(value) or "").encode())
    names = row if ALL_COLUMNS in form.values else form.values
    content = {name: _json_value(row[name], name) for name in names}
    return ("put", form.table, key, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def text_of(value: Any) -> str | None:
    """Return a value in XSD notation; None for no value. Raises RowRefused for a value with several parts."""
    if value is None or isinstance(value, str):
        return value or None
    for kind, _, spelled in _SPELLED:
        if isinstance(value, kind):
            return spelled(value)
    if isinstance(value, Unread):
        raise RowRefused(f"a value cannot be read: {value}")
    raise RowRefused(f"a value of type {type(value).__name__} cannot be a literal")


def _double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("INF" if value > 0 else "-INF")


_SPELLED: tuple[tuple[type[Any], str, Callable[[Any], str]], ...] = (
    (bool, "boolean", lambda value: "true" if value else "false"),
    (int, "integer", str),
    (float, "double", _double),
    (Decimal, "decimal", lambda value: format(value, "f")),
    (dt.datetime, "dateTime", lambda value: value.isoformat().replace("+00:00", "Z")),
    (dt.date, "date", dt.date.isoformat),
    (dt.time, "time", dt.time.isoformat),
)
"""Type of a value, its natural XSD datatype, and the function that formats it; the first match counts."""


def _natural_datatype(value: Any) -> str:
    return next((f"{XSD}{name}" for kind, name, _ in _SPELLED if isinstance(value, kind)), "")


def _object(one: Property, row: Values[str, Any]) -> str:
    """Return the object of a statement; empty when the row has none."""
    if one.object is not None:
        if any(text_of(row[column]) is None for column in one.object.columns):
            return ""
        return _node(one.object, row, f"the object of {one.predicate}")
    value = row[one.column]
    try:
        text = text_of(value)
    except RowRefused as refused:
        raise RowRefused(f"column {one.column}: {refused}") from None
    if text is None:
        return ""
    literal = f'"{text.translate(_ESCAPES)}"'
    if one.language:
        return f"{literal}@{one.language}"
    datatype = one.datatype or _natural_datatype(value)
    if not datatype:
        return literal
    known = _LEXICAL.get(datatype.removeprefix(XSD)) if datatype.startswith(XSD) else None
    if known is not None and not known.match(text):
        raise RowRefused(f"column {one.column}: {text[:80]!r} is no xsd:{datatype.removeprefix(XSD)}")
    return f"{literal}^^<{datatype}>"


def _node(form: Template, row: Values[str, Any], what: str) -> str:
    """Return an IRI or a blank node in N-Quads notation. The parser checks later whether it is valid."""
    if form.parts[0][0].startswith(BLANK):
        return _filled(form, row, what, _label)
    return f"<{_filled(form, row, what, _encoded)}>"


def _filled(form: Template, row: Values[str, Any], what: str, encode: Any) -> str:
    pieces = []
    for plain, column, is_raw in form.parts:
        if column is None:
            pieces.append(plain)
            continue
        text = text_of(row[column])
        if text is None:
            raise RowRefused(f"column {column} is empty, and {what} needs it")
        pieces.append(text if is_raw else encode(text))
    return "".join(pieces)


def _encoded(text: str) -> str:
    return quote(text, safe="")


def _label(text: str) -> str:
    """Keep letters and digits, and replace each other character by its number, so that labels of different values differ."""
    return _NOT_IN_LABELS.sub(lambda found: f"_{ord(found[0]):x}_", text)


def _as_it_is(text: str) -> str:
    return text


def _json_value(value: Any, column: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    try:
        return text_of(value)
    except RowRefused as refused:
        raise RowRefused(f"column {column}: {refused}") from None


def mapped(batches: Iterable[pa.RecordBatch], mapping: Mapping, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Map rows with `SOURCE`, `PART`, `CORRUPT` and `HEAD` if present, and the columns of the file, in the order of ``names``."""
    begun: set[str] = set()
    for batch in batches:
        rows = [row for row in _rows(batch.rename_columns(names)) if not _is_head(row, begun)]
        yield from _batch([_mapped(row, mapping) for row in rows], mapping.keys is not None)


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError):
        # Bytes that are not UTF-8, or a date outside of the years 1 to 9999.
        columns = ([_value(each) for each in column] for column in batch.columns)
        found = [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return found


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return Unread(str(error))


def _is_head(row: dict[str, Any], begun: set[str]) -> bool:
    """Tell whether a row is the head of its file. ``begun`` are the parts whose head was seen: a later line like it is a row."""
    if not row.pop(HEAD, False) or row[PART] in begun:
        return False
    begun.add(row[PART])
    return True


def _mapped(row: dict[str, Any], mapping: Mapping) -> tuple[Any, ...]:
    source, part, corrupt = row.pop(SOURCE), row.pop(PART), row.pop(CORRUPT, None)
    content: tuple[Any, ...] = (None, None) if mapping.keys is not None else (None,)
    try:
        content, reason, text = _content(row, corrupt, mapping), None, None
    except RowRefused as refused:
        text = json.dumps(row, ensure_ascii=False, default=str) if corrupt is None else corrupt
        reason = str(refused)
    return (source, part, *content, reason, text)


def _content(row: dict[str, Any], corrupt: str | None, mapping: Mapping) -> tuple[Any, ...]:
    """Return key and value, or the statements. Raises RowRefused."""
    if corrupt is not None:
        raise RowRefused(_NO_UTF8 if _UNREADABLE in corrupt else _BROKEN if corrupt.count('"') % 2 else _ODD)
    if mapping.csv.has_line_breaks and any(isinstance(one, str) and _UNREADABLE in one for one in row.values()):
        raise RowRefused(_NO_UTF8)
    if mapping.keys is not None:
        return key_of(row, mapping.keys)[2:]
    return ("\n".join(statements_of(row, mapping.quads)) if mapping.quads is not None else "",)


def parsed(path: str, syntax: str, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the statements of a file that only a parser can read as a whole, in bounded memory.

    Labels of blank nodes are numbered in the order of their appearance, because parsers invent new labels in each run.
    """
    numbers: dict[str, int] = {}
    with ExitStack() as stack:
        rows = _parsed(stack, path, syntax, source, numbers)
        while some := list(islice(rows, ROWS_LIMIT)):
            yield from _batch(some, is_keys=False)


def _parsed(stack: ExitStack, path: str, syntax: str, source: str, numbers: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    try:
        folder, _, name = path.removeprefix("file:").rpartition("/")
        content = stack.enter_context(file_system(place(folder)).open_input_stream(name))
        for _, line in statements(content, syntax):
            yield source, None, relabelled(line, "", numbers), None, None
    except (BrokerhaError, OSError) as error:
        yield source, None, None, f"{str(error).splitlines()[0]}{UNREAD}", path


def _batch(rows: list[tuple[Any, ...]], is_keys: bool) -> Iterator[pa.RecordBatch]:
    names = ("source", "part", "key", "value", "reject", "text") if is_keys else ("source", "part", "statement", "reject", "text")
    if rows:
        columns = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column, pa.binary() if name in {"key", "value"} else pa.string())
                for name, column in zip(names, columns, strict=True)
            ],
            names=list(names),
        )
