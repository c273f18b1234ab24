"""Two clusters in one virtual host: the second one does not start, and the first does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

import brokerha
from tests.support.free_ports import free_ports
from tests.system.processes import ProcessCluster, command

pytestmark = pytest.mark.broker


def test_the_nodes_of_another_cluster_do_not_start_and_take_no_write(tmp_path: Path, vhost_url: str) -> None:
    port = free_ports(1)
    theirs = tmp_path / "stock.toml"
    theirs.write_text(
        f'[cluster]\nname = "stock"\nbroker = "{vhost_url}"\ndata = "{tmp_path / "stock"}"\n'
        f'[[master]]\nid = "m8"\nhttp = "127.0.0.1:{port}"\n[[master]]\nid = "m9"\n[[backup]]\nid = "m9b"\nmaster = "m9"\n'
        '[[worker]]\nid = "w9"\nmaster = "m9"\n',
        encoding="utf-8",
    )
    with ProcessCluster(tmp_path, vhost_url, masters=1, workers_each=1, name="orders") as ours, brokerha.connect(vhost_url) as db:
        written = [db.put("prices", f"sku-{n}", b"1").txid for n in range(10)]
        for start in (*(("node", node) for node in ("m8", "m9", "m9b", "w9")), ("up", "--restart")):
            ended = command(*start, "-c", str(theirs))
            assert ended.returncode == 78, ended.stderr
            assert "belongs to the cluster orders, and this is stock: give each cluster a virtual host of its own" in ended.stderr
            assert "Traceback" not in ended.stderr
            written += [db.put("prices", f"sku-{n}", b"2").txid for n in range(10)]
        assert ours.txids("m1") == written
        assert "broker lost" not in ours.log_tail(10_000)
