"""The door of a node as the cluster file wants it: refused where anybody could come in, https, users that change while it is open."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

import brokerha
from brokerha.cli.main import main
from brokerha.embedded import EmbeddedCluster
from brokerha.http.app import open_door
from brokerha.http.door.server import HttpServer
from brokerha.http.replaced import LOOK_EVERY_S
from brokerha.http.users import UsersFile, parse_users
from brokerha.model.errors import BrokerhaError, ConfigurationError, Unreachable
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.support.free_ports import free_ports
from tests.support.tls_door import make_certificate
from tests.unit.http.fake_front import FakeFront

PASSWORD = "correct horse battery"
CANARY = "canary-7f3a91-secret"


def config(folder: Path, address: str, **keys: object) -> ClusterConfig:
    return ClusterConfig(
        name="doors",
        broker="embedded://doors",
        data=folder / "var",
        path=folder / "cluster.toml",
        masters=(MasterEntry(id="m1", http=address),),
        workers=(WorkerEntry(id="w1", master="m1"),),
        **keys,  # type: ignore[arg-type]
    )


def opened(folder: Path, address: str, **keys: object) -> HttpServer | None:
    return open_door(config(folder, address, **keys), "m1", FakeFront())


def make_users(folder: Path, monkeypatch: pytest.MonkeyPatch, *users: tuple[str, str]) -> None:
    for name, role in users:
        monkeypatch.setattr("brokerha.cli.cluster.user._password", lambda: PASSWORD)
        assert main(["user", "add", name, "--role", role, "--file", str(folder / "users.toml")]) == 0


@pytest.mark.parametrize("address", ["127.0.0.1:7201", "localhost:7201", "[::1]:7201"])
def test_on_loopback_a_door_needs_nothing(tmp_path: Path, address: str) -> None:
    assert opened(tmp_path, address) is not None


@pytest.mark.parametrize("address", ["0.0.0.0:7201", ":7201", "10.0.0.1:7201", "example.org:7201"])
def test_elsewhere_it_is_refused_without_tls_and_users(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"has no TLS: write http-certificate and http-key .*, or http-plain = true"):
        opened(tmp_path, address)
    made = make_certificate(tmp_path, "localhost")
    tls = {"http_certificate": "localhost.pem", "http_key": "localhost.key"}
    with pytest.raises(ConfigurationError, match="everybody there could do everything: write http-users"):
        opened(tmp_path, address, **tls)
    make_users(tmp_path, monkeypatch, ("app", "write"))
    door = opened(tmp_path, address, **tls, http_users="users.toml")
    assert door is not None
    assert door.url.startswith("https://")
    assert made.key.name == "localhost.key"
    # Or something else keeps others out
    assert opened(tmp_path, address, http_plain=True) is not None


def test_an_origin_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"http-origins has example\.org: write the scheme and the host"):
        opened(tmp_path, "127.0.0.1:7201", http_origins="example.org")
    assert opened(tmp_path, "127.0.0.1:7201", http_origins="https://example.org") is not None


OWN_NAMES = [
    "localhost:7201",
    "LOCALHOST.",
    "app.localhost:8080",
    "127.0.0.1:7201",
    "127.9.9.9",
    "[::1]:7201",
    "10.0.0.7:7201",
    "[2001:db8::1]",
    "m1.example.org:7201",
    "m2.example.org",
    "m1",
    "w1:7301",
    "brokerha.example.org",
    "proxy.example.org:8443",
]
FOREIGN_NAMES = [
    "evil.example:7201",
    "localhost.evil.example",
    "m1.example.org.evil.example",
    "xm1",
    "2130706433.evil.example",
    "[evil.example]",
    "a:b",
]


def statuses(door: HttpServer | None, path: str, hosts: Iterable[str], method: str = "GET") -> set[int]:
    assert door is not None
    door.start()
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{door.port}") as client:
            return {client.request(method, path, headers={"Host": host}).status_code for host in hosts}
    finally:
        door.stop(0.2)


def test_a_door_without_users_answers_only_to_its_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page whose name leads to this door since it was loaded (DNS rebinding) is a page of this door for its browser."""

    def door(**keys: object) -> HttpServer | None:
        found = config(tmp_path, "127.0.0.1:1", http_origins="https://brokerha.example.org,https://proxy.example.org:8443", **keys)
        masters = (MasterEntry(id="m1", http="m1.example.org:7201"), MasterEntry(id="m2", http="m2.example.org:7201"))
        made = open_door(replace(found, masters=masters, http_plain=True), "m1", FakeFront())
        assert made is not None
        made.host, made.port = "127.0.0.1", 0
        return made

    own = [*OWN_NAMES, socket.gethostname(), f"{socket.gethostname().upper()}:7201"]
    # Then reads and writes by another name are refused, and say what to do
    assert statuses(door(), "/protocol", own) == {200}
    for method in ("GET", "PUT", "DELETE"):
        assert statuses(door(), "/kv/t/a", FOREIGN_NAMES, method) == {403}
    # But probes, and a door with users, answer to every name
    assert statuses(door(), "/livez", FOREIGN_NAMES) == {200}
    make_users(tmp_path, monkeypatch, ("app", "write"))
    assert statuses(door(http_users="users.toml"), "/protocol", FOREIGN_NAMES) == {401}


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("rdf4j-server", "write it as /rdf4j-server"),
        ("/a/", "none after"),
        ("/a b", "write it as"),
        ("/repositories", "paths of the door itself"),
    ],
)
def test_a_prefix_that_cannot_be_one_stops_the_node(tmp_path: Path, prefix: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f'http-prefix = "{prefix}".*{words}'):
        opened(tmp_path, "127.0.0.1:7201", http_prefix=prefix)
    assert opened(tmp_path, "127.0.0.1:7201", http_prefix="/rdf4j-server") is not None


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    make_certificate(tmp_path, "localhost")
    with pytest.raises(ConfigurationError, match="belong together"):
        opened(tmp_path, "127.0.0.1:1", http_certificate="localhost.pem")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        opened(tmp_path, "127.0.0.1:1", http_certificate="localhost.pem", http_key="missing.key")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        opened(tmp_path, "127.0.0.1:1", http_certificate="localhost.key", http_key="localhost.key")
    with pytest.raises(ConfigurationError, match="brokerha user add makes it"):
        opened(tmp_path, "127.0.0.1:1", http_users="users.toml")


def test_the_id_of_the_node_may_stand_in_the_names(tmp_path: Path) -> None:
    make_certificate(tmp_path, "localhost")
    for name in ("pem", "key"):
        (tmp_path / f"localhost.{name}").rename(tmp_path / f"m1.{name}")
    assert opened(tmp_path, "127.0.0.1:1", http_certificate="{id}.pem", http_key="{id}.key") is not None


def test_a_users_file_is_read_again_and_a_slip_of_the_pen_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_users(tmp_path, monkeypatch, ("app", "write"))
    now_s = [100.0]
    users = UsersFile(tmp_path / "users.toml", lambda: now_s[0])
    assert users().by_password("app", PASSWORD) is not None
    # When another one is added
    make_users(tmp_path, monkeypatch, ("boss", "admin"))
    assert users().by_password("boss", PASSWORD) is None
    now_s[0] += LOOK_EVERY_S
    assert users().by_password("boss", PASSWORD) is not None
    # When the file is no users file any more, or gone
    for harm in (lambda: (tmp_path / "users.toml").write_text("role =", "utf-8"), (tmp_path / "users.toml").unlink):
        harm()
        now_s[0] += LOOK_EVERY_S
        assert users().by_password("boss", PASSWORD) is not None


def test_the_command_keeps_hashes_only_in_a_file_for_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users.toml"
    make_users(tmp_path, monkeypatch, ("app", "write"))
    assert main(["user", "add", "app", "--role", "read", "--token", "--expires-h", "1", "--file", str(file)]) == 0
    token = capsys.readouterr().out.strip()
    text = file.read_text("utf-8")
    assert token
    assert token not in text
    assert PASSWORD not in text
    assert file.stat().st_mode & 0o777 == 0o600
    (user,) = parse_users(text, "users.toml").values()
    assert (user.role, bool(user.password), len(user.tokens)) == ("read", True, 1)
    assert main(["user", "list", "--file", str(file), "-o", "tsv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split("\t")[:4] == ["app", "read", "true", "1"]
    # The last one stays: a door without users would be closed to all
    assert main(["user", "remove", "app", "--file", str(file)]) == 78
    make_users(tmp_path, monkeypatch, ("boss", "admin"))
    assert main(["user", "remove", "app", "--file", str(file)]) == 0
    assert [*parse_users(file.read_text("utf-8"), "users.toml")] == ["boss"]
    assert main(["user", "remove", "app", "--file", str(file)]) == 2
    assert main(["user", "add", "x", "--role", "owner", "--file", str(file)]) == 64


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A cluster in this process behind https with users; its URL, and its folder."""
    made = make_certificate(tmp_path, "localhost")
    make_users(tmp_path, monkeypatch, ("reader", "read"), ("app", "write"), ("boss", "admin"))
    port = free_ports()
    keys = {"http_certificate": made.certificate.name, "http_key": made.key.name, "http_users": "users.toml"}
    settings = config(tmp_path, f"127.0.0.1:{port}", **keys)
    for name in ("BROKERHA_TOKEN", "BROKERHA_USER", "BROKERHA_PASSWORD", "BROKERHA_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    with EmbeddedCluster(settings) as cluster:
        cluster.client("m1").put("ready", b"k", b"v", timeout=30)
        server = open_door(settings, "m1", cluster.masters["m1"])
        assert server is not None
        server.start()
        assert settings.http_urls() == {"m1": f"https://127.0.0.1:{port}"}
        yield f"https://localhost:{port}", tmp_path
        server.stop(5.0)


def test_clients_read_and_write_over_https_as_what_they_are(
    door: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = door
    monkeypatch.setenv("BROKERHA_CA_FILE", str(folder / "localhost.pem"))
    # Nobody
    with brokerha.connect(url) as db, pytest.raises(BrokerhaError, match="needs a user"):
        db.get("ready", b"k", timeout=10)
    # With a password
    monkeypatch.setenv("BROKERHA_USER", "app")
    monkeypatch.setenv("BROKERHA_PASSWORD", PASSWORD)
    with brokerha.connect(url) as db:
        db.put("t", b"k", b"1", timeout=20)
        assert db.get("t", b"k", timeout=20) == b"1"
        with pytest.raises(BrokerhaError, match="needs the role admin"):
            db.command("worker-off", {"worker": "w1"}, timeout=10)
    monkeypatch.setenv("BROKERHA_USER", "reader")
    with brokerha.connect(url) as db:
        assert db.get("t", b"k", timeout=20) == b"1"
        with pytest.raises(BrokerhaError, match="needs the role write: user reader has read"):
            db.put("t", b"k", b"2", timeout=10)
    # With a token, which goes before the name
    capsys.readouterr()
    assert main(["user", "add", "boss", "--role", "admin", "--token", "--file", str(folder / "users.toml")]) == 0
    monkeypatch.setenv("BROKERHA_TOKEN", capsys.readouterr().out.strip())
    # Doors see it within a second
    deadline_s = time.monotonic() + 30
    while main(["status", "--url", url]) != 0:
        assert time.monotonic() < deadline_s, capsys.readouterr().err


def test_a_certificate_that_is_not_trusted_or_of_another_name_ends_it(
    door: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = door
    monkeypatch.setenv("BROKERHA_USER", "app")
    monkeypatch.setenv("BROKERHA_PASSWORD", CANARY)
    with brokerha.connect(url) as db, pytest.raises(BrokerhaError, match="its certificate is not trusted"):
        db.get("t", b"k", timeout=3)
    monkeypatch.setenv("BROKERHA_CA_FILE", str(folder / "localhost.pem"))
    with (
        brokerha.connect(url.replace("localhost", "127.0.0.1")) as db,
        pytest.raises(BrokerhaError, match="its certificate is not trusted") as caught,
    ):
        db.get("t", b"k", timeout=3)
    assert CANARY not in str(caught.value)


def test_a_door_without_tls_is_told_apart_from_a_node_that_does_not_run() -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", free_ports()), Quiet) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        with (
            brokerha.connect(f"https://127.0.0.1:{server.server_port}") as db,
            pytest.raises(Unreachable, match="it answers without TLS: write http://") as caught,
        ):
            db.get("t", b"k", timeout=2)
        server.shutdown()
        serving.join()
    # Nobody is told to start the nodes.
    assert caught.value.remedy is None


def test_no_secret_is_sent_where_it_could_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERHA_TOKEN", CANARY)
    with pytest.raises(ConfigurationError, match="is not https") as caught:
        brokerha.connect("http://example.org:7201")
    assert CANARY not in str(caught.value)
    monkeypatch.setenv("BROKERHA_PLAIN_HTTP", "allowed")
    brokerha.connect("http://example.org:7201").close()
