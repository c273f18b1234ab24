r"""Rows of the sink: the operations of each one, the reasons to refuse it, and the grouping of rows into transactions.

| column | for | |
|---|---|---|
| `statement` | a repository | N-Triples or N-Quads, one or more lines; blank and comment lines count as nothing |
| `subject` `predicate` `object` `graph` | a repository | or the terms, as N-Quads spells them; no graph: the default graph |
| `key`, `value` | a table | text (as UTF-8) or bytes; no value needed to delete |
| `value`, `content_type` | a queue | the message; `key` is its id, to accept it |
| `kind` | all | `append`, `upsert`, `delete`, or the word of the log; else the option `kind` |
| `store`, `name` | all | `graph`, `table` or `queue`, and its name; else the option `repository`, `table` or `queue` |
| `part` | ids | the unit of row numbers, instead of the partition; all rows of a part are in one partition, always in the same order |
| `source` | RDF, rejects | origin of the row: equal labels of blank nodes mean the same node within a source only; without it labels are kept |
| `reject`, `text` | rejects | reason of an earlier refusal; the row as text |

All statements of a transaction are parsed together, three times as fast as one by one. Each is checked alone only when that fails,
or when the text contains something that the cluster checks more closely.

>>> fault("<urn:s> <urn:p> .", RdfFormat.N_TRIPLES)
'column 17: The object of a triple must be an IRI, a blank node or a literal'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyoxigraph import RdfFormat, parse

from brokerha.client.loading import in_graph, is_statement, relabelled
from brokerha.model.errors import BrokerhaError, ConfigurationError, InvalidRequest
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE
from brokerha.model.operations import BODY_LIMIT_BYTES, Operation, check_operations
from brokerha.pipeline.publishing import KINDS, SIZE_LIMIT_BYTES, Reject, SinkOptions, prefix_of
from brokerha.stores.rdf.change import read_nquads
from brokerha.stores.sparql.tokens import RESERVED

ROW_LIMIT_BYTES: Final = BODY_LIMIT_BYTES - 64 * 1024
TEXT_LIMIT: Final = 100_000
"""Characters that are kept of a refused row."""
_TERMS: Final = ("subject", "predicate", "object")
_BYTES: Final = frozenset({"key", "value"})
COLUMNS: Final = (
    "statement", *_TERMS, "graph", "key", "value", "content_type", "kind", "store", "name", "part", "source", "reject", "text",
)  # fmt: skip
_DEFAULT_KIND: Final = {GRAPH: "append", TABLE: "upsert", QUEUE: "append"}
_TEXT, _BINARY = "text/plain;charset=utf-8", "application/octet-stream"
_WHITE: Final = " \t\r\n"
_LINE: Final = re.compile(r"^Parser error at line \d+ | \(line \d+\)$")
_SPAN: Final = re.compile(r"^between columns (\d+) and (\d+)")


class _Refused(Exception):
    """A row that cannot be written; the text gives the reason."""


class _Row(NamedTuple):
    number: int
    part: str
    source: str
    statements: tuple[str, ...]
    change: tuple[str, ...]
    """("add" or "remove", repository) of its statements."""
    operations: tuple[Operation, ...]
    size: int
    reason: str
    """Why it is refused; else empty."""
    values: Sequence[Any]
    """In the order of `COLUMNS`."""


class Chunk(NamedTuple):
    """The rows of one transaction; without operations there is nothing to send."""

    part: str
    first_row: int
    rows: int
    items: int
    operations: list[Operation]
    rejects: list[Reject]
    written: list[_Row]

    def lost(self, reason: str) -> list[Reject]:
        """Return its rows as rejects, after the cluster rejected the transaction."""
        return [_reject(row, reason) for row in self.written]


def check_columns(columns: Mapping[str, str], options: SinkOptions) -> None:
    """Raise ConfigurationError for columns (name -> Spark's type) that do not fit the options."""
    for name, kind in columns.items():
        if name not in COLUMNS:
            raise ConfigurationError(f"there is no column {name!r} for writing: drop it; there are {', '.join(COLUMNS)}")
        if kind not in ({"string", "binary"} if name in _BYTES else {"string"}):
            wanted = "string or binary" if name in _BYTES else "string"
            raise ConfigurationError(f"column {name} is {kind}, and has to be {wanted}: cast it")
    if not options.store and not {"store", "name"} <= columns.keys():
        raise ConfigurationError("where to? write the option repository, table or queue, or the columns store and name")
    has_statement, has_terms = "statement" in columns, set(_TERMS) <= columns.keys()
    if options.store == GRAPH and has_statement == has_terms:
        raise ConfigurationError("a repository takes the column statement, or the columns subject, predicate and object")
    if options.graph and "graph" in columns:
        raise ConfigurationError("the column graph and the option graph say the same: leave one out")
    if options.store == TABLE and not ("key" in columns and ({"value", "kind"} & columns.keys() or options.kind == "delete")):
        raise ConfigurationError("a table takes the columns key and value; to delete, key and the option kind")
    if options.store == QUEUE and not {"value", "key"} & columns.keys():
        raise ConfigurationError("a queue takes the column value, and content_type")


def chunks(batches: Iterable[pa.RecordBatch], options: SinkOptions, id_: str, part: str) -> Iterator[Chunk]:
    """Yield the chunks of rows, the same for the same rows; ``part`` is for rows without one."""
    finish = _Finish(options, id_)
    rows: list[_Row] = []
    size = items = 0
    for row in _rows(batches, options, part):
        weight = max(1, len(row.statements) or len(row.operations))
        if rows and (row.part != rows[0].part or items + weight > options.rows or size + row.size > SIZE_LIMIT_BYTES):
            yield finish(rows)
            rows, size, items = [], 0, 0
        rows.append(row)
        size, items = size + row.size, items + weight
    if rows:
        yield finish(rows)


def _rows(batches: Iterable[pa.RecordBatch], options: SinkOptions, part: str) -> Iterator[_Row]:
    numbers: dict[str, int] = {}
    for batch in batches:
        columns = {name: _values(batch.column(name)) for name in batch.schema.names}
        broken = [COLUMNS.index(name) for name, (_, is_broken) in columns.items() if is_broken]
        for row in zip(*(columns[name][0] if name in columns else repeat(None) for name in COLUMNS), strict=False):
            own = row[_PART] or part
            number = numbers[own] = numbers.get(own, 0) + 1
            yield _row(row, number, own, options, broken)


_STATEMENT, _SUBJECT, _GRAPH, _KEY, _VALUE, _TYPE, _KIND, _STORE, _NAME, _PART, _SOURCE, _REJECT, _SHOWN = (
    COLUMNS.index(name)
    for name in (
        "statement", "subject", "graph", "key", "value", "content_type", "kind", "store", "name", "part", "source", "reject", "text",
    )
)  # fmt: skip


_Meaning = tuple[tuple[str, ...], tuple[str, ...], tuple[Operation, ...], int]
"""Statements, change, operations and size of a row."""


def _row(row: Sequence[Any], number: int, part: str, options: SinkOptions, broken: Sequence[int]) -> _Row:
    meaning: _Meaning = (), (), (), 0
    reason = row[_REJECT] or ""
    if not reason:
        try:
            meaning = _meaning(row, options, broken)
        except _Refused as refused:
            reason = str(refused)
    return _Row(number, part, row[_SOURCE] or "", *meaning, reason, row)


def _meaning(row: Sequence[Any], options: SinkOptions, broken: Sequence[int]) -> _Meaning:
    for place in broken:
        if isinstance(row[place], bytes):
            raise _Refused(f"{COLUMNS[place]} is not UTF-8")
    store, name = options.store or row[_STORE], options.name or row[_NAME]
    if store not in KINDS or not name:
        raise _Refused(f"store {store!r}, name {name!r}: a store is graph, table or queue, and has a name")
    kind = row[_KIND] or options.kind or _DEFAULT_KIND[store]
    operation = KINDS[store].get(kind)
    if operation is None:
        raise _Refused(f"kind {kind!r} is none of {', '.join(KINDS[store])}, which a {store} takes")
    if store == GRAPH:
        statements = _statements(row)
        meaning: _Meaning = statements, (operation, name), (), sum(map(len, statements))
    else:
        operations = _operations(operation, name, row)
        meaning = (), (), operations, sum(len(item) for each in operations for item in each)
    if meaning[-1] > ROW_LIMIT_BYTES:
        raise _Refused(f"it has {meaning[-1]} bytes, and a transaction takes {ROW_LIMIT_BYTES}")
    return meaning


def _statements(row: Sequence[Any]) -> tuple[str, ...]:
    text = row[_STATEMENT]
    if text is None:
        terms = row[_SUBJECT : _SUBJECT + 3]
        if None in terms:
            raise _Refused(f"{_TERMS[terms.index(None)]} is null")
        return (f"{' '.join(terms)} {row[_GRAPH]} ." if row[_GRAPH] else f"{' '.join(terms)} .",)
    if "\n" not in text:
        return (text.strip(_WHITE),) if is_statement(text) else ()
    return tuple(line.strip(_WHITE) for line in text.split("\n") if is_statement(line))


def _operations(operation: str, name: str, row: Sequence[Any]) -> tuple[Operation, ...]:
    key, value = _bytes(row[_KEY]), _bytes(row[_VALUE])
    if value is None and operation in {"new", "put", "publish"}:
        raise _Refused("value is null")
    if key is None and operation != "publish":
        raise _Refused("key is null")
    match operation:
        case "publish":
            kind = row[_TYPE] or (_TEXT if type(row[_VALUE]) is str else _BINARY)
            made: tuple[Operation, ...] = (("publish", name, kind, value),)
        case "accept":
            made = (("accept", name, (key or b"").decode("utf-8", "replace")),)
        case "new":
            made = (("expect-key", name, key, ""), ("put", name, key, value))
        case "put":
            made = (("put", name, key, value),)
        case _:
            made = (("delete", name, key),)
    try:
        check_operations(list(made))
    except InvalidRequest as error:
        raise _Refused(str(error).partition(": ")[2]) from None
    return made


class _Finish:
    """Makes a chunk from rows: checks statements, and joins operations in the order of the rows."""

    def __init__(self, options: SinkOptions, id_: str) -> None:
        self._id = id_
        self._graph = options.graph
        self._format = RdfFormat.N_TRIPLES if options.graph else RdfFormat.N_QUADS
        self._prefixes: dict[str, str] = {}

    def __call__(self, rows: list[_Row]) -> Chunk:
        bad = faults([one for row in rows for one in row.statements], self._format)
        rejects, written, place = [], [], 0
        put: set[tuple[str, ...]] = set()
        for row in rows:
            places = range(place, place + len(row.statements))
            place = places.stop
            at = next((at for at in places if at in bad), None) if bad else None
            reason = row.reason
            if at is not None:
                wrong = f"{row.statements[at - places.start]!r}: " if len(places) > 1 else ""
                reason = f"{wrong}{bad[at]}"
            if row.operations and row.operations[-1][0] == "put":
                # The cluster checks expectations on keys before the whole transaction.
                if len(row.operations) > 1 and row.operations[-1][:3] in put:
                    reason = "an earlier row of the same transaction writes this key"
                put.add(row.operations[-1][:3])
            if reason:
                rejects.append(_reject(row, reason))
            elif row.statements or row.operations:
                written.append(row)
        operations: list[Operation] = []
        items = 0
        for change, group in groupby(written, key=lambda row: row.change):
            if change:
                lines = [self._line(one, row.source) for row in group for one in row.statements]
                operations.append((*change, "\n".join(lines) + "\n"))
                items += len(lines)
            else:
                same = list(group)
                operations += [operation for row in same for operation in row.operations]
                items += len(same)
        return Chunk(rows[0].part, rows[0].number, len(rows), items, operations, rejects, written)

    def _line(self, statement: str, source: str) -> str:
        if source and "_:" in statement:
            prefix = self._prefixes.get(source)
            if prefix is None:
                prefix = self._prefixes[source] = prefix_of(self._id, source)
            statement = relabelled(statement, prefix)
        return in_graph(statement, self._graph) if self._graph else statement


def faults(statements: Sequence[str], syntax: RdfFormat) -> dict[int, str]:
    """Return the statements that the cluster would refuse, by position, with the reason."""
    text = "\n".join(statements)
    # The cluster refuses its reserved names, also behind escapes, and triple terms that are nested too deep.
    if not _is_close_look_needed(text):
        try:
            if sum(1 for _ in parse(text.encode(), format=syntax)) == len(statements):
                return {}
        except (SyntaxError, ValueError):
            pass
    found = ((place, fault(statement, syntax)) for place, statement in enumerate(statements))
    return {place: reason for place, reason in found if reason}


def fault(statement: str, syntax: RdfFormat) -> str:
    """Return why the cluster would refuse a statement; empty when it would not."""
    try:
        if _is_close_look_needed(statement):
            read_nquads(statement)
        count = sum(1 for _ in parse(statement.encode(), format=syntax))
    except (SyntaxError, ValueError, BrokerhaError) as error:
        text = str(error).removeprefix("MALFORMED DATA: ").splitlines()[0]
        return _SPAN.sub(r"columns \1 to \2", _LINE.sub("", text))
    return "" if count == 1 else f"{count} statements on one line"


def _is_close_look_needed(text: str) -> bool:
    return RESERVED in text or "<<(" in text or "\\u" in text or "\\U" in text


def _values(column: pa.Array) -> tuple[list[Any], bool]:
    """Return Python values, and whether some are not UTF-8: those come as bytes."""
    try:
        return list(column.to_pylist()), False
    except UnicodeDecodeError:
        is_large = pa.types.is_large_string(column.type)
        raw = column.cast(pa.large_binary() if is_large else pa.binary()).to_pylist()
        return [_text(value) for value in raw], True


def _text(value: bytes | None) -> str | bytes | None:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return value


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _reject(row: _Row, reason: str) -> Reject:
    return Reject(row.source, row.part, row.number, reason, _shown(row.values))


def _shown(row: Sequence[Any]) -> str:
    text = row[_SHOWN] if row[_SHOWN] is not None else row[_STATEMENT]
    if text is None:
        named = {name: value for name, value in zip(COLUMNS, row, strict=True) if value is not None and name != "reject"}
        text = json.dumps(named, ensure_ascii=False, default=_readable)
    return _readable(text)[:TEXT_LIMIT]


def _readable(text: str | bytes) -> str:
    return text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text)
