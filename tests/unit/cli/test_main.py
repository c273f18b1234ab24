"""The program itself: exit codes, the one line of an error, which cluster is meant, and a fast start."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from brokerha.cli.cluster import status
from brokerha.cli.common import exits
from brokerha.cli.common.command import Cluster
from brokerha.cli.main import COMMANDS, main
from brokerha.client.http_connections import NotConnected
from brokerha.client.http_nodes import unreachable
from brokerha.client.outcomes import Written
from brokerha.model import errors
from brokerha.model.errors import Unreachable
from tests.unit.cli.fake_cluster import answer, node

ROOT = Path(__file__).parents[3]
URL = ("--url", "http://127.0.0.1:7201")
FILE = """\
[cluster]
name = "orders"
broker = "amqp://guest:geheim@127.0.0.1:1/orders"
[[master]]
id = "m1"
http = "127.0.0.1:1"
[[worker]]
id = "w1"
master = "m1"
http = "127.0.0.1:2"
"""


def untrusted() -> NotConnected:
    return NotConnected("not trusted: name its authority", None)


CLUSTER_COMMANDS = {
    "status": [],
    "update": ["INSERT DATA { <a:a> <a:a> 1 }"],
    "query": ["ASK {}"],
    "load": ["data.nt"],
    "get": ["prices", "sku-1"],
    "put": ["prices", "sku-1", "9.90"],
    "delete": ["prices", "sku-1"],
    "wait": ["7"],
    "verify": [],
    "log show": [],
    "log tail": [],
    "log verify": [],
}
WRONG_USAGE = [
    ["nonsense"],
    ["status", "--nonsense"],
    ["status", "-o", "xml"],
    ["update"],
    ["get", "prices"],
    ["wait"],
    ["log"],
    ["log", "show", "--from", "x"],
    ["simulate", "--seed", "1", "--seeds", "1-2"],
    ["simulate", "--trace"],
    ["simulate", "--seeds", "9-1"],
    ["bench", "--windows", "1,x"],
    ["node"],
]


def program(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "brokerha", *arguments],
        check=False, cwd=cwd, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environ}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


# ---- exit codes


@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_a_cluster_that_nobody_serves_is_exit_code_3_and_one_line(run, cluster, tmp_path, command):
    (tmp_path / "data.nt").write_text("<a:a> <a:a> <a:a> .\n")
    (tmp_path / "orders.toml").write_text(FILE)
    away = Unreachable("no answer from 127.0.0.1:1")
    cluster(**dict.fromkeys(("status", "update", "query", "load", "get", "put", "delete", "log", "outcome", "wait"), away))
    ran = run(*command.split(), *CLUSTER_COMMANDS[command], "-c", "orders.toml")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("brokerha: ")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("command", [*CLUSTER_COMMANDS, "up", "node"])
def test_a_wrong_cluster_file_is_exit_code_78_and_one_line(run, tmp_path, command):
    (tmp_path / "data.nt").write_text("")
    (tmp_path / "orders.toml").write_text(FILE.replace("name =", "nam ="))
    arguments = CLUSTER_COMMANDS.get(command, ["m1"] if command == "node" else [])
    ran = run(*command.split(), *arguments, "-c", "orders.toml")
    assert (ran.code, ran.out) == (78, "")
    assert ran.err == "brokerha: orders.toml:2: unknown key 'nam' in [cluster]: write name\n"


@pytest.mark.parametrize("arguments", WRONG_USAGE, ids=" ".join)
def test_a_wrong_command_line_is_exit_code_64_and_one_line(run, arguments):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (64, "")
    assert ran.err.startswith("brokerha: ")
    assert ran.err.endswith(" --help\n")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("value", ["-5", "-9.90", "-.5", "-1e3"])
def test_a_negative_number_is_a_value_and_no_option(run, cluster, value):
    client = cluster(put=Written("t1", 7, "applied"))
    assert run("put", "prices", "sku-1", value, *URL).code == 0
    assert client.calls[1][:4] == ("put", "prices", b"sku-1", value.encode())
    for wrong in ("-5c", "-x"):
        assert "No such option" in run("put", "prices", "sku-1", wrong, *URL).err


@pytest.mark.parametrize("group", ["", *(name for name, place in COMMANDS.items() if place.endswith(":app"))])
def test_what_a_list_of_commands_says_fits_on_a_line(run, group):
    listed = run(*filter(None, [group]), "--help").out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert listed
    assert not [line for line in listed if line.endswith("...") or line.startswith("   ")]


def test_no_arguments_at_all_show_the_help_on_standard_error(run):
    ran = run()
    assert (ran.code, ran.out) == (64, "")
    assert ran.err.startswith("Usage: brokerha")


@pytest.mark.parametrize("command", [name for name in CLUSTER_COMMANDS if name != "load"])
def test_a_command_that_does_not_know_which_cluster_says_how_to_tell_it(run, command):
    ran = run(*command.split(), *CLUSTER_COMMANDS[command])
    assert ran.code == 64
    assert "which cluster? write -c FILE" in ran.err


def test_the_program_ends_with_these_codes_as_a_process(tmp_path):
    # Given a file whose masters are not running, and one with a mistake
    (tmp_path / "good.toml").write_text(FILE)
    (tmp_path / "bad.toml").write_text(FILE.replace("[[worker]]", "[worker]"))
    # Then the exit codes of the process are those of the contract, without a traceback
    for code, arguments in ((78, ["status", "-c", "bad.toml"]), (64, ["status", "--bad"]), (0, ["--version"])):
        done = program(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.Rejected("no table"), 2, "no table; nothing was changed"),
        (errors.OutcomeUnknown("t1"), 2, "ask later with: brokerha wait t1; the same write with --key t1 takes effect once"),
        (errors.OutcomeUnknown("", "look before you give it again"), 2, "look before you give it again"),
        (errors.ReadOnly("the disk is full"), 2, "the disk is full; try again; brokerha status says what is missing"),
        (errors.NotReady("have the writers pause, and say it again"), 2, "have the writers pause, and say it again"),
        (errors.TimedOut("no answer in its time: try again"), 2, "no answer in its time: try again"),
        (errors.InvalidRequest("bad SPARQL\n at line 1"), 2, "bad SPARQL at line 1"),
        (errors.Unreachable("nobody"), 3, "start the nodes (brokerha up), or name another one with --url"),
        (unreachable("http://m1", untrusted()), 3, "http://m1: not trusted: name its authority"),
        (errors.ConfigurationError("c.toml:1: x"), 78, "c.toml:1: x"),
    ],
)
def test_each_error_is_one_line_with_what_to_do(error, code, text):
    assert exits.exit_code_of(error) == code
    line = exits.error_line(error)
    assert line.endswith(text)
    assert "\n" not in line


def test_a_broker_that_is_missing_is_not_told_as_a_missing_node(run, tmp_path):
    path = tmp_path / "orders.toml"
    path.write_text('[cluster]\nname = "orders"\nbroker = "amqp://127.0.0.1:1/orders"\n[[master]]\nid = "m1"\n')
    replay = ("replay", "--into", str(tmp_path / "w1"), "--stream", "amqp://127.0.0.1:1/orders", "--master", "m1")
    for words in (("quarantine", "list", "-c", str(path)), replay):
        ran = run(*words)
        assert ran.code == 3
        assert ran.err.endswith("nothing listens at 127.0.0.1:1; start the broker, or correct its address\n")


def test_a_fault_of_brokerha_is_shown_in_full_and_is_not_taken_for_degraded(run, cluster):
    cluster(status=ZeroDivisionError("seven by nothing"))
    ran = run("status", *URL)
    assert ran.code == 2
    assert "ZeroDivisionError: seven by nothing" in ran.err
    assert "this is a fault of brokerha" in ran.err


@pytest.mark.parametrize("late", [errors.StoreError("Spark gave up"), OSError(39, "Directory not empty")])
def test_what_fails_while_ctrl_c_ends_a_command_is_not_told_as_its_end(run, cluster, monkeypatch, late):
    def interrupted(*_):
        try:
            raise KeyboardInterrupt
        finally:
            raise late

    monkeypatch.setattr(status, "show", interrupted)
    cluster(status={})
    ran = run("status", *URL)
    assert (ran.code, ran.err) == (130, "")


# ---- which cluster


def test_a_cluster_file_gives_the_addresses_of_its_masters(tmp_path):
    path = tmp_path / "orders.toml"
    path.write_text(FILE)
    assert Cluster(path).addresses == {"m1": "http://127.0.0.1:1"}


def test_a_cluster_file_without_http_is_reached_through_its_broker(tmp_path):
    path = tmp_path / "orders.toml"
    path.write_text(FILE.replace('http = "127.0.0.1:1"\n', ""))
    assert Cluster(path).addresses == {"orders": "amqp://guest:geheim@127.0.0.1:1/orders"}


def test_an_embedded_cluster_without_http_cannot_be_reached(tmp_path):
    path = tmp_path / "orders.toml"
    path.write_text(FILE.replace('http = "127.0.0.1:1"\n', "").replace("amqp://guest:geheim@127.0.0.1:1/orders", "embedded://"))
    with pytest.raises(errors.ConfigurationError, match="no master has an http address"):
        _ = Cluster(path).addresses


def test_url_goes_before_the_environment_and_the_file_of_this_folder(run, cluster, monkeypatch, tmp_path):
    (tmp_path / "cluster.toml").write_text(FILE)
    client = cluster(status=Unreachable("x"))
    run("status")
    monkeypatch.setenv("BROKERHA_URL", "http://from.environment:1")
    run("status")
    run("status", *URL)
    run("status", "-c", "cluster.toml")
    connects = [call[1] for call in client.calls if call[0] == "connect"]
    assert connects == ["http://127.0.0.1:1", "http://from.environment:1", URL[1], "http://127.0.0.1:1"]


def test_url_and_file_together_are_a_mistake(run, tmp_path):
    (tmp_path / "orders.toml").write_text(FILE)
    ran = run("status", *URL, "-c", "orders.toml")
    assert ran.code == 64
    assert "write one of them" in ran.err


# ---- the start


def test_ctrl_c_while_the_program_is_loaded_ends_it_without_a_traceback(tmp_path):
    interrupted = (
        "import os, runpy, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        # A shell that puts the tests into the background has it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "runpy.run_module('brokerha', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", interrupted],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_help_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; from brokerha.cli.main import main; main(['--help']); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & "
        "{'rich', 'kombu', 'pika', 'httpx2', 'starlette', 'pyoxigraph', 'lmdb', 'structlog', 'email', 'ssl'}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Usage: brokerha [OPTIONS] COMMAND")
    assert done.stderr == "[]\n"


def test_the_cluster_file_loads_nothing_heavy():
    code = (
        "import sys; import brokerha.nodes.config.cluster; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'rich', 'kombu', 'pika', 'httpx2', 'starlette', 'lmdb', 'structlog'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_command_loads_its_own_module_only(tmp_path):
    code = (
        "import sys; from brokerha.cli.main import main; main(['get', '--help']); "
        "print(sorted(name for name in sys.modules if name.startswith(('brokerha.cli.', 'brokerha.client.'))"
        " and not name.startswith('brokerha.cli.common')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr == "['brokerha.cli.data', 'brokerha.cli.data.read_write', 'brokerha.cli.main']\n"


def test_version_is_that_of_the_package(run):
    assert run("--version").out.startswith("brokerha 0.")


# ---- where the output goes


@pytest.mark.parametrize("form", ["table", "json"])
def test_an_output_on_a_full_disk_is_one_line_and_no_fault(run, cluster, monkeypatch, form):
    cluster(status=answer(node("m1", "master")))
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123  (a device)
        monkeypatch.setattr(sys, "stdout", full)
        ran = run("status", "-o", form, *URL)
    assert (ran.code, ran.err) == (exits.FAILED, "brokerha: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_reader_that_goes_away_is_no_degraded_cluster(run, cluster, monkeypatch, form):
    cluster(status=answer(node("m1", "master")))
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w", encoding="utf-8", buffering=1) as gone:  # noqa: PTH123  (a descriptor)
        monkeypatch.setattr(sys, "stdout", gone)
        ran = run("status", "-o", form, *URL)
    assert (ran.code, ran.err) == (exits.PIPE_CLOSED, "")


def test_any_other_error_of_the_machine_is_still_shown_in_full(run, cluster):
    cluster(status=OSError(errno.ENOTDIR, "Not a directory"))
    ran = run("status", *URL)
    assert (ran.code, "this is a fault of brokerha" in ran.err) == (exits.FAILED, True)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_outputs_are_no_fault(closed):
    shell = f"exec {shlex.quote(sys.executable)} -m brokerha init --help {closed}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("encoding", "written"), [("ascii", b'"\\u00f6 \\u043a \\ud83d\\ude00"'), ("latin-1", b'"\xf6 \\u043a \\ud83d\\ude00"')]
)
def test_an_output_that_cannot_hold_a_character_gets_it_as_json_writes_it(monkeypatch, encoding: str, written: bytes) -> None:
    """The data are the user's, and the encoding is that of the terminal."""
    kept = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(kept, encoding=encoding))
    assert main([], Mock(side_effect=lambda **_: print('"ö к 😀"'))) == exits.DONE
    assert kept.getvalue().strip() == written
    assert json.loads(written.decode(encoding)) == "ö к 😀"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_file_that_this_user_may_not_use_is_no_fault_of_brokerha(capsys, number: int) -> None:
    assert main([], Mock(side_effect=OSError(number, os.strerror(number), "var/w1/lock"))) == exits.FAILED
    said = f"brokerha: var/w1/lock cannot be used: {os.strerror(number)}; run this as the user whom it belongs to\n"
    assert capsys.readouterr().err == said
