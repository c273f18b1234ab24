"""Secrets are nowhere but where they have to be: not in logs, command lines, answers, metrics, errors, data or a support bundle.

Given a cluster whose broker user, HTTP user and token have secrets that are found nowhere else; when everyday things happen, and things that fail (wrong
passwords, lost connections, a killed node, a node that cannot start); then none of the secrets is in anything that anybody can see.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.broker_source import BrokerSource
from tests.support.free_ports import free_ports
from tests.support.management import Management
from tests.system.processes import DEADLINE_S, ProcessCluster

BROKER, PASSWORD, WRONG = "Zaunkoenig-in-amqp-4711", "Kuckuck-im-Basic-0815", "Wiedehopf-ist-falsch-99"
PAGES = ("/", "/page/live", "/cluster/status", "/cluster/log", "/metrics", "/livez", "/readyz", "/nothing", "/kv/prices/none")


@pytest.fixture
def app_url(broker: BrokerSource, vhost_url: str) -> Iterator[str]:
    """The virtual host, for a user whose password is one of the secrets."""
    parts, name = urlsplit(vhost_url), "canary-of-a-test"
    with Management(broker.management_url) as management:
        management.create_user(name, BROKER)
        management.set_permissions(parts.path[1:], name, ".*", ".*", ".*")
        yield f"amqp://{name}:{BROKER}@{parts.hostname}:{parts.port}{parts.path}"
        management.delete_user(name)


def run(folder: Path, *words: str, given: str = "", **environment: str) -> tuple[int, str]:
    """One command: its exit code, and everything that it says."""
    done = subprocess.run(
        [sys.executable, "-m", "brokerha", *words],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("BROKERHA_")} | environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def command_lines() -> str:
    """What every user of this machine can read of all processes."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                found.append((place / "cmdline").read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue
    return "\n".join(found)


def bundled(path: Path) -> str:
    with tarfile.open(path) as archive:
        files = [archive.extractfile(each) for each in archive.getmembers()]
        return "\n".join((each or io.BytesIO()).read().decode("utf-8", "replace") for each in files)


Command = tuple[str, tuple[str, ...], dict[str, str]]


def everyday(cluster: ProcessCluster, app_url: str, of_token: dict[str, str]) -> list[Command]:
    """Commands that do their work: what each is called, its words, its environment."""
    there = ("-c", str(cluster.path))
    of_password = {"BROKERHA_USER": "basic", "BROKERHA_PASSWORD": PASSWORD}
    return [
        ("put", ("put", "prices", "sku-1", "9.90", *there), of_token),
        ("get", ("get", "prices", "sku-1", "--url", cluster.url("m1")), of_password),
        ("put over AMQP", ("put", "prices", "sku-2", "9.90", "--url", app_url), {}),
        ("status", ("status", "-o", "json", *there), of_token),
        ("log", ("log", "show", *there), of_token),
        ("bundle", ("support-bundle", "--file", "b.tar.gz", "--logs", str(cluster.folder), *there), of_token),
    ]


def failing(cluster: ProcessCluster, app_url: str, of_token: dict[str, str]) -> list[Command]:
    """Commands that end with an error."""
    there, port = ("-c", str(cluster.path)), free_ports(1)
    nowhere = {"BROKERHA_CLUSTER_BROKER": f"amqp://a:{WRONG}@127.0.0.1:{port}/%zz?x={WRONG}"}
    wrong = {"BROKERHA_USER": "basic", "BROKERHA_PASSWORD": WRONG}
    return [
        ("wrong token", ("put", "t", "k", "v", *there), {"BROKERHA_TOKEN": WRONG}),
        ("wrong password", ("get", "t", "k", *there), wrong),
        ("wrong amqp", ("put", "t", "k", "v", "--timeout-s", "1", "--url", app_url.replace(BROKER, WRONG)), {}),
        ("wrong broker", ("node", "m1", *there), nowhere),
        ("no url", ("put", "t", "k", "v", "--url", f"amqp://a:{WRONG}@[::"), {}),
        # It finds fault with a broker whose dashboard it cannot see.
        ("doctor", ("doctor", *there), of_token),
    ]


def pages(cluster: ProcessCluster, token: str) -> dict[str, str]:
    """What the doors answer to who has this token."""
    found = {}
    with httpx2.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=20) as http:
        for node in ("m1", "m1a"):
            for page in PAGES:
                answer = http.get(cluster.url(node) + page)
                found[f"{node} {page}"] = f"{answer.headers}\n{answer.text}"
    return found


def test_secrets_are_in_nothing_that_anybody_sees(
    app_url: str, broker: BrokerSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, secret = tmp_path / "users.toml", tmp_path / "broker.url"
    added = run(tmp_path, "user", "add", "basic", "--role", "admin", "--file", str(users), given=f"{PASSWORD}\n")
    code, said = run(tmp_path, "user", "add", "app", "--role", "admin", "--token", "--file", str(users))
    assert (added[0], code) == (0, 0), (added, said)
    # The token is shown once, by the command that makes it.
    token = said.splitlines()[0].strip()
    secret.write_text(app_url)
    monkeypatch.setenv("BROKERHA_CLUSTER_BROKER_FILE", str(secret))
    of_token = {"BROKERHA_TOKEN": token, "BROKERHA_CLUSTER_BROKER_FILE": str(secret)}
    seen: dict[str, str] = {}
    nobody, settings = "amqp://nobody@127.0.0.1:1/nowhere", 'http-users = "users.toml"\n'
    with (
        ProcessCluster(tmp_path, nobody, masters=1, workers_each=1, settings=settings) as cluster,
        Management(broker.management_url) as management,
    ):
        for name, words, environment in failing(cluster, app_url, of_token):
            code, seen[name] = run(tmp_path, *words, **environment)
            assert code, (name, seen[name])
        management.close_connections(urlsplit(app_url).path[1:])
        cluster.kill("m1a")
        cluster.await_ready(["m1", "m1a"])
        for name, words, environment in everyday(cluster, app_url, of_token):
            code, seen[name] = run(tmp_path, *words, **environment)
            assert code == 0, (name, code, seen[name])
        seen |= pages(cluster, token) | {f"wrong {name}": text for name, text in pages(cluster, WRONG).items()}
        seen["command lines"] = command_lines()
        seen["connections"] = str(management.connections())
    seen["log of the nodes"] = cluster.log_tail(1_000_000)
    seen["bundle's content"] = bundled(tmp_path / "b.tar.gz")
    files = [path for path in (tmp_path / "var").rglob("*") if path.is_file()]
    seen["data"] = "\n".join(path.read_bytes().decode("latin-1") for path in files)
    seen["users file"] = users.read_text()
    assert files
    assert "m1a" in seen["command lines"]
    assert len(seen["log of the nodes"]) > 1_000
    assert "needs a user" not in seen["m1 /cluster/status"]
    found = {(where, each) for where, text in seen.items() for each in (BROKER, PASSWORD, WRONG, token) if each in text}
    assert not found
