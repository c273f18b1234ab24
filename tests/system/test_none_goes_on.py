"""With `split-recovery = none` updates are not delayed by a master that says nothing, and it comes back with what it has.

Given three masters that post only every twenty seconds while nothing waits; when one of them is frozen, then writes at the others are
acknowledged long before any of the others' times is over; when it goes on, all have one log with everything in it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import brokerha
from tests.system.processes import DEADLINE_S, ProcessCluster

SETTINGS = 'split-recovery = "none"\nidle-round-ms = 20000\nmax-peer-lag-s = 300\n'
"""Without a word of a master that is not asked for it, it is missed after 81 seconds."""
WRITE_S = 40.0


def test_a_frozen_master_holds_up_nobody_and_comes_back(vhost_url: str, tmp_path: Path) -> None:
    with (
        ProcessCluster(tmp_path, vhost_url, masters=3, workers_each=1, settings=SETTINGS) as cluster,
        brokerha.connect(cluster.url("m1")) as db,
        brokerha.connect(cluster.url("m3")) as frozen,
    ):
        db.put("t", "before", b"1", timeout=DEADLINE_S)
        frozen.put("t", "there", b"1", timeout=DEADLINE_S)
        pid = cluster.pid("m3")
        os.kill(pid, signal.SIGSTOP)
        try:
            for number in range(20):
                db.put("t", f"meanwhile-{number}", b"1", timeout=WRITE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        frozen.put("t", "after", b"1", timeout=DEADLINE_S)
        cluster.until(lambda: frozen.get("t", "meanwhile-19") and db.get("t", "after"), "each has what the other wrote")
        assert len(list(frozen.range("t"))) == 23
