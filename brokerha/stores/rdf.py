"""One RDF repository of a worker, on pyoxigraph: a directory on disk, or memory when there is none.

Writing thread (one):
    change = repository.change_of(operation, txid, timestamp, number, pending)    reads only, whatever the operation
    repository.commit(change.removed, change.added, lsn)                          one atomic write

`change_of` never leaves a trace in the engine: an operation with WHERE or graph management is evaluated inside an engine
transaction that first applies `pending` and at the end aborts. So there is no tentative state, nothing to undo
after a crash, and nothing that a reader could see too early.

Reading threads (any number): `query`, `statements`, `size`, `contexts`, `lines`. Each sees the state of one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import Operation
from brokerha.stores.rdf_change import PendingQuads, QuadChange

RESULT_LIMIT_BYTES = 64 * 1024 * 1024


class RdfRepository:
    """One repository. One thread writes; any thread reads. Raises StoreError when the directory cannot be opened."""

    def __init__(
        self,
        directory: Path | None,
        *,
        union_default_graph: bool = False,
        result_limit_bytes: int = RESULT_LIMIT_BYTES,
    ) -> None:
        raise NotImplementedError

    @property
    def position(self) -> Lsn:
        """LSN of the last commit; 0 for a new repository. Moves in the same atomic write as the data."""
        raise NotImplementedError

    def commit(self, removed: Iterable[str], added: Iterable[str], lsn: Lsn) -> None:
        """Remove and add these lines and set the position, all or nothing. Doing it twice is the same as once.

        Raises StoreError; then nothing was changed. Not durable before `flush`.
        """
        raise NotImplementedError

    def needs_engine(self, operation: Operation) -> bool:
        """Whether its evaluation reads more than the membership of single quads.

        It is then wise to commit earlier transactions first, because all of `pending` is put under it at each evaluation;
        the result is the same either way.
        """
        raise NotImplementedError

    def change_of(
        self, operation: Operation, txid: TxId, timestamp: Timestamp, number: int, pending: PendingQuads
    ) -> QuadChange:
        """Net change of one operation (``update``, ``add`` or ``remove``) relative to the engine with `pending` on top.

        The result depends only on that state and (operation, txid, timestamp, number). `number` is the place of the
        operation in its transaction. Changes neither the engine nor `pending`. Raises Rejected, StoreError.
        """
        raise NotImplementedError

    def change_of_all(
        self, operations: Sequence[tuple[int, Operation]], txid: TxId, timestamp: Timestamp, pending: PendingQuads
    ) -> QuadChange:
        """Net change of several operations of one transaction, in order; each sees those before it.

        Same result as `change_of` one after the other with a growing `pending`, but linear in their number where many
        need the engine. Each comes with its number in the transaction. Raises Rejected, StoreError.
        """
        raise NotImplementedError

    def query(
        self,
        text: str,
        accept: str | None = None,
        default_graphs: Sequence[str] = (),
        named_graphs: Sequence[str] = (),
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> tuple[str, Iterator[bytes]]:
        """Content type, and the result in pieces of at most 1 MiB; take them in the thread that called.

        `accept` is an Accept header (None or empty: anything). Graphs given here replace the FROM clauses of the text.
        Raises InvalidRequest, NotAcceptable, TooLarge (also while pieces are taken), TimedOut when `may_go_on` says no.
        """
        raise NotImplementedError

    def statements(
        self,
        subj: str | None = None,
        pred: str | None = None,
        obj: str | None = None,
        contexts: Sequence[str] = (),
        accept: str | None = None,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> tuple[str, Iterator[bytes]]:
        """Quads that match, in an RDF format; terms in N-Triples syntax, context ``null`` is the default graph.

        No contexts: all graphs. Raises as `query` does.
        """
        raise NotImplementedError

    def size(self, contexts: Sequence[str] = ()) -> int:
        """Number of quads, in all graphs or in these (N-Triples terms or ``null``)."""
        raise NotImplementedError

    def contexts(self) -> list[str]:
        """Names of the graphs that hold quads, as N-Triples terms, sorted; without the default graph."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """All quads as canonical lines without the final dot, in no particular order, of one commit."""
        raise NotImplementedError

    def flush(self) -> None:
        """Make all commits so far durable (fsync)."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the files; later calls raise StoreError. Idempotent."""
        raise NotImplementedError
