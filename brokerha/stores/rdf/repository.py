"""One RDF repository of a worker, on pyoxigraph: a directory on disk, or in memory.

Writing thread (one):
    change = repository.change_of(operations, txid, timestamp, pending)    reads only
    repository.commit(change.removed, change.added, lsn)                   one atomic write

`change_of` leaves no trace in the engine. An operation with WHERE or graph management is evaluated inside an engine transaction
that first applies `pending` and aborts at the end (`sparql/update.py`). So there is no tentative state, no undo after a crash,
and no uncommitted data for readers.

Reading threads (any number): `query`, `statements`, `size`, `contexts`, `lines`. Each sees the state of one commit.

The position is a quad in a reserved graph of the same store, so that it is written atomically with the data:

    <urn:brokerha:system> <urn:brokerha:position> "4711"^^xsd:integer <urn:brokerha:system>

A commit that only adds writes another position quad beside the old ones, because that is the engine's fastest atomic write. The
highest counts; the next commit that removes quads, or one above a limit, removes the old ones. Readers never see that graph.
Empty graphs are removed: the engine would keep them.

In memory the engine's order of evaluation depends on the history of the store, on disk it does not. So only on disk is an update
that picks some of its solutions (LIMIT without ORDER BY, SAMPLE) or numbers them (RAND, UUID) the same everywhere.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad, Store

from brokerha.model.control import Check
from brokerha.model.errors import InvalidRequest, StoreError
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import OnQuads, Update
from brokerha.stores.control.sparql import must_commit_first, problems
from brokerha.stores.rdf import query as rdf_query
from brokerha.stores.rdf.change import AS_BLANK_FUNCTIONS, PendingQuads, QuadChange, change_text, parse_lines
from brokerha.stores.rdf.errors import CANNOT_READ, engine_errors, store_error, writing_errors
from brokerha.stores.rdf.query import RESULT_LIMIT_BYTES, Answer, readable
from brokerha.stores.rdf.question import Question
from brokerha.stores.rdf.stream import in_one_thread
from brokerha.stores.rdf.terms import SYSTEM_GRAPH, Function, Graph
from brokerha.stores.rdf.view import HIDE, undone
from brokerha.stores.sparql.scratch import ScratchText
from brokerha.stores.sparql.tokens import MESSAGE_LIMIT, RESERVED
from brokerha.stores.sparql.union import union_of
from brokerha.stores.sparql.update import UpdateRun

_BEGUN: Final = NamedNode(f"{RESERVED}begun")
_DONE: Final = Literal(True)
_POSITION: Final = NamedNode(f"{RESERVED}position")
_POSITIONS_LIMIT: Final = 64
"""Limit of old positions that wait for removal."""
_READING_WORD: Final = re.compile(r"\b(?:WHERE|CLEAR|DROP|CREATE|ADD|MOVE|COPY)\b", re.IGNORECASE)
"""Each update that is more than data contains one of these words; data can contain them too."""
_SIZE_TRIES: Final = 5


def evaluate(
    engine: Store,
    scratch: ScratchText,
    questions: Sequence[Question],
    begun: Callable[[], None],
    may_go_on: Callable[[], bool],
    union: Iterable[Graph] | None = None,
) -> None:
    """Let the engine report the rows of all questions; ``begun`` is called once, when it has its snapshot.

    ``union``: the named graphs of the engine, if the default graph of queries is the union of all (sparql/union.py).

    Raises the exceptions of ``begun``, InvalidRequest for a part that cannot be evaluated, StoreError.

    These reads of one repository at one moment, on top of private operations, run in one engine transaction that aborts.

        DELETE { } INSERT { } WHERE { BIND(<begun>() AS ?brokerha_begun) } ;     the snapshot exists: others can write again
        the operations of an open transaction ;                                  sparql/functions.py
        the reads ; ...                                                          question.py
        CREATE SILENT GRAPH <x> ; CREATE GRAPH <x>                               fails: all of the above is undone

    The transaction takes no lock: commits go on beside it, and it does not see them. The engine parses the whole text before it
    takes its snapshot, so a caller that delays writers until ``begun`` delays them for that long.
    """
    start = _Start(begun)
    functions: dict[NamedNode, Function] = {**AS_BLANK_FUNCTIONS, **scratch.functions, _BEGUN: start}
    if union is not None:
        scratch.check_union()
    pieces = [f"DELETE {{ }} INSERT {{ }} WHERE {{ BIND({_BEGUN}() AS ?brokerha_begun) }};\n", HIDE, scratch.text]
    # Reads that tell graphs apart come first, because the union is made by moving quads.
    using = ""
    for number, question in sorted(enumerate(questions), key=lambda each: each[1].is_query):
        if question.is_query and union is not None:
            prepare, using = union_of(engine, union, scratch.graphs)
            pieces.append(prepare)
            union = None
        pieces.append(question.text(number, using))
        functions.update(question.functions(number, may_go_on))

    def refused(error: Exception) -> InvalidRequest:
        return InvalidRequest(
            f"this cannot be evaluated within a transaction or in a read of kind together: {error}"[:MESSAGE_LIMIT]
        )

    undone(engine, "".join(pieces), functions, refused)
    start.check()
    scratch.check()


class _Start:
    """A function for the engine that calls ``begun`` once and keeps its exception, which the engine would treat as unbound."""

    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun
        self._is_called = False
        self._fault: BaseException | None = None

    def __call__(self) -> Literal:
        if not self._is_called:
            self._is_called = True
            try:
                self._begun()
            except BaseException as fault:  # noqa: BLE001  No exception must be lost inside the engine.
                self._fault = fault
        return _DONE

    def check(self) -> None:
        if self._fault is not None:
            raise self._fault


class RdfRepository:
    """One repository. One thread writes; any thread reads. Raises StoreDamaged, StoreError when the directory cannot be opened."""

    def __init__(self, directory: Path | None, *, result_limit_bytes: int = RESULT_LIMIT_BYTES, store: Store | None = None) -> None:
        """``store`` is an open engine that replaces the one in the directory."""
        self._directory = directory
        self._result_limit_bytes = result_limit_bytes
        self._store: Store | None = _open(directory) if store is None else store
        # Held while a commit is written, and while a reader opens several iterators of one commit. Never held during the
        # evaluation of a query, which can take long.
        self._gate = threading.Lock()
        self._commits_begun = self._commits_ended = 0
        with engine_errors(f"the repository in {directory} cannot be read"):
            self._positions = self._read_positions()
            self._graphs = dict.fromkeys(self._read_graphs())

    @property
    def position(self) -> Lsn:
        """LSN of the last commit; 0 for a new repository. Written atomically with the data."""
        positions = self._positions
        return positions[-1] if positions else 0

    def commit(self, removed: Iterable[str], added: Iterable[str], lsn: Lsn) -> None:
        """Remove and add these lines and set the position, all or nothing. Idempotent.

        A commit below the position is already in the store and is skipped. Raises StoreStuck, StoreDamaged; then nothing is
        changed. Not durable before `flush`.
        """
        if lsn < self.position:
            return
        store = self._engine()
        going, coming = parse_lines(removed), parse_lines(added)
        # Before the write: a query that sees the quads must know the graph. A graph that is known too early is only empty.
        self._graphs.update(dict.fromkeys(_named_graphs(coming)))
        with self._gate, writing_errors(f"the repository in {self._directory} cannot be written"):
            self._commits_begun += 1
            try:
                self._write(store, going, coming, lsn)
            finally:
                self._commits_ended += 1
            for graph in _named_graphs(going):
                if next(store.quads_for_pattern(None, None, None, graph), None) is None:
                    store.remove_graph(graph)
                    self._graphs.pop(graph, None)

    def include(self, lines: Sequence[str], *, is_added: bool) -> list[str]:
        """Add or remove these lines in a private copy; return the effective ones. The position stays. Raises StoreError.

        Not durable before `flush`.
        """
        store = self._engine()
        with writing_errors(f"the repository in {self._directory} cannot be written"):
            changed = {line: quad for line, quad in zip(lines, parse_lines(lines), strict=True) if (quad in store) is not is_added}
            if is_added:
                self._graphs.update(dict.fromkeys(_named_graphs(list(changed.values()))))
                store.extend(changed.values())
            elif changed:
                store.update(change_text(changed.values(), ()), custom_functions=AS_BLANK_FUNCTIONS)
        return list(changed)

    def move_to(self, lsn: Lsn) -> None:
        """Set the position to this LSN, even a lower one; the content stays. Raises StoreError. Not durable before `flush`."""
        store = self._engine()
        with self._gate, writing_errors(f"the repository in {self._directory} cannot be written"):
            text = change_text([_position_quad(old) for old in self._positions if old != lsn], [_position_quad(lsn)])
            store.update(text, custom_functions=AS_BLANK_FUNCTIONS)
            self._positions = (lsn,)

    def needs_engine(self, operation: OnQuads) -> bool:
        """Tell whether its evaluation reads more than the membership of single quads.

        Then commit earlier transactions first: each evaluation applies all of `pending` first. The result is the same either way.
        """
        return isinstance(operation, Update) and _READING_WORD.search(operation.text) is not None

    def change_of(
        self,
        operations: Sequence[tuple[int, OnQuads]],
        txid: TxId,
        timestamp: Timestamp,
        pending: PendingQuads,
        *,
        union: bool = False,
        clear: Callable[[], RdfRepository | None] = lambda: None,
        is_last: bool = True,
    ) -> QuadChange:
        """Return the net change by operations of one transaction, relative to the engine with `pending` on top.

        Each comes with its number in the transaction, and sees the earlier ones. The result depends only on that state and
        (operations, txid, timestamp). `union`: the default graph is the union of all. Changes neither the engine nor `pending`.
        Raises Rejected, StoreError.

        An operation that removes all quads calls ``clear``. If these are too many to name, it returns an empty repository, and
        the change is relative to that. ``is_last``: this change is a part of the effect, whatever else the transaction does.
        """

        def emptied() -> Store | None:
            empty = clear()
            return None if empty is None else empty._engine()  # noqa: SLF001  (of this class)

        run = UpdateRun(self._engine(), pending, list(self._graphs) if union else None, emptied)
        # A failed update has already become Rejected inside.
        with engine_errors(CANNOT_READ):
            for number, operation in operations:
                run.add(operation, txid, timestamp, number, is_last=is_last and number == operations[-1][0])
            run.finish()
        return run.view.change()

    def problems(self, checks: Sequence[Check], state: PendingQuads) -> dict[str, str]:
        """Return the failed checks on the engine with `state` on top: name -> reason; leaves no trace.

        Raises Rejected when a check cannot be evaluated, StoreError.
        """
        with engine_errors(CANNOT_READ):
            return problems(self._engine(), checks, state)

    def must_commit_first(self, checks: Sequence[Check], pending: PendingQuads) -> bool:
        """Tell whether these checks need a commit of `pending` first."""
        with engine_errors(CANNOT_READ):
            return must_commit_first(self._engine(), checks, pending)

    def query(
        self,
        text: str,
        accept: str | None = None,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
        may_go_on: Callable[[], bool] = lambda: True,
        *,
        union: bool = False,
        contexts: Sequence[str] = (),
    ) -> Answer:
        """Return content type, and the result in pieces of at most 1 MiB.

        `accept` is an Accept header (None or empty: anything). Graphs given here, as IRIs, replace the FROM clauses of the text;
        else, with `union`, the default graph is all graphs. `contexts`: all other graphs count as missing. Raises InvalidRequest,
        NotAcceptable, TooLarge, TimedOut (`may_go_on` returned False), StoreError.
        """
        within = rdf_query.Pattern.read(None, None, None, contexts).graphs
        dataset = rdf_query.Dataset(tuple(default_graphs), tuple(named_graphs), union_default_graph=union, contexts=within)
        return rdf_query.query(self._engine(), self._graphs, text, accept, dataset, may_go_on, self._result_limit_bytes)

    def statements(
        self,
        subj: str | None = None,
        pred: str | None = None,
        obj: str | None = None,
        contexts: Sequence[str] = (),
        accept: str | None = None,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Return matching quads in an RDF format; terms in N-Triples syntax, context ``null`` is the default graph.

        Without contexts: all graphs. N-Quads and N-Triples are written while they are taken, without a limit. Raises as `query`
        does, TimedOut also while pieces are taken.
        """
        pattern = rdf_query.Pattern.read(subj, pred, obj, contexts)
        store = self._engine()

        def open_quads() -> Iterator[Quad]:
            with self._gate:
                return rdf_query.matching(store, pattern)

        return rdf_query.statements(open_quads, accept, may_go_on, self._result_limit_bytes)

    def together(
        self,
        scratch: ScratchText,
        questions: Sequence[Question],
        begun: Callable[[], None] = lambda: None,
        may_go_on: Callable[[], bool] = lambda: True,
        *,
        union: bool = False,
    ) -> None:
        """Let the engine answer reads of one commit on top of operations that leave no trace. Raises InvalidRequest, StoreError."""
        with engine_errors(CANNOT_READ):
            evaluate(self._engine(), scratch, questions, begun, may_go_on, list(self._graphs) if union else None)

    def size(self, contexts: Sequence[str] = ()) -> int:
        """Return the number of quads, in all graphs or in these (N-Triples terms or ``null``)."""
        store = self._engine()
        if contexts:
            return rdf_query.size(store, rdf_query.Pattern.read(None, None, None, contexts).graphs)
        # A count takes long in a large store, so it locks commits out only if they disturb every attempt.
        with engine_errors(CANNOT_READ):
            for _ in range(_SIZE_TRIES):
                begun, positions = self._commits_begun, self._positions
                held = len(store)
                if begun == self._commits_begun == self._commits_ended:
                    return held - len(positions)
            with self._gate:
                return len(store) - len(self._positions)

    def contexts(self) -> list[str]:
        """Return the names of the graphs that hold quads, as N-Triples terms, sorted, without the default graph."""
        return sorted(map(str, list(self._graphs)))

    def lines(self) -> Iterator[str]:
        """Yield all quads as canonical lines without the final dot, unordered, of one commit.

        The calling thread must take them. Raises StoreDamaged, also while they are taken.
        """
        with engine_errors(CANNOT_READ):
            quads = self._engine().quads_for_pattern(None, None, None, None)
        own = str(SYSTEM_GRAPH)
        # No data has a reserved subject.
        return in_one_thread(readable(line for line in map(str, quads) if not line.startswith(own)))

    def flush(self) -> None:
        """Make all commits so far durable (fsync)."""
        with writing_errors(f"the repository in {self._directory} cannot be written"):
            self._engine().flush()

    def backup(self, directory: Path) -> None:
        """Copy all commits so far to a new directory: hard links with durable content.

        Unflushed commits are flushed first, so a `flush` shortly before makes it short. Raises StoreError.
        """
        with engine_errors(f"the repository in {self._directory} cannot be copied"):
            self._engine().backup(str(directory))

    def close(self) -> None:
        """Release the files; later calls raise StoreError. Idempotent."""
        self._store = None

    def __del__(self) -> None:
        # The engine must close before a finalizer deletes the files: it would still write some, and the directory would stay.
        self.close()

    def _engine(self) -> Store:
        if self._store is None:
            raise StoreError(f"the repository in {self._directory} is closed")
        return self._store

    def _write(self, store: Store, going: list[Quad], coming: list[Quad], lsn: Lsn) -> None:
        old = [lsn_before for lsn_before in self._positions if lsn_before != lsn]
        if not going and len(old) < _POSITIONS_LIMIT:
            store.extend([*coming, _position_quad(lsn)])
            self._positions = (*old, lsn)
            return
        text = change_text([*going, *map(_position_quad, old)], [*coming, _position_quad(lsn)])
        store.update(text, custom_functions=AS_BLANK_FUNCTIONS)
        self._positions = (lsn,)

    def _read_positions(self) -> tuple[Lsn, ...]:
        quads = self._engine().quads_for_pattern(SYSTEM_GRAPH, _POSITION, None, SYSTEM_GRAPH)
        return tuple(sorted(int(quad.object.value) for quad in quads if isinstance(quad.object, Literal)))

    def _read_graphs(self) -> list[Graph]:
        """Return the graphs that hold quads; remove empty graphs that a crash left."""
        store = self._engine()
        graphs: list[Graph] = []
        for graph in list(store.named_graphs()):
            if next(store.quads_for_pattern(None, None, None, graph), None) is None:
                store.remove_graph(graph)
            elif graph != SYSTEM_GRAPH:
                graphs.append(graph)
        return graphs


def _open(directory: Path | None) -> Store:
    if directory is None:
        return Store()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return Store(str(directory))
    except (OSError, RuntimeError) as error:
        raise store_error(error, f"the repository in {directory} cannot be opened") from error


def _position_quad(lsn: Lsn) -> Quad:
    return Quad(SYSTEM_GRAPH, _POSITION, Literal(lsn), SYSTEM_GRAPH)


def _named_graphs(quads: list[Quad]) -> set[Graph]:
    return {quad.graph_name for quad in quads if not isinstance(quad.graph_name, DefaultGraph)}
