"""One split, from its first line to the answer of its last transaction: what a task of Spark does.

    batches of the split ──> rejects to the ledger
                       └──> transactions to the cluster ──> marks in the ledger ──> the split is done

What an earlier run has marked is read and judged again, because line numbers and the cut of the batches depend on it, and is not sent again.
Errors are returned and not raised, so that Spark does not try again what cannot get better; a task that is killed is run again.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import IO

from brokerha.client import Client
from brokerha.model.errors import BrokerhaError, InvalidRequest, Rejected
from brokerha.model.ids import Lsn
from brokerha.pipeline.loading import (
    NQ,
    NT,
    SIZE_LIMIT_BYTES,
    STATEMENTS_LIMIT,
    Batch,
    LoadJob,
    Reject,
    Split,
    SplitResult,
    prefix_of,
    txid_of,
)
from brokerha.pipeline.loading_ledger import Ledger, Mark, write_reject
from brokerha.pipeline.loading_lines import pieces
from brokerha.pipeline.loading_plan import opened
from brokerha.pipeline.loading_publish import Publisher
from brokerha.pipeline.loading_rdf import batch_of
from brokerha.pipeline.loading_rows import row_batches

MARK_EVERY = 16
"""Batches between two marks: so many transactions at most are sent a second time."""
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)

Connect = Callable[[str], Client]


def run_split(job: LoadJob, split: Split, connect: Connect | None = None) -> SplitResult:
    """Load one split. Never raises for what the outside world can cause: the result tells."""
    try:
        return _run(job, split, connect or _connect)
    except BrokerhaError as error:
        named = error
    except OSError as error:
        named = InvalidRequest(f"{split.path} or {job.state} cannot be used: {error.strerror or error}")
    Ledger(job.state, job.run).stop()
    return SplitResult(split.name, error=type(named).__name__, reason=str(named))


def _run(job: LoadJob, split: Split, connect: Connect) -> SplitResult:
    ledger = Ledger(job.state, job.run)
    done = ledger.result(split)
    if done is not None:
        return done
    if ledger.is_stopped:
        return SplitResult(split.name, is_stopped=True)
    with ExitStack() as stack:
        rejects = stack.enter_context(ledger.rejects_of(split))
        work = _Work(job, split, ledger, rejects)
        publisher = None
        if not job.is_dry_run:
            client = stack.enter_context(connect(job.address))
            publisher = work.publisher(client)
            stack.callback(publisher.close)
        result = work.run(publisher)
    # Only now the rejects are durable.
    if not result.is_stopped:
        ledger.finish(result)
    return result


class _Work:
    """The state of one split under way."""

    def __init__(self, job: LoadJob, split: Split, ledger: Ledger, rejects: IO[bytes]) -> None:
        self._job = job
        self._split = split
        self._ledger = ledger
        self._rejects = rejects
        self._before = ledger.marked(split)
        self._may_mark = True
        """Not behind a rejected transaction, which has to be told again by the next run."""
        self._unmarked = 0
        self._lines = 0
        self._result = SplitResult(split.name)

    def publisher(self, client: Client) -> Publisher:
        job = self._job
        return Publisher(client, job.window, job.ack, job.timeout_s, job.patience_s, self._applied, self._rejected)

    def run(self, publisher: Publisher | None) -> SplitResult:
        for batch in batches_of(self._split, self._job):
            self._lines = batch.last_line
            for reject in batch.rejects:
                self._refuse(reject)
            if self._is_over():
                self._ledger.stop()
            if self._ledger.is_stopped and not self._job.is_dry_run:
                self._result = replace(self._result, is_stopped=True)
                break
            if publisher is None:
                self._applied(batch, 0)
            else:
                is_new = batch.number > self._before.batches
                publisher.send(batch, txid_of(self._job.key, self._split, batch.number) if is_new else "")
        if publisher is not None:
            publisher.drain()
        if self._is_over():
            self._ledger.stop()
        return replace(self._result, lines=self._lines)

    def _is_over(self) -> bool:
        return not self._job.is_dry_run and self._result.rejects > self._job.max_rejects

    def _refuse(self, reject: Reject) -> None:
        write_reject(self._rejects, reject)
        self._result = replace(self._result, rejects=self._result.rejects + reject.lost)

    def _applied(self, batch: Batch, lsn: Lsn) -> None:
        done = self._result
        self._result = replace(
            done,
            statements=done.statements + batch.statements,
            transactions=done.transactions + bool(batch.operations),
            lsn=max(done.lsn, lsn),
        )
        self._unmarked += 1
        is_new = batch.number > self._before.batches
        if self._may_mark and is_new and self._unmarked >= MARK_EVERY and not self._job.is_dry_run:
            self._ledger.mark(self._split, Mark(batch.number, batch.position))
            self._unmarked = 0

    def _rejected(self, batch: Batch, error: Rejected) -> None:
        self._may_mark = False
        reason = f"the cluster rejected transaction {error.txid} at LSN {error.lsn}: {error}"
        self._refuse(Reject(self._split.path, batch.first_line, batch.last_line, reason, "", batch.statements))


def batches_of(split: Split, job: LoadJob) -> Iterator[Batch]:
    """The batches of a split, the same ones each time. Raises InvalidRequest for a file that is damaged."""
    try:
        yield from _statement_batches(split, job) if split.syntax in {NT, NQ} else row_batches(split, job)
    except _DAMAGED as error:
        raise InvalidRequest(f"{split.path} is damaged: {error}") from None
    except Exception as error:
        # pyarrow is imported by who needs it, and its errors have no base of their own outside of it.
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise InvalidRequest(f"{split.path} is damaged: {str(error).splitlines()[0]}") from None


def _statement_batches(split: Split, job: LoadJob) -> Iterator[Batch]:
    prefix = prefix_of(job.key, split.file)
    content, raw = opened(split.path)
    with raw, content:
        found = pieces(content, raw, split.start, split.end, STATEMENTS_LIMIT, SIZE_LIMIT_BYTES)
        for number, lines in enumerate(found, 1):
            yield batch_of(lines, number, split.path, split.syntax, job.repository, job.graph, prefix)


def _connect(address: str) -> Client:
    import brokerha

    return brokerha.connect(address)
