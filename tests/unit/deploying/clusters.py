"""Cluster files that the tests of deployment files share."""

from __future__ import annotations

from pathlib import Path

from brokerha.nodes.config.cluster import ClusterConfig, load_config

ONE_SITE = """\
[cluster]
name = "orders"
broker = "amqp://guest:guest@rabbitmq:5672/orders"
[[master]]
id = "m1"
http = "10.0.0.1:7201"
[[backup]]
id = "m1s"
master = "m1"
http = "10.0.0.2:7202"
[[worker]]
id = "w1"
master = "m1"
http = "10.0.0.1:7301"
[[worker]]
id = "w2"
master = "m1"
"""
TWO_SITES = """\
[cluster]
name = "orders"
broker = "amqp://rabbit-1/orders"
[[master]]
id = "m1"
[[master]]
id = "m2"
broker = "amqps://rabbit-2:5671/orders?cacertfile=ca.pem"
[[worker]]
id = "w1"
master = "m1"
[[worker]]
id = "w2"
master = "m2"
"""
EMBEDDED = '[cluster]\nname = "a"\nbroker = "embedded://"\n[[master]]\nid = "m1"\n'


def cluster(text: str, folder: Path) -> ClusterConfig:
    """The cluster of a file in this folder."""
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, {})
