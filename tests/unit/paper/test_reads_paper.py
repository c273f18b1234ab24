"""One test for each sentence of the cluster paper about the way of a read through the workers.

As in test_workers_paper.py: docstrings quote a few words of the sentence.
"""

from __future__ import annotations

from brokerha.nodes.reads.routing import GiveUp, Routing, RoutingLimits, Send
from brokerha.nodes.reads.worker_order import WorkerFacts


def routing(**running: int) -> Routing:
    found = Routing(RoutingLimits())
    found.update([WorkerFacts(node, 10, reads, 0) for node, reads in running.items()], 0)
    return found


def sent(found: Routing) -> list[str]:
    return [step.worker for step in found.take() if isinstance(step, Send)]


def test_a_read_goes_to_the_worker_with_the_fewest_running_queries() -> None:
    """READ requests: chosen "based on the number of queries currently running on it"."""
    found = routing(w1=5, w2=1, w3=3)
    found.ask("query", 0, 1000, 0)
    assert sent(found) == ["w2"]


def test_the_queue_of_workers_is_rearranged_after_every_read() -> None:
    """READ requests: "a priority queue, which is rearranged after every read operation": the load is spread."""
    found = routing(w1=0, w2=0, w3=0)
    for _ in range(9):
        found.ask("query", 0, 1000, 0)
    workers = sent(found)
    assert {node: workers.count(node) for node in ("w1", "w2", "w3")} == {"w1": 3, "w2": 3, "w3": 3}


def test_a_read_that_fails_is_sent_to_one_worker_after_the_other() -> None:
    """READ requests: on an error "the request is resent to one of the other available nodes and so on"."""
    found = routing(w1=0, w2=1, w3=2)
    number = found.ask("query", 0, 1000, 0)
    tried = []
    for ms in range(3):
        step = found.take()[0]
        assert isinstance(step, Send)
        tried.append(step.worker)
        if len(tried) < 3:
            found.failed(step.attempt, "NotReady", "lost connection", ms)
        else:
            assert found.answered(step.attempt, ms) == number
    assert tried == ["w1", "w2", "w3"]
    # When none is left, the client is told what each said.
    found = routing(w1=0)
    found.ask("query", 0, 1000, 0)
    step = found.take()[0]
    assert isinstance(step, Send)
    found.failed(step.attempt, "NotReady", "lost connection", 1)
    assert isinstance(found.take()[0], GiveUp)
