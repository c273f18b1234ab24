"""A master whose backups are taken out of the cluster file begins alone only if it cannot lack anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.model.errors import ConfigurationError
from brokerha.model.records import Started, ViewStarted
from brokerha.nodes.building import open_master
from brokerha.nodes.config.cluster import ClusterConfig, load_config


def cluster(tmp_path: Path, *views: int, promised: int = 0) -> ClusterConfig:
    path = tmp_path / "orders.toml"
    path.write_text('[cluster]\nname = "orders"\nbroker = "embedded://alone"\ndata = "data"\n[[master]]\nid = "m1"\n')
    config = load_config(path, {})
    journal = Log(FileDisk(config.data_directory("m1")), "orders", "m1")
    journal.append([Started(1), *(ViewStarted(view, "m1") for view in views)])
    if promised:
        journal.promise(promised)
    journal.close()
    return config


@pytest.mark.parametrize(("views", "promised"), [((), 0), ((10,), 10), ((10, 21, 30), 30)])
def test_it_begins_when_its_own_process_was_primary_last(tmp_path: Path, views: tuple[int, ...], promised: int) -> None:
    node = open_master(cluster(tmp_path, *views, promised=promised), "m1")
    assert node.node_id == "m1"
    node.transport.close(0)
    node.journal.close()


@pytest.mark.parametrize(("views", "promised"), [((10, 21), 21), ((10,), 21)])
def test_it_is_refused_when_another_process_may_have_gone_on(tmp_path: Path, views: tuple[int, ...], promised: int) -> None:
    config = cluster(tmp_path, *views, promised=promised)
    with pytest.raises(ConfigurationError, match=r"view 21.*put the \[\[backup\]\] sections back, brokerha promote m1"):
        open_master(config, "m1")
    # Nothing was kept open.
    Log(FileDisk(config.data_directory("m1")), "orders", "m1").close()
