"""One test for each sentence of the papers about what is specified from the management console."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.model.reserved.settings import Row
from brokerha.nodes.config.cluster import ClusterConfig, load_config
from brokerha.nodes.settings import NodeSettings

FILE = '[cluster]\nname = "orders"\nbroker = "embedded://"\ntx-log-max-size = 5000\n\n[[master]]\nid = "m1"\n'


@pytest.fixture
def file(tmp_path: Path) -> ClusterConfig:
    (tmp_path / "cluster.toml").write_text(FILE)
    return load_config(tmp_path / "cluster.toml", {})


def test_the_time_until_a_split_is_a_parameter_of_the_console(file: ClusterConfig) -> None:
    """Split brain: "this timeout is a parameter that can be specified from the management console". Here it is max-peer-lag-s, at once at all."""
    settings, core = NodeSettings(file, "m1"), file.master_config("m1")
    settings.govern(core, lambda running: running.master_config("m1"))
    before_ms = core.sync.lag_of("simple")
    settings.learn(7, {"max-peer-lag-s": Row("45", "anna", 1, "10.0.0.7, by m1")})
    assert (before_ms, core.sync.lag_of("simple"), core.sync.lag_of("smart")) == (10_000, 45_000, 45_000)


def test_how_long_the_log_is_and_for_how_long_is_set_in_the_console(file: ClusterConfig) -> None:
    """Log: "You can configure how many transaction you want the master to keep and for how long with the parameters ... in the JMX console"."""
    settings, core = NodeSettings(file, "m1"), file.master_config("m1")
    settings.govern(core, lambda running: running.master_config("m1"))
    settings.learn(7, {"tx-log-max-size": Row("9000", "", 1, ""), "tx-log-max-depth-h": Row("0.5", "", 1, "")})
    assert (core.retention.max_size, core.retention.max_depth_us) == (9000, 30 * 60 * 1_000_000)


def test_a_parameter_is_in_the_console_or_in_the_configuration_file(file: ClusterConfig) -> None:
    """Strategies: "Another option to change this parameter is via the configuration file". Here the file says what counts as long as nobody set it."""
    settings = NodeSettings(file, "m1")
    settings.learn(7, {"tx-log-max-size": Row("9000", "anna", 1, "10.0.0.7, by m1")})
    assert settings.report_of("tx-log-max-size")["value"] == "9000"
    settings.learn(8, {"tx-log-max-size": Row(None, "anna", 2, "10.0.0.7, by m1")})
    assert settings.report_of("tx-log-max-size")["value"] == "5000"
