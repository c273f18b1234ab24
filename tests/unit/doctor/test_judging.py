"""Each finding from made up facts: its level, its words, and that what is wrong names a command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerha.doctor import judging
from brokerha.doctor.facts import (
    BrokerFact,
    ClockFact,
    DataFact,
    DeploymentFact,
    FileFact,
    LimitsFact,
    ManagementFact,
    PortFact,
    QueueFact,
    SettingsFact,
    Wanted,
    WorkersFact,
)
from brokerha.doctor.judging import (
    OK,
    PROBLEM,
    WARNING,
    Finding,
    of_clocks,
    of_data,
    of_deployment,
    of_limits,
    of_port,
    of_secret,
    of_settings,
    of_workers,
    text,
    worst,
)
from brokerha.transports.rights import Rights, TopicRights

GIGABYTE = 1_000_000_000
DATA = DataFact(
    "m1", "/srv/m1", owner="ha", user="ha", free_bytes=500 * GIGABYTE, size_bytes=900 * GIGABYTE, file_system="ext4",
    fsync_ms=(1.0, 2.0, 900.0),
)  # fmt: skip
PORT = PortFact("m1", "127.0.0.1:7201")
FAR_PORT = replace(PORT, address="10.0.0.1:7201", is_loopback=False)
BROKER = BrokerFact(
    "amqp://orders.m1@h:5672 vhost 'orders'",
    "orders.m1",
    "orders",
    ("m1",),
    product="RabbitMQ",
    version="3.10.8",
    capabilities=judging.NEEDED,
    queues=(QueueFact("brokerha.m1.sync"),),
    topic_is_open=False,
    blocked="",
)
WANTED = Wanted(rights=Rights("^a$", "^b$", "^c$"), topic=TopicRights("^graph", "^$"))
TOLD = ManagementFact(("orders.m1",), {"orders.m1": ("^a$", "^b$", "^c$")}, {"orders.m1": ("^graph", "^$")}, (), {}, ())


def broker(**changes: Any) -> list[Finding]:
    return judging.of_broker(replace(BROKER, **changes), WANTED)


def told(**changes: Any) -> list[Finding]:
    return broker(management=replace(TOLD, **changes))


def linked(links: dict[tuple[str, str], str] | None, policies: dict[str, dict[str, Any]] | None = None) -> list[Finding]:
    """At the broker of m1, which is to fetch from those of m2 and m3."""
    management = replace(TOLD, links=links, policies=policies)
    return judging.of_broker(replace(BROKER, management=management), replace(WANTED, linked=("m2", "m3")))


def read_by(masters: int) -> list[Finding]:
    """Where the cluster file has two masters, and as many read what is for any of them."""
    queues = (QueueFact("brokerha.writes.any", consumers=masters),)
    return judging.of_broker(replace(BROKER, queues=queues), replace(WANTED, masters=2))


FEDERATED = {"federation-upstream-set": "all"}
THEIRS = "inequivalent arg … received 'brokerha.cluster.orders' but current is 'brokerha.cluster.stock'"
LINKS = {
    (f"{master} {exchange}", exchange): "running" for master in ("m2", "m3") for exchange in ("brokerha.sync", "brokerha.data")
}
"""All that there should be."""


CASES: dict[str, tuple[list[Finding], str, str]] = {
    "a secret that others read": ([of_secret(FileFact("/s/m1.url", 0o644))], PROBLEM, "others may read it"),
    "no directory, no right": (of_data(replace(DATA, exists=False, is_writable=False)), PROBLEM, "cannot make it"),
    "not writable": (of_data(replace(DATA, is_writable=False, owner="root")), PROBLEM, "cannot write there"),
    "another owner": (of_data(replace(DATA, owner="root")), WARNING, "belongs to root"),
    "others write": (of_data(replace(DATA, mode=0o777)), PROBLEM, "others may write"),
    "disk all but full": (of_data(replace(DATA, free_bytes=GIGABYTE // 2)), PROBLEM, "0.5 GB are free"),
    "disk rather full": (of_data(replace(DATA, free_bytes=4 * GIGABYTE, size_bytes=10 * GIGABYTE)), WARNING, "4.0 GB"),
    "small share": (of_data(replace(DATA, free_bytes=40 * GIGABYTE)), WARNING, "4% of the disk"),
    "memory as disk": (of_data(replace(DATA, file_system="tmpfs")), PROBLEM, "on tmpfs"),
    "disk of others": (of_data(replace(DATA, file_system="nfs4")), PROBLEM, "on nfs4"),
    "slow disk": (of_data(replace(DATA, fsync_ms=(21.0, 30.0, 40.0))), WARNING, "fsync takes 30.0 ms"),
    "port of others": (of_port(replace(PORT, listens=True)), PROBLEM, "another program holds"),
    "no such address": (of_port(replace(PORT, is_here=False)), PROBLEM, "no address of this machine"),
    "open door": (of_port(FAR_PORT), PROBLEM, "without TLS"),
    "few open files": (of_limits(LimitsFact(1024, 8 * GIGABYTE)), WARNING, "1,024 files"),
    "little memory": (of_limits(LimitsFact(-1, GIGABYTE // 2)), WARNING, "0.5 GB"),
    "old files": ([of_deployment(DeploymentFact("systemd", "d", {"x": "differs"}, "make"))], WARNING, "out of date: x"),
    "clock": (of_clocks([ClockFact("m2", -3.0)]), WARNING, "-3.0 s"),
    "another setting": (
        of_settings([SettingsFact("m1", {"idle-round-ms": "100"}), SettingsFact("m2", {"idle-round-ms": "9000"})]), WARNING, "100 at m1, 9000 at m2"
    ),
    "no broker": (broker(unreachable="nothing listens at h:5672", remedy="start the broker"), PROBLEM, "nothing listens"),
    "wrong password": (broker(unreachable="refused", refused="user"), PROBLEM, "refused"),
    "no virtual host": (broker(unreachable="vhost not found", refused="vhost"), PROBLEM, "does not exist"),
    "no right in it": (broker(unreachable="access refused", refused="vhost"), PROBLEM, "has no rights"),
    "another broker": (broker(product="LavinMQ"), WARNING, "RabbitMQ only"),
    "old broker": (broker(version="3.8.2"), PROBLEM, "3.10 is the oldest"),
    "feature": (broker(capabilities=judging.NEEDED[1:]), PROBLEM, "it has no basic.nack"),
    "no tls": (broker(is_loopback=False), PROBLEM, "passwords and data can be read"),
    "guest from outside": (broker(guest="10.0.0.1"), PROBLEM, "at 10.0.0.1"),
    "guest from here": (broker(guest="here"), WARNING, "from this machine"),
    "guest with a password": (told(users=("guest",)), WARNING, "password of its own"),
    "another exchange": (broker(exchanges={"brokerha.sync": "inequivalent arg 'type'"}), PROBLEM, "other than wanted"),
    "forbidden exchange": (broker(exchanges={"brokerha.sync": "ACCESS_REFUSED"}), PROBLEM, "may not declare"),
    "forbidden queue": (broker(queues=(QueueFact("brokerha.x", "ACCESS_REFUSED"),)), PROBLEM, "may not declare"),
    "another queue": (broker(queues=(QueueFact("brokerha.m1.writes", "inequivalent", 5),)), PROBLEM, "5 messages"),
    "delivery limit": (
        broker(queues=(QueueFact("brokerha.m1.writes", "arg 'x-queue-type' … is 'quorum'"),)), PROBLEM, "dead-letter"
    ),
    "not replicated": (
        broker(queues=(QueueFact("brokerha.m1.writes", "arg 'x-queue-type' … received the value 'quorum' … but current is none"),)),
        PROBLEM,
        "app-queues",
    ),
    "no right to publish": (broker(unwritable={"brokerha.sync": "ACCESS_REFUSED"}), PROBLEM, "may not publish"),
    "other rights": (told(permissions={"orders.m1": (".*", ".*", ".*")}), WARNING, "other permissions"),
    "open topic": (broker(topic_is_open=True), PROBLEM, "with any key"),
    "other topic": (told(topic_permissions={"orders.m1": ("^", "^")}), PROBLEM, "other topic permissions"),
    "blocked": (broker(blocked="low on disk"), PROBLEM, "low on disk"),
    "alarm": (told(alarms=("memory at rabbit@h",)), PROBLEM, "memory at rabbit@h"),
    "partition": (told(partitions={"rabbit@a": ("rabbit@b", "rabbit@c")}), PROBLEM, "rabbit@a from rabbit@b, rabbit@c"),
    "policy": (told(policies={"queue brokerha.writes.any": {"expires": 1}}), WARNING, "a policy sets expires"),
    "policy of a limit": (told(policies={"queue brokerha.m1.sync": {"max-length-bytes": 1, "overflow": "drop-head"}}), WARNING, "sets max-length-bytes, overflow: "),
    "policy of dead letters": (told(policies={"queue brokerha.m1.writes": {"dead-letter-exchange": "x"}}), WARNING, "sets dead-letter-exchange: "),
    "policy of an exchange": (told(policies={"exchange brokerha.sync": {"alternate-exchange": "x"}}), WARNING, "sets alternate-exchange: "),
    "federation where none is wanted": (told(policies={"exchange brokerha.data": FEDERATED}), WARNING, "sets federation-upstream-set: "),
    "federation of a queue": (linked(LINKS, {"queue brokerha.writes.any": FEDERATED}), WARNING, "sets federation-upstream-set: "),
    "listener": (told(listeners=("10.0.0.1:5672",)), WARNING, "without TLS at 10.0.0.1:5672"),
    "a door that cannot be opened": (of_port(replace(PORT, problem="no users: make some")), PROBLEM, "cannot be opened: no users: make some"),
    "another cluster in the virtual host": (read_by(3), PROBLEM, "3 masters read brokerha.writes.any in the virtual host 'orders'"),
    "the virtual host of another cluster": (broker(exchanges={"brokerha.cluster": THEIRS}), PROBLEM, "belongs to the cluster stock, and this is orders"),
    "a link that does not run": (linked({**LINKS, ("m3 brokerha.data", "brokerha.data"): "econnrefused"}), PROBLEM, "m3 brokerha.data to brokerha.data does not run: econnrefused"),
    "a link that is missing": (linked(dict(list(LINKS.items())[:3])), PROBLEM, "1 links to brokerha.data"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_one_finding_with_a_command(name: str):
    findings, level, words = CASES[name]
    wrong = [each for each in findings if each.level != OK]
    assert [each.level for each in wrong] == [level], wrong
    assert words in wrong[0].what
    assert wrong[0].command
    assert "\n" not in text(wrong[0])


@pytest.mark.parametrize(
    "findings",
    [
        [of_secret(FileFact("/s/m1.url", 0o600))],
        of_data(DATA),
        of_data(replace(DATA, exists=False)),
        of_data(replace(DATA, free_bytes=200 * GIGABYTE, size_bytes=9000 * GIGABYTE)),
        of_port(PORT),
        of_port(replace(PORT, listens=True, is_node=True)),
        of_port(replace(FAR_PORT, has_certificate=True)),
        of_port(replace(FAR_PORT, is_plain=True)),
        of_limits(LimitsFact(-1, 8 * GIGABYTE)),
        [of_deployment(DeploymentFact("systemd", "d", {"x": "up-to-date"}, "make"))],
        of_clocks([ClockFact("m2", 0.9)]),
        of_settings([SettingsFact(node, {"idle-round-ms": "100"}) for node in ("m1", "m2")]),
        broker(),
        broker(is_tls=True, is_loopback=False),
        broker(queues=(QueueFact("brokerha.m1.writes", "missing"),), exchanges={"brokerha.sync": "missing"}),
        told(),
        linked(LINKS),
        read_by(2),
    ],
)
def test_what_is_well_is_said_without_a_command(findings: list[Finding]):
    assert findings
    assert worst(findings) == OK
    assert not any(each.command for each in findings)


@pytest.mark.parametrize(
    "findings",
    [
        of_clocks([]),
        of_settings([SettingsFact("m1", {"idle-round-ms": "100"})]),
        of_data(replace(DATA, file_system="")),
        of_data(replace(DATA, fsync_ms=())),
        of_limits(LimitsFact(-1, 0)),
        broker(topic_is_open=None),
        broker(blocked=None),
        linked(None),
    ],
)
def test_what_cannot_be_known_is_said_to_be_not_checked(findings: list[Finding]):
    assert any(each.what.startswith("not checked: ") for each in findings)
    assert worst(findings) == OK


def test_a_setting_that_counts_from_the_next_start_asks_for_that_start_and_not_for_its_old_value():
    masters = [SettingsFact("m1", {"read-threads": "4"}, frozenset({"read-threads"})), SettingsFact("m2", {"read-threads": "8"})]
    (finding,) = of_settings(masters)
    assert (finding.what, finding.command) == ("it is 4 at m1, 8 at m2", "restart m1")


def test_a_worker_of_the_file_that_its_master_does_not_have_is_a_warning():
    (finding,) = of_workers(
        [WorkersFact("m1", ("w1a", "w1c"), frozenset({"w1a", "w1x"})), WorkersFact("m2", ("w2",), frozenset({"w2"}))]
    )
    assert (finding.level, finding.subject, finding.command) == (WARNING, "worker w1c", "brokerha worker add w1c")


def test_a_shared_user_on_this_machine_is_told_of_open_topics_as_a_warning():
    found = judging.of_broker(replace(BROKER, topic_is_open=True), Wanted())
    assert worst(found) == WARNING
