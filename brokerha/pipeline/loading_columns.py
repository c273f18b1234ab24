"""Rows of files as the columns that the sink takes: by a mapping, or by a parser. What the tasks of a load do before the sink.

Both give Arrow batches; a row that cannot be loaded stays in them, with its reason in the column `reject`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from brokerha.client.loading import statements
from brokerha.client.rdf_lines import relabelled
from brokerha.model.errors import BrokerhaError
from brokerha.pipeline.loading_mapping import Mapping
from brokerha.pipeline.loading_terms import RowRefused, key_of, statements_of
from brokerha.pipeline.places import file_system, place
from brokerha.pipeline.publishing import ROWS_LIMIT

CORRUPT: Final = "__corrupt"
"""Column of Spark for a row that it could not read."""
OF_STATEMENTS: Final = "source string, part string, statement string, reject string, text string"
OF_KEYS: Final = "source string, part string, key binary, value binary, reject string, text string"
_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
_NO_UTF8: Final = "not UTF-8"
_BROKEN: Final = (
    "a quotation in it does not end; if values have line breaks, say so in the mapping: [csv] line_breaks = true"
)
_ODD: Final = "it does not have the columns of its file, or is broken"


def mapped(batches: Iterable[pa.RecordBatch], mapping: Mapping) -> Iterator[pa.RecordBatch]:
    """Rows by a mapping: of `source`, `part`, `CORRUPT` where there is one, and the columns of the file."""
    for batch in batches:
        yield from _batch([_mapped(row, mapping) for row in batch.to_pylist()], mapping.keys is not None)


def _mapped(row: dict[str, Any], mapping: Mapping) -> tuple[Any, ...]:
    source, part, corrupt = row.pop("source"), row.pop("part"), row.pop(CORRUPT, None)
    content: tuple[Any, ...] = (None, None) if mapping.keys is not None else (None,)
    try:
        content, reason, text = _content(row, corrupt, mapping), None, None
    except RowRefused as refused:
        text = json.dumps(row, ensure_ascii=False, default=str) if corrupt is None else corrupt
        reason = str(refused)
    return (source, part, *content, reason, text)


def _content(row: dict[str, Any], corrupt: str | None, mapping: Mapping) -> tuple[Any, ...]:
    """Key and value, or the statements. Raises RowRefused."""
    if corrupt is not None:
        raise RowRefused(_NO_UTF8 if _UNREADABLE in corrupt else _BROKEN if corrupt.count('"') % 2 else _ODD)
    if mapping.csv.has_line_breaks and any(isinstance(one, str) and _UNREADABLE in one for one in row.values()):
        raise RowRefused(_NO_UTF8)
    if mapping.keys is not None:
        return key_of(row, mapping.keys)[2:]
    return ("\n".join(statements_of(row, mapping.quads)) if mapping.quads is not None else "",)


def parsed(path: str, syntax: str, source: str) -> Iterator[pa.RecordBatch]:
    """Statements of a file that only a parser can read, from its beginning to its end, in bounded memory.

    Labels of blank nodes are numbered in the order of their appearance: parsers invent them anew each time.
    """
    numbers: dict[str, int] = {}
    with ExitStack() as stack:
        rows = _parsed(stack, path, syntax, source, numbers)
        while some := list(islice(rows, ROWS_LIMIT)):
            yield from _batch(some, is_keys=False)


def _parsed(
    stack: ExitStack, path: str, syntax: str, source: str, numbers: dict[str, int]
) -> Iterator[tuple[Any, ...]]:
    try:
        folder, _, name = path.removeprefix("file:").rpartition("/")
        content = stack.enter_context(file_system(place(folder)).open_input_stream(name))
        for _, line in statements(content, syntax):
            yield source, None, relabelled(line, "", numbers), None, None
    except (BrokerhaError, OSError) as error:
        yield source, None, None, str(error).splitlines()[0], path


def _batch(rows: list[tuple[Any, ...]], is_keys: bool) -> Iterator[pa.RecordBatch]:
    names = (
        ("source", "part", "key", "value", "reject", "text")
        if is_keys
        else ("source", "part", "statement", "reject", "text")
    )
    if rows:
        columns = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column, pa.binary() if name in {"key", "value"} else pa.string())
                for name, column in zip(names, columns, strict=True)
            ],
            names=list(names),
        )
