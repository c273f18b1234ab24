"""S19: planted secrets are nowhere in a support bundle; what helps is in it. And what the doctor tells of an embedded cluster."""

from __future__ import annotations

import json
import logging
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from brokerha.cli.common import logs
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.nodes.config.cluster import load_config
from brokerha.nodes.config.rules import http_address
from tests.support.free_ports import free_ports
from tests.unit.cli.conftest import Ran

CANARY = "Kanarienvogel-4711"
OTHERS = ("Fink-in-der-URL-99", "Meise-im-Token-77", "Specht-in-der-Datei-55", "Amsel-im-Log-33")
FILE = """\
[cluster]
name = "orders"
broker = "{broker}"
[[master]]
id = "m1"
http = "127.0.0.1:{port}"
[[worker]]
id = "w1"
master = "m1"
"""


def content(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            each.name.split("/", 1)[1]: (archive.extractfile(each) or pytest.fail(each.name)).read().decode()
            for each in archive.getmembers()
        }


def test_no_planted_secret_is_in_the_bundle(run: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(2)
    closed = port + 1
    url, token, in_file, in_log = OTHERS
    broker = f"amqp://app:{CANARY}@127.0.0.1:{closed}/orders"
    (tmp_path / "cluster.toml").write_text(FILE.format(broker=broker, port=port))
    secrets = tmp_path / "deploy" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "m1.url").write_text(f"amqp://orders.m1:{in_file}@127.0.0.1:{closed}/orders\n")
    log = tmp_path / "deploy" / "log" / "m1.log"
    log.parent.mkdir()
    log.write_text(
        f"connected with {CANARY}\nGET http://a:{url}@h/ token={token}\nlogin password: {in_log}\n{in_file}\nthe last line\n"
    )
    (tmp_path / "deploy" / "brokerha-orders.conf").write_text(f"[program:m1]\nstdout_logfile = {log}\n")
    monkeypatch.setenv("BROKERHA_TOKEN", token)
    monkeypatch.setenv("OTHER_SECRET", CANARY)
    monkeypatch.setenv("SOME_URL", f"http://a:{url}@h/")

    done = run("support-bundle", "--file", "b.tar.gz")

    assert done.code == 1
    assert "m1" in done.err
    found = content(tmp_path / "b.tar.gz")
    whole = "\n".join(found.values()) + done.out + done.err
    assert [each for each in (CANARY, *OTHERS) if each in whole] == []
    assert found["logs/m1.log"].endswith("the last line\n")
    assert "amqp://app:***@127.0.0.1" in found["cluster.toml"]
    assert "OTHER_SECRET" in found["environment.txt"].splitlines()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    (tmp_path / "cluster.toml").write_text(FILE.format(broker="embedded://bundle", port=free_ports(1)))
    config = load_config(tmp_path / "cluster.toml", {})
    logs.to_stderr(logging.CRITICAL)
    try:
        with EmbeddedCluster(config) as cluster:
            door = HttpServer(create_app(cluster.masters["m1"]), *http_address(config.node("m1").http))
            door.start()
            yield cluster
            door.stop()
    finally:
        structlog.reset_defaults()


def test_what_helps_is_in_the_bundle_and_no_data_of_users(
    run: Callable[..., Ran], cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster.client("m1").put("prices", b"sku-of-a-user", b"value-of-a-user")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "x.log").write_text("1\n2\n3\n")

    done = run("support-bundle", "--file", "b.tar.gz", "--logs", "logs", "--lines", "2")

    assert (done.code, done.err) == (0, "")
    found = content(tmp_path / "b.tar.gz")
    assert json.loads(found["status.json"])["cluster"] == "orders"
    assert "brokerha_" in found["nodes/m1/metrics.txt"]
    assert json.loads(found["nodes/w1/files.json"])
    assert json.loads(found["journals.json"])["m1"]["last_lsn"] >= 1
    assert json.loads(found["doctor.json"])["findings"]
    assert found["logs/x.log"] == "2\n3\n"
    assert json.loads(found["manifest.json"])["brokerha"]
    assert "of-a-user" not in "\n".join(found.values())
    assert run("support-bundle", "--file", "b.tar.gz").code == 78


def test_the_doctor_tells_as_json_and_lines_what_it_found(run: Callable[..., Ran], cluster: EmbeddedCluster) -> None:
    told = json.loads(run("doctor", "m1", "-o", "json").out)
    about = {each["subject"]: each for each in told["findings"]}
    assert about["m1 http"]["level"] == "ok"
    assert about["m1 clock"]["what"] == "agrees with this machine"
    assert "w1 data" not in about
    lines = run("doctor", "m1").out.splitlines()
    assert all(line.split(" ", 1)[0] in {"ok", "warning", "problem"} for line in lines)
    assert run("doctor", "nobody").code == 78


def test_the_doctor_tells_of_the_machine_before_it_gives_up_on_the_broker(run: Callable[..., Ran], tmp_path: Path) -> None:
    port = free_ports(2)
    closed = port + 1
    (tmp_path / "cluster.toml").write_text(FILE.format(broker=f"amqp://127.0.0.1:{closed}/x", port=port))
    done = run("doctor")
    assert done.code == 3
    assert "m1 data" in done.out
    assert f"nothing listens at 127.0.0.1:{closed}" in done.out


def test_the_doctor_compares_deployment_files(run: Callable[..., Ran], tmp_path: Path) -> None:
    port = free_ports(2)
    closed = port + 1
    text = FILE.format(broker=f"amqp://127.0.0.1:{closed}/x", port=port)
    (tmp_path / "cluster.toml").write_text(text)
    assert run("init", "supervisord").code == 0
    assert "ok       supervisord files" in run("doctor").out
    (tmp_path / "cluster.toml").write_text(f'{text}[[worker]]\nid = "w2"\nmaster = "m1"\n')
    assert "warning  supervisord files: out of date" in run("doctor").out


@pytest.mark.parametrize("kind", ["supervisord", "systemd"])
def test_deployment_files_are_compared_for_the_nodes_of_this_machine(kind: str, run: Callable[..., Ran], tmp_path: Path) -> None:
    """Whichever nodes the doctor is asked about: files made again for other ones would end those that run here, or start those of elsewhere."""
    port = free_ports(2)
    text = FILE.format(broker=f"amqp://127.0.0.1:{port + 1}/x", port=port)
    text += '[[master]]\nid = "m2"\nhttp = "10.0.0.2:7201"\n'
    (tmp_path / "cluster.toml").write_text(text)
    assert run("init", kind, "--nodes", "m1,w1", "--user", "somebody").code == 0
    assert f"ok       {kind} files" in run("doctor").out
    assert f"ok       {kind} files" in run("doctor", "w1").out
    (tmp_path / "cluster.toml").write_text(f'{text}[[worker]]\nid = "w2"\nmaster = "m1"\n')
    told = run("doctor", "m1").out
    assert f"warning  {kind} files: out of date" in told
    assert "--nodes m1,w1,w2 --user somebody --force" in told


def test_deployment_files_that_were_formatted_by_hand_are_compared_too(run: Callable[..., Ran], tmp_path: Path) -> None:
    port = free_ports(2)
    (tmp_path / "cluster.toml").write_text(FILE.format(broker=f"amqp://127.0.0.1:{port + 1}/x", port=port))
    assert run("init", "supervisord", "--user", "somebody").code == 0
    for path in tmp_path.rglob("*.conf"):
        path.write_text(path.read_text().replace(" = ", "="))
    told = run("doctor").out
    assert "warning  supervisord files" in told
    assert "--nodes m1,w1 --user somebody --force" in told


def test_output_is_a_format_as_everywhere(run: Callable[..., Ran], cluster: EmbeddedCluster, tmp_path: Path) -> None:
    told = json.loads(run("support-bundle", "-o", "json", "--file", "b.tar.gz").out)
    assert told == {"file": "b.tar.gz", "bytes": (tmp_path / "b.tar.gz").stat().st_size, "files": told["files"], "silent": []}
    assert len(content(tmp_path / "b.tar.gz")) == told["files"]
    before = sorted(tmp_path.iterdir())
    refused = run("support-bundle", "-o", "c.tar.gz")
    assert (refused.code, refused.out) == (64, "")
    assert sorted(tmp_path.iterdir()) == before
