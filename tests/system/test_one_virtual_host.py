"""Two clusters in one virtual host: the second one does not start, or waits, and the first does not notice."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import brokerha
from tests.support.free_ports import free_ports
from tests.support.waiting import until
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


def test_a_copy_of_a_cluster_under_the_same_name_and_ids_waits_and_holds_up_nobody(tmp_path: Path, vhost_url: str) -> None:
    for folder in ("ours", "copy"):
        (tmp_path / folder).mkdir()
    copy = ProcessCluster(tmp_path / "copy", vhost_url, masters=2, workers_each=1)
    with ProcessCluster(tmp_path / "ours", vhost_url, masters=2, workers_each=1) as ours, brokerha.connect(vhost_url) as db:
        written = [db.put("prices", f"sku-{n}", b"1").txid for n in range(10)]
        # As a machine that was cloned; a copy of what is being written is one of a moment.
        shutil.copytree(ours.folder / "var", copy.folder / "var", ignore=shutil.ignore_patterns("*.sock"))
        second = subprocess.Popen(copy._command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            until(lambda: copy.get("m1", "/readyz"), "the door of the copy is open")
            until(lambda: "another process runs under the id" in copy.get("m1", "/readyz").text, "it says why it waits")  # type: ignore[union-attr]
            written += [db.put("prices", f"sku-{n}", b"2").txid for n in range(50)]
        finally:
            second.send_signal(signal.SIGINT)
            told, _ = second.communicate(timeout=60)
            copy._http.close()
        assert ours.check_logs() == written
        assert "log stream goes on" not in told
        assert "broker connected" not in told
