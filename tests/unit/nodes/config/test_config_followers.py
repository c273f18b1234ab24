"""The keys of the cluster file about followers: true or false, from file and environment, and who publishes changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import ClusterConfig, load_config

FILE = """\
[cluster]
name = "orders"
broker = "amqp://guest:guest@127.0.0.1:5672/orders"
{keys}
[[master]]
id = "m1"
[[master]]
id = "m2"
[[master]]
id = "m3"
broker = "amqp://guest:guest@127.0.0.2:5672/orders"
[[master]]
id = "m4"
broker = "amqp://guest:guest@127.0.0.2:5672/orders"
"""


def load(folder: Path, keys: str = "", environ: dict[str, str] | None = None) -> ClusterConfig:
    path = folder / "cluster.toml"
    path.write_text(FILE.format(keys=keys), encoding="utf-8")
    return load_config(path, environ or {})


def test_the_log_is_published_and_changes_are_not_unless_somebody_says_so(tmp_path: Path):
    config = load(tmp_path)
    assert (config.log_stream, config.publish_changes) == (True, False)
    assert not any(config.publishes_changes(master.id) for master in config.masters)


def test_the_first_master_of_each_broker_publishes_changes(tmp_path: Path):
    config = load(tmp_path, "publish-changes = true")
    assert [master.id for master in config.masters if config.publishes_changes(master.id)] == ["m1", "m3"]


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False)])
def test_the_environment_says_true_or_false(tmp_path: Path, text: str, value: bool):
    assert load(tmp_path, environ={"BROKERHA_CLUSTER_LOG_STREAM": text}).log_stream is value


@pytest.mark.parametrize(
    ("keys", "environ", "words"),
    [
        ('log-stream = "yes"', {}, 'log-stream is "yes", and must be true or false: write log-stream = true'),
        ("log-stream = 1", {}, "log-stream is 1, and must be true or false: write log-stream = true"),
        (
            "",
            {"BROKERHA_CLUSTER_PUBLISH_CHANGES": "on"},
            'publish-changes is "on", and must be true or false: write publish-changes = false',
        ),
        (
            "log-stream = false\npublish-changes = true",
            {},
            "cluster.toml:5: publish-changes needs log-stream: write log-stream = true, or leave both out",
        ),
    ],
)
def test_what_is_neither_true_nor_false_or_contradicts_itself_is_refused(
    tmp_path: Path, keys: str, environ: dict[str, str], words: str
):
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, keys, environ)
    assert words in str(caught.value)


def test_a_master_without_workers_is_asked_last_and_leaves_writes_and_changes_to_those_that_have_some(tmp_path: Path):
    workers = "".join(f'[[worker]]\nid = "w{n}"\nmaster = "m{n}"\n' for n in (2, 4))
    path = tmp_path / "cluster.toml"
    path.write_text(FILE.format(keys="publish-changes = true") + workers, encoding="utf-8")
    config = load_config(path, {})
    assert [master.id for master in config.masters_to_ask] == ["m2", "m4", "m1", "m3"]
    # m1 and m2 share a broker, m3 and m4 another one
    assert [master.id for master in config.masters if config.publishes_changes(master.id)] == ["m2", "m4"]
    assert [master.id for master in config.masters if config.leaves_writes(master.id)] == ["m1", "m3"]


def test_where_no_master_has_workers_all_take_what_any_may_take(tmp_path: Path):
    config = load(tmp_path)
    assert not config.workers
    assert not any(config.leaves_writes(master.id) for master in config.masters)
    assert [master.id for master in config.masters_to_ask] == ["m1", "m2", "m3", "m4"]
