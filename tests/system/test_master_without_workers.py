"""A third master that is a vote and holds no data: the cluster starts, takes writes from anywhere, and no client is sent to it in vain. Its
first worker comes late, when what it would have to begin with is forgotten there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import brokerha
from tests.support.waiting import until
from tests.system.processes import ProcessCluster, command

pytestmark = pytest.mark.broker
WRITES = 40
MORE = 2_000
FIRST = "m1a"
WAIT_S = 60.0


class _WithVoter(ProcessCluster):
    """m1, the first of the file, has no worker; m2 and m3 have one each."""

    def _toml(self) -> str:
        self.workers = [worker for worker in self.workers if not worker.startswith("m1")]
        return super()._toml()

    def await_ready(self, nodes: list[str], deadline_s: float = WAIT_S) -> None:
        """`brokerha up` says so: it waits for all that serve reads."""
        del nodes
        until(lambda: "\nready: " in "\n" + self.log_tail(10_000), self.log_tail, deadline_s)


def _brokerha(site: ProcessCluster, *arguments: str) -> str:
    """What the command said, to whoever reads it; the cluster is that of the file, unless a URL is given."""
    where = () if "--url" in arguments else ("-c", str(site.path))
    done = command(*arguments, *where)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}\n{site.log_tail()}"
    return done.stdout + done.stderr


def test_a_vote_more_needs_no_worker_and_nobody_is_sent_to_it_in_vain(tmp_path: Path, vhost_url: str) -> None:
    # The shortest log that may be configured
    with _WithVoter(tmp_path, vhost_url, masters=3, workers_each=1, settings="tx-log-max-size = 1000\n") as site:
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
        _get_a_worker(site, vhost_url)


def _first_lsn(site: ProcessCluster) -> int:
    lines = site.get("m1", "/cluster/log?from=1&to=2000")
    assert lines is not None
    return int(json.loads(lines.text.splitlines()[0])["lsn"])


def _get_a_worker(site: ProcessCluster, url: str) -> None:
    """The first worker of m1, after m1 has forgotten the beginning of its log."""
    with brokerha.connect(url, timeout=WAIT_S) as db, db.pipeline(window=500) as pipeline:
        for n in range(MORE):
            pipeline.put("more", b"%d" % n, b"v")
    until(lambda: _first_lsn(site) > 1, "the master forgets what is old")
    _brokerha(site, "worker", "add", FIRST, "--master", "m1")
    command = [sys.executable, "-m", "brokerha", "node", FIRST, "--role", "worker", "--master", "m1", "-c", str(site.path)]
    with (site.folder / "first.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as worker:
        try:
            last = WRITES + 1 + MORE
            _brokerha(site, "wait", str(last), "--on", "all", "--timeout-s", str(WAIT_S))
            until(
                lambda: (answer := site.get("m1", "/writable")) is not None and answer.status_code == 200, "it takes writes again"
            )
            _brokerha(site, "put", "t", "late", "v", "--url", site.url("m1"))
            assert _brokerha(site, "get", "more", "0", "--url", site.url("m1")) == "v"
            assert f"3 copies are equal at LSN {last + 1:,}" in _brokerha(site, "verify")
        finally:
            worker.terminate()
