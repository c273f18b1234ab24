"""Answering reads: which kinds there are, which arguments they take, what comes back.

| kind         | name       | arguments                                             | content type                        |
|--------------|------------|-------------------------------------------------------|-------------------------------------|
| query        | repository | query, accept, default-graph-uri, named-graph-uri      | as accepted                         |
| statements   | repository | subj, pred, obj, context, accept                       | as accepted                         |
| size         | repository | context                                               | text/plain, a number                |
| contexts     | repository |                                                       | application/json, N-Triples terms   |
| get          | table      | key                                                   | application/octet-stream            |
| range        | table      | prefix, from, to, limit, reverse                       | application/x-msgpack, (key, value) |
| fingerprint  |            |                                                       | application/json                    |
| repositories |            |                                                       | application/json, names             |
| control      |            |                                                       | application/json, checks            |

An answer shows one commit, and the LSN with it is at most that of the commit. Runs in any thread; must never write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any, NamedTuple

from brokerha.model.errors import InvalidRequest, StoreError, UnknownRepository
from brokerha.model.ids import Lsn
from brokerha.ports.store import ReadAnswer
from brokerha.stores.control import EMPTY, Suite
from brokerha.stores.environment import Environment, store_errors
from brokerha.stores.fingerprint import report
from brokerha.stores.key_range import KeyRange, in_pieces, wanted_row_key
from brokerha.stores.key_value import get_value, range_pieces
from brokerha.stores.repositories import Repository

_ARGUMENTS = {
    "query": {"query", "accept", "default-graph-uri", "named-graph-uri"},
    "statements": {"subj", "pred", "obj", "context", "accept"},
    "size": {"context"},
    "contexts": set[str](),
    "get": {"key"},
    "range": {"prefix", "from", "to", "limit", "reverse"},
    "fingerprint": set[str](),
    "repositories": set[str](),
    "control": set[str](),
}
_CLOSE_LIMIT_S = 10.0


class View(NamedTuple):
    """What readers see of the store; replaced as a whole after each commit."""

    lsn: Lsn
    fingerprint: int
    items: int
    repositories: dict[str, Repository]
    counts: dict[str, int]
    """Quads of each repository."""
    suite: Suite = EMPTY


class Reading:
    """Counts reads that are under way, so that closing waits for them instead of pulling the memory map from under them."""

    def __init__(self) -> None:
        self._running = 0
        self._is_closed = False
        self._changed = Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around each read. Raises StoreError when the store is closed."""
        with self._changed:
            self.check()
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def check(self) -> None:
        """Raise StoreError when the store is closed."""
        if self._is_closed:
            raise StoreError("the store is closed")

    def close(self) -> bool:
        """Let no read begin and wait for those that run; returns whether all of them ended in time."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: self._running == 0, _CLOSE_LIMIT_S)


class Reader:
    """Answers reads of one store."""

    def __init__(self, environment: Environment, reading: Reading) -> None:
        self._environment = environment
        self._reading = reading

    def read(
        self, view: View, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool]
    ) -> ReadAnswer:
        """Answer one read. Raises InvalidRequest and what is below it, TimedOut, StoreError."""
        known = _ARGUMENTS.get(kind)
        if known is None:
            raise InvalidRequest(f"unknown kind of read {kind!r}; known are {', '.join(_ARGUMENTS)}")
        unknown = {argument for argument, value in arguments.items() if value is not None} - known
        if unknown:
            raise InvalidRequest(f"a read of kind {kind} does not take {', '.join(sorted(unknown))}")
        if kind == "fingerprint":
            body = report(view.lsn, view.fingerprint, view.items, view.counts)
            return ReadAnswer("application/json", view.lsn, in_pieces(body))
        if kind == "repositories":
            return _json(view.lsn, sorted(view.repositories))
        if kind == "control":
            return ReadAnswer("application/json", view.lsn, in_pieces(view.suite.report()))
        if kind == "get":
            return self._get(view, name, arguments)
        if kind == "range":
            pieces = self._range(KeyRange(name, arguments), may_go_on)
            return ReadAnswer("application/x-msgpack", view.lsn, pieces)
        return self._rdf(view, kind, name, arguments, may_go_on)

    def _get(self, view: View, table: str, arguments: dict[str, object]) -> ReadAnswer:
        row_key = wanted_row_key(table, arguments)
        with (
            self._reading.one(),
            store_errors(f"cannot read table {table}"),
            self._environment.lmdb.begin() as transaction,
        ):
            value = get_value(transaction, self._environment.keys, row_key)
        return ReadAnswer("application/octet-stream", view.lsn, in_pieces(value))

    def _range(self, wanted: KeyRange, may_go_on: Callable[[], bool]) -> Iterator[bytes]:
        with (
            self._reading.one(),
            store_errors("cannot read a range of keys"),
            self._environment.lmdb.begin() as transaction,
        ):
            for piece in range_pieces(transaction, self._environment.keys, wanted, may_go_on):
                yield piece
                self._reading.check()

    def _rdf(
        self, view: View, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool]
    ) -> ReadAnswer:
        repository = view.repositories.get(name)
        if repository is None:
            raise UnknownRepository(f"repository {name!r} does not exist")
        engine = repository.engine
        contexts = _texts(arguments, "context")
        if kind == "size":
            return ReadAnswer("text/plain", view.lsn, iter([str(engine.size(contexts)).encode()]))
        if kind == "contexts":
            return _json(view.lsn, engine.contexts())
        accept = _text(arguments, "accept")
        if kind == "statements":
            terms = (_text(arguments, "subj"), _text(arguments, "pred"), _text(arguments, "obj"))
            content_type, pieces = engine.statements(*terms, contexts, accept, may_go_on)
        else:
            text = _text(arguments, "query")
            if text is None:
                raise InvalidRequest("a read of kind query needs the argument 'query'")
            graphs = (_texts(arguments, "default-graph-uri"), _texts(arguments, "named-graph-uri"))
            content_type, pieces = engine.query(text, accept, *graphs, may_go_on)
        return ReadAnswer(content_type, view.lsn, pieces)


def _json(lsn: Lsn, value: Any) -> ReadAnswer:
    return ReadAnswer("application/json", lsn, in_pieces(json.dumps(value).encode()))


def _text(arguments: dict[str, object], name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"the argument {name!r} is text")
    return value


def _texts(arguments: dict[str, object], name: str) -> tuple[str, ...]:
    value = arguments.get(name)
    if value is None:
        return ()
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, (tuple, list)) or not all(isinstance(text, str) for text in values):
        raise InvalidRequest(f"the argument {name!r} is a list of texts")
    return tuple(values)
