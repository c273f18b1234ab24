"""Settings at run time over RabbitMQ, by the command line: in force everywhere, kept over kill -9 of whoever holds them, and over a stop of all.

Given three masters, the third without workers. When a setting is set at one of them, then each node has it in force without a restart; when
nodes are killed while settings change, then all come to the same values; what waits for a restart counts after it; a value that is
taken back is that of the file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brokerha
from brokerha.client import Client
from tests.system.processes import DEADLINE_S, ProcessCluster, command

KEPT = 1000
LINES = "max-peer-lag-s = 4\nround-timeout-ms = 300\nidle-round-ms = 400\nlog-stream = false\ntx-log-max-size = 50000\n"


class Sites(ProcessCluster):
    """Three masters; the third has no worker."""

    def __init__(self, folder: Path, broker: str) -> None:
        super().__init__(folder, broker, masters=3, workers_each=1, settings=LINES)
        self.workers.remove("m3a")
        self.path.write_text(self._toml(), encoding="utf-8")

    def await_ready(self, nodes: list[str], deadline_s: float = DEADLINE_S) -> None:
        """A master without workers serves no reads, and so is never ready: it has to take writes."""
        super().await_ready([node for node in nodes if node != "m3"], deadline_s)
        self.until(lambda: (answer := self.get("m3", "/writable")) is not None and answer.status_code == 200)

    def say(self, master: str, *words: str) -> tuple[int, str, str]:
        """``brokerha settings`` at one master: exit code, output, errors."""
        done = command("settings", *words, "--url", self.url(master))
        return done.returncode, done.stdout, done.stderr

    def set(self, master: str, name: str, value: str) -> dict[str, Any]:
        """Set one; the answer as JSON."""
        code, said, error = self.say(master, "set", name, value, "-o", "json")
        assert code == 0, f"{error}\n{self.log_tail()}"
        return dict(json.loads(said))

    def rows(self, node: str) -> dict[str, dict[str, Any]]:
        """What a master knows, by name; empty while it does not answer."""
        response = self.get(node, "/cluster/settings")
        told = response.json()["settings"] if response is not None and response.status_code == 200 else []
        return {row["name"]: row for row in told}

    def in_force(self, name: str) -> list[str]:
        """The value that counts at each master now."""
        return [self.rows(master).get(name, {}).get("in_force", "") for master in self.masters]


def write(db: Client, name: str, count: int) -> None:
    with db.pipeline(window=200) as pipeline:
        for number in range(count):
            pipeline.put("t", f"{name}-{number % 50}", "v")


def first_lsn(sites: Sites, master: str) -> int:
    response = sites.get(master, "/cluster/pins")
    return int(response.json()["first_lsn"]) if response is not None else 0


def restart_for(sites: Sites, node: str) -> list[str] | None:
    response = sites.get(node, "/cluster/status")
    rows = response.json()["nodes"] if response is not None and response.status_code == 200 else []
    return next((row["restart_for"] for row in rows if row["id"] == node), None)


def test_settings_are_in_force_everywhere_and_kept_over_kills(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    with Sites(tmp_path, vhost_url) as sites, brokerha.connect(sites.url("m1")) as db:
        # LogMaxSize: the log of a running master becomes shorter
        write(db, "before", 3 * KEPT)
        assert first_lsn(sites, "m1") == 1
        answer = sites.set("m1", "tx-log-max-size", str(KEPT))
        assert (answer["setting"]["value"], answer["setting"]["in_force"], answer["setting"]["file"]) == ("1000", "1000", "50000")
        assert answer["setting"]["from"] == "127.0.0.1, by m1"
        answered_s = time.monotonic()
        sites.until(lambda: sites.in_force("tx-log-max-size") == ["1000"] * 3)
        took = time.monotonic() - answered_s
        write(db, "after", KEPT)
        sites.until(lambda: min(first_lsn(sites, "m1"), first_lsn(sites, "m2")) > 2 * KEPT)

        # at the master without workers, and kill -9 of everybody who has just learnt it
        sites.set("m3", "max-peer-lag-s", "6")
        sites.set("m2", "read-threads", "3")
        sites.until(lambda: restart_for(sites, "m1a") == ["read-threads"])
        for node in ("m3", "m1", "m1a"):
            sites.kill(node)
        sites.await_ready([*sites.masters, *sites.workers])
        sites.until(lambda: sites.in_force("max-peer-lag-s") == ["6"] * 3)
        assert sites.in_force("tx-log-max-size") == ["1000"] * 3
        sites.until(lambda: restart_for(sites, "m1a") == [])
        assert restart_for(sites, "m2a") == ["read-threads"]

        # changes while masters die
        for number, victim in enumerate(("m1", "m3", "m1a")):
            sites.kill(victim)
            sites.set("m2", "scrub-items-per-s", str(1000 + number))
        sites.await_ready([*sites.masters, *sites.workers])
        sites.until(lambda: sites.in_force("scrub-items-per-s") == ["1002"] * 3)

        # refused, and nothing is changed
        for words, said in (
            (("set", "max-peer-lag-s", "6s"), "is a number of seconds, 0.1 to 3600, not '6s'"),
            (("set", "max-peer-lag", "6"), "did you mean max-peer-lag-s?"),
            (("set", "round-timeout-ms", "7000"), "is not below max-peer-lag-s = 6"),
            (("get", "max-peer-lag"), "did you mean max-peer-lag-s?"),
        ):
            code, _, error = sites.say("m1", *words)
            assert code in {2, 64}, error
            assert said in error
        assert sites.say("m2", "get", "max-peer-lag-s")[1] == "6\n"

        # stop all, start all: kept without asking anybody; and back to the file
        sites.start_again_with("log-stream = false", "log-stream = false\nheartbeat-ms = 900")
        assert sites.rows("m3")["max-peer-lag-s"]["in_force"] == "6"
        sites.until(lambda: sites.in_force("max-peer-lag-s") == ["6"] * 3)
        code, said, error = sites.say("m2", "unset", "max-peer-lag-s")
        assert (code, said.startswith("max-peer-lag-s = 4, as the cluster file says: counts at once")) == (0, True), error
        sites.until(lambda: sites.in_force("max-peer-lag-s") == ["4"] * 3)
        shown = sites.say("m1", "list", "--changed")[1]
        assert "taken back" in shown
        assert [line.split()[0] for line in shown.splitlines()[1:]] == [
            "tx-log-max-size",
            "max-peer-lag-s",
            "scrub-items-per-s",
            "read-threads",
        ]
    covered(
        f"settings at run time over RabbitMQ: 3 masters, one without workers, in force everywhere {took:.1f} s after the answer; 6 kills, a stop of all: kept"
    )
