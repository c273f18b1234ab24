"""A running cluster goes back to an earlier LSN by one command: all sites together, as a transaction that the log keeps.

Given three sites with a backup, and a bad deployment after it; when the state before is restored online while somebody writes, then
every site has it, the log has what was between, and what was written after it stays; saying it again changes nothing.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import brokerha
from tests.system.processes import DEADLINE_S, ProcessCluster, told_as_json

ASK = "ASK { <urn:s1> <urn:p> '1' . <urn:s2> <urn:p> '2' FILTER NOT EXISTS { <urn:bad> ?p ?o } }"
LINE = '<urn:s{0}> <urn:p> "{0}" .\n'


def command(cluster: ProcessCluster, *words: str, code: int = 0) -> tuple[Any, str]:
    """What a command printed as JSON, and what it told people."""
    return told_as_json(*words, "-c", str(cluster.path), code=code)


def test_a_bad_deployment_is_undone_at_all_sites_at_once(vhost_url: str, tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, vhost_url, masters=3, workers_each=1) as cluster, brokerha.connect(cluster.url("m1")) as db:
        # Given a good state, and a backup that goes on a little
        db.put("prices", "sku-1", b"100", timeout=DEADLINE_S)
        db.write([("add", "main", LINE.format(1) + LINE.format(2)), ("publish", "jobs", "text/plain", b"first")])
        command(cluster, "backup", "monday")
        good = db.put("prices", "sku-2", b"200").lsn
        command(cluster, "backup", "monday", "--incremental")
        # When a bad one comes
        db.write([("put", "prices", b"sku-1", b"0"), ("delete", "prices", b"sku-2"), ("put", "prices", b"wrong", b"1")])
        db.update("main", "DELETE WHERE { ?s ?p ?o } ; INSERT DATA { <urn:bad> <urn:p> 1 }")
        bad = db.write([("publish", "jobs", "text/plain", b"second")])
        planned, _ = command(cluster, "restore", "monday", "--online", "--dry-run")
        assert (planned["state"], planned["to_lsn"], planned["lsn"]) == ("planned", good, bad.lsn)
        assert db.get("prices", "sku-1") == b"0"
        # And somebody goes on writing
        stop, written = threading.Event(), [0]

        def write() -> None:
            with brokerha.connect(cluster.url("m2")) as other:
                while not stop.wait(0.2):
                    other.put("meanwhile", f"{written[0]}", b"1", timeout=DEADLINE_S)
                    written[0] += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            restored, _ = command(cluster, "restore", "monday", "--online")
        finally:
            stop.set()
            writer.join()
        # Then all sites have the state of before
        assert restored["state"] == "restored"
        assert restored["lsn"] > bad.lsn
        for master in cluster.masters:
            with brokerha.connect(cluster.url(master)) as site:
                at = restored["lsn"]
                assert [site.get("prices", key, min_lsn=at) for key in ("sku-1", "sku-2", "wrong")] == [b"100", b"200", None]
                assert site.query("main", ASK, min_lsn=at)
                assert [message.body for message in site.queue("jobs", min_lsn=at)] == [b"first"]
        # And the log has what was between
        assert {row["lsn"] for row in db.log(good, bad.lsn)} == set(range(good, bad.lsn + 1))
        # When it is said again, what came after the restore is undone, too; and then nothing is left to do
        command(cluster, "restore", "monday", "--online")
        again, _ = command(cluster, "restore", "monday", "--online")
        assert again["state"] == "unchanged"
        assert db.range("meanwhile", min_lsn="latest") == []
        # And what cannot be is refused
        _, told = command(cluster, "restore", "monday", "--online", "--all", code=64)
        assert "--online makes no directories" in told
        _, told = command(cluster, "restore", "monday", "--online", "--to-lsn", "999999", code=2)
        assert "holds the states from LSN" in told
