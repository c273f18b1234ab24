"""`brokerha.connect` and the names of the package: the right wire for each address, and nothing heavy before it is needed."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import brokerha
from brokerha import aio, embedded
from brokerha.client import Client, Session
from brokerha.client.http_wire import HttpWire
from brokerha.model import errors
from tests.reference import api

CLUSTER = """
[cluster]
name = "orders"
broker = "{broker}"
[[master]]
id = "m1"
http = "127.0.0.1:7201"
[[worker]]
id = "w1"
master = "m1"
http = "0.0.0.0:7301"
"""
HEAVY = {"httpx2", "pika", "kombu", "amqp", "pyoxigraph", "starlette", "uvicorn", "lmdb", "msgpack", "asyncio", "rich", "typer"}


def test_importing_brokerha_loads_nothing_heavy() -> None:
    code = "import sys, brokerha; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not HEAVY & set(loaded)
    assert "brokerha.client" not in loaded


def test_the_public_names_are_there() -> None:
    assert (brokerha.Client, brokerha.Session) == (Client, Session)
    assert brokerha.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no_such_name"):
        brokerha.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_every_type_of_the_page_has_a_name_for_annotations() -> None:
    types = {each for part in api.PARTS for each in part.types if each.__module__ not in {aio.__name__, embedded.__name__}}

    assert {getattr(brokerha, each.__name__) for each in types} == types
    assert {each.__name__ for each in types} | {"LargeTransaction", "Session", "__version__", "connect", "errors"} == set(
        brokerha.__all__
    )
    assert all(getattr(brokerha, name) is not None for name in brokerha.__all__)


def test_every_error_can_be_imported_from_the_page_of_errors() -> None:
    named = importlib.import_module("brokerha.errors")
    homes = {name for name, each in vars(errors).items() if isinstance(each, type) and each.__module__ == errors.__name__}
    assert homes == set(named.__all__)
    assert all(getattr(named, name) is getattr(errors, name) for name in homes)
    assert brokerha.errors is named


def test_http_addresses_lead_to_the_http_wire() -> None:
    with brokerha.connect("http://127.0.0.1:1,http://127.0.0.1:2", timeout=3, ack="synchronised") as db:
        assert isinstance(db, Session)
        assert isinstance(db.wire, HttpWire)
        assert (db.timeout, db.ack) == (3, "synchronised")


def test_an_embedded_cluster_of_a_file_is_reached_over_http(tmp_path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.format(broker="embedded://"))

    with brokerha.connect(str(file)) as db:
        assert isinstance(db.wire, HttpWire)
        assert db.wire._nodes.urls == ("http://127.0.0.1:7201", "http://127.0.0.1:7301")


def test_a_file_with_a_broker_leads_to_that_broker(tmp_path, monkeypatch) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.format(broker="amqp://guest:guest@127.0.0.1:1/orders"))
    addresses = []

    class Recorder:
        def __init__(self, address: str) -> None:
            addresses.append(address)

    from brokerha.transports.client import wire as pika_wire

    monkeypatch.setattr(pika_wire, "AmqpWire", Recorder)

    brokerha.connect(str(file))
    brokerha.connect("amqp://guest:guest@127.0.0.1:2/orders")

    assert addresses == ["amqp://guest:guest@127.0.0.1:1/orders", "amqp://guest:guest@127.0.0.1:2/orders"]


def test_an_embedded_cluster_without_http_says_what_to_write(tmp_path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("\n".join(line for line in CLUSTER.format(broker="embedded://").splitlines() if "http" not in line))

    with pytest.raises(errors.ConfigurationError, match="give a master a line"):
        brokerha.connect(str(file))


@pytest.mark.parametrize("address", ["", "localhost", "ampq://guest:secret@host/orders", "cluster.yaml"])
def test_other_addresses_are_refused_without_repeating_a_password(address) -> None:
    with pytest.raises(errors.ConfigurationError, match="write http://host:port") as raised:
        brokerha.connect(address)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("rest", ["", "/x", ":7201", "127.0.0.1:port", "127.0.0.1:99999", "127.0.0.1:0", "[::1"])
def test_an_http_address_without_a_host_or_with_a_port_that_is_none_is_refused_at_once(rest) -> None:
    for address in (f"http://{rest}", f"http://127.0.0.1:7201,https://{rest}"):
        with pytest.raises(errors.ConfigurationError, match="write http://host:port"):
            brokerha.connect(address)


def test_a_level_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(errors.InvalidRequest, match="applied=N"):
        brokerha.connect("http://127.0.0.1:1", ack="committed")
