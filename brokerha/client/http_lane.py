"""Writes over HTTP: ordered batches, sent again until they are answered or time out.

    submit --> waiting --> batch --POST /tx/batch--> head of the answer: the node has taken the batch in, in order
                 ^           |                        then the replies, as they arrive
                 +-- again --+

All waiting writes travel together, so throughput grows with load, and a single write goes at once. Only one batch waits for the
head of its answer at a time. When the head arrives, the next batch goes on another connection. So a node takes writes in in the
order of submission, and a slow reply delays no other write. After a failure, all writes without a reply go to the next node with
the same transaction ids; order then holds only within each batch. Whenever no write is open, the next batch can go to another node
(http_nodes.py): the positions of earlier writes are known by then, unless their level was `accepted`.

Invariants: every future completes, at the latest a little after its deadline; a write that could have reached a node never ends as
Unreachable, always as OutcomeUnknown; the number of open writes is bounded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

import msgpack

from brokerha.client.http_connections import FAULTS, Connections, Exchange, NotConnected
from brokerha.client.http_nodes import HttpNodes, error_of_answer, of_all, unreachable
from brokerha.model.errors import (
    BrokerhaError,
    Closed,
    InvalidRequest,
    NotReady,
    ProtocolError,
    ReadOnly,
    Unreachable,
    error_named,
    may_pass,
    write_unknown,
)
from brokerha.model.gathering import Gathering
from brokerha.model.ids import TxId
from brokerha.model.outside.levels import ack_text
from brokerha.model.requests import ACCEPTED, REFUSED, UNKNOWN, WAIT, Reply
from brokerha.model.wire.client_wire import REPLIES_TYPE, WRITES_TYPE, encode_writes

CONNECTIONS = 4
BATCH_LIMIT = 1000
BATCH_LIMIT_BYTES = 4 * 1024 * 1024
"""A batch ends at the first limit that it reaches; a larger write travels alone."""
OPEN_LIMIT = 100_000
OPEN_LIMIT_BYTES = 256 * 1024 * 1024
"""Limits of unanswered writes; further ones are refused with NotReady."""
SILENCE_S = 15.0
"""A node that has nothing to say sends at least a sign of life in this time; else it counts as dead."""
HEAD_S = 5.0
"""With several nodes, time in which a node must confirm a batch; a frozen process never answers."""
WORTH_AGAIN_S = 0.1
"""A write with less time left than this is not sent again."""
_REPLY_BYTES = 64 * 1024 * 1024


class _Write:
    """One write without a reply."""

    __slots__ = ("body", "deadline_s", "future", "may_be_there", "problems", "refused_by", "terms", "txid")

    def __init__(self, txid: TxId, body: bytes, terms: dict[str, str], deadline_s: float) -> None:
        self.txid = txid
        self.body = body
        self.terms = terms
        self.deadline_s = deadline_s
        self.future: Future[Reply] = Future()
        self.may_be_there = False
        """True when a node can have it although no reply came."""
        self.problems: dict[str, BrokerhaError] = {}
        """The last problem with each node, the latest last."""
        self.refused_by: set[str] = set()
        """Nodes that refused writes."""

    def note(self, url: str, problem: BrokerhaError) -> None:
        """Note a problem with a node."""
        self.problems.pop(url, None)
        self.problems[url] = problem


class HttpLane:
    """All writes of one wire; callable from any thread."""

    def __init__(self, connections: Connections, nodes: HttpNodes) -> None:
        self._connections = connections
        self._nodes = nodes
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._waiting: deque[_Write] = deque()
        self._open = 0
        self._open_bytes = 0
        self._not_before_s = 0.0
        self._gathering = Gathering()
        self._is_closed = False
        self._is_accepted = False
        """Whether the last batch had level ``accepted``; only used in the turn."""
        self._threads: list[threading.Thread] = []

    def submit(
        self, writes: Sequence[tuple[TxId, bytes]], level: str, copies: int, timeout_ms: int, apart: str = WAIT
    ) -> list[Future[Reply]]:
        """Submit writes in their order. Raises NotReady when too many are open, Unreachable after `close`."""
        terms, deadline_s = {"Brokerha-Ack": ack_text(level, copies)}, time.monotonic() + timeout_ms / 1000
        if apart != WAIT:
            terms["Brokerha-Apart"] = apart
        taken = [_Write(txid, body, terms, deadline_s) for txid, body in writes]
        size = sum(len(write.body) for write in taken)
        with self._changed:
            if self._is_closed:
                raise Closed
            if self._open + len(taken) > OPEN_LIMIT or self._open_bytes + size > OPEN_LIMIT_BYTES:
                raise NotReady(f"{self._open} writes with {self._open_bytes} bytes have no answer yet: wait for some")
            self._open += len(taken)
            self._open_bytes += size
            self._waiting.extend(taken)
            if not self._threads:
                self._start_threads()
            if len(self._waiting) == len(taken) or len(self._waiting) >= self._gathering.awaited:
                self._changed.notify()
        return [write.future for write in taken]

    def _start_threads(self) -> None:
        for number in range(CONNECTIONS):
            thread = threading.Thread(target=self._run, name=f"brokerha http writes {number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, timeout_s: float) -> None:
        """Wait for replies within the timeout, then end. Idempotent."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout_s)
            self._is_closed = True
            self._changed.notify_all()

    def end(self) -> None:
        """Complete the writes that are still open; the connections are closed by now."""
        for thread in self._threads:
            thread.join(1.0)
        with self._changed:
            left = list(self._waiting)
            self._waiting.clear()
        for write in left:
            self._give_up(write)

    # ---- the threads

    def _run(self) -> None:
        while True:
            with self._turn:
                batch = self._next_batch()
                if not batch:
                    return
                self._nodes.greet()
                url = self._nodes.choose() if self._may_move(batch) else self._nodes.current
                began_s = time.monotonic()
                response = self._begin(url, batch)
            if response is not None:
                self._finish(url, batch, response, began_s)

    def _may_move(self, batch: list[_Write]) -> bool:
        """Tell whether these writes can go to any node: all earlier ones have their position in the cluster's order."""
        was_accepted, self._is_accepted = self._is_accepted, batch[0].terms["Brokerha-Ack"] == ACCEPTED
        with self._changed:
            return not was_accepted and self._open == len(batch)

    def _next_batch(self) -> list[_Write]:
        """Return the next batch; empty when the lane is closed."""
        with self._changed:
            while True:
                self._expire()
                if self._is_closed:
                    return []
                now_s = time.monotonic()
                pause_s = max(self._not_before_s - now_s, self._gathering.hold_s(len(self._waiting), now_s))
                if self._waiting and pause_s <= 0:
                    return self._take()
                until_end_s = min((write.deadline_s for write in self._waiting), default=0.0) - now_s
                self._changed.wait(max(0.001, min(pause_s, SILENCE_S, until_end_s)) if self._waiting else None)

    def _take(self) -> list[_Write]:
        first = self._waiting.popleft()
        batch, size = [first], len(first.body)
        while self._waiting and len(batch) < BATCH_LIMIT:
            size += len(self._waiting[0].body)
            if self._waiting[0].terms != first.terms or size > BATCH_LIMIT_BYTES:
                break
            batch.append(self._waiting.popleft())
        self._gathering.left(len(batch))
        return batch

    def _expire(self) -> None:
        now = time.monotonic()
        if any(write.deadline_s <= now for write in self._waiting):
            late = [write for write in self._waiting if write.deadline_s <= now]
            self._waiting = deque(write for write in self._waiting if write.deadline_s > now)
            for write in late:
                self._give_up(write)

    def _begin(self, url: str, batch: list[_Write]) -> Exchange | None:
        """Send a batch; return the answer with its head read, or None when the batch must be sent again."""
        left_s = max(0.001, min(write.deadline_s for write in batch) - time.monotonic())
        headers = {"Content-Type": WRITES_TYPE, **batch[0].terms, "Brokerha-Timeout-Ms": str(max(1, round(left_s * 1000)))}
        content = encode_writes([(write.txid, write.body) for write in batch])
        wait_s = min(left_s + 1.0, SILENCE_S if len(self._nodes.urls) == 1 else HEAD_S)
        try:
            response = self._connections.send("POST", url, "/tx/batch", headers, content, min(left_s, 3.0), wait_s)
            if response.status == 200 and response.headers.get("content-type") == REPLIES_TYPE:
                return response
            body = response.content(time.monotonic() + wait_s)
        except NotConnected as error:
            self._again(url, batch, unreachable(url, error))
            return None
        except FAULTS as error:
            self._in_doubt(url, batch, unreachable(url, error))
            return None
        problem = error_of_answer(url, response.status, response.headers, body)
        if problem is None:
            problem = ProtocolError(f"{url} answers {response.status} to a batch, and no replies: it is no brokerha node")
        if response.status >= 500 and "brokerha-error" not in response.headers:
            # A gateway, or a fault of the node: the fate of the batch is unknown.
            self._in_doubt(url, batch, problem)
        else:
            self._refused(url, batch, problem)
        return None

    def _finish(self, url: str, batch: list[_Write], response: Exchange, began_s: float) -> None:
        """Read the replies to a batch."""
        missing: dict[TxId, list[_Write]] = {}
        for write in batch:
            missing.setdefault(write.txid, []).append(write)
        again: list[_Write] = []
        problem: BrokerhaError = Unreachable(f"{url} ended its answer early")
        try:
            self._read_replies(url, response, missing, again, began_s)
        except (*FAULTS, msgpack.UnpackException) as error:
            problem = unreachable(url, error)
        finally:
            response.close()
        unanswered = [write for writes in missing.values() for write in writes]
        for write in unanswered:
            write.may_be_there = True
        if not unanswered and not again:
            self._nodes.on_served(url)
            return
        if again:
            problem = again[0].problems.get(url, problem)
        # In the original order of the batch, which must hold within it.
        repeated = {id(write) for write in (*unanswered, *again)}
        self._again(url, [write for write in batch if id(write) in repeated], problem)

    def _read_replies(
        self, url: str, response: Exchange, missing: dict[TxId, list[_Write]], again: list[_Write], began_s: float
    ) -> None:
        unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=_REPLY_BYTES)
        size = len(missing)
        for piece in response.pieces(SILENCE_S):
            unpacker.feed(piece)
            for rows in unpacker:
                if rows and len(missing) == size:
                    self._nodes.on_written(url, time.monotonic() - began_s)
                with self._changed:
                    self._gathering.answered(len(rows), time.monotonic())
                for txid, status, lsn, error, reason in rows:
                    reply = Reply(0, txid, status, lsn, error, reason)
                    again.extend(write for write in missing.pop(txid, ()) if not self._settle(url, write, reply))

    def _settle(self, url: str, write: _Write, reply: Reply) -> bool:
        """Complete a write with its reply; return False when it is worth sending again."""
        if reply.status == REFUSED:
            error = error_named(reply.error, reply.reason)
            if self._is_worth_again(url, write, error):
                return False
            self._refuse(write, error)
            return True
        if reply.status == UNKNOWN:
            write.may_be_there = True
            self._nodes.on_failed(url)
            if write.deadline_s - time.monotonic() > WORTH_AGAIN_S:
                return False
        self._complete(write, reply)
        return True

    def _is_worth_again(self, url: str, write: _Write, error: BrokerhaError) -> bool:
        write.note(url, error)
        if isinstance(error, ReadOnly):
            write.refused_by.add(url)
            if len(write.refused_by) == len(self._nodes.urls):
                return False
        elif not may_pass(error):
            return False
        return write.deadline_s - time.monotonic() > WORTH_AGAIN_S

    def _refused(self, url: str, batch: list[_Write], error: BrokerhaError) -> None:
        """Handle a node's refusal of a whole batch."""
        again = []
        for write in batch:
            if self._is_worth_again(url, write, error):
                again.append(write)
            else:
                self._refuse(write, error)
        if again:
            self._again(url, again, error)

    def _in_doubt(self, url: str, batch: list[_Write], problem: BrokerhaError) -> None:
        for write in batch:
            write.may_be_there = True
        self._again(url, batch, problem)

    def _again(self, url: str, writes: list[_Write], problem: BrokerhaError) -> None:
        pause_s = self._nodes.on_failed(url)
        with self._changed:
            now = time.monotonic()
            is_closed = self._is_closed
            kept = [] if is_closed else [write for write in writes if write.deadline_s > now]
            for write in writes:
                write.note(url, problem)
            self._waiting.extendleft(reversed(kept))
            self._not_before_s = now + pause_s
            self._changed.notify()
        for write in writes:
            if is_closed or write.deadline_s <= now:
                self._give_up(write)

    # ---- ends of a write

    def _give_up(self, write: _Write) -> None:
        closed = Unreachable("the connection was closed before it was sent")
        self._refuse(write, of_all(write.problems) if write.problems else closed)

    def _refuse(self, write: _Write, error: BrokerhaError) -> None:
        # A temporary refusal by one node says nothing about a write that another node can have taken in.
        if write.may_be_there and not isinstance(error, InvalidRequest):
            self._complete(write, write_unknown(write.txid, str(error)))
        elif isinstance(error, Unreachable):
            self._complete(write, error)
        else:
            self._complete(write, Reply(0, write.txid, REFUSED, 0, type(error).__name__, str(error)))

    def _complete(self, write: _Write, end: Reply | BrokerhaError) -> None:
        with self._changed:
            self._open -= 1
            self._open_bytes -= len(write.body)
            if not self._open:
                self._changed.notify_all()
        if not write.future.set_running_or_notify_cancel():
            return
        if isinstance(end, Reply):
            write.future.set_result(end)
        else:
            write.future.set_exception(end)
