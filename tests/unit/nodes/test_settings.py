"""Settings at run time at one node: what is in force, what waits for its next start, and what it knows when it starts again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from brokerha.model.reserved.settings import SETTINGS, Row
from brokerha.nodes.config.cluster import ClusterConfig, load_config, sections
from brokerha.nodes.settings import NEVER, NodeSettings, put_in_force, rows_of

FILE = """\
[cluster]
name = "orders"
broker = "embedded://"
tx-log-max-size = 5000
read-threads = 2

[[master]]
id = "m1"

[[worker]]
id = "w1"
master = "m1"
"""


@pytest.fixture
def file(tmp_path: Path) -> ClusterConfig:
    (tmp_path / "cluster.toml").write_text(FILE)
    return load_config(tmp_path / "cluster.toml", {})


def row(value: str | None) -> Row:
    return Row(value, "anna", 7, "127.0.0.1, by m1")


def of(settings: NodeSettings, name: str) -> tuple[str, str, str]:
    report = settings.report_of(name)
    return report["value"], report["in_force"], report["source"]


def test_every_setting_at_run_time_is_one_of_the_cluster_file_and_no_other():
    keys = sections()["cluster"]
    assert {name for name, key in keys.items() if key.is_live is not None} == SETTINGS.keys()
    for name, limits in SETTINGS.items():
        assert (keys[name].type, keys[name].unit, keys[name].is_live) == (limits.type, limits.unit, limits.is_live), name
        assert keys[name].checked(keys[name].default, name) == keys[name].default


def test_a_live_one_reaches_the_configurations_that_parts_hold(file: ClusterConfig):
    settings = NodeSettings(file, "m1")
    held = file.master_config("m1")
    settings.govern(held, lambda running: running.master_config("m1"))
    of_sync, of_log = held.sync, held.retention
    settings.learn(4, {"idle-round-ms": row("2500"), "tx-log-max-size": row("9000")})
    assert (of_sync.idle_round_ms, of_sync.heard_ms, of_log.max_size) == (2500, 3000, 9000)
    assert of(settings, "idle-round-ms") == ("2500", "2500", "cluster")
    settings.learn(5, {"idle-round-ms": row(None), "tx-log-max-size": row("9000")})
    assert (of_sync.idle_round_ms, of_log.max_size) == (1000, 9000)
    assert of(settings, "idle-round-ms") == ("1000", "1000", "file")


def test_the_others_wait_for_the_next_start(file: ClusterConfig, tmp_path: Path):
    settings = NodeSettings(file, "w1", tmp_path / "w1")
    assert (settings.lsn, settings.started.read_threads) == (NEVER, 2)
    settings.learn(4, {"read-threads": row("8"), "scrub-every-s": row("30")})
    assert of(settings, "read-threads") == ("8", "2", "cluster")
    assert settings.restart_for() == ["read-threads"]
    again = NodeSettings(file, "w1", tmp_path / "w1")
    assert (again.started.read_threads, again.started.scrub_every_s) == (8, 30.0)
    assert (again.restart_for(), again.lsn) == ([], NEVER)
    again.learn(5, {"scrub-every-s": row("30")})
    assert (of(again, "read-threads"), again.restart_for()) == (("2", "8", "file"), ["read-threads"])


def test_what_contradicts_the_rest_is_not_put_into_force(file: ClusterConfig):
    settings = NodeSettings(file, "m1")
    assert "is not below max-peer-lag-s" in settings.problem_with("round-timeout-ms", "20000")
    assert "tx-log-hard-limit" in settings.problem_with("tx-log-hard-limit", "1000")
    assert "heartbeats" in settings.problem_with("heartbeat-ms", "4000")
    assert "log-stream" in settings.problem_with("publish-changes", "true") or file.log_stream
    held = file.master_config("m1")
    settings.govern(held, lambda running: running.master_config("m1"))
    settings.learn(4, {"round-timeout-ms": row("20000"), "idle-round-ms": row("2500")})
    assert "is not below max-peer-lag-s" in settings.problem
    assert held.sync.idle_round_ms == 1000
    settings.learn(5, {"round-timeout-ms": row("20000"), "idle-round-ms": row("2500"), "max-peer-lag-s": row("60")})
    assert (settings.problem, held.sync.round_timeout_ms, held.sync.idle_round_ms) == ("", 20000, 2500)


def test_a_kept_file_that_is_broken_is_no_obstacle(file: ClusterConfig, tmp_path: Path):
    folder = tmp_path / "w1"
    NodeSettings(file, "w1", folder).learn(4, {"read-threads": row("8")})
    for content in (b"", b"{", b"[]", b"\xff", b'{"read-threads": 3, "no-such": {"at": 1}}'):
        (folder / "settings.json").write_bytes(content)
        assert NodeSettings(file, "w1", folder).started == file


def test_what_a_newer_version_knows_is_left_out():
    told = {"read-threads": {"at": 1, "by": "", "from": "", "value": "8"}, "no-such": {"at": 1, "by": "", "from": "", "value": "8"}}
    assert rows_of(json.loads(json.dumps(told))) == {"read-threads": Row("8", "", 1, "")}
    with pytest.raises(ValueError, match="no object"):
        rows_of([])


def test_a_change_is_told_once(file: ClusterConfig):
    settings, told = NodeSettings(file, "m1"), []
    settings.on_change = lambda: told.append(settings.lsn)
    for lsn in (3, 4, 5):
        settings.learn(lsn, {"idle-round-ms": row("2500")})
    assert (told, settings.lsn) == ([3], 5)


def test_everything_that_a_configuration_consists_of_is_taken_over(file: ClusterConfig):
    held = file.master_config("m1")
    wanted = dataclasses.replace(file, max_peer_lag_s=50, tx_timeout_s=5, dead_after_ms=9000, apply_limit=7).master_config("m1")
    put_in_force(held, wanted)
    assert held == wanted
