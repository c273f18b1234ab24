"""Settings at run time in a whole cluster in this process: set at one master, in force everywhere, kept over restarts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.reserved.settings import TABLE, Row, packed
from brokerha.model.wire.client_wire import READ_TYPE
from brokerha.nodes.config.cluster import BackupEntry, ClusterConfig, MasterEntry, WorkerEntry, load_config
from brokerha.nodes.master.node import MasterNode
from brokerha.ports.transport import ClientMessage
from tests.support.waiting import until

WAIT_S = 20.0
FILE = """\
[cluster]
name = "orders"
broker = "embedded://{name}"

[[master]]
id = "m1"

[[master]]
id = "m2"

[[master]]
id = "m3"

[[worker]]
id = "w1"
master = "m1"

[[worker]]
id = "w2"
master = "m2"
"""
_numbers = itertools.count()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Three masters; the third has no worker."""
    path = tmp_path / "cluster.toml"
    path.write_text(FILE.format(name=f"settings-{next(_numbers)}"))
    with EmbeddedCluster(load_config(path, {})) as running:
        until(lambda: all(master.writable()[0] for master in running.masters.values()))
        yield running


def command(node: MasterNode, name: str, /, **arguments: Any) -> dict[str, Any]:
    return node.command(name, arguments, 10_000).result(15)


def setting(node: MasterNode, name: str) -> dict[str, Any]:
    return next(each for each in command(node, "settings")["settings"] if each["name"] == name)


def idle_ms(cluster: EmbeddedCluster) -> list[int]:
    return [master.config.sync.idle_round_ms for master in cluster.masters.values()]


@pytest.mark.parametrize("at", ["m1", "m3"])
def test_one_is_set_at_any_master_and_in_force_at_all(cluster: EmbeddedCluster, at: str) -> None:
    asked = {"name": "idle-round-ms", "value": " 750 ", "by": "anna", "from": "10.0.0.7"}
    answer = command(cluster.masters[at], "setting-set", **asked)
    row = answer["setting"]
    assert (row["value"], row["in_force"], row["source"], row["by"]) == ("750", "750", "cluster", "anna")
    assert row["from"] == f"10.0.0.7, by {at}"
    assert abs(row["at"] / 1e6 - time.time()) < WAIT_S
    assert answer["set_lsn"] > 0
    until(lambda: idle_ms(cluster) == [750] * 3)
    assert [setting(master, "idle-round-ms") for master in cluster.masters.values()] == [row] * 3
    unset = command(cluster.masters["m2"], "setting-unset", name="idle-round-ms")["setting"]
    assert (unset["value"], unset["source"], unset["from"]) == ("1000", "file", "a program, by m2")
    until(lambda: idle_ms(cluster) == [1000] * 3)


def test_workers_put_theirs_into_force(cluster: EmbeddedCluster) -> None:
    for name, value in (("heartbeat-ms", "400"), ("read-queue", "7"), ("scrub-items-per-s", "99"), ("store-patience-s", "44")):
        command(cluster.masters["m1"], "setting-set", name=name, value=value)

    def in_force(worker: Any) -> tuple[Any, ...]:
        follow = worker.runner.core.follower.config
        return (
            follow.heartbeat_ms,
            worker.reads._limits.queue,
            worker._scrubbing.limits.items_per_s,
            worker.guard.limits.store_patience_s,
        )

    until(lambda: [in_force(worker) for worker in cluster.workers.values()] == [(400, 7, 99, 44.0)] * 2)


def test_they_are_kept_and_those_for_a_restart_count_from_then(cluster: EmbeddedCluster) -> None:
    for name, value in (("tx-log-max-size", "2000"), ("post-window", "123"), ("read-threads", "3")):
        command(cluster.masters["m2"], "setting-set", name=name, value=value)
    until(lambda: all(setting(master, "read-threads")["value"] == "3" for master in cluster.masters.values()))
    assert setting(cluster.masters["m1"], "post-window")["in_force"] == "4000"
    assert cluster.masters["m1"].config.retention.max_size == 2000
    of_worker = cluster.workers["w1"]._settings
    assert of_worker is not None
    until(lambda: of_worker.restart_for() == ["post-window", "read-threads"])
    for node in ("m1", "w1", "m3"):
        cluster.stop_node(node)
        cluster.start_node(node)
        held = cluster.masters.get(node)
        if held is not None:
            assert (held.config.retention.max_size, held.config.sync.post_window) == (2000, 123)
            assert setting(held, "post-window")["in_force"] == "123"
    assert cluster.workers["w1"].reads._limits.threads == 3


def test_what_is_wrong_or_contradicts_others_is_refused_and_nothing_is_written(cluster: EmbeddedCluster) -> None:
    node = cluster.masters["m1"]
    for name, value, said in (
        ("idle-round-ms", "2s", "a whole number of milliseconds"),
        ("idle-round", "2", "did you mean idle-round-ms"),
        ("round-timeout-ms", "10000", "is not below max-peer-lag-s = 10: set round-timeout-ms below"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            command(node, "setting-set", name=name, value=value)
    assert all(each["source"] == "file" for each in command(node, "settings")["settings"])


def test_two_at_two_masters_never_make_a_pair_that_contradicts_itself(cluster: EmbeddedCluster) -> None:
    """Each alone is good, both together are not."""
    wishes = [
        cluster.masters["m1"].command("setting-set", {"name": "round-timeout-ms", "value": "7000"}, 10_000),
        cluster.masters["m2"].command("setting-set", {"name": "max-peer-lag-s", "value": "6"}, 10_000),
    ]
    refused = [wish.exception(15) for wish in wishes]
    assert [type(each) for each in refused if each is not None] == [InvalidRequest]
    assert all(command(master, "settings")["problem"] == "" for master in cluster.masters.values())


@pytest.mark.parametrize(
    "operation", [("put", TABLE, b"idle-round-ms", packed(Row("1", "", 1, ""))), ("delete", TABLE, b"idle-round-ms")]
)
def test_no_transaction_of_a_client_changes_one(cluster: EmbeddedCluster, operation: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest):
        cluster.masters["m1"].submit([operation])


def test_who_waits_is_answered_when_the_node_stops(cluster: EmbeddedCluster) -> None:
    cluster.stop_node("m1")
    cluster.stop_node("m2")
    wish = cluster.masters["m3"].command("setting-set", {"name": "idle-round-ms", "value": "750"}, 60_000)
    cluster.stop_node("m3")
    assert isinstance(wish.exception(15), NotReady)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """One master of two processes, with a worker."""
    config = ClusterConfig(
        name="pair",
        broker=f"embedded://settings-{next(_numbers)}",
        data=tmp_path,
        fail_over_after_ms=400,
        masters=(MasterEntry(id="m1"),),
        backups=(BackupEntry(id="m1b", master="m1"),),
        workers=(WorkerEntry(id="w1", master="m1"),),
    )
    with EmbeddedCluster(config) as running:
        until(lambda: acting(running) is not None and all(node.ready()[0] for node in running.processes.values()))
        yield running


def acting(cluster: EmbeddedCluster) -> Any:
    return next((node for node in cluster.processes.values() if node.role == "master" and node.writable()[0]), None)


def test_a_process_that_takes_over_has_them_in_force(pair: EmbeddedCluster) -> None:
    first = acting(pair)
    first.command("setting-set", {"name": "tx-log-max-size", "value": "2000"}, 10_000).result(15)
    other = next(node for node in pair.processes.values() if node is not first)
    until(lambda: other.config.master.retention.max_size == 2000)
    pair.stop_node(first.node_id)
    until(lambda: acting(pair) is other)
    assert other.master is not None
    assert other.master.config.retention.max_size == 2000
    pair.start_node(first.node_id)
    again = pair.processes[first.node_id]
    until(lambda: again.ready()[0])
    row = other.command("setting-unset", {"name": "tx-log-max-size"}, 10_000).result(15)["setting"]
    assert (row["value"], row["in_force"], row["from"]) == ("100000", "100000", "a program, by m1")
    until(lambda: again.config.master.retention.max_size == 100_000)


def test_an_app_cannot_say_that_it_is_somebody_else(cluster: EmbeddedCluster) -> None:
    """What the app says of itself does not count, but who published it by the word of the broker."""
    asked = {"name": "setting-set", "arguments": {"name": "read-queue", "value": "9", "by": "root", "from": "10.0.0.1"}}
    for user in ("", "orders.admin"):
        message = ClientMessage("1", b"", READ_TYPE, "", "app", "", "", user=user)
        with structlog.testing.capture_logs() as told:
            answer = cluster.masters["m1"].amqp._asked("command", asked, message).result(15)
        assert (answer["setting"]["by"], answer["setting"]["from"]) == (user, "AMQP, by m1")
        assert [(line["command"], line["user"], line["origin"]) for line in told if line["event"] == "command"] == [
            ("setting-set", user, "AMQP")
        ]
