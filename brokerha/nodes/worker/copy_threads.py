"""The threads in which a worker's copy is worked on, so that its loop and its heartbeats go on meanwhile.

    store thread    executes and applies: the one thread that writes the store
    copy thread     snapshots, chunks, loads: in the order in which they were decided

Both hand their answers to the loop and wake it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from brokerha.model.ready import (
    CopyDecision,
    Decision,
    LoadFailed,
    SnapshotMade,
    StoreAnswer,
    StoreDecision,
    StoreFailed,
)
from brokerha.nodes.worker.copying import carry_out_copy
from brokerha.nodes.worker.runner import carry_out
from brokerha.nodes.worker.work_thread import WorkThread
from brokerha.ports.copies import WorkerCopy


def _nothing() -> None:
    """Nobody wants to know."""


class CopyThreads:
    """`StoreDoor` of a worker."""

    def __init__(
        self, copy: WorkerCopy, name: str, wake: Callable[[], None], on_given: Callable[[], None] = _nothing
    ) -> None:
        """``on_given`` is called, from the copy thread, when a snapshot was made for somebody."""
        self._copy = copy
        self._on_given = on_given
        self._wake = wake
        self._done: deque[StoreAnswer] = deque()
        self._store = WorkThread(f"{name} store", self._on_store)
        self._beside = WorkThread(f"{name} copy", self._on_copy)

    def begin(self, decision: Decision) -> None:
        """Hand a decision over."""
        if isinstance(decision, StoreDecision):
            self._store.put(decision)
        else:
            self._beside.put(decision)

    def finished(self) -> list[StoreAnswer]:
        """Answers since the last call."""
        answers = []
        while self._done:
            answers.append(self._done.popleft())
        return answers

    @property
    def store_busy_s(self) -> float:
        """How long the store thread has been at its present decision; 0 when it has none."""
        return self._store.busy_s

    @property
    def idle_s(self) -> float:
        """How long either thread has been at its present decision if it hardly computed meanwhile; 0 if it did, or has none."""
        return max(self._store.idle_s, self._beside.idle_s)

    def close(self, timeout_s: float) -> None:
        """Finish what is under way, take no more."""
        self._store.close(timeout_s)
        self._beside.close(timeout_s)

    def _on_store(self, decision: StoreDecision) -> None:
        try:
            answer: StoreAnswer = carry_out(self._copy, decision)
        except Exception as error:  # noqa: BLE001  (a fault of the store halts this worker, with its reason)
            answer = StoreFailed(f"{type(error).__name__}: {error}")
        self._answer(answer)

    def _on_copy(self, decision: CopyDecision) -> None:
        try:
            answer = carry_out_copy(self._copy, decision)
        except Exception as error:  # noqa: BLE001  (a fault in a load ends the load, not the worker)
            answer = LoadFailed(f"{type(error).__name__}: {error}")
        if answer is not None:
            self._answer(answer)
        if isinstance(answer, SnapshotMade) and answer.files:
            self._on_given()

    def _answer(self, answer: StoreAnswer) -> None:
        self._done.append(answer)
        self._wake()
