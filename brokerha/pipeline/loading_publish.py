"""Transactions of one task that are under way: at most a window of them, each sent again under its id until its end is known.

    send ──> [oldest ... newest] ──> the client's pipeline ──> any master
                 │ waits for the answer of the oldest when the window is full
                 └─> applied / rejected, told in the order in which they were sent

Answers are looked at from the oldest on, so whoever is told of one knows that all before it have ended. Back-pressure: a cluster that is slow
to answer holds up `send`; one that refuses because it is busy, or does not answer, is asked again after a pause that doubles.
Patience ends when one transaction was tried for so long; then the error of the last attempt is raised.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeout
from typing import NamedTuple

from brokerha.client import Client
from brokerha.client.outcomes import Written
from brokerha.model.errors import BrokerhaError, NotReady, OutcomeUnknown, Rejected, Unreachable
from brokerha.model.ids import Lsn, TxId
from brokerha.pipeline.loading import Batch

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
_EMPTY = 16
"""So many batches, mostly empty ones, may wait for each place of the window."""
_AGAIN = (NotReady, OutcomeUnknown, Unreachable, WaitTimeout)
"""No answer, or not now: the same transaction is sent again under the same id."""

Applied = Callable[[Batch, Lsn], None]
RejectedBy = Callable[[Batch, Rejected], None]
Pause = Callable[[float], object]


class _UnderWay(NamedTuple):
    batch: Batch
    txid: TxId
    future: Future[Written] | None
    """None: there was nothing to send; it waits for those before it."""


class Publisher:
    """See the head of the module. For one thread."""

    def __init__(
        self,
        client: Client,
        window: int,
        ack: str,
        timeout_s: float,
        patience_s: float,
        on_applied: Applied,
        on_rejected: RejectedBy,
        pause: Pause | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        # The client's window is larger, so that it never waits where this one does not.
        self._pipeline = client.pipeline(window + 1, ack=ack, timeout=timeout_s)
        self._window = window
        self._patience_s = patience_s
        self._on_applied = on_applied
        self._on_rejected = on_rejected
        self._pause: Pause = pause or threading.Event().wait
        self._now = now
        self._under_way: deque[_UnderWay] = deque()
        self._sent = 0

    def send(self, batch: Batch, txid: TxId) -> None:
        """Send a batch, or, if it is empty or ``txid`` is, tell of it behind those before it. Raises what ended the patience."""
        future = None
        if batch.operations and txid:
            while self._sent >= self._window:
                self._take_oldest()
            future = self._write(batch, txid)
            self._sent += 1
        self._under_way.append(_UnderWay(batch._replace(rejects=[]), txid, future))
        while self._under_way and (
            self._is_at_hand(self._under_way[0]) or len(self._under_way) > _EMPTY * self._window
        ):
            self._take_oldest()

    def drain(self) -> None:
        """Wait for all answers. Raises what ended the patience."""
        while self._under_way:
            self._take_oldest()

    def close(self) -> None:
        """Wait a little for what is still under way, without looking at it. Never raises for a cluster that is silent."""
        with contextlib.suppress(NotReady):
            self._pipeline.close()

    @staticmethod
    def _is_at_hand(oldest: _UnderWay) -> bool:
        return oldest.future is None or oldest.future.done()

    def _take_oldest(self) -> None:
        oldest = self._under_way.popleft()
        if oldest.future is None:
            self._on_applied(oldest.batch, 0)
            return
        self._sent -= 1
        try:
            done = self._insisted(oldest)
        except Rejected as rejected:
            self._on_rejected(oldest.batch, rejected)
        else:
            self._on_applied(oldest.batch, done.lsn)

    def _write(self, batch: Batch, txid: TxId) -> Future[Written]:
        while True:
            try:
                return self._pipeline.write(batch.operations, key=txid)
            except Unreachable:
                # An earlier one reached no node, and is told of once; each is looked at by itself here.
                continue

    def _insisted(self, oldest: _UnderWay) -> Written:
        """The end of a transaction, sent again as often as patience allows."""
        future = oldest.future
        end_s, pause_s = self._now() + self._patience_s, FIRST_PAUSE_S
        while True:
            try:
                if future is None:
                    future = self._write(oldest.batch, oldest.txid)
                return future.result(self._pipeline.limit_s)
            except _AGAIN as error:
                if self._now() + pause_s > end_s:
                    raise _last(error, oldest.txid) from None
            self._pause(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            future = None


def _last(error: Exception, txid: TxId) -> BrokerhaError:
    return error if isinstance(error, BrokerhaError) else OutcomeUnknown(txid)
