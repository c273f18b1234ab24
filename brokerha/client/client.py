"""`Client`: reads and writes of one program, over whatever wire; `Session`: a client that reads its own writes.

    with brokerha.connect("http://127.0.0.1:7201") as db:
        db.update("main", "INSERT DATA { <urn:a> <urn:b> 1 }")
        db.query("main", "SELECT * { ?s ?p ?o }")[0]["o"].native()      # 1
        db.put("prices", "sku-1", b"9.90", ack="synchronised")
        with db.pipeline(window=1000) as pipeline:
            for number in range(100_000):
                pipeline.put("counters", str(number), b"0")

Writing calls return a `Written` or raise: Rejected (ordered, failed, changed nothing), OutcomeUnknown (the deadline passed;
``txid`` names it), InvalidRequest and its kinds, ReadOnly, NotReady, Unreachable. ``ack`` is ``accepted``, ``synchronised``,
``applied`` or ``applied=N``; ``timeout`` is in seconds; ``key`` is an idempotency key: the same key with the same
operations is one transaction, however often it is sent. Reading calls take ``min_lsn``: see at least this LSN, or ``"latest"``.
Callable from any thread.
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeout
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from brokerha.client.outcomes import Written, written
from brokerha.client.results import ACCEPT, Solutions, Triples, parsed
from brokerha.model.errors import InvalidRequest, NotFound, OutcomeUnknown, TimedOut
from brokerha.model.ids import Lsn, TxId, is_tx_id
from brokerha.model.levels import parse_ack, parse_min_lsn
from brokerha.model.operations import LoggedRow, Operation, pack_operations
from brokerha.model.requests import Reply
from brokerha.ports.front import ReadOutcome
from brokerha.ports.wire import Wire

if TYPE_CHECKING:
    from brokerha.client.loading import Loaded, Progress, Source
    from brokerha.client.pipeline import Pipeline

GRACE_S = 5.0
"""How much longer than its deadline a call waits for the wire, which answers by itself when it is healthy."""
Result = TypeVar("Result")
Least = Lsn | Literal["latest"] | None
"""What a read must see: at least this LSN; ``latest``, all that is ordered now at the master that is asked; None for what
the client asks for by itself: nothing, or in a session its own writes."""


class Client:
    """One program's connection to a cluster."""

    def __init__(self, wire: Wire, timeout: float = 30.0, ack: str = "applied") -> None:
        parse_ack(ack)
        self.wire = wire
        self.timeout = timeout
        """Seconds that a call may take which does not say."""
        self.ack = ack
        """Level of writes that do not say."""
        self._prefix = secrets.token_hex(8)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self.wire.close()

    def session(self) -> Session:
        """Another client on the same wire, which remembers what it wrote itself."""
        return Session(self.wire, self.timeout, self.ack)

    # ---- writes

    def write(
        self, operations: Sequence[Operation], *, ack: str | None = None, timeout: float | None = None, key: TxId = ""
    ) -> Written:
        """One transaction of any operations (model/operations.py): all of it or nothing."""
        txid, body = self.txid(key), pack_operations(list(operations))
        level, copies = parse_ack(ack or self.ack)
        seconds = self.seconds(timeout)
        future = self.wire.submit([(txid, body)], level, copies, _milliseconds(seconds))[0]
        done = written(_reply(future, txid, seconds))
        self.note(done.lsn)
        return done

    def update(
        self, repository: str, text: str, *, ack: str | None = None, timeout: float | None = None, key: TxId = ""
    ) -> Written:
        """Run a SPARQL 1.1 Update request."""
        return self.write([("update", repository, text)], ack=ack, timeout=timeout, key=key)

    def put(
        self,
        table: str,
        key_name: str | bytes,
        value: str | bytes,
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
    ) -> Written:
        """Put a value; text is taken as UTF-8."""
        return self.write([("put", table, as_bytes(key_name), as_bytes(value))], ack=ack, timeout=timeout, key=key)

    def delete(
        self, table: str, key_name: str | bytes, *, ack: str | None = None, timeout: float | None = None, key: TxId = ""
    ) -> Written:
        """Delete a key; one that is not there is no error."""
        return self.write([("delete", table, as_bytes(key_name))], ack=ack, timeout=timeout, key=key)

    def create_repository(self, repository: str, *, timeout: float | None = None, key: TxId = "") -> Written:
        """Create a repository. Raises Rejected when there is one of that name."""
        return self.write([("create-repository", repository)], timeout=timeout, key=key)

    def remove_repository(self, repository: str, *, timeout: float | None = None, key: TxId = "") -> Written:
        """Remove a repository with all that is in it. Raises Rejected when there is none."""
        return self.write([("remove-repository", repository)], timeout=timeout, key=key)

    def control_add(
        self,
        name: str,
        kind: str,
        target: str,
        text: str,
        expected: str,
        *,
        timeout: float | None = None,
        key: TxId = "",
    ) -> Written:
        """Add a check to the control suite (model/control.py), or replace it. Raises Rejected when it does not hold now."""
        return self.write([("control-add", name, kind, target, text, expected)], timeout=timeout, key=key)

    def control_remove(self, name: str, *, timeout: float | None = None, key: TxId = "") -> Written:
        """Remove a check of the control suite. Raises Rejected when there is none."""
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
    ) -> Loaded:
        """Load RDF of any length, as transactions of bounded size; see loading.py."""
        from brokerha.client.loading import load

        return load(
            self, repository, source, format,
            graph=graph, base_iri=base_iri, ack=ack, timeout=timeout, key=key, on_progress=on_progress,
        )  # fmt: skip

    def pipeline(self, window: int = 1000, *, ack: str | None = None, timeout: float | None = None) -> Pipeline:
        """Many writes at once: at most ``window`` under way, taken in in their order; see pipeline.py."""
        from brokerha.client.pipeline import Pipeline

        return Pipeline(self, window, ack or self.ack, self.seconds(timeout))

    # ---- reads

    def query(
        self,
        repository: str,
        text: str,
        *,
        accept: str | None = None,
        min_lsn: Least = None,
        timeout: float | None = None,
        default_graphs: Iterable[str] = (),
        named_graphs: Iterable[str] = (),
    ) -> Solutions | bool | Triples | ReadOutcome:
        """A SPARQL query: `Solutions`, a bool, or `Triples`; with ``accept`` the answer as it came, in that format."""
        arguments = {
            "query": text,
            "accept": accept or ACCEPT,
            "default-graph-uri": tuple(default_graphs),
            "named-graph-uri": tuple(named_graphs),
        }
        outcome = self._read("query", repository, arguments, min_lsn, timeout)
        return outcome if accept else parsed(outcome)

    def select(self, repository: str, text: str, *, min_lsn: Least = None, timeout: float | None = None) -> Solutions:
        """A SELECT query. Raises InvalidRequest when it is another form of query."""
        return _of_form(self.query(repository, text, min_lsn=min_lsn, timeout=timeout), Solutions, "SELECT")

    def is_true(self, repository: str, text: str, *, min_lsn: Least = None, timeout: float | None = None) -> bool:
        """An ASK query. Raises InvalidRequest when it is another form of query."""
        return _of_form(self.query(repository, text, min_lsn=min_lsn, timeout=timeout), bool, "ASK")

    def construct(self, repository: str, text: str, *, min_lsn: Least = None, timeout: float | None = None) -> Triples:
        """A CONSTRUCT or DESCRIBE query. Raises InvalidRequest when it is another form of query."""
        return _of_form(self.query(repository, text, min_lsn=min_lsn, timeout=timeout), Triples, "CONSTRUCT")

    def get(
        self, table: str, key_name: str | bytes, *, min_lsn: Least = None, timeout: float | None = None
    ) -> bytes | None:
        """The value of a key; None when there is none."""
        try:
            return self._read("get", table, {"key": as_bytes(key_name)}, min_lsn, timeout).body
        except NotFound:
            return None

    def range(
        self,
        table: str,
        *,
        prefix: str | bytes = b"",
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
        min_lsn: Least = None,
        timeout: float | None = None,
    ) -> list[tuple[bytes, bytes]]:
        """Keys and values in key order, from ``start`` on and before ``end``; 1000 of them when no limit is given."""
        import msgpack

        arguments = {
            "prefix": as_bytes(prefix),
            "from": None if start is None else as_bytes(start),
            "to": None if end is None else as_bytes(end),
            "limit": limit,
            "reverse": reverse,
        }
        outcome = self._read("range", table, arguments, min_lsn, timeout)
        return list(msgpack.unpackb(outcome.body, use_list=False))

    def size(self, repository: str, *, min_lsn: Least = None, timeout: float | None = None) -> int:
        """Number of quads of a repository."""
        return int(self._read("size", repository, {"context": ()}, min_lsn, timeout).body)

    def repositories(self, *, min_lsn: Least = None, timeout: float | None = None) -> list[str]:
        """Names of all repositories, sorted."""
        names: list[str] = json.loads(self._read("repositories", "", {}, min_lsn, timeout).body)
        return names

    def control_list(self, *, min_lsn: Least = None, timeout: float | None = None) -> list[dict[str, str]]:
        """The control suite, sorted by name: ``{"name", "kind", "target", "text", "expected"}`` of each check."""
        answer = json.loads(self._read("control", "", {}, min_lsn, timeout).body)
        checks: list[dict[str, str]] = answer["checks"]
        return checks

    def _read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Least, timeout: float | None
    ) -> ReadOutcome:
        seconds = self.seconds(timeout)
        least = self.least_lsn() if min_lsn is None else parse_min_lsn(str(min_lsn), "min_lsn")
        future = self.wire.read(kind, name, arguments, least, _milliseconds(seconds))
        try:
            return future.result(seconds + GRACE_S)
        except WaitTimeout:
            raise TimedOut(f"the read was not answered in {seconds:g} seconds: try again") from None

    # ---- questions

    def outcome(self, txid: TxId, *, timeout: float | None = None) -> dict[str, Any] | None:
        """What became of a transaction: ``{"txid", "state", "lsn", "outcome", "reason"}``; None when it is unknown there."""
        answer: dict[str, Any] | None = self.wire.ask("outcome", {"txid": txid}, _milliseconds(self.seconds(timeout)))
        return answer

    def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """The whole cluster: the contract of ``status -o json``."""
        answer: dict[str, Any] = self.wire.ask("status", {}, _milliseconds(self.seconds(timeout)))
        return answer

    def log(self, first_lsn: Lsn, last_lsn: Lsn, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Lines of the synchronised queue, both ends included, at most 10,000 at a time."""
        arguments = {"first_lsn": first_lsn, "last_lsn": last_lsn}
        answer: list[dict[str, Any]] = self.wire.ask("log", arguments, _milliseconds(self.seconds(timeout)))
        return answer

    def logged(self, first_lsn: Lsn, last_lsn: Lsn, *, timeout: float | None = None) -> list[LoggedRow]:
        """The same range with effects, as lines that a store can apply; at most 1,000 lines or about 8 MiB."""
        arguments = {"first_lsn": first_lsn, "last_lsn": last_lsn}
        rows: list[LoggedRow] = [
            tuple(row) for row in self.wire.ask("logged", arguments, _milliseconds(self.seconds(timeout)))
        ]
        return rows

    def command(self, name: str, arguments: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        """An operator's command, carried out by the master that is asked. Raises InvalidRequest, NotFound, NotReady."""
        asked = {"name": name, "arguments": arguments}
        answer: dict[str, Any] = self.wire.ask("command", asked, _milliseconds(self.seconds(timeout)))
        return answer

    def backup(
        self,
        name: str,
        *,
        incremental: bool = False,
        replace: bool = False,
        worker: str = "",
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Begin a backup, at a worker that the master chooses if none is named; returns its task, as `task` does."""
        wanted: dict[str, Any] = {"name": name, "incremental": incremental, "replace": replace}
        return self.command("backup", {**wanted, "worker": worker} if worker else wanted, timeout=timeout)

    def task(self, request: str, *, timeout: float | None = None) -> dict[str, Any] | None:
        """How far a task is; None when the master that answers does not know it.

        ``{"request", "kind", "worker", "state", "done", "total", "per_s", "left_s", "reason", "answer"}``
        """
        try:
            return self.command("task", {"request": request}, timeout=timeout)
        except NotFound:
            return None

    def wait(self, lsn: Lsn, workers: int | str = 1, *, timeout: float | None = None) -> dict[str, Any]:
        """Wait until ``workers`` (a number, ``all`` or ``quorum``) of the site have applied ``lsn``. Raises TimedOut."""
        arguments = {"lsn": lsn, "workers": workers}
        answer: dict[str, Any] = self.wire.ask("wait", arguments, _milliseconds(self.seconds(timeout)))
        return answer

    # ---- for the other files of this folder

    def new_txid(self) -> TxId:
        """A transaction id that nobody else makes."""
        return f"{self._prefix}-{next(self._numbers)}"

    def txid(self, key: TxId) -> TxId:
        """The id of a write: the caller's key if there is one. Raises InvalidRequest when it cannot be one."""
        if key and not is_tx_id(key):
            raise InvalidRequest("an idempotency key has 1 to 128 visible ASCII characters and no space")
        return key or self.new_txid()

    def seconds(self, timeout: float | None) -> float:
        """The time of a call. Raises InvalidRequest when it is not above 0."""
        seconds = self.timeout if timeout is None else timeout
        if not seconds > 0:
            raise InvalidRequest(f"timeout is a number of seconds above 0, not {seconds!r}")
        return seconds

    def note(self, lsn: Lsn) -> None:
        """A write of this client has this LSN."""

    def least_lsn(self) -> Lsn:
        """The LSN that reads ask for which do not say."""
        return 0


class Session(Client):
    """A client whose reads see at least what it wrote itself, whichever node they go to.

    A write that waits only for ``accepted`` has no LSN yet, so reads after it may not see it.
    """

    def __init__(self, wire: Wire, timeout: float = 30.0, ack: str = "applied") -> None:
        super().__init__(wire, timeout, ack)
        self._lock = threading.Lock()
        self._lsn = 0

    def note(self, lsn: Lsn) -> None:
        """Remember the highest LSN of its own writes."""
        with self._lock:
            self._lsn = max(self._lsn, lsn)

    def least_lsn(self) -> Lsn:
        """The highest LSN of its own writes."""
        return self._lsn


def as_bytes(value: str | bytes) -> bytes:
    """Text as UTF-8, bytes as they are."""
    return value.encode() if isinstance(value, str) else bytes(value)


def _reply(future: Future[Reply], txid: TxId, seconds: float) -> Reply:
    try:
        return future.result(seconds + GRACE_S)
    except WaitTimeout:
        raise OutcomeUnknown(txid) from None


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _of_form(result: object, form: type[Result], word: str) -> Result:
    if not isinstance(result, form):
        raise InvalidRequest(f"this is no {word} query")
    return result
