"""Kinds of reads: their arguments, what readers see of a store, and the answers that need nothing else (reading.py has the table)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from brokerha.model import about
from brokerha.model.errors import InvalidRequest, UnknownRepository
from brokerha.model.ids import Lsn
from brokerha.stores.control import EMPTY, Suite
from brokerha.stores.fingerprint import report
from brokerha.stores.pending import PENDING
from brokerha.stores.repositories import Repository

OCTETS, JSON, MSGPACK = "application/octet-stream", "application/json", "application/x-msgpack"
RDF_KINDS: Final = frozenset({"query", "statements", "size", "contexts"})
PLAIN_KINDS: Final = frozenset({"fingerprint", "repositories", "control"})
WALKS: Final = frozenset({"digests", "items"})
"""Kinds that look at the whole content."""
ARGUMENTS: Final[dict[str, frozenset[str]]] = {
    "query": frozenset({"query", "accept", "default-graph-uri", "named-graph-uri", *PENDING}),
    "statements": frozenset({"subj", "pred", "obj", "context", "accept", *PENDING}),
    "size": frozenset({"context", *PENDING}),
    "contexts": PENDING,
    "get": frozenset({"key", *PENDING}),
    "range": frozenset({"prefix", "from", "to", "limit", "reverse", *PENDING}),
    "queue": frozenset({"after", "limit", *PENDING}),
    "queues": PENDING,
    "together": frozenset({"reads", *PENDING}),
    "fingerprint": frozenset(),
    "repositories": frozenset(),
    "about": frozenset(),
    "control": frozenset(),
    "digests": frozenset({"bits"}),
    "items": frozenset({"bits", "buckets", "limit"}),
}


class View(NamedTuple):
    """What readers see of the store; replaced as a whole after each commit."""

    lsn: Lsn
    fingerprint: int
    items: int
    repositories: dict[str, Repository]
    counts: dict[str, int]
    """Quads of each repository."""
    suite: Suite = EMPTY


def check_arguments(kind: str, _name: str, arguments: dict[str, object]) -> None:
    """Raise InvalidRequest for an unknown kind, or an argument that it does not take."""
    known = ARGUMENTS.get(kind)
    if known is None:
        raise InvalidRequest(f"unknown kind of read {kind!r}; known are {', '.join(ARGUMENTS)}")
    unknown = {argument for argument, value in arguments.items() if value is not None} - known
    if unknown:
        raise InvalidRequest(f"a read of kind {kind} does not take {', '.join(sorted(unknown))}")


def plain_answer(view: View, kind: str) -> bytes:
    """The answer to a read of one of `PLAIN_KINDS`, as JSON."""
    if kind == "fingerprint":
        return report(view.lsn, view.fingerprint, view.items, view.counts)
    if kind == "repositories":
        return as_json(sorted(view.repositories))
    return view.suite.report()


def about_beginning(name: str, names: Collection[str]) -> bytes:
    """What the keys begin with that a read of kind ``about`` needs; all without a name. Raises UnknownRepository."""
    if name and name not in names:
        raise UnknownRepository(f"repository {name!r} does not exist")
    return about.beginning_of(name) if name else b""


def about_answer(name: str, names: Collection[str], rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The answer to a read of kind ``about`` from keys and values: repository -> namespaces and settings, as JSON."""
    found: dict[str, dict[str, dict[str, str]]] = {
        each: {"namespaces": {}, "settings": {}} for each in ([name] if name else sorted(names))
    }
    for key, value in rows:
        repository, kind, row = about.row_of(key)
        # A commit that came in between may know of others.
        if repository in found:
            found[repository]["namespaces" if kind == about.NAMESPACE else "settings"][row] = value.decode()
    return as_json(found)


def as_json(value: Any) -> bytes:
    """A value as JSON."""
    return json.dumps(value).encode()


def text_argument(arguments: dict[str, object], name: str) -> str | None:
    """An argument that is text, or is not given. Raises InvalidRequest."""
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"the argument {name!r} is text")
    return value


def texts_argument(arguments: dict[str, object], name: str) -> tuple[str, ...]:
    """An argument that is one text or several. Raises InvalidRequest."""
    value = arguments.get(name)
    if value is None:
        return ()
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, (tuple, list)) or not all(isinstance(text, str) for text in values):
        raise InvalidRequest(f"the argument {name!r} is a list of texts")
    return tuple(values)
