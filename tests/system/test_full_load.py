"""Nobody is left out by mistake: three masters with default settings at full load, for as long as BROKERHA_FULL_LOAD_S says (600).

Given three masters with a worker each, all at their defaults; when 24 writers write over HTTP without a pause, eight at each master, and nothing fails;
then the first epoch with all three members is the only one, every write is answered, and what was acknowledged is there. How long the longest one waited
and how busy the machine was is told beside it. Other work on the machine makes it a better test: run it beside anything.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import brokerha
from brokerha.http.operating.families import numbers_of
from brokerha.model.errors import BrokerhaError
from tests.system.processes import ProcessCluster

SECONDS = float(os.environ.get("BROKERHA_FULL_LOAD_S", "600"))
EACH = 8
KEYS = 500


class Writer:
    """One thread that overwrites its keys, one write after the other."""

    def __init__(self, name: str, connect: Callable[[], brokerha.Session]) -> None:
        self.name = name
        self.written = 0
        self.longest_s = 0.0
        self.errors: list[str] = []
        self._connect = connect
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self.name} still waits"

    def _run(self) -> None:
        with self._connect() as db:
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    db.put("load", f"{self.name}-{self.written % KEYS}", str(self.written), timeout=60)
                except BrokerhaError as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                    continue
                self.written += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began)


def metrics(cluster: ProcessCluster, node: str) -> Mapping[Any, float]:
    return numbers_of(cluster._http.get(f"{cluster.url(node)}/metrics", timeout=30).text)


@pytest.mark.campaign
def test_nobody_is_left_out_at_full_load(vhost_url: str, tmp_path: Path, covered: Callable[[str], None]):
    with ProcessCluster(tmp_path, vhost_url, masters=3, workers_each=1) as cluster:
        before = {master: metrics(cluster, master)["epoch"] for master in cluster.masters}
        writers = [
            Writer(f"{master}-{n}", partial(brokerha.connect, cluster.url(master)))
            for master in cluster.masters
            for n in range(EACH)
        ]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + SECONDS
        busy = []
        while time.monotonic() < deadline:
            time.sleep(min(10.0, max(0.0, deadline - time.monotonic())))
            busy.append(os.getloadavg()[0])
        for writer in writers:
            writer.finish()
        after = {master: metrics(cluster, master) for master in cluster.masters}
        assert {master: numbers["epoch"] for master, numbers in after.items()} == before, "somebody was left out"
        assert {numbers["epoch_excluded"] for numbers in after.values()} == {0}
        assert not [error for writer in writers for error in writer.errors]
        with brokerha.connect(cluster.url("m1")) as db:
            held = dict(db.range("load", limit=100_000, min_lsn="latest"))
        for writer in writers:
            last = writer.written - 1
            assert held[f"{writer.name}-{last % KEYS}".encode()] == str(last).encode()
    total, longest = sum(w.written for w in writers), max(w.longest_s for w in writers)
    covered(
        f"full load: {SECONDS:.0f} s, {total:,} writes applied, none failed, nobody left out; the longest took {longest:.2f} s; "
        f"load average {min(busy):.0f} to {max(busy):.0f}"
    )
