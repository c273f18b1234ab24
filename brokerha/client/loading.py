"""RDF input of any length, loaded as transactions of bounded size.

N-Triples and N-Quads are read line by line and never held as a whole. Other syntaxes need pyoxigraph to be installed. Quads travel
as ``add`` operations, which keep labels of blank nodes. So each label gets a prefix of this load: a blank node is the same in all
transactions of the load, and differs from those of other loads.

A whole load is no transaction: when it fails, its earlier transactions stay. With ``key`` each transaction has a key made from it,
so the same load can be started again and does only what is missing.

    load(db, "main", "people.nt.gz")          a file; the format by its name, .gz .bz2 .xz unpacked
    load(db, "main", sys.stdin.buffer, "nt")  any iterable of lines
    load(db, "main", "insert.ru")             a SPARQL update that is one INSERT DATA, of any length
    load(db, "main", "x.nt", inside=tx)       all or nothing, in one large transaction (large.py)

Labels are found without a parser, which is fast on long input. Strings, IRIs and comments are skipped, and lines can be cut
anywhere.

>>> relabelled('_:a <urn:p> "_:b" .', "x")
'_:xa <urn:p> "_:b" .'
>>> in_graph('<urn:s> <urn:p> "1. 2" . # so', "urn:g")
'<urn:s> <urn:p> "1. 2" <urn:g> . # so'
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

from brokerha.client.outcomes import Written
from brokerha.client.pipeline import Pipeline
from brokerha.model.errors import BrokerhaError, InvalidRequest
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import Operation
from brokerha.model.reserved.staging import STAGE

if TYPE_CHECKING:
    from brokerha.client.large import LargeTransaction

STATEMENTS_LIMIT = 2_000
SIZE_LIMIT_BYTES = 512 * 1024
"""A transaction ends at the first limit that it reaches."""
WINDOW = 16
"""Most concurrent transactions."""
STATEMENT_LIMIT_BYTES = 4 * 1024 * 1024
"""Longest single line."""

_PIECE_BYTES = 64 * 1024
_TRIG = "application/trig"

Source = str | Path | IO[bytes] | IO[str] | Iterable[str] | Iterable[bytes]
_BY_LINES = {"nt": "nt", "ntriples": "nt", "nq": "nq", "nquads": "nq"}
_PARSED = {
    "ttl": "TURTLE", "turtle": "TURTLE", "trig": "TRIG", "rdf": "RDF_XML", "xml": "RDF_XML", "owl": "RDF_XML",
    "rdfxml": "RDF_XML", "jsonld": "JSON_LD", "n3": "N3",
}  # fmt: skip
_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""How to open a packed file, by the end of its name."""
_INSERTED = "ru"
"""SPARQL: one INSERT DATA."""
_ALL = (*_BY_LINES, *_PARSED, _INSERTED)
_WITH_GRAPHS = frozenset({"nq", "nquads", "trig", "jsonld", _INSERTED})
_OPAQUE = r'"(?:[^"\\]|\\.)*"|<[^<>"\s]*>|\#.*'
_NODE = r'_:([^\s<>"\#]*[^\s<>"\#.])'
_LABEL = re.compile(rf"({_OPAQUE})|{_NODE}")
_DOT = re.compile(rf"{_OPAQUE}|{_NODE}|(\.)")
_GRAPH = re.compile(r'[^\s<>"{}|^`\\]+\Z')


class Loaded(NamedTuple):
    """Progress of a load, and its result at the end."""

    statements: int
    transactions: int
    lsn: Lsn
    """Highest LSN so far."""


Progress = Callable[[Loaded], None]


class Writer(Protocol):
    """The parts of a client that a load uses."""

    def pipeline(self, window: int, *, ack: str | None, timeout: float | None) -> Pipeline:
        """Return a pipeline of concurrent writes in their order."""


def load(
    writer: Writer,
    repository: str,
    source: Source,
    format_name: str | None = None,
    *,
    graph: str = "",
    base_iri: str | None = None,
    ack: str | None = None,
    timeout: float | None = None,
    key: TxId = "",
    on_progress: Progress | None = None,
    inside: LargeTransaction | None = None,
) -> Loaded:
    """Load ``source``. ``timeout`` is for each transaction. Raises InvalidRequest with the lines, and the errors of writes."""
    name = _format_of(source, format_name)
    if graph and name in _WITH_GRAPHS:
        raise InvalidRequest(f"{name} names its graphs itself: a graph can be given for triples only")
    if inside is not None and not key:
        key = f"{inside.name}.{inside.parts}"
    prefix = f"l{hashlib.blake2b(key.encode(), digest_size=8).hexdigest() if key else secrets.token_hex(8)}x"
    lines = _of_file(Path(source), name, base_iri) if isinstance(source, (str, Path)) else statements(source, name, base_iri)
    # Parsers invent different labels in each run; a load that can be repeated needs the same text each time.
    numbers: dict[str, int] | None = {} if key and name not in _BY_LINES else None
    prepared = (_prepared(line, number, prefix, numbers, graph) for number, line in lines)
    if inside is not None:
        return _Load(inside, repository, key, on_progress).run(prepared)
    with writer.pipeline(WINDOW, ack=ack, timeout=timeout) as pipeline:
        return _Load(pipeline, repository, key, on_progress).run(prepared)


class _Load:
    """A running load."""

    def __init__(self, into: Pipeline | LargeTransaction, repository: str, key: TxId, on_progress: Progress | None) -> None:
        self._into = into
        self._limit_s = into.limit_s if isinstance(into, Pipeline) else 0.0
        self._repository = repository
        self._key = key
        self._on_progress = on_progress
        self._sent: list[tuple[int, int, int, Future[Written]]] = []
        """(first line, last line, statements, future) of transactions whose result is not read yet, oldest first."""
        self._number = 0
        self._done = Loaded(0, 0, 0)

    def run(self, lines: Iterator[tuple[int, str]]) -> Loaded:
        batch: list[str] = []
        size = first = last = 0
        for number, line in lines:
            if batch and (len(batch) >= STATEMENTS_LIMIT or size + len(line) > SIZE_LIMIT_BYTES):
                self._send(batch, first, last)
                batch, size = [], 0
            first = first if batch else number
            last = number
            batch.append(line)
            size += len(line)
        if batch:
            self._send(batch, first, last)
        while self._sent:
            self._take_oldest()
        return self._done

    def _send(self, batch: list[str], first: int, last: int) -> None:
        self._number += 1
        key = f"{self._key}.{self._number}" if self._key else ""
        operation = ("add", self._repository, "\n".join(batch) + "\n")
        future: Future[Written]
        future = self._into.write([operation], key=key) if isinstance(self._into, Pipeline) else _staged(self._into, operation)
        self._sent.append((first, last, len(batch), future))
        # So a failure ends the load soon, and the list stays as short as the window.
        while self._sent and (self._sent[0][3].done() or len(self._sent) > WINDOW):
            self._take_oldest()

    def _take_oldest(self) -> None:
        first, last, statements, future = self._sent.pop(0)
        try:
            lsn = future.result(self._limit_s).lsn
        except InvalidRequest as error:
            raise type(error)(f"statements {first} to {last}: {error}") from None
        done = self._done
        self._done = Loaded(done.statements + statements, done.transactions + 1, max(done.lsn, lsn))
        if self._on_progress is not None:
            self._on_progress(self._done)


def _staged(into: LargeTransaction, operation: Operation) -> Future[Written]:
    """Stage a part of a large transaction and return its completed future; it has no LSN of its own."""
    future: Future[Written] = Future()
    try:
        into.stage([operation])
        future.set_result(Written(into.name, 0, STAGE))
    except InvalidRequest as error:
        future.set_exception(error)
    return future


def _format_of(source: Source, format_name: str | None) -> str:
    if format_name is None:
        if not isinstance(source, (str, Path)):
            raise InvalidRequest(f"say the format: one of {', '.join(_ALL)}")
        path = Path(source)
        format_name = (path.with_suffix("") if path.suffix in _OPEN else path).suffix
    name = format_name.lower().lstrip(".").replace("-", "")
    if name not in _ALL:
        raise InvalidRequest(f"format {format_name!r} is not one of {', '.join(_ALL)}")
    return name


def _of_file(path: Path, name: str, base_iri: str | None) -> Iterator[tuple[int, str]]:
    """Yield the statements of a file. Raises InvalidRequest when the file cannot be read or unpacked to its end."""
    try:
        with _OPEN.get(path.suffix, open)(path, "rb") as file:
            yield from statements(file, name, base_iri)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InvalidRequest(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def statements(source: Any, name: str, base_iri: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield the statements of an open source, each with its line number or its number from the parser. Raises InvalidRequest."""
    if isinstance(source, (bytes, bytearray)):
        raise InvalidRequest("the source is a path, an open file or lines: put bytes into io.BytesIO(…)")
    if name == _INSERTED:
        return _inserted(source, base_iri)
    return _lines(source) if name in _BY_LINES else _parsed(source, _PARSED[name], base_iri)


def _lines(source: Any) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source, 1):
        if len(line) > STATEMENT_LIMIT_BYTES:
            raise InvalidRequest(f"line {number} is longer than {STATEMENT_LIMIT_BYTES} bytes")
        try:
            text = (line if isinstance(line, str) else line.decode()).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"line {number} is not UTF-8 (at byte {error.start})") from None
        # A carriage return alone ends a statement too, and a comment.
        yield from ((number, each.strip()) for each in text.split("\r") if is_statement(each))


def _parsed(source: Any, format_word: str, base_iri: str | None) -> Iterator[tuple[int, str]]:
    try:
        import pyoxigraph

        from brokerha.ingress.rdf_bodies import Watched
    except ImportError:
        raise InvalidRequest("pyoxigraph reads this format: install it, or convert the input to N-Triples") from None
    _expect_file(source)
    try:
        rdf_format = getattr(pyoxigraph.RdfFormat, format_word)
        watched: Any = Watched(source, rdf_format)
        for number, quad in enumerate(pyoxigraph.parse(watched, format=rdf_format, base_iri=base_iri), 1):
            yield number, f"{quad} ."
    except (SyntaxError, ValueError) as error:
        raise InvalidRequest(f"the input is not {format_word}: {error}") from None


def _inserted(source: Any, base_iri: str | None) -> Iterator[tuple[int, str]]:
    """Yield the quads of an update that is one INSERT DATA, each with its number."""
    try:
        from brokerha.ingress.insert_data import documents
        from brokerha.ingress.rdf_bodies import quads_of
    except ImportError:
        raise InvalidRequest("pyoxigraph reads this format: install it, or convert the input to N-Quads") from None
    _expect_file(source)
    pieces = iter(lambda: source.read(_PIECE_BYTES), source.read(0))
    numbers = count(1)
    for line, document in documents(piece.encode() if isinstance(piece, str) else piece for piece in pieces):
        try:
            yield from ((next(numbers), f"{quad} .") for quad in quads_of(document, _TRIG, base_iri))
        except (SyntaxError, ValueError) as error:
            raise InvalidRequest(f"the update is no INSERT DATA: {error} (counted from line {line})") from None


def _expect_file(source: Any) -> None:
    if not hasattr(source, "read"):
        raise InvalidRequest("this format is read from a file, not from lines")


def _prepared(line: str, number: int, prefix: str, numbers: dict[str, int] | None, graph: str) -> tuple[int, str]:
    try:
        labelled = relabelled(line, prefix, numbers)
        return number, in_graph(labelled, graph) if graph else labelled
    except BrokerhaError as error:
        raise InvalidRequest(f"line {number}: {error}") from None


# ---- lines of N-Triples and N-Quads


def relabelled(line: str, prefix: str, numbers: dict[str, int] | None = None) -> str:
    """Return the line with ``prefix`` before each blank node label.

    With ``numbers``, which grows from line to line, labels become numbers in the order of their first appearance. So the same input
    gives the same text, even where a parser invents labels.
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
    """Turn the line of a triple into a quad of a graph. Raises InvalidRequest without a final dot, or when the graph is no IRI."""
    if not _GRAPH.match(graph):
        raise InvalidRequest(f"the graph {graph!r} is no IRI")
    dots = [found.start() for found in _DOT.finditer(line) if found[2]]
    if not dots:
        raise InvalidRequest(f"no statement with a final dot: {line[:80]!r}")
    return f"{line[: dots[-1]].rstrip()} <{graph}> {line[dots[-1] :]}"


def is_statement(line: str) -> bool:
    """Tell whether a line has more than white space and a comment."""
    text = line.lstrip()
    return bool(text) and not text.startswith("#")
