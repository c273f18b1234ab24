"""Workers operated by the command line over RabbitMQ, through masters that have no door but the broker's.

Given two masters with a worker each, when a person lists, adds, switches and removes workers and has all data looked at, then each
command reaches the master that it concerns, and no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.main import main
from brokerha.embedded import EmbeddedCluster
from brokerha.nodes.building import open_worker
from brokerha.nodes.config.cluster import load_config, with_worker
from tests.support.waiting import until

FILE = """\
[cluster]
name = "operated"
broker = "{broker}"
dead-after-ms = 3000
[[master]]
id = "m1"
[[master]]
id = "m2"
[[worker]]
id = "w1"
master = "m1"
[[worker]]
id = "w2"
master = "m2"
"""

Command = Callable[..., tuple[int, Any]]


@pytest.fixture
def cluster(vhost_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BROKERHA_URL", raising=False)
    Path("cluster.toml").write_text(FILE.format(broker=vhost_url), encoding="utf-8")
    with EmbeddedCluster(load_config(Path("cluster.toml"), {})) as running:
        until(lambda: all(master.ready()[0] for master in running.masters.values()))
        yield running


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main([*arguments, "-o", "json"])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else None

    return run


def test_a_person_operates_workers_over_the_broker(cluster: EmbeddedCluster, command: Command) -> None:
    assert main(["put", "prices", "sku-1", "9.90", "--ack", "applied"]) == 0

    def states() -> dict[str, tuple[str, str]]:
        return {row["id"]: (row["master"], row["state"]) for row in command("worker", "list")[1]["workers"]}

    assert states() == {"w1": ("m1", "on"), "w2": ("m2", "on")}
    # The last worker in sync stays, and one that is forced off is not waited for
    assert command("worker", "off", "w2") == (2, None)
    code, said = command("worker", "off", "w2", "--force")
    assert (code, said.pop("read_only")) == (0, "0 of 1 workers in sync, writes need 1: w2 is off (switched off)")
    assert said == {"worker": "w2", "changed": True}
    assert states()["w2"] == ("m2", "off")
    code, verdict = command("verify", "--timeout-s", "20")
    assert (code, [copy["id"] for copy in verdict["skipped"]]) == (1, ["w2"])
    assert command("worker", "on", "w2")[0] == 0

    # A worker that is not in the file is started, waits, and is added
    added = open_worker(with_worker(cluster.config, "w9", "m2"), "w9")
    cluster.workers["w9"] = added
    added.start()
    assert command("worker", "add", "w9", "--master", "m2")[0] == 0
    until(lambda: states().get("w9") == ("m2", "on"))
    assert main(["put", "prices", "sku-2", "1", "--ack", "applied"]) == 0
    assert main(["wait", "2"]) == 0
    code, verdict = command("verify", "--deep")
    assert (code, verdict["equal"]) == (0, True), verdict
    assert [(look["id"], look["result"], look["items"]) for look in verdict["deep"]] == [
        ("w1", "equal", 2),
        ("w2", "equal", 2),
        ("w9", "equal", 2),
    ]

    # Then it takes the place of the one before
    assert command("worker", "remove", "w2")[0] == 0
    assert states() == {"w1": ("m1", "on"), "w9": ("m2", "on")}
    assert command("worker", "remove", "w2") == (0, {"worker": "w2", "changed": False})
