"""Reads of one moment on a store in files, and reads on top of an open transaction.

    writers wait     one LMDB read transaction, and one fresh transaction in each engine that is asked
    writers go on    all reads are evaluated in these transactions; those of the engines abort

Each engine's transaction begins inside that of the previous engine (rdf/repository.py), so that one thread holds all of them. A
single read with ``pending`` needs one store only, so writers do not wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from brokerha.model.errors import InvalidRequest, UnknownRepository
from brokerha.stores.rdf.query import Answer, Pattern
from brokerha.stores.rdf.question import Question, contexts_question, query_question, size_question, statements_question
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.reads.kinds import (
    JSON,
    RDF_KINDS,
    REPOSITORIES_LIMIT,
    View,
    Wanted,
    as_json,
    read_number,
    text_argument,
    texts_argument,
)
from brokerha.stores.reads.pending import Pending
from brokerha.stores.reads.tables import TablesReading
from brokerha.stores.sparql.scratch import ScratchText


class TogetherRun:
    """Several reads, parsed before any writer has to wait. Raises InvalidRequest and its subclasses."""

    def __init__(self, tables: TablesReading, reads: Sequence[Wanted], pending: Pending, may_go_on: Callable[[], bool]) -> None:
        self._tables = tables
        self._reads = reads
        self._pending = pending
        self._may_go_on = may_go_on
        self._asked: dict[str, list[tuple[int, Question]]] = {}
        for number, wanted in enumerate(reads, 1):
            with read_number(number):
                if wanted.kind in RDF_KINDS:
                    self._asked.setdefault(wanted.name, []).append((number, question_of(wanted)))
        if len(self._asked) > REPOSITORIES_LIMIT:
            raise InvalidRequest(f"the reads are about {len(self._asked)} repositories; {REPOSITORIES_LIMIT} is the limit")
        self._unions: set[str] = set()
        self._scratch = {name: scratch_of(pending, name) for name in self._asked}

    def answers(self, view: View, transaction: Any, begun: Callable[[], None]) -> list[tuple[str, bytes]]:
        """Return content type and body of each read. `view` and `transaction` are of the last commit until ``begun``."""
        engines = {name: engine_of(view, self._pending, name) for name in self._asked}
        self._unions = {name for name in self._asked if self._tables.is_union(transaction, name)}
        self._evaluate(list(engines.items()), 0, begun)
        questions = {number: question for asked in self._asked.values() for number, question in asked}
        found = []
        for number, wanted in enumerate(self._reads, 1):
            with read_number(number):
                if number in questions:
                    content_type, pieces = questions[number].answer()
                    found.append((content_type, b"".join(pieces)))
                else:
                    found.append(self._tables.answer(transaction, view, wanted, self._pending, self._may_go_on))
        return found

    def _evaluate(self, engines: list[tuple[str, RdfRepository]], place: int, begun: Callable[[], None]) -> None:
        if place == len(engines):
            begun()
            return
        name, engine = engines[place]
        engine.together(
            self._scratch[name],
            [question for _, question in self._asked[name]],
            lambda: self._evaluate(engines, place + 1, begun),
            self._may_go_on,
            union=name in self._unions,
        )


def read_pending(view: View, wanted: Wanted, pending: Pending, may_go_on: Callable[[], bool], *, union: bool) -> Answer:
    """Answer one read of a repository on top of pending operations. Raises InvalidRequest (or below), TimedOut, StoreError."""
    question, name = question_of(wanted), wanted.name
    engine_of(view, pending, name).together(scratch_of(pending, name), [question], may_go_on=may_go_on, union=union)
    return question.answer()


def scratch_of(pending: Pending, name: str) -> ScratchText:
    """Return the pending operations of a repository. Raises InvalidRequest."""
    return ScratchText(pending.on(name).operations, pending.txid, time.time_ns() // 1000)


def engine_of(view: View, pending: Pending, name: str) -> RdfRepository:
    """Return the engine to ask; one in memory if the transaction made or emptied the repository. Raises UnknownRepository."""
    on = pending.on(name)
    listed = view.repositories.get(name)
    if on.exists is False or (listed is None and not on.exists):
        raise UnknownRepository(f"repository {name!r} does not exist")
    return RdfRepository(None) if listed is None or on.is_emptied else listed.engine


def question_of(wanted: Wanted) -> Question:
    """Return a read of a repository in the form that an update can evaluate. Raises InvalidRequest, NotAcceptable."""
    kind, _, arguments = wanted
    contexts, accept = texts_argument(arguments, "context"), text_argument(arguments, "accept")
    if kind == "size":
        return size_question(contexts)
    if kind == "contexts":
        return contexts_question(lambda names: (JSON, iter([as_json(names)])))
    if kind == "statements":
        subj, pred, obj = (text_argument(arguments, name) for name in ("subj", "pred", "obj"))
        return statements_question(Pattern.read(subj, pred, obj, contexts), accept)
    if contexts:
        raise InvalidRequest("a query within a transaction or in a read of kind together takes no context: name graphs with FROM")
    graphs = (texts_argument(arguments, "default-graph-uri"), texts_argument(arguments, "named-graph-uri"))
    return query_question(str(arguments["query"]), accept, *graphs)
