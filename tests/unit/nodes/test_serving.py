"""How a node in the foreground ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from brokerha.nodes.serving import serve
from brokerha.nodes.worker_node import WorkerNode


class Stub(WorkerNode):
    """A worker without anything in it; ``reason`` is why it has to be started again."""

    def __init__(self, reason: str, stuck: int) -> None:
        self.reason = reason
        self.told: list[str] = []
        self.loop: Any = SimpleNamespace(is_running=True, fault=None)
        self.reads: Any = SimpleNamespace(stuck=stuck)

    @property
    def node_id(self) -> str:
        return "w1"

    @property
    def must_restart(self) -> str:
        return self.reason

    def start(self) -> None:
        self.told.append("start")

    def stop(self, timeout_s: float = 10.0) -> None:
        self.told.append("stop")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The handlers of the test run come back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_worker_whose_reads_do_not_end_stops_with_the_code_that_starts_it_again() -> None:
    node, left = Stub("8 reads go on", stuck=8), list[int]()
    assert serve(node, None, left.append) == 2
    assert node.told == ["start", "stop"]
    # The interpreter must not take itself down under the threads that still run.
    assert left == [2]


def test_a_signal_ends_a_worker_in_order() -> None:
    node, left = Stub("", stuck=0), list[int]()
    threading.Timer(0.05, signal.raise_signal, (signal.SIGTERM,)).start()
    assert serve(node, None, left.append) == 0
    assert (node.told, left) == (["start", "stop"], [])
