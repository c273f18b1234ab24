"""`Client`: reads and writes of one program, over any wire; `Session`: a client that sees its own writes.

    with brokerha.connect("http://127.0.0.1:7201") as db:
        db.update("main", "INSERT DATA { <urn:a> <urn:b> 1 }")
        db.query("main", "SELECT * { ?s ?p ?o }")[0]["o"].native()      # 1
        db.put("prices", "sku-1", b"9.90", ack="synchronised")
        with db.pipeline(window=1000) as pipeline:
            for number in range(100_000):
                pipeline.put("counters", str(number), b"0")

Writing calls return a `Written` or raise: Rejected (ordered, failed, changed nothing), OutcomeUnknown (the deadline passed;
``txid`` names it), InvalidRequest and its kinds, ReadOnly, NotReady, Unreachable. ``ack`` is ``accepted``, ``synchronised``,
``applied`` or ``applied=N``. ``apart`` says what a master does with a write while it cannot agree with the others: ``wait``, or
``refuse`` (raise ReadOnly at once and keep nothing of it). ``timeout`` is in seconds. ``key`` is an idempotency key: the same key
with the same operations is one transaction, even if it is sent several times. Reading calls take ``min_lsn``: see at least this
LSN, or ``"latest"``. All calls can be made from any thread.

Transactions of an external coordinator are those of PEP 249, "Optional Two-Phase Commit Extensions":

    xid = db.xid(1, "order-4711", "stock")
    db.tpc_begin(xid)
    db.put("stock", "sku-1", b"7")              # part of the transaction, as is every write and read of this connection now
    db.tpc_prepare()                            # from here on the transaction outlives this program
    db.tpc_commit()

Without `tpc_prepare` the commit has one phase. After a crash, a coordinator finds prepared transactions with `tpc_recover` and ends
them with ``tpc_commit(xid)`` or ``tpc_rollback(xid)``. `commit` and `rollback` are not allowed between `tpc_begin` and its end.
Elsewhere they do nothing, because every other write is a transaction of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgpack

from brokerha.client.arguments import checked
from brokerha.client.calls import Calls
from brokerha.client.outcomes import Written
from brokerha.client.reads import Least, as_bytes, in_utf8
from brokerha.client.transactions import PLACED, PREPARED, Committed, Transaction, commit_safely, step
from brokerha.model.errors import Aborted, InvalidRequest, NotFound, WrongState
from brokerha.model.ids import Lsn, NodeId, TxId, Xid, checked_xid, maker_of
from brokerha.model.operations import LoggedRow
from brokerha.model.outside.isolation import READ_COMMITTED
from brokerha.model.outside.levels import parse_ack
from brokerha.model.requests import READS_INSIDE, WAIT
from brokerha.ports.front import ReadOutcome
from brokerha.ports.wire import Wire

if TYPE_CHECKING:
    from brokerha.client.exporting import Export
    from brokerha.client.large import LargeTransaction
    from brokerha.client.loading import Loaded, Progress, Source
    from brokerha.client.pipeline import Pipeline


@checked
class Client(Calls):
    """One program's connection to a cluster."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def session(self) -> Session:
        """Return another client on the same wire that sees its own writes."""
        return Session(self.wire, self.timeout, self.ack, self.apart)

    # ---- writes

    def update(
        self,
        repository: str,
        text: str,
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        apart: str | None = None,
    ) -> Written:
        """Run a SPARQL 1.1 Update request."""
        return self.write([("update", repository, text)], ack=ack, timeout=timeout, key=key, apart=apart)

    def put(
        self,
        table: str,
        key_name: str | bytes,
        value: str | bytes,
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        apart: str | None = None,
    ) -> Written:
        """Put a value; text is encoded as UTF-8."""
        operation = ("put", table, as_bytes(key_name), as_bytes(value))
        return self.write([operation], ack=ack, timeout=timeout, key=key, apart=apart)

    def delete(
        self,
        table: str,
        key_name: str | bytes,
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        apart: str | None = None,
    ) -> Written:
        """Delete a key; a missing key is no error."""
        return self.write([("delete", table, as_bytes(key_name))], ack=ack, timeout=timeout, key=key, apart=apart)

    def snapshot(self, name: str, *tables: str, timeout: float | None = None, key: TxId = "") -> Written:
        """Keep the content of these tables, or of all tables, at the LSN of this write, under a name for reads.

        Raises Rejected when the name exists, or when a table has 16 snapshots.
        """
        return self.write([("snapshot", name, *tables)], timeout=timeout, key=key)

    def drop_snapshot(self, name: str, *, timeout: float | None = None, key: TxId = "") -> Written:
        """Drop a snapshot of tables. Raises Rejected when it does not exist."""
        return self.write([("drop-snapshot", name)], timeout=timeout, key=key)

    def create_repository(self, repository: str, *, timeout: float | None = None, key: TxId = "") -> Written:
        """Create a repository. Raises Rejected when the name exists."""
        return self.write([("create-repository", repository)], timeout=timeout, key=key)

    def remove_repository(self, repository: str, *, timeout: float | None = None, key: TxId = "") -> Written:
        """Remove a repository. Raises Rejected when it is missing, or when a check of the control suite names it."""
        return self.write([("remove-repository", repository)], timeout=timeout, key=key)

    def control_add(
        self, name: str, kind: str, target: str, text: str, expected: str, *, timeout: float | None = None, key: TxId = ""
    ) -> Written:
        """Add a check to the control suite (model/control.py), or replace it. Raises Rejected when the check fails now."""
        return self.write([("control-add", name, kind, target, text, expected)], timeout=timeout, key=key)

    def control_remove(self, name: str, *, timeout: float | None = None, key: TxId = "") -> Written:
        """Remove a check from the control suite. Raises Rejected when it does not exist."""
        return self.write([("control-remove", name)], timeout=timeout, key=key)

    def load(
        self,
        repository: str,
        source: Source,
        format: str | None = None,  # noqa: A002  (the word that people look for)
        *,
        graph: str = "",
        base_iri: str | None = None,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        on_progress: Progress | None = None,
        inside: LargeTransaction | None = None,
    ) -> Loaded:
        """Load RDF of any length as transactions of bounded size, or ``inside`` one large transaction; see loading.py."""
        from brokerha.client.loading import load

        self._outside()
        return load(
            self, repository, source, format,
            graph=graph, base_iri=base_iri, ack=ack, timeout=timeout, key=key, on_progress=on_progress, inside=inside,
        )  # fmt: skip

    def large_transaction(self, *, ack: str | None = None, timeout: float | None = None, key: TxId = "") -> LargeTransaction:
        """Return a transaction of up to 512 MiB in parts; see large.py. ``timeout`` is for each part and for the commit."""
        from brokerha.client.large import LargeTransaction

        self._outside()
        return LargeTransaction(self, key, ack, timeout)

    def pipeline(
        self, window: int = 1000, *, ack: str | None = None, timeout: float | None = None, apart: str | None = None
    ) -> Pipeline:
        """Return a pipeline: at most ``window`` concurrent writes, accepted in their order; see pipeline.py."""
        from brokerha.client.pipeline import Pipeline

        self._outside()
        return Pipeline(self, window, ack or self.ack, self.seconds(timeout), apart or self.apart)

    # ---- reads (the others are in reads.py)

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Least = None, timeout: float | None = None
    ) -> ReadOutcome:
        """Run one read of ports.Front and return its outcome; in a two-phase transaction with its operations on top."""
        if self.branch is not None and kind in READS_INSIDE and "tx" not in arguments:
            return self.branch.read(kind, name, arguments, min_lsn, timeout)
        return super().read(kind, name, arguments, min_lsn, timeout)

    def repositories(self, *, min_lsn: Least = None, timeout: float | None = None) -> list[str]:
        """Return the names of all repositories, sorted."""
        names: list[str] = json.loads(self.read("repositories", "", {}, min_lsn, timeout).body)
        return names

    def tables(self, *, min_lsn: Least = None, timeout: float | None = None) -> list[str]:
        """Return the names of all key-value tables, sorted; a table exists while it has a key."""
        answer: list[str] = json.loads(self.read("tables", "", {}, min_lsn, timeout).body)
        return answer

    def snapshots(self, *, min_lsn: Least = None, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return all snapshots of tables, sorted by name: ``{"name", "tables", "lsn"}`` of each."""
        answer: list[dict[str, Any]] = json.loads(self.read("snapshots", "", {}, min_lsn, timeout).body)
        return answer

    def staged(self, *, min_lsn: Least = None, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return large transactions with staged parts: ``{"txid", "parts", "bytes", "items", "user", "last_us"}`` of each."""
        answer: list[dict[str, Any]] = json.loads(self.read("staged", "", {}, min_lsn, timeout).body)
        return answer

    def export(
        self,
        table: str,
        *,
        prefix: str | bytes = b"",
        start: str | bytes = b"",
        end: str | bytes | None = None,
        snapshot: str | None = None,
        min_lsn: Least = None,
        timeout: float | None = None,
    ) -> Export:
        """Export all keys of a range at one moment, in any number, while others write; see exporting.py.

        ``rows`` of the answer are (key, value) in byte order of the keys, and ``lsn`` is the moment. ``timeout`` is for each
        question. For a ``snapshot``, ``lsn`` is the LSN at which the snapshot was made.
        """
        from brokerha.client.exporting import Range, export, export_snapshot

        self._outside()
        wanted = Range(table, as_bytes(prefix), as_bytes(start), None if end is None else as_bytes(end))
        if snapshot is not None:
            return export_snapshot(self, snapshot, wanted, min_lsn, self.seconds(timeout))
        return export(self, wanted, min_lsn, self.seconds(timeout))

    def control_list(self, *, min_lsn: Least = None, timeout: float | None = None) -> list[dict[str, str]]:
        """Return the control suite, sorted by name: ``{"name", "kind", "target", "text", "expected"}`` of each check."""
        answer = json.loads(self.read("control", "", {}, min_lsn, timeout).body)
        checks: list[dict[str, str]] = answer["checks"]
        return checks

    def digests(self, bits: int = 10, *, min_lsn: Least = None, timeout: float | None = None) -> dict[str, Any]:
        """Return digests of one copy, bucket by bucket (stores/comparing/digests.py); of a worker when the worker is asked.

        ``{"lsn", "fingerprint", "items", "buckets": ((store, name, bucket, count, xor), …), "queues", "repositories"}``
        """
        return _unpacked(self.read("digests", "", {"bits": bits}, min_lsn, timeout))

    def bucket_items(
        self,
        buckets: Sequence[tuple[str, str, int]],
        bits: int = 10,
        *,
        limit: int = 1000,
        min_lsn: Least = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return the items of some buckets, (store, name, bucket) each, sorted; ``more`` is true when the limit cuts them off.

        ``{"lsn", "rows": ((store, name, bucket, item, digest, text, value), …), "more"}``
        """
        with in_utf8():
            wanted = tuple(msgpack.packb(tuple(bucket)) for bucket in buckets)
        arguments = {"bits": bits, "buckets": wanted, "limit": limit}
        return _unpacked(self.read("items", "", arguments, min_lsn, timeout))

    # ---- questions

    def outcome(self, txid: TxId, *, timeout: float | None = None) -> dict[str, Any] | None:
        """Return the state of a transaction: ``{"txid", "state", "lsn", "outcome", "reason"}``; None when it is unknown.

        Every master knows the transactions in the log. Only the master that began a transaction knows that it was rolled back, so
        that master is asked when another one does not know it. Raises Unreachable or NotReady when that master does not answer.
        """
        deadline_s = time.monotonic() + self.seconds(timeout)
        answer: dict[str, Any] | None = self.ask("outcome", {"txid": txid}, timeout)
        node = maker_of(txid)
        if answer is None and node:
            left_s = max(0.05, deadline_s - time.monotonic())
            answer = self.ask("outcome", {"txid": txid, "node": node}, left_s)
        return answer

    def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the status of the whole cluster: the contract of ``status -o json``."""
        answer: dict[str, Any] = self.ask("status", {}, timeout)
        return answer

    def log(self, first_lsn: Lsn = 1, last_lsn: Lsn = 0, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return lines of the synchronised queue, both ends included, at most 10,000 at a time; ``last_lsn`` 0 means no end.

        They begin with the first line that is held. Raises InvalidRequest for a range that ends before it, or before it begins.
        """
        arguments = {"first_lsn": first_lsn, "last_lsn": last_lsn}
        answer: list[dict[str, Any]] = self.ask("log", arguments, timeout)
        return answer

    def logged(self, first_lsn: Lsn, last_lsn: Lsn, *, timeout: float | None = None) -> list[LoggedRow]:
        """Return the same range with effects, as lines that a store can apply; at most 1,000 lines or about 8 MiB."""
        arguments = {"first_lsn": first_lsn, "last_lsn": last_lsn}
        rows: list[LoggedRow] = [tuple(row) for row in self.ask("logged", arguments, timeout)]
        return rows

    def entries(self, first_lsn: Lsn, last_lsn: Lsn, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the same range with origins and epochs: ``{"cluster", "first_lsn", "last_lsn", "lineage", "rewinds", "entries"}``.

        ``first_lsn`` and ``last_lsn`` are what can be read now. Entries are [lsn, txid, origin, timestamp, epoch, outcome, reason,
        effect, fingerprint]; at most 5,000 or about 8 MiB, none from LSN 0 on. Raises InvalidRequest for a range that begins too
        early.
        """
        arguments = {"first_lsn": first_lsn, "last_lsn": last_lsn}
        answer: dict[str, Any] = self.ask("entries", arguments, timeout)
        return answer

    def command(self, name: str, arguments: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        """Run an operator's command at the master that is asked. Raises InvalidRequest, NotFound, NotReady."""
        answer: dict[str, Any] = self.ask("command", {"name": name, "arguments": arguments}, timeout)
        return answer

    def backup(
        self, name: str, *, incremental: bool = False, replace: bool = False, worker: str = "", timeout: float | None = None
    ) -> dict[str, Any]:
        """Begin a backup at ``worker``, or at a worker that the master chooses; return its task, as `task` does."""
        wanted: dict[str, Any] = {"name": name, "incremental": incremental, "replace": replace}
        return self.command("backup", {**wanted, "worker": worker} if worker else wanted, timeout=timeout)

    def task(self, request: str, *, timeout: float | None = None) -> dict[str, Any] | None:
        """Return the progress of a task; None when the asked master does not know it.

        ``{"request", "kind", "worker", "state", "done", "total", "per_s", "left_s", "reason", "answer"}``
        """
        try:
            return self.command("task", {"request": request}, timeout=timeout)
        except NotFound:
            return None

    def pin(self, name: str, lsn: Lsn, for_s: int, *, timeout: float | None = None) -> dict[str, Any]:
        """Pin the log of the asked master from an LSN on for ``for_s`` seconds; pin again to move or prolong it.

        ``{"name", "lsn", "until", "left_s", "entries", "dropped"}``. Raises InvalidRequest when the log begins after that LSN.
        """
        return self.command("pin", {"name": name, "lsn": lsn, "for_s": for_s}, timeout=timeout)

    def unpin(self, name: str, *, timeout: float | None = None) -> bool:
        """Release a pin at the asked master; return whether it existed."""
        return bool(self.command("unpin", {"name": name}, timeout=timeout)["changed"])

    def pins(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the pins of the asked master: ``{"master", "first_lsn", "last_lsn", "hard_limit", "pins": [...]}``."""
        return self.command("pins", {}, timeout=timeout)

    def wait(self, lsn: Lsn, workers: int | str = 1, *, timeout: float | None = None) -> dict[str, Any]:
        """Wait until ``workers`` (a number, ``all`` or ``quorum``) of the site have applied ``lsn``. Raises TimedOut."""
        arguments = {"lsn": lsn, "workers": workers}
        answer: dict[str, Any] = self.ask("wait", arguments, timeout)
        return answer

    # ---- transactions of an external coordinator: the two-phase extension of PEP 249

    def xid(self, format_id: int, global_transaction_id: str | bytes, branch_qualifier: str | bytes = b"") -> Xid:
        """Return the name of a transaction: a number, and two parts of at most 64 bytes. Raises InvalidRequest."""
        parts = [as_bytes(part) for part in (global_transaction_id, branch_qualifier)]
        try:
            return checked_xid(format_id, *parts)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None

    def tpc_begin(self, xid: Xid, *, timeout: float | None = None, isolation: str = READ_COMMITTED) -> None:
        """Begin a transaction with this name; the following calls of this connection belong to it.

        ``timeout``: seconds without a step before the prepare, after which the master ends the transaction.
        """
        if self.branch is not None:
            raise WrongState(f"the two-phase transaction {self.branch.txid} is under way on this connection: end it first")
        if not isinstance(xid, Xid):
            raise InvalidRequest(f"a two-phase transaction is named by what xid(…) gives, not by {xid!r}")
        self.is_prepare_refused = False
        self.branch = Transaction(self, xid, timeout, isolation=isolation).begin()

    def tpc_prepare(self, *, timeout: float | None = None) -> None:
        """Run the first phase: promise that the transaction can be committed. Raises Aborted when it is rolled back instead.

        A coordinator rolls back all branches when one cannot commit. So `tpc_rollback` is allowed after Aborted; it does nothing.
        """
        branch = self._under_way()
        try:
            state = branch.prepare(timeout=timeout)
        except Aborted:
            self._let_go()
            self.is_prepare_refused = True
            raise
        except BaseException:
            # With an unknown outcome the transaction can be prepared, so the error must reach the caller.
            self._let_go()
            raise
        if state != PREPARED:
            # A transaction with nothing to do is over already. The coordinator still calls the second phase, which does nothing.
            branch.committed = Committed(branch.txid, 0)

    def tpc_commit(self, xid: Xid | None = None, *, timeout: float | None = None) -> Committed:
        """Commit the current transaction, in one phase if it is not prepared. With ``xid``: commit a recovered one."""
        if xid is not None:
            self._outside()
            row = self._recovered(xid, timeout)
            level, copies = parse_ack(self.ack)
            arguments = {"one_phase": False, "level": level, "copies": copies, "session": self.token}
            pause = threading.Event()
            lsn = commit_safely(self, row["node"], row["txid"], arguments, self.seconds(timeout), pause)
            self.note(lsn)
            return Committed(row["txid"], lsn)
        branch = self._under_way()
        try:
            return branch.committed or branch.commit(timeout=timeout)
        finally:
            self._let_go()

    def tpc_rollback(self, xid: Xid | None = None, *, timeout: float | None = None) -> None:
        """Roll back the current transaction. With ``xid``: roll back a recovered one."""
        if xid is not None:
            self._outside()
            row = self._recovered(xid, timeout)
            step(self, row["node"], "rollback", row["txid"], {"session": self.token}, timeout)
            return
        if self.is_prepare_refused:
            self.is_prepare_refused = False
            return
        branch = self._under_way()
        try:
            branch.rollback(timeout=timeout)
        finally:
            self._let_go()

    def tpc_recover(self, *, timeout: float | None = None) -> list[Xid]:
        """Return the names of all prepared, undecided transactions at the masters that can be reached.

        Also of those whose master has just started and is not sure yet that they are prepared: their commit waits until it is.
        """
        rows = self.open_transactions(timeout=timeout)
        return [Xid.parse(row["xid"]) for row in rows if row["xid"] and row["state"] in (PLACED, PREPARED)]

    def commit(self) -> None:
        """Do nothing: writes outside a two-phase transaction are committed one by one. Raises WrongState inside one."""
        self._outside()

    def rollback(self) -> None:
        """Do nothing, as `commit`. Raises WrongState inside a two-phase transaction."""
        self._outside()

    def open_transactions(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return transactions that are open, prepared, or were ended by hand: ``{"txid", "xid", "state", "node", …}`` of each."""
        rows: list[dict[str, Any]] = self.ask("transactions", {}, timeout)
        return rows

    def end_transaction(
        self, action: str, node: NodeId, txid: TxId, *, by_hand: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Apply ``commit``, ``rollback`` or ``forget`` to a transaction of `open_transactions`, also one of another client.

        ``by_hand`` decides a prepared one in place of its coordinator. The decision is kept and reported until it is forgotten.
        """
        level, copies = parse_ack(self.ack)
        arguments: dict[str, Any] = {"by_hand": True} if by_hand else {}
        if action == "commit":
            arguments |= {"one_phase": None, "level": level, "copies": copies}
        return step(self, node, action, txid, arguments, timeout)

    def _under_way(self) -> Transaction:
        if self.branch is None:
            raise WrongState("no two-phase transaction is under way on this connection: call tpc_begin first")
        return self.branch

    def _outside(self) -> None:
        if self.branch is not None:
            raise WrongState(
                f"the two-phase transaction {self.branch.txid} is {self.branch.state} on this connection: end it with"
                " tpc_commit() or tpc_rollback()"
            )

    def _let_go(self) -> None:
        """Forget the current transaction unless it still needs an end."""
        if self.branch is not None and self.branch.state not in {"open", PREPARED}:
            self.branch = None

    def _recovered(self, xid: Xid, timeout: float | None) -> dict[str, Any]:
        for row in self.open_transactions(timeout=timeout):
            if row["xid"] == xid.text and row["state"] in (PLACED, PREPARED):
                return row
        raise NotFound(f"no transaction {xid.text} is prepared at the masters that can be reached")


@checked
class Session(Client):
    """A client that sees at least its own writes, on any node.

    A write at level ``accepted`` has no LSN yet, so later reads do not always see it.
    """

    def __init__(self, wire: Wire, timeout: float = 30.0, ack: str = "applied", apart: str = WAIT) -> None:
        super().__init__(wire, timeout, ack, apart)
        self._lock = threading.Lock()
        self._lsn = 0

    def note(self, lsn: Lsn) -> None:
        """Remember the highest LSN of this session's writes."""
        with self._lock:
            self._lsn = max(self._lsn, lsn)

    def least_lsn(self) -> Lsn:
        """Return the highest LSN of this session's writes."""
        return self._lsn


def _unpacked(outcome: ReadOutcome) -> dict[str, Any]:
    answer: dict[str, Any] = msgpack.unpackb(outcome.body, use_list=False)
    return answer
