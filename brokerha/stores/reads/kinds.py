"""Kinds of reads: their arguments, the view of the store, and answers that need nothing else (table: reading.py).

``together`` is several reads of one moment, over all stores. Argument ``reads``: a list of packed msgpack (kind, name,
arguments). Answer: msgpack list of (content type, body), in their order. With ``pending`` and ``txid``, all of them show the
operations of one open transaction on top. If one read fails, the whole read fails.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgpack

from brokerha.model.errors import BrokerhaError, InvalidRequest, TooLarge, UnknownRepository
from brokerha.model.ids import Lsn
from brokerha.model.operation_checks import KEY_LIMIT_BYTES, TABLE_LIMIT_BYTES, is_message_id
from brokerha.model.outside.shapes import (
    BYTES,
    FLAG,
    TEXT,
    TXID,
    Shape,
    Shapes,
    check_shapes,
    data,
    either,
    listed,
    needed,
    number,
    shown,
    text,
)
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.reserved import about
from brokerha.model.reserved.staging import PARTS_LIMIT
from brokerha.ports.store import ReadAnswer
from brokerha.stores.comparing.digests import ROWS_LIMIT, WANTED_LIMIT
from brokerha.stores.comparing.items import BITS_LIMIT
from brokerha.stores.control.suite import EMPTY, Suite
from brokerha.stores.rdf.repositories import Repository
from brokerha.stores.tables.key_range import RANGE_LIMIT, in_pieces

OCTETS, JSON, MSGPACK = "application/octet-stream", "application/json", "application/x-msgpack"
RDF_KINDS: Final = frozenset({"query", "statements", "size", "contexts"})
"""Kinds that an engine answers; tables.py answers all others, except `WALKS` and ``together``."""
WALKS: Final = frozenset({"digests", "items"})
"""Kinds that look at the whole content."""
READS_LIMIT: Final = 100
"""Limit of reads in one read of kind ``together``."""
MASTERS_LIMIT: Final = 1000
"""Limit of masters that one read names."""
LISTED_LIMIT: Final = 10_000
"""Limit of graphs that one read names."""
_NAMED: Final[Shapes] = {"name": text(512)}
"""A limit longer than any name."""
_TEXTS: Final = either(TEXT, listed(TEXT, 0, LISTED_LIMIT))
_KEY: Final = data(KEY_LIMIT_BYTES)
_BOUND: Final = data(KEY_LIMIT_BYTES + 1)
"""A key, or one with a zero byte more: the first that can come after it."""
_SNAPSHOT: Final = text(TABLE_LIMIT_BYTES)
_BITS: Final = number(1, BITS_LIMIT)
_MESSAGE_ID: Final = Shape(
    "a message id (transaction id, dot, number)", lambda value: isinstance(value, str) and is_message_id(value)
)
_ROWS: Final = number(1, RANGE_LIMIT)
_PENDING: Final[Shapes] = {"pending": BYTES, "txid": TXID}
"""Arguments of reads that accept the operations of an open transaction (pending.py)."""
ARGUMENTS: Final[dict[str, Shapes]] = {
    "query": {
        "query": needed(TEXT), "accept": TEXT, "default-graph-uri": _TEXTS, "named-graph-uri": _TEXTS,
        "context": _TEXTS, **_PENDING,
    },
    "statements": {"subj": TEXT, "pred": TEXT, "obj": TEXT, "context": _TEXTS, "accept": TEXT, **_PENDING},
    "size": {"context": _TEXTS, **_PENDING},
    "contexts": _PENDING,
    "get": {"key": needed(_KEY), "snapshot": _SNAPSHOT, **_PENDING},
    "range": {
        "prefix": _KEY, "from": _BOUND, "to": _BOUND, "limit": _ROWS, "reverse": FLAG, "snapshot": _SNAPSHOT, **_PENDING,
    },
    "tables": {},
    "snapshots": {},
    "staged": {},
    "queue": {
        "after": _MESSAGE_ID, "limit": _ROWS, "holder": TEXT, "expired": listed(TEXT, 0, MASTERS_LIMIT), **_PENDING,
    },
    "message": {"id": needed(_MESSAGE_ID), "number": number(0, PARTS_LIMIT), **_PENDING},
    "queues": _PENDING,
    "together": {"reads": needed(listed(BYTES, 1, READS_LIMIT)), "seen": BYTES, **_PENDING},
    "fingerprint": {},
    "repositories": {},
    "about": {},
    "control": {},
    "settings": {},
    "digests": {"bits": _BITS},
    "items": {"bits": _BITS, "buckets": needed(listed(BYTES, 1, WANTED_LIMIT)), "limit": number(1, ROWS_LIMIT)},
}  # fmt: skip
"""Arguments of each kind; the evaluation of the read checks the content of texts and bytes."""
REPOSITORIES_LIMIT = 16
"""Limit of repositories in one such read: the evaluation in each runs inside that of the previous one."""
RESULT_LIMIT_BYTES = 64 * 1024 * 1024


class View(NamedTuple):
    """The state of the store for readers; each commit replaces it as a whole."""

    lsn: Lsn
    fingerprint: int
    items: int
    repositories: dict[str, Repository]
    counts: dict[str, int]
    """Quads of each repository."""
    suite: Suite = EMPTY


def check_arguments(kind: str, name: str, arguments: Mapping[str, object]) -> None:
    """Raise InvalidRequest for an unknown kind, and for an unknown, missing or malformed argument."""
    shapes = ARGUMENTS.get(kind)
    if shapes is None:
        raise InvalidRequest(f"unknown kind of read {shown(kind)}; known are {', '.join(ARGUMENTS)}")
    check_shapes("a read", _NAMED, {"name": name})
    check_shapes(f"a read of kind {kind}", shapes, arguments)


def about_beginning(name: str, names: Collection[str]) -> bytes:
    """Return the beginning of the keys for a read of kind ``about``; empty without a name. Raises UnknownRepository."""
    if name and name not in names:
        raise UnknownRepository(f"repository {name!r} does not exist")
    return about.beginning_of(name) if name else b""


def about_answer(name: str, names: Collection[str], rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the answer to a read of kind ``about``: repository -> namespaces and settings, as JSON."""
    found: dict[str, dict[str, dict[str, str]]] = {
        each: {"namespaces": {}, "settings": {}} for each in ([name] if name else sorted(names))
    }
    for key, value in rows:
        repository, kind, row = about.row_of(key)
        # A commit after `names` can have added other repositories.
        if repository in found:
            found[repository]["namespaces" if kind == about.NAMESPACE else "settings"][row] = value.decode()
    return as_json(found)


def settings_answer(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the answer to a read of kind ``settings``: name -> row, as JSON."""
    return as_json({key.decode(): json.loads(value) for key, value in rows})


def as_json(value: Any) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value).encode()


def text_argument(arguments: Mapping[str, Any], name: str) -> str | None:
    """Return an optional argument that is text; `check_arguments` has checked it."""
    value: str | None = arguments.get(name)
    return value


def texts_argument(arguments: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return an argument that is one text or several; `check_arguments` has checked it."""
    value = arguments.get(name)
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


class Wanted(NamedTuple):
    """One of the reads."""

    kind: str
    name: str
    arguments: dict[str, object]


def wanted_reads(arguments: Mapping[str, Any]) -> list[Wanted]:
    """Return the requested reads, each checked. Raises InvalidRequest, which names the first wrong read."""
    return [wanted_read(number, _unpacked(packed)) for number, packed in enumerate(arguments["reads"], 1)]


def packed_reads(wanted: Sequence[Any]) -> tuple[bytes, ...]:
    """Return the argument ``reads`` for reads given as lists. Raises InvalidRequest, which names the first wrong read."""
    return tuple(msgpack.packb(wanted_read(number, each)) for number, each in enumerate(wanted, 1))


def wanted_read(number: int, found: Any) -> Wanted:
    """Return one read from a list (kind, name, arguments); ``number`` is its place. Raises InvalidRequest."""
    with read_number(number):
        if not (isinstance(found, (tuple, list)) and tuple(map(type, found)) == (str, str, dict)):
            raise InvalidRequest("not a list (kind, name, arguments)")
        kind, name, arguments = found
        if kind in WALKS:
            raise InvalidRequest(f"{kind!r} looks at the whole content, so it is asked for by itself")
        if kind == "together" or "pending" in arguments or "txid" in arguments:
            raise InvalidRequest("'together' and 'pending' belong to the read around it")
        check_arguments(kind, name, arguments)
        return Wanted(kind, name, arguments)


@contextmanager
def read_number(number: int) -> Iterator[None]:
    """Add the number of the read to errors."""
    try:
        yield
    except BrokerhaError as error:
        error.args = (f"read {number}: {error}", *error.args[1:])
        raise


def together_answer(lsn: Lsn, answers: Sequence[tuple[str, bytes]]) -> ReadAnswer:
    """Return all answers as one. Raises TooLarge."""
    size_bytes = sum(len(body) for _, body in answers)
    if size_bytes > RESULT_LIMIT_BYTES:
        raise TooLarge(f"the results have {size_bytes} bytes together, {RESULT_LIMIT_BYTES} is the limit: ask for less")
    return ReadAnswer("application/x-msgpack", lsn, in_pieces(msgpack.packb(answers)))


def _unpacked(packed: bytes) -> Any:
    try:
        return unpack_foreign(packed)
    except BROKEN:
        return None
