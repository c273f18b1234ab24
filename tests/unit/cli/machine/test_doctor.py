"""`brokerha doctor`: the cluster and its brokers made up, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from brokerha.cli.machine.doctor import examine
from brokerha.doctor import cluster_facts
from brokerha.doctor.facts import BrokerFact, Wanted
from brokerha.nodes.config.cluster import ClusterConfig, load_config
from tests.unit.doctor.test_judging import BROKER

FILE = """\
[cluster]
name = "orders"
broker = "amqp://h/orders"
[[master]]
id = "m1"
[[master]]
id = "m2"
"""


def test_what_is_the_same_for_all_users_of_a_broker_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.toml").write_text(FILE)
    for node in ("m1", "m2"):
        (tmp_path / f"{node}.url").write_text(f"amqp://orders.{node}:x@h/orders")

    def facts(_: ClusterConfig, url: str, nodes: tuple[str, ...], __: Mapping[str, str]) -> list[tuple[BrokerFact, Wanted]]:
        return [(replace(BROKER, user=f"orders.{nodes[0]}"), Wanted())]

    monkeypatch.setattr(cluster_facts, "broker_facts", facts)
    found, _ = examine(load_config(tmp_path / "cluster.toml", {}), [], {}, tmp_path / "deploy", tmp_path)
    told = [each.what for each in found]
    assert [told.count(f"{BROKER.product} {BROKER.version}"), sum("may publish where" in each for each in told)] == [1, 2]
    assert len(found) == len(set(found))


def test_what_is_wrong_with_two_brokers_is_told_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.toml").write_text(FILE + 'broker = "amqp://h2/orders"\n')

    def facts(_: ClusterConfig, url: str, nodes: tuple[str, ...], __: Mapping[str, str]) -> list[tuple[BrokerFact, Wanted]]:
        return [(replace(BROKER, nodes=nodes, where=url, version="3.9.1"), Wanted())]

    monkeypatch.setattr(cluster_facts, "broker_facts", facts)
    found, _ = examine(load_config(tmp_path / "cluster.toml", {}), [], {}, tmp_path / "deploy", None)
    assert [each.subject for each in found if each.what.startswith("RabbitMQ 3.9.1")] == ["broker version"] * 2
