"""Each exit code, shown by real commands: the table of docs/reference/commands.md in both directions.

Given a small cluster in this process, or none, when a command ends in one of the ways that the table names, then its code is that of the table, and
whatever is no success is told in one line.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from brokerha.cli.common import exits
from brokerha.cli.machine import doctor
from brokerha.doctor import machine_facts
from brokerha.doctor.facts import DataFact, LimitsFact
from brokerha.doctor.judging import FREE_ENOUGH_BYTES, MEMORY_WARNING_BYTES, SLOW_FSYNC_MS
from brokerha.model.ids import NodeId
from tests.docs.json_outputs import Here, small_cluster
from tests.reference.commands import page
from tests.support.free_ports import free_ports
from tests.unit.cli.conftest import Ran

IN_CLUSTER = (
    (exits.DONE, "status"),
    (exits.DONE, "put prices sku-1 9.90"),
    # The cluster begins with four places in the order; the write above has the fifth
    (exits.DONE, "get prices sku-1 --min-lsn 5"),
    (exits.DONE, "verify"),
    (exits.DONE, "doctor"),
    (exits.DONE, "init supervisord -c broker.toml"),
    (exits.DONE, "init supervisord -c broker.toml --check"),
    (exits.FAILED, "init systemd -c broker.toml --check --deploy elsewhere"),
    (exits.FAILED, "get prices nothing"),
    (exits.FAILED, "settings get nope"),
    (exits.FAILED, "settings set nope 1"),
    (exits.FAILED, "worker off nope"),
    (exits.FAILED, "repository remove nope --yes"),
    (exits.DONE, "peer remove nope --yes"),
    (exits.DONE, "worker remove nope"),
    (exits.DONE, "log unpin nope"),
    (exits.FAILED, "consume nothing"),
    (exits.FAILED, "tx show nobody"),
    (exits.FAILED, "update 'INSERT NONSENSE'"),
    (exits.FAILED, "backup verify nowhere"),
    (exits.USAGE, "get prices"),
    (exits.USAGE, "no-such-command"),
    (exits.USAGE, "status --no-such-option"),
    (exits.USAGE, "status --timeout-s soon"),
    (exits.USAGE, "status -c cluster.toml --url http://127.0.0.1:1"),
    (exits.CONFIGURATION, "node nobody -c cluster.toml"),
    (exits.CONFIGURATION, "doctor nobody"),
)
WITHOUT = (
    (exits.UNREACHABLE, "status -c gone.toml --timeout-s 1"),
    (exits.UNREACHABLE, "get prices sku-1 -c gone.toml --timeout-s 1"),
    (exits.UNREACHABLE, "doctor -c gone.toml"),
    (exits.DEGRADED, "support-bundle -c gone.toml --file b.tar.gz"),
    (exits.USAGE, "status"),
    (exits.CONFIGURATION, "status -c nowhere.toml"),
    (exits.CONFIGURATION, "status -c wrong.toml"),
    (exits.CONFIGURATION, "doctor -c wrong.toml"),
    (exits.CONFIGURATION, "support-bundle -c wrong.toml"),
    (exits.CONFIGURATION, "init supervisord -c wrong.toml"),
    (exits.CONFIGURATION, "up -c wrong.toml"),
)
GONE = '[cluster]\nname = "gone"\nbroker = "amqp://127.0.0.1:{port}/x"\n[[master]]\nid = "m1"\nhttp = "127.0.0.1:{next}"\n'


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Here, Path]]:
    folder = tmp_path_factory.mktemp("codes")
    with small_cluster(folder) as here:
        yield here, folder


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A machine with room and a quick disk, whatever the one that runs this is like just now; and how quick its disk is."""
    true_data, true_limits = machine_facts.data_fact, machine_facts.limits_fact
    fsync_ms = [1.0]

    def data_fact(node: NodeId, folder: Path) -> DataFact:
        room = FREE_ENOUGH_BYTES
        fact = true_data(node, folder)
        return dataclasses.replace(fact, free_bytes=room, size_bytes=room, file_system="ext4", fsync_ms=tuple(fsync_ms))

    def limits_fact() -> LimitsFact:
        return dataclasses.replace(true_limits(), open_files=-1, memory_bytes=MEMORY_WARNING_BYTES)

    monkeypatch.setattr(machine_facts, "data_fact", data_fact)
    monkeypatch.setattr(machine_facts, "limits_fact", limits_fact)
    return lambda takes_ms: fsync_ms.__setitem__(0, takes_ms)


def told(ran: Ran) -> None:
    """Whatever failed is one line, never a traceback."""
    assert "Traceback" not in ran.err
    if ran.code in {exits.UNREACHABLE, exits.USAGE, exits.CONFIGURATION}:
        assert len([line for line in ran.err.splitlines() if line.startswith("brokerha: ")]) <= 1
        assert ran.err or ran.out


@pytest.mark.parametrize(("code", "line"), IN_CLUSTER)
def test_codes_of_commands_in_a_cluster(
    run: Callable[..., Ran], here: tuple[Here, Path], monkeypatch: pytest.MonkeyPatch, code: int, line: str
) -> None:
    monkeypatch.chdir(here[1])
    ran = run(*shlex.split(line))
    assert ran.code == code, ran.err or ran.out
    told(ran)


def test_a_slow_disk_is_a_warning(
    run: Callable[..., Ran], here: tuple[Here, Path], monkeypatch: pytest.MonkeyPatch, machine: Callable[[float], None]
) -> None:
    monkeypatch.chdir(here[1])
    machine(SLOW_FSYNC_MS + 1)
    ran = run("doctor", "m1")
    assert ran.code == exits.DEGRADED
    assert "fsync takes 21.0 ms" in ran.out


@pytest.mark.parametrize(("code", "line"), WITHOUT)
def test_codes_of_commands_without_a_cluster(
    run: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, line: str
) -> None:
    monkeypatch.setattr(doctor, "_STATUS_WITHIN_S", 1.0)
    port = free_ports(2)
    (tmp_path / "gone.toml").write_text(GONE.format(port=port, next=port + 1))
    (tmp_path / "wrong.toml").write_text('[cluster]\nname = "x"\nnmae = 1\n')
    ran = run(*shlex.split(line))
    assert ran.code == code, ran.err
    told(ran)


class Refusing(BaseHTTPRequestHandler):
    """A door that knows nobody."""

    def do_GET(self) -> None:
        body = b"who is it?"
        self.send_response(401)
        self.send_header("Brokerha-Error", "NotAllowed")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("command", ["status", "get prices sku-1", "log pin night --from 1", "worker list"])
def test_without_rights_no_command_says_that_a_person_has_to_act(run: Callable[..., Ran], command: str) -> None:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            ran = run(*shlex.split(command), "--url", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            serving.join()
    assert ran.code == exits.NOT_ALLOWED, ran.err
    assert "who is it?" in ran.err
    told(ran)


def test_every_code_of_the_table_is_shown() -> None:
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", page(), re.MULTILINE)}
    assert table == {exits.NOT_ALLOWED, *(code for code, _ in (*IN_CLUSTER, *WITHOUT))}
    named = {exits.DONE, exits.DEGRADED, exits.FAILED, exits.UNREACHABLE, exits.USAGE, exits.NOT_ALLOWED, exits.CONFIGURATION}
    assert table == named
