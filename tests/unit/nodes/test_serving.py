"""How a node in the foreground ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.nodes import serving
from brokerha.nodes.serving import serve
from brokerha.nodes.worker.node import WorkerNode


class Stub(WorkerNode):
    """A worker without anything in it; ``reason`` is why it has to be started again."""

    def __init__(self, reason: str, stuck: int, *, is_urgent: bool = False) -> None:
        self.is_urgent = is_urgent
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

    @property
    def must_leave_at_once(self) -> bool:
        return self.is_urgent

    def hurry(self) -> None:
        self.told.append("hurry")

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


def test_a_node_whose_broker_is_another_clusters_ends_as_with_a_wrong_cluster_file() -> None:
    node = Stub("", stuck=0)
    node.loop = SimpleNamespace(is_running=False, fault=ConfigurationError("the virtual host belongs to another cluster"))
    with pytest.raises(ConfigurationError, match="belongs to another cluster"):
        serve(node, None)
    assert node.told == ["start", "stop"]


def test_a_signal_ends_a_worker_in_order() -> None:
    node, left = Stub("", stuck=0), list[int]()
    threading.Timer(0.05, signal.raise_signal, (signal.SIGTERM,)).start()
    assert serve(node, None, left.append) == 0
    assert (node.told, left) == (["start", "hurry", "stop"], [])


def test_a_second_signal_while_the_first_is_being_told_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # As the lock of the log does, which no handler can take that interrupts its holder; timeout(1) sends SIGTERM twice.
    writing, told = threading.Lock(), list[str]()

    def info(event: str, **_fields: object) -> None:
        assert writing.acquire(timeout=5), "the log waits for itself"
        told.append(event)
        if told.count("stopping") == 1 and event == "stopping":
            signal.raise_signal(signal.SIGTERM)
        writing.release()

    monkeypatch.setattr(serving, "log", SimpleNamespace(info=info))
    node = Stub("", stuck=0)
    threading.Timer(0.05, signal.raise_signal, (signal.SIGTERM,)).start()
    assert serve(node, None) == 0
    assert node.told[-1] == "stop"


def test_a_worker_that_runs_out_of_memory_is_left_without_any_order() -> None:
    node, left = Stub("the process takes 9 MiB of 8 MiB", stuck=0, is_urgent=True), list[int]()
    assert serve(node, None, left.append) == 2
    assert (node.told, left) == (["start"], [2])


def test_a_stop_that_never_comes_back_does_not_hold_up_the_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LEAVE_S", 0.01)
    was_left = threading.Event()
    left = list[int]()

    class Hanging(Stub):
        def stop(self, timeout_s: float = 10.0) -> None:
            assert was_left.wait(20), "nobody ended the process"

    def leave(code: int) -> None:
        left.append(code)
        was_left.set()

    serve(Hanging("2 reads go on although damage was found", stuck=0), None, leave)
    assert left[0] == 2
