"""A wire that keeps what it is handed and answers when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Condition
from typing import Any

from brokerha.model.requests import WAIT, Reply
from brokerha.ports.front import ReadOutcome


class FakeWire:
    """Answers each write with ``answer``; keeps it open when there is none."""

    def __init__(self, answer: Callable[[str, bytes], Reply | Exception] | None = None) -> None:
        self.answer = answer
        self.batches: list[list[tuple[str, bytes]]] = []
        self.terms: list[tuple[str, int, int]] = []
        self.apart: list[str] = []
        self.open: list[tuple[str, Future[Reply]]] = []
        self.most_open = 0
        self.reads: list[tuple[str, str, dict[str, Any], int, int]] = []
        self.read_answer: ReadOutcome | Exception | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.changed = Condition()
        self.is_closed = False

    def submit(
        self, writes: Sequence[tuple[str, bytes]], level: str, copies: int, timeout_ms: int, apart: str = WAIT
    ) -> list[Future[Reply]]:
        futures: list[Future[Reply]] = [Future() for _ in writes]
        with self.changed:
            self.batches.append(list(writes))
            self.terms.append((level, copies, timeout_ms))
            self.apart.append(apart)
            if self.answer is None:
                self.open.extend((txid, future) for (txid, _), future in zip(writes, futures, strict=True))
                self.most_open = max(self.most_open, len(self.open))
            self.changed.notify_all()
        for (txid, body), future in zip(writes, futures, strict=True):
            if self.answer is not None:
                _complete(future, self.answer(txid, body))
        return futures

    def reply(self, status: str = "applied", lsn: int = 1) -> None:
        """Answer the oldest open write."""
        with self.changed:
            txid, future = self.open.pop(0)
        _complete(future, Reply(0, txid, status, lsn))

    def wait_for_open(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.open) >= count, 5)

    def read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: int, timeout_ms: int) -> Future[ReadOutcome]:
        self.reads.append((kind, name, arguments, min_lsn, timeout_ms))
        future: Future[ReadOutcome] = Future()
        if isinstance(self.read_answer, Exception):
            future.set_exception(self.read_answer)
        elif self.read_answer is not None:
            future.set_result(self.read_answer)
        return future

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        self.asked.append((what, arguments))
        return {"what": what}

    def close(self) -> None:
        self.is_closed = True


def _complete(future: Future[Reply], end: Reply | Exception) -> None:
    if isinstance(end, Exception):
        future.set_exception(end)
    else:
        future.set_result(end)
