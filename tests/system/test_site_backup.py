"""A backup while the site writes, restored elsewhere: an equal fingerprint, at the end and at any LSN before it.

Given a site with three workers over RabbitMQ with writers and readers, when it is backed up, and the backup is extended, with
the commands that an operator has; then writes and reads went on meanwhile; the backup verifies; made into another cluster,
with another name, other nodes and other places, it starts with the fingerprint of its manifest; and restored to an earlier LSN,
before the copy and after it, with the fingerprint that the log of the site had at that LSN.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import brokerha
from brokerha.embedded import EmbeddedCluster
from brokerha.model.fingerprints import text_of
from brokerha.nodes.config.cluster import load_config
from tests.support.broker_source import BrokerSource
from tests.support.waiting import until
from tests.system.processes import ProcessCluster, told_as_json
from tests.system.site_watch import SiteWatch
from tests.system.writers import Writer

WAIT_S = 60.0
FILL_VALUES, FILL_BYTES = 100, 200_000
EARLIER = """
[cluster]
name = "earlier"
broker = "embedded://earlier-{lsn}"
data = "var"
[[master]]
id = "n1"
[[master]]
id = "n2"
[[worker]]
id = "n1a"
master = "n1"
[[worker]]
id = "n2a"
master = "n2"
"""


def command(*words: str) -> Any:
    """What a command of ours printed as JSON."""
    return told_as_json(*words)[0]


@pytest.fixture
def other_vhost_url(broker: BrokerSource, vhost_url: str) -> Iterator[str]:
    """A second virtual host, for the cluster that is made from the backup."""
    name = f"{vhost_url.rpartition('/')[2]}-copy"
    yield broker.create_vhost(name)
    broker.delete_vhost(name)


def fill(url: str) -> None:
    """Enough that a backup takes a while."""
    chance = random.Random(5)
    with brokerha.connect(url) as db, db.pipeline(window=20, timeout=WAIT_S) as pipeline:
        for number in range(FILL_VALUES):
            pipeline.put("fill", str(number), chance.randbytes(FILL_BYTES))


def logged_fingerprint(url: str, lsn: int) -> str:
    """What the log says that the content is at an LSN."""
    with brokerha.connect(url) as db:
        (row,) = db.logged(lsn, lsn)
        return text_of(row[5])


def assert_went_on(watch: SiteWatch, worker: str) -> float:
    """Writes per second while the worker was away for a backup; all of them taken, and no read failed."""
    away = [sample for sample in watch.samples if sample.states[worker] == "off"]
    assert away, f"{worker} was never seen at its backup"
    begins_s, ends_s = away[0].began_s, away[-1].ended_s
    during = [write for write in watch.writes if begins_s <= write.began_s and write.ended_s <= ends_s]
    assert all(write.status != 503 for write in watch.writes)
    assert not watch.failed_reads
    assert during, "no write while the backup was made"
    return len(during) / (ends_s - begins_s)


def assert_watched(rows: list[tuple[bytes, bytes]], watch: SiteWatch, lsn: int) -> None:
    """Exactly those writes of the watch are there that the log has up to an LSN."""
    assert {int(key) for key, _ in rows} == {write.number for write in watch.writes if 0 < write.lsn <= lsn}


@pytest.mark.slow
def test_a_backup_while_writing_restores_elsewhere_to_its_end_and_to_earlier_lsns(
    vhost_url: str, other_vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with ProcessCluster(here, vhost_url, masters=1, workers_each=3, name="orders") as cluster:
        url, config = cluster.url("m1"), str(cluster.path)
        fill(url)
        writers = [Writer(f"w{n}", partial(brokerha.connect, url)) for n in range(2)]
        for writer in writers:
            writer.start()
        with SiteWatch(cluster, "m1") as watch:
            watch.await_sample(lambda sample: len(sample.in_sync) == 3, "whole")
            watch.await_writes(20)
            killed = kill_at_backup(cluster, watch)
            first = command("backup", "monday", "-c", config)
            watch.await_writes(20)
            second = command("backup", "monday", "--incremental", "-c", config)
            watch.await_writes(5)
        for writer in writers:
            writer.finish(WAIT_S)
        assert not watch.faults
        watch.check_rule(needed=2)
        rate = assert_went_on(watch, first["worker"])
        assert second["lsn"] > first["lsn"] + 20
        before = watch.writes[10].lsn
        between = next(write.lsn for write in watch.writes if write.lsn > first["lsn"])
        fingerprints = {lsn: logged_fingerprint(url, lsn) for lsn in (before, first["lsn"], between, second["lsn"])}
        assert FILL_VALUES < before < first["lsn"] < between < second["lsn"]
        assert len(set(fingerprints.values())) == 4
        assert (first["fingerprint"], second["fingerprint"]) == (fingerprints[first["lsn"]], fingerprints[second["lsn"]])

    backups = str(here / "var" / "backups")
    verified = command("backup", "verify", "monday", "--backups", backups)
    manifest = json.loads((Path(backups) / "monday" / "manifest.json").read_text())
    assert (verified["problems"], verified["last_lsn"], verified["fingerprint"]) == ([], second["lsn"], second["fingerprint"])
    assert manifest["fingerprint"] == first["fingerprint"]
    for lsn in (before, between):
        restore_earlier(tmp_path, backups, lsn, fingerprints[lsn], watch)
    restore_as_cluster(there, other_vhost_url, backups, second, watch)
    covered(
        f"backup over RabbitMQ: {first['size_bytes'] / 1e6:.0f} MB at LSN {first['lsn']:,} while each writer had {rate:.0f} writes/s, extended to "
        f"{second['lsn']:,}; restored as another cluster and at LSN {before:,} and {between:,}: equal each time; "
        f"one whose worker was killed meanwhile was {killed}"
    )


def lines_of_backup(cluster: ProcessCluster, worker: str) -> list[str]:
    """What a worker has logged of its backups."""
    lines = cluster.log_tail(100_000).splitlines()
    return [line for line in lines if line.startswith(worker) and "request=backup-" in line]


def kill_at_backup(cluster: ProcessCluster, watch: SiteWatch) -> str:
    """Kill a worker at its backup: it makes the backup anew when it is back soon; else a whole one is there or none, never half of one."""
    words = [sys.executable, "-m", "brokerha", "backup", "sunday", "--worker", "m1c", "-c", str(cluster.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        # Its own word, and no sample of the site, which may come when a fast disk has finished.
        until(lambda: lines_of_backup(cluster, "m1c"), cluster.log_tail, pause_s=0.01)
        cluster.kill("m1c")
        said, _ = running.communicate(timeout=WAIT_S)
    listed = command("backup", "list", "-c", str(cluster.path))
    backups = [(row["name"], row["problem"]) for row in listed["backups"]]
    if backups:
        assert backups == [("sunday", None)]
        command("backup", "verify", "sunday", "-c", str(cluster.path))
    if running.returncode == 0:
        assert backups, said
        outcome = "made anew"
    else:
        # It may have died between its last file and its last word.
        assert running.returncode == 2, said
        assert "worker m1c died meanwhile, and whether it had finished is not known" in said
        outcome = "given up" if not backups else "whole, which nobody was told"
    own = lines_of_backup(cluster, "m1c")
    assert "task begins" in own[0]
    assert len(own) == 1 or "task begins" in own[1], f"it was not killed at its backup: {own}"
    watch.await_sample(lambda sample: len(sample.in_sync) == 3, "whole after a kill")
    return outcome


def restore_earlier(tmp_path: Path, backups: str, lsn: int, fingerprint: str, watch: SiteWatch) -> None:
    """A whole cluster at an earlier LSN, which then takes writes."""
    folder = tmp_path / f"earlier-{lsn}"
    folder.mkdir()
    path = folder / "cluster.toml"
    path.write_text(EARLIER.format(lsn=lsn))
    plan = command("restore", "monday", "--all", "--to-lsn", str(lsn), "--backups", backups, "-c", str(path))
    assert (plan["lsn"], plan["fingerprint"]) == (lsn, fingerprint)
    with EmbeddedCluster(load_config(path, os.environ)) as cluster:
        for worker in cluster.workers.values():
            applied = worker.store.applied()
            assert (applied.lsn, applied.fingerprint) == (lsn, fingerprint)
        # One that has just started may not send reads to its worker yet.
        until(lambda: all(master.ready()[0] for master in cluster.masters.values()))
        for name in ("n1", "n2"):
            db = cluster.client(name).session()
            assert_watched(db.range("watch", limit=100_000), watch, lsn)
            assert db.put("after", name, "1", timeout=WAIT_S).lsn > lsn
            assert db.get("after", name) == b"1"


def restore_as_cluster(folder: Path, broker: str, backups: str, backup: dict[str, Any], watch: SiteWatch) -> None:
    """The end of the backup as a cluster of real processes: two sites with one worker each."""
    cluster = ProcessCluster(folder, broker, masters=2, workers_each=1, name="orders-again")
    plan = command("restore", "monday", "--all", "--backups", backups, "-c", str(cluster.path))
    assert (plan["from_cluster"], plan["cluster"], plan["lsn"]) == ("orders", "orders-again", backup["lsn"])
    with cluster:
        for worker in cluster.workers:
            answer = cluster.get(worker, "/cluster/fingerprints")
            assert answer is not None
            found = answer.json()
            assert (found["lsn"], found["fingerprint"]) == (backup["lsn"], backup["fingerprint"]), worker
        with brokerha.connect(cluster.url("m1")) as one, brokerha.connect(cluster.url("m2")) as other:
            assert_watched(one.range("watch", limit=100_000), watch, backup["lsn"])
            lsn = one.put("after", "restore", "1", timeout=WAIT_S).lsn
            assert lsn == backup["lsn"] + 1
            assert other.get("after", "restore", min_lsn=lsn) == b"1"
        # The only worker of a site goes on serving while it makes a backup.
        command("backup", "tuesday", "-c", str(cluster.path))
        assert "tuesday" in str(command("backup", "list", "-c", str(cluster.path)))
