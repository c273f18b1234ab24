"""A worker's directory is lost, and its content comes back from the log stream in RabbitMQ by the one command of docs/recovery.md."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from pathlib import Path

import pytest

from brokerha.cli.main import main
from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import NotReady
from tests.docs.pages import the_block
from tests.support.configs import config_of

pytestmark = pytest.mark.broker

WAIT_S = 60.0
WRITES = 120


def test_the_content_of_the_only_worker_comes_back(
    vhost_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given the only worker of a site, and a stream that has all that was committed
    config = config_of("orders", vhost_url, tmp_path / "var" / "orders", {"m1": "w1"})
    monkeypatch.chdir(tmp_path)
    with EmbeddedCluster(config) as cluster:
        db = cluster.client("m1")
        for number in range(WRITES):
            db.put("prices", b"sku-%d" % (number % 50), b"%d" % number, timeout=WAIT_S)
        lsn = db.update("main", "INSERT DATA { <urn:a> <urn:b> 1 }", timeout=WAIT_S).lsn
        before = db.digests(min_lsn=lsn, timeout=WAIT_S)
        # When its directory is lost
        cluster.stop_node("w1")
        shutil.rmtree(tmp_path / "var" / "orders" / "w1")
        # And the command of the page is typed
        (line,) = the_block("docs/recovery.md", "sh", "brokerha replay").splitlines()
        typed = shlex.split(line.replace("amqp://guest:guest@127.0.0.1:5672/orders", vhost_url))[1:]
        deadline = time.monotonic() + WAIT_S
        # What was applied a moment ago may be on its way into the stream: the same command goes on.
        while main(typed) != 0 or f"LSN {lsn} " not in "".join(capsys.readouterr()).replace(",", ""):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        # Then the worker has it all, and goes on from there
        cluster.start_node("w1")
        after = None
        while after is None:
            assert time.monotonic() < deadline
            # Until its master has heard of it again, nobody can be asked.
            with contextlib.suppress(NotReady):
                after = db.digests(min_lsn=lsn, timeout=WAIT_S)
        assert (after["lsn"], after["fingerprint"]) == (before["lsn"], before["fingerprint"])
        assert db.put("prices", b"sku-1", b"after", timeout=WAIT_S).lsn == lsn + 1
        assert db.get("prices", b"sku-1", timeout=WAIT_S) == b"after"
