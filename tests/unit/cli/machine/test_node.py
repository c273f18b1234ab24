"""`brokerha node` finds the program of a role, `brokerha up` asks until all nodes serve."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from brokerha.cli.machine import node as node_module
from brokerha.cli.machine import supervising
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.observing.probes import NO_WORKER_LINE

FILE = """\
[cluster]
name = "orders"
broker = "amqp://h"
[[master]]
id = "m1"
[[backup]]
id = "m1b"
master = "m1"
[[worker]]
id = "w1"
master = "m1"
"""

started: list[tuple[str, str]] = []


def program(config, node_id: str) -> int:
    started.append((config.name, node_id))
    return 5


@pytest.fixture
def file(tmp_path) -> str:
    (tmp_path / "orders.toml").write_text(FILE)
    return "orders.toml"


# ---- node


@pytest.mark.parametrize(("node_id", "role"), [("m1", "master"), ("w1", "worker")])
def test_a_node_is_run_by_the_program_of_its_role(run, file, monkeypatch, node_id, role):
    asked = []

    def entry_points(group: str, name: str) -> list[EntryPoint]:
        asked.append((group, name))
        return [EntryPoint(name, f"{__name__}:program", group)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: program)
    started.clear()
    assert run("node", node_id, "-c", file).code == 5
    assert (asked, started) == ([("brokerha.programs", role)], [("orders", node_id)])


def test_the_programs_of_this_package_are_installed():
    for role in ("master", "backup", "worker"):
        assert callable(node_module.program_of(role))


def test_a_role_without_a_program_says_what_to_install():
    with pytest.raises(ConfigurationError, match="no program for the role baker is installed"):
        node_module.program_of("baker")


def test_a_node_that_is_not_in_the_file_is_a_configuration_error(run, file):
    ran = run("node", "w2", "-c", file)
    assert (ran.code, ran.err) == (78, 'brokerha: orders.toml: there is no node "w2": write w1\n')


def test_a_worker_that_was_added_at_run_time_is_started_without_an_entry(run, file, monkeypatch):
    seen = []

    def added(config, node_id: str) -> int:
        entry = config.node(node_id)
        seen.append((entry.role, config.master_of(node_id), entry.http, config.data_directory(node_id).name))
        return 0

    monkeypatch.setattr(node_module, "program_of", lambda role: added)
    ran = run("node", "w9", "-c", file, "--role", "worker", "--master", "m1", "--http", "127.0.0.1:7309")
    assert ran.code == 0
    assert seen == [("worker", "m1", "127.0.0.1:7309", "w9")]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("w9", "--role", "worker"), 64, "--role worker --master ID"),
        (("w9", "--role", "master", "--master", "m1"), 64, "--role worker --master ID"),
        (("w9", "--http", ":7309"), 64, "--role worker --master ID"),
        (("w9", "--role", "worker", "--master", "m7"), 78, "there is no master 'm7': write --master with one of m1"),
        (("W9", "--role", "worker", "--master", "m1"), 78, "'W9' is no node id"),
        (("m1", "--role", "worker", "--master", "m1"), 78, "m1 is a master of m1 there already"),
        (("w9", "--role", "worker", "--master", "m1", "--http", "here"), 78, "'here' is not host:port"),
    ],
)
def test_a_worker_that_cannot_be_added_is_refused(run, file, options, code, words):
    ran = run("node", *options, "-c", file)
    assert ran.code == code
    assert words in ran.err


def test_an_embedded_cluster_has_no_single_nodes(run, tmp_path):
    (tmp_path / "orders.toml").write_text(FILE.replace("amqp://h", "embedded://"))
    ran = run("node", "m1", "-c", "orders.toml")
    assert ran.code == 78
    assert "start it with brokerha up -c orders.toml" in ran.err


def test_up_serves_an_embedded_cluster_in_this_process(run, tmp_path, monkeypatch):
    (tmp_path / "orders.toml").write_text(FILE.replace("amqp://h", "embedded://"))
    served: list[str] = []

    def serve(config) -> int:
        served.append(config.name)
        return 0

    embedded = SimpleNamespace(serve=serve)
    monkeypatch.setitem(sys.modules, "brokerha.embedded", embedded)
    ran = run("up", "-c", "orders.toml")
    assert (ran.code, served) == (0, ["orders"])


# ---- readiness


class Probe(BaseHTTPRequestHandler):
    """Bad at first, good from the third question on."""

    asked = 0
    bad = "[-]broker bad\n[-]worker bad\n"

    def do_GET(self) -> None:
        Probe.asked += 1
        is_ready = Probe.asked >= 3
        body = b"[+]loop ok\n" + (b"" if is_ready else Probe.bad.encode())
        self.send_response(200 if is_ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    Probe.asked = 0
    http = HTTPServer(("127.0.0.1", 0), Probe)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()
    http.server_close()


def test_a_node_that_is_not_ready_says_why(server):
    assert supervising.missing({"m1": server}) == {"m1": "[-]broker bad, [-]worker bad"}


def test_a_master_without_workers_is_not_waited_for(server, monkeypatch):
    monkeypatch.setattr(Probe, "bad", f"{NO_WORKER_LINE}\n")
    assert supervising.missing({"m3": server}) == {}
    monkeypatch.setattr(Probe, "bad", f"[-]broker bad\n{NO_WORKER_LINE}\n")
    Probe.asked = 0
    assert supervising.missing({"m3": server}) == {"m3": f"[-]broker bad, {NO_WORKER_LINE}"}


def test_a_node_that_does_not_listen_is_missing(server):
    closed = HTTPServer(("127.0.0.1", 0), Probe)
    port = closed.server_port
    closed.server_close()
    assert supervising.missing({"m1": f"http://127.0.0.1:{port}"}) == {"m1": "Connection refused"}


def test_nodes_are_asked_until_all_are_ready(server, monkeypatch):
    monkeypatch.setattr(supervising, "POLL_S", 0.001)
    monkeypatch.setattr(supervising, "TELL_EVERY_S", 0.0)
    ready = threading.Event()
    told: list[dict[str, str]] = []
    supervising.wait_until_ready({"m1": server}, threading.Event(), ready.set, told.append)
    assert ready.is_set()
    assert Probe.asked == 3
    assert told == [{"m1": "[-]broker bad, [-]worker bad"}] * 2


def test_asking_ends_when_the_cluster_is_stopped(server):
    stopped = threading.Event()
    stopped.set()
    ready = threading.Event()
    supervising.wait_until_ready({"m1": server}, stopped, ready.set, lambda _: None)
    assert not ready.is_set()
