"""The load on a Spark cluster of a master and two workers, one executor of which is killed in its middle: all there, nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import brokerha
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.support.spark_servers import LOOPBACK, ON_CLUSTER, SOON_S, cluster, executors

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

STATEMENTS = 60_000


def test_a_load_survives_an_executor_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "things.nt"
    path.write_text("".join(f"<urn:s:{n}> <urn:p:{n % 7}> _:b{n % 100} .\n" for n in range(STATEMENTS)))
    config = ClusterConfig(
        name="loads", broker="embedded://", data=tmp_path / "data",
        masters=(MasterEntry(id="m1"),), workers=(WorkerEntry(id="w1", master="m1"),),
    )  # fmt: skip
    with EmbeddedCluster(config) as nodes, cluster(tmp_path) as master:
        server = HttpServer(create_app(nodes.masters["m1"]), LOOPBACK, 0)
        server.start()
        command = [
            sys.executable, "-m", "brokerha", "pipeline", "load", str(path), "--url", server.url, "--split-mib", "1", "-o", "json",
            "--spark-master", master, *ON_CLUSTER, "--rejects", str(tmp_path / "rejects"),
        ]  # fmt: skip
        with brokerha.connect(server.url) as db:
            db.put("ready", b"k", b"v", timeout=30)
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
            )  # fmt: skip
            end_s = time.monotonic() + SOON_S
            while db.size("main") == 0:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < end_s
            killed = executors(tmp_path)
            assert len(killed) == 2
            os.kill(killed[0], signal.SIGKILL)
            out, err = process.communicate(timeout=SOON_S)
            assert process.returncode == 0, err
            report = json.loads(out)
            assert (report["complete"], report["items"], report["rejects"]) == (True, STATEMENTS, 0)
            txids = [row["txid"] for row in db.log(1, 9_999) if row["txid"].startswith(report["id"])]
            assert len(txids) == len(set(txids)) == report["transactions"]
            assert db.size("main") == STATEMENTS
        server.stop(1)
