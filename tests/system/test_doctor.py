"""S4: eight misconfigurations of a real broker, each with its own finding, its exit code, and a command that mends it.

Given definitions that ``brokerha init`` made, and one thing changed, when the doctor looks as the node that is concerned, then it tells that
one thing; and after all of them nothing is in the broker that was not there before.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pika
import pytest

from brokerha.cli.main import main
from brokerha.doctor.machine_facts import own_addresses
from brokerha.transports.topology import WRITES_QUEUE_BYTES
from tests.support.broker_source import BrokerSource
from tests.support.private_broker import PrivateBroker
from tests.support.waiting import until

VHOST = "doctor"
FILE = """\
[cluster]
name = "{vhost}"
broker = "{broker}"
[[master]]
id = "m1"
[[worker]]
id = "w1"
master = "m1"
"""


QUORUM = {"x-queue-type": "quorum", "x-max-length-bytes": WRITES_QUEUE_BYTES, "x-overflow": "reject-publish"}
"""What a virtual host whose queues are quorum queues by default makes of the queue of writes."""


class Patient:
    """A cluster whose broker a test spoils."""

    def __init__(self, folder: Path, source: BrokerSource) -> None:
        self.source = source
        self.folder = folder
        self.path = folder / "cluster.toml"
        self.path.write_text(FILE.format(vhost=VHOST, broker=source.url_of(VHOST)), encoding="utf-8")
        self.secrets = folder / "deploy" / "secrets"
        assert main(["init", "definitions", "-c", str(self.path), "--deploy", str(folder / "deploy")]) == 0
        self.definitions: dict[str, Any] = json.loads((folder / "deploy" / "definitions.json").read_text())

    def url_of(self, user: str) -> str:
        return (self.secrets / f"{user}.url").read_text(encoding="utf-8").strip()

    def examined(self, *nodes: str, management: bool = False, url: str = "") -> tuple[int, dict[str, dict[str, str]]]:
        """Exit code, and what is not ok by what it is about; passwords are nowhere."""
        environ = {"BROKERHA_MANAGEMENT_URL": self.source.management_url} if management else {}
        if url:
            own = self.folder / "own"
            own.mkdir(exist_ok=True)
            (own / f"{nodes[0]}.url").write_text(url)
            (own / f"{nodes[0]}.url").chmod(0o600)
        out, err = io.StringIO(), io.StringIO()
        secrets = str(self.folder / "own" if url else self.secrets)
        with patch.dict(os.environ, environ), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["doctor", *nodes, "-c", str(self.path), "-o", "json", "--secrets", secrets])
        for secret in self.secrets.glob("*.url"):
            assert (urlsplit(secret.read_text()).password or "-") not in out.getvalue() + err.getvalue()
        found = json.loads(out.getvalue())["findings"]
        return code, {each["subject"]: each for each in found if each["level"] != "ok"}


@pytest.fixture(scope="module")
def patient(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    made = Patient(tmp_path_factory.mktemp("doctor"), broker)
    with broker.imported(made.folder / "deploy" / "definitions.json"):
        yield made


def test_what_is_right_is_found_right_and_left_alone(patient: Patient):
    with patient.source.management() as management:
        before = sorted(queue["name"] for queue in management.queues(VHOST))
    code, found = patient.examined("m1", "w1", management=True)
    assert set(found) <= {"broker guest", "broker listeners", "open files", "m1 data", "w1 data"}
    assert code == (1 if found else 0) or any(each["level"] == "problem" for each in found.values())
    with patient.source.management() as management:
        queues = management.queues(VHOST)
        assert sorted(queue["name"] for queue in queues) == before
        assert not any(queue.get("messages") for queue in queues)


def test_a_virtual_host_that_is_not_there(patient: Patient):
    code, found = patient.examined("m1", url=patient.url_of("m1").removesuffix(VHOST) + "nowhere")
    assert code == 2
    assert "rabbitmqctl add_vhost nowhere" in found["broker virtual host"]["command"]


def test_a_password_that_is_wrong(patient: Patient):
    parts = urlsplit(patient.url_of("m1"))
    wrong = f"amqp://{parts.username}:wrong@{parts.hostname}:{parts.port}/{VHOST}"
    code, found = patient.examined("m1", url=wrong)
    assert code == 2
    assert "change_password doctor.m1" in found["broker of m1 user"]["command"]


def test_topic_permissions_that_are_missing(patient: Patient):
    with patient.source.management() as management:
        management._request("DELETE", f"/topic-permissions/{VHOST}/{VHOST}.m1")
    assert patient.examined("m1")[1]["broker topic permissions"]["level"] == "problem"
    code, found = patient.examined("m1", management=True)
    assert code == 2
    _mended(patient, found["broker topic permissions"]["command"])
    assert "broker topic permissions" not in patient.examined("m1")[1]


def _mended(patient: Patient, command: str) -> None:
    """What the finding says works, where the broker is ours to command."""
    if patient.source.private is not None:
        patient.source.private.ctl(*shlex.split(command)[1:])
    else:
        with patient.source.management() as management:
            management.import_definitions(patient.definitions)


def test_policies_that_somebody_set_by_hand(patient: Patient):
    of_queues = {"max-length": 10, "overflow": "drop-head", "message-ttl": 60_000, "dead-letter-exchange": "amq.fanout"}
    with patient.source.management() as management:
        management.set_policy(VHOST, "short", of_queues, r"^brokerha\.writes\.", "queues")
        management.set_policy(VHOST, "away", {"alternate-exchange": "amq.fanout"}, r"^brokerha\.data$", "exchanges")
        # The interface tells the policies of queues with its statistics, which are seconds old.
        until(lambda: any(queue.get("policy") for queue in management.queues(VHOST)), "the policy at a queue")
    try:
        code, found = patient.examined("m1", management=True)
    finally:
        with patient.source.management() as management:
            for name in ("short", "away"):
                management._request("DELETE", f"/policies/{VHOST}/{name}")
    assert code >= 1
    assert "sets dead-letter-exchange, max-length, message-ttl, overflow" in found["queue brokerha.writes.any"]["what"]
    assert "sets alternate-exchange" in found["exchange brokerha.data"]["what"]
    assert f"clear_policy -p {VHOST}" in found["exchange brokerha.data"]["command"]


def test_rights_that_are_too_few(patient: Patient):
    with patient.source.management() as management:
        management.set_permissions(VHOST, f"{VHOST}.m1", ".*", r"^brokerha\.data$", ".*")
    code, found = patient.examined("m1")
    assert code == 2
    assert "brokerha." in found["broker permissions"]["what"]
    _mended(patient, found["broker permissions"]["command"])
    assert "broker permissions" not in patient.examined("m1", management=True)[1]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [("brokerha.m1.writes", {"x-max-length-bytes": 77}, "x-max-length-bytes"), ("brokerha.writes.any", QUORUM, "delivery-limit")],
)
def test_a_queue_that_is_another_one(patient: Patient, name: str, arguments: dict[str, Any], words: str):
    with pika.BlockingConnection(pika.URLParameters(patient.source.url_of(VHOST))) as connection:
        channel = connection.channel()
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments=arguments)
        code, found = patient.examined("m1")
        assert code == 2
        assert words in found[f"queue {name}"]["what"]
        channel.queue_delete(name)
    assert f"queue {name}" not in patient.examined("m1")[1]


def test_guest_with_the_password_that_everybody_knows(patient: Patient):
    if urlsplit(patient.source.amqp_url).username != "guest":
        pytest.skip("this broker has no guest")
    _, found = patient.examined("w1")
    assert found["broker guest"]["command"] == "rabbitmqctl delete_user guest"


def test_no_tls_to_another_machine(patient: Patient):
    parts = urlsplit(patient.url_of("w1"))
    elsewhere = next(iter(own_addresses()), "192.0.2.1")
    url = f"amqp://{parts.username}:{parts.password}@{elsewhere}:{parts.port}/{VHOST}"
    code, found = patient.examined("w1", url=url)
    assert code in {2, 3}
    assert found["broker tls"]["level"] == "problem"


def test_a_broker_that_takes_no_message(private_broker: PrivateBroker, tmp_path: Path):
    vhost = "doctor-alarm"
    patient = Patient.__new__(Patient)
    patient.source = BrokerSource(private_broker.create_vhost(vhost), private_broker.management_url, "private", private_broker)
    patient.folder = patient.secrets = tmp_path
    patient.path = tmp_path / "cluster.toml"
    patient.path.write_text(FILE.format(vhost=vhost, broker=private_broker.url_of(vhost)))
    with pika.BlockingConnection(pika.URLParameters(private_broker.url_of(vhost))) as connection:
        connection.channel().exchange_declare("brokerha.sync", "direct", durable=True)
    private_broker.ctl("set_vm_memory_high_watermark", "0")
    try:
        code, found = patient.examined("m1")
        with_management = patient.examined("m1", management=True)[1]
    finally:
        private_broker.ctl("set_vm_memory_high_watermark", "absolute", "2GB")
    assert code == 2
    assert found["broker alarms"]["level"] == "problem"
    assert with_management["broker alarms"]["level"] == "problem"
