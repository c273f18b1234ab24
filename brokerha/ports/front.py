"""The requests of a front door (HTTP, AMQP, an embedding program) to a node; every method is callable from any thread.

No method waits. Longer work returns a `concurrent.futures.Future` that is always completed, at the latest a little after the given
deadline, with a result or with an error of model/errors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from brokerha.model.errors import BrokerhaError, NotFound, UnknownRepository
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.numbers import Numbers
from brokerha.model.operations import LoggedRow, Operation
from brokerha.model.requests import APPLIED_LEVEL, WAIT, Reply


class ReadOutcome(NamedTuple):
    """A whole result of a read."""

    content_type: str
    lsn: Lsn
    body: bytes
    apart: str = ""
    """State word of the master at the read, if it was apart: it could not agree with the others (master/state_words.py)."""
    stale_ms: int | None = None
    """If it was apart: for how long it had not been known to be up to date; None when that was never known."""


class Readers(NamedTuple):
    """Workers that can be asked for a read now, by a door that reaches workers by itself (local_reads/)."""

    workers: tuple[NodeId, ...]
    min_lsn: Lsn
    """The least LSN as a number, where the latest one was requested."""
    apart: str = ""
    stale_ms: int | None = None
    """Both as in `ReadOutcome`, for all their answers."""

    def aged(self, outcome: ReadOutcome) -> ReadOutcome:
        """Return an answer of one of them, with its age while the master is apart."""
        return outcome._replace(apart=self.apart, stale_ms=self.stale_ms) if self.apart else outcome

    def aged_error(self, error: BrokerhaError) -> BrokerhaError:
        """Return an error with its age: "not found" is an answer as well, and as old."""
        if self.apart and isinstance(error, (NotFound, UnknownRepository)):
            error.apart, error.stale_ms = self.apart, self.stale_ms
        return error


class Front(Protocol):
    """One node, seen from its front door. For work of masters only, workers raise NotReady or ReadOnly."""

    @property
    def node_id(self) -> str:
        """Return the id of this node."""

    @property
    def role(self) -> str:
        """Return ``master`` or ``worker``."""

    def new_txid(self) -> TxId:
        """Return a unique new transaction id."""

    def submit(
        self,
        operations: Sequence[Operation] | bytes,
        txid: TxId = "",
        level: str = APPLIED_LEVEL,
        copies: int = 1,
        timeout_ms: int = 30_000,
        apart: str = WAIT,
        user: str = "",
    ) -> Future[Reply]:
        """Hand in a write: operations, or a packed body. An empty ``txid`` makes a new one.

        ``user`` is the writer, as the door knows; empty where it does not.

        ``apart`` decides about the write at a master that cannot agree with the others now: ``wait`` (taken in, and answered at the
        latest when its time is over) or ``refuse`` (ReadOnly at once; nothing of it is kept).

        Checks it first (shape, SPARQL syntax, limits): raises InvalidRequest and its kinds at once, in the calling thread, and then
        the write was not taken in. The future's result is a Reply, whatever the status; it never raises.
        """

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn = 0, timeout_ms: int = 30_000
    ) -> Future[ReadOutcome]:
        """Run a read of messages.Read at a worker (a master passes it on to one of its own).

        The future raises InvalidRequest, UnknownRepository, NotAcceptable, TooLarge, TimedOut or NotReady.
        """

    def readers(self, min_lsn: Lsn) -> Readers:
        """Return workers that can be asked for a read now; none at a worker. Raises NotReady."""

    def was_read(self) -> None:
        """Count a read that a door has answered through `readers` as one of this node. In one thread."""

    def transact(self, action: str, txid: TxId, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """Take one step of a transaction. `transactions/coordinator.py` has the table of actions, arguments and answers, and
        `nodes/front/transacting.py` those of ``accept`` and ``list``, which a node adds.

        Checks operations first, like `submit` (raises InvalidRequest and its kinds at once). The future raises InvalidRequest,
        NotFound (no such open transaction), Aborted, OutcomeUnknown, WrongState, ReadOnly, NotReady. A read inside a transaction is
        a `read` with the argument ``tx``: the state plus the operations so far.
        """

    def outcome(self, txid: TxId) -> dict[str, Any] | None:
        """Return ``{"txid", "state", "lsn", "outcome", "reason"}`` of a transaction, None when it is unknown here.

        ``state`` is ``accepted``, ``synchronised`` or ``applied``.
        """

    def status(self, timeout_ms: int = 2000) -> dict[str, Any]:
        """Return the whole cluster as seen from here: the contract of ``status -o json``. Waits for peers within the timeout."""

    def log(self, first_lsn: Lsn, last_lsn: Lsn) -> list[dict[str, Any]]:
        """Return lines of ``log show -o json`` for an LSN range, at most 10,000; from the first held one, up to the last for LSN 0.

        Empty beyond the last one. Raises InvalidRequest, naming the first held LSN, for a range that ends before it.
        """

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
        """Return the same range as lines that a store can apply: as many as have results, at most 1,000 or about 8 MiB.

        Empty beyond the last one. Raises InvalidRequest, naming the first held LSN, for a range that begins before it.
        """

    def entries(self, first_lsn: Lsn, last_lsn: Lsn) -> dict[str, Any]:
        """Return the same range with data that only masters have, and the readable part of the log.

        The shape is ``{"cluster", "first_lsn", "last_lsn", "lineage", "rewinds", "entries"}``. ``rewinds`` tells up to where lines
        of an earlier lineage still hold: [[lineage, LSN], …] (model/log_lineages.py). An entry is [lsn, txid, origin, timestamp,
        epoch, outcome, reason, effect, fingerprint]; at most 5,000 or about 8 MiB, none from LSN 0 on or beyond the last one.
        Raises InvalidRequest, naming the first held LSN, for a range that begins before it.
        """

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """Carry out an operator's command through a master; long work only begins.

            backup   {"name", "incremental", "replace", "worker"}   -> the same as ``task``, with the request of the begun work
            task     {"request"}       -> {"request", "kind", "worker", "state", "done", "total", "per_s", "left_s", "reason", "answer"}

        Fields of a task are those of messages.TaskReport, and of its worker. The future raises InvalidRequest (unknown command,
        wrong arguments), NotFound (no such request), NotReady (it cannot be done now, with the reason).
        """

    def writable(self) -> tuple[bool, str]:
        """Return whether writes are taken in now, and the reason if not."""

    def ready(self, max_lag_entries: int | None = None, max_lag_s: float | None = None) -> tuple[bool, list[str]]:
        """Return whether reads can be served, and lines such as ``[+]journal ok`` for the probe."""

    def wait_for(self, lsn: Lsn, workers: int | str, timeout_ms: int) -> Future[dict[str, Any]]:
        """Complete when ``workers`` (a number, ``all`` or ``quorum``) of this site have applied ``lsn``; else TimedOut."""

    def metrics(self) -> Numbers:
        """Return numbers for /metrics."""
