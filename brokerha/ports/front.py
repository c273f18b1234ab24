"""What a front door (HTTP, AMQP, an embedding program) may ask of a node; every method is callable from any thread.

Nothing here waits: what takes time answers with a `concurrent.futures.Future` that is always completed, at the latest
a little after the deadline that was given, with a result or with an error of model/errors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from brokerha.model.errors import InvalidRequest, NotFound, UnknownRepository
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
    """State word of the master when it was asked, if it was apart: it could not agree with the others (master/state_words.py)."""
    stale_ms: int | None = None
    """Then: for how long it had not been known to be up to date; None when that was never known, or it was not apart."""


class Readers(NamedTuple):
    """Who may be asked for a read now, by a door that reaches workers by itself (local_reads/)."""

    workers: tuple[NodeId, ...]
    min_lsn: Lsn
    """The least LSN as a number, where the latest one was asked for."""
    apart: str = ""
    stale_ms: int | None = None
    """Both as in `ReadOutcome`, for whatever they answer."""

    def aged(self, outcome: ReadOutcome) -> ReadOutcome:
        """An answer of one of them, with its age while the master is apart."""
        return outcome._replace(apart=self.apart, stale_ms=self.stale_ms) if self.apart else outcome

    def aged_error(self, error: InvalidRequest) -> InvalidRequest:
        """The same for an error: that there is nothing is an answer as well, and as old."""
        if self.apart and isinstance(error, (NotFound, UnknownRepository)):
            error.apart, error.stale_ms = self.apart, self.stale_ms
        return error


class Front(Protocol):
    """One node, seen from its front door. Workers refuse what only masters can do with NotReady or ReadOnly."""

    @property
    def node_id(self) -> str:
        """Which node this is."""

    @property
    def role(self) -> str:
        """``master`` or ``worker``."""

    def new_txid(self) -> TxId:
        """A transaction id that was never given before and never will be."""

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
        """Hand in a write: operations, or a body that is packed already. An empty ``txid`` makes a new one.

        ``user`` is who writes, as the door knows; empty where it does not.

        ``apart`` is what becomes of it at a master that cannot agree with the others now: ``wait`` (taken in, and answered at the
        latest when its time is over) or ``refuse`` (ReadOnly at once; nothing of it is kept).

        Checks it first (shape, SPARQL syntax, limits): raises InvalidRequest and its kinds at once, in the calling
        thread, and then nothing was taken in. The future's result is a Reply, whatever the status; it never raises.
        """

    def read(
        self,
        kind: str,
        name: str,
        arguments: dict[str, Any],
        min_lsn: Lsn = 0,
        timeout_ms: int = 30_000,
    ) -> Future[ReadOutcome]:
        """A read of messages.Read, evaluated by a worker (a master passes it on to one of its own).

        The future raises InvalidRequest, UnknownRepository, NotAcceptable, TooLarge, TimedOut or NotReady.
        """

    def readers(self, min_lsn: Lsn) -> Readers:
        """Workers that may be asked for a read now; none at a worker. Raises NotReady."""

    def was_read(self) -> None:
        """A door has answered a read through `readers`: it counts as one of this node. In one thread."""

    def transact(self, action: str, txid: TxId, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """One step of a transaction; `transactions/coordinator.py` has the table of actions, arguments and answers, and
        `nodes/front/transacting.py` those of ``accept`` and ``list``, which a node adds.

        Checks operations first, as `submit` does (raises InvalidRequest and its kinds at once). The future raises
        InvalidRequest, NotFound (no such open transaction), Aborted, OutcomeUnknown, WrongState, ReadOnly, NotReady.
        A read inside a transaction is a `read` with the argument ``tx``: the state plus the operations so far.
        """

    def outcome(self, txid: TxId) -> dict[str, Any] | None:
        """``{"txid", "state", "lsn", "outcome", "reason"}`` of a transaction, None when it is unknown here.

        ``state`` is ``accepted``, ``synchronised`` or ``applied``.
        """

    def status(self, timeout_ms: int = 2000) -> dict[str, Any]:
        """The whole cluster as seen from here: the contract of ``status -o json``. Waits for peers within the time-out."""

    def log(self, first_lsn: Lsn, last_lsn: Lsn) -> list[dict[str, Any]]:
        """Lines of ``log show -o json`` for an LSN range, at most 10,000; from the first one on that is held, up to the last one for LSN 0.

        Empty beyond the last one. Raises InvalidRequest, naming the first one that is held, for a range that ends before it.
        """

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
        """The same range as lines that a store can apply: as many as there are results of, at most 1,000 or about 8 MiB.

        Empty beyond the last one. Raises InvalidRequest, naming the first one that is held, for a range that begins before it.
        """

    def entries(self, first_lsn: Lsn, last_lsn: Lsn) -> dict[str, Any]:
        """The same range with what only masters know, and what of the log can be read now: ``{"cluster", "first_lsn", "last_lsn", "lineage", "rewinds",
        "entries"}``.

        ``rewinds`` says up to where what was read in an earlier lineage still holds: [[lineage, LSN], …] (model/log_lineages.py). An entry is [lsn, txid, origin, timestamp, epoch, outcome, reason, effect, fingerprint]; at most 5,000 or about 8 MiB, none
        from LSN 0 on or beyond the last one. Raises InvalidRequest, naming the first one that is held, for a range that begins before it.
        """

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """An operator's command, carried out through a master; long work only begins.

            backup   {"name", "incremental", "replace", "worker"}   -> the same as ``task``, with the request of what has begun
            task     {"request"}       -> {"request", "kind", "worker", "state", "done", "total", "per_s", "left_s", "reason", "answer"}

        Fields of a task are those of messages.TaskReport, and what a master knows of its worker. The future raises InvalidRequest (unknown command, wrong arguments),
        NotFound (no such request), NotReady (it cannot be done now, with the reason).
        """

    def writable(self) -> tuple[bool, str]:
        """Whether writes are taken in now, and the reason if not."""

    def ready(self, max_lag_entries: int | None = None, max_lag_s: float | None = None) -> tuple[bool, list[str]]:
        """Whether reads can be served, and lines such as ``[+]journal ok`` for the probe."""

    def wait_for(self, lsn: Lsn, workers: int | str, timeout_ms: int) -> Future[dict[str, Any]]:
        """Complete when ``workers`` (a number, ``all`` or ``quorum``) of this site have applied ``lsn``; else TimedOut."""

    def metrics(self) -> Numbers:
        """Numbers for /metrics."""
