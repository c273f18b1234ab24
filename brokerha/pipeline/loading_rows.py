"""Rows of CSV and Parquet, in batches: each row becomes statements or a key, or a reject with its reason.

A CSV file has one row on each line, unless its mapping says that values may have line breaks; then it is read from the beginning to the end by
one task. A row that begins a quotation and does not end it on its line is a reject that says so. All statements of a row are
in one transaction. Line numbers are those of the file, its head included; of Parquet, numbers of rows.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, NamedTuple

from brokerha.client.rdf_lines import relabelled
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import Operation
from brokerha.pipeline.loading import (
    CSV,
    LINE_LIMIT_BYTES,
    NQ,
    SIZE_LIMIT_BYTES,
    STATEMENTS_LIMIT,
    TEXT_LIMIT,
    Batch,
    LoadJob,
    Reject,
    Split,
    prefix_of,
)
from brokerha.pipeline.loading_lines import pieces
from brokerha.pipeline.loading_mapping import ALL_COLUMNS, CsvForm, Mapping
from brokerha.pipeline.loading_plan import LoadFile, opened
from brokerha.pipeline.loading_rdf import decoded, faults
from brokerha.pipeline.loading_terms import RowRefused, key_of, statements_of

_LINE_ENDS = "\r\n"
_NOT_UTF_8 = "not UTF-8"
_BROKEN = "it begins a quotation and does not end it; if values have line breaks, say so in the mapping: [csv] line_breaks = true"


class _Row(NamedTuple):
    """One row that became something."""

    line: int
    last_line: int
    statements: list[str]
    operation: Operation | None
    size: int
    text: str | dict[str, Any]
    """Of the file, or its values."""


class _Collector:
    """Puts rows together to batches of bounded size."""

    def __init__(self, mapping: Mapping, path: str, repository: str, prefix: str) -> None:
        self._mapping = mapping
        self._path = path
        self._repository = repository
        self._prefix = prefix
        self._rows: list[_Row] = []
        self._rejects: list[Reject] = []
        self._statements = self._size = 0
        self._number = 0
        self._first_line = 1
        self._line = 0
        self._position = 0

    def row(
        self, line: int, last_line: int, values: dict[str, Any], text: str | dict[str, Any], position: int
    ) -> Iterator[Batch]:
        """Take one row; gives the batch that is full before it, if any."""
        statements: list[str] = []
        operation = None
        try:
            if self._mapping.quads is not None:
                statements = statements_of(values, self._mapping.quads)
            elif self._mapping.keys is not None:
                operation = key_of(values, self._mapping.keys)
        except RowRefused as refused:
            yield from self.refuse(line, last_line, str(refused), text, position)
            return
        size = sum(map(len, statements)) if operation is None else len(operation[2]) + len(operation[3])
        count = len(statements) or 1
        if self._rows and (self._statements + count > STATEMENTS_LIMIT or self._size + size > SIZE_LIMIT_BYTES):
            yield self.batch()
        self._rows.append(_Row(line, last_line, statements, operation, size, text))
        self._statements += count
        self._size += size
        self.seen(last_line, position)

    def refuse(
        self, line: int, last_line: int, reason: str, text: str | dict[str, Any], position: int
    ) -> Iterator[Batch]:
        """Take one row that cannot be loaded; gives the batch that is full before it, if any."""
        if len(self._rejects) >= STATEMENTS_LIMIT:
            yield self.batch()
        self._rejects.append(Reject(self._path, line, last_line, reason, _shown(text)))
        self.seen(last_line, position)

    def seen(self, line: int, position: int) -> None:
        """Everything up to this line was taken, or is no row."""
        self._line, self._position = max(self._line, line), position

    def batch(self) -> Batch:
        """All that was taken since the last batch."""
        self._number += 1
        operations, statements = self._operations()
        self._rejects.sort(key=lambda reject: reject.line)
        batch = Batch(
            self._number, self._first_line, self._line, operations, statements, self._rejects, self._position
        )  # fmt: skip
        self._rows, self._rejects = [], []
        self._statements = self._size = 0
        self._first_line = self._line + 1
        return batch

    def _operations(self) -> tuple[list[Operation], int]:
        if self._mapping.keys is not None:
            puts = [row.operation for row in self._rows if row.operation is not None]
            return puts, len(puts)
        bad = faults([one for row in self._rows for one in row.statements], NQ)
        good: list[str] = []
        place = 0
        for row in self._rows:
            places = range(place, place + len(row.statements))
            place += len(row.statements)
            reason = next((f"{row.statements[at - places.start]!r}: {bad[at]}" for at in places if at in bad), "")
            if reason:
                self._rejects.append(Reject(self._path, row.line, row.last_line, reason, _shown(row.text)))
            else:
                good += (relabelled(one, self._prefix) for one in row.statements)
        return [("add", self._repository, "\n".join(good) + "\n")] if good else [], len(good)


def row_batches(split: Split, job: LoadJob) -> Iterator[Batch]:
    """The batches of a split of CSV or Parquet. Raises what the file raises when it is damaged."""
    mapping = job.mapping
    if mapping is None:
        raise InvalidRequest(f"{split.path}: a mapping says how a row becomes statements or keys: give one")
    collector = _Collector(mapping, split.path, job.repository, prefix_of(job.key, split.file))
    if split.syntax != CSV:
        yield from _of_parquet(split, mapping, collector)
    else:
        with ExitStack() as stack:
            content, raw = opened(split.path)
            stack.callback(raw.close)
            stack.callback(content.close)
            columns = job.columns[split.file]
            read = _of_long_rows if mapping.csv.has_line_breaks else _of_lines
            yield from read(split, mapping.csv, columns, content, raw, collector)
    yield collector.batch()


def head_of(file: LoadFile, mapping: Mapping) -> tuple[str, ...]:
    """The columns of a file, of which the mapping needs some. Raises InvalidRequest that names the missing one."""
    if file.syntax != CSV:
        columns = _parquet_columns(file.path)
    elif mapping.csv.columns:
        columns = mapping.csv.columns
    else:
        content, raw = opened(file.path)
        try:
            line = content.readline(LINE_LIMIT_BYTES).decode("utf-8-sig").rstrip(_LINE_ENDS)
            columns = tuple(next(_reader([line], mapping.csv), []))
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise InvalidRequest(f"{file.path}: its first line cannot be read: {error}") from None
        finally:
            content.close()
            raw.close()
    for needed in mapping.columns:
        if needed not in (*columns, ALL_COLUMNS):
            raise InvalidRequest(f"{file.path} has no column {needed!r}; it has {', '.join(columns) or 'none'}")
    return columns


def _parquet_columns(path: str) -> tuple[str, ...]:
    from pyarrow import parquet

    return tuple(parquet.read_schema(path).names)


def _reader(lines: Any, form: CsvForm) -> Iterator[list[str]]:
    csv.field_size_limit(LINE_LIMIT_BYTES)
    return csv.reader(lines, delimiter=form.delimiter, strict=True)


def _of_lines(
    split: Split, form: CsvForm, columns: tuple[str, ...], content: IO[bytes], raw: IO[bytes], collector: _Collector
) -> Iterator[Batch]:
    """Rows of one line each, from any split of the file."""
    head_line = 1 if split.number == 1 and not form.columns else 0
    for piece in pieces(content, raw, split.start, split.end, STATEMENTS_LIMIT, SIZE_LIMIT_BYTES):
        numbered, rejects = decoded(piece, split.path, _LINE_ENDS)
        for reject in rejects:
            yield from collector.refuse(*reject[1:5], piece.position)
        for line, text in numbered:
            if line == head_line or not text:
                continue
            if line == 1 and split.number == 1:
                text = text.removeprefix("\ufeff")  # noqa: PLW2901  (the mark is no part of the first value)
            try:
                fields = next(_reader([text], form)) if '"' in text else text.split(form.delimiter)
            except csv.Error as error:
                reason = _BROKEN if "end of data" in str(error) else str(error)
                yield from collector.refuse(line, line, reason, text, piece.position)
                continue
            yield from _take(collector, columns, fields, line, line, text, piece.position)
        collector.seen(piece.first_line + len(piece.lines) - 1, piece.position)


def _of_long_rows(
    _: Split, form: CsvForm, columns: tuple[str, ...], content: IO[bytes], raw: IO[bytes], collector: _Collector
) -> Iterator[Batch]:
    """Rows of any number of lines, from the whole file."""
    lines = _texts(content)
    reader: Any = _reader(lines, form)
    last = 0
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            yield from collector.refuse(last + 1, reader.line_num, str(error), "", raw.tell())
            last = reader.line_num
            continue
        first, last = last + 1, reader.line_num
        if not fields or (first == 1 and not form.columns):
            collector.seen(last, raw.tell())
            continue
        text = form.delimiter.join(fields)
        if any("\udc80" <= letter <= "\udcff" for letter in text):
            readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            yield from collector.refuse(first, last, _NOT_UTF_8, readable, raw.tell())
            continue
        yield from _take(collector, columns, fields, first, last, text, raw.tell())


def _texts(content: IO[bytes]) -> Iterator[str]:
    """Lines of a file, long ones in pieces. Bytes that are no UTF-8 become surrogates, which are looked for in each row."""
    is_first = True
    while line := content.readline(LINE_LIMIT_BYTES):
        yield line.decode("utf-8-sig" if is_first else "utf-8", "surrogateescape")
        is_first = False


def _take(
    collector: _Collector,
    columns: tuple[str, ...],
    fields: Sequence[str],
    line: int,
    last_line: int,
    text: str,
    position: int,
) -> Iterator[Batch]:
    if len(fields) != len(columns):
        reason = f"{len(fields)} fields, and the file has {len(columns)} columns"
        yield from collector.refuse(line, last_line, reason, text, position)
    else:
        yield from collector.row(line, last_line, dict(zip(columns, fields, strict=True)), text, position)


def _of_parquet(split: Split, mapping: Mapping, collector: _Collector) -> Iterator[Batch]:
    from pyarrow import parquet

    groups = list(range(split.start, split.end))
    columns = None if mapping.columns == (ALL_COLUMNS,) else list(mapping.columns)
    line = 0
    with parquet.ParquetFile(split.path) as file:
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        for batch in file.iter_batches(STATEMENTS_LIMIT, row_groups=groups, columns=columns):
            for values in batch.to_pylist():
                line += 1
                position = split.size_bytes * line // max(rows, 1)
                yield from collector.row(line, line, values, values, position)


def _shown(row: str | dict[str, Any]) -> str:
    """A row for the reject file."""
    text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False, default=str)
    return text[:TEXT_LIMIT]
