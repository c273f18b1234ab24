"""The Dockerfile and the compose files: parsed, held against what they name, and made from their cluster files."""

from __future__ import annotations

import http.server
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from brokerha.cli.main import main
from brokerha.deploying.broker import brokers_of
from brokerha.deploying.compose import CLUSTER_FILE, DATA, compose_plan
from brokerha.deploying.machine import KILL_AFTER_S, LONGEST_STOP_S
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import load_config
from tests.unit.deploying.clusters import ONE_SITE, cluster

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
EXAMPLES = ("one-site", "three-sites")
PINNED = re.compile(r"[a-z/]+:\d+\.\d+\.\d+[a-z0-9.-]*\Z")
"""Name and whole version."""


class Instruction(NamedTuple):
    """One line of a Dockerfile."""

    word: str
    rest: str


def instructions() -> list[Instruction]:
    text = re.sub(r"\\\n", " ", (DOCKER / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Instruction(*line.split(maxsplit=1)) for line in lines]


def the(word: str) -> str:
    """The last instruction of this kind, which counts."""
    return [each.rest for each in instructions() if each.word == word][-1]


def compose_of(example: str) -> dict[str, Any]:
    found: dict[str, Any] = importlib.import_module("yaml").safe_load(
        (DOCKER / example / "compose.yaml").read_text(encoding="utf-8")
    )
    return found


# ---- the image


def test_the_image_is_pinned_small_and_nobodys_root():
    words = [each.word for each in instructions()]
    bases = [each.rest.split()[0] for each in instructions() if each.word == "FROM"]
    assert all(PINNED.match(base) and "slim" in base for base in bases), bases
    assert len(bases) == 2
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", the("USER"))
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert "ADD" not in words
    assert set(words) <= {
        "FROM",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "WORKDIR",
        "VOLUME",
        "HEALTHCHECK",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }


def test_nothing_is_installed_that_has_no_hash_here():
    installs = [part for each in instructions() if each.word == "RUN" for part in each.rest.split("&&") if "pip install" in part]
    assert len(installs) == 3
    for install in installs:
        assert re.search(r"--require-hashes -r docker/\w+\.lock|--no-index --no-deps /dist/", install), install


def test_what_is_copied_is_there_and_not_ignored():
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    sources = set()
    for each in instructions():
        if each.word == "COPY" and not each.rest.startswith("--from"):
            sources |= set(each.rest.split()[:-1])
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)


@pytest.mark.slow
def test_the_commands_of_the_image_run(tmp_path: Path):
    """The build step, as far as it is ours, in a folder that has only what is copied; then the entry point with its default."""
    for each in instructions():
        if each.word == "COPY" and not each.rest.startswith("--from"):
            *sources, target = each.rest.split()
            for source in sources:
                place = tmp_path / target.lstrip("/")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    place.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, place)
    # With the programs of this environment in place of those that the lines before have installed.
    command = next(each.rest for each in instructions() if each.word == "RUN" and "hatchling build" in each.rest)
    for word, ours in (
        ("/opt/build/bin/python", sys.executable),
        ("/opt/brokerha/bin/pip install", f"{sys.executable} -m pip install --quiet --target {tmp_path}/lib"),
        ("/dist", f"{tmp_path}/dist"),
    ):
        assert word in command
        command = command.replace(word, ours)
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path / "src", capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    script = tmp_path / "lib" / "bin" / json.loads(the("ENTRYPOINT"))[0]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}
    said = subprocess.run(
        [str(script), *json.loads(the("CMD"))], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert said.returncode == 0, said.stderr
    assert "Usage: brokerha" in said.stdout


class _Alive(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (503, False), (None, False)])
def test_the_health_check_asks_whether_the_node_lives(status: int | None, is_healthy: bool, monkeypatch: pytest.MonkeyPatch):
    command = json.loads(the("HEALTHCHECK").split("CMD ", maxsplit=1)[1])
    assert command[0] == "python"
    monkeypatch.setattr(_Alive, "status", status)
    with http.server.HTTPServer(("127.0.0.1", 0), _Alive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        if status is None:
            server.shutdown()
            server.server_close()
        environment = {"BROKERHA_URL": f"http://127.0.0.1:{port}", "PATH": os.environ["PATH"]}
        done = subprocess.run([sys.executable, *command[1:]], env=environment, capture_output=True, check=False, timeout=60)
        if status is not None:
            server.shutdown()
    assert (done.returncode == 0) is is_healthy


# ---- compose


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_made_from_their_cluster_files(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / example
    folder.mkdir()
    shutil.copy(DOCKER / example / "cluster.toml", folder)
    monkeypatch.chdir(folder)
    assert main(["init", "compose", "--deploy", "."]) == 0
    for path in (DOCKER / example).iterdir():
        if path.name != "secrets" and not path.name.startswith("definitions"):
            assert (folder / path.name).read_text() == path.read_text(), f"make {example}/{path.name} again: brokerha init compose"
    compose = compose_of(example)
    mounted = [volume.split(":")[0] for service in compose["services"].values() for volume in service["volumes"]]
    files = [each["file"] for each in compose["secrets"].values()]
    missing = [name for name in (*mounted, *files) if name.startswith(".") and not (folder / name).is_file()]
    assert not missing


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_service_is_what_its_node_needs(example: str, tmp_path: Path):
    compose = compose_of(example)
    path = DOCKER / example / "cluster.toml"
    config = load_config(path, {})
    hosts = {broker.address.host for broker in brokers_of(config)}
    assert set(compose["services"]) == hosts | set(config.roles)
    secret = tmp_path / "url"
    for name, service in compose["services"].items():
        assert service["user"] == "${BROKERHA_UID:-1000}:${BROKERHA_GID:-1000}"
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert set(service["networks"]) <= set(compose["networks"])
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        assert {v.split(":")[0] for v in service["volumes"] if not v.startswith(".")} <= set(compose["volumes"])
        if name in hosts:
            assert PINNED.match(service["image"])
            continue
        assert service["read_only"] is True
        assert int(service["stop_grace_period"].removesuffix("s")) == KILL_AFTER_S > LONGEST_STOP_S
        assert service["command"] == ["node", name, "-c", CLUSTER_FILE]
        environment = dict(service["environment"])
        url = environment.pop("BROKERHA_URL")
        names = [key for key, value in environment.items() if value == f"/run/secrets/{name}-url"]
        secret.write_text("amqp://orders.me:secret@elsewhere/orders", encoding="utf-8")
        own = load_config(path, {**environment, **dict.fromkeys(names, str(secret))})
        assert own.broker_of(name) == "amqp://orders.me:secret@elsewhere/orders"
        assert str(own.data) == DATA
        assert own.node(name).http == f"0.0.0.0:{url.rpartition(':')[2]}"
        assert service["ports"] == [f"127.0.0.1:{(port := config.node(name).http.rpartition(':')[2])}:{port}"]
    ports = [port.rsplit(":", 1)[0] for service in compose["services"].values() for port in service["ports"]]
    assert len(ports) == len(set(ports))


def test_sites_meet_at_their_brokers_only():
    services = compose_of("three-sites")["services"]
    for node in ("m1", "m2", "m3", "w1", "w2", "w3"):
        assert services[node]["networks"] == [f"site-m{node[1]}"]
    for number in (1, 2, 3):
        assert services[f"rabbitmq-{number}"]["networks"] == [f"site-m{number}", "brokers"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "m1"])
def test_a_broker_that_cannot_be_a_service_is_refused(host: str, tmp_path: Path):
    config = cluster(ONE_SITE.replace("rabbitmq:5672", f"{host}:5672"), tmp_path)
    with pytest.raises(ConfigurationError, match="becomes a service: write another name, such as amqp://rabbitmq/orders"):
        compose_plan(config, tmp_path, tmp_path / "secrets")


@pytest.mark.parametrize(
    "url",
    ["amqps://rabbitmq/orders?cacertfile=ca.pem", "amqp://rabbitmq:5673/orders", "amqp://rabbit1/orders;amqp://rabbit2/orders"],
)
def test_an_address_where_no_container_would_listen_is_refused(url: str, tmp_path: Path):
    config = cluster(ONE_SITE.replace("amqp://guest:guest@rabbitmq:5672/orders", url), tmp_path)
    with pytest.raises(ConfigurationError, match=r"one address of the form amqp://rabbit(mq|1)/orders"):
        compose_plan(config, tmp_path, tmp_path / "secrets")


def test_two_doors_that_would_be_published_at_one_port_are_refused(tmp_path: Path):
    config = cluster(ONE_SITE.replace("10.0.0.2:7202", "10.0.0.2:7201"), tmp_path)
    with pytest.raises(ConfigurationError, match=r"the doors of m1 and m1s have the port 7201, .* write another one"):
        compose_plan(config, tmp_path, tmp_path / "secrets")


@pytest.mark.parametrize("named", ["copies", "{here}/elsewhere", "~/copies"])
def test_workers_can_write_backups_to_the_folder_of_the_cluster_file(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    text = ONE_SITE.replace("[[master]]", f'backup-folder = "{named.format(here=tmp_path)}"\n[[master]]', 1)
    config = cluster(text, tmp_path)
    plan = compose_plan(config, tmp_path / "deploy", tmp_path / "deploy" / "secrets")
    services = importlib.import_module("yaml").safe_load(plan.files[0].text)["services"]
    for name in ("w1", "w2"):
        # The node writes where the folder of this machine, which commands here read, is mounted
        source, target = services[name]["volumes"][-1].split(":")
        assert Path(os.path.normpath(tmp_path / "deploy" / source)) == config.backups_directory
        environment = {key: value for key, value in services[name]["environment"].items() if not key.endswith("_FILE")}
        own = load_config(config.path, environment)
        assert str(own.backups_directory) == target
    assert len(services["m1"]["volumes"]) == 2
    # Docker would make it for root
    assert f"mkdir -p -m 0700 {config.backups_directory}" in " ".join(plan.next_steps)


# ---- doors with users and TLS


DOORS = 'http-users = "{users}"\nhttp-certificate = "tls/{{id}}.pem"\nhttp-key = "tls/{{id}}.key"\n'


def with_doors(folder: Path, users: str) -> dict[str, Any]:
    text = ONE_SITE.replace("[[master]]", DOORS.format(users=users) + "[[master]]", 1)
    config = cluster(text, folder)
    plan = compose_plan(config, folder / "deploy", folder / "deploy" / "secrets")
    found: dict[str, Any] = importlib.import_module("yaml").safe_load(plan.files[0].text)
    return found


def test_each_container_has_the_users_and_its_own_certificate_where_the_cluster_file_names_them(tmp_path: Path):
    services = with_doors(tmp_path, "users/users.toml")["services"]
    assert services["m1"]["volumes"][2:] == [
        "../tls/m1.pem:/etc/brokerha/tls/m1.pem:ro", "../tls/m1.key:/etc/brokerha/tls/m1.key:ro", "../users:/etc/brokerha/users:ro",
    ]  # fmt: skip
    assert services["w1"]["volumes"][2].startswith("../tls/w1.pem:")
    assert services["m1"]["environment"]["BROKERHA_URL"] == "https://127.0.0.1:7201"
    # TLS and users are there: nothing is said to keep others out
    assert not [name for name in services["m1"]["environment"] if "PLAIN" in name]
    assert "_create_unverified_context" in services["m1"]["healthcheck"]["test"][-1]


def test_a_users_file_beside_the_cluster_file_would_never_be_seen_to_change(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r'put it into one of its own, as http-users = "users/users\.toml"'):
        with_doors(tmp_path, "users.toml")
