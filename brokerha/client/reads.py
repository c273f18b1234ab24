"""Read calls that a client and an open transaction share; only `read` differs between them.

Read calls take ``min_lsn``: see at least this LSN, or ``"latest"``. Inside a transaction they show the state at one LSN, with the
transaction's own operations so far on top.

>>> Literal("1", XSD + "integer").native()
1
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar
from typing import Literal as Word

import msgpack

from brokerha.client.arguments import checked
from brokerha.model.errors import InvalidRequest, NotFound, ProtocolError, UnknownSnapshot, UnknownTransaction
from brokerha.model.ids import Lsn
from brokerha.model.operations import NO_UTF8
from brokerha.model.requests import RANGE_ROWS
from brokerha.model.reserved.pieces import pieces_of, plain_type
from brokerha.ports.front import ReadOutcome

# ---- Results of queries as plain Python values.
#
#     SELECT, ASK     `Solutions`, a list of dictionaries; a bool
#     CONSTRUCT       `Triples`, a list of N-Triples lines
#
# A term is an `Iri` or a `BlankNode`, which are text, or a `Literal`, which is a tuple of (text, datatype, language). Numbers stay
# text, because ``01`` and ``1`` are different terms; `Literal.native` converts them.

XSD = "http://www.w3.org/2001/XMLSchema#"
RESULTS_JSON = "application/sparql-results+json"
N_TRIPLES = "application/n-triples"
ACCEPT = f"{RESULTS_JSON}, {N_TRIPLES};q=0.9"
"""One format for each kind of result; the form of the query selects it."""

_INTEGERS = frozenset(
    XSD + name
    for name in (
        "integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "nonPositiveInteger",
        "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte",
    )
)  # fmt: skip


class Iri(str):
    """An IRI, without angle brackets."""

    __slots__ = ()


class BlankNode(str):
    """The label of a blank node, without ``_:``."""

    __slots__ = ()


class Literal(NamedTuple):
    """A literal; ``datatype`` is empty for plain text and for text in a language."""

    value: str
    datatype: str = ""
    language: str = ""

    def native(self) -> str | int | float | bool | Decimal:
        """Return a number or a truth value if the datatype says so, else the text. Raises ValueError for ill-typed text."""
        if self.datatype in _INTEGERS:
            return int(self.value)
        if self.datatype == XSD + "decimal":
            return Decimal(self.value)
        if self.datatype in {XSD + "double", XSD + "float"}:
            return float(self.value)
        if self.datatype == XSD + "boolean":
            return self.value in {"true", "1"}
        return self.value


Term = Iri | BlankNode | Literal
Solution = dict[str, Term | tuple[Any, ...]]


class _Aged:
    """Facts about the answer that a result came from."""

    raw: ReadOutcome
    """The unchanged answer."""

    @property
    def lsn(self) -> Lsn:
        """The LSN of the content, or an earlier one."""
        return self.raw.lsn

    @property
    def apart(self) -> str:
        """State word of the asked master if it could not agree with the others, else empty."""
        return self.raw.apart

    @property
    def stale_ms(self) -> int | None:
        """For how long an apart master had not been known to be up to date, as far as it knew."""
        return self.raw.stale_ms


class Solutions(_Aged, list[Solution]):
    """Rows of a SELECT: one dictionary each, without unbound variables."""

    def __init__(self, rows: list[Solution], variables: tuple[str, ...], raw: ReadOutcome) -> None:
        super().__init__(rows)
        self.variables = variables
        self.raw = raw


class Rows(list[tuple[bytes, bytes]]):
    """Keys and values of a range; ``more`` tells whether there are more, or with a ``limit`` that was reached, can be."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes]], *, more: bool) -> None:
        super().__init__(rows)
        self.more = more


class Triples(_Aged, list[str]):
    """Lines of a CONSTRUCT or DESCRIBE, in N-Triples."""

    def __init__(self, raw: ReadOutcome) -> None:
        super().__init__(line for line in raw.body.decode().split("\n") if line)
        self.raw = raw


def parsed(outcome: ReadOutcome) -> Solutions | bool | Triples:
    """Return the value of a result requested with `ACCEPT`. Raises ProtocolError for another format."""
    kind = outcome.content_type.partition(";")[0]
    if kind == N_TRIPLES:
        return Triples(outcome)
    if kind != RESULTS_JSON:
        raise ProtocolError(f"asked for {ACCEPT}, got {outcome.content_type}")
    document = json.loads(outcome.body)
    if "boolean" in document:
        return bool(document["boolean"])
    rows = [{name: term_of(cell) for name, cell in row.items()} for row in document["results"]["bindings"]]
    return Solutions(rows, tuple(document["head"]["vars"]), outcome)


def term_of(cell: dict[str, Any]) -> Term | tuple[Any, ...]:
    """Return a term of a JSON result; a triple term is a tuple of its three terms."""
    kind, value = cell["type"], cell["value"]
    if kind == "uri":
        return Iri(value)
    if kind == "bnode":
        return BlankNode(value)
    if kind == "triple":
        return tuple(term_of(value[part]) for part in ("subject", "predicate", "object"))
    return Literal(value, cell.get("datatype", ""), cell.get("xml:lang", ""))


Result = TypeVar("Result")
Least = Lsn | Word["latest"] | None
"""The least LSN that a read must see. ``latest``: all that the asked master has ordered by now. None: the client's default."""


class QueueMessage(NamedTuple):
    """One message of a queue."""

    id: str
    """``<transaction id>.<place of the operation in it>``: the same on every node."""
    content_type: str
    body: bytes
    """Empty when it is longer than a transaction and was not asked for."""
    size: int | None = None
    """Bytes of a body that is left out, and that `message_body` reads; None when the body is here."""


@checked
class Reads:
    """Queries, keys and queues; `read` runs one of them."""

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Least = None, timeout: float | None = None
    ) -> ReadOutcome:
        """Run one read of ports.Front and return its outcome unchanged."""
        raise NotImplementedError

    def query(
        self,
        repository: str,
        text: str,
        *,
        accept: str | None = None,
        min_lsn: Least = None,
        timeout: float | None = None,
        default_graphs: Iterable[str] = (),
        named_graphs: Iterable[str] = (),
    ) -> Solutions | bool | Triples | ReadOutcome:
        """Run a SPARQL query: `Solutions`, a bool, or `Triples`; with ``accept`` the raw answer in that format."""
        arguments = {
            "query": text,
            "accept": accept or ACCEPT,
            "default-graph-uri": tuple(default_graphs),
            "named-graph-uri": tuple(named_graphs),
        }
        outcome = self.read("query", repository, arguments, min_lsn, timeout)
        return outcome if accept else parsed(outcome)

    def select(self, repository: str, text: str, *, min_lsn: Least = None, timeout: float | None = None) -> Solutions:
        """Run a SELECT query. Raises InvalidRequest for another form of query."""
        return _of_form(self.query(repository, text, min_lsn=min_lsn, timeout=timeout), Solutions, "SELECT")

    def is_true(self, repository: str, text: str, *, min_lsn: Least = None, timeout: float | None = None) -> bool:
        """Run an ASK query. Raises InvalidRequest for another form of query."""
        return _of_form(self.query(repository, text, min_lsn=min_lsn, timeout=timeout), bool, "ASK")

    def construct(self, repository: str, text: str, *, min_lsn: Least = None, timeout: float | None = None) -> Triples:
        """Run a CONSTRUCT or DESCRIBE query. Raises InvalidRequest for another form of query."""
        return _of_form(self.query(repository, text, min_lsn=min_lsn, timeout=timeout), Triples, "CONSTRUCT")

    def get(
        self, table: str, key_name: str | bytes, *, snapshot: str | None = None, min_lsn: Least = None, timeout: float | None = None
    ) -> bytes | None:
        """Return the value of a key, or None; with ``snapshot`` as that snapshot shows it. Raises UnknownSnapshot."""
        try:
            arguments = {"key": as_bytes(key_name), **({} if snapshot is None else {"snapshot": snapshot})}
            return self.read("get", table, arguments, min_lsn, timeout).body
        except (UnknownSnapshot, UnknownTransaction):
            raise
        except NotFound:
            return None

    def range(
        self,
        table: str,
        *,
        prefix: str | bytes = b"",
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
        snapshot: str | None = None,
        min_lsn: Least = None,
        timeout: float | None = None,
    ) -> Rows:
        """Return keys and values in key order, from ``start`` on and before ``end``; without ``limit`` 1000, and `Rows.more` tells of more.

        With ``limit`` at most 1,000,000; `Client.export` gives any number. With ``snapshot``, as that snapshot shows them; raises UnknownSnapshot.
        """
        arguments = {
            "prefix": as_bytes(prefix),
            "from": None if start is None else as_bytes(start),
            "to": None if end is None else as_bytes(end),
            "limit": RANGE_ROWS + 1 if limit is None else limit,
            "reverse": reverse,
            "snapshot": snapshot,
        }
        rows = msgpack.unpackb(self.read("range", table, arguments, min_lsn, timeout).body, use_list=False)
        return Rows(rows[: limit or RANGE_ROWS], more=len(rows) > RANGE_ROWS if limit is None else len(rows) >= limit)

    def size(self, repository: str, *, min_lsn: Least = None, timeout: float | None = None) -> int:
        """Return the number of quads in a repository."""
        return int(self.read("size", repository, {"context": ()}, min_lsn, timeout).body)

    def queue(
        self, name: str, *, after: str | None = None, limit: int = 100, min_lsn: Least = None, timeout: float | None = None
    ) -> list[QueueMessage]:
        """Return the first messages of a queue, or those after an id, without taking them; long ones have a size and no body."""
        if limit < 1:
            raise InvalidRequest(f"limit is a number from 1 on, not {limit}")
        outcome = self.read("queue", name, {"after": after, "limit": limit}, min_lsn, timeout)
        return [message_of(row) for row in msgpack.unpackb(outcome.body, use_list=False)]

    def message_body(self, queue: str, message_id: str, *, min_lsn: Least = None, timeout: float | None = None) -> Iterator[bytes]:
        """Yield the body of a message in pieces; ``timeout`` is for each. Raises NotFound when it is missing or taken meanwhile."""
        number, count = 0, 1
        while number < count:
            outcome = self.read("message", queue, {"id": message_id, "number": number}, min_lsn, timeout)
            # The next piece can come from another node, which must have caught up.
            min_lsn = outcome.lsn
            _, _, count, data = msgpack.unpackb(outcome.body)
            yield data
            number += 1

    def together(
        self, reads: Sequence[tuple[str, str, dict[str, Any]]], *, min_lsn: Least = None, timeout: float | None = None
    ) -> list[ReadOutcome]:
        """Run several reads, (kind, name, arguments) each, at one LSN over all stores; at most 100."""
        with in_utf8():
            arguments = {"reads": tuple(msgpack.packb(wanted) for wanted in reads)}
        outcome = self.read("together", "", arguments, min_lsn, timeout)
        return [ReadOutcome(content_type, outcome.lsn, body) for content_type, body in msgpack.unpackb(outcome.body)]

    def queues(self, *, min_lsn: Least = None, timeout: float | None = None) -> dict[str, dict[str, int]]:
        """Return all queues by name: ``{"depth", "published", "accepted"}`` of each."""
        answer: dict[str, dict[str, int]] = json.loads(self.read("queues", "", {}, min_lsn, timeout).body)
        return answer


def message_of(row: Sequence[Any]) -> QueueMessage:
    """Return the message in a row."""
    message_id, content_type, body = row
    if (pieces := pieces_of(content_type, body)) is None:
        return QueueMessage(message_id, content_type, body)
    return QueueMessage(message_id, plain_type(content_type), b"", pieces.size_bytes)


@contextlib.contextmanager
def in_utf8() -> Iterator[None]:
    """Raise InvalidRequest for text that cannot be sent as UTF-8, and for a number that no message holds."""
    try:
        yield
    except UnicodeEncodeError:
        raise InvalidRequest(NO_UTF8) from None
    except OverflowError:
        raise InvalidRequest("a number is beyond 64 bits") from None


def as_bytes(value: str | bytes | bytearray | memoryview) -> bytes:
    """Return text as UTF-8, and other data as bytes. Raises InvalidRequest for wrong types: `bytes` makes zeros of a number."""
    if isinstance(value, str):
        with in_utf8():
            return value.encode()
    try:
        return value if isinstance(value, bytes) else bytes(memoryview(value))
    except TypeError:
        raise InvalidRequest(f"a key, a value and a message are text or bytes, not {type(value).__name__}") from None


def _of_form(result: object, form: type[Result], word: str) -> Result:
    if not isinstance(result, form):
        raise InvalidRequest(f"this is no {word} query")
    return result
