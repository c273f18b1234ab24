"""The cluster file: what is read, and what the environment changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import ClusterConfig, load_config
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.sync.config import SyncConfig

GOOD = """\
[cluster]
name = "orders"
broker = "amqp://guest:guest@127.0.0.1:5672/orders"
data = "var/orders"

[[master]]
id = "m1"
http = "127.0.0.1:7201"

[[master]]
id = "m2"
http = "127.0.0.1:7202"
broker = "amqp://guest:guest@127.0.0.2:5672/orders"

[[worker]]
id = "w1"
master = "m1"
http = "127.0.0.1:7301"

[[worker]]
id = "w2"
master = "m2"
"""
ROOT = Path(__file__).parents[4]


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> ClusterConfig:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return load_config(path, environ or {})


# ---- what is read


def test_a_good_file_gives_nodes_roles_and_defaults(tmp_path):
    config = load(tmp_path, GOOD)
    assert config.name == "orders"
    assert config.roles == {"m1": "master", "m2": "master", "w1": "worker", "w2": "worker"}
    assert config.node("w2").http == ""
    assert config.workers_of("m1") == ("w1",)
    assert config.master_of("w2") == "m2"
    assert config.http_urls() == {"m1": "http://127.0.0.1:7201", "m2": "http://127.0.0.1:7202", "w1": "http://127.0.0.1:7301"}
    assert not config.is_embedded


def test_defaults_are_those_of_the_parts(tmp_path):
    config = load(tmp_path, GOOD)
    assert config.sync_config("m1") == SyncConfig(node="m1", members=("m1", "m2"))
    assert config.feed_config("m2") == FeedConfig(workers=("w2",))
    assert config.worker_config("w1") == WorkerConfig(node="w1", master="m1")


def test_every_key_of_the_cluster_reaches_the_part_that_it_is_for(tmp_path):
    keys = """\
split-recovery = "Quorum"
acknowledge = "MAJORITY"
max-peer-lag-s = 4.5
round-timeout-ms = 300
idle-round-ms = 700
heartbeat-ms = 200
dead-after-ms = 900
post-gap-ms = 2
retransmit-ms = 111
fetch-after-ms = 22
post-window = 333
queue-window = 4444
accept-limit = 55
apply-limit = 66
"""
    config = load(tmp_path, GOOD.replace('data = "var/orders"\n', keys))
    assert config.sync_config("m2") == SyncConfig(
        node="m2",
        members=("m1", "m2"),
        acknowledge="majority",
        split_recovery="quorum",
        round_timeout_ms=300,
        idle_round_ms=700,
        max_peer_lag_ms=4500,
        post_gap_ms=2,
        retransmit_ms=111,
        fetch_after_ms=22,
        post_window=333,
        queue_window=4444,
    )
    assert config.feed_config("m1").dead_after_ms == 900
    assert config.worker_config("w1").heartbeat_ms == 200
    assert config.master_config("m1").accept_limit == 55
    assert config.master_config("m1").apply_limit == 66


@pytest.mark.parametrize("word", ["none", "Simple", "SMART"])
def test_a_strategy_for_splits_may_be_written_in_any_case(tmp_path, word):
    keys = f'split-recovery = "{word}"\nacknowledge = "All"\n'
    config = load(tmp_path, GOOD.replace('data = "var/orders"\n', keys)).sync_config("m1")
    assert config.split_recovery == word.lower()


def test_data_counts_from_the_folder_of_the_file(tmp_path):
    assert load(tmp_path, GOOD).data_directory("w1") == tmp_path / "var/orders/w1"
    absolute = GOOD.replace("var/orders", "/srv/data")
    assert load(tmp_path, absolute).data_directory("m1") == Path("/srv/data/m1")
    without = GOOD.replace('data = "var/orders"\n', "")
    assert load(tmp_path, without).data_directory("m1") == tmp_path / "var/orders/m1"


def test_a_worker_uses_the_broker_of_its_master(tmp_path):
    config = load(tmp_path, GOOD)
    assert "127.0.0.1" in config.broker_of("w1")
    assert "127.0.0.2" in config.broker_of("m2")
    assert "127.0.0.2" in config.broker_of("w2")


def test_the_password_is_not_shown(tmp_path):
    assert "guest" not in repr(load(tmp_path, GOOD))


def test_a_node_that_is_not_in_the_file_is_named_with_the_nearest_one(tmp_path):
    config = load(tmp_path, GOOD)
    with pytest.raises(ConfigurationError, match=r'there is no node "m12": write m'):
        config.node("m12")


def test_a_backup_is_read(tmp_path):
    config = load(tmp_path, GOOD + '\n[[backup]]\nid = "m1b"\nmaster = "m1"\n')
    assert config.roles["m1b"] == "backup"


# ---- the environment


def test_the_environment_goes_before_the_file(tmp_path):
    environ = {
        "BROKERHA_CLUSTER_ROUND_TIMEOUT_MS": "800",
        "BROKERHA_CLUSTER_MAX_PEER_LAG_S": "2.8",
        "BROKERHA_MASTER_M1_HTTP": "0.0.0.0:9",
        "BROKERHA_URL": "http://127.0.0.1:7201",
        "BROKERHA_MASTER_SERVICE_HOST": "10.0.0.1",
        "BROKERHA_CLUSTER_PORT_5672_TCP": "tcp://10.0.0.1:5672",
    }
    config = load(tmp_path, GOOD, environ)
    assert (config.round_timeout_ms, config.max_peer_lag_s) == (800, 2.8)
    assert config.http_urls()["m1"] == "http://127.0.0.1:9"


def test_a_secret_comes_from_a_file_without_its_line_break(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("amqp://u:p@h/v\n")
    without = GOOD.replace('broker = "amqp://guest:guest@127.0.0.1:5672/orders"\n', "")
    assert load(tmp_path, without, {"BROKERHA_CLUSTER_BROKER_FILE": str(secret)}).broker == "amqp://u:p@h/v"
