"""Which nodes run here, and the files of supervisord and systemd: parsed as their readers parse them."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brokerha.deploying import machine
from brokerha.deploying.files import write
from brokerha.doctor.machine_facts import user_name
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import load_config
from brokerha.nodes.serving import STOP_S
from tests.unit.deploying.clusters import EMBEDDED, ONE_SITE, TWO_SITES, cluster

ODD = "a folder; with 100% $odd 'names'"
PROGRAM = (sys.executable, "-m", "brokerha")
USER = "somebody"


# ---- machine


@pytest.mark.parametrize(
    ("names", "hosts", "found"),
    [
        ((), (), ["m1", "m1s", "w1", "w2"]),
        (("w2", "m1"), (), ["m1", "w2"]),
        ((), ("10.0.0.1",), ["m1", "w1", "w2"]),
        ((), ("10.0.0.2",), ["m1s"]),
    ],
)
def test_nodes_of_this_machine(tmp_path: Path, names: tuple[str, ...], hosts: tuple[str, ...], found: list[str]):
    assert machine.nodes_here(cluster(ONE_SITE, tmp_path), names, hosts) == found


@pytest.mark.parametrize(
    ("text", "names", "hosts", "said"),
    [
        (ONE_SITE, ("w9",), (), 'there is no node "w9"'),
        (ONE_SITE, (), ("10.0.0.9",), r"there are 10\.0\.0\.1, 10\.0\.0\.2"),
        (EMBEDDED, (), (), "one process, which needs no deployment"),
    ],
)
def test_nobody_here_is_a_mistake(tmp_path: Path, text: str, names: tuple[str, ...], hosts: tuple[str, ...], said: str):
    with pytest.raises(ConfigurationError, match=said):
        machine.nodes_here(cluster(text, tmp_path), names, hosts)


def test_the_variables_of_a_broker_are_all_that_name_it(tmp_path: Path):
    config = cluster(TWO_SITES, tmp_path)
    assert machine.broker_variables(config, "w1") == ["BROKERHA_CLUSTER_BROKER_FILE"]
    assert machine.broker_variables(config, "w2") == ["BROKERHA_MASTER_M2_BROKER_FILE"]


def test_who_shares_a_broker_still_does_with_users_of_their_own(tmp_path: Path):
    text = TWO_SITES.replace("amqps://rabbit-2:5671/orders?cacertfile=ca.pem", "amqp://rabbit-1/orders")
    config = cluster(text, tmp_path)
    secret = tmp_path / "m1.url"
    secret.write_text("amqp://orders.m1:secret@rabbit-1/orders\n", encoding="utf-8")
    environ = dict.fromkeys(machine.broker_variables(config, "m1"), str(secret))
    assert load_config(config.path, environ).shares_broker("m1")
    assert load_config(config.path, environ).shares_broker("m2")


def test_each_time_out_holds_the_one_inside_of_it():
    assert STOP_S < machine.LONGEST_STOP_S < machine.KILL_AFTER_S < machine.KILL_SUPERVISOR_AFTER_S


# ---- supervisord


def odd_programs(folder: Path) -> list[machine.Program]:
    place = folder / ODD
    place.mkdir()
    config = cluster(ONE_SITE, place)
    return machine.programs(config, ["m1", "w1"], PROGRAM, place / "secrets")


def parsed(text: str, here: Path) -> configparser.RawConfigParser:
    """As supervisord reads it: comments behind `` ;``, and expansions of a percent sign."""
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=True)
    parser.read_string(text)
    for section in parser.sections():
        for name, value in parser.items(section):
            parser.set(section, name, value.replace("\\;", ";") % {"here": str(here)})
    return parser


def test_supervisord_starts_the_nodes_again_for_ever_and_stops_them_in_order(tmp_path: Path):
    programs = machine.programs(cluster(ONE_SITE, tmp_path), ["m1", "w1"], PROGRAM, None)
    plan = machine.supervisord_plan("orders", programs, USER, tmp_path / "d", tmp_path)
    own, nodes = (parsed(file.text, tmp_path / "d") for file in plan.files)
    assert own["include"]["files"] == str(plan.files[1].path)
    assert own["unix_http_server"]["chmod"] == "0700"
    assert int(own["supervisord"]["minfds"]) == machine.OPEN_FILES
    assert "inet_http_server" not in own.sections()
    # `supervisorctl update` starts all programs of a group anew when one is new or changed.
    assert nodes.sections() == ["program:orders-m1", "program:orders-w1"]
    for node in ("m1", "w1"):
        section = nodes[f"program:orders-{node}"]
        assert section["autorestart"] == "true"
        assert int(section["stopwaitsecs"]) > machine.LONGEST_STOP_S
        # The pauses between tries grow by a second each: an hour is over long before the last of them.
        assert sum(range(int(section["startretries"]))) > 3600
        assert section["user"] == own["supervisord"]["user"] == USER
        assert section["stdout_logfile_maxbytes"] == "20MB"
        assert section["stopasgroup"] == "false"
        assert section["killasgroup"] == "true"


def test_supervisord_reads_odd_names_as_they_are(tmp_path: Path):
    programs = odd_programs(tmp_path)
    plan = machine.supervisord_plan("orders", programs, USER, tmp_path / "d", tmp_path / ODD)
    folders = _read_by_supervisord(plan.files[1].text, tmp_path)
    for program in programs:
        values = folders[f"program:orders-{program.node}"]
        assert tuple(shlex.split(values["command"])) == program.command
        assert values["directory"] == str(tmp_path / ODD)
        assert str(tmp_path / ODD / "secrets" / f"{program.node}.url") in values["environment"]


@pytest.mark.parametrize(
    ("deploy", "secrets", "character"),
    [("100%", "s", "'%'"), ("d", 'the "safe"', "'\"'"), ("d ;1", "s", "' ;'"), ("d", "s #1", "' #'"), ("d\n", "s", r"'\\n'")],
)
def test_a_path_that_supervisord_cannot_read_is_refused_by_its_character(tmp_path: Path, deploy: str, secrets: str, character: str):
    programs = machine.programs(cluster(ONE_SITE, tmp_path), ["m1"], PROGRAM, tmp_path / secrets)
    with pytest.raises(ConfigurationError, match=f"supervisord cannot read {character} in the path '.*': use a folder"):
        machine.supervisord_plan("orders", programs, USER, tmp_path / deploy, tmp_path)


def test_supervisord_finds_its_file_again_where_it_was_started(tmp_path: Path):
    """`supervisorctl update` and `reload` read it by the same relative path, after the daemon has gone to its own directory."""
    plan = machine.supervisord_plan("orders", [], user_name(), tmp_path / "d", tmp_path)
    write(plan, tmp_path / "d", force=False)
    code = (
        "import os\n"
        "from supervisor.options import ServerOptions\n"
        "options = ServerOptions()\n"
        "options.realize(['-c', 'd/supervisord.conf'])\n"
        "os.chdir(options.directory or '.')\n"
        "options.process_config(do_usage=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def _read_by_supervisord(text: str, here: Path) -> dict[str, dict[str, str]]:
    """Sections as the real supervisord reads and expands them."""
    code = (
        "import json, sys\n"
        "from supervisor.options import UnhosedConfigParser, expand\n"
        "parser = UnhosedConfigParser()\n"
        "parser.read_string(sys.stdin.read())\n"
        "print(json.dumps({s: {n: expand(v, {'here': sys.argv[1]}, n) for n, v in parser.items(s)} for s in parser.sections()}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(here)], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


# ---- systemd


def units(folder: Path, *, secrets: bool = True, program: tuple[str, ...] = PROGRAM) -> dict[str, str]:
    config = cluster(ONE_SITE, folder)
    programs = machine.programs(config, ["m1", "w1"], program, folder / "secrets" if secrets else None)
    plan = machine.systemd_plan("orders", programs, USER, folder, folder, [folder / "var"])
    return {str(file.path): file.text for file in plan.files}


def test_a_unit_never_gives_up_and_may_write_its_data_only(tmp_path: Path):
    files = units(tmp_path)
    assert set(files) == {"brokerha-orders.target", "brokerha-orders-m1.service", "brokerha-orders-w1.service"}
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(files["brokerha-orders-m1.service"])
    service = parser["Service"]
    assert parser["Unit"]["StartLimitIntervalSec"] == "0"
    assert parser["Unit"]["PartOf"] == "brokerha-orders.target"
    assert service["Restart"] == "always"
    assert service["RestartPreventExitStatus"] == "78"
    assert int(service["TimeoutStopSec"]) > machine.LONGEST_STOP_S
    assert service["User"] == USER
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == str(tmp_path / "var")
    assert service["LoadCredential"] == f"broker-url:{tmp_path}/secrets/m1.url"
    assert "Environment=BROKERHA_CLUSTER_BROKER_FILE=%d/broker-url\n" in files["brokerha-orders-m1.service"]
    assert "LoadCredential" not in units(tmp_path, secrets=False)["brokerha-orders-m1.service"]


def test_commands_for_root_name_the_folders_that_are_meant(tmp_path: Path):
    programs = machine.programs(cluster(ONE_SITE, tmp_path), ["m1"], PROGRAM, None)
    folder, data = tmp_path / ODD, tmp_path / ODD / "var"
    make, copy, *_ = machine.systemd_plan("orders", programs, USER, folder, folder, [data]).next_steps
    assert shlex.split(make.removeprefix("as root: "))[-1] == str(data)
    assert shlex.split(copy.removeprefix("as root: "))[1] == str(folder / "brokerha-orders.target")


def test_a_command_line_of_a_unit_says_what_was_meant():
    words = ("/usr/bin/env", "a b", 'say "x"', "50%", "$HOME", "back\\slash", "")
    text = " ".join(map(machine.quoted, words))
    plain = text.replace("$$", "$").replace("%%", "%").replace("$HOME", "'$HOME'")
    assert tuple(shlex.split(plain)) == words


def test_a_dollar_sign_is_doubled_in_arguments_only_as_systemd_takes_paths_as_they_are(tmp_path: Path):
    place = tmp_path / "a$b"
    place.mkdir()
    lines = units(place, program=(f"{place}/bin/python", "-m", "brokerha"))["brokerha-orders-m1.service"].splitlines()
    assert f"ExecStart={place}/bin/python -m brokerha node m1 -c {tmp_path}/a$$b/cluster.toml" in lines
    assert {f"WorkingDirectory={place}", f"ReadWritePaths={place}/var", f"LoadCredential=broker-url:{place}/secrets/m1.url"} <= {
        *lines
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path):
    place = tmp_path / "odd $b 100%"
    place.mkdir()
    python = place / "python"
    python.symlink_to(sys.executable)
    for name, text in units(place, program=(str(python), "-m", "brokerha")).items():
        # Who runs it need not exist here.
        (place / name).write_text(re.sub(r"^User=.*$", "User=daemon", text, flags=re.MULTILINE), encoding="utf-8")
    files = [str(path) for path in place.glob("brokerha-*")]
    verify = ["systemd-analyze", "verify", *files]
    done = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if "brokerha-" in line]
    assert (done.returncode, complaints) == (0, [])
    # And with debugging it tells how it has read them
    told = {**os.environ, "SYSTEMD_LOG_LEVEL": "debug"}
    read = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60, env=told)
    assert f"ReadWritePaths: {place / 'var'}\n" in read.stdout + read.stderr
