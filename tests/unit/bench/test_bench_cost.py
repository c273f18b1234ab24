"""What a bench says of the cost of a write, from what nodes tell at /metrics."""

from __future__ import annotations

import httpx2
import pytest

from brokerha.http.operating.families import numbers_of
from tests.bench.writes import cost_of, counted
from tests.unit.client.serving import serving
from tests.unit.http.fake_front import FakeFront

BEFORE = {("masters", "cpu_seconds_total", "loop"): 1.0, ("masters", "turns_total", ""): 10.0}
AFTER = {
    ("masters", "cpu_seconds_total", "loop"): 1.5,
    ("masters", "cpu_seconds_total", "http"): 0.1,
    ("workers", "cpu_seconds_total", "store"): 0.4,
    ("masters", "turns_total", ""): 510.0,
    ("masters", "transport_total", "sent"): 2000.0,
    ("masters", "transport_total", "received"): 9000.0,
}


def test_a_cost_is_what_grew_for_each_write() -> None:
    cost = cost_of(BEFORE, AFTER, 1000)
    assert cost is not None
    assert cost.cpu_us["masters"] == pytest.approx({"loop": 500, "http": 100})
    assert cost.total_us == pytest.approx(1000)
    assert (cost.turns, cost.messages) == pytest.approx((0.5, 2.0))
    assert cost.sentence() == (
        "a write: masters 600 us (loop 500, http 100); workers 400 us (store 400); 0.50 turns, 2.00 messages"
    )


def test_without_counters_or_writes_there_is_none() -> None:
    assert cost_of({}, {}, 10) is None
    assert cost_of(BEFORE, AFTER, 0) is None


def test_counters_are_sums_over_the_nodes_of_a_role() -> None:
    with serving(FakeFront(), FakeFront(node_id="m2"), FakeFront("worker", "w1")) as doors:
        told = [numbers_of(httpx2.get(f"{door.url}/metrics").text) for door in doors]
    found = counted(dict(zip(("m1", "m2", "w1"), told, strict=True)))
    for role in ("masters", "workers"):
        assert found[role, "cpu_seconds_total", "other"] >= 0
        assert found[role, "cpu_seconds_total", "main"] > 0
