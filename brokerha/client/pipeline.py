"""Many concurrent writes: each call returns a future at once, while fewer than ``window`` writes are open.

    with db.pipeline(window=1000) as pipeline:
        futures = [pipeline.put("t", str(n), b"0") for n in range(100_000)]

One thread hands over all waiting writes as one list. So batches form when writes come faster than the wire takes them, and a single
write goes at once. Writes are handed over in the order of the calls. Leaving the block waits for all of them and raises the first
error, so no failure is lost; each future has its own error as well. When a write reached no node before its deadline, the next call
raises that error too. Else each further window would wait as long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from brokerha.client.arguments import checked
from brokerha.client.outcomes import Written, written
from brokerha.client.reads import as_bytes
from brokerha.client.transactions import OCTETS
from brokerha.model.errors import InvalidRequest, NotReady, Unreachable
from brokerha.model.ids import TxId
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.outside.levels import parse_ack, parse_apart
from brokerha.model.requests import WAIT, Reply

if TYPE_CHECKING:
    from brokerha.client.calls import Calls

WINDOW_LIMIT = 100_000


@checked
class Pipeline:
    """Concurrent writes of one client."""

    def __init__(self, client: Calls, window: int, ack: str, timeout_s: float, apart: str = WAIT) -> None:
        if not 1 <= window <= WINDOW_LIMIT:
            raise InvalidRequest(f"the window of a pipeline is 1 to {WINDOW_LIMIT}, not {window}")
        self.window = window
        self.first_error: BaseException | None = None
        """Error of the first failed write; later calls continue, but see `write`."""
        self._away: Unreachable | None = None
        """Set when the last completed write reached no node, until a call raises it."""
        self._client = client
        self._level, self._copies = parse_ack(ack)
        self._apart = parse_apart(apart)
        self._timeout_s = timeout_s
        self.limit_s = 2 * timeout_s
        """Time in which every write ends, unless the wire is broken."""
        self._room = threading.Semaphore(window)
        self._changed = threading.Condition()
        self._waiting: deque[tuple[TxId, bytes, Future[Written]]] = deque()
        self._under_way = 0
        self._is_closed = False
        self._sender = threading.Thread(target=self._send, name="brokerha pipeline", daemon=True)
        self._sender.start()

    # ---- writes

    def write(self, operations: Sequence[Operation], *, key: TxId = "") -> Future[Written]:
        """Write one transaction. Waits for room in the window; raises InvalidRequest at once, NotReady when no room becomes free.

        Raises Unreachable when the last completed write reached no node; the next call tries again.
        """
        txid, body = self._client.txid(key), pack_operations(list(operations))
        if not self._room.acquire(timeout=self.limit_s):
            raise NotReady(f"{self.window} writes are under way and none was answered in {self.limit_s:g} seconds")
        away, self._away = self._away, None
        if away is not None:
            self._room.release()
            raise away
        future: Future[Written] = Future()
        with self._changed:
            if self._is_closed:
                self._room.release()
                raise InvalidRequest("the pipeline is closed")
            self._under_way += 1
            self._waiting.append((txid, body, future))
            if len(self._waiting) == 1:
                self._changed.notify_all()
        return future

    def update(self, repository: str, text: str, *, key: TxId = "") -> Future[Written]:
        """Run a SPARQL Update request."""
        return self.write([("update", repository, text)], key=key)

    def put(self, table: str, key_name: str | bytes, value: str | bytes, *, key: TxId = "") -> Future[Written]:
        """Put a value; text is encoded as UTF-8."""
        return self.write([("put", table, as_bytes(key_name), as_bytes(value))], key=key)

    def delete(self, table: str, key_name: str | bytes, *, key: TxId = "") -> Future[Written]:
        """Delete a key."""
        return self.write([("delete", table, as_bytes(key_name))], key=key)

    def publish(self, queue: str, body: str | bytes, content_type: str = OCTETS, *, key: TxId = "") -> Future[Written]:
        """Append a message to a queue."""
        return self.write([("publish", queue, content_type, as_bytes(body))], key=key)

    # ---- the end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if error is None and self.first_error is not None:
            raise self.first_error

    def flush(self) -> None:
        """Wait until no write is open. Raises NotReady when that takes far longer than a write can."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._under_way, self.limit_s):
                raise NotReady(f"{self._under_way} writes have no answer after {self.limit_s:g} seconds")

    def close(self) -> None:
        """Refuse new writes, and wait for the open ones. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.flush()

    # ---- the sender

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                batch = list(self._waiting)
                self._waiting.clear()
            self._submit(batch)

    def _submit(self, batch: list[tuple[TxId, bytes, Future[Written]]]) -> None:
        writes = [(txid, body) for txid, body, _ in batch]
        timeout_ms = max(1, round(self._timeout_s * 1000))
        try:
            replies = self._client.wire.submit(writes, self._level, self._copies, timeout_ms, self._apart)
        except Exception as error:  # noqa: BLE001  (whatever the wire raises is the answer to all of them)
            for *_, future in batch:
                self._settle(future, None, error)
            return
        for (*_, future), reply in zip(batch, replies, strict=True):
            reply.add_done_callback(partial(self._on_reply, future))

    def _on_reply(self, future: Future[Written], reply: Future[Reply]) -> None:
        error = reply.exception()
        if error is not None:
            self._settle(future, None, error)
            return
        try:
            done = written(reply.result())
        except Exception as refused:  # noqa: BLE001  (every error of a write belongs into its future)
            self._settle(future, None, refused)
        else:
            self._client.note(done.lsn)
            self._settle(future, done, None)

    def _settle(self, future: Future[Written], done: Written | None, error: BaseException | None) -> None:
        self._away = error if isinstance(error, Unreachable) else None
        # A caller can have cancelled it, and then ignores the result.
        if future.set_running_or_notify_cancel():
            if error is not None:
                future.set_exception(error)
            elif done is not None:
                future.set_result(done)
        self._room.release()
        with self._changed:
            if error is not None and self.first_error is None:
                self.first_error = error
            self._under_way -= 1
            if not self._under_way:
                self._changed.notify_all()
