"""What /metrics tells: proper Prometheus text, nothing that the table does not explain, and nothing in the table that nobody tells."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from brokerha.embedded import EmbeddedCluster
from brokerha.http.operating.families import FAMILIES, PREFIX, Family, exposition
from brokerha.model import states
from brokerha.model.numbers import Histogram
from brokerha.nodes.config.cluster import BackupEntry, ClusterConfig, MasterEntry, WorkerEntry
from brokerha.ports.front import Front
from brokerha.transports.rabbitmq.rejecting import OF_NODES
from tests.unit.http.asking import Node

ROOT = Path(__file__).resolve().parents[4]
WAIT_S = 60.0
NOT_ALWAYS = frozenset({
    "load_last_bytes", "load_last_seconds",  # After a snapshot was taken
    "scrub_looks_total", "scrub_last_lsn", "scrub_damage_total",  # Where a worker scrubs
    "log_stream_lsn",  # Not with embedded://
    "ignored_messages_total",  # After the first one
})  # fmt: skip
"""Families that a healthy cluster in one process need not tell."""
_numbers = itertools.count()
Told = dict[str, dict[str, Metric]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """What each node of a running cluster tells, read strictly: two masters, one of them with a backup, a worker each."""
    config = ClusterConfig(
        name="measured",
        broker=f"embedded://measured-{next(_numbers)}",
        data=tmp_path_factory.mktemp("measured"),
        masters=(MasterEntry(id="m1"), MasterEntry(id="m2")),
        backups=(BackupEntry(id="b1", master="m1"),),
        workers=(WorkerEntry(id="w1", master="m1"), WorkerEntry(id="w2", master="m2")),
    )
    with EmbeddedCluster(config) as cluster:
        fronts: dict[str, Front] = {**cluster.masters, **cluster.processes, **cluster.workers}
        assert sorted(fronts) == ["b1", "m1", "m2", "w1", "w2"]
        deadline = time.monotonic() + WAIT_S
        while not cluster.processes["m1"].metrics().get(("backup_ready", "b1")):
            assert time.monotonic() < deadline, "the backup was not ready in time"
            time.sleep(0.05)
        client = cluster.client("m1", "m2")
        client.put("t", b"k", b"v", timeout=WAIT_S)
        lsn = client.publish("orders", b"1", timeout=WAIT_S).lsn
        for worker in cluster.workers.values():
            worker.wait_for(lsn, 1, 30_000).result(WAIT_S)
        yield {name: _told(front) for name, front in fronts.items()}


def _told(front: Front) -> dict[str, Metric]:
    """Families by their whole name, after what the library's reader does not look at."""
    node = Node(cast("Any", front))
    node.get("/livez")
    found: dict[str, Metric] = {}
    for family in text_string_to_metric_families(node.get("/metrics").text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in found, f"in two places: {name}"
        keys = [(each.name, *each.labels.items()) for each in family.samples]
        assert len(keys) == len({*keys}) > 0, f"no samples, or one of them twice: {name}"
        assert family.type != "counter" or all(0 <= each.value < math.inf for each in family.samples), name
        found[name] = family
    return found


def test_every_number_of_a_running_cluster_is_in_the_table_with_its_type_and_labels(told: Told) -> None:
    for node, families in told.items():
        for name, family in families.items():
            known = FAMILIES.get(name.removeprefix(PREFIX))
            assert known is not None, f"{node} tells {name}: explain it in brokerha/http/operating/families.py"
            assert family.type == known.type, name
            assert family.documentation == known.meaning, name
            assert {tuple(label for label in each.labels if label != "le") for each in family.samples} == {known.labels}, name


def test_every_number_of_the_table_is_told_by_somebody(told: Told) -> None:
    names = {name.removeprefix(PREFIX) for families in told.values() for name in families}
    assert {*FAMILIES} - names <= NOT_ALWAYS
    # And a list of exceptions that knows only what exists
    assert {*FAMILIES} >= NOT_ALWAYS


def test_each_node_says_which_one_it_is_and_how_it_is(told: Told) -> None:
    for node, families in told.items():
        (sample,) = families["brokerha_node_info"].samples
        assert sample.labels["node"] == node
        (state,) = families["brokerha_state_info"].samples
        assert state.labels["state"] in states.ACTIONS


def test_a_write_is_seen_in_the_histograms(told: Told) -> None:
    def count_of(name: str, *nodes: str) -> float:
        full = f"{PREFIX}{name}_count"
        return sum(each.value for node in nodes for each in told[node][f"{PREFIX}{name}"].samples if each.name == full)

    assert count_of("commit_duration_seconds", "m1", "m2") == 2
    assert count_of("fsync_duration_seconds", "m1") >= 1
    assert count_of("fsync_duration_seconds", "m2") >= 1
    # The backup has confirmed the write, so it has written it.
    assert count_of("fsync_duration_seconds", "b1") >= 1


def test_counters_are_there_before_they_count(told: Told) -> None:
    # A counter that begins at 1 has not increased, for Prometheus.
    reasons = {each.labels["reason"]: each.value for each in told["m2"]["brokerha_rejected_messages_total"].samples}
    assert reasons["InvalidRequest"] == 0
    assert reasons["UnsupportedType"] == 0
    assert {each.labels["reason"] for each in told["b1"]["brokerha_rejected_messages_total"].samples} >= {*OF_NODES}
    assert [each.value for each in told["m2"]["brokerha_worker_out_of_sync_total"].samples] == [0]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_metric_is_called_what_prometheus_expects(name: str) -> None:
    family: Family = FAMILIES[name]
    assert name.endswith("_total") is (family.type == "counter")
    assert [*family.labels] == sorted(family.labels), "/metrics tells them in this order, and numbers_of gives them so"
    assert not name.endswith(("_ms", "_s", "_mb", "_us")), "seconds and bytes, written out"
    assert family.meaning
    assert "|" not in family.meaning + family.alarm, "it stands in a table"


def test_buckets_are_told_in_the_order_of_their_bounds() -> None:
    histogram = Histogram()
    for seconds in (0.0005, 0.02, 7.0, 3600.0):
        histogram.observe(seconds)

    (family,) = text_string_to_metric_families(exposition(histogram.numbers("commit_duration_seconds")).decode())

    assert [each.value for each in family.samples if each.name.endswith("_bucket")][-3:] == [3, 3, 4]
    assert family.samples[-1].value == 4


def test_the_length_of_a_queue_is_told_by_workers_and_shown_to_those_who_can_read_it(told: Told) -> None:
    (sample,) = told["w1"]["brokerha_queue_messages"].samples
    assert (sample.labels, sample.value) == ({"queue": "orders"}, 1)
    assert "brokerha_queue_messages" not in told["m1"]
