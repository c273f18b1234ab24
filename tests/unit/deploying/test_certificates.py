"""Certificates that clients accept, for the right names only, and that stay until they have to be made anew."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from brokerha.cli.main import main
from brokerha.deploying.certificates import Server, certificates_plan, parse_names, servers_of
from brokerha.deploying.files import DIFFERS, SAME, compare, write
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import load_config

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
FILE = """\
[cluster]
name = "orders"
broker = "amqp://h/orders"
{more}
[[master]]
id = "m1"
http = "{http}"
[[worker]]
id = "w1"
master = "m1"
"""


def cluster(folder: Path, http: str = "127.0.0.1:7201", more: str = "") -> Path:
    path = folder / "orders.toml"
    path.write_text(FILE.format(http=http, more=more))
    return path


def server(folder: Path, *hosts: str, name: str = "m1") -> Server:
    return Server(name, hosts, folder / f"{name}.pem", folder / f"{name}.key")


def made(folder: Path, *servers: Server, now: datetime = NOW, days: int = 397) -> set[str]:
    """What was found of the plan before it was written."""
    return {each.status for each in write(certificates_plan("orders", servers, folder, now, days), folder, force=True)}


def accepts(folder: Path, host: str, name: str = "m1") -> str:
    """What a client that trusts the authority says to a server; empty when it comes in."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    inside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    inside.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    there = inside.wrap_bio(to_server, to_client, server_side=True)
    here = ssl.create_default_context(cafile=str(folder / "ca.pem")).wrap_bio(to_client, to_server, server_hostname=host)
    for side in (here, there, here, there):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


def test_clients_come_in_by_the_names_that_were_given_and_by_no_others(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    made(tmp_path, server(tmp_path, "10.0.0.1", "m1.example.org"), server(tmp_path, "broker.example.org", name="rabbitmq"), now=now)

    assert [accepts(tmp_path, host) for host in ("m1.example.org", "10.0.0.1")] == ["", ""]
    assert accepts(tmp_path, "broker.example.org", "rabbitmq") == ""
    assert "mismatch" in accepts(tmp_path, "m2.example.org")
    assert "mismatch" in accepts(tmp_path, "broker.example.org")
    assert not (tmp_path / "m1.key").stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    assert not (tmp_path / "ca.key").stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_what_is_there_and_good_stays_without_the_key_of_the_authority_too(tmp_path: Path) -> None:
    one = server(tmp_path, "10.0.0.1")
    assert made(tmp_path, one) == {"new"}
    assert {
        each.status for each in compare(certificates_plan("orders", [one], tmp_path, NOW + timedelta(days=200), 397), tmp_path)
    } == {SAME}
    (tmp_path / "ca.key").unlink()
    assert {each.status for each in compare(certificates_plan("orders", [one], tmp_path, NOW, 30), tmp_path)} == {SAME}
    with pytest.raises(ConfigurationError, match=r"w1 needs a certificate, and .*ca.key is not there: bring it back"):
        certificates_plan("orders", [one, server(tmp_path, "10.0.0.2", name="w1")], tmp_path, NOW, 30)


def spoilt(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text(path.read_text().replace("B", "C").replace("d", "e"))


@pytest.mark.parametrize(
    "why", ["a third of its time is left", "another name", "another key", "another authority", "no certificate"]
)
def test_what_is_not_good_any_more_is_made_anew(tmp_path: Path, why: str) -> None:
    now = datetime.now(UTC)
    began = now - timedelta(days=270) if why == "a third of its time is left" else now
    made(tmp_path, server(tmp_path, "10.0.0.1"), server(tmp_path, "10.0.0.2", name="w1"), now=began)
    one = server(tmp_path, "10.0.0.1")
    match why:
        case "another name":
            one = server(tmp_path, "10.0.0.1", "m1")
        case "another key":
            (tmp_path / "m1.key").write_text((tmp_path / "w1.key").read_text())
        case "another authority":
            (tmp_path / "ca.pem").unlink()
        case "no certificate":
            spoilt(tmp_path, "m1.pem")

    plan = certificates_plan("orders", [one], tmp_path, now, 397)
    status = {each.path.name: each.status for each in compare(plan, tmp_path)}
    assert status["m1.pem"] == status["m1.key"] == DIFFERS or why == "another key"
    write(plan, tmp_path, force=True)
    assert accepts(tmp_path, "10.0.0.1") == ""


def test_a_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    made(tmp_path, server(tmp_path, "10.0.0.1"))
    (tmp_path / "ca.key").write_text((tmp_path / "m1.key").read_text())
    with pytest.raises(ConfigurationError, match=r"is not the key of .*ca.pem"):
        certificates_plan("orders", [server(tmp_path, "10.0.0.1")], tmp_path, NOW, 397)


def test_each_door_of_the_cluster_file_gets_one_where_the_file_says(tmp_path: Path) -> None:
    more = 'http-certificate = "door/{id}.pem"\nhttp-key = "door/{id}.key"\nhttp-users = "users.toml"'
    config = load_config(cluster(tmp_path, "10.0.0.1:7201", more), {})
    found = servers_of(config, parse_names(["m1=m1.example.org", "rabbitmq=b1,b2"]), tmp_path / "tls")

    assert found == [
        Server("m1", ("10.0.0.1", "m1.example.org"), tmp_path / "door" / "m1.pem", tmp_path / "door" / "m1.key"),
        Server("rabbitmq", ("b1", "b2"), tmp_path / "tls" / "rabbitmq.pem", tmp_path / "tls" / "rabbitmq.key"),
    ]


@pytest.mark.parametrize("http", ["0.0.0.0:7201", ":7201", "[::]:7201"])
def test_a_door_at_all_addresses_needs_a_name_and_is_asked_at_loopback_too(tmp_path: Path, http: str) -> None:
    config = load_config(cluster(tmp_path, http, "http-plain = true"), {})
    with pytest.raises(ConfigurationError, match="say by which names clients reach it: --name m1=HOST"):
        servers_of(config, {}, tmp_path)
    (one,) = servers_of(config, {"m1": ["m1.example.org"]}, tmp_path)
    assert one.hosts == ("127.0.0.1", "m1.example.org")


@pytest.mark.parametrize("text", ["m1", "m1=", "m1=a b", "m1=a,,b", "=a", "m 1=a", "m1=-a", "m1=" + "a" * 64])
def test_names_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write ID=HOST,HOST"):
        parse_names([text])


def test_two_servers_never_share_a_file(tmp_path: Path) -> None:
    one, other = server(tmp_path, "a"), Server("m2", ("b",), tmp_path / "m1.pem", tmp_path / "m2.key")
    with pytest.raises(ConfigurationError, match=r"write \{id\} into their names"):
        certificates_plan("orders", [one, other], tmp_path, NOW, 397)


def test_the_command_writes_checks_and_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["init", "certificates", "-c", str(cluster(tmp_path)), "--deploy", str(tmp_path / "deploy")]
    assert main([*words, "--check"]) == 2
    assert main(words) == 0
    said = capsys.readouterr().out
    assert 'http-certificate = "deploy/tls/{id}.pem"' in said
    assert "BROKERHA_CA_FILE=" in said
    assert main([*words, "--check"]) == 0
    assert main([*words, "--name", "m1=m1.example.org"]) == 2
    assert "--force overwrites them" in capsys.readouterr().err
    assert main([*words, "--name", "m1=m1.example.org", "--force"]) == 0
    assert main([*words, "--name", "w1=m1.example.org"]) == 78


def test_a_cluster_file_named_from_its_own_folder_has_them_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(tmp_path, more='http-certificate = "tls/{id}.pem"\nhttp-key = "tls/{id}.key"\nhttp-users = "users.toml"')
    monkeypatch.chdir(tmp_path)
    words = ["init", "certificates", "-c", "orders.toml"]
    assert main(words) == 0
    assert (tmp_path / "tls" / "m1.pem").is_file()
    assert main([*words, "--check"]) == 0
