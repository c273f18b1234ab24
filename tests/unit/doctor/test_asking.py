"""How the doctor asks: nodes as who the environment says, the management interface at its address, and the operating system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from brokerha.doctor import cluster_facts
from brokerha.doctor.cluster_facts import port_fact, text_of
from brokerha.doctor.machine_facts import file_system
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry
from brokerha.transports.rabbitmq.addresses import parse_addresses

CONFIG = ClusterConfig(
    name="c", broker="amqp://h/c", masters=(MasterEntry("near", "127.0.0.1:7201"), MasterEntry("far", "10.0.0.9:7201"))
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Headers of the requests that were sent; each is answered."""
    found: list[dict[str, str]] = []

    def get(url: str, **named: Any) -> httpx2.Response:
        found.append(named["headers"])
        return httpx2.Response(200, text=f"{url} says so")

    monkeypatch.setattr(httpx2, "get", get)
    return found


def test_who_asks_is_told_by_the_environment_alone(sent: list[dict[str, str]], tmp_path: Path):
    (tmp_path / "token").write_text("abc\n")
    assert text_of(CONFIG, "near", "metrics", {"BROKERHA_TOKEN_FILE": str(tmp_path / "token")})
    assert text_of(CONFIG, "near", "metrics", {"BROKERHA_USER": "u", "BROKERHA_PASSWORD": "p"})
    assert text_of(CONFIG, "near", "metrics", {}) == "http://127.0.0.1:7201/metrics says so"
    assert sent == [{"Authorization": "Bearer abc"}, {"Authorization": "Basic dTpw"}, {}]


def test_a_secret_is_not_sent_to_another_machine_in_the_open(sent: list[dict[str, str]]):
    assert text_of(CONFIG, "far", "metrics", {"BROKERHA_TOKEN": "abc"}) is None
    assert sent == []
    assert text_of(CONFIG, "far", "metrics", {"BROKERHA_TOKEN": "abc", "BROKERHA_PLAIN_HTTP": "allowed"})
    assert text_of(CONFIG, "far", "metrics", {})
    assert sent == [{"Authorization": "Bearer abc"}, {}]


@pytest.mark.parametrize(
    ("address", "environ", "asked"),
    [
        ("amqp://[::1]/c", {}, "http://[::1]:15672/api/"),
        ("amqp://127.0.0.1/c", {"BROKERHA_MANAGEMENT_URL": "https://a:b@[::1]:1443"}, "https://[::1]:1443/api/"),
        ("amqp://127.0.0.1/c", {"BROKERHA_MANAGEMENT_URL": "http://h"}, "http://h:15672/api/"),
    ],
)
def test_the_management_interface_is_asked_at_addresses_of_both_kinds(
    monkeypatch: pytest.MonkeyPatch, address: str, environ: dict[str, str], asked: str
):
    urls: list[str] = []

    def get(http: httpx2.Client, _path: str) -> httpx2.Response:
        urls.append(str(http.base_url))
        return httpx2.Response(403)

    monkeypatch.setattr(httpx2.Client, "get", get)
    fact, problem = cluster_facts._management(parse_addresses(address)[0], "BROKERHA_MANAGEMENT_URL", environ)
    assert (fact, urls) == (None, [asked])
    assert "the management interface refuses" in problem


@pytest.mark.parametrize("url", ["http://h:port", "h:15672", "http://"])
def test_a_management_url_that_is_none_is_told_and_ends_nothing(url: str):
    environ = {"BROKERHA_MANAGEMENT_URL": url}
    fact, problem = cluster_facts._management(parse_addresses("amqp://127.0.0.1/c")[0], "BROKERHA_MANAGEMENT_URL", environ)
    assert (fact, "does not answer" in problem) == (None, True)


def test_a_file_system_is_found_whatever_the_name_of_its_place(tmp_path: Path):
    place = tmp_path / "dätä of m1"
    mounts = f"/dev/a / ext4 rw 0 0\ntmpfs {str(place).replace(' ', chr(92) + '040')} tmpfs rw 0 0\n"
    assert file_system(place / "m1", mounts) == "tmpfs"


def test_where_each_site_has_a_broker_none_is_judged_by_the_management_interface_of_another_one():
    def named(*brokers: str) -> list[str]:
        masters = tuple(MasterEntry(f"m-{n}", "127.0.0.1:7201", broker=url) for n, url in enumerate(brokers, 1))
        config = ClusterConfig(name="c", broker="amqp://h/c", masters=masters)
        return [cluster_facts._management_variable(config, [master.id]) for master in masters]

    assert named("", "amqp://h/c") == ["BROKERHA_MANAGEMENT_URL"] * 2
    assert named("", "amqp://h2/c") == ["BROKERHA_MANAGEMENT_URL_M_1", "BROKERHA_MANAGEMENT_URL_M_2"]


def test_a_broker_of_one_site_wants_a_link_from_each_other_one():
    masters = tuple(MasterEntry(f"m{n}", "127.0.0.1:7201", broker=f"amqp://h{n // 2}/c") for n in (1, 2, 3, 4))
    config = ClusterConfig(name="c", broker="amqp://h0/c", masters=masters)
    # m2 and m3 share theirs.
    wanted = [cluster_facts.wanted_of(config, (master.id,), "u") for master in masters]
    assert [(len(each.linked), each.masters) for each in wanted] == [(2, 1), (2, 2), (2, 2), (2, 1)]
    one = ClusterConfig(name="c", broker="amqp://h/c", masters=(MasterEntry("m1", ""), MasterEntry("m2", "")))
    assert (cluster_facts.wanted_of(one, ("m1",), "u").linked, cluster_facts.wanted_of(one, ("m1",), "u").masters) == ((), 2)


def test_what_would_end_a_node_at_its_door_is_found_without_it(tmp_path: Path):
    config = ClusterConfig(
        name="c",
        broker="amqp://h/c",
        path=tmp_path / "c.toml",
        masters=(MasterEntry("m1", "127.0.0.1:1"),),
        http_users="users.toml",
    )
    fact = port_fact(config, "m1")
    assert fact is not None
    assert "users.toml: cannot be read" in fact.problem
    (tmp_path / "users.toml").write_text('[[user]]\nname = "app"\nrole = "read"\ntokens = []\n')
    again = port_fact(config, "m1")
    assert again is not None
    assert "cannot be read" not in again.problem
