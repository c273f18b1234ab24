"""Answers to reads: their kinds, arguments and content types.

| kind         | name       | arguments                                             | content type                        |
|--------------|------------|-------------------------------------------------------|-------------------------------------|
| query *      | repository | query, accept, default-graph-uri, named-graph-uri, context (all graphs that count) | as accepted |
| statements * | repository | subj, pred, obj, context, accept                       | as accepted                         |
| size *       | repository | context                                               | text/plain, a number                |
| contexts *   | repository |                                                       | application/json, N-Triples terms   |
| get *        | table      | key, snapshot (the name of one)                       | application/octet-stream            |
| range *      | table      | prefix, from, to, limit, reverse, snapshot             | application/x-msgpack, (key, value) |
| tables       |            |                                                       | application/json, names             |
| snapshots    |            |                                                       | application/json, list of {name, tables, lsn} |
| staged       |            |                                                       | application/json, list of {txid, parts, bytes, items, user, last_us}: large transactions |
| queue *      | queue      | after (a message id), limit                          | application/x-msgpack, (message id, content type, body) |
| queue        | queue      | holder (a master), limit, expired (masters): what it has claimed, and may claim | application/x-msgpack, tables.py |
| message *    | queue      | id, number (0): a piece of its body (model/reserved/pieces.py) | application/x-msgpack, (content type, bytes of the body, pieces of it, this piece) |
| queues *     |            |                                                       | application/json, name: depth, published, accepted |
| together *   |            | reads: packed (kind, name, arguments) of each; seen (observing.py) | application/x-msgpack, (content type, body) of each |
| fingerprint  |            |                                                       | application/json                    |
| repositories |            |                                                       | application/json, names             |
| about        | repository, or all |                                              | application/json, repository: namespaces, settings |
| settings     |            |                                                       | application/json, name: at, by, from, value |
| control      |            |                                                       | application/json, checks            |
| digests      |            | bits                                                  | application/x-msgpack (comparing/digests.py)  |
| items        |            | bits, buckets, limit                                  | application/x-msgpack (comparing/digests.py)  |

Kinds with * also take ``pending``, the packed operations of an open transaction, and ``txid``, its id: the answer shows the state
at one LSN with these operations on top (pending.py). A read of a snapshot ignores them. No operation is kept, and no writer
waits. The last two kinds read the whole content; like ``together`` the store itself answers them, and not within ``together``.

An answer shows one commit; its LSN is at most that of the commit. Runs in any thread; must never write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any

from brokerha.model.errors import StoreError, UnknownRepository
from brokerha.ports.store import ReadAnswer
from brokerha.stores.files.environment import Environment, store_errors
from brokerha.stores.reads.kinds import (
    JSON,
    MSGPACK,
    RDF_KINDS,
    View,
    Wanted,
    as_json,
    check_arguments,
    text_argument,
    texts_argument,
)
from brokerha.stores.reads.on_files import read_pending
from brokerha.stores.reads.pending import UNTOUCHED, Pending
from brokerha.stores.reads.tables import TablesReading
from brokerha.stores.tables.key_range import KeyRange, in_pieces

_CLOSE_LIMIT_S = 10.0


class Reading:
    """Count of running reads: closing the store waits for them before it closes the memory map."""

    def __init__(self) -> None:
        self._running = 0
        self._is_closed = False
        self._changed = Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one read while it runs. Raises StoreError when the store is closed."""
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

    def refuse(self) -> None:
        """Refuse new reads."""
        with self._changed:
            self._is_closed = True

    def wait(self) -> bool:
        """Wait for running reads; return whether all of them ended in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, _CLOSE_LIMIT_S)


class Reader:
    """Answers to the reads of one store."""

    def __init__(self, environment: Environment, reading: Reading) -> None:
        self._environment = environment
        self._reading = reading
        self.tables = TablesReading(environment)

    def read(self, view: View, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool]) -> ReadAnswer:
        """Answer one read. Raises InvalidRequest and its subclasses, TimedOut, StoreError."""
        check_arguments(kind, name, arguments)
        pending, wanted = Pending.of(arguments), Wanted(kind, name, arguments)
        if kind == "range":
            return ReadAnswer(MSGPACK, view.lsn, self._range(KeyRange(name, arguments), pending, may_go_on))
        if kind not in RDF_KINDS:
            with self._transaction(f"cannot read {' '.join(filter(None, (kind, name)))}") as transaction:
                content_type, body = self.tables.answer(transaction, view, wanted, pending, may_go_on)
            return ReadAnswer(content_type, view.lsn, in_pieces(body))
        if pending.on(name) != UNTOUCHED:
            content_type, pieces = read_pending(view, wanted, pending, may_go_on, union=self._is_union(name))
            return ReadAnswer(content_type, view.lsn, pieces)
        return self._rdf(view, kind, name, arguments, may_go_on)

    def _is_union(self, name: str) -> bool:
        with self._transaction("cannot read the settings of a repository") as transaction:
            return self.tables.is_union(transaction, name)

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[Any]:
        with self._reading.one(), store_errors(doing), self._environment.lmdb.begin() as transaction:
            yield transaction

    def _range(self, wanted: KeyRange, pending: Pending, may_go_on: Callable[[], bool]) -> Iterator[bytes]:
        with self._transaction("cannot read a range of keys") as transaction:
            for piece in self.tables.range(transaction, wanted, pending, may_go_on):
                yield from in_pieces(piece)
                self._reading.check()

    def _rdf(self, view: View, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool]) -> ReadAnswer:
        repository = view.repositories.get(name)
        if repository is None:
            raise UnknownRepository(f"repository {name!r} does not exist")
        engine = repository.engine
        contexts = texts_argument(arguments, "context")
        if kind == "size":
            return ReadAnswer("text/plain", view.lsn, iter([str(engine.size(contexts)).encode()]))
        if kind == "contexts":
            return ReadAnswer(JSON, view.lsn, in_pieces(as_json(engine.contexts())))
        accept = text_argument(arguments, "accept")
        if kind == "statements":
            terms = (text_argument(arguments, "subj"), text_argument(arguments, "pred"), text_argument(arguments, "obj"))
            content_type, pieces = engine.statements(*terms, contexts, accept, may_go_on)
        else:
            text = str(arguments["query"])
            graphs = (texts_argument(arguments, "default-graph-uri"), texts_argument(arguments, "named-graph-uri"))
            content_type, pieces = engine.query(text, accept, *graphs, may_go_on, union=self._is_union(name), contexts=contexts)
        return ReadAnswer(content_type, view.lsn, pieces)
