"""Processes of a master in the cluster file: what is read, and what is wrong with a backup, with its place and its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.nodes.building import process_config
from brokerha.nodes.config.cluster import ClusterConfig, load_config

BACKUP = '[[backup]]\nid = "m1b"\nmaster = "m1"\n'
GOOD = (
    '[cluster]\nname = "orders"\nbroker = "amqp://127.0.0.1:5672/orders"\n\n\n[[master]]\nid = "m1"\n\n[[master]]\nid = "m2"\n\n'
    + BACKUP
    + '\n[[worker]]\nid = "w1"\nmaster = "m1"\n\n[[worker]]\nid = "w2"\nmaster = "m2"\n'
)


def load(folder: Path, keys: str = "", backups: str = BACKUP) -> ClusterConfig:
    path = folder / "cluster.toml"
    path.write_text(GOOD.replace("\n\n\n", f"\n{keys}\n\n", 1).replace(BACKUP, backups))
    return load_config(path, {})


def backups(count: int) -> str:
    return "\n".join(f'[[backup]]\nid = "b{number}"\nmaster = "m1"\n' for number in range(count))


def test_a_master_with_backups_waits_for_one_of_them_and_one_without_for_none(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert [(m.id, config.processes_of(m.id), config.sync_n_of(m.id)) for m in config.masters] == [
        ("m1", ("m1", "m1b"), 1),
        ("m2", ("m2",), 0),
    ]


def test_the_place_of_a_process_is_its_place_in_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, backups=backups(9))
    assert config.processes_of("m1") == ("m1", *(f"b{number}" for number in range(9)))
    of_core = config.master_config("m1")
    places = [process_config(config, process, of_core).role.place for process in config.processes_of("m1")]
    assert places == list(range(10))


def test_what_the_file_says_reaches_the_processes(tmp_path: Path) -> None:
    keys = 'sync-timeout-ms = 70\nsync-lost = "idle"\nfail-over = "manual"\nfail-over-after-ms = 800\nsync-n = 0'
    file = load(tmp_path, keys)
    config = process_config(file, "m1b", file.master_config("m1"))
    assert (config.process, config.role.master, config.role.sync_n) == ("m1b", "m1", 0)
    assert (config.sync_timeout_ms, config.goes_idle) == (70, True)
    assert (config.role.fail_over_after_ms, config.role.is_automatic) == (800, False)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (
            '[[backup]]\nid = "m1b"\nmaster = "m3"\n',
            '14: backup "m1b" belongs to "m3", which is no master of this file: write master = "m2"',
        ),
        ('[[backup]]\nid = "m1b"\n', '12: master is missing in [backup]: write master = "m1"'),
        (
            '[[backup]]\nid = "m2"\nmaster = "m1"\n',
            '13: node id "m2" stands at {path}:10 already: write an id that no other node of the cluster has',
        ),
        (backups(10), '48: "m1" has 10 backups: write at most 9'),
    ],
)
def test_a_wrong_backup_has_one_text_with_place_and_remedy(tmp_path: Path, section: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, backups=section)
    path = tmp_path / "cluster.toml"
    assert str(caught.value) == f"{path}:{text.format(path=path)}"
