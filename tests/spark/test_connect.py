"""Each job on a real server of Spark Connect: no JVM of its own, and the same answers. What a task of ours raises comes back as what it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.pipeline.command import JOBS
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from brokerha.pipeline.table import LogTable
from tests.support.spark_servers import LOOPBACK, SOON_S, connect_server

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

STATEMENTS = 2_000
PRICES = '[keys]\ntable = "prices"\nkey = "{sku}"\nvalue = "price"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HTTP address of a cluster in this process."""
    config = ClusterConfig(
        name="connected", broker="embedded://connected", data=tmp_path_factory.mktemp("data"),
        masters=(MasterEntry(id="m1"),), workers=(WorkerEntry(id="w1", master="m1"),),
    )  # fmt: skip
    with EmbeddedCluster(config) as nodes:
        http = HttpServer(create_app(nodes.masters["m1"]), LOOPBACK, 0)
        http.start()
        nodes.client("m1").put("ready", b"k", b"v", timeout=30)
        yield http.url
        http.stop(1)


def done(*words: str, url: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, answer and what is told of a job that is sent to a server."""
    command = [sys.executable, "-m", "brokerha", "pipeline", *words, "-o", "json"]
    process = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "SPARK_REMOTE": url}, timeout=SOON_S, check=False
    )
    return process.returncode, json.loads(process.stdout or "{}"), process.stderr[-3000:]


def test_every_job_does_on_a_server_what_it_does_here(server: str, cluster: str, tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    (tmp_path / "things.nt").write_text("".join(f"<urn:s:{n}> <urn:p:{n % 7}> _:b{n % 9} .\n" for n in range(STATEMENTS)))
    (tmp_path / "prices.csv").write_text("sku,price\n" + "".join(f"a-{n},{n}.50\n" for n in range(100)))
    (tmp_path / "prices.toml").write_text(PRICES)
    jobs: dict[str, tuple[str, ...]] = {
        "load": (str(tmp_path / "things.nt"), "--url", cluster),
        "archive": ("--into", str(archive), "--url", cluster, "--batch-entries", "2"),
        "audit": ("--archive", str(archive), "--url", cluster, "--deep"),
        "rebuild": ("--archive", str(archive), "--into", str(tmp_path / "w9")),
        "export": ("--archive", str(archive), "--into", str(out)),
        "report": ("--archive", str(archive), "--out", str(tmp_path / "report.html")),
    }
    assert set(jobs) == {each.name for each in entry_points(group=JOBS)}
    prices = ("load", str(tmp_path / "prices.csv"), "--mapping", str(tmp_path / "prices.toml"), "--url", cluster)
    code, keys, told = done(*prices, url=server)
    assert (code, keys.get("items")) == (0, 100), told
    answers = {}
    for name, words in jobs.items():
        code, answers[name], told = done(name, *words, url=server)
        assert code == 0, f"{name}: {told}"
    assert (answers["load"]["items"], answers["load"]["rejects"]) == (STATEMENTS, 0)
    assert answers["archive"]["batches"] > 1
    assert answers["audit"]["result"] == "equal"
    assert answers["rebuild"]["fingerprint"] == answers["export"]["fingerprint"] == answers["audit"]["fingerprint"]
    assert (answers["export"]["quads"], answers["export"]["keys"]) == (STATEMENTS, 101)
    assert answers["report"]["transactions"] == answers["archive"]["last_lsn"]
    again = done(*prices, url=server)[1]
    assert again["transactions_before"] == again["transactions"]


def test_what_ends_a_task_on_a_server_is_told_as_what_it_was(server: str, cluster: str, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    code, _, told = done("archive", "--into", str(archive), "--url", cluster, url=server)
    assert code == 0, told
    table = LogTable(str(archive))
    for file in table.state().files:
        Path(table.path(file)).write_bytes(b"PAR1")
    code, answer, _ = done("audit", "--archive", str(archive), "--alone", url=server)
    assert (code, answer["result"]) == (2, "differs")
    code, _, told = done("export", "--archive", str(archive), "--into", str(tmp_path / "out"), url=server)
    assert code == 2
    assert "\n" not in told.strip()
    (tmp_path / "bad.nt").write_text("this is no statement\n")
    code, answer, told = done("load", str(tmp_path / "bad.nt"), "--url", cluster, url=server)
    assert (code, answer["rejects"]) == (2, 1), told
