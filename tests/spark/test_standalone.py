"""The jobs on a Spark cluster: a standalone master with two workers on loopback, everything a process of its own, nothing else changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokerha.stores.backup.directory import BackupFolder
from tests.bench.pipeline_log import write_backup
from tests.support.spark_servers import LOOPBACK, ON_CLUSTER, SOON_S, cluster

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

ENTRIES = 12_000
READ = """
import sys
from brokerha.spark.session import SparkOptions, session
conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
with session("read", SparkOptions(sys.argv[1], "512m", conf)) as spark:
    rows = spark.read.format("brokerha").option("backup", sys.argv[2]).option("partitions", "4").load()
    print(rows.select("lsn").distinct().count())
"""


def brokerha(*arguments: str, input_: str | None = None) -> str:
    """What a command says on standard output."""
    command = [sys.executable, *(["-"] if input_ else ["-m", "brokerha.cli.main"]), *arguments]
    environment = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
    done = subprocess.run(command, input=input_, capture_output=True, text=True, env=environment, timeout=SOON_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def pipeline(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(brokerha("pipeline", *arguments, "-o", "json"))
    return found


def test_every_job_does_on_a_standalone_cluster_what_it_does_here(tmp_path: Path) -> None:
    log, apart, alone = tmp_path / "log", tmp_path / "on-cluster", tmp_path / "alone"
    manifest = write_backup(log, ENTRIES)
    of_log = ("--backup", f"{log}/", "--batch-entries", "6000")
    pipeline("archive", "--into", str(alone), *of_log)
    with cluster(tmp_path) as url:
        on = (*ON_CLUSTER, "--spark-master", url)
        archived = pipeline("archive", "--into", str(apart), *of_log, *on)
        assert (archived["last_lsn"], archived["batches"]) == (ENTRIES, 2)
        audited = pipeline("audit", "--archive", str(apart), "--alone", *on)
        assert (audited["result"], audited["is_proved"]) == ("equal", True)
        rebuilt = pipeline("rebuild", "again", "--archive", str(apart), "--backups", str(tmp_path / "backups"), *on)
        assert rebuilt["fingerprint"] == manifest.last_fingerprint
        exported = pipeline("export", "--archive", str(apart), "--into", str(tmp_path / "out"), *on)
        assert exported["fingerprint"] == manifest.last_fingerprint
        assert int(brokerha(url, str(log), input_=READ)) == ENTRIES
        # Tasks of both workers wrote into it, and nothing of them is left over.
        assert len(list((tmp_path / "worker-1").iterdir())) >= 1
        assert len(list((tmp_path / "worker-2").iterdir())) >= 1
    chains = [pipeline("archive-info", str(each))["chain"] for each in (apart, alone)]
    assert chains[0] == chains[1]
    assert list(BackupFolder(tmp_path / "backups").backup("again").verify()) == []
