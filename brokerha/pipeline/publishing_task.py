"""One task of the sink: a partition from its first row to the answer of its last transaction.

    chunks ──> refused rows to the reject file
          └──> [oldest ... newest] ──> the client's pipeline ──> any master
                 │ wait for the answer of the oldest when the window is full
                 └─> applied, or rejected: all rows of the transaction go to the reject file

Back-pressure: a cluster that answers slowly slows the reading of rows. When the cluster is busy or silent, the transaction is sent
again under the same id, after a pause that doubles. Patience ends when one transaction was tried for `patience_s`. Errors of the
cluster are returned and not raised, so that Spark does not repeat a hopeless task; a killed task runs again.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeout
from tempfile import TemporaryFile
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa

from brokerha.client import Client
from brokerha.client.outcomes import Written
from brokerha.model.errors import BrokerhaError, KeyReused, NotReady, OutcomeUnknown, Rejected, Unreachable
from brokerha.model.ids import Lsn, TxId
from brokerha.pipeline.places import keep
from brokerha.pipeline.publishing import SHOWN_REJECTS, UNREAD, Reject, Result, SinkOptions, txid_of
from brokerha.pipeline.publishing_rows import Chunk, chunks

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
_AGAIN = (NotReady, OutcomeUnknown, Unreachable, WaitTimeout)
"""No answer, or a temporary refusal: the same transaction is sent again under the same id."""

Connect = Callable[[str], Client]


class Task(NamedTuple):
    """Identification of a partition of a write."""

    id: str
    """Id of the write; for a stream with the number of the batch."""
    part: str
    """Number of the partition: the part of rows that name none."""
    begin_lsn: Lsn
    """Last LSN of the cluster when the write began: transactions with a lower LSN were applied by an earlier run."""


class _UnderWay(NamedTuple):
    chunk: Chunk
    txid: TxId
    future: Future[Written] | None


def publish(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    task: Task,
    connect: Connect,
    pause: Callable[[float], object] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Result:
    """Publish one partition. Errors of the cluster or the rows are in the result, never raised."""
    result = Result()
    with TemporaryFile() as rejects:
        work = _Work(options, task, result, rejects, pause or threading.Event().wait, now)
        try:
            work.run(batches, connect)
        except BrokerhaError as error:
            result.error, result.reason, result.is_stopped = type(error).__name__, str(error), True
            result.remedy = getattr(error, "remedy", "")
        if options.rejects and result.rejects:
            first = result.first_rejects[0]
            keep(options.rejects, f"{txid_of(task.id, first.part, first.row)}.jsonl", rejects)
    return result


class _Work:
    """State of a running partition."""

    def __init__(
        self,
        options: SinkOptions,
        task: Task,
        result: Result,
        rejects: IO[bytes],
        pause: Callable[[float], object],
        now: Callable[[], float],
    ) -> None:
        self._options = options
        self._task = task
        self._result = result
        self._rejects = rejects
        self._pause = pause
        self._now = now
        self._pipeline: Any = None
        self._under_way: deque[_UnderWay] = deque()

    def run(self, batches: Iterable[pa.RecordBatch], connect: Connect) -> None:
        """Run until the rows end, or too many are refused. Raises the error that outlasted the patience."""
        options = self._options
        with contextlib.ExitStack() as stack:
            for chunk in chunks(batches, options, self._task.id, self._task.part):
                self._result.rows += chunk.rows
                self._refuse(chunk.rejects)
                if not options.is_dry_run and self._result.rejects > options.max_rejects:
                    self._result.is_stopped = True
                    break
                if not chunk.operations:
                    continue
                if options.is_dry_run:
                    self._applied(chunk, 0)
                    continue
                if self._pipeline is None:
                    self._pipeline = self._opened(stack, connect)
                self._send(chunk)
            while self._under_way:
                self._take_oldest()

    def _opened(self, stack: contextlib.ExitStack, connect: Connect) -> Any:
        options = self._options
        client = stack.enter_context(connect(options.url))
        # The client's window is larger, so that only this window makes the task wait.
        pipeline = client.pipeline(options.window + 1, ack=options.ack, timeout=options.timeout_s)
        stack.callback(_close, pipeline)
        return pipeline

    def _send(self, chunk: Chunk) -> None:
        while len(self._under_way) >= self._options.window:
            self._take_oldest()
        txid = txid_of(self._task.id, chunk.part, chunk.first_row)
        self._under_way.append(_UnderWay(chunk, txid, self._write(chunk, txid)))

    def _take_oldest(self) -> None:
        oldest = self._under_way.popleft()
        try:
            self._applied(oldest.chunk, self._insisted(oldest).lsn)
        except Rejected as rejected:
            reason = f"the cluster rejected transaction {rejected.txid} at LSN {rejected.lsn}: {rejected}"
            self._refuse(oldest.chunk.lost(reason))
        except KeyReused as error:
            raise KeyReused(
                f"{error}: the rows of part {oldest.chunk.part} are not those that were written under this id: give the DataFrame a "
                "fixed order (sortWithinPartitions), or the write another id"
            ) from None

    def _applied(self, chunk: Chunk, lsn: Lsn) -> None:
        result = self._result
        result.items += chunk.items
        result.transactions += 1
        result.repeated += 0 < lsn <= self._task.begin_lsn
        result.lsn = max(result.lsn, lsn)

    def _refuse(self, rejects: list[Reject]) -> None:
        result = self._result
        result.rejects += len(rejects)
        result.unread += sum(reject.reason.endswith(UNREAD) for reject in rejects)
        result.first_rejects = (*result.first_rejects, *rejects)[:SHOWN_REJECTS]
        if self._options.rejects:
            for reject in rejects:
                self._rejects.write(json.dumps(reject._asdict(), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")

    def _write(self, chunk: Chunk, txid: TxId) -> Future[Written]:
        while True:
            try:
                found: Future[Written] = self._pipeline.write(chunk.operations, key=txid)
            except Unreachable:
                # An earlier write reached no node, which the pipeline raises once; this class checks each write itself.
                continue
            return found

    def _insisted(self, oldest: _UnderWay) -> Written:
        """Return the result of a transaction, and send it again as often as patience allows."""
        future = oldest.future
        end_s, pause_s = self._now() + self._options.patience_s, FIRST_PAUSE_S
        while True:
            try:
                if future is None:
                    future = self._write(oldest.chunk, oldest.txid)
                return future.result(self._pipeline.limit_s)
            except _AGAIN as error:
                if self._now() + pause_s > end_s:
                    raise error if isinstance(error, BrokerhaError) else OutcomeUnknown(oldest.txid) from None
            self._pause(pause_s)
            pause_s, future = min(2 * pause_s, LONGEST_PAUSE_S), None


def _close(pipeline: Any) -> None:
    """Wait a little for open writes, and ignore their results. Never raises for a silent cluster."""
    with contextlib.suppress(BrokerhaError):
        pipeline.close()
