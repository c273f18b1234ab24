"""A third master that is a vote and holds no data: the cluster starts, takes writes from anywhere, and no client is sent to it in vain."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import brokerha
from tests.system.processes import ProcessCluster

pytestmark = pytest.mark.broker
WRITES = 40
WAIT_S = 60.0


class _WithVoter(ProcessCluster):
    """m1, the first of the file, has no worker; m2 and m3 have one each."""

    def _toml(self) -> str:
        self.workers = [worker for worker in self.workers if not worker.startswith("m1")]
        return super()._toml()

    def await_ready(self, nodes: list[str], deadline_s: float = WAIT_S) -> None:
        """`brokerha up` says so: it waits for all that serve reads."""
        del nodes
        deadline = time.monotonic() + deadline_s
        while "\nready: " not in "\n" + self.log_tail(10_000):
            assert time.monotonic() < deadline, self.log_tail()
            time.sleep(0.1)


def _brokerha(site: ProcessCluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "brokerha", *arguments, "-c", str(site.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_vote_more_needs_no_worker_and_nobody_is_sent_to_it_in_vain(tmp_path: Path, vhost_url: str) -> None:
    with _WithVoter(tmp_path, vhost_url, masters=3, workers_each=1) as site:
        # Over AMQP, to whichever master takes it: each is applied where it was taken in
        with brokerha.connect(vhost_url, timeout=WAIT_S) as db:
            lsns = [db.put("t", b"%d" % n, b"v").lsn for n in range(WRITES)]
        assert sorted(lsns) == list(range(1, WRITES + 1))
        # Over HTTP, by the cluster file in which it stands first
        _brokerha(site, "put", "t", "last", "v")
        assert _brokerha(site, "get", "t", "last") == "v"
        _brokerha(site, "wait", str(WRITES + 1), "--on", "all")
        rows = {row["id"]: row for row in json.loads(_brokerha(site, "status", "-o", "json"))["nodes"]}
        assert {node: row["applied_lsn"] for node, row in rows.items()} == {
            "m1": None, "m2": WRITES + 1, "m3": WRITES + 1, "m2a": WRITES + 1, "m3a": WRITES + 1,
        }  # fmt: skip
        assert (rows["m1"]["state"], rows["m1"]["received_lsn"]) == ("ok", WRITES + 1)
        # Asked itself, it says what it is
        ready = site.get("m1", "/readyz")
        assert ready is not None
        assert ready.status_code == 503
        assert "[-]worker this site has none" in ready.text
        _brokerha(site, "verify")
